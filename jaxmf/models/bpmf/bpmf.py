"""`BPMF`: the description with its sampler and the questions that it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from jaxmf._kernels import cell_products
from jaxmf.arguments import assign, check_count, check_flag
from jaxmf.data import Entries, units
from jaxmf.engine import Algorithm, algorithm
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.models.bpmf import bpmf_checks, chain, density, other_rows, queries
from jaxmf.models.bpmf.bpmf_spec import BPMFSpec
from jaxmf.models.bpmf.state import BPMFState, Observed
from jaxmf.row_shards import DATA_AXIS
from jaxmf.types import Array, Draw, Key


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BPMF(BPMFSpec):
    """Real factors of the observed cells of a matrix, with their uncertainty.

    Args:
      num_factors: K, latent factors of a row and of a column.
      row_features: `Features` of the rows (users), matched to the data by their ids.
      column_features: those of the columns (items).
      cell_features: `CellFeatures` of cells, in training and to be predicted; a cell that has none
        is predicted without them.
      likelihood: `Gaussian()`, whose `noise_scale` may be a number, a numpyro distribution, or None
        for RootInverseGamma(1, s^2), s the spread of the data. In `column_unit`.
      row_prior, column_prior: of mean and covariance of the factors and the bias of a side, a
        `NormalInverseWishart()` in units of `scale`; None for one with which a rating has a priori
        about the spread of the data, of probit cells twice their noise, half of its variance
        from the factors.
      mixture: None for one group of rows and one of columns; a prior of groups for both sides, such
        as `DirichletProcess()`, or a pair of these (None for a side without): the vectors of every
        group have a mean and a covariance of their own (section 6.2.5). With `HDP()` every class of
        rows has weights of its own over groups that all classes share.
      row_classes: the heading of a column of levels of `row_features`, such as "occupation": the
        classes of the rows, for `HDP()`, or `Dirichlet(num_components)`. They are no features
        then. A row without a level (of features with missing="zero"), and a new row without
        features, is of a class of its own. Kept as `Features` of that column.
      column_classes: those of the columns.
      bias: whether rows and columns have biases.
      coefficients: whether rows have coefficients for the features of columns, and columns for
        those of rows; None for those parts of the features that have at most 64 columns.
      link: whether factors and biases depend on the features of their own row or column; by default
        they do where there is no mixture. Groups then differ in what features do not say, and the
        link's weights are N(0, 1 / link_precision) whatever the covariances of groups.
      link_precision: of the link's weights, a number or a numpyro distribution, for every part of
        the features a precision of its own (see `Features`); by default Gamma(1, 1). A precision
        rather than a scale, as a Gamma prior on it is conjugate, which keeps its update one draw.
      coefficient_precision: of the coefficients, likewise; by default Gamma(1, 0.001), with which a
        part adds a priori a thousandth of the data's variance. Numbers among the features are
        standardised and parts scaled to unit length first, see `data/feature_units.py`.
      offset: what is subtracted from the cells: a number, or (M,) one a column, of a pandas Series
        by its index; None for their mean. Gaussian cells only, as the next two.
      column_unit: what they are then divided by: likewise, positive. Noise is in this unit;
        predictions and densities are in those of the data. None: 1; but where `noise_scale`,
        `offset` and `scale` are left open and columns are in different units, their standard
        deviations, and their means are the offset. They are in different units where the largest
        standard deviation is more than 30 times that of half of the columns, or more than
        100 times that of a column of measurements. Set 1 for cells as they are.
      scale: what the means of cells in these units are to the model; None for their standard
        deviation.
      column_noise: whether each column has noise of its own: noise_scale times a factor, whose
        spread over columns is learned (`priors/column_noise.py`). For tables of which some columns
        are measured better than others. Gaussian cells only. See `Posterior.column_noise`; not with
        new columns, nor over devices.
    Raises:
      TypeError, ValueError: a setting of a wrong type or out of range.
    Example:
      >>> import jaxmf as mf
      >>> mf.BPMF(10, likelihood=mf.Gaussian(0.8)).num_factors
      10
    """

    def __post_init__(self) -> None:
        for check in (bpmf_checks.classes, bpmf_checks.settings):
            assign(self, **check(self))

    # --- data -------------------------------------------------------------------------------------

    check_data = bpmf_checks.check_data
    matched = bpmf_checks.matched

    def notes(self, data: Entries) -> tuple[str, ...]:
        """Notes if columns were taken in their own units, or if most cells are one number."""
        notes = units.note_of_units(data, self.column_unit, "noise and factors")
        is_normal = isinstance(self.likelihood, Gaussian)
        return notes + (units.note_of_common_value(data) if is_normal else ())

    # --- densities and simulation -----------------------------------------------------------------

    def log_joint(self, state: BPMFState, data: Observed) -> Array:
        """log p(cells, vectors, priors, noise): () float."""
        return density.log_joint(self, state, self.prepare(data))

    def log_likelihood(self, state: BPMFState, data: Observed) -> Array:
        """log p(cells | vectors, noise): () float."""
        return density.log_likelihood(self, state, self.prepare(data))

    def simulate(
        self, key: Key, rows: Array, columns: Array, shape: tuple[int, int]
    ) -> tuple[BPMFState, Entries]:
        """A state from the prior, and values of some cells from it.

        Args:
          key: typed PRNG key.
          rows, columns: (T,) int, the cells that are observed.
          shape: (N, M).
        """
        state_key, values_key = jax.random.split(key)
        state = self.simulate_state(state_key, *shape)
        return state, self.simulate_data(values_key, state, rows, columns)

    def simulate_matrix(
        self, key: Key, shape: tuple[int, int], capacity: int
    ) -> tuple[BPMFState, Entries, Array]:
        """A state from the prior and all cells of a matrix; groups have `capacity` slots.

        The () bool is False: that a group of many rows has no slot is not seen.

        Raises:
          ValueError: real cells whose scale or offset would be those of each matrix, so that there
            is no prior that all are drawn from.
        """
        self._check_units()
        state_key, values_key = jax.random.split(key)
        state = self.simulate_state(state_key, *shape, capacity=capacity)
        rows, columns = (part.ravel() for part in jnp.indices(shape, jnp.int32))
        data = self.simulate_data(values_key, state, rows, columns)
        return state, data, jnp.zeros((), bool)

    def simulate_more(
        self, key: Key, state: BPMFState, data: Entries
    ) -> tuple[BPMFState, Entries, dict[str, Array]]:
        self._check_units()
        known = self.row_features, self.cell_features, *self.mixture
        if any(each is not None for each in known):
            raise ValueError(
                "further rows have no features and no groups that BPMF knows: leave row_features, "
                "cell_features and groups out to simulate more"
            )
        return *density.simulate_more(self, key, state, data), {}

    def _check_units(self) -> None:
        if self.is_normal and (self.scale is None or self.offset is None):
            raise ValueError(
                "BPMF takes the scale and the offset of real cells from the data: state them to "
                "simulate from its prior, BPMF(num_factors, scale=1.0, offset=0.0)"
            )

    simulate_state = density.simulate_state
    simulate_data = density.simulate_data

    # --- methods ----------------------------------------------------------------------------------

    def sampler(
        self, *, keep_factors: bool = True, capacity: int | None = None, split_merge: int = 1
    ) -> Algorithm:
        """Gibbs sampling: priors of the vectors, rows, columns, noise (section 6.2.8).

        Args:
          keep_factors: whether draws keep the vectors of all rows and columns. Without them
            predictions are those gathered on the way, `sample(..., predict_at=cells)`; `thin` is
            the way between.
          capacity: slots for groups to begin with, 32 by default; they double when a step needs
            more.
          split_merge: proposals a step to split a group or merge two, of DirichletProcess and
            PitmanYor groups, which alone seldom split a large one; 0 compiles faster.
        Returns:
          Algorithm, with the growing axes "row_groups" and "column_groups" of mixtures.
        """
        grows = any(prior is not None and prior.grows for prior in self.mixture)
        plan = chain.BPMFPlan(
            keep_factors=check_flag("keep_factors", keep_factors),
            num_slots=bpmf_checks.capacity(capacity),
            split_merge=check_count("split_merge", split_merge, 0),
        )
        return algorithm(
            init=Partial(chain.init, plan, self),
            step=Partial(chain.step, plan, self),
            record=Partial(chain.record, plan, self),
            grow=chain.grow if grows else None,
            capacity=chain.capacity if grows else None,
            prepare=self.prepare,
            row_arrays=None if bpmf_checks.not_spread(self) else chain.row_arrays,
            share_out=None if bpmf_checks.not_spread(self) else self.shared_out,
        )

    takes_process_rows = "sample"

    def device_notes(
        self, passed: Mapping[str, object], options: Mapping[str, object], *, platform: str
    ) -> tuple[str, ...]:
        """Why sums over ratings were made without the kernel for GPUs: see `Model`."""
        del passed, options
        if platform != "gpu" or self.cell_features is not None:
            return ()
        sizes = self.row_width() + 1, self.column_width() + 1
        why = next(filter(None, (cell_products.trouble(platform, size) for size in sizes)), "")
        return (f"sums over ratings were made without the kernel for GPUs: {why}",) if why else ()

    def mesh_axes(self, options: Mapping[str, object]) -> tuple[str, ...]:
        """Rows and columns of normal cells are spread over "data", each with its cells."""
        del options
        return () if bpmf_checks.not_spread(self) else (DATA_AXIS,)

    def mesh_advice(self, options: Mapping[str, object]) -> str:
        """Settings that keep cells from being spread over devices; empty if they are spread."""
        del options
        names = " and ".join(bpmf_checks.not_spread(self))
        return f"without {names} it spreads ratings over {DATA_AXIS!r}" if names else ""

    def whole_draw(self, key: Key, state: BPMFState, data: Observed) -> Draw:
        return chain.record(chain.BPMFPlan(keep_factors=True), self, key, state, data)

    # --- queries on one draw ----------------------------------------------------------------------

    def cell_probabilities(self, draw: Draw, data: Observed, rows: Array, columns: Array) -> Array:
        means = queries.means_of_cells(self, draw, data, rows, columns)
        return queries.likelihood_of(self, draw).probabilities(means)

    predict_cells = queries.cell_moments
    expected_values = queries.expected_values
    narrowed = other_rows.narrowed

    def known_cells(self, data: Entries) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(data.rows), np.asarray(data.columns)

    group_means = queries.group_means

    # --- rows not seen in training ----------------------------------------------------------------

    for_new_rows = other_rows.for_new_rows
    predict_rows = queries.row_moments
    new_cell_probabilities = queries.new_cell_probabilities
    transform_rows = queries.latent_factors
    with_unknown = other_rows.with_unknown
    draw_unknown = other_rows.draw_unknown

    def factors(self, draw: Mapping[str, Array], data: Entries) -> tuple[Array, Array]:
        latent = slice(self.num_factors)
        rows, columns = draw["u"][:, latent] * self.unit(data), draw["v"][:, latent]
        if self.bias:  # what all columns of a row, or all rows of a column, share is a level
            rows, columns = rows - rows.mean(axis=0), columns - columns.mean(axis=0)
        return rows, columns
