"""Cells 0 and 1 by a normal distribution function: the probit model."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr, ndtr

from jaxmf._kernels.special import as_normals, uniforms
from jaxmf.likelihoods.cells.likelihood import BinaryCells
from jaxmf.types import Array, Key


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Probit(BinaryCells):
    """Cells 0 and 1: p(x = 1 | eta) = Phi(eta).

    x = 1 where a latent z ~ N(eta, 1) is positive.

    Example:
        >>> import jax.numpy as jnp, jaxmf as mf
        >>> mf.Probit().probabilities(jnp.array([0.0])).tolist()
        [[0.5, 0.5]]
    """

    remedy = "Threshold them, for instance x > 3"

    @property
    def levels(self) -> tuple[float, ...]:
        """0 and 1."""
        return (0.0, 1.0)

    def log_density(self, x: Array, eta: Array) -> Array:
        return log_ndtr(jnp.where(x > 0.5, eta, -eta))

    def sample(self, key: Key, eta: Array) -> Array:
        return (as_normals(uniforms(key, eta.shape)) < eta).astype(eta.dtype)

    def probabilities(self, eta: Array, variance: Array | float = 0.0) -> Array:
        """(..., 2) probabilities of 0 and 1 where eta is normal about its mean."""
        scaled = eta / jnp.sqrt(1 + variance)
        return jnp.stack([ndtr(-scaled), ndtr(scaled)], axis=-1)

    def mean(self, eta: Array) -> Array:
        return ndtr(eta)

    def variance(self, eta: Array) -> Array:
        return ndtr(eta) * ndtr(-eta)
