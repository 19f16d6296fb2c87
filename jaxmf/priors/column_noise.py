"""Noise of its own for each column: factors about one common scale, and how far they spread.

    s_j = noise_scale f_j,   1 / f_j^2 ~ Gamma(nu / 2, nu / 2),   nu ~ LogUniform(1/2, 100)

so that s_j^2 is scaled-inverse-chi-squared with nu degrees of freedom about noise_scale^2. Columns
alike raise nu and are pooled; columns far apart lower it and are left to themselves. The density
goes to zero with f_j: a column without any error has noise of about noise_scale sqrt(nu / N). For
that nu is bounded from below: N residuals of zero have a density of nu^(1 - N / 2) or so.

Source: Gelman et al. (2013), Bayesian Data Analysis, section 2.6; Smyth (2004), Linear models and
empirical Bayes methods for assessing differential expression.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from jaxmf._kernels.special import loggammas
from jaxmf.priors.hyper import log_prior, sample_prior
from jaxmf.types import Array, Key

if TYPE_CHECKING:
    import numpyro.distributions as dist

_FIRST_DEGREES = 4.0


class NoiseOfColumns(NamedTuple):
    """How noisy columns are beside each other."""

    factors: Array  # (D,) float, f_j
    degrees: Array  # () float, nu


def degrees_prior() -> dist.Distribution:
    """The prior of nu."""
    import numpyro.distributions as dist

    return dist.LogUniform(0.5, 100.0)


def start(num_columns: int, dtype: DTypeLike) -> NoiseOfColumns:
    """Columns alike."""
    return NoiseOfColumns(jnp.ones((num_columns,), dtype), jnp.asarray(_FIRST_DEGREES, dtype))


def sample(key: Key, num_columns: int) -> NoiseOfColumns:
    """A draw from the prior."""
    degrees_key, factors_key = jax.random.split(key)
    degrees = sample_prior(degrees_key, degrees_prior())
    return NoiseOfColumns(sample_factors(factors_key, degrees, num_columns), degrees)


def sample_factors(key: Key, degrees: Array, num_columns: int) -> Array:
    """Factors (D,) of columns given nu."""
    half = degrees / 2
    log_precisions = loggammas(key, jnp.full((num_columns,), half)) - jnp.log(half)
    return jnp.exp(-log_precisions / 2)


def log_density(noise: NoiseOfColumns) -> Array:
    """log p(f, nu): () float."""
    densities = jnp.sum(log_density_of_factors(*noise))
    return densities + log_prior(degrees_prior(), noise.degrees)


def log_density_of_factors(factors: Array, degrees: Array) -> Array:
    """log p(f_j | nu), elementwise."""
    half, log_factors = degrees / 2, jnp.log(factors)
    level = jnp.log(2.0) + half * jnp.log(half) - jax.scipy.special.gammaln(half)
    return level - 2 * half * log_factors - log_factors - half / factors**2
