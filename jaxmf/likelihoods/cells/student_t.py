"""Cells with heavy tails about their means."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import t

from jaxmf.likelihoods.cells.likelihood import Likelihood
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.types import Array, Key


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StudentT(Likelihood):
    """Cells eta + noise_scale t, t of a Student t distribution: a few may lie far from their means.

    Args:
      degrees_of_freedom: a positive number or a numpyro distribution. Up to 2 a cell has no finite
        variance, and predictions that use one are infinitely wide.
      noise_scale: likewise, in the units of the data; the standard deviation of a cell is
        noise_scale sqrt(degrees_of_freedom / (degrees_of_freedom - 2)). None for the prior that
        the model takes from the data.
    Raises:
      TypeError, ValueError: neither a positive number nor a numpyro distribution.
    """

    degrees_of_freedom: Hyperparameter = 4.0
    noise_scale: Hyperparameter = None

    hyperparameters = ("degrees_of_freedom", "noise_scale")
    support = "finite numbers"

    def __post_init__(self) -> None:
        self._validate("noise_scale")

    def log_density(self, x: Array, eta: Array) -> Array:
        return t.logpdf(x, self.degrees_of_freedom, eta, self.noise_scale)

    def sample(self, key: Key, eta: Array) -> Array:
        drawn = jax.random.t(key, jnp.asarray(self.degrees_of_freedom, eta.dtype), eta.shape)
        return eta + self.noise_scale * drawn.astype(eta.dtype)

    def mean(self, eta: Array) -> Array:
        return eta

    def variance(self, eta: Array) -> Array:
        df = jnp.asarray(self.degrees_of_freedom, eta.dtype)
        ratio = jnp.where(df > 2, df / jnp.where(df > 2, df - 2, 1), jnp.inf)
        return jnp.broadcast_to(self.noise_scale**2 * ratio, eta.shape)

    def in_support(self, values: np.ndarray) -> np.ndarray:
        return np.isfinite(values)
