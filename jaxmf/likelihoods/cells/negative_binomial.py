"""Counts that spread more than Poisson counts, whose means add up."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from jaxmf._kernels.special import log_rising_over_power
from jaxmf.likelihoods.cells.likelihood import CountCells, sample_counts
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.types import Array, Key


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NegativeBinomial(CountCells):
    """Counts with mean m = base_rate + eta, eta >= 0, and variance m + dispersion m^2.

    A Poisson count whose rate is m times a Gamma variable of mean 1 and variance `dispersion`.

    Args:
      dispersion: a positive number or a numpyro distribution; near 0 the counts are Poisson. None
        for an exponential prior of mean 1, under which the model learns it.
      base_rate: mean of a cell without features, likewise; None for the prior that the model takes
        from the data.
    Raises:
      TypeError, ValueError: neither a positive number nor a numpyro distribution.
    """

    dispersion: Hyperparameter = None
    base_rate: Hyperparameter = None

    hyperparameters = ("dispersion", "base_rate")

    def log_kernel(self, x: Array, eta: Array) -> Array:
        mean = self.mean(eta)
        size = 1 / jnp.asarray(self.dispersion, mean.dtype)
        # of (1 + dispersion m)^(-size - x): log1p keeps what a small dispersion leaves
        return x * jnp.log(mean / size) - (size + x) * jnp.log1p(mean / size)

    def log_density(self, x: Array, eta: Array) -> Array:
        mean = self.mean(eta)
        size = 1 / jnp.asarray(self.dispersion, mean.dtype)
        # powers of the size, which is large where counts are nearly Poisson, cancel unseen
        log_choose = log_rising_over_power(size, x) - gammaln(x + 1)
        return log_choose + x * jnp.log(mean) - (size + x) * jnp.log1p(mean / size)

    def sample(self, key: Key, eta: Array) -> Array:
        rate_key, count_key = jax.random.split(key)
        size = 1 / jnp.asarray(self.dispersion, eta.dtype)
        rate = self.mean(eta) * jax.random.gamma(rate_key, size, eta.shape, eta.dtype) / size
        return sample_counts(count_key, rate).astype(eta.dtype)

    def variance(self, eta: Array) -> Array:
        mean = self.mean(eta)
        return mean + self.dispersion * mean**2
