"""How many tables the customers of Chinese restaurants sit at, given what they eat."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxmf._kernels import tables
from jaxmf._kernels.fusion import fused_on_cpu
from jaxmf._kernels.items import over_items
from jaxmf._kernels.special import plain_uniforms_at
from jaxmf.devices import default_platform
from jaxmf.types import Array, Key

_WIDTH = 256  # ranks that are summed at once
# customers of a table that are looked at together: fewer take less memory, and on an accelerator
# more launches
_CUSTOMERS_AT_ONCE, _LAUNCHED_AT_ONCE = 2**11, 2**20
_MOST_CELLS = 8  # for each item, with which a table takes less time than a loop over the items


def count_tables(
    key: Key, batches: Array, groups: Array, pseudo: Array, *, num_batches: int
) -> Array:
    """Draws the number of tables of every group, over all batches.

    The customer who finds t others of his batch in his group opens a table with probability
    p_k / (p_k + t): one Bernoulli draw an item, and no table of Stirling numbers. This is the
    auxiliary variable that makes concentrations and shared weights conjugate.

    Args:
        key: typed PRNG key.
        batches: (T,) int32 in 0..G-1.
        groups: (T,) int32 in 0..K-1.
        pseudo: (K,) float, p: concentration times weight of each group.
        num_batches: G.
    Returns:
        (K,) int32.

    Source: Teh, Jordan, Beal & Blei (2006), section 5.3; Porteous (2010), eq 6.18.
    """
    uniforms = jax.random.uniform(key, batches.shape, pseudo.dtype)
    order, sizes = tables.sorted_by(batches, num_batches)
    loop = fused_on_cpu(_count_plain, sequential=True)
    return loop(groups, pseudo, uniforms, order, jnp.cumsum(sizes))


def _count_plain(groups: Array, pseudo: Array, uniforms: Array, order: Array, ends: Array) -> Array:
    def one_item(item: Array, batch: Array, group: Array, before: Array, counts: Array) -> Array:
        del batch
        uniform, weight = tables.row(uniforms, item), tables.row(pseudo, group)
        return tables.add(counts, group, _opens(uniform, weight, before))

    nothing = jnp.zeros(pseudo.shape, jnp.int32)
    return over_items(groups, order, ends, nothing, one_item, nothing)


def count_ranks(batches: Array, groups: Array, *, num_batches: int, num_groups: int) -> Array:
    """How many items find t others of their batch and group, for t = 0, 1, ...: (L,) int32.

    A rising factorial is a product over items, so that these ranks, which fall with t, say all
    that one concentration of all groups depends on; see `log_rising_of_ranks`.

    Args: batches, groups (T,) int32, num_batches as in `count_tables`; num_groups: K.
    Returns (L,) int32, L the first multiple of `_WIDTH` that is not below T.
    """
    num_items, shape = batches.shape[0], (num_batches, num_groups)
    ranks = jnp.zeros((max(1, -(-num_items // _WIDTH)) * _WIDTH,), jnp.int32)
    if num_items == 0:
        return ranks
    if num_batches * num_groups <= _MOST_CELLS * num_items:
        cells = tables.count_pairs(batches, groups, shape).reshape(-1)
        sizes = tables.count_pairs(jnp.zeros_like(cells), cells, (1, ranks.shape[0] + 1))[0]
        return fused_on_cpu(_larger, sequential=True)(sizes[1:])
    order, sizes = tables.sorted_by(batches, num_batches)
    loop = fused_on_cpu(_count_ranks, sequential=True)
    return loop(groups, order, jnp.cumsum(sizes), jnp.zeros((num_groups,), jnp.int32), ranks)


def _larger(ranks: Array) -> Array:
    """Sums from each entry to the last; `cumsum` takes eight times as long."""

    def one(index: Array, ranks: Array) -> Array:
        position = ranks.shape[0] - 2 - index
        return tables.add(ranks, position, tables.row(ranks, position + 1))

    return jax.lax.fori_loop(0, ranks.shape[0] - 1, one, ranks)


def _count_ranks(groups: Array, order: Array, ends: Array, seen: Array, ranks: Array) -> Array:
    def one_item(item: Array, batch: Array, group: Array, before: Array, ranks: Array) -> Array:
        del item, batch, group
        return tables.add(ranks, before, 1)

    return over_items(groups, order, ends, seen, one_item, ranks)


def log_rising_of_ranks(ranks: Array, concentration: Array) -> Array:
    """sum over cells of log p (p + 1) ... (p + n - 1), less a constant: () float.

    Args: ranks (L,) int32 of `count_ranks`; concentration () float, p.
    """
    steps = jnp.arange(_WIDTH)

    def is_left(carry: tuple[Array, Array]) -> Array:
        first = jnp.minimum(carry[0], ranks.shape[0] - _WIDTH)
        return (carry[0] < ranks.shape[0]) & (ranks[first] > 0)

    def add(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        first, total = carry
        some = jax.lax.dynamic_slice_in_dim(ranks, first, _WIDTH).astype(total.dtype)
        before = first + steps
        # less log t, so that what is added is small where counts are large
        terms = jnp.log1p(concentration / jnp.maximum(before, 1).astype(total.dtype))
        terms = jnp.where(before == 0, jnp.log(concentration), terms)
        return first + _WIDTH, total + jnp.sum(some * terms)

    start = (jnp.zeros((), jnp.int32), jnp.zeros_like(concentration))
    return jax.lax.while_loop(is_left, add, start)[1]


def _opens(uniform: Array, weight: Array, before: Array) -> Array:
    """Whether customers open a table; the first one does, however small the weight."""
    return (before == 0) | (uniform * (weight + before) < weight)


def count_tables_at_once(key: Key, counts: Array, pseudo: Array, *, num_items: int) -> Array:
    """As `count_tables`, from counts and without a loop over items: for accelerators.

    In which order the customers of a cell came does not matter: those of one cell after those of
    another are numbered 0, 1, ... within theirs.

    Args: counts (G, K) int32; pseudo (K,) float, as there; num_items: T, the sum of the counts, or
    more.
    Returns (K,) int32.
    """
    customers = _customers if counts.size <= tables.MOST_FLAT else _customers_by_row
    at_once = _CUSTOMERS_AT_ONCE if default_platform() == "cpu" else _LAUNCHED_AT_ONCE
    num_at_once = min(num_items, max(at_once, counts.size))

    def add(chunk: Array, opened: Array) -> Array:
        index = chunk * num_at_once + jnp.arange(num_at_once, dtype=jnp.int32)
        group, before, in_cell = customers(counts, index)
        uniforms = plain_uniforms_at(key, num_items, jnp.minimum(index, num_items - 1))
        opens = _opens(uniforms.astype(pseudo.dtype), pseudo[group], before) & (before < in_cell)
        return opened.at[group].add(opens)

    nothing = jnp.zeros(pseudo.shape, jnp.int32)
    if num_items <= num_at_once:
        return add(jnp.zeros((), jnp.int32), nothing) if num_items else nothing
    return jax.lax.fori_loop(0, -(-num_items // num_at_once), add, nothing)


def count_tables_of_sorted(key: Key, batches: Array, groups: Array, pseudo: Array) -> Array:
    """As `count_tables_at_once`, with the same draws, where counts are too many for a table.

    Sorted by cells the items stand as the customers there: a cell is where neighbours are alike.

    Args: batches, groups (T,) int32, pseudo (K,) float, as in `count_tables`.
    Returns (K,) int32.
    """
    batches, groups = jax.lax.sort((batches, groups), num_keys=2)
    index = jnp.arange(groups.shape[0], dtype=jnp.int32)
    is_first = (jnp.diff(batches, prepend=-1) != 0) | (jnp.diff(groups, prepend=-1) != 0)
    before = index - jax.lax.cummax(jnp.where(is_first, index, 0))
    uniforms = jax.random.uniform(key, groups.shape, pseudo.dtype)
    opens = _opens(uniforms, pseudo[groups], before)
    return jnp.zeros(pseudo.shape, jnp.int32).at[groups].add(opens)


def _customers(counts: Array, index: Array) -> tuple[Array, Array, Array]:
    """Group, number of those before in the cell, and number in the cell of customers, (n,) each.

    Args: index (n,) int32: n consecutive ones, by their numbers in the whole table.
    """
    flat = counts.reshape(-1)
    cell, before = _in_runs(flat, index)
    return cell % counts.shape[1], before, flat[cell]


def _in_runs(sizes: Array, index: Array) -> tuple[Array, Array]:
    """Which of some runs, of sizes (R,) int32 one after another, a position is in, and where.

    Positions after the last run are counted to it.

    Args: index (n,) int32, consecutive positions. Returns the runs and positions in them, (n,).
    """
    runs, starts = jnp.arange(sizes.shape[0], dtype=jnp.int32), jnp.cumsum(sizes) - sizes
    is_before = (sizes > 0) & (starts <= index[0])
    runs_begun = jnp.full_like(index, jnp.max(jnp.where(is_before, runs, 0)))
    begins = jnp.where(sizes > 0, starts - index[0], -1)
    begins = jnp.where(begins < 0, index.shape[0], begins)  # elsewhere: dropped
    run = jax.lax.cummax(runs_begun.at[begins].max(runs, mode="drop"))
    return run, index - starts[run]


def _customers_by_row(counts: Array, index: Array) -> tuple[Array, Array, Array]:
    """The same, in the same order, of tables with more cells than a 32-bit index reaches."""
    num_groups = counts.shape[1]
    row, index = _in_runs(jnp.sum(counts, axis=1), index)
    running = jnp.cumsum(counts, axis=1)

    def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) // 2
        is_passed = running[row, middle] <= index
        return jnp.where(is_passed, middle + 1, low), jnp.where(is_passed, high, middle)

    bounds = jnp.zeros_like(row), jnp.full_like(row, num_groups - 1)
    group = jax.lax.fori_loop(0, (num_groups - 1).bit_length(), halve, bounds)[1]
    in_cell = counts[row, group]
    return group, index - (running[row, group] - in_cell), in_cell
