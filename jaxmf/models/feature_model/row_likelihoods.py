"""Log likelihoods of the cells of a row by functions, which `FeatureModel` takes too.

Each takes a row x (D,), its features z (K,) bool and the rows of Y (K, D), after its settings, and
returns (D,) log probabilities, one a cell, so that cells may be missing. Settings are bound by
`jax.tree_util.Partial(gaussian, 0.5)`: then other values compile nothing new. Beside each stand
its `moments` and its `sample_row`, with the same settings. All are those of the likelihoods of a
cell, at the predictor sum_k z_k y_kd.
"""

from collections.abc import Callable

import jax.numpy as jnp

from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.likelihoods.cells.likelihood import Likelihood
from jaxmf.likelihoods.cells.noisy_or import NoisyOr
from jaxmf.likelihoods.cells.poisson import Poisson
from jaxmf.types import Array, Key


def gaussian(noise_scale: Array | float, x: Array, z: Array, y: Array) -> Array:
    """Features add up, with Gaussian noise: x_d ~ N(sum_k z_k y_kd, noise_scale^2)."""
    return _gaussian(noise_scale).log_density(x, predictor(z, y))


def gaussian_moments(noise_scale: Array | float, z: Array, y: Array) -> tuple[Array, Array]:
    """Mean and variance (D,) of the cells under `gaussian`."""
    return _gaussian(noise_scale).moments(predictor(z, y))


def gaussian_row(noise_scale: Array | float, key: Key, z: Array, y: Array) -> Array:
    """A row (D,) drawn under `gaussian`."""
    return sample_row(_gaussian(noise_scale), key, z, y)


def noisy_or(efficacy: Array | float, leak: Array | float, x: Array, z: Array, y: Array) -> Array:
    """Each feature z_k with y_kd = 1 turns x_d on with probability `efficacy`, nothing with `leak`.

    P(x_d = 1) = 1 - (1 - leak) (1 - efficacy)^(sum_k z_k y_kd)      (Wood & Griffiths, eq 8)
    """
    return _noisy_or(efficacy, leak).log_density(x, predictor(z, y))


def noisy_or_moments(
    efficacy: Array | float, leak: Array | float, z: Array, y: Array
) -> tuple[Array, Array]:
    """Mean and variance (D,) of the cells under `noisy_or`."""
    return _noisy_or(efficacy, leak).moments(predictor(z, y))


def noisy_or_row(
    efficacy: Array | float, leak: Array | float, key: Key, z: Array, y: Array
) -> Array:
    """A row (D,) of zeros and ones drawn under `noisy_or`."""
    return sample_row(_noisy_or(efficacy, leak), key, z, y)


def poisson(base_rate: Array | float, x: Array, z: Array, y: Array) -> Array:
    """Rates add up: x_d ~ Poisson(base_rate + sum_k z_k y_kd), y >= 0, base_rate > 0."""
    return _poisson(base_rate).log_density(x, predictor(z, y))


def poisson_moments(base_rate: Array | float, z: Array, y: Array) -> tuple[Array, Array]:
    """Mean and variance (D,) of the cells under `poisson`."""
    return _poisson(base_rate).moments(predictor(z, y))


def poisson_row(base_rate: Array | float, key: Key, z: Array, y: Array) -> Array:
    """A row (D,) of counts drawn under `poisson`."""
    return sample_row(_poisson(base_rate), key, z, y)


def to_power(
    power: Array | float, log_likelihood: Callable[..., Array], x: Array, z: Array, y: Array
) -> Array:
    """A log likelihood times a power of the likelihood, as an annealed start has it."""
    return power * log_likelihood(x, z, y)


BY_COLUMN = (gaussian, noisy_or, poisson)
"""Those whose cells of a column depend on Y in this column alone."""


def predictor(z: Array, y: Array) -> Array:
    """sum_k z_k y_kd, (D,) float."""
    dtype = jnp.result_type(float)
    return z.astype(dtype) @ y.astype(dtype)


def sample_row(likelihood: Likelihood, key: Key, z: Array, y: Array) -> Array:
    """A row (D,) of cells drawn from their likelihood."""
    return likelihood.sample(key, predictor(z, y))


def _gaussian(noise_scale: Array | float) -> Gaussian:
    return Gaussian().at_values({"noise_scale": noise_scale})


def _noisy_or(efficacy: Array | float, leak: Array | float) -> NoisyOr:
    return NoisyOr().at_values({"efficacy": efficacy, "leak": leak})


def _poisson(base_rate: Array | float) -> Poisson:
    return Poisson().at_values({"base_rate": base_rate})
