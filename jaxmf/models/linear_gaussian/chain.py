"""The Markov chain of the linear-Gaussian Indian buffet process: start, step, what it keeps.

The kernels that a step is made of are in `updates.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from jaxmf import slots
from jaxmf.data import Dense
from jaxmf.engine import Info, Limit, merge_overflow
from jaxmf.models.linear_gaussian.linear_gaussian_spec import LinearGaussianSpec
from jaxmf.models.linear_gaussian.state import HYPERPARAMETERS, LinearGaussianState
from jaxmf.models.linear_gaussian.updates import (
    update_by_change_of_basis,
    update_by_shared_births,
    update_by_split_merge,
    update_column_noise,
    update_features,
    update_hyperparameters,
)
from jaxmf.priors import column_noise, hyper
from jaxmf.samplers.annealing import (
    annealed_factor,
    is_annealed,
    noise_while_annealed,
    released_as_annealing_ends,
    repeats_left_out,
    row_mean_squares,
    start_with_few_features,
)
from jaxmf.samplers.column_noise import ScaleWithFactors
from jaxmf.samplers.feature_layout import capacity, num_features
from jaxmf.samplers.feature_rows import features_limit, whole_rows_limit
from jaxmf.types import Array, Draw, Key, PyTree

WHOLE_ROWS_REMEDY = "use sweep='collapsed'"
# Folded into the key of a step, each by one of its parts. A new part takes the next number: with
# another order every seed would give other draws.
_SWEEP, _HYPERPARAMETERS, _SPLITS, _BASES, _COLUMN_NOISE, _BIRTHS = range(6)


@jax.tree_util.register_static
@dataclass(frozen=True)
class LinearGaussianPlan:
    """The structural options of the sampler, all of them static: equal ones compile nothing new."""

    num_slots: int
    sweep: str
    anneal: bool
    split_merge: int
    change_basis: int
    shared_births: int


def init(
    plan: LinearGaussianPlan, model: LinearGaussianSpec, key: Key, data: Dense
) -> LinearGaussianState:
    """No features; scales that have priors start from the data.

    The noise starts at the root mean square of the data about the offset, the feature scale
    at that of the row that has most: a row takes about (x / scale)^2 features, so a scale that
    starts below what a row needs would fill the slots with features of that row alone.
    """
    data = model.centred(data)
    values, observed = data.values, data.observed
    dtype = values.dtype
    squares = row_mean_squares(data)
    if observed is None:
        spread, x = jnp.sqrt(jnp.mean(squares)), None
    else:
        num_observed = jnp.sum(observed, axis=0, dtype=dtype)
        centre = jnp.sum(values, axis=0) / jnp.maximum(num_observed, 1)
        spread = jnp.sqrt(jnp.sum(values**2) / jnp.sum(num_observed))
        noise = jax.random.normal(key, values.shape, dtype)
        x = jnp.where(observed, values, centre + spread * noise)

    def start(prior: object, guess: Array) -> Array:
        return jnp.asarray(hyper.initial_value_near(prior, guess), dtype)

    z = jnp.zeros((values.shape[0], plan.num_slots), bool)
    return LinearGaussianState(
        z=z.at[:, 0].set(True) if model.bias else z,
        x=x,
        alpha=jnp.asarray(hyper.initial_value(model.alpha), dtype),
        concentration=jnp.asarray(hyper.initial_value(model.concentration), dtype),
        noise_scale=start(model.noise_scale, spread),
        feature_scale=start(model.feature_scale, jnp.sqrt(jnp.max(squares))),
        column_noise=column_noise.start(values.shape[1], dtype) if model.column_noise else None,
    )


def step(
    plan: LinearGaussianPlan,
    model: LinearGaussianSpec,
    key: Key,
    state: LinearGaussianState,
    data: Dense,
    progress: Array,
) -> tuple[LinearGaussianState, Info]:
    """A sweep, further moves of features where wanted, hyperparameters, noise."""
    if state.column_noise is not None:
        return _step_with_column_noise(plan, model, key, state, data, progress)
    data = model.centred(data)
    factor: Array | float = 1.0
    if plan.anneal:
        squares = row_mean_squares(data)
        factor = annealed_factor(progress, start_with_few_features(squares, state.feature_scale))
    state, info = _move_features(plan, model, key, state, data, progress, factor)
    if plan.anneal:
        z = repeats_left_out(progress, state.z, num_fixed=model.first_slot())
        state = state._replace(z=z)
    new, _ = update_hyperparameters(
        model, jax.random.fold_in(key, _HYPERPARAMETERS), state, data, scale_factor=factor
    )
    if plan.anneal:
        scale = released_as_annealing_ends(progress, state.feature_scale, new.feature_scale)
        spread = jnp.sqrt(jnp.mean(squares))
        noise = noise_while_annealed(
            progress, model.noise_scale, new.noise_scale, start=spread, factor=factor
        )
        new = new._replace(feature_scale=scale, noise_scale=noise)
    return new, info


def _step_with_column_noise(
    plan: LinearGaussianPlan,
    model: LinearGaussianSpec,
    key: Key,
    state: LinearGaussianState,
    data: Dense,
    progress: Array,
) -> tuple[LinearGaussianState, Info]:
    """A step with the columns divided by their noise factors, then the factors themselves."""
    assert state.column_noise is not None
    scaled, alike = model.at_noise(state)
    if not hyper.is_fixed(model.noise_scale):
        least = column_noise.least_noise(model.noise_scale)
        prior = ScaleWithFactors(model.noise_scale, state.column_noise, least)
        scaled = replace(scaled, noise_scale=prior)
    alike, info = step(plan, scaled, key, alike, data, progress)
    x = None if alike.x is None else alike.x * state.column_noise.factors
    state = alike._replace(x=x, column_noise=state.column_noise)
    noise_key = jax.random.fold_in(key, _COLUMN_NOISE)
    state, _ = update_column_noise(model, noise_key, state, data)
    return state, info


def _move_features(
    plan: LinearGaussianPlan,
    model: LinearGaussianSpec,
    key: Key,
    state: LinearGaussianState,
    data: Dense,
    progress: Array,
    factor: Array | float,
) -> tuple[LinearGaussianState, Info]:
    """Z and missing cells: a sweep and further moves, at `factor` times the feature scale."""
    sweep_key = jax.random.fold_in(key, _SWEEP)
    state, info = update_features(
        model, sweep_key, state, data, sweep=plan.sweep, scale_factor=factor
    )
    overflow, shortage = info
    if plan.split_merge:
        state, info = update_by_split_merge(
            model,
            jax.random.fold_in(key, _SPLITS),
            state,
            data,
            num_proposals=plan.split_merge,
            scale_factor=factor,
        )
        overflow = merge_overflow(overflow, info.overflow)
    if plan.shared_births:
        state, info = update_by_shared_births(
            model,
            jax.random.fold_in(key, _BIRTHS),
            state,
            data,
            # none while annealing, as they would take features apart that it puts together
            num_proposals=jnp.where(plan.anneal & is_annealed(progress), 0, plan.shared_births),
        )
        overflow = merge_overflow(overflow, info.overflow)
    if plan.change_basis:
        state, _ = update_by_change_of_basis(
            model,
            jax.random.fold_in(key, _BASES),
            state,
            data,
            num_draws=plan.change_basis,
            scale_factor=factor,
        )
    return state, Info(overflow, shortage)


def record(model: LinearGaussianSpec, key: Key, state: LinearGaussianState, data: Dense) -> Draw:
    """Arrays of a draw, by name."""
    del key
    draw = {
        "z": state.z,
        **{name: getattr(state, name) for name in HYPERPARAMETERS},
        "num_features": num_features(state.z[:, model.first_slot() :]),
        "log_joint": model.log_joint(state, data),
    }
    if state.column_noise is not None:
        factors, spread = state.column_noise
        draw |= {"noise_factors": factors, "noise_spread": spread}
    return draw


def grow(state: LinearGaussianState, sizes: dict[str, int]) -> LinearGaussianState:
    """The state with more slots for features."""
    return state._replace(z=slots.pad_axis(state.z, 1, sizes["features"]))


def shared(plan: LinearGaussianPlan, model: LinearGaussianSpec) -> dict[str, Callable[..., PyTree]]:
    """Functions of a state that a chain and `jaxmf.smc` share."""
    return {
        "record": Partial(record, model),
        "grow": grow,
        "capacity": capacity,
        "limit": Partial(limit, plan),
    }


def row_arrays() -> tuple[str, ...]:
    """Arrays of data, state and draws whose rows the parallel sweep can spread over devices."""
    return ("values", "observed", "z", "x")


def limit(plan: LinearGaussianPlan, data: Dense) -> dict[str, Limit]:
    """How many slots for features there may be."""
    if plan.sweep == "whole_rows":
        return {"features": whole_rows_limit(remedy=WHOLE_ROWS_REMEDY)}
    return {"features": features_limit(data.num_rows)}
