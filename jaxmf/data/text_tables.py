"""Lines of text files as other programs write them: what stands between cells, letters, numbers.

Everything that is read from text goes through `numbered_lines`. A file that can be read in one way
only is read in that way; one that is ambiguous is refused.
"""

import csv
import gzip
import io
import re
import shlex
import unicodedata
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jaxmf.arguments import check_file
from jaxmf.data.headings import are_called_ids
from jaxmf.user_warnings import warn

MISSING = frozenset(
    {"", "na", "n/a", "n.a.", "nan", "-nan", "null", "none", "#n/a", "#na", "#n/a n/a", "<na>"}
    | {"-", "--", "?", ".", "missing"}
)
"""What stands for a missing cell in a text file, in lower case."""

Recode = Mapping[str, float | None]
"""What words and codes of a table stand for: a number, or None for a missing cell."""

TRUTHS = (
    {"true": "1", "false": "0"},
    {"yes": "1", "no": "0"},
    {"y": "1", "n": "0"},
    {"ja": "1", "nein": "0"},
)
"""Pairs of answers that are read as 1 and 0, in lower case."""

TEXT = (".csv", ".tsv", ".txt", ".dat", ".data")
"""Extensions of tables in text, with ``.gz`` or ``.zip`` behind them or not."""

_BETWEEN = (",", ";", "\t", "|", "::", " ")
_LINES_SEEN = 200  # by which the separator is found
_LONGEST = 100_000  # letters of these
_CURRENCY = "€$£¥"


class _Writing(NamedTuple):
    """How numbers are written: in groups of three digits, or not, and with which decimal mark."""

    groups: str
    decimal: str

    def matches(self, text: str) -> bool:
        group = re.escape(self.groups)
        whole = rf"(\d{{1,3}}|[1-9]\d{{0,2}}({group}\d{{3}})+)" if group else r"\d*"
        pattern = rf"[+-]?(?=\S?\d){whole}({re.escape(self.decimal)}\d*)?([eE][+-]?\d+)?"
        return text.isascii() | (self.groups in text) and bool(re.fullmatch(pattern, text))

    def plain(self, text: str) -> str:
        text = text.replace(self.groups, "") if self.groups else text
        return text.replace(self.decimal, ".")


_WRITINGS = (
    _Writing("", "."), _Writing("", ","), _Writing(",", "."), _Writing(".", ","),
    _Writing("'", "."), _Writing("\u2019", "."), _Writing("\u00a0", ","), _Writing("\u202f", ","),
)  # fmt: skip
_MARKS = re.compile("[.,'(\u2019\u00a0\u202f%" + _CURRENCY + "]")
_IN_PARENTHESES = re.compile(
    rf"([{_CURRENCY}]?)\s*\(\s*([^()+-]*\d[^()]*?)\s*\)\s*([%{_CURRENCY}]?)"
)


def recoded(lines: list[list[str]], recode: Recode | None) -> list[list[str]]:
    """Cells in which a word, or a code, stands for a number or for a missing cell."""
    if not recode:
        return lines
    table = {
        word.strip().lower(): "" if value is None else repr(float(value))
        for word, value in recode.items()
    }
    return [[table.get(cell.strip().lower(), cell) for cell in line] for line in lines]


def recode_option(meanings: Mapping[str, str]) -> str:
    """How words are read as numbers, or as missing, from Python and on the command line."""
    line = io.StringIO()
    csv.writer(line).writerow([f"{word}={value}" for word, value in meanings.items()])
    in_python = ", ".join(f"{word!r}: {value or None}" for word, value in meanings.items())
    return f"recode={{{in_python}}}, --recode {shlex.quote(line.getvalue().strip())}"


def extension(path: Path) -> str:
    """The extension in lower case, of a compressed file that of what is in it."""
    name = path.name.lower()
    if name.endswith(".gz"):
        name = name.removesuffix(".gz")
    elif name.endswith(".zip") and path.exists():
        name = _only_member(path).lower()
    return Path(name).suffix


def is_text(path: Path) -> bool:
    """Whether a file is a table in text by its extension."""
    return extension(path) in TEXT


def numbered_lines(
    path: str | Path, *, first: bool = False, whole: bool = False
) -> list[tuple[int, list[str]]]:
    """The cells of every line of a text file, and the line's number.

    The separator is found by the file: comma, semicolon, tab, bar, two colons or, in files other
    than ``.csv`` and ``.tsv``, spaces. Columns whose numbers have a decimal comma, thousands
    separators, a percent sign or a currency throughout are given as plain numbers, and so are
    negative ones in parentheses, as accounts have them, in columns that hold others too.

    Args: first: whether the first line that is not empty is enough; whole: whether lines are texts,
    each one cell.
    Raises FileNotFoundError: the file does not exist. ValueError: lines that cannot be taken apart;
    numbers that can be read in two ways; an archive of several files.
    """
    path = check_file(path)
    # letters with accents may be one character or two, so that equal ids differ: they are one here
    text = unicodedata.normalize("NFC", _decoded(path))
    if whole:
        return [(line_number, [line]) for line_number, line in enumerate(io.StringIO(text), 1)]
    stated = re.match(r"sep=(.)\r?\n", text)  # a line for spreadsheets
    text = text[stated.end() :] if stated else text
    separator = stated[1] if stated else _separator(path, text)
    lines = _rows(path, text, separator, most=1 if first else None)
    if stated:
        lines = [(line_number + 1, line) for line_number, line in lines]
    if not first and (separator != "," or '"' in text or re.search(f"['(%{_CURRENCY}]", text)):
        _make_plain(path, lines, separator)
    return lines


def texts_of_files(folder: Path, files: Sequence[Path]) -> list[str]:
    """The text of each file in a folder, its lines joined.

    Warns UserWarning: of files that are read as Windows-1252, all of them in one sentence.
    """
    found = [_decode(check_file(file)) if file.stat().st_size else ("", "") for file in files]
    odd = [(file, shown) for file, (_, shown) in zip(files, found, strict=True) if shown]
    if odd:
        many = f"{len(odd):,} of {len(files):,} texts are not in UTF-8 and are"
        warn(
            f"{folder}: {many if len(odd) > 1 else '1 text is not in UTF-8 and is'} read as "
            f"Windows-1252 (Latin-1): of {odd[0][0].name} {odd[0][1]}. Save them in UTF-8 if "
            "letters are wrong."
        )
    return [unicodedata.normalize("NFC", " ".join(text.splitlines())) for text, _ in found]


def _decoded(path: Path) -> str:
    """The text of a file, as `_decode`, with a warning where it is not in UTF-8."""
    text, shown = _decode(path)
    if shown:
        warn(
            f"{path}: is no text in UTF-8, it is read as Windows-1252 (Latin-1): {shown}. Save it "
            "in UTF-8 if letters are wrong."
        )
    return text


def _decode(path: Path) -> tuple[str, str]:
    """The text of a file, compressed or not, in UTF-8, UTF-16 or what Windows writes.

    What Windows writes comes with its first line that is not in UTF-8, as messages show it; other
    texts come with "".
    """
    content = _content(path)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16"), ""
    if b"\0" in content:
        raise ValueError(f"{path}: is no text, it has bytes that are 0. Save it as text in UTF-8.")
    try:
        return content.decode("utf-8-sig"), ""
    except UnicodeDecodeError as error:
        at = content.count(b"\n", 0, error.start) + 1
        try:
            text = content.decode("cp1252")
        except UnicodeDecodeError:
            raise ValueError(
                f"{path}: is no text in UTF-8 ({error.reason} in line {at}). Save it in UTF-8, or "
                f"convert it: iconv -f CP932 -t UTF-8 {shlex.quote(str(path))} > new.csv, where "
                "CP932 is Japanese of Windows; GB18030 is Chinese, CP949 Korean, CP1251 Russian."
            ) from None
        line = content.splitlines()[at - 1].decode("cp1252", "replace")
        return text, f"line {at} is {line[:60]!r}"


def _content(path: Path) -> bytes:
    name = path.name.lower()
    try:
        if name.endswith(".gz"):
            with gzip.open(path) as file:
                return file.read()
        if name.endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                return archive.read(_only_member(path))
    except (OSError, EOFError, zipfile.BadZipFile, RuntimeError) as error:
        raise ValueError(f"{path}: cannot be unpacked ({error}).") from None
    return path.read_bytes()


def _is_of_the_system(name: str) -> bool:
    """Whether a member of an archive is a folder, or what systems put beside the files of users."""
    parts = name.split("/")
    return not parts[-1] or parts[-1].startswith(".") or "__MACOSX" in parts


def _only_member(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not _is_of_the_system(name)]
    except (zipfile.BadZipFile, OSError) as error:
        raise ValueError(f"{path}: cannot be unpacked ({error}).") from None
    if len(names) != 1:
        shown = ", ".join(names[:5]) + ", ..." * (len(names) > 5)
        raise ValueError(
            f"{path}: has {len(names)} files ({shown}). Unpack it, and give the one that is meant."
        )
    return names[0]


def _separator(path: Path, text: str) -> str:
    """The separator of cells: that by which nearly all lines have the same number of cells."""
    if extension(path) == ".tsv":
        return "\t"
    head = text[:_LONGEST]
    if len(text) > _LONGEST:
        head = head[: head.rfind("\n") + 1] or head
    is_csv = extension(path) == ".csv"
    default = "," if is_csv or "," in head else "\t" if "\t" in head else " "
    widths = {each: _width(path, head, each) for each in _BETWEEN if each in head}
    best = default
    for each in _BETWEEN:
        if each == " " and (is_csv or widths.get(best, 1) > 1):
            continue  # within a cell
        if widths.get(each, 1) > max(widths.get(best, 1), 1):
            best = each
    for each in (";", "\t", "|"):
        if best == "," and widths.get(each, 1) > 1 and _has_only_values(path, head, each):
            return each  # 1,5;2,5
    if best == default and default not in head:
        # lines of several lengths, such as baskets: what most lines have
        lines = [line for line in head.split("\n") if line.strip()][:_LINES_SEEN]
        counts = {each: sum(each in line for line in lines) for each in _BETWEEN[:4]}
        most = max(counts, key=lambda each: counts[each])
        best = most if 2 * counts[most] > len(lines) else default
    return best


def _has_only_values(path: Path, head: str, separator: str) -> bool:
    """Whether all cells of the first lines are numbers, in whatever writing, or missing."""
    cells = {
        cell.strip() for _, line in _rows(path, head, separator, most=_LINES_SEEN) for cell in line
    }
    cells = {without_parentheses(cell) for cell in cells if cell.lower() not in MISSING}
    return all(any(one.matches(cell) for one in _WRITINGS) for cell in cells)


def _width(path: Path, head: str, separator: str) -> int:
    """How many cells the first line has, and nearly all after it; 1 where they differ."""
    try:
        lines = _rows(path, head, separator, most=_LINES_SEEN)
    except ValueError:
        return 1
    widths = [len(line) for _, line in lines if any(line)]
    return widths[0] if widths and widths.count(widths[0]) >= 0.9 * len(widths) else 1


def _rows(
    path: Path, text: str, separator: str, *, most: int | None = None
) -> list[tuple[int, list[str]]]:
    """The cells of lines and the lines' numbers; of the first ones that are not empty."""
    if len(separator) > 1:  # which the csv module does not know
        text, separator = text.replace(separator, "\x1f"), "\x1f"
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=separator == " "
    )
    found: list[tuple[int, list[str]]] = []
    try:
        for line in reader:
            while separator == " " and line and not line[-1]:
                line.pop()
            if most is None or any(map(str.strip, line)):
                found.append((reader.line_num, line))
            if len(found) == most:
                break
    except csv.Error as error:
        raise ValueError(
            f"{path}: line {reader.line_num} cannot be taken apart ({error}). A cell has at most "
            f"{csv.field_size_limit():,} letters; is a quote not closed, or is this no table?"
        ) from None
    return found


def _make_plain(path: Path, lines: list[tuple[int, list[str]]], separator: str) -> None:
    """Rewrites numbers such as 1.234,5 or (3) as 1234.5 and -3, in the lines that are passed."""
    full = [line for _, line in lines if any(cell.strip() for cell in line)]
    if not full or len({len(line) for line in full}) > 1:
        return
    signs: dict[str, list[str]] = {}
    negative: list[str] = []
    found: dict[int, dict[str, str]] = {}
    fitting: dict[int, list[_Writing]] = {}
    for column in range(len(full[0])):
        texts = {line[column].strip() for line in full[1:]}
        texts = {text for text in texts if text.lower() not in MISSING}
        numeric = {text for text in texts if any(map(str.isdecimal, text))}
        if 2 * len(numeric) > len(texts):
            texts = numeric  # the others are words, such as `absent`
        if not _MARKS.search(" ".join(texts)):
            continue
        first = full[0][column].strip()
        for each in (texts | {first}, texts):  # with the first line, where it has no headings
            bare, sign = _without_sign(each)
            fits = [one for one in _WRITINGS if all(map(one.matches, bare.values()))]
            if each and fits:
                break
        if not fits:
            continue
        found[column], fitting[column] = bare, fits
        name = str(column + 1) if not first or first in each else repr(first)
        if sign:
            signs.setdefault(sign, []).append(name)
        if any(map(_IN_PARENTHESES.fullmatch, each)):
            negative.append(name)
    _write_plain(path, full, found, fitting, separator)
    for sign, columns in signs.items():
        warn(f"{path}: the numbers of {_columns(columns)} are read without their {sign!r}.")
    if negative:
        warn(
            f"{path}: numbers in parentheses are read as negative, in {_columns(negative)}; if "
            "they are errors or notes, leave their lines out."
        )


def _columns(names: list[str]) -> str:
    return f"column{'s' * (len(names) > 1)} {', '.join(names[:3])}" + ", ..." * (len(names) > 3)


def _write_plain(
    path: Path,
    full: list[list[str]],
    found: dict[int, dict[str, str]],
    fitting: dict[int, list[_Writing]],
    separator: str,
) -> None:
    """Rewrites columns of numbers, in the lines that are passed, by the notations that fit them."""
    shared = [one for one in _WRITINGS if all(one in fits for fits in fitting.values())]
    decimals: list[int] = []
    for column, bare in found.items():
        fits = [one for one in shared if one in fitting[column]] or fitting[column]
        if separator == "," and fits[0] == _WRITINGS[0]:
            fits = fits[:1]  # a comma stands between cells, so that a point is a decimal one
        if len(fits) > 1 and are_called_ids(full[0][column].strip()):
            continue
        # numbers that all have as many decimals, as programs write them
        if _WRITINGS[0] in shared and all(
            re.fullmatch(r"[+-]?\d{1,3}\.\d{3}", x) for x in bare.values()
        ):
            decimals += [column + 1] * (len({one.decimal for one in fits}) > 1)
            fits = fits[:1]
        _refuse_two_ways(path, column, bare, fits)
        plain = {text: fits[0].plain(cell) for text, cell in bare.items()}
        for line in full:
            cell = line[column].strip()
            line[column] = plain.get(cell, cell)
    if decimals:
        warn(
            f"{path}: the points in the numbers of column {decimals[0]} are read as decimal ones. "
            "If they separate thousands, leave them out."
        )


def _refuse_two_ways(
    path: Path, column: int, bare: dict[str, str], fitting: list[_Writing]
) -> None:
    for other in fitting[1:]:
        for text, cell in sorted(bare.items()):
            one, two = float(fitting[0].plain(cell)), float(other.plain(cell))
            if one != two:
                raise ValueError(
                    f"{path}: column {column + 1} has numbers such as {text!r}, which may be "
                    f"{one:.10g} or {two:.10g}. Write it as either, whichever is meant."
                )


def _without_sign(texts: set[str]) -> tuple[dict[str, str], str]:
    """Numbers without a sign that all of them have, percent or a currency, and the sign.

    Those in parentheses have a minus, unless all are: then they may be errors, or notes.
    """
    bare = {text: without_parentheses(text) for text in texts}
    if all(bare[text] != text for text in texts):
        bare = {text: text for text in texts}
    for sign in "%" + _CURRENCY:
        if all(
            text.startswith(("-" + sign, sign)) or text.endswith(sign) for text in bare.values()
        ):
            return {text: cell.replace(sign, "", 1).strip() for text, cell in bare.items()}, sign
    return bare, ""


def are_written_values(texts: set[str]) -> bool:
    """Whether all texts, one at least, are numbers in one of the writings that files may have."""
    bare = list(_without_sign(texts)[0].values())
    return bool(bare) and any(all(map(one.matches, bare)) for one in _WRITINGS)


def have_decimal_commas(texts: set[str]) -> bool:
    """Whether all texts are numbers whose commas cannot separate thousands, such as ``1,5``."""
    by_comma = [all(map(one.matches, texts)) for one in _WRITINGS if one.decimal == ","]
    by_point = [all(map(one.matches, texts)) for one in _WRITINGS if one.decimal == "."]
    return bool(texts) and any(by_comma) and not any(by_point)


def without_parentheses(text: str) -> str:
    """A cell such as ``(1,234)`` with a minus in front of its number; all others as they are."""
    found = _IN_PARENTHESES.fullmatch(text)
    return text if found is None else "-" + "".join(found.groups())


def stripped_lines(path: Path, *, first: bool = False) -> tuple[list[list[str]], list[int]]:
    """The lines of a text file that are not empty, without spaces around cells, and their numbers.

    Args: first: whether the first one is enough.
    Raises ValueError: there are none.
    """
    found = [
        (line_number, [cell.strip() for cell in line])
        for line_number, line in numbered_lines(path, first=first)
    ]
    full = [(line_number, line) for line_number, line in found if any(line)]
    if not full:
        raise ValueError(f"{path}: the file has no lines.")
    return [line for _, line in full], [line_number for line_number, _ in full]


def equal_lines(path: Path) -> tuple[list[list[str]], list[int]]:
    """The lines of a text file, equally long, and their numbers; empty lines are left out."""
    lines: list[list[str]] = []
    line_numbers: list[int] = []
    full = [(line_number, line) for line_number, line in numbered_lines(path) if line]
    count = len(full)
    while full and len(full[-1][1]) > 1 and not any(map(str.strip, full[-1][1])):
        full.pop()  # spreadsheets end so
    if len(full) < count:
        warn(
            f"{path}: the last {count - len(full)} lines have nothing but empty cells; they are "
            "left out."
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
    return _without_empty_columns(path, lines), line_numbers


def _without_empty_columns(path: Path, lines: list[list[str]]) -> list[list[str]]:
    """Lines without last columns of which all cells are empty, the heading too."""
    width = max((k + 1 for line in lines for k, cell in enumerate(line) if cell.strip()), default=0)
    extra = len(lines[0]) - width
    if not (width and extra):
        return lines
    warn(f"{path}: the last {extra} columns have nothing but empty cells; they are left out.")
    return [line[:width] for line in lines]


def is_numeric(text: str) -> bool:
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
