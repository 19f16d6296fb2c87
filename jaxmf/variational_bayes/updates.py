"""Closed-form updates: each is the minimiser of the free energy in its variables at fixed zeta.

From the sums of one side come at once the intercept, the variances and the means of that side: at
fixed zeta the cost is linear in the variances and quadratic in the means and the intercept, so that
variances separate from them, and the step of the intercept is carried over to the means by the sums
of q s.

The tilted bound has no zeta. Its steps are those of Newton, each line's shortened by how far it
moves a score: the third derivative of log(1 + e^m) is at most its second, so that a share
log(1 + d) / d of a step that moves no score by more than d descends (Bach 2010, Self-concordant
analysis for logistic regression). Precisions move half of the way.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf import row_shards
from jaxmf.types import Array
from jaxmf.variational_bayes.contracts import CellSettings, LearnedHyperparameters, Likelihood
from jaxmf.variational_bayes.parameters import Half, Normal, Parameters, Priors
from jaxmf.variational_bayes.sums import CellSums, map_lines, positions


class EnergySlopes(NamedTuple):
    """First and second derivatives of the free energy in the means of one side."""

    gradient: Array  # (N, L) float; zero for the factor that is one
    curvature: Array  # (N, L) float, positive


def slopes(view: Half, sums: CellSums, *, block: bool) -> EnergySlopes:
    """Derivatives of the free energy in the means of one side."""
    mean, precision = view.factors.mean, 1 / view.prior.variance
    gradient = (mean - view.prior.mean) * precision + sums.residual_cross + mean * sums.spread
    square = sums.square
    if block:
        square = square[:, positions(square, mean.shape[1]).diagonal()]
    curvature = jnp.broadcast_to(precision + sums.spread + square, mean.shape)
    return EnergySlopes(
        gradient=jnp.where(view.free, gradient, 0), curvature=jnp.where(view.free, curvature, 1)
    )


def new_variances(view: Half, slopes: EnergySlopes, *, likelihood: Likelihood) -> Array:
    """Variances of one side, 1 / h: (N, L) float; zero for the factor that is one.

    With the tilted bound h falls with the variance, so that the precision goes half of the way.
    """
    precision = slopes.curvature
    if not likelihood.is_quadratic:
        precision = 0.5 * (precision + 1 / jnp.where(view.free, view.factors.variance, 1))
    return jnp.where(view.free, 1 / precision, 0)


def step_lengths(view: Half, step: Array, *, likelihood: Likelihood) -> Array:
    """The share of a Newton step that a line's means take: (N, 1) float, or one.

    Args: step (N, L) float, whole Newton steps.
    """
    if likelihood.is_quadratic:
        return jnp.ones((1, 1), step.dtype)
    others = view.others.mean**2 + view.others.variance
    largest = jnp.max(jnp.sum(jnp.where(view.free, others, 0), axis=1))
    largest_norm = jnp.sqrt(row_shards.largest_over_devices(largest))
    return _damped(largest_norm * jnp.linalg.norm(step, axis=1, keepdims=True))


def _damped(change: Array) -> Array:
    """log(1 + d) / d, one at zero."""
    safe = jnp.maximum(change, jnp.finfo(change.dtype).eps)
    return jnp.log1p(safe) / safe


def new_intercept(
    view: Half,
    sums: CellSums,
    prior_variance: Array,
    *,
    likelihood: Likelihood,
    lines_are_rows: bool = False,
) -> Normal:
    """The intercept, () each, given the factors.

    Args: lines_are_rows: whether the lines are rows, which may be spread over devices.
    """
    num_lines = view.factors.mean.shape[0]
    weight = jnp.sum(jnp.broadcast_to(sums.weight, (num_lines, 1)))
    residual = jnp.sum(sums.residual)
    if lines_are_rows:
        weight, residual = row_shards.add_over_devices((weight, residual))
    curvature = 1 / prior_variance + weight
    step = (view.intercept.mean / prior_variance + residual) / curvature
    if not likelihood.is_quadratic:
        step = step * _damped(jnp.abs(step))
    return Normal(mean=view.intercept.mean - step, variance=1 / curvature)


def with_new_intercept(
    view: Half,
    sums: CellSums,
    priors: Priors,
    settings: CellSettings,
    *,
    lines_are_rows: bool = False,
) -> tuple[Half, CellSums]:
    """A side and its sums with the intercept moved; as they are where there is none."""
    if settings.bias == "none":
        return view, sums
    intercept = new_intercept(
        view, sums, priors.intercept, likelihood=settings.likelihood, lines_are_rows=lines_are_rows
    )
    return after_intercept(view, sums, intercept)


def after_intercept(view: Half, sums: CellSums, intercept: Normal) -> tuple[Half, CellSums]:
    """The same side and its sums, at fixed zeta, once the intercept has moved."""
    step = intercept.mean - view.intercept.mean
    moved = sums._replace(
        residual_cross=sums.residual_cross + step * sums.cross,
        residual=sums.residual + step * sums.weight,
    )
    return view._replace(intercept=intercept), moved


def newton_step(view: Half, sums: CellSums, slopes: EnergySlopes) -> Array:
    """H^-1 times the gradient of every line, (N, L) float: what to subtract from its means.

    H = diag(1 / v + sum of q s~) + sum of q s s'. Where all lines have the same H, it is
    decomposed once; otherwise a block of lines at a time, so that not all H are there at once.
    """
    diagonal = 1 / view.prior.variance + sums.spread
    # the factor that is one gets a row of the identity
    diagonal = jnp.where(view.free, diagonal, 1)
    if diagonal.shape[0] == 1:
        factor = jax.scipy.linalg.cho_factor(_curvature(view, sums.square, diagonal)[0], lower=True)
        return jax.scipy.linalg.cho_solve(factor, slopes.gradient.T).T

    def one_block(block: tuple[Array, Array, Array]) -> Array:
        square, diagonal, gradient = block
        matrix = _curvature(view, square, diagonal)
        factor = jax.lax.linalg.cholesky(matrix, symmetrize_input=False)
        return jax.scipy.linalg.cho_solve((factor, True), gradient[:, :, None])[:, :, 0]

    width = view.factors.mean.shape[1]
    lines = (sums.square, diagonal, slopes.gradient)
    return map_lines(one_block, lines, num_cells=width * width)


def _curvature(view: Half, square: Array, diagonal: Array) -> Array:
    """H of lines, (B, L, L), from upper triangles by rows, (B, ...), and what is added: (B, L)."""
    width = view.factors.mean.shape[1]
    matrix = square[:, positions(square, width).ravel()].reshape(-1, width, width)
    both_free = view.free[:, None] & view.free[None, :]
    matrix = jnp.where(both_free, matrix, 0)
    return matrix + diagonal[:, :, None] * jnp.eye(width, dtype=diagonal.dtype)


def new_priors(parameters: Parameters, learned: LearnedHyperparameters) -> Priors:
    """Prior means and variances of the factors and biases, where they are learned.

    m <- mean of the means, v <- mean of (mean - m)^2 + variance, over the lines of a side.
    """
    p, priors = parameters, parameters.priors
    biases = (priors.row_bias, priors.column_bias)
    if learned.bias_variance and p.row_bias is not None and p.column_bias is not None:
        row_bias = jnp.mean(p.row_bias.mean**2 + p.row_bias.variance)
        biases = (
            row_shards.average_over_devices(row_bias),
            jnp.mean(p.column_bias.mean**2 + p.column_bias.variance),
        )
    return Priors(
        rows=_new_prior(
            p.rows, priors.rows, learned.row_mean, learned.row_variance, lines_are_rows=True
        ),
        columns=_new_prior(
            p.columns,
            priors.columns,
            learned.column_mean,
            learned.column_variance,
            lines_are_rows=False,
        ),
        row_bias=biases[0],
        column_bias=biases[1],
        intercept=priors.intercept,
    )


def _new_prior(
    q: Normal, prior: Normal, learn_mean: bool, learn_variance: bool, *, lines_are_rows: bool
) -> Normal:
    def average(values: Array) -> Array:
        found = jnp.mean(values, axis=0)
        return row_shards.average_over_devices(found) if lines_are_rows else found

    mean = average(q.mean) if learn_mean else prior.mean
    variance = average((q.mean - mean) ** 2 + q.variance) if learn_variance else prior.variance
    return Normal(mean, variance)


def new_noise(cost: Array, noise: Array, num_observed: Array) -> Array:
    """v_x <- mean of E[(x - m)^2], from the expected cost of Gaussian cells: () float."""
    excess = 2 * cost / num_observed - jnp.log(2 * jnp.pi * noise)
    return noise * excess
