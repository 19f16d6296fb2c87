"""Zero-inflated counts by augmentation, as a family of two parts for every group."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

import jaxmf as mf


class Sums(NamedTuple):
    """Of the counts of each part: whether all are zero, how many, their sum, log factorials."""

    is_zero: jax.Array
    number: jax.Array
    total: jax.Array
    log_factorials: jax.Array


@mf.register
@partial(jax.tree_util.register_dataclass, data_fields=["shape", "rate"], meta_fields=[])
@dataclass(frozen=True)
class ZeroOrPoisson(mf.AdditiveFamily):
    """Counts that are zero in the second half of the parts, Poisson in the first.

    With an indicator of two values as the first parent, ``by=("always_zero", "group")``, a group's
    counts are zero-inflated Poisson: zero with probability pi_g, else Poisson(lambda_g), where
    pi_g is the indicator's and lambda_g ~ Gamma(shape, rate).

    Source: Lambert (1992), Zero-inflated Poisson regression, with an application to defects in
    manufacturing.
    """

    shape: float = 1.0
    rate: float = 1.0

    pads = False  # which half a part is in hangs on how many there are
    hyperparameters = ("shape", "rate")

    def in_support(self, values):
        return np.isfinite(values) & (values >= 0) & (values == np.floor(values))

    def statistic(self, value):
        one = jnp.ones((), jnp.int32)
        return Sums(0 * one, one, value.astype(jnp.int32), gammaln(value + 1))

    def empty(self, num_groups):
        nothing = super().empty(num_groups)
        return nothing._replace(is_zero=jnp.where(jnp.arange(num_groups) < num_groups // 2, 0, 1))

    def log_marginal(self, statistics, hyperparameters):
        shape = hyperparameters["shape"] + statistics.total
        rate = hyperparameters["rate"] + statistics.number
        prior = hyperparameters["shape"] * jnp.log(hyperparameters["rate"]) - gammaln(
            hyperparameters["shape"]
        )
        poisson = prior + gammaln(shape) - shape * jnp.log(rate) - statistics.log_factorials
        zero = jnp.where(statistics.total == 0, 0.0, -jnp.inf)
        return jnp.where(statistics.is_zero == 1, zero, poisson)

    def sample_parameters(self, key, statistics, hyperparameters):
        shape = hyperparameters["shape"] + statistics.total
        rate = hyperparameters["rate"] + statistics.number
        return jnp.where(statistics.is_zero == 1, 0.0, jax.random.gamma(key, shape) / rate)

    def log_prob(self, parameters, value):
        safe = jnp.where(parameters > 0, parameters, 1.0)
        poisson = value * jnp.log(safe) - safe - gammaln(value + 1)
        zero = jnp.where(value == 0, 0.0, -jnp.inf)
        return jnp.where(parameters > 0, poisson, zero)

    def sample(self, key, parameters, groups):
        return 1.0 * jax.random.poisson(key, parameters[groups])

    def moments(self, statistics, hyperparameters):
        rate = hyperparameters["rate"] + statistics.number
        mean = (hyperparameters["shape"] + statistics.total) / rate
        return tuple(
            jnp.where(statistics.is_zero == 1, 0, value) for value in (mean, mean * (1 + 1 / rate))
        )
