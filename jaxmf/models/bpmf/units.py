"""What BPMF subtracts from the values of cells, and what it divides them by."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.data import Entries
from jaxmf.data.process_cells import sums
from jaxmf.types import Array


def mean_of(values: Array) -> Array:
    """The mean () of values (T,), far from zero too: a sum of large numbers costs digits."""
    return values[0] + jnp.mean(values - values[0])


def unit_of(mean: Array, spread: Array) -> Array:
    """What values of this mean and standard deviation are divided by; see `BPMF.unit`."""
    size = jnp.where(mean == 0, 1, jnp.abs(mean))
    rounding = 4 * jnp.finfo(mean.dtype).eps * jnp.abs(mean)
    return jnp.where(spread > rounding, spread, size)


def moments_of_processes(data: Entries) -> tuple[float, float]:
    """Mean and standard deviation of the values of all processes, which call it together."""
    assert data.elsewhere is not None
    assert data.elsewhere.cells is not None
    values = data.elsewhere.cells.arrays[2].astype(float)
    near = sums([float(values[0])])[0] / jax.process_count()
    mean = near + sums([float(np.sum(values - near))])[0] / data.num_entries
    squares = sums([float(np.sum((values - mean) ** 2))])[0]
    return float(mean), float(np.sqrt(squares / data.num_entries))
