"""Ratings from files, for the command line: triples, and matrices of them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxmf.arguments import check_file, checks_call
from jaxmf.data.array_files import read_frame
from jaxmf.data.entries import Entries
from jaxmf.data.headings import Roles, misplaced, roles
from jaxmf.data.names import ids
from jaxmf.data.readers import read_matrix
from jaxmf.data.repeated_cells import latest_of_cells
from jaxmf.data.suspects import (
    are_times,
    is_total,
    warn_codes,
    without_last_line_of_no_ids,
    without_repeats,
)
from jaxmf.data.table_columns import (
    TIMES,
    as_option,
    describe,
    held_by,
    likely,
    named,
    positions,
    refuse_listed,
    refuse_twice,
    roles_by_content,
    warn_roles,
    written,
)
from jaxmf.data.text_tables import (
    MISSING,
    Recode,
    as_number,
    extension,
    is_numeric,
    is_text,
    recode_option,
    recoded,
    stripped_lines,
)
from jaxmf.user_warnings import warn

if TYPE_CHECKING:
    import pandas as pd


class _Reading(NamedTuple):
    """Where rows, columns, values and maybe times of triples stand, and how that is known."""

    order: Roles
    has_headings: bool
    is_stated: bool  # by headings, or by whoever reads the file


@checks_call
def read_entries(
    path: str | Path,
    *,
    form: str | None = None,
    key: str | None = None,
    use_columns: Sequence[str] | None = None,
    drop_columns: Sequence[str] = (),
    recode: Recode | None = None,
    noted: dict[str, object] | None = None,
) -> Entries:
    """Observed cells from a file.

    - "triples": each line is a cell: the ids of its row and column, and its value. The first line
      may hold headings; if they are such as user, item, rating, timestamp, columns may stand in any
      order. Otherwise the first three columns are taken, unless the third holds no numbers or a
      date stands before it: then the content of columns decides, with a warning. Further columns,
      and lines without a value, are ignored. ``.parquet`` files are read too.
    - "matrix": as `read_matrix`; empty cells and NA are not observed.

    Args:
        path: the file.
        form: one of these; None: triples if a text has three or four cells a line or such headings,
            else a matrix.
        key: which array of an ``.npz``.
        use_columns: headings (or numbers from 1) of the row, the column, the value and maybe the
            time of triples, in this order; for a matrix, of the columns that are read.
        drop_columns: for a matrix, headings of columns that are not read.
        recode: as in `read_matrix`, of values.
        noted: a dict that receives the form and columns found, as options with which another file
            is read in the same way.
    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a value that is no number, lines that are no triples, no cells.
    """
    path = check_file(path)
    if form not in (None, "triples", "matrix"):
        raise ValueError(f"form must be triples or matrix, got {form!r}")
    has_lines = is_text(path)
    lines, line_numbers = stripped_lines(path) if has_lines and form != "matrix" else ([], [])
    guessed = form is None
    if form is None:
        form = "triples" if has_lines and _are_triples(lines, use_columns) else "matrix"
        form = "matrix" if drop_columns else form
    if noted is not None and has_lines:
        noted["form"] = form
    if form == "matrix":
        is_frame = guessed and extension(path) == ".parquet" and not drop_columns
        found = _from_frame(path, use_columns) if is_frame else None
        chosen = {"use_columns": use_columns, "drop_columns": drop_columns, "recode": recode}
        return found or _from_matrix(path, key, chosen, lines=lines if guessed else None)
    if not has_lines:
        raise ValueError(f"{path}: triples are read from .csv and .tsv files.")
    reading = _reading(path, lines, line_numbers, use_columns)
    if noted is not None and reading.has_headings:
        order = [index for index in reading.order[:4] if index is not None]
        noted["columns"] = written([lines[0][index] for index in order])
    lines = _triples(path, lines, line_numbers, reading, recode)
    values = np.array([as_number(line[2]) for line in lines])
    if not reading.is_stated and are_times(values):
        raise ValueError(
            f"{path}: the values, which are read from the third column, look like times "
            f"({lines[0][2]}). Give headings that say what is what, such as user,item,rating,time, "
            f"or name columns ({as_option(['1', '2', '4'])})."
        )
    rows, row_names = _coded([line[0] for line in lines])
    columns, column_names = _coded([line[1] for line in lines])
    if not reading.is_stated and len(lines) >= 10 and len(row_names) > 0.98 * len(lines):
        warn(
            f"{path}: nearly no two lines have the same row; the first column, {lines[0][0]!r} in "
            "the first line, is read as the ids of rows, the third as values. If it holds line "
            "numbers or times, remove it, or give headings such as user,item,rating."
        )
    warn_codes(path, values)
    shape = (len(row_names), len(column_names))
    return Entries(rows, columns, values, shape, row_names, column_names)


def _are_triples(lines: list[list[str]], use: Sequence[str] | None) -> bool:
    """Whether a table in text holds triples, where no form is given."""
    if use is not None:
        return len(use) in (3, 4)
    if roles(lines[0]) is not None or (len(lines[0]) in (3, 4) and not _are_measured(lines)):
        return True
    return len(lines[0]) > 4 and roles_by_content(lines) is not None


def _from_matrix(
    path: Path,
    key: str | None,
    chosen: dict[str, Any],
    *,
    lines: list[list[str]] | None,
) -> Entries:
    """Entries of a matrix; where no form was given, an error says what else it may be.

    Args: chosen: further options of `read_matrix`; lines: of a text without a given form.
    """
    if any(chosen.values()):
        lines = None
    if lines:
        refuse_listed(path, lines, is_measured=False)
    try:
        table = read_matrix(path, key=key, **chosen)
    except ValueError as error:
        if not lines:
            raise
        guess = likely(lines, only_long=True)
        if len(lines[0]) < 3:
            raise ValueError(
                f"{error} (Triples, a line for each rating, have three cells: the id of a row, "
                "that of a column, and a number; this file was read as a matrix.)"
            ) from None
        if len(guess) < 3:
            raise
        raise ValueError(
            f"{error} (This file was read as a matrix. If it has a line for each rating, name the "
            f"columns of the row, the column and the value: {as_option(guess)}.)"
        ) from None
    if is_text(path):
        _warn_zeros(path, np.asarray(table.values))
    make = Entries.from_scipy if hasattr(table.values, "tocoo") else Entries.from_array
    return make(table.values, row_names=table.row_names, column_names=table.column_names)


def _are_measured(lines: list[list[str]]) -> bool:
    """Whether the first two columns hold fractions in most lines, which ids are not."""
    body = [line for line in lines[1:] if len(line) == len(lines[0])]
    fractions = sum(all(re.fullmatch(r"-?\d*\.\d*[1-9]\d*", x) for x in line[:2]) for line in body)
    return 2 * fractions > len(body)


def _from_frame(path: Path, use: Sequence[str] | None) -> Entries | None:
    """Entries of a table with a line for each cell; None where headings do not say that it is.

    Lines without a value are left out.
    """
    frame: pd.DataFrame = read_frame(path)
    headings = [str(name) for name in frame.columns]
    if use is not None:
        order = positions(path, headings, use, "use_columns")
    else:
        found = roles(headings)
        order = [] if found is None or found.value is None else [*found[:2], found.value]
    if len(order) not in (3, 4):
        return None
    row, column, value = (frame.columns[index] for index in order[:3])
    full = frame[frame[value].notna()]
    if len(full) < len(frame):
        warn(
            f"{path}: {len(frame) - len(full):,} of {len(frame):,} lines have no value; they are "
            "left out."
        )
    warn_codes(path, full[value].to_numpy(dtype=float))
    return Entries.from_pandas(full, row=row, column=column, value=value)


def _warn_zeros(path: Path, values: np.ndarray) -> None:
    """Warns of a matrix of stars, or of other whole numbers from 1, that is zero in most cells."""
    zeros, known = int(np.sum(values == 0)), int(np.isfinite(values).sum())
    levels = np.unique(values[np.isfinite(values) & (values != 0)])
    if 2 * zeros > known and levels.size > 2 and levels[0] > 0:
        warn(
            f"{path}: {zeros:,} of {known:,} cells are 0 and are read as ratings of 0. If they "
            "stand for what was not rated, leave these cells empty."
        )


def _reading(
    path: Path, lines: list[list[str]], line_numbers: list[int], use: Sequence[str] | None
) -> _Reading:
    """How the columns of triples are read.

    Raises ValueError: lines of two cells or of several lengths, headings that say nothing above
    columns that hold no values, or a heading that stands twice.
    """
    for line_number, line in zip(line_numbers, lines, strict=True):
        if len(line) < 3:
            raise ValueError(
                f"{path}: line {line_number} is {line}; triples have the id of a row, that of a "
                "column, and a number."
            )
        if len(line) != len(lines[0]):
            raise ValueError(
                f"{path}: line {line_number} has {len(line)} cells, the first has {len(lines[0])}. "
                "All lines need as many; a text with a comma in it stands in quotes."
            )
    first = lines[0]
    if use is not None:
        order = positions(path, first, use, "use_columns")
        if len(order) not in (3, 4):
            raise ValueError(
                f"{path}: use_columns: triples have a row, a column, a value and maybe a time, got "
                f"{list(use)}."
            )
        row, column, value = order[:3]
        found = Roles(row, column, value, order[3] if len(order) == 4 else None, is_named=True)
        has_headings = bool(set(use) & set(first)) or not is_numeric(first[value])
        return _Reading(found, has_headings, is_stated=True)
    if roles(first) is not None or not is_numeric(first[2]):
        refuse_twice(path, first, num_named=3)
    named = roles(first)
    if named is not None:
        return _Reading(named, True, is_stated=True)
    held = held_by(lines)[:3]
    if not held:
        return _Reading(Roles(0, 1, 2, None, False), not is_numeric(first[2]), is_stated=False)
    has_times = {"dates", "seconds since 1970"} & set(held[:2])
    seen = None
    if has_times or held[2] != "numbers" or misplaced(first) is not None:
        seen = roles_by_content(lines)
    if seen is not None:
        warn_roles(path, first, seen)
        return _Reading(seen, not is_numeric(first[seen.value or 0]), is_stated=True)
    _refuse_unclear(path, lines, held)
    return _Reading(Roles(0, 1, 2, None, False), not is_numeric(first[2]), is_stated=False)


def _refuse_unclear(path: Path, lines: list[list[str]], held: Sequence[str]) -> None:
    """Refuses columns of which the first three are no rows, columns and values.

    A few slips among numbers are left to `_check_cells`. Args: held: what the first three hold.
    """
    odd = None if is_numeric(lines[0][2]) else misplaced(lines[0])
    texts = [line[2] for line in lines if line[2].lower() not in MISSING]
    if odd is None and (not texts or any(map(is_numeric, texts))) and "dates" not in held[:2]:
        return
    guess = likely(lines)
    remedy = f"Name the row, the column and the value ({as_option(guess)})"
    if len(guess) < 3:
        remedy = (
            "No column holds numbers to be values. If a line says that something happened, fit a "
            "model of ones, such as sparse-binary, or of counts, such as lda"
        )
    where = f", and {odd!r} stands elsewhere" if odd else ""
    raise ValueError(
        f"{path}: the first three columns are no row, column and value{where}: {describe(lines)}. "
        f"{remedy}, or use headings such as user,item,rating,time."
    )


def _triples(
    path: Path,
    lines: list[list[str]],
    line_numbers: list[int],
    reading: _Reading,
    recode: Recode | None,
) -> list[list[str]]:
    """Row, column and value of every line that has a value."""
    order = [index for index in reading.order[:4] if index is not None]
    headings = [lines[0][index] for index in order] if reading.has_headings else None
    if headings is not None and len(lines) == 1:
        raise ValueError(f"{path}: has a first line with headings and no further lines.")
    start = int(headings is not None)
    times = [k for k, what in enumerate(held_by(lines)) if what in TIMES and k not in order][:1]
    with_times = as_option(named(lines[0], [*order, *times])) if times else ""
    lines = [[line[index] for index in order] for line in lines[start:]]
    values = recoded([line[2:3] for line in lines], recode)
    lines = [[*line[:2], *value, *line[3:]] for line, value in zip(lines, values, strict=True)]
    lines, line_numbers = _without_total(path, lines), line_numbers[start:]
    _check_cells(path, lines, line_numbers, order, headings)
    if len(order) == 3:
        _refuse_other_values(path, lines, line_numbers, with_times)
    lines = without_repeats(path, _with_values(path, lines))
    if len(order) > 3:
        lines = without_repeats(path, [line[:3] for line in latest_of_cells(path, lines)])
    return lines


def _refuse_other_values(
    path: Path, lines: list[list[str]], line_numbers: list[int], times: str
) -> None:
    """Refuses a cell with two values, by its lines.

    Args: times: the option that names a column of times as well; empty where there is none.
    """
    known: dict[tuple[str, str], tuple[int, str]] = {}
    for line, line_number in zip(lines, line_numbers, strict=False):
        row, column, value = line
        if value.lower() in MISSING:
            continue
        first, before = known.setdefault((row, column), (line_number, value))
        if value != before:
            remedy = f", or name the times as well, of which the last counts ({times})"
            raise ValueError(
                f"{path}: the cell of row {row!r} and column {column!r} is {before} in line "
                f"{first} and {value} in line {line_number}. Give it once{remedy if times else ''}."
            )


def _check_cells(
    path: Path,
    lines: list[list[str]],
    line_numbers: list[int],
    order: Sequence[int],
    headings: Sequence[str] | None,
) -> None:
    """Refuses a cell without a row or a column, and a value that is no number, by where it is."""
    for line, line_number in zip(lines, line_numbers, strict=False):
        for position, word in enumerate(("row", "column")):
            if line[position].lower() in ("", "nan"):
                raise ValueError(
                    f"{path}: the id of a {word} is missing in {line}, line {line_number} of the "
                    "file. Give it one, or leave the line out."
                )
        text = line[2]
        if text.lower() in MISSING or (is_numeric(text) and math.isfinite(as_number(text))):
            continue
        heading = "" if headings is None else f" ({headings[2]!r})"
        raise ValueError(
            f"{path}: value {text!r} of line {line_number}, column {order[2] + 1}{heading}, is no "
            f"number; write it as one, or leave it empty (also by {recode_option({text: ''})})."
        )


def _with_values(path: Path, lines: list[list[str]]) -> list[list[str]]:
    """The lines that have a value."""
    full = [line for line in lines if line[2].lower() not in MISSING]
    if not full:
        raise ValueError(f"{path}: no line has a value, the first is {lines[0]}.")
    if len(full) < len(lines):
        gap = next(line for line in lines if line[2].lower() in MISSING)
        warn(
            f"{path}: {len(lines) - len(full):,} of {len(lines):,} lines have no value, such as "
            f"{gap}; they are left out."
        )
    return full


def _without_total(path: Path, lines: list[list[str]]) -> list[list[str]]:
    """Lines without a last one that holds the sum, or the mean, of all others, or has no ids."""
    lines = without_last_line_of_no_ids(path, lines, (0, 1))
    last = lines[-1]
    if len(lines) < 3 or not is_total(last[0]) or not is_numeric(last[2]):
        return lines
    others = [
        as_number(x[2]) for x in lines[:-1] if x[2].lower() not in MISSING and is_numeric(x[2])
    ]
    means = (sum(others), sum(others) / max(len(others), 1))
    if not any(math.isclose(as_number(last[2]), each, rel_tol=1e-6) for each in means):
        return lines
    if not (last[1] == "" or is_total(last[1])):
        return lines
    warn(f"{path}: the last line, {last}, is a total and is left out.")
    return lines[:-1]


def _coded(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Positions in a list of ids, in order of appearance, and the list."""
    names = ids(texts)
    known, first, codes = np.unique(names, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    index = np.empty_like(order)
    index[order] = np.arange(order.size)
    return index[codes], known[order]
