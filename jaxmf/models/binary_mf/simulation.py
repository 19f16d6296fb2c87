"""Draws of binary matrix factorisation from its prior, and of data given them."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxmf.models.binary_mf import defaults, fixed, sides
from jaxmf.models.binary_mf.binary_mf_spec import BinaryMFSpec
from jaxmf.models.binary_mf.state import HYPERPARAMETERS, BinaryMFState, entries
from jaxmf.priors import hyper
from jaxmf.priors.features import IndianBuffet
from jaxmf.programs import full_products
from jaxmf.types import Array, Key


def simulate_state(
    model: BinaryMFSpec, key: Key, num_rows: int, num_columns: int, capacity: int
) -> BinaryMFState:
    """A state from the prior, weights included."""
    num_slots = model.num_slots(capacity, "rows"), model.num_slots(capacity, "columns")
    return simulate_in_slots(model, key, (num_rows, num_columns), num_slots)


def simulate_in_slots(
    model: BinaryMFSpec, key: Key, shape: tuple[int, int], num_slots: tuple[int, int]
) -> BinaryMFState:
    """A state from the prior, weights included, with this many slots for rows and for columns."""
    keys = jax.random.split(key, 3)
    values = {
        name: hyper.sample_prior(
            jax.random.fold_in(keys[0], index), 1.0 if prior is None else prior
        )
        for index, name in enumerate(HYPERPARAMETERS)
        for prior in (defaults.hyperprior(model, name),)
    }
    return draw_state(model, keys[1], values, shape, num_slots)


def last_slots(model: BinaryMFSpec, state: BinaryMFState) -> dict[str, Array]:
    """Which sides grow and use their last slot, () bool each: this many may have been too few."""
    sides_and_bits = (("row", model.row_prior, state.u), ("column", model.column_prior, state.v))
    return {
        f"{side}_features": jnp.any(bits[:, -1]) & isinstance(prior, IndianBuffet)
        for side, prior, bits in sides_and_bits
    }


def draw_state(
    model: BinaryMFSpec,
    key: Key,
    values: dict[str, Array],
    shape: tuple[int, int],
    num_slots: tuple[int, int],
) -> BinaryMFState:
    """A state at given hyperparameters, U, V and W drawn from their prior."""
    empty = jnp.zeros((0, 0), bool)
    state = BinaryMFState(u=empty, v=empty, weights=None, x=None, **values)
    u = sides.draw_bits(
        jax.random.fold_in(key, 0),
        model.row_prior_at(state),
        sides.fixed_features(model.row_bias, fixed.bits(model.fixed_row_features), shape[0]),
        num_slots[0],
    )
    v = sides.draw_bits(
        jax.random.fold_in(key, 1),
        model.column_prior_at(state),
        sides.fixed_features(model.column_bias, fixed.bits(model.fixed_column_features), shape[1]),
        num_slots[1],
    )
    state = state._replace(u=u, v=v)
    weights = model.weight_prior(state).sample(jax.random.fold_in(key, 2), *num_slots)
    return state._replace(weights=jnp.where(model.weight_exists(state), weights, 0))


@full_products
def simulate_data(model: BinaryMFSpec, key: Key, state: BinaryMFState) -> Array:
    """X (I, J) given a state with weights."""
    drawn = model.likelihood_at(state).sample(key, entries(state))
    if model.column_unit is not None:
        drawn = drawn * model.column_unit
    if model.row_offset is not None:
        drawn = drawn + jnp.asarray(model.row_offset, drawn.dtype).reshape(-1, 1)
    return drawn if model.offset is None else drawn + model.offset
