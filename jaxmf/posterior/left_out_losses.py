"""Losses of left-out cells, and the standard error of their mean."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from jaxmf.answers import Answer

_FEWEST_GROUPS = 20


class _LeftOutLosses(NamedTuple):
    unit: str
    model: np.ndarray
    baseline: np.ndarray
    rows: np.ndarray
    columns: np.ndarray


class LeftOutLosses(Answer, _LeftOutLosses):
    """Losses of cells that were each predicted from the others.

    Args:
        unit: of the losses: "squared error", of columns with units of their own in these, "log
            score" of cells that are 0 or 1, or "log score of a token".
        model: (M,) loss of the posterior's predictions.
        baseline: (M,) loss of row and column means, of column frequencies, or of the frequencies of
            the values of all tokens.
        rows: (M,) ids, or positions where the data have none; of tokens in a column that their
            groups hang on, such as the document.
        columns: (M,) ids or positions; of tokens in the other such column, or the values.
    """

    _axes: ClassVar = {"model baseline": "cell"}

    def coordinates(self) -> dict[str, object]:
        return {"row": ("cell", self.rows), "column": ("cell", self.columns)}

    def table(self) -> dict[str, np.ndarray]:
        """One line for each cell."""
        losses = {"model": self.model, "baseline": self.baseline}
        return {"row": self.rows, "column": self.columns, **losses}

    def footer(self) -> str:
        mean = f"{self.excess:+.4g} ± {self.standard_error:.2g}"
        said = f"{self.unit}, less is better; mean of the model less the baseline {mean}"
        return "; ".join(filter(None, [super().footer(), said]))

    @property
    def excess(self) -> float:
        """Mean loss of the model above that of the baseline."""
        return float(np.mean(self.model - self.baseline))

    @property
    def standard_error(self) -> float:
        """Standard error of `excess`: the largest with cells, rows or columns as units.

        Rows and columns count where there are twenty of them.
        """
        return standard_error_of_mean(self.model - self.baseline, self.rows, self.columns)


def standard_error_of_mean(values: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> float:
    """Standard error of the mean over M cells: the largest with cells, rows or columns as units.

    Rows and columns count where there are twenty of them.

    Args:
        values: (M,) float; M at least 2.
        rows, columns: (M,) int.
    """
    residual = values - values.mean()
    size = residual.size
    errors = [np.sqrt(np.sum(residual**2) / (size * (size - 1)))]
    for groups in (rows, columns):
        sums = np.bincount(np.unique(groups, return_inverse=True)[1], residual)
        if sums.size >= _FEWEST_GROUPS:
            factor = sums.size / (sums.size - 1)
            errors.append(np.sqrt(factor * np.sum(sums**2)) / size)
    return float(max(errors))
