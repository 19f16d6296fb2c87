"""Gibbs updates of one row of U under X = U W V' + noise with W summed out.

As `feature_rows`, with the L turned columns of `likelihoods/bilinear_rows.py` in place of data
columns that share one (M, mu).

- `row_fit`: what the updates need of (mu, M) and the row.
- `flip_log_odds`: the conditional of every single bit.
- `scan_bits`: all bits of a row, one after another in a fresh random order.
- `new_feature_log_weights`: the number of new features, an exact truncated sum.
- `draw_cells`: the missing cells of a row given its features.

Several bits at once: `whole_rows`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logit, logsumexp

from jaxmf import slots
from jaxmf._kernels.fusion import fused_on_cpu
from jaxmf.likelihoods.bilinear_rows import Turned, TurnedPosterior, density_terms, times_z
from jaxmf.samplers.bilinear.draws import CellDraws
from jaxmf.samplers.feature_layout import RowDraws, RowPrior
from jaxmf.types import Array


class BilinearRowFit(NamedTuple):
    """How a row with features z fits, and how that changes with each bit; o are its observed cells.

    Attributes:
      z: (K,) bool.
      gap: (L,) float, B_o'(x - B mu'z').
      squares: () float, squared length of x - B mu'z' over o; 0 where nothing is missing.
      m_z: (K, L) float, M_l z.
      inflation: (L,) float, z M_l z.
      steps: (K, L) float, mu B_o'B_o: what the gap loses with each bit.
      mean: (K, L) float, mu.
      spread: (K, K, L) float, M.
      gram: (L, L) float, B_o'B_o; None where nothing is missing.
    """

    z: Array
    gap: Array
    squares: Array
    m_z: Array
    inflation: Array
    steps: Array
    mean: Array
    spread: Array
    gram: Array | None


class PartialRow(NamedTuple):
    """A row with missing cells: cells (J,) float, observed (J,) bool, gram (L, L) float B_o'B_o."""

    cells: Array
    observed: Array
    gram: Array


def row_fit(
    posterior: TurnedPosterior, z: Array, x: Array, turned: Turned, partial: PartialRow | None
) -> BilinearRowFit:
    """The fit of a row with features z (K,) bool.

    Args: x (L,) float, turned cells, not looked at where cells are missing; partial: the row where
    cells are missing, else None.
    """
    spread, mean = posterior.spread, posterior.mean
    z_float = z.astype(mean.dtype)
    m_z = times_z(spread, z_float)
    fitted = z_float @ mean
    if partial is None:
        gap, squares, steps, gram = x - fitted, jnp.zeros((), mean.dtype), mean, None
    else:
        gram = partial.gram
        error = jnp.where(partial.observed, partial.cells - turned.basis @ fitted, 0)
        gap, squares, steps = error @ turned.basis, error @ error, mean @ gram
    return BilinearRowFit(
        z=z,
        gap=gap,
        squares=squares,
        m_z=m_z,
        inflation=z_float @ m_z,
        steps=steps,
        mean=mean,
        spread=spread,
        gram=gram,
    )


def flipped(fit: BilinearRowFit, k: Array) -> tuple[Array, Array, Array]:
    """Gap, squares and inflation with bit k the other way."""
    at = jax.lax.dynamic_index_in_dim
    sign = jnp.where(at(fit.z, k, keepdims=False), -1, 1).astype(fit.gap.dtype)
    mean, step = at(fit.mean, k, keepdims=False), at(fit.steps, k, keepdims=False)
    width = at(at(fit.spread, k, keepdims=False), k, keepdims=False)
    squares = fit.squares
    if fit.gram is not None:
        squares = squares - 2 * sign * (mean @ fit.gap) + mean @ step
    return (
        fit.gap - sign * step,
        squares,
        fit.inflation + 2 * sign * at(fit.m_z, k, keepdims=False) + width,
    )


def flip_log_odds(
    fit: BilinearRowFit, k: Array, extra: Array, noise_variance: Array, prior_log_odds: Array
) -> Array:
    """Log odds () of flipping bit k against leaving it: the conditional of every bit.

    Args: fit: of the row as it is, its singletons subtracted from the gap; extra (L,) float, j q
    for the j singletons of the row; prior_log_odds (K,) float, of each bit being on.
    """
    return _flip(
        fit, k, extra, noise_variance, prior_log_odds, log_likelihood(fit, extra, noise_variance)
    )[0]


def log_likelihood(fit: BilinearRowFit, extra: Array, noise_variance: Array) -> Array:
    """log p(observed cells | bits, singletons) of the row as it is, up to a constant."""
    return _log_density(fit.gap, fit.squares, fit.inflation + extra, fit.gram, noise_variance)


def _log_density(
    gap: Array, squares: Array, inflation: Array, gram: Array | None, noise_variance: Array
) -> Array:
    """() float; arguments as in `density_terms`."""
    log_determinant, exponent = density_terms(gap, squares, inflation, gram, noise_variance)
    return -0.5 * (log_determinant + exponent)


def _flip(
    fit: BilinearRowFit,
    k: Array,
    extra: Array,
    noise_variance: Array,
    prior_log_odds: Array,
    left: Array,
) -> tuple[Array, Array, Array, Array, Array]:
    gap, squares, inflation = flipped(fit, k)
    density = _log_density(gap, squares, inflation + extra, fit.gram, noise_variance)
    on = jax.lax.dynamic_index_in_dim(fit.z, k, keepdims=False)
    prior = jax.lax.dynamic_index_in_dim(prior_log_odds, k, keepdims=False)
    return jnp.where(on, -prior, prior) + density - left, density, gap, squares, inflation


def _scan_bits(
    order: Array,
    threshold: Array,
    fit: BilinearRowFit,
    extra: Array,
    noise_variance: Array,
    prior_log_odds: Array,
    free_to_move: Array,
) -> tuple[Array, Array, Array, Array, Array]:
    def update(k: Array, here: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        z, gap, squares, m_z, inflation, left = state
        now = fit._replace(z=z, gap=gap, squares=squares, m_z=m_z, inflation=inflation)
        log_odds, density, gap_flipped, squares_flipped, inflation_flipped = _flip(
            now, k, extra, noise_variance, prior_log_odds, left
        )
        flip = jax.lax.dynamic_index_in_dim(threshold, k, keepdims=False) < log_odds
        on = jax.lax.dynamic_index_in_dim(z, k, keepdims=False)
        change = jnp.where(flip, jnp.where(on, -1, 1), 0).astype(gap.dtype)
        widths = jax.lax.dynamic_index_in_dim(fit.spread, k, keepdims=False)
        return (
            z ^ (here & flip),
            jnp.where(flip, gap_flipped, gap),
            jnp.where(flip, squares_flipped, squares),
            m_z + change * widths,
            jnp.where(flip, inflation_flipped, inflation),
            jnp.where(flip, density, left),
        )

    left = log_likelihood(fit, extra, noise_variance)
    start = (fit.z, fit.gap, fit.squares, fit.m_z, fit.inflation, left)
    return slots.visit(update, start, order=order, allowed=free_to_move)[:-1]


_scan_bits_fused = fused_on_cpu(_scan_bits)


def scan_bits(
    draws: RowDraws,
    fit: BilinearRowFit,
    conditional: RowPrior,
    *,
    extra: Array,
    noise_variance: Array,
) -> BilinearRowFit:
    """Gibbs-samples the bits of a row, one after another.

    Args: extra (L,) float, j q for the j singletons of the row.
    """
    z, gap, squares, m_z, inflation = _scan_bits_fused(
        draws.order,
        # a bit flips where logit(u) < log odds; logit(0) = -inf is as it should be
        logit(draws.bits),
        fit,
        extra,
        noise_variance,
        conditional.log_odds,
        conditional.movable,
    )
    return fit._replace(z=z, gap=gap, squares=squares, m_z=m_z, inflation=inflation)


def _shift(gap: Array, squares: Array, gram: Array | None, change: Array) -> tuple[Array, Array]:
    """Gap and squares with the mean of the row's turned cells changed by `change` (L,)."""
    if gram is None:
        return gap - change, squares
    step = change @ gram
    return gap - step, squares - 2 * change @ gap + change @ step


def shifted(fit: BilinearRowFit, change: Array) -> BilinearRowFit:
    """The fit with the mean of the row's turned cells changed by `change` (L,)."""
    gap, squares = _shift(fit.gap, fit.squares, fit.gram, change)
    return fit._replace(gap=gap, squares=squares)


def moved(fit: BilinearRowFit, z: Array) -> BilinearRowFit:
    """The fit of the same row with features z (K,) bool."""
    change = z.astype(fit.gap.dtype) - fit.z.astype(fit.gap.dtype)
    widths = times_z(fit.spread, change)
    return shifted(fit, change @ fit.mean)._replace(
        z=z,
        m_z=fit.m_z + widths,
        inflation=fit.inflation + 2 * change @ fit.m_z + change @ widths,
    )


def new_feature_log_weights(
    fit: BilinearRowFit, turned: Turned, *, rate: Array, noise_variance: Array
) -> tuple[Array, Array]:
    """Unnormalised log probabilities of j = 0, 1, ..., K new features of a row.

    Each adds q_l to the variance and the prior mean of its weights to the mean of turned column l;
    the weight of j is its Poisson term times the density of the row. The sum continues until what
    lies beyond is rounding beside it. With Q_j the squares of the density, which are convex in j,
    the weights from j on fall at least by rate / (j + 1) exp((Q_{j-1} - Q_j) / 2) each; and their
    densities are at most that of an exact fit.

    Args:
      turned: the turned columns; new features have the prior mean of the last slot.
      rate: () float, Poisson rate of new features; 0 gives weight to j = 0 alone.
    Returns:
      (K + 1,) log weights, -inf for what is negligible, and () float: the log of a bound on what
      lies beyond.
    """
    return _count_log_weights_fused(
        jnp.arange(fit.z.shape[0] + 1),
        # an argument that is not used must not be passed to a fused function
        (fit.gap, None if fit.gram is None else fit.squares, fit.inflation, fit.gram),
        turned.prior_mean[-1],
        turned.strength,
        rate,
        noise_variance,
    )


def is_cut_off(log_weights: Array, log_beyond: Array) -> Array:
    """() bool, whether the bound on what lies beyond is more than rounding beside the weights."""
    return log_beyond - logsumexp(log_weights) > jnp.log(jnp.finfo(log_weights.dtype).eps)


def _count_log_weights(
    slots: Array,
    fit: tuple[Array, Array, Array, Array | None],
    new_mean: Array,
    strength: Array,
    rate: Array,
    noise_variance: Array,
) -> tuple[Array, Array]:
    gap, squares, inflation, gram = fit
    dtype = gap.dtype
    log_rate = jnp.log(jnp.where(rate > 0, rate, 1))
    infinite = jnp.asarray(jnp.inf, dtype)

    def geometric(log_ratio: Array) -> Array:
        """Log of the sum of ratio^1, ratio^2, ...; infinite where that does not fall."""
        falls = log_ratio < -0.01
        log_ratio = jnp.where(falls, log_ratio, -1)
        return jnp.where(falls, log_ratio - jnp.log1p(-jnp.exp(log_ratio)), infinite)

    def evaluate(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        count, log_poisson, log_weights, before, _ = carry
        j = count.astype(dtype)
        gap_here, squares_here = _shift(gap, squares, gram, j * new_mean)
        log_determinant, exponent = density_terms(
            gap_here, squares_here, inflation + j * strength, gram, noise_variance
        )
        log_weight = log_poisson - 0.5 * (log_determinant + exponent)
        log_step = log_rate - jnp.log(j + 1)
        by_ratio = log_weight + geometric(log_step + 0.5 * jnp.maximum(before - exponent, 0))
        by_fit = log_poisson - 0.5 * log_determinant + geometric(log_step)
        beyond = jnp.where(rate > 0, jnp.minimum(by_ratio, by_fit), -infinite)
        log_weights = jnp.where(slots == count, log_weight, log_weights)
        return count + 1, log_poisson + log_step, log_weights, exponent, beyond

    def goes_on(carry: tuple[Array, ...]) -> Array:
        count, _, log_weights, _, beyond = carry
        return (count < slots.shape[0]) & is_cut_off(log_weights, beyond)

    nothing = jnp.full(slots.shape, -infinite)
    start = (jnp.zeros((), jnp.int32), jnp.zeros((), dtype), nothing, infinite, infinite)
    _, _, log_weights, _, beyond = jax.lax.while_loop(goes_on, evaluate, evaluate(start))
    return log_weights, beyond


_count_log_weights_fused = fused_on_cpu(_count_log_weights)


def draw_cells(
    draws: CellDraws,
    fit: BilinearRowFit,
    num_new: Array,
    turned: Turned,
    *,
    partial: PartialRow,
    noise_scale: Array,
) -> Array:
    """The cells of a row, the missing ones drawn given its features and its observed cells.

    A row is B (m + a) + noise with a ~ N(0, s_X^2 D). A draw of (a, noise) from their prior is
    corrected by what it leaves of the observed cells (Matheron), which gives a draw given them.
    The normals of a are turned by Q, so that the choice of eigenvectors does not matter.

    Args: fit: of the row without singletons; num_new () int, its singletons.
    Returns (J,) float.
    """
    singleton_mean = num_new * turned.prior_mean[-1]
    fit = shifted(fit, singleton_mean)
    half = jnp.sqrt(jnp.maximum(fit.inflation + num_new * turned.strength, 0))
    effect = noise_scale * draws.effect @ turned.vectors
    noise = noise_scale * draws.noise
    left = (
        fit.gap
        - partial.gram @ (half * effect)
        - jnp.where(partial.observed, noise, 0) @ turned.basis
    )
    middle = jnp.eye(half.shape[0], dtype=half.dtype) + half[:, None] * partial.gram * half
    factor = jnp.linalg.cholesky(middle)
    effect = effect + jax.scipy.linalg.cho_solve((factor, True), half * left)
    turned_row = fit.z.astype(half.dtype) @ fit.mean + singleton_mean + half * effect
    return jnp.where(partial.observed, partial.cells, turned.basis @ turned_row + noise)
