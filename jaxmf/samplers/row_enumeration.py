"""The exact proposal of one row: its 2^K settings and any number of new features, summed out.

As `feature_rows.whole_row_log_weights`, but in bounded memory, at a cost that follows the number of
features there are rather than the capacity, and without an upper limit on new features: settings
are gone through in blocks of 16, the number of new features in pieces of four until what lies
beyond is less than rounding. Random choices do not depend on the capacity.

- `sum_settings`: the log of the whole sum, and one block in proportion to its part of it.
- `draw_bits`: a setting of that block.
- `draw_num_new`: the number of new features of that setting.
- `all_settings`: the settings themselves, each with its numbers of new features, for few slots.

The slots that may move must be the first ones after `first`, without gaps.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import gammaln, logsumexp

from jaxmf._kernels.special import accepts
from jaxmf.likelihoods.gaussian import log_normal_row
from jaxmf.samplers.feature_layout import RowPrior, Scales
from jaxmf.samplers.feature_rows import RowFit, draw_index
from jaxmf.types import Array, Key, PyTree

_BLOCK_BITS = 4
_PIECE = 4
_NEVER = -1e30


class RowBlock(NamedTuple):
    """A block of settings: its position () int32, and log weights (L,) of its settings."""

    position: Array
    log_weights: Array


class _BitSettings(NamedTuple):
    """The settings of one block, (L,) float each."""

    squared_error: Array
    inflation: Array
    log_prior: Array


def sum_settings(
    key: Key, fit: RowFit, prior: RowPrior, scales: Scales, *, first: int
) -> tuple[Array, RowBlock]:
    """The log density of a row with its features summed out, and a block of settings.

    log sum_z sum_j P(z) Poisson(j; rate) N(x; z mu, v (1 + z M z' + j / r)).

    Args: fit: of the row with the bits of all movable slots off; prior: of the row's features,
    given the rows before.
    Returns () float; a block, chosen in proportion to its part of the sum.
    """
    num_slots = fit.z.shape[0] - first
    num_low = min(_BLOCK_BITS, num_slots)
    num_high = num_slots - num_low
    base = _pair_terms(fit, first, num_low)
    uniforms = jax.random.uniform(key, (2**num_high,), fit.slope.dtype)

    def add_block(index: Array, carry: tuple[Array, RowBlock]) -> tuple[Array, RowBlock]:
        total, chosen = carry
        settings = _settings(fit, prior, base, index, first, num_low)
        block = RowBlock(index, _sum_new(settings, fit.num_observed, prior.rate, scales))
        value = logsumexp(block.log_weights)
        total = jnp.logaddexp(total, value)
        take = accepts(uniforms[index], value - total)
        return total, jax.tree.map(lambda new, old: jnp.where(take, new, old), block, chosen)

    zero = jnp.zeros((), jnp.int32)
    nothing = jnp.full((2**num_low,), -jnp.inf, fit.slope.dtype)
    start = (nothing[0], RowBlock(zero, nothing))
    if num_high:
        num_used = jnp.maximum(jnp.sum(prior.movable, dtype=jnp.int32) - num_low, 0)
        total, chosen = lax.fori_loop(0, jnp.left_shift(1, num_used), add_block, start)
    else:
        total, chosen = add_block(zero, start)
    return total + _log_nothing(prior), chosen


def all_settings(
    fit: RowFit, prior: RowPrior, scales: Scales, *, first: int, num_counts: int
) -> tuple[Array, Array]:
    """Every setting of the bits with each number of new features, and the log weight of each.

    Args: fit, prior, scales, first: as in `sum_settings`; num_counts: the numbers of new features
    are 0, 1, ..., of which the last stands for itself and all larger ones together.
    Returns (2^K, K) bool; (2^K, num_counts) float, minus infinity for settings that cannot be.
    """
    num_slots = fit.z.shape[0] - first
    base = _pair_terms(fit, first, num_slots)
    zero = jnp.zeros((), jnp.int32)
    settings = _settings(fit, prior, base, zero, first, num_slots)
    rest = (settings, fit.num_observed, prior.rate, scales)
    terms, log_weights = _next_terms(_no_terms(settings), num_counts - 1, *rest)
    larger = _sum_new(*rest, start=terms)
    log_weights = jnp.concatenate([log_weights, larger[None]]).T + _log_nothing(prior)
    patterns = jnp.asarray(_patterns(num_slots) == 1)
    patterns = jnp.pad(patterns, [(0, 0), (first, 0)]) & prior.movable
    return patterns, jnp.where(log_weights > 0.5 * _NEVER, log_weights, -jnp.inf)


def _log_nothing(prior: RowPrior) -> Array:
    """Log prior probability of a row with no features at all."""
    return -jnp.sum(jnp.where(prior.movable, jax.nn.softplus(prior.log_odds), 0)) - prior.rate


def draw_bits(uniform: Array, block: RowBlock, movable: Array, *, first: int) -> Array:
    """The bits of the movable slots in one setting of a block, (K,) bool, off at other slots."""
    pattern = draw_index(uniform, block.log_weights)
    num_low = block.log_weights.shape[0].bit_length() - 1
    bit_positions = jnp.arange(movable.shape[0]) - first
    low = (pattern >> jnp.clip(bit_positions, 0, 30)) & 1
    high = (block.position >> jnp.clip(bit_positions - num_low, 0, 30)) & 1
    return (jnp.where(bit_positions < num_low, low, high) == 1) & movable


def draw_num_new(
    uniform: Array,
    squared_error: Array,
    inflation: Array,
    num_observed: Array,
    *,
    rate: Array,
    scales: Scales,
    at_least: Array | int = 0,
) -> Array:
    """The number of new features of a row with given bits, by inversion.

    Args: squared_error () float, of the observed cells about z mu; inflation () float, z M z'; rate
    () float, Poisson rate of new features; at_least () int, the least number that it may be.
    Returns () int32.
    """
    setting = _BitSettings(squared_error, inflation, jnp.zeros_like(squared_error))
    start = _terms_from(setting, at_least, rate)
    log_total = _sum_new(setting, num_observed, rate, scales, start=start)
    log_level = jnp.log(uniform) + log_total
    log_least = log_total + float(np.log(np.finfo(uniform.dtype).eps))

    def must_go_on(terms: _Terms) -> Array:
        beyond = _log_beyond(terms, setting, num_observed, rate, scales)
        return (terms.next_count == at_least) | (terms.total <= log_level) & (beyond > log_least)

    def go_on(terms: _Terms) -> _Terms:
        return _add_piece(terms, 1, setting, num_observed, rate, scales)

    drawn = lax.while_loop(must_go_on, go_on, start)
    return drawn.next_count.astype(jnp.int32) - 1


def _patterns(num_bits: int) -> np.ndarray:
    return (np.arange(2**num_bits)[:, None] >> np.arange(num_bits)) & 1


def _pair_terms(fit: RowFit, first: int, num_low: int) -> Array:
    """The quadratic forms of all settings of the low slots, (L, 2), alike for all blocks."""
    low = slice(first, first + num_low)
    patterns = _patterns(num_low)
    pairs = (patterns[:, :, None] * patterns[:, None, :]).reshape(len(patterns), -1)
    matrices = jnp.stack(
        [fit.curvature[low, low].reshape(-1), fit.spread[low, low].reshape(-1)], axis=1
    )
    return jnp.asarray(pairs, matrices.dtype) @ matrices


def _settings(
    fit: RowFit, prior: RowPrior, base: Array, block: Array, first: int, num_low: int
) -> _BitSettings:
    """Fit and prior of all settings of one block."""
    dtype = fit.slope.dtype
    num_high = fit.z.shape[0] - first - num_low
    low, high = slice(first, first + num_low), slice(first + num_low, None)
    patterns = jnp.asarray(_patterns(num_low), dtype)
    bits = ((block >> jnp.arange(num_high)) & 1).astype(dtype)
    log_odds = jnp.where(prior.movable, prior.log_odds, _NEVER)

    def quadratic(pair_terms: Array, linear: Array, matrix: Array) -> Array:
        mixed = linear[low] + matrix[low, high] @ bits
        alone = bits @ (2 * linear[high] + matrix[high, high] @ bits)
        return pair_terms + 2 * patterns @ mixed + alone

    change_of_error = quadratic(base[:, 0], -fit.slope, fit.curvature)
    change_of_inflation = quadratic(base[:, 1], fit.m_z, fit.spread)
    return _BitSettings(
        squared_error=jnp.maximum(fit.squared_error + change_of_error, 0),
        inflation=jnp.maximum(fit.inflation + change_of_inflation, 0),
        log_prior=patterns @ log_odds[low] + bits @ log_odds[high],
    )


class _Terms(NamedTuple):
    """The terms of the sum over the number of new features, up to one of them."""

    next_count: Array  # () float, the first number of new features that is not in the sum yet
    log_poisson: Array  # () float, log of rate^next_count / next_count!
    total: Array  # (...) float, log of the sum so far


def _no_terms(settings: _BitSettings) -> _Terms:
    zero = jnp.zeros((), settings.squared_error.dtype)
    return _Terms(zero, zero, jnp.full_like(settings.squared_error, -jnp.inf))


def _terms_from(settings: _BitSettings, first: Array | int, rate: Array) -> _Terms:
    """No terms yet of a sum that starts at `first` new features."""
    none = _no_terms(settings)
    start = jnp.asarray(first, none.next_count.dtype)
    log_rate = jnp.maximum(jnp.log(rate), _NEVER)
    return none._replace(next_count=start, log_poisson=start * log_rate - gammaln(start + 1))


def _next_terms(
    terms: _Terms,
    size: int,
    settings: _BitSettings,
    num_observed: Array,
    rate: Array,
    scales: Scales,
) -> tuple[_Terms, Array]:
    """The next ``size`` terms, (size, ...) float, and where the sum continues; not added to it."""
    dtype = terms.next_count.dtype
    # Finite where there are no new features, so that nothing times it is nothing.
    log_rate = jnp.maximum(jnp.log(rate), _NEVER)
    steps = log_rate - jnp.log(terms.next_count + jnp.arange(1, size + 1, dtype=dtype))
    up_to = jnp.asarray(np.tri(size + 1, size, -1), dtype)
    log_poissons = terms.log_poisson + up_to @ steps
    # The counts come first, so that the settings are what runs fastest in memory.
    counts = terms.next_count + jnp.arange(size, dtype=dtype)
    over = (slice(None), *(None for _ in settings.inflation.shape))
    inflation = 1 + settings.inflation + (counts / scales.ratio)[over]
    log_densities = log_normal_row(
        settings.squared_error, inflation, num_observed, scales.noise_variance
    )
    new = log_poissons[:size][over] + log_densities + settings.log_prior
    return terms._replace(next_count=terms.next_count + size, log_poisson=log_poissons[size]), new


def _add_piece(terms: _Terms, size: int, *rest: PyTree) -> _Terms:
    """The sum with the next ``size`` terms."""
    terms, new = _next_terms(terms, size, *rest)
    highest = jnp.maximum(terms.total, jnp.max(new, axis=0))
    total = jnp.exp(terms.total - highest) + jnp.sum(jnp.exp(new - highest), axis=0)
    return terms._replace(total=highest + jnp.log(total))


def _log_beyond(
    terms: _Terms, settings: _BitSettings, num_observed: Array, rate: Array, scales: Scales
) -> Array:
    """Upper bound of the log of all terms that are not in the sum; infinite while unknown.

    The likelihood of the others is at most its maximum over larger variances, and the Poisson
    terms fall at least geometrically.
    """
    decay = rate / (terms.next_count + 1)
    inflation = 1 + settings.inflation + terms.next_count / scales.ratio
    best = jnp.maximum(
        inflation, settings.squared_error / (jnp.maximum(num_observed, 1) * scales.noise_variance)
    )
    bound = (
        settings.log_prior
        + terms.log_poisson
        - jnp.log1p(-jnp.minimum(decay, 0.9))
        + log_normal_row(settings.squared_error, best, num_observed, scales.noise_variance)
    )
    return jnp.where(decay < 0.9, bound, jnp.inf)


def _sum_new(
    settings: _BitSettings,
    num_observed: Array,
    rate: Array,
    scales: Scales,
    start: _Terms | None = None,
) -> Array:
    """Log weight of each setting with the number of new features summed out, (L,) float."""
    start = _no_terms(settings) if start is None else start
    log_eps = float(np.log(np.finfo(settings.squared_error.dtype).eps))
    # Under vmap the loop over blocks also runs for rows that have had all of theirs.
    is_possible = jnp.max(settings.log_prior) > 0.5 * _NEVER

    def must_go_on(terms: _Terms) -> Array:
        beyond = logsumexp(_log_beyond(terms, settings, num_observed, rate, scales))
        unfinished = beyond - logsumexp(terms.total) > log_eps
        return (terms.next_count == start.next_count) | (is_possible & unfinished)

    def go_on(terms: _Terms) -> _Terms:
        return _add_piece(terms, _PIECE, settings, num_observed, rate, scales)

    return lax.while_loop(must_go_on, go_on, start).total
