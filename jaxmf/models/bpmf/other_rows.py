"""A draw's matrix with other rows and columns: with further ones, or of a few alone.

Vectors of those that a fit knows nothing of come from the prior of their side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from jaxmf.data import CellFeatures, Entries, Features
from jaxmf.data.container import bare, unchecked
from jaxmf.data.feature_units import in_units_of
from jaxmf.models.bpmf import queries
from jaxmf.models.bpmf.bpmf_spec import BPMFSpec
from jaxmf.models.bpmf.state import Observed
from jaxmf.priors import column_noise
from jaxmf.types import Array, Key

Spec = TypeVar("Spec", bound=BPMFSpec)


def with_unknown(model: Spec, num_new: tuple[int, int], shape: tuple[int, int]) -> Spec:
    """The model of a larger matrix; the features of further rows and columns are zero.

    Raises ValueError: further columns, where columns have units of their own.
    """
    if num_new[1] and model.has_column_units:
        raise ValueError(
            "cells: a column is not in the data, and each column has a unit of its own, which is "
            'not known of that one; leave its cells out with unknown="drop"'
        )
    sides = {"row_features": 0, "row_classes": 0, "column_features": 1, "column_classes": 1}
    larger: dict[str, object] = {
        name: _longer(features, num_new[side])
        for name, side in sides.items()
        if (features := getattr(model, name)) is not None
    }
    cells = model.cell_features
    if cells is not None:
        table = Features(np.asarray(cells.values), columns=cells.described)
        larger_shape = shape[0] + num_new[0], shape[1] + num_new[1]
        larger["cell_features"] = CellFeatures(*cells.cells(), table, larger_shape)
    return unchecked(model, **larger)


def for_new_rows(
    model: Spec, features: Features | None, num_rows: int, classes: Features | None = None
) -> Spec:
    """The model with the features of new rows instead of those of the rows in training.

    Args:
      features: of the new rows; None for zeros.
      classes: indicators of their classes; None where these are not known.
    """
    if model.row_features is not None:
        if features is None:
            features = no_features(model.row_features, num_rows)
        else:
            features = in_units_of(features, model.row_features)
    if model.row_classes is not None and classes is None:
        classes = Features(np.zeros((num_rows, model.row_classes.width)))
    cells = no_cells(model.cell_features, num_rows)
    return unchecked(model, row_features=features, row_classes=classes, cell_features=cells)


def draw_unknown(
    model: BPMFSpec, key: Key, draw: queries.Draw, data: Observed, num_new: tuple[int, int]
) -> queries.Draw:
    """The vectors of rows (N + a, D) and columns (M + b, D') of a draw, further ones drawn."""
    row_key, column_key = jax.random.split(key)
    rows = _drawn(model, row_key, draw, data, num_new[0])
    turned, turned_draw = model.transpose(), model.transpose_draws(draw)
    columns = _drawn(turned, column_key, turned_draw, data, num_new[1])
    found = {"u": rows, "v": columns}
    if model.column_noise:
        spread = jnp.asarray(draw["noise_spread"])
        least = model.least_factor(model.unit(data), jnp.asarray(draw["noise_scale"]))
        new = column_noise.sample_factors(jax.random.fold_in(key, 2), spread, least, num_new[1])
        found["noise_factors"] = jnp.concatenate([jnp.asarray(draw["noise_factors"]), new])
    return found


def _drawn(model: BPMFSpec, key: Key, draw: queries.Draw, data: Observed, num_rows: int) -> Array:
    """The rows' vectors of a draw and below them those of further rows without cells."""
    known = jnp.asarray(draw["u"])
    if num_rows == 0:
        return known
    none = jnp.zeros((0,), jnp.int32)
    shape = num_rows, jnp.asarray(draw["v"]).shape[0]
    ids = {"row_names": None, "column_names": None}
    nothing = jnp.zeros((0,), known.dtype)
    cells = bare(Entries, rows=none, columns=none, values=nothing, shape=shape, **ids)
    new = queries.fold_in(for_new_rows(model, None, num_rows), key, draw, data, cells)
    return jnp.concatenate([known, new.astype(known.dtype)])


def narrowed(
    model: Spec,
    draws: Mapping[str, np.ndarray],
    rows: np.ndarray | None,
    columns: np.ndarray | None,
) -> tuple[Spec, dict[str, np.ndarray]] | None:
    """The model and draws of the matrix of some rows and columns; see `NarrowsDraws`.

    Features of cells are found by positions in the whole matrix, so with them there is none.
    """
    if model.cell_features is not None:
        return None
    changed: dict[str, object] = {}
    names = ("u", "v", "noise_scale", "noise_factors", "thresholds")
    kept = {n: draws[n] for n in names if n in draws}
    for name, heading, chosen in (("u", "row_features", rows), ("v", "column_features", columns)):
        if chosen is None:
            continue
        kept[name] = kept[name][:, chosen]
        if name == "v":
            kept |= {n: kept[n][:, chosen] for n in ("noise_factors",) if n in kept}
            units = {"offset": model.offset, "column_unit": model.column_unit}
            changed |= {each: unit[chosen] for each, unit in units.items() if np.ndim(unit)}
        if (features := getattr(model, heading)) is not None:
            changed[heading] = _lines(features, chosen)
    return unchecked(model, **changed), kept


def _lines(features: Features, chosen: np.ndarray) -> Features:
    """Some lines of features, dense, so that their shape is that of every other such choice."""
    values = (
        scipy.sparse.csr_array(features.to_scipy())[chosen].toarray()
        if features.is_sparse
        else np.asarray(features.values)[chosen]
    )
    return unchecked(features, values=values, rows=None, columns=None, shape=values.shape, ids=None)


def no_features(features: Features, num_rows: int) -> Features:
    """Lines of zeros with the columns, and so the parts, of some features."""
    if features.is_sparse:
        lines = {name: getattr(features, name)[:0] for name in ("values", "rows", "columns")}
    else:
        lines = {"values": jnp.zeros((num_rows, features.width), features.values.dtype)}
    # inside a transformation descriptions are left out, and the class would ask for them
    return unchecked(features, **lines, shape=(num_rows, features.width), ids=None)


def no_cells(features: CellFeatures | None, num_rows: int) -> CellFeatures | None:
    """The features of cells, of which new rows have none; vectors keep their coefficients."""
    if features is None:
        return None
    return bare(
        CellFeatures,
        offsets=jnp.zeros((num_rows + 1,), features.offsets.dtype),
        columns=features.columns[:0],
        values=features.values[:0],
        shape=(num_rows, features.shape[1]),
        row_names=None,
        column_names=features.column_names,
        described=features.described,
    )


def _longer(features: Features, num_rows: int) -> Features:
    empty = scipy.sparse.coo_array((num_rows, features.width))
    matrix = scipy.sparse.vstack([features.to_scipy(), empty])
    return Features(matrix if features.is_sparse else matrix.toarray(), columns=features.described)
