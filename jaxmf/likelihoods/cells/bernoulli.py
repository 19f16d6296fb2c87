"""Cells 0 and 1 by a logistic function."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxmf.arguments import check_word
from jaxmf.likelihoods.cells import expected_cost
from jaxmf.likelihoods.cells.expected_cost import CostSlopes
from jaxmf.likelihoods.cells.likelihood import BinaryCells
from jaxmf.types import Array, Key

BOUNDS = ("tilted", "quadratic")


@jax.tree_util.register_static
@dataclass(frozen=True)
class Bernoulli(BinaryCells):
    """Cells 0 and 1: p(x = 1 | eta) = 1 / (1 + exp(-eta)).

    Args:
      bound: of the expected cost of a cell in variational Bayes, which alone looks at it.
        "tilted": E[log(1 + e^m)] <= t^2 variance / 2 + log(1 + exp(mean + (1 - 2 t) variance / 2))
        with the best t of each cell, near the exact value for any score. It is a bound of Gaussian
        scores; those here are sums of products of Gaussians, so that it may lie below the exact
        value by some thousandths a cell. "quadratic": the bound of Jaakkola and Jordan with the
        best zeta of each cell, for scores of any distribution, which every step descends. It
        charges a zero of a sparse matrix variance / (4 |mean|), a hundred times the exact value, so
        that rows of few ones lose all of their factors. None chooses by the data: tilted where rows
        have fewer than 20 ones on average, quadratic where they have more and in a series.
    Raises:
      ValueError: another bound.
    Example:
      >>> import jax.numpy as jnp, jaxmf as mf
      >>> mf.Bernoulli().mean(jnp.array([0.0])).tolist()
      [0.5]
    """

    bound: str | None = None

    def __post_init__(self) -> None:
        if self.bound is not None:
            check_word("bound", self.bound, BOUNDS)

    def log_density(self, x: Array, eta: Array) -> Array:
        return x * eta - jax.nn.softplus(eta)

    def sample(self, key: Key, eta: Array) -> Array:
        uniform = jax.random.uniform(key, eta.shape, eta.dtype)
        return (uniform < self.mean(eta)).astype(eta.dtype)

    def mean(self, eta: Array) -> Array:
        return jax.nn.sigmoid(eta)

    # --- cells -1 and 1 given normal scores, as variational Bayes has them ------------------------

    @property
    def is_quadratic(self) -> bool:
        """Whether the cost of a cell at fixed zeta is a quadratic in its score."""
        return self.bound == "quadratic"

    def slopes(self, mean: Array, variance: Array, noise: Array) -> CostSlopes:
        """Derivatives of the bound of the expected cost; there is no noise to look at."""
        del noise
        bound = expected_cost.quadratic_slopes if self.is_quadratic else expected_cost.tilted_slopes
        return bound(mean, variance)

    def slope(self, noise: Array) -> Array:
        """kappa = 1/2: () float."""
        return jnp.full_like(noise, 0.5)

    def cost(self, mean: Array, variance: Array, noise: Array) -> Array:
        """The bound of the expected cost of a cell without kappa x mean, of the shape of `mean`."""
        del noise
        bound = expected_cost.quadratic_cost if self.is_quadratic else expected_cost.tilted_cost
        return bound(mean, variance)
