"""Real values: one number a token, with a mean and a variance for every group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln

from jaxmf._kernels import tables
from jaxmf._kernels.special import log_rising, loggammas
from jaxmf._kernels.tables import Lanes
from jaxmf.arguments import check_number
from jaxmf.likelihoods.families.family import Family, Hyperparameters, check_positive_fields
from jaxmf.priors import hyper
from jaxmf.types import Key


class Normals(NamedTuple):
    """The posterior of mean and variance of every group."""

    number: Array  # (G,) int32, values of the group
    location: Array  # (G,) float, the mean's
    rate: Array  # (G,) float, that of the inverse-Gamma distribution of the variance


class _NormalCache(NamedTuple):
    num_values: Array
    location: Array
    rate: Array
    width: Array  # 2 rate (k + 1) / k
    power: Array  # shape + 1/2
    level: Array  # the log density at the location
    prior: Array  # (4,): weight, shape, rate, location


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NormalInverseGamma(Family):
    """Real values, with a mean and a variance for every group.

    var_g ~ InverseGamma(shape, rate), mu_g ~ N(location, var_g / weight), x ~ N(mu_g, var_g). With
    both summed out the next value of a group has Student's t distribution with 2 shape_n degrees of
    freedom.

    Args:
        location: prior mean of the means.
        weight: how many values the prior mean counts as; positive.
        shape, rate: of the inverse-Gamma distribution of the variances; positive numbers. With a
            shape of at most 1 a group without values predicts with infinite variance.
    Raises:
        TypeError, ValueError: `location` is not a number, or another setting is not positive.
    Example:
        >>> NormalInverseGamma(location=3.0, shape=2.0).weight
        1.0
    """

    location: float = 0.0
    weight: float = 1.0
    shape: float = 2.0
    rate: float = 1.0

    def __post_init__(self) -> None:
        check_positive_fields(self, ("weight", "shape", "rate"))
        # a state may hold it as an array
        if not hyper.is_placeholder(self.location) and not isinstance(self.location, jax.Array):
            check_number("location", self.location)

    def check(self, values: object, name: str) -> np.ndarray:
        array = np.asarray(values)
        if array.ndim != 1:
            raise ValueError(
                f"{name}: NormalInverseGamma takes one number a token, got shape {array.shape}. "
                "NormalInverseWishart takes vectors."
            )
        return array

    def statistics(self, groups: Array, values: Array, num_groups: int) -> Normals:
        dtype = jnp.result_type(float)
        num_values = jnp.zeros((num_groups,), jnp.int32).at[groups].add(1)
        # deviations from the prior's location: sums of squares lose less
        shifted = values.astype(dtype) - self.location
        total = jnp.zeros((num_groups,), dtype).at[groups].add(shifted)
        mean = total / jnp.maximum(num_values, 1)
        spread = jnp.zeros((num_groups,), dtype).at[groups].add((shifted - mean[groups]) ** 2)
        weight = self.weight + num_values
        between = self.weight * num_values * mean**2 / weight
        return Normals(
            number=num_values,
            location=self.location + num_values * mean / weight,
            rate=self.rate + (spread + between) / 2,
        )

    def begin(self, statistics: Normals, hyperparameters: Hyperparameters) -> _NormalCache:
        settings = (self.weight, self.shape, self.rate, self.location)
        prior = jnp.stack([jnp.asarray(value) for value in settings])
        prior = prior.astype(jnp.result_type(float))
        return _NormalCache(
            *statistics, *_derived(prior, statistics.number, statistics.rate), prior
        )

    def move(self, cache: _NormalCache, group: Array, value: Array, amount: int) -> _NormalCache:
        prior, dtype = cache.prior, cache.rate.dtype
        num_values = tables.row(cache.num_values, group)
        location, rate = tables.row(cache.location, group), tables.row(cache.rate, group)
        weight = prior[0] + num_values.astype(dtype)
        moved = location + amount * (value - location) / (weight + amount)
        # (x - m)(x - m') is the change of the sum of squares, in either direction
        rate = rate + amount * (value - location) * (value - moved) / 2
        num_values = num_values + amount
        # nothing of the rounding stays behind in a group without values
        is_empty = num_values == 0
        rate = jnp.where(is_empty, prior[2], jnp.maximum(rate, prior[2]))
        new = Normals(num_values, jnp.where(is_empty, prior[3], moved), rate)
        derived = _derived(prior, new.number, new.rate)
        fields = zip(cache[:6], (*new, *derived), strict=True)
        moved_fields = [tables.put(old, group, value) for old, value in fields]
        return _NormalCache._make([*moved_fields, prior])

    def predictive(self, cache: _NormalCache, lanes: Lanes, value: Array) -> Array:
        location, width, power, level = (
            tables.take(getattr(cache, name), lanes)
            for name in ("location", "width", "power", "level")
        )
        return level - power * jnp.log1p((value - location) ** 2 / width)

    def log_marginal(self, statistics: Normals, hyperparameters: Hyperparameters) -> Array:
        num_values = statistics.number
        weight, shape = self.weight + num_values, self.shape + 0.5 * num_values
        result = gammaln(shape) - gammaln(self.shape)
        result += self.shape * jnp.log(self.rate) - shape * jnp.log(statistics.rate)
        result += (jnp.log(self.weight) - jnp.log(weight)) / 2
        return result - 0.5 * num_values * jnp.log(2 * jnp.pi)

    def sample_parameters(
        self, key: Key, statistics: Normals, hyperparameters: Hyperparameters
    ) -> tuple[Array, Array]:
        """Means and variances: (G,) each."""
        variance_key, mean_key = jax.random.split(key)
        shape = jnp.asarray(self.shape + 0.5 * statistics.number, statistics.rate.dtype)
        variance = statistics.rate * jnp.exp(-loggammas(variance_key, shape))
        normal = jax.random.normal(mean_key, variance.shape, variance.dtype)
        spread = jnp.sqrt(variance / (self.weight + statistics.number))
        return statistics.location + spread * normal, variance

    def log_prob(self, parameters: tuple[Array, Array], value: Array) -> Array:
        mean, variance = parameters
        return -0.5 * ((value - mean) ** 2 / variance + jnp.log(2 * jnp.pi * variance))

    def sample(self, key: Key, parameters: tuple[Array, Array], groups: Array) -> Array:
        mean, variance = parameters
        normal = jax.random.normal(key, groups.shape, mean.dtype)
        return mean[groups] + jnp.sqrt(variance[groups]) * normal

    def moments(self, statistics: Normals, hyperparameters: Hyperparameters) -> tuple[Array, Array]:
        """The variance is infinite where shape_n is at most 1."""
        weight = self.weight + statistics.number
        shape = self.shape + 0.5 * statistics.number
        finite = jnp.where(shape > 1, shape - 1, 1)
        variance = statistics.rate * (weight + 1) / (weight * finite)
        return statistics.location, jnp.where(shape > 1, variance, jnp.inf)


def _derived(prior: Array, num_values: Array, rate: Array) -> tuple[Array, Array, Array]:
    weight, shape = prior[0] + num_values, prior[1] + 0.5 * num_values
    width = 2 * rate * (weight + 1) / weight
    power = shape + 0.5
    level = log_rising(shape, 0.5) - jnp.log(jnp.pi * width) / 2
    return width, power, level
