"""The plaid likelihood, a bilinear one with diagonal W: X = sum_k w_k u_k v_k' + noise.

u_k (I) and v_k (J) are columns of U (I, K) and V (J, K), the w_k independent N(w0_k, s_W^2), the
noise N(0, s_X^2). The design has the K columns u_k (x) v_k, whose Gram matrix is H = (U'U) * (V'V),
entry by entry: with r = s_X^2 / s_W^2 the weights have precision (H + r I) / s_X^2. X must be
complete: missing cells imputed. Layers without a one on either side keep the prior and drop out.

`weight_mean` is w0: a number or (K,).

Source: the bilinear model of Meeds, Ghahramani, Neal & Roweis (2006) with W diagonal, which is the
plaid model of Lazzeroni & Owen (2002).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf.likelihoods import gaussian
from jaxmf.types import Array, Key


class WeightLaw(NamedTuple):
    """The law of w given U, V and X, up to the noise variance.

    Attributes:
      mean: (K,) float.
      vectors: (K, K) float, the eigenvectors of H in its columns.
      values: (K,) float, its eigenvalues; along an eigenvector w has variance s_X^2 / (h + r).
      ratio: () float, r.
    """

    mean: Array
    vectors: Array
    values: Array
    ratio: Array


def design_statistics(u: Array, v: Array, x: Array) -> tuple[Array, Array]:
    """H (K, K), and the products (K,) of the design with X, u_k'X v_k.

    Args:
      u: (I, K) bool.
      v: (J, K) bool.
      x: (I, J) float.
    """
    row_gram, cross = gaussian.gram_statistics(u, x)
    v_float = v.astype(x.dtype)
    return row_gram * (v_float.T @ v_float), jnp.sum(cross * v_float.T, axis=1)


def weight_law(
    u: Array,
    v: Array,
    x: Array,
    *,
    noise_scale: Array,
    weight_scale: Array,
    weight_mean: Array | float = 0.0,
) -> WeightLaw:
    """The law of w given U, V and complete X: N(w0 + (H + r I)^-1 (b - H w0), s_X^2 (H + r I)^-1).

    Args:
      u: (I, K) bool.
      v: (J, K) bool.
      x: (I, J) float.
      noise_scale: () float, s_X.
      weight_scale: () float, s_W.
      weight_mean: w0.

    Returns:
      WeightLaw.
    """
    gram, cross = design_statistics(u, v, x)
    centre = jnp.broadcast_to(jnp.asarray(weight_mean, x.dtype), cross.shape)
    values, vectors = jnp.linalg.eigh(gram)
    values = jnp.maximum(values, 0)
    ratio = jnp.asarray((noise_scale / weight_scale) ** 2, x.dtype)
    change = (vectors.T @ (cross - gram @ centre)) / (values + ratio)
    return WeightLaw(mean=centre + vectors @ change, vectors=vectors, values=values, ratio=ratio)


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
    """w (K,) given U, V and complete X; those of layers without ones come from the prior.

    Args:
      key: typed PRNG key.
      u, v, x, noise_scale, weight_scale, weight_mean: as in `weight_law`.
    """
    law = weight_law(
        u, v, x, noise_scale=noise_scale, weight_scale=weight_scale, weight_mean=weight_mean
    )
    normals = jax.random.normal(key, law.mean.shape, law.mean.dtype)
    deviation = noise_scale / jnp.sqrt(law.values + law.ratio)
    return law.mean + law.vectors @ (deviation * (law.vectors.T @ normals))


def cell_moments(
    law: WeightLaw, u_rows: Array, v_rows: Array, noise_scale: Array
) -> tuple[Array, Array]:
    """Predictive mean and variance of cells, w summed out, each (M,), the noise included.

    Args:
      law: of w.
      u_rows: (M, K) bool or float, the features of the row of each cell.
      v_rows: (M, K) bool or float, the features of its column.
      noise_scale: () float, s_X.
    """
    design = u_rows.astype(law.mean.dtype) * v_rows.astype(law.mean.dtype)
    inflation = jnp.sum((design @ law.vectors) ** 2 / (law.values + law.ratio), axis=1)
    return design @ law.mean, noise_scale**2 * (1 + inflation)


def log_marginal(
    u: Array,
    v: Array,
    x: Array,
    *,
    noise_scale: Array,
    weight_scale: Array,
    weight_mean: Array | float = 0.0,
) -> Array:
    """log p(X | U, V) with w summed out, () float.

    X has covariance s_X^2 I + s_W^2 sum_k (u_k u_k') (x) (v_k v_k').

    Args:
      u, v, x, noise_scale, weight_scale, weight_mean: as in `weight_law`.
    """
    gram, cross = design_statistics(u, v, x)
    centre = jnp.broadcast_to(jnp.asarray(weight_mean, x.dtype), cross.shape)
    noise_variance = noise_scale**2
    ratio = noise_variance / weight_scale**2
    values, vectors = jnp.linalg.eigh(gram)
    values = jnp.maximum(values, 0)
    fitted = gram @ centre
    total = jnp.sum(x**2) - (2 * cross - fitted) @ centre
    explained = jnp.sum((vectors.T @ (cross - fitted)) ** 2 / (values + ratio))
    log_determinant = x.size * jnp.log(2 * jnp.pi * noise_variance)
    log_determinant = log_determinant + jnp.sum(jnp.log1p(values / ratio))
    return -0.5 * (log_determinant + (total - explained) / noise_variance)
