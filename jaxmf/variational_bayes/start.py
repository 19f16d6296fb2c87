"""Where an ascent starts: the leading singular vectors, or noise; and the priors it starts with."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxmf.types import Array, Key
from jaxmf.variational_bayes.likelihood import Gaussian
from jaxmf.variational_bayes.parameters import Normal, Parameters, Priors
from jaxmf.variational_bayes.pieces import Layout, num_lines, sum_over_ones

_OVERSAMPLING = 10
_NUM_POWERS = 4
_START_VARIANCE = 0.5
_RANDOM_SCALE = 0.1


def singular_start(key: Key, data: Layout, num_factors: int) -> tuple[Array, Array]:
    """Leading singular vectors of the ones, each times the root of its singular value.

    By randomised subspace iteration, whose only passes over the data are products with a thin
    matrix.

    Args:
      key: typed PRNG key.
      data: the matrix.
      num_factors: K.

    Returns:
      (N, K) and (D, K) float, whose product is the best approximation of the matrix of ones and
      zeros; further columns are zero where K is larger than the rank can be.

    Reference:
      N. Halko, P. Martinsson and J. Tropp, Finding structure with randomness (2011).
    """
    num_rows, num_columns = num_lines(data.rows), num_lines(data.columns)
    rank = min(num_factors + _OVERSAMPLING, num_rows, num_columns)

    def times(right: Array) -> Array:
        return sum_over_ones(data.rows.ones, right, num_lines=num_rows)

    def times_transposed(left: Array) -> Array:
        return sum_over_ones(data.columns.ones, left, num_lines=num_columns)

    def once(_: Array, basis: Array) -> Array:
        # orthogonal on either side of the matrix, or small values drown in rounding
        left, _ = jnp.linalg.qr(times(basis))
        return jnp.linalg.qr(times_transposed(left))[0]

    start = jax.random.normal(key, (num_columns, rank))
    basis: Array = jax.lax.fori_loop(0, _NUM_POWERS, once, jnp.linalg.qr(start)[0])
    left, values, small = jnp.linalg.svd(times(basis), full_matrices=False)
    root = jnp.sqrt(values)
    kept = slice(0, num_factors)
    rows, columns = (left * root)[:, kept], (basis @ small.T * root)[:, kept]
    padding = [(0, 0), (0, num_factors - rows.shape[1])]
    return jnp.pad(rows, padding), jnp.pad(columns, padding)


def random_start(
    key: Key, num_rows: int, num_columns: int, *, num_factors: int, scale: float
) -> tuple[Array, Array]:
    """Normal factors of the rows and columns with a standard deviation: (N, K) and (D, K)."""
    size = (num_rows + num_columns, num_factors)
    both = scale * jax.random.normal(key, size)
    return both[:num_rows], both[num_rows:]


def start_parameters(key: Key, layout: Layout, *, settings: Any, start: str) -> Parameters:
    """The first parameters of an ascent; the bias from the share of ones.

    Args:
      key: typed PRNG key.
      layout: the matrix.
      settings: a model's description: its priors, likelihood and offsets.
      start: "svd" or "random".
    """
    num_rows, num_columns = num_lines(layout.rows), num_lines(layout.columns)
    num_factors = settings.num_factors
    dtype = jnp.result_type(float)
    if start == "svd":
        rows, columns = singular_start(key, layout, num_factors)
        # the prior of rows is that of unit variance: all scale but that goes to the columns
        size = jnp.sqrt(jnp.mean(rows**2, axis=0))
        size = jnp.where(size > 0, size, 1)
        rows, columns = rows / size, columns * size
    else:
        rows, columns = random_start(
            key, num_rows, num_columns, num_factors=num_factors, scale=_RANDOM_SCALE
        )
    # nothing but ones would start at an infinite bias
    share = (layout.num_ones + 0.5) / (layout.num_observed + 1)

    def factors(mean: Array) -> Normal:
        return Normal(mean, jnp.full_like(mean, _START_VARIANCE))

    def offset(number: int) -> Normal | None:
        if settings.offsets != "rows_columns":
            return None
        return factors(jnp.zeros((number,), dtype))

    is_gaussian = isinstance(settings.likelihood, Gaussian)
    noise = 4 * share * (1 - share) if is_gaussian else jnp.ones((), dtype)
    if is_gaussian and settings.likelihood.noise_variance is not None:
        noise = jnp.asarray(settings.likelihood.noise_variance, dtype)
    level = 2 * share - 1 if is_gaussian else jnp.log(share) - jnp.log1p(-share)
    nothing = jnp.zeros((), dtype)
    has_bias = settings.offsets != "none"
    return Parameters(
        rows=factors(rows),
        columns=factors(columns),
        row_offset=offset(num_rows),
        column_offset=offset(num_columns),
        bias=Normal(level, nothing + _START_VARIANCE) if has_bias else Normal(nothing, nothing),
        priors=start_priors(settings, dtype),
        noise=noise.astype(dtype),
    )


def start_priors(settings: Any, dtype: Any) -> Priors:
    """The priors of a model; what is learned starts at mean zero and variance one."""

    def vector(value: Any, otherwise: float) -> Array:
        value = jnp.asarray(otherwise if value is None else value, dtype)
        return jnp.broadcast_to(value, (settings.num_factors,))

    spread = settings.offset_variance
    offset = jnp.asarray(1.0 if spread is None else spread, dtype)
    return Priors(
        rows=Normal(vector(settings.row_mean, 0.0), vector(settings.row_variance, 1.0)),
        columns=Normal(vector(settings.column_mean, 0.0), vector(settings.column_variance, 1.0)),
        row_offset=offset,
        column_offset=offset,
        bias=jnp.asarray(settings.bias_variance, dtype),
    )
