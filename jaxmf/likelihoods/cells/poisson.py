"""Counts whose rates add up."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from jaxmf.likelihoods.cells.likelihood import CountCells, sample_counts
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.types import Array, Key


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Poisson(CountCells):
    """Counts: x ~ Poisson(base_rate + eta), eta >= 0.

    Args:
      base_rate: mean of a cell without features: a positive number or a numpyro distribution; None
        for the prior that the model takes from the data.
    Raises:
      TypeError, ValueError: neither a positive number nor a numpyro distribution.
    """

    base_rate: Hyperparameter = None

    hyperparameters = ("base_rate",)
    cell_distribution = "poisson"

    def log_kernel(self, x: Array, eta: Array) -> Array:
        rate = self.mean(eta)
        return x * jnp.log(rate) - rate

    def log_density(self, x: Array, eta: Array) -> Array:
        return self.log_kernel(x, eta) - gammaln(x + 1)

    def sample(self, key: Key, eta: Array) -> Array:
        return sample_counts(key, self.mean(eta)).astype(eta.dtype)

    def variance(self, eta: Array) -> Array:
        return self.mean(eta)
