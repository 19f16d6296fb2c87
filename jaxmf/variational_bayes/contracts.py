"""What the updates read of a model and of its options: those of a matrix and of a series alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax

from jaxmf.likelihoods.cells.bernoulli import Bernoulli
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.types import STATIC, Array
from jaxmf.variational_bayes.zeros import ZerosSpec

Likelihood = Gaussian | Bernoulli
"""Likelihoods whose expected cost under Gaussian scores is known."""


class LearnedHyperparameters(NamedTuple):
    """Which priors and noise are learned; the rest stays fixed."""

    row_mean: bool
    row_variance: bool
    column_mean: bool
    column_variance: bool
    bias_variance: bool
    noise_variance: bool


class CellSettings:
    """A frozen dataclass with these among its fields: factors of 0/1 matrices.

    Attributes:
      num_factors: K.
      likelihood: of a cell given its score.
      zeros: which zeros the updates go through.
      bias: "rows_columns", "intercept" or "none".
      row_mean, row_scale, column_mean, column_scale: of the priors of factors, () or (K,) means and
        standard deviations; None is learned.
      bias_scale, intercept_scale: prior standard deviations; None is learned.
    """

    num_factors: int
    likelihood: Likelihood
    zeros: ZerosSpec
    bias: str
    row_mean: float | Array | None
    row_scale: float | Array | None
    column_mean: float | Array | None
    column_scale: float | Array | None
    bias_scale: float | None
    intercept_scale: float

    def learned(self) -> LearnedHyperparameters:
        """Which priors and noise are learned."""
        likelihood = self.likelihood
        return LearnedHyperparameters(
            row_mean=self.row_mean is None,
            row_variance=self.row_scale is None,
            column_mean=self.column_mean is None,
            column_variance=self.column_scale is None,
            bias_variance=self.bias_scale is None,
            noise_variance=isinstance(likelihood, Gaussian) and likelihood.noise_scale is None,
        )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class AscentPlan:
    """Options of an ascent; see `SparseBinaryMF.ascent` and `SparseBinarySeries.ascent`."""

    num_epochs: int = field(metadata=STATIC)
    start: str = field(metadata=STATIC)
    update: str = field(metadata=STATIC)  # of the means
    num_evaluation: int = field(metadata=STATIC)
    relaxation: float
    tolerance: float
    hold_priors: int
    evaluate_every: int
    patience: int
    optimizer: Any = field(default=None, metadata=STATIC)
    decay: float = 1.0
