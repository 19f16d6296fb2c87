"""The distribution of one cell given one draw: its log density, and draws from it.

A model names it by the property `cell_distribution`, which is normal unless it says otherwise.
What a model predicts for a cell is a mean and a variance. A model whose cells have another
distribution given a draw, as a mixture over groups, gives it by its methods `cell_log_density` and
`draw_cells`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from jaxmf.model import Model
from jaxmf.types import Array


class CellDistribution(NamedTuple):
    """A family of distributions of one cell, by mean and variance."""

    # (values, mean, variance) -> log density, arrays of one shape
    log_density: Callable[[Any, Any, Any], Any]
    # (generator, mean, variance, num_draws) -> (num_draws, M) float32, for means (M,); on the host
    draw: Callable[[np.random.Generator, np.ndarray, np.ndarray, int], np.ndarray]


def _numpy_of(mean: object) -> Any:
    """numpy for arrays on the host, where nothing has to be compiled, else jax's."""
    return np if isinstance(mean, np.ndarray) else jnp


def _log_normal(values: Array, mean: Array, variance: Array) -> Array:
    xp = _numpy_of(mean)
    return -0.5 * (xp.log(2 * np.pi * variance) + (values - mean) ** 2 / variance)


def _draw_normal(
    generator: np.random.Generator, mean: np.ndarray, variance: np.ndarray, num_draws: int
) -> np.ndarray:
    noise = generator.standard_normal((num_draws, mean.size), dtype=np.float32)
    return (mean + np.sqrt(variance) * noise).astype(np.float32)


def _log_bernoulli(values: object, mean: Array, variance: object) -> Array:
    del variance
    xp, tiny = _numpy_of(mean), np.finfo(mean.dtype).tiny
    log_one = xp.log(xp.maximum(mean, tiny))
    log_zero = xp.log(xp.maximum(1 - mean, tiny))
    inside = xp.where(values == 1, log_one, log_zero)
    return xp.where((values == 0) | (values == 1), inside, -np.inf)


def _draw_bernoulli(
    generator: np.random.Generator, mean: np.ndarray, variance: np.ndarray, num_draws: int
) -> np.ndarray:
    del variance
    return (generator.random((num_draws, mean.size), dtype=np.float32) < mean).astype(np.float32)


def _log_poisson(values: Array, mean: Array, variance: object) -> Array:
    del variance
    inside = values * jnp.log(mean) - mean - gammaln(values + 1)
    return jnp.where((values >= 0) & (values == jnp.floor(values)), inside, -jnp.inf)


def _draw_poisson(
    generator: np.random.Generator, mean: np.ndarray, variance: np.ndarray, num_draws: int
) -> np.ndarray:
    del variance
    return generator.poisson(mean, (num_draws, mean.size)).astype(np.float32)


CELL_DISTRIBUTIONS = {
    "normal": CellDistribution(_log_normal, _draw_normal),
    "bernoulli": CellDistribution(_log_bernoulli, _draw_bernoulli),
    "poisson": CellDistribution(_log_poisson, _draw_poisson),
}


def cell_distribution(model: Model) -> CellDistribution:
    """The distribution of a model's cells given a draw."""
    return CELL_DISTRIBUTIONS[model.cell_distribution]
