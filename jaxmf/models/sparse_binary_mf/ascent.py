"""The ascent: where it starts, one epoch, when it stops; and the fit in closed form.

In closed form: Nakajima's global solution, or Seeger and Bouchard's iteration on it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxmf.data import SparseBinary
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.models.sparse_binary_mf.sparse_binary_mf_spec import SparseBinaryMFSpec
from jaxmf.types import Array, Draw, Key, PyTree
from jaxmf.variational_bayes import updates as closed
from jaxmf.variational_bayes.analytic import AnalyticSolution, analytic_solution, coded_ones
from jaxmf.variational_bayes.analytic_sigmoid import sigmoid_solution
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
from jaxmf.variational_bayes.free_energy import divergence_from_prior, expected_cost, free_energy
from jaxmf.variational_bayes.held_out import SHARE_OF_EPOCHS, as_known
from jaxmf.variational_bayes.parameters import Normal, Parameters, half, with_half
from jaxmf.variational_bayes.pieces import Layout
from jaxmf.variational_bayes.progress import Value, first_state, look, with_new_noise
from jaxmf.variational_bayes.samples import LAST_STEP, Chosen, choose_zeros, lateness
from jaxmf.variational_bayes.shares import SharedOnes, with_shares
from jaxmf.variational_bayes.start import start_parameters
from jaxmf.variational_bayes.state import AscentState, PreparedOnes, as_draw
from jaxmf.variational_bayes.sums import side_sums

_NUM_ITERATIONS = 20
_TOLERANCE = 1e-6

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


def _start_optimizer(plan: AscentPlan, parameters: Parameters, parts: Batches | None) -> PyTree:
    if parts is not None:
        return start_optimizers(plan.update, plan.optimizer, parameters, parts)
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
        before = jax.tree.map(
            partial(jnp.where, is_known), state.unknowing.parameters, state.parameters
        )
        state = state._replace(unknowing=state.unknowing._replace(parameters=before))
    chosen = choose_zeros(plan, model, key, state=state, layout=layout)
    if data.batches is not None:
        parameters, optimizer = _in_batches(plan, model, chosen.key, state, data.batches)
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

    def value_of(parameters: Parameters) -> Value:
        cost = expected_cost(
            parameters, layout, zeros=chosen.evaluation, likelihood=model.likelihood
        )
        parameters, cost = with_new_noise(parameters, cost, layout, learned=learns_noise)
        return Value(parameters, cost + divergence_from_prior(parameters), parameters)

    learns_noise = model.learned().noise_variance
    may_stop = is_known if data.held_out is not None else True
    return look(plan, state, data, value_of, always=learns_noise, may_stop=may_stop)


def _in_batches(
    plan: AscentPlan, model: SparseBinaryMFSpec, key: Key, state: AscentState, parts: Batches
) -> tuple[Parameters, PyTree]:
    rule = Rule(
        settings=model,
        update=plan.update,
        optimizer=plan.optimizer,
        decay=jnp.asarray(plan.decay, state.free_energy.dtype),
        value=_known_value(state),
    )
    return one_pass(
        rule, key, state.parameters, parts, state.optimizer, first=state.epoch * parts.rows.shape[0]
    )


def _known_value(state: AscentState) -> Array:
    """The free energy as evaluated last, for steps that adapt to it."""
    unknown = jnp.finfo(state.free_energy.dtype).max
    return jnp.where(state.epoch > 0, state.free_energy, unknown)


def _both_sides(
    plan: AscentPlan,
    model: SparseBinaryMFSpec,
    state: AscentState,
    layout: Layout,
    chosen: Chosen,
) -> tuple[Parameters, PyTree]:
    parameters, optimizers = state.parameters, []
    late = lateness(plan, model, state)
    for index, side in enumerate(("rows", "columns")):
        table = (layout.rows, layout.columns)[index]
        side_state = None if state.optimizer is None else state.optimizer[index]
        view = half(parameters, side)
        sums = side_sums(
            view,
            table,
            chosen.zeros[index],
            likelihood=model.likelihood,
            noise=parameters.noise,
            block=plan.update == "block",
            over_rows=side == "columns",
        )
        view, sums = closed.with_new_intercept(
            view, sums, parameters.priors, model, lines_are_rows=side == "rows"
        )
        found = closed.slopes(view, sums, block=plan.update == "block")
        variance = closed.new_variances(view, found, likelihood=model.likelihood)
        if plan.update == "block":
            length = (1 - late) * plan.relaxation + late * LAST_STEP
            change = closed.newton_step(view, sums, found)
            length *= closed.step_lengths(view, change, likelihood=model.likelihood)
            mean = view.factors.mean - length * change
        else:
            change, side_state = plan.optimizer.update(
                found.gradient,
                side_state,
                view.factors.mean,
                curvature=found.curvature,
                value=_known_value(state),
            )
            length = (1 - late) + late * LAST_STEP
            length *= closed.step_lengths(view, change, likelihood=model.likelihood)
            mean = view.factors.mean + length * jnp.where(view.free, change, 0)
        optimizers.append(side_state)
        parameters = with_half(parameters, side, Normal(mean, variance), view.intercept)
    return parameters, None if state.optimizer is None else tuple(optimizers)


def _moved_of(parameters: Parameters) -> PyTree:
    """What gradients move; priors and noise stay."""
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
    chosen: Chosen,
) -> tuple[Parameters, PyTree]:
    parameters = state.parameters
    moved = _moved_of(parameters)

    def objective(moved: object) -> Array:
        return free_energy(
            _with_moved(parameters, moved),
            layout,
            zeros=chosen.zeros[0],
            likelihood=model.likelihood,
        )

    value, gradient = jax.value_and_grad(objective)(moved)
    optimizer = optax.with_extra_args_support(plan.optimizer)
    change, state_after = optimizer.update(
        gradient, state.optimizer, moved, value=value, grad=gradient, value_fn=objective
    )
    return _with_moved(parameters, optax.apply_updates(moved, change)), state_after


# --- in closed form ------------------------------------------------------------------------------


def closed_form(model: SparseBinaryMFSpec, data: SparseBinary) -> Draw:
    """What is kept of the solution, by name, as of an ascent.

    Raises ValueError: the model or the data are not what the solution is for.
    """
    _check(model, data)
    solution = _solution(model, data)
    if not np.any(solution.row_means):
        raise ValueError(
            "analytic=True: every factor is switched off, the data are no more than noise to it; "
            "larger prior variances or more data may help, or leave analytic out"
        )
    about = {"free_energy": solution.free_energy, "num_epochs": 0}
    named = {name: np.asarray(value) for name, value in about.items()}
    return as_draw(solution.as_parameters()) | named  # type: ignore[return-value]


def _solution(model: SparseBinaryMFSpec, data: SparseBinary) -> AnalyticSolution:
    ones = data.to_scipy()
    settings: dict[str, Any] = {
        "num_factors": min(model.num_factors, *data.shape),
        "row_scale": float(model.row_scale),  # type: ignore[arg-type]
        "column_scale": None if model.column_scale is None else float(model.column_scale),
        "tolerance": _TOLERANCE,
    }
    if isinstance(model.likelihood, Gaussian):
        noise = model.likelihood.noise_scale
        return analytic_solution(
            coded_ones(ones), noise_scale=None if noise is None else float(noise), **settings
        )
    return sigmoid_solution(ones, num_iterations=_NUM_ITERATIONS, **settings).solution


def _check(model: SparseBinaryMFSpec, data: SparseBinary) -> None:
    if model.bias != "none":
        raise ValueError(
            f"analytic=True has neither intercept nor biases, but the model has bias="
            f"{model.bias!r}; use bias='none'"
        )
    for name in ("row_mean", "column_mean"):
        value = getattr(model, name)
        if value is None or np.any(np.asarray(value) != 0):
            raise ValueError(f"analytic=True needs {name}=0.0, the mean it is solved for")
    if model.row_scale is None or np.ndim(model.row_scale):
        raise ValueError("analytic=True needs one number as row_scale")
    if model.column_scale is not None and np.ndim(model.column_scale):
        raise ValueError("analytic=True needs one number as column_scale, or None to learn it")
    if data.missing_rows is not None:
        raise ValueError(
            "analytic=True is for fully observed data; these have cells that were not observed, "
            "so leave analytic out"
        )
