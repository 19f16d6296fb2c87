"""Matrices and tables from files, for the command line."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxmf.arguments import check_file
from jaxmf.data.container import UncheckedTable, peel
from jaxmf.data.features import Features
from jaxmf.data.headings import column_of_ids, holds_ids, names_rows
from jaxmf.data.names import object_array
from jaxmf.data.suspects import count_lines, warn_codes, without_total_line, without_totals
from jaxmf.data.text_tables import MISSING, TEXT, TRUTHS, extension, is_text, numbered_lines

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import sparray

_ANSWERS = frozenset(word for words in TRUTHS for word in words if len(word) > 1)


def read_matrix(path: str | Path, *, key: str | None = None) -> UncheckedTable:
    """A matrix and its ids from a file, to be passed on to ``as_container`` or a model.

    - ``.npy``: one array. ``.npz``: the array ``key`` (or the only one), or a matrix saved by
      ``scipy.sparse.save_npz``.
    - ``.csv``, ``.tsv``, ``.txt``, ``.dat``, ``.data``: numbers, or answers that are all yes or
      no, or true or false; empty cells, NA, ``-`` and ``?`` are missing (NaN). A first line that is
      no numbers holds the ids of the columns. A first column that is no numbers, or whose heading
      is empty, ``id``, ``index`` or ends in ``_id``, holds the ids of the rows: ``007`` stays as
      it is. So does one of whole numbers that all differ if one begins with 0, if they are the
      numbers of ten lines or more, or if its heading is ``user``, ``patient``, ``sample`` or the
      like. A first line of numbers holds ids too if such a heading stands before them, or a text
      before years in even steps beyond all values. A last row or column that is called
      a total, and is one, is left out, and so are last lines with nothing but empty cells.
    - ``.mtx``: a matrix as scipy reads it.
    - ``.parquet``: by pandas; its index, if it has one, holds the ids of the rows.

    Args:
        path: the file.
        key: which array of a ``.npz``.
    Returns:
        ``Table(values, row_names, column_names)``, values (N, D) an array or scipy.sparse matrix.

    Warns:
        UserWarning: of what is left out, of numbers such as 99 that may stand for missing cells, of
            a first column of numbers that may be ids.
    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: an extension not listed, lines that differ in length, a column that holds no
            numbers, a heading or an id that stands twice, pickled objects, an array that is not
            named, indices beyond the shape of a sparse matrix.
    """
    path = check_file(path)
    readers: dict[str, Callable[[], UncheckedTable]] = {
        ".npy": lambda: UncheckedTable(_load_numpy(path)),
        ".npz": lambda: _read_npz(path, key),
        ".mtx": lambda: _read_matrix_market(path),
        ".parquet": lambda: peel(str(path), read_frame(path)),
        **dict.fromkeys(TEXT, lambda: read_text(path)),
    }
    if extension(path) not in readers:
        remedy = {
            ".xlsx": "In the spreadsheet, save it as CSV UTF-8",
            ".xls": "In the spreadsheet, save it as CSV UTF-8",
            ".ods": "In the spreadsheet, save it as CSV UTF-8",
            ".h5ad": "From Python, pass anndata.read_h5ad(path), or write its X as .npz",
        }.get(extension(path), "Save it as one of them")
        raise ValueError(
            f"{path}: the extension {path.suffix or '(none)'!r} is not known. "
            f"Matrices are read from {', '.join(readers)} files. {remedy}."
        )
    return readers[extension(path)]()


def read_headings(path: str | Path) -> list[str]:
    """The cells of the first line of a .csv or .tsv file that is not empty."""
    path = check_file(path)
    return [cell.strip() for _, line in numbered_lines(path, first=True) for cell in line]


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
    path, header, lines, line_numbers = _read_headed(path)
    result = {}
    for name in names:
        if name not in header:
            raise ValueError(f"{path}: has no column {name!r}, its first line is {header}.")
        if header.count(name) > 1:
            raise ValueError(
                f"{path}: the heading {name!r} stands {header.count(name)} times in {header}; give "
                "each column its own."
            )
        column = [line[header.index(name)].strip() for line in lines[1:]]
        if not column:
            raise ValueError(f"{path}: has a first line with headings and no further lines.")
        if "" in column:
            line_number = line_numbers[1 + column.index("")]
            raise ValueError(f"{path}: column {name!r} is empty in line {line_number}.")
        result[name] = ids(column)
    return result


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
    indicators, and texts with the separator in them hold several levels each: ``Action|War``.

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
        ValueError: no headings, lines that differ in length, an empty cell, ids given twice.
    """
    path, header, lines, line_numbers = _read_headed(path)
    if len(lines) == 1 or len(header) == 1:
        raise ValueError(f"{path}: needs a line of headings, a column of ids, and features.")
    if len(set(header)) < len(header):
        raise ValueError(f"{path}: a heading stands twice in {header}; give each its own.")
    if id is None:
        start = column_of_ids(header)
        lines, header = [line[start:] for line in lines], header[start:]
        id = header[0]
    if id not in header:
        raise ValueError(f"{path}: has no column {id!r}, its first line is {header}.")
    cells = {name: [line[k].strip() for line in lines[1:]] for k, name in enumerate(header)}
    row_ids = ids(cells.pop(id))
    if "" in row_ids.tolist():
        line_number = line_numbers[1 + row_ids.tolist().index("")]
        raise ValueError(f"{path}: line {line_number} has no id in column {id!r}; give it one.")
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
    except ValueError as error:

        def in_file(found: re.Match[str]) -> str:
            return f"in line {line_numbers[1 + int(found[1])]}"

        raise ValueError(f"{path}: {re.sub(r'at line ([0-9]+)', in_file, str(error))}") from None


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


def _load_numpy(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path}: numpy cannot read it as plain numbers ({error}). "
            "Save it with numpy.save(path, numpy.asarray(x, dtype=float))."
        ) from None


def _read_npz(path: Path, key: str | None) -> UncheckedTable:
    with _load_numpy(path) as arrays:
        if key is None and {"format", "shape", "data"} <= set(arrays.files):
            return UncheckedTable(_load_sparse(path))
        if key is None and len(arrays.files) != 1:
            raise ValueError(
                f"{path}: holds {len(arrays.files)} arrays ({', '.join(arrays.files)}). "
                "Say which one is meant (key), or save the one alone."
            )
        if key is not None and key not in arrays.files:
            raise ValueError(f"{path}: has no array {key!r}, it has {', '.join(arrays.files)}.")
        return UncheckedTable(arrays[key or arrays.files[0]])


def _load_sparse(path: Path) -> sparray:
    """A matrix that scipy wrote, its indices compared with its shape."""
    import scipy.sparse

    try:
        matrix = scipy.sparse.load_npz(path)
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
    except Exception as error:  # of whatever kind: what is in the file decides
        raise ValueError(
            f"{path}: scipy cannot read it as a sparse matrix ({error}). Save it anew with "
            "scipy.sparse.save_npz."
        ) from None
    return matrix


def _read_matrix_market(path: Path) -> UncheckedTable:
    import scipy.io

    try:
        return UncheckedTable(scipy.io.mmread(path))
    except Exception as error:  # of whatever kind: what is in the file decides
        raise ValueError(f"{path}: scipy cannot read it as a matrix ({error}).") from None


def read_frame(path: Path) -> pd.DataFrame:
    """A table of pandas from a ``.parquet`` file."""
    try:
        import pandas as pd
    except ImportError:
        raise ValueError(
            f"{path}: reading .parquet needs pandas; pip install 'jaxmf[data]' pyarrow."
        ) from None
    try:
        frame = pd.read_parquet(path)
    except ImportError as error:
        raise ValueError(
            f"{path}: pandas lacks what .parquet needs; pip install pyarrow."
        ) from error
    except Exception as error:
        raise ValueError(f"{path}: pandas cannot read it ({error}).") from error
    return frame


def _read_headed(path: str | Path) -> tuple[Path, list[str], list[list[str]], list[int]]:
    """The file, the headings of its first line, all lines, and their numbers."""
    path = check_file(path)
    if not is_text(path):
        raise ValueError(f"{path}: the extension {path.suffix!r} is not known; use .csv or .tsv.")
    lines, line_numbers = _read_numbered(path)
    header = [cell.strip() for cell in lines[0]]
    return path, header, lines, line_numbers


def _read_numbered(path: Path) -> tuple[list[list[str]], list[int]]:
    """The lines of a text file, equally long, and their numbers; empty lines are left out."""
    lines: list[list[str]] = []
    line_numbers: list[int] = []
    full = [(line_number, line) for line_number, line in numbered_lines(path) if line]
    count = len(full)
    while full and len(full[-1][1]) > 1 and not any(map(str.strip, full[-1][1])):
        full.pop()  # spreadsheets end so
    if len(full) < count:
        warnings.warn(
            f"{path}: the last {count - len(full)} lines have nothing but empty cells; they are "
            "left out.",
            stacklevel=3,
        )
    for line_number, line in full:
        if lines and len(line) != len(lines[0]):
            raise ValueError(
                f"{path}: line {line_number} has {len(line)} cells, the first has "
                f"{len(lines[0])}. All lines need as many; leave missing cells empty."
            )
        lines.append(line)
        line_numbers.append(line_number)
    if not lines:
        raise ValueError(f"{path}: the file has no lines.")
    return lines, line_numbers


def read_text(path: Path, *, counts_words: bool = False) -> UncheckedTable:
    """A matrix as `read_matrix` reads it; where it ``counts_words``, ``user`` may be a word."""
    lines, _ = _read_numbered(path)
    header = _header(path, lines)
    body = lines[1:] if header else lines
    twice = next((cell for cell in header or () if (header or []).count(cell) > 1), None)
    if twice is not None:
        raise ValueError(
            f"{path}: the heading {twice!r} stands twice in its first line; rename one."
        )
    if not body:
        raise ValueError(f"{path}: has a first line with headings and no further lines.")
    body = without_total_line(path, body)
    first = [line[0].strip() for line in body]
    has_ids = len(body[0]) > 1 and (
        (header is not None and holds_ids(header[0]))
        or _are_texts(first)
        or _are_ids(path, first, header, counts_words=counts_words)
    )
    if has_ids:
        _check_ids(path, first, below=header is not None)
    start = 1 if has_ids else 0
    body = _as_zeros_and_ones(path, [line[start:] for line in body])
    values = np.empty((len(body), len(body[0])))
    for row, line in enumerate(body):
        for column, cell in enumerate(line):
            try:
                values[row, column] = as_number(cell)
            except ValueError:
                if cell.strip().lower() not in MISSING:
                    raise _cell_error(path, lines, row, column + start, header) from None
                values[row, column] = np.nan
    names = ids(first) if has_ids else None, ids(header[start:]) if header else None
    table = UncheckedTable(*without_totals(path, values, *names))
    warn_codes(path, table.values)
    return table


def _are_texts(first: list[str]) -> bool:
    """Whether a first column holds texts, and no answers."""
    lower = set(map(str.lower, first))
    # a few texts among numbers are slips, a few numbers among texts such ids as 12 or 0012
    return (
        2 * sum(map(_is_cell, first)) < len(first)
        and not _ANSWERS & lower
        and not any(lower - MISSING <= set(words) for words in TRUTHS)
    )


def _are_ids(path: Path, first: list[str], header: list[str] | None, *, counts_words: bool) -> bool:
    """Whether a first column of whole numbers holds ids: by zeros before them, heading or order."""
    if not all(text.isascii() and text.isdecimal() for text in first):
        return False
    if len(set(first)) < len(first):
        return False
    if any(len(text) > 1 and text.startswith("0") for text in first):
        return True
    if header is None or header[0] == "":
        return False
    named = names_rows(header[0])
    if (named and not counts_words) or (len(first) >= 10 and count_lines(first)):
        warnings.warn(
            f"{path}: the first column, {header[0]!r}, is read as ids of rows, by its "
            f"{'heading' if named else 'numbers, which are those of the lines'}. If it is data, "
            "let another column be the first.",
            stacklevel=3,
        )
        return True
    if named or len(first) >= 10:
        warnings.warn(
            f"{path}: the numbers of the first column, {header[0]!r}, all differ; they are read as "
            "data. If they are ids of rows, let its heading be id.",
            stacklevel=3,
        )
    return False


def _as_zeros_and_ones(path: Path, lines: list[list[str]]) -> list[list[str]]:
    """Cells with yes as 1 and no as 0, where there are no others but missing ones."""
    there = {cell.strip().lower() for line in lines for cell in line} - MISSING
    known = next((words for words in TRUTHS if there <= set(words)), None)
    if known is None or not there:
        return lines
    shown = ", ".join(f"{word} as {known[word]}" for word in sorted(there))
    if there & {"no", "n", "nein"}:
        warnings.warn(f"{path}: answers are read as numbers: {shown}.", stacklevel=3)
    return [[known.get(cell.strip().lower(), cell) for cell in line] for line in lines]


def _check_ids(path: Path, texts: Sequence[str], *, below: bool) -> None:
    """Refuses ids of rows that are empty or stand twice."""
    seen: dict[str, int] = {}
    for line, text in enumerate(texts, 2 if below else 1):
        if not text:
            raise ValueError(f"{path}: line {line} has no id in the first column; give it one.")
        if text in seen:
            raise ValueError(
                f"{path}: the id {text!r} stands in lines {seen[text]} and {line} of the first "
                "column; ids of rows must differ. If a line is a word of a document or a cell of a "
                "row, say so by headings such as document,word or user,item,rating."
            )
        seen[text] = line


def _header(path: Path, lines: list[list[str]]) -> list[str] | None:
    """The first line where it holds headings, else None."""
    first = [cell.strip() for cell in lines[0]]
    named = any(not _is_cell(cell) for cell in first[1:] or first)
    # pandas writes an index as a column without heading, and unnamed columns as 0, 1, 2, ...
    numbered = (
        len(first) > 1 and first[0] == "" and first[1:] == list(map(str, range(len(first) - 1)))
    )
    return first if named or numbered or _are_headings(path, first, lines[1:]) else None


def _are_headings(path: Path, first: list[str], body: list[list[str]]) -> bool:
    """Whether whole numbers, such as years, are headings: by the cell before them, and below."""
    whole = first[1:]
    if len(set(whole)) < len(first) - 1 or not all(each.isdecimal() for each in whole):
        return False
    below = [line[0].strip() for line in body]
    if first[0] == "":
        # else the first cell of data is missing; pandas counts lines from 0
        is_index = below[:1] == ["0"] and count_lines(below)
        return len(below) > 1 and whole != [] and (_are_texts(below) or is_index)
    if _is_cell(first[0]) or not whole:
        return False
    if holds_ids(first[0]) or names_rows(first[0]):
        return True
    steps = np.diff(np.array(whole, dtype=float))
    if len(steps) < 1 or steps[0] <= 0 or np.ptp(steps) > 0 or not _are_texts(below):
        return False
    cells = {cell.strip() for line in body for cell in line[1:]}
    values = [as_number(cell) for cell in cells if cell.lower() not in MISSING and is_number(cell)]
    beyond = (
        values != []
        and all(1500 <= int(each) <= 2100 for each in whole)
        and (float(whole[0]) > max(values) or float(whole[-1]) < min(values))
    )
    what = "headings" if beyond else "data"
    warnings.warn(
        f"{path}: the first line, {_short(','.join(first))}, is read as {what}. "
        + (
            "If it is data, write"
            if beyond
            else "If it holds headings, let the first be id; else write"
        )
        + " a line of headings above it.",
        stacklevel=4,
    )
    return beyond


def _is_cell(text: str) -> bool:
    """Whether a cell is a number or missing."""
    if text.strip().lower() in MISSING:
        return True
    try:
        as_number(text)
    except ValueError:
        return False
    return True


def _cell_error(
    path: Path, lines: list[list[str]], row: int, column: int, header: list[str] | None
) -> ValueError:
    line = lines[row + (header is not None)]
    heading = f" ({header[column]!r})" if header else ""
    are_ids = " If it holds ids, give it the heading id." if column == 0 else ""
    return ValueError(
        f"{path}: column {column + 1}{heading} holds no numbers: {_short(line[column])!r} in line "
        f"{row + 1 + (header is not None)}. Remove the column; write answers as "
        f"numbers, and leave missing cells empty.{are_ids}"
    )


def _short(cell: str) -> str:
    return cell if len(cell) <= 60 else cell[:57] + "..."


def is_number(text: str) -> bool:
    """Whether a cell of a text file is a number, or empty."""
    try:
        as_number(text or "nan")
    except ValueError:
        return False
    return True


def as_number(text: str) -> float:
    """A number as it is written in a table: in digits 0 to 9, without underscores.

    Raises ValueError: anything else, as what Python takes beyond that is a number by accident.
    """
    if "_" in text or not text.isascii():
        raise ValueError(f"{text!r} is no number")
    return float(text)


def ids(texts: Sequence[str]) -> np.ndarray:
    """Whole numbers where all are written as such, without leading zeros; else texts."""
    try:
        found = [int(text) for text in texts]  # those written otherwise differ from their texts
    except ValueError:
        found = []
    if [str(value) for value in found] == list(texts):
        return np.asarray(found)
    return object_array(list(texts))
