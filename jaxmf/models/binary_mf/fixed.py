"""Known features of rows and columns: their values, and their ids until the data are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import jax
import numpy as np

from jaxmf.data import Dense, Features
from jaxmf.data.checks import as_numeric
from jaxmf.data.container import is_frame, peel
from jaxmf.data.frames import as_pandas
from jaxmf.models.binary_mf.binary_mf_spec import BinaryMFSpec
from jaxmf.priors import hyper

Spec = TypeVar("Spec", bound=BinaryMFSpec)

SIDES = {"fixed_row_features": "row", "fixed_column_features": "column"}


def as_fixed(name: str, features: Any) -> Features | np.ndarray | None:
    """Zeros and ones as a bool array, or as `Features` where they have ids.

    Raises TypeError, ValueError: no matrix of zeros and ones.
    """
    if features is None or hyper.is_placeholder(features):
        return features
    if isinstance(features, Features):
        if any(hyper.is_placeholder(leaf) for leaf in jax.tree.leaves(features)):
            return features
        array, ids = features.to_array(), features.ids
    else:
        features = as_pandas(features)
        try:
            table = peel(name, features) if is_frame(features) else None
        except TypeError as error:
            raise TypeError(
                f"{error} Of groups that are texts pass pandas.get_dummies(table)."
            ) from None
        array = as_numeric(name, features if table is None else table.values)
        ids = None if table is None else table.row_names
    if array.ndim != 2:
        raise ValueError(
            f"{name} must be a matrix (rows, features), got shape {array.shape}; for one feature "
            "pass [:, None] of an array, .to_frame() of a Series"
        )
    if not np.isin(array, (0, 1)).all():
        where = tuple(int(i) for i in np.argwhere(~np.isin(array, (0, 1)))[0])
        raise ValueError(f"{name} must be 0 or 1, got {array[where]} at {where}")
    if ids is None:
        return array.astype(bool)
    return features if isinstance(features, Features) else Features(array.astype(float), ids)


def bits(features: Features | np.ndarray | None) -> np.ndarray | None:
    """The known features as they stand, (I, F); a bool array where they were matched."""
    return features.to_array() if isinstance(features, Features) else features


def matched(model: Spec, data: Dense) -> Spec:
    """The model with its known features in the order of the rows and columns of the data.

    They are matched by id where both sides have ids, else by position.

    Raises ValueError: a row or column of the data without known features.
    """
    found: dict[str, Any] = {}
    for name, word in SIDES.items():
        features, ids = getattr(model, name), getattr(data, f"{word}_names")
        if not isinstance(features, Features):
            continue
        if ids is not None:
            features = features.match(ids, what=name)
        found[name] = features.to_array().astype(bool)
    return replace(model, **found) if found else model


def check_fit(model: BinaryMFSpec, data: Dense, name: str) -> None:
    """Refuses known features of other numbers of rows, or columns, than the data has."""
    for setting, word in SIDES.items():
        features, size = getattr(model, setting), getattr(data, f"num_{word}s")
        is_of_training = word == "row" and name != "data"
        known = bits(features)
        if known is None or is_of_training or known.shape[0] == size:
            continue
        raise ValueError(
            f"{setting} has {known.shape[0]} {word}s, {name} has {size}; they must be equal"
        )
