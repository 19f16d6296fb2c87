"""Bayesian probabilistic matrix factorisation with side information.

    U_i ~ N(mu_u + B_u' x_i, Sigma_u)             vectors of the rows (users)
    V_j ~ N(mu_v + B_v' x_j, Sigma_v)             vectors of the columns (items)
    (mu, Sigma) ~ normal-inverse-Wishart          on either side                  eq 6.22
    mu_ij = U_a' V_a + b_i + c_j + U_b' x_j + V_b' x_i + (U_c + V_c)' z_ij        Table 6.1
    r_ij = offset_j + unit_j (scale mu_ij + N(0, noise_scale^2)), or probits     eq 6.23

A row's factors U_a and bias b are the U_i above, with one covariance; B, the link, lets them depend
on features, so that a row or column never seen is predicted from its own. The coefficients for
features of columns and of cells are apart from them, normal with a precision for every part of the
features (see `samplers/factors/coefficients.py`): in one covariance with the factors, as Porteous
has it, a few dozen of them make a rating a priori many times as wide as the data.

Source: Salakhutdinov & Mnih (2008), Bayesian probabilistic matrix factorization using Markov chain
Monte Carlo; Porteous (2010), section 6.2; Simm et al. (2017) for the link.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jax.typing import DTypeLike

from jaxmf.arguments import check_count, check_flag
from jaxmf.column_units import ColumnUnits
from jaxmf.data import CellFeatures, Entries, Features, units
from jaxmf.data.container import bare
from jaxmf.data.feature_units import in_units_of
from jaxmf.engine import Algorithm, algorithm
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.likelihoods.cells.latent_noise import ProbitNoise, ThresholdNoise
from jaxmf.likelihoods.cells.normal_noise import NormalNoise
from jaxmf.likelihoods.cells.ordinal import Ordinal
from jaxmf.likelihoods.cells.probit import Probit
from jaxmf.likelihoods.families.multivariate_normal import NormalInverseWishart
from jaxmf.model import Model, Pair, Value
from jaxmf.models.bpmf import bpmf_checks, chain, density, queries, simulation, unknown
from jaxmf.models.bpmf.state import BPMFState, Observed, PreparedRatings
from jaxmf.models.bpmf.units import mean_of, unit_of
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.priors.partition_prior import PartitionPrior
from jaxmf.priors.scales import squared
from jaxmf.readable import Readable
from jaxmf.row_shards import DATA_AXIS
from jaxmf.samplers.factors.coefficients import CoefficientParts
from jaxmf.samplers.factors.layout import arranged
from jaxmf.samplers.factors.link import spectra
from jaxmf.samplers.factors.shares import shared_out, shared_out_of_processes
from jaxmf.samplers.factors.vectors import Known
from jaxmf.types import Array, ArrayLike, Draw, Key, PyTree


@partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        "row_features",
        "column_features",
        "cell_features",
        "row_classes",
        "column_classes",
        "likelihood",
        "row_prior",
        "column_prior",
        "mixture",
        "link_precision",
        "coefficient_precision",
        "offset",
        "column_unit",
        "scale",
    ],
    meta_fields=["num_factors", "bias", "coefficients", "link"],
)
@dataclass(frozen=True)
class BPMF(ColumnUnits, Readable, Model[Entries]):
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
    Raises:
      TypeError, ValueError: a setting of a wrong type or out of range.
    Example:
      >>> import jaxmf as mf
      >>> mf.BPMF(10, likelihood=mf.Gaussian(0.8)).num_factors
      10
    """

    num_factors: int = 16
    row_features: Features | None = None
    column_features: Features | None = None
    cell_features: CellFeatures | None = None
    row_classes: Any = None
    column_classes: Any = None
    likelihood: Gaussian | Probit | Ordinal = Gaussian()  # noqa: RUF009
    row_prior: NormalInverseWishart | None = None
    column_prior: NormalInverseWishart | None = None
    mixture: Any = None
    bias: bool = True
    coefficients: bool | None = None
    link: bool | None = None
    link_precision: Hyperparameter = None
    coefficient_precision: Hyperparameter = None
    offset: Any = None
    column_unit: float | Array | None = None
    scale: Any = None

    def __post_init__(self) -> None:
        for check in (bpmf_checks.classes, bpmf_checks.settings):
            for name, value in check(self).items():
                object.__setattr__(self, name, value)

    # --- what the parts are -----------------------------------------------------------------------

    @property
    def is_normal(self) -> bool:
        """Whether cells are normal about their means."""
        return isinstance(self.likelihood, Gaussian)

    @property
    def cell_distribution(self) -> str:
        """The distribution of a cell given a draw, as predictions know it."""
        return "normal"

    cells_given_draw = "independent"  # where draws keep the vectors

    @property
    def judged_by_cells(self) -> bool:
        """Whether chains are judged by their predictions: groups are an answer too."""
        return self.mixture == (None, None)

    @property
    def kept_for_cells(self) -> tuple[str, ...]:
        """What a draw must have for predictions."""
        return ("u", "v")

    @property
    def values(self) -> tuple[float, ...] | None:
        """The values that a cell may have; None for real ones."""
        return None if isinstance(self.likelihood, Gaussian) else self.likelihood.levels

    def cell_noise(self, unit: ArrayLike = 1.0) -> Any:
        """What a state knows of the noise of cells; `unit` is the spread of the default prior."""
        if isinstance(self.likelihood, Probit):
            return ProbitNoise(self.likelihood)
        if isinstance(self.likelihood, Ordinal):
            return ThresholdNoise(self.likelihood)
        scale = self.likelihood.noise_scale
        if scale is None:
            import numpyro.distributions as dist

            return NormalNoise(dist.InverseGamma(1.0, jnp.asarray(unit) ** 2))
        return NormalNoise(squared(scale))

    def transpose(self) -> BPMF:
        """The model of the transposed matrix: rows and columns exchanged."""
        swapped = {
            "row_features": self.column_features,
            "column_features": self.row_features,
            "row_classes": self.column_classes,
            "column_classes": self.row_classes,
            "row_prior": self.column_prior,
            "column_prior": self.row_prior,
            "mixture": self.mixture[::-1],
        }
        if self.has_column_units:  # which have no form as rows: kernels see cells in units
            swapped |= {"offset": 0.0, "column_unit": None}
        present = {field.name: getattr(self, field.name) for field in fields(self)}
        # settings are checked once; inside a transformation numbers cannot be looked at
        return bare(BPMF, **(present | swapped))

    def row_mixture(self) -> PartitionPrior | None:
        """The prior of the rows' groups, if there are any."""
        return self.mixture[0]

    def row_link(self) -> Features | None:
        """The features that the rows' vectors depend on, if any."""
        features = self.row_features
        return features if self.link and features is not None and features.width else None

    def column_link(self) -> Features | None:
        """Those of the columns'."""
        return self.transpose().row_link()

    @property
    def core_width(self) -> int:
        """E, factors and bias: the entries of a vector that are no coefficients."""
        return self.num_factors + int(self.bias)

    def row_width(self) -> int:
        """D, entries of a row's vector."""
        return self.core_width + sum(self.row_coefficients().widths)

    def column_width(self) -> int:
        """Entries of a column's vector."""
        return self.transpose().row_width()

    def row_coefficients(self) -> CoefficientParts:
        """The parts of the coefficients of the rows: of the columns' features, and of cells'."""
        others, cells = self.column_features, self.cell_features
        chosen = bpmf_checks.parts_with_coefficients(others, self.coefficients)
        widths = [stop - start for start, stop in chosen]
        # what all rows have in common is in the biases of the columns, where these have a link
        has_mean = [not (self.bias and self.column_link() is not None)] * len(widths)
        if cells is not None and cells.width:
            widths.append(cells.width)
            has_mean.append(True)
        return CoefficientParts(tuple(widths), tuple(has_mean))

    def row_hyperprior(self) -> NormalInverseWishart:
        """The prior of mean and covariance of the rows' factors and biases."""
        prior, width = self.row_prior, self.core_width
        if prior is not None:
            return prior.with_size(width)
        # means add as much again: the products of factors have variance 4 K s^2, a bias 2 s
        share = 0.5 if self.bias else 1.0
        # in units of the noise, which of such cells is nowhere else: they may be all but certain
        variance = 1.0 if self.is_normal else 4.0
        scale = np.full(width, np.sqrt(share * variance / (4 * max(self.num_factors, 1))))
        if self.bias:
            scale[-1] = variance * (0.125 if self.num_factors else 0.25)
        if self.is_normal and self.mixture == (None, None):
            # the scale is the mean of a variance whose usual value, 1 over the mean of its inverse,
            # is a third of it: with this as the mean, factors of few rows are shrunk and noise
            # takes their part. Groups are many draws from the prior, and there its mean counts
            scale *= 3
        return NormalInverseWishart(width, scale=np.diag(scale))

    # --- data -------------------------------------------------------------------------------------

    def check_data(self, data: Entries, name: str) -> None:
        """Refuses data that the likelihood does not have.

        Raises:
          ValueError: values that the likelihood does not have.
        """
        bpmf_checks.data(self, data, name)

    def matched(self, data: Entries) -> BPMF:
        """The model with its features in the order of the rows and columns of a data set.

        Units of columns that are left open are taken from the data.

        Raises:
          ValueError: a row or column without features; see `Features.match`; an offset or a unit
            that is not one number a column.
        """
        return bpmf_checks.matched(self, data)

    def notes(self, data: Entries) -> tuple[str, ...]:
        """That columns were taken in their own units, where they were."""
        return units.note_of_units(data, self.column_unit, "noise and factors")

    @property
    def has_column_units(self) -> bool:
        """Whether cells are about an offset a column, or in a unit, before all else."""
        return self.column_unit is not None or np.ndim(self.offset) > 0

    def centred(self, data: Entries) -> Entries:
        """The cells about the offset of their column, in its unit; as they are without both."""
        if not self.has_column_units:
            return data
        present = {field.name: getattr(data, field.name) for field in fields(data)}
        values = self._in_column_units(data.values, data.columns)
        return bare(Entries, **present | {"values": values})

    def _in_column_units(self, values: Array, columns: Array) -> Array:
        if not self.has_column_units:
            return values
        offset, unit = (of(columns).astype(values.dtype) for of in (self.offset_at, self.unit_at))
        return (values - offset) / unit

    def prepare(self, data: Observed) -> PreparedRatings:
        """The observed cells as the sampler goes through them; prepared ones as they are."""
        if isinstance(data, PreparedRatings):
            return data
        cells = arranged(data, (self.row_width(), self.column_width()))
        cells = cells._replace(values=self.standardised(data.values, data.columns, data))
        features = jnp.zeros((cells.values.shape[0], 0), cells.values.dtype)
        if self.cell_features is not None:
            features = self.cell_features.take(data.rows, data.columns)
        known = self.known(cells.num_rows, cells.num_columns, features)
        linked = self.row_link(), self.column_link()
        found = [() if each is None else spectra(each) for each in linked]
        return PreparedRatings(cells, *self._taken_out(data), known, *found)

    def shared_out(self, data: Entries, num_devices: int) -> PreparedRatings:
        """The observed cells as the sampler goes through them on several devices.

        Args:
          num_devices: over which rows and columns are spread.
        """
        sizes, standardised = (self.row_width(), self.column_width()), self.standardised
        if data.elsewhere is not None:
            cells = shared_out_of_processes(data, sizes, standardised, num_devices)
        else:
            values = standardised(data.values, data.columns, data)
            cells = shared_out(data, sizes, values=values, num_devices=num_devices)
        known = self.known(*data.shape, jnp.zeros((0, 0), cells.values.dtype))
        return PreparedRatings(cells, *self._taken_out(data), known)

    def _taken_out(self, data: Entries) -> tuple[Array, Array, Array]:
        """What a chain's cells have lost: centre, unit, and the sum of logs of columns' units."""
        return self.centre(data), self.unit(data), jnp.asarray(self.log_unit(data))

    def known(self, num_rows: int, num_columns: int, cells: Array) -> Known:
        """The features of all rows and columns, as dense arrays, beside those of some cells."""
        rows = self._dense(self.row_features, num_rows, cells.dtype)
        return Known(rows, self._dense(self.column_features, num_columns, cells.dtype), cells)

    def _dense(self, features: Features | None, num_rows: int, dtype: DTypeLike) -> Array:
        chosen = bpmf_checks.parts_with_coefficients(features, self.coefficients)
        if features is None or not chosen:
            return jnp.zeros((num_rows, 0), dtype)
        return features.take_columns([index for part in chosen for index in range(*part)])

    def centre(self, data: Observed) -> Array:
        """What is subtracted from the cells, in units of columns: () float."""
        if isinstance(data, PreparedRatings):
            return data.centre
        if not self.is_normal or self.has_column_units:
            return jnp.zeros((), jnp.result_type(float))
        return mean_of(data.values) if self.offset is None else jnp.asarray(self.offset)

    def unit(self, data: Observed) -> Array:
        """What cells without their offset, in units of columns, are divided by: () float.

        Of constant cells their size: nothing else is known of how wide such cells may be.
        """
        if isinstance(data, PreparedRatings):
            return data.unit
        dtype = jnp.result_type(float) if data.spans_processes else data.values.dtype
        if not self.is_normal:
            return jnp.ones((), dtype)
        if self.scale is not None:
            return jnp.asarray(self.scale, dtype)
        values = self._in_column_units(data.values, data.columns)
        mean = mean_of(values)
        return unit_of(mean, jnp.sqrt(jnp.mean((values - mean) ** 2))).astype(dtype)

    def standardised(self, values: Array, columns: Array, data: Observed) -> Array:
        """Values (T,) of cells of these columns without the offset, in the units of the data."""
        values = self._in_column_units(values, columns)
        return (values - self.centre(data).astype(values.dtype)) / self.unit(data)

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
                "of further rows BPMF knows no features and no groups: leave row_features, "
                "cell_features and groups out to simulate more"
            )
        return *simulation.simulate_more(self, key, state, data), {}

    def _check_units(self) -> None:
        if self.is_normal and (self.scale is None or self.offset is None):
            raise ValueError(
                "BPMF takes the scale and the offset of real cells from the data: state them to "
                "simulate from its prior, BPMF(num_factors, scale=1.0, offset=0.0)"
            )

    def simulate_state(
        self, key: Key, num_rows: int, num_columns: int, *, capacity: int = 32
    ) -> BPMFState:
        """A state from the prior; `capacity` is the number of slots for groups."""
        return simulation.simulate_state(self, key, num_rows, num_columns, capacity)

    def simulate_data(self, key: Key, state: BPMFState, rows: Array, columns: Array) -> Entries:
        """Values of the cells (rows, columns) given a state."""
        return simulation.simulate_data(self, key, state, rows, columns)

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

    def mesh_axes(self, options: Mapping[str, object]) -> tuple[str, ...]:
        """Rows and columns of normal cells are spread over "data", each with its cells."""
        del options
        return () if bpmf_checks.not_spread(self) else (DATA_AXIS,)

    def mesh_advice(self, options: Mapping[str, object]) -> str:
        """What keeps cells from being spread over devices."""
        del options
        names = " and ".join(bpmf_checks.not_spread(self))
        return f"without {names} it spreads ratings over {DATA_AXIS!r}" if names else ""

    def whole_draw(self, key: Key, state: BPMFState, data: Observed) -> Draw:
        return chain.record(chain.BPMFPlan(keep_factors=True), self, key, state, data)

    # --- queries on one draw ----------------------------------------------------------------------

    def noise_draw(self, noise: PyTree) -> Draw:
        """What a draw keeps of the noise."""
        if self.is_normal:
            return {"noise_scale": jnp.sqrt(noise)}
        return {"thresholds": noise} if noise.size else {}

    def cell_probabilities(self, draw: Draw, data: Observed, rows: Array, columns: Array) -> Array:
        means = queries.means_of_cells(self, draw, data, rows, columns)
        return queries.likelihood_of(self, draw).probabilities(means)

    def predict_cells(self, draw: Draw, data: Observed, rows: Array, columns: Array) -> Pair:
        return queries.cell_moments(self, draw, data, rows, columns)

    def expected_values(self, draw: Draw, data: Observed, rows: Array) -> Array:
        """Expected values (R, M) of all cells of some rows, without features of cells."""
        return queries.expected_values(self, draw, data, rows)

    def narrowed(
        self, draws: Mapping[str, np.ndarray], rows: np.ndarray | None, columns: np.ndarray | None
    ) -> tuple[BPMF, dict[str, np.ndarray]] | None:
        """The model and draws (S, ...) of the matrix of some rows and columns, for its cells."""
        return unknown.narrowed(self, draws, rows, columns)

    def known_cells(self, data: Entries) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(data.rows), np.asarray(data.columns)

    def group_means(self, draw: Draw, data: Observed) -> Array:
        return queries.group_means(self, draw, data)

    # --- rows not seen in training ----------------------------------------------------------------

    def for_new_rows(
        self, features: Features | None, num_rows: int, classes: Features | None = None
    ) -> BPMF:
        """The model with the features of new rows instead of those of the rows in training.

        Args:
          features: of the new rows; None for zeros.
          classes: indicators of their classes; None where these are not known.
        """
        present = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.row_features is not None:
            if features is None:
                features = unknown.no_features(self.row_features, num_rows)
            else:
                features = in_units_of(features, self.row_features)
        if self.row_classes is not None and classes is None:
            classes = Features(np.zeros((num_rows, self.row_classes.width)))
        cells = unknown.no_cells(self.cell_features, num_rows)
        new = {"row_features": features, "row_classes": classes, "cell_features": cells}
        return bare(BPMF, **present | new)

    def predict_rows(self, key: Key, draw: Draw, data: Observed, new_data: Entries) -> Pair:
        """Predictive mean and variance, each (N', M), of the cells of rows not seen in training.

        Their vectors are drawn given their observed cells and the columns' vectors, so that a
        mixture over draws is the predictive distribution.
        """
        return queries.row_moments(self, key, draw, data, new_data)

    def new_cell_probabilities(
        self, key: Key, draw: Draw, data: Observed, new_data: Entries, rows: Array, columns: Array
    ) -> Array:
        return queries.new_cell_probabilities(self, key, draw, data, new_data, rows, columns)

    def transform_rows(self, key: Key, draw: Draw, data: Observed, new_data: Entries) -> Array:
        """Latent factors (N', K) of new rows given a draw: means where cells are normal."""
        return queries.latent_factors(self, key, draw, data, new_data)

    def with_unknown(self, num_new: tuple[int, int], shape: tuple[int, int]) -> BPMF:
        """The model with rows and columns beyond those of the data, of zero features."""
        return unknown.with_unknown(self, num_new, shape)

    def draw_unknown(self, key: Key, draw: Draw, data: Observed, num_new: tuple[int, int]) -> Draw:
        return unknown.draw_unknown(self, key, draw, data, num_new)

    def factors(self, draw: Mapping[str, Array], data: Entries) -> tuple[Array, Array]:
        latent = slice(self.num_factors)
        return draw["u"][:, latent] * self.unit(data), draw["v"][:, latent]

    def transpose_draws(self, draws: Mapping[str, Value]) -> dict[str, Value]:
        """Draws of the transposed model: rows and columns exchanged."""
        turned = {"u": "v", "v": "u"}
        for name in draws:
            for prefix, other in (("row_", "column_"), ("column_", "row_")):
                if name.startswith(prefix):
                    turned[name] = other + name.removeprefix(prefix)
        return {turned.get(name, name): value for name, value in draws.items()}
