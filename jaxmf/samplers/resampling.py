"""Resampling schemes of sequential Monte Carlo, all of one signature.

A scheme is a function ``(key, log_weights, num) -> (ancestors, log_weights)``: it takes the
unnormalised log weights of any number of candidates, chooses ``num`` of them and says with which
log weights they continue. The new log weights are scaled so that their mean weight is one; the
total weight is kept exactly, so the evidence never changes by resampling. Every scheme is unbiased:
the expected new weight of a candidate is ``num`` times its normalised old weight.

Start with `systematic`, the default of the filters; `optimal` is for enumerated children.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp

from jaxmf.types import Array

ResampleFn = Callable[[Array, Array, int], tuple[Array, Array]]


def log_mean_weight(log_weights: Array) -> Array:
    """Return the log of the mean weight; minus infinity when all weights are zero.

    Args: log_weights (P,) float, unnormalised.
    Returns () float.
    """
    return logsumexp(log_weights) - jnp.log(log_weights.shape[0])


def effective_sample_size(log_weights: Array) -> Array:
    """Return the effective sample size, (sum w)^2 / sum w^2; zero when all weights are zero.

    Args: log_weights (P,) float, unnormalised.
    Returns () float between 1 and P.

    Example:
        >>> import jax.numpy as jnp
        >>> float(effective_sample_size(jnp.zeros(4)))
        4.0
    """
    weights = _relative_weights(log_weights)
    square_sum = jnp.sum(weights**2)
    return jnp.where(square_sum > 0, jnp.sum(weights) ** 2 / jnp.maximum(square_sum, 1e-30), 0.0)


def multinomial(key: Array, log_weights: Array, num: int) -> tuple[Array, Array]:
    """Choose ``num`` candidates independently, each in proportion to its weight.

    Args: log_weights (C,) float, unnormalised log weights of the candidates; num: number of
    candidates to choose, static.
    Returns ancestors: (num,) int32 indices into the candidates, in increasing order. log_weights:
    (num,) float, zeros.
    """
    # Sorted uniforms from exponential spacings: linear, where sorting is not.
    spacings = jax.random.exponential(key, (num + 1,), log_weights.dtype)
    cumulative = jnp.cumsum(spacings)
    return _at_positions(log_weights, cumulative[:-1] / cumulative[-1])


def stratified(key: Array, log_weights: Array, num: int) -> tuple[Array, Array]:
    """Choose one candidate from each of ``num`` equal parts of the cumulative weight.

    Args and Returns as for `multinomial`.
    """
    uniforms = jax.random.uniform(key, (num,), log_weights.dtype)
    return _at_positions(log_weights, (jnp.arange(num) + uniforms) / num)


def systematic(key: Array, log_weights: Array, num: int) -> tuple[Array, Array]:
    """Choose at ``num`` equally spaced positions of the cumulative weight, with one shift for all.

    Args and Returns as for `multinomial`.
    """
    uniform = jax.random.uniform(key, (), log_weights.dtype)
    return _at_positions(log_weights, (jnp.arange(num) + uniform) / num)


def residual(key: Array, log_weights: Array, num: int) -> tuple[Array, Array]:
    """Copy each candidate floor(num W) times and fill up from what is left over.

    Args and Returns as for `multinomial`.
    """
    weights = _relative_weights(log_weights)
    expected = num * (weights / jnp.maximum(jnp.sum(weights), 1e-30))
    copies = jnp.floor(expected)
    # Rounding must not make more copies than asked for (weights of exactly 1/num, rounded up).
    copies = jnp.minimum(copies, num - jnp.cumsum(copies) + copies)
    copies = jnp.maximum(copies, 0.0).astype(jnp.int32)
    num_left = num - jnp.sum(copies)
    rest = jnp.maximum(expected - copies, 0.0)
    drawn = _search(_distribution(rest), jax.random.uniform(key, (num,), rest.dtype), rest > 0)
    used = (jnp.arange(num) < num_left).astype(jnp.int32)
    counts = copies.at[drawn].add(used)
    ancestors = jnp.repeat(
        jnp.arange(log_weights.shape[0], dtype=jnp.int32), counts, total_repeat_length=num
    )
    return ancestors, jnp.zeros(num, log_weights.dtype)


def optimal(key: Array, log_weights: Array, num: int) -> tuple[Array, Array]:
    """Choose distinct candidates by Fearnhead and Clifford's unbiased threshold.

    With c the solution of ``sum_i min(w_i / c, 1) = num``, every candidate with weight above c
    is kept with the weight it has; the remaining ones are chosen from the others with
    probability w_i / c and continue with weight c. Among all unbiased schemes that keep at most
    ``num`` candidates it has the smallest expected squared change of the weights. With no more
    than ``num`` candidates of positive weight all of them are kept, and the remaining slots get
    log weight minus infinity.

    Args and Returns as for `multinomial`, with weights that differ, and ancestors not in order.

    Reference: Fearnhead and Clifford (2003), On-line inference for hidden Markov models via
    particle filters.
    """
    num_candidates = log_weights.shape[0]
    highest = jnp.max(log_weights)
    log_weights = log_weights - jnp.where(jnp.isfinite(highest), highest, 0)
    if num_candidates < num:
        fill = jnp.full(num - num_candidates, -jnp.inf, log_weights.dtype)
        log_weights = jnp.concatenate([log_weights, fill])
        num_candidates = num
    order = jnp.argsort(-log_weights)
    num_kept, log_threshold = _threshold(log_weights[order], num)
    indices = jnp.arange(num_candidates, dtype=jnp.int32)
    ranks = jnp.zeros_like(indices).at[order].set(indices)
    small = (ranks >= num_kept) & (log_weights > -jnp.inf)
    small_weights = jnp.exp(jnp.where(small, log_weights - log_threshold, -jnp.inf))
    slots = jnp.arange(num)
    num_small = jnp.maximum(num - num_kept, 1)
    uniform = jax.random.uniform(key, (), log_weights.dtype)
    positions = (slots - num_kept + uniform) / num_small
    chosen = _search(_distribution(small_weights), positions, small)
    kept = slots < num_kept
    ancestors = jnp.where(kept, order[:num], chosen).astype(jnp.int32)
    log_kept = jnp.where(kept, log_weights[order[:num]], log_threshold)
    log_kept = log_kept - logsumexp(log_weights) + jnp.log(num)
    # A filler for a candidate that does not exist points at the best one, with weight zero.
    empty = ~kept & ~jnp.any(small)
    ancestors = jnp.where(empty, order[0], ancestors).astype(jnp.int32)
    return ancestors, jnp.where(empty, -jnp.inf, log_kept)


def _threshold(sorted_log_weights: Array, num: int) -> tuple[Array, Array]:
    """Return how many of the largest are kept, and the log threshold c of the others."""
    num_candidates = sorted_log_weights.shape[0]
    log_tails = lax.cumlogsumexp(sorted_log_weights, reverse=True)
    log_num_left = jnp.log(jnp.maximum(num - jnp.arange(num_candidates), 1).astype(log_tails.dtype))
    # With k kept the threshold is tail_k / (num - k); the first k whose weight is below it.
    below = sorted_log_weights + log_num_left <= log_tails
    num_positive = jnp.sum(sorted_log_weights > -jnp.inf)
    num_kept = jnp.where(num_positive <= num, num_positive, jnp.minimum(jnp.argmax(below), num - 1))
    index = jnp.minimum(num_kept, num_candidates - 1)
    return num_kept, log_tails[index] - log_num_left[index]


def _at_positions(log_weights: Array, positions: Array) -> tuple[Array, Array]:
    """Choose the candidates at sorted positions of the cumulative weight, weights all equal."""
    weights = _relative_weights(log_weights)
    ancestors = _search(_distribution(weights), positions, weights > 0)
    return ancestors, jnp.zeros(positions.shape[0], log_weights.dtype)


def _relative_weights(log_weights: Array) -> Array:
    """Return the weights, the largest one being one; zeros when all are zero."""
    highest = jnp.max(log_weights)
    return jnp.exp(log_weights - jnp.where(jnp.isfinite(highest), highest, 0.0))


def _distribution(weights: Array) -> Array:
    """Return the normalised cumulative weights, monotone and ending in one."""
    # A parallel prefix sum is monotone only up to rounding.
    cumulative = lax.cummax(jnp.cumsum(weights))
    return cumulative / jnp.maximum(cumulative[-1], jnp.finfo(weights.dtype).tiny)


def _search(distribution: Array, positions: Array, positive: Array) -> Array:
    """Return the first candidate whose cumulative weight is above each position in [0, 1)."""
    below_one = 1.0 - jnp.finfo(distribution.dtype).epsneg
    first_above = jnp.searchsorted(distribution, jnp.minimum(positions, below_one), side="right")
    # Rounding may point at a candidate of weight zero: go to the last positive one before it.
    indices = jnp.arange(distribution.shape[0], dtype=jnp.int32)
    last = lax.cummax(jnp.where(positive, indices, -1))
    first = jnp.argmax(positive).astype(jnp.int32)
    last = jnp.where(last < 0, first, last)
    return last[jnp.minimum(first_above, distribution.shape[0] - 1)]
