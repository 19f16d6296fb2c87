"""Ids of rows and columns: of any type, kept on the host and returned with results."""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxmf.arguments import meant
from jaxmf.data.checks import as_index
from jaxmf.data.long_arrays import blocks
from jaxmf.types import Names
from jaxmf.user_warnings import warn

_IDS_AT_ONCE = 2**16
_MOST_COMPARED = 10_000  # ids among which one like another is looked for


class Positions(NamedTuple):
    """Rows, or cells, by position counted from 0, whatever the ids of the data are.

    Where data have ids, questions take ids; this says that positions are meant.

    Args:
        rows: (M,) whole numbers.
        columns: (M,) likewise, of cells; left out where a question is about rows.
    Example:
        >>> Positions([0, 3], [2, 2]).columns
        [2, 2]
    """

    rows: Any
    columns: Any = None


def as_names(argument: str, names: object, *, size: int | None = None) -> Names | None:
    """The ids as an array that keeps their types; None stays None.

    Scalars of NumPy in a list become the numbers and texts that they are, so that they can be
    saved.

    Raises TypeError: no list of ids, or an id that cannot be hashed. ValueError: not one id for
    each row or column, an id that is missing, or one that stands twice.
    """
    if names is None:
        return None
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise TypeError(
            f"{argument}: is {names!r}; a list with one id for each is needed, such as ['a', 'b']."
        )
    array = _plain(object_array(names))
    if size is not None and len(array) != size:
        raise ValueError(
            f"{argument}: {len(array)} ids for {size} {'rows' if 'row' in argument else 'columns'}."
            " Give one id for each, in order."
        )
    seen: dict[Hashable, int] = {}
    for position, name in enumerate(array.tolist()):
        if is_missing_id(name):
            raise ValueError(
                f"{argument}: the id at position {position} is missing ({name!r}). "
                "Give every one an id, or none at all."
            )
        try:
            stands_before = name in seen
        except TypeError:
            raise TypeError(
                f"{argument}: the id {name!r} at position {position} cannot be hashed. Use "
                "numbers, strings or tuples."
            ) from None
        if stands_before:
            raise ValueError(
                f"{argument}: the id {name!r} stands at positions {seen[name]} and {position}. "
                f"Ids must be unique; rename them{_how_to_rename(argument)}."
            )
        seen[name] = position
    _warn_of_alike(argument, seen)
    return array


def _warn_of_alike(argument: str, ids: Collection[Hashable]) -> None:
    """Says that two ids differ in type alone, as 1 and "1" of two tables put together."""
    if len({isinstance(name, str) for name in ids}) < 2:
        return
    for name in ids:
        text = str(name)
        if not isinstance(name, str) and text in ids:
            warn(
                f"{argument}: {name!r} ({type(name).__name__}) and {text!r} (str) are two ids; "
                "where they should be one, make all of one type, such as by map(str, ids)"
            )
            return


def _how_to_rename(argument: str) -> str:
    """In pandas and AnnData, where it is plain whether ids are of rows or of columns."""
    if "column" in argument:
        count = "df.T.groupby(level=0).cumcount().astype(str)"
        return (
            f" (df.columns = df.columns.astype(str) + '-' + {count}, or "
            "adata.var_names_make_unique()), or average columns of one id "
            "(df.T.groupby(level=0).mean().T)"
        )
    if "row" in argument:
        count = "df.groupby(level=0).cumcount().astype(str)"
        return (
            f" (df.index = df.index.astype(str) + '-' + {count}, or "
            "adata.obs_names_make_unique()), or average rows of one id (df.groupby(level=0).mean())"
        )
    return ""


def _plain(array: np.ndarray) -> np.ndarray:
    """The ids without NumPy's scalars among objects; dates stay what they are."""
    if not array.dtype.hasobject:
        return array
    plain = [
        name.item() if isinstance(name, np.generic) and name.dtype.kind in "biufSU" else name
        for name in array.tolist()
    ]
    return _fitting_array(plain, array.dtype)


def is_missing_id(name: object) -> bool:
    """Whether an id is None, NaN or another value that is not equal to itself."""
    if name is None:
        return True
    different = name != name
    return different is not False and not (
        isinstance(different, (bool, np.bool_)) and not different
    )


def encode(argument: str, ids: object) -> tuple[np.ndarray, Names]:
    """Positions (T,) int32 of the ids among the unique ones, and these in order of appearance.

    Raises ValueError: an id is missing. TypeError: an id cannot be hashed.
    """
    array = object_array(ids)
    table: dict[Hashable, int] = {}
    codes = np.empty(len(array), np.int32)
    for some in blocks(len(array), _IDS_AT_ONCE):
        _encode_block(argument, array[some], table, codes[some], some.start)
    return codes, _fitting_array(list(table), array.dtype)


def _encode_block(
    argument: str, ids: np.ndarray, table: dict[Hashable, int], codes: np.ndarray, start: int
) -> None:
    """Write the codes of some ids, adding those that are new to the table."""
    if ids.dtype.kind in "iu":
        unique, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
        order = np.argsort(first)
        found = np.empty(len(unique), np.int32)
        found[order] = [table.setdefault(name, len(table)) for name in unique[order].tolist()]
        codes[:] = found[inverse]
        return
    for position, name in enumerate(ids.tolist()):
        if is_missing_id(name):
            raise ValueError(
                f"{argument}: the id at line {start + position} is missing ({name!r}). "
                "Drop these lines (in pandas: df.dropna(subset=[...])) or give them an id."
            )
        try:
            codes[position] = table.setdefault(name, len(table))
        except TypeError:
            raise TypeError(
                f"{argument}: the id {name!r} at line {start + position} cannot be hashed. "
                "Use numbers, strings or tuples."
            ) from None


def positions(
    argument: str, ids: object, *, names: Names | None, size: int, line: str | None = None
) -> np.ndarray:
    """Positions (T,) int32 of ids; where the data has no ids, they are the positions themselves.

    Args:
        names: the ids of the data, or None.
        line: what one of them is called, such as "row"; the argument without its s unless given.
    Raises:
        ValueError: an id that the data does not have.
    """
    if isinstance(ids, Positions):
        ids, names = ids.rows, None
    if names is None:
        return as_index(argument, np.atleast_1d(np.asarray(ids)), size=size)
    if isinstance(ids, (str, tuple)) or not isinstance(ids, Iterable):
        ids = [ids]
    line = argument.removesuffix("s") if line is None else line
    table = {name: position for position, name in enumerate(names.tolist())}
    array = object_array(ids)
    found = np.empty(len(array), np.int32)
    for some in blocks(len(array), _IDS_AT_ONCE):
        for position, name in enumerate(array[some].tolist(), some.start):
            if not isinstance(name, Hashable) or name not in table:
                raise ValueError(
                    f"{argument}: no {line} has the id {name!r}.{_nearest(name, table)} The ids of "
                    f"this data are {_first_ids(names)}."
                )
            found[position] = table[name]
    return found


def _first_ids(names: Names) -> str:
    """The first ids of data and, where all are of one, their type."""
    shown = ", ".join(repr(name) for name in names[:3].tolist()) + ", ..." * (len(names) > 3)
    kinds = {type(name).__name__ for name in names.tolist()}
    return f"{shown} ({kinds.pop()})" if len(kinds) == 1 else shown


def _nearest(name: object, known: Iterable[Hashable]) -> str:
    """The id most like one that is not known, or the first that begins with it, as a question."""
    texts = {str(each): each for each in known}
    if str(name) in texts:
        return f" Is {texts[str(name)]!r} meant?"  # of another type
    if not isinstance(name, str) or len(texts) > _MOST_COMPARED:
        return ""
    starting = [each for text, each in texts.items() if name and text.startswith(name)]
    words = [each for each in texts.values() if isinstance(each, str)]
    return f" Is {starting[0]!r} meant?" if starting else meant(name, words, quoted=True)


def counts_from_zero(index: object, size: int) -> bool:
    """Whether an index is 0, 1, 2, ..., as of a table that was never given ids."""
    if not hasattr(index, "tolist"):
        return False
    values = np.asarray(index)
    return values.dtype.kind in "iu" and np.array_equal(values, np.arange(size))


def ids_or_positions(names: Names | None, size: int) -> np.ndarray:
    """The ids of rows or columns, (size,); their positions where the data has none."""
    return np.arange(size) if names is None else np.asarray(names)


def titled(names: Names | None, titles: object, size: int) -> np.ndarray:
    """Titles of rows or columns, (size,), as objects; ids, or positions, of those without one.

    Args:
        names: the ids, or None.
        titles: a mapping, or Series with an index, from ids to titles; one for each in the order
            of the data; or None.
    Raises:
        TypeError: neither a mapping nor a list.
        ValueError: another count, or a mapping without any of the ids; a Series that has an id
            twice, or whose index is no ids.
    """
    known = ids_or_positions(names, size).astype(object)
    if titles is None:
        return known
    index = getattr(titles, "index", None)
    titles = series_as_mapping("titles", titles)
    if isinstance(titles, Mapping) and counts_from_zero(index, size) and {*titles} != {*known}:
        raise ValueError(
            f"titles: the index of this Series counts from 0, and {known.tolist()[0]!r} is an id "
            "of the data; give it ids as its index, or pass list(titles) in the order of the data"
        )
    if isinstance(titles, Mapping):
        if titles and not any(name in titles for name in known.tolist()):
            raise ValueError(
                f"titles: none of its {len(titles)} ids, such as {next(iter(titles))!r}, is one of "
                f"the data, such as {known.tolist()[0]!r}. Check their types"
            )
        return _fitting_array([titles.get(name, name) for name in known.tolist()], known.dtype)
    if isinstance(titles, str | bytes) or not isinstance(titles, Collection):
        raise TypeError(
            f"titles: must be a mapping from ids to titles, or one title for each, got {titles!r}"
        )
    if len(titles) != size:
        raise ValueError(
            f"titles: are {len(titles)}, and there are {size} to be named; give one for "
            "each in the order of the data, or a mapping from ids"
        )
    return _fitting_array(list(titles), known.dtype)


def series_as_mapping(argument: str, values: object) -> object:
    """A pandas Series as a mapping from its index; all else as it is.

    Raises TypeError: a table. ValueError: an id is twice in the index.
    """
    if not hasattr(values, "to_dict"):
        return values
    if hasattr(values, "columns"):
        raise TypeError(f"{argument}: is a table; pass one of its columns, with ids as its index")
    if not getattr(getattr(values, "index", None), "is_unique", False):
        raise ValueError(f"{argument}: has an id twice; pass one value for each id")
    mapping: object = values.to_dict()
    return mapping


def object_array(names: Any) -> np.ndarray:
    """One axis of ids with their types kept; tuples stay whole."""
    if hasattr(names, "to_numpy"):
        names = names.to_numpy()
    if isinstance(names, np.ndarray) and names.ndim == 1:
        return names
    return _fitting_array(list(names), np.dtype(object))


def _fitting_array(names: list[object], dtype: np.dtype) -> np.ndarray:
    if not dtype.hasobject:
        return np.asarray(names, dtype)
    array = np.empty(len(names), object)
    for position, name in enumerate(names):
        array[position] = name
    return array


def ids(texts: Sequence[str]) -> np.ndarray:
    """Whole numbers where all are written as such, without leading zeros; else texts."""
    try:
        found = [int(text) for text in texts]  # those written otherwise differ from their texts
    except ValueError:
        found = []
    if [str(value) for value in found] == list(texts):
        return np.asarray(found)
    return object_array(list(texts))
