"""Corpora and ratings from files, for the command line: counts, tokens, triples."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jaxmf.arguments import check_file
from jaxmf.data.checks import check_counts
from jaxmf.data.container import UncheckedTable
from jaxmf.data.entries import Entries
from jaxmf.data.headings import misplaced, roles
from jaxmf.data.latest import latest_of_cells
from jaxmf.data.readers import (
    as_number,
    ids,
    is_number,
    read_columns,
    read_frame,
    read_matrix,
    read_text,
)
from jaxmf.data.suspects import are_times, is_total, warn_codes, without_repeats
from jaxmf.data.text_tables import MISSING, extension, is_text, numbered_lines
from jaxmf.data.tokens import Tokens

if TYPE_CHECKING:
    import pandas as pd

_CSR = {"indptr", "indices", "shape"}
_WORDS = ("document", "word")
_DOCUMENTS = frozenset(
    ["document", "doc", "document_id", "doc_id", "docid", "documentid", "text_id"]
)
_TERMS = frozenset(["word", "term", "token", "lemma", "feature"])
_TEXTS = frozenset(["text", "texts", "body", "content", "abstract", "review", "comment"])
_COUNTS = frozenset(["count", "counts", "n", "freq", "frequency", "occurrences"])


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
      of ids of any kind. Of documents and words a column of counts, such as ``count`` or ``n``,
      says how often a word stands there. Sales with headings such as ``customer`` and ``item`` are
      documents and words, an item for each line, with a warning of the columns left aside.
    - ``.txt``, or a column ``text``, for documents and words: a text a line, of which words of two
      letters and more, in lower case, are taken.
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
    has_counts = tuple(columns) == _WORDS and headings is not None and _COUNTS & _lower(headings)
    if headings is not None and {*columns, *real} <= set(headings) and not has_counts:
        if vocabulary is not None:
            raise ValueError(f"{path}: holds the words themselves; leave the vocabulary out")
        found = read_columns(path, [*columns, *real])
        values = {name: _as_floats(path, name, found[name]) for name in real}
        return Tokens.from_columns({name: found[name] for name in columns}, values=values)
    if headings is not None and tuple(columns) == _WORDS and not real and vocabulary is None:
        counted = _counted_words(path, headings) or _column_of_texts(path, headings)
        if counted is not None:
            return counted
    if tuple(columns) != _WORDS or real:
        required = ", ".join((*columns, *real))
        raise ValueError(
            f"{path}: needs a first line with the columns {required}, one token a line"
        )
    if extension(path) == ".txt" and vocabulary is None and _are_texts(path):
        return _texts(path)
    table = _counts(path, key)
    words = None if vocabulary is None else _lines(check_file(vocabulary))
    if words is not None and len(words) != table.values.shape[1]:
        raise ValueError(
            f"{vocabulary}: has {len(words)} words, the counts have {table.values.shape[1]} columns"
        )
    names = table.column_names if words is None else words
    return Tokens.from_counts(table.values, vocabulary=names, row_names=table.row_names)


def _lower(headings: Sequence[str]) -> set[str]:
    return {heading.lower() for heading in headings}


def _counted_words(path: Path, headings: list[str]) -> Tokens | None:
    """Tokens of a table of documents, words and maybe counts; None where headings are others."""
    found = [
        [heading for heading in headings if heading.lower() in known]
        for known in (_DOCUMENTS, _TERMS, _COUNTS)
    ]
    sales = roles(headings, with_value=False) if not (found[0] or found[1]) else None
    if sales is not None and sales.is_named:
        found[:2] = [headings[sales.row]], [headings[sales.column]]
    if [len(each) for each in found] not in ([1, 1, 0], [1, 1, 1]):
        return None
    document, word = found[0][0], found[1][0]
    columns = read_columns(path, [document, word, *found[2]])
    known = [document, word, *found[2], "", "unnamed: 0", "Unnamed: 0"]
    if columns[word].dtype.kind == "i" and not set(headings) <= set(known):
        return None  # a matrix of counts that has the word `word`
    others = [heading for heading in headings if heading not in known]
    if sales is not None and others:
        warnings.warn(
            f"{path}: of its columns {document!r} and {word!r} are read, as documents and words"
            f"{f', {found[2][0]!r} times' if found[2] else ', once a line'}; "
            f"{', '.join(map(repr, others))} do not count.",
            stacklevel=4,
        )
    pairs: dict[str, np.ndarray] = {"document": columns[document], "word": columns[word]}
    if found[2]:
        counts = _as_floats(path, found[2][0], columns[found[2][0]])
        check_counts(f"{path}: {found[2][0]}", counts)
        pairs = {name: np.repeat(each, counts.astype(int)) for name, each in pairs.items()}
    return Tokens.from_columns(pairs)


def _column_of_texts(path: Path, headings: list[str]) -> Tokens | None:
    """Tokens of a table with a text a line; None where no heading, or more than one, says so."""
    texts = [heading for heading in headings if heading.lower() in _TEXTS]
    if len(texts) != 1:
        return None
    index = headings.index(texts[0])
    known = [k for k, heading in enumerate(headings) if heading.lower() in (*_DOCUMENTS, "id")]
    lines = [line for line in _cells(path)[1:] if len(line) == len(headings)]
    if all(is_number(line[index]) for line in lines):
        return None  # a matrix of counts that has the word `text`
    return _words_of(
        [line[index] for line in lines],
        [line[known[0]] for line in lines] if known else None,
    )


def _words_of(texts: list[str], documents: list[str] | None = None) -> Tokens:
    """Tokens of texts: words of two letters and more, in lower case."""
    split = [re.findall(r"\b\w\w+\b", text.lower()) for text in texts]
    return Tokens.from_lists(split, documents=None if documents is None else ids(documents))


def _are_texts(path: Path) -> bool:
    """Whether most lines of a file have words, and no number alone."""
    lines = [cells[0] for _, cells in numbered_lines(path, whole=True) if cells]
    return 2 * sum(len(re.findall(r"[^\W\d]{2,}", line)) > 1 for line in lines) > len(lines)


def _texts(path: Path) -> Tokens:
    """Tokens of a text a line; empty lines are documents without words."""
    lines = [cells[0] for _, cells in numbered_lines(path, whole=True)]
    while lines and not lines[-1].strip():
        lines.pop()
    return _words_of(lines)


def read_entries(path: str | Path, *, form: str | None = None, key: str | None = None) -> Entries:
    """Observed cells from a file.

    - "triples": one line a cell: the ids of its row and column, and its value, below a line of
      headings or without. Headings such as user, item, rating, timestamp say which is which, in
      any order; with others, or none, these are the first three. Further cells do not count, nor
      do lines whose value is missing. Of ``.parquet`` too, where headings say so.
    - "matrix": as `read_matrix`; empty cells and NA were not seen.

    Args:
        path: the file.
        form: one of these; None for triples where a text has three or four cells a line, or such
            headings.
        key: which array of an ``.npz``.
    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a value that is no number, lines that are no triples, no cells.
    """
    path = check_file(path)
    if form not in (None, "triples", "matrix"):
        raise ValueError(f"form must be triples or matrix, got {form!r}")
    has_lines = is_text(path)
    lines = _cells(path) if has_lines and form != "matrix" else []
    guessed = form is None
    if form is None:
        are_triples = has_lines and (
            roles(lines[0]) is not None or (len(lines[0]) in (3, 4) and not _are_measured(lines))
        )
        form = "triples" if are_triples else "matrix"
    if form == "matrix":
        frame = read_frame(path) if guessed and extension(path) == ".parquet" else None
        known = None if frame is None else roles([str(name) for name in frame.columns])
        if frame is not None and known is not None and known.value is not None:
            return _from_frame(path, frame, (known.row, known.column, known.value))
        table = _matrix_of_ratings(path, key, guessed=guessed and has_lines)
        if has_lines:
            _warn_zeros(path, np.asarray(table.values))
        make = Entries.from_scipy if hasattr(table.values, "tocoo") else Entries.from_array
        return make(table.values, row_names=table.row_names, column_names=table.column_names)
    if not has_lines:
        raise ValueError(f"{path}: triples are read from .csv and .tsv files.")
    lines, are_named = _triples(path, lines)
    values = _as_floats(path, "value", np.array([line[2] for line in lines], dtype=object))
    if not are_named and are_times(values):
        raise ValueError(
            f"{path}: the values, which are read from the third column, look like times "
            f"({lines[0][2]}). Give headings that say what is what, such as user,item,rating,time."
        )
    rows, row_names = _coded([line[0] for line in lines])
    columns, column_names = _coded([line[1] for line in lines])
    if not are_named and len(lines) >= 10 and len(row_names) > 0.98 * len(lines):
        warnings.warn(
            f"{path}: nearly no two lines have the same row; the first column, {lines[0][0]!r} in "
            "the first line, is read as the ids of rows, the third as values. If it holds line "
            "numbers or times, remove it, or give headings such as user,item,rating.",
            stacklevel=2,
        )
    warn_codes(path, values)
    shape = (len(row_names), len(column_names))
    return Entries(rows, columns, values, shape, row_names, column_names)


def _are_measured(lines: list[list[str]]) -> bool:
    """Whether the first two columns hold fractions in most lines, which ids are not."""
    body = [line for line in lines[1:] if len(line) == len(lines[0])]
    fractions = sum(all(re.fullmatch(r"-?\d*\.\d*[1-9]\d*", x) for x in line[:2]) for line in body)
    return 2 * fractions > len(body)


def _from_frame(path: Path, frame: pd.DataFrame, order: tuple[int, int, int]) -> Entries:
    """Entries of a table with a line for each cell; those without a value are left out."""
    row, column, value = (frame.columns[index] for index in order)
    full = frame[frame[value].notna()]
    if len(full) < len(frame):
        warnings.warn(
            f"{path}: {len(frame) - len(full):,} of {len(frame):,} lines have no value; they are "
            "left out.",
            stacklevel=3,
        )
    warn_codes(path, full[value].to_numpy(dtype=float))
    return Entries.from_pandas(full, row=row, column=column, value=value)


def _warn_zeros(path: Path, values: np.ndarray) -> None:
    """Warns of a matrix of stars, or of other whole numbers from 1, that is zero in most cells."""
    zeros, known = int(np.sum(values == 0)), int(np.isfinite(values).sum())
    levels = np.unique(values[np.isfinite(values) & (values != 0)])
    if 2 * zeros > known and levels.size > 2 and levels[0] > 0:
        warnings.warn(
            f"{path}: {zeros:,} of {known:,} cells are 0 and are read as ratings of 0. If they "
            "stand for what was not rated, leave these cells empty.",
            stacklevel=3,
        )


def _matrix_of_ratings(path: Path, key: str | None, *, guessed: bool) -> UncheckedTable:
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


def _triples(path: Path, lines: list[list[str]]) -> tuple[list[list[str]], bool]:
    """Row, column and value of every line that has a value, and whether headings say which is."""
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
    found = roles(first)
    if found is not None or not is_number(first[2]):
        twice = next((cell for cell in first if cell and first.count(cell) > 1), None)
        if twice is not None:
            raise ValueError(f"{path}: the heading {twice!r} stands twice in its first line.")
        if len(lines) == 1:
            raise ValueError(f"{path}: has a first line with headings and no further lines.")
        odd = misplaced(first) if found is None else None
        if odd is not None:
            raise ValueError(
                f"{path}: rows, columns and values stand in the first three columns, but in "
                f"{first} {odd!r} stands elsewhere. Use headings such as user,item,rating,time."
            )
        lines = lines[1:]
    order = (0, 1, 2)
    if found is not None and found.value is not None:
        order = (found.row, found.column, found.value)
    time = None if found is None else found.time
    positions = order if time is None else (*order, time)
    lines = _without_total(path, [[line[index] for index in positions] for line in lines])
    _refuse_without_ids(path, lines)
    lines = without_repeats(path, _with_values(path, lines))
    if time is not None:
        lines = without_repeats(path, [line[:3] for line in latest_of_cells(path, lines)])
    return lines, found is not None


def _refuse_without_ids(path: Path, lines: list[list[str]]) -> None:
    for line_number, line in enumerate(lines, 1):
        for position, word in enumerate(("row", "column")):
            if line[position].lower() in ("", "nan"):
                raise ValueError(
                    f"{path}: the id of a {word} is missing in {line}, line {line_number} below "
                    "the headings. Give it one, or leave the line out."
                )


def _with_values(path: Path, lines: list[list[str]]) -> list[list[str]]:
    """The lines that have a value."""
    full = [line for line in lines if line[2].lower() not in MISSING]
    if not full:
        raise ValueError(f"{path}: no line has a value, the first is {lines[0]}.")
    if len(full) < len(lines):
        gap = next(line for line in lines if line[2].lower() in MISSING)
        warnings.warn(
            f"{path}: {len(lines) - len(full):,} of {len(lines):,} lines have no value, such as "
            f"{gap}; they are left out.",
            stacklevel=2,
        )
    return full


def _without_total(path: Path, lines: list[list[str]]) -> list[list[str]]:
    """Lines without a last one that holds the sum, or the mean, of all others."""
    last = lines[-1]
    if len(lines) < 3 or not is_total(last[0]) or not is_number(last[2]):
        return lines
    others = [
        as_number(x[2]) for x in lines[:-1] if x[2].lower() not in MISSING and is_number(x[2])
    ]
    means = (sum(others), sum(others) / max(len(others), 1))
    if not any(math.isclose(as_number(last[2]), each, rel_tol=1e-6) for each in means):
        return lines
    if not (last[1] == "" or is_total(last[1])):
        return lines
    warnings.warn(f"{path}: the last line, {last}, is a total and is left out.", stacklevel=2)
    return lines[:-1]


def _coded(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Positions in a list of ids, in order of appearance, and the list."""
    names = ids(texts)
    known, first, codes = np.unique(names, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    index = np.empty_like(order)
    index[order] = np.arange(order.size)
    return index[codes], known[order]


def _counts(path: Path, key: str | None) -> UncheckedTable:
    if extension(path) == ".npz" and key is None:
        with np.load(path, allow_pickle=False) as arrays:
            if set(arrays.files) >= _CSR and "format" not in arrays.files:
                from scipy.sparse import csr_array

                indices = arrays["indices"]
                counts = arrays["data"] if "data" in arrays.files else np.ones(indices.size, int)
                matrix = (counts.astype(np.int64), indices, arrays["indptr"])
                return UncheckedTable(csr_array(matrix, shape=tuple(arrays["shape"])))
    return read_text(path, counts_words=True) if is_text(path) else read_matrix(path, key=key)


def _headings(path: Path) -> list[str] | None:
    if not is_text(path):
        return None
    return _cells(path, first=True)[0]


def _cells(path: Path, *, first: bool = False) -> list[list[str]]:
    found = ([cell.strip() for cell in line] for _, line in numbered_lines(path, first=first))
    lines = [cells for cells in found if any(cells)]
    if not lines:
        raise ValueError(f"{path}: the file has no lines.")
    return lines


def _lines(path: Path) -> np.ndarray:
    words = [line[0] for _, line in numbered_lines(path, whole=True)]
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
                "number; write it as one, or leave it empty"
            )
    return values
