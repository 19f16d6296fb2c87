"""Counts without a limit: 0, 1, 2, ..."""

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
from jaxmf.likelihoods.families.family import Family, Hyperparameters, check_positive_fields
from jaxmf.types import Array, Key


class CountSums(NamedTuple):
    """Statistics of counts: number (G,) int32, total (G,) int32, log_factorials (G,)."""

    number: Array
    total: Array
    log_factorials: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GammaPoisson(Family):
    """Counts, with a Gamma-distributed mean for every group.

    lambda_g ~ Gamma(shape, rate), x ~ Poisson(lambda_g); with lambda summed out the next count of a
    group is negative binomial.

    Args:
        shape, rate: positive numbers. What is left out a run chooses from the counts: shape 1, and
            a rate with which the expected mean of a group is that of all counts. Without data, as
            in `Network.simulate`, both are 1.
    Raises:
        TypeError, ValueError: a setting is not a positive number.
    Example:
        >>> GammaPoisson(2.0, 1.0).shape
        2.0
    """

    shape: float = None  # type: ignore[assignment]  # left open
    rate: float = None  # type: ignore[assignment]  # left open

    standard_settings = {"shape": 1.0, "rate": 1.0}  # noqa: RUF012

    def __post_init__(self) -> None:
        check_positive_fields(self, ("shape", "rate"))

    def settings_from(self, values: Array, *, num_groups: float) -> dict[str, object]:
        del num_groups
        mean = jnp.nanmean(jnp.asarray(values, jnp.result_type(float)))
        shape = 1.0 if self.shape is None else self.shape
        # of zeros alone, or no counts at all, as of ones
        return {"shape": 1.0, "rate": shape / jnp.where(mean > 0, mean, 1)}

    @property
    def _known(self) -> tuple[float, float]:
        family = self.standard()
        return family.shape, family.rate

    def check(self, values: object, name: str) -> np.ndarray:
        array = np.asarray(values)
        if array.ndim != 1:
            raise ValueError(f"{name}: GammaPoisson takes one count a token, got {array.shape}")
        bad = ~self.in_support(array)
        if bad.any():
            first = int(np.argmax(bad))
            raise ValueError(
                f"{name}: {array[first]} at token {first} is no count. GammaPoisson takes whole "
                "numbers from 0 up; NormalInverseGamma takes any real number."
            )
        if array.astype(float).sum() > np.iinfo(np.int32).max:
            raise ValueError(f"{name}: the counts add up to more than int32 can hold")
        return array

    def in_support(self, values: np.ndarray) -> np.ndarray:
        """Which values (T,) are counts: (T,) bool."""
        found: np.ndarray = np.isfinite(values) & (values >= 0) & (values == np.floor(values))
        return found

    def statistics(self, groups: Array, values: Array, num_groups: int) -> CountSums:
        whole = values.astype(jnp.int32)
        dtype = jnp.result_type(float)
        return CountSums(
            jnp.zeros((num_groups,), jnp.int32).at[groups].add(1),
            jnp.zeros((num_groups,), jnp.int32).at[groups].add(whole),
            jnp.zeros((num_groups,), dtype).at[groups].add(gammaln(whole + 1.0)),
        )

    def begin(self, statistics: CountSums, hyperparameters: Hyperparameters) -> dict[str, Array]:
        shape, rate = (jnp.asarray(setting, jnp.result_type(float)) for setting in self._known)
        return {
            "num_values": statistics.number,
            "total": statistics.total,
            "shape": shape,
            "rate": rate,
        }

    def move(
        self, cache: dict[str, Array], group: Array, value: Array, amount: int
    ) -> dict[str, Array]:
        change = amount * value.astype(jnp.int32)
        return cache | {
            "num_values": tables.add(cache["num_values"], group, amount),
            "total": tables.add(cache["total"], group, change),
        }

    def predictive(self, cache: dict[str, Array], lanes: Lanes, value: Array) -> Array:
        dtype = cache["shape"].dtype
        value = value.astype(dtype)
        shape = cache["shape"] + tables.take(cache["total"], lanes).astype(dtype)
        rate = cache["rate"] + tables.take(cache["num_values"], lanes).astype(dtype)
        rising = log_rising(shape, value) - gammaln(value + 1)
        return rising - shape * jnp.log1p(1 / rate) - value * jnp.log1p(rate)

    def log_marginal(self, statistics: CountSums, hyperparameters: Hyperparameters) -> Array:
        prior_shape, prior_rate = self._known
        shape, rate = prior_shape + statistics.total, prior_rate + statistics.number
        prior = prior_shape * jnp.log(prior_rate) - gammaln(prior_shape)
        return prior + gammaln(shape) - shape * jnp.log(rate) - statistics.log_factorials

    def sample_parameters(
        self, key: Key, statistics: CountSums, hyperparameters: Hyperparameters
    ) -> Array:
        """(G,) float: log lambda."""
        prior_shape, prior_rate = self._known
        shape = jnp.asarray(prior_shape + statistics.total, jnp.result_type(float))
        return loggammas(key, shape) - jnp.log(prior_rate + statistics.number)

    def log_prob(self, parameters: Array, value: Array) -> Array:
        return value * parameters - jnp.exp(parameters) - gammaln(value + 1.0)

    def sample(self, key: Key, parameters: Array, groups: Array) -> Array:
        drawn = jax.random.poisson(key, jnp.exp(parameters[groups]))
        return drawn.astype(jnp.result_type(float))

    def moments(
        self, statistics: CountSums, hyperparameters: Hyperparameters
    ) -> tuple[Array, Array]:
        prior_shape, prior_rate = self._known
        rate = prior_rate + statistics.number
        mean = (prior_shape + statistics.total) / rate
        return mean, mean * (1 + 1 / rate)
