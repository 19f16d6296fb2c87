"""Questions about new rows and new columns, of models that have features or two sides alike."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import numpy as np

from jaxmf.arguments import check_object
from jaxmf.data import Entries, Features, MatrixContainer, units
from jaxmf.data.checks import shown_id
from jaxmf.data.container import bare
from jaxmf.model import Model, TakesNewColumns, TakesRowFeatures, settings_of
from jaxmf.posterior.draws import Draws

_Draws = TypeVar("_Draws", bound=Draws)
Rows = TypeVar("Rows")


def rows_without_cells(posterior: Draws, features: object, new_rows: Rows) -> Rows | Entries:
    """New rows of which nothing but features is known, where no others are passed."""
    if features is None or new_rows is not None:
        return new_rows
    _, features = with_row_features(posterior.model, features)
    none = np.zeros(0, np.int32)
    shape = features.num_rows, posterior.data.num_columns
    fields = {"rows": none, "columns": none, "values": np.zeros(0, np.float32), "shape": shape}
    names = {"row_names": features.ids, "column_names": posterior.data.column_names}
    return bare(Entries, **fields, **names)


def model_of_new(posterior: Draws, target: MatrixContainer, features: object) -> Model:
    """The model for questions about new rows, with their features and classes.

    Args: target: the new rows, as a container; features: of the new rows, or None.
    Raises ValueError: features of a model that was fitted without, or others than these.
    """
    model, new_features, classes = posterior.model, None, None
    if features is not None:
        model, new_features = with_row_features(model, features)
        new_features = new_features.match(target.row_names, size=target.num_rows, what="features")
        training = model.row_classes
        if training is not None:
            heading = training.described[0].name
            new_features, classes = new_features.separate(heading)
            classes = _same_columns(classes, training, repr(heading))
        new_features = _same_columns(new_features, model.row_features, "features")
    if not isinstance(model, TakesRowFeatures):
        return model
    classes_of_rows = {} if classes is None else {"classes": classes}
    return model.for_new_rows(new_features, target.num_rows, **classes_of_rows)


def _same_columns(
    features: Features | None, training: Features | None, name: str
) -> Features | None:
    """Features with the columns of those in training; both are None where there are none."""
    if features is not None and training is not None:
        return features.in_columns_of(training, what=name)
    widths = [0 if one is None else one.width for one in (features, training)]
    if widths[0] != widths[1]:
        raise ValueError(
            f"{name}: have {widths[0]} columns, those in training {widths[1]}; make them with "
            "encode(table) of the features in training"
        )
    return features


def with_row_features(
    model: object, features: object, name: str = "row_features"
) -> tuple[TakesRowFeatures, Features]:
    """The model and the features; refuses these where rows in training had none."""
    features = check_object(name, features, Features, "Features.from_pandas(table)")
    if not isinstance(model, TakesRowFeatures) or (
        model.row_features is None and model.row_classes is None
    ):
        raise ValueError(
            f"{name}: this {type(model).__name__} was fitted without features of that side; leave "
            "them out"
        )
    return model, features


def posterior(posterior: _Draws) -> _Draws:
    """The posterior of the transposed data: rows and columns exchanged.

    Raises:
        ValueError: the model's sides are not alike.
    """
    model = posterior.model
    if not isinstance(model, TakesNewColumns):
        raise ValueError(
            f"new_columns: {type(model).__name__} takes none, nor column_features; see new_rows"
        )
    if "noise_factors" in posterior.draws:
        raise ValueError(
            "new_columns: nothing is known of the noise of a new column where each has noise of "
            "its own; fit without column_noise, or with the new columns among the data"
        )
    return dataclasses.replace(
        posterior,
        model=model.transpose(),
        data=transpose(posterior.data),
        draws=model.transpose_draws(posterior.draws),
        run=None,
    )


def transpose(data: Entries) -> Entries:
    """The transposed matrix."""
    shape = data.num_columns, data.num_rows
    fields = {"rows": data.columns, "columns": data.rows, "values": data.values, "shape": shape}
    names = {"row_names": data.column_names, "column_names": data.row_names}
    return bare(Entries, **fields, **names)


def units_of_new(model: Model, new: Entries | None) -> tuple[np.ndarray, np.ndarray] | None:
    """Offsets and units of new columns, which are rows here; None where columns have none.

    Those one a column in training are means and standard deviations of the cells of new ones.

    Raises ValueError: a column whose cells do not show its unit.
    """
    settings = settings_of(model)
    offset: Any = settings.get("offset")
    unit: Any = settings.get("column_unit")
    if unit is None and np.ndim(offset) == 0:
        return None
    unit = 1.0 if unit is None else unit
    if np.ndim(unit):
        unit = np.zeros(1) if new is None else units.column_scales(transpose(new))
        if not unit.all():
            column = "one" if new is None else shown_id(new.row_names, int(np.argmin(unit)))
            raise ValueError(
                "new_columns: columns have units of their own, which the cells of column "
                f"{column} do not show; give two different ones of each, or leave it out"
            )
    if np.ndim(offset):
        offset = 0.0 if new is None else units.column_means(transpose(new))
    size = 1 if new is None else new.num_rows
    return np.broadcast_to(np.float64(offset), size), np.broadcast_to(np.float64(unit), size)
