"""Rows over the devices of a mesh: sums over rows and functions of rows, each device with its rows.

The axis "data" of a mesh spreads rows: device i of n holds the rows from i N / n on. Programs are
written for all rows, and the compiler splits them. What it would not split by itself goes through
this module: loops over blocks of rows, whose start no device knows of another's rows; calls of
LAPACK; running sums. Each device then works on its rows, and sums are added over devices. Without
such a mesh every function here is what it is without devices.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jax.typing import DTypeLike

from jaxmf.types import Array, PyTree

DATA_AXIS = "data"


def num_shards(num_rows: int) -> int:
    """Over how many devices this many rows are spread in the program that is being traced.

    Args:
      num_rows: N. Rows that the devices cannot share evenly are not spread: 1.
    """
    mesh = jax.sharding.get_abstract_mesh()
    devices = int(mesh.shape[DATA_AXIS]) if DATA_AXIS in mesh.axis_names else 1
    return devices if num_rows % devices == 0 else 1


def spread(array: Array) -> Array:
    """The array (N, ...), each device with its rows."""
    if num_shards(array.shape[0]) == 1:
        return array
    return jax.lax.with_sharding_constraint(array, PartitionSpec(DATA_AXIS))


def whole(array: Array) -> Array:
    """The array, every device with all of it."""
    if DATA_AXIS not in jax.sharding.get_abstract_mesh().axis_names:
        return array
    return jax.lax.with_sharding_constraint(array, PartitionSpec())


def sum_over_rows(
    function: Callable[..., PyTree], rows: tuple[Array, ...], *shared: Array
) -> PyTree:
    """A sum over rows, of which each device adds its part.

    Args:
      function: `(*rows, *shared)` to a pytree of sums over the rows that it is passed.
      rows: arrays (N, ...).
      shared: arrays that every device has whole; nothing traced may be closed over.
    Returns:
      What the function returns for all rows. Sums of whole numbers do not depend on the number of
      devices while they are below 2^24 in single precision; others do by their rounding.
    """
    if num_shards(rows[0].shape[0]) == 1:
        return function(*rows, *shared)

    def part(*arrays: Array) -> PyTree:
        return add_over_devices(function(*arrays))

    return _on_each_device(part, rows, shared, PartitionSpec())(*rows, *shared)


def by_row(function: Callable[..., PyTree], rows: tuple[Array, ...], *shared: Array) -> PyTree:
    """A function of rows that gives an array (N, ...), of which each device makes its rows.

    Args: function: `(*rows, *shared)` to a pytree of arrays with the axis of rows first; rows,
    shared: as for `sum_over_rows`.
    """
    if num_shards(rows[0].shape[0]) == 1:
        return function(*rows, *shared)
    return _on_each_device(function, rows, shared, PartitionSpec(DATA_AXIS))(*rows, *shared)


def column_counts(z: Array, dtype: DTypeLike) -> Array:
    """How many rows of z (N, K) bool have each feature, (K,) of this dtype."""
    return sum_over_rows(lambda z: jnp.sum(z, axis=0, dtype=dtype), (z,))


def running_total(values: Array) -> Array:
    """The sum of the values (N,) int32 up to and with each row, (N,)."""
    count = num_shards(values.shape[0])
    if count == 1:
        return jnp.cumsum(values)
    parts = spread(values).reshape(count, -1)
    totals = jnp.sum(parts, axis=1)
    return (jnp.cumsum(parts, axis=1) + (jnp.cumsum(totals) - totals)[:, None]).reshape(-1)


def add_over_devices(sums: PyTree) -> PyTree:
    """The sums of all devices together; called in what runs on each of them."""
    return jax.lax.psum(sums, DATA_AXIS)


def _on_each_device(
    function: Callable[..., PyTree],
    rows: tuple[Array, ...],
    shared: tuple[Array, ...],
    out: PartitionSpec,
) -> Callable[..., PyTree]:
    specs = (PartitionSpec(DATA_AXIS),) * len(rows) + (PartitionSpec(),) * len(shared)
    return jax.shard_map(function, in_specs=specs, out_specs=out, check_vma=False)
