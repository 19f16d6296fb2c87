"""New cells far outside of those that a model was fitted to: another unit, or a slip of the pen."""

from __future__ import annotations

import numpy as np

from jaxmf.data.checks import shown_id
from jaxmf.data.dense import Dense
from jaxmf.data.elsewhere import are_elsewhere
from jaxmf.data.entries import Entries
from jaxmf.user_warnings import warn

_FAR = 3.0  # ranges of the known cells of a column, from its outermost cell
_FEWEST_CELLS = 10  # of a column whose range is known; of others it is that of all cells
_MOST_CELLS = 10_000_000  # that are gone through


def warn_of_far_cells(new: object, known: object, *, argument: str) -> None:
    """Warns of the new cell that is furthest outside of the known ones of its column.

    Args:
        new: rows with the columns of `known`.
        known: the data that a model was fitted to.
        argument: what the new ones were passed as.
    Warns:
        UserWarning: a cell is further from the known ones of its column than three times their
            range. Of matrices of numbers alone, up to 10 million known cells.
    """
    if not (isinstance(new, Dense | Entries) and isinstance(known, Dense | Entries)):
        return
    if are_elsewhere(known) or known.values.size > _MOST_CELLS:
        return
    low, high = _ranges(known)
    rows, columns, values = _cells(new)
    if not values.size:
        return
    width = high - low
    beyond = np.maximum(low[columns] - values, values - high[columns])
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(width[columns] > 0, beyond / width[columns], 0)
    furthest = int(np.argmax(share))
    if share[furthest] <= _FAR:
        return
    row, column = int(rows[furthest]), int(columns[furthest])
    warn(
        f"{argument}: the cell of row {shown_id(new.row_names, row)} and column "
        f"{shown_id(new.column_names, column)} is {values[furthest]:g}, and those that the model "
        f"was fitted to lie between {low[column]:g} and {high[column]:g}. Is it in the same unit? "
        "What is said of its row depends on it"
    )


def _cells(data: Dense | Entries) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and values of the observed cells, (M,) each."""
    if isinstance(data, Entries):
        return np.asarray(data.rows), np.asarray(data.columns), np.asarray(data.values)
    values = np.asarray(data.values)
    observed = np.ones(values.shape, bool) if data.observed is None else np.asarray(data.observed)
    rows, columns = np.nonzero(observed)
    return rows, columns, values[rows, columns]


def _ranges(data: Dense | Entries) -> tuple[np.ndarray, np.ndarray]:
    """The smallest and the largest cell (D,) of each column; of all where it has few."""
    _, columns, values = _cells(data)
    low = np.full(data.num_columns, np.inf, values.dtype)
    high = -low
    np.minimum.at(low, columns, values)
    np.maximum.at(high, columns, values)
    few = np.bincount(columns, minlength=data.num_columns) < _FEWEST_CELLS
    return np.where(few, values.min(), low), np.where(few, values.max(), high)
