"""The bilinear likelihood X = U W V' + noise with its weights summed out.

U (I, K) and V (J, L) are binary, the entries of W independent N(w0, s_W^2), of the noise
N(0, s_X^2). With r = s_X^2 / s_W^2 and the eigendecompositions U'U = P diag(t) P' and
V'V = Q diag(s) Q', the entries of P'WQ are independent given X: precision (t_k s_l + r) / s_X^2.
So everything costs O(K^3 + L^3) beyond the products U'U, V'V and U'XV, and no matrix over pairs of
features is ever made. X must be complete: missing cells imputed.

Free slots of U and V are columns of zeros: they have eigenvalue 0, keep the prior, and drop out of
the likelihood by themselves.

`weight_mean` is w0: (), (K, L), or anything that broadcasts to (K, L).

Source: Meeds, Ghahramani, Neal & Roweis (2006), section 3.1, whose (theta V'V (x) U'U + phi I) is
solved here in its eigenbasis; theta = 1 / s_X^2, phi = 1 / s_W^2.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from jaxmf import slots
from jaxmf._kernels.linalg import after
from jaxmf.likelihoods import gaussian
from jaxmf.likelihoods.spectrum import Spectrum, log_density
from jaxmf.types import Array, Key


class CollapsedWeightConditional(NamedTuple):
    """The distribution of W given U, V and X, up to the noise variance."""

    mean: Array  # (K, L) float, of W
    row_vectors: Array  # (K, K) float, P, the eigenvectors of U'U in its columns
    row_values: Array  # (K,) float, t
    column_vectors: Array  # (L, L) float, Q, those of V'V
    column_values: Array  # (L,) float, s
    ratio: Array  # () float, r

    @property
    def precisions(self) -> Array:
        """t_k s_l + r, (K, L): entry (k, l) of P'WQ has the variance s_X^2 over it."""
        return self.row_values[:, None] * self.column_values + self.ratio


def _statistics(u: Array, v: Array, x: Array) -> tuple[Array, Array, Array]:
    """U'U (K, K), V'V (L, L) and U'XV (K, L)."""
    row_gram, cross = gaussian.gram_statistics(u, x)
    v_float = v.astype(x.dtype)
    return row_gram, v_float.T @ v_float, cross @ v_float


def _whole_mean(weight_mean: Array | float, like: Array) -> Array:
    return jnp.broadcast_to(jnp.asarray(weight_mean, like.dtype), like.shape)


def weight_conditional(
    u: Array,
    v: Array,
    x: Array,
    *,
    noise_scale: Array,
    weight_scale: Array,
    weight_mean: Array | float = 0.0,
) -> CollapsedWeightConditional:
    """The distribution of W given U, V and complete X.

    vec W ~ N(w0 + (V'V (x) U'U + r I)^-1 vec U'(X - U w0 V')V, s_X^2 (V'V (x) U'U + r I)^-1).

    Args: u (I, K) bool; v (J, L) bool; x (I, J) float; noise_scale () float, s_X; weight_scale ()
    float, s_W; weight_mean: w0.
    """
    row_gram, column_gram, cross = _statistics(u, v, x)
    centre = _whole_mean(weight_mean, cross)
    row_values, row_vectors = jnp.linalg.eigh(row_gram)
    column_values, column_vectors = jnp.linalg.eigh(after(column_gram, row_values))
    row_values, column_values = jnp.maximum(row_values, 0), jnp.maximum(column_values, 0)
    ratio = jnp.asarray((noise_scale / weight_scale) ** 2, x.dtype)
    gap = row_vectors.T @ (cross - row_gram @ centre @ column_gram) @ column_vectors
    change = gap / (row_values[:, None] * column_values + ratio)
    return CollapsedWeightConditional(
        mean=centre + row_vectors @ change @ column_vectors.T,
        row_vectors=row_vectors,
        row_values=row_values,
        column_vectors=column_vectors,
        column_values=column_values,
        ratio=ratio,
    )


def sample_weights(key: Key, conditional: CollapsedWeightConditional, noise_scale: Array) -> Array:
    """W (K, L) from its conditional distribution; weights of free slots come from the prior."""
    num_rows, num_columns = conditional.mean.shape
    normals = slots.normals(key, num_rows, num_columns, conditional.mean.dtype)
    turned = conditional.row_vectors.T @ normals @ conditional.column_vectors
    deviation = noise_scale / jnp.sqrt(conditional.precisions)
    return (
        conditional.mean
        + conditional.row_vectors @ (turned * deviation) @ conditional.column_vectors.T
    )


def draw_weights(
    key: Key,
    u: Array,
    v: Array,
    x: Array,
    *,
    noise_scale: Array,
    weight_scale: Array,
    weight_mean: Array | float = 0.0,
) -> Array:
    """W (K, L) given U, V and complete X; `weight_conditional` says from which distribution.

    Args: u, v, x, noise_scale, weight_scale, weight_mean: as in `weight_conditional`.
    """
    conditional = weight_conditional(
        u, v, x, noise_scale=noise_scale, weight_scale=weight_scale, weight_mean=weight_mean
    )
    return sample_weights(key, conditional, noise_scale)


def cell_moments(
    conditional: CollapsedWeightConditional, u_rows: Array, v_rows: Array, noise_scale: Array
) -> tuple[Array, Array]:
    """Predictive mean and variance of cells, W summed out.

    A cell with features u, v is N(u E[W] v', s_X^2 (1 + sum_kl (uP)_k^2 (vQ)_l^2 / (t_k s_l + r))).

    Args: u_rows (M, K) bool or float, the features of the row of each cell; v_rows (M, L) bool or
    float, the features of its column; noise_scale () float, s_X.
    Returns mean (M,) and variance (M,), the noise included.
    """
    u_rows, v_rows = u_rows.astype(conditional.mean.dtype), v_rows.astype(conditional.mean.dtype)
    mean = jnp.sum((u_rows @ conditional.mean) * v_rows, axis=1)
    u_squares = (u_rows @ conditional.row_vectors) ** 2
    v_squares = (v_rows @ conditional.column_vectors) ** 2
    inflation = jnp.sum((u_squares @ (1 / conditional.precisions)) * v_squares, axis=1)
    return mean, noise_scale**2 * (1 + inflation)


def spectrum(u: Array, v: Array, x: Array, *, weight_mean: Array | float = 0.0) -> Spectrum:
    """The statistics of the collapsed likelihood, which do not depend on the scales.

    Args: u, v, x, weight_mean: as in `weight_conditional`.
    """
    row_gram, column_gram, cross = _statistics(u, v, x)
    centre = _whole_mean(weight_mean, cross)
    fitted = row_gram @ centre @ column_gram
    row_values, row_vectors = jnp.linalg.eigh(row_gram)
    column_values, column_vectors = jnp.linalg.eigh(after(column_gram, row_values))
    eigenvalues = jnp.maximum(row_values, 0)[:, None] * jnp.maximum(column_values, 0)
    is_positive = above_rounding(row_values)[:, None] & above_rounding(column_values)
    turned = row_vectors.T @ (cross - fitted) @ column_vectors
    change = jnp.where(is_positive, turned / jnp.where(is_positive, eigenvalues, 1), 0)
    weights = centre + row_vectors @ change @ column_vectors.T
    fit = (u.astype(x.dtype) @ weights) @ v.astype(x.dtype).T
    return spectrum_of_fit(eigenvalues, turned, is_positive, x, fit)


def spectrum_of_fit(
    eigenvalues: Array, turned: Array, is_positive: Array, x: Array, fit: Array
) -> Spectrum:
    """The statistics of data x (I, J), fitted by the effects that are not zero up to rounding."""
    return Spectrum(
        eigenvalues=jnp.where(is_positive, eigenvalues, 0),
        projections=jnp.where(is_positive, turned**2, 0),
        is_removed=is_positive,
        residual=jnp.sum((x - fit) ** 2),
        num_cells=jnp.asarray(x.size, x.dtype),
        num_copies=jnp.ones((), x.dtype),
    )


def above_rounding(eigenvalues: Array) -> Array:
    """Which eigenvalues (K,) of a matrix of counts are not zero up to rounding, (K,) bool."""
    rounding = 4 * jnp.finfo(eigenvalues.dtype).eps * jnp.maximum(jnp.max(eigenvalues), 1)
    return eigenvalues > jnp.minimum(rounding, 0.25)


def log_marginal(
    u: Array,
    v: Array,
    x: Array,
    *,
    noise_scale: Array,
    weight_scale: Array,
    weight_mean: Array | float = 0.0,
    spectrum_fn: Callable[..., Spectrum] = spectrum,
) -> Array:
    """log p(X | U, V) with W summed out, () float; that of the plaid model by its `spectrum`.

    X has covariance s_X^2 I + s_W^2 VV' (x) UU', with eigenvalues s_X^2 + s_W^2 t_k s_l.

    Args: u, v, x, noise_scale, weight_scale, weight_mean: as in `weight_conditional`.
    """
    return log_density(spectrum_fn(u, v, x, weight_mean=weight_mean), noise_scale, weight_scale)
