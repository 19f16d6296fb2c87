"""Ids of new data matched with those of the data that a model was fitted to.

Columns, items and words are matched by id wherever both sides have ids, and by position where one
of them has none. `align_columns` of the containers and `append_rows` of `Dense` stand on this.
"""

from collections.abc import Sequence

import numpy as np

from jaxmf.data.names import object_array
from jaxmf.types import Names
from jaxmf.user_warnings import warn

UNKNOWN = ("error", "drop", "prior")
"""What to do with an id that the data lacks: refuse it, leave it out, or answer from the prior."""


def check_unknown(unknown: object, allowed: Sequence[str]) -> None:
    """Refuses another word than those that a question takes."""
    if unknown in allowed:
        return
    words = " or ".join(f'"{word}"' for word in allowed)
    raise ValueError(f"unknown: takes {words} here, got {unknown!r}")


def matched_positions(
    names: Names | None,
    known: Names | None,
    *,
    sizes: tuple[int, int],
    argument: str,
    word: str = "column",
    unknown: str = "error",
    can_drop: bool = True,
) -> np.ndarray:
    """Where each new column, or level, stands among the known ones.

    Args:
        names: ids of the new ones, or None.
        known: ids of those of the data, or None.
        sizes: how many new and how many known ones there are.
        unknown: "error", or "drop" for -1 instead of an id that the data lacks.
        can_drop: whether the message may name that option.
    Returns:
        (new,) int64 positions among the known ones. Without ids on one of the sides 0, 1, 2, ...
    Raises:
        ValueError: an unknown id; other sizes where one of the sides has no ids.
    """
    check_unknown(unknown, ("error", "drop"))
    if names is None or known is None:
        if sizes[0] == sizes[1]:
            return np.arange(sizes[0])
        raise ValueError(_sizes_differ(names, known, sizes, argument, word))
    table = {name: position for position, name in enumerate(known.tolist())}
    found = np.array([table.get(name, -1) for name in names.tolist()], np.int64)
    if unknown == "error" and (found < 0).any():
        raise ValueError(_unknown_id(names, known, found, argument, word, can_drop))
    return found


def check_complete(positions: np.ndarray, known: Names | None, size: int, *, argument: str) -> None:
    """Refuses new data that lack a known column."""
    there = np.zeros(size, bool)
    there[positions[positions >= 0]] = True
    if there.all():
        return
    assert known is not None  # without ids the sizes are equal
    first = known.tolist()[int(np.argmin(there))]
    raise ValueError(
        f"{argument}: has no column {first!r}, which the data has ({int((~there).sum())} of {size} "
        f"are not there). Add it, with NaN where its cells were not observed."
    )


def warn_of_dropped(kept: np.ndarray, documents: np.ndarray | None, *, argument: str) -> None:
    """Says how many tokens are left out, where that changes what an answer means.

    Args:
        kept: (T,) bool.
        documents: (T,) the document of each token, if there are documents.

    Warns:
        UserWarning: more than half of the tokens are left out, or all those of a document.
    """
    num_dropped = int((~kept).sum())
    without = ""
    if documents is not None:
        count = np.unique(documents).size - np.unique(documents[kept]).size
        if count:
            without = f"; {count:,} document{'s' * (count > 1)} had no other token"
    if 2 * num_dropped > kept.size or without:
        warn(
            f"{argument}: {num_dropped:,} of {kept.size:,} tokens are unknown to the data and were "
            f"left out{without}"
        )


def continued_names(
    old: Names | None, new: Names | None, *, sizes: tuple[int, int], argument: str
) -> Names | None:
    """Ids of rows and of further rows below them; None where neither have any.

    Ids 0, 1, 2, ..., as a table has them by default, continue those of the rows above.

    Args: old: ids of the rows there are, or None; new: ids of the further ones, or None.
    Raises ValueError: a further row has the id of a row above.
    """
    if old is None and new is None:
        return None
    above = list(range(sizes[0])) if old is None else old.tolist()
    table = {name: position for position, name in enumerate(above)}
    below = list(range(sizes[1])) if new is None else new.tolist()
    asked = below
    collide = new is None or _are_positions(above) or any(name in table for name in below)
    if _are_positions(below) and collide:
        below = list(range(sizes[0], sizes[0] + sizes[1]))
    for position, name in enumerate(below):
        if name in table:
            raise ValueError(
                f"{argument}: the row with the id {asked[position]!r} at position {position} would "
                f"have the id {name!r} of the row at position {table[name]} of the data. Ids must "
                "be unique; rename it, or give further rows ids of their own."
            )
    if old is not None and new is not None and old.dtype == new.dtype and below is asked:
        return np.concatenate([old, new])
    return object_array([*above, *below])


def _are_positions(names: list[object]) -> bool:
    return all(type(name) is int and name == position for position, name in enumerate(names))


def _sizes_differ(
    names: Names | None, known: Names | None, sizes: tuple[int, int], argument: str, word: str
) -> str:
    shown = f"{argument} has {sizes[0]} {word}s, the data has {sizes[1]}"
    if names is None and known is None:
        return f"{shown}; without ids they are taken by position, so there must be as many"
    without = argument if names is None else "the data"
    return (
        f"{shown}, and {without} has no ids to match them by. Give both sides ids, or as many "
        f"{word}s in the same order"
    )


def _unknown_id(
    names: Names, known: Names, found: np.ndarray, argument: str, word: str, can_drop: bool
) -> str:
    position = int(np.argmax(found < 0))
    first, example = names.tolist()[position], known.tolist()[0]
    shown = ", ".join(map(repr, known[:3].tolist()))
    kinds = ""
    if type(first) is not type(example):
        kinds = f" The ids of the data are {type(example).__name__}, this {type(first).__name__}."
    remedy = f' or leave such {word}s out with unknown="drop"' if can_drop else " or drop it"
    return (
        f"{argument}: the {word} {first!r} at position {position} is not one of the {len(known)} "
        f"{word}s of the data ({int((found < 0).sum())} of {len(names)} are unknown), which are "
        f"{shown}{', ...' if len(known) > 3 else ''}.{kinds} Rename it,{remedy}; without ids they "
        "are taken by position."
    )
