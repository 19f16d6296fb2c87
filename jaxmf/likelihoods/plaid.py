"""The plaid likelihood, a bilinear one with diagonal W: X = sum_k w_k u_k v_k' + noise.

u_k (I) and v_k (J) are columns of U (I, K) and V (J, K), the w_k independent N(w0_k, s_W^2), the
noise N(0, s_X^2). The design has the K columns u_k (x) v_k, whose Gram matrix is H = (U'U) * (V'V),
entry by entry: with r = s_X^2 / s_W^2 the weights have precision (H + r I) / s_X^2. X must be
complete: missing cells imputed. Layers without a one on either side keep the prior and drop out.

`weight_mean` is w0: () or (K,). The rest is as of the bilinear likelihood.

Source: the bilinear model of Meeds, Ghahramani, Neal & Roweis (2006) with W diagonal, which is the
plaid model of Lazzeroni & Owen (2002).
"""

import jax.numpy as jnp

from jaxmf.likelihoods import gaussian
from jaxmf.likelihoods.bilinear import above_rounding, spectrum_of_fit
from jaxmf.likelihoods.spectrum import Spectrum
from jaxmf.types import Array


def design_statistics(u: Array, v: Array, x: Array) -> tuple[Array, Array]:
    """H (K, K), and the products (K,) of the design with X, u_k'X v_k.

    Args: u (I, K) bool; v (J, K) bool; x (I, J) float.
    """
    row_gram, cross = gaussian.gram_statistics(u, x)
    v_float = v.astype(x.dtype)
    return row_gram * (v_float.T @ v_float), jnp.sum(cross * v_float.T, axis=1)


def spectrum(u: Array, v: Array, x: Array, *, weight_mean: Array | float = 0.0) -> Spectrum:
    """The statistics of the likelihood with w summed out, which do not depend on the scales.

    X has covariance s_X^2 I + s_W^2 sum_k (u_k u_k') (x) (v_k v_k'), with the eigenvalues
    s_X^2 + s_W^2 h beside s_X^2, h those of H.

    Args: u (I, K) bool; v (J, K) bool; x (I, J) float; weight_mean: w0.
    Returns Spectrum, its eigenvalues and projections (K,).
    """
    gram, cross = design_statistics(u, v, x)
    centre = jnp.broadcast_to(jnp.asarray(weight_mean, x.dtype), cross.shape)
    fitted = gram @ centre
    values, vectors = jnp.linalg.eigh(gram)
    is_positive = above_rounding(values)
    turned = vectors.T @ (cross - fitted)
    change = jnp.where(is_positive, turned / jnp.where(is_positive, values, 1), 0)
    weights = centre + vectors @ change
    fit = (u.astype(x.dtype) * weights) @ v.astype(x.dtype).T
    return spectrum_of_fit(values, turned, is_positive, x, fit)
