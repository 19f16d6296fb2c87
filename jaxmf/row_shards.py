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

    return with_rows(part, rows, *shared)


def with_rows(function: Callable[..., PyTree], rows: tuple[Array, ...], *shared: PyTree) -> PyTree:
    """A function of rows whose result does not belong to rows, called by each device with its own.

    Args: function: adds what it sums over rows by `add_over_devices`, so that all devices get the
    same; rows, shared: as for `sum_over_rows`, shared may be pytrees.
    """
    if num_shards(rows[0].shape[0]) == 1:
        return function(*rows, *shared)
    return _with_rows(function, rows, shared, PartitionSpec())(*rows, *shared)


def rows_at(array: Array, index: Array) -> Array:
    """Rows (..., ...) of an array (N, ...), every device with them; index () or (...) int."""
    return with_rows(rows_of_all, (array,), index)


def by_row(function: Callable[..., PyTree], rows: tuple[Array, ...], *shared: PyTree) -> PyTree:
    """A function of rows that gives an array (N, ...), of which each device makes its rows.

    Args: function: `(*rows, *shared)` to a pytree of arrays with the axis of rows first; rows,
    shared: as for `sum_over_rows`.
    """
    if num_shards(rows[0].shape[0]) == 1:
        return function(*rows, *shared)
    return _with_rows(function, rows, shared, PartitionSpec(DATA_AXIS))(*rows, *shared)


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


def is_share() -> bool:
    """Whether what is traced runs on each device by itself, with its rows alone."""
    return DATA_AXIS in jax.sharding.get_abstract_mesh().manual_axes


def num_shares() -> int:
    """Over how many devices the rows are spread: 1 if this device has all of them."""
    return int(jax.sharding.get_abstract_mesh().shape[DATA_AXIS]) if is_share() else 1


def add_over_devices(sums: PyTree) -> PyTree:
    """The sums of all devices together, in what runs on each of them; elsewhere as they are."""
    return jax.lax.psum(sums, DATA_AXIS) if is_share() else sums


def average_over_devices(means: PyTree) -> PyTree:
    """Means over rows, of which all devices have equally many, from those of each of them."""
    num_devices = num_shares()
    if num_devices == 1:
        return means
    return jax.tree.map(lambda one: one / num_devices, add_over_devices(means))


def largest_over_devices(value: Array) -> Array:
    """The largest of the devices' values, elementwise."""
    return jax.lax.pmax(value, DATA_AXIS) if is_share() else value


def rows_of_all(array: Array, index: Array) -> Array:
    """Rows (..., ...) of an array (N, ...) of which each device sees its share, on every device.

    Args: index: int, among the rows of all devices.
    """
    if not is_share():
        return array[index]
    here = index - first_row(array.shape[0])
    is_here = (here >= 0) & (here < array.shape[0])
    found = array[jnp.where(is_here, here, 0)]
    is_here = is_here.reshape(is_here.shape + (1,) * (found.ndim - is_here.ndim))
    return add_over_devices(jnp.where(is_here, found, 0)).astype(array.dtype)


def first_row(num_rows: int) -> Array | int:
    """The index of the first row of a device that sees `num_rows` of them, among all."""
    return jax.lax.axis_index(DATA_AXIS) * num_rows if is_share() else 0


def part_of(array: Array) -> Array:
    """A device's part of what all of them have, (S, ...): equal parts, with zeros at the end."""
    if not is_share():
        return array
    size = -(-array.shape[0] // num_shares())
    padding = [(0, size * num_shares() - array.shape[0])] + [(0, 0)] * (array.ndim - 1)
    return jax.lax.dynamic_slice_in_dim(jnp.pad(array, padding), first_row(size), size)


def qr(matrix: Array) -> tuple[Array, Array]:
    """The QR decomposition of a matrix (N, L) with at least as many rows as columns: Q and R.

    Of shares each device decomposes its rows, and all the factors R of these below each other.
    """
    left, small = jnp.linalg.qr(matrix)
    if not is_share():
        return left, small
    both, small = jnp.linalg.qr(jax.lax.all_gather(small, DATA_AXIS, tiled=True))
    here = jax.lax.dynamic_slice_in_dim(both, first_row(left.shape[1]), left.shape[1])
    return left @ here, small


def on_its_device(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """A function that the compiler cannot split, such as a kernel, for every device by itself.

    Arrays are whole on all devices of the mesh, but for axes that `vmap` spreads: a device has the
    chains that are its. Left to the compiler it would compute those of all devices.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if len(mesh.manual_axes) == len(mesh.axis_names):  # no mesh, or its devices work alone already
        return function
    return on_each_device(function, PartitionSpec(), PartitionSpec())


def on_each_device(
    function: Callable[..., PyTree], specs: PyTree, out: PyTree
) -> Callable[..., PyTree]:
    """The function as every device calls it with its share of the arguments.

    Args: specs, out: `PartitionSpec` of the arguments and of what is returned, by leaf or subtree.
    """
    return jax.shard_map(function, in_specs=specs, out_specs=out, check_vma=False)


def _with_rows(
    function: Callable[..., PyTree],
    rows: tuple[Array, ...],
    shared: tuple[PyTree, ...],
    out: PartitionSpec,
) -> Callable[..., PyTree]:
    specs = (PartitionSpec(DATA_AXIS),) * len(rows) + (PartitionSpec(),) * len(shared)
    return on_each_device(function, specs, out)
