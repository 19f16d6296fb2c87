"""A likelihood to a power, as an annealed start has it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import numpy as np

from jaxmf.likelihoods.cells.likelihood import Likelihood
from jaxmf.types import Array, Key


@partial(jax.tree_util.register_dataclass, data_fields=["likelihood", "power"], meta_fields=[])
@dataclass(frozen=True)
class Tempered(Likelihood):
    """A likelihood to a power; moments and draws are those of the likelihood itself.

    Args:
      likelihood: any.
      power: () float, positive.
    """

    likelihood: Likelihood
    power: Array | float

    def log_density(self, x: Array, eta: Array) -> Array:
        """The power times log p(x | eta), not normalised."""
        return self.power * self.likelihood.log_density(x, eta)

    def log_kernel(self, x: Array, eta: Array) -> Array:
        return self.power * self.likelihood.log_kernel(x, eta)

    def sample(self, key: Key, eta: Array) -> Array:
        return self.likelihood.sample(key, eta)

    def mean(self, eta: Array) -> Array:
        return self.likelihood.mean(eta)

    def variance(self, eta: Array) -> Array:
        return self.likelihood.variance(eta)

    def in_support(self, values: np.ndarray) -> np.ndarray:
        return self.likelihood.in_support(values)
