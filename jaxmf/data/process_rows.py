"""Rows of which each process of `jax.distributed` has a part and none has all.

Arrays of such data span the processes; a host reads them a block of rows at a time, all processes
together, so that what is computed from them is the same in each and what one process would find.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple, TypeGuard, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxmf import row_shards
from jaxmf.arguments import shown
from jaxmf.engine.processes import gather_texts
from jaxmf.engine.sharding import refuse_uneven_rows
from jaxmf.programs import jit
from jaxmf.types import Array, Names, PyTree

ROWS_A_BLOCK = 4096


def spans_processes(array: object) -> TypeGuard[jax.Array]:
    """Whether parts of an array lie where this process cannot read them."""
    if not isinstance(array, jax.Array) or isinstance(array, jax.core.Tracer):
        return False
    return not array.is_fully_addressable


def rows_on_host(array: Array, rows: slice) -> np.ndarray:
    """Some rows of an array on the host; of one that spans processes, called by all of them."""
    if not spans_processes(array):
        return np.asarray(array[rows])
    index = np.arange(*rows.indices(array.shape[0]), dtype=np.int32)
    mesh: Any = array.sharding.mesh  # type: ignore[attr-defined]
    with jax.set_mesh(mesh):
        # as bits, for a sum with zeros would lose the sign of a zero
        return np.asarray(_fetch(mesh)(array, index)).view(array.dtype)


def blocks_on_host(array: Array) -> Iterator[np.ndarray]:
    """The rows of an array a block after another, as `rows_on_host`."""
    for start in range(0, array.shape[0], ROWS_A_BLOCK):
        yield np.ascontiguousarray(rows_on_host(array, slice(start, start + ROWS_A_BLOCK)))


@cache
def _fetch(mesh: Mesh) -> Callable[..., PyTree]:
    def fetch(array: Array, index: Array) -> Array:
        if array.dtype != bool:
            array = jax.lax.bitcast_convert_type(array, f"uint{8 * array.dtype.itemsize}")
        return row_shards.rows_at(array, index)

    return jit(fetch, out_shardings=NamedSharding(mesh, PartitionSpec()))


def check_mesh(mesh: object) -> Mesh:
    """The mesh, if its axis "data" goes through the processes one after another.

    Raises TypeError, ValueError: it does not.
    """
    if not isinstance(mesh, Mesh):
        raise TypeError(f"mesh must be a jax.sharding.Mesh, not {type(mesh).__name__}")
    remedy = 'use jax.sharding.Mesh(numpy.array(jax.devices()), ("data",))'
    if row_shards.DATA_AXIS not in mesh.axis_names:
        raise ValueError(f"mesh: has no axis 'data', over which rows are spread; {remedy}")
    axis = mesh.axis_names.index(row_shards.DATA_AXIS)
    parts = np.moveaxis(mesh.devices, axis, 0).reshape(mesh.devices.shape[axis], -1)
    owners = np.array([[device.process_index for device in part] for part in parts])
    in_order = np.repeat(np.arange(jax.process_count()), len(owners) // jax.process_count())
    if not np.array_equal(owners, np.broadcast_to(in_order[:, None], owners.shape)):
        raise ValueError(
            "mesh: its axis 'data' does not go through the processes of jax.distributed one after "
            f"another with equally many devices of each; {remedy}"
        )
    return Mesh(mesh.devices, mesh.axis_names)


SomeFacts = TypeVar("SomeFacts", bound=tuple[object, ...])


class Facts(NamedTuple):
    """Description of a process's rows; all but the last two fields must agree in all processes."""

    num_rows: int
    num_columns: int
    dtype: str
    has_row_names: bool
    column_names: list[str] | None
    row_names: list[str | float] | None
    is_complete: bool


def agree(
    facts: SomeFacts | None,
    error: Exception | None,
    *,
    compared: tuple[str, ...],
    what: str,
    remedy: str,
) -> list[SomeFacts]:
    """Descriptions of the processes' parts of the data, once all of them fit each other.

    Args:
      facts: a named tuple, of this process; None with the error that its part raised.
      compared: names of the entries that must be the same in all processes.
      what: the parts consist of, such as "rows".
      remedy: what to do where they are not the same.
    Raises:
      ValueError: in all processes, where one has other facts or an error.
    """
    text = None if error is None else f"{type(error).__name__}: {error}"
    passed = [json.loads(words) for words in gather_texts(json.dumps([text, facts]))]
    if error is not None:
        raise error
    assert facts is not None
    for process, (text, _) in enumerate(passed):
        if text is not None:
            raise ValueError(f"data: the {what} of process {process} were refused: {text}")
    every = [type(facts)(*words) for _, words in passed]
    for process, other in enumerate(every):
        for name in compared:
            found, first = getattr(other, name), getattr(every[0], name)
            if found != first:
                raise ValueError(
                    f"data: process {process} of jax.distributed has other {what} than process 0: "
                    f"{name} is {shown(found)}, not {shown(first)}. {remedy}"
                )
    return every


def ids_to_pass(argument: str, names: Names | None) -> list[str | float] | None:
    """Ids as they are passed to other processes; TypeError for those that cannot be."""
    ids = None if names is None else names.tolist()
    for name in ids or ():
        if not isinstance(name, str | int | float):
            raise TypeError(
                f"{argument}: the id {name!r} is a {type(name).__name__}, which cannot be passed "
                "to other processes; use texts or numbers"
            )
    return ids


def facts_of(values: Array, observed: Array | None, *ids: Names | None) -> Facts:
    """Description of a process's rows for the others.

    Args: values (n, D) float; observed (n, D) bool, or None; ids of rows, and of columns.
    Raises TypeError: ids of rows that are neither texts nor numbers.
    """
    row_names = ids_to_pass("row_names", ids[0])
    column_names = None if ids[1] is None else ids[1].tolist()
    return Facts(
        num_rows=values.shape[0],
        num_columns=values.shape[1],
        dtype=str(values.dtype),
        has_row_names=row_names is not None,
        column_names=None if column_names is None else [repr(name) for name in column_names],
        row_names=row_names,
        is_complete=observed is None,
    )


def spread(
    values: Array, observed: Array | None, mesh: Mesh, every: list[Facts]
) -> dict[str, Array | None]:
    """Values and mask of the rows of all processes, each row on the device that it belongs to.

    Args: values, observed: of the rows of this process; every: what the processes say of theirs.
    Raises ValueError: the devices cannot have equally many.
    """
    shape = (values.shape[0] * jax.process_count(), values.shape[1])
    refuse_uneven_rows(shape[0], int(mesh.shape[row_shards.DATA_AXIS]))
    sharding = NamedSharding(mesh, PartitionSpec(row_shards.DATA_AXIS))

    def put(rows: np.ndarray) -> Array:
        return jax.make_array_from_process_local_data(sharding, rows, shape)

    seen = None
    if not all(one.is_complete for one in every):
        seen = put(np.ones(values.shape, bool) if observed is None else np.asarray(observed))
    return {"values": put(np.asarray(values)), "observed": seen}
