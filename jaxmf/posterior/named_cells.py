"""Rows, columns and cells as users name them: by position or by id."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxmf.data.names import Positions, object_array, positions


def read_cells(cells: Any, data: Any, *, drop: bool = False, name: str = "cells") -> Positions:
    """Cells as (rows, columns): from two index arrays, an (M, 2) array, or a boolean matrix.

    Whole numbers are positions counted from 0, unless the ids of the data are whole numbers
    themselves; anything else is an id.

    Args:
        cells: which cells.
        data: the container they lie in.
        drop: whether cells with an id that the data lacks are left out.
        name: what the user calls them, for the message.
    Returns:
        Positions (M,) int64 of rows and of columns.
    Raises:
        ValueError: the cells cannot be read, or lie outside the matrix; all are left out.
    """
    pair = pair_of(cells, data, name)
    if isinstance(pair, Positions):
        return pair
    rows, columns = pair
    sides = (rows, "row", f"{name}: rows"), (columns, "column", f"{name}: columns")
    if not drop:
        return Positions(*(_read_index(index, data, word, called) for index, word, called in sides))
    found = Positions(
        *(positions_or_unknown(index, data, word, called) for index, word, called in sides)
    )
    kept = (found.rows >= 0) & (found.columns >= 0)
    if not kept.any():
        raise ValueError(
            f"{name}: none of the {kept.size} cells has the ids of a row and of a column of the "
            "data. Check the types of the ids, and which column holds them."
        )
    return Positions(found.rows[kept], found.columns[kept])


def pair_of(cells: Any, data: Any, name: str = "cells") -> tuple[Any, Any]:
    """Cells as a pair of rows and of columns, ids or positions, of one length.

    A boolean matrix, and what is a `Positions` already, come out as `Positions`.

    Raises:
        ValueError: the cells cannot be read.
    """
    if isinstance(cells, Positions):
        return cells
    shape = (data.num_rows, data.num_columns)
    is_pair = isinstance(cells, (tuple, list)) and len(cells) == 2
    is_pair = is_pair and (_are_tuples(cells[0]) or np.ndim(cells[0]) == 1)
    if not is_pair:
        try:
            array = np.asarray(cells)
        except ValueError:  # numpy: rows of different lengths
            array = np.empty(0, object)
        if array.dtype == bool and array.shape == shape:
            return Positions(*np.nonzero(array))
        if array.ndim != 2 or array.shape[1] != 2:
            raise ValueError(
                f"{name}: has shape {array.shape}; give (rows, columns), an array of shape (M, 2), "
                f"or a boolean matrix of shape {shape}"
            )
        cells = (array[:, 0], array[:, 1])
    if len(cells[0]) != len(cells[1]):
        raise ValueError(
            f"{name}: {len(cells[0])} rows but {len(cells[1])} columns; give one of each a cell"
        )
    return cells[0], cells[1]


def positions_or_unknown(
    index: Any, data: Any, word: str, argument: str | None = None
) -> np.ndarray:
    """Positions (M,) int64 of rows or columns, -1 for ids that the data lacks.

    Args:
        index: ids, or positions.
        data: the container.
        word: "row" or "column".
        argument: what the user calls the index, for the message; "rows" or "columns" unless given.
    Raises:
        ValueError: positions outside the data.
    """
    names = getattr(data, f"{word}_names")
    called = f"{word}s" if argument is None else argument
    array = _index_array(index, called)
    if not _are_ids(array, names):
        return _read_index(index, data, word, called)
    table = {name: position for position, name in enumerate(names.tolist())}
    return np.array([table.get(name, -1) for name in array.tolist()], np.int64)


def read_rows(rows: Any, data: Any) -> np.ndarray:
    """Positions (R,) int64 of rows given by position or id, as in `read_cells`."""
    return _read_index(rows, data, "row", "rows")


def _read_index(index: Any, data: Any, word: str, argument: str) -> np.ndarray:
    """Positions of rows or columns; `argument` is what the user calls them."""
    names, size = getattr(data, f"{word}_names"), getattr(data, f"num_{word}s")
    array = _index_array(index, argument)
    if _are_ids(array, names):
        found = positions(argument, array, names=names, size=size, line=word)
        return np.asarray(found, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise ValueError(
            f"{argument}: are given as {array.dtype}, but the data has no ids of {word}s; "
            "give positions counted from 0"
        )
    outside = np.flatnonzero((array < 0) | (array >= size))
    if outside.size:
        raise ValueError(
            f"{argument}: {array[outside[0]]} at position {outside[0]} is outside 0..{size - 1}"
        )
    return array.astype(np.int64)


def _index_array(index: Any, argument: str) -> np.ndarray:
    array = object_array(index) if _are_tuples(index) else np.atleast_1d(np.asarray(index))
    if array.size == 0:
        raise ValueError(f"{argument}: there are none; give at least one")
    return array


def _are_ids(array: np.ndarray, names: np.ndarray | None) -> bool:
    """Whether they are ids, not positions."""
    if names is None:
        return False
    return array.dtype.kind not in "iu" or _are_whole_numbers(names)


def _are_tuples(index: Any) -> bool:
    """Whether there are ids that are tuples, of which numpy would make one more axis."""
    return isinstance(index, (list, tuple)) and any(isinstance(one, tuple) for one in index)


def _are_whole_numbers(names: np.ndarray) -> bool:
    return all(isinstance(name, (int, np.integer)) for name in names.tolist())
