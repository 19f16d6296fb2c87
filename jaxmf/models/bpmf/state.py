"""The state of a chain of BPMF, and its data as the sampler goes through them."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxmf.data import Entries
from jaxmf.likelihoods.families.multivariate_normal import NormalParameters
from jaxmf.priors.column_noise import NoiseOfColumns
from jaxmf.samplers.factors.coefficients import Coefficients
from jaxmf.samplers.factors.layout import Arranged
from jaxmf.samplers.factors.link import FeatureSpectrum
from jaxmf.samplers.factors.shares import Shares
from jaxmf.samplers.factors.vectors import Known
from jaxmf.types import Array


class GroupMixture(NamedTuple):
    """State of the prior of the groups beside the groups themselves."""

    hyperparameters: dict[str, dict[str, Array]]  # block -> hyperparameters of its prior
    # (K,) bool by indicator, groups that some vector has; of growing priors
    slots: dict[str, Array]


class SidePrior(NamedTuple):
    """The prior of the vectors of one side: of their E factors and biases, and of coefficients."""

    # means (G, E) and Cholesky factors (G, E, E) of the covariances of the groups
    moments: NormalParameters
    groups: Array  # (N,) int32, the group of every vector
    link: Array  # (F, E) float, how factors and biases depend on features; F = 0 where they do not
    link_precision: Array  # (P,) float, of every part of the features
    coefficients: Coefficients  # the prior of the D - E others
    mixture: GroupMixture | None = None  # what the prior of the groups keeps; None without one


class BPMFState(NamedTuple):
    """Where a chain is."""

    u: Array  # (N, D) float, the vectors of the rows, see `samplers/factors/vectors.py`
    v: Array  # (M, D') float, those of the columns
    # row_side, column_side: their priors
    row_side: SidePrior
    column_side: SidePrior
    # of the cells, as their likelihood has it; of normal cells the variance, in units of columns.
    # Vectors are in units of the cells' `BPMF.unit`.
    noise: Any
    # of columns beside each other; None where all are alike
    column_noise: NoiseOfColumns | None = None

    def transpose(self) -> BPMFState:
        """Rows and columns exchanged, without noise of columns."""
        return BPMFState(self.v, self.u, self.column_side, self.row_side, self.noise)


class PreparedRatings(NamedTuple):
    """Observed cells in the order of both sides, and what is known besides."""

    # the observed cells in units of columns, less `centre` and divided by `unit`, on one device or
    # shared out to several
    cells: Arranged | Shares
    # centre, unit: () float, in units of columns
    centre: Array
    unit: Array
    log_unit: Array  # () float, sum of the logs of those units of columns over the cells
    known: Known  # features of rows, columns and cells
    # row_spectra, column_spectra: of the features that vectors depend on, by parts
    row_spectra: tuple[FeatureSpectrum, ...] = ()
    column_spectra: tuple[FeatureSpectrum, ...] = ()

    @property
    def values(self) -> Array:
        """In units: (T,) float; over devices as `Shares` has them."""
        return self.cells.values

    @property
    def num_cells(self) -> int:
        """T."""
        return self.cells.num_cells

    @property
    def num_rows(self) -> int:
        """N."""
        return self.cells.num_rows

    @property
    def num_columns(self) -> int:
        """M."""
        return self.cells.num_columns

    def transpose(self) -> PreparedRatings:
        """Rows and columns exchanged."""
        return self._replace(
            cells=self.cells.transpose(),
            known=self.known.transpose(),
            row_spectra=self.column_spectra,
            column_spectra=self.row_spectra,
        )


Observed = Entries | PreparedRatings
"""Observed cells, as users pass them or as a chain goes through them."""
