"""Binary matrix factorisation: X ~ f(U W V') with binary features of rows and of columns.

    U ~ IBP or beta-Bernoulli, (I, K) binary        features of the rows
    V ~ IBP or beta-Bernoulli, (J, L) binary        features of the columns
    w_kl ~ N(w0, weight_scale^2)                    how a row feature and a column feature meet
    x_ij ~ f((U W V')_ij)                           eq 1

with f Gaussian, logistic or Poisson; Poisson weights are Gamma. In the letters of the paper theta
is 1 / noise_scale^2 and phi is 1 / weight_scale^2. The prior of rows has alpha and beta
(concentration), that of columns lambda.

Source: Meeds, Ghahramani, Neal & Roweis (2006), Modeling dyadic data with binary latent factors.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from jaxmf.data import Dense
from jaxmf.engine import Algorithm, algorithm
from jaxmf.likelihoods import bilinear
from jaxmf.models.binary_mf import checks, queries
from jaxmf.priors import hyper
from jaxmf.priors.features import BetaBernoulli, IndianBuffet
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.samplers.bilinear.cells import Cells, WeightPrior
from jaxmf.types import Array, Key

FeatureSpec = IndianBuffet | BetaBernoulli
WEIGHTS = ("collapsed", "explicit")
_CELL_LAWS = {"gaussian": "normal", "logistic": "bernoulli", "poisson": "poisson"}


class State(NamedTuple):
    """Where a chain is.

    Attributes:
      u: (I, K) bool, given features in the first slots.
      v: (J, L) bool, likewise.
      weights: (K, L) float, zero where a feature is not there; None when summed out.
      x: (I, J) float, the data with missing cells imputed; None when nothing is missing or the
        weights are kept, where missing cells drop out.
      row_alpha, row_concentration, column_alpha, column_concentration: () float.
      noise_scale, weight_scale: () float; 1 where the likelihood has none.
    """

    u: Array
    v: Array
    weights: Array | None
    x: Array | None
    row_alpha: Array
    row_concentration: Array
    column_alpha: Array
    column_concentration: Array
    noise_scale: Array
    weight_scale: Array


HYPERPARAMETERS = State._fields[4:]


@partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        "row_prior",
        "column_prior",
        "noise_scale",
        "weight_scale",
        "weight_mean",
        "weight_shape",
        "weight_rate",
        "base_rate",
        "fixed_row_features",
        "fixed_column_features",
    ],
    meta_fields=["likelihood", "diagonal", "row_bias", "column_bias"],
)
@dataclass(frozen=True, kw_only=True)
class BinaryMF:
    """Binary features of rows and of columns, and weights between them.

    X ~ f(U W V'), the numbers of features inferred or given on either side.

    Args:
      row_prior: of U: `IndianBuffet(alpha, concentration)` or `BetaBernoulli(alpha, concentration,
        num_features)`, whose alpha and concentration are positive numbers or numpyro distributions.
        A number or a distribution alone is the alpha of an Indian buffet process.
      column_prior: of V, likewise.
      likelihood: "gaussian"; "logistic" for cells 0 or 1; "poisson" for counts.
      noise_scale: standard deviation of the noise of the Gaussian likelihood, theta^(-1/2); a
        number or a numpyro distribution, by default LogNormal(0, 2).
      weight_scale: standard deviation of the weights, phi^(-1/2); likewise. By default
        LogNormal(0, 2), with the logistic likelihood LogNormal(0, 1).
      weight_mean: mean of the weights, w0; a number.
      weight_shape, weight_rate: of the Gamma prior of Poisson weights; positive numbers.
      base_rate: mean of a Poisson cell without features; a positive number.
      diagonal: only weights of row feature k and column feature k: the plaid model. Needs finite
        priors with as many features on both sides.
      row_bias: whether to add a feature that every row has, in slot 0 of U.
      column_bias: whether to add one that every column has, in slot 0 of V.
      fixed_row_features: (I, F) bool, known features of the rows: held as they are while others
        are inferred. They follow the bias in U.
      fixed_column_features: (J, F) bool, those of the columns.

    Raises:
      TypeError, ValueError: settings that are no such thing, or do not go together.

    Example:
      >>> import jaxmf as mf
      >>> mf.BinaryMF(row_prior=mf.BetaBernoulli(1.0, 1.0, 3), likelihood="logistic").row_alpha
      1.0
    """

    row_prior: FeatureSpec = None  # type: ignore[assignment]
    column_prior: FeatureSpec = None  # type: ignore[assignment]
    likelihood: str = "gaussian"
    noise_scale: Hyperparameter = None
    weight_scale: Hyperparameter = None
    weight_mean: float | Array = 0.0
    weight_shape: float | Array = 1.0
    weight_rate: float | Array = 1.0
    base_rate: float | Array = 0.1
    diagonal: bool = False
    row_bias: bool = False
    column_bias: bool = False
    fixed_row_features: Any = None
    fixed_column_features: Any = None

    def __post_init__(self) -> None:
        for name, value in checks.settings(self).items():
            object.__setattr__(self, name, value)

    # what posteriors and tables ask for by these names

    @property
    def bias(self) -> bool:
        """Whether slot 0 of U is on in every row."""
        return self.row_bias

    @property
    def cell_law(self) -> str:
        """The law of a cell given a draw, as predictions know it."""
        return _CELL_LAWS[self.likelihood]

    @property
    def row_alpha(self) -> Hyperparameter:
        return self.row_prior.alpha

    @property
    def row_concentration(self) -> Hyperparameter:
        return self.row_prior.concentration

    @property
    def column_alpha(self) -> Hyperparameter:
        return self.column_prior.alpha

    @property
    def column_concentration(self) -> Hyperparameter:
        return self.column_prior.concentration

    def num_fixed_rows(self) -> int:
        """How many slots of U hold given features."""
        return int(self.row_bias) + checks.width(self.fixed_row_features)

    def num_fixed_columns(self) -> int:
        """How many slots of V hold given features."""
        return int(self.column_bias) + checks.width(self.fixed_column_features)

    def check_data(self, data: Dense, name: str) -> None:
        """Refuses data that the likelihood does not have, or that does not fit given features.

        Args:
          data: (I, J).
          name: what the user calls it; only "data" is held against the features of rows.

        Raises:
          ValueError: in words.
        """
        checks.data(self, data, name)

    # --- the laws at the numbers of a state -------------------------------------------------------

    def row_law(self, state: State) -> FeatureSpec:
        """The prior of U at the state's numbers."""
        return at_numbers(self.row_prior, state.row_alpha, state.row_concentration)

    def column_law(self, state: State) -> FeatureSpec:
        """The prior of V at the state's numbers."""
        return at_numbers(self.column_prior, state.column_alpha, state.column_concentration)

    def cells(self, noise_scale: Array) -> Cells:
        """The law of a cell given its entry of U W V'."""
        base_rate = jnp.asarray(self.base_rate, noise_scale.dtype)
        return Cells(likelihood=self.likelihood, noise_scale=noise_scale, base_rate=base_rate)

    def weight_prior(self, weight_scale: Array) -> WeightPrior:
        """The prior of W."""
        mean, shape, rate = (
            jnp.asarray(value, weight_scale.dtype)
            for value in (self.weight_mean, self.weight_shape, self.weight_rate)
        )
        return WeightPrior(
            mean=mean,
            scale=weight_scale,
            shape=shape,
            rate=rate,
            positive=self.likelihood == "poisson",
            diagonal=self.diagonal,
        )

    def row_exists(self, state: State) -> Array:
        """(K,) bool: slots of U that are features, given ones included."""
        return exists(self.row_law(state), state.u, self.num_fixed_rows())

    def column_exists(self, state: State) -> Array:
        """(L,) bool: slots of V that are features, given ones included."""
        return exists(self.column_law(state), state.v, self.num_fixed_columns())

    def log_joint(self, state: State, data: Dense) -> Array:
        """log p(U, V, W, X, hyperparameters); without W where it is summed out.

        With the weights summed out, U and V enter by the probabilities of their left-ordered
        classes (in finite models of the labelled matrices), and missing cells are included as
        imputed. With the weights, features are points with weights, U and V enter by the densities
        of these, and the observed cells alone.

        Args:
          state: of data with I rows and J columns.
          data: (I, J).

        Returns:
          () float.
        """
        total = self._log_hyperprior(state)
        for prior, bits, num_fixed in (
            (self.row_law(state), state.u, self.num_fixed_rows()),
            (self.column_law(state), state.v, self.num_fixed_columns()),
        ):
            free = bits[:, num_fixed:].astype(state.noise_scale.dtype)
            gram = free.T @ free
            counts = jnp.diagonal(gram)
            if state.weights is None:
                total = total + prior.log_prob(counts, gram, bits.shape[0])
            else:
                total = total + prior.log_prob_labelled(counts, bits.shape[0])
        return total + self.log_likelihood(state, data)

    def log_likelihood(self, state: State, data: Dense) -> Array:
        """log p(X | U, V) with W summed out, or log p(X | U, V, W) + log p(W): () float."""
        if state.weights is None:
            return bilinear.log_marginal(
                state.u,
                state.v,
                complete(state, data),
                noise_scale=state.noise_scale,
                weight_scale=state.weight_scale,
                weight_mean=self.weight_mean,
            )
        eta = entries(state)
        each = self.cells(state.noise_scale).log_density(data.values, eta)
        if data.observed is not None:
            each = jnp.where(data.observed, each, 0)
        prior = self.weight_prior(state.weight_scale)
        there = prior.there(self.row_exists(state), self.column_exists(state))
        return jnp.sum(each) + prior.log_density(state.weights, there)

    def _log_hyperprior(self, state: State) -> Array:
        terms = [
            hyper.log_prior(getattr(self, name), getattr(state, name))
            for name in HYPERPARAMETERS
            if getattr(self, name) is not None
        ]
        return sum(terms[1:], terms[0])

    # --- simulation -------------------------------------------------------------------------------

    def simulate(
        self, key: Key, num_rows: int, num_columns: int, *, capacity: int = 32
    ) -> tuple[State, Dense]:
        """A state from the prior, weights included, and complete data from it.

        Args:
          key: typed PRNG key.
          num_rows: I.
          num_columns: J.
          capacity: slots for features on either side; raised to what the model needs.

        Returns:
          State and Dense (I, J). Nothing says so when `capacity` was too small: the last features
          are then missing. Its chance is negligible at a few times alpha log I.
        """
        state_key, x_key = jax.random.split(key)
        state = self.simulate_state(state_key, num_rows, num_columns, capacity)
        return state, Dense(self.simulate_data(x_key, state))

    def simulate_state(self, key: Key, num_rows: int, num_columns: int, capacity: int) -> State:
        """A state from the prior, weights included."""
        keys = jax.random.split(key, 3)
        values = {
            name: hyper.sample_prior(
                jax.random.fold_in(keys[0], place), 1.0 if prior is None else prior
            )
            for place, name in enumerate(HYPERPARAMETERS)
            for prior in (getattr(self, name),)
        }
        empty = jnp.zeros((0, 0), bool)
        state = State(u=empty, v=empty, weights=None, x=None, **values)
        return self.draw_from_prior(
            keys[1],
            state,
            (num_rows, num_columns),
            (
                self.num_slots(capacity, "rows"),
                self.num_slots(capacity, "columns"),
            ),
        )

    def draw_from_prior(
        self, key: Key, state: State, shape: tuple[int, int], num_slots: tuple[int, int]
    ) -> State:
        """The state with U, V and W drawn from their prior at its numbers."""
        u = draw_bits(
            jax.random.fold_in(key, 0),
            self.row_law(state),
            given(self.row_bias, self.fixed_row_features, shape[0]),
            num_slots[0],
        )
        v = draw_bits(
            jax.random.fold_in(key, 1),
            self.column_law(state),
            given(self.column_bias, self.fixed_column_features, shape[1]),
            num_slots[1],
        )
        state = state._replace(u=u, v=v)
        prior = self.weight_prior(state.weight_scale)
        weights = prior.sample(jax.random.fold_in(key, 2), *num_slots)
        there = prior.there(self.row_exists(state), self.column_exists(state))
        return state._replace(weights=jnp.where(there, weights, 0))

    def simulate_data(self, key: Key, state: State) -> Array:
        """X (I, J) given a state with weights."""
        return self.cells(state.noise_scale).sample(key, entries(state))

    # --- methods ----------------------------------------------------------------------------------

    def sampler(
        self,
        *,
        weights: str | None = None,
        anneal: bool = False,
        several: bool = True,
        split_merge: int = 0,
        capacity: int | None = None,
    ) -> Algorithm:
        """Markov chain Monte Carlo over U, V, W, missing cells and hyperparameters.

        Args:
          weights: "collapsed": W summed out, rows one after another (Gaussian likelihood, W not
            diagonal; the default there). "explicit": W kept, all rows at once.
          anneal: during the first three quarters of the warm-up let the sweeps see a weight scale
            that rises geometrically from a fifth of its value, which is held meanwhile; with
            "collapsed" only.
          several: also propose several features of a row at once.
          split_merge: proposals to split a feature or merge two, on either side and after every
            sweep; with "collapsed" only. See `samplers/split_merge.py`.
          capacity: slots to begin with, on either side; they double when a sweep needs more.

        Returns:
          Algorithm with the growing axes "row_features" and "column_features".

        Raises:
          ValueError: options that the model does not have, or a capacity below 1.
        """
        from jaxmf.models.binary_mf import sampling

        chosen = checks.weights_option(self, weights)
        if anneal and chosen == "explicit":
            raise ValueError("anneal=True needs weights='collapsed'")
        checks.split_merge_option(split_merge, chosen)
        plan = sampling.SamplerPlan(
            row_slots=self.num_slots(capacity, "rows"),
            column_slots=self.num_slots(capacity, "columns"),
            collapsed=chosen == "collapsed",
            anneal=bool(anneal),
            several=bool(several),
            split_merge=split_merge,
        )
        return algorithm(
            init=Partial(sampling.init, plan, self),
            step=Partial(sampling.step, plan, self),
            record=Partial(sampling.record, self),
            grow=sampling.grow,
            capacity=sampling.capacity,
        )

    def num_slots(self, capacity: int | None, side: str) -> int:
        """Slots of one side, "rows" or "columns", for a wished capacity; given features held."""
        if capacity is not None and (not isinstance(capacity, int) or capacity < 1):
            raise ValueError(f"capacity must be an integer of at least 1, got {capacity!r}")
        is_rows = side == "rows"
        prior = self.row_prior if is_rows else self.column_prior
        num_fixed = self.num_fixed_rows() if is_rows else self.num_fixed_columns()
        if isinstance(prior, BetaBernoulli):
            return prior.num_features + num_fixed
        return (16 if capacity is None else capacity) + num_fixed

    # --- queries on one draw ----------------------------------------------------------------------

    def features(self, draw: dict[str, Array], data: Dense) -> tuple[Array, Array]:
        """Basis images W V' and their standard deviations given U, V and X, each (K, J) float.

        Args:
          draw: what a chain records: z (I, K) bool, which is U, v (J, L) bool, numbers, weights.
          data: the training data.
        """
        return queries.basis(self, draw, data)

    def expected_weights(self, draw: dict[str, Array], data: Dense) -> Array:
        """W (K, L) of a draw: its mean given U, V and the observed cells, or the draw's own."""
        return queries.expected_weights(self, draw, data)

    def predict_cells(
        self, draw: dict[str, Array], data: Dense, rows: Array, columns: Array
    ) -> tuple[Array, Array]:
        """Predictive mean and variance, each (M,), of the cells (rows[m], columns[m]).

        Gaussian: W is summed out given the observed cells, whether the chain kept it or not. For a
        missing cell this is its law given the draw; for an observed one that of a replicate.
        """
        return queries.cell_moments(self, draw, data, rows, columns)

    def transform_rows(
        self, key: Key, draw: dict[str, Array], data: Dense, new_data: Dense
    ) -> Array:
        """Probabilities (I_new, K) of the draw's row features in rows not seen in training."""
        return queries.new_rows(self, key, draw, data, new_data).probabilities

    def predict_rows(
        self, key: Key, draw: dict[str, Array], data: Dense, new_data: Dense
    ) -> tuple[Array, Array]:
        """Predictive mean and variance, each (I_new, J), of the cells of new rows.

        W and the features of each row are drawn given the observed cells, so that a mixture over
        draws is the predictive law.
        """
        eta = queries.new_rows(self, key, draw, data, new_data).eta
        cells, _ = queries.numbers_of(self, draw)
        return cells.mean(eta), cells.variance(eta)


def at_numbers(spec: FeatureSpec, alpha: Array, concentration: Array) -> FeatureSpec:
    """A prior of features with numbers in the place of distributions."""
    if isinstance(spec, BetaBernoulli):
        return BetaBernoulli(alpha, concentration, spec.num_features)
    return IndianBuffet(alpha, concentration)


def exists(prior: FeatureSpec, bits: Array, num_fixed: int) -> Array:
    """(K,) bool: slots that are features, the given ones among them."""
    free = prior.exists(jnp.sum(bits[:, num_fixed:], axis=0))
    return jnp.concatenate([jnp.ones((num_fixed,), bool), free])


def given(bias: bool, fixed: Any, num_rows: int) -> Array:
    """(I, F) bool: the given features, the bias first."""
    columns = [jnp.ones((num_rows, 1), bool)] if bias else []
    if fixed is not None:
        columns.append(jnp.asarray(fixed, bool))
    return jnp.concatenate([jnp.zeros((num_rows, 0), bool), *columns], axis=1)


def draw_bits(key: Key, prior: FeatureSpec, fixed: Array, num_slots: int) -> Array:
    """Given features, and others from their prior in the slots after them."""
    drawn, _ = prior.sample(key, fixed.shape[0], num_slots - fixed.shape[1])
    return jnp.concatenate([fixed, drawn], axis=1)


def complete(state: State, data: Dense) -> Array:
    """The data (I, J) with the state's missing cells."""
    return data.values if state.x is None else state.x


def entries(state: State) -> Array:
    """U W V' (I, J) of a state with weights."""
    assert state.weights is not None
    dtype = state.weights.dtype
    return state.u.astype(dtype) @ (state.weights @ state.v.T.astype(dtype))
