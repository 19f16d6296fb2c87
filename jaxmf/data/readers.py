"""Matrices and tables from files, for the command line."""

import csv
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxmf.arguments import check_file
from jaxmf.data.container import Table, peel
from jaxmf.data.features import Features
from jaxmf.data.names import object_array

MISSING = frozenset(
    {"", "na", "n/a", "nan", "-nan", "null", "none", "#n/a", "#na", "#n/a n/a", "<na>"}
)
"""What stands for a missing cell in a text file, in lower case."""

_IDS_HEADING = re.compile(r"|(.*[ _-])?ids?|index|unnamed: 0")
"""Headings, in lower case, of a first column that holds ids, whatever these look like."""


def read_matrix(path: str | Path, *, key: str | None = None) -> Table:
    """A matrix and its ids from a file, to be passed on to ``as_container`` or a model.

    - ``.npy``: one array. ``.npz``: the array ``key`` (or the only one), or a matrix saved by
      ``scipy.sparse.save_npz``.
    - ``.csv``, ``.tsv``: numbers; empty cells and NA are missing (NaN). A first line that is no
      numbers holds the ids of the columns. A first column that is no numbers, or whose heading is
      empty, ``id``, ``index`` or ends in ``_id``, holds the ids of the rows: ``007`` stays as it
      is.
    - ``.parquet``: by pandas; its index, if it has one, holds the ids of the rows.

    Args:
        path: the file.
        key: which array of a ``.npz``.

    Returns:
        ``Table(values, row_names, column_names)``, values (N, D) an array or scipy.sparse matrix.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: an extension not listed, lines that differ in length, a column that holds no
            numbers, a heading or an id that stands twice, pickled objects, an array that is not
            named, indices beyond the shape of a sparse matrix.
    """
    path = check_file(path)
    readers: dict[str, Callable[[], Table]] = {
        ".npy": lambda: Table(_load_numpy(path)),
        ".npz": lambda: _read_npz(path, key),
        ".csv": lambda: _read_text(path, ","),
        ".tsv": lambda: _read_text(path, "\t"),
        ".parquet": lambda: _read_parquet(path),
    }
    if path.suffix.lower() not in readers:
        raise ValueError(
            f"{path}: the extension {path.suffix or '(none)'!r} is not known. "
            f"Matrices are read from {', '.join(readers)} files; save it as one of them."
        )
    return readers[path.suffix.lower()]()


def read_headings(path: str | Path) -> list[str]:
    """The cells of the first line of a .csv or .tsv file that is not empty."""
    path = check_file(path)
    lines = numbered_lines(path, "\t" if path.suffix.lower() == ".tsv" else ",")
    return next(([cell.strip() for cell in line] for _, line in lines if line), [])


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
    separator: str = "|",
    standardise: bool = True,
    missing: str = "refuse",
) -> Features:
    """Side information from a .csv or .tsv file: a line for each row or column of the data.

    The first line holds headings. Columns of numbers are standardised, those of texts become
    indicators, and texts with the separator in them hold several levels each: ``Action|War``.

    Args:
        path: the file.
        id: the heading of the column with the ids; None for the first.
        categorical: headings of numbers that are levels, such as codes of occupations.
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
    id = header[0] if id is None else id
    if id not in header:
        raise ValueError(f"{path}: has no column {id!r}, its first line is {header}.")
    cells = {name: [line[k].strip() for line in lines[1:]] for k, name in enumerate(header)}
    row_ids = ids(cells.pop(id))
    if "" in row_ids.tolist():
        line_number = line_numbers[1 + row_ids.tolist().index("")]
        raise ValueError(f"{path}: line {line_number} has no id in column {id!r}; give it one.")
    table = {
        name: ids(column) if name in categorical else _floats_or_texts(column)
        for name, column in cells.items()
    }
    texts = {name: column for name, column in table.items() if column.dtype == object}
    lists = {
        name: separator
        for name, column in texts.items()
        if separator and any(separator in str(cell) for cell in column)
    }
    try:
        return Features.from_columns(
            table,
            ids=row_ids,
            categorical=categorical,
            lists=lists,
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


def _read_npz(path: Path, key: str | None) -> Table:
    with _load_numpy(path) as arrays:
        if key is None and {"format", "shape", "data"} <= set(arrays.files):
            return Table(_load_sparse(path))
        if key is None and len(arrays.files) != 1:
            raise ValueError(
                f"{path}: holds {len(arrays.files)} arrays ({', '.join(arrays.files)}). "
                "Say which one is meant (key), or save the one alone."
            )
        if key is not None and key not in arrays.files:
            raise ValueError(f"{path}: has no array {key!r}, it has {', '.join(arrays.files)}.")
        return Table(arrays[key or arrays.files[0]])


def _load_sparse(path: Path) -> Any:
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


def _read_parquet(path: Path) -> Table:
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
    return peel(str(path), frame)


def numbered_lines(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The cells of every line of a text file, and the line's number."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, delimiter=delimiter)
            for line in reader:
                yield reader.line_num, line
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is no text in UTF-8 ({error.reason}).") from None
    except csv.Error as error:
        raise ValueError(
            f"{path}: line {reader.line_num} cannot be taken apart ({error}). A cell has at most "
            f"{csv.field_size_limit():,} letters; is a quote not closed, or is this no table?"
        ) from None


def _read_lines(path: Path, delimiter: str) -> list[list[str]]:
    """The lines of a text file, equally long; empty lines are left out."""
    return _read_numbered(path, delimiter)[0]


def _read_headed(path: str | Path) -> tuple[Path, list[str], list[list[str]], list[int]]:
    """The file, the headings of its first line, all lines, and their numbers."""
    path = check_file(path)
    if path.suffix.lower() not in (".csv", ".tsv"):
        raise ValueError(f"{path}: the extension {path.suffix!r} is not known; use .csv or .tsv.")
    lines, line_numbers = _read_numbered(path, "," if path.suffix.lower() == ".csv" else "\t")
    header = [cell.strip() for cell in lines[0]]
    return path, header, lines, line_numbers


def _read_numbered(path: Path, delimiter: str) -> tuple[list[list[str]], list[int]]:
    """The lines of a text file, equally long, and their numbers; empty lines are left out."""
    lines: list[list[str]] = []
    line_numbers: list[int] = []
    for line_number, line in numbered_lines(path, delimiter):
        if not line:
            continue
        if lines and len(line) != len(lines[0]):
            raise ValueError(
                f"{path}: line {line_number} has {len(line)} cells, the first has "
                f"{len(lines[0])}. All lines need as many; leave missing cells empty."
                f"{_of_semicolons(lines[0])}"
            )
        lines.append(line)
        line_numbers.append(line_number)
    if not lines:
        raise ValueError(f"{path}: the file has no lines.")
    return lines, line_numbers


def _read_text(path: Path, delimiter: str) -> Table:
    lines = _read_lines(path, delimiter)
    header = _header(lines)
    body = lines[1:] if header else lines
    twice = next((cell for cell in header or () if (header or []).count(cell) > 1), None)
    if twice is not None:
        raise ValueError(
            f"{path}: the heading {twice!r} stands twice in its first line; rename one."
        )
    if not body:
        raise ValueError(f"{path}: has a first line with headings and no further lines.")
    first = [line[0].strip() for line in body]
    has_ids = len(body[0]) > 1 and (
        (header is not None and _IDS_HEADING.fullmatch(header[0].lower()) is not None)
        # a few texts among numbers are slips, a few numbers among texts such ids as 12 or 0012
        or 2 * sum(map(_is_cell, first)) < len(first)
    )
    if has_ids:
        _check_ids(path, first, below=header is not None)
    start = 1 if has_ids else 0
    values = np.empty((len(body), len(body[0]) - start))
    for row, line in enumerate(body):
        for column, cell in enumerate(line[start:]):
            try:
                values[row, column] = as_number(cell)
            except ValueError:
                if cell.strip().lower() not in MISSING:
                    raise _cell_error(path, lines, row, column + start, header) from None
                values[row, column] = np.nan
    return Table(
        values,
        ids(first) if has_ids else None,
        ids(header[start:]) if header else None,
    )


def _check_ids(path: Path, texts: Sequence[str], *, below: bool) -> None:
    """Refuses ids of rows that are empty or stand twice."""
    seen: dict[str, int] = {}
    for line, text in enumerate(texts, 2 if below else 1):
        if not text:
            raise ValueError(f"{path}: line {line} has no id in the first column; give it one.")
        if text in seen:
            raise ValueError(
                f"{path}: the id {text!r} stands in lines {seen[text]} and {line} of the first "
                "column; ids of rows must differ."
            )
        seen[text] = line


def _header(lines: list[list[str]]) -> list[str] | None:
    """The first line where it holds headings, else None."""
    first = [cell.strip() for cell in lines[0]]
    named = any(not _is_cell(cell) for cell in first[1:] or first)
    # pandas writes an index as a column without heading, and unnamed columns as 0, 1, 2, ...
    numbered = (
        len(first) > 1 and first[0] == "" and first[1:] == list(map(str, range(len(first) - 1)))
    )
    return first if named or numbered else None


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
    more = _of_semicolons(lines[0]) or are_ids
    return ValueError(
        f"{path}: column {column + 1}{heading} holds no numbers: {line[column]!r} in line "
        f"{row + 1 + (header is not None)}. Remove the column, or leave missing cells empty.{more}"
    )


def _of_semicolons(first_line: Sequence[str]) -> str:
    """What to do with a table whose cells seem to end at semicolons; nothing for another one."""
    if sum(cell.count(";") for cell in first_line) < len(first_line):
        return ""
    return (
        " Its cells seem to be separated by semicolons, as where the decimal sign is a comma: "
        "separate them by commas, with decimal points, such as by "
        "pandas.read_csv(path, sep=';', decimal=',')."
    )


def is_number(text: str) -> bool:
    """Whether a cell of a text file is a number, or empty."""
    try:
        as_number(text or "nan")
    except ValueError:
        return False
    return True


def as_number(text: str) -> float:
    """A number as it is written in a table: in digits 0 to 9, without underscores.

    Raises:
        ValueError: anything else, as what Python takes beyond that is a number by accident.
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
