"""The link of features to factors: a regression of the vectors of a side on its features.

    U_i = mu + sum_p B_p' x_ip + e_i,  e_i ~ N(0, Sigma)
    B_p | Sigma ~ N(0, I / lambda_p, Sigma)      (F_p, D), rows independent

Features come in parts (`Features`), each with a precision of its own: a block of five thousand
indicators and one of three numbers have little in common.

Where groups have means and covariances of their own, U_i = mu_g(i) + B' x_i + e_i with
e_i ~ N(0, Sigma_g(i)), and B_p ~ N(0, I / lambda_p) has none of them.

Source: Simm et al. (2017), Macau, eqs 4 to 7, with a precision for every part instead of one
for all, and the system of each part solved exactly, by eigenvectors found once a run.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from jaxmf._kernels.linalg import after
from jaxmf._kernels.special import as_normals, uniforms
from jaxmf.data import Features
from jaxmf.likelihoods.families.multivariate_normal import NormalParameters, Wisharts
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.samplers.factors.moments import precisions
from jaxmf.samplers.hyper import update_rate
from jaxmf.types import Array, Key

_ROUNDING = 84.0  # in units of the last digit; 1e-5 with 32-bit floats


class Link(NamedTuple):
    """How vectors depend on features."""

    weights: Array  # (F, D) float, B
    precision: Array  # (P,) float, lambda of every part


class FeatureSpectrum(NamedTuple):
    """Eigenvectors and eigenvalues of the Gram matrix of a part of the features, X (N, F)."""

    vectors: Array  # orthonormal eigenvectors of X'X (F, F), or of XX' (N, N) where that is smaller
    values: Array  # their eigenvalues
    # () float, what every line of the part sums to, as one level a line does; 0 where lines differ
    total: Array


def spectra(features: Features) -> tuple[FeatureSpectrum, ...]:
    """The spectrum of every part of features (N, F); of the order of min(N, F)^3 a part."""
    found: list[FeatureSpectrum] = []
    is_tall = features.is_sparse and min(features.parts) <= features.num_rows
    gram = features.gram() if is_tall else None
    for part in slices(features):
        if part.stop - part.start > features.num_rows:
            dense = _columns(features, part)
            product = dense @ dense.T
        elif gram is None:
            dense = _columns(features, part)
            product = dense.T @ dense
        else:
            product = gram[part, part]
        if found:
            product = after(product, found[-1].values)
        values, vectors = jnp.linalg.eigh(product, symmetrize_input=False)
        found.append(FeatureSpectrum(vectors, jnp.maximum(values, 0), _total(features, part)))
    return tuple(found)


def _total(features: Features, part: slice) -> Array:
    ones = jnp.ones((part.stop - part.start, 1), features.values.dtype)
    sums = _times(features, part, ones)[:, 0]
    # rounding of the sums, and of what was standardised before, in the floats that they are in
    tolerance = _ROUNDING * float(jnp.finfo(sums.dtype).eps)
    is_shared = jnp.max(sums) - jnp.min(sums) < tolerance * jnp.abs(sums[0])
    return jnp.where(is_shared, jnp.mean(sums), 0)


def slices(features: Features) -> list[slice]:
    """The columns of every part."""
    ends = [0, *itertools.accumulate(features.parts)]
    return [slice(start, stop) for start, stop in itertools.pairwise(ends)]


def per_column(features: Features, precision: Array) -> Array:
    """The precision of every column (F,), of those of the parts (P,)."""
    return precision[np.repeat(np.arange(len(features.parts)), features.parts)]


def with_link(statistics: Wisharts, link: Link, features: Features) -> Wisharts:
    """The posterior of mean and covariance of U - X B, to which B belongs too.

    Each of the F rows of B is one more value of the covariance, of known mean zero. Only the
    degrees of freedom count them: give the prior's raised by F.
    """
    scaled = per_column(features, link.precision)[:, None] * link.weights
    return statistics._replace(scale=statistics.scale + link.weights.T @ scaled)


def update_link(
    key: Key,
    link: Link,
    *,
    vectors: Array,
    features: Features,
    spectra: tuple[FeatureSpectrum, ...],
    moments: NormalParameters,
    precision_prior: Hyperparameter,
) -> Link:
    """B of one part after the other given lambda, mean and covariance, then lambda given B.

    Args: vectors (N, D) float, U; moments: of one group: mean (1, D) and factor (1, D, D).
    """
    weights_key, precision_key = jax.random.split(key)
    num_rows, size = vectors.shape
    factor, parts = moments.factor[0], slices(features)
    sizes = [width + (num_rows if width > num_rows else 0) for width in features.parts]
    flat = as_normals(uniforms(weights_key, (sum(sizes), size))) @ factor.T
    normals = jnp.split(flat, list(itertools.accumulate(sizes))[:-1])
    residuals = vectors - moments.mean - features.times(link.weights)
    drawn: list[Array] = []
    for index, part in enumerate(parts):
        target = residuals + _times(features, part, link.weights[part])
        new = _draw(normals[index], features, part, target, spectra[index], link.precision[index])
        residuals = target - _times(features, part, new)
        drawn.append(new)
    weights = jnp.concatenate(drawn)
    scaled = solve_triangular(after(factor, weights), weights.T, lower=True)
    squares = jnp.sum(scaled**2, axis=0)
    precision = update_rate(
        precision_key,
        precision_prior,
        link.precision,
        power=jnp.asarray(features.parts, vectors.dtype) * size / 2,
        total=jnp.stack([jnp.sum(squares[part]) for part in parts]) / 2,
    )
    return Link(weights, precision)


def update_link_of_groups(
    key: Key,
    link: Link,
    *,
    vectors: Array,
    features: Features,
    moments: NormalParameters,
    groups: Array,
    precision_prior: Hyperparameter,
) -> Link:
    """B given lambda and the priors of the groups, then lambda given B.

    One column of B after the other given the rest: column d has the precision
    sum_i P_i[d, d] x_i x_i' + diag(lambda), P_i that of the group of i.

    Args: vectors (N, D) float, U; moments: of the groups: means (G, D) and factors (G, D, D);
    groups (N,) int32.
    """
    weights_key, precision_key = jax.random.split(key)
    width, size = link.weights.shape
    inverses = precisions(moments)
    column_precisions = per_column(features, link.precision)
    normals = as_normals(uniforms(weights_key, (size, width)))

    def update_column(column: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        weights, residuals = carry
        lines = inverses[:, column][groups]
        right_side = jnp.sum(lines * residuals, axis=1, keepdims=True)
        gram = features.gram(lines[:, column])
        root = jax.lax.linalg.cholesky(gram + jnp.diag(column_precisions), symmetrize_input=False)
        side = features.transpose_times(right_side)[:, 0] - column_precisions * weights[:, column]
        half = solve_triangular(root, side, lower=True) + normals[column]
        change = solve_triangular(root, half, lower=True, trans="T")
        moved = features.times(change[:, None])[:, 0]
        return weights.at[:, column].add(change), residuals.at[:, column].add(-moved)

    start = link.weights, vectors - moments.mean[groups] - features.times(link.weights)
    weights, _ = jax.lax.fori_loop(0, size, update_column, start)
    precision = update_rate(
        precision_key,
        precision_prior,
        link.precision,
        power=jnp.asarray(features.parts, vectors.dtype) * size / 2,
        total=jnp.stack([jnp.sum(weights[part] ** 2) for part in slices(features)]) / 2,
    )
    return Link(weights, precision)


def _draw(
    normals: Array,
    features: Features,
    part: slice,
    target: Array,
    spectrum: FeatureSpectrum,
    precision: Array,
) -> Array:
    """B_p (F_p, D) ~ N(A^-1 X'Y, A^-1, Sigma), A = X'X + lambda I, normals having covariance Sigma.

    Of more columns than lines (Bhattacharya, Chakraborty & Mallick, 2016): of Z from the prior and
    X Z + E from its data, Z + X'(X X' + lambda I)^-1 (Y - X Z - E) is a draw given Y.
    """
    width = part.stop - part.start
    levels = (spectrum.values + precision)[:, None]
    if width <= target.shape[0]:
        turned = spectrum.vectors.T @ _transpose_times(features, part, target)
        return spectrum.vectors @ (turned / levels + normals / jnp.sqrt(levels))
    start = normals[:width] / jnp.sqrt(precision)
    residual = target - _times(features, part, start) - normals[width:]
    solved = spectrum.vectors @ ((spectrum.vectors.T @ residual) / levels)
    return start + _transpose_times(features, part, solved)


def _columns(features: Features, part: slice) -> Array:
    """X_p (N, F_p), dense."""
    return features.take(jnp.arange(features.num_rows))[:, part]


def _times(features: Features, part: slice, weights: Array) -> Array:
    """X_p times weights (F_p, D): (N, D)."""
    if not features.is_sparse:
        return features.values[:, part] @ weights
    whole = jnp.zeros((features.width, weights.shape[1]), weights.dtype)
    return features.times(whole.at[part].set(weights))


def _transpose_times(features: Features, part: slice, x: Array) -> Array:
    """X_p' x (N, D): (F_p, D)."""
    if not features.is_sparse:
        return features.values[:, part].T @ x
    return features.transpose_times(x)[part]
