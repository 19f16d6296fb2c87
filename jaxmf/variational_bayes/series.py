"""A series of matrices, one a time, whose rows' factors are functions of time.

    a_ik(.) ~ GP(m_k, v_k k(|t - t'| / lengthscale)),   and so the biases of rows
    m_itj = sum_k a_ik(t) s_jk + r_i(t) + c_j + b       the score of cell (i, j) of the matrix of t

The matrices stand below each other as one, of N T lines: that of row i and time t is i T + t. With
their marginal means and variances everything but the divergence of the paths is as for one matrix.

Source: Fast and flexible variational Bayes for sparse binary matrices (2012), section 7.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf._kernels import linalg
from jaxmf.types import Array
from jaxmf.variational_bayes import paths as gp
from jaxmf.variational_bayes.contracts import Likelihood
from jaxmf.variational_bayes.free_energy import divergence_of_others, expected_cost
from jaxmf.variational_bayes.parameters import Half, Normal, Parameters, Priors
from jaxmf.variational_bayes.paths import Paths, Quadratic
from jaxmf.variational_bayes.pieces import Layout
from jaxmf.variational_bayes.sums import CellSums, positions
from jaxmf.variational_bayes.zeros import Zeros

_MOST_SPANS, _LEAST_GAPS = 10.0, 0.1
_SMALLEST_STEP, _LARGEST_STEP = 1e-3, 1.0


class SeriesParameters(NamedTuple):
    """Parameters fitted to a series."""

    paths: Paths  # of the rows' factors and, with biases, of the row's bias as the last: (N, T, L)
    columns: Normal  # factors of the columns, (D, K) each
    column_bias: Normal | None  # (D,) each; None without biases
    intercept: Normal  # () each; held at zero without an intercept
    priors: Priors  # see `Priors`; the rows' are those of a path at any one time
    noise: Array  # () float, variance of the noise of Gaussian cells
    lengthscale: Array  # () float, of the kernel
    gaps: Array  # (T, T) float, how far apart the times are; never changed


def path_prior(parameters: SeriesParameters) -> Normal:
    """Mean and variance of the paths at any one time, (L,) each."""
    priors = parameters.priors
    if parameters.column_bias is None:
        return priors.rows
    nothing = jnp.zeros((1,), priors.row_bias.dtype)
    return Normal(
        mean=jnp.concatenate([priors.rows.mean, nothing]),
        variance=jnp.concatenate([priors.rows.variance, priors.row_bias[None]]),
    )


def values(parameters: SeriesParameters, *, kernel: str) -> tuple[Normal, Array]:
    """Means and variances of the paths at the T times, (N, T, L) each, and KL(Q || prior)."""
    # after the update of the columns: one decomposition at a time
    paths = parameters.paths
    return gp.moments(
        paths._replace(precision=linalg.after(paths.precision, parameters.columns.mean)),
        correlations=gp.correlation(kernel, parameters.gaps, parameters.lengthscale),
        prior=path_prior(parameters),
    )


def stacked(parameters: SeriesParameters, row_values: Normal) -> Parameters:
    """The parameters of the matrices below each other.

    Args: row_values: values of the paths, (N, T, L) each.
    """
    p, num_factors = parameters, parameters.columns.mean.shape[1]
    lines = row_values.mean.shape[0] * row_values.mean.shape[1]
    mean, variance = (part.reshape(lines, part.shape[2]) for part in row_values)
    bias = None
    if p.column_bias is not None:
        bias = Normal(mean[:, num_factors], variance[:, num_factors])
    return Parameters(
        rows=Normal(mean[:, :num_factors], variance[:, :num_factors]),
        columns=p.columns,
        row_bias=bias,
        column_bias=p.column_bias,
        intercept=p.intercept,
        priors=p.priors,
        noise=p.noise,
    )


def series_free_energy(
    parameters: SeriesParameters, data: Layout, *, kernel: str, zeros: Zeros, likelihood: Likelihood
) -> Array:
    """The free energy of a series: pure, differentiable in all that stands in its parameters.

    Args: kernel: one of `paths.KERNELS`; zeros: which zeros to go through, as seen from the rows.
    Returns () float.
    """
    row_values, divergence = values(parameters, kernel=kernel)
    plain = stacked(parameters, row_values)
    cost = expected_cost(plain, data, zeros=zeros, likelihood=likelihood)
    return cost + divergence + divergence_of_others(plain)


def from_start(
    parameters: Parameters, gaps: Array, *, kernel: str, lengthscale: Array
) -> SeriesParameters:
    """Parameters of a series whose paths are smoothed values of those of its matrices stacked.

    Args: parameters: of the matrices below each other; gaps (T, T) float; kernel: one of
    `paths.KERNELS`.
    """
    p = parameters
    row_values = p.rows.mean
    if p.row_bias is not None:
        row_values = jnp.concatenate([row_values, p.row_bias.mean[:, None]], axis=1)
    num_times, width = gaps.shape[0], row_values.shape[1]
    start = SeriesParameters(
        paths=Paths(jnp.zeros(()), jnp.zeros(())),
        columns=p.columns,
        column_bias=p.column_bias,
        intercept=p.intercept,
        priors=p.priors,
        noise=p.noise,
        lengthscale=lengthscale,
        gaps=gaps,
    )
    prior = path_prior(start)
    correlations = gp.correlation(kernel, gaps, lengthscale)
    target = row_values.reshape(-1, num_times, width) - prior.mean
    covariance = prior.variance[:, None, None] * correlations
    # as if each value had been seen with a tenth of the prior's variance as noise
    noise = 0.1 * prior.variance[:, None, None] * jnp.eye(num_times, dtype=gaps.dtype)
    solved = jnp.linalg.solve(covariance + noise, jnp.transpose(target, (2, 1, 0)))
    weight = jnp.transpose(solved, (2, 1, 0))
    return start._replace(paths=Paths(weight, jnp.full_like(weight, 1.0)))


def quadratic(view: Half, sums: CellSums, *, num_times: int) -> Quadratic:
    """The bound at fixed zeta in the values of the paths, from the sums of the rows.

    Args: view: the stacked parameters seen from the rows; sums: block sums of the rows.
    """
    width = int(np.sum(view.free))
    pair = positions(sums.square, view.free.size)
    num_lines = view.factors.mean.shape[0]
    slope = (sums.residual_cross + view.factors.mean * sums.spread)[:, :width]
    diagonal = sums.spread[:, :width, None] * jnp.eye(width, dtype=slope.dtype)
    curvature = sums.square[:, pair[:width, :width]] + diagonal
    # a line of which nothing was observed has none, but for rounding; more curvature than there is
    # makes a step shorter and leaves it one that descends
    least = 10 * jnp.finfo(slope.dtype).eps * jnp.max(sums.weight)
    curvature = curvature + least * jnp.eye(width, dtype=slope.dtype)
    curvature = jnp.broadcast_to(curvature, (num_lines, width, width))
    return Quadratic(
        slope=slope.reshape(-1, num_times, width),
        curvature=curvature.reshape(-1, num_times, width, width),
    )


class Search(NamedTuple):
    """A search for the length scale: steps of its logarithm, kept where the bound falls."""

    # () float, the next one; it grows while steps are kept, and turns and shrinks otherwise
    step: Array


def update_rows(
    parameters: SeriesParameters,
    row_values: Normal,
    near: Quadratic,
    search: Search | None,
    *,
    kernel: str,
    joint: bool,
    relaxation: Array,
    held: Array | bool = False,
) -> tuple[SeriesParameters, Normal, Search | None]:
    """The paths and, with a search, the length scale: the free energy does not rise.

    Two updates are made, one at the length scale as it is and one at the next that is tried, and
    that is kept whose bound at fixed zeta is the lower; both bounds are exact, so nothing has to be
    differentiated and the data are gone through once.

    Args: search: None to leave the length scale as it is; kernel: one of `paths.KERNELS`; joint:
    whether to solve for all factors of a row at once; held: whether the search rests.
    Returns Parameters, values of their paths, and the search.
    """

    def at(lengthscale: Array) -> gp.Updated:
        return gp.update(
            parameters.paths,
            row_values,
            near,
            correlations=gp.correlation(kernel, parameters.gaps, lengthscale),
            prior=path_prior(parameters),
            joint=joint,
            relaxation=relaxation,
        )

    now = parameters.lengthscale
    kept = at(now)
    if search is None:
        return parameters._replace(paths=kept.paths), kept.values, None
    least, most = bounds(parameters.gaps)
    tried = jnp.clip(now * jnp.exp(search.step), least, most)

    def lower() -> gp.Updated:
        other = at(linalg.after(tried, kept.change))
        is_lower = other.change < kept.change
        return gp.Updated(*jax.tree.map(lambda a, b: jnp.where(is_lower, a, b), other, kept))

    chosen = jax.lax.cond(held, lambda: kept, lower)
    better = chosen.change < kept.change
    size = jnp.abs(search.step) * jnp.where(better, 1.5, 0.5)
    turned = jnp.where(better, 1, -1) * jnp.sign(search.step)
    step = turned * jnp.clip(size, _SMALLEST_STEP, _LARGEST_STEP)
    parameters = parameters._replace(paths=chosen.paths, lengthscale=jnp.where(better, tried, now))
    step = jnp.where(held, search.step, step).astype(search.step.dtype)
    return parameters, chosen.values, Search(step)


def bounds(gaps: Array) -> tuple[Array, Array]:
    """Between which lengths a length scale is searched: () float each.

    Beyond a tenth of the smallest gap and ten times the whole span nothing changes any more.
    """
    smallest = jnp.min(jnp.where(gaps > 0, gaps, jnp.inf))
    smallest = jnp.where(jnp.isfinite(smallest), smallest, 1)
    span = jnp.where(gaps.size > 1, jnp.max(gaps), 1)
    return _LEAST_GAPS * smallest, jnp.maximum(_MOST_SPANS * span, _LEAST_GAPS * smallest)
