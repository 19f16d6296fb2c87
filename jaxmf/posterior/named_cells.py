"""Rows, columns and cells as users name them: by id, or by position where there are none."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from jaxmf.data import MatrixContainer
from jaxmf.data.names import Positions, object_array, positions

Cells = tuple[np.ndarray, np.ndarray]
"""Rows and columns, positions (M,) int each."""


def read_cells(
    cells: object, data: object, *, drop: bool = False, name: str = "cells"
) -> Positions:
    """Cells as (rows, columns): from two index arrays, an (M, 2) array, or a boolean matrix.

    Ids where the data has ids, else positions counted from 0; `Positions` are positions always.

    Args: drop: whether cells with an id that the data lacks are left out; name: what the user calls
    them, for the message.
    Returns positions (M,) int64 of rows and of columns.
    Raises ValueError: the cells cannot be read, or lie outside the matrix; a whole number where ids
    are texts, or a text where they are whole numbers; all are left out.
    """
    pair = pair_of(cells, data, name)
    if isinstance(pair, Positions):
        return pair
    rows, columns = pair
    sides = (rows, "row", f"{name}: rows"), (columns, "column", f"{name}: columns")
    if not drop:
        return Positions(*(read_index(index, data, word, called) for index, word, called in sides))
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

    A boolean matrix, and what is a `Positions` already, come out as checked `Positions`.

    Raises ValueError: the cells cannot be read; positions outside the data.
    """
    if isinstance(cells, Positions):
        return _checked_positions(cells, data, name)
    shape = (data.num_rows, data.num_columns)
    is_pair = isinstance(cells, (tuple, list)) and len(cells) == 2
    is_pair = is_pair and (_are_tuples(cells[0]) or np.ndim(cells[0]) == 1)
    if not is_pair:
        try:
            array = np.asarray(cells)
        except ValueError:  # numpy: rows of different lengths
            array = np.empty(0, object)
        if array.dtype.kind in "US" and isinstance(cells, (list, tuple)):
            array = np.array(cells, object)  # numpy makes a text of a number among texts
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


def _checked_positions(cells: Positions, data: MatrixContainer, name: str) -> Positions:
    if cells.columns is None:
        raise ValueError(f"{name}: these positions name rows alone; Positions(rows, columns)")
    rows = _positions_within(cells.rows, data.num_rows, f"{name}: rows")
    columns = _positions_within(cells.columns, data.num_columns, f"{name}: columns")
    if rows.size != columns.size:
        raise ValueError(
            f"{name}: {rows.size} rows but {columns.size} columns; give one of each a cell"
        )
    return Positions(rows, columns)


def positions_or_unknown(
    index: object, data: object, word: str, argument: str | None = None
) -> np.ndarray:
    """Positions (M,) int64 of rows or columns, -1 for ids that the data lacks.

    Args:
        argument: what the user calls the index, for the message; "rows" or "columns" unless given.
    Raises:
        ValueError: positions outside the data.
    """
    names = getattr(data, f"{word}_names")
    called = f"{word}s" if argument is None else argument
    if names is None or isinstance(index, Positions):
        return read_index(index, data, word, called)
    array = index_array(index, called)
    _check_kind(array, names, word, called)
    table = {name: position for position, name in enumerate(names.tolist())}
    return np.array([table.get(name, -1) for name in array.tolist()], np.int64)


def read_rows(rows: object, data: object, *, drop: bool = False) -> np.ndarray:
    """Positions (R,) int64 of rows given by id or `Positions`, as in `read_cells`."""
    if not drop:
        return read_index(rows, data, "row", "rows")
    found = positions_or_unknown(rows, data, "row")
    if not (found >= 0).any():
        raise ValueError(
            f"rows: none of the {found.size} is the id of a row of the data. Check their types"
        )
    return found[found >= 0]


def read_index(index: object, data: object, word: str, argument: str) -> np.ndarray:
    """Positions of rows or columns; `argument` is what the user calls them."""
    names, size = getattr(data, f"{word}_names"), getattr(data, f"num_{word}s")
    if isinstance(index, Positions):
        if index.columns is not None:
            raise ValueError(f"{argument}: are positions of cells, with columns; Positions(rows)")
        return _positions_within(index.rows, size, argument)
    if names is None:
        return _positions_within(index, size, argument, f"the data has no ids of {word}s; ")
    array = index_array(index, argument)
    _check_kind(array, names, word, argument)
    found = positions(argument, array, names=names, size=size, line=word)
    return np.asarray(found, dtype=np.int64)


def positions_among(asked: Cells, cells: Cells, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Where cells (M,) stand among others, and which of them are not there: positions in `asked`.

    Args: width: more than any column.
    """
    index, keys = (rows.astype(np.int64) * width + columns for rows, columns in (cells, asked))
    order = np.argsort(index, kind="stable")
    found = order[np.searchsorted(index, keys, sorter=order).clip(0, index.size - 1)]
    return found, np.flatnonzero(index[found] != keys)


def _positions_within(index: object, size: int, argument: str, why: str = "") -> np.ndarray:
    array = index_array(index, argument)
    if array.dtype.kind not in "iu":
        raise ValueError(
            f"{argument}: are given as {array.dtype}, but {why}give positions counted from 0"
        )
    outside = np.flatnonzero((array < 0) | (array >= size))
    if outside.size:
        raise ValueError(
            f"{argument}: {array[outside[0]]} at position {outside[0]} is outside 0..{size - 1}"
        )
    return array.astype(np.int64)


def index_array(index: object, argument: str) -> np.ndarray:
    """Ids on one axis, with their types kept.

    Raises TypeError: a set, a dictionary or a slice. ValueError: there are none.
    """
    if isinstance(index, Set | Mapping | slice):
        raise TypeError(f"{argument}: a {type(index).__name__} has no order of ids; pass a list")
    array = object_array(index) if _are_tuples(index) else np.atleast_1d(np.asarray(index))
    if array.dtype.kind in "US" and isinstance(index, (list, tuple)):
        array = object_array(index)  # numpy makes a text of a number among texts
    if array.size == 0:
        raise ValueError(f"{argument}: there are none; give at least one")
    return array


def _check_kind(array: np.ndarray, names: np.ndarray, word: str, argument: str) -> None:
    """Refuses whole numbers where all ids are texts, and texts where all are whole numbers.

    Raises ValueError: the message names the first one, and how positions are passed.
    """
    known = names.tolist()
    for kind, other in ((str, int), (int, str)):
        if not all(_is(name, kind) for name in known):
            continue
        first = next((i for i, name in enumerate(array.tolist()) if _is(name, other)), None)
        if first is None:
            return
        kinds = {str: "texts", int: "whole numbers"}
        example = f"Positions({'rows, columns' if ': ' in argument else word + 's'})"
        cure = f"positions are passed as mf.{example}" if other is int else "make it a number"
        raise ValueError(
            f"{argument}: {array.tolist()[first]!r} at position {first} is no id of a {word}: "
            f"those of the data are {kinds[kind]}, such as {known[0]!r}. Pass ids; {cure}"
        )


def _is(name: object, kind: type) -> bool:
    return isinstance(name, kind) and not isinstance(name, bool)


def _are_tuples(index: object) -> bool:
    """Whether there are ids that are tuples, of which numpy would make one more axis."""
    return isinstance(index, (list, tuple)) and any(isinstance(one, tuple) for one in index)
