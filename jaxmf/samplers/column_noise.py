"""Updates of noise that each column has of its own; see `priors/column_noise.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from jaxmf.priors.column_noise import NoiseOfColumns, log_density_of_factors, spread_prior
from jaxmf.priors.hyper import Hyperparameter, log_prior
from jaxmf.samplers.hyper import update_scale
from jaxmf.samplers.slice import slice_sample
from jaxmf.types import STATIC, Array, Key


def update(
    key: Key, noise: NoiseOfColumns, *, squares: Array, counts: Array, least: Array
) -> NoiseOfColumns:
    """Slice updates of the factors given their spread, each for itself, then of this.

    Args:
      squares: (D,) float, S_j: sums of squared residuals over the common noise variance.
      counts: (D,) float, n_j, how many; or () for all columns.
      least: () float, the lower end of factors: l over the common scale.
    """
    factors_key, spread_key = jax.random.split(key)
    start = jnp.log(noise.factors)
    log_density = conditional(noise, squares, counts, least)
    logs = slice_sample(factors_key, log_density, start, width=0.5)
    factors = jnp.exp(logs).astype(noise.factors.dtype)
    spread = update_scale(
        spread_key,
        spread_prior(),
        noise.spread,
        lambda value: jnp.sum(log_density_of_factors(factors, value, least)),
    )
    return NoiseOfColumns(factors, spread)


def conditional(
    noise: NoiseOfColumns, squares: Array, counts: Array, least: Array
) -> Callable[[Array], Array]:
    """Log densities of log f_j given the residuals, elementwise."""

    def log_density(logs: Array) -> Array:
        factors = jnp.exp(logs)
        prior = log_density_of_factors(factors, noise.spread, least) + logs
        return prior - counts * logs - squares / (2 * factors**2)

    return log_density


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ScaleWithFactors:
    """The prior of v times p(f | s), for factors f and a common scale s = v^power."""

    prior: Hyperparameter
    noise: NoiseOfColumns
    least: Array  # () float, l
    power: float = field(default=1.0, metadata=STATIC)

    @property
    def support(self) -> Hyperparameter:
        return self.prior.support

    def log_prob(self, value: Array) -> Array:
        density = jnp.sum(log_density_of_factors(*self.noise, self.least / value**self.power))
        return log_prior(self.prior, value) + density


def update_level(
    key: Key,
    noise: NoiseOfColumns,
    value: Array,
    prior: Hyperparameter,
    *,
    least: Array,
    power: float = 1.0,
    log_density_fn: Callable[[Array], Array] | None = None,
) -> tuple[NoiseOfColumns, Array]:
    """The common scale s given the noise s f_j of every column, which stays.

    The data say nothing about it: (s, f) becomes (s, s f). Without it the common scale, drawn given
    the factors, would creep.

    Args:
      value: () float, v with s = v^power: the scale, or the variance; power: of it.
      prior: of v.
      least: as in `update`.
      log_density_fn: what else changes with s, of how many times it becomes, () to () float.
    Returns the noise with other factors, and v.
    """
    factors, spread = noise

    def log_density(new: Array) -> Array:
        change = (new / value) ** power
        densities = log_density_of_factors(factors / change, spread, least / change)
        found = jnp.sum(densities - jnp.log(change))
        return found if log_density_fn is None else found + log_density_fn(change)

    moved = update_scale(key, prior, value, log_density)
    return NoiseOfColumns(factors / (moved / value) ** power, spread), moved
