"""The ascent: paths of the rows, the length scale with them, then the columns."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxmf.models.sparse_binary_series.sparse_binary_series_spec import SparseBinarySeriesSpec
from jaxmf.programs import jit
from jaxmf.types import Array, Draw, Key
from jaxmf.variational_bayes import series, updates
from jaxmf.variational_bayes.contracts import AscentPlan
from jaxmf.variational_bayes.epoch_zeros import LAST_STEP, EpochZeros, choose_zeros, lateness
from jaxmf.variational_bayes.free_energy import divergence_of_others, expected_cost
from jaxmf.variational_bayes.parameters import Half, Normal, Parameters, half, with_half
from jaxmf.variational_bayes.pieces import PieceTable
from jaxmf.variational_bayes.progress import (
    Evaluation,
    evaluate_when_due,
    first_state,
    with_new_noise,
)
from jaxmf.variational_bayes.series import Search, SeriesParameters
from jaxmf.variational_bayes.start import start_parameters
from jaxmf.variational_bayes.state import AscentState, PreparedOnes, as_draw
from jaxmf.variational_bayes.sums import CellSums, side_sums
from jaxmf.variational_bayes.zeros import Zeros

BY_SIZE = "by size"  # joint updates of paths up to this size
_MOST_JOINT_VALUES = 256
_FIRST_SEARCH_STEP, _SMALL_SEARCH_STEP = 0.5, 0.1


def init(
    plan: AscentPlan, model: SparseBinarySeriesSpec, key: Key, data: PreparedOnes
) -> AscentState:
    """Paths smoothed from the singular vectors, or from random ones."""
    assert data.gaps is not None
    start_key, sample_key = jax.random.split(key)
    plain = start_parameters(start_key, data.layout, settings=model, start=plan.start)
    lengthscale: Any = model.lengthscale
    if lengthscale is None:
        # half the span of the times, or one where there is but one of them
        span = jnp.max(data.gaps)
        lengthscale = jnp.where(span > 0, span / 2, 1)
    parameters = series.from_start(
        plain, data.gaps, kernel=model.kernel, lengthscale=jnp.asarray(lengthscale, data.gaps.dtype)
    )
    first = jnp.asarray(_FIRST_SEARCH_STEP, data.gaps.dtype)
    search = Search(first) if model.lengthscale is None else None
    return first_state(sample_key, parameters, data, optimizer=search)


def epoch(
    plan: AscentPlan,
    model: SparseBinarySeriesSpec,
    key: Key,
    state: AscentState,
    data: PreparedOnes,
) -> AscentState:
    """One epoch: rows, columns, priors, noise."""
    layout = data.layout
    zeros = choose_zeros(plan, model, key, state=state, layout=layout)
    late = lateness(plan, model, state)
    length = (1 - late) * plan.relaxation + late * LAST_STEP
    held = state.epoch < plan.hold_priors
    parameters, row_values, search = _rows(plan, model, state, data, zeros, length)
    parameters = _columns(model, parameters, row_values, data, zeros, length)
    learned = model.learned()
    plain = series.stacked(parameters, row_values)
    new = updates.new_priors(plain, learned)
    priors = plain.priors._replace(columns=new.columns, column_bias=new.column_bias)
    parameters = parameters._replace(
        priors=jax.tree.map(lambda old, new: jnp.where(held, old, new), plain.priors, priors)
    )
    state = state._replace(parameters=parameters, optimizer=search)

    def evaluate(parameters: SeriesParameters) -> Evaluation:
        row_values, divergence = series.values(parameters, kernel=model.kernel)
        plain = series.stacked(parameters, row_values)
        cost = expected_cost(plain, layout, zeros=zeros.evaluation, likelihood=model.likelihood)
        parameters, cost = with_new_noise(parameters, cost, layout, learned=learned.noise_variance)
        return Evaluation(parameters, cost + divergence + divergence_of_others(plain), plain)

    # at first the search tries lengths too far off to change anything
    may_stop = search is None or jnp.abs(search.step) < _SMALL_SEARCH_STEP
    return evaluate_when_due(
        plan, state, data, evaluate, every_epoch=learned.noise_variance, may_stop=may_stop
    )


def _rows(
    plan: AscentPlan,
    model: SparseBinarySeriesSpec,
    state: AscentState,
    data: PreparedOnes,
    zeros: EpochZeros,
    length: Array,
) -> tuple[SeriesParameters, Normal, Search | None]:
    """The intercept, then the paths and the length scale, which is held as long as priors are."""
    parameters = state.parameters
    row_values, _ = series.values(parameters, kernel=model.kernel)
    plain = series.stacked(parameters, row_values)
    view, sums = _sums_of_side(model, plain, "rows", data.layout.rows, zeros.by_side[0])
    parameters = parameters._replace(intercept=view.intercept)
    num_times, width = parameters.paths.weight.shape[1:]
    joint = plan.update == "joint"
    if plan.update == BY_SIZE:
        joint = num_times * width <= _MOST_JOINT_VALUES
    return series.update_rows(
        parameters,
        row_values,
        series.quadratic(view, sums, num_times=num_times),
        state.optimizer,
        kernel=model.kernel,
        joint=joint,
        relaxation=length,
        held=state.epoch < plan.hold_priors,
    )


def _sums_of_side(
    model: SparseBinarySeriesSpec, plain: Parameters, side: str, table: PieceTable, zeros: Zeros
) -> tuple[Half, CellSums]:
    """A side with the intercept moved, and the sums over its cells."""
    view = half(plain, side)
    sums = side_sums(view, table, zeros, likelihood=model.likelihood, noise=plain.noise, block=True)
    return updates.with_new_intercept(view, sums, plain.priors, model)


def _columns(
    model: SparseBinarySeriesSpec,
    parameters: SeriesParameters,
    row_values: Normal,
    data: PreparedOnes,
    zeros: EpochZeros,
    length: Array,
) -> SeriesParameters:
    """The intercept, then factors and biases of the columns, as for one matrix."""
    plain = series.stacked(parameters, row_values)
    view, sums = _sums_of_side(model, plain, "columns", data.layout.columns, zeros.by_side[1])
    slopes = updates.slopes(view, sums, block=True)
    mean = view.factors.mean - length * updates.newton_step(view, sums, slopes)
    factors = Normal(mean, updates.new_variances(view, slopes, likelihood=model.likelihood))
    plain = with_half(plain, "columns", factors, view.intercept)
    return parameters._replace(
        columns=plain.columns, column_bias=plain.column_bias, intercept=plain.intercept
    )


@jit
def named(model: SparseBinarySeriesSpec, parameters: SeriesParameters) -> Draw:
    """Arrays of a draw: values of the paths (N, T, K), and the weights for any other time."""
    row_values, _ = series.values(parameters, kernel=model.kernel)
    draw = as_draw(series.stacked(parameters, row_values))
    lines = row_values.mean.shape[:2]
    for name in ("row_mean", "row_variance", "row_bias", "row_bias_variance"):
        if name in draw:
            draw[name] = draw[name].reshape(*lines, *draw[name].shape[1:])
    return draw | {
        "row_weight": parameters.paths.weight,
        "row_precision": parameters.paths.precision,
        "lengthscale": parameters.lengthscale,
    }
