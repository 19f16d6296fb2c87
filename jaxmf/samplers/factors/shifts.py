"""Moves along directions in which no cell changes.

What the means of cells leave open is determined by priors alone, and a sweep that updates one side
given the other goes there in small steps only. Each move here draws, exactly, how far to go along
such a direction given all that does not change; none looks at a cell.

    u_i -> u_i - a,  b_i -> b_i - t,  c_j -> c_j + a' v_j + t       `shift_level`
    B_f -> B_f - t for all f of a part,  mu -> mu + l t             `shift_part`
    m_u -> m_u + t,  m_v -> m_v - t                                 `shift_shared`
    V_j -> V_j - D' x_j,  B -> B - D,  U_b -> U_b + U_a D'          `shift_features`

l is what every line of the part sums to; x_j are features of the columns, which their factors and
the rows' coefficients U_b both depend on. Along an orbit of a group of volume-preserving maps this
is a Gibbs update with the joint density at the point moved to (Liu & Sabatti, 2000, Generalised
Gibbs sampler and multigrid Monte Carlo for Bayesian computation).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf._kernels.linalg import after
from jaxmf.likelihoods.families.multivariate_normal import NormalInverseWishart, NormalParameters
from jaxmf.samplers.factors.moments import precisions
from jaxmf.types import Array


class FactorSide(NamedTuple):
    """Factors and biases of a side with all that their prior has: one group."""

    vectors: Array  # (N, D) float, factors (K) and last the bias
    moments: NormalParameters  # mean (1, D) and factor (1, D, D)
    link: Array  # (F, D) float


def shift_level(
    normals: Array,
    rows: FactorSide,
    columns: FactorSide,
    *,
    row_prior: NormalInverseWishart,
    column_prior: NormalInverseWishart,
) -> tuple[FactorSide, FactorSide]:
    """Moves the common level of the rows' factors and biases to the biases of the columns.

    Args: normals (D,) float, standard normal.
    Returns both sides, z = (a, t) from its normal conditional: its density is that of the rows'
    mean less z, and of the mean and covariance of the columns' vectors sheared by z.
    """
    row_precisions, column_precisions = precisions_of_sides(rows, columns)
    is_factor = jnp.arange(normals.shape[0]) < normals.shape[0] - 1
    scale = column_prior.scale * is_factor[:, None] * is_factor
    # how the prior location of the columns is sheared
    shear = jnp.where(is_factor, column_prior.location, 1.0)
    row_deviation = rows.moments.mean[0] - row_prior.location
    column_deviation = columns.moments.mean[0] - column_prior.location
    bias_precision = column_precisions[-1, -1]
    precision = row_prior.weight * row_precisions + bias_precision * scale
    precision += column_prior.weight * bias_precision * jnp.outer(shear, shear)
    side = row_prior.weight * (row_precisions @ row_deviation)
    side -= column_prior.weight * (column_precisions[-1] @ column_deviation) * shear
    side += jnp.where(is_factor, column_prior.scale @ column_precisions[-1], 0)
    moved = _normal(normals[:, None], precision, side[:, None])[:, 0]
    factors = jnp.where(is_factor, moved, 0)
    moments = NormalParameters(rows.moments.mean - moved, rows.moments.factor)
    rows = rows._replace(vectors=rows.vectors - moved, moments=moments)
    mean = _sheared(columns.moments.mean, factors).at[:, -1].add(moved[-1])
    # lower triangular it stays: the bias is the last entry
    factor = columns.moments.factor.at[0, -1].add(factors @ columns.moments.factor[0])
    return rows, FactorSide(
        _sheared(columns.vectors, factors).at[:, -1].add(moved[-1]),
        NormalParameters(mean, factor),
        _sheared(columns.link, factors),
    )


def shift_part(
    normals: Array,
    moments: NormalParameters,
    lines: Array,
    *,
    precision: Array,
    length: Array,
    prior: NormalInverseWishart,
) -> tuple[NormalParameters, Array]:
    """The mean of all vectors against what the link has in common in a part.

    Args:
      normals: (D,) float, standard normal.
      lines: (F, D) float, the link's of a part.
      length: () float, what every line of features sums to; 0 where lines differ: nothing moves.
    Returns:
      The prior and the lines.
    """
    weight = precision * lines.shape[0] + prior.weight * length**2
    centre = precision * jnp.sum(lines, axis=0)
    centre -= prior.weight * length * (moments.mean[0] - prior.location)
    moved = centre / weight + moments.factor[0] @ normals / jnp.sqrt(weight)
    moved = jnp.where(length == 0, 0, moved)
    return moments._replace(mean=moments.mean + length * moved), lines - moved


def shift_shared(
    normals: Array, means: tuple[Array, Array], precision: tuple[Array, Array]
) -> Array:
    """t (C,), to be added to the first of two means with a sum that matters, less from the second.

    Args: normals (C,) float, standard normal; means: each (C,) float, N(0, 1 / precision);
    precision: each (C,) float.
    """
    total = precision[0] + precision[1]
    centre = (precision[1] * means[1] - precision[0] * means[0]) / total
    return centre + normals / jnp.sqrt(total)


def shift_features(
    normals: Array,
    factors: Array,
    coefficients: Array,
    lines: Array,
    *,
    precision: Array,
    inverse: Array,
    line_precision: Array,
) -> Array:
    """D of a part of the features, from the columns' link to the coefficients of the rows.

    Args: normals (F, K) float, standard normal; factors (N, K) and coefficients (N, F) float, of
    the rows, for the part and less their means; lines (F, E) float, of the columns' link; inverse
    (E, E) float, of the covariance of the columns' factors and biases; line_precision () float, of
    the link's lines in units of this covariance.
    Returns (F, K) float, to be taken from the lines; `factors` D' is added to the coefficients.
    """
    size = factors.shape[1]
    line_precisions = line_precision * inverse[:size]
    matrix = precision * factors.T @ factors + line_precisions[:, :size]
    side = line_precisions @ lines.T - precision * factors.T @ coefficients
    return _normal(normals.T, matrix, side).T


def precisions_of_sides(rows: FactorSide, columns: FactorSide) -> tuple[Array, Array]:
    """Precisions (D, D) of rows and of columns, one group each; one factorisation at a time."""
    waiting = rows.vectors, columns.vectors, columns.moments.factor
    row_precisions = precisions(after_moments(rows.moments, *waiting))[0]
    return row_precisions, precisions(after_moments(columns.moments, row_precisions))[0]


def after_moments(moments: NormalParameters, *first: Array) -> NormalParameters:
    """Moments computed only after other values: one factorisation at a time, see `after`."""
    return moments._replace(factor=after(moments.factor, *first))


def _sheared(vectors: Array, factors: Array) -> Array:
    """Vectors (N, D) with a' of their factors added to the bias; `factors` is zero there."""
    return vectors.at[:, -1].add(vectors @ factors)


def _normal(normals: Array, precision: Array, side: Array) -> Array:
    """A draw from N(P^-1 s, P^-1) for each column s of a side (D, C), from normals (D, C)."""
    factor = jax.lax.linalg.cholesky(precision, symmetrize_input=False)
    half = jax.lax.linalg.triangular_solve(factor, side, left_side=True, lower=True)
    return jax.lax.linalg.triangular_solve(
        factor, half + normals, left_side=True, lower=True, transpose_a=True
    )
