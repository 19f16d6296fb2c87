"""Cells of which each process of `jax.distributed` has a part and none has all.

The cells of a process stay with it, on the host. What is computed from all of them goes through
all processes together, a block of cells after another in the order of the processes: each then
has the same result, that of one process with all cells.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxmf.data.long_arrays import blocks, has_repeats, sort_cells
from jaxmf.data.names import as_names
from jaxmf.data.process_rows import agree, ids_to_pass
from jaxmf.data.process_rows import check_mesh as check_mesh
from jaxmf.engine.processes import from_process, gather_texts
from jaxmf.row_shards import DATA_AXIS
from jaxmf.types import Array, Names, PyTree

CELLS_A_BLOCK = 2**18

Id = str | float

ADVICE = (
    "data: the rows lie in several processes, none of which has all of them, and this needs their "
    "cells. Where one process has room for all: post.save(folder, data=False), then "
    "jaxmf.load(folder, data=X) with the whole matrix"
)


class CellPart(NamedTuple):
    """The cells of this process, and how many each has."""

    mesh: Mesh
    # rows and columns (T,) int32, by their positions among those of all, and perhaps values
    arrays: tuple[np.ndarray, ...]
    counts: tuple[int, ...]

    @property
    def num_cells(self) -> int:
        """How many cells all processes have together."""
        return sum(self.counts)

    @property
    def first_cell(self) -> int:
        """The position of the first cell of this process among those of all."""
        return sum(self.counts[: jax.process_index()])


class SpreadColumn(NamedTuple):
    """One of the arrays of a part as the whole array that it belongs to, for `container.digest`."""

    part: CellPart
    which: int

    @property
    def dtype(self) -> np.dtype:
        """Its dtype."""
        return self.part.arrays[self.which].dtype

    @property
    def shape(self) -> tuple[int]:
        """(T,) of all processes."""
        return (self.part.num_cells,)

    def blocks(self) -> Iterator[np.ndarray]:
        """The array, a block after another; called by all processes."""
        arrays = (self.part.arrays[self.which],)
        return (block[0] for block in _blocks(self.part._replace(arrays=arrays)))


def _blocks(part: CellPart) -> Iterator[tuple[np.ndarray, ...]]:
    """The cells of all processes, a block after another; called by all of them."""
    # of one length, for one program
    size = min(CELLS_A_BLOCK, max(part.counts))
    for process, count in enumerate(part.counts):
        for some in blocks(count, size):
            here = tuple(np.zeros(size, array.dtype) for array in part.arrays)
            if process == jax.process_index():
                for block, array in zip(here, part.arrays, strict=True):
                    block[: some.stop - some.start] = array[some]
            length = some.stop - some.start
            yield tuple(block[:length] for block in from_process(here, process))


def cells_where(part: CellPart, are_kept: Callable[..., np.ndarray]) -> tuple[np.ndarray, ...]:
    """The cells, of all processes, that this one asks for, in their order; all processes call it.

    Args: are_kept: of a block of cells, by its arrays: (B,) bool.
    """
    kept: list[list[np.ndarray]] = [[array[:0]] for array in part.arrays]
    for block in _blocks(part):
        there = are_kept(*block)
        for one, array in zip(kept, block, strict=True):
            one.append(array[there])
    return tuple(np.concatenate(one) for one in kept)


def cells_of_lines(
    part: CellPart, lines_of_device: int, *, by_column: bool = False
) -> tuple[np.ndarray, ...]:
    """The cells whose rows, or columns, belong to the devices of this process; called by all.

    Args: lines_of_device: how many rows, or columns, a device of the mesh's axis "data" has.
    """
    device, count = devices_here(part.mesh)
    first, end = device * lines_of_device, (device + count) * lines_of_device
    lines = part.arrays[by_column]
    if not largest(bool(np.any(lines < first) or np.any(lines >= end))):
        return part.arrays

    def are_here(*block: np.ndarray) -> np.ndarray:
        return (block[by_column] >= first) & (block[by_column] < end)

    return cells_where(part, are_here)


def devices_here(mesh: Mesh) -> tuple[int, int]:
    """The first index of this process along the mesh's axis "data", and how many it has there."""
    count = int(mesh.shape[DATA_AXIS]) // jax.process_count()
    return jax.process_index() * count, count


def put_shares(mesh: Mesh, array: np.ndarray) -> jax.Array:
    """The shares of all devices one after another, of which each process passes its own."""
    shape = (array.shape[0] * jax.process_count(), *array.shape[1:])
    sharding = NamedSharding(mesh, PartitionSpec(DATA_AXIS))
    return jax.make_array_from_process_local_data(sharding, array, shape)


def largest(value: float) -> int:
    """The largest of the whole numbers, or the truth values, that the processes pass."""
    return max(map(int, gather_texts(str(int(value)))))


def sums(values: Sequence[float]) -> np.ndarray:
    """Sums (S,) of what the processes pass, in their order."""
    return np.sum([json.loads(text) for text in gather_texts(json.dumps(list(values)))], axis=0)


def counts_of_lines(part: CellPart, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """How many cells the rows (N,) and the columns (D,) have; called by all processes."""
    found = np.zeros(shape[0], np.int64), np.zeros(shape[1], np.int64)
    for block in _blocks(part):
        for count, lines in zip(found, block[:2], strict=True):
            np.add.at(count, lines, 1)
    return found


# --- the parts of all processes together ----------------------------------------------------------


class CellFacts(NamedTuple):
    """Description of a process's part; the first four fields must be the same in all."""

    dtypes: list[str]
    has_row_names: bool
    has_column_names: bool
    num_columns: int | None  # where columns have no ids
    num_rows: int
    num_cells: int
    num_missing: int
    row_names: list[Id] | None
    column_names: list[Id] | None


class Merged(NamedTuple):
    """The part of this process among those of all."""

    part: CellPart
    missing: CellPart | None
    shape: tuple[int, int]
    row_names: Names | None
    column_names: Names | None


def merge(
    make: Callable[[], PyTree],
    mesh: object,
    *,
    names: Sequence[str],
    split_by_row: bool,
    is_sorted: bool = True,
) -> Merged:
    """The cells of all processes with rows and columns numbered among those of all.

    Ids come in the order of their appearance, process after process. Rows without ids are those of
    process 0, then those of process 1, and so on; columns without ids are the same in all.

    Args:
      make: the container of this process; what it raises is raised in all processes.
      names: of its arrays of cells.
      split_by_row: whether a row has its cells in one process.
      is_sorted: whether these are then sorted.
    Raises:
      TypeError, ValueError: parts that do not fit each other, in all processes.
    """
    checked = check_mesh(mesh)
    local, facts, error = None, None, None
    try:
        local = make()
        facts = _facts_of(local, [np.asarray(getattr(local, name)) for name in names])
    except Exception as raised:
        error = raised
    every = agree(
        facts,
        error,
        compared=CellFacts._fields[:4],
        what="cells",
        remedy="All need the same dtypes, and ids in all or in none; without ids of columns, the "
        "same columns in the same order",
    )
    assert local is not None
    process = jax.process_index()
    first = sum(one.num_rows for one in every[:process])
    row_names, row_index = _together([one.row_names for one in every], "row_names")
    column_names, column_index = _together([one.column_names for one in every], "column_names")
    num_rows = sum(one.num_rows for one in every) if row_names is None else len(row_names)
    num_columns = local.num_columns if column_names is None else len(column_names)

    def numbered(*cells: Array) -> tuple[np.ndarray, ...]:
        rows, columns, *others = map(np.asarray, cells)
        index = (
            rows + np.int32(first) if row_index is None else row_index[rows],
            columns.copy() if column_index is None else column_index[columns],
        )
        if split_by_row and is_sorted:
            sort_cells(*index, num_columns)
        return (*index, *others)

    arrays = numbered(*(getattr(local, name) for name in names))
    part = CellPart(checked, arrays, tuple(one.num_cells for one in every))
    missing = None
    if any(one.num_missing for one in every):
        gaps = numbered(*local.missing_cells())
        missing = CellPart(checked, gaps, tuple(one.num_missing for one in every))
    if row_names is not None and len(row_names) < sum(one.num_rows for one in every):
        _refuse_repeats(every, part, num_columns, split_by_row)
    return Merged(part, missing, (num_rows, num_columns), row_names, column_names)


def _facts_of(local: PyTree, arrays: list[np.ndarray]) -> CellFacts:
    row_names = ids_to_pass("row_names", local.row_names)
    column_names = ids_to_pass("column_names", local.column_names)
    return CellFacts(
        dtypes=[str(array.dtype) for array in arrays],
        has_row_names=row_names is not None,
        has_column_names=column_names is not None,
        num_columns=local.num_columns if column_names is None else None,
        num_rows=local.num_rows,
        num_cells=len(arrays[0]),
        num_missing=getattr(local, "num_missing", 0) if len(arrays) == 2 else 0,
        row_names=row_names,
        column_names=column_names,
    )


def _together(ids: list[list[Id] | None], argument: str) -> tuple[Names | None, np.ndarray | None]:
    """All ids in the order of their appearance, and where among them those of this process are."""
    known: dict[Id, int] = {}
    for some in ids:
        for name in some or ():
            known.setdefault(name, len(known))
    here = ids[jax.process_index()]
    if here is None:
        return None, None
    return as_names(argument, list(known)), np.array([known[name] for name in here], np.int32)


def _refuse_repeats(
    every: list[CellFacts], part: CellPart, num_columns: int, split_by_row: bool
) -> None:
    """Refuses cells that two processes have, and rows that only one may have.

    Raises ValueError: there are such, in all processes.
    """
    first: dict[Id, tuple[int, int]] = {}
    shared = set()
    for process, facts in enumerate(every):
        for name in facts.row_names or ():
            index, other = first.setdefault(name, (len(first), process))
            if other == process:
                continue
            if split_by_row:
                raise ValueError(
                    f"row_names: the row {name!r} is in process {other} and in process {process} "
                    "of jax.distributed; a row lies in one of them"
                )
            shared.add(index)
    rows = np.array(sorted(shared), np.int32)
    checked = rows[rows % jax.process_count() == jax.process_index()]
    found = cells_where(part, lambda rows, *_: np.isin(rows, checked))
    if largest(has_repeats(found[0], found[1], num_columns)):
        raise ValueError(
            "rows, columns: two processes of jax.distributed have a value of the same cell. Give "
            "each cell once: average the repeats, or keep the last"
        )
