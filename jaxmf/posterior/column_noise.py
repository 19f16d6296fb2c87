"""The noise of cells, column by column."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from jaxmf import diagnostics
from jaxmf.answers import Answer
from jaxmf.column_units import units_of
from jaxmf.data import Dense, Entries
from jaxmf.data.names import ids_or_positions
from jaxmf.posterior.draws import Draws


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ColumnNoise(Answer):
    """Standard deviations of the noise of cells, column by column.

    Args:
        mean: (D,) float, over draws.
        sd: (D,) float, likewise.
        bounds: (2, D) float, 5 and 95 % quantiles over draws.
        units: (D,) float, what a column was divided by; 1 where all have one unit.
        column_names: D ids, or positions.
    """

    mean: np.ndarray
    sd: np.ndarray
    bounds: np.ndarray
    units: np.ndarray
    column_names: np.ndarray

    _axes: ClassVar = {"mean sd units": "column", "bounds": "bound column"}

    def coordinates(self) -> dict[str, object]:
        return {"column": self.column_names, "bound": [0.05, 0.95]}

    def __len__(self) -> int:
        return self.mean.size

    def table(self) -> dict[str, np.ndarray]:
        """Columns of a table with one line for each column of the data."""
        ends = {"5%": self.bounds[0], "95%": self.bounds[1]}
        return {"column": self.column_names, "mean": self.mean, "sd": self.sd} | ends


def column_noise(posterior: Draws) -> ColumnNoise:
    """The standard deviation of the noise of every column, in the unit of the data.

    Where a model takes columns in units of their own (`column_unit`), `noise_scale` is in
    these, and this is their product; with `column_noise=True` times the factor of the column.

    Raises:
        ValueError: the model has no Gaussian noise.
    """
    data, noise = posterior.data, posterior.draws.get("noise_scale")
    if noise is None or noise.ndim != 2 or not isinstance(data, Dense | Entries):
        raise ValueError(
            f"column_noise: this {type(posterior.model).__name__} has no noise_scale; it is for "
            "Gaussian cells of a matrix"
        )
    weights = posterior.weights.ravel()
    factors = posterior.draws.get("noise_factors", np.ones((*noise.shape, 1)))
    scales = (noise[..., None] * factors.astype(float)).reshape(weights.size, -1)
    mean = weights @ scales
    sd = np.sqrt(weights @ (scales - mean) ** 2)
    ends = [diagnostics.weighted_quantile(each, weights, (0.05, 0.95)) for each in scales.T]
    units = units_of(posterior.model, np.arange(data.num_columns))
    names = ids_or_positions(data.column_names, data.num_columns)
    return ColumnNoise(mean * units, sd * units, np.stack(ends, axis=1) * units, units, names)
