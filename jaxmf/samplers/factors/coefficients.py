"""The prior of the coefficients of vectors, separate from that of their factors and biases.

    U_b[i, f] ~ N(m_f, 1 / omega_p)        m_f ~ N(0, 1 / omega_p)        omega_p ~ Gamma

f a column of the features of the other side, or of cells, and p its part: ridge regressions of the
rows, with a precision for every part. Factors and coefficients have no covariance in common: where
they had, a part that says nothing took the scale of one that does, and the other way about.

m_f is zero where the biases of the other side depend on the same features (see `link.py`): these
then carry what all rows have in common, and two parameters for it would only cancel each other.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf._kernels.special import as_normals, uniforms
from jaxmf.priors import hyper
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.samplers.hyper import update_rate
from jaxmf.types import Array, Key


class Coefficients(NamedTuple):
    """The C coefficients of the vectors of one side, in P parts."""

    mean: Array  # (C,) float, m; zero where `Parts.has_mean` is false
    precision: Array  # (P,) float, omega


class CoefficientParts(NamedTuple):
    """How the coefficients are divided; static."""

    widths: tuple[int, ...]  # of P parts, their columns, which sum to C
    has_mean: tuple[bool, ...]  # P times whether the columns of the part have a mean of all rows

    def per_column(self, values: Array) -> Array:
        """Values (P,) of the parts for every column, (C,)."""
        return values[np.repeat(np.arange(len(self.widths)), self.widths)]

    def sums(self, values: Array) -> Array:
        """Values (C,) of the columns summed by parts, (P,)."""
        ends = np.cumsum((0, *self.widths))
        return jnp.stack([jnp.sum(values[a:b]) for a, b in zip(ends[:-1], ends[1:], strict=True)])

    @property
    def mask(self) -> np.ndarray:
        """(C,) bool, whether a column has a mean."""
        return np.repeat(np.array(self.has_mean, bool), self.widths)


def start(parts: CoefficientParts, prior: Hyperparameter) -> Coefficients:
    """Means zero, precisions at the prior mean: a small part of the data's variance."""
    precision = jnp.broadcast_to(hyper.initial_value(prior), (len(parts.widths),))
    return Coefficients(jnp.zeros(sum(parts.widths), precision.dtype), precision)


def simulate(key: Key, parts: CoefficientParts, prior: Hyperparameter) -> Coefficients:
    """Means and precisions from the prior."""
    precision_key, mean_key = jax.random.split(key)
    keys = jax.random.split(precision_key, len(parts.widths))
    precision = jax.vmap(lambda each: hyper.sample_prior(each, prior))(keys)
    normals = jax.random.normal(mean_key, (sum(parts.widths),), precision.dtype)
    mean = jnp.where(parts.mask, normals / jnp.sqrt(parts.per_column(precision)), 0)
    return Coefficients(mean, precision)


def update(
    key: Key,
    now: Coefficients,
    *,
    values: Array,
    parts: CoefficientParts,
    precision_prior: Hyperparameter,
) -> Coefficients:
    """Precisions given the coefficients (N, C), means summed out, then means."""
    precision_key, mean_key = jax.random.split(key)
    num_rows, mask = values.shape[0], parts.mask
    average = jnp.mean(values, axis=0)
    squares = jnp.sum((values - average) ** 2, axis=0)
    # of n values about a mean that counts as one more
    shared = num_rows * average**2 * jnp.where(mask, 1 / (num_rows + 1), 1)
    precision = update_rate(
        precision_key,
        precision_prior,
        now.precision,
        power=jnp.asarray(parts.widths, values.dtype) * num_rows / 2,
        total=parts.sums(squares + shared) / 2,
    )
    if not mask.any():
        return Coefficients(now.mean, precision)
    normals = as_normals(uniforms(mean_key, now.mean.shape))
    spread = normals / jnp.sqrt(parts.per_column(precision) * (num_rows + 1))
    mean = jnp.where(mask, average * num_rows / (num_rows + 1) + spread, 0).astype(now.mean.dtype)
    return Coefficients(mean, precision)


def log_density(
    now: Coefficients, *, values: Array, parts: CoefficientParts, precision_prior: Hyperparameter
) -> Array:
    """log p(coefficients (N, C), means, precisions): () float."""
    if not parts.widths:
        return jnp.zeros((), now.mean.dtype)
    precision = parts.per_column(now.precision)
    num_rows, mask = values.shape[0], parts.mask
    squares = jnp.sum((values - now.mean) ** 2, axis=0) + jnp.where(mask, now.mean**2, 0)
    level = jnp.log(precision) - jnp.log(2 * jnp.pi)
    total = jnp.sum((num_rows + mask) * level - precision * squares) / 2
    return total + jnp.sum(hyper.log_prior(precision_prior, now.precision))
