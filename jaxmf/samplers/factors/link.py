"""The link of features to factors: a regression of the vectors of a side on its features.

    U_i = mu + B' x_i + e_i,  e_i ~ N(0, Sigma)
    B | Sigma ~ N(0, I / lambda, Sigma)          (F, D), rows independent

Where groups have means and covariances of their own, U_i = mu_g(i) + B' x_i + e_i with
e_i ~ N(0, Sigma_g(i)), and B ~ N(0, I / lambda) has none of them.

Source: Simm et al. (2017), Macau, eqs 4 to 7, with the F x F system solved exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from jaxmf.data import Features
from jaxmf.likelihoods.families.multivariate_normal import Parameters, Wisharts
from jaxmf.linalg import after
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.samplers.factors.law import precisions
from jaxmf.samplers.hyper import update_rate
from jaxmf.special import as_normals, uniforms
from jaxmf.types import Array, Key


class Link(NamedTuple):
    """How vectors depend on features.

    Attributes:
      weights: (F, D) float, B.
      precision: () float, lambda.
    """

    weights: Array
    precision: Array


def with_link(statistics: Wisharts, link: Link) -> Wisharts:
    """The posterior of mean and covariance of U - X B, to which B belongs too.

    Each of the F rows of B is one more value of the covariance, of known mean zero. Only the
    degrees of freedom count them: give the prior's raised by F.
    """
    spread = link.precision * link.weights.T @ link.weights
    return statistics._replace(scale=statistics.scale + spread)


def update_link(
    key: Key,
    link: Link,
    *,
    vectors: Array,
    features: Features,
    law: Parameters,
    precision_prior: Hyperparameter,
) -> Link:
    """B given lambda, mean and covariance, then lambda given B.

    Args:
      key: typed PRNG key.
      link: the present one.
      vectors: (N, D) float, U.
      features: N x F.
      law: of one group: mean (1, D) and factor (1, D, D).
      precision_prior: of lambda.
    """
    weights_key, precision_key = jax.random.split(key)
    width, size = link.weights.shape
    factor = law.factor[0]
    identity = jnp.eye(width, dtype=vectors.dtype)
    root = jax.lax.linalg.cholesky(
        after(features.gram(), factor) + link.precision * identity, symmetrize_input=False
    )
    normals = as_normals(uniforms(weights_key, (width, size))) @ factor.T
    half = solve_triangular(root, features.transpose_times(vectors - law.mean), lower=True)
    weights = solve_triangular(root, half + normals, lower=True, trans="T")
    scaled = solve_triangular(after(factor, weights), weights.T, lower=True)
    precision = update_rate(
        precision_key,
        precision_prior,
        link.precision,
        power=jnp.asarray(width * size / 2, vectors.dtype),
        total=jnp.sum(scaled**2) / 2,
    )
    return Link(weights, precision)


def update_link_of_groups(
    key: Key,
    link: Link,
    *,
    vectors: Array,
    features: Features,
    law: Parameters,
    groups: Array,
    precision_prior: Hyperparameter,
) -> Link:
    """B given lambda and the laws of the groups, then lambda given B.

    One column of B after the other given the rest: column d has the precision
    sum_i P_i[d, d] x_i x_i' + lambda I, P_i that of the group of i.

    Args:
      key: typed PRNG key.
      link: the present one.
      vectors: (N, D) float, U.
      features: N x F.
      law: of the groups: means (G, D) and factors (G, D, D).
      groups: (N,) int32.
      precision_prior: of lambda.
    """
    weights_key, precision_key = jax.random.split(key)
    width, size = link.weights.shape
    inverses = precisions(law)
    identity = jnp.eye(width, dtype=vectors.dtype)
    normals = as_normals(uniforms(weights_key, (size, width)))

    def update_column(column: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        weights, residuals = carry
        lines = inverses[:, column][groups]
        pull = jnp.sum(lines * residuals, axis=1, keepdims=True)
        gram = features.gram(lines[:, column])
        root = jax.lax.linalg.cholesky(gram + link.precision * identity, symmetrize_input=False)
        side = features.transpose_times(pull)[:, 0] - link.precision * weights[:, column]
        half = solve_triangular(root, side, lower=True) + normals[column]
        change = solve_triangular(root, half, lower=True, trans="T")
        apart = features.times(change[:, None])[:, 0]
        return weights.at[:, column].add(change), residuals.at[:, column].add(-apart)

    start = link.weights, vectors - law.mean[groups] - features.times(link.weights)
    weights, _ = jax.lax.fori_loop(0, size, update_column, start)
    precision = update_rate(
        precision_key,
        precision_prior,
        link.precision,
        power=jnp.asarray(width * size / 2, vectors.dtype),
        total=jnp.sum(weights**2) / 2,
    )
    return Link(weights, precision)
