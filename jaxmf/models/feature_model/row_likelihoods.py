"""Log likelihoods of the cells of a row, ready for `FeatureModel`, and examples for one's own.

Each takes a row x (D,), its features z (K,) bool and the rows of Y (K, D), after its settings, and
gives (D,) log probabilities, one a cell, so that cells may be missing. Settings are bound by
`jax.tree_util.Partial(gaussian, 0.5)`: then other values compile nothing new. Beside each stand
its `moments` and its `sample_row`, with the same settings.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from jaxmf import special
from jaxmf.types import Array, Key


def gaussian(noise_scale: Array | float, x: Array, z: Array, y: Array) -> Array:
    """Features add up, with Gaussian noise: x_d ~ N(sum_k z_k y_kd, noise_scale^2)."""
    standard = (x - _total(z, y)) / noise_scale
    return -0.5 * standard**2 - jnp.log(noise_scale) - 0.5 * jnp.log(2 * jnp.pi)


def gaussian_moments(noise_scale: Array | float, z: Array, y: Array) -> tuple[Array, Array]:
    """Mean and variance (D,) of the cells under `gaussian`."""
    mean = _total(z, y)
    return mean, jnp.full_like(mean, noise_scale**2)


def gaussian_row(noise_scale: Array | float, key: Key, z: Array, y: Array) -> Array:
    """A row (D,) drawn under `gaussian`."""
    mean = _total(z, y)
    return mean + noise_scale * jax.random.normal(key, mean.shape, mean.dtype)


def noisy_or(efficacy: Array | float, leak: Array | float, x: Array, z: Array, y: Array) -> Array:
    """Each feature z_k with y_kd = 1 turns x_d on with probability `efficacy`, nothing with `leak`.

    P(x_d = 1) = 1 - (1 - leak) (1 - efficacy)^(sum_k z_k y_kd)      (Wood & Griffiths, eq 8)
    """
    log_off = jnp.log1p(-leak) + _total(z, y) * jnp.log1p(-efficacy)
    return jnp.where(x > 0, jnp.log(-jnp.expm1(log_off)), log_off)


def noisy_or_moments(
    efficacy: Array | float, leak: Array | float, z: Array, y: Array
) -> tuple[Array, Array]:
    """Mean and variance (D,) of the cells under `noisy_or`."""
    off = (1 - leak) * (1 - efficacy) ** _total(z, y)
    return 1 - off, off * (1 - off)


def noisy_or_row(
    efficacy: Array | float, leak: Array | float, key: Key, z: Array, y: Array
) -> Array:
    """A row (D,) of zeros and ones drawn under `noisy_or`."""
    mean, _ = noisy_or_moments(efficacy, leak, z, y)
    return jax.random.bernoulli(key, mean).astype(mean.dtype)


def poisson(base_rate: Array | float, x: Array, z: Array, y: Array) -> Array:
    """Rates add up: x_d ~ Poisson(base_rate + sum_k z_k y_kd), y >= 0, base_rate > 0."""
    rate = base_rate + _total(z, y)
    return x * jnp.log(rate) - rate - gammaln(x + 1)


def poisson_moments(base_rate: Array | float, z: Array, y: Array) -> tuple[Array, Array]:
    """Mean and variance (D,) of the cells under `poisson`."""
    rate = base_rate + _total(z, y)
    return rate, rate


def poisson_row(base_rate: Array | float, key: Key, z: Array, y: Array) -> Array:
    """A row (D,) of counts drawn under `poisson`."""
    rate, _ = poisson_moments(base_rate, z, y)
    return jax.vmap(special.poisson)(jax.random.split(key, rate.shape[0]), rate).astype(rate.dtype)


def to_power(
    power: Array | float, log_likelihood: Callable[..., Array], x: Array, z: Array, y: Array
) -> Array:
    """A log likelihood times a power of the likelihood, as an annealed start has it."""
    return power * log_likelihood(x, z, y)


BY_COLUMN = (gaussian, noisy_or, poisson)
"""Those whose cells of a column depend on Y in this column alone."""


def _total(z: Array, y: Array) -> Array:
    """sum_k z_k y_kd, (D,) float."""
    dtype = jnp.result_type(float)
    return z.astype(dtype) @ y.astype(dtype)
