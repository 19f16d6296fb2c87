"""Where the ascent starts: the leading singular vectors, or noise."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxmf.types import Array, Key
from jaxmf.variational.pieces import Layout, num_lines, sum_over_ones

_OVERSAMPLING = 10
_NUM_POWERS = 4


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
