"""Updates of noise that each column has of its own; see `priors/column_noise.py`."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxmf._kernels.special import loggammas
from jaxmf.priors.column_noise import NoiseOfColumns, degrees_prior, log_density_of_factors
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.samplers.hyper import update_scale
from jaxmf.types import Array, Key


def update(key: Key, noise: NoiseOfColumns, *, squares: Array, counts: Array) -> NoiseOfColumns:
    """Gibbs update of the factors given the degrees of freedom, then of these.

    Args:
      squares: (D,) float, S_j: sums of squared residuals over the common noise variance.
      counts: (D,) float, n_j, how many; or () for all columns.
    """
    factors_key, degrees_key = jax.random.split(key)
    shapes, rates = conditional(noise, squares, counts)
    log_precisions = loggammas(factors_key, shapes) - jnp.log(rates)
    factors = jnp.exp(-log_precisions / 2).astype(noise.factors.dtype)
    degrees = update_scale(
        degrees_key,
        degrees_prior(),
        noise.degrees,
        lambda value: jnp.sum(log_density_of_factors(factors, value)),
    )
    return NoiseOfColumns(factors, degrees)


def conditional(noise: NoiseOfColumns, squares: Array, counts: Array) -> tuple[Array, Array]:
    """Shapes and rates (D,) of 1 / f_j^2 ~ Gamma((nu + n_j) / 2, (nu + S_j) / 2)."""
    shapes = jnp.broadcast_to((noise.degrees + counts) / 2, squares.shape)
    return shapes.astype(squares.dtype), (noise.degrees + squares) / 2


def update_level(
    key: Key,
    noise: NoiseOfColumns,
    value: Array,
    prior: Hyperparameter,
    *,
    power: float = 1.0,
    log_density_fn: Callable[[Array], Array] | None = None,
) -> tuple[NoiseOfColumns, Array]:
    """The common scale s given the noise s f_j of every column, which stays.

    The data say nothing about it: (s, f) becomes (s, s f). Without it the common scale, drawn given
    the factors, would creep.

    Args:
      value: () float, v with s = v^power: the scale, or the variance; power: of it.
      prior: of v.
      log_density_fn: what else changes with s, of how many times it becomes, () to () float.
    Returns the noise with other factors, and v.
    """
    factors, degrees = noise

    def log_density(new: Array) -> Array:
        change = (new / value) ** power
        found = jnp.sum(log_density_of_factors(factors / change, degrees) - jnp.log(change))
        return found if log_density_fn is None else found + log_density_fn(change)

    moved = update_scale(key, prior, value, log_density)
    return NoiseOfColumns(factors / (moved / value) ** power, degrees), moved
