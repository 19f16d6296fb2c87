"""Sums and differences of many cells in single precision: what keeps their digits.

A float32 has 24 bits, so the log density of 10^7 cells is known to a nat, and a sum of 10^7 terms
that are added one after another to less. Here sums carry what rounding took from them, and changes
of a log density are computed as such, not as differences of two values.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxmf.types import PyTree

_MOST = 80.0  # the exponential of which is a float32


class Sum(NamedTuple):
    """A pytree of sums, and how far each lies above what was added to it."""

    total: PyTree
    excess: PyTree


def start(zeros: PyTree) -> Sum:
    """Empty sums of these shapes."""
    return Sum(zeros, zeros)


def add(sums: Sum, terms: PyTree) -> Sum:
    """The sums with one more term each (Kahan's summation)."""
    corrected = jax.tree.map(jnp.subtract, terms, sums.excess)
    total = jax.tree.map(jnp.add, sums.total, corrected)
    risen = jax.tree.map(jnp.subtract, total, sums.total)
    return Sum(total, jax.tree.map(jnp.subtract, risen, corrected))


def log_ratio(new: Array, old: Array) -> Array:
    """log(new / old) of positive numbers, to its own rounding where they are close.

    Finite where `new` has become zero: what is multiplied by it there is far from every mode.
    """
    change = (new - old) / old
    is_near = jnp.abs(change) < 0.5
    least = jnp.finfo(jnp.result_type(change)).tiny
    far = jnp.log(jnp.maximum(new / old, least))
    return jnp.where(is_near, jnp.log1p(jnp.where(is_near, change, 0)), far)


def expm1(exponent: Array) -> Array:
    """exp(exponent) - 1, finite: a product with zero is zero, however large the exponent."""
    return jnp.expm1(jnp.minimum(exponent, _MOST))


def normal_change(count: Array | int, squares: Array, old: Array, new: Array) -> Array:
    """log density of normal residuals with the scale `new`, less that with the scale `old`.

    Args: squares () float, their sum of squares; old, new () float, positive.
    """
    by = log_ratio(new, old)
    return -count * by - 0.5 * squares / old**2 * expm1(-2 * by)


def power_change(
    values: Array,
    projections: Array,
    is_removed: Array,
    *,
    residual: Array,
    num_cells: Array,
    num_copies: Array | float,
    noise_scale: Array,
    effect_scale: Array,
    powers: tuple[Array, Array],
) -> Array:
    """Change of the log density of cells with linear effects summed out, from power to power.

    The normal density of a cell to a power b is that of noise s / sqrt(b) up to a constant.
    Computed term by term: of two values near -10^7 the difference has no digit left.

    Args:
      values, projections, is_removed: float, float and bool of any one shape: eigenvalues of the
        Gram matrix, squared projections of the data, and whether the residual is without them.
      residual, num_cells, num_copies: as in `marginal_change`.
      powers: before, which may be 0, and after: () float each.
    Returns:
      () float: log of the integral over the effects of their prior times p(cells | effects)^after,
      less that with the power before.
    """
    before, after = powers
    ratio, rise = (noise_scale / effect_scale) ** 2, after - before
    share_before, share_after = ratio / (before * values + ratio), ratio / (after * values + ratio)
    removed = rise * share_after * share_before / jnp.where(is_removed, values, 1)
    kept = (before**2 * share_before - after**2 * share_after) / ratio
    squares = rise * residual + jnp.sum(projections * jnp.where(is_removed, removed, kept))
    each = jnp.log(2 * jnp.pi) + 2 * jnp.log(noise_scale)
    log_determinant = jnp.sum(jnp.log1p(values * rise / (before * values + ratio)))
    summed = num_cells * each * rise + squares / noise_scale**2
    return -0.5 * (summed + num_copies * log_determinant)


class Eigenvalues(NamedTuple):
    """Of a Gram matrix, with what a Gaussian likelihood needs beside them; arrays of any one shape.

    Attributes:
      values: float, not negative.
      shrinkage: float, what the penalty adds to the sum of squares at the present scales.
      is_removed: bool, whether the residual is without them; the others are zero up to rounding.
    """

    values: Array
    shrinkage: Array
    is_removed: Array


def marginal_change(
    eigen: Eigenvalues,
    *,
    residual: Array,
    num_cells: Array,
    num_copies: Array | float,
    before: tuple[Array, Array],
    after: tuple[Array, Array],
) -> Array:
    """Change of the log density of cells with linear effects summed out, from scales to scales.

    The log density at noise s and effects f, r = s^2 / f^2, is -1/2 times

        cells log s^2 + copies sum_k log(1 + lambda_k / r) + (residual + sum_k shrinkage_k(r)) / s^2

    with shrinkage_k = p_k r / (lambda_k (lambda_k + r)), or -p_k / (lambda_k + r) if not removed.

    Args: eigen: at the scales `before`; residual () float, the sum of squares of the residuals;
    num_copies: how many columns share the eigenvalues; before, after: noise and effect scale, ()
    float each.
    Returns () float, to the rounding of its two largest terms, which near `before` are small.
    """
    noise, effect = before
    by_noise = 2 * log_ratio(after[0], noise)
    by_ratio = by_noise - 2 * log_ratio(after[1], effect)
    ratio = (noise / effect) ** 2
    whole = eigen.values + ratio
    widening = jnp.where(
        by_ratio < 0,
        jnp.log1p(eigen.values / whole * expm1(-by_ratio)),
        jnp.log1p(ratio / whole * expm1(by_ratio)) - jnp.minimum(by_ratio, _MOST),
    )
    exponent = -by_noise - widening - jnp.where(eigen.is_removed, 0, by_ratio)
    squares = residual * expm1(-by_noise) + jnp.sum(eigen.shrinkage * expm1(exponent))
    log_determinant = num_cells * by_noise + num_copies * jnp.sum(widening)
    return -0.5 * (log_determinant + squares / noise**2)
