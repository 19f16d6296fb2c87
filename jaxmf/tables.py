"""Reading and writing single cells of tables inside a loop.

Indexed updates (`table.at[i].add(x)`) become scatters, which XLA's CPU backend cannot take into one
kernel with the loop around them (`jaxmf.fusion`). These are slices of length one instead, and leave
the table where it is as long as nothing reads the old one afterwards: update first, then read.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax


class Lanes(NamedTuple):
    """Places of one axis: start, start + stride, ...; looked up in `table` where there is one.

    Attributes:
        start: () int32.
        stride: of type int, static.
        size: of type int, static.
        table: None or (M,) int32.
    """

    start: Array
    stride: int
    size: int
    table: Array | None = None

    def places(self) -> Array:
        """(size,) int32."""
        place = self.start + self.stride * jnp.arange(self.size, dtype=jnp.int32)
        return place if self.table is None else self.table[place]

    @property
    def is_run(self) -> bool:
        """Whether the places stand side by side."""
        return self.stride == 1 and self.table is None


def row(table: Array, index: Array) -> Array:
    """Row `index` of a table (M, ...)."""
    return lax.dynamic_index_in_dim(table, index, 0, keepdims=False)


def entry(table: Array, row: Array, column: Array) -> Array:
    """One cell of a table (M, L): ()."""
    return lax.dynamic_slice(table, (row, column), (1, 1))[0, 0]


def put(table: Array, index: Array, value: Array) -> Array:
    """The table (M, ...) with `value` in place of row `index`."""
    return lax.dynamic_update_index_in_dim(table, value, index, 0)


def add(table: Array, index: Array, amount: Array | float) -> Array:
    """The table (M, ...) with `amount` added to row `index`."""
    return put(table, index, row(table, index) + jnp.asarray(amount, table.dtype))


def add_entry(table: Array, row: Array, column: Array, amount: Array | float) -> Array:
    """The table (M, L) with `amount` added to one cell."""
    new = entry(table, row, column) + jnp.asarray(amount, table.dtype)
    return lax.dynamic_update_slice(table, new[None, None], (row, column))


def take(table: Array, lanes: Lanes) -> Array:
    """Entries of a table (M, ...) at some places of its first axis: (lanes.size, ...)."""
    if lanes.is_run:
        return lax.dynamic_slice_in_dim(table, lanes.start, lanes.size, 0)
    return table[lanes.places()]


def take_from_row(table: Array, index: Array, lanes: Lanes) -> Array:
    """Entries of row `index` of a table (M, L) at some places: (lanes.size,)."""
    if lanes.is_run:
        return lax.dynamic_slice(table, (index, lanes.start), (1, lanes.size))[0]
    return row(table, index)[lanes.places()]


def take_from_column(table: Array, lanes: Lanes, index: Array) -> Array:
    """Entries of column `index` of a table (M, L) at some places: (lanes.size,)."""
    if lanes.is_run:
        return lax.dynamic_slice(table, (lanes.start, index), (lanes.size, 1))[:, 0]
    return table[lanes.places(), jnp.broadcast_to(index, (lanes.size,))]


def lowest(free: Array) -> Array:
    """The lowest place that is free, or the number of places where none is.

    Args:
        free: (K,) bool.

    Returns:
        () int32.
    """
    size = free.shape[0]
    return jnp.min(jnp.where(free, jnp.arange(size, dtype=jnp.int32), size))


def count_pairs(first: Array, second: Array, shape: tuple[int, int]) -> Array:
    """How often each pair of places occurs.

    Args:
        first, second: (T,) int32, within `shape`.
        shape: M and L.

    Returns:
        (M, L) int32.
    """
    # one flat index, known to be inside: three times as fast as two that are checked
    flat = jnp.zeros((shape[0] * shape[1],), jnp.int32)
    return flat.at[first * shape[1] + second].add(1, mode="promise_in_bounds").reshape(shape)


_NUM_LANES = 16


def choose(weights: Array, uniform: Array) -> Array:
    """Draws a place with probability proportional to its weight.

    Sixteen interleaved sums first, then within the one that was hit: no cumulative sum of all, and
    more places of weight zero at the end change nothing.

    Args:
        weights: (K,) float, not negative, at least one positive.
        uniform: () float in [0, 1).

    Returns:
        () int32, a place of positive weight.
    """
    size = weights.shape[0]
    num_lanes = min(_NUM_LANES, size)
    height = -(-size // num_lanes)
    grid = jnp.pad(weights, (0, height * num_lanes - size)).reshape(height, num_lanes)
    sums = jnp.sum(grid, axis=0)
    goal = uniform * jnp.sum(sums)
    lane, below = _walk(lambda place: row(sums, place), num_lanes, goal)
    line, _ = _walk(lambda place: entry(grid, place, lane), height, goal - below)
    return line * num_lanes + lane


def _walk(weight_of, size: int, goal: Array) -> tuple[Array, Array]:
    """The first place at which the running sum passes `goal`, and the sum before it.

    Rounding may let the sum end short of it; then the last place of positive weight is meant.
    """
    if size == 1:
        return jnp.zeros((), jnp.int32), jnp.zeros_like(goal)

    def goes_on(carry):
        place, _, _, _, total = carry
        return (total <= goal) & (place < size - 1)

    def step(carry):
        place, hit, below, _, total = carry
        weight = weight_of(place + 1)
        is_positive = weight > 0
        return (
            place + 1,
            jnp.where(is_positive, place + 1, hit),
            jnp.where(is_positive, total, below),
            weight,
            total + weight,
        )

    zero = jnp.zeros((), jnp.int32)
    first = weight_of(zero)
    start = (zero, zero, jnp.zeros_like(goal), first, first)
    _, hit, below, _, _ = lax.while_loop(goes_on, step, start)
    return hit, below
