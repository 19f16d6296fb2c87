"""Columns in units of their own: what models of numbers do to the data, and to their answers.

    x_ij = offset_j + column_unit_j y_ij

with y the cells that a model describes. Scales of noise and of effects are those of y; predictions,
features and densities are in the units of x.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxmf.data import Dense, Entries
from jaxmf.model import ScalesColumns
from jaxmf.types import Array


class ColumnUnits:
    """A frozen dataclass with `offset` and `column_unit` among its fields.

    Attributes:
      offset: a number, or (D,) one a column; None for 0.
      column_unit: likewise, positive; None for 1.
    """

    offset: Any
    column_unit: Any

    def log_unit(self, data: Dense | Entries, *, observed_only: bool = True) -> Array | float:
        """Sum of log `column_unit` over the cells: () float.

        The density of cells is that of the scaled ones over the product of their scales.
        """
        if self.column_unit is None:
            return 0.0
        if isinstance(data, Entries):
            return self.log_unit_of_cells(data.values, columns=data.columns)
        return self.log_unit_of_cells(data.values, data.observed if observed_only else None)

    def log_unit_of_cells(
        self, cells: Array, observed: Array | None = None, columns: Array | slice = slice(None)
    ) -> Array | float:
        """The same of an array with these columns along its last axis; of all cells of it, or some.

        Args: observed: which cells count, bool of the shape of `cells`; None for all.
        """
        if self.column_unit is None:
            return 0.0
        each = jnp.log(self.unit_at(columns).astype(cells.dtype))
        each = jnp.broadcast_to(each, cells.shape)
        return jnp.sum(each if observed is None else jnp.where(observed, each, 0))

    def unit_at(self, columns: Array | slice) -> Array:
        """The scales of some columns: (M,) float, or () one for all."""
        unit = jnp.asarray(1.0 if self.column_unit is None else self.column_unit)
        return unit[columns] if unit.ndim else unit

    def offset_at(self, columns: Array | slice) -> Array:
        """The offsets of some columns, likewise."""
        offset = jnp.asarray(0.0 if self.offset is None else self.offset)
        return offset[columns] if offset.ndim else offset

    def to_data_units(self, cells: Array, columns: Array | slice = slice(None)) -> Array:
        """Cells of some columns, along the last axis, from scaled ones."""
        cells = cells * self.unit_at(columns).astype(cells.dtype)
        return cells + self.offset_at(columns).astype(cells.dtype)

    def from_data_units(self, cells: Array, columns: Array | slice = slice(None)) -> Array:
        """Scaled cells of some columns, along the last axis: the inverse of `to_data_units`."""
        cells = cells - self.offset_at(columns).astype(cells.dtype)
        return cells / self.unit_at(columns).astype(cells.dtype)

    def in_data_units(
        self,
        mean: Array,
        variance: Array,
        columns: Array | slice = slice(None),
        *,
        levels: Array | float = 0.0,
    ) -> tuple[Array, Array]:
        """Mean and variance of cells of some columns, from those of scaled cells.

        Args:
          mean, variance: of scaled cells.
          columns: theirs, along the last axis.
          levels: offsets of their rows, which broadcast to the cells.
        """
        unit = self.unit_at(columns).astype(mean.dtype)
        offset = self.offset_at(columns).astype(mean.dtype) + jnp.asarray(levels, mean.dtype)
        return mean * unit + offset, variance * unit**2


def noise_of_columns(
    model: object, draws: Mapping[str, np.ndarray], columns: np.ndarray
) -> np.ndarray:
    """Standard deviations of the noise of some columns, in the units of the data: (..., M) float.

    Args: draws: name -> (..., shape of one), with `noise_scale`, and `noise_factors` where columns
    have noise of their own.
    """
    common = np.asarray(draws["noise_scale"], float)[..., None] * units_of(model, columns)
    return common * draws["noise_factors"][..., columns] if "noise_factors" in draws else common


def units_of(model: object, columns: np.ndarray) -> np.ndarray:
    """The units (M,) float that a model takes some columns in; 1 where all are in one."""
    unit = model.unit_at(jnp.asarray(columns)) if isinstance(model, ScalesColumns) else 1.0
    return np.broadcast_to(np.asarray(unit, float), columns.shape)
