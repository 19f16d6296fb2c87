"""Tables with headings from text files: side information, and columns by their headings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxmf.arguments import check_file, checks_call
from jaxmf.data.encoding import LineError
from jaxmf.data.features import Features
from jaxmf.data.headings import column_of_ids
from jaxmf.data.names import ids, object_array
from jaxmf.data.suspects import without_last_line_of_no_ids, without_repeats
from jaxmf.data.table_columns import refuse_twice
from jaxmf.data.text_tables import MISSING, as_number, equal_lines, is_text, numbered_lines


def read_headings(path: str | Path) -> list[str]:
    """The cells of the first line of a .csv or .tsv file that is not empty."""
    path = check_file(path)
    return [cell.strip() for _, line in numbered_lines(path, first=True) for cell in line]


@checks_call
def read_columns(path: str | Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Columns of a .csv or .tsv file by their headings, as ids: whole numbers, else texts.

    Spaces around ids do not count, as when data are read.

    Args:
        path: the file; its first line holds the headings.
        names: the columns wanted.
    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: an extension not listed, lines that differ in length, a heading that is not
            there, no lines, an empty cell.
    """
    return columns_with_gaps(path, names, None)[0]


def columns_with_gaps(
    path: str | Path, names: Sequence[str], gaps: str | None, count: str | None = None
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The same, where one of the columns may be empty in some lines, and which lines these are.

    Args:
      gaps: the name of that column, which comes without them; None for no column.
      count: that of a later column of counts, 0 where both are empty, as a left join writes them.
    Returns: the columns; and of every line whether `gaps` is empty there, (T,) bool.
    Raises: as `read_columns`.
    """
    path, header, lines, line_numbers = _read_headed(path)
    needed = [name for name in names if name != gaps]
    if set(names) <= set(header):
        lines = without_last_line_of_no_ids(path, lines, [header.index(name) for name in needed])
    result, is_gap = {}, np.zeros(max(len(lines) - 1, 0), bool)
    for name in names:
        if name not in header:
            raise ValueError(f"{path}: has no column {name!r}, its first line is {header}.")
        refuse_twice(path, header, [k for k, each in enumerate(header) if each == name])
        column = [line[header.index(name)].strip() for line in lines[1:]]
        if not column:
            raise ValueError(f"{path}: has a first line with headings and no further lines.")
        if name == gaps:
            is_gap = np.array([not cell for cell in column])
            column = [cell for cell in column if cell]
        elif name == count and gaps is not None:
            pairs = zip(is_gap, column, strict=True)
            column = ["0" if gap and not cell else cell for gap, cell in pairs]
        if "" in column:
            line_number = line_numbers[1 + column.index("")]
            raise ValueError(f"{path}: column {name!r} is empty in line {line_number}.")
        result[name] = ids(column)
    return result, is_gap


@checks_call
def read_features(
    path: str | Path,
    *,
    id: str | None = None,
    categorical: Sequence[str] = (),
    lists: Sequence[str] = (),
    separator: str = "|",
    standardise: bool = True,
    missing: str = "refuse",
) -> Features:
    """Side information from a .csv or .tsv file: a line for each row or column of the data.

    The first line holds headings. Columns of numbers are standardised, those of texts become
    indicators, and texts with the separator in them hold several levels each: ``Action|War``. Lines
    that are equal in all cells count once, with a warning.

    Args:
        path: the file.
        id: the heading of the column with the ids; None for the first that is no line number.
        categorical: headings of numbers that are levels, such as codes of occupations.
        lists: headings of several levels a cell, where no cell of the file has the separator.
        separator: what stands between levels; empty for nothing.
        standardise: whether numbers are brought to mean 0 and standard deviation 1.
        missing: of empty cells and of ids without a line: "refuse", or "zero".
    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: no headings, lines that differ in length, an empty cell, lines that differ about
            one id; messages say the line of the file and the id.
    """
    path, header, lines, line_numbers = _read_headed(path)
    if len(lines) == 1 or len(header) == 1:
        raise ValueError(f"{path}: needs a line of headings, a column of ids, and features.")
    refuse_twice(path, header)
    if id is None:
        start = column_of_ids(header)
        lines, header = [line[start:] for line in lines], header[start:]
        id = header[0]
    if id not in header:
        raise ValueError(f"{path}: has no column {id!r}, its first line is {header}.")
    lines, line_numbers = _different_lines(path, lines[1:], line_numbers[1:])
    cells = {name: [line[k] for line in lines] for k, name in enumerate(header)}
    row_ids = ids(cells.pop(id))
    if "" in row_ids.tolist():
        line_number = line_numbers[row_ids.tolist().index("")]
        raise ValueError(f"{path}: line {line_number} has no id in column {id!r}; give it one.")
    _refuse_contradictions(path, row_ids, cells, line_numbers)
    read = dict.fromkeys(lists, _with_gaps) | dict.fromkeys(categorical, _codes)
    table = {name: read.get(name, _floats_or_texts)(column) for name, column in cells.items()}
    texts = {name: column for name, column in table.items() if column.dtype == object}
    separators = {
        name: separator
        for name, column in texts.items()
        if separator and (name in lists or any(separator in str(cell) for cell in column))
    }
    try:
        return Features.from_columns(
            table,
            ids=row_ids,
            categorical=categorical,
            lists=separators,
            standardise=standardise,
            missing=missing,
        )
    except LineError as error:
        line_number, name = line_numbers[error.line], row_ids.tolist()[error.line]
        in_file = error.at(f"in line {line_number}, of {name!r},")
        raise ValueError(f"{path}: {in_file}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _different_lines(
    path: Path, lines: list[list[str]], line_numbers: list[int]
) -> tuple[list[list[str]], list[int]]:
    """The lines without spaces around cells, and their numbers; equal ones count once."""
    lines = [[cell.strip() for cell in line] for line in lines]
    first: dict[tuple[str, ...], int] = {}
    for line, line_number in zip(lines, line_numbers, strict=True):
        first.setdefault(tuple(line), line_number)
    return without_repeats(path, lines), list(first.values())


def _refuse_contradictions(
    path: Path, row_ids: np.ndarray, cells: dict[str, list[str]], line_numbers: list[int]
) -> None:
    """Refuses different lines about one id, by their numbers and the first cell that differs."""
    seen: dict[object, int] = {}
    for position, name in enumerate(row_ids.tolist()):
        before = seen.setdefault(name, position)
        if before == position:
            continue
        first, second = line_numbers[before], line_numbers[position]
        heading = next(key for key, column in cells.items() if column[before] != column[position])
        here, there = cells[heading][before], cells[heading][position]
        raise ValueError(
            f"{path}: the id {name!r} stands in lines {first} and {second}, which differ in column "
            f"{heading!r}, {here!r} and {there!r}. Keep the line that is right; several levels of "
            "one id go into one cell, such as Action|War."
        )


def _floats_or_texts(texts: Sequence[str]) -> np.ndarray:
    """A column as numbers where all that is there are, NaN for gaps; else as ids, None for gaps."""
    try:
        return np.array([np.nan if text.lower() in MISSING else as_number(text) for text in texts])
    except ValueError:
        return _with_gaps(texts)


def _codes(texts: Sequence[str]) -> np.ndarray:
    """Levels as ids, None for gaps."""
    cells = _with_gaps(texts)
    known = [text for text in cells.tolist() if text is not None]
    codes = dict(zip(known, ids(known).tolist(), strict=True))
    return object_array([codes.get(text) for text in cells.tolist()])


def _with_gaps(texts: Sequence[str]) -> np.ndarray:
    """Texts as objects, None for gaps."""
    gaps = MISSING - {"none"}  # which is a level that tables have
    return object_array([None if text.lower() in gaps else text for text in texts])


def _read_headed(path: str | Path) -> tuple[Path, list[str], list[list[str]], list[int]]:
    """The file, the headings of its first line, all lines, and their numbers."""
    path = check_file(path)
    if not is_text(path):
        raise ValueError(f"{path}: the extension {path.suffix!r} is not known; use .csv or .tsv.")
    lines, line_numbers = equal_lines(path)
    header = [cell.strip() for cell in lines[0]]
    return path, header, lines, line_numbers
