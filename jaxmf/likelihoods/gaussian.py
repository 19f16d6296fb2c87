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

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

from jaxmf import devices, row_shards
from jaxmf._kernels import compensated
from jaxmf.likelihoods.spectrum import Spectrum, log_normal, shrinkage
from jaxmf.types import Array, PyTree

# Bound of the error of an eigenvalue or a projection, in machine epsilons of the largest one.
_ROUNDING = 4.0
# What must be left of a difference for more to be made of it, in roundings: of 1, for a row that
# leaves and for a pivot; of the largest terms of the difference, which may be 1 / r.
_FEWEST_OF_ROW = 2.0**16
_FEWEST_OF_PIVOT = 2.0**13
_FEWEST_OF_TERMS = 64.0


class RowPosterior(NamedTuple):
    """The distribution of Y given Z and X, up to the noise variance."""

    # (K, K) float, M = (Z'Z + r I)^-1; noise variance * M is a column of Y's covariance
    spread: Array
    mean: Array  # (K, D) float, mu = M Z'X


def gram_statistics(z: Array, x: Array) -> tuple[Array, Array]:
    """Z'Z and Z'X, gone through in pieces so that no float copy of Z is made.

    Args: z (N, K) bool; x (N, D) float.
    Returns (K, K) and (K, D) float.
    """
    return row_shards.sum_over_rows(_gram_in_pieces, (z, x))


def _gram_in_pieces(z: Array, x: Array) -> tuple[Array, Array]:
    num_slots = z.shape[1]
    if z.shape[0] <= devices.block_size("gaussian rows"):
        z_float = z.astype(x.dtype)
        return z_float.T @ z_float, z_float.T @ x

    def sum_piece(z: Array, x: Array, fresh: Array) -> tuple[Array, Array]:
        z_float = (z & fresh).astype(x.dtype)
        return z_float.T @ z_float, z_float.T @ x

    empty = (
        jnp.zeros((num_slots, num_slots), x.dtype),
        jnp.zeros((num_slots, x.shape[1]), x.dtype),
    )
    return _sum_over_pieces(sum_piece, z, x, empty)


def _sum_over_pieces(
    sum_piece: Callable[[Array, Array, Array], PyTree], z: Array, x: Array, empty: PyTree
) -> PyTree:
    """The sum of a function of some rows of z and x over pieces of all.

    Args: sum_piece: its third argument (R, 1) bool says which of its rows no earlier piece had.
    """
    num_rows, size = x.shape[0], devices.block_size("gaussian rows")

    def add_piece(piece: Array, total: compensated.Sum) -> compensated.Sum:
        start, first = piece_start(piece, size, num_rows)
        x_piece = jax.lax.dynamic_slice_in_dim(x, start, size)
        z_piece = jax.lax.dynamic_slice_in_dim(z, start, size)
        fresh = start + jnp.arange(size) >= first
        return compensated.add(total, sum_piece(z_piece, x_piece, fresh[:, None]))

    num_pieces = -(-num_rows // size)
    return jax.lax.fori_loop(0, num_pieces, add_piece, compensated.start(empty)).total


def piece_start(piece: Array, size: int, num_rows: int) -> tuple[Array, Array]:
    """Where piece `piece` of `size` rows starts, and the first row that no earlier piece had.

    The last piece is moved back to end with the last row, so that rows need no padding.
    """
    first = piece * size
    return jnp.minimum(first, num_rows - size), first


def row_posterior(gram: Array, cross: Array, ratio: Array) -> RowPosterior:
    """(M, mu) by a Cholesky decomposition; by eigenvectors where that has too few digits.

    Args: gram (K, K) float, Z'Z; cross (K, D) float, Z'X; ratio () float, noise variance over
    feature variance.
    """
    penalised = gram + ratio * jnp.eye(gram.shape[0], dtype=gram.dtype)
    factor = jnp.linalg.cholesky(penalised)
    posterior = RowPosterior(*solve_both(factor, cross))
    return anew_unless(
        pivots_have_digits(factor, penalised),
        lambda no: _posterior_of_any_ratio(jnp.where(no, 0, gram), cross, ratio),
        posterior,
    )


def _posterior_of_any_ratio(gram: Array, cross: Array, ratio: Array) -> RowPosterior:
    """The same posterior by the eigenvectors of Z'Z; its zero eigenvalues stand out from rounding.

    A Cholesky decomposition has errors of eps / r beside 1 where features depend on each other.
    """
    eigenvalues, vectors, inverse = spectrum_of_gram(gram)
    is_above = inverse > 0
    precision = jnp.where(is_above, eigenvalues, 0) + ratio
    turned = jnp.where(is_above[:, None], vectors.T @ cross, 0)
    return RowPosterior(
        spread=(vectors / precision) @ vectors.T, mean=vectors @ (turned / precision[:, None])
    )


def anew_unless(has_digits: Array, compute: Callable[[Array], PyTree], present: PyTree) -> PyTree:
    """`present` where it `has_digits` () bool, else what `compute` returns.

    A loop of at most one turn: of a `cond`, chains side by side do both ways for every row. The
    argument of `compute` is False, which the compiler does not know. A decomposition must depend on
    it: moved out of the loop it would be done for every row, and beside others (`linalg.after`).
    """
    _, result = jax.lax.while_loop(
        lambda carry: ~carry[0],
        lambda carry: (jnp.ones_like(carry[0]), compute(carry[0])),
        (has_digits, present),
    )
    return result


def pivots_have_digits(factor: Array, matrix: Array, fewest: float = _FEWEST_OF_PIVOT) -> Array:
    """() bool, whether a Cholesky factor (K, K) keeps enough of the digits of its matrix.

    False as well where it is not finite.

    Args: fewest: what must be left of 1, in machine epsilons.
    """
    pivots, diagonal = jnp.diagonal(factor) ** 2, jnp.diagonal(matrix)
    return jnp.all(pivots > fewest * jnp.finfo(matrix.dtype).eps * diagonal)


def row_has_digits(room: Array, noise: Array, shared: Array, widths: Array) -> Array:
    """(...) bool, whether a row can be taken out of M by a rank-one update.

    What is divided by is a difference: where the row alone tells features apart, next to nothing.

    Args: room (...) float, noise - z M z; noise (...) float, 1 and what is summed out of the row;
    shared (K,) float, z; widths (K, ...) float, the diagonal of M.
    """
    weights = shared.reshape(-1, *[1] * (widths.ndim - 1))
    terms = noise + jnp.sum(shared) * jnp.sum(weights * widths, axis=0)
    fewest = jnp.maximum(_FEWEST_OF_ROW * noise, _FEWEST_OF_TERMS * terms)
    return room > jnp.finfo(room.dtype).eps * fewest


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


def remove_row(
    posterior: RowPosterior,
    z: Array,
    alone: Array,
    x: Array,
    ratio: Array,
    others: Callable[[Array], tuple[Array, Array]],
) -> RowPosterior:
    """(M, mu) after a row x (D,) with features z (K,) float has gone.

    The features that this row alone has, `alone` (K,) float, are summed out of the row first: the
    others then see it with noise 1 + n / r. So nothing is divided by the small number that is left
    of such features where the noise is small; `reset_slots` puts their slots back to the prior.

    Where no other row has this combination of features, what is divided by is small as well: with
    too few digits left (M, mu) is computed anew from Z'Z and Z'X of the `others`. It is at least
    r / (r + number of features), since M of the other rows is at most I / r.
    """
    spread, mean = posterior
    shared = z - alone
    m_z = spread @ shared
    noise = 1 + jnp.sum(alone) / ratio
    room = noise - shared @ m_z
    # computed anew it needs no update
    (spread, mean), m_z, room = anew_unless(
        row_has_digits(room, noise, shared, jnp.diagonal(spread)),
        lambda no: (_posterior_of_any_ratio(*others(no), ratio), jnp.zeros_like(m_z), noise),
        (posterior, m_z, room),
    )
    gain = m_z / jnp.maximum(room, ratio / (ratio + jnp.sum(shared)))
    return RowPosterior(
        spread=spread + jnp.outer(m_z, gain), mean=mean - jnp.outer(gain, x - shared @ mean)
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
    """
    # M has rounding where the noise is next to nothing, and z M z' is not negative
    variance = noise_variance * jnp.maximum(inflation, 1)
    return -0.5 * (num_observed * jnp.log(2 * jnp.pi * variance) + squared_error / variance)


def spectrum(z: Array, x: Array, gram_and_cross: tuple[Array, Array] | None = None) -> Spectrum:
    """The statistics of `log_marginal` for binary features z (N, K) and data x (N, D).

    The residual is a sum of squares of differences: with data far from zero the difference of two
    sums of squares would have no digit left.

    Args: z (N, K) bool; x (N, D) float; gram_and_cross: Z'Z and Z'X, or None to compute them.
    """
    gram, cross = gram_statistics(z, x) if gram_and_cross is None else gram_and_cross
    eigenvalues, vectors, inverse = spectrum_of_gram(gram)
    turned = vectors.T @ cross
    residual = _sum_of_squares(z, x, vectors @ (inverse[:, None] * turned))
    return _spectrum(eigenvalues, inverse, turned, residual, x.shape[0])


def spectrum_of_statistics(
    gram: Array, cross: Array, penalised: Array, ratio: Array, num_rows: Array | int
) -> Spectrum:
    """The same spectrum from Z'Z (K, K), Z'X (K, D) and the number of rows, without X.

    Args:
      gram: (K, K) float, Z'Z.
      cross: (K, D) float, Z'X.
      penalised: (D,) float, the least sums of squares |X - Z Y|^2 + ratio |Y|^2 of the columns. As
        rows come they rise by squares of residuals (`penalised_squares`), so nothing cancels.
      ratio: () float, at which these are.
    """
    eigenvalues, vectors, inverse = spectrum_of_gram(gram)
    turned = vectors.T @ cross
    total = jnp.sum(penalised)
    statistics = _spectrum(eigenvalues, inverse, turned, total, num_rows)
    residual = jnp.maximum(total - jnp.sum(shrinkage(statistics, ratio)), 0)
    return statistics._replace(residual=residual)


def penalised_squares(posterior: RowPosterior, z: Array, x: Array) -> Array:
    """By how much a row adds to the least |X - Z Y|^2 + ratio |Y|^2 of every column, (D,).

    Args: posterior: before the row has come; z (K,) float, its features; x (D,) float.
    """
    return (x - z @ posterior.mean) ** 2 / (1 + z @ posterior.spread @ z)


def penalised_sums(z: Array, x: Array, mean: Array, ratio: Array) -> Array:
    """|X - Z Y|^2 + ratio |Y|^2 of every column, (D,), least at Y (K, D) = `mean` of Z and X."""
    return _sums_of_squares(z, x, mean) + ratio * jnp.sum(mean**2, axis=0)


def spectrum_of_gram(gram: Array) -> tuple[Array, Array, Array]:
    """Eigenvalues (K,) of Z'Z, eigenvectors (K, K), and 1 / eigenvalues, 0 where those may be zero.

    Free slots and repeated features have eigenvalues of zero, up to rounding.
    """
    eigenvalues, vectors = jnp.linalg.eigh(gram)
    rounding = _ROUNDING * jnp.finfo(gram.dtype).eps * jnp.maximum(eigenvalues[-1], 1)
    is_above = eigenvalues > rounding
    inverse = jnp.where(is_above, 1 / jnp.where(is_above, eigenvalues, 1), 0)
    return jnp.maximum(eigenvalues, 0), vectors, inverse


def _spectrum(
    eigenvalues: Array, inverse: Array, turned: Array, residual: Array, num_rows: Array | int
) -> Spectrum:
    is_removed = inverse > 0
    projections = jnp.sum(turned**2, axis=1)
    is_empty = _is_empty(is_removed, projections)
    return Spectrum(
        eigenvalues=jnp.where(is_empty, 0, eigenvalues),
        projections=jnp.where(is_empty, 0, projections),
        residual=residual,
        is_removed=is_removed,
        num_cells=jnp.asarray(num_rows, turned.dtype) * turned.shape[1],
        num_copies=jnp.asarray(turned.shape[1], turned.dtype),
    )


def _is_empty(is_removed: Array, projections: Array) -> Array:
    """Directions v of Z v = 0, as of repeated features, (K,) bool.

    What is left there of v' Z'X is rounding, which next to no noise would be divided by that noise
    twice: of float32, thousands of nats at a noise scale of .01.
    """
    rounding = _ROUNDING * projections.size * jnp.finfo(projections.dtype).eps
    return ~is_removed & (projections <= rounding**2 * jnp.sum(projections))


def draw_features(
    gram: Array, cross: Array, normals: Array, noise_scale: Array, feature_scale: Array
) -> Array:
    """Y (K, D) given Z'Z (K, K) and Z'X (K, D), from standard normals (K, D).

    The square root of the covariance is symmetric: free slots do not change the others' draws.
    Directions in which Z is zero have draws of the prior, however small the noise is.
    """
    eigenvalues, vectors, inverse = spectrum_of_gram(gram)
    turned = vectors.T @ cross
    is_empty = _is_empty(inverse > 0, jnp.sum(turned**2, axis=1))
    precision = jnp.where(is_empty, 0, eigenvalues) + noise_scale**2 / feature_scale**2
    mean = jnp.where(is_empty[:, None], 0, turned) / precision[:, None]
    spread = noise_scale / jnp.sqrt(precision)
    return vectors @ (mean + spread[:, None] * (vectors.T @ normals))


def _sum_of_squares(z: Array, x: Array, coefficients: Array) -> Array:
    """The sum of squares of X - Z Y."""
    return jnp.sum(_sums_of_squares(z, x, coefficients))


def _sums_of_squares(z: Array, x: Array, coefficients: Array) -> Array:
    """Sums of squares (D,) of the columns of X - Z Y, in pieces: no float copy of Z is made."""
    return row_shards.sum_over_rows(_squares_in_pieces, (z, x), coefficients)


def _squares_in_pieces(z: Array, x: Array, coefficients: Array) -> Array:
    if x.shape[0] <= devices.block_size("gaussian rows"):
        return jnp.sum((x - z.astype(x.dtype) @ coefficients) ** 2, axis=0)

    def sum_piece(z: Array, x: Array, fresh: Array) -> Array:
        squares = (x - z.astype(x.dtype) @ coefficients) ** 2
        return jnp.sum(jnp.where(fresh, squares, 0), axis=0)

    return _sum_over_pieces(sum_piece, z, x, jnp.zeros((x.shape[1],), x.dtype))


def log_likelihood(
    z: Array,
    x: Array,
    gram_and_cross: tuple[Array, Array],
    noise_scale: Array,
    feature_scale: Array,
) -> Array:
    """log p(X | Z) with Y summed out, at one pair of scales.

    |X - Z Y|^2 + r |Y|^2 at its least is off by the square of an error in Y alone, so the rounding
    of the eigenvectors, of which the `log_density` of a spectrum makes a nat where X is far from
    zero, is not seen.

    Args: z (N, K) bool; x (N, D) float.
    """
    gram, cross = gram_and_cross
    eigenvalues, vectors, inverse = spectrum_of_gram(gram)
    ratio = noise_scale**2 / feature_scale**2
    turned = vectors.T @ cross
    shrunk = jnp.where(inverse > 0, 1 / (eigenvalues + ratio), 0)
    mean = vectors @ (shrunk[:, None] * turned)
    squares = _sum_of_squares(z, x, mean) + ratio * jnp.sum(mean**2)
    statistics = _spectrum(eigenvalues, inverse, turned, squares, x.shape[0])
    return log_normal(statistics, squares, noise_scale, ratio)
