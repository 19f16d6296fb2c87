"""Cells 0 and 1 that every active cause may turn on."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxmf.likelihoods.cells.likelihood import BinaryCells
from jaxmf.priors import hyper
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.types import Array, Key


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NoisyOr(BinaryCells):
    """Each of eta active causes turns a cell on with probability `efficacy`, nothing with `leak`.

    P(x = 1 | eta) = 1 - (1 - leak) (1 - efficacy)^eta      (Wood & Griffiths, eq 8)

    Args:
      efficacy: a probability, or a numpyro distribution of one.
      leak: likewise.
    Raises:
      TypeError, ValueError: neither a number between 0 and 1 nor a numpyro distribution of one.
    """

    efficacy: Hyperparameter = 0.9
    leak: Hyperparameter = 0.01

    hyperparameters = ("efficacy", "leak")
    needs_nonnegative = True

    def __post_init__(self) -> None:
        for name in self.hyperparameters:
            hyper.validate_probability(name, getattr(self, name))

    def log_density(self, x: Array, eta: Array) -> Array:
        log_off = jnp.log1p(-self.leak) + eta * jnp.log1p(-self.efficacy)
        return jnp.where(x > 0, jnp.log(-jnp.expm1(log_off)), log_off)

    def sample(self, key: Key, eta: Array) -> Array:
        return jax.random.bernoulli(key, self.mean(eta)).astype(eta.dtype)

    def mean(self, eta: Array) -> Array:
        return 1 - (1 - self.leak) * (1 - self.efficacy) ** eta
