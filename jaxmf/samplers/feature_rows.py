"""Gibbs updates of one row of binary features under a linear-Gaussian likelihood.

A row x with features z has, given everything else, the density N(z mu, v I) on its observed cells,
v = noise variance * (1 + z M z' + j / r), where mu (K, D) and M (K, K) come from the other rows and
j is the number of the row's new features, each with its row of Y summed out. With M = 0 and
mu = Y the same formulas hold given Y. So the collapsed sweep, the parallel sweep given Y and the
particle filter share the functions of this file.

- `row_fit`: what the updates need of (mu, M) and x, in vectors of length K.
- `bit_log_odds`: log odds of one bit, the conditional of every single-bit update.
- `scan_bits`: all bits of a row, one after another in a fresh random order.
- `new_feature_log_weights`, `draw_index`: the number of new features, an exact truncated sum.
- `all_patterns`, `whole_row_log_weights`: all 2^K settings of a row at once.

The order in which bits are visited must not depend on the state (the slot of a feature tells its
age, age tells the bits): every row draws its own order over the slots.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, logit, logsumexp

from jaxmf import slots
from jaxmf._kernels.fusion import fused_on_cpu
from jaxmf.engine import Limit
from jaxmf.likelihoods.gaussian import RowPosterior, log_normal_row
from jaxmf.samplers.feature_layout import RowDraws, RowPrior
from jaxmf.types import Array

MAX_WHOLE_ROW_SLOTS = 12
_FEATURES_ADVICE = (
    "A row takes about (x / s)^2 features, s the scale of their entries or weights: leave the "
    "scales out, so that they start from the data, or set them in its unit, and centre the data"
)


class RowFit(NamedTuple):
    """How a row with features z fits, and how that changes with each bit."""

    z: Array  # (K,) bool
    slope: Array  # (K,) float, mu (x - z mu), over the observed cells
    curvature: Array  # (K, K) float, mu mu', over the observed cells
    m_z: Array  # (K,) float, M z
    spread: Array  # (K, K) float, M
    squared_error: Array  # () float, |x - z mu|^2 over the observed cells
    inflation: Array  # () float, z M z'
    num_observed: Array  # () float


def row_fit(posterior: RowPosterior, z: Array, x: Array, observed: Array | None) -> RowFit:
    """The fit of a row x (D,) with features z (K,) bool; `observed` (D,) bool or None for all."""
    spread, mean = posterior
    z_float = z.astype(x.dtype)
    m_z = spread @ z_float
    error = x - z_float @ mean
    if observed is None:
        seen, num_observed = mean, jnp.asarray(x.shape[0], x.dtype)
    else:
        error = jnp.where(observed, error, 0)
        seen = jnp.where(observed, mean, 0)
        num_observed = jnp.sum(observed, dtype=x.dtype)
    return RowFit(
        z=z,
        slope=mean @ error,
        curvature=seen @ seen.T,
        m_z=m_z,
        spread=spread,
        squared_error=error @ error,
        inflation=z_float @ m_z,
        num_observed=num_observed,
    )


def bit_log_odds(
    on: Array,
    error: tuple[Array, Array],
    inflation: tuple[Array, Array],
    num_observed: Array,
    noise_variance: Array,
    prior_log_odds: Array,
) -> Array:
    """Log odds of flipping one bit against leaving it.

    Args: on () bool, whether the bit is on now; error: squared errors of the row with the bit
    (left, flipped); inflation: 1 + z M z' + j / r with the bit (left, flipped); prior_log_odds ()
    float, of the bit being on.
    """
    left = log_normal_row(error[0], inflation[0], num_observed, noise_variance)
    flipped = log_normal_row(error[1], inflation[1], num_observed, noise_variance)
    return jnp.where(on, -prior_log_odds, prior_log_odds) + flipped - left


def _scan_bits(
    order: Array,
    threshold: Array,
    fit: RowFit,
    extra: Array,
    noise_variance: Array,
    prior_log_odds: Array,
    free_to_move: Array,
) -> tuple[Array, Array, Array, Array, Array]:
    def update(k: Array, here: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        z, slope, m_z, squared_error, inflation = state
        at = jax.lax.dynamic_index_in_dim
        on = at(z, k, keepdims=False)
        sign = jnp.where(on, -1, 1).astype(slope.dtype)
        column = at(fit.curvature, k, keepdims=False)
        widths = at(fit.spread, k, keepdims=False)
        error_flipped = (
            squared_error - 2 * sign * at(slope, k, keepdims=False) + at(column, k, keepdims=False)
        )
        inflation_flipped = (
            inflation + 2 * sign * at(m_z, k, keepdims=False) + at(widths, k, keepdims=False)
        )
        log_odds = bit_log_odds(
            on,
            (squared_error, error_flipped),
            (1 + inflation + extra, 1 + inflation_flipped + extra),
            fit.num_observed,
            noise_variance,
            at(prior_log_odds, k, keepdims=False),
        )
        flip = at(threshold, k, keepdims=False) < log_odds
        change = jnp.where(flip, sign, 0)
        return (
            z ^ (here & flip),
            slope - change * column,
            m_z + change * widths,
            jnp.where(flip, error_flipped, squared_error),
            jnp.where(flip, inflation_flipped, inflation),
        )

    start = (fit.z, fit.slope, fit.m_z, fit.squared_error, fit.inflation)
    return slots.visit(update, start, order=order, allowed=free_to_move)


_scan_bits_fused = fused_on_cpu(_scan_bits)


def scan_bits(
    draws: RowDraws, fit: RowFit, conditional: RowPrior, *, extra: Array, noise_variance: Array
) -> RowFit:
    """Gibbs-samples the bits of a row, one after another.

    Args: extra () float, j / r for the j new features of the row that stay as they are.
    Returns the fit of the row with its new bits.
    """
    z, slope, m_z, squared_error, inflation = _scan_bits_fused(
        draws.order,
        # a bit flips where logit(u) < log odds; logit(0) = -inf is as it should be
        logit(draws.bits),
        fit,
        extra,
        noise_variance,
        conditional.log_odds,
        conditional.movable,
    )
    return fit._replace(z=z, slope=slope, m_z=m_z, squared_error=squared_error, inflation=inflation)


def new_feature_log_weights(
    squared_error: Array,
    inflation: Array,
    num_observed: Array,
    *,
    rate: Array,
    ratio: Array,
    noise_variance: Array,
    num_candidates: int,
    log_prior: Array | float = 0.0,
) -> tuple[Array, Array]:
    """Unnormalised log probabilities of j = 0, 1, ... new features of a row.

    The weight of j is rate^j / j! * N(x; z mu, noise variance * (1 + z M z' + j / r)): Poisson
    prior, rows of Y of the new features summed out.

    Args:
      squared_error: (...) float, of the row with its existing features.
      inflation: (...) float, z M z'.
      rate: () float, Poisson rate of new features; 0 gives weight to j = 0 alone.
      ratio: () float, r.
      num_candidates: j runs over 0 ... num_candidates - 1.
      log_prior: (...) float, added to the log weights of each setting of the existing features.
    Returns:
      (..., num_candidates) log weights, and () bool: whether what lies beyond the last candidate
      is more than rounding beside the whole.
    """
    dtype = squared_error.dtype
    counts = jnp.arange(num_candidates, dtype=dtype)
    log_poisson, log_tail = log_poisson_terms(jnp.asarray(rate, dtype), num_candidates)
    inflated = 1 + inflation[..., None] + counts / ratio
    log_weights = (
        jnp.asarray(log_prior, dtype)[..., None]
        + log_poisson
        + log_normal_row(squared_error[..., None], inflated, num_observed, noise_variance)
    )
    # beyond the last candidate the likelihood is at most its maximum over v >= v_last
    last = 1 + inflation + num_candidates / ratio
    best = jnp.maximum(last, squared_error / (jnp.maximum(num_observed, 1) * noise_variance))
    log_beyond = (
        log_prior + log_tail + log_normal_row(squared_error, best, num_observed, noise_variance)
    )
    return log_weights, cut_off(logsumexp(log_beyond), logsumexp(log_weights), rate, num_candidates)


def log_poisson_terms(rate: Array, num_candidates: int) -> tuple[Array, Array]:
    """Log of rate^j / j! for j = 0 ... num_candidates - 1, and of a bound of the sum of the rest.

    The rest falls at least geometrically, which bounds it where `cut_off` finds that it does.
    """
    counts = jnp.arange(num_candidates, dtype=rate.dtype)
    possible = rate > 0
    log_rate = jnp.log(jnp.where(possible, rate, 1))
    terms = counts * log_rate - gammaln(counts + 1)
    decay = rate / (num_candidates + 1)
    log_tail = (
        num_candidates * log_rate
        - gammaln(jnp.asarray(num_candidates + 1, rate.dtype))
        - jnp.log1p(-jnp.minimum(decay, 0.99))
    )
    return (
        jnp.where(possible | (counts == 0), terms, -jnp.inf),
        jnp.where(possible, log_tail, -jnp.inf),
    )


def cut_off(log_beyond: Array, log_total: Array, rate: Array, num_candidates: int) -> Array:
    """() bool, whether the bound on what lies beyond the last candidate is more than rounding.

    Args: log_beyond () float, with the tail of `log_poisson_terms` in it; log_total () float, of
    the candidates; rate () float, the Poisson rate.
    """
    negligible = log_beyond - log_total < jnp.log(jnp.finfo(log_total.dtype).eps)
    return (rate > 0) & ~(negligible & (rate < 0.99 * (num_candidates + 1)))


def draw_index(uniform: Array, log_weights: Array) -> Array:
    """An index by inversion: () int, from one uniform () in [0, 1) and log weights (J,)."""
    weights = jnp.exp(log_weights - jnp.max(log_weights))
    total = jnp.cumsum(weights)
    # <= rather than <: a uniform of zero must not choose a first weight of zero
    return jnp.sum(total <= uniform * total[-1], dtype=jnp.int32)


def check_whole_rows(num_slots: int, *, remedy: str) -> None:
    """Refuses to go through the settings of too many slots.

    Raises ValueError: more than `MAX_WHOLE_ROW_SLOTS`.
    """
    if num_slots > MAX_WHOLE_ROW_SLOTS:
        raise ValueError(
            f"whole rows are drawn from all 2^K settings, for at most {MAX_WHOLE_ROW_SLOTS} slots; "
            f"this needs {num_slots}; {remedy}"
        )


def features_limit(num_rows: int) -> Limit:
    """The limit of growth of the features of `num_rows` rows: four a row, 256 to 4,096.

    A posterior has far fewer; chains on their way to it may pass through more than they keep.
    """
    return Limit(min(max(256, 4 * num_rows), 4_096), _FEATURES_ADVICE)


def whole_rows_limit(*, remedy: str) -> Limit:
    """The limit of growth of a sweep over whole rows, with what to do where it is too small."""
    return Limit(
        MAX_WHOLE_ROW_SLOTS,
        f"Whole rows are drawn from all 2^K settings, for at most {MAX_WHOLE_ROW_SLOTS} slots; "
        f"{remedy}",
    )


def all_patterns(num_slots: int) -> Array:
    """(2^K, K) bool, row h holding the binary digits of h."""
    return (jnp.arange(2**num_slots)[:, None] >> jnp.arange(num_slots)) & 1 == 1


def log_prior_of_patterns(patterns: Array, z: Array, conditional: RowPrior) -> tuple[Array, Array]:
    """Which settings (2^K, K) of a row z leave what is not movable, and their log prior: (2^K,).

    The factor prod_k P(bit_k = 0) is left out.
    """
    allowed = jnp.all((patterns == z) | conditional.movable, axis=1)
    on = jnp.where(patterns & conditional.movable, conditional.log_odds, 0)
    return allowed, jnp.where(allowed, jnp.sum(on, axis=1), -jnp.inf)


def whole_row_log_weights(
    fit: RowFit, conditional: RowPrior, *, ratio: Array, noise_variance: Array, num_candidates: int
) -> tuple[Array, Array, Array]:
    """Log weights of all settings of a row: its bits and the number of its new features.

    Args:
      fit: of the row at any setting in which slots that are not movable are as they shall stay:
        settings that differ there have weight 0.
      ratio, noise_variance, num_candidates: as in `new_feature_log_weights`.
    Returns:
      patterns (2^K, K) bool; log weights (2^K, num_candidates), with the factor prod_k P(bit_k = 0)
      left out; () bool, whether mass beyond the last candidate was left out.
    """
    patterns = all_patterns(fit.z.shape[0])
    dtype = fit.slope.dtype
    change = patterns.astype(dtype) - fit.z.astype(dtype)
    squared_error = (
        fit.squared_error
        - 2 * change @ fit.slope
        + jnp.sum((change @ fit.curvature) * change, axis=1)
    )
    inflation = (
        fit.inflation + 2 * change @ fit.m_z + jnp.sum((change @ fit.spread) * change, axis=1)
    )
    allowed, log_prior = log_prior_of_patterns(patterns, fit.z, conditional)
    # settings that are not allowed must not decide how far the sum goes
    squared_error = jnp.where(allowed, jnp.maximum(squared_error, 0), fit.squared_error)
    inflation = jnp.where(allowed, jnp.maximum(inflation, 0), fit.inflation)
    log_weights, beyond = new_feature_log_weights(
        squared_error,
        inflation,
        fit.num_observed,
        rate=conditional.rate,
        ratio=ratio,
        noise_variance=noise_variance,
        num_candidates=num_candidates,
        log_prior=log_prior,
    )
    return patterns, log_weights, beyond
