"""What models whose cells hang on Gaussian scores have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.model import Pair
from jaxmf.types import Array, Draw, Key
from jaxmf.variational_bayes import answers
from jaxmf.variational_bayes.contracts import CellSettings


class ScoredCells(CellSettings, ABC):
    """Base of models of zeros and ones given their scores."""

    @property
    def cell_distribution(self) -> str:
        """The distribution of a cell given its score, by the name that predictions know."""
        return "normal" if isinstance(self.likelihood, Gaussian) else "bernoulli"

    @abstractmethod
    def score_cells(self, draw: Draw, rows: Array, columns: Array) -> Pair:
        """Mean and variance of the scores m of cells (M,): (M,) each."""

    def predict_cells(self, draw: Draw, data: object, rows: Array, columns: Array) -> Pair:
        """Mean and variance of cells as 0 or 1, the uncertainty of their scores included."""
        del data
        mean, variance = self.score_cells(draw, rows, columns)
        return answers.cell_moments(self.likelihood, draw, mean, variance)

    @abstractmethod
    def score_new_rows(self, draw: Draw, new_data: Any) -> Pair:
        """Mean and variance of the scores of further rows: (M, D) each."""

    def predict_rows(self, key: Key, draw: Draw, data: object, new_data: object) -> Pair:
        """Mean and variance of the cells of further rows: (M, D) each."""
        del key, data
        return answers.cell_moments(self.likelihood, draw, *self.score_new_rows(draw, new_data))

    def probability(self, mean: Array, variance: Array) -> Array:
        return answers.probability(self.likelihood, mean, variance)
