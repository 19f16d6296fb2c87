"""The ascent: where it starts, one epoch, when it stops."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxmf.engine import Info
from jaxmf.models.sparse_binary_mf.batches import Batches, one_pass
from jaxmf.models.sparse_binary_mf.state import Best, Prepared, State, Validation, as_draw
from jaxmf.types import Array, Key
from jaxmf.variational import Exact, Gaussian, Layout, Normal, Parameters, Priors
from jaxmf.variational import updates as closed
from jaxmf.variational.free_energy import divergence_from_prior, expected_cost, free_energy
from jaxmf.variational.parameters import half, with_half
from jaxmf.variational.pieces import num_lines, num_others
from jaxmf.variational.start import random_start, singular_start
from jaxmf.variational.sums import map_lines, side_sums
from jaxmf.variational.zeros import All, Zeros, draw_shared, draw_zeros

if TYPE_CHECKING:
    from jaxmf.models.sparse_binary_mf.model import SparseBinaryMF

_START_VARIANCE = 0.5
_LAST_STEP = 0.2
_RANDOM_SCALE = 0.1


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["relaxation", "decay", "tolerance", "hold_priors", "evaluate_every", "patience"],
    meta_fields=["num_epochs", "start", "update", "optimizer", "num_evaluation"],
)
@dataclass(frozen=True)
class Plan:
    """Options of the ascent; see `SparseBinaryMF.ascent`."""

    num_epochs: int
    start: str
    update: str
    optimizer: Any
    num_evaluation: int
    relaxation: float
    decay: float
    tolerance: float
    hold_priors: int
    evaluate_every: int
    patience: int


class _Step(NamedTuple):
    """What one update of both sides goes by."""

    zeros: tuple[Zeros, Zeros]
    evaluation: Zeros


# --- start ---------------------------------------------------------------------------------------


def init(plan: Plan, model: SparseBinaryMF, key: Key, data: Prepared) -> State:
    """Factors from the singular vectors, or random ones; the bias from the share of ones."""
    layout = data.layout
    start_key, sample_key = jax.random.split(key)
    parameters = start_parameters(plan, model, start_key, layout)
    zero = jnp.zeros((), parameters.noise.dtype)
    return State(
        parameters=parameters,
        best=None if data.validation is None else Best(parameters, zero, zero - 1),
        optimizer=_start_optimizer(plan, parameters),
        sample_key=jax.random.key_data(sample_key),
        epoch=jnp.zeros((), jnp.int32),
        free_energy=zero,
        score=zero,
        stalled=jnp.zeros((), jnp.int32),
        done=jnp.zeros((), bool),
    )


def start_parameters(plan: Plan, model: SparseBinaryMF, key: Key, layout: Layout) -> Parameters:
    """The first parameters."""
    num_rows, num_columns = num_lines(layout.rows), num_lines(layout.columns)
    num_factors = model.num_factors
    dtype = jnp.result_type(float)
    if plan.start == "svd":
        rows, columns = singular_start(key, layout, num_factors)
        # the prior of rows is that of unit variance: all scale but that goes to the columns
        size = jnp.sqrt(jnp.mean(rows**2, axis=0))
        size = jnp.where(size > 0, size, 1)
        rows, columns = rows / size, columns * size
    else:
        rows, columns = random_start(
            key, num_rows, num_columns, num_factors=num_factors, scale=_RANDOM_SCALE
        )
    # nothing but ones would start at an infinite bias
    share = (layout.num_ones + 0.5) / (layout.num_observed + 1)

    def factors(mean: Array) -> Normal:
        return Normal(mean, jnp.full_like(mean, _START_VARIANCE))

    def offset(number: int) -> Normal | None:
        if model.offsets != "rows_columns":
            return None
        return factors(jnp.zeros((number,), dtype))

    is_gaussian = isinstance(model.likelihood, Gaussian)
    noise = 4 * share * (1 - share) if is_gaussian else jnp.ones((), dtype)
    if is_gaussian and model.likelihood.noise_variance is not None:
        noise = jnp.asarray(model.likelihood.noise_variance, dtype)
    level = 2 * share - 1 if is_gaussian else jnp.log(share) - jnp.log1p(-share)
    nothing = jnp.zeros((), dtype)
    has_bias = model.offsets != "none"
    return Parameters(
        rows=factors(rows),
        columns=factors(columns),
        row_offset=offset(num_rows),
        column_offset=offset(num_columns),
        bias=Normal(level, nothing + _START_VARIANCE) if has_bias else Normal(nothing, nothing),
        priors=start_priors(model, dtype),
        noise=noise.astype(dtype),
    )


def start_priors(model: SparseBinaryMF, dtype: Any) -> Priors:
    """The priors of a model; what is learned starts at mean zero and variance one."""

    def vector(value: Any, otherwise: float) -> Array:
        value = jnp.asarray(otherwise if value is None else value, dtype)
        return jnp.broadcast_to(value, (model.num_factors,))

    offset = jnp.asarray(1.0 if model.offset_variance is None else model.offset_variance, dtype)
    return Priors(
        rows=Normal(vector(model.row_mean, 0.0), vector(model.row_variance, 1.0)),
        columns=Normal(vector(model.column_mean, 0.0), vector(model.column_variance, 1.0)),
        row_offset=offset,
        column_offset=offset,
        bias=jnp.asarray(model.bias_variance, dtype),
    )


def _start_optimizer(plan: Plan, parameters: Parameters) -> Any:
    if plan.update == "partial_newton":
        return tuple(
            plan.optimizer.init(half(parameters, side).mine.mean) for side in ("rows", "columns")
        )
    if plan.update == "gradient":
        return plan.optimizer.init(_unbound(parameters))
    return None


# --- one epoch -----------------------------------------------------------------------------------


def step(
    plan: Plan, model: SparseBinaryMF, key: Key, state: State, data: Prepared, progress: Array
) -> tuple[State, Info]:
    """One epoch: rows, columns, priors, noise; nothing once the ascent is done."""
    del progress
    state = jax.lax.cond(
        state.done,
        lambda state: state,
        lambda state: _epoch(plan, model, key, state, data),
        state,
    )
    return state, Info(overflow={})


def _epoch(plan: Plan, model: SparseBinaryMF, key: Key, state: State, data: Prepared) -> State:
    layout = data.layout
    fixed_key = jax.random.wrap_key_data(state.sample_key, impl=jax.random.key_impl(key))
    draw_key = key if _resamples(model) else fixed_key
    zeros = (
        draw_zeros(jax.random.fold_in(draw_key, 0), model.zeros, layout.rows),
        draw_zeros(jax.random.fold_in(draw_key, 1), model.zeros, layout.columns),
    )
    chosen = _Step(zeros, evaluation_zeros(plan, model, fixed_key, layout))
    if data.batches is not None:
        parameters = _in_batches(plan, model, draw_key, state, data.batches)
        optimizer = state.optimizer
    elif plan.update == "gradient":
        parameters, optimizer = _follow_gradient(plan, model, state, layout, chosen)
    else:
        parameters, optimizer = _both_sides(plan, model, state, layout, chosen)
    held = state.epoch < plan.hold_priors
    priors = closed.new_priors(parameters, model.learned())
    parameters = parameters._replace(
        priors=jax.tree.map(lambda old, new: jnp.where(held, old, new), parameters.priors, priors)
    )
    state = state._replace(parameters=parameters, optimizer=optimizer)
    return _look(plan, model, state, data, chosen)


def evaluation_zeros(plan: Plan, model: SparseBinaryMF, key: Key, layout: Layout) -> Zeros:
    """The zeros of the free energy that is watched, the same in every epoch."""
    if isinstance(model.likelihood, Gaussian) or isinstance(model.zeros, Exact):
        return All()
    number = min(plan.num_evaluation, num_others(layout.rows))
    return draw_shared(jax.random.fold_in(key, 2), layout.rows, number)


def _in_batches(
    plan: Plan, model: SparseBinaryMF, key: Key, state: State, parts: Batches
) -> Parameters:
    return one_pass(
        model,
        key,
        state.parameters,
        parts,
        first=state.epoch * parts.rows.shape[0],
        decay=jnp.asarray(plan.decay, state.free_energy.dtype),
    )


def _both_sides(
    plan: Plan, model: SparseBinaryMF, state: State, layout: Layout, chosen: _Step
) -> tuple[Parameters, Any]:
    parameters, optimizers = state.parameters, []
    late = _lateness(plan, model, state)
    unknown = jnp.finfo(state.free_energy.dtype).max
    for place, side in enumerate(("rows", "columns")):
        table = (layout.rows, layout.columns)[place]
        own = None if state.optimizer is None else state.optimizer[place]
        view = half(parameters, side)
        sums = side_sums(
            view,
            table,
            chosen.zeros[place],
            likelihood=model.likelihood,
            noise=parameters.noise,
            block=plan.update == "block",
        )
        if model.offsets != "none":
            bias = closed.new_bias(view, sums, parameters.priors.bias)
            view, sums = closed.after_bias(view, sums, bias)
        found = closed.slopes(view, sums, block=plan.update == "block")
        variance = closed.new_variances(view, found)
        if plan.update == "block":
            length = (1 - late) * plan.relaxation + late * _LAST_STEP
            mean = view.mine.mean - length * closed.newton_step(view, sums, found)
        else:
            change, own = plan.optimizer.update(
                found.gradient,
                own,
                view.mine.mean,
                curvature=found.curvature,
                value=jnp.where(state.epoch > 0, state.free_energy, unknown),
            )
            length = (1 - late) + late * _LAST_STEP
            mean = view.mine.mean + length * jnp.where(view.free, change, 0)
        optimizers.append(own)
        parameters = with_half(parameters, side, Normal(mean, variance), view.bias)
    return parameters, None if state.optimizer is None else tuple(optimizers)


def _lateness(plan: Plan, model: SparseBinaryMF, state: State) -> Array:
    """How far the second half of the epochs is, 0 to 1, where zeros are drawn anew; otherwise 0.

    Steps shorten with it, so that the means become averages over the samples of many epochs.
    """
    share = 2 * state.epoch.astype(state.free_energy.dtype) / plan.num_epochs - 1
    return jnp.clip(share, 0, 1) if _resamples(model) else jnp.zeros_like(share)


def _resamples(model: SparseBinaryMF) -> bool:
    return not isinstance(model.zeros, Exact) and model.zeros.resample


def _unbound(parameters: Parameters) -> Any:
    """What gradients move: means, and logarithms of variances; priors and noise stay."""
    p = parameters
    moved = (p.rows, p.columns, p.row_offset, p.column_offset, p.bias)
    return tuple(
        q if q is None else Normal(q.mean, jnp.log(jnp.where(q.variance > 0, q.variance, 1)))
        for q in moved
    )


def _bound(parameters: Parameters, moved: Any) -> Parameters:
    q: list[Any] = [
        each if each is None else Normal(each.mean, jnp.exp(each.variance)) for each in moved
    ]
    is_held = parameters.bias.variance == 0
    bias = jax.tree.map(partial(jnp.where, is_held), parameters.bias, q[4])
    return parameters._replace(
        rows=q[0], columns=q[1], row_offset=q[2], column_offset=q[3], bias=bias
    )


def _follow_gradient(
    plan: Plan, model: SparseBinaryMF, state: State, layout: Layout, chosen: _Step
) -> tuple[Parameters, Any]:
    parameters = state.parameters
    moved = _unbound(parameters)

    def objective(moved: Any) -> Array:
        return free_energy(
            _bound(parameters, moved),
            layout,
            zeros=chosen.zeros[0],
            likelihood=model.likelihood,
        )

    value, gradient = jax.value_and_grad(objective)(moved)
    optimizer = optax.with_extra_args_support(plan.optimizer)
    change, state_after = optimizer.update(
        gradient, state.optimizer, moved, value=value, grad=gradient, value_fn=objective
    )
    return _bound(parameters, optax.apply_updates(moved, change)), state_after


# --- looking -------------------------------------------------------------------------------------


def _look(plan: Plan, model: SparseBinaryMF, state: State, data: Prepared, chosen: _Step) -> State:
    """Free energy, noise and validation score after an epoch, and whether to stop."""
    epoch = state.epoch + 1
    due = (epoch % plan.evaluate_every == 0) | (epoch == plan.num_epochs)
    learn_noise = model.learned().noise_variance
    if learn_noise:
        looked = _evaluate(plan, model, state, data, chosen)
    else:
        looked = jax.lax.cond(
            due,
            lambda state: _evaluate(plan, model, state, data, chosen),
            lambda state: state,
            state,
        )
    return looked._replace(epoch=epoch)


def _evaluate(
    plan: Plan, model: SparseBinaryMF, state: State, data: Prepared, chosen: _Step
) -> State:
    parameters, layout = state.parameters, data.layout
    cost = expected_cost(parameters, layout, zeros=chosen.evaluation, likelihood=model.likelihood)
    held = state.epoch < plan.hold_priors
    if model.learned().noise_variance:
        noise = closed.new_noise(cost, parameters.noise, layout.num_observed)
        # at the new noise the squares make one half a cell
        cost = 0.5 * layout.num_observed * (1 + jnp.log(2 * jnp.pi * noise))
        parameters = parameters._replace(noise=noise)
    value = cost + divergence_from_prior(parameters)
    change = jnp.abs(value - state.free_energy) / jnp.maximum(jnp.abs(value), 1)
    stalled = change <= plan.tolerance
    state = state._replace(parameters=parameters, free_energy=value)
    if data.validation is not None and state.best is not None:
        score = validation_score(parameters, data.validation)
        better = score > state.best.score
        stalled = ~better
        found = Best(parameters, value, score)
        best = jax.tree.map(partial(jnp.where, better), found, state.best)
        state = state._replace(best=best, score=score)
    count = jnp.where(stalled & ~held, state.stalled + 1, 0)
    return state._replace(stalled=count, done=count >= plan.patience)


def _number_ahead(scores: Array, own: Array, count: Array | bool = True) -> Array:
    """How many of the scores (B, D) that `count` are above one's own (B, 1), ties by half."""
    ahead = (scores > own) + 0.5 * (scores == own)
    return jnp.sum(jnp.where(count, ahead, 0), axis=1, dtype=scores.dtype)


def validation_score(parameters: Parameters, validation: Validation) -> Array:
    """Mean of 1 / log2(1 + rank) of the ones that were taken away: () float.

    A one is ranked by its mean score among all columns that its row is not known to have, in the
    middle of those of the same score: a fit that scores all alike knows nothing.
    """
    view = half(parameters, "rows")
    row, column, known = validation
    columns = view.others.mean

    def one_block(block: tuple[Array, Array, Array]) -> Array:
        mine, target, known = block
        scores = mine @ columns.T
        own = jnp.take_along_axis(scores, target[:, None], axis=1)
        ahead = _number_ahead(scores, own) - 0.5  # itself not counted
        known_scores = jnp.take_along_axis(scores, jnp.minimum(known, columns.shape[0] - 1), axis=1)
        rank = 1 + ahead - _number_ahead(known_scores, own, known < columns.shape[0])
        return 1 / jnp.log2(1 + rank)

    lines = (view.mine.mean[row], column, known)
    return jnp.mean(map_lines(one_block, lines, num_cells=columns.shape[0]))


def record(key: Key, state: State, data: Prepared) -> dict[str, Array]:
    """What is kept of every epoch: scalars alone."""
    del key, data
    kept = {"free_energy": state.free_energy, "num_epochs": state.epoch}
    return kept if state.best is None else kept | {"validation_score": state.score}


def draw_of(state: State) -> dict[str, Array]:
    """What is kept of the last state: the parameters, or the best ones by validation."""
    kept = state if state.best is None else state.best
    draw = as_draw(kept.parameters)
    draw |= {"free_energy": kept.free_energy, "num_epochs": state.epoch}
    return draw if state.best is None else draw | {"validation_score": state.best.score}
