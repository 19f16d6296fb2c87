"""The state of a chain of binary matrix factorisation."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from jaxmf import slots
from jaxmf.data import Dense
from jaxmf.types import Array


class BinaryMFState(NamedTuple):
    """Where a chain is."""

    u: Array  # (I, K) bool, given features in the first slots
    v: Array  # (J, L) bool, likewise
    weights: Array | None  # (K, L) float, zero where a feature is not there; None when summed out
    # (I, J) float, the data with missing cells imputed; None when nothing is missing or the weights
    # are kept, where missing cells drop out
    x: Array | None
    # row_alpha, row_concentration, column_alpha, column_concentration: () float
    row_alpha: Array
    row_concentration: Array
    column_alpha: Array
    column_concentration: Array
    # noise_scale, weight_scale, weight_shape, weight_rate, base_rate: () float; 1 where the
    # likelihood has none
    noise_scale: Array
    weight_scale: Array
    weight_shape: Array
    weight_rate: Array
    base_rate: Array

    def transpose(self) -> BinaryMFState:
        """The state of X': rows and columns exchanged."""
        return self._replace(
            u=self.v,
            v=self.u,
            weights=None if self.weights is None else self.weights.T,
            x=None if self.x is None else self.x.T,
            row_alpha=self.column_alpha,
            row_concentration=self.column_concentration,
            column_alpha=self.row_alpha,
            column_concentration=self.row_concentration,
        )


HYPERPARAMETERS = BinaryMFState._fields[4:]


class Hyperparameters(NamedTuple):
    """Parameters of the distributions of cells and of W; a state has them under the same names."""

    # noise_scale, weight_scale, weight_shape, weight_rate, base_rate: () float
    noise_scale: Array
    weight_scale: Array
    weight_shape: Array
    weight_rate: Array
    base_rate: Array


def complete(state: BinaryMFState, data: Dense) -> Array:
    """The data (I, J) with the state's missing cells."""
    return data.values if state.x is None else state.x


def entries(state: BinaryMFState) -> Array:
    """U W V' (I, J) of a state with weights."""
    assert state.weights is not None
    dtype = state.weights.dtype
    return state.u.astype(dtype) @ (state.weights @ state.v.T.astype(dtype))


def num_features(bits: Array, num_fixed: int) -> Array:
    """() int32: features that some row of U or V has, given ones not counted."""
    return jnp.sum(jnp.any(bits[:, num_fixed:], axis=0), dtype=jnp.int32)


def grow(state: BinaryMFState, sizes: dict[str, int]) -> BinaryMFState:
    """The state with more slots on either side."""
    rows = sizes.get("row_features", state.u.shape[1])
    columns = sizes.get("column_features", state.v.shape[1])
    weights = state.weights
    if weights is not None:
        weights = slots.pad_axis(slots.pad_axis(weights, 0, rows), 1, columns)
    return state._replace(
        u=slots.pad_axis(state.u, 1, rows), v=slots.pad_axis(state.v, 1, columns), weights=weights
    )


def take_slots(state: BinaryMFState, side: str, order: Array) -> BinaryMFState:
    """The state with the slots of one side, "row" or "column", in another order, a permutation."""
    bits, axis = ("u", 0) if side == "row" else ("v", 1)
    state = state._replace(**{bits: jnp.take(getattr(state, bits), order, axis=1)})
    if state.weights is None:
        return state
    return state._replace(weights=jnp.take(state.weights, order, axis=axis))


def capacity(state: BinaryMFState) -> dict[str, int]:
    """Slots of both sides."""
    return {"row_features": state.u.shape[-1], "column_features": state.v.shape[-1]}
