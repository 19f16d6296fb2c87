"""Matrices of counts opened up into tokens, a block of rows at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxmf.data import checks
from jaxmf.data.container import is_sparse
from jaxmf.data.long_arrays import aligned_empty
from jaxmf.engine.memory import refuse_copy

if TYPE_CHECKING:
    from scipy.sparse import csr_array, sparray

BLOCK = 1024  # rows of a matrix whose tokens stand together
_CELLS = 2**18  # of a dense matrix that are gone through at once


class Counted(NamedTuple):
    """Rows and columns of tokens, (T,) int32 each, and the shape of the matrix."""

    rows: np.ndarray
    columns: np.ndarray
    shape: tuple[int, int]


class _CountedCells(NamedTuple):
    rows: np.ndarray
    columns: np.ndarray
    counts: np.ndarray


def open_up(counts: object, *, can_be_empty: bool = False) -> Counted:
    """As many equal tokens as each count says.

    The tokens of a column stand together, in the order of the rows; of many rows, block by block.
    A sweep, which takes tokens as they stand, then finds in the cache what it knows of a word, and
    of the documents of a block.

    Args: counts (N, D) whole numbers, an array or a scipy.sparse matrix; can_be_empty: whether all
    counts may be 0.
    Raises TypeError, ValueError: no matrix of counts, no token, or more than int32 can index.
    MemoryError: this many tokens do not fit.
    """
    matrix = _checked_sparse(counts) if is_sparse(counts) else _checked_shape(counts)
    total = sum(int(cells.counts.sum(dtype=np.int64)) for cells in _blocks(matrix))
    if total > checks.INT32_MAX:
        raise ValueError(
            f"counts: {total} tokens are more than int32 can index ({checks.INT32_MAX}). "
            "Split the rows, or use a model of counts."
        )
    if total == 0 and not can_be_empty:
        raise ValueError("counts: all counts are 0, there is no token. At least one is needed.")
    refuse_copy(2 * 2 * 4 * total, None)
    rows, columns = (aligned_empty((total,), np.dtype(np.int32)) for _ in range(2))
    filled = 0
    for cells in _blocks(matrix):
        size = int(cells.counts.sum(dtype=np.int64))
        here = slice(filled, filled + size)
        rows[here] = np.repeat(cells.rows, cells.counts)
        columns[here] = np.repeat(cells.columns, cells.counts)
        filled += size
    return Counted(rows, columns, (int(matrix.shape[0]), int(matrix.shape[1])))


def _blocks(matrix: Any) -> Iterator[_CountedCells]:
    """The cells that are not zero of blocks of rows, by columns and then rows."""
    for start in range(0, matrix.shape[0], BLOCK):
        block = matrix[start : start + BLOCK]
        if not is_sparse(matrix):
            yield from _dense_cells(block, start)
            continue
        by_column = block.tocsc()
        columns = np.repeat(np.arange(matrix.shape[1]), np.diff(by_column.indptr))
        yield _CountedCells(by_column.indices + start, columns, by_column.data.astype(np.int64))


def _dense_cells(block: np.ndarray, start: int) -> Iterator[_CountedCells]:
    """The same for one block of a dense matrix, some columns at a time: positions are large."""
    width = max(1, _CELLS // len(block))
    for first in range(0, block.shape[1], width):
        part = block[:, first : first + width]
        columns, rows = np.nonzero(part.T)
        yield _CountedCells(rows + start, columns + first, part[rows, columns].astype(np.int64))


def _checked_shape(counts: object) -> np.ndarray:
    if _has_texts(counts):
        raise TypeError(
            "counts: these are words, counts of words are needed. Make tokens with "
            "Tokens.from_texts(texts), with Tokens.from_lists(lists) where they are split into "
            "words, or with Tokens.from_columns({'document': [...], 'word': [...]}), one line a "
            "word."
        )
    array = checks.as_numeric("counts", counts)
    checks.check_matrix_shape("counts", array.shape)
    checks.check_counts("counts", array)
    return array


def _has_texts(counts: object) -> bool:
    """Whether these are texts, or lists of words, in place of numbers."""
    if isinstance(counts, np.ndarray):
        return counts.dtype.kind in "US" or (
            counts.dtype == object and counts.size > 0 and isinstance(counts.flat[0], str)
        )
    first = next(iter(counts), None) if isinstance(counts, (list, tuple)) else None
    if isinstance(first, (list, tuple)):
        first = next(iter(first), None)
    return isinstance(first, str)


def _checked_sparse(matrix: sparray) -> csr_array:
    """A matrix of counts by rows, an offence shown at its cell."""
    from scipy.sparse import csr_array

    matrix = matrix if matrix.format in ("csr", "coo") else matrix.tocoo(copy=False)
    counts = checks.as_numeric("counts", matrix.data)
    try:
        checks.check_counts("counts", counts)
    except ValueError as error:
        cells = matrix.tocoo(copy=False)

        def cell(found: re.Match[str]) -> str:
            return f"row {cells.row[int(found[1])]}, column {cells.col[int(found[1])]}"

        raise ValueError(re.sub(r"position (\d+)", cell, str(error))) from None
    return matrix if matrix.format == "csr" else csr_array(matrix)
