"""What stands in files beside data: totals, codes of missing cells, times in place of values."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxmf.data.text_tables import MISSING, recode_option
from jaxmf.user_warnings import warn

_TOTALS = frozenset(
    {"total", "totals", "grand total", "sum", "sums", "mean", "average", "gesamt", "summe"}
    | {"gesamtsumme", "mittelwert", "all", "overall", "durchschnitt", "schnitt", "moyenne", "somme"}
    | {"total général", "promedio", "media", "média", "suma", "soma", "gemiddelde", "totaal"}
)
_CODES = (9.0, 88.0, 98.0, 99.0, 888.0, 998.0, 999.0, 9999.0, 99999.0)
MOST_LEVELS = 12  # of a scale, such as stars or answers
_COLUMN_CODES = (*(code for code in _CODES if code > 50), *(-code for code in _CODES))
_NINE = 9  # a code among answers 1 to 4 at most, as it is a number of so much else
_FEWEST_ANSWERS = 20  # of a column that are looked at for nines
_LEAST_CODE = 500.0  # from which on, up or down, two cells are enough and not three


def is_total(text: str) -> bool:
    """Whether an id is what spreadsheets call a line of sums or means."""
    return text.strip().strip(":").lower() in _TOTALS


def without_totals(
    path: Path, values: np.ndarray, row_names: np.ndarray | None, column_names: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """A matrix (N, D) and its ids without a last row, or column, of sums or means.

    It is left out, with a warning, where it is called so and holds these numbers. Where it only
    holds them, or a row is only called so, it is data, and a warning says so.
    """
    names = [row_names, column_names]
    for axis, word in ((0, "row"), (1, "column")):
        if min(values.shape) < 2 or values.shape[axis] < 3:
            continue
        last, rest = np.take(values, -1, axis), np.delete(values, -1, axis)
        known = names[axis]
        name = "" if known is None else str(known[-1])
        called = is_total(name)
        adds_up = _adds_up(last, rest, axis, called=called)
        # databases call the total of GROUP BY ROLLUP so
        called |= adds_up and name.lower() in MISSING - {""}
        if called and adds_up:
            _warn_total(path, word, name)
            values, names[axis] = rest, None if known is None else known[:-1]
        elif called:
            option = "" if axis == 0 else f" (drop_columns=[{name!r}], --drop {shlex.quote(name)})"
            warn(
                f"{path}: the last {word}, {name!r}, holds neither the sums nor the means of the "
                f"others and is read as data. Leave it out if it is a total{option}."
            )
        elif adds_up:
            shown = f", {name!r}," if name else ""
            warn(
                f"{path}: the last {word}{shown} may hold the sums of the others and is read "
                "as data. Remove it if it does."
            )
    return values, names[0], names[1]


def without_total_line(path: Path, lines: list[list[str]]) -> list[list[str]]:
    """Lines of cells without a last one that is called a total and is one of all but its name."""
    if len(lines) < 3 or len(lines[0]) < 2 or not is_total(lines[-1][0]):
        return lines
    try:
        values = np.array(
            [
                [np.nan if cell.strip().lower() in MISSING else float(cell) for cell in line[1:]]
                for line in lines
            ]
        )
    except ValueError:
        return lines
    if not _adds_up(values[-1], values[:-1], 0, called=True):
        return lines
    _warn_total(path, "row", lines[-1][0].strip())
    return lines[:-1]


def without_last_line_of_no_ids(
    path: Path, lines: list[list[str]], ids: Sequence[int]
) -> list[list[str]]:
    """Lines of cells without a last one that is empty where ids stand, with a warning.

    Totals stand in such a line. Args: ids: the positions of the ids in a line.
    """
    last = lines[-1]
    if len(lines) < 3 or any(last[position].strip() for position in ids):
        return lines
    warn(f"{path}: the last line, {last}, has no ids, as a total; it is left out.")
    return lines[:-1]


def _warn_total(path: Path, word: str, name: str) -> None:
    warn(
        f"{path}: the last {word}, {name!r}, holds the sums or means of the others and is left out."
    )


def _adds_up(last: np.ndarray, rest: np.ndarray, axis: int, *, called: bool) -> bool:
    """Whether numbers are the sums of all others along an axis, or, if called so, the means."""
    known = np.isfinite(last) & np.isfinite(rest).any(axis=axis)
    enough = 1 if called else 3
    if known.sum() < enough or rest.shape[axis] < enough or not np.any(last[known]):
        return False
    sums = np.nansum(rest, axis=axis)[known]
    counts = np.isfinite(rest).sum(axis=axis)[known]
    near = 1e-6 * np.nansum(np.abs(rest), axis=axis)[known] + 1e-12
    meant = (sums, sums / counts) if called else (sums,)
    return any(bool(np.all(np.abs(last[known] - each) <= near)) for each in meant)


def without_repeats(path: Path, lines: list[list[str]]) -> list[list[str]]:
    """The lines without those that repeat an earlier one, in all of their cells."""
    different = dict.fromkeys(map(tuple, lines))
    if len(different) == len(lines):
        return lines
    warn(
        f"{path}: {len(lines) - len(different):,} of {len(lines):,} lines repeat an earlier one in "
        "all that is read of them; they count once."
    )
    return [list(line) for line in different]


def warn_codes(path: Path, values: np.ndarray) -> None:
    """Warns of a number that stands for a missing cell, such as 9, 99 or -1, by how it stands off.

    Args: values: of all cells that are not missing.
    """
    known = np.unique(values[np.isfinite(values)])
    if known.size < 3:
        return
    for code, others, outermost in (
        (known[-1], known[:-1], known[-2]),
        (known[0], known[1:], known[1]),
    ):
        count = int(np.sum(values == code))
        is_code = code in _CODES or -code in (1.0, *_CODES)
        if not is_code or count < 2:
            continue
        gap, spread = abs(code - outermost), others[-1] - others[0]
        # not the tail of counts: levels without gaps, and the code in more than a few cells
        is_scale = (
            others.size == spread + 1 <= MOST_LEVELS
            and not np.any(others % 1)
            and count >= 0.002 * values.size
        )
        if gap > spread or (is_scale and gap >= 2):
            warn(
                f"{path}: {count:,} cells are {code:g}, and no other is "
                f"{'above' if code > outermost else 'below'} {outermost:g}. They are read as "
                "numbers; if they stand for missing ones, leave these cells empty, or say so "
                f"({recode_option({f'{code:g}': ''})})."
            )


class Code(NamedTuple):
    """A number that stands apart in a column, as one for missing cells does.

    Args:
        code: the number.
        column: the first such column.
        num_cells: cells of it in that column.
        outermost: the number next to it there.
        side: "below" or "above" of `outermost`.
        num_columns: in how many columns it stands apart.
    """

    code: float
    column: int
    num_cells: int
    outermost: float
    side: str
    num_columns: int


def may_be_code(values: np.ndarray) -> np.ndarray:
    """Which numbers are such as may stand for missing ones in a column, like -99 and 9: bool."""
    return np.isin(values, (*_COLUMN_CODES, _NINE))


def codes_by_column(columns: np.ndarray, values: np.ndarray) -> list[Code]:
    """Numbers such as 99, -99, -999 or 9999 that stand apart in some column, each once.

    One does that is in two cells or more and is further from all others than these lie apart, or
    negative where no other is. Other codes do not count among these where it is twice as large as
    all that are none, as 98 and 99 are among answers 1 to 7; 88, 98 and 99 are codes only there,
    and in three cells or more. The numbers of other columns do not matter: units may differ.
    For 9 see `_nines`.

    Args: columns (M,) int and values (M,) float of the observed cells.
    """
    is_code = np.isin(values, _COLUMN_CODES)
    found: dict[float, Code] = {}
    if not is_code.any():
        return _nines(columns, values)
    size = int(columns.max()) + 1
    rest = _ranges(columns, values, ~is_code, size)
    for code in np.unique(values[is_code]).tolist():
        is_small = 0 < code < _LEAST_CODE
        counts = np.bincount(columns[values == code], minlength=size)
        where = np.flatnonzero(counts >= (3 if is_small else 2))
        if not where.size:
            continue
        low, high = _ranges(columns, values, values != code, size)[:, where]
        stands_out = abs(code) > 2 * np.abs(rest[:, where]).max(axis=0)
        low, high = np.where(stands_out, rest[:, where], (low, high))
        is_below = code < low
        gap = np.where(is_below, low - code, code - high)
        is_outer = (gap > high - low) | (is_below & (code < 0) & (low >= 0))
        is_outer &= (high > low) & (stands_out | (not is_small))
        if is_outer.any():
            k = int(np.flatnonzero(is_outer)[0])
            nearest, side = (low[k], "below") if is_below[k] else (high[k], "above")
            column, count = int(where[k]), int(counts[where[k]])
            found[code] = Code(code, column, count, float(nearest), side, int(is_outer.sum()))
    return [*found.values(), *_nines(columns, values)]


def _nines(columns: np.ndarray, values: np.ndarray) -> list[Code]:
    """9 where all else in a column are answers 1 to 2, 3 or 4, each of which is there.

    In three cells or more, and fewer than the answers. In no column where 5 to 8 are in one of
    numbers 1 to 10 that has a 9, as in grades; counts have zeros.
    """
    has_nine = np.bincount(columns[values == _NINE], minlength=int(columns.max(initial=-1)) + 1) > 0
    where = has_nine[columns]
    held, index = np.unique(columns[where], return_inverse=True)
    levels = np.where(values[where] % 1 == 0, np.clip(values[where], 0, 11), 0).astype(int)
    counts = np.bincount(12 * index + levels, minlength=12 * held.size).reshape(-1, 12)
    is_scale = (counts[:, 0] == 0) & (counts[:, 11] == 0)
    if (counts[is_scale, 5:_NINE] > 0).any():
        return []
    answers, nines = counts[:, 1:5], counts[:, _NINE]
    # 1 and 2, and each of 3 and 4 after the one before
    is_complete = (answers[:, 1] > 0) & (np.diff(answers > 0, axis=1).sum(axis=1) <= 1)
    num_answers = answers.sum(axis=1)
    is_enough = (nines >= 3) & (nines < num_answers) & (num_answers >= _FEWEST_ANSWERS)
    found = np.flatnonzero(
        is_scale & is_complete & (answers[:, 0] > 0) & (counts[:, 10] == 0) & is_enough
    )
    if not found.size:
        return []
    first = int(found[0])
    highest = float(np.flatnonzero(answers[first]).max() + 1)
    column, count = int(held[first]), int(nines[first])
    return [Code(float(_NINE), column, count, highest, "above", found.size)]


def _ranges(columns: np.ndarray, values: np.ndarray, kept: np.ndarray, size: int) -> np.ndarray:
    """(2, D) least and largest of the values (M,) kept of each column; inf and -inf of none."""
    ends = np.repeat([[np.inf], [-np.inf]], size, axis=1)
    np.minimum.at(ends[0], columns[kept], values[kept])
    np.maximum.at(ends[1], columns[kept], values[kept])
    return ends


def are_times(values: np.ndarray) -> bool:
    """Whether numbers are seconds, or milliseconds, since 1970: all between 1980 and 2040."""
    whole = bool(np.all(values % 1 == 0))
    return whole and any(
        bool(np.all((values > 3.1e8 * unit) & (values < 2.21e9 * unit))) for unit in (1, 1000)
    )


def count_lines(texts: Sequence[str]) -> bool:
    """Whether cells are the numbers of their lines, from 0 or from 1."""
    return any(list(texts) == [str(k + start) for k in range(len(texts))] for start in (0, 1))


def are_ids(values: np.ndarray) -> bool:
    """Whether a table (N, 2) of whole numbers has ids, such as of documents and words, as counts.

    Those of documents run from 0 or 1 without a gap, and stand in order or are each about as
    frequent, thrice or more, of ten or more; counts do neither, as large ones are rare.
    """
    if values.ndim != 2 or values.shape[1] != 2 or len(values) < _FEWEST_ANSWERS:
        return False
    first = values[:, 0]
    ids, counts = np.unique(first, return_counts=True)
    if ids[0] not in (0, 1) or ids.size < 3 or ids[-1] - ids[0] != ids.size - 1:
        return False
    is_even = ids.size >= 10 and int(counts.min()) >= max(3, int(counts.max()) / 10)
    return is_even or bool(np.all(first[1:] >= first[:-1]))
