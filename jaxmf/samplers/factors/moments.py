"""The normal prior of the vectors of a side: its means and covariances, and their prior.

    U_i ~ N(mu + B' x_i, Sigma)        (mu, Sigma) ~ normal-inverse-Wishart   (eq 6.21, 6.22)
    B ~ N(0, I / lambda, Sigma)        lambda ~ Gamma                         (Simm et al., eq 4)

B, the link, is there when the side has features that its factors depend on: so a row never seen in
training has a prior of its own.

Source: Porteous (2010), eqs 6.26 to 6.28; Simm et al. (2017), Macau: scalable Bayesian
multi-relational factorization with side information using MCMC, section 3.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import multigammaln

from jaxmf.likelihoods.families.multivariate_normal import (
    NormalInverseWishart,
    NormalParameters,
    Wisharts,
)
from jaxmf.row_shards import sum_over_rows
from jaxmf.types import Array


def statistics_of_all(prior: NormalInverseWishart, values: Array) -> Wisharts:
    """The posterior of mean and covariance given all values (N, D), as one group (eq 6.27, 6.28).

    As `prior.statistics`, without a product for every value.
    """
    num_values = values.shape[0]
    shifted = values - prior.location
    mean = sum_over_rows(lambda rows: jnp.sum(rows, axis=0), (shifted,)) / num_values
    residuals = shifted - mean
    share = num_values / (prior.weight + num_values)
    spread = sum_over_rows(lambda rows: rows.T @ rows, (residuals,))
    spread += prior.weight * share * jnp.outer(mean, mean)
    return Wisharts(
        number=jnp.full((1,), num_values, jnp.int32),
        location=(prior.location + share * mean)[None],
        scale=(prior.scale + spread)[None],
    )


def precisions(moments: NormalParameters) -> Array:
    """Inverses of the covariances, (G, D, D) float."""
    identity = jnp.broadcast_to(
        jnp.eye(moments.mean.shape[1], dtype=moments.mean.dtype), moments.factor.shape
    )
    half = jax.lax.linalg.triangular_solve(moments.factor, identity, left_side=True, lower=True)
    return jnp.swapaxes(half, -1, -2) @ half


def log_hyperprior(prior: NormalInverseWishart, moments: NormalParameters, inverse: Array) -> Array:
    """log p(mu, Sigma) of every group, (G,) float.

    Args: moments (G, D) means and (G, D, D) factors; inverse (G, D, D), `precisions(moments)`.
    """
    size = moments.mean.shape[1]
    determinant = log_determinant(moments)
    deviations = moments.mean - prior.location
    distance = prior.weight * jnp.einsum("gd,gde,ge->g", deviations, inverse, deviations)
    mean = size * (jnp.log(prior.weight) - jnp.log(2 * jnp.pi)) - determinant - distance
    degrees = jnp.asarray(prior.degrees, moments.mean.dtype)
    scale_determinant = jnp.linalg.slogdet(jnp.asarray(prior.scale, moments.mean.dtype))[1]
    covariance = degrees * (scale_determinant - size * jnp.log(2.0)) / 2 - multigammaln(
        degrees / 2, size
    )
    covariance -= (degrees + size + 1) / 2 * determinant
    covariance -= jnp.einsum("de,ged->g", prior.scale, inverse) / 2
    return mean / 2 + covariance


def log_determinant(moments: NormalParameters) -> Array:
    """log|Sigma| of every group: (G,) float."""
    return 2 * jnp.sum(jnp.log(jnp.diagonal(moments.factor, axis1=-2, axis2=-1)), axis=-1)
