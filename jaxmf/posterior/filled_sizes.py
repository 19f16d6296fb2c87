"""Cells and rows that are asked about, filled up to one of few numbers of them.

A program is compiled for each shape, which takes far longer than it runs: with as many shapes as
there are numbers of cells, nearly every question would wait for a compiler.
"""

from __future__ import annotations

import numpy as np

from jaxmf.data import Container, Entries, SparseBinary
from jaxmf.data.container import bare
from jaxmf.model import TakesRowFeatures

_FEWEST = 64  # cells up to which powers of two are fine enough
_FEWEST_ASKED = 16  # cells up to which one program serves all numbers of them
_FEWEST_KNOWN = 16  # cells of new rows for which one program serves all numbers of them


def few_sizes(size: int) -> int:
    """A size rounded up, by an eighth at most, so that programs are compiled for few sizes.

    There are eight sizes between successive powers of two.
    """
    step = 1 << max(0, (size - 1).bit_length() - 4)
    return max(-(-size // step) * step, min(_FEWEST, 1 << max(size - 1, 0).bit_length()))


def filled_cells(rows: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cells (M,), the last one repeated up to one of few sizes."""
    more = (0, few_sizes(max(rows.size, _FEWEST_ASKED)) - rows.size)
    return np.pad(rows, more, mode="edge"), np.pad(columns, more, mode="edge")


def filled_rows(model: object, new: Container) -> Container:
    """New rows, with rows added below so that the number of cells is one of a few sizes.

    So that a new user with four ratings is answered by the program of one with three. Of models
    with features of rows, which these lack, the rows as they are.
    """
    if isinstance(new, SparseBinary):
        return _filled_ones(new)
    if not (isinstance(new, Entries) and isinstance(model, TakesRowFeatures)):
        return new
    if model.row_features is not None or model.row_classes is not None:
        return new
    cells = np.asarray(new.rows), np.asarray(new.columns), np.asarray(new.values)
    num_rows, num_cells = few_sizes(new.num_rows + 1), _few_known(cells[0].size)
    more = num_cells - cells[0].size
    rows = np.concatenate([cells[0], np.full(more, new.num_rows, cells[0].dtype)])
    columns = np.concatenate([cells[1], np.zeros(more, cells[1].dtype)])
    fill = cells[2][-1:] if cells[2].size else np.zeros(1, cells[2].dtype)
    values = np.concatenate([cells[2], np.repeat(fill, more)])
    arrays = {"rows": rows, "columns": columns, "values": values}
    shape = num_rows, new.num_columns
    return bare(Entries, **arrays, shape=shape, row_names=None, column_names=None)


def _few_known(num_cells: int) -> int:
    """How many known cells of new rows stand for this number of them, and one more."""
    return few_sizes(max(num_cells + 1, _FEWEST_KNOWN))


def _filled_ones(new: SparseBinary) -> SparseBinary:
    """New rows of zeros and ones with rows after them, as `filled_rows`."""
    rows, columns = np.asarray(new.rows), np.asarray(new.columns)
    num_rows, num_ones = few_sizes(new.num_rows + 1), _few_known(rows.size)
    more = np.arange(num_ones - rows.size)
    has_gaps = new.missing_rows is not None
    if has_gaps or more.size > (num_rows - new.num_rows) * new.num_columns:
        return new
    further, where = np.divmod(more, new.num_columns)
    return bare(
        SparseBinary,
        rows=np.concatenate([rows, (new.num_rows + further).astype(rows.dtype)]),
        columns=np.concatenate([columns, where.astype(columns.dtype)]),
        shape=(num_rows, new.num_columns),
        row_names=None,
        column_names=None,
        missing_rows=None,
        missing_columns=None,
    )
