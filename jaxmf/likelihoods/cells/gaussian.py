"""Cells with normal noise about their means."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.likelihoods.cells import expected_cost
from jaxmf.likelihoods.cells.expected_cost import CostSlopes
from jaxmf.likelihoods.cells.likelihood import Likelihood
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.types import Array, Key


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Gaussian(Likelihood):
    """Cells with normal noise: x ~ N(eta, noise_scale^2).

    Args:
      noise_scale: standard deviation of a cell about its mean, in the units of the data: a number,
        or, where the model learns it, a numpyro distribution; None for the prior that the model
        takes from the data. `SparseBinaryMF` takes a number or None.
    Raises:
      TypeError, ValueError: neither a positive number nor a numpyro distribution.
    """

    noise_scale: Hyperparameter = None

    hyperparameters = ("noise_scale",)
    support = "finite numbers"

    def __post_init__(self) -> None:
        self._validate("noise_scale")

    def log_kernel(self, x: Array, eta: Array) -> Array:
        return -0.5 * ((x - eta) / self.noise_scale) ** 2

    def log_density(self, x: Array, eta: Array) -> Array:
        return self.log_kernel(x, eta) - 0.5 * jnp.log(2 * jnp.pi * self.noise_scale**2)

    def annealed(self, noise_factor: Array | float) -> Gaussian:
        return self.at_values({"noise_scale": self.noise_scale * noise_factor})

    def sample(self, key: Key, eta: Array) -> Array:
        return eta + self.noise_scale * jax.random.normal(key, eta.shape, eta.dtype)

    def mean(self, eta: Array) -> Array:
        return eta

    def variance(self, eta: Array) -> Array:
        return jnp.broadcast_to(self.noise_scale**2, eta.shape)

    def in_support(self, values: np.ndarray) -> np.ndarray:
        return np.isfinite(values)

    # --- cells -1 and 1 given normal scores, as variational Bayes has them ------------------------

    @property
    def is_quadratic(self) -> bool:
        """Whether the cost of a cell is a quadratic in its score: one Newton step minimises it."""
        return True

    def slopes(self, mean: Array, variance: Array, noise: Array) -> CostSlopes:
        """Derivatives of the expected cost; `noise` is the variance of a cell, () float."""
        del variance
        return expected_cost.gaussian_slopes(mean, noise)

    def slope(self, noise: Array) -> Array:
        """kappa = 1 / v_x: () float."""
        return 1 / noise

    def cost(self, mean: Array, variance: Array, noise: Array) -> Array:
        """Expected cost of a cell without kappa x mean, of the shape of `mean`."""
        return expected_cost.gaussian_cost(mean, variance, noise)
