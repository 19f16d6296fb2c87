"""Normal cells, linear effects summed out, by the eigenvalues of the Gram matrix of their design.

Linear-Gaussian rows, and the bilinear and plaid likelihoods, differ in their design alone. Changes
of the log density are computed term by term: of two values near -10^7 the difference of float32
has no digit left.
"""

from typing import NamedTuple

import jax.numpy as jnp

from jaxmf._kernels.compensated import MOST, expm1, log_ratio
from jaxmf.types import Array


class Spectrum(NamedTuple):
    """Statistics of design and data by which the likelihood is evaluated at any two scales."""

    eigenvalues: Array  # (K,) or (K, L) float, of the Gram matrix, not negative
    projections: Array  # the same shape: squared projections of the data on the eigenvectors
    # the same shape, bool: eigenvectors whose eigenvalues are above rounding
    is_removed: Array
    # () float, the sum of squares of the data less their least-squares fit by these eigenvectors. A
    # sum of squares of differences: the difference of two sums would lose its digits where the
    # effects are far larger than the noise.
    residual: Array
    num_cells: Array  # () float
    num_copies: Array  # () float, how many columns of the data share the eigenvalues


def log_density(statistics: Spectrum, noise_scale: Array, effect_scale: Array) -> Array:
    """Log density of cells with linear effects summed out, () float.

    A column of the data has covariance s^2 I + f^2 times the Gram matrix of the rows of the design
    (Wood & Griffiths, eq 6, with |Z'Z + r I|): eigenvalues s^2 + f^2 lambda_k, and s^2 otherwise.
    With millions of cells it is known to its own rounding, which is more than a nat:
    `marginal_change` is for what depends on differences.

    Args: noise_scale () float, s; effect_scale () float, f.
    """
    ratio = noise_scale**2 / effect_scale**2
    squares = statistics.residual + jnp.sum(shrinkage(statistics, ratio))
    return log_normal(statistics, jnp.maximum(squares, 0), noise_scale, ratio)


def log_normal(statistics: Spectrum, squares: Array, noise_scale: Array, ratio: Array) -> Array:
    """The log density given the least penalised sum of squares, at the ratio s^2 / f^2."""
    log_determinant = jnp.sum(jnp.log1p(statistics.eigenvalues / ratio))
    each = jnp.log(2 * jnp.pi) + 2 * jnp.log(noise_scale)
    summed = statistics.num_cells * each + squares / noise_scale**2
    return -0.5 * (summed + statistics.num_copies * log_determinant)


def shrinkage(statistics: Spectrum, ratio: Array) -> Array:
    """Increase of the residual at a ratio above zero, by eigenvector.

    tr X'X - sum_k p_k / (lambda_k + r); the residual is tr X'X less p_k / lambda_k where removed.
    """
    values, is_removed = statistics.eigenvalues, statistics.is_removed
    factor = jnp.where(is_removed, ratio / jnp.where(is_removed, values, 1), -1)
    return statistics.projections * factor / (values + ratio)


def marginal_change(
    statistics: Spectrum, before: tuple[Array, Array], after: tuple[Array, Array]
) -> Array:
    """Change of the log density of cells with linear effects summed out, from scales to scales.

    The log density at noise s and effects f, r = s^2 / f^2, is -1/2 times

        cells log s^2 + copies sum_k log(1 + lambda_k / r) + (residual + sum_k shrinkage_k(r)) / s^2

    with shrinkage_k = p_k r / (lambda_k (lambda_k + r)), or -p_k / (lambda_k + r) if not removed.

    Args: before, after: noise and effect scale, () float each.
    Returns () float, to the rounding of its two largest terms, which near `before` are small: a
    thousandth of a nat where the log densities have 10^7.
    """
    values = statistics.eigenvalues
    noise, effect = before
    by_noise = 2 * log_ratio(after[0], noise)
    by_ratio = by_noise - 2 * log_ratio(after[1], effect)
    ratio = (noise / effect) ** 2
    whole, added = values + ratio, shrinkage(statistics, ratio)
    widening = jnp.where(
        by_ratio < 0,
        jnp.log1p(values / whole * expm1(-by_ratio)),
        jnp.log1p(ratio / whole * expm1(by_ratio)) - jnp.minimum(by_ratio, MOST),
    )
    exponent = -by_noise - widening - jnp.where(statistics.is_removed, 0, by_ratio)
    squares = statistics.residual * expm1(-by_noise) + jnp.sum(added * expm1(exponent))
    log_determinant = statistics.num_cells * by_noise + statistics.num_copies * jnp.sum(widening)
    return -0.5 * (log_determinant + squares / noise**2)


def power_change(
    statistics: Spectrum, noise_scale: Array, effect_scale: Array, before: Array, after: Array
) -> Array:
    """log of the integral over the effects of their prior times p(cells | effects)^after.

    Less that with the power `before`, which may be 0. The normal density of a cell to a power b is
    that of noise s / sqrt(b) up to a constant.

    Args: noise_scale, effect_scale, before, after () float.
    Returns () float.
    """
    values, is_removed = statistics.eigenvalues, statistics.is_removed
    ratio, rise = (noise_scale / effect_scale) ** 2, after - before
    share_before, share_after = ratio / (before * values + ratio), ratio / (after * values + ratio)
    removed = rise * share_after * share_before / jnp.where(is_removed, values, 1)
    kept = (before**2 * share_before - after**2 * share_after) / ratio
    by_effects = statistics.projections * jnp.where(is_removed, removed, kept)
    squares = rise * statistics.residual + jnp.sum(by_effects)
    each = jnp.log(2 * jnp.pi) + 2 * jnp.log(noise_scale)
    log_determinant = jnp.sum(jnp.log1p(values * rise / (before * values + ratio)))
    summed = statistics.num_cells * each * rise + squares / noise_scale**2
    return -0.5 * (summed + statistics.num_copies * log_determinant)
