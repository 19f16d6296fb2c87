"""Cells of some data far outside of the others of their column: a slip, or another unit.

A cell is held against the bulk of its column and against the tail on its side.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxmf.data.cells_by_id import are_elsewhere
from jaxmf.data.dense import Dense
from jaxmf.data.entries import Entries
from jaxmf.data.far_cells import MOST_CELLS
from jaxmf.data.units import scale_of_bulk

_LEAST_SHARE = 0.5  # of the cells of a table that are known; of ratings fewer are
_FEWEST_IN_COLUMN = 20  # of a column whose tails are known
_MOST_STRAY = 3  # cells of a column that stray together, and
_STRAY_SHARE = 50  # at most one in this many
_LEAST_DISTANCE = 10.0  # robust standard deviations from the median
_LEAST_RATIO = 5.0  # distances from the median: that of a stray cell over that of the next,
_TAIL_INDEX = 5  # more where columns are many, as the largest of such tails stray by chance
_NUM_IN_TAIL = 10  # cells that say how long the tail is, at most
_TAIL_SHARE = 4  # and one in this many
_LEAST_TAIL = 0.1  # of its index, where cells are tied
_CHANCE = 0.01  # of as large a ratio in a tail as long as it is
_LEAST_LOG_DISTANCE = 6.0  # of positive columns, among the logarithms too
_ZERO_DISTANCE, _ZERO_RATIO = 6.0, 2.5  # of a zero where all others are positive


class StrayCells(NamedTuple):
    """A cell of some data that no other of its column is near.

    Args:
        row, column: where it is.
        value: of the cell.
        low, high: the range of the others, those that stray with it left out.
        num_cells: how many stray in that column on that side.
        num_columns: in how many columns cells stray.
    """

    row: int
    column: int
    value: float
    low: float
    high: float
    num_cells: int
    num_columns: int


def stray_cells(data: object) -> StrayCells | None:
    """The cell that strays most, of a table of numbers.

    It is ten robust standard deviations from the median of its column, five times as far as the
    next cell on its side (more where columns are many), and further than a tail as long as that
    column's would have it; above positive values, far out among their logarithms too. A zero
    among positive values needs less. In columns more than half of whose cells are equal none does.

    Args: data: known in at least half of its cells; others, and more than 10 million, have none.
    """
    table = _table(data)
    if table is None:
        return None
    found: list[StrayCells] = []
    candidates, num_kept = _may_stray(table)
    ratio = _LEAST_RATIO * max(num_kept, 1) ** (1 / _TAIL_INDEX)
    distances = []
    for column in candidates.tolist():
        sides = [_stray(table[:, column], sign, ratio) for sign in (1, -1)]
        distance, chosen = max(sides, key=lambda each: each[0])
        if chosen.size:
            rest = np.delete(table[:, column], chosen)
            row = int(chosen[0])
            ends = float(np.nanmin(rest)), float(np.nanmax(rest))
            value = float(table[row, column])
            found.append(StrayCells(row, column, value, *ends, chosen.size, 0))
            distances.append(distance)
    if not found:
        return None
    return found[int(np.argmax(distances))]._replace(num_columns=len(found))


def _table(data: object) -> np.ndarray | None:
    """(N, D) float, NaN where a cell is missing."""
    if not isinstance(data, Dense | Entries) or are_elsewhere(data):
        return None
    shape = data.num_rows, data.num_columns
    if shape[0] * shape[1] > MOST_CELLS or shape[0] < _FEWEST_IN_COLUMN:
        return None
    if isinstance(data, Dense):
        table = data.to_array().astype(float)
    else:
        table = np.full(shape, np.nan)
        table[np.asarray(data.rows), np.asarray(data.columns)] = np.asarray(data.values)
    num_known = table.size - np.count_nonzero(np.isnan(table))
    return table if num_known >= _LEAST_SHARE * table.size else None


def _may_stray(table: np.ndarray) -> tuple[np.ndarray, int]:
    """Columns whose furthest cell is far from their median, and how many have cells enough."""
    found, num_kept = [], 0
    for column, x in enumerate(table.T):  # one at a time: the table is large
        x = x[~np.isnan(x)]
        if x.size < _FEWEST_IN_COLUMN:
            continue
        distance = np.abs(x - np.median(x))
        spread = scale_of_bulk(distance)
        num_kept += bool(spread > 0)
        if spread > 0 and np.max(distance) > _ZERO_DISTANCE * spread:
            found.append(column)
    return np.asarray(found, dtype=int), num_kept


def _stray(column: np.ndarray, sign: int, least: float) -> tuple[float, np.ndarray]:
    """How far the cells on one side stray that do, as a ratio, and their rows, outermost first."""
    known = np.flatnonzero(~np.isnan(column))
    x = column[known]
    middle, nothing = np.median(x), (0.0, np.zeros(0, int))
    distance = sign * (x - middle)
    spread = scale_of_bulk(distance)
    if distance.max() <= _ZERO_DISTANCE * spread:
        return nothing
    order = np.argsort(-distance, kind="stable")
    # one spread at the least: a column may have next to nothing on that side
    num_in_tail = min(_NUM_IN_TAIL, x.size // _TAIL_SHARE)
    far = np.maximum(distance[order[: _MOST_STRAY + num_in_tail]], spread)
    for count in range(min(_MOST_STRAY, max(1, x.size // _STRAY_SHARE)), 0, -1):
        ratio = far[count - 1] / far[count]
        rest, chosen = x[order[count:]], order[:count]
        if sign < 0 and not np.any(x[chosen]) and rest.min() > 0:
            is_stray = far[count - 1] > _ZERO_DISTANCE * spread and ratio > _ZERO_RATIO
        else:
            is_stray = (
                far[count - 1] > _LEAST_DISTANCE * spread
                and ratio > least
                and _chance(far[count:], ratio) < _CHANCE
                and (sign < 0 or _is_far_in_logs(x[chosen[-1]], rest))
            )
        if is_stray:
            return float(ratio), known[chosen]
    return nothing


def _chance(tail: np.ndarray, ratio: float) -> float:
    """The probability of a ratio as large, in a tail of the index that these cells (M,) have.

    Logarithms of Pareto cells are exponential, and so are their gaps; Hill (1975), A simple general
    approach to inference about the tail of a distribution. Lighter tails have smaller gaps.
    """
    size = tail.size - 1
    index = max(float(np.mean(np.log(tail[:-1] / tail[-1]))), _LEAST_TAIL)
    return float((1 + np.log(ratio) / (size * index)) ** -size)


def _is_far_in_logs(value: float, rest: np.ndarray) -> bool:
    """Whether a value above the others is far out among the logarithms of the positive ones."""
    if rest.min() < 0:
        return True
    logs = np.log(rest[rest > 0])
    middle = np.median(logs)
    return bool(np.log(value) - middle > _LEAST_LOG_DISTANCE * scale_of_bulk(logs - middle))
