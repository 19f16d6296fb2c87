"""A `FeatureModel` on its way from prior to posterior: its likelihood raised to a power."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from jaxmf.data import Dense
from jaxmf.engine import Info
from jaxmf.models.feature_model import hyperparameters, updates
from jaxmf.models.feature_model.state import FeatureState
from jaxmf.types import Array, Key

if TYPE_CHECKING:
    from jaxmf.models.feature_model.model import FeatureModel


@partial(
    jax.tree_util.register_dataclass, data_fields=[], meta_fields=["num_slots", "num_value_moves"]
)
@dataclass(frozen=True)
class AnnealingPlan:
    """The structural options, all of them static."""

    num_slots: int
    num_value_moves: int


def init(
    plan: AnnealingPlan, model: FeatureModel, key: Key, data: Dense, sizes: dict[str, int] | None
) -> tuple[FeatureState, dict[str, Array]]:
    """A state from the prior."""
    num_slots = plan.num_slots if sizes is None else sizes["features"]
    draw, overflow = model.simulate_features(key, data.values.shape[0], num_slots)
    state = FeatureState(
        z=draw["z"],
        y=updates.filled(model, draw["z"], draw["y"]),
        hyperparameters={name: draw[name] for name in hyperparameters.priors_of(model)},
    )
    return state, {"features": overflow}


def step(
    plan: AnnealingPlan,
    model: FeatureModel,
    key: Key,
    state: FeatureState,
    data: Dense,
    power: Array,
) -> tuple[FeatureState, Info]:
    """Rows of Z, moves of Y and hyperparameters, with the likelihood to a power."""
    state, info = updates.update_rows(model, jax.random.fold_in(key, 0), state, data, power=power)
    values_key = jax.random.fold_in(key, 1)
    for index in range(plan.num_value_moves):
        move_key = jax.random.fold_in(values_key, index)
        state, _ = updates.update_values(model, move_key, state, data, power=power)
    state, _ = updates.update_hyperparameters(
        model, jax.random.fold_in(key, 2), state, data, power=power
    )
    return state, info


def measure(model: FeatureModel, state: FeatureState, data: Dense) -> Array:
    """log p(observed X | Z, Y), () float."""
    fixed = hyperparameters.at_values(model, state.hyperparameters)
    rows = jax.vmap(fixed.row_log_likelihood, in_axes=(0, 0, 0, None))
    return jnp.sum(rows(data.values, data.observed, state.z, state.y))
