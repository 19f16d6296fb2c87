"""Reading and writing single cells of tables inside a loop.

Indexed updates (`table.at[i].add(x)`) become scatters, which XLA's CPU backend cannot take into one
kernel with the loop around them (`jaxmf.fusion`). These are slices of length one instead, and leave
the table where it is as long as nothing reads the old one afterwards: update first, then read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxmf.fusion import fused_on_cpu, in_turn_on_cpu
from jaxmf.types import PyTree


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


def _starts(table: Array, first: tuple[Array | int, ...]) -> list[Array]:
    return [jnp.asarray(one, jnp.int32) for one in (*first, *(0,) * (table.ndim - len(first)))]


def _slice(table: Array, first: tuple[Array | int, ...], sizes: tuple[int, ...]) -> Array:
    """A slice of the leading axes; that no index is negative is known, and need not be checked."""
    whole = (*sizes, *table.shape[len(sizes) :])
    return lax.dynamic_slice(table, _starts(table, first), whole, allow_negative_indices=False)


def _update(table: Array, new: Array, first: tuple[Array | int, ...]) -> Array:
    starts = _starts(table, first)
    return lax.dynamic_update_slice(table, new, starts, allow_negative_indices=False)


def row(table: Array, index: Array) -> Array:
    """Row `index` of a table (M, ...)."""
    return _slice(table, (index,), (1,))[0]


def entry(table: Array, row: Array, column: Array) -> Array:
    """One cell of a table (M, L): ()."""
    return _slice(table, (row, column), (1, 1))[0, 0]


def put(table: Array, index: Array, value: Array) -> Array:
    """The table (M, ...) with `value` in place of row `index`."""
    return _update(table, jnp.asarray(value, table.dtype)[None], (index,))


def add(table: Array, index: Array, amount: Array | float) -> Array:
    """The table (M, ...) with `amount` added to row `index`."""
    return put(table, index, row(table, index) + jnp.asarray(amount, table.dtype))


def add_entry(table: Array, row: Array, column: Array, amount: Array | float) -> Array:
    """The table (M, L) with `amount` added to one cell."""
    new = entry(table, row, column) + jnp.asarray(amount, table.dtype)
    return _update(table, new[None, None], (row, column))


def put_entry(table: Array, row: Array, column: Array, value: Array) -> Array:
    """The table (M, L) with `value` in place of one cell."""
    return _update(table, value[None, None], (row, column))


def take(table: Array, lanes: Lanes) -> Array:
    """Entries of a table (M, ...) at some places of its first axis: (lanes.size, ...)."""
    if lanes.is_run:
        return _slice(table, (lanes.start,), (lanes.size,))
    return table[lanes.places()]


def take_from_row(table: Array, index: Array, lanes: Lanes) -> Array:
    """Entries of row `index` of a table (M, L) at some places: (lanes.size,)."""
    if lanes.is_run:
        return _slice(table, (index, lanes.start), (1, lanes.size))[0]
    return row(table, index)[lanes.places()]


def take_from_column(table: Array, lanes: Lanes, index: Array) -> Array:
    """Entries of column `index` of a table (M, L) at some places: (lanes.size,)."""
    if lanes.is_run:
        return _slice(table, (lanes.start, index), (lanes.size, 1))[:, 0]
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
    size = shape[0] * shape[1]
    return _count(size)(first * shape[1] + second).reshape(shape)


def sorted_by(places: Array, size: int) -> tuple[Array, Array]:
    """The order in which places rise, and how often each occurs, in time linear in their number.

    Args:
        places: (T,) int32, below `size`.
        size: M.

    Returns:
        (T,) int32, those at one place in the order in which they stand; (M,) int32.
    """
    number = _count(size)(places)

    def loop(places: Array, following: Array) -> Array:
        def one(index: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            order, following = carry
            place = row(places, index)
            following = add(following, place, 1)
            return put(order, row(following, place) - 1, index), following

        return lax.fori_loop(0, places.shape[0], one, (jnp.zeros_like(places), following))[0]

    return fused_on_cpu(loop, in_turn=True)(places, jnp.cumsum(number) - number), number


def _count(size: int) -> Callable[[Array], Array]:
    @in_turn_on_cpu
    def count(places: Array) -> Array:
        # one flat index, known to be inside: three times as fast as two that are checked
        return jnp.zeros((size,), jnp.int32).at[places].add(1, mode="promise_in_bounds")

    return count


NUM_LANES = 16
_FANOUT = 4


def lanes_for(size: int) -> int:
    """How many lanes `choose` does best with, for a number of places that does not grow."""
    return 8 if size <= 32 else 16 if size <= 128 else 32


def padded(size: int) -> int:
    """The next size that makes whole vectors."""
    multiple = 8 if size <= 32 else 32
    return -(-size // multiple) * multiple


def choose(weights: Array, uniform: Array, *, num_lanes: int = NUM_LANES) -> Array:
    """Draws a place with probability proportional to its weight.

    Every `num_lanes`-th place belongs to one lane. The sums of the lanes are added up four at a
    time as long as there are more than eight; then the way back leads to a lane and within it to
    the place. Each step adds up a few numbers and counts those sums that the goal has passed, so
    there is neither a cumulative sum of all nor a branch, and more places of weight zero at the
    end change nothing.

    Args:
        weights: (K,) float, not negative, at least one positive.
        uniform: () float in [0, 1).
        num_lanes: 8, 16 or 32.

    Returns:
        () int32, a place of positive weight.
    """
    size = weights.shape[0]
    height = -(-size // num_lanes)
    weights = jnp.pad(weights, (0, height * num_lanes - size))
    # a reduction is computed once; sums of slices would be once for each use
    sums = jnp.sum(weights.reshape(height, num_lanes), axis=0) if height > 1 else weights
    finer = [(weights, num_lanes, height)]
    while sums.shape[0] > 8:
        width = sums.shape[0] // _FANOUT
        finer.append((sums, width, _FANOUT))
        sums = jnp.sum(sums.reshape(_FANOUT, width), axis=0)
    running = _running(sums, 1, sums.shape[0])
    goal = uniform * running[-1]
    place, below = _passed(running[:-1], goal, jnp.zeros_like(goal))
    for parts, stride, number in reversed(finer):
        running = _running(parts, stride, number - 1, place, below)
        passed, below = _passed(running, goal, below)
        place = place + stride * passed
    # Rounding may have led to a place of weight zero; the one before it is meant. The loop, which
    # seldom turns, also keeps the compiler from working the place out again for each of its uses.
    return _downwards(weights, place)


def either(condition: Array, first: PyTree, second: PyTree) -> PyTree:
    """All leaves of the first where a condition () holds, else of the second."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), first, second)


def _running(
    table: Array,
    stride: int,
    number: int,
    start: Array | int = 0,
    total: Array | None = None,
) -> list[Array]:
    """Running sums, on top of `total`, of some entries of a table."""
    sums = []
    for index in range(number):
        own = row(table, jnp.asarray(start + stride * index, jnp.int32))
        total = own if total is None else total + own
        sums.append(total)
    return sums


def _passed(running: list[Array], goal: Array, below: Array) -> tuple[Array, Array]:
    """How many running sums the goal has passed, and the last of them."""
    passed = jnp.zeros((), jnp.int32)
    for total in running:
        is_passed = total <= goal
        passed += is_passed.astype(jnp.int32)
        below = jnp.where(is_passed, total, below)
    return passed, below


def _downwards(weights: Array, place: Array) -> Array:
    """The first place of positive weight from `place` on downwards, then from the end."""
    size = weights.shape[0]

    def is_empty(carry: tuple[Array, Array]) -> Array:
        place, steps = carry
        return ~(row(weights, place) > 0) & (steps < size)

    def step(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        place, steps = carry
        return jnp.where(place > 0, place - 1, size - 1), steps + 1

    return lax.while_loop(is_empty, step, (place, jnp.zeros((), jnp.int32)))[0]
