"""Ones of sparse matrices from files, for the command line: pairs, baskets, matrices, triples."""

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxmf.arguments import check_file, checks_call
from jaxmf.data import checks, dates, names
from jaxmf.data.container import LabelledMatrix, is_sparse
from jaxmf.data.headings import are_numbered, roles
from jaxmf.data.names import ids
from jaxmf.data.readers import read_matrix
from jaxmf.data.sparse_binary import SparseBinary
from jaxmf.data.sparse_series import SparseSeries
from jaxmf.data.suspects import are_times, without_last_line_of_no_ids, without_repeats
from jaxmf.data.table_columns import (
    TIMES,
    as_option,
    describe,
    held_by,
    likely,
    positions,
    refuse_twice,
    roles_by_content,
    select,
    warn_roles,
    written,
)
from jaxmf.data.text_tables import Recode, is_numeric, is_text, numbered_lines
from jaxmf.user_warnings import warn

FORMS = ("pairs", "baskets", "matrix")
_ITEMS = frozenset(
    ["items", "item", "basket", "baskets", "products", "transaction", "transactions"]
)
_ANSWERS = frozenset(["", "0", "1", "true", "false", "yes", "no"])
_PAIR, _TRIPLE = ("row", "column"), ("row", "column", "time")


@checks_call
def read_ones(
    path: str | Path,
    *,
    form: str | None = None,
    key: str | None = None,
    headings: bool | None = None,
    mask: str | Path | None = None,
    items: Collection[object] | None = None,
    use_columns: Sequence[str] | None = None,
    drop_columns: Sequence[str] = (),
    recode: Recode | None = None,
    noted: dict[str, object] | None = None,
) -> SparseBinary:
    """A sparse matrix of zeros and ones from a file.

    - "pairs": each line is a one and holds the id of its row and the id of its column. The first
      line may hold headings. Empty lines are skipped.
    - "baskets": each line is a row and holds the ids of its ones; there are no headings. Empty
      cells at the end of a line are ignored, and so are empty lines at the end of the file; other
      empty lines are empty baskets. In files of ten lines or more, first cells are ids of baskets
      if they all differ from one another and from all other cells; in shorter files pass ``items``.
    - "matrix": as `read_matrix`, of zeros and ones.

    Args:
        path: the file.
        form: one of these. None decides by the file: a matrix if it is not .csv or .tsv; pairs if
            every line has two cells, or if headings such as user, item, date say which two cells
            are meant; a matrix if all lines have one length and hold numbers; else baskets.
        key: which array of a ``.npz``.
        headings: whether the first line of pairs holds headings. None decides by the file: the
            first line is a pair if its ids are whole numbers like all below them, or if one of them
            occurs again in its column; else it holds headings.
        mask: a file that says which cells were observed, the others being missing: pairs of ids,
            one line a cell, or a matrix of ones (observed) and zeros.
        items: ids of all items, if they are known. First cells that are not among them are ids of
            baskets (`id,` alone of an empty one), and a first line of pairs that has one of them
            holds no headings.
        use_columns: headings (or numbers from 1) of the row and the column of pairs; for a matrix,
            of the columns that are read.
        drop_columns: for a matrix, headings of columns that are not read.
        recode: as in `read_matrix`, of the cells of a matrix.
        noted: a dict that receives the form and columns found, as options with which another file
            is read in the same way.
    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: lines that do not fit the form or are no zeros and ones; lines of several
            lengths that hold only 0 and 1, which may be a matrix with gaps or baskets; a mask of
            another shape, or one that lacks a cell of the data that is a one.
    """
    path = check_file(path)
    form = "matrix" if form is None and recode else form
    listed = listed_ones(
        path,
        form=form,
        headings=headings,
        items=items,
        use_columns=use_columns,
        drop_columns=drop_columns,
    )
    if noted is not None:
        noted.update(listed.reading())
    if listed.baskets is not None:
        data = SparseBinary.from_baskets(listed.baskets)
    elif listed.pairs is not None:
        pairs = without_repeats(path, listed.pairs)
        if mask is not None and _is_pairs(mask):
            return _from_pairs_and_observed(pairs, Path(mask), headings)
        data = SparseBinary.from_pairs(by_ids(pairs))
    else:
        table = read_matrix(
            path, key=key, use_columns=use_columns, drop_columns=drop_columns, recode=recode
        )
        data = SparseBinary.from_array(table)
    return data if mask is None else _with_mask(data, Path(mask))


class Listed(NamedTuple):
    """The content of a text file: pairs or baskets of texts; neither if it is a matrix.

    Args:
        form: one of `FORMS`.
        pairs: id of row and column of each one, with repeats.
        baskets: for each row the ids of its ones.
        columns: the headings of row and column of pairs, where the file has more columns.
    """

    form: str
    pairs: list[list[str]] | None = None
    baskets: dict[str, list[str]] | list[list[str]] | None = None
    columns: list[str] | None = None

    def reading(self) -> dict[str, object]:
        """How the file was read, as options of the command line that read another like it."""
        columns = {} if self.columns is None else {"columns": written(self.columns)}
        return {"form": self.form, **columns}


def listed_ones(
    path: Path,
    *,
    form: str | None,
    headings: bool | None = None,
    items: Collection[object] | None = None,
    use_columns: Sequence[str] | None = None,
    drop_columns: Sequence[str] = (),
) -> Listed:
    """The ones of a file where these are listed; see `read_ones`."""
    if form not in (None, *FORMS):
        raise ValueError(f"form must be pairs, baskets or matrix, got {form!r}")
    if form is None and (use_columns is not None or drop_columns):
        form = "pairs" if len(use_columns or ()) == 2 and not drop_columns else "matrix"
    lines = None if form == "matrix" or not is_text(path) else _cells_of(path, use_columns)
    if lines is None and form in ("pairs", "baskets"):
        raise ValueError(f"{path}: {form} are read from .csv and .tsv files.")
    log = None
    if form is None and lines is not None and len(lines[0]) > 2:
        log = _pairs_of_log(path, lines)
        if log is not None:
            lines, form, headings = log, "pairs", True
    is_stated = form is not None
    known = None if items is None else {str(item) for item in items}
    if form is None:
        form = "matrix" if lines is None else _guessed_form(path, lines)
        if lines is not None and form == "baskets" and known is None:
            _refuse_headings(path, lines)
    lines = _without_numbered_headings(path, lines, form)
    headings = _stated_headings(path, lines, form, headings, known, use_columns)
    if lines is None or form == "matrix":
        return Listed("matrix")
    if form == "baskets" or not is_stated:
        named = _baskets_with_ids(path, lines, form, known)
        if named is not None:
            return Listed("baskets", baskets=named)
    if form == "pairs":
        pairs = _texts_of(path, lines, headings, _PAIR)
        return Listed(form, pairs=pairs, columns=None if log is None else log[0])
    return Listed(form, baskets=[[cell for cell in line if cell] for line in lines])


def _refuse_headings(path: Path, lines: list[list[str]]) -> None:
    """Refuses a file of one line, which may be nothing but headings."""
    full = [line for line in lines if any(line)]
    if len(full) == 1:
        shortened_ids = ", ".join(map(repr, full[0][:5])) + ", ..." * (len(full[0]) > 5)
        raise ValueError(
            f"{path}: has one line, {shortened_ids}, and no further lines. If it holds no "
            "headings but a basket, say form='baskets'."
        )


@checks_call
def read_series(
    path: str | Path,
    *,
    headings: bool | None = None,
    use_columns: Sequence[str] | None = None,
) -> SparseSeries:
    """A series of sparse matrices from a file of triples.

    Args:
        path: a .csv or .tsv file, one line a one: ids of its row and its column, of any kind, and
            its time, a number or a date such as 2024-12-31, which becomes days since 1970-01-01.
            If headings such as row, column and time, or user, item and timestamp, name them, they
            may stand in any order and beside further columns. Otherwise they stand in this order,
            unless dates in another column show which one is the time.
        headings: whether the first line holds headings; None: it does if its third cell is no time.
        use_columns: headings (or numbers from 1) of the row, the column and the time.
    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a line that is no triple, a time that is no number, no lines.
    """
    path = check_file(path)
    if not is_text(path):
        raise ValueError(f"{path}: a series is read from a .csv or .tsv file of triples.")
    lines = [line for line in _cells_of(path) if any(line)]
    indices, is_known = _order_of_series(path, lines, use_columns)
    first = lines[0]
    if not is_known and not headings and len(first) > 3:
        days_or_seconds = [k for k, what in enumerate(held_by(lines)) if what in TIMES]
        option = [*likely(lines)[:2], *(first[k] for k in days_or_seconds[:1])]
        raise ValueError(
            f"{path}: which columns are the row, the column and the time is not known: "
            f"{describe(lines)}. Name them in this order ({as_option(option)})."
        )
    width = len(first) if is_known or headings else 3
    lines = [[line[index] for index in indices] if len(line) == width else line for line in lines]
    if headings is None:
        headings = len(lines[0]) == 3 and not is_numeric(lines[0][2])
        headings &= dates.days(np.array(lines[0][-1:])) is None
    if headings and use_columns is None:
        refuse_twice(path, first, indices, num_named=3)
    texts = _texts_of(path, lines, headings, _TRIPLE)
    days = dates.days(np.array([line[2] for line in texts]))
    if days is not None and np.isfinite(days).all():
        warn(f"{path}: its times are dates; they are read as days since 1970-01-01.")
        texts = [[*line[:2], repr(day)] for line, day in zip(texts, days.tolist(), strict=True)]
    for row, column, time in texts:
        if not is_numeric(time) or not np.isfinite(float(time)):
            raise ValueError(
                f"{path}: the time {time!r} of row {row!r}, column {column!r} is no number and "
                "no date such as 2024-12-31 or 31.12.2024; write all as one of the two. (Where day "
                "and month cannot be distinguished, write 2024-12-31.)"
            )
    for position, word in enumerate(("rows", "columns") * (not is_known)):
        known = [float(line[position]) for line in texts if is_numeric(line[position])]
        if len(known) == len(texts) > 2 and are_times(np.array(known)):
            raise ValueError(
                f"{path}: the ids of {word} look like times ({texts[0][position]}). Give headings "
                "that say what is what, such as user,item,time."
            )
    texts = without_repeats(path, texts)
    pairs = by_ids([line[:2] for line in texts])
    times = [float(line[2]) for line in texts]
    return SparseSeries.from_triples(
        [(*pair, time) for pair, time in zip(pairs, times, strict=True)]
    )


def _order_of_series(
    path: Path, lines: list[list[str]], use: Sequence[str] | None
) -> tuple[list[int], bool]:
    """Positions of row, column and time, and whether the caller, headings or dates name them."""
    if use is not None:
        if len(use) != 3:
            raise ValueError(
                f"{path}: use_columns: a series has a row, a column and a time, got {list(use)}."
            )
        return positions(path, lines[0], use, "use_columns"), True
    if sorted(lines[0]) == sorted(_TRIPLE):
        return [lines[0].index(name) for name in _TRIPLE], True
    found = roles(lines[0], with_value=False)
    if found is not None and found.is_named and found.time is not None:
        return [found.row, found.column, found.time], True
    seen = roles_by_content(lines, with_value=False)
    if seen is None or seen.time in (None, 2):
        return [0, 1, 2], found is not None and len(lines[0]) > 2
    warn_roles(path, lines[0], seen)
    return [seen.row, seen.column, seen.time or 0], True


def _texts_of(
    path: Path, lines: list[list[str]], headings: bool | None, cells: Sequence[str]
) -> list[list[str]]:
    """The cells of every line, without empty lines and headings."""
    for line_number, line in enumerate(lines, 1):
        if any(line) and not (len(line) == len(cells) and all(line)):
            kind, count = ("pairs", "two") if len(cells) == 2 else ("triples", "three")
            raise ValueError(
                f"{path}: line {line_number} is {line}; {kind} have {count} cells a line: "
                f"{', '.join(cells)}."
            )
    full = [line for line in lines if any(line)]
    if headings is None:
        headings = _has_headings(full)
    full = full[1:] if headings else full
    if not full:
        raise ValueError(
            f"{path}: has a first line of headings; there is no further line. If it is a one, say "
            "that there are no headings (headings=False, --no-headings)."
        )
    return full


def by_ids(lines: list[list[str]]) -> list[tuple[object, ...]]:
    """The lines, with ids as whole numbers in columns where all ids are whole numbers."""
    columns = [ids(list(column)).tolist() for column in zip(*lines, strict=True)]
    return list(zip(*columns, strict=True))


def _has_headings(lines: list[list[str]]) -> bool:
    """Whether the first of some lines of pairs holds headings: see `read_ones`."""
    for index, cell in enumerate(lines[0]):
        below = [line[index] for line in lines[1:]]
        if cell in below or (below and ids([cell, *below]).dtype.kind == "i"):
            return False
    return True


def _is_pairs(path: str | Path) -> bool:
    """Whether a file holds pairs rather than a matrix of zeros and ones."""
    path = check_file(path)
    if not is_text(path):
        return False
    lines = [line for line in _cells_of(path) if any(line)]
    is_matrix = {cell for line in lines[1:] for cell in line} <= {"0", "1"}
    return all(map(_is_pair, lines)) and not is_matrix


def _from_pairs_and_observed(
    pairs: list[list[str]], mask: Path, headings: bool | None
) -> SparseBinary:
    """Data from the ones and the observed cells, both by ids; those of the ones come first."""
    seen = _texts_of(mask, _cells_of(mask), headings, _PAIR)
    both = by_ids([*pairs, *seen])
    known = [list(dict.fromkeys(pair[side] for pair in both)) for side in (0, 1)]
    data = SparseBinary.from_pairs(both[: len(pairs)], row_names=known[0], column_names=known[1])
    return _observed_only(data, both[len(pairs) :], mask)


def _observed_only(data: SparseBinary, seen: list[tuple[object, ...]], mask: Path) -> SparseBinary:
    observed = _none_observed(mask, data.shape)
    try:
        rows = data.row_positions([pair[0] for pair in seen])
        columns = data.column_positions([pair[1] for pair in seen])
    except (ValueError, TypeError) as error:
        raise ValueError(f"{mask}: {error}") from None
    observed[rows, columns] = True
    return _with_missing(data, observed, mask)


def _with_mask(data: SparseBinary, mask: Path) -> SparseBinary:
    """The data with all cells missing that a mask, pairs or a matrix, does not name."""
    if _is_pairs(mask):
        seen = by_ids(_texts_of(mask, _cells_of(mask), None, _PAIR))
        return _observed_only(data, seen, mask)
    table: LabelledMatrix = read_matrix(mask)
    values = table.values.toarray() if is_sparse(table.values) else np.asarray(table.values)
    values = checks.check_binary(
        str(mask), checks.as_numeric(str(mask), values), gaps="A mask says 0 or 1 of every cell."
    )
    if values.shape != data.shape:
        raise ValueError(
            f"{mask}: has shape {values.shape}, the data {data.shape}; a mask has a cell for each."
        )
    observed = _none_observed(mask, data.shape)
    mask_names = (table.row_names, table.column_names)
    order = [
        np.arange(size)
        if new is None or data_names is None
        else names.positions(f"{mask}: ids", new, names=data_names, size=size)
        for size, data_names, new in zip(
            data.shape, (data.row_names, data.column_names), mask_names, strict=True
        )
    ]
    observed[np.ix_(*order)] = values
    return _with_missing(data, observed, mask)


def _none_observed(mask: Path, shape: tuple[int, int]) -> np.ndarray:
    if shape[0] * shape[1] > checks.INT32_MAX:
        raise ValueError(
            f"{mask}: a mask of {shape[0]} x {shape[1]} cells is more than int32 can index; give "
            "the cells that are missing from Python: SparseBinary(..., missing_rows=...)."
        )
    return np.zeros(shape, bool)


def _with_missing(data: SparseBinary, observed: np.ndarray, mask: Path) -> SparseBinary:
    rows, columns = np.asarray(data.rows), np.asarray(data.columns)
    hidden = np.flatnonzero(~observed[rows, columns])
    if hidden.size:
        row, column = (
            int(index[hidden[0]]) if known is None else known.tolist()[index[hidden[0]]]
            for index, known in ((rows, data.row_names), (columns, data.column_names))
        )
        raise ValueError(
            f"{mask}: the one at row {row!r}, column {column!r} is not among the observed cells "
            f"({hidden.size} such ones). A mask lists ones and zeros that were observed."
        )
    gaps = np.nonzero(~observed)
    return SparseBinary(
        rows,
        columns,
        data.shape,
        data.row_names,
        data.column_names,
        missing_rows=gaps[0],
        missing_columns=gaps[1],
    )


def _guessed_form(path: Path, lines: list[list[str]]) -> str:
    full = [line for line in lines if any(line)]
    if all(map(_is_pair, full)):
        return "pairs"
    if all(len(line) == 2 for line in full) and any(map(_is_pair, full)):
        gap = next(
            line_number for line_number, line in enumerate(lines, 1) if any(line) and not all(line)
        )
        raise ValueError(
            f"{path}: line {gap} is {lines[gap - 1]}; a pair has the ids of a row and of a column. "
            "Give it both, or say form='baskets' if every line is a row with its ones."
        )
    # the first of several lines may hold headings
    are_numeric = all(
        is_numeric(cell) or cell.lower() in ("true", "false")
        for line in full[1:] or full
        for cell in line
    )
    if len({len(line) for line in full}) == 1 and (are_numeric or _are_answers(full)):
        return "matrix"
    if are_numeric and {cell for line in full for cell in line} <= {"", "0", "1"}:
        raise ValueError(
            f"{path}: lines of several lengths hold nothing but 0 and 1: give form='matrix' once "
            "the gaps are filled, or form='baskets' if these are ids"
        )
    return "baskets"


def _pairs_of_log(path: Path, lines: list[list[str]]) -> list[list[str]] | None:
    """Pairs of a table with more columns, such as sales, where headings say which two are meant."""
    found = roles(lines[0], with_value=False)
    full = [line for line in lines if any(line)]
    if len(full) < 2 or any(len(line) != len(full[0]) for line in full):
        return None
    if _are_answers(full):
        return None  # a matrix
    if found is None or not found.is_named:
        if not _is_table(full):
            return None
        found = roles_by_content(full, with_value=False)
        if found is None:
            raise ValueError(
                f"{path}: is a table, not baskets: {describe(full)}. Name "
                f"the row and the column ({as_option(likely(full)[:2])}); if every line is a "
                "basket, say form='baskets'."
            )
    full = without_last_line_of_no_ids(path, full, (found.row, found.column))
    pairs = [[line[found.row], line[found.column]] for line in full]
    warn(
        f"{path}: of its columns {pairs[0][0]!r} and {pairs[0][1]!r} are read, as pairs; the "
        f"others do not count. Name other ones by {as_option(pairs[0])}."
    )
    return pairs


def _are_answers(lines: list[list[str]]) -> bool:
    """Whether cells below the headings, without the first column, are 0 and 1, or yes and no."""
    cells = {cell.lower() for line in lines[1:] for cell in line[1:]}
    return cells != {""} and cells != set() and cells <= _ANSWERS


def _is_table(lines: list[list[str]]) -> bool:
    """Whether columns share no cells, or no cell of the first line occurs again: no baskets."""
    columns = [set(column) for column in zip(*lines[1:], strict=True)]
    there = set().union(*columns)
    is_like_one = sum(map(len, columns)) == len(there) or not there & set(lines[0])
    return len(lines) > 10 and is_like_one and not all(map(is_numeric, lines[1]))


def _without_numbered_headings(
    path: Path, lines: list[list[str]] | None, form: str
) -> list[list[str]] | None:
    """The lines without a first line of headings such as item1, item2, item3."""
    if lines is None or form != "baskets":
        return lines
    first = [cell for cell in lines[0] if cell]
    others = {cell for line in lines[1:] for cell in line}
    if not others or not are_numbered(first) or others & set(first):
        return lines
    warn(f"{path}: the first line, {', '.join(map(repr, first[:3]))}, is read as headings.")
    return lines[1:]


def _baskets_with_ids(
    path: Path, lines: list[list[str]], form: str, known: set[str] | None
) -> dict[str, list[str]] | list[list[str]] | None:
    """Baskets whose lines begin with their ids, or stand below a heading; None without either.

    Args: known: all items, if they are known.
    """
    full = [line for line in lines if any(line)]
    body = full[1:] if len(full[0]) <= 2 and full[0][-1].lower() in _ITEMS else full
    firsts = [line[0] for line in body]
    items = [[cell for cell in line[1:] if cell] for line in body]
    if form == "pairs":
        listed = [re.split(r"\s*[,;|]\s*", cell) for line in items for cell in line]
        are_lists = 2 * sum(len(each) > 1 for each in listed) > len(body)
        if not are_lists or len(listed) != len(body) or len(set(firsts)) < len(body):
            return None
        items = [[cell for cell in each if cell] for each in listed]
    further = {cell for basket in items for cell in basket}
    count = sum(map(len, items))
    all_differ = len(set(firsts)) == len(body) and not further & set(firsts)
    shown = ", ".join(map(repr, firsts[:2])) + ", ..." * (len(firsts) > 2)
    if known is not None:
        are_alone = not further and all(len(line) > 1 for line in body)  # `id,`: no items
        has_items = bool(known & further) or are_alone
        are_ids = all_differ and not known & set(firsts) and has_items
    else:
        are_ids = all_differ and len(body) >= 10 and len(body) <= count > 2 * len(further)
    if are_ids:
        warn(f"{path}: the first cells, {shown}, all differ; they are read as ids of the baskets.")
        return dict(zip(firsts, items, strict=True))
    if (
        known is None
        and form == "baskets"
        and all_differ
        and 1 < len(body) < 10
        and count > len(further)
    ):
        warn(
            f"{path}: the first cells, {shown}, all differ; they are read as items, as in all "
            "files of fewer than ten lines. If they are ids of baskets, write a pair of id and "
            "item a line."
        )
    if len(full[0]) == 1 and len(body) < len(full):
        warn(f"{path}: {full[0][0]!r} is read as a heading.")
        return [[cell for cell in line if cell] for line in lines[lines.index(full[0]) + 1 :]]
    return None


def _stated_headings(
    path: Path,
    lines: list[list[str]] | None,
    form: str,
    headings: bool | None,
    known: set[str] | None,
    use: Sequence[str] | None,
) -> bool | None:
    """Whether pairs have headings, if that is stated or the first line has a known item.

    Columns that are chosen by headings state it too.
    """
    if headings is not None and form != "pairs":
        raise ValueError(f"headings belong to pairs, but {path} is read as {form}; leave them out")
    if headings is None and lines and known and lines[0][-1] in known:
        return False
    is_named = use is not None and lines is not None and bool(set(use) & set(lines[0]))
    return True if is_named else headings


def _is_pair(line: list[str]) -> bool:
    return len(line) == 2 and all(line)


def _cells_of(path: Path, use: Sequence[str] | None = None) -> list[list[str]]:
    """The cells of a text file, line by line, without empty lines at its end.

    Args: use: the columns that are read; None for all. Where some are, empty lines do not count.
    """
    lines = [[cell.strip() for cell in line] for _, line in numbered_lines(path)]
    if not any(map(any, lines)):
        raise ValueError(f"{path}: the file has no lines.")
    while not any(lines[-1]):
        lines.pop()
    return lines if use is None else select(path, [line for line in lines if any(line)], use)
