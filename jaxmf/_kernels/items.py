"""Items of batches and groups, taken batch by batch, without a table of batches times groups.

An item is known by how many items of its batch and group came before it. Sums of these numbers say
all that a table of counts would: a rising factorial is a product over items, and each opens a
table, or not, by its number.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxmf._kernels import tables
from jaxmf._kernels.fusion import fused_on_cpu
from jaxmf.devices import default_platform
from jaxmf.types import Array, PyTree


def over_items(
    groups: Array,
    order: Array,
    ends: Array,
    seen: Array,
    one_item: Callable[[Array, Array, Array, Array, PyTree], PyTree],
    carry: PyTree,
) -> PyTree:
    """A loop over items, those of a batch after those of the one before; to be fused.

    Args:
        groups: (T,) int32.
        order: (T,) int32, the items by batch, and in it as they stand.
        ends: (G,) int32, where the items of a batch end in it.
        seen: (K,) int32, zeros.
        one_item: (item, batch, group, earlier items of its batch and group, carry) -> carry.
    """
    nothing = jnp.zeros((), jnp.int32)

    def one_batch(batch: Array, outer: PyTree) -> PyTree:
        first, seen, carry = outer
        end = tables.row(ends, batch)

        def one(index: Array, inner: PyTree) -> PyTree:
            seen, carry = inner
            item = tables.row(order, index)
            group = tables.row(groups, item)
            # update, then read: a table that is read before it changes is copied for every item
            seen = tables.add(seen, group, 1)
            return seen, one_item(item, batch, group, tables.row(seen, group) - 1, carry)

        def clear(index: Array, seen: Array) -> Array:
            return tables.put(seen, tables.row(groups, tables.row(order, index)), nothing)

        seen, carry = jax.lax.fori_loop(first, end, one, (seen, carry))
        return end, jax.lax.fori_loop(first, end, clear, seen), carry

    start = (jnp.zeros((), jnp.int32), seen, carry)
    return jax.lax.fori_loop(0, ends.shape[0], one_batch, start)[2]


def ranked(batches: Array, groups: Array) -> tuple[Array, Array]:
    """Items by batch and group, and how many of both came before each: for accelerators.

    Args: batches, groups (T,) int32.
    Returns (T,) int32 each: the order, and the number of every item in it.
    """
    order = jnp.lexsort((groups, batches)).astype(jnp.int32)
    batch, group = batches[order], groups[order]
    is_first = jnp.ones(order.shape, bool)
    is_first = is_first.at[1:].set((batch[1:] != batch[:-1]) | (group[1:] != group[:-1]))
    index = jnp.arange(order.shape[0], dtype=jnp.int32)
    return order, index - jax.lax.cummax(jnp.where(is_first, index, 0))


def log_rising_of_batches(
    batches: Array, groups: Array, log_pseudo: Array, *, num_batches: int
) -> Array:
    """log prod_k p_k (p_k + 1) ... (p_k + n_gk - 1) of every batch g, n_gk its items of group k.

    Args:
        batches, groups: (T,) int32.
        log_pseudo: (K,) float, log p.
        num_batches: G.
    Returns:
        (G,) float.
    """
    if batches.shape[0] == 0:
        return jnp.zeros((num_batches,), log_pseudo.dtype)
    if default_platform() != "cpu":
        order, before = ranked(batches, groups)
        terms = _log_factor(log_pseudo[groups[order]], before)
        return jnp.zeros((num_batches,), log_pseudo.dtype).at[batches[order]].add(terms)
    order, sizes = tables.sorted_by(batches, num_batches)
    loop = fused_on_cpu(_log_rising, sequential=True)
    return loop(groups, log_pseudo, order, jnp.cumsum(sizes))


def _log_rising(groups: Array, log_pseudo: Array, order: Array, ends: Array) -> Array:
    def one_item(item: Array, batch: Array, group: Array, before: Array, totals: Array) -> Array:
        del item
        return tables.add(totals, batch, _log_factor(tables.row(log_pseudo, group), before))

    seen = jnp.zeros(log_pseudo.shape, jnp.int32)
    totals = jnp.zeros(ends.shape, log_pseudo.dtype)
    return over_items(groups, order, ends, seen, one_item, totals)


def _log_factor(log_pseudo: Array, before: Array) -> Array:
    """log(p + n); p alone may be too small for a float."""
    number = jnp.maximum(before, 1).astype(log_pseudo.dtype)
    return jnp.where(before == 0, log_pseudo, jnp.log(jnp.exp(log_pseudo) + number))


def sum_of_many(values: Array) -> Array:
    """The sum of (N,) float, by rows of a thousand: rounding grows with their length alone."""
    width = 1_024
    padded = jnp.pad(values, (0, -values.shape[0] % width))
    return jnp.sum(jnp.sum(padded.reshape(-1, width), axis=1))
