"""What the columns of a table are, by their headings: ids of rows and columns, values, times."""

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

_WORDS = {
    "row": "row order invoice receipt transaction basket ticket session user uid customer client "
    "member membernumber person reviewer visitor subject respondent reader account kunde nutzer "
    "benutzer leser utilisateur lecteur usuario cliente lector leitor utente klant gebruiker "
    "ユーザー 利用者 顧客 用户",
    "column": "column col item iid movie film product book isbn song track artist asin anime game "
    "joke business restaurant recipe artikel produkt buch itemdescription stockcode produit livre "
    "producto pelicula libro articulo prodotto produto livro filme boek 商品 映画 书",
    "value": "rating value score star vote grade preference bookrating bewertung wertung punkte "
    "puntuacion valoracion calificacion avaliacao nota voto 評価 评分",
    "time": "time timestamp date datetime unixtime unixreviewtime reviewtime ts created datum zeit "
    "fecha hora horodatage 日付 日時 日期 时间",
    "index": "index unnamed rownames linenumber",
}
_OF_ROWS = (
    "id pid sid uid patient patnr patno patientnr sample specimen participant student pupil case "
    "gene cell barcode document doc resp respnr respid vp vpn code nr lfdnr"
)
_COUNTED = ("order", "account")  # or how many of them
_DIGITS = re.compile(r"[+-]?[\d.,]*\d[\d.,]*([eE][+-]?\d+)?")
_IDS = re.compile(r"|(.*[ _-])?ids?|index|unnamed: 0")


class Roles(NamedTuple):
    """Positions of columns, and whether headings name both rows and columns."""

    row: int
    column: int
    value: int | None
    time: int | None
    is_named: bool


def roles(headings: Sequence[str], *, with_value: bool = True) -> Roles | None:
    """Where the ids of rows and columns stand, and the values; None where headings do not say.

    Columns of times and line numbers are passed over. Two columns that are left beside values are
    rows and columns in this order, unless their headings say otherwise.

    Args: with_value: whether there must be a column of values.
    """
    kinds = kinds_of(headings)
    return None if kinds is None else assign_roles(kinds, with_value=with_value)


def kinds_of(headings: Sequence[str]) -> list[str | None] | None:
    """Role of each heading: row, column, value, time or index, or None; None for a line of data.

    It is one where a cell is a number.
    """
    if any(_DIGITS.fullmatch(heading.strip()) for heading in headings):
        return None
    return [_kind(heading) for heading in headings]


def assign_roles(kinds: Sequence[str | None], *, with_value: bool) -> Roles | None:
    """The columns by what is known of each; see `roles`."""
    value = _only(kinds, "value")
    row, column = _only(kinds, "row"), _only(kinds, "column")
    left = [index for index, kind in enumerate(kinds) if kind is None]
    if with_value and value is None and row is not None and column is not None and len(left) == 1:
        value, left = left[0], []
    if row is None or column is None:
        known = [index for index in (row, column) if index is not None]
        both = sorted(known + left)
        if len(both) != 2 or kinds.count("row") > 1 or kinds.count("column") > 1:
            return None
        if row is None and column is None:
            row, column = both
        else:
            other = next(index for index in both if index not in known)
            row, column = (other, column) if row is None else (row, other)
    if row is None or column is None or (with_value and value is None):
        return None
    return Roles(row, column, value, _only(kinds, "time"), {"row", "column"} <= set(kinds))


def misplaced(headings: Sequence[str]) -> str | None:
    """A heading that says that the first three columns are not rows, columns and values."""
    kinds = [_kind(heading) for heading in headings]
    return next(
        (
            heading
            for index, (heading, kind) in enumerate(zip(headings, kinds, strict=True))
            if (kind in ("value", "time") and index < 2)
            or (kind == "time" and index == 2)
            or (kind == "value" and index > 2 and kinds[2] != "value")
        ),
        None,
    )


def column_of_ids(headings: Sequence[str]) -> int:
    """Which column of a table about users or items holds their ids: the first, or the second.

    The second where the first is the line number that pandas writes, and the second is of ids.
    """
    is_numbered = len(headings) > 1 and headings[0].lower() in ("", "unnamed: 0")
    follows = is_numbered and headings[1] != ""
    return int(follows and are_called_ids(headings[1]))


def holds_ids(heading: str) -> bool:
    """Whether a first column with this heading holds ids, whatever these look like."""
    return _IDS.fullmatch(heading.strip().lower()) is not None


def are_called_ids(heading: str) -> bool:
    """Whether a column with this heading, first or not, holds ids of rows or columns."""
    return holds_ids(heading) or _kind(heading) in ("row", "column")


def names_rows(heading: str) -> bool:
    """Whether a first column of numbers that all differ is likely to hold ids by its heading.

    Not by one in the plural, such as ``sessions``, of which the numbers are counts.
    """
    name = re.sub(r"[^a-z]", "", heading.lower())
    is_row = _kind(heading, plural=False) == "row" and name not in _COUNTED
    return is_row or name in _OF_ROWS.split()


def are_numbered(headings: Sequence[str]) -> bool:
    """Whether all cells but perhaps the first are one word followed by 1, 2, 3, and so on."""
    for cells in (headings, headings[1:]):
        found = [re.fullmatch(r"(.*[^\W\d])[\s_.-]*(\d+)", cell) for cell in cells]
        if len(cells) > 1 and all(found):
            words = {each[1] for each in found if each is not None}
            ends = [int(each[2]) for each in found if each is not None]
            if len(words) == 1 and ends == list(range(1, len(cells) + 1)):
                return True
    return False


def _plain(text: str) -> str:
    """In lower case, and without accents."""
    return "".join(
        c for c in unicodedata.normalize("NFKD", text.lower()) if c.isalnum() or c == " "
    )


_KINDS = {kind: frozenset(_plain(words).split()) for kind, words in _WORDS.items()}


def _kind(heading: str, *, plural: bool = True) -> str | None:
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", heading.strip())
    words = _plain(re.sub(r"[\W\d_]+", " ", text)).split()
    if not words and not text:
        return "index"
    while len(words) > 1 and words[-1] in ("id", "ids", "no", "nr", "number", "code"):
        words.pop()
    name = "".join(words)
    forms = {name, name.removesuffix("id"), name.removesuffix("s" * plural)}
    return next((kind for kind, names in _KINDS.items() if forms & names), None)


def _only(kinds: Sequence[str | None], kind: str) -> int | None:
    return kinds.index(kind) if kinds.count(kind) == 1 else None
