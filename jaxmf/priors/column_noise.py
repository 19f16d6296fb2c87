"""Noise of its own for each column: factors about one common scale, and how far they spread.

    s_j = noise_scale f_j,   log f_j ~ Laplace(0, b) cut off where s_j < l,   b ~ LogUniform(.05, 2)

so that the common scale is a median of those of the columns. Columns alike lower b and are pooled;
one far from the others costs |log f_j| / b and moves the common scale no further. A column without
any error has noise l, a hundredth of what the prior of noise_scale is about: without that end its
density would have no integral, n residuals of zero being s_j^-n.

Source: Gelman et al. (2013), Bayesian Data Analysis, section 5.4 (hierarchical scales).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from jaxmf.priors import hyper
from jaxmf.priors.hyper import Hyperparameter, log_prior, sample_prior
from jaxmf.types import Array, Key

if TYPE_CHECKING:
    import numpyro.distributions as dist

_FIRST_SPREAD = 0.5
_LEAST = 0.01


class NoiseOfColumns(NamedTuple):
    """How noisy columns are beside each other."""

    factors: Array  # (D,) float, f_j
    spread: Array  # () float, b


def spread_prior() -> dist.Distribution:
    """The prior of b."""
    import numpyro.distributions as dist

    return dist.LogUniform(0.05, 2.0)


def least_noise(prior: Hyperparameter, power: float = 1.0) -> Array:
    """l, () float, for a common scale v^power where v has this prior."""
    return _LEAST * hyper.initial_value(prior) ** power


def check_least(least: Array, spreads: np.ndarray) -> None:
    """Refuses a stated prior of noise_scale under which half of the columns would be but noise.

    Args: least () float, l; spreads (D,) float, standard deviations of the columns in the unit of
    the noise, 0 of constant ones.
    Raises ValueError: l is more than a tenth of the median of those that vary.
    """
    varied = spreads[spreads > 0]
    if varied.size and least > 0.1 * np.median(varied):
        raise ValueError(
            "noise_scale: with column_noise=True no column has noise below a hundredth of what its "
            f"prior is about, here {float(least):.3g}, and half of the columns have a standard "
            f"deviation of {np.median(varied):.3g} or less. State a prior on the scale of the "
            "data, or leave noise_scale out"
        )


def start(num_columns: int, dtype: DTypeLike) -> NoiseOfColumns:
    """Columns alike."""
    return NoiseOfColumns(jnp.ones((num_columns,), dtype), jnp.asarray(_FIRST_SPREAD, dtype))


def sample(key: Key, num_columns: int, least: Array) -> NoiseOfColumns:
    """A draw from the prior; least: l over the common scale, () float."""
    spread_key, factors_key = jax.random.split(key)
    spread = sample_prior(spread_key, spread_prior())
    return NoiseOfColumns(sample_factors(factors_key, spread, least, num_columns), spread)


def sample_factors(key: Key, spread: Array, least: Array, num_columns: int) -> Array:
    """Factors (D,) of columns given b, at least l over the common scale."""
    tiny = jnp.finfo(spread.dtype).tiny
    above = jax.random.uniform(key, (num_columns,), spread.dtype, minval=tiny)
    above = above * jnp.exp(_log_share_above(spread, least))
    lower, upper = jnp.log(2 * (1 - above)), -jnp.log(2 * above)
    return jnp.maximum(jnp.exp(spread * jnp.where(above > 0.5, lower, upper)), least)


def log_density(noise: NoiseOfColumns, least: Array) -> Array:
    """log p(f, b): () float."""
    densities = jnp.sum(log_density_of_factors(*noise, least))
    return densities + log_prior(spread_prior(), noise.spread)


def log_density_of_factors(factors: Array, spread: Array, least: Array) -> Array:
    """log p(f_j | b), elementwise."""
    logs = jnp.log(factors)
    level = jnp.log(2 * spread) + _log_share_above(spread, least)
    # by a little less, as their product with the common scale is rounded
    inside = factors >= least * (1 - 1e-5)
    return jnp.where(inside, -jnp.abs(logs) / spread - logs - level, -jnp.inf)


def _log_share_above(spread: Array, least: Array) -> Array:
    """log of the probability that log f_j is above log(least)."""
    end = jnp.log(least) / spread
    return jnp.where(end < 0, jnp.log1p(-0.5 * jnp.exp(jnp.minimum(end, 0))), -jnp.log(2.0) - end)
