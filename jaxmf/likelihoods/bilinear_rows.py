"""The bilinear likelihood row by row: X = U W V' + noise, W summed out, V given.

With V'V = Q diag(s) Q' the columns of B = V Q diag(s)^-1/2 are orthonormal, and X B has L columns
that are independent given U: column l is a separate linear-Gaussian feature model with weights
(WQ)_kl sqrt(s_l), of variance s_W^2 s_l. What of X lies outside B is noise, whatever U. So rows
come and go as in `gaussian`, with one (M, mu) for each of the L turned columns: q_l = s_W^2 s_l /
s_X^2 takes the place of 1/r, and turned columns of strength q_l = 0 (free slots of V, or columns
that depend on others) drop out by themselves. A row of U costs O(L K^2), whatever I and J.

Where cells of a row are missing, its turned columns are no longer independent: with B_o the
observed rows of B and D = diag(z M_l z), the observed cells are N(B_o mu'z', s_X^2 (I + B_o D
B_o')), whose density takes an elimination of an (L, L) matrix.

Arrays over turned columns have them on their last axis.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf._kernels.linalg import eliminate
from jaxmf.likelihoods import gaussian
from jaxmf.types import Array

_COLUMNS_A_PIECE = 4096


class Turned(NamedTuple):
    """The columns that X is turned into, given V."""

    basis: Array  # (J, L) float, B; zero where there is no strength
    vectors: Array  # (L, L) float, Q
    strength: Array  # (L,) float, q
    prior_mean: Array  # (K, L) float, of the weights (WQ)_kl sqrt(s_l)


class TurnedPosterior(NamedTuple):
    """The weights of every turned column given U and X: normal, up to the noise variance."""

    spread: Array  # (K, K, L) float, M_l = (U'U + I / q_l)^-1
    mean: Array  # (K, L) float, mu


def turn(
    v: Array, *, noise_scale: Array, weight_scale: Array, weight_mean: Array | float, num_slots: int
) -> Turned:
    """The columns that X is turned into.

    Args: v (J, L) bool; weight_mean: broadcasts to (K, L).
    """
    dtype = jnp.result_type(noise_scale, weight_scale)
    v_float = v.astype(dtype)
    num_turned = v.shape[1]
    values, vectors = jnp.linalg.eigh(v_float.T @ v_float)
    # below this an eigenvalue is the rounding of a zero
    kept = values > num_turned * jnp.finfo(dtype).eps * jnp.max(values, initial=0)
    length = jnp.sqrt(jnp.where(kept, values, 0))
    mean = jnp.broadcast_to(jnp.asarray(weight_mean, dtype), (num_slots, num_turned))
    return Turned(
        basis=(v_float @ vectors) * jnp.where(kept, 1 / jnp.where(kept, length, 1), 0),
        vectors=vectors,
        strength=(weight_scale / noise_scale) ** 2 * length**2,
        prior_mean=(mean @ vectors) * length,
    )


def turned_posterior(gram: Array, cross: Array, turned: Turned) -> TurnedPosterior:
    """(M, mu) by Cholesky decompositions, from U'U (K, K) and U'XB (K, L).

    M_l = q_l (I + q_l U'U)^-1, which a strength of zero leaves defined. By eigenvectors where one
    of them has too few digits.
    """
    identity = jnp.eye(gram.shape[0], dtype=gram.dtype)
    strength = turned.strength[:, None, None]
    penalised = identity + strength * gram
    factor = jnp.linalg.cholesky(penalised)
    inverse = jax.vmap(lambda one: jax.scipy.linalg.cho_solve((one, True), identity))(factor)
    spread = jnp.moveaxis(strength * inverse, 0, -1)
    error = cross - gram @ turned.prior_mean
    mean = turned.prior_mean + jnp.einsum("kml,ml->kl", spread, error)
    return gaussian.anew_unless(
        jnp.all(jax.vmap(gaussian.pivots_have_digits)(factor, penalised)),
        lambda no: _posterior_of_any_strength(jnp.where(no, 0, gram), cross, turned),
        TurnedPosterior(spread, mean),
    )


def _posterior_of_any_strength(gram: Array, cross: Array, turned: Turned) -> TurnedPosterior:
    """The same posterior by the eigenvectors of U'U, which all turned columns share.

    I + q U'U has no inverse in single precision where q is 1e6; this has one: the zeros among the
    eigenvalues stand out from rounding.
    """
    eigenvalues, vectors, inverse = gaussian.spectrum_of_gram(gram)
    is_above = (inverse > 0)[:, None]
    shrunk = turned.strength / (1 + jnp.where(is_above, eigenvalues[:, None], 0) * turned.strength)
    error = jnp.where(is_above, vectors.T @ (cross - gram @ turned.prior_mean), 0)
    spread = (vectors[:, None] * vectors) @ shrunk
    mean = turned.prior_mean + vectors @ (shrunk * error)
    return TurnedPosterior(spread, mean)


def times_z(spread: Array, z: Array) -> Array:
    """M_l z (K, L), as a sum of products that can be fused with what stands around it."""
    return jnp.sum(spread * z[:, None], axis=1)


def remove_row(
    posterior: TurnedPosterior,
    z: Array,
    alone: Array,
    x: Array,
    turned: Turned,
    others: Callable[[Array], tuple[Array, Array]],
) -> TurnedPosterior:
    """(M, mu) after a row with features z (K,) float and turned cells x (L,) has gone.

    The features that this row alone has, `alone` (K,) float, are summed out of the row first: the
    others then see it with noise 1 + n q_l. So nothing is divided by the small number that is left
    of such a feature, and its slot goes back to the prior exactly.

    Where only this row tells some of its features apart from others, 1 - z M z is next to nothing,
    a difference of numbers up to q: (M, mu) is then computed anew from U'U and U'XB of the
    `others`. Without that M grew to 1e20 at strengths of 5e3 and chains asked for hundreds of
    features.
    """
    spread, mean = posterior
    shared = z - alone
    m_z = times_z(spread, shared)
    noise = 1 + jnp.sum(alone) * turned.strength
    room = noise - shared @ m_z
    # computed anew it needs no update
    (spread, mean), m_z, room = gaussian.anew_unless(
        jnp.all(gaussian.row_has_digits(room, noise, shared, jnp.diagonal(spread).T)),
        lambda no: (_posterior_of_any_strength(*others(no), turned), jnp.zeros_like(m_z), noise),
        (posterior, m_z, room),
    )
    # M of the other rows is at most q I, so this is at least that: rounding cannot make it zero
    gain = m_z / jnp.maximum(room, 1 / (1 + jnp.sum(shared) * turned.strength))
    shift = gain * (x - shared @ mean - alone @ turned.prior_mean)
    return TurnedPosterior(spread + m_z[:, None] * gain, mean - shift)


def reset_slots(posterior: TurnedPosterior, free: Array, turned: Turned) -> TurnedPosterior:
    """(M, mu) with the slots `free` (K,) bool put back to the prior, exactly."""
    spread, mean = posterior
    prior = jnp.eye(free.shape[0], dtype=spread.dtype)[:, :, None] * turned.strength
    return posterior._replace(
        spread=jnp.where((free[:, None] | free)[:, :, None], prior, spread),
        mean=jnp.where(free[:, None], turned.prior_mean, mean),
    )


def add_row(
    posterior: TurnedPosterior, z: Array, alone: Array, x: Array, turned: Turned
) -> TurnedPosterior:
    """(M, mu) after a row with features z (K,) float and turned cells x (L,) has come.

    `alone` (K,) float are the features of z whose slots are at the prior. The new variance of such
    a feature, q - q^2 / (1 + h), is written without a difference of large numbers.
    """
    spread, mean = posterior
    shared = z - alone
    m_shared = times_z(spread, shared)
    inflation_shared = shared @ m_shared
    strength, num_alone = turned.strength, jnp.sum(alone)
    m_z = m_shared + alone[:, None] * strength
    total = 1 + inflation_shared + num_alone * strength
    gain = m_z / total
    variance = strength * (1 + inflation_shared + (num_alone - 1) * strength) / total
    diagonal = jnp.diag(alone)[:, :, None] > 0
    return TurnedPosterior(
        spread=jnp.where(diagonal, variance, spread - m_z[:, None] * gain),
        mean=mean + gain * (x - z @ mean),
    )


def observed_grams(seen: Array, basis: Array) -> Array:
    """B_o'B_o (R, L, L) of rows with observed cells `seen` (R, J) bool, a piece of B at a time."""
    num_columns, num_turned = basis.shape
    size = min(_COLUMNS_A_PIECE, num_columns)

    def add_piece(piece: Array, total: Array) -> Array:
        start, first = gaussian.piece_start(piece, size, num_columns)
        part = jax.lax.dynamic_slice_in_dim(basis, start, size)
        part = jnp.where((start + jnp.arange(size) >= first)[:, None], part, 0)
        pairs = (part[:, :, None] * part[:, None, :]).reshape(size, -1)
        weight = jax.lax.dynamic_slice_in_dim(seen, start, size, axis=1)
        return total + weight.astype(basis.dtype) @ pairs

    empty = jnp.zeros((seen.shape[0], num_turned**2), basis.dtype)
    total = jax.lax.fori_loop(0, -(-num_columns // size), add_piece, empty)
    return total.reshape(-1, num_turned, num_turned)


def density_terms(
    gap: Array, squares: Array, inflation: Array, gram: Array | None, noise_variance: Array
) -> tuple[Array, Array]:
    """Log determinant and squares of the density of a row's observed cells given the other rows.

    log p(observed cells | features, other rows) is minus half their sum, up to a constant.

    Args: gap (..., L) float, B_o'(x - B mu'z'); squares (...) float, |x - B mu'z'|^2 over o, not
    looked at where nothing is missing; inflation (..., L) float, the diagonal of D; gram (L, L)
    float, B_o'B_o, or None where nothing is missing.
    Returns two arrays (...) float.
    """
    if gram is None:
        # M has rounding where the noise is next to nothing, and z M z is not negative: at -1 a row
        # would fit so badly that no number of new features were enough
        variance = 1 + jnp.maximum(inflation, 0)
        return (
            jnp.sum(jnp.log(variance), axis=-1),
            jnp.sum(gap**2 / (noise_variance * variance), axis=-1),
        )
    half = jnp.sqrt(jnp.maximum(inflation, 0))
    middle = half[..., :, None] * gram * half[..., None, :] + jnp.eye(
        gram.shape[0], dtype=gram.dtype
    )
    log_determinant, left = eliminate(middle, half * gap, squares)
    return log_determinant, left / noise_variance
