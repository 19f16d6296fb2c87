"""`BinaryMF`: the description with its sampler and the questions that it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from jaxmf import slots
from jaxmf.arguments import assign
from jaxmf.data import Dense, units
from jaxmf.devices import AUTO, default_platform
from jaxmf.engine import Algorithm, algorithm
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.model import Pair, settings_of
from jaxmf.models.binary_mf import (
    annealed,
    binary_mf_checks,
    chain,
    choice,
    defaults,
    density,
    fixed,
    queries,
    simulation,
    weights,
)
from jaxmf.models.binary_mf import state as states
from jaxmf.models.binary_mf.binary_mf_spec import BinaryMFSpec
from jaxmf.models.binary_mf.state import HYPERPARAMETERS, BinaryMFState
from jaxmf.priors.features import IndianBuffet
from jaxmf.row_shards import DATA_AXIS
from jaxmf.samplers.annealed_smc import AnnealedModel
from jaxmf.types import Array, Draw, Key


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class BinaryMF(BinaryMFSpec):
    """Binary features of rows and of columns, and weights between them.

    X ~ f(U W V'), where the numbers of features of rows and of columns are inferred or fixed.

    Args:
      row_prior: of U: `IndianBuffet(alpha, concentration)` or `BetaBernoulli(alpha, concentration,
        num_features)`, whose alpha and concentration are positive numbers or numpyro distributions.
        A number or a distribution alone is the alpha of an Indian buffet process.
      column_prior: of V, likewise.
      likelihood: `Gaussian(noise_scale)`, whose standard deviation theta^(-1/2) is in the units of
        the data: a number, a numpyro distribution, or None for LogUniform(s / 100, 2 s), s the root
        mean square of the data about the offset (from s / 10 where more than half of the cells are
        one number; without data LogNormal(0, 2)); `Bernoulli()` for
        cells 0 or 1; `Poisson(base_rate)` for counts, base_rate the mean of a cell without
        features: a number, a numpyro distribution, or None for an exponential one with the mean of
        the data (without data .1).
      weight_scale: standard deviation of the weights, phi^(-1/2): a number or a numpyro
        distribution. None: InverseGamma(2, 2 s) (without data LogNormal(0, 2)), with the Bernoulli
        likelihood LogNormal(0, 1).
      weight_mean: mean of the weights, w0; a number, or, with finite priors on both sides, a matrix
        (K, L) of them in the order of the slots of U and V: bias, given features, the others. Of a
        diagonal W only its diagonal counts.
      weight_shape, weight_rate: of the Gamma prior of Poisson weights; numbers or numpyro
        distributions. By default the shape is 1, and the rate has an exponential prior with mean
        1 / m, m the mean of the counts above 0 (without data 1).
      offset: mean of a Gaussian cell without features: a number, or (J,) one a column; of a pandas
        Series by its index, as in `column_unit`. None: where `weight_scale` is left open and
        `weight_mean` is 0 the mean of the data, or of each column where `column_unit` is one a
        column (held fixed), 0 otherwise. With `noise_scale`, `column_unit` and `row_offset` open
        too, the median of each column where levels of columns spread more than 1.3 times as much
        as what rows and columns leave of the cells (at least ten columns).
      column_unit: what Gaussian cells are divided by beside the offset, x_ij = offset_j +
        column_unit_j (U W V' + noise)_ij: a number, or (J,) one a column. Scales of noise and
        weights, and W, are in this unit; predictions, basis images and densities in those of the
        data. None: 1; but where `noise_scale`, `weight_scale` and `offset` are left open,
        `weight_mean` is 0, and columns are in different units, their standard deviations, and
        their means are the offset. They are in different units where the largest standard
        deviation is more than 30 times that of half of the columns, or more than 100
        times that of a column of measurements. Set 1 for cells as they are.
      row_offset: (I,), added to the Gaussian cells of each row, or one number. None: 0; but where
        all these are open and levels of rows spread as those of columns (at least ten rows), the
        medians of rows about the offset. New rows then have the median of their own cells.
      diagonal: only weights of row feature k and column feature k: the plaid model. Needs finite
        priors with as many features on both sides.
      row_bias: whether to add a feature that every row has, in slot 0 of U.
      column_bias: whether to add one that every column has, in slot 0 of V.
      fixed_row_features: (I, F) bool, known features of the rows: held as they are while others
        are inferred. They follow the bias in U. Those of a DataFrame or of `Features` with ids are
        matched to the data by id where the data has ids, all others by position.
      fixed_column_features: (J, F) bool, those of the columns, likewise.
    Raises:
      TypeError, ValueError: a setting of a wrong type or out of range, or settings that contradict
        each other.
    Example:
      >>> import jaxmf as mf
      >>> mf.BinaryMF(row_prior=mf.BetaBernoulli(1.0, 1.0, 3), likelihood=mf.Bernoulli()).row_alpha
      1.0
    """

    def __post_init__(self) -> None:
        assign(self, **binary_mf_checks.settings(self))

    # what posteriors and tables ask for by these names

    @property
    def has_bias_feature(self) -> bool:
        return self.row_bias

    @property
    def cell_distribution(self) -> str:
        """The distribution of a cell given a draw, as predictions know it."""
        return self.likelihood.cell_distribution

    @property
    def hyperparameters(self) -> Mapping[str, object]:
        """Settings, and those of priors and likelihood under the names that draws have."""
        return settings_of(self) | {name: defaults.stated(self, name) for name in HYPERPARAMETERS}

    def matched(self, data: Dense) -> BinaryMF:
        """The model with offset, scales and rates that were left open taken from a data set.

        Raises:
          ValueError: Gaussian cells so large or small that their squares leave the range of floats.
        """
        return defaults.matched(fixed.matched(self, data), data)

    notes = defaults.notes

    check_data = binary_mf_checks.check_data
    log_joint = density.log_joint
    log_likelihood = density.log_likelihood

    # --- simulation -------------------------------------------------------------------------------

    def simulate_matrix(
        self, key: Key, shape: tuple[int, int], capacity: int
    ) -> tuple[BinaryMFState, Dense, Array]:
        """As `simulate`, with () bool whether a side that grows uses its last slot."""
        state_key, x_key = jax.random.split(key)
        state = self.simulate_state(state_key, *shape, capacity)
        rows, columns = simulation.last_slots(self, state).values()
        return state, Dense(self.simulate_data(x_key, state)), rows | columns

    simulate_state = simulation.simulate_state
    simulate_data = simulation.simulate_data

    # --- methods ----------------------------------------------------------------------------------

    device_options = choice.device_options
    takes_process_rows = "sample"

    def mesh_axes(self, options: Mapping[str, object]) -> tuple[str, ...]:
        """With W kept, rows and columns are spread over "data": see `Model`."""
        return () if choice.whole_because(self, options) else (DATA_AXIS,)

    mesh_advice = choice.whole_because

    def sampler(
        self,
        *,
        weights: str | None = None,
        sweep: str = AUTO,
        anneal: bool = True,
        start: str = "prior",
        several: int | None = None,
        split_merge: int = 0,
        change_basis: int | None = None,
        capacity: int | None = None,
    ) -> Algorithm:
        """Markov chain Monte Carlo over U, V, W, missing cells and hyperparameters.

        Args:
          weights: "collapsed": W summed out, rows one after another (Gaussian likelihood; the
            default there unless W is diagonal). "explicit": W kept, all rows at once. `mf.sample`
            chooses it for large data (in I L K^2 + J K L^2, with 32 features where their number is
            open, from four million on: 123 rows and columns), and on accelerators but for few rows;
            the choice stands in `post.meta.options` and beside the progress.
          sweep: "bits": the features of a row one after another, as "auto" has it on every device.
            "whole_rows": each row drawn from all its 2^K settings, mixes better; for at most 12
            slots on either side, with "collapsed" and W not diagonal only.
          anneal: during the first three quarters of the warm-up let the sweeps over U and V see
            noise that falls geometrically from five times its scale, or from where it begins to
            hide the first singular vectors of the data if that is less (a likelihood to a power
            that rises from 1/25 to 1, of 0/1 cells); meanwhile the weight
            scale stays above and alpha below where they started, and a side that loses all of its
            features gets one. Counts under two `BetaBernoulli` have normal cells and W summed out
            instead of a power, on a CPU, W not diagonal and of sizes for which `weights` is
            "collapsed" of Gaussian cells (I L K^2 + J K L^2 up to four million); see
            `normal_cells.py`. Without annealing most chains end in a poor mode, with many
            features that say what a few could.
          start: "prior": features drawn from the prior, and annealed. "data": features that the
            singular vectors of the data show, other ones in every chain where the data leave a
            choice, and no annealing; as "prior" without annealing where they show none. Not for
            counts, a diagonal W or a matrix of prior means. See `samplers/bilinear/start.py`.
            "search": of 0/1 cells the best of an annealing and of rounds that find one side anew
            given the other, before the warm-up, which is then not annealed. It has the slots to
            begin with and goes without more: see `capacity`, and `starts.search`.
          several: proposals to change several features of a row at once, in every sweep; by default
            6 with W summed out, which made a sweep take half as long again and halved how far below
            the best mode chains end (`binary-mf/start` in benchmarks/results), 1 with W kept
            (while counts are normal cells 6), and none with whole rows.
          split_merge: proposals to split a feature or merge two, on either side and after every
            sweep, W summed out and, where it is kept, drawn anew after them; with Gaussian cells,
            W not diagonal and one prior mean for all weights only. See `samplers/split_merge.py`.
          change_basis: draws, on either side and after every sweep, of two features in another
            basis of their plane: one of them replaced by the rows that have just one of the two. So
            a chain leaves features of nearly all rows, unions and parts for the features that they
            are made of. By default 2 where W is summed out, with the limits of `split_merge`, else
            none. See `samplers/change_of_basis.py`.
          capacity: slots to begin with, on either side; they double when a sweep needs more.
        Returns:
          Algorithm with the growing axes "row_features" and "column_features".
        Raises:
          TypeError: a number of proposals or draws that is not a whole number.
          ValueError: options that the model does not have, a capacity below 1, or too many slots
            for "whole_rows".
        """
        if sweep == AUTO:
            left = self.device_options({"weights": weights}, platform=default_platform())
            sweep = str(left["sweep"])
            weights = str(left["weights"]) if "weights" in left else weights
        chosen = binary_mf_checks.weights_option(self, weights)
        if capacity is None and sweep == "whole_rows":
            capacity = 8
        binary_mf_checks.split_merge_option(self, split_merge)
        binary_mf_checks.start_option(self, start)
        plan = chain.plan_features(
            self, weights=chosen, sweep=sweep, several=several, capacity=(capacity, capacity),
            anneal=bool(anneal) and start == "prior",
        )  # fmt: skip
        plan = replace(
            plan,
            split_merge=split_merge,
            start=start,
            change_basis=binary_mf_checks.change_basis_option(self, change_basis, chosen),
            several_normal=binary_mf_checks.several_option(several, "collapsed", sweep),
            bases_normal=binary_mf_checks.NUM_BASES if change_basis is None else change_basis,
        )
        return algorithm(
            init=Partial(chain.init, plan, self),
            step=Partial(chain.step, plan, self),
            record=Partial(chain.record, self),
            grow=states.grow,
            capacity=states.capacity,
            limit=Partial(chain.limit, plan),
            row_arrays=chain.row_arrays,
        )

    def annealed(
        self,
        data: Dense,
        *,
        weights: str | None = None,
        sweep: str = AUTO,
        several: int | None = None,
        capacity: int | None = None,
    ) -> AnnealedModel:
        """Kernels and densities of one state for `jaxmf.smc`.

        Args:
          data: (I, J); missing cells have no factor in the likelihood.
          weights: as in `sampler`: "collapsed" for complete data with a Gaussian likelihood, the
            default there; "explicit" for all.
          sweep: as in `sampler`. With "whole_rows" a replica at a low power, which may take more
            features than the posterior has, is held to the 12 slots too.
          several: as in `sampler`.
          capacity: slots to begin with, on either side, None for about those that draws from the
            prior need; they double when a state needs more.
        Raises:
          ValueError: as `sampler`, or "collapsed" where cells are missing.
        """
        return annealed.annealed(
            self, data, weights=weights, sweep=sweep, several=several, capacity=capacity
        )

    def trimmed(self, draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """See `TrimsDraws`; the slots of a finite side are all features."""
        trimmed = dict(draws)
        if isinstance(self.row_prior, IndianBuffet):
            axes = {"z": -1, "weights": 2}
            trimmed = slots.trimmed(trimmed, "z", axes, least=self.num_fixed_rows())
        if isinstance(self.column_prior, IndianBuffet):
            axes = {"v": -1, "weights": 3}
            trimmed = slots.trimmed(trimmed, "v", axes, least=self.num_fixed_columns())
        return trimmed

    @property
    def cells_given_draw(self) -> str:
        """Gaussian cells depend on each other by W, which is summed out of predictions."""
        return "summed out" if isinstance(self.likelihood, Gaussian) else "independent"

    @property
    def has_discrete_cells(self) -> bool:
        return self.likelihood.is_discrete

    # --- queries on one draw ----------------------------------------------------------------------

    def features(self, draw: Draw, data: Dense) -> Pair:
        """Basis images W V' and their standard deviations given U, V and X, each (K, J) float.

        Args: draw: what a chain records: z (I, K) bool, which is U, v (J, L) bool, numbers,
        weights.
        """
        images = queries.basis(self, draw, self.centred(data))
        if self.column_unit is None:
            return images
        return images[0] * self.column_unit, images[1] * self.column_unit

    def expected_weights(self, draw: Draw, data: Dense) -> Array:
        """W (K, L) of a draw: its mean given U, V and the observed cells, or the draw's own."""
        return queries.expected_weights(self, draw, self.centred(data))

    def weight_moments(self, key: Key, draw: Draw, data: Dense) -> Pair:
        """Mean and sd of W (K, L) given U, V and the observed cells; see `weights.py`."""
        return weights.weight_moments(self, key, draw, self.centred(data))

    def num_bias_features(self) -> tuple[int, int]:
        """How many first slots of U and of V every row, or every column, has."""
        return int(self.row_bias), int(self.column_bias)

    def predict_cells(self, draw: Draw, data: Dense, rows: Array, columns: Array) -> Pair:
        """Predictive mean and variance, each (M,), of the cells (rows[m], columns[m]).

        Gaussian: W is summed out given the observed cells, whether the chain kept it or not. For a
        missing cell this is its distribution given the draw, for an observed one that of a
        replicate.
        """
        mean, variance = queries.cell_moments(self, draw, self.centred(data), rows, columns)
        levels = jnp.asarray(0.0 if self.row_offset is None else self.row_offset)
        levels = levels[rows] if levels.ndim else levels
        return self.in_data_units(mean, variance, columns, levels=levels)

    def transform_rows(self, key: Key, draw: Draw, data: Dense, new_data: Dense) -> Array:
        """Probabilities (I_new, K) of the draw's row features in rows not seen in training."""
        new = units.centred(new_data, self._offsets(self._new_levels(new_data)), self.column_unit)
        return queries.new_rows(self, key, draw, self.centred(data), new).probabilities

    def predict_rows(self, key: Key, draw: Draw, data: Dense, new_data: Dense) -> Pair:
        """Predictive mean and variance, each (I_new, J), of the cells of new rows.

        W and the features of each row are drawn given the observed cells, so that a mixture over
        draws is the predictive distribution.
        """
        levels = self._new_levels(new_data)
        new = units.centred(new_data, self._offsets(levels), self.column_unit)
        eta = queries.new_rows(self, key, draw, self.centred(data), new).eta
        likelihood, _ = queries.at_draw(self, draw)
        mean, variance = likelihood.moments(eta)
        new_levels = jnp.asarray(0.0 if levels is None else levels)
        new_levels = new_levels[:, None] if new_levels.ndim else new_levels
        return self.in_data_units(mean, variance, slice(None), levels=new_levels)
