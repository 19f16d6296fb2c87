"""The likelihood of a cell and the prior of W, which the sweeps with explicit weights ask for.

A cell of X ~ f(U W V') depends on its entry eta of U W V' alone. Three likelihoods (Meeds et al.,
section 2): Gaussian, N(eta, noise_scale^2); logistic, Bernoulli(1 / (1 + exp(-eta))); Poisson, with
mean base_rate + eta, where all weights are positive. The entries of W are independent, normal or,
for the Poisson likelihood, Gamma(shape, rate).
"""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from jaxmf import slots
from jaxmf.special import loggamma, poisson
from jaxmf.types import Array, Key

LIKELIHOODS = ("gaussian", "logistic", "poisson")


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["noise_scale", "base_rate", "power"],
    meta_fields=["likelihood"],
)
@dataclass(frozen=True)
class Cells:
    """The likelihood of a cell given its entry of U W V'.

    Args:
      likelihood: one of `LIKELIHOODS`.
      noise_scale: () float, of the Gaussian likelihood.
      base_rate: () float, of the Poisson likelihood: the mean of a cell without features.
      power: () float, of the logistic and Poisson likelihoods; one but in an annealed start.
    """

    likelihood: str
    noise_scale: Array
    base_rate: Array
    power: Array | float = 1.0

    def annealed(self, noise_factor: Array | float) -> "Cells":
        """The likelihood to the power 1 / noise_factor^2: noise scaled by `noise_factor`."""
        if self.likelihood == "gaussian":
            return replace(self, noise_scale=self.noise_scale * noise_factor)
        return replace(self, power=noise_factor**-2)

    def log_kernel(self, x: Array, eta: Array) -> Array:
        """log p(x | eta) of each cell, up to terms that do not depend on eta."""
        if self.likelihood == "gaussian":
            return -0.5 * ((x - eta) / self.noise_scale) ** 2
        if self.likelihood == "logistic":
            return self.power * (x * eta - jax.nn.softplus(eta))
        rate = self.mean(eta)
        return self.power * (x * jnp.log(rate) - rate)

    def log_density(self, x: Array, eta: Array) -> Array:
        """log p(x | eta) of each cell."""
        log_kernel = self.log_kernel(x, eta)
        if self.likelihood == "gaussian":
            return log_kernel - 0.5 * jnp.log(2 * jnp.pi * self.noise_scale**2)
        return log_kernel if self.likelihood == "logistic" else log_kernel - gammaln(x + 1)

    def mean(self, eta: Array) -> Array:
        """The mean of a cell."""
        if self.likelihood == "gaussian":
            return eta
        if self.likelihood == "logistic":
            return jax.nn.sigmoid(eta)
        # sums and differences of weights may round to below nothing
        return self.base_rate + jnp.maximum(eta, 0)

    def variance(self, eta: Array) -> Array:
        """The variance of a cell."""
        if self.likelihood == "gaussian":
            return jnp.broadcast_to(self.noise_scale**2, eta.shape)
        mean = self.mean(eta)
        return mean * (1 - mean) if self.likelihood == "logistic" else mean

    def sample(self, key: Key, eta: Array) -> Array:
        """X (I, J) float given U W V'."""
        if self.likelihood == "gaussian":
            return eta + self.noise_scale * jax.random.normal(key, eta.shape, eta.dtype)
        if self.likelihood == "logistic":
            return (jax.random.uniform(key, eta.shape, eta.dtype) < self.mean(eta)).astype(
                eta.dtype
            )
        keys = jax.random.split(key, eta.shape)
        return jax.vmap(jax.vmap(poisson))(keys, self.mean(eta)).astype(eta.dtype)

    def rows(self, x: Array, eta: Array, observed: Array | None) -> Array:
        """Sum of `log_kernel` over the observed cells of each row: (I,) float."""
        each = self.log_kernel(x, eta)
        return jnp.sum(each if observed is None else jnp.where(observed, each, 0), axis=1)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["mean", "scale", "shape", "rate"],
    meta_fields=["positive", "diagonal"],
)
@dataclass(frozen=True)
class WeightPrior:
    """The prior of the entries of W.

    Args:
      mean: () float or (K, L), of N(mean, scale^2).
      scale: () float, likewise.
      shape, rate: () float, of Gamma(shape, rate), where `positive`.
      positive: whether the weights are positive.
      diagonal: whether only the diagonal of W is there (the plaid model).
    """

    mean: Array
    scale: Array
    shape: Array
    rate: Array
    positive: bool = False
    diagonal: bool = False

    def sample(self, key: Key, num_rows: int, num_columns: int) -> Array:
        """W (K, L) from the prior, the diagonal not yet cut out.

        A vector a row feature, so that the draw does not depend on the capacity of either side.
        """
        if self.positive:
            return self.positive_gammas(
                key, jnp.broadcast_to(self.shape, (num_rows, num_columns)), self.rate
            )
        return self.mean + self.scale * slots.normals(key, num_rows, num_columns, self.scale.dtype)

    @staticmethod
    def positive_gammas(key: Key, shape: Array, rate: Array) -> Array:
        """Gamma(shape, rate) draws (K, L), each from a separate key."""

        def one(row, column, shape):
            cell_key = jax.random.fold_in(jax.random.fold_in(key, row), column)
            return loggamma(cell_key, shape)

        rows, columns = jnp.arange(shape.shape[0]), jnp.arange(shape.shape[1])
        over_columns = jax.vmap(one, in_axes=(None, 0, 0))
        drawn = jax.vmap(over_columns, in_axes=(0, None, 0))(rows, columns, shape)
        # a Gamma of small shape may round to zero, whose log density is not finite
        tiny = jnp.finfo(shape.dtype).tiny
        return jnp.maximum(jnp.exp(drawn) / rate, tiny).astype(shape.dtype)

    def there(self, row_exists: Array, column_exists: Array) -> Array:
        """(K, L) bool: the weights that are part of the model."""
        pairs = row_exists[:, None] & column_exists
        if self.diagonal:
            pairs = pairs & jnp.eye(pairs.shape[0], dtype=bool)
        return pairs

    def log_density(self, weights: Array, there: Array) -> Array:
        """() float, log density of the weights that are there."""
        if self.positive:
            safe = jnp.where(there, weights, 1)
            each = (
                self.shape * jnp.log(self.rate)
                - gammaln(self.shape)
                + (self.shape - 1) * jnp.log(safe)
                - self.rate * safe
            )
        else:
            each = -0.5 * ((weights - self.mean) / self.scale) ** 2 - jnp.log(
                self.scale * jnp.sqrt(2 * jnp.pi)
            )
        return jnp.sum(jnp.where(there, each, 0))
