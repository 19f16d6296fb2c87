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

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from jaxmf.arguments import MOST_SLOTS, check_count
from jaxmf.column_units import ColumnUnits
from jaxmf.data import Dense, units
from jaxmf.data.container import unchecked
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.likelihoods.cells.likelihood import Likelihood, Unnormalised
from jaxmf.likelihoods.cells.student_t import StudentT
from jaxmf.model import Model, Pair
from jaxmf.priors import hyper
from jaxmf.priors.features import BetaBernoulli, IndianBuffet, RowByRowPrior, sample_by_rows
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.programs import jit
from jaxmf.readable import Readable
from jaxmf.samplers import feature_values
from jaxmf.samplers.explicit_rows import where_slots
from jaxmf.types import STATIC, Array, Draw, Key

FUNCTIONS = ("log_likelihood", "moments", "sample_row", "feature_prior")
PRIOR_NAMES = ("alpha", "concentration")


@jit
def _initial_values(hyperparameters: dict[str, Hyperparameter]) -> dict[str, Array]:
    """By one program: operations compile one by one, 70 of them for four hyperparameters."""
    return {name: hyper.initial_value(prior) for name, prior in hyperparameters.items()}


def prior_at(prior: RowByRowPrior, values: Mapping[str, Array | float]) -> Any:
    """The prior of Z with numbers for alpha and concentration; one of another class as it is."""
    if isinstance(prior, BetaBernoulli):
        return BetaBernoulli(values["alpha"], values["concentration"], prior.num_features)
    if isinstance(prior, IndianBuffet):
        return IndianBuffet(values["alpha"], values["concentration"])
    return prior


def argument_names(function: Callable[..., object]) -> list[str]:
    """Names of the arguments that a function has left, in their order; none where it hides them."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def bind(function: Partial, arguments: Mapping[str, object]) -> Partial:
    """The function with those of the arguments that it names.

    Those that stand first are bound by position, as what follows them is passed by position.
    """
    named = [name for name in argument_names(function) if name in arguments]
    leading = []
    for name in argument_names(function)[: len(named)]:
        if name not in arguments:
            break
        leading.append(arguments[name])
    rest = {name: arguments[name] for name in named[len(leading) :]}
    return Partial(function, *leading, **rest)


class FeatureState(NamedTuple):
    """Where a chain is."""

    z: Array  # (N, K) bool
    y: Array  # (K, ...), rows of Y; slots without a feature hold one fixed draw
    hyperparameters: dict[str, Array]  # () float by name, as the model lists them


@dataclass(frozen=True)
class FeatureModelSpec(ColumnUnits, Readable, Model[Dense]):
    """The fields of `FeatureModel`, and what follows from them alone."""

    log_likelihood: Callable[..., Array] | None = None
    feature_prior: Any = None
    likelihood: Likelihood | None = field(default=None, kw_only=True)
    prior: Any = field(default_factory=lambda: IndianBuffet(1.0), kw_only=True)
    moments: Callable[..., tuple[Array, Array]] | None = field(default=None, kw_only=True)
    cell_distribution: str = field(default="normal", kw_only=True, metadata=STATIC)
    sample_row: Callable[..., Array] | None = field(default=None, kw_only=True)
    offset: Any = field(default=None, kw_only=True)
    column_unit: Any = field(default=None, kw_only=True)
    bias: bool | None = field(default=None, kw_only=True, metadata=STATIC)
    parameters: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    columns_independent: bool = field(default=False, kw_only=True, metadata=STATIC)

    @property
    def hyperparameters(self) -> dict[str, Hyperparameter]:
        """Numbers and priors by name: of the prior of Z, of the likelihood, then `parameters`."""
        row_hyperparameters = {}
        if isinstance(self.prior, IndianBuffet | BetaBernoulli):
            row_hyperparameters = {name: getattr(self.prior, name) for name in PRIOR_NAMES}
        return row_hyperparameters | self.likelihood_hyperparameters | dict(self.parameters)

    @property
    def likelihood_hyperparameters(self) -> dict[str, Hyperparameter]:
        """Hyperparameters of the likelihood; none if it is a function."""
        if self.likelihood is None:
            return {}
        return {name: getattr(self.likelihood, name) for name in self.likelihood.hyperparameters}

    @property
    def learned(self) -> dict[str, Hyperparameter]:
        """The hyperparameters that have priors."""
        return {n: prior for n, prior in self.hyperparameters.items() if not hyper.is_fixed(prior)}

    def initial_values(self) -> dict[str, Array]:
        """Where a chain starts: numbers, and means or medians of priors, () float each."""
        found = _initial_values(self.hyperparameters)
        return {name: found[name] for name in self.hyperparameters}

    def sample_values(self, key: Key) -> dict[str, Array]:
        """A draw of all hyperparameters from their priors, () float each."""
        return {
            name: hyper.sample_prior(jax.random.fold_in(key, index), prior)
            for index, (name, prior) in enumerate(self.hyperparameters.items())
        }

    def at_values(self, values: Mapping[str, Array | float]) -> Self:
        """The model with numbers for its hyperparameters; itself where it has nothing to fill in.

        Args:
            values: () float by name, for instance a draw; other names are ignored, and fixed
                numbers may be left out.
        """
        is_function = isinstance(self.feature_prior, Partial)
        if not self.parameters and not self.learned and not is_function:
            return self
        values = {n: p for n, p in self.hyperparameters.items() if hyper.is_fixed(p)} | dict(values)
        arguments = {name: values[name] for name in self.parameters}
        changed: dict[str, Any] = {
            name: bind(function, arguments)
            for name in FUNCTIONS
            if isinstance(function := getattr(self, name), Partial)
        }
        if "feature_prior" in changed:
            changed["feature_prior"] = changed["feature_prior"]()
        if self.likelihood is not None:
            changed["likelihood"] = self.likelihood.at_values(
                {name: values[name] for name in self.likelihood_hyperparameters}
            )
        return unchecked(self, **changed, prior=prior_at(self.prior, values), parameters={})

    @property
    def at_start(self) -> Self:
        """The model with its hyperparameters at their numbers, means or medians."""
        return self.at_values(self.initial_values())

    def tempered(self, power: Array | float, weight: Array | None = None) -> Self:
        """The model with its likelihood to a power and Y times a weight, as in an annealed start.

        Args:
            power: () float, of the likelihood.
            weight: () float, or None for Y as it is; the weighted Y must be in the support.
        """
        if weight is None and isinstance(power, float) and power == 1:
            return self
        return unchecked(
            self,
            likelihood=None,
            log_likelihood=Partial(_annealed, power, weight, self),
            columns_independent=self.columns_are_separate,
        )

    def without_constants(self) -> Self:
        """The model without terms of its likelihood that depend on neither Z nor Y."""
        if self.likelihood is None:
            return self
        return unchecked(self, likelihood=Unnormalised(self.likelihood, 1.0))

    @property
    def has_discrete_cells(self) -> bool:
        """Whether cells are discrete, by the likelihood's values or else by `cell_distribution`."""
        if self.likelihood is not None:
            return self.likelihood.is_discrete
        return self.cell_distribution != "normal"

    @property
    def cells_given_draw(self) -> str | None:
        """Cells are independent under a likelihood object; under a function this is not known."""
        return None if self.likelihood is None else "independent"

    @property
    def columns_are_separate(self) -> bool:
        """Whether the cells of a column depend on Y in this column alone."""
        return self.columns_independent or self.likelihood is not None

    @property
    def left_open(self) -> tuple[str, ...]:
        """Names of what the data decide: see `matched`."""
        names = [name for name, prior in self.likelihood_hyperparameters.items() if prior is None]
        return (*names, *(["feature_prior"] if self.feature_prior is None else []))

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of a row of Y."""
        return tuple(self.at_start.feature_prior.event_shape)

    def num_slots(self, capacity: int | None = None) -> int:
        """Slots for a wished capacity, that of a bias and all features of a finite prior held."""
        if capacity is not None:
            capacity = check_count("capacity", capacity, most=MOST_SLOTS)
        fixed = getattr(self.prior, "num_features", None)
        num_free = int(fixed) if fixed is not None else (8 if capacity is None else capacity)
        return num_free + self.first_slot()

    @property
    def has_bias_feature(self) -> bool:
        """Whether slot 0 is a feature that every row has."""
        return bool(self.bias)

    def first_slot(self) -> int:
        """The slot of the first feature: 1 with a bias feature, else 0."""
        return int(self.has_bias_feature)

    def exists(self, counts: Array) -> Array:
        """Which slots are features, (K,) bool, given how many rows have each, (K,) float."""
        fixed = jnp.ones((self.first_slot(),), bool)
        return jnp.concatenate([fixed, self.prior.exists(counts[self.first_slot() :])])

    def exists_in(self, z: Array) -> Array:
        """Which slots of Z (N, K) bool are features, (K,) bool."""
        return self.exists(jnp.sum(z, axis=0, dtype=jnp.result_type(float)))

    def with_bias(self, z: Array) -> Array:
        """Features (N, K) bool with that of all rows before them, where there is one."""
        return jnp.pad(z, ((0, 0), (self.first_slot(), 0)), constant_values=True)

    def centred(self, data: Dense) -> Dense:
        """The data that a noise scale belongs to: about the offset, in units of columns."""
        if self.column_unit is None and not isinstance(self.likelihood, Gaussian | StudentT):
            return data
        return units.centred(data, self.offset, self.column_unit)

    def draw_features(self, key: Key, num_slots: int) -> Array:
        return feature_values.draw_rows(self.feature_prior, key, num_slots)

    def filling(self, num_slots: int) -> Array:
        """Rows of Y (K, ...) for slots without a feature: one fixed draw, a sound value."""
        one = self.at_start.draw_features(jax.random.key(0), 1)[0]
        return jnp.broadcast_to(one, (num_slots, *one.shape))

    def filled(self, z: Array, y: Array) -> Array:
        """Y with the fixed draw in the slots without a feature, whatever was there before.

        So what a feature that is gone has left behind does not tell how the chain came here.
        """
        return where_slots(self.exists_in(z), y, self.filling(z.shape[1]))

    def log_densities(self, x: Array, z: Array, y: Array, /) -> Array:
        """log p(x | z, Y) of a complete row x (D,): (D,) float, or () of some functions."""
        if self.likelihood is not None:
            return self.log_densities_at(x, self.predictor(z, y))
        assert self.log_likelihood is not None
        return self.log_likelihood(x, z, y)

    def log_densities_at(self, x: Array, eta: Array, columns: Array | slice = slice(None)) -> Array:
        """log p(x | predictor) of cells of some columns by the likelihood object, of x's shape."""
        assert self.likelihood is not None
        if self.column_unit is None:
            return self.likelihood.log_density(x, eta)
        log_density = self.likelihood.log_density(self.from_data_units(x, columns), eta)
        return log_density - jnp.log(self.unit_at(columns).astype(x.dtype))

    def sample_at(self, key: Key, eta: Array, columns: Array | slice = slice(None)) -> Array:
        """Cells of some columns given their predictors, of their shape."""
        assert self.likelihood is not None
        x = self.likelihood.sample(key, eta)
        return x if self.column_unit is None else self.to_data_units(x, columns)

    def predictor(self, z: Array, y: Array) -> Array:
        """sum_k z_k y_kd about the offset: float, of rows of z (..., K) and columns of y (K, D)."""
        dtype = jnp.result_type(float)
        return self.about_offset(z.astype(dtype) @ y.astype(dtype))

    def about_offset(self, eta: Array, columns: Array | slice = slice(None)) -> Array:
        """Predictors of some columns with the offset; scaled cells are taken about it instead."""
        if self.offset is None or self.column_unit is not None:
            return eta
        return eta + self.offset_at(columns).astype(eta.dtype)

    def cell_log_likelihood(self, x: Array, observed: Array | None, z: Array, y: Array, /) -> Array:
        """log p of a row x (D,): (D,) float, 0 for missing cells; or () as `log_likelihood`."""
        if observed is not None:
            x = jnp.where(observed, x, 0)
        value = self.log_densities(x, z, y)
        check_shape(value, x, missing=observed is not None)
        if value.ndim and observed is not None:
            value = jnp.where(observed, value, 0)
        return value

    def row_log_likelihood(self, x: Array, observed: Array | None, z: Array, y: Array, /) -> Array:
        value = self.cell_log_likelihood(x, observed, z, y)
        return jnp.sum(value).astype(jnp.result_type(float))

    def log_conditional(self, z: Array, y: Array, data: Dense) -> Array:
        """log p(Y, observed cells | Z), () float; the hyperparameters must be numbers."""
        log_features = jnp.where(self.exists_in(z), jax.vmap(self.feature_prior.log_prob)(y), 0)
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
        z = draw["z"][:, self.first_slot() :]
        counts = jnp.sum(z, axis=0, dtype=jnp.result_type(float))
        z_float = z.astype(counts.dtype)
        log_prior = fixed.prior.log_prob(counts, z_float.T @ z_float, z.shape[0])
        log_prior = log_prior + sum(
            (hyper.log_prior(prior, draw[name]) for name, prior in self.learned.items()),
            jnp.zeros(()),
        )
        return log_prior + fixed.log_conditional(draw["z"], draw["y"], data)

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
        if self.left_open:
            raise ValueError(
                f"{self.left_open[0]} is taken from the data, and there are none yet: state it, "
                "feature_prior in FeatureModel(...), all others in its likelihood"
            )
        z_key, y_key = jax.random.split(key)
        num_slots = self.num_slots(capacity)
        values = self.sample_values(jax.random.fold_in(key, 2**20))
        fixed = self.at_values(values)
        num_free = num_slots - self.first_slot()
        z, overflow = sample_by_rows(fixed.prior, z_key, num_rows, num_free)
        y = fixed.draw_features(y_key, num_slots)
        return {"z": self.with_bias(z), "y": y, **values}, overflow

    def simulate_data(self, key: Key, draw: Draw) -> Array:
        """X (N, D) float given a draw from the prior: row n from fold_in(key, n)."""
        return self.simulate_rows(key, draw, jnp.arange(draw["z"].shape[0]))

    def simulate_rows(self, key: Key, draw: Draw, rows: Array) -> Array:
        """Some rows (M,) of the same X: (M, D) float."""
        fixed = self.at_values(draw)
        sample_row = fixed.sample_row
        if fixed.likelihood is not None:
            sample_row = lambda key, z, y: fixed.sample_at(key, fixed.predictor(z, y))  # noqa: E731
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

    def predict_cells(self, draw: Draw, data: Dense, rows: Array, columns: Array) -> Pair:
        del data
        z, index = draw["z"], rows
        if rows.shape[0] < z.shape[0]:
            z, index = z[rows], jnp.arange(rows.shape[0])
        row_moments = self.at_values(draw).row_moments
        mean, variance = jax.vmap(row_moments, in_axes=(0, None))(z, draw["y"])
        return mean[index, columns], variance[index, columns]

    def row_moments(self, z: Array, y: Array) -> tuple[Array, Array]:
        """Mean and variance (D,) of the cells of a row with features z."""
        if self.likelihood is not None:
            found = self.likelihood.moments(self.predictor(z, y))
            return found if self.column_unit is None else self.in_data_units(*found)
        if self.moments is None:
            raise ValueError(
                "predictions need the mean and the variance of a cell, which a log likelihood does "
                "not tell: give FeatureModel(..., moments=function), where function(z, y) returns "
                "both, each of shape (columns,)"
            )
        return self.moments(z, y)


def _annealed(
    power: Array | float,
    weight: Array | None,
    model: FeatureModelSpec,
    x: Array,
    z: Array,
    y: Array,
) -> Array:
    """The log likelihood of a model times a power, at its features times a weight."""
    return power * model.log_densities(x, z, y if weight is None else weight * y)


def check_shape(value: Array | jax.ShapeDtypeStruct, x: Array, *, missing: bool) -> None:
    """Refuses a value of log_likelihood of another shape than () or that of x."""
    shape = jnp.shape(value)
    if shape not in ((), x.shape):
        raise ValueError(
            f"log_likelihood returned shape {shape}; it must return one number, shape (), or one a "
            f"cell, shape {x.shape}"
        )
    if shape == () and missing:
        raise ValueError(
            "log_likelihood returned one number for the whole row, but cells are missing: it must "
            f"return one number a cell, shape {x.shape}, so that missing cells can be left out"
        )
    if not jnp.issubdtype(jnp.result_type(value), jnp.floating):
        raise TypeError(
            f"log_likelihood must return floats, got {jnp.result_type(value)}: a log probability"
        )
