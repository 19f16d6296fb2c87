"""How an ascent is watched: free energy, noise and validation score, and when it stops.

What is shared by the models with a variational fit. A model says by a function what the free energy
of its parameters is; the rest is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf import row_shards
from jaxmf._kernels import tables
from jaxmf.engine import Info
from jaxmf.types import Array, Draw, Key, PyTree
from jaxmf.variational_bayes import updates
from jaxmf.variational_bayes.contracts import AscentPlan
from jaxmf.variational_bayes.held_out import Unknowing
from jaxmf.variational_bayes.parameters import Parameters, half
from jaxmf.variational_bayes.pieces import Layout
from jaxmf.variational_bayes.state import AscentState, Best, PreparedOnes, Validation
from jaxmf.variational_bayes.sums import map_lines


class Evaluation(NamedTuple):
    """Parameters with their free energy."""

    parameters: object  # of the model, with new noise where that is learned
    free_energy: Array  # () float, theirs
    plain: Parameters  # those of one matrix, by which rows are ranked


def step(
    epoch: Callable[[Key, AscentState, PreparedOnes], AscentState],
    key: Key,
    state: AscentState,
    data: PreparedOnes,
    progress: Array,
) -> tuple[AscentState, Info]:
    """One epoch; nothing once the ascent is done."""
    del progress
    state = jax.lax.cond(
        state.done, lambda state: state, lambda state: epoch(key, state, data), state
    )
    return state, Info(overflow={})


def first_state(
    key: Key, parameters: object, data: PreparedOnes, *, optimizer: object
) -> AscentState:
    """The state of an ascent before its first epoch.

    Args: key: typed PRNG key, of samples that stay the same.
    """
    zero, held_out = jnp.zeros((), jnp.result_type(float)), data.held_out
    return AscentState(
        parameters=parameters,
        best=None if data.validation is None else Best(parameters, zero, zero - 1),
        optimizer=optimizer,
        sample_key=jax.random.key_data(key),
        epoch=jnp.zeros((), jnp.int32),
        free_energy=zero,
        score=zero,
        stalled=jnp.zeros((), jnp.int32),
        done=jnp.zeros((), bool),
        unknowing=None
        if held_out is None
        else Unknowing(parameters, held_out.row, held_out.column),
    )


def evaluate_when_due(
    plan: AscentPlan,
    state: AscentState,
    data: PreparedOnes,
    evaluate_fn: Callable[[PyTree], Evaluation],
    *,
    every_epoch: bool,
    may_stop: Array | bool = True,
) -> AscentState:
    """Free energy, noise and validation score after an epoch, and whether to stop.

    Args: plan: has `num_epochs`, `evaluate_every`, `hold_priors`, `tolerance` and `patience`;
    evaluate_fn: from the model's parameters to their `Evaluation`; every_epoch: whatever
    `evaluate_every` says; may_stop: False while the ascent must continue, beside the epochs that
    hold priors.
    """
    held = (state.epoch < plan.hold_priors) | ~jnp.asarray(may_stop)
    epoch = state.epoch + 1
    if every_epoch:
        return _evaluate(plan, state, data, evaluate_fn, held)._replace(epoch=epoch)
    due = (epoch % plan.evaluate_every == 0) | (epoch == plan.num_epochs)
    state = jax.lax.cond(
        due,
        lambda state: _evaluate(plan, state, data, evaluate_fn, held),
        lambda state: state,
        state,
    )
    return state._replace(epoch=epoch)


def _evaluate(
    plan: AscentPlan,
    state: AscentState,
    data: PreparedOnes,
    evaluate_fn: Callable[[PyTree], Evaluation],
    held: Array,
) -> AscentState:
    parameters, value, plain = evaluate_fn(state.parameters)
    change = jnp.abs(value - state.free_energy) / jnp.maximum(jnp.abs(value), 1)
    stalled = change <= plan.tolerance
    state = state._replace(parameters=parameters, free_energy=value)
    if data.validation is not None and state.best is not None:
        score = validation_score(plain, data.validation)
        better = score > state.best.score
        stalled = ~better
        best = tables.either(better, Best(parameters, value, score), state.best)
        state = state._replace(best=best, score=score)
    count = jnp.where(stalled & ~held, state.stalled + 1, 0)
    return state._replace(stalled=count, done=count >= plan.patience)


def with_new_noise(
    parameters: PyTree, cost: Array, layout: Layout, *, learned: bool
) -> tuple[PyTree, Array]:
    """Parameters with the best noise where that is learned, and the expected cost then.

    Args: parameters: has `noise`; cost () float, expected cost at the noise as it was; learned:
    whether noise is learned.
    """
    if not learned:
        return parameters, cost
    noise = updates.new_noise(cost, parameters.noise, layout.num_observed)
    # at the new noise the squares make one half a cell
    cost = 0.5 * layout.num_observed * (1 + jnp.log(2 * jnp.pi * noise))
    return parameters._replace(noise=noise), cost


def _count_above(scores: Array, target_scores: Array, count: Array | bool = True) -> Array:
    """How many of the scores (B, D) that `count` are above a target (B, 1), ties by half."""
    above = (scores > target_scores) + 0.5 * (scores == target_scores)
    return jnp.sum(jnp.where(count, above, 0), axis=1, dtype=scores.dtype)


def validation_score(parameters: Parameters, validation: Validation) -> Array:
    """Mean of 1 / log2(1 + rank) of the ones that were taken away: () float.

    A one is ranked by its mean score among all columns that its row is not known to have, in the
    middle of those of the same score: a fit that scores all alike knows nothing.
    """
    view = half(parameters, "rows")
    row, column, known = validation
    columns = view.others.mean

    def one_block(block: tuple[Array, Array, Array]) -> Array:
        row_factors, target, known = block
        scores = row_factors @ columns.T
        target_scores = jnp.take_along_axis(scores, target[:, None], axis=1)
        above = _count_above(scores, target_scores) - 0.5  # itself not counted
        known_scores = jnp.take_along_axis(scores, jnp.minimum(known, columns.shape[0] - 1), axis=1)
        rank = 1 + above - _count_above(known_scores, target_scores, known < columns.shape[0])
        return 1 / jnp.log2(1 + rank)

    lines = (row_shards.rows_of_all(view.factors.mean, row), column, known)
    return jnp.mean(map_lines(one_block, lines, num_cells=columns.shape[0]))


def record(key: Key, state: AscentState, data: PreparedOnes) -> Draw:
    """Scalars recorded at every epoch."""
    del key, data
    kept = {"free_energy": state.free_energy, "num_epochs": state.epoch}
    return kept if state.best is None else kept | {"validation_score": state.score}


def draw_of(state: AscentState, named: Callable[[PyTree], dict[str, Array]]) -> Draw:
    """Parameters of the last state, or the best ones by validation.

    Args: named: from the model's parameters to arrays by name.
    """
    kept = state if state.best is None else state.best
    draw = named(kept.parameters)
    draw |= {"free_energy": kept.free_energy, "num_epochs": state.epoch}
    return draw if state.best is None else draw | {"validation_score": state.best.score}
