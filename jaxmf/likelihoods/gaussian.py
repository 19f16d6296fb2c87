"""The linear-Gaussian likelihood with its features summed out.

X = Z Y + noise, the entries of Y ~ N(0, s_Y^2), of the noise ~ N(0, s_X^2). Given Z and X the rows
of Y are Gaussian: with r = s_X^2 / s_Y^2, M = (Z'Z + r I)^-1 and mu = M Z'X, a column of Y has mean
a column of mu and covariance s_X^2 M, and a further row x with features z has the density
N(z mu, s_X^2 (1 + z M z') I). Everything here is expressed by (M, mu), kept up by rank-one updates
when a row comes or goes, so no row ever costs more than O(K^2 + K D).

Free slots of Z are columns of zeros: they hold the prior, M_kk = 1/r and mu_k = 0, and drop out of
every formula by themselves.

Source: Wood & Griffiths (2006), eqs 6 and 7, in corrected and cheaper form.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

from jaxmf.types import Array

_ROWS_A_PIECE = 4096


class RowPosterior(NamedTuple):
    """The distribution of Y given Z and X, up to the noise variance.

    Attributes:
      spread: (K, K) float, M = (Z'Z + r I)^-1; noise variance * M is a column of Y's covariance.
      mean: (K, D) float, mu = M Z'X.
    """

    spread: Array
    mean: Array


class Spectrum(NamedTuple):
    """What the collapsed likelihood needs of Z and X to be evaluated at any two scales in O(K).

    Attributes:
      eigenvalues: (K,) float, of Z'Z.
      projections: (K,) float, squared lengths of the rows of U'Z'X, U the eigenvectors.
      residual: () float, the least sum of squares of X - Z Y over Y in the span of the
        eigenvectors whose eigenvalues are above rounding.
      is_removed: (K,) bool, these eigenvectors.
      num_rows: () float.
      num_columns: () float.
    """

    eigenvalues: Array
    projections: Array
    residual: Array
    is_removed: Array
    num_rows: Array
    num_columns: Array


def gram_statistics(z: Array, x: Array) -> tuple[Array, Array]:
    """Z'Z and Z'X, gone through in pieces so that no float copy of Z is made.

    Args:
      z: (N, K) bool.
      x: (N, D) float.

    Returns:
      (K, K) and (K, D) float.
    """
    num_rows, num_slots = z.shape
    if num_rows <= _ROWS_A_PIECE:
        z_float = z.astype(x.dtype)
        return z_float.T @ z_float, z_float.T @ x

    def add_piece(piece, statistics):
        gram, cross = statistics
        start, first = piece_start(piece, _ROWS_A_PIECE, num_rows)
        x_piece = jax.lax.dynamic_slice_in_dim(x, start, _ROWS_A_PIECE)
        z_piece = jax.lax.dynamic_slice_in_dim(z, start, _ROWS_A_PIECE)
        fresh = start + jnp.arange(_ROWS_A_PIECE) >= first
        z_piece = (z_piece & fresh[:, None]).astype(x.dtype)
        return gram + z_piece.T @ z_piece, cross + z_piece.T @ x_piece

    empty = (
        jnp.zeros((num_slots, num_slots), x.dtype),
        jnp.zeros((num_slots, x.shape[1]), x.dtype),
    )
    return jax.lax.fori_loop(0, -(-num_rows // _ROWS_A_PIECE), add_piece, empty)


def piece_start(piece: Array, size: int, num_rows: int) -> tuple[Array, Array]:
    """Where piece `piece` of `size` rows starts, and the first row that no earlier piece had.

    The last piece is moved back to end with the last row, so that rows need no padding.
    """
    first = piece * size
    return jnp.minimum(first, num_rows - size), first


def row_posterior(gram: Array, cross: Array, ratio: Array) -> RowPosterior:
    """(M, mu) by a Cholesky decomposition.

    Args:
      gram: (K, K) float, Z'Z.
      cross: (K, D) float, Z'X.
      ratio: () float, noise variance over feature variance.
    """
    identity = jnp.eye(gram.shape[0], dtype=gram.dtype)
    factor = jnp.linalg.cholesky(gram + ratio * identity)
    spread, mean = solve_both(factor, cross)
    return RowPosterior(spread=spread, mean=mean)


def solve_both(factor: Array, right: Array) -> tuple[Array, Array]:
    """A^-1 and A^-1 B of a Cholesky factor of A (K, K) and B (K, D).

    In one call: two batched solves that do not depend on each other may run at the same time on a
    CPU, and jaxlib 0.10 then waits for ever where each holds one of its two threads.
    """
    size = factor.shape[0]
    identity = jnp.eye(size, dtype=factor.dtype)
    solved = cho_solve((factor, True), jnp.concatenate([identity, right], axis=1))
    return solved[:, :size], solved[:, size:]


def add_row(posterior: RowPosterior, z: Array, x: Array) -> RowPosterior:
    """(M, mu) after a row x (D,) with features z (K,) float has come."""
    spread, mean = posterior
    m_z = spread @ z
    gain = m_z / (1 + z @ m_z)
    return RowPosterior(
        spread=spread - jnp.outer(m_z, gain), mean=mean + jnp.outer(gain, x - z @ mean)
    )


def remove_row(posterior: RowPosterior, z: Array, x: Array) -> RowPosterior:
    """(M, mu) after a row x (D,) with features z (K,) float has gone."""
    spread, mean = posterior
    m_z = spread @ z
    gain = m_z / (1 - z @ m_z)
    return RowPosterior(
        spread=spread + jnp.outer(m_z, gain), mean=mean - jnp.outer(gain, x - z @ mean)
    )


def reset_slots(posterior: RowPosterior, free: Array, ratio: Array) -> RowPosterior:
    """(M, mu) with the slots `free` (K,) bool put back to the prior, exactly."""
    spread, mean = posterior
    prior = jnp.eye(spread.shape[0], dtype=spread.dtype) / ratio
    return RowPosterior(
        spread=jnp.where(free[:, None] | free[None, :], prior, spread),
        mean=jnp.where(free[:, None], 0, mean),
    )


def log_normal_row(
    squared_error: Array, inflation: Array, num_observed: Array | float, noise_variance: Array
) -> Array:
    """log N(x; m, noise variance * inflation * I) of a row's observed cells.

    Args:
      squared_error: sum over the observed cells of (x - m)^2.
      inflation: 1 + z M z', how much the unknown Y widens the noise; same shape.
      num_observed: () float, number of observed cells.
      noise_variance: () float.
    """
    variance = noise_variance * inflation
    return -0.5 * (num_observed * jnp.log(2 * jnp.pi * variance) + squared_error / variance)


def spectrum(z: Array, x: Array, gram_and_cross: tuple[Array, Array] | None = None) -> Spectrum:
    """The statistics of `log_marginal` for binary features z (N, K) and data x (N, D).

    The residual is a sum of squares of differences: with data far from zero the difference of two
    sums of squares would have no digit left.

    Args:
      z: (N, K) bool.
      x: (N, D) float.
      gram_and_cross: Z'Z and Z'X, or None to compute them.
    """
    gram, cross = gram_statistics(z, x) if gram_and_cross is None else gram_and_cross
    eigenvalues, vectors, inverse = _spectrum_of_gram(gram)
    turned = vectors.T @ cross
    residual = _sum_of_squares(z, x, vectors @ (inverse[:, None] * turned))
    return _spectrum(eigenvalues, inverse, turned, residual, x.shape[0])


def spectrum_of_statistics(
    gram: Array, cross: Array, total: Array, num_rows: Array | int
) -> Spectrum:
    """The same from Z'Z (K, K), Z'X (K, D), tr X'X and the number of rows, where X is not at hand.

    The residual is the difference of two sums of squares, so X must be centred.
    """
    eigenvalues, vectors, inverse = _spectrum_of_gram(gram)
    turned = vectors.T @ cross
    residual = jnp.maximum(total - jnp.sum(inverse[:, None] * turned**2), 0)
    return _spectrum(eigenvalues, inverse, turned, residual, num_rows)


def _spectrum_of_gram(gram: Array) -> tuple[Array, Array, Array]:
    """Eigenvalues (K,) of Z'Z, eigenvectors (K, K), and 1 / eigenvalues, 0 where those may be zero.

    Free slots and repeated features have eigenvalues of zero, up to rounding.
    """
    eigenvalues, vectors = jnp.linalg.eigh(gram)
    rounding = 4 * jnp.finfo(gram.dtype).eps * jnp.maximum(eigenvalues[-1], 1)
    is_above = eigenvalues > rounding
    inverse = jnp.where(is_above, 1 / jnp.where(is_above, eigenvalues, 1), 0)
    return jnp.maximum(eigenvalues, 0), vectors, inverse


def _spectrum(
    eigenvalues: Array, inverse: Array, turned: Array, residual: Array, num_rows: Array | int
) -> Spectrum:
    return Spectrum(
        eigenvalues=eigenvalues,
        projections=jnp.sum(turned**2, axis=1),
        residual=residual,
        is_removed=inverse > 0,
        num_rows=jnp.asarray(num_rows, turned.dtype),
        num_columns=jnp.asarray(turned.shape[1], turned.dtype),
    )


def _sum_of_squares(z: Array, x: Array, coefficients: Array) -> Array:
    """The sum of squares of X - Z Y, in pieces so that no float copy of Z is made."""
    num_rows = x.shape[0]
    if num_rows <= _ROWS_A_PIECE:
        return jnp.sum((x - z.astype(x.dtype) @ coefficients) ** 2)

    def add_piece(piece, total):
        start, first = piece_start(piece, _ROWS_A_PIECE, num_rows)
        x_piece = jax.lax.dynamic_slice_in_dim(x, start, _ROWS_A_PIECE)
        z_piece = jax.lax.dynamic_slice_in_dim(z, start, _ROWS_A_PIECE)
        squares = jnp.sum((x_piece - z_piece.astype(x.dtype) @ coefficients) ** 2, axis=1)
        fresh = start + jnp.arange(_ROWS_A_PIECE) >= first
        return total + jnp.sum(jnp.where(fresh, squares, 0))

    num_pieces = -(-num_rows // _ROWS_A_PIECE)
    return jax.lax.fori_loop(0, num_pieces, add_piece, jnp.zeros((), x.dtype))


def log_marginal(statistics: Spectrum, noise_scale: Array, feature_scale: Array) -> Array:
    """log p(X | Z) with Y summed out (Wood & Griffiths, eq 6, with |Z'Z + r I|).

    A column of X has covariance s_X^2 I + s_Y^2 Z Z', whose eigenvalues are s_X^2 + s_Y^2 lambda_k
    for the eigenvalues lambda_k of Z'Z, and s_X^2 otherwise; free slots have lambda = 0 and add
    nothing.

    Args:
      statistics: of Z and X.
      noise_scale: () float, s_X.
      feature_scale: () float, s_Y.

    Returns:
      () float.
    """
    noise, feature = noise_scale**2, feature_scale**2
    ratio = noise / feature
    log_determinant = statistics.num_rows * jnp.log(noise) + jnp.sum(
        jnp.log1p(statistics.eigenvalues / ratio)
    )
    # tr X'X - sum_k p_k / (lambda_k + r); the residual is tr X'X less p_k / lambda_k where removed
    values, is_removed = statistics.eigenvalues, statistics.is_removed
    factor = jnp.where(is_removed, ratio / jnp.where(is_removed, values, 1), -1)
    change = jnp.sum(statistics.projections * factor / (values + ratio))
    squares = jnp.maximum(statistics.residual + change, 0) / noise
    log_two_pi = statistics.num_rows * statistics.num_columns * jnp.log(2 * jnp.pi)
    return -0.5 * (log_two_pi + statistics.num_columns * log_determinant + squares)
