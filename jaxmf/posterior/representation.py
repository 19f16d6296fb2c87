"""What new rows are made of: the probabilities of their features or groups, their factors."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxmf.answers import ArrayAnswer, Lines, data_frame

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = 10  # rows that are printed
_PARTS_SHOWN = 8


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Representation(ArrayAnswer):
    """The representation of M new rows by K parts; it may be used as an array.

    Args:
        values: (M, K) float.
        names: (M,) ids of the rows, or positions.
        side: "row" or "document".
        part: "feature", "factor", "group" or "topic".
        measure: what the values are: "probability", "mean" or "proportion".
    """

    values: np.ndarray
    names: np.ndarray
    side: str
    part: str
    measure: str

    def table(self) -> dict[str, np.ndarray]:
        """Columns of a table with one line a row, ids first, then the parts by number."""
        return {
            self.side: self.names,
            **{f"{self.part} {k}": values for k, values in enumerate(self.values.T)},
        }

    def to_pandas(self) -> pd.DataFrame:
        """The values as a pandas DataFrame: a row a row with its id, a column a part."""
        frame = data_frame("to_pandas", self.values, index=self.names)
        return frame.rename_axis(index=self.side, columns=self.part)

    def coordinates(self) -> dict[str, object]:
        return {self.side: self.names}

    def variables(self) -> dict[str, tuple[Sequence[str], np.ndarray]]:
        return {self.measure: ((self.side, self.part), self.values)}

    def lines(self) -> Lines:
        table = {name: column[:_SHOWN] for name, column in self.table().items()}
        names, *parts = list(table.items())[: 1 + _PARTS_SHOWN]
        cells = [[f"{value:.2f}" for value in column] for _, column in parts]
        heading = (names[0], *(name for name, _ in parts))
        return [heading, *zip(map(str, names[1]), *cells, strict=True)]

    def footer(self) -> str:
        rows, parts = self.shape
        hidden = [f"and {rows - _SHOWN:,} more"] * (rows > _SHOWN)
        hidden += [f"{_PARTS_SHOWN} of {parts} {self.part}s"] * (parts > _PARTS_SHOWN)
        return "; ".join(hidden)
