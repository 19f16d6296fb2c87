"""New cells outside of those that a model was fitted to: another unit, or a slip of the pen."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxmf.data.cells_by_id import are_elsewhere
from jaxmf.data.checks import shown_id
from jaxmf.data.dense import Dense
from jaxmf.data.entries import Entries
from jaxmf.data.suspects import MOST_LEVELS
from jaxmf.user_warnings import warn

_FAR = 3.0  # ranges of the known cells of a column, from its outermost cell
_FEWEST_CELLS = 10  # of a column whose range is known; of others it is that of all cells
MOST_CELLS = 10_000_000  # that are gone through
# fewest cells at either end of a scale, which the tail of counts has fewer of:
_LEAST_COUNT = 5
_LEAST_SHARE = 0.02  # of all cells
_LEAST_RATIO = 0.4  # to those of the level before


class CellRanges(NamedTuple):
    """The smallest and the largest known cell (D,) of each column; of all where it has few.

    Args:
        low: the smallest.
        high: the largest.
        far: how many ranges further out a cell is far: none where all cells are of one scale.
    """

    low: np.ndarray
    high: np.ndarray
    far: float


def cell_ranges(known: object) -> CellRanges | None:
    """The ranges of data that a model was fitted to.

    Returns None for other data than matrices of numbers, without a cell, and for more than 10
    million cells.
    """
    if not isinstance(known, Dense | Entries) or are_elsewhere(known):
        return None
    if known.values.size > MOST_CELLS:
        return None
    _, columns, values = observed_cells(known)
    if not values.size:
        return None
    if _are_of_a_scale(values):
        low, high = (np.full(known.num_columns, end) for end in (values.min(), values.max()))
        return CellRanges(low, high, far=0.0)
    low = np.full(known.num_columns, np.inf, values.dtype)
    high = -low
    np.minimum.at(low, columns, values)
    np.maximum.at(high, columns, values)
    few = np.bincount(columns, minlength=known.num_columns) < _FEWEST_CELLS
    low, high = np.where(few, values.min(), low), np.where(few, values.max(), high)
    return CellRanges(low, high, _FAR)


def _are_of_a_scale(values: np.ndarray) -> bool:
    """Whether numbers are few levels in even steps, as stars are, of which both ends are in use."""
    levels, counts = np.unique(values[: 10 * MOST_LEVELS], return_counts=True)
    if levels.size > MOST_LEVELS:
        return False
    levels, counts = np.unique(values, return_counts=True)
    if not 1 < levels.size <= MOST_LEVELS or np.ptp(np.diff(levels)) > 1e-6 * np.ptp(levels):
        return False
    least = max(_LEAST_COUNT, _LEAST_SHARE * values.size)
    return bool(np.all(counts[[0, -1]] >= np.maximum(least, _LEAST_RATIO * counts[[1, -2]])))


def warn_of_far_cells(new: object, ranges: CellRanges, *, argument: str) -> None:
    """Warns of the new cell that is furthest outside of the known ones of its column.

    Args:
        new: rows with the columns of the known ones.
        ranges: of these.
        argument: what the new ones were passed as.
    Warns:
        UserWarning: a cell is further from the known ones of its column than three times their
            range, or outside of the scale that all known ones are of.
    """
    if not isinstance(new, Dense | Entries):
        return
    rows, columns, values = observed_cells(new)
    if not values.size:
        return
    low, high = ranges.low[columns], ranges.high[columns]
    beyond, width = np.maximum(low - values, values - high), high - low
    share = np.divide(beyond, width, out=np.zeros_like(beyond), where=width > 0)
    furthest = int(np.argmax(share))
    if share[furthest] <= ranges.far:
        return
    row, column = int(rows[furthest]), int(columns[furthest])
    warn(
        f"{argument}: the cell of row {shown_id(new.row_names, row)} and column "
        f"{shown_id(new.column_names, column)} is {values[furthest]:g}, and those that the model "
        f"was fitted to lie between {low[furthest]:g} and {high[furthest]:g}. Is it a slip, "
        "or in another unit? What is said of its row depends on it"
    )


def observed_cells(data: Dense | Entries) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and values of the observed cells, (M,) each."""
    if isinstance(data, Entries):
        return np.asarray(data.rows), np.asarray(data.columns), np.asarray(data.values)
    values = np.asarray(data.values)
    observed = np.ones(values.shape, bool) if data.observed is None else np.asarray(data.observed)
    rows, columns = np.nonzero(observed)
    return rows, columns, values[rows, columns]
