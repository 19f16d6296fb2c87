"""Factors that are functions of time: Gaussian processes seen at T times.

A path a(.) of a line has the prior GP(m, v k(|t - t'|)), so its values a at the T times are
N(m, C) with C = v K. Q(a) is Gaussian, and as the bound of the likelihood separates over the times
its optimum has the covariance (C^-1 + diag(h))^-1. It is kept as

    mean = m + C w,    covariance = S = (C^-1 + diag(h))^-1,

2 T values a path, and everything is computed by the matrix

    B = 1 + diag(h)^(1/2) C diag(h)^(1/2),

whose eigenvalues are one or more: K may be singular, as with one length scale for all time.

Source: Opper & Archambeau (2009), The variational Gaussian approximation revisited; Rasmussen &
Williams (2006), Gaussian processes for machine learning, algorithm 3.1 and section 4.2.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf._kernels import linalg
from jaxmf.types import Array
from jaxmf.variational_bayes.parameters import Normal
from jaxmf.variational_bayes.sums import map_lines

KERNELS = ("squared_exponential", "matern_5_2", "matern_3_2", "matern_1_2")
# values more than this many length scales apart count as independent
_FARTHEST = 1e3


class Paths(NamedTuple):
    """Q of N x L paths at T times."""

    weight: Array  # (N, T, L) float, w
    precision: Array  # (N, T, L) float, h; zero or more


def correlation(kernel: str, gaps: Array, lengthscale: Array) -> Array:
    """Prior correlations k of values some time apart, in the shape of `gaps`.

    Args: kernel: one of `KERNELS`; lengthscale () float, positive.
    """
    r = jnp.minimum(gaps / lengthscale, _FARTHEST)
    if kernel == "squared_exponential":
        return jnp.exp(-0.5 * r**2)
    if kernel == "matern_1_2":
        return jnp.exp(-r)
    if kernel == "matern_3_2":
        scaled = jnp.sqrt(3.0) * r
        return (1 + scaled) * jnp.exp(-scaled)
    scaled = jnp.sqrt(5.0) * r
    return (1 + scaled + scaled**2 / 3) * jnp.exp(-scaled)


def drift(weight: Array, correlations: Array, variance: Array) -> Array:
    """C w: (..., T, L), what a mean has beside the prior's.

    Args:
      weight: (..., T, L).
      correlations: (S, T) of S times with the T; the result has S in place of T.
      variance: (L,).
    """
    return variance * jnp.einsum("st,...tl->...sl", correlations, weight)


class Spread(NamedTuple):
    """Moments that follow from the covariance of Q."""

    variance: Array  # (B, T, L) float, of the values
    divergence: Array  # (B,) float, the part of KL(Q || prior) that the covariance makes


def spread(precision: Array, correlations: Array, variance: Array) -> Spread:
    """Variances and divergence of the paths of B lines.

    Args: precision (B, T, L); correlations (T, T); variance (L,), of the prior.
    """
    h = jnp.maximum(jnp.moveaxis(precision, -1, -2), jnp.finfo(precision.dtype).tiny)
    prior = variance[:, None, None] * correlations
    h, lower = _decompose(h, prior)
    one = jnp.broadcast_to(jnp.eye(h.shape[-1], dtype=h.dtype), lower.shape)
    inverse = jax.scipy.linalg.solve_triangular(lower, one, lower=True)
    share = jnp.sum(inverse**2, axis=-2)  # the diagonal of B^-1
    explained = jnp.sum((inverse @ (jnp.sqrt(h)[..., None] * prior)) ** 2, axis=-2)
    prior_diagonal = jnp.diagonal(prior, axis1=-2, axis2=-1)
    # of two forms of the diagonal of S the one in which nothing cancels
    solved_variance = jnp.where(h * prior_diagonal > 1, (1 - share) / h, prior_diagonal - explained)
    log_determinant = 2 * jnp.log(jnp.diagonal(lower, axis1=-2, axis2=-1))
    return Spread(
        variance=jnp.moveaxis(solved_variance, -1, -2),
        divergence=0.5 * jnp.sum(share - 1 + log_determinant, axis=(-1, -2)),
    )


def _decompose(h: Array, prior: Array) -> tuple[Array, Array]:
    """The precision (..., T), and the lower Cholesky factor of B (..., T, T).

    A precision beyond what the dtype can tell from an endless one beside B's eigenvalues of one is
    taken for less.

    Args: h (..., T); prior: C, (..., T, T).
    """
    size = h.shape[-1]
    prior_diagonal = jnp.diagonal(prior, axis1=-2, axis2=-1)
    largest = size * jnp.max(h * prior_diagonal, axis=-1, keepdims=True)
    h = h / (1 + 8 * jnp.finfo(h.dtype).eps * largest)
    root = jnp.sqrt(h)
    matrix = root[..., :, None] * prior * root[..., None, :]
    return h, jnp.linalg.cholesky(matrix + jnp.eye(size, dtype=h.dtype))


def moments(paths: Paths, *, correlations: Array, prior: Normal) -> tuple[Normal, Array]:
    """Means and variances of the values of paths, and KL(Q || prior).

    Args:
      paths: (N, T, L) each.
      correlations: (T, T).
      prior: mean m and variance v, (L,) each.
    Returns:
      Normal, (N, T, L) each, and the divergence () float.
    """
    moved = drift(paths.weight, correlations, prior.variance)
    num_times, width = paths.weight.shape[1:]
    spreads: Spread = map_lines(
        lambda precision: spread(precision, correlations, prior.variance),
        paths.precision,
        num_cells=4 * width * num_times**2,
    )
    divergence = 0.5 * jnp.sum(paths.weight * moved) + jnp.sum(spreads.divergence)
    return Normal(prior.mean + moved, spreads.variance), divergence


def moments_between(paths: Paths, *, correlations: Array, across: Array, prior: Normal) -> Normal:
    """Means and variances of the paths at one further time: (N, L) each.

    Args: paths (N, T, L) each; correlations (T, T); across (T,), of that time with the T; prior:
    mean and variance, (L,) each.
    """
    num_times, width = paths.weight.shape[1:]

    def one_block(precision: Array) -> Array:
        h = jnp.moveaxis(precision, -1, -2)
        h, lower = _decompose(h, prior.variance[:, None, None] * correlations)
        right = (jnp.sqrt(h) * prior.variance[:, None] * across)[..., None]
        solved = jax.scipy.linalg.solve_triangular(lower, right, lower=True)[..., 0]
        return jnp.sum(solved**2, axis=-1)

    explained = map_lines(one_block, paths.precision, num_cells=3 * width * num_times**2)
    mean = drift(paths.weight, across[None], prior.variance)[:, 0]
    return Normal(mean=prior.mean + mean, variance=jnp.maximum(prior.variance - explained, 0))


# --- updates -------------------------------------------------------------------------------------


class Quadratic(NamedTuple):
    """The bound at fixed zeta, of all cells of a line at a time, in the values of its paths.

    In a step d of the values and a change e of their variances it is, up to a constant,
    slope d + d' curvature d / 2 + diag(curvature) e / 2.
    """

    slope: Array  # (B, T, L) float
    curvature: Array  # (B, T, L, L) float, positive definite


def joint_weights(weight: Array, quadratic: Quadratic, prior: Array) -> Array:
    """The best w at fixed zeta of all paths of a line at once: (B, T, L).

    A system of T L equations a line. With Q = R R' of the curvatures it is
    w = R (1 + R' C R)^-1 R^-1 (Q C w_before - slope).

    Args: weight (B, T, L), as they were; prior (L, T, T), C.
    """
    num_lines, num_times, width = weight.shape
    moved = jnp.einsum("lst,btl->bsl", prior, weight)
    target = jnp.einsum("btlm,btm->btl", quadratic.curvature, moved) - quadratic.slope
    root = jnp.linalg.cholesky(quadratic.curvature)
    right = jax.scipy.linalg.solve_triangular(root, target[..., None], lower=True)
    inner = jnp.einsum("btma,mts,bsmc->btasc", root, prior, root)
    size = num_times * width
    lower = _one_plus(linalg.after(inner, right).reshape(num_lines, size, size))
    solved = jax.scipy.linalg.cho_solve((lower, True), right.reshape(num_lines, size, 1))
    return jnp.einsum("btlm,btm->btl", root, solved.reshape(weight.shape))


def factor_weights(
    weight: Array, quadratic: Quadratic, prior: Array, *, relaxation: Array
) -> Array:
    """The best w at fixed zeta of one factor after the other: (B, T, L).

    A system of T equations a path; each step goes `relaxation` times as far as to the minimiser,
    which below two descends.

    Args: weight (B, T, L), as they were; prior (L, T, T), C.
    """

    def one_factor(slope: Array, factor: Array) -> tuple[Array, Array]:
        w, covariance = weight[:, :, factor], prior[factor]
        h = quadratic.curvature[:, :, factor, factor]
        target = h * (w @ covariance) - slope[:, :, factor]
        root = jnp.sqrt(h)
        lower = _one_plus(root[..., :, None] * covariance * root[..., None, :])
        solved = jax.scipy.linalg.cho_solve((lower, True), (target / root)[..., None])[..., 0]
        change = relaxation * (root * solved - w)
        step = change @ covariance
        slope = slope + quadratic.curvature[:, :, :, factor] * step[..., None]
        return slope, w + change

    _, weights = jax.lax.scan(one_factor, quadratic.slope, jnp.arange(weight.shape[2]))
    return jnp.moveaxis(weights, 0, -1)


def _one_plus(matrix: Array) -> Array:
    """The lower Cholesky factor of the identity and a matrix (..., n, n) that may be singular.

    One is raised by what rounding can take away from it: a step with a prior that is stronger by so
    little, which still descends.
    """
    size = matrix.shape[-1]
    largest = jnp.max(jnp.diagonal(matrix, axis1=-2, axis2=-1), axis=-1)
    one = 1 + size * jnp.finfo(matrix.dtype).eps * largest
    return jnp.linalg.cholesky(matrix + one[..., None, None] * jnp.eye(size, dtype=matrix.dtype))


class Updated(NamedTuple):
    """Paths after an update."""

    paths: Paths  # (N, T, L) each
    values: Normal  # means and variances of their values, (N, T, L) each
    change: Array  # () float, of the bound at fixed zeta, with KL(Q || prior) as it is after


def update(
    before: Paths,
    values: Normal,
    quadratic: Quadratic,
    *,
    correlations: Array,
    prior: Normal,
    joint: bool,
    relaxation: Array,
) -> Updated:
    """Means and covariances of all paths, minimisers of the bound at fixed zeta.

    With h = diag(curvature) the covariance is the minimiser; the mean is that of all paths of a
    line at once, or goes factor by factor. Either way the bound does not rise.

    Args:
      before: (N, T, L) each.
      quadratic: of the likelihood, at these values; (N, ...) each.
      correlations: (T, T), of the prior to be: not necessarily that of `values`.
      prior: mean and variance, (L,) each.
      joint: whether to solve for all factors at once.
      relaxation: () float, steps of the mean are longer by this factor than to the minimiser.
    """
    num_times, width = before.weight.shape[1:]
    covariance = prior.variance[:, None, None] * correlations

    def one_block(block: tuple[Array, Normal, Quadratic]) -> tuple[Paths, Normal, Array]:
        weight, old, near = block
        # where the kernel has changed, the step starts from the values that w now stands for
        start = prior.mean + drift(weight, correlations, prior.variance)
        here = near._replace(
            slope=near.slope + jnp.einsum("btlm,btm->btl", near.curvature, start - old.mean)
        )
        if joint:
            best = joint_weights(weight, here, covariance)
            updated = weight + relaxation * (best - weight)
        else:
            updated = factor_weights(weight, here, covariance, relaxation=relaxation)
        h = jnp.diagonal(near.curvature, axis1=-2, axis2=-1)
        width_of = spread(linalg.after(h, updated), correlations, prior.variance)
        moved = drift(updated, correlations, prior.variance)
        mean = prior.mean + moved
        step = mean - old.mean
        parts = near.slope * step + 0.5 * updated * moved
        parts += 0.5 * step * jnp.einsum("btlm,btm->btl", near.curvature, step)
        parts += 0.5 * h * (width_of.variance - old.variance)
        change = jnp.sum(parts, axis=(1, 2)) + width_of.divergence
        return Paths(updated, h), Normal(mean, width_of.variance), change

    size = (num_times * width) ** 2 if joint else width * num_times**2
    paths, after, change = map_lines(
        one_block, (before.weight, values, quadratic), num_cells=4 * size
    )
    return Updated(paths, after, jnp.sum(change))
