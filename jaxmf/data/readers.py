"""Matrices and tables from files, for the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jaxmf.arguments import check_file, checks_call
from jaxmf.data.array_files import read_frame, read_matrix_market, read_npy, read_npz
from jaxmf.data.container import LabelledMatrix, peel
from jaxmf.data.headings import holds_ids, names_rows
from jaxmf.data.names import ids
from jaxmf.data.suspects import count_lines, warn_codes, without_total_line, without_totals
from jaxmf.data.table_columns import (
    as_option,
    chosen,
    drop_option,
    refuse_listed,
    refuse_twice,
    select,
    what_is_held,
)
from jaxmf.data.text_tables import (
    MISSING,
    TEXT,
    TRUTHS,
    Recode,
    as_number,
    equal_lines,
    extension,
    is_numeric,
    recode_option,
    recoded,
    without_parentheses,
)
from jaxmf.user_warnings import warn

if TYPE_CHECKING:
    import pandas as pd

_MOST_ANSWERS = 12  # of a question, which may be written as numbers
_ANSWERS = frozenset(word for words in TRUTHS for word in words if len(word) > 1)


@checks_call
def read_matrix(
    path: str | Path,
    *,
    key: str | None = None,
    use_columns: Sequence[str] | None = None,
    drop_columns: Sequence[str] = (),
    recode: Recode | None = None,
) -> LabelledMatrix:
    """A matrix and its ids from a file, to be passed on to ``as_container`` or a model.

    - ``.npy``: one array. ``.npz``: the array ``key`` (or the only one), or a matrix saved by
      ``scipy.sparse.save_npz``.
    - ``.csv``, ``.tsv``, ``.txt``, ``.dat``, ``.data``: numbers, and columns of yes and no, or of
      true and false; empty cells, NA, ``-`` and ``?`` are missing (NaN). A first line that is
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
        use_columns: headings (or numbers from 1) of the columns of a text or ``.parquet`` that are
            read, that of ids among them; None for all.
        drop_columns: of those that are not.
        recode: numbers that words or codes of a text stand for, ``{"agree": 4, "absent": None}``,
            where None is a missing cell; in ids they stay.
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
    readers: dict[str, Callable[[], LabelledMatrix]] = {
        ".npy": lambda: read_npy(path),
        ".npz": lambda: read_npz(path, key),
        ".mtx": lambda: read_matrix_market(path),
        ".parquet": lambda: peel(str(path), _columns_of(path, use_columns, drop_columns)),
        **dict.fromkeys(
            TEXT,
            lambda: read_text(
                path, use_columns=use_columns, drop_columns=drop_columns, recode=recode
            ),
        ),
    }
    if (use_columns is not None or drop_columns) and extension(path) in (".npy", ".npz", ".mtx"):
        raise ValueError(
            f"{path}: has no headings; use_columns and drop_columns are of texts and .parquet."
        )
    if recode and extension(path) not in TEXT:
        raise ValueError(f"{path}: is no text; recode is of words and codes in texts.")
    if extension(path) not in readers:
        as_table = "In Python, pandas.read_json(path, lines=True).to_csv('data.csv', index=False)"
        remedy = {
            ".jsonl": as_table,
            ".ndjson": as_table,
            ".json": as_table.replace(", lines=True", ""),
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


def _columns_of(path: Path, use: Sequence[str] | None, drop: Sequence[str]) -> pd.DataFrame:
    """A ``.parquet`` with the columns that are to be read."""
    frame = read_frame(path)
    headings = [str(name) for name in frame.columns]
    return frame.iloc[:, chosen(path, headings, use, drop)]


def read_text(
    path: Path,
    *,
    counts_words: bool = False,
    use_columns: Sequence[str] | None = None,
    drop_columns: Sequence[str] = (),
    recode: Recode | None = None,
) -> LabelledMatrix:
    """A matrix as `read_matrix` reads it; where it ``counts_words``, ``user`` may be a word."""
    lines, line_numbers = equal_lines(path)
    if use_columns is None and not drop_columns and not counts_words:
        refuse_listed(path, lines, is_measured=True)
    headings = [cell.strip() for cell in lines[0]]
    read = chosen(path, headings, use_columns, drop_columns)
    lines = select(path, lines, use_columns, drop_columns)
    header = _header(path, lines)
    body = lines[1:] if header else lines
    if header:
        refuse_twice(path, headings, read, can_drop=True)
    if not body:
        raise ValueError(f"{path}: has a first line with headings and no further lines.")
    line_numbers = line_numbers[1:] if header else line_numbers
    body = without_total_line(path, body)
    first = [line[0].strip() for line in body]
    has_ids = len(body[0]) > 1 and (
        (header is not None and holds_ids(header[0]))
        or _are_texts(first)
        or _are_ids(path, first, header, counts_words=counts_words)
    )
    if has_ids:
        _check_ids(path, first, line_numbers)
    start = 1 if has_ids else 0
    body = _as_zeros_and_ones(path, recoded([line[start:] for line in body], recode))
    values = np.empty((len(body), len(body[0])))
    for row, line in enumerate(body):
        for column, cell in enumerate(line):
            try:
                values[row, column] = as_number(cell)
            except ValueError:
                if cell.strip().lower() not in MISSING:
                    above = header[start:] if header else None
                    where = (row, column), line_numbers[row], read[start:]
                    raise _cell_error(path, body, above, *where) from None
                values[row, column] = np.nan
    names = ids(first) if has_ids else None, ids(header[start:]) if header else None
    table = LabelledMatrix(*without_totals(path, values, *names))
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
        warn(
            f"{path}: the first column, {header[0]!r}, is read as ids of rows, by its "
            f"{'heading' if named else 'numbers, which are those of the lines'}. If it is data, "
            "let another column be the first."
        )
        return True
    if named or len(first) >= 10:
        warn(
            f"{path}: the numbers of the first column, {header[0]!r}, all differ; they are read as "
            "data. If they are ids of rows, let its heading be id."
        )
    return False


def _as_zeros_and_ones(path: Path, lines: list[list[str]]) -> list[list[str]]:
    """Cells with yes as 1 and no as 0, in columns that have no others but missing ones."""
    columns: list[Sequence[str]] = []
    read: dict[str, str] = {}
    for cells in zip(*lines, strict=True):
        known = _truths_of(cells)
        column = [known.get(cell.strip().lower(), cell) for cell in cells] if known else cells
        columns.append(column)
        read |= known
    if not read:
        return lines
    shown = ", ".join(f"{word} as {read[word]}" for word in sorted(read))
    if read.keys() & {"no", "n", "nein"}:
        warn(f"{path}: answers are read as numbers: {shown}.")
    return [list(line) for line in zip(*columns, strict=True)]


def _truths_of(cells: Sequence[str]) -> dict[str, str]:
    """The answers of a column, in lower case, with 1 or 0 for each; none of other columns."""
    there = set()
    for cell in cells:
        word = cell.strip().lower()
        if word in MISSING:
            continue
        if not any(word in words for words in TRUTHS):
            return {}
        there.add(word)
    known = next((words for words in TRUTHS if there <= set(words)), {})
    return {word: known[word] for word in there if known}


def _check_ids(path: Path, texts: Sequence[str], line_numbers: Sequence[int]) -> None:
    """Refuses ids of rows that are empty or stand twice."""
    seen: dict[str, int] = {}
    for line, text in zip(line_numbers, texts, strict=False):
        if not text:
            raise ValueError(
                f"{path}: line {line} has no id in the first column; give it one, or leave the "
                "line out."
            )
        if text in seen:
            raise ValueError(
                f"{path}: the id {text!r} stands in lines {seen[text]} and {line} of the first "
                "column; ids of rows must differ. Number lines of one thing, such as "
                f"{text + '-1'!r} and {text + '-2'!r}, or average them. If it holds no ids, leave "
                f"it out ({drop_option(['1'])}). If a line is a word of a document or a cell of a "
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
    values = [as_number(cell) for cell in cells if cell.lower() not in MISSING and is_numeric(cell)]
    beyond = (
        values != []
        and all(1500 <= int(each) <= 2100 for each in whole)
        and (float(whole[0]) > max(values) or float(whole[-1]) < min(values))
    )
    what = "headings" if beyond else "data"
    warn(
        f"{path}: the first line, {_short(','.join(first))}, is read as {what}. "
        + (
            "If it is data, write"
            if beyond
            else "If it holds headings, let the first be id; else write"
        )
        + " a line of headings above it.",
    )
    return beyond


def _is_cell(text: str) -> bool:
    """Whether a cell is a number or missing."""
    return text.strip().lower() in MISSING or is_numeric(text)


def _cell_error(
    path: Path,
    body: list[list[str]],
    headings: list[str] | None,
    cell: tuple[int, int],
    line_number: int,
    columns_read: Sequence[int],
) -> ValueError:
    """Error for a cell that is no number, with remedies for columns such as its own.

    Args: body: cells without those of ids; columns_read: where its columns stand in the file.
    """

    def name(index: int) -> str:
        return headings[index] if headings and headings[index] else str(columns_read[index] + 1)

    row, column = cell
    heading = f" ({name(column)!r})" if headings else ""
    shown = f"{_short(body[row][column])!r} in line {line_number}"
    columns = [[text.strip() for text in each] for each in zip(*body, strict=True)]
    held = [what_is_held(each) for each in columns]
    where = f"{path}: column {columns_read[column] + 1}{heading}"
    there = [[text for text in each if text.lower() not in MISSING] for each in columns]
    numeric = [
        each
        for each, known in zip(columns, there, strict=True)
        if 2 * sum(map(is_numeric, known)) > len(known)
    ]
    if columns[column] in numeric:
        slips = {_short(text) for each in numeric for text in each if not _is_cell(text)}
        option = recode_option(dict.fromkeys(sorted(slips)[:_MOST_ANSWERS], ""))
        return ValueError(
            f"{where} holds numbers, but {shown}. Correct it, or leave it empty; words for missing "
            f"cells are read so by {option}."
        )
    odd = [
        index
        for index, what in enumerate(held)
        if what in ("texts", "dates") and columns[index] not in numeric
    ]
    further = [name(index) for index in odd if index != column]
    also = f", and {drop_option(further)}" * bool(further)
    levels = sorted(set(there[column]))
    remedies = []
    if len(odd) < len(held):
        it = "them" if further else "it"
        remedies.append(f"leave {it} out ({drop_option([name(index) for index in odd])})")
    has_lines = len(body) > 2  # else it is not seen whether answers or ids repeat
    if len(levels) == 1 and has_lines:
        option = recode_option({levels[0]: "1", "": "0"}) + also
        remedies.append(f"if it is a mark, say what it and an empty cell stand for ({option})")
    elif 0 < len(levels) <= _MOST_ANSWERS and (1 < len(levels) < len(body) or not has_lines):
        answers = ", ".join(map(repr, map(_short, levels[:4]))) + ", ..." * (len(levels) > 4)
        option = recode_option(dict.fromkeys(map(_short, levels), "?")) + also
        remedies.append(
            f"give its {len(levels)} answers, {answers}, numbers in their order, and no number to "
            f"what is no answer ({option})"
        )
    if columns_read[column] == 0:
        remedies.append("give it the heading id if it holds ids")
    are_ids = held[column] == "texts" and len(levels) == len(body)
    if has_lines and are_ids and columns_read[column] > 0:
        ids_first = [name(column), *(name(k) for k in range(len(held)) if k != column)]
        remedies.append(f"name it first if it holds ids ({as_option(ids_first)})")
    negative = without_parentheses(body[row][column].strip())
    if negative != body[row][column].strip():
        remedies.append(f"if parentheses stand for a minus, write {negative}")
    if not remedies:
        remedies.append("write it as numbers, and leave missing cells empty")
    shown_names = ", ".join(map(repr, further[:_MOST_ANSWERS]))
    more = f" and {len(further) - _MOST_ANSWERS} others" * (len(further) > _MOST_ANSWERS)
    others = f"; nor {'does' if len(further) == 1 else 'do'} {shown_names}{more}" * bool(further)
    has_dates = any(held[index] == "dates" for index in odd)
    dates = " Dates are no numbers of a matrix." * has_dates
    return ValueError(
        f"{where} holds no numbers: {shown}{others}.{dates} To read the file, "
        f"{', or '.join(remedies)}."
    )


def _short(cell: str) -> str:
    return cell if len(cell) <= 60 else cell[:57] + "..."
