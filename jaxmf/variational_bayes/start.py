"""Where an ascent starts: the leading singular vectors, or noise; and the priors it starts with."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from jaxmf import row_shards
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.types import Array, ArrayLike, Key, PyTree
from jaxmf.variational_bayes.contracts import CellSettings
from jaxmf.variational_bayes.parameters import Normal, Parameters, Priors
from jaxmf.variational_bayes.pieces import Layout, PieceTable, add_lines, num_lines, sum_over_ones

_OVERSAMPLING = 10
_NUM_POWERS = 4
_START_VARIANCE = 0.5
_RANDOM_SCALE = 0.1
_SMOOTHING = 5.0


def singular_start(
    key: Key, data: Layout, num_factors: int, *, scales: tuple[Array, Array] | None = None
) -> tuple[Array, Array]:
    """Leading singular vectors of the ones, each times the root of its singular value.

    By randomised subspace iteration, whose only passes over the data are products with a thin
    matrix.

    Args: scales (N,) and (D,) float that the rows and columns of the matrix are multiplied by
    first.
    Returns (N, K) and (D, K) float, whose product is the best approximation of the matrix of ones
    and zeros; further columns are zero where K is larger than the rank can be.

    Reference:
      N. Halko, P. Martinsson and J. Tropp, Finding structure with randomness (2011).
    """
    num_rows, num_columns = num_lines(data.rows), num_lines(data.columns)
    rank = min(num_factors + _OVERSAMPLING, num_rows * row_shards.num_shares(), num_columns)
    row_scale, column_scale = (1, 1) if scales is None else (part[:, None] for part in scales)

    def times(right: Array) -> Array:
        product = sum_over_ones(data.rows.ones, column_scale * right, num_lines=num_rows)
        return row_scale * product

    def times_transposed(left: Array) -> Array:
        product = sum_over_ones(data.columns.ones, row_scale * left, num_lines=num_columns)
        return column_scale * row_shards.add_over_devices(product)

    def once(_: Array, basis: Array) -> Array:
        # orthogonal on either side of the matrix, or small values drown in rounding
        left, _ = row_shards.qr(times(basis))
        return jnp.linalg.qr(times_transposed(left))[0]

    start = jax.random.normal(key, (num_columns, rank))
    basis: Array = jax.lax.fori_loop(0, _NUM_POWERS, once, jnp.linalg.qr(start)[0])
    left, square = row_shards.qr(times(basis))
    turned, values, small = jnp.linalg.svd(square, full_matrices=False)
    right = basis @ small.T
    # signs that do not depend on how the decomposition was made
    largest = jnp.take_along_axis(right, jnp.argmax(jnp.abs(right), axis=0)[None], axis=0)
    root = jnp.where(largest < 0, -1, 1) * jnp.sqrt(values)
    kept = slice(0, num_factors)
    rows, columns = (left @ turned * root)[:, kept], (right * root)[:, kept]
    padding = [(0, 0), (0, num_factors - rows.shape[1])]
    return jnp.pad(rows, padding), jnp.pad(columns, padding)


def lift_start(
    key: Key, data: Layout, num_factors: int, *, skip_first: bool
) -> tuple[Array, Array]:
    """Factors whose product is about the log of how much likelier a cell is than by its margins.

    Correspondence analysis: with n_i and n_j the ones of a row and a column and T all of them, the
    singular vectors of x_ij / sqrt(n_i n_j) approximate the lift x_ij T / (n_i n_j) with the
    accuracy that each count has; the first of them are the margins.

    Args: skip_first: whether the margins are left out, where biases stand for them.
    Returns (N, K), of mean square one, and (D, K) float.

    Reference:
      M. Greenacre, Correspondence Analysis in Practice (1993).
    """
    row_counts, column_counts = _counts(data.rows), _counts(data.columns, over_rows=True)
    mean = row_shards.average_over_devices(jnp.mean(row_counts))
    row_scale = jax.lax.rsqrt(row_counts + _SMOOTHING * mean)
    column_scale = jax.lax.rsqrt(column_counts + _SMOOTHING * jnp.mean(column_counts))
    first = int(skip_first)
    rows, columns = singular_start(key, data, num_factors + first, scales=(row_scale, column_scale))
    rows, columns = unit_rows(rows[:, first:], columns[:, first:])
    size = jnp.sqrt(data.num_ones * (num_lines(data.rows) * row_shards.num_shares()))
    return rows, size * columns * column_scale[:, None]


def unit_rows(rows: Array, columns: Array) -> tuple[Array, Array]:
    """The same product with factors of rows of mean square one, as their prior is."""
    size = jnp.sqrt(row_shards.average_over_devices(jnp.mean(rows**2, axis=0)))
    size = jnp.where(size > 0, size, 1)
    return rows / size, columns * size


def _counts(table: PieceTable, *, over_rows: bool = False) -> Array:
    """The number of ones of every line: (N,) float; over rows, those of all devices."""
    counts = table.ones.counts.ravel().astype(jnp.result_type(float))
    nothing = jnp.zeros((num_lines(table),), counts.dtype)
    total = add_lines(nothing, table.ones.line.ravel(), counts)
    return row_shards.add_over_devices(total) if over_rows else total


def random_start(
    key: Key, num_rows: int, num_columns: int, *, num_factors: int, scale: float
) -> tuple[Array, Array]:
    """Normal factors of the rows and columns with a standard deviation: (N, K) and (D, K)."""
    size = (num_rows + num_columns, num_factors)
    both = scale * jax.random.normal(key, size)
    return both[:num_rows], both[num_rows:]


def _start_factors(
    key: Key, layout: Layout, *, settings: CellSettings, start: str
) -> tuple[Array, Array]:
    """Factors of the rows and columns, by name of the start and by the bound of the likelihood."""
    num_factors = settings.num_factors
    if start == "svd" and settings.likelihood.is_quadratic:
        return unit_rows(*singular_start(key, layout, num_factors))
    if start == "svd":
        return lift_start(key, layout, num_factors, skip_first=settings.bias == "rows_columns")
    num_rows = num_lines(layout.rows) * row_shards.num_shares()
    rows, columns = random_start(
        key, num_rows, num_lines(layout.columns), num_factors=num_factors, scale=_RANDOM_SCALE
    )
    return row_shards.part_of(rows), columns


def start_parameters(key: Key, layout: Layout, *, settings: PyTree, start: str) -> Parameters:
    """The first parameters of an ascent; the intercept from the share of ones.

    Args: settings: a model's description: its priors, likelihood and biases.
    """
    num_rows, num_columns = num_lines(layout.rows), num_lines(layout.columns)
    num_all = num_rows * row_shards.num_shares()
    dtype = jnp.result_type(float)
    tilted = not settings.likelihood.is_quadratic
    rows, columns = _start_factors(key, layout, settings=settings, start=start)
    # nothing but ones would start at an infinite intercept
    share = (layout.num_ones + 0.5) / (layout.num_observed + 1)
    priors = start_priors(settings, dtype)

    row_counts, column_counts = _counts(layout.rows), _counts(layout.columns, over_rows=True)

    def factors(mean: Array, prior_variance: Array, counts: Array) -> Normal:
        """With a variance as if each one of a line were worth a prior of variance one."""
        if not tilted:
            return Normal(mean, jnp.full_like(mean, _START_VARIANCE))
        counts = counts.reshape(-1, *[1] * (mean.ndim - 1))
        return Normal(mean, jnp.broadcast_to(1 / (1 / prior_variance + counts), mean.shape))

    row_bias = column_bias = None
    if settings.bias == "rows_columns":
        popularity = jnp.zeros((num_columns,), dtype)
        if tilted:
            popularity = (column_counts + 1) / (num_all * share + 1)
            popularity = jnp.log(popularity) - jnp.mean(jnp.log(popularity))
        row_bias = factors(jnp.zeros((num_rows,), dtype), priors.row_bias, row_counts)
        column_bias = factors(popularity, priors.column_bias, column_counts)
    is_gaussian = isinstance(settings.likelihood, Gaussian)
    noise = 4 * share * (1 - share) if is_gaussian else jnp.ones((), dtype)
    if is_gaussian and settings.likelihood.noise_scale is not None:
        noise = jnp.asarray(settings.likelihood.noise_scale, dtype) ** 2
    level = 2 * share - 1 if is_gaussian else jnp.log(share) - jnp.log1p(-share)
    nothing = jnp.zeros((), dtype)
    has_intercept = settings.bias != "none"
    return Parameters(
        rows=factors(rows, priors.rows.variance, row_counts),
        columns=factors(columns, priors.columns.variance, column_counts),
        row_bias=row_bias,
        column_bias=column_bias,
        intercept=Normal(level, nothing + _START_VARIANCE)
        if has_intercept
        else Normal(nothing, nothing),
        priors=priors,
        noise=noise.astype(dtype),
    )


def start_priors(settings: CellSettings, dtype: DTypeLike) -> Priors:
    """The priors of a model; what is learned starts at mean zero and variance one."""

    def vector(value: ArrayLike | None, otherwise: float) -> Array:
        value = jnp.asarray(otherwise if value is None else value, dtype)
        return jnp.broadcast_to(value, (settings.num_factors,))

    def variance(scale: ArrayLike | None) -> Array:
        return vector(scale, 1.0) ** 2

    spread = settings.bias_scale
    bias = jnp.asarray(1.0 if spread is None else spread, dtype) ** 2
    return Priors(
        rows=Normal(vector(settings.row_mean, 0.0), variance(settings.row_scale)),
        columns=Normal(vector(settings.column_mean, 0.0), variance(settings.column_scale)),
        row_bias=bias,
        column_bias=bias,
        intercept=jnp.asarray(settings.intercept_scale, dtype) ** 2,
    )
