"""Which columns of a table are read, and as what: as somebody says, or by what they hold."""

import csv
import io
import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxmf.arguments import meant
from jaxmf.data.dates import are_dates
from jaxmf.data.headings import Roles, are_called_ids, assign_roles, kinds_of
from jaxmf.data.suspects import are_times, count_lines
from jaxmf.data.text_tables import MISSING, as_number, is_numeric
from jaxmf.user_warnings import warn

_LINES_SEEN = 1_000  # by which it is seen what a column holds
_SHARE = 0.9  # of cells that are numbers in a column of numbers
_MOST_SHOWN = 12
TIMES = ("dates", "seconds since 1970")
"""What columns of times hold; see `what_is_held`."""


def select(
    path: Path, lines: list[list[str]], use: Sequence[str] | None, drop: Sequence[str] = ()
) -> list[list[str]]:
    """The columns of lines that are to be read, in the order of `use`.

    Args:
        lines: the first has headings, or is data where columns are named by numbers.
        use: headings, or numbers of columns from 1; None for all.
        drop: headings, or numbers, of columns that are left out.
    Raises:
        ValueError: a column that is not there, one named twice, none left, lines that differ in
            length.
    """
    if use is None and not drop:
        return lines
    odd = next((line for line in lines if len(line) != len(lines[0])), None)
    if odd is not None:
        raise ValueError(
            f"{path}: the line {odd} has {len(odd)} cells, the first has {len(lines[0])}; columns "
            "can be chosen where all lines have as many."
        )
    kept = chosen(path, lines[0], use, drop)
    return [[line[position] for position in kept] for line in lines]


def chosen(
    path: Path, headings: Sequence[str], use: Sequence[str] | None, drop: Sequence[str]
) -> list[int]:
    """Where the columns stand that are to be read; see `select`."""
    out = positions(path, headings, drop, "drop_columns")
    every = range(len(headings)) if use is None else positions(path, headings, use, "use_columns")
    kept = [position for position in every if position not in out]
    if not kept:
        raise ValueError(f"{path}: drop_columns leave no column of {_listed(headings)}.")
    return kept


def positions(path: Path, headings: Sequence[str], names: Sequence[str], option: str) -> list[int]:
    """Where columns stand: by their headings, or as numbers from 1.

    Raises ValueError: a column that is not there, or one named twice.
    """
    found = []
    for name in map(str, names):
        if name.isdecimal() and 0 < int(name) <= len(headings):
            found.append(int(name) - 1)
        elif headings.count(name) == 1:
            found.append(headings.index(name))
        else:
            there = f"stands {headings.count(name)} times" if name in headings else "is not there"
            near = meant(name, headings, quoted=True) if name not in headings else ""
            raise ValueError(
                f"{path}: {option}: the column {name!r} {there}; its first line is "
                f"{_listed(headings)}.{near} Commas stand between columns, and a number from 1 to "
                f"{len(headings)} names one as well."
            )
    if len(set(found)) < len(found):
        raise ValueError(f"{path}: {option}: {list(names)} has a column twice.")
    return found


def refuse_twice(
    path: Path,
    headings: Sequence[str],
    read: Sequence[int] | None = None,
    *,
    num_named: int = 0,
    can_drop: bool = False,
) -> None:
    """Refuses headings of which one stands above two of the columns that are read.

    Args: read: which columns are, all if None; num_named: how many may be named by numbers instead;
    can_drop: whether one may be left out by its number.
    """
    first: dict[str, int] = {}
    for position in range(len(headings)) if read is None else read:
        heading = headings[position]
        if first.setdefault(heading, position) == position or not heading:
            continue
        remedy = f", or leave one out by its number ({drop_option([str(position + 1)])})" * can_drop
        if num_named:
            others = [str(k) for k in range(1, len(headings) + 1) if k != position + 1]
            option = as_option(others[:num_named])
            remedy = f", or name the columns that are read by their numbers, such as {option}"
        raise ValueError(
            f"{path}: the heading {heading!r} stands twice in its first line, above columns "
            f"{first[heading] + 1} and {position + 1}. Rename one{remedy}."
        )


def as_option(names: Sequence[str]) -> str:
    """How columns are chosen, from Python and on the command line."""
    return f"use_columns={list(names)}, --columns {shlex.quote(written(names))}"


def drop_option(names: Sequence[str]) -> str:
    """How columns are left out, from Python and on the command line."""
    return f"drop_columns={list(names)}, --drop {shlex.quote(written(names))}"


def written(names: Sequence[str]) -> str:
    """Headings with commas between, as options of the command line have them."""
    line = io.StringIO()
    csv.writer(line).writerow(names)
    return line.getvalue().rstrip("\r\n")


def roles_by_content(lines: list[list[str]], *, with_value: bool = True) -> Roles | None:
    """Roles of the columns by their headings and, where these do not say, by their contents.

    Dates are times, empty columns and numbers of lines do not count, and the only column of
    numbers, or the last of three columns, holds values; without values the two columns of texts
    are rows and columns. Ids of rows and columns stand in several lines each. None where that
    leaves more columns, or fewer.
    """
    body = _body(lines)
    width = len(lines[0])
    if len(body) < 2 or any(len(line) != width for line in lines):
        return None
    kinds = kinds_of(lines[0]) or [None] * width
    held = held_by(lines)
    for index, what in enumerate(held):
        if kinds[index] is None and what in TIMES:
            kinds[index] = "time"
        elif kinds[index] is None and what in ("nothing", "numbers of lines"):
            kinds[index] = "index"
    left = [index for index, kind in enumerate(kinds) if kind is None]
    if with_value and "value" not in kinds:
        numeric = [index for index in left if held[index] == "numbers"]
        if len(left) != 3 - kinds.count("row") - kinds.count("column") or not numeric:
            return None
        if len(numeric) > 1 and left[-1] not in numeric:
            return None
        kinds[numeric[0] if len(numeric) == 1 else left[-1]] = "value"
    texts = [index for index in left if held[index] == "texts"]
    if not with_value and len(left) > 2 and len(texts) == 2:
        kinds = [kind if kind or index in texts else "index" for index, kind in enumerate(kinds)]
    found = assign_roles(kinds, with_value=with_value)
    if found is None:
        return None
    repeat = all(len({line[at] for line in body}) < len(body) for at in (found.row, found.column))
    return found if repeat else None


def refuse_listed(path: Path, lines: list[list[str]], *, is_measured: bool) -> None:
    """Refuses a list of cells, such as loans, where a matrix is read, which has a line for a row.

    Headings say that it is one, or that both of two columns hold ids; else it is two columns of
    whole numbers that are in several lines each.

    Args: is_measured: whether such columns may be measured all the same; then there is a warning.
    """
    body, first = _body(lines), [cell.strip() for cell in lines[0]]
    kinds = kinds_of(first)
    found = None if kinds is None or len(first) > 4 else assign_roles(kinds, with_value=False)
    if found is not None and not found.is_named:
        found = found if len(first) == 2 and all(map(are_called_ids, first)) else None
    is_known = found is not None
    are_whole = all(cell.strip().isdecimal() for line in body for cell in line)
    if found is None and len(first) == 2 and len(body) >= 10 and are_whole:
        found = Roles(0, 1, None, None, is_named=False)
    if found is None or not all(
        2 <= len({line[at] for line in body}) < len(body) for at in found[:2]
    ):
        return
    names = named(first, found[:2])
    which = "of two ids" if kinds is None else f"of {names[0]!r} and {names[1]!r}"
    model = "ones (jaxmf fit sparse-binary) or of topics (jaxmf fit lda)"
    others = {*range(len(first))} - {*found[:2]}
    if found.value is not None or [held_by(lines)[at] for at in others] == ["numbers"]:
        which, model = f"{which} with a value", "ratings (jaxmf fit bpmf)"
    remedy = f"If these columns are those of a matrix, name them ({as_option(_names(first))})."
    words = (
        f"{path}: each line {'is' if is_known else 'may be'} a pair {which}, and a matrix has a "
        f"line for each row. Pairs need a model of {model}. {remedy * (not is_known)}".rstrip()
    )
    if is_measured and not is_known:
        warn(words)
        return
    raise ValueError(words)


def held_by(lines: list[list[str]]) -> list[str]:
    """Kind of the values of each column; see `what_is_held`."""
    return [what_is_held(column) for column in zip(*_body(lines), strict=True)]


def what_is_held(cells: Sequence[str]) -> str:
    """Kind of the values of a column: nothing, numbers (of lines; seconds), dates, or texts."""
    there = [cell for cell in cells if cell.lower() not in MISSING]
    if not there:
        return "nothing"
    values = np.array([as_number(cell) for cell in there if is_numeric(cell)])
    if values.size >= _SHARE * len(there):  # others are slips
        if len(there) >= 10 and count_lines(there):
            return "numbers of lines"
        many = 2 * np.unique(values).size > values.size >= 10
        return "seconds since 1970" if many and are_times(values) else "numbers"
    return "dates" if are_dates(there) else "texts"


def describe(lines: list[list[str]]) -> str:
    """Kind of the values of each column, for a message."""
    shown = [
        f"{heading!r} {what_is_held(column)}" + (f" such as {column[0]!r}" if column[0] else "")
        for heading, column in zip(_names(lines[0]), zip(*_body(lines), strict=True), strict=True)
    ]
    return "; ".join(shown[:_MOST_SHOWN]) + "; ..." * (len(shown) > _MOST_SHOWN)


def likely(lines: list[list[str]], *, only_long: bool = False) -> list[str]:
    """Headings of a row, a column and values as they may be meant, for a message.

    Args: only_long: whether to give none where lines do not share rows and columns, or most of
    them are numbers.
    """
    body = _body(lines)
    held = held_by(lines)
    distinct = [len(set(column)) for column in zip(*body, strict=True)]
    known = [k for k, what in enumerate(held) if what in ("texts", "numbers")]
    numeric = [k for k in known if held[k] == "numbers"]
    value = min(numeric, key=lambda k: (distinct[k], -k), default=None)
    ids = sorted((k for k in known if k != value), key=lambda k: (held[k] == "numbers", k))
    ids = [k for k in ids if distinct[k] < len(body)] + [k for k in ids if distinct[k] >= len(body)]
    both = sorted(ids[:2])
    is_wide = len(numeric) > max(3, len(held) // 2)
    if only_long and (is_wide or not all(distinct[k] < len(body) for k in both)):
        return []
    chosen = both if value is None else [*both, value]
    return [_names(lines[0])[k] for k in chosen]


def _body(lines: list[list[str]]) -> list[list[str]]:
    """The lines of data by which columns are known, of the length of the first one."""
    start = int(kinds_of(lines[0]) is not None)
    return [line for line in lines[start : start + _LINES_SEEN] if len(line) == len(lines[0])]


def _names(first: Sequence[str]) -> list[str]:
    """Names of the columns: their headings, else numbers from 1."""
    are_headings = kinds_of(first) is not None
    return [
        heading if are_headings and heading and first.count(heading) == 1 else str(k)
        for k, heading in enumerate(first, 1)
    ]


def named(first: Sequence[str], columns: Sequence[int]) -> list[str]:
    """Names of some columns for options, below this first line."""
    return [_names(first)[at] for at in columns]


def warn_roles(path: Path, first: Sequence[str], found: Roles) -> None:
    """Says how the columns of a table with this first line are read."""
    names = {"rows": found.row, "columns": found.column}
    if found.value is not None:
        names["values"] = found.value
    if found.time is not None:
        names["times"] = found.time
    chosen = named(first, [*names.values()])
    shown = ", ".join(f"{each!r} as {word}" for word, each in zip(names, chosen, strict=True))
    warn(
        f"{path}: its columns are read by what they hold, {shown}. If others are meant, name them "
        f"in this order ({as_option(chosen)})."
    )


def _listed(headings: Sequence[str]) -> str:
    shown = ", ".join(map(repr, headings[:_MOST_SHOWN]))
    return shown + ", ..." * (len(headings) > _MOST_SHOWN)
