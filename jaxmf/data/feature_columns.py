"""Features in the columns and units of others, such as those in training."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import scipy.sparse

from jaxmf.data.encoding import Column
from jaxmf.types import Names

_Heading = tuple[str, str, str | None] | None


class DescribedFeatures(Protocol):
    """`Features`, as far as their columns are compared."""

    @property
    def ids(self) -> Names | None: ...
    @property
    def described(self) -> tuple[Column, ...]: ...
    @property
    def missing(self) -> str: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def is_sparse(self) -> bool: ...
    def with_gaps(self) -> scipy.sparse.sparray: ...


def in_columns_of(features: DescribedFeatures, known: DescribedFeatures, what: str) -> object:
    """The values of features in the columns of others; None where they are so already.

    Returns (N, F) numpy array or scipy.sparse matrix, NaN where a number was missing.
    """
    order = _order_of(features, known, what)
    _check_dates(order, features, known, what)
    pairs = [
        (new if position < 0 else features.described[position], new)
        for position, new in zip(order, known.described, strict=True)
    ]
    shift = np.array([(old.centre - new.centre) / new.scale for old, new in pairs])
    factor = np.array([old.scale / new.scale for old, new in pairs])
    if order == list(range(features.width)) and not shift.any() and (factor == 1).all():
        return None
    matrix = scipy.sparse.csc_array(features.with_gaps())
    nothing = scipy.sparse.csc_array((features.num_rows, 1))
    matrix = scipy.sparse.hstack([matrix, nothing], format="csc")[:, order]
    if (factor != 1).any():
        matrix = matrix @ scipy.sparse.diags_array(factor, format="csc")
    if shift.any():
        matrix = matrix.toarray() + shift
    elif not features.is_sparse:
        matrix = matrix.toarray()
    return matrix


def _order_of(features: DescribedFeatures, known: DescribedFeatures, what: str) -> list[int]:
    """Where each column of others stands here, -1 for a level that no line here has."""
    labels, asked = (tuple(map(_label, each.described)) for each in (features, known))
    numbered = tuple(f"x{position}" for position in range(features.width))
    if labels == asked or (len(labels) == len(asked) and numbered in (labels, asked)):
        return list(range(features.width))
    here, there = ({label: k for k, label in enumerate(each)} for each in (labels, asked))
    levels_here, levels_there = _headings_of_levels(features), _headings_of_levels(known)
    missing = _first_without(known, here, levels_here)
    strange = _first_without(features, there, levels_there)
    is_new_level = strange is not None and _heading_of(strange) in levels_there
    if len(here) != features.width or len(there) != known.width:
        widths = f"have {features.width} columns, those in training {known.width}"
        difference = f"{widths}, some of one name"
    elif missing is not None and _heading_of(missing) not in levels_here:
        difference = f"have no column {missing.label!r}, which those in training have"
    elif strange is None or (is_new_level and "zero" in (features.missing, known.missing)):
        return [here.get(label, -1) for label in asked]
    elif is_new_level:
        raise ValueError(
            f"{what}: they have the level {strange.label!r}{_first_with(strange, features)}, which "
            'those in training lack. Repair it, or make the features with missing="zero", where it '
            "has no indicator."
        )
    else:
        difference = f"have a column {strange.label!r}, which those in training lack"
    raise ValueError(
        f"{what}: they {difference}; make them of a table with the same headings, or with "
        "encode(table) of the features in training"
    )


def _first_with(column: Column, features: DescribedFeatures) -> str:
    """The id of the first line that has a level, for a message; nothing where there are no ids."""
    matrix = scipy.sparse.csc_array(features.with_gaps())
    values = matrix[:, [features.described.index(column)]].toarray()[:, 0]
    if features.ids is None or not values.any():
        return ""
    return f" of {features.ids.tolist()[int(np.argmax(values != 0))]!r}"


def _check_dates(
    order: list[int], features: DescribedFeatures, known: DescribedFeatures, what: str
) -> None:
    for position, new in zip(order, known.described, strict=True):
        if position >= 0 and features.described[position].is_date != new.is_date:
            kind = "dates" if new.is_date else "numbers"
            raise ValueError(
                f"{what}: the column {new.label!r} is of {kind} in training and is not "
                "here. Give it as it was there."
            )


def _label(column: Column) -> str:
    """The label, in which a level 2.0 is 2: pandas turns whole numbers with gaps into floats."""
    level = column.level
    if isinstance(level, float) and level.is_integer():
        column = column._replace(level=int(level))
    return column.label


def _heading_of(column: Column) -> _Heading:
    """The heading that a level is of, and how its cells are split; None of a number."""
    return None if column.level is None else (column.block, column.name, column.separator)


def _headings_of_levels(features: DescribedFeatures) -> set[_Heading]:
    return {_heading_of(column) for column in features.described} - {None}


def _first_without(
    features: DescribedFeatures, labels: dict[str, int], headings: set[_Heading]
) -> Column | None:
    """The column that another side lacks, before those that are one more level of a heading."""
    lacking = [column for column in features.described if _label(column) not in labels]
    return min(lacking, key=lambda column: _heading_of(column) in headings, default=None)
