"""Features in the columns and units of others, such as those in training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse

if TYPE_CHECKING:
    from jaxmf.data.features import Features


def in_columns_of(features: Features, known: Features, what: str) -> object:
    """The values of features in the columns of others; None where they are so already.

    Returns (N, F) numpy array or scipy.sparse matrix.
    """
    order = _order_of(features, known, what)
    pairs = [
        (features.described[position], column)
        for position, column in zip(order, known.described, strict=True)
    ]
    shift = np.array([(old.centre - new.centre) / new.scale for old, new in pairs])
    factor = np.array([old.scale / new.scale for old, new in pairs])
    if order == sorted(order) and not shift.any() and (factor == 1).all():
        return None
    matrix = scipy.sparse.csc_array(features.to_scipy())[:, order]
    if (factor != 1).any():
        matrix = matrix @ scipy.sparse.diags_array(factor, format="csc")
    if shift.any():
        matrix = matrix.toarray() + shift
    elif not features.is_sparse:
        matrix = matrix.toarray()
    return matrix


def _order_of(features: Features, known: Features, what: str) -> list[int]:
    """Where each column of others stands here."""
    labels, asked = features.labels, known.labels
    numbered = tuple(f"x{position}" for position in range(features.width))
    if labels == asked or (len(labels) == len(asked) and numbered in (labels, asked)):
        return list(range(features.width))
    here, there = ({label: k for k, label in enumerate(each)} for each in (labels, asked))
    missing = next((label for label in asked if label not in here), None)
    strange = next((label for label in labels if label not in there), None)
    if missing is None and strange is None and len(here) == features.width == known.width:
        return [here[label] for label in asked]
    difference = f"have {features.width} columns, some of one name, those in training {known.width}"
    if missing is not None:
        difference = f"have no column {missing!r}, which those in training have"
    elif strange is not None:
        difference = f"have a column {strange!r}, which those in training lack"
    raise ValueError(
        f"{what}: {difference}; make them with encode(table) of the features in training"
    )
