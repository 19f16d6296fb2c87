"""Binary latent features with any likelihood of a row and any prior of a feature.

    Z ~ a prior that goes row by row, such as an Indian buffet process
    y_k ~ feature_prior, independently              rows of Y
    p(X | Z, Y) = prod_i p(x_i | z_i, Y),           log_likelihood

Inference is the Markov chain of `chain.py` or the particle filter of `filter.py`. Both ask of the
three parts only what is written here, so that the linear-Gaussian and the noisy-OR model are two of
their cases.

Source: Wood & Griffiths (2006), Particle filtering for nonparametric Bayesian matrix factorization,
section 3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from jaxmf import slots
from jaxmf.arguments import MOST_SLOTS, check_count
from jaxmf.data import Dense
from jaxmf.data.container import bare
from jaxmf.devices import AUTO
from jaxmf.engine import Algorithm, algorithm
from jaxmf.likelihoods.cells.likelihood import Likelihood, Unnormalised
from jaxmf.model import Model, Pair
from jaxmf.models.feature_model import (
    chain,
    feature_model_checks,
    hyperparameters,
    queries,
)
from jaxmf.models.feature_model.state import FeatureState
from jaxmf.priors.features import IndianBuffet, sample_by_rows
from jaxmf.readable import Readable
from jaxmf.samplers import feature_values
from jaxmf.samplers.annealed_smc import AnnealedModel, annealed_model, log_ratio_of_powers
from jaxmf.samplers.cloud import TriggerFn
from jaxmf.samplers.feature_layout import num_features
from jaxmf.samplers.feature_particles import feature_filter, refuse_optimal, whole_z
from jaxmf.samplers.resampling import ResampleFn, systematic
from jaxmf.types import Array, Draw, Key

if TYPE_CHECKING:
    from jaxmf.models.feature_model.filter import FeatureParticle


@partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        "log_likelihood",
        "feature_prior",
        "prior",
        "likelihood",
        "moments",
        "sample_row",
        "parameters",
    ],
    meta_fields=["cell_distribution", "columns_independent"],
)
@dataclass(frozen=True)
class FeatureModel(Readable, Model[Dense]):
    """Binary latent features with a user's likelihood and prior of features.

    Args:
        log_likelihood: (x (D,), z (K,) bool, y (K, ...)) -> () float, log p(x | z, Y), or (D,), one
            number a cell; missing cells need the latter, and must not matter to the others. A JAX
            function. Where z_k is False, y_k
            must not matter: slots without a feature hold something. Numbers it depends on are best
            bound as `jax.tree_util.Partial(function, number)`; a function made anew is compiled
            anew. It is tried on the first rows before a run; where it gives NaN later on, the run
            stops and says that log_evidence is not finite. None where `likelihood` is there.
        feature_prior: numpyro distribution of a row of Y; its event shape is that of the row. Or a
            function of `parameters` that returns one.
        prior: of Z: `IndianBuffet(alpha, concentration)`, `BetaBernoulli(...)`, whose alpha and
            concentration are numbers or numpyro distributions, or an object with the methods of
            `jaxmf.priors.features.RowByRowPrior`.
        likelihood: instead of `log_likelihood` an object such as `Poisson()` or `StudentT()`, of
            cells whose predictor is sum_k z_k y_kd, with rows of Y of one number a column. Its
            hyperparameters may be numpyro distributions, which `sample` learns; `moments`,
            `sample_row`, `cell_distribution` and `columns_independent` follow from it, and runs
            can be compared by `jaxmf.compare`, as its cells are independent given a draw.
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

    log_likelihood: Callable[..., Array] | None = None
    feature_prior: Any = None
    likelihood: Likelihood | None = field(default=None, kw_only=True)
    prior: Any = field(default_factory=lambda: IndianBuffet(1.0), kw_only=True)
    moments: Callable[..., tuple[Array, Array]] | None = field(default=None, kw_only=True)
    cell_distribution: str = field(default="normal", kw_only=True)
    sample_row: Callable[..., Array] | None = field(default=None, kw_only=True)
    parameters: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    columns_independent: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        for name in hyperparameters.FUNCTIONS:
            function = getattr(self, name)
            is_distribution = hasattr(function, "log_prob") or isinstance(function, type)
            if callable(function) and not is_distribution and not isinstance(function, Partial):
                object.__setattr__(self, name, Partial(function))
        if isinstance(self.parameters, Mapping):
            object.__setattr__(self, "parameters", dict(self.parameters))
        if isinstance(self.likelihood, Likelihood):
            object.__setattr__(self, "cell_distribution", self.likelihood.cell_distribution)
        feature_model_checks.check_parts(self)

    @property
    def hyperparameters(self) -> Mapping[str, object]:
        return hyperparameters.priors_of(self)

    def at_values(self, values: Mapping[str, Array | float]) -> FeatureModel:
        """The model with numbers for its hyperparameters: () float by name, such as a draw."""
        return hyperparameters.at_values(self, values)

    @property
    def at_start(self) -> FeatureModel:
        """The model with its hyperparameters at their numbers, means or medians."""
        return self.at_values(hyperparameters.initial_values(self))

    def tempered(self, power: Array | float, weight: Array | None = None) -> FeatureModel:
        """The model with its likelihood to a power and Y times a weight, as in an annealed start.

        Args:
            power: () float, of the likelihood.
            weight: () float, or None for Y as it is; the weighted Y must be in the support.
        """
        if weight is None and isinstance(power, float) and power == 1:
            return self
        fields = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        changed: dict[str, object] = {
            "likelihood": None,
            "log_likelihood": Partial(_annealed, power, weight, self),
            "columns_independent": self.columns_are_separate,
        }
        return bare(FeatureModel, **(fields | changed))

    def without_constants(self) -> FeatureModel:
        """The model without terms of its likelihood that depend on neither Z nor Y."""
        if self.likelihood is None:
            return self
        fields = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        return bare(FeatureModel, **(fields | {"likelihood": Unnormalised(self.likelihood, 1.0)}))

    @property
    def has_discrete_cells(self) -> bool:
        """Of a likelihood by its values, else by `cell_distribution`."""
        if self.likelihood is not None:
            return self.likelihood.is_discrete
        return self.cell_distribution != "normal"

    @property
    def cells_given_draw(self) -> str | None:
        """Those of a likelihood object are independent; of a function it is not known."""
        return None if self.likelihood is None else "independent"

    @property
    def columns_are_separate(self) -> bool:
        """Whether the cells of a column depend on Y in this column alone."""
        return self.columns_independent or self.likelihood is not None

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of a row of Y."""
        return tuple(self.at_start.feature_prior.event_shape)

    def num_slots(self, capacity: int | None = None) -> int:
        """Slots for a wished capacity, at least as many as a finite prior has features."""
        if capacity is not None:
            capacity = check_count("capacity", capacity, most=MOST_SLOTS)
        fixed = getattr(self.prior, "num_features", None)
        return int(fixed) if fixed is not None else (8 if capacity is None else capacity)

    def check_data(self, data: Dense, name: str) -> None:
        """Tries the likelihood on some rows; see `feature_model_checks.check_likelihood`."""
        if self.likelihood is not None:
            self.likelihood.check(data.values, name, observed=data.observed)
        feature_model_checks.check_likelihood(self.at_start, data, name)

    def draw_features(self, key: Key, num_slots: int) -> Array:
        return feature_values.draw_rows(self.feature_prior, key, num_slots)

    def filling(self, num_slots: int) -> Array:
        """Rows of Y (K, ...) for slots without a feature: one fixed draw, a sound value."""
        one = self.at_start.draw_features(jax.random.key(0), 1)[0]
        return jnp.broadcast_to(one, (num_slots, *one.shape))

    def log_densities(self, x: Array, z: Array, y: Array, /) -> Array:
        """log p(x | z, Y) of a complete row x (D,): (D,) float, or () of some functions."""
        if self.likelihood is not None:
            return self.likelihood.log_density(x, queries.predictor(z, y))
        assert self.log_likelihood is not None
        return self.log_likelihood(x, z, y)

    def cell_log_likelihood(self, x: Array, observed: Array | None, z: Array, y: Array, /) -> Array:
        """log p of a row x (D,): (D,) float, 0 for missing cells; or () as `log_likelihood`."""
        if observed is not None:
            x = jnp.where(observed, x, 0)
        value = self.log_densities(x, z, y)
        feature_model_checks.check_shape(value, x, missing=observed is not None)
        if value.ndim and observed is not None:
            value = jnp.where(observed, value, 0)
        return value

    def row_log_likelihood(self, x: Array, observed: Array | None, z: Array, y: Array, /) -> Array:
        value = self.cell_log_likelihood(x, observed, z, y)
        return jnp.sum(value).astype(jnp.result_type(float))

    def log_conditional(self, z: Array, y: Array, data: Dense) -> Array:
        """log p(Y, observed cells | Z), () float; the hyperparameters must be numbers."""
        exists = self.prior.exists(jnp.sum(z, axis=0, dtype=jnp.result_type(float)))
        log_features = jnp.where(exists, jax.vmap(self.feature_prior.log_prob)(y), 0)
        rows = jax.vmap(self.row_log_likelihood, in_axes=(0, 0, 0, None))
        return jnp.sum(log_features) + jnp.sum(rows(data.values, data.observed, z, y))

    def log_joint(self, draw: Draw, data: Dense) -> Array:
        """log p(Z, Y, observed cells, hyperparameters with priors).

        Z enters by its left-ordered class, as in the prior's `log_prob`.

        Args:
            draw: z (N, K) bool, y (K, ...), and hyperparameters with priors by their names.
            data: (N, D).
        Returns:
            () float.
        """
        fixed = self.at_values(draw)
        z = draw["z"]
        counts = jnp.sum(z, axis=0, dtype=jnp.result_type(float))
        z_float = z.astype(counts.dtype)
        log_prior = fixed.prior.log_prob(counts, z_float.T @ z_float, z.shape[0])
        log_prior = log_prior + hyperparameters.log_prior(self, draw)
        return log_prior + fixed.log_conditional(z, draw["y"], data)

    def simulate(
        self, key: Key, num_rows: int, *, capacity: int = 32
    ) -> tuple[dict[str, Array], Dense]:
        """A draw from the prior and complete data from it; needs `sample_row`.

        Args:
            key: typed PRNG key.
            num_rows: N.
            capacity: slots for features; a prior with a fixed number of them has that many.
        Returns:
            z (N, K) bool, y (K, ...) and hyperparameters by their names, as `log_joint` takes them,
            and Dense (N, D). Nothing says so when `capacity` was too small: the last features are
            then missing from Z; `simulate_features` says it.
        Raises:
            ValueError: the model has no `sample_row`, or it gives something else than a row.
        """
        feature_key, x_key = jax.random.split(key)
        draw, _ = self.simulate_features(feature_key, num_rows, capacity)
        return draw, Dense(self.simulate_data(x_key, draw))

    def simulate_features(
        self, key: Key, num_rows: int, capacity: int
    ) -> tuple[dict[str, Array], Array]:
        """A draw from the prior, row by row, and () bool whether `capacity` was too small."""
        z_key, y_key = jax.random.split(key)
        num_slots = self.num_slots(capacity)
        values = hyperparameters.sample_values(self, jax.random.fold_in(key, 2**20))
        fixed = self.at_values(values)
        z, overflow = sample_by_rows(fixed.prior, z_key, num_rows, num_slots)
        return {"z": z, "y": fixed.draw_features(y_key, num_slots), **values}, overflow

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
        more, overflow = sample_by_rows(fixed.prior, z_key, *state.z.shape, earlier=state.z)
        existed = fixed.prior.exists(jnp.sum(state.z, axis=0, dtype=jnp.result_type(float)))
        new_y = fixed.draw_features(y_key, state.z.shape[1])
        shape = (-1, *(1,) * (new_y.ndim - 1))
        y = jnp.where(existed.reshape(shape), state.y, new_y)
        draw = {"z": jnp.concatenate([state.z, more]), "y": y, **state.hyperparameters}
        x = self.simulate_rows(x_key, draw, data.num_rows + jnp.arange(data.num_rows))
        return chain.state_of(self, draw), data.with_more(x), {"features": overflow}

    def simulate_data(self, key: Key, draw: Draw) -> Array:
        """X (N, D) float given a draw from the prior: row n from fold_in(key, n)."""
        return self.simulate_rows(key, draw, jnp.arange(draw["z"].shape[0]))

    def simulate_rows(self, key: Key, draw: Draw, rows: Array) -> Array:
        """Some rows (M,) of the same X: (M, D) float."""
        fixed = self.at_values(draw)
        sample_row = fixed.sample_row
        if (likelihood := fixed.likelihood) is not None:
            sample_row = lambda key, z, y: likelihood.sample(key, queries.predictor(z, y))  # noqa: E731
        if sample_row is None:
            raise ValueError(
                "data can be simulated only where it is known how a row is drawn, which a log "
                "likelihood does not tell: give FeatureModel(..., sample_row=function), where "
                "function(key, z, y) returns a row, shape (columns,)"
            )
        keys = jax.vmap(partial(jax.random.fold_in, key))(rows)
        x = jax.vmap(sample_row, in_axes=(0, 0, None))(keys, draw["z"][rows], draw["y"])
        if x.ndim != 2:
            raise ValueError(
                f"sample_row returned shape {x.shape[1:]}; it must return a row, (columns,)"
            )
        return x.astype(jnp.result_type(float))

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
            sweep: "bits": the features of a row one after another, as "auto" has it.
                "particle_gibbs": besides, all that a row shares with others together, see
                `samplers/particle_rows.py`; for features of which several have to change at once.
            anneal: whether the warm-up starts with weak features, Y times a fifth, a factor that
                rises to one after three quarters of it. Where a fifth of Y is outside the support
                of its prior, or rows would need too many of such features, it starts with the
                likelihood to the power 1/25.
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
            num_slots=self.num_slots(16 if capacity is None else capacity),
            anneal=anneal,
            num_value_moves=check_count("num_value_moves", num_value_moves),
            sweep=feature_model_checks.sweep_option(sweep),
        )

    def annealed(
        self,
        data: Dense,
        *,
        sweep: str = AUTO,
        num_value_moves: int = 2,
        capacity: int | None = None,
    ) -> AnnealedModel:
        """What `jaxmf.smc` does with one state of the chain.

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
        from jaxmf.models.feature_model.filter import FeatureFilterPlan, filter_of_rows

        refuse_optimal(resample_fn, "features of any distribution cannot be enumerated")
        plan = FeatureFilterPlan(
            num_slots=self.num_slots(capacity), rejuvenates=rejuvenate_every > 0
        )
        return feature_filter(
            filter_of_rows(feature_model_checks.without_priors(self), plan),
            num_particles=num_particles,
            resample_fn=resample_fn,
            ess_threshold=ess_threshold,
            rejuvenate_every=rejuvenate_every,
            batch_size=batch_size,
        )

    def particle_draw(self, particle: FeatureParticle, path: dict[str, Array], data: Dense) -> Draw:
        """What a draw keeps of one particle of the filter: all of Z, Y, and the log joint."""
        z = whole_z(particle, path)
        draw = {"z": z, "y": particle.y, "num_features": num_features(z)}
        if hasattr(self.prior, "log_prob"):
            draw["log_joint"] = self.log_joint(draw, data)
        return draw

    def trimmed(self, draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """See `TrimsDraws`; the slots of a finite prior are all features."""
        if not isinstance(self.prior, IndianBuffet):
            return dict(draws)
        return slots.trimmed(draws, "z", {"z": -1, "y": 2}, least=0)

    def features(self, draw: Draw, data: Dense) -> Pair:
        """Y of a draw as (K, size of a row), and zeros: Y is drawn, so it has no spread."""
        del data
        y = draw["y"].reshape(draw["y"].shape[0], -1)
        return y, jnp.zeros_like(y)

    def predict_cells(self, draw: Draw, data: Dense, rows: Array, columns: Array) -> Pair:
        del data
        z, index = draw["z"], rows
        if rows.shape[0] < z.shape[0]:
            z, index = z[rows], jnp.arange(rows.shape[0])
        row_moments = self.at_values(draw).row_moments
        mean, variance = jax.vmap(row_moments, in_axes=(0, None))(z, draw["y"])
        return mean[index, columns], variance[index, columns]

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
        likelihood: Any = self.at_values(draw).likelihood
        return likelihood.probabilities(queries.cell_predictors(draw, rows, columns))

    def new_cell_probabilities(
        self,
        key: Key,
        draw: Draw,
        data: Dense,
        new_data: Dense,
        rows: Array,
        columns: Array,
    ) -> Array:
        z, _ = queries.new_rows(self.at_values(draw), key, draw, new_data)
        return self.cell_probabilities(draw | {"z": z}, data, rows, columns)

    def row_moments(self, z: Array, y: Array) -> tuple[Array, Array]:
        """Mean and variance (D,) of the cells of a row with features z."""
        if self.likelihood is not None:
            return self.likelihood.moments(queries.predictor(z, y))
        if self.moments is None:
            raise ValueError(
                "predictions need the mean and the variance of a cell, which a log likelihood does "
                "not tell: give FeatureModel(..., moments=function), where function(z, y) returns "
                "both, each of shape (columns,)"
            )
        return self.moments(z, y)

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


def _annealed(
    power: Array | float, weight: Array | None, model: FeatureModel, x: Array, z: Array, y: Array
) -> Array:
    """The log likelihood of a model times a power, at its features times a weight."""
    return power * model.log_densities(x, z, y if weight is None else weight * y)
