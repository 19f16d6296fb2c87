"""The Markov chain of the linear-Gaussian Indian buffet process: start, step, what it keeps.

The kernels that a step is made of are in `updates.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxmf import slots
from jaxmf.data import Dense
from jaxmf.engine import Info, Limit, merge_overflow
from jaxmf.models.linear_gaussian.state import State
from jaxmf.models.linear_gaussian.updates import (
    update_by_split_merge,
    update_features,
    update_hyperparameters,
)
from jaxmf.priors import hyper
from jaxmf.samplers.annealing import annealed_factor, hold_while_annealed
from jaxmf.samplers.feature_rows import features_limit, whole_rows_limit
from jaxmf.types import Array, Key, PyTree

SWEEPS = ("collapsed", "parallel", "whole_rows")
WHOLE_ROWS_REMEDY = "use sweep='collapsed'"


@partial(
    jax.tree_util.register_dataclass,
    data_fields=[],
    meta_fields=["num_slots", "sweep", "anneal", "split_merge"],
)
@dataclass(frozen=True)
class SamplerPlan:
    """The structural options of the sampler, all of them static: equal ones compile nothing new."""

    num_slots: int
    sweep: str
    anneal: bool
    split_merge: int


def init(plan: SamplerPlan, model: Any, key: Key, data: Dense) -> State:
    """No features; scales that have priors start from the spread of the data."""
    values, observed = data.values, data.observed
    dtype = values.dtype
    if observed is None:
        centre, spread, x = jnp.mean(values, axis=0), jnp.std(values), None
    else:
        number = jnp.sum(observed, axis=0, dtype=dtype)
        centre = jnp.sum(values, axis=0) / jnp.maximum(number, 1)
        mean = jnp.sum(values) / jnp.sum(number)
        spread = jnp.sqrt(jnp.sum(jnp.where(observed, values - mean, 0) ** 2) / jnp.sum(number))
        noise = jax.random.normal(key, values.shape, dtype)
        x = jnp.where(observed, values, centre + spread * noise)
    spread = jnp.where(spread > 0, spread, 1)

    def start(prior, guess):
        value = hyper.initial_value(prior) if hyper.is_fixed(prior) else guess
        return jnp.asarray(value, dtype)

    z = jnp.zeros((values.shape[0], plan.num_slots), bool)
    return State(
        z=z.at[:, 0].set(True) if model.bias else z,
        x=x,
        alpha=jnp.asarray(hyper.initial_value(model.alpha), dtype),
        concentration=jnp.asarray(hyper.initial_value(model.concentration), dtype),
        noise_scale=start(model.noise_scale, spread / 2),
        feature_scale=start(model.feature_scale, spread),
    )


def step(
    plan: SamplerPlan,
    model: Any,
    key: Key,
    state: State,
    data: Dense,
    progress: Array,
) -> tuple[State, Info]:
    """A sweep, splits and merges where wanted, hyperparameters."""
    factor = annealed_factor(progress) if plan.anneal else 1.0
    state, info = update_features(
        model, jax.random.fold_in(key, 0), state, data, sweep=plan.sweep, scale_factor=factor
    )
    if plan.split_merge:
        state, more = update_by_split_merge(
            model,
            jax.random.fold_in(key, 2),
            state,
            data,
            num_proposals=plan.split_merge,
            scale_factor=factor,
        )
        info = Info(overflow=merge_overflow(info.overflow, more.overflow))
    new, _ = update_hyperparameters(model, jax.random.fold_in(key, 1), state, data)
    if plan.anneal:
        scale = hold_while_annealed(progress, state.feature_scale, new.feature_scale)
        new = new._replace(feature_scale=scale)
    return new, info


def record(model: Any, key: Key, state: State, data: Dense) -> dict[str, Array]:
    """What a draw keeps."""
    del key
    return {
        "z": state.z,
        "alpha": state.alpha,
        "concentration": state.concentration,
        "noise_scale": state.noise_scale,
        "feature_scale": state.feature_scale,
        "num_features": num_features(model, state),
        "log_joint": model.log_joint(state, data),
    }


def num_features(model: Any, state: State) -> Array:
    """() int32: features that some row has, the bias feature not counted."""
    return jnp.sum(jnp.any(state.z[:, model.first_slot() :], axis=0), dtype=jnp.int32)


def grow(plan: SamplerPlan, state: State, sizes: dict[str, int]) -> State:
    """The state with more slots for features."""
    del plan
    return state._replace(z=slots.pad_axis(state.z, 1, sizes["features"]))


def capacity(state: PyTree) -> dict[str, int]:
    """Slots for features, the bias feature among them."""
    return {"features": state.z.shape[-1]}


def limit(plan: SamplerPlan, data: Dense) -> dict[str, Limit]:
    """How many slots for features there may be."""
    if plan.sweep == "whole_rows":
        return {"features": whole_rows_limit(remedy=WHOLE_ROWS_REMEDY)}
    return {"features": features_limit(data.num_rows)}
