"""Moves of scales: of vectors together with the parameters of their prior.

Given ten thousand coefficients their precision is all but fixed, and given their precision so are
they: drawn in turns, both move in steps of a few per mille. Here they are multiplied together:

    U_k -> c U_k,  V_k -> V_k / c,  with means, covariances and links       `scale_factors`
    U_a -> c U_a,  with means, covariance and link                          `scale_of_factors`
    U_p -> c U_p,  m_p -> c m_p,  omega_p -> omega_p / c^2                  `scale_of_part`

U_k is factor k of all rows; no cell changes. U_a are all factors of the rows, U_p the coefficients
of a part, and the mean of a cell changes by (c - 1) h, h what they add to it. Multiplications are a
group: with the Jacobian determinant, an update of log c by whatever leaves the joint density at the
point moved to invariant is exact (Liu & Sabatti, 2000; for the others also Yu & Meng, 2011, To
center or not to center, whose draw in the ancillary parametrisation this is).

`update_variance` is that of the variance of normal noise.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf._kernels.compensated import normal_change
from jaxmf.likelihoods.families.multivariate_normal import NormalInverseWishart, NormalParameters
from jaxmf.priors.hyper import Hyperparameter, is_fixed, log_prior
from jaxmf.samplers.factors.rows import Residuals
from jaxmf.samplers.factors.shifts import FactorSide, precisions_of_sides
from jaxmf.samplers.hyper import update_scale
from jaxmf.samplers.slice import slice_sample
from jaxmf.types import Array, Key


def scale_of_part(
    key: Key,
    value: Array,
    *,
    residuals: Residuals,
    noise_precision: Array,
    precision_prior: Hyperparameter,
) -> Array:
    """c by which coefficients with the precision `value` are multiplied: () float.

    Args: value () float, omega; residuals: of the cells, and what the coefficients have to do with
    them; noise_precision () float, of a cell.
    Returns c; omega is then omega / c^2.
    """
    log_density = partial(
        log_density_of_part,
        value=value,
        residuals=residuals,
        noise_precision=noise_precision,
        precision_prior=precision_prior,
    )
    # the slice ends where the likelihood does, for some parts at a few hundredths
    moved = slice_sample(key, log_density, jnp.zeros_like(value), width=0.25)
    return jnp.exp(jnp.where(precision_prior.support(value * jnp.exp(-2 * moved)), moved, 0))


def log_density_of_part(
    log_scale: Array,
    value: Array,
    *,
    residuals: Residuals,
    noise_precision: Array,
    precision_prior: Hyperparameter,
) -> Array:
    """log p of log c, up to a constant: () float.

    The prior of coefficients and means takes back what their Jacobian determinant adds; that of
    omega is c^-2.
    """
    prior = log_prior(precision_prior, value * jnp.exp(-2 * log_scale))
    return prior - 2 * log_scale + _log_likelihood(log_scale, residuals, noise_precision)


def _log_likelihood(log_scale: Array, residuals: Residuals, noise_precision: Array) -> Array:
    """Log likelihood of the cells, the term of a part multiplied, up to a constant: () float."""
    change = jnp.expm1(log_scale)
    squares = change**2 * residuals.part - 2 * change * residuals.products
    return -noise_precision * squares / 2


def scale_of_factors(
    key: Key,
    mean: Array,
    inverse: Array,
    *,
    num_factors: int,
    residuals: Residuals,
    noise_precision: Array,
    prior: NormalInverseWishart,
) -> Array:
    """log c by which all factors of the rows are multiplied, with their prior: () float.

    Args: mean (D,), inverse (D, D) float, prior mean and precision of the vectors of the rows;
    residuals: of the cells, and what factors have to do with them; noise_precision () float, of a
    cell.
    """
    log_density = partial(
        log_density_of_factors,
        row_terms=terms(inverse, mean, prior),
        num_factors=num_factors,
        residuals=residuals,
        noise_precision=noise_precision,
    )
    # the posterior sd is that of a regression on the factors' part of the cells
    return slice_sample(key, log_density, jnp.zeros_like(residuals.part), width=0.1)


def log_density_of_factors(
    log_scale: Array,
    row_terms: Terms,
    *,
    num_factors: int,
    residuals: Residuals,
    noise_precision: Array,
) -> Array:
    """log p of log c, up to a constant: () float."""
    degrees, squares, rest = row_terms.together(num_factors)
    prior = -degrees * log_scale - squares * jnp.exp(-2 * log_scale) / 2
    prior -= rest * jnp.exp(-log_scale)
    return prior + _log_likelihood(log_scale, residuals, noise_precision)


def scale_factors(
    normals: Array,
    uniforms: Array,
    rows: FactorSide,
    columns: FactorSide,
    *,
    row_prior: NormalInverseWishart,
    column_prior: NormalInverseWishart,
) -> tuple[FactorSide, FactorSide]:
    """Every factor of the rows multiplied by a scalar, that of the columns divided by it.

    One factor after the other, by a proposal that does not depend on where it is: normal at the
    mode that there is without prior locations and correlations.

    Args: normals (K,) float, standard normal; uniforms (K,) float, between 0 and 1.
    """
    row_precisions, column_precisions = precisions_of_sides(rows, columns)
    row_terms = terms(row_precisions, rows.moments.mean[0], row_prior)
    column_terms = terms(column_precisions, columns.moments.mean[0], column_prior)

    def scale(factor: Array, log_scales: Array) -> Array:
        both = row_terms.at(factor, log_scales), column_terms.at(factor, -log_scales)
        moved = _log_scale(normals[factor], uniforms[factor], *both)
        return log_scales.at[factor].set(moved)

    # a loop of scalars and lines: scaled covariances in it would cost as much as drawing rows
    start = jnp.zeros_like(rows.moments.mean[0])
    log_scales = jax.lax.fori_loop(0, normals.shape[0], scale, start)[: normals.shape[0]]
    return scaled(rows, log_scales), scaled(columns, -log_scales)


def scaled(side: FactorSide, log_scales: Array) -> FactorSide:
    """A side with its K factors multiplied by scalars."""
    rest = side.moments.mean.shape[1] - log_scales.shape[0]
    by = jnp.concatenate([jnp.exp(log_scales), jnp.ones((rest,), log_scales.dtype)])
    moments = NormalParameters(side.moments.mean * by, side.moments.factor * by[:, None])
    return FactorSide(side.vectors * by, moments, side.link * by)


class Terms(NamedTuple):
    """Coefficients of the density of the scale of each of K factors of a side.

        log p(t) = -n t - a exp(-2 t) / 2 - b exp(-t) + constant

    t is the logarithm of what a factor is multiplied by, and the density is with respect to the
    volume that the multiplication leaves as it is: vectors and links, which are normal with the
    covariance that is multiplied too, have no term.
    """

    degrees: Array  # () float, n
    squares: Array  # (K,) float, a
    rest: Array  # (K,) float, b without the other factors' scales
    mutual: Array  # (K, E) float, what 1 / c of each other entry is multiplied by in b; 0 of itself

    def at(self, factor: Array, log_scales: Array) -> tuple[Array, Array, Array]:
        """(n, a, b) of a factor where the entries were multiplied by exp(log_scales), (E,)."""
        rest = self.rest[factor] + self.mutual[factor] @ jnp.exp(-log_scales)
        return self.degrees, self.squares[factor], rest

    def together(self, num_factors: int) -> tuple[Array, Array, Array]:
        """(n, a, b) of the scale of all factors together."""
        factors, others = self.mutual[:num_factors], slice(num_factors, None)
        squares = jnp.sum(self.squares[:num_factors]) + jnp.sum(factors[:, :num_factors])
        rest = jnp.sum(self.rest[:num_factors]) + jnp.sum(factors[:, others])
        return num_factors * self.degrees, squares, rest


def terms(inverse: Array, mean: Array, prior: NormalInverseWishart) -> Terms:
    """The terms of all entries of a side, factors and bias.

    Args: inverse (E, E) float, of the covariance; mean (E,) float.
    """
    dtype = mean.dtype
    location = jnp.broadcast_to(jnp.asarray(prior.location, dtype), mean.shape)
    products = jnp.asarray(prior.scale, dtype) + prior.weight * jnp.outer(location, location)
    mutual = products * inverse
    squares = jnp.diagonal(mutual)
    return Terms(
        degrees=jnp.asarray(prior.degrees, dtype),
        squares=squares,
        rest=-prior.weight * location * (inverse @ mean),
        mutual=mutual - jnp.diag(squares),
    )


def log_density_of_factor(
    log_scale: Array, rows: tuple[Array, Array, Array], columns: tuple[Array, Array, Array]
) -> Array:
    """log p of t, up to a constant, from (n, a, b) of both sides: () float."""

    def side_density(t: Array, side: tuple[Array, Array, Array]) -> Array:
        degrees, square, rest = side
        return -degrees * t - square * jnp.exp(-2 * t) / 2 - rest * jnp.exp(-t)

    return side_density(log_scale, rows) + side_density(-log_scale, columns)


def _log_scale(
    normal: Array,
    uniform: Array,
    rows: tuple[Array, Array, Array],
    columns: tuple[Array, Array, Array],
) -> Array:
    """t of a factor, zero where the proposal is refused: () float."""
    power, square, other = columns[0] - rows[0], rows[1], columns[1]
    # exp(2 t) at the mode of power t - square exp(-2 t) / 2 - other exp(2 t) / 2
    root = jnp.sqrt(power**2 + 4 * square * other)
    mode = jnp.where(power > 0, (root + power) / (2 * other), 2 * square / (root - power))
    centre = jnp.log(mode) / 2
    spread = 1 / jnp.sqrt(2 * root)
    proposed = centre + spread * normal
    log_ratio = log_density_of_factor(proposed, rows, columns)
    log_ratio -= log_density_of_factor(jnp.zeros_like(centre), rows, columns)
    log_ratio += normal**2 / 2 - (centre / spread) ** 2 / 2
    return jnp.where(jnp.log(uniform) < log_ratio, proposed, 0)


def variance_shape(prior: Hyperparameter, count: int) -> Array | None:
    """Shape (1,) of the Gamma draw that `update_variance` needs; None where it needs none."""
    if is_fixed(prior):
        return None
    import numpyro.distributions as dist

    if not isinstance(prior, dist.InverseGamma):
        return None
    return jnp.reshape(prior.concentration + count / 2, (1,))


def update_variance(
    key: Key,
    prior: Hyperparameter,
    variance: Array,
    *,
    squares: Array,
    count: int,
    log_gamma: Array | None,
) -> Array:
    """Gibbs update of a variance: inverse-gamma where the prior is, a slice update elsewhere.

    Args: variance () float, the present one; squares () float, the sum of squared residuals;
    log_gamma () float, the logarithm of a Gamma draw of `variance_shape`, where that is one.
    Returns () float, unchanged if it is fixed.
    """
    if is_fixed(prior):
        return variance
    if log_gamma is not None:
        return ((prior.rate + squares / 2) * jnp.exp(-log_gamma)).astype(variance.dtype)
    return update_scale(
        key,
        prior,
        variance,
        lambda value: normal_change(count, squares, jnp.sqrt(variance), jnp.sqrt(value)),
    )
