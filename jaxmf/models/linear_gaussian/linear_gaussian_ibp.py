"""`LinearGaussianIBP`: the description with its sampler, its filter and its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from jaxmf.arguments import check_count, check_flag
from jaxmf.data import Dense
from jaxmf.devices import AUTO
from jaxmf.engine import Algorithm, algorithm, lower_level
from jaxmf.model import Pair
from jaxmf.models.linear_gaussian import annealed, chain, defaults, queries
from jaxmf.models.linear_gaussian.filter import filter_of_rows
from jaxmf.models.linear_gaussian.linear_gaussian_spec import LinearGaussianSpec
from jaxmf.models.linear_gaussian.particle import GaussianFilterPlan, draw_of_particle
from jaxmf.models.linear_gaussian.state import scales
from jaxmf.priors.features import slots_of_prior
from jaxmf.row_shards import DATA_AXIS
from jaxmf.samplers.annealed_smc import AnnealedModel, annealed_model
from jaxmf.samplers.cloud import TriggerFn
from jaxmf.samplers.feature_rows import check_whole_rows
from jaxmf.samplers.resampling import ResampleFn, optimal, systematic
from jaxmf.samplers.smc import particle_filter
from jaxmf.types import Array, Draw, Key, PyTree


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class LinearGaussianIBP(LinearGaussianSpec):
    """Binary latent features of unknown number with Gaussian loadings and noise.

    X = offset + column_unit (Z Y + noise) with Z from an Indian buffet process, or from the finite
    beta-Bernoulli model. With no option set the columns are centred, divided by their standard
    deviations where they are in different units, and both scales are learned in the unit of the
    data, so that any location and unit will do; all answers are in the units of the data.

    Args:
      alpha: mass of the prior of Z, the expected number of features of a row; a positive number or
        a numpyro distribution. A Gamma is updated exactly, others by slice sampling.
      noise_scale: standard deviation of the noise, in `column_unit`: a number or a numpyro
        distribution; short for `likelihood=Gaussian(noise_scale)`. None: LogUniform(s / 100, 2 s),
        s the root mean square of the data about the offset, in that unit (without data 1); from
        s / 10 where more than half of the cells have the same value.
      feature_scale: standard deviation of the entries of Y, likewise. None: InverseGamma(2, 2 s).
      concentration: beta of the two-parameter process; 1 is the ordinary one.
      num_features: None for the Indian buffet process; a number K for the finite model in which
        feature k has probability Beta(alpha concentration / K, concentration).
      bias: whether to add a feature that every row has: a mean row, N(offset, feature_scale^2). It
        is slot 0 of Z and is not counted as a feature. None: added where `offset` and
        `feature_scale` are left open and the data show more than noise. Features raise the means of
        the columns, so rows without features are not centred on these.
      offset: the mean of the cells of a row without features: a number, or (D,) one a column, a
        pandas Series by its index. None: where `feature_scale` is left open or `bias` is set the
        column means of the data (held fixed), 0 otherwise. Set 0 for parts that add up to the data
        as they are.
      column_unit: what cells are divided by once the offset is subtracted: a number, or (D,) one a
        column, as `offset`. Both scales are in this unit; predictions, features and densities in
        those of the data. None: 1; but where `noise_scale`, `feature_scale` and `offset` are left
        open and columns are in different units, their standard deviations. They are in different
        units where the largest standard deviation is more than 30 times that of half of the
        columns, or more than 100 times that of a column of measurements. Set 1 for cells as they
        are.
      column_noise: whether each column has noise of its own: noise_scale times a factor, whose
        spread over columns is learned (`priors/column_noise.py`). For tables of which some columns
        are measured better than others; features of a column are in proportion to its noise. Where
        units are left open they are then the columns' standard deviations. See
        `Posterior.column_noise`; not with `particle_filter` and `smc`. None: used where columns are
        in different units (see `column_unit`) and the method takes it.
    Raises:
      TypeError, ValueError: if a hyperparameter is not positive, or its prior is not over positive
        numbers; if `num_features` is not a positive integer; if `offset` is not finite, or
        `column_unit` not positive.
    Example:
      >>> import jaxmf as mf
      >>> mf.LinearGaussianIBP(alpha=1.0, noise_scale=0.5, feature_scale=1.0).has_bias_feature
      False
    """

    def for_method(self, method: str) -> LinearGaussianIBP:
        """Without noise by column for filters and `smc`, unless it was stated: these refuse it."""
        is_left_open = self.column_noise is None and method in ("particle_filter", "smc")
        return replace(self, column_noise=False) if is_left_open else self

    matched = defaults.matched

    def sampler(
        self,
        *,
        sweep: str = AUTO,
        anneal: bool = True,
        split_merge: int = 0,
        change_basis: int = 2,
        shared_births: int = 0,
        capacity: int | None = None,
    ) -> Algorithm:
        """Gibbs sampling of Z, missing cells and hyperparameters, Y summed out.

        Args:
          sweep: "collapsed": rows one after another, bit by bit. "parallel": all rows at once given
            Y, and over the devices of a mesh axis "data". "auto": the first on a CPU, the second on
            accelerators but for few rows. "whole_rows": each row drawn from all its 2^K settings,
            mixes better, for at most 12 slots.
          anneal: start from no features and, during the first three quarters of the warm-up, let
            the sweeps see a feature scale that rises geometrically from a fifth of its value (from
            more where a row would take more than 25 features at that), which is itself held until
            the last tenth of that time, when features that repeat others are left out; the noise is
            kept above a bound that falls to a fifth of the data's spread. Without it most chains
            end in a poor mode.
          split_merge: proposals to split a feature or merge two after every sweep; each goes three
            times over the rows that have one of its features. None by default: on the images of
            section 4.2, scales fixed, the annealed start alone brought 40 of 40 chains to the mode.
            Without it they help: 25 of 40 with three proposals a sweep, 15 with none. See
            `samplers/split_merge.py`.
          change_basis: how often after every sweep two columns of Z are drawn anew from the three
            bases of their plane: a feature of nearly all rows beside one of all rows becomes one of
            a few rows. 0 for none. See `samplers/change_of_basis.py`.
          shared_births: proposals a step, once the annealing is over, of a birth or death of a
            feature that several rows share, with all its rows at once; see
            `samplers/shared_births.py`. None by default, as one costs about as much as a sweep. For
            wide tables, where a feature of many rows is dear to the first row that has it.
          capacity: slots to begin with; they double when a sweep needs more.
        Returns:
          Algorithm with the growing axis "features".
        Raises:
          TypeError: a `split_merge`, `change_basis` or `shared_births` that is not a whole number.
          ValueError: an unknown sweep, a capacity below 1, too many slots for "whole_rows", or a
            negative number of proposals or changes.
        """
        sweep = self.chosen_sweep(sweep)
        # an annealed start passes 16 features on its way; 24 slots cost a sweep the same, and one
        # program is compiled in place of two
        first = 8 if sweep == "whole_rows" else 24
        plan = chain.LinearGaussianPlan(
            num_slots=self._slots_of_sweep(sweep, first if capacity is None else capacity),
            sweep=sweep,
            anneal=check_flag("anneal", anneal),
            split_merge=check_count("split_merge", split_merge, 0),
            change_basis=check_count("change_basis", change_basis, 0),
            shared_births=check_count("shared_births", shared_births, 0),
        )
        model = self.completed()
        return algorithm(
            init=Partial(chain.init, plan, model),
            step=Partial(chain.step, plan, model),
            **chain.shared(plan, model),
            compiler_options=lower_level,
            row_arrays=chain.row_arrays if sweep == "parallel" else None,
        )

    def _slots_of_sweep(self, sweep: str, capacity: int) -> int:
        num_slots = self.num_slots(capacity)
        if sweep == "whole_rows":
            check_whole_rows(num_slots, remedy=chain.WHOLE_ROWS_REMEDY)
        return num_slots

    takes_process_rows = "sample"

    def mesh_axes(self, options: Mapping[str, object]) -> tuple[str, ...]:
        """The parallel sweep spreads rows over "data"; splits and births go by all of them."""
        has_moves = options.get("split_merge") or options.get("shared_births")
        return (DATA_AXIS,) if options.get("sweep") == "parallel" and not has_moves else ()

    def annealed(
        self, data: Dense, *, sweep: str = AUTO, capacity: int | None = None
    ) -> AnnealedModel:
        """Kernels and densities of one state for `jaxmf.smc`; Y is summed out at every power.

        Args:
          data: (N, D); missing cells are summed out of the weights, and drawn for the sweeps.
          sweep: as in `sampler`.
          capacity: slots to begin with, None for about those that draws from the prior need; they
            double when a state needs more.
        Raises:
          ValueError: an unknown sweep, a capacity below 1, or too many slots for "whole_rows".
        """
        self._check_alike("smc")
        sweep = self.chosen_sweep(sweep, data)
        if capacity is None:
            capacity = 8  # the sweep of whole rows has room for twelve
            if sweep != "whole_rows":
                capacity = slots_of_prior(self.alpha, self.concentration, data.num_rows)
        num_slots = self._slots_of_sweep(sweep, capacity)
        plan = chain.LinearGaussianPlan(
            num_slots, sweep, anneal=False, split_merge=0, change_basis=1, shared_births=0
        )
        model = self.completed()
        return annealed_model(
            init=Partial(annealed.init, plan, model),
            step=Partial(annealed.step, plan, model),
            measure=Partial(annealed.measure, model),
            log_ratio=annealed.log_ratio,
            refresh=Partial(annealed.draw_missing, model),
            **chain.shared(plan, model) | {"record": Partial(annealed.record, model)},
        )

    def features(self, draw: Draw, data: Dense) -> Pair:
        """Mean and standard deviation of Y given a draw and the observed cells, each (K, D) float.

        What a feature adds to the offset; a bias feature, in slot 0, has the offset in its mean.

        Args: draw: what a chain records: z (N, K) bool and the hyperparameters.
        """
        if self.column_noise:
            return self.at_draw(draw).features(draw, data)
        mean, deviation = queries.features(self._feature_posterior(draw, data), scales(draw))
        if self.column_unit is not None:
            unit = self.unit_at(slice(None)).astype(mean.dtype)
            mean, deviation = mean * unit, deviation * unit
        if self.bias and self.offset is not None:
            mean = mean.at[0].add(jnp.asarray(self.offset, mean.dtype))
        return mean, deviation

    def _feature_posterior(self, draw: Draw, data: Dense) -> queries.FeaturePosterior:
        return queries.feature_posterior(draw["z"], self.centred(data), scales(draw))

    def predict_cells(self, draw: Draw, data: Dense, rows: Array, columns: Array) -> Pair:
        """Predictive mean and variance, each (M,), of the cells (rows[m], columns[m]).

        For a missing cell this is its distribution given the draw; for an observed one that of a
        replicate.
        """
        model = self.at_draw(draw)
        posterior = model._feature_posterior(draw, data)
        moments = queries.cells(posterior, draw["z"], rows, columns, scales(draw))
        return model.in_data_units(*moments, columns)

    def transform_rows(self, key: Key, draw: Draw, data: Dense, new_data: Dense) -> Array:
        """Probabilities (N_new, K) of the draw's features in rows not seen in training."""
        return self.at_draw(draw)._new_rows(key, draw, data, new_data)[1].probabilities

    def predict_rows(self, key: Key, draw: Draw, data: Dense, new_data: Dense) -> Pair:
        """Predictive mean and variance, each (N_new, D), of the cells of new rows.

        The features of each row are drawn given its observed cells, so that a mixture over draws
        is the predictive distribution.
        """
        model = self.at_draw(draw)
        posterior, rows = model._new_rows(key, draw, data, new_data)
        return model.in_data_units(*queries.new_row_moments(posterior, rows, scales(draw)))

    def _new_rows(self, key: Key, draw: Draw, data: Dense, new_data: Dense) -> PyTree:
        posterior = self._feature_posterior(draw, data)
        rows = queries.draw_new_rows(
            key,
            posterior,
            self.feature_prior(draw["alpha"], draw["concentration"]),
            draw["z"],
            scales(draw),
            self.centred(new_data),
            num_fixed=self.first_slot(),
        )
        return posterior, rows

    def filter(
        self,
        *,
        num_particles: int = 1_000,
        proposal: str = "prior",
        resample_fn: ResampleFn = systematic,
        ess_threshold: float | TriggerFn = 0.5,
        rejuvenate_every: int = 0,
        anneal_from: float = 1.0,
        anneal_steps: int = 0,
        capacity: int | None = None,
        batch_size: int | None = None,
    ) -> Algorithm:
        """The particle filter, a row a step; see `filter.py`.

        Args:
          num_particles: P.
          proposal: "prior": features of a row from their prior given the earlier rows, as in the
            paper. "exact": from their conditional given the row as well, a sum over all 2^K
            settings and any number of new features; better weights, for few features.
          resample_fn: scheme of `jaxmf.samplers.resampling`. `optimal` needs the exact proposal: it
            chooses among all children of all particles.
          ess_threshold: resample when the effective sample size is below this share of P; 1 for
            every row, as Algorithm 2 does.
          rejuvenate_every: a Gibbs sweep over all rows so far every `rejuvenate_every` rows, and
            after every tempering step; 0 for none.
          anneal_from: pass the rows with the feature scale multiplied by this; below 1 the features
            of the first rows stick less.
          anneal_steps: importance steps after the last row that bring the factor to 1,
            geometrically. As many further steps must be run.
          capacity: slots for features to begin with; they double when a particle needs more.
          batch_size: how many particles are worked on at once; None for all.
        Returns:
          Algorithm with the growing axis "features", and "rows" where particles carry the whole Z.
        Raises:
          ValueError: an unknown proposal, options that do not go together, too many slots for the
            exact proposal.
        """
        self._check_alike("particle_filter")
        has_children = resample_fn is optimal
        # few to begin with: the cost of a particle follows the number of slots
        first = 4 if has_children else 8
        plan = GaussianFilterPlan(
            num_slots=self.num_slots(first if capacity is None else capacity),
            proposal=proposal,
            has_children=has_children,
            rejuvenates=rejuvenate_every > 0,
            anneal_from=float(anneal_from),
            anneal_steps=int(anneal_steps),
        )
        return particle_filter(
            filter_of_rows(self.completed(), plan),
            num_particles=num_particles,
            resample_fn=resample_fn,
            ess_threshold=ess_threshold,
            rejuvenate_every=rejuvenate_every,
            batch_size=batch_size,
        )

    def _check_alike(self, method: str) -> None:
        if self.column_noise:
            raise ValueError(
                f"column_noise: {method} takes columns that share their noise; use sample, or "
                "leave column_noise out"
            )

    particle_draw = draw_of_particle
