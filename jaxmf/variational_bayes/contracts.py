"""What the updates read of a model and of its options: those of a matrix and of a series alike."""

from __future__ import annotations

from typing import Protocol

from jaxmf.types import Array
from jaxmf.variational_bayes.likelihood import Likelihood
from jaxmf.variational_bayes.zeros import ZerosSpec


class CellSettings(Protocol):
    """A description of factors of a sparse 0/1 matrix, or of a series of them."""

    @property
    def num_factors(self) -> int:
        """K."""

    @property
    def likelihood(self) -> Likelihood:
        """Of a cell given its score."""

    @property
    def zeros(self) -> ZerosSpec:
        """Which zeros the updates go through."""

    @property
    def bias(self) -> str:
        """One of "rows_columns", "intercept" and "none"."""

    @property
    def row_mean(self) -> float | Array | None:
        """Prior mean of a row's factors, () or (K,); None is learned."""

    @property
    def row_scale(self) -> float | Array | None:
        """Prior standard deviation of a row's factors, () or (K,); None is learned."""

    @property
    def column_mean(self) -> float | Array | None:
        """Prior mean of a column's factors, () or (K,); None is learned."""

    @property
    def column_scale(self) -> float | Array | None:
        """Prior standard deviation of a column's factors, () or (K,); None is learned."""

    @property
    def bias_scale(self) -> float | None:
        """Prior standard deviation of biases; None is learned."""

    @property
    def intercept_scale(self) -> float:
        """Prior standard deviation of the intercept."""


class AscentPlan(Protocol):
    """Options of an ascent that every model has."""

    @property
    def num_epochs(self) -> int:
        """Passes over the data, at most."""

    @property
    def num_evaluation(self) -> int:
        """Zeros of a line that the free energy is estimated from."""

    @property
    def tolerance(self) -> float:
        """Relative change of the free energy below which an epoch counts as stalled."""

    @property
    def hold_priors(self) -> int:
        """Epochs before priors are learned and before the ascent may stop."""

    @property
    def evaluate_every(self) -> int:
        """Epochs from one look at the free energy to the next."""

    @property
    def patience(self) -> int:
        """Stalled looks in a row that end the ascent."""
