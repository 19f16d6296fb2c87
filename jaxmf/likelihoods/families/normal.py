"""Real values: one number a token, with a mean and a variance for every group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from jaxmf._kernels import tables
from jaxmf._kernels.special import log_rising, loggammas
from jaxmf._kernels.tables import Lanes
from jaxmf.arguments import check_number
from jaxmf.likelihoods.families.family import Family, Hyperparameters, check_positive_fields
from jaxmf.priors import hyper
from jaxmf.types import Array, Key


class Normals(NamedTuple):
    """The posterior of mean and variance of every group."""

    number: Array  # (G,) int32, values of the group
    location: Array  # (G,) float, the mean's
    rate: Array  # (G,) float, that of the inverse-Gamma distribution of the variance


class _Settings(NamedTuple):
    location: float
    weight: float
    shape: float
    rate: float


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

    What is left out a run chooses from the values, for G groups: as location their mean, which
    counts as .01 values, shape 1.5, and a rate with which the expected variance is that of the
    values over G^2 (see `IndependentColumns.from_data`); with another shape the mean of 1 /
    variance is the same. Without data, as in `Network.simulate`, it is location 0, weight 1, shape
    2 and rate 1.

    Args:
        location: prior mean of the means.
        weight: how many values the prior mean counts as; positive.
        shape, rate: of the inverse-Gamma distribution of the variances; positive numbers. With a
            shape of at most 1 a group without values predicts with infinite variance.
    Raises:
        TypeError, ValueError: `location` is not a number, or another setting is not positive.
    Example:
        >>> NormalInverseGamma(shape=2.0).known_from(jnp.array([9.0, 11.0])).location
        Array(10., dtype=float32)
    """

    location: float = None  # type: ignore[assignment]  # left open
    weight: float = None  # type: ignore[assignment]  # left open
    shape: float = None  # type: ignore[assignment]  # left open
    rate: float = None  # type: ignore[assignment]  # left open

    standard_settings = {  # noqa: RUF012
        "location": 0.0,
        "weight": 1.0,
        "shape": 2.0,
        "rate": 1.0,
    }

    def __post_init__(self) -> None:
        check_positive_fields(self, ("weight", "shape", "rate"))
        if self.location is None or hyper.is_placeholder(self.location):
            return
        if not isinstance(self.location, jax.Array):  # as a state may hold it
            check_number("location", self.location)

    def settings_from(self, values: Array, *, num_groups: float) -> dict[str, object]:
        location, variance = location_and_variance(jnp.reshape(values, (-1, 1)), num_groups)
        # 3 degrees of freedom; another shape keeps the mean of 1 / variance
        shape = 1.5 if self.shape is None else self.shape
        return {
            "location": location[0],
            "weight": 0.01,
            "shape": 1.5,
            "rate": shape * variance[0] / 3,
        }

    @property
    def _known(self) -> _Settings:
        family = self.standard()
        return _Settings(family.location, family.weight, family.shape, family.rate)

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
        location, prior_weight, _, rate = self._known
        shifted = values.astype(dtype) - location
        total = jnp.zeros((num_groups,), dtype).at[groups].add(shifted)
        mean = total / jnp.maximum(num_values, 1)
        spread = jnp.zeros((num_groups,), dtype).at[groups].add((shifted - mean[groups]) ** 2)
        weight = prior_weight + num_values
        between = prior_weight * num_values * mean**2 / weight
        return Normals(
            number=num_values,
            location=location + num_values * mean / weight,
            rate=rate + (spread + between) / 2,
        )

    def begin(self, statistics: Normals, hyperparameters: Hyperparameters) -> _NormalCache:
        location, *others = self._known
        prior = jnp.stack([jnp.asarray(value) for value in (*others, location)])
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
        num_values, prior = statistics.number, self._known
        weight, shape = prior.weight + num_values, prior.shape + 0.5 * num_values
        result = gammaln(shape) - gammaln(prior.shape)
        result += prior.shape * jnp.log(prior.rate) - shape * jnp.log(statistics.rate)
        result += (jnp.log(prior.weight) - jnp.log(weight)) / 2
        return result - 0.5 * num_values * jnp.log(2 * jnp.pi)

    def sample_parameters(
        self, key: Key, statistics: Normals, hyperparameters: Hyperparameters
    ) -> tuple[Array, Array]:
        """Means and variances: (G,) each."""
        variance_key, mean_key = jax.random.split(key)
        prior = self._known
        shape = jnp.asarray(prior.shape + 0.5 * statistics.number, statistics.rate.dtype)
        variance = statistics.rate * jnp.exp(-loggammas(variance_key, shape))
        normal = jax.random.normal(mean_key, variance.shape, variance.dtype)
        spread = jnp.sqrt(variance / (prior.weight + statistics.number))
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
        weight = self._known.weight + statistics.number
        shape = self._known.shape + 0.5 * statistics.number
        finite = jnp.where(shape > 1, shape - 1, 1)
        variance = statistics.rate * (weight + 1) / (weight * finite)
        return statistics.location, jnp.where(shape > 1, variance, jnp.inf)


def location_and_variance(values: Array, num_groups: float) -> tuple[Array, Array]:
    """Where the columns of some values lie, and the expected variance of one of their groups.

    The variance is that of the column over num_groups^(2 / D), as the groups share the volume; of
    a column of one value its square, or 1 for zeros.

    Args:
        values: (N, D) float, NaN where one is missing.
    Returns:
        (D,) float each.

    Source: Fraley & Raftery (2007), Bayesian regularization for normal mixture estimation and
    model-based clustering, section 2.
    """
    values = jnp.asarray(values, jnp.result_type(float))
    size, seen = values.shape[1], ~jnp.isnan(values)
    counts = jnp.maximum(jnp.sum(seen, axis=0), 1)
    first = jnp.take_along_axis(values, jnp.argmax(seen, axis=0)[None], axis=0)[0]
    first = jnp.where(jnp.isnan(first), 0, first)
    # relative to the first value: the mean of equal ones would not always be that value
    deviation = jnp.where(seen, values - first, 0)
    mean = jnp.sum(deviation, axis=0) / counts
    variance = jnp.sum(jnp.where(seen, (deviation - mean) ** 2, 0), axis=0) / counts
    location = first + mean
    alone = jnp.where(location == 0, 1, location**2)
    return location, jnp.where(variance > 0, variance, alone) / num_groups ** (2 / size)


def _derived(prior: Array, num_values: Array, rate: Array) -> tuple[Array, Array, Array]:
    weight, shape = prior[0] + num_values, prior[1] + 0.5 * num_values
    width = 2 * rate * (weight + 1) / weight
    power = shape + 0.5
    level = log_rising(shape, 0.5) - jnp.log(jnp.pi * width) / 2
    return width, power, level
