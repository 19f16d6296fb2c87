"""What `SparseSeries` takes apart and refuses: matrices, times and cells of a series."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from jaxmf.data import checks
from jaxmf.data.container import is_sparse, peel
from jaxmf.data.sparse_binary import GAPS_OF_SPARSE, SparseBinary
from jaxmf.types import Names, PyTree

_DATES = "Dates become numbers by (dates - dates[0]) / numpy.timedelta64(1, 'D')."


class SeriesCells(NamedTuple):
    """Cells by row, step and column, each (M,) int32, sorted in that order."""

    rows: np.ndarray
    steps: np.ndarray
    columns: np.ndarray


class Part(NamedTuple):
    """One matrix of a series, before it is put among the others."""

    ones: tuple[object, object]
    missing: tuple[object, object]
    shape: tuple[int, int]
    row_names: object
    column_names: object


def as_part(name: str, matrix: object) -> Part:
    """The ones of a matrix given in any form.

    Raises TypeError, ValueError: no matrix of zeros and ones.
    """
    if isinstance(matrix, SparseBinary):
        ones = matrix.rows, matrix.columns
        ids = matrix.row_names, matrix.column_names
        return Part(ones, matrix.missing_cells(), matrix.shape, *ids)
    table = peel(name, matrix)
    if is_sparse(table.values):
        cells = table.values.tocoo()
        kept = checks.check_binary(name, checks.as_numeric(name, cells.data), gaps=GAPS_OF_SPARSE)
        rows, columns, shape = cells.row[kept], cells.col[kept], cells.shape
    else:
        array = checks.as_numeric(name, table.values)
        checks.check_matrix_shape(name, array.shape)
        rows, columns = np.nonzero(checks.check_binary(name, array))
        shape = array.shape
    nothing = np.zeros(0, np.int32)
    return Part((rows, columns), (nothing, nothing), shape, table.row_names, table.column_names)


def common_ids(parts: list[Part], name: str, passed: object) -> object:
    """The ids of all matrices, which must be the same; those given come first."""
    if passed is not None:
        return passed
    known = [None if getattr(part, name) is None else list(getattr(part, name)) for part in parts]
    for index, ids in enumerate(known):
        if ids != known[0]:
            raise ValueError(
                f"matrices[{index}]: its {name} are not those of the first. All need the same, in "
                "one order; SparseSeries.from_triples aligns them by their ids."
            )
    return known[0]


def as_times(times: object) -> np.ndarray:
    """Times as (T,) float64, in their order.

    Raises TypeError: no numbers.
    """
    if isinstance(times, (str, bytes)) or not isinstance(times, Iterable):
        raise TypeError(f"times: is {times!r}; a list of numbers is needed.")
    times = times if isinstance(times, np.ndarray) else list(times)
    array = np.asarray(times)
    if array.dtype.kind not in "iufb":
        raise TypeError(f"times: are given as {array.dtype}, numbers are needed. {_DATES}")
    array = array.astype(np.float64)
    checks.check_vector("times", array)
    return array


def checked_times(times: object, num_times: int) -> tuple[np.ndarray, np.ndarray]:
    """Times in order, (T,) float64, and the position that each of them has there."""
    array = as_times(times)
    checks.check_finite("times", array)
    if len(array) != num_times:
        raise ValueError(f"times: has {len(array)} values but shape says {num_times} times.")
    order = np.argsort(array, kind="stable")
    again = np.flatnonzero(np.diff(array[order]) == 0)
    if len(again):
        first, second = sorted(order[again[0] : again[0] + 2].tolist())
        raise ValueError(
            f"times: {array[first]:g} stands twice, at positions {first} and {second}. Give each "
            "matrix a time of its own, or put those of one time together."
        )
    rank = np.empty(num_times, np.int64)
    rank[order] = np.arange(num_times)
    return array[order], rank


def checked_shape(shape: Any) -> tuple[int, int, int]:
    """Sizes (N, T, D) whose N T lines int32 can index."""
    if not hasattr(shape, "__len__") or len(shape) != 3:
        raise TypeError(f"shape: must be (rows, times, columns), is {shape!r}.")
    num_rows, num_columns = checks.check_shape_pair("shape", (shape[0], shape[2]))
    num_times, _ = checks.check_shape_pair("shape", (shape[1], 1))
    if num_rows * num_times > checks.INT32_MAX:
        raise ValueError(
            f"shape: {num_rows} rows at {num_times} times are more lines than int32 can index "
            f"({checks.INT32_MAX}). Split the rows."
        )
    return num_rows, num_times, num_columns


def checked_cells(
    passed: tuple[PyTree, ...], shape: tuple[int, int, int], rank: np.ndarray, prefix: str
) -> SeriesCells:
    """Indices of cells as int32, sorted; `rank` is the position that each time has in order."""
    parts: list[np.ndarray] = []
    for name, part, size in zip(SeriesCells._fields, passed, shape, strict=True):
        index = checks.as_index(f"{prefix}{name}", part, size=size)
        if parts:
            checks.check_vector(
                f"{prefix}{name}", index, length=len(parts[0]), like=f"{prefix}rows"
            )
        parts.append(rank[index].astype(np.int32) if name == "steps" else index)
    order = np.lexsort((parts[2], parts[1], parts[0]))
    return SeriesCells(*(part[order] for part in parts))


def check_once(
    ones: SeriesCells,
    gaps: SeriesCells | None,
    shape: tuple[int, int, int],
    ids: tuple[Names | None, Names | None],
    times: np.ndarray,
) -> None:
    """No cell twice, be it a one or missing."""
    both = [ones] if gaps is None else [ones, gaps]
    rows, steps, columns = (np.concatenate(part) for part in zip(*both, strict=True))
    line = rows.astype(np.int64) * shape[1] + steps
    order = np.lexsort((columns, line))
    same = np.diff(line[order]) == 0
    same &= np.diff(columns[order]) == 0
    if same.any():
        repeat = int(order[int(np.argmax(same))])
        row, column = (
            int(index[repeat]) if known is None else known.tolist()[index[repeat]]
            for index, known in zip((rows, columns), ids, strict=True)
        )
        raise ValueError(
            f"rows, steps, columns: duplicate cell (row {row!r}, column {column!r}, time "
            f"{times[steps[repeat]]:g}); {int(same.sum())} repeats in all. A cell is a one or "
            "missing, and is given once; numpy.unique(triples, axis=0) drops repeats."
        )
