"""The exact distribution of a flexible prior: normaliser, expected counts of groups, draws.

Where the only features are the counts m_i themselves the sum over all partitions factorises by the
group of one item,

    Z_n = sum_i C(n - 1, i - 1) exp(lambda_i) Z_{n - i},   Z_0 = 1,
    E[m_i] = C(n, i) exp(lambda_i) Z_{n - i} / Z_n,

and an item's group has i members with probability C(n - 1, i - 1) exp(lambda_i) Z_{n - i} / Z_n.
With other features of m the sum goes over all signatures, of which N items have p(N).

Source: Porteous (2010), section 7.1; the recursion is that of exponential generating functions.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp

from jaxmf.programs import jit
from jaxmf.types import Array

MOST_SIGNATURES = 40
"""The largest number of items whose signatures are listed: 37,338 of them."""


def log_potentials(log_weights: Array) -> Array:
    """log(exp(lambda_i) / i!): what a group of each size contributes to a sum over signatures."""
    sizes = jnp.arange(1, log_weights.shape[0] + 1, dtype=log_weights.dtype)
    return log_weights - gammaln(sizes + 1)


def log_normalisers(log_weights: Array) -> Array:
    """log(Z_n / n!) for every number of items the weights cover.

    Args: log_weights (N,) float, lambda_1 to lambda_N.
    Returns (N + 1,) float, of 0 to N items; of their factorials so that the values stay small.
    """
    num_items = log_weights.shape[0]
    log_potential = log_potentials(log_weights)
    sizes = jnp.arange(1, num_items + 1)
    terms = log_potential + jnp.log(sizes)

    def one(index: Array, known: Array) -> Array:
        left = index - sizes
        rest = jnp.where(left >= 0, known[jnp.maximum(left, 0)], -jnp.inf)
        return known.at[index].set(logsumexp(terms + rest) - jnp.log(index))

    start = jnp.full((num_items + 1,), -jnp.inf, log_weights.dtype).at[0].set(0)
    return jax.lax.fori_loop(1, num_items + 1, one, start)


def expected_counts(log_weights: Array, known: Array | None = None) -> Array:
    """E[m_i] of as many items as there are weights: (N,) float.

    Args: log_weights (N,) float; known (N + 1,) float, what `log_normalisers` gives, where that is
    there.
    """
    known = log_normalisers(log_weights) if known is None else known
    return jnp.exp(log_potentials(log_weights) + known[:-1][::-1] - known[-1])


def draw_groups(key: Array, log_weights: Array, batches: Array, shape: tuple[int, int]) -> Array:
    """Groups of items from the exact distribution, batch by batch.

    The size of one item's group, then of one of those left, and so on; who is in it is a random
    choice, as the distribution is exchangeable.

    Args:
        log_weights: (L,) float, L at least the number of items of the largest batch.
        batches: (T,) int32; an item of batch G, one too many, is left out.
        shape: G and K, at least as many groups as a batch can have.
    Returns:
        (T,) int32; of items that are left out an arbitrary value.
    """
    sizes_key, order_key = jax.random.split(key)
    batch_sizes = jnp.zeros((shape[0] + 1,), jnp.int32).at[batches].add(1)
    known, terms = log_normalisers(log_weights), log_potentials(log_weights)
    sizes = jnp.arange(1, log_weights.shape[0] + 1)
    terms = terms + jnp.log(sizes)

    def one(left: Array, key: Array) -> tuple[Array, Array]:
        after = left[:, None] - sizes
        logs = jnp.where(after >= 0, terms + known[jnp.maximum(after, 0)], -jnp.inf)
        drawn = 1 + jax.random.categorical(key, jnp.where(left[:, None] > 0, logs, terms))
        drawn = jnp.where(left > 0, drawn, 0).astype(left.dtype)
        return left - drawn, drawn

    _, drawn = jax.lax.scan(one, batch_sizes[:-1], jax.random.split(sizes_key, shape[1]))
    ends = jnp.cumsum(drawn, axis=0).T
    return _dealt(order_key, batches, batch_sizes, ends)


def _dealt(key: Array, batches: Array, batch_sizes: Array, ends: Array) -> Array:
    """Items in a random order, to groups one after the other: `ends` (G, K), running sizes."""
    chance = jax.random.uniform(key, batches.shape)
    order = jnp.lexsort((chance, batches))
    starts = jnp.cumsum(batch_sizes) - batch_sizes
    rank = jnp.zeros_like(batches).at[order].set(jnp.arange(batches.shape[0], dtype=batches.dtype))
    rank -= starts[batches].astype(batches.dtype)
    batch_ends = ends[jnp.minimum(batches, ends.shape[0] - 1)]
    groups = jnp.sum(batch_ends <= rank[:, None], axis=1)
    return jnp.minimum(groups, ends.shape[1] - 1).astype(jnp.int32)


class Signatures(NamedTuple):
    """All ways in which this many items can make groups, up to who is in which."""

    counts: np.ndarray  # (S, N) int, m_i of each signature
    # (S,) float, the logarithm of how many partitions have it: N! / prod (i!)^m m!
    log_num_partitions: np.ndarray


@lru_cache(maxsize=8)
def signatures(num_items: int) -> Signatures:
    """All signatures of N items.

    Raises ValueError: more items than `MOST_SIGNATURES`.
    """
    from scipy.special import gammaln as log_gamma

    if num_items > MOST_SIGNATURES:
        raise ValueError(
            f"num_items: {num_items} items have too many signatures to list them all; up to "
            f"{MOST_SIGNATURES} are exact where there are features beside the counts of groups"
        )
    all_sizes: list[tuple[int, ...]] = []

    def extend(sizes: tuple[int, ...], left: int, largest: int) -> None:
        if left == 0:
            all_sizes.append(sizes)
        for size in range(min(left, largest), 0, -1):
            extend((*sizes, size), left - size, size)

    extend((), num_items, num_items)
    counts = np.zeros((len(all_sizes), num_items), np.int64)
    for row, sizes in enumerate(all_sizes):
        np.add.at(counts[row], np.array(sizes) - 1, 1)
    factorials = log_gamma(np.arange(1, num_items + 1) + 1.0)
    log_num_partitions = log_gamma(num_items + 1.0) - counts @ factorials
    return Signatures(counts, log_num_partitions - log_gamma(counts + 1.0).sum(axis=1))


def draw_by_signature(key: Array, log_probs: Array, num_items: int) -> Array:
    """Groups of N items, given the log probability (S,) of every signature: (N,) int32."""
    signature_key, order_key = jax.random.split(key)
    chosen = jax.random.categorical(signature_key, log_probs)
    counts = jnp.asarray(signatures(num_items).counts)[chosen]
    sizes = jnp.repeat(jnp.arange(1, num_items + 1), counts, total_repeat_length=num_items)
    sizes = jnp.where(jnp.arange(num_items) < jnp.sum(counts), sizes, 0)
    batches = jnp.zeros((num_items,), jnp.int32)
    return _dealt(order_key, batches, jnp.array([num_items, 0]), jnp.cumsum(sizes)[None])


jitted_normalisers = jit(log_normalisers)
jitted_expected_counts = jit(expected_counts)


@jit
def drawn(keys: Array, log_weights: Array) -> Array:
    """Partitions of as many items as there are weights, one a key: (S, N) int32."""
    num_items = log_weights.shape[0]
    batches = jnp.zeros((num_items,), jnp.int32)
    return jax.vmap(lambda key: draw_groups(key, log_weights, batches, (1, num_items)))(keys)


@jit(static_argnames="num_items")
def drawn_by_signature(keys: Array, logs: Array, num_items: int) -> Array:
    """The same by signature, given the logs of their weights."""
    return jax.vmap(lambda key: draw_by_signature(key, logs, num_items))(keys)
