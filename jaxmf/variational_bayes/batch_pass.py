"""A pass over batches of rows: columns follow sums over a few rows with steps that decay.

At step t the rows of a batch are updated as ever: all of their cells are in the batch. The columns
and the intercept belong to all batches; what they would do by the sums over the batch, scaled up to
all rows, they do by a share rho_t, which by the conditions of Robbins and Monro ends in a minimum.

- "block" and "partial_newton": rho_t = (1 + t)^-kappa. Means move by the share of their step, and
  precisions, the natural parameters, to the share; partial Newton divides by the precision that has
  been gathered over the batches and not by that of a batch, so that the steps are unbiased.
- "gradient": an optax optimiser follows the derivative of an unbiased estimate of the free energy;
  its steps are cut by (1 + t / number of batches)^-kappa, as an optimiser chooses the length
  of a step itself. Rows follow the derivative of their part, which is exact, in whole steps.

Rows of each batch have a separate optimiser state, the columns one for all batches.

Source: Hoffman, Blei & Bach (2010), Online learning for latent Dirichlet allocation; the paper on
sparse binary matrices leaves it to future work.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxmf.types import Array, Key, PyTree
from jaxmf.variational_bayes import updates
from jaxmf.variational_bayes.batches import Batches
from jaxmf.variational_bayes.contracts import CellSettings
from jaxmf.variational_bayes.free_energy import (
    divergence_of_others,
    divergence_of_rows,
    expected_cost,
)
from jaxmf.variational_bayes.parameters import Half, Normal, Parameters, half, with_half
from jaxmf.variational_bayes.sums import CellSums, side_sums
from jaxmf.variational_bayes.zeros import draw_zeros


class Optimizers(NamedTuple):
    """States of an optax transformation."""

    rows: object  # those of the batches, stacked
    shared: object  # of the columns, and with gradients the intercept


class Rule(NamedTuple):
    """How parameters move by a batch."""

    settings: Any  # a model's description: likelihood, zeros and biases
    update: str  # "block", "partial_newton" or "gradient"
    optimizer: Any  # an optax transformation; None with blocks
    decay: Array  # () float, kappa, between 1/2 and 1
    value: Array  # () float, the free energy as far as it is known, for steps that adapt to it


class _BatchStep(NamedTuple):
    """One step: a batch and what it is in the pass."""

    batch: Batches
    num_before: Array  # () int32, steps done before it
    num_batches: int
    scale: float  # rows of the matrix over those of the batch
    key: Key


def start_optimizers(
    update: str, optimizer: optax.GradientTransformation, parameters: Parameters, batches: Batches
) -> Optimizers | None:
    """The first states; None with blocks."""
    if update == "block":
        return None

    def init_rows(rows: Array) -> PyTree:
        part = _rows_of(parameters, rows)
        if update == "gradient":
            return optimizer.init(unbounded(part))
        return optimizer.init(half(_with_rows(parameters, part), "rows").factors.mean)

    shared = half(parameters, "columns").factors.mean
    if update == "gradient":
        shared = unbounded(_shared_of(parameters))
    return Optimizers(jax.vmap(init_rows)(batches.rows), optimizer.init(shared))


def one_pass(
    rule: Rule,
    key: Key,
    parameters: Parameters,
    batches: Batches,
    optimizers: Optimizers | None,
    *,
    first: Array,
) -> tuple[Parameters, Optimizers | None]:
    """One pass over all batches.

    Args:
      optimizers: their states; None with blocks.
      first: () int32, steps done before.
    """
    scale = parameters.rows.mean.shape[0] / batches.rows.shape[1]
    move = {"block": _by_sums, "partial_newton": _by_sums, "gradient": _by_gradient}[rule.update]

    def one_batch(carry: PyTree, turn: tuple[Batches, PyTree]) -> tuple[PyTree, PyTree]:
        whole, shared, num_before = carry
        batch, row_state = turn
        # keyed by the index of the batch, so that fixed samples are the same in every epoch
        batch_key = jax.random.fold_in(key, num_before - first)
        step = _BatchStep(batch, num_before, batches.rows.shape[0], scale, batch_key)
        part = _with_rows(whole, _rows_of(whole, batch.rows))
        part, row_state, shared = move(rule, step, part, row_state, shared)
        whole = _put_back(whole, part, batch.rows)
        return (whole, shared, num_before + 1), row_state

    row_state, shared = (None, None) if optimizers is None else optimizers
    (parameters, shared, _), row_state = jax.lax.scan(
        one_batch, (parameters, shared, first), (batches, row_state)
    )
    return parameters, None if optimizers is None else Optimizers(row_state, shared)


def _rows_of(parameters: Parameters, rows: Array) -> tuple[Normal, Normal | None]:
    part: tuple[Normal, Normal | None] = jax.tree.map(
        lambda leaf: leaf[rows], (parameters.rows, parameters.row_bias)
    )
    return part


def _with_rows(parameters: Parameters, part: tuple[Normal, Normal | None]) -> Parameters:
    return parameters._replace(rows=part[0], row_bias=part[1])


def _put_back(whole: Parameters, part: Parameters, rows: Array) -> Parameters:
    before, after = (whole.rows, whole.row_bias), (part.rows, part.row_bias)
    return _with_rows(part, jax.tree.map(lambda old, new: old.at[rows].set(new), before, after))


def _shared_of(parameters: Parameters) -> tuple[Normal, Normal | None, Normal]:
    return parameters.columns, parameters.column_bias, parameters.intercept


# --- by sums -------------------------------------------------------------------------------------


def _by_sums(
    rule: Rule, step: _BatchStep, parameters: Parameters, row_state: PyTree, shared: PyTree
) -> tuple[Parameters, PyTree, PyTree]:
    """The rows of a batch, then columns and intercept a share of the way."""
    layout, block = step.batch.layouts, rule.update == "block"
    share = (1 + step.num_before).astype(parameters.noise.dtype) ** -rule.decay
    states = [row_state, shared]
    for index, side in enumerate(("rows", "columns")):
        table = (layout.rows, layout.columns)[index]
        view = half(parameters, side)
        sums = side_sums(
            view,
            table,
            draw_zeros(jax.random.fold_in(step.key, index), rule.settings.zeros, table),
            likelihood=rule.settings.likelihood,
            noise=parameters.noise,
            block=block,
        )
        scaled_sums = scaled(sums, step.scale)
        # a row has all of its cells in the batch, a column has not
        sums, length = (sums, jnp.ones_like(share)) if side == "rows" else (scaled_sums, share)
        if rule.settings.bias != "none":
            target = updates.new_intercept(
                view, scaled_sums, parameters.priors.intercept, likelihood=rule.settings.likelihood
            )
            view, sums = updates.after_intercept(
                view, sums, _approach(view.intercept, target, share)
            )
        factors, states[index] = _moved(rule, view, sums, length, states[index])
        parameters = with_half(parameters, side, factors, view.intercept)
    return parameters, states[0], states[1]


def _moved(
    rule: Rule, view: Half, sums: CellSums, length: Array, state: object
) -> tuple[Normal, PyTree]:
    """Means and variances of one side after a share of its step, and the optimiser's state."""
    slopes = updates.slopes(view, sums, block=rule.update == "block")
    likelihood = rule.settings.likelihood
    variance = updates.new_variances(view, slopes, likelihood=likelihood)
    if rule.update == "block":
        change = updates.newton_step(view, sums, slopes)
        change *= updates.step_lengths(view, change, likelihood=likelihood)
        mean = view.factors.mean - change
        return _approach(view.factors, Normal(mean, variance), length), state
    factors = _approach(view.factors, Normal(view.factors.mean, variance), length)
    precision = 1 / jnp.where(view.free, factors.variance, 1)
    change, state = rule.optimizer.update(
        slopes.gradient, state, view.factors.mean, curvature=precision, value=rule.value
    )
    length *= updates.step_lengths(view, change, likelihood=likelihood)
    return factors._replace(mean=factors.mean + length * jnp.where(view.free, change, 0)), state


def scaled(sums: CellSums, scale: float) -> CellSums:
    """Sums over a batch as an estimate of those over all rows."""
    return CellSums(*(scale * part for part in sums))


def _approach(old: Normal, target: Normal, share: Array) -> Normal:
    """Means, and precisions, a share of the way; a variance of zero stays."""
    held = target.variance == 0
    precision = (1 - share) / jnp.where(held, 1, old.variance)
    precision += share / jnp.where(held, 1, target.variance)
    return Normal(
        mean=old.mean + share * (target.mean - old.mean), variance=jnp.where(held, 0, 1 / precision)
    )


# --- by gradients --------------------------------------------------------------------------------


def batch_free_energy(
    parameters: Parameters, batch: Batches, *, key: Key, settings: CellSettings, scale: float
) -> Array:
    """An unbiased estimate of the free energy from a batch: () float."""
    zeros = draw_zeros(key, settings.zeros, batch.layouts.rows)
    cost = expected_cost(parameters, batch.layouts, zeros=zeros, likelihood=settings.likelihood)
    return scale * (cost + divergence_of_rows(parameters)) + divergence_of_others(parameters)


def _by_gradient(
    rule: Rule, step: _BatchStep, parameters: Parameters, row_state: PyTree, shared: PyTree
) -> tuple[Parameters, PyTree, PyTree]:
    """A step of the rows of a batch and of all that is shared, along the derivative."""
    share = (1 + step.num_before / step.num_batches).astype(parameters.noise.dtype) ** -rule.decay
    key = jax.random.fold_in(step.key, 0)

    def put(moved: tuple[object, object]) -> Parameters:
        rows, bias = bounded(moved[0])
        columns, column_bias, intercept = bounded(moved[1])
        return parameters._replace(
            rows=rows,
            row_bias=bias,
            columns=columns,
            column_bias=column_bias,
            intercept=bound_intercept(parameters.intercept, intercept),
        )

    def objective(moved: tuple[object, object]) -> Array:
        return batch_free_energy(
            put(moved), step.batch, key=key, settings=rule.settings, scale=step.scale
        )

    moved = (unbounded((parameters.rows, parameters.row_bias)), unbounded(_shared_of(parameters)))
    value, (row_slopes, shared_slopes) = jax.value_and_grad(objective)(moved)
    # the part of the free energy that only the rows have is not scaled
    row_slopes = jax.tree.map(lambda slope: slope / step.scale, row_slopes)
    optimizer = optax.with_extra_args_support(rule.optimizer)

    def follow(slope: object, state: object, at: object, length: Array) -> tuple[PyTree, PyTree]:
        change, state = optimizer.update(slope, state, at, value=value, grad=slope)
        return optax.apply_updates(at, jax.tree.map(lambda leaf: length * leaf, change)), state

    rows, row_state = follow(row_slopes, row_state, moved[0], jnp.ones_like(share))
    columns, shared = follow(shared_slopes, shared, moved[1], share)
    return put((rows, columns)), row_state, shared


def unbounded(parts: tuple[Normal | None, ...]) -> PyTree:
    """Means and logarithms of variances; zero for the variance of what is held."""
    return tuple(
        q if q is None else Normal(q.mean, jnp.log(jnp.where(q.variance > 0, q.variance, 1)))
        for q in parts
    )


def bounded(moved: PyTree) -> PyTree:
    """The means and variances that `unbounded` was given."""
    return tuple(q if q is None else Normal(q.mean, jnp.exp(q.variance)) for q in moved)


def bound_intercept(before: Normal, moved: Normal) -> Normal:
    """The intercept where it moves; one of variance zero is held where it is."""
    held = before.variance == 0
    kept: Normal = jax.tree.map(lambda old, new: jnp.where(held, old, new), before, moved)
    return kept
