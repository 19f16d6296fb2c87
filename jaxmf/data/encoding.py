"""Columns of a table made into numbers: standardised numbers, and indicators of levels."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from jaxmf.data import dates
from jaxmf.data.names import counts_from_zero, is_missing_id, object_array
from jaxmf.user_warnings import warn

_REAL_TYPES = (bool, int, float, np.number, Decimal)
_FEWEST_LINES = 20  # fewer, and levels of one line each may be chance
MISSING = ("refuse", "zero")
"""What to do with a value, or a line, that is not there."""


class Column(NamedTuple):
    """One column of features: where it comes from and what was done to it."""

    block: str  # the columns of one name belong together
    name: str  # the heading in the table it was made of
    level: Hashable = None  # the level it indicates; None for a number
    centre: float = 0.0  # what was subtracted from a number
    scale: float = 1.0  # what it was then divided by
    separator: str | None = None  # what stands between the levels of a cell that holds several
    is_date: bool = False  # whether a number is one of days since 1970

    @property
    def label(self) -> str:
        """``age``, or ``sex=M``."""
        label = self.name if self.level is None else f"{self.name}={self.level}"
        return label if self.block == self.name else f"{self.block}.{label}"


class LineError(ValueError):
    """A value that features cannot take, of a column in a line counted from 0."""

    def __init__(self, name: str, line: int, problem: str, where: str = "") -> None:
        self.name, self.line, self.problem = name, line, problem
        super().__init__(f"column {name!r}: the value {where or f'at line {line}'} {problem}")

    def at(self, where: str) -> "LineError":
        """The same with other words for the line, such as its number in a file."""
        return type(self)(self.name, self.line, self.problem, where)

    def with_id(self, ids: object) -> "LineError":
        """The same with the id of the line, where there are ids."""
        known = None if ids is None else object_array(ids)
        if known is None or counts_from_zero(known, len(known)) or self.line >= len(known):
            return self
        return self.at(f"at line {self.line}, of {known.tolist()[self.line]!r},")


def _is_missing(name: str, line: int, count: int = 1) -> LineError:
    more = f" ({count} such lines)" if count > 1 else ""
    remedy = (
        'Fill it in, or say missing="zero": no indicator is set, and a standardised number is '
        "taken to be average."
    )
    return LineError(name, line, f"is missing{more}. {remedy}")


def encode_columns(
    table: Mapping[str, object],
    *,
    categorical: Sequence[str] = (),
    lists: Mapping[str, str] | None = None,
    standardise: bool = True,
    missing: str = "refuse",
) -> tuple[scipy.sparse.csc_array, list[Column]]:
    """The numbers (N, F) of a table's columns, NaN where one is missing, and what each of them is.

    Raises TypeError: a column of neither numbers nor levels. ValueError: columns that differ in
    length, a value that is missing or not finite.
    """
    separators = dict(lists or {})
    for argument, headings in (("categorical", categorical), ("lists", separators)):
        for heading in headings:
            if heading not in table:
                raise ValueError(
                    f"{argument}: there is no column {heading!r}, there are "
                    f"{', '.join(map(repr, table)) or 'none'}."
                )
    pieces: list[Any] = []
    columns: list[Column] = []
    for heading, cells in table.items():
        array = object_array(cells)
        if array.ndim != 1:
            raise ValueError(f"column {heading!r}: must have one axis, has shape {array.shape}.")
        if pieces and len(array) != pieces[0].shape[0]:
            raise ValueError(
                f"column {heading!r}: has {len(array)} values, column {columns[0].name!r} has "
                f"{pieces[0].shape[0]}. They describe the same lines."
            )
        is_list = heading in separators
        is_numeric = heading not in categorical and not is_list and _are_numeric(array)
        if is_numeric:
            found = [_numeric_column(heading, array, standardise, missing)]
        else:
            found = _levels_of(heading, array, separators.get(heading), missing)
        piece = encode_one(array, found, missing=missing)
        if not is_numeric and heading not in categorical and not is_list:
            _warn_single_levels(heading, piece)
        columns += found
        pieces.append(piece)
    if not columns:
        raise ValueError("features: there is no column. Leave them out if nothing is known.")
    return scipy.sparse.hstack(pieces, format="csc"), columns


def encode_one(
    cells: np.ndarray, columns: Sequence[Column], *, missing: str
) -> scipy.sparse.csc_array:
    """The numbers (N, F) of one heading in given columns, for new lines as for old ones.

    A number that is missing and may be is NaN.

    Raises ValueError: a value that is missing, or a level that has no column.
    """
    first = columns[0]
    if first.level is None:
        _check_kind(first, cells)
        values = (_as_floats(first.name, cells, missing) - first.centre) / first.scale
        return scipy.sparse.csc_array(values[:, None])
    indices = {column.level: index for index, column in enumerate(columns)}
    lines, found = [], []
    for line, cell in enumerate(cells.tolist()):
        for level in _levels(first.name, cell, line, first.separator, missing):
            if level in indices:
                lines.append(line)
                found.append(indices[level])
            elif missing == "refuse":
                known = ", ".join(repr(column.level) for column in columns[:5])
                raise ValueError(
                    f"column {first.name!r}: the level {level!r} at line {line} was not there "
                    f"when the features were made; these are {known}"
                    f"{', ...' if len(columns) > 5 else ''}. Repair it, or make the features "
                    'with missing="zero".'
                )
    # a level that a cell names twice counts once
    cells_set = np.unique(np.array([lines, found], np.int64).reshape(2, -1), axis=1)
    held = 1 / np.array([column.scale for column in columns])[cells_set[1]]
    return scipy.sparse.csc_array((held, tuple(cells_set)), shape=(len(cells), len(columns)))


def _check_kind(column: Column, cells: np.ndarray) -> None:
    """Refuses numbers in a column made of dates, and dates in one of numbers."""
    is_date = dates.days(cells) is not None
    if is_date == column.is_date or all(map(is_missing_id, cells.tolist())):
        return
    made, now = ("dates", "none") if column.is_date else ("numbers", "dates")
    raise ValueError(f"column {column.name!r}: was made of {made} and holds {now} now.")


def _are_numeric(cells: np.ndarray) -> bool:
    """Whether a column holds numbers; of one of objects, whether all that is there does."""
    if cells.dtype.kind in "biuf":
        return True
    if cells.dtype.kind not in "OM":
        return dates.days(cells) is not None
    there = [cell for cell in cells.tolist() if not is_missing_id(cell)]
    if dates.days(cells) is not None:
        return True
    return bool(there) and all(isinstance(cell, _REAL_TYPES) for cell in there)


def _as_floats(name: str, cells: np.ndarray, missing: str) -> np.ndarray:
    """A column as numbers, dates as days, NaN where there is none and that is allowed."""
    found = dates.days(cells)
    if found is not None:
        cells = found
    elif cells.dtype.kind not in "biuf":
        there = [float(c) if isinstance(c, Decimal) else c for c in cells.tolist()]
        cells = np.array([np.nan if is_missing_id(c) else c for c in there])
        if cells.dtype.kind not in "biuf":
            raise TypeError(f"column {name!r}: was made of numbers and holds others now.")
    values = cells.astype(float)
    gaps, infinite = np.isnan(values), np.isinf(values)
    if gaps.any() and missing == "refuse":
        raise _is_missing(name, int(np.argmax(gaps)), int(gaps.sum()))
    if infinite.any():
        line, count = int(np.argmax(infinite)), int(infinite.sum())
        more = f" ({count} such lines)" if count > 1 else ""
        raise LineError(name, line, f"must be finite, is {values[line]}{more}. Correct it.")
    return values


def _numeric_column(name: str, cells: np.ndarray, standardise: bool, missing: str) -> Column:
    values, is_date = _as_floats(name, cells, missing), dates.days(cells) is not None
    if np.isnan(values).all():
        raise ValueError(f"column {name!r}: holds no number at all. Leave it out.")
    truths = all(isinstance(c, (bool, np.bool_)) for c in cells.tolist() if not is_missing_id(c))
    if not standardise or truths:
        return Column(name, name, is_date=is_date)
    spread = float(np.nanstd(values))
    centre, scale = float(np.nanmean(values)), spread if spread > 0 else 1.0
    return Column(name, name, None, centre, scale, is_date=is_date)


def _levels_of(name: str, cells: np.ndarray, separator: str | None, missing: str) -> list[Column]:
    """A column for every level that occurs, sorted where levels can be."""
    seen: dict[Hashable, None] = {}
    for line, cell in enumerate(cells.tolist()):
        seen.update(dict.fromkeys(_levels(name, cell, line, separator, missing)))
    levels: list[Any] = list(seen)
    if len({type(level) for level in levels}) == 1:
        levels = sorted(levels)
    if not levels:
        raise ValueError(f"column {name!r}: holds no level at all. Leave it out.")
    return [Column(name, name, level, separator=separator) for level in levels]


def _warn_single_levels(name: str, indicators: scipy.sparse.csc_array) -> None:
    """Warns of texts such as titles and free text, which say nothing of other lines."""
    num_lines, num_levels = indicators.shape
    num_single = int(np.sum(np.diff(indicators.indptr) == 1))
    if num_lines >= _FEWEST_LINES and 2 * num_single > num_lines:
        warn(
            f"column {name!r}: has {num_levels:,} levels in {num_lines:,} lines: {num_single:,} of "
            "its indicators are of a single line and say nothing of others. Leave titles and free "
            f"text out, or name their words as levels: lists={{{name!r}: ' '}}. "
            f"categorical=[{name!r}] keeps them as they are."
        )


def _levels(
    name: str, cell: object, line: int, separator: str | None, missing: str
) -> Iterable[Hashable]:
    """The levels that a cell holds: one, or several between separators."""
    if is_missing_id(cell) or (cell == "" and separator is None):
        if missing == "refuse":
            raise _is_missing(name, line)
        return ()
    if separator is not None:
        if not isinstance(cell, str):
            raise TypeError(f"column {name!r}: {cell!r} at line {line} is no text to be split.")
        return [part.strip() for part in cell.split(separator) if part.strip()]
    try:
        hash(cell)
    except TypeError:
        raise TypeError(
            f"column {name!r}: {cell!r} at line {line} is neither a number nor a level. Use "
            "numbers, texts, or texts of several levels with lists={...: '|'}."
        ) from None
    return (cell,)
