"""Likelihoods of a cell x = -1 or 1 given its score m ~ Q, as quadratic bounds.

Both are used by two functions of the score's mean m and second moment E[m^2] alone. The expected
negative log likelihood of a cell is at most

    F(E[m^2]) - x kappa E[m],

with equality for the Gaussian. Its derivative in a parameter of Q is that of a quadratic with the
curvature Lambda = 2 F'(E[m^2]), so that one set of updates serves both.

Source: Jaakkola & Jordan (1997), A variational approach to Bayesian logistic regression models and
their extensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxmf.priors import hyper
from jaxmf.readable import Readable
from jaxmf.types import Array


@partial(jax.tree_util.register_dataclass, data_fields=["noise_variance"], meta_fields=[])
@dataclass(frozen=True)
class Gaussian(Readable):
    """Cells -1 and 1 with Gaussian noise: exact sums in the time of the ones.

    Args:
      noise_variance: of a cell, v_x; None learns it.

    Raises:
      TypeError, ValueError: neither a positive number nor a numpyro distribution.
    """

    noise_variance: float | None = None

    def __post_init__(self) -> None:
        value = self.noise_variance
        # inside jax it may be an array, of which nothing can be said
        if value is not None and not isinstance(value, jax.Array):
            hyper.validate("noise_variance", value)

    def curvature(self, second_moment: Array, noise: Array) -> Array:
        """Lambda = 1 / v_x."""
        return jnp.broadcast_to(1 / noise, second_moment.shape)

    def slope(self, noise: Array) -> Array:
        """kappa = 1 / v_x: () float."""
        return 1 / noise

    def cost(self, second_moment: Array, noise: Array) -> Array:
        """F: half of (1 + E[m^2]) / v_x + log(2 pi v_x)."""
        return 0.5 * ((1 + second_moment) / noise + jnp.log(2 * jnp.pi * noise))


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=[])
@dataclass(frozen=True)
class Sigmoid(Readable):
    """Cells -1 and 1 with p(x | m) = sigma(x m), bounded by a quadratic with its own zeta a cell.

    zeta takes its optimum, zeta^2 = E[m^2], on the way, so it is never stored.
    """

    @property
    def noise_variance(self) -> float:
        """There is none; a number that is not learned."""
        return 1.0

    def curvature(self, second_moment: Array, noise: Array) -> Array:
        """Lambda = tanh(zeta / 2) / (2 zeta)."""
        del noise
        zeta = _root(second_moment)
        return jnp.where(zeta > 1e-3, jnp.tanh(zeta / 2) / (2 * zeta), 0.25 - zeta**2 / 48)

    def slope(self, noise: Array) -> Array:
        """kappa = 1/2: () float."""
        return jnp.full_like(noise, 0.5)

    def cost(self, second_moment: Array, noise: Array) -> Array:
        """F = softplus(-zeta) + zeta / 2 = log(2 cosh(zeta / 2))."""
        del noise
        zeta = _root(second_moment)
        # never below log 2, so that log1p, which takes twice the time, would add nothing
        return zeta / 2 + jnp.log(1 + jnp.exp(-zeta))


Likelihood = Any
"""`Gaussian` or `Sigmoid`."""


def _root(second_moment: Array) -> Array:
    """The square root, with a derivative at zero."""
    return jnp.sqrt(jnp.maximum(second_moment, jnp.finfo(second_moment.dtype).tiny))
