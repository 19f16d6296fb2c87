"""`FeatureModel`: the description with its sampler, its filter and its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from jaxmf import slots
from jaxmf.arguments import assign, check_count
from jaxmf.data import Dense, units
from jaxmf.devices import AUTO
from jaxmf.engine import Algorithm, algorithm
from jaxmf.likelihoods.cells.likelihood import Likelihood
from jaxmf.model import Pair
from jaxmf.models.feature_model import chain, defaults, feature_model_checks, queries
from jaxmf.models.feature_model.feature_model_spec import FUNCTIONS, FeatureModelSpec, FeatureState
from jaxmf.models.feature_model.filter import FeatureFilterPlan, FeatureParticle, filter_of_rows
from jaxmf.priors.features import IndianBuffet, sample_by_rows
from jaxmf.samplers.annealed_smc import AnnealedModel, annealed_model, log_ratio_of_powers
from jaxmf.samplers.cloud import TriggerFn
from jaxmf.samplers.explicit_rows import where_slots
from jaxmf.samplers.feature_layout import num_features
from jaxmf.samplers.feature_particles import refuse_optimal, whole_z
from jaxmf.samplers.resampling import ResampleFn, systematic
from jaxmf.samplers.smc import particle_filter
from jaxmf.types import Array, Draw, Key


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FeatureModel(FeatureModelSpec):
    """Binary latent features with a user's likelihood and prior of features.

    Args:
        log_likelihood: (x (D,), z (K,) bool, y (K, ...)) -> () float, log p(x | z, Y), or (D,), one
            number a cell; missing cells need the latter, and must not matter to the others. A JAX
            function. Where z_k is False, y_k must not matter: slots without a feature hold
            arbitrary values. Numbers it depends on are best bound as
            `jax.tree_util.Partial(function, number)`; a new function object is compiled again. It
            is tried on the first rows before a run; where it gives NaN later on, the run stops and
            says that log_evidence is not finite. None where `likelihood` is there.
        feature_prior: numpyro distribution of a row of Y; its event shape is that of the row. Or a
            function of `parameters` that returns one. With one of the likelihoods of jaxmf it may
            be left out: features are then normal with mean 0 and the root mean square of the data
            about the offset (Gaussian, StudentT; this by the median) or standard deviation 2
            (scores of Bernoulli, Probit, Ordinal), exponential with the mean of the positive cells
            (counts), or zeros and ones (NoisyOr).
        prior: of Z: `IndianBuffet(alpha, concentration)`, `BetaBernoulli(...)`, whose alpha and
            concentration are numbers or numpyro distributions, or an object with the methods of
            `jaxmf.priors.features.RowByRowPrior`, tried by `jaxmf.testing.check_chain_rule`.
        likelihood: instead of `log_likelihood` an object such as `Poisson()` or `StudentT()`, of
            cells whose predictor is sum_k z_k y_kd, with rows of Y of one number a column. Its
            hyperparameters may be numpyro distributions, which `sample` learns; the noise of
            Gaussian and StudentT and the base rate of counts have priors on the scale of the data
            where they are None; `moments`,
            `sample_row`, `cell_distribution` and `columns_independent` follow from it, and runs
            can be compared by `jaxmf.compare`, as its cells are independent given a draw.
        offset: added to the predictor of a likelihood that may be below 0: a number, or (D,) one a
            column; of a pandas Series by its index. None: where `feature_prior` is left out the
            mean of each column (Gaussian), its median (StudentT), or the log odds or normal score
            of the share of its ones (Bernoulli, Probit); 0 otherwise.
        column_unit: what Gaussian and StudentT cells are divided by beside the offset,
            x = offset_d + column_unit_d (sum_k z_k y_kd + noise): a number, or (D,) one a column,
            as `offset`. Noise and `feature_prior` are in this unit; predictions, features and
            densities in those of the data. None: 1; but where offset, noise and `feature_prior`
            are left open and columns are in different units (see `LinearGaussianIBP`), their
            standard deviations, of StudentT by medians.
        bias: whether to add a row of Y that every row has, with the same prior as the others. It
            is slot 0 of Z and is not counted as a feature. None: for Gaussian and StudentT where
            offset and `feature_prior` are left open and the data show more than noise, as for
            `LinearGaussianIBP`.
        parameters: name -> a number, or a numpyro distribution of one, which `sample` learns:
            further arguments of the functions, by the names that they have there. In
            ``log_likelihood(x, z, y, noise_scale)`` and ``moments(z, y, noise_scale)`` with
            ``parameters={"noise_scale": dist.HalfNormal(1.0)}`` both get one noise scale.
        moments: (z (K,) bool, y (K, ...)) -> mean (D,) and variance (D,) of the cells of a row;
            what `predict` needs, and nothing else does.
        sample_row: (key, z (K,) bool, y (K, ...)) -> x (D,), a row drawn from what `log_likelihood`
            scores; what `simulate` needs. Intervals of predictions are taken from it.
        cell_distribution: "normal", "bernoulli" or "poisson": without `sample_row`, how a cell with
            such a mean and variance is drawn; and scored, where `log_likelihood` returns ().
        columns_independent: whether the cells of column d depend on y[:, d] alone, as where rows of
            Y add up. `sample` then moves all columns at once, where it otherwise moves a few
            entries of Y at a time. It is tried on the first rows before a run.
    Raises:
        TypeError, ValueError: a part is not what it should be; the message names it.
    Example:
        >>> import jax, numpyro.distributions as dist, jaxmf as mf
        >>> def log_likelihood(x, z, y):
        ...     return dist.Poisson(0.1 + z @ y).log_prob(x)
        >>> model = mf.FeatureModel(log_likelihood, dist.Gamma(1.0, 0.5).expand([6]).to_event(1))
        >>> model.row_shape
        (6,)
        >>> rates = dist.Gamma(1.0, 0.5).expand([6]).to_event(1)
        >>> model = mf.FeatureModel(likelihood=mf.Poisson(0.1), feature_prior=rates)
    """

    def __post_init__(self) -> None:
        for name in FUNCTIONS:
            function = getattr(self, name)
            is_distribution = hasattr(function, "log_prob") or isinstance(function, type)
            if callable(function) and not is_distribution and not isinstance(function, Partial):
                assign(self, **{name: Partial(function)})
        if isinstance(self.parameters, Mapping):
            assign(self, parameters=dict(self.parameters))
        if isinstance(self.likelihood, Likelihood):
            assign(self, cell_distribution=self.likelihood.cell_distribution)
        feature_model_checks.check_parts(self)

    matched = defaults.matched

    def check_data(self, data: Dense, name: str) -> None:
        """Tries the likelihood on some rows; see `feature_model_checks.check_likelihood`."""
        if self.likelihood is not None:
            self.likelihood.check(data.values, name, observed=data.observed)
        feature_model_checks.check_likelihood(self.at_start, data, name)

    def notes(self, data: Dense) -> tuple[str, ...]:
        """A note if columns were taken in their own units."""
        if self.column_unit is None:
            return ()
        spreads = defaults.column_spreads(self.likelihood, data)
        what = "noise_scale and feature_prior"
        return units.note_of_units(data, self.column_unit, what, spreads=spreads)

    def simulate_like(self, key: Key, data: Dense) -> tuple[FeatureState, Dense]:
        """A state of the chain from the prior, and data of these shapes; needs `sample_row`.

        Args:
            data: (N, D); cells that are missing here are missing in what is drawn.
        """
        feature_key, x_key = jax.random.split(key)
        draw, _ = self.simulate_features(feature_key, data.num_rows, 32)
        return chain.state_of(self, draw), Dense(self.simulate_data(x_key, draw), data.observed)

    def simulate_matrix(
        self, key: Key, shape: tuple[int, int], capacity: int
    ) -> tuple[FeatureState, Dense, Array]:
        """A state of the chain from the prior, data, and () bool whether slots ran out.

        The number of columns is that of a row of `feature_prior`, or of `sample_row`.
        """
        feature_key, x_key = jax.random.split(key)
        draw, overflow = self.simulate_features(feature_key, shape[0], capacity)
        return chain.state_of(self, draw), Dense(self.simulate_data(x_key, draw)), overflow

    def simulate_more(
        self, key: Key, state: FeatureState, data: Dense
    ) -> tuple[FeatureState, Dense, dict[str, Array]]:
        z_key, y_key, x_key = jax.random.split(key, 3)
        fixed = self.at_values(state.hyperparameters)
        earlier = state.z[:, self.first_slot() :]
        more, overflow = sample_by_rows(fixed.prior, z_key, *earlier.shape, earlier=earlier)
        more = self.with_bias(more)
        new_y = fixed.draw_features(y_key, state.z.shape[1])
        y = where_slots(fixed.exists_in(state.z), state.y, new_y)
        draw = {"z": jnp.concatenate([state.z, more]), "y": y, **state.hyperparameters}
        x = self.simulate_rows(x_key, draw, data.num_rows + jnp.arange(data.num_rows))
        return chain.state_of(self, draw), data.with_more(x), {"features": overflow}

    def sampler(
        self,
        *,
        sweep: str = AUTO,
        anneal: bool = True,
        num_value_moves: int = 2,
        capacity: int | None = None,
    ) -> Algorithm:
        """Gibbs and Metropolis-Hastings sampling of Z, Y and hyperparameters.

        A step goes over all rows, once for their bits and once for features that a row alone has,
        then moves all rows of Y, by slices where they are continuous and entry by entry where they
        are zeros and ones, then the hyperparameters by slices. All of it asks the likelihood for
        values alone.

        Args:
            sweep: "bits": the features of a row one after another. "particle_gibbs": besides, all
                that a row shares with others together, see `samplers/particle_rows.py`; for
                features of which several have to change at once. "auto": the second for counts
                under a likelihood object, the first else.
            anneal: whether the warm-up starts with weak features, Y times a fifth, a factor that
                rises to one after three quarters of it. Where a fifth of Y is outside the support
                of its prior, or rows would need too many of such features, it starts with the
                likelihood to the power 1/25; counts under a likelihood object with a power at
                which their first singular vectors begin to show. A dispersion that is learned is
                at most .1 for nine tenths of the warm-up, or what the data show if that is more.
            num_value_moves: moves of all rows of Y a step.
            capacity: slots for features to begin with, by default 16; they double when a step needs
                more.
        Returns:
            Algorithm with the growing axis "features".
        Raises:
            TypeError: `prior` is of another class and has no `log_prob`.
            ValueError: an unknown sweep, or a number of moves or a capacity below 1.
        """
        plan = self._plan(sweep, num_value_moves, capacity, anneal=anneal)
        return algorithm(
            init=Partial(chain.init, plan, self),
            step=Partial(chain.step, plan, self),
            **chain.shared(self),
        )

    def _plan(
        self, sweep: str, num_value_moves: int, capacity: int | None, *, anneal: bool
    ) -> chain.FeatureModelPlan:
        feature_model_checks.check_density(self.prior)
        return chain.FeatureModelPlan(
            # a start with weak features needs more than 8, and each growth compiles anew
            num_slots=self.num_slots(slots.FIRST_SLOTS if capacity is None else capacity),
            anneal=anneal,
            num_value_moves=check_count("num_value_moves", num_value_moves),
            sweep=feature_model_checks.sweep_option(sweep, self.likelihood),
        )

    def annealed(
        self,
        data: Dense,
        *,
        sweep: str = AUTO,
        num_value_moves: int = 2,
        capacity: int | None = None,
    ) -> AnnealedModel:
        """Kernels and densities of one state for `jaxmf.smc`.

        Args:
            data: (N, D); missing cells have no factor in the likelihood.
            sweep, num_value_moves, capacity: as in `sampler`.
        Raises:
            TypeError, ValueError: as `sampler`.
        """
        del data
        plan = self._plan(sweep, num_value_moves, capacity, anneal=False)
        return annealed_model(
            init=Partial(chain.draw_from_prior, plan, self),
            step=Partial(chain.powered_step, plan, self),
            measure=Partial(chain.measure, self),
            log_ratio=log_ratio_of_powers,
            **chain.shared(self),
        )

    def filter(
        self,
        *,
        num_particles: int = 1_000,
        resample_fn: ResampleFn = systematic,
        ess_threshold: float | TriggerFn = 0.5,
        rejuvenate_every: int = 0,
        capacity: int | None = None,
        batch_size: int | None = None,
    ) -> Algorithm:
        """The particle filter, a row a step; see `filter.py`. Hyperparameters must be numbers.

        Args:
            num_particles: P.
            resample_fn: scheme of `jaxmf.samplers.resampling`; not `optimal`, which needs all
                children of a particle enumerated.
            ess_threshold: resample when the effective sample size is below this share of P.
            rejuvenate_every: Gibbs and Metropolis-Hastings updates of all rows so far, and of Y,
                every `rejuvenate_every` rows; 0 for none.
            capacity: slots for features to begin with; they double when a particle needs more.
            batch_size: how many particles are worked on at once; None for all.
        Returns:
            Algorithm with the growing axis "features", and "rows" where particles carry all Z.
        """
        refuse_optimal(resample_fn, "features of any distribution cannot be enumerated")
        plan = FeatureFilterPlan(
            num_slots=self.num_slots(capacity), rejuvenates=rejuvenate_every > 0
        )
        return particle_filter(
            filter_of_rows(feature_model_checks.without_priors(self), plan),
            num_particles=num_particles,
            resample_fn=resample_fn,
            ess_threshold=ess_threshold,
            rejuvenate_every=rejuvenate_every,
            batch_size=batch_size,
        )

    def particle_draw(self, particle: FeatureParticle, path: dict[str, Array], data: Dense) -> Draw:
        """The draw recorded from one particle of the filter: all of Z, Y, and the log joint."""
        z = whole_z(particle, path)
        num_found = num_features(z[:, self.first_slot() :])
        draw = {"z": z, "y": particle.y, "num_features": num_found}
        if hasattr(self.prior, "log_prob"):
            draw["log_joint"] = self.log_joint(draw, data)
        return draw

    def trimmed(self, draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """See `TrimsDraws`; the slots of a finite prior are all features."""
        if not isinstance(self.prior, IndianBuffet):
            return dict(draws)
        return slots.trimmed(draws, "z", {"z": -1, "y": 2}, least=self.first_slot())

    def features(self, draw: Draw, data: Dense) -> Pair:
        """Y of a draw as (K, size of a row), and zeros: Y is drawn, so it has no spread.

        In units of the data. A bias feature, in slot 0, has the offset in it.
        """
        del data
        y = draw["y"].reshape(draw["y"].shape[0], -1)
        if self.column_unit is not None:
            y = y * self.unit_at(slice(None)).astype(y.dtype)
        if self.has_bias_feature and self.offset is not None:
            y = y.at[0].add(jnp.asarray(self.offset, y.dtype))
        return y, jnp.zeros_like(y)

    def cell_log_density(
        self, draw: Draw, data: Dense, rows: Array, columns: Array, values: Array
    ) -> Array:
        return queries.log_density(self.at_values(draw), draw, data, (rows, columns), values)

    def draw_cells(self, key: Key, draw: Draw, data: Dense, rows: Array, columns: Array) -> Array:
        """One value of every cell given a draw, (M,) float.

        Of a likelihood by its `sample`, of functions by `sample_row`, else by `moments` and
        `cell_distribution`.
        """
        return queries.draw_cells(self.at_values(draw), key, draw, data, (rows, columns))

    def draw_rows(self, key: Key, draw: Draw, data: Dense, new_data: Dense) -> Array:
        """One value of every cell of new rows given the features drawn from their observed ones.

        A row whose cells are correlated given its features is drawn afresh: (N_new, D) float.
        """
        return queries.draw_rows(self.at_values(draw), key, draw, data, new_data)

    @property
    def values(self) -> tuple[float, ...] | None:
        """The levels of cells that have some; None for other cells."""
        return getattr(self.likelihood, "levels", None)

    def cell_probabilities(self, draw: Draw, data: Dense, rows: Array, columns: Array) -> Array:
        del data
        fixed = self.at_values(draw)
        likelihood: Any = fixed.likelihood
        return likelihood.probabilities(queries.cell_predictors(fixed, draw, rows, columns))

    def new_cell_probabilities(
        self, key: Key, draw: Draw, data: Dense, new_data: Dense, rows: Array, columns: Array
    ) -> Array:
        z, _ = queries.new_rows(self.at_values(draw), key, draw, new_data)
        return self.cell_probabilities(draw | {"z": z}, data, rows, columns)

    def transform_rows(self, key: Key, draw: Draw, data: Dense, new_data: Dense) -> Array:
        """Probabilities (N_new, K) of the draw's features in rows not seen in training.

        Features that only a new row would have are left out: their rows of Y cannot be summed out
        of a likelihood that is known by its value alone.
        """
        del data
        return queries.new_rows(self.at_values(draw), key, draw, new_data)[1]

    def predict_rows(self, key: Key, draw: Draw, data: Dense, new_data: Dense) -> Pair:
        """Predictive mean and variance, each (N_new, D), of the cells of new rows.

        The features of each row are drawn given its observed cells, as in `transform_rows`.
        """
        del data
        fixed = self.at_values(draw)
        z = queries.new_rows(fixed, key, draw, new_data)[0]
        return jax.vmap(fixed.row_moments, in_axes=(0, None))(z, draw["y"])
