"""Corpora and ratings from files, for the command line: counts, tokens, triples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxmf.arguments import check_file
from jaxmf.data.container import Table
from jaxmf.data.entries import Entries
from jaxmf.data.readers import (
    as_number,
    ids,
    is_number,
    numbered_lines,
    read_columns,
    read_matrix,
)
from jaxmf.data.tokens import Tokens

_CSR = {"indptr", "indices", "shape"}
_WORDS = ("document", "word")


def read_tokens(
    path: str | Path,
    *,
    columns: Sequence[str] = _WORDS,
    real: Sequence[str] = (),
    vocabulary: str | Path | None = None,
    key: str | None = None,
) -> Tokens:
    """Tokens from a file.

    - ``.csv``, ``.tsv`` with the names of the columns in its first line: a token a line, in columns
      of ids of any kind.
    - Otherwise, for documents and words only, a matrix of counts as `read_matrix` reads it, or an
      ``.npz`` with the arrays ``indptr``, ``indices``, ``shape`` and maybe ``data`` of one in
      compressed rows.

    Args:
        path: the file.
        columns: the columns of ids that are wanted.
        real: columns of real values that are wanted.
        vocabulary: a text file with the words of a matrix of counts, one a line.
        key: which array of an ``.npz``.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a column is not there, counts that are none, a vocabulary of another length.
    """
    path = check_file(path)
    headings = _headings(path)
    if headings is not None and {*columns, *real} <= set(headings):
        if vocabulary is not None:
            raise ValueError(f"{path}: holds the words themselves; leave the vocabulary out")
        found = read_columns(path, [*columns, *real])
        values = {name: _as_floats(path, name, found[name]) for name in real}
        return Tokens.from_columns({name: found[name] for name in columns}, values=values)
    if tuple(columns) != _WORDS or real:
        required = ", ".join((*columns, *real))
        raise ValueError(
            f"{path}: needs a first line with the columns {required}, one token a line"
        )
    table = _counts(path, key)
    words = None if vocabulary is None else _lines(check_file(vocabulary))
    if words is not None and len(words) != table.values.shape[1]:
        raise ValueError(
            f"{vocabulary}: has {len(words)} words, the counts have {table.values.shape[1]} columns"
        )
    names = table.column_names if words is None else words
    return Tokens.from_counts(table.values, vocabulary=names, row_names=table.row_names)


def read_entries(path: str | Path, *, form: str | None = None, key: str | None = None) -> Entries:
    """Observed cells from a file.

    - "triples": one line a cell: the ids of its row and column, and its value, below a line of
      headings or without. Of lines with more than three cells the others do not count.
    - "matrix": as `read_matrix`; empty cells and NA were not seen.

    Args:
        path: the file.
        form: one of these; None for triples where a .csv or .tsv has three or four cells a line.
        key: which array of an ``.npz``.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a value that is no number, lines that are no triples, no cells.
    """
    path = check_file(path)
    if form not in (None, "triples", "matrix"):
        raise ValueError(f"form must be triples or matrix, got {form!r}")
    is_text = path.suffix.lower() in (".csv", ".tsv")
    lines = _cells(path) if is_text and form != "matrix" else []
    guessed = form is None
    if form is None:
        form = "triples" if is_text and len(lines[0]) in (3, 4) else "matrix"
    if form == "matrix":
        table = _matrix_of_ratings(path, key, guessed=guessed and is_text)
        make = Entries.from_scipy if hasattr(table.values, "tocoo") else Entries.from_array
        return make(table.values, row_names=table.row_names, column_names=table.column_names)
    if not is_text:
        raise ValueError(f"{path}: triples are read from .csv and .tsv files.")
    lines = _triples(path, lines)
    values = _as_floats(path, "value", np.array([line[2] for line in lines], dtype=object))
    rows, row_names = _coded([line[0] for line in lines])
    columns, column_names = _coded([line[1] for line in lines])
    shape = (len(row_names), len(column_names))
    return Entries(rows, columns, values, shape, row_names, column_names)


def _matrix_of_ratings(path: Path, key: str | None, *, guessed: bool) -> Table:
    """A matrix; where nobody said that it is one, what else it may be is said with the error."""
    try:
        return read_matrix(path, key=key)
    except ValueError as error:
        if not guessed:
            raise
        raise ValueError(
            f"{error} (Triples, a line for each rating, have three cells: the id of a row, that of "
            "a column, and a number; this file was read as a matrix.)"
        ) from None


def _triples(path: Path, lines: list[list[str]]) -> list[list[str]]:
    """The lines of a file of triples, without headings."""
    for line_number, line in enumerate(lines, 1):
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
    if not is_number(first[2]):
        twice = next((cell for cell in first if cell and first.count(cell) > 1), None)
        if twice is not None:
            raise ValueError(f"{path}: the heading {twice!r} stands twice in its first line.")
        if len(lines) == 1:
            raise ValueError(f"{path}: has a first line with headings and no further lines.")
        lines = lines[1:]
    for line_number, line in enumerate(lines, 1):
        for position, word in enumerate(("row", "column")):
            if line[position].lower() in ("", "nan"):
                raise ValueError(
                    f"{path}: the id of a {word} is missing in {line}, line {line_number} below "
                    "the headings. Give it one, or leave the line out."
                )
    return lines


def _coded(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Positions in a list of ids, in order of appearance, and the list."""
    names = ids(texts)
    known, first, codes = np.unique(names, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    index = np.empty_like(order)
    index[order] = np.arange(order.size)
    return index[codes], known[order]


def _counts(path: Path, key: str | None) -> Table:
    if path.suffix.lower() == ".npz" and key is None:
        with np.load(path, allow_pickle=False) as arrays:
            if set(arrays.files) >= _CSR and "format" not in arrays.files:
                from scipy.sparse import csr_array

                indices = arrays["indices"]
                counts = arrays["data"] if "data" in arrays.files else np.ones(indices.size, int)
                matrix = (counts.astype(np.int64), indices, arrays["indptr"])
                return Table(csr_array(matrix, shape=tuple(arrays["shape"])))
    return read_matrix(path, key=key)


def _headings(path: Path) -> list[str] | None:
    if path.suffix.lower() not in (".csv", ".tsv"):
        return None
    return _cells(path, first=True)[0]


def _cells(path: Path, *, first: bool = False) -> list[list[str]]:
    delimiter = "," if path.suffix.lower() == ".csv" else "\t"
    lines = []
    for _, line in numbered_lines(path, delimiter):
        cells = [cell.strip() for cell in line]
        if any(cells):
            lines.append(cells)
        if lines and first:
            break
    if not lines:
        raise ValueError(f"{path}: the file has no lines.")
    return lines


def _lines(path: Path) -> np.ndarray:
    words = path.read_text(encoding="utf-8").split("\n")
    while words and not words[-1].strip():
        words.pop()
    return np.array([word.strip() for word in words], dtype=object)


def _as_floats(path: Path, name: str, texts: np.ndarray) -> np.ndarray:
    values = np.empty(len(texts))
    for position, text in enumerate(texts):
        try:
            values[position] = as_number(str(text))
        except ValueError:
            values[position] = np.nan
        if not np.isfinite(values[position]):
            raise ValueError(
                f"{path}: {name} {str(text)!r} of line {position + 1} below the headings is no "
                "number; leave lines without one out"
            )
    return values
