"""Reading and writing single cells of tables inside a loop.

Indexed updates (`table.at[i].add(x)`) become scatters, which XLA's CPU backend cannot take into one
kernel with the loop around them (`fusion`). These are slices of length one instead, and leave the
table where it is as long as nothing reads the old one afterwards: update first, then read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxmf._kernels.fusion import fused_on_cpu, sequential_on_cpu
from jaxmf.devices import block_size, default_platform
from jaxmf.types import Array, PyTree

MOST_FLAT = 2**31 - 1
"""Entries of a table that one 32-bit index reaches; larger ones have an index an axis."""


class Lanes(NamedTuple):
    """Positions on one axis: start, start + stride, ...; looked up in `table` where there is one.

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

    def positions(self) -> Array:
        """(size,) int32."""
        position = self.start + self.stride * jnp.arange(self.size, dtype=jnp.int32)
        return position if self.table is None else self.table[position]

    @property
    def is_run(self) -> bool:
        """Whether the positions stand side by side."""
        return self.stride == 1 and self.table is None


def _starts(table: Array, first: tuple[Array | int, ...]) -> list[Array]:
    # without sign: the compiler need not look whether they are negative, half of what it checks
    indices = (*first, *(0,) * (table.ndim - len(first)))
    return [jnp.asarray(index).astype(jnp.uint32) for index in indices]


def _slice(table: Array, first: tuple[Array | int, ...], sizes: tuple[int, ...]) -> Array:
    """A slice of the leading axes; that no index is negative is known, and need not be checked."""
    whole = (*sizes, *table.shape[len(sizes) :])
    if whole == table.shape:  # which `vmap` would make a gather of
        return table
    return lax.dynamic_slice(table, _starts(table, first), whole, allow_negative_indices=False)


def _update(table: Array, new: Array, first: tuple[Array | int, ...]) -> Array:
    if new.shape == table.shape:  # which `vmap` would make a scatter of
        return new
    starts = _starts(table, first)
    return lax.dynamic_update_slice(table, new, starts, allow_negative_indices=False)


def row(table: Array, index: Array) -> Array:
    """Row `index` of a table (M, ...)."""
    return _slice(table, (index,), (1,))[0]


def entry(table: Array, row: Array, column: Array) -> Array:
    """One cell of a table (M, L): ()."""
    return _slice(table, (row, column), (1, 1))[0, 0]


def entries_at(table: Array, positions: Array) -> Array:
    """Entries of a table (M, ...) at positions () or (...) that are known to be inside.

    Of a table whose size is a power of two the compiler need not check that they are, which takes
    longer than to read them.
    """
    size = table.shape[0]
    if size & (size - 1) == 0:
        positions = positions & (size - 1)
    return table.at[positions].get(mode="promise_in_bounds")


def put(table: Array, index: Array, value: Array) -> Array:
    """The table (M, ...) with `value` for row `index`."""
    return _update(table, jnp.asarray(value, table.dtype)[None], (index,))


def add(table: Array, index: Array, amount: Array | float) -> Array:
    """The table (M, ...) with `amount` added to row `index`."""
    return put(table, index, row(table, index) + jnp.asarray(amount, table.dtype))


def add_entry(table: Array, row: Array, column: Array, amount: Array | float) -> Array:
    """The table (M, L) with `amount` added to one cell."""
    new = entry(table, row, column) + jnp.asarray(amount, table.dtype)
    return _update(table, new[None, None], (row, column))


def put_entry(table: Array, row: Array, column: Array, value: Array) -> Array:
    """The table (M, L) with `value` in one cell."""
    return _update(table, value[None, None], (row, column))


def put_run(table: Array, start: Array, run: Array) -> Array:
    """The table (M,) with a run (L,) from `start` on."""
    return _update(table, run, (start,))


def take(table: Array, lanes: Lanes) -> Array:
    """Entries of a table (M, ...) at some positions of its first axis: (lanes.size, ...)."""
    if lanes.is_run:
        return _slice(table, (lanes.start,), (lanes.size,))
    return table[lanes.positions()]


def take_from_row(table: Array, index: Array, lanes: Lanes) -> Array:
    """Entries of row `index` of a table (M, L) at some positions: (lanes.size,)."""
    if lanes.is_run:
        return _slice(table, (index, lanes.start), (1, lanes.size))[0]
    return row(table, index)[lanes.positions()]


def take_from_column(table: Array, lanes: Lanes, index: Array) -> Array:
    """Entries of column `index` of a table (M, L) at some positions: (lanes.size,)."""
    if lanes.is_run:
        return _slice(table, (lanes.start, index), (lanes.size, 1))[:, 0]
    return table[lanes.positions(), jnp.broadcast_to(index, (lanes.size,))]


def lowest(free: Array) -> Array:
    """The lowest position that is free, or how many there are where none is.

    Args: free (K,) bool.
    Returns () int32.
    """
    size = free.shape[0]
    positions = jnp.where(free, jnp.arange(size, dtype=jnp.int32), size)
    if size <= 8:
        return jnp.min(positions)
    # eight side by side: of a whole row the compiler makes a window that it walks through
    positions = jnp.pad(positions, (0, -size % 8), constant_values=size)
    lanes = _entries(jnp.min(positions.reshape(-1, 8), axis=0), 0, stride=1, count=8)
    while len(lanes) > 1:
        lanes = [jnp.minimum(*pair) for pair in zip(lanes[::2], lanes[1::2], strict=True)]
    return lanes[0]


def as_flags(is_set: Array) -> Array:
    """Booleans (n,) as bits of integers: (ceil(n / 32),) uint32, the first one the lowest."""
    bits = jnp.pad(is_set, (0, -is_set.shape[0] % 32)).reshape(-1, 32).astype(jnp.uint32)
    return jnp.sum(bits << jnp.arange(32, dtype=jnp.uint32), axis=1, dtype=jnp.uint32)


def positions_of_flags(flags: Array, start: Array, size: int) -> Array:
    """Positions of the bits that are set, in order, from the one of rank `start` on: (size,) int32.

    `jnp.nonzero` counts bit by bit, which took a tenth of a sweep of LDA on a GPU; this counts
    integer by integer. Where no bits are left: 32 W.

    Args: flags (W,) uint32, see `as_flags`; start () int32.
    """
    counts = lax.population_count(flags).astype(jnp.int32)
    running = jnp.cumsum(counts)
    before = running - counts
    # the integer of each rank: written at the rank of its first bit, and valid up to the next one
    at = jnp.where((counts > 0) & (running > start), jnp.maximum(before - start, 0), size)
    index = jnp.arange(flags.shape[0], dtype=jnp.int32)
    integer = lax.cummax(jnp.zeros((size,), jnp.int32).at[at].max(index, mode="drop"))
    rank = start + jnp.arange(size, dtype=jnp.int32)
    bits, left, bit = flags[integer], rank - before[integer], jnp.zeros_like(rank)
    for width in (16, 8, 4, 2, 1):
        low = (bits >> bit.astype(jnp.uint32)) & jnp.uint32((1 << width) - 1)
        count = lax.population_count(low).astype(jnp.int32)
        is_beyond = left >= count
        bit, left = bit + width * is_beyond, left - count * is_beyond
    return jnp.where(rank < running[-1], 32 * integer + bit, 32 * flags.shape[0])


def count_pairs(first: Array, second: Array, shape: tuple[int, int]) -> Array:
    """How often each pair of positions occurs.

    Args: first, second (T,) int32, within `shape`.
    Returns (M, L) int32.
    """
    return _count(shape)(first, second)


def sorted_by(positions: Array, size: int) -> tuple[Array, Array]:
    """The order that sorts positions, and how often each occurs, in time linear in their count.

    Args: positions (T,) int32, below `size`.
    Returns (T,) int32, equal ones in the order in which they stand; (M,) int32.
    """
    if positions.shape[0] == 0:  # not even a trace of the loop takes an entry of nothing
        return positions, jnp.zeros((size,), jnp.int32)
    counts = count_pairs(jnp.zeros_like(positions), positions, (1, size))[0]
    if default_platform() != "cpu":
        return jnp.argsort(positions, stable=True).astype(jnp.int32), counts

    def loop(positions: Array, following: Array) -> Array:
        def one(index: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            order, following = carry
            position = row(positions, index)
            following = add(following, position, 1)
            return put(order, row(following, position) - 1, index), following

        return lax.fori_loop(0, positions.shape[0], one, (jnp.zeros_like(positions), following))[0]

    return fused_on_cpu(loop, sequential=True)(positions, jnp.cumsum(counts) - counts), counts


def _count(shape: tuple[int, int]) -> Callable[[Array, Array], Array]:
    is_flat = shape[0] * shape[1] <= MOST_FLAT

    def added(counts: Array, first: Array, second: Array, amount: Array | int) -> Array:
        # one flat index, known to be inside: three times as fast as two that are checked
        index = (first * shape[1] + second,) if is_flat else (first, second)
        return counts.at[index].add(amount, mode="promise_in_bounds")

    @sequential_on_cpu
    def count(first: Array, second: Array) -> Array:
        num_pairs, size = first.shape[0], block_size("table entries")
        counts = jnp.zeros((shape[0] * shape[1],) if is_flat else shape, jnp.int32)
        if num_pairs <= size:
            return added(counts, first, second, 1).reshape(shape)

        def piece(index: Array, counts: Array) -> Array:
            start = jnp.minimum(index * size, num_pairs - size)
            # the last one begins inside the one before
            is_new = start + jnp.arange(size) >= index * size
            first_piece = lax.dynamic_slice_in_dim(first, start, size)
            second_piece = lax.dynamic_slice_in_dim(second, start, size)
            return added(counts, first_piece, second_piece, is_new.astype(jnp.int32))

        return lax.fori_loop(0, -(-num_pairs // size), piece, counts).reshape(shape)

    return count


NUM_LANES = 16
_FANOUT = 4
_LONGEST_SUM = 2_048


def lanes_for(size: int) -> int:
    """How many lanes `choose` does best with, for as many positions, where these do not grow."""
    return 8 if size <= 32 else 16 if size <= 128 else 32


def padded(size: int) -> int:
    """The next size that makes whole vectors."""
    multiple = 8 if size <= 32 else 32
    return -(-size // multiple) * multiple


def choose(weights: Array, uniform: Array, *, num_lanes: int = NUM_LANES) -> Array:
    """Draws a position with probability proportional to its weight.

    Every `num_lanes`-th position belongs to one lane, and every few lanes to one bundle where there
    are more than eight. The way leads to a bundle, to a lane of it and within that to the position.
    Each step makes a few running sums and counts those that the goal has passed, so there is
    neither a cumulative sum of all nor a branch, and more positions of weight zero at the end
    change nothing. A token waits for all of it: the steps are as short as they can be, not as few.

    Args: weights (K,) float, not negative, at least one positive; uniform () float in [0, 1);
    num_lanes: 8, 16 or 32.
    Returns () int32, a position of positive weight.
    """
    size = weights.shape[0]
    height = -(-size // num_lanes)
    weights = jnp.pad(weights, (0, height * num_lanes - size))
    # a reduction is computed once; sums of slices would be once for each use
    sums = sum(in_runs(weights.reshape(height, num_lanes), axis=0)) if height > 1 else weights
    assert isinstance(sums, Array)
    lanes = _entries(sums, 0, stride=1, count=num_lanes)
    num_bundles = num_lanes // _FANOUT if num_lanes > 8 else num_lanes
    running = _running_sums(
        [_running_sums(lanes[position::num_bundles])[-1] for position in range(num_bundles)]
    )
    position, goal = _passed(running[:-1], uniform * running[-1])
    if num_bundles < num_lanes:
        in_bundle = _entries(sums, position, stride=num_bundles, count=_FANOUT - 1)
        passed, goal = _passed(_running_sums(in_bundle), goal)
        position = position + num_bundles * passed
    if height > 1:
        in_lane = _entries(weights, position, stride=num_lanes, count=height - 1)
        passed, _ = _passed(_running_sums(in_lane), goal)
        position = position + num_lanes * passed
    # Rounding may have led to a position of weight zero; the one before it is meant. The loop,
    # which seldom turns, also keeps the compiler from computing it again for each of its uses.
    return _downwards(weights, position, size)


def choose_in_rows(weights: Array, ends: Array, num_rows: Array, uniform: Array) -> Array:
    """Draws a position as `choose` does, of weights in rows of eight of which the first are used.

    Args:
        weights: (R, 8) float, not negative, at least one of those in use positive.
        ends: (R,) float, the sum of a row and those before it.
        num_rows: () int32, at least 1: those in use.
        uniform: () float in [0, 1).
    Returns:
        () int32, a position of positive weight, row after row.
    """
    last = num_rows - 1
    goal, zero = uniform * row(ends, last), jnp.zeros((), jnp.int32)

    def is_passed(carry: tuple[Array, Array]) -> Array:
        return (carry[0] < last) & (row(ends, carry[0]) <= goal)

    def following(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        return carry[0] + 1, row(ends, carry[0])

    index, before = lax.while_loop(is_passed, following, (zero, jnp.zeros_like(goal)))
    running = _running_sums(_entries(row(weights, index), 0, stride=1, count=8))
    passed, _ = _passed(running[:-1], goal - before)
    return _downwards(weights.reshape(-1), index * 8 + passed, num_rows * 8)


def in_runs(table: Array, *, axis: int) -> list[Array]:
    """Sums over one axis of a table (H, L), those of a few thousand entries at a time.

    XLA's CPU backend passes longer ones to a library, which a fused loop cannot call: the program
    is refused (jaxlib 0.10.2, from 4,096 entries on).

    Args: table (H, L), of at most 2,048 entries a row; axis: 0 or 1, what is summed over.
    Returns sums of successive rows: (L,) each where rows are summed, else one number a row.
    """
    num_rows = max(1, _LONGEST_SUM // table.shape[1])
    starts = range(0, table.shape[0], num_rows)
    return [jnp.sum(table[start : start + num_rows], axis=axis) for start in starts]


def sum_in_lanes(run: Array) -> Array:
    """The sum () of a run of entries, a multiple of eight: eight sums side by side, then of these.

    One after the other each addition waits for the last; the compiler may not change their order.
    """
    lanes = jnp.sum(run.reshape(-1, 8), axis=0) if run.shape[0] > 8 else run
    return _running_sums(_entries(lanes, 0, stride=1, count=8))[-1]


def total(run: Array) -> Array:
    """The sum () of a run of entries (K,), in eight lanes as `sum_in_lanes`."""
    return sum_in_lanes(jnp.pad(run, (0, -run.shape[0] % 8)))


def in_lanes(run: Array) -> Array:
    """Sums (8,) of every eighth entry of a run (K,): whole vectors are added, where it is kept."""
    rows = jnp.pad(run, (0, -run.shape[0] % 8)).reshape(-1, 8)
    parts = list(rows)
    while len(parts) > 1:
        pairs = [first + second for first, second in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0]


def sums_of_pieces(table: Array, size: int) -> Array:
    """Sums (P,) over pieces of a table, whose size is a multiple of theirs.

    With zeros at the end, so that P is a multiple of eight as `sum_in_lanes` asks.
    """
    sums = jnp.concatenate(in_runs(table.reshape(-1, size), axis=1))
    return jnp.pad(sums, (0, -sums.shape[0] % 8))


def to_power_of_two(table: Array) -> Array:
    """The table (M,) with zeros at the end up to the next power of two, for `entries_at`."""
    size = table.shape[0]
    return jnp.pad(table, (0, (1 << (size - 1).bit_length()) - size))


def either(condition: Array, first: PyTree, second: PyTree) -> PyTree:
    """All leaves of the first where a condition () holds, else of the second."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), first, second)


def _entries(table: Array, start: Array | int, *, stride: int, count: int) -> list[Array]:
    """Some entries of a table as separate scalars."""
    return [row(table, jnp.asarray(start + stride * index, jnp.int32)) for index in range(count)]


def _running_sums(parts: list[Array]) -> list[Array]:
    """Running sums, each after as few additions as possible: they never fall, though rounded.

    Sums of pairs, of fours and so on; the second half of each takes up the last of the first.
    """
    sums, width = list(parts), 1
    while width < len(sums):
        for index in range(len(sums)):
            if index & width:
                sums[index] = sums[index // width * width - 1] + sums[index]
        width *= 2
    return sums


def _passed(running: list[Array], goal: Array) -> tuple[Array, Array]:
    """How many running sums the goal has passed, and what is left of it after the last of them.

    Floats that are not negative are in the order of their bits as whole numbers, and of those the
    compiler picks one in a single instruction.
    """
    whole = jnp.int32 if goal.dtype == jnp.float32 else jnp.int64
    goal_bits = lax.bitcast_convert_type(goal, whole)
    passed, below = jnp.zeros((), jnp.int32), jnp.zeros((), whole)
    for total in running:
        bits = lax.bitcast_convert_type(total, whole)
        is_passed = bits <= goal_bits
        passed += is_passed.astype(jnp.int32)
        below = jnp.where(is_passed, bits, below)
    return passed, goal - lax.bitcast_convert_type(below, goal.dtype)


def _downwards(weights: Array, position: Array, size: Array | int) -> Array:
    """The first of `size` positions with weight from `position` downwards, then from the end."""

    def is_empty(carry: tuple[Array, Array]) -> Array:
        position, steps = carry
        return ~(row(weights, position) > 0) & (steps < size)

    def step(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        position, steps = carry
        return jnp.where(position > 0, position - 1, size - 1), steps + 1

    return lax.while_loop(is_empty, step, (position, jnp.zeros((), jnp.int32)))[0]
