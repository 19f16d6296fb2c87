"""The ascent: where it starts, one epoch, when it stops."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from jaxmf._kernels import tables
from jaxmf.models.sparse_binary_mf.sparse_binary_mf_spec import SparseBinaryMFSpec
from jaxmf.types import Array, Key, PyTree
from jaxmf.variational_bayes import updates
from jaxmf.variational_bayes.batch_pass import (
    Rule,
    bound_intercept,
    bounded,
    one_pass,
    start_optimizers,
    unbounded,
)
from jaxmf.variational_bayes.batches import Batches
from jaxmf.variational_bayes.contracts import AscentPlan
from jaxmf.variational_bayes.epoch_zeros import LAST_STEP, EpochZeros, choose_zeros, lateness
from jaxmf.variational_bayes.free_energy import divergence_from_prior, expected_cost, free_energy
from jaxmf.variational_bayes.held_out import SHARE_OF_EPOCHS, as_known
from jaxmf.variational_bayes.parameters import Half, Normal, Parameters, half, with_half
from jaxmf.variational_bayes.pieces import Layout
from jaxmf.variational_bayes.progress import (
    Evaluation,
    evaluate_when_due,
    first_state,
    with_new_noise,
)
from jaxmf.variational_bayes.shares import SharedOnes, with_shares
from jaxmf.variational_bayes.start import start_parameters
from jaxmf.variational_bayes.state import AscentState, PreparedOnes
from jaxmf.variational_bayes.sums import CellSums, side_sums

# --- start ---------------------------------------------------------------------------------------


def init(
    plan: AscentPlan, model: SparseBinaryMFSpec, key: Key, data: PreparedOnes | SharedOnes
) -> AscentState:
    """Factors from the singular vectors, or random ones; the intercept from the share of ones."""
    return with_shares(_first, plan, model, key, data=data)


def _first(
    plan: AscentPlan, model: SparseBinaryMFSpec, key: Key, data: PreparedOnes
) -> AscentState:
    start_key, sample_key = jax.random.split(key)
    parameters = start_parameters(start_key, data.layout, settings=model, start=plan.start)
    optimizer = _start_optimizer(plan, parameters, data.batches)
    return first_state(sample_key, parameters, data, optimizer=optimizer)


def _start_optimizer(plan: AscentPlan, parameters: Parameters, batches: Batches | None) -> PyTree:
    if batches is not None:
        return start_optimizers(plan.update, plan.optimizer, parameters, batches)
    if plan.update == "partial_newton":
        return tuple(
            plan.optimizer.init(half(parameters, side).factors.mean) for side in ("rows", "columns")
        )
    if plan.update == "gradient":
        return plan.optimizer.init(_moved_of(parameters))
    return None


# --- one epoch -----------------------------------------------------------------------------------


def epoch(
    plan: AscentPlan,
    model: SparseBinaryMFSpec,
    key: Key,
    state: AscentState,
    data: PreparedOnes | SharedOnes,
) -> AscentState:
    """One epoch: rows, columns, priors, noise."""
    return with_shares(_epoch, plan, model, key, state, data=data)


def _epoch(
    plan: AscentPlan,
    model: SparseBinaryMFSpec,
    key: Key,
    state: AscentState,
    data: PreparedOnes,
) -> AscentState:
    # counted in epochs, so that a run that is resumed does the same
    is_known = state.epoch >= int(SHARE_OF_EPOCHS * plan.num_epochs)
    layout = as_known(data.layout, data.held_out, is_known)
    if state.unknowing is not None:
        before = tables.either(is_known, state.unknowing.parameters, state.parameters)
        state = state._replace(unknowing=state.unknowing._replace(parameters=before))
    zeros = choose_zeros(plan, model, key, state=state, layout=layout)
    if data.batches is not None:
        parameters, optimizer = _in_batches(plan, model, zeros.key, state, data.batches)
    elif plan.update == "gradient":
        parameters, optimizer = _follow_gradient(plan, model, state, layout, zeros)
    else:
        parameters, optimizer = _both_sides(plan, model, state, layout, zeros)
    held = state.epoch < plan.hold_priors
    priors = updates.new_priors(parameters, model.learned())
    parameters = parameters._replace(priors=tables.either(held, parameters.priors, priors))
    state = state._replace(parameters=parameters, optimizer=optimizer)

    def evaluate(parameters: Parameters) -> Evaluation:
        cost = expected_cost(
            parameters, layout, zeros=zeros.evaluation, likelihood=model.likelihood
        )
        parameters, cost = with_new_noise(parameters, cost, layout, learned=learns_noise)
        return Evaluation(parameters, cost + divergence_from_prior(parameters), parameters)

    learns_noise = model.learned().noise_variance
    may_stop = is_known if data.held_out is not None else True
    return evaluate_when_due(
        plan, state, data, evaluate, every_epoch=learns_noise, may_stop=may_stop
    )


def _in_batches(
    plan: AscentPlan, model: SparseBinaryMFSpec, key: Key, state: AscentState, batches: Batches
) -> tuple[Parameters, PyTree]:
    rule = Rule(
        settings=model,
        update=plan.update,
        optimizer=plan.optimizer,
        decay=jnp.asarray(plan.decay, state.free_energy.dtype),
        value=_known_value(state),
    )
    first = state.epoch * batches.rows.shape[0]
    return one_pass(rule, key, state.parameters, batches, state.optimizer, first=first)


def _known_value(state: AscentState) -> Array:
    """The free energy as evaluated last, for steps that adapt to it."""
    unknown = jnp.finfo(state.free_energy.dtype).max
    return jnp.where(state.epoch > 0, state.free_energy, unknown)


def _both_sides(
    plan: AscentPlan,
    model: SparseBinaryMFSpec,
    state: AscentState,
    layout: Layout,
    zeros: EpochZeros,
) -> tuple[Parameters, PyTree]:
    """The intercept and the rows, then the intercept and the columns beside the new rows."""
    parameters = state.parameters
    optimizers = [None, None] if state.optimizer is None else list(state.optimizer)
    for index, side in enumerate(("rows", "columns")):
        view = half(parameters, side)
        sums = side_sums(
            view,
            (layout.rows, layout.columns)[index],
            zeros.by_side[index],
            likelihood=model.likelihood,
            noise=parameters.noise,
            block=plan.update == "block",
            over_rows=side == "columns",
        )
        view, sums = updates.with_new_intercept(
            view, sums, parameters.priors, model, lines_are_rows=side == "rows"
        )
        factors, optimizers[index] = _one_side(plan, model, state, view, sums, optimizers[index])
        parameters = with_half(parameters, side, factors, view.intercept)
    return parameters, None if state.optimizer is None else tuple(optimizers)


def _one_side(
    plan: AscentPlan,
    model: SparseBinaryMFSpec,
    state: AscentState,
    view: Half,
    sums: CellSums,
    optimizer: PyTree,
) -> tuple[Normal, PyTree]:
    """Factors of one side after their step, and the state of its optimiser."""
    likelihood, block = model.likelihood, plan.update == "block"
    slopes = updates.slopes(view, sums, block=block)
    length: Array | float
    if block:
        step, length = -updates.newton_step(view, sums, slopes), plan.relaxation
    else:
        step, optimizer = plan.optimizer.update(
            slopes.gradient,
            optimizer,
            view.factors.mean,
            curvature=slopes.curvature,
            value=_known_value(state),
        )
        length = 1.0
    late = lateness(plan, model, state)
    length = (1 - late) * length + late * LAST_STEP
    length *= updates.step_lengths(view, step, likelihood=likelihood)
    mean = view.factors.mean + length * jnp.where(view.free, step, 0)
    return Normal(mean, updates.new_variances(view, slopes, likelihood=likelihood)), optimizer


def _moved_of(parameters: Parameters) -> PyTree:
    """Parameters that gradients move; priors and noise stay."""
    p = parameters
    return unbounded((p.rows, p.columns, p.row_bias, p.column_bias, p.intercept))


def _with_moved(parameters: Parameters, moved: object) -> Parameters:
    rows, columns, row_bias, column_bias, intercept = bounded(moved)
    return parameters._replace(
        rows=rows,
        columns=columns,
        row_bias=row_bias,
        column_bias=column_bias,
        intercept=bound_intercept(parameters.intercept, intercept),
    )


def _follow_gradient(
    plan: AscentPlan,
    model: SparseBinaryMFSpec,
    state: AscentState,
    layout: Layout,
    zeros: EpochZeros,
) -> tuple[Parameters, PyTree]:
    parameters = state.parameters
    moved = _moved_of(parameters)

    def objective(moved: object) -> Array:
        return free_energy(
            _with_moved(parameters, moved),
            layout,
            zeros=zeros.by_side[0],
            likelihood=model.likelihood,
        )

    value, gradient = jax.value_and_grad(objective)(moved)
    optimizer = optax.with_extra_args_support(plan.optimizer)
    change, state_after = optimizer.update(
        gradient, state.optimizer, moved, value=value, grad=gradient, value_fn=objective
    )
    return _with_moved(parameters, optax.apply_updates(moved, change)), state_after
