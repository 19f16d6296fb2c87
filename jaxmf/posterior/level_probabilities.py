"""The probability of each value of cells that have a finite set of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxmf.answers import ArrayAnswer
from jaxmf.data import MatrixContainer
from jaxmf.data.checks import shown_id
from jaxmf.data.names import ids_or_positions
from jaxmf.model import ScoresCellsOfNewRows, lacks
from jaxmf.posterior import prediction
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.named_cells import Cells


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Probabilities(ArrayAnswer):
    """The probabilities of V values of M cells; it may be used as an array.

    Args:
        values: (M, V) float; rows sum to one.
        levels: (V,) float, the values that cells may have; of columns with other values those of
            all columns that were asked for, with probability 0 for one that a column has not.
        rows: (M,) ids of the rows, or positions.
        columns: (M,) ids of the columns, or positions.
    """

    values: np.ndarray
    levels: np.ndarray
    rows: np.ndarray
    columns: np.ndarray

    def table(self) -> dict[str, np.ndarray]:
        """Columns of a table with one line a cell: its ids, and a column for each value."""
        levels = (f"{level:g}" for level in self.levels)
        ids = {"row": self.rows, "column": self.columns}
        return ids | dict(zip(levels, self.values.T, strict=True))

    def coordinates(self) -> dict[str, object]:
        ids = {"row": ("cell", self.rows), "column": ("cell", self.columns)}
        return {"level": self.levels, **ids}

    def variables(self) -> dict[str, tuple[Sequence[str], np.ndarray]]:
        return {"probability": (("cell", "level"), self.values)}


def named(data: MatrixContainer, where: Cells, values: np.ndarray, levels: object) -> Probabilities:
    """Probabilities (M, V) of these levels (V,) with the ids of cells of some data."""
    rows, columns = (
        ids_or_positions(names, size)[positions]
        for names, size, positions in (
            (data.row_names, data.num_rows, where[0]),
            (data.column_names, data.num_columns, where[1]),
        )
    )
    return Probabilities(values, np.asarray(levels, float), rows, columns)


def by_column(posterior: Draws, where: Cells, new: MatrixContainer | None = None) -> Probabilities:
    """Probabilities of the values of cells, for a model that `HasColumnValues`.

    Args:
        new: the rows that the cells lie in; None for those of the data.
    Raises:
        ValueError: a column has no finite set of values, or the model knows no new rows.
    """
    model, data = posterior.model, posterior.data
    if new is not None and not isinstance(model, ScoresCellsOfNewRows):
        raise lacks(model, ScoresCellsOfNewRows, "new_rows")
    sets: dict[int, tuple[float, ...]] = {}
    for column in np.unique(where[1]).tolist():
        known = model.column_values(column)
        if known is None:
            raise ValueError(
                f"cells: column {shown_id(data.column_names, column)} has no finite set of values; "
                "predict(cells) has the mean and quantiles of its cells"
            )
        sets[column] = known
    levels = np.unique(np.concatenate([np.zeros(0), *sets.values()]))
    draws, weights = posterior.flat_draws()
    found = np.zeros((where[0].size, levels.size))
    for position, level in enumerate(levels):
        # of columns that lack it the first of their values, so that all calls have one shape
        asked_of = {c: level if level in known else known[0] for c, known in sets.items()}
        asked = [asked_of[c] for c in where[1].tolist()]
        values = np.array(asked)
        blocks = prediction.log_densities(model, data, draws, where, values, new)
        density = np.exp(prediction.averaged(blocks, weights, values.size))
        found[:, position] = np.where(values == level, density, 0)
    return named(data if new is None else new, where, found, levels)
