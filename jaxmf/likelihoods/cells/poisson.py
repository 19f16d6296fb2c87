"""Counts whose rates add up."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from jaxmf.likelihoods.cells.likelihood import Likelihood, is_count, sample_counts
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.types import Array, Key


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Poisson(Likelihood):
    """Counts: x ~ Poisson(base_rate + eta), eta >= 0.

    Args:
      base_rate: mean of a cell without features: a positive number or a numpyro distribution.
    Raises:
      TypeError, ValueError: neither a positive number nor a numpyro distribution.
    """

    base_rate: Hyperparameter = 0.1

    hyperparameters = ("base_rate",)
    cell_distribution = "poisson"
    needs_nonnegative = True
    support = "counts 0, 1, 2, ..."
    remedy = "Round them"

    def __post_init__(self) -> None:
        self._validate()

    def log_kernel(self, x: Array, eta: Array) -> Array:
        rate = self.mean(eta)
        return x * jnp.log(rate) - rate

    def log_density(self, x: Array, eta: Array) -> Array:
        return self.log_kernel(x, eta) - gammaln(x + 1)

    def sample(self, key: Key, eta: Array) -> Array:
        return sample_counts(key, self.mean(eta)).astype(eta.dtype)

    def mean(self, eta: Array) -> Array:
        # sums and differences of weights may round to below nothing
        return self.base_rate + jnp.maximum(eta, 0)

    def variance(self, eta: Array) -> Array:
        return self.mean(eta)

    def in_support(self, values: np.ndarray) -> np.ndarray:
        return is_count(values)
