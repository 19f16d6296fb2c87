"""The contracts of models: what every model is, and what a model may be able to do.

`Model` is the base of all models, those of jaxmf and those of others; `jaxmf.register` makes a
model of another package known. Everything beyond fitting is a *capability*: a small protocol with
one question, which a model can answer if it has the methods. The posterior, the report, the
pictures and the command line ask ``isinstance(model, PredictsCells)`` and refuse by the name of the
method.

Shapes: N rows, D columns, M cells, R rows that are asked about, K features or groups, V values. A
draw is a mapping from names to arrays without axes of chains and draws, as `Algorithm.record` makes
it; data are a container of `jaxmf.data`. Methods are called inside `jax.jit` and `jax.vmap` unless
they say otherwise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    Protocol,
    TypeVar,
    runtime_checkable,
)

import jax
import numpy as np

from jaxmf.types import Array, Draw, Key, Names, PyTree, Seed

if TYPE_CHECKING:
    from typing import Self

    import typing_extensions

    from jaxmf.data.features import Features
    from jaxmf.data.tokens import Tokens

    # the container of a model, for type checkers: any, where a model names none
    ModelData = typing_extensions.TypeVar("ModelData", covariant=True, default=Any)
else:
    ModelData = TypeVar("ModelData", covariant=True)

# A container of jaxmf.data, and a model.
Data = TypeVar("Data", contravariant=True)
SameData = TypeVar("SameData")
SomeModel = TypeVar("SomeModel", bound="Model")
Value = TypeVar("Value")
Pair = tuple[Array, Array]
"""Mean and variance, of one shape."""
HostDraw = Mapping[str, Array | np.ndarray]
"""A draw whose arrays lie on the host."""


class Model(Generic[ModelData]):
    """Base of every model: a frozen dataclass of hyperparameters, without data and without state.

    A model from outside the package subclasses it, is a frozen dataclass that jax knows
    (`jax.tree_util.register_dataclass`), names its container and its methods, and is made known by
    `jaxmf.register`:

        data_type        the container of `jaxmf.data` that its data are read into
        methods          verb -> name of the method that builds the `jaxmf.engine.Algorithm`
        default_method   the verb that `jaxmf.fit` runs

    The class attributes of the models of jaxmf stand in its registry, which is read without
    importing them. ``Model[Dense]`` as the base says to type checkers what `Posterior.data` is.
    """

    data_type: ClassVar[type | None] = None
    methods: ClassVar[Mapping[str, str]] = MappingProxyType({"sample": "sampler"})
    default_method: ClassVar[str] = "sample"

    def __init_subclass__(cls, **options: object) -> None:
        # a dataclass writes these only where the class has none, and they would compare
        # distributions by identity and fail on arrays
        super().__init_subclass__(**options)
        for name in ("__eq__", "__hash__"):
            if name not in cls.__dict__:
                setattr(cls, name, Model.__dict__[name])

    def __eq__(self, other: object) -> bool:
        """Whether another model is of this class and has the same hyperparameters, bit for bit."""
        if self is other or not isinstance(other, Model) or type(self) is not type(other):
            return self is other
        return _by_value(self) == _by_value(other)

    def __hash__(self) -> int:
        return hash((type(self), _by_value(self)))

    def device_options(
        self, options: Mapping[str, object], *, platform: str, data: Any = None
    ) -> dict[str, object]:
        """Options of the sampler that are left to the device, with what they are on it.

        Args:
            options: as passed; one that is left out or "auto" is to be decided.
            platform: of the device that holds the data: "cpu", "gpu", ...
            data: of the container; None where they are not known.
        """
        del options, platform, data
        return {}

    def device_notes(
        self, passed: Mapping[str, object], options: Mapping[str, object], *, platform: str
    ) -> tuple[str, ...]:
        """Options that `device_options` could not use on the device, each a clause with the reason.

        Args:
            passed: options as passed.
            options: those with which the run was made.
            platform: of the device that holds the data.
        """
        del passed, options, platform
        return ()

    def mesh_axes(self, options: Mapping[str, object]) -> tuple[str, ...]:
        """Axes of a mesh, beside "chain", over which a run with these options spreads data.

        A mesh with another axis is refused.
        """
        del options
        return ()

    # the verb that takes data whose rows lie in several processes; none where it is empty
    takes_process_rows: ClassVar[str] = ""

    def mesh_advice(self, options: Mapping[str, object]) -> str:
        """A clause for messages: what to change for more such axes; empty where nothing helps."""
        del options
        return ""

    def for_method(self, method: str) -> Self:
        """The model with defaults that a method can handle; called before `matched`."""
        del method
        return self

    def matched(self, data: Any) -> Self:
        """The model for these data, before a run: settings that are left open are filled in.

        Called once, on the host; the model it returns is the one that is saved.
        """
        del data
        return self

    def notes(self, data: Any) -> tuple[str, ...]:
        """Choices of `matched` for these data that affect the answers, a clause each.

        They stand in `post.meta.notes`, below the summary and in the report.
        """
        del data
        return ()

    def check_data(self, data: Any, name: str) -> None:
        """Refuse data outside the support of the likelihood; called on the host.

        Args:
            data: the container.
            name: what the user calls it, for the message.
        Raises:
            ValueError: names the first position with such a value, and says what to do.
        """
        del data, name

    @property
    def hyperparameters(self) -> Mapping[str, object]:
        """Fixed values and priors by the names that draws have; a summary has no fixed ones."""
        return settings_of(self)

    @property
    def cell_distribution(self) -> str:
        """The distribution of a cell given its mean and variance: normal, bernoulli or poisson."""
        return "normal"

    @property
    def has_discrete_cells(self) -> bool:
        """Whether cells have probabilities, and not densities: the two cannot be compared."""
        return self.cell_distribution != "normal"

    @property
    def predicts_its_rows(self) -> bool:
        """Whether `predict_cells` is of the rows of the data, and not of one further row."""
        return True

    @property
    def cells_given_draw(self) -> str | None:
        """How cells depend on each other given a draw, for `Posterior.leave_one_out`.

        "independent": not at all. "summed out": normal cells, by normal parameters that are no part
        of a draw, which then has its `noise_scale`. None: in another way.
        """
        return None

    @property
    def judged_by_cells(self) -> bool:
        """Whether chains count as converged once their predictions of cells agree.

        True where features or groups are not interpreted by themselves. A large R-hat of
        hyperparameters then raises no alarm if the predictions have converged.
        """
        return False


def _by_value(model: Model) -> Hashable:
    """A value to compare and hash models by: structure and leaves, arrays by their bytes."""
    is_known = not jax.tree_util.all_leaves([model])
    leaves, form = jax.tree.flatten(model if is_known else settings_of(model))
    values: list[Hashable] = [
        id(leaf)
        if isinstance(leaf, jax.core.Tracer)
        else (str(leaf.dtype), leaf.shape, np.asarray(leaf).tobytes())
        if isinstance(leaf, (np.ndarray, jax.Array))
        else leaf
        for leaf in leaves
    ]
    return form, tuple(values)


# --- cells ----------------------------------------------------------------------------------------


@runtime_checkable
class PredictsCells(Protocol[Data]):
    """Predicts cells of the rows and columns in training: `Posterior.predict`, `reconstruction`."""

    def predict_cells(self, draw: Draw, data: Data, rows: Array, columns: Array, /) -> Pair:
        """Mean and variance of the cells (rows[m], columns[m]) given a draw: (M,) each."""


@runtime_checkable
class HasPointwiseLikelihood(Protocol[Data]):
    """Knows the density of a cell, where mean and variance do not determine it."""

    def cell_log_density(
        self, draw: Draw, data: Data, rows: Array, columns: Array, values: Array, /
    ) -> Array:
        """log p(values[m] | draw) of cells: (M,) float."""


@runtime_checkable
class HasRowLikelihood(Protocol[Data]):
    """Knows the density of a row given all other rows, the groups of all being known."""

    def row_log_density(self, draw: Draw, data: Data, rows: Array, /) -> tuple[Array, Array]:
        """log p(row | draw, all others) of rows of the data, and of one more such row: (M,) each.

        The draw says in which group every row is: ``keep="assignments"``.
        """


@runtime_checkable
class ScoresFurtherRows(Protocol[Data]):
    """Knows the density of whole rows that are not in the data."""

    def predict_rows_of_draw(self, draw: Draw, data: Data, x: Array, /) -> tuple[Array, Array]:
        """log p(row | draw) of further rows x (M, D): (M,); and probabilities of their groups."""


@runtime_checkable
class DrawsCells(Protocol[Data]):
    """Draws cells, where mean and variance do not determine their distribution."""

    def draw_cells(self, key: Key, draw: Draw, data: Data, rows: Array, columns: Array, /) -> Array:
        """One value of every cell given a draw: (M,) float."""


@runtime_checkable
class DrawsNewRows(Protocol[Data]):
    """Draws cells of rows not seen in training, where their mean and variance do not suffice."""

    def draw_rows(self, key: Key, draw: Draw, data: Data, new_data: Data, /) -> Array:
        """One value of every cell of N' new rows, (N', D) float.

        The features or factors of a row are drawn given its observed cells, and its values given
        these.
        """


@runtime_checkable
class HasCategories(Protocol[Data]):
    """Has cells of a finite set of values: `Posterior.probabilities`."""

    @property
    def values(self) -> tuple[float, ...] | None:
        """The V values in increasing order; None for a setting with real values."""

    def cell_probabilities(self, draw: Draw, data: Data, rows: Array, columns: Array, /) -> Array:
        """The probability of every value of cells: (M, V) float."""


@runtime_checkable
class HasColumnValues(Protocol):
    """May have columns of a finite set of values: `Posterior.probabilities` of their cells."""

    def column_values(self, column: int, /) -> tuple[float, ...] | None:
        """The values of a column in increasing order; None where it may have any number."""


def category_columns(model: object, num_columns: int) -> np.ndarray:
    """Which columns are of categories, of more values than 0 and 1: (D,) bool.

    Their codes have no order, so that nothing is their mean.
    """
    if not isinstance(model, HasColumnValues):
        return np.zeros(num_columns, bool)
    known = [model.column_values(column) for column in range(num_columns)]
    return np.array([values not in (None, (0.0, 1.0)) for values in known], bool)


@runtime_checkable
class ScoresCellsOfNewRows(Protocol[Data]):
    """Knows the density of cells of rows not seen in training: `Posterior.probabilities`."""

    def new_cell_log_density(
        self, draw: Draw, data: Data, new_data: Data, rows: Array, columns: Array, values: Array, /
    ) -> Array:
        """Log density (M,) of values of cells of new rows, given what is observed of the rows."""


@runtime_checkable
class KeepsLess(Protocol):
    """May keep draws without what predictions need: `sample(keep_factors=False)`."""

    @property
    def kept_for_cells(self) -> tuple[str, ...]:
        """The names in a draw that predictions need."""

    def whole_draw(self, key: Key, state: PyTree, data: object, /) -> Draw:
        """A draw of this state with nothing left out."""


# --- new rows and columns -------------------------------------------------------------------------


@runtime_checkable
class TakesNewRows(Protocol[Data]):
    """Predicts rows not seen in training: `Posterior.predict(new_rows=)`."""

    def predict_rows(self, key: Key, draw: Draw, data: Data, new_data: Data, /) -> Pair:
        """Mean and variance of all cells of N' new rows given their observed ones: (N', D) each."""


@runtime_checkable
class TakesNewRowsOfCategories(Protocol[Data]):
    """Predicts rows not seen in training, of cells with a finite set of values."""

    def new_cell_probabilities(
        self, key: Key, draw: Draw, data: Data, new_data: Data, rows: Array, columns: Array, /
    ) -> Array:
        """The probability of every value of cells of new rows: (M, V) float."""


@runtime_checkable
class TransformsRows(Protocol[Data]):
    """Represents rows not seen in training: `Posterior.transform`."""

    def transform_rows(self, key: Key, draw: Draw, data: Data, new_data: Data, /) -> Array:
        """Probabilities of features or groups, or factors, of N' new rows: (N', K) float."""


@runtime_checkable
class TransformsDocuments(Protocol[Data]):
    """Represents new documents by their groups: `Posterior.transform`."""

    def transform_tokens(self, key: Key, draw: Draw, data: Data, new: Data, /) -> Array:
        """Probabilities of the groups of N' new documents: (N', K) float, summing to one."""

    def shares(self, draw: Draw, data: Data, /) -> Array:
        """How many tokens each group has: (K,) float."""


@runtime_checkable
class TakesRowFeatures(Protocol):
    """Has side information of rows; new rows come with theirs."""

    @property
    def row_features(self) -> Features | None:
        """`Features` of the rows in training, or None."""

    @property
    def row_classes(self) -> Features | None:
        """`Features` with one indicator a class of rows in training, or None."""

    def for_new_rows(self, features: object, num_rows: int, classes: object = None, /) -> Model:
        """The model with the features and classes of this many new rows; called on the host."""


@runtime_checkable
class TakesNewColumns(Protocol):
    """Has two sides alike, so that columns can be rows: `Posterior.predict(new_columns=)`."""

    def transpose(self) -> Model:
        """The model of the transposed data."""

    def transpose_draws(self, draws: Mapping[str, Value], /) -> dict[str, Value]:
        """Draws of the transposed model."""


@runtime_checkable
class TakesUnknownIds(Protocol[Data]):
    """Draws rows and columns that are not in the data: `Posterior.predict(unknown="prior")`."""

    def with_unknown(self, num_new: tuple[int, int], shape: tuple[int, int], /) -> Model:
        """The model of the larger matrix, of this many more rows and columns; on the host."""

    def draw_unknown(self, key: Key, draw: Draw, data: Data, num_new: tuple[int, int], /) -> Draw:
        """The draw, with vectors of the new rows and columns from their prior."""


@runtime_checkable
class ScalesColumns(Protocol[SameData]):
    """May divide columns by scales; then `noise_scale` belongs to the scaled cells."""

    def unit_at(self, columns: Array | slice, /) -> Array:
        """The scales of some columns: (M,) float, or () one for all."""

    def centred(self, data: SameData, /) -> SameData:
        """The data minus the offset, over the scales: the same container."""


# --- ranking --------------------------------------------------------------------------------------


@runtime_checkable
class RanksColumns(Protocol[Data]):
    """Says which cells of a row are known, so that its other columns can be ranked."""

    def known_cells(self, data: Data, /) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the cells that are not recommended, (M,) int each; on the host."""


@runtime_checkable
class PredictsWholeRows(Protocol[Data]):
    """Predicts all cells of rows at once, which ranks faster than cell by cell."""

    def expected_values(self, draw: Draw, data: Data, rows: Array, /) -> Array:
        """Predictive means of all cells of rows in training: (R, D) float."""


@runtime_checkable
class NarrowsDraws(Protocol):
    """Can answer questions about a few rows and columns from the parts of draws about these."""

    def narrowed(
        self,
        draws: Mapping[str, np.ndarray],
        rows: np.ndarray | None,
        columns: np.ndarray | None,
        /,
    ) -> tuple[Self, dict[str, np.ndarray]] | None:
        """The model and the draws (S, ...) of the matrix of some rows and columns, for its cells.

        Args: rows, columns: positions; None for all. Returns None where the cells depend on other
        rows or columns.
        """


@runtime_checkable
class TrimsDraws(Protocol):
    """Has draws with slots for more features than any draw uses."""

    def trimmed(self, draws: Mapping[str, np.ndarray], /) -> dict[str, np.ndarray]:
        """The draws (chains, draws, ...) without the last slots, which no draw uses."""
        ...


@runtime_checkable
class ScoresCells(Protocol):
    """Has Gaussian scores behind cells of zeros and ones: `Posterior.scores`, `recommend`."""

    def score_cells(self, draw: Draw, rows: Array, columns: Array, /) -> Pair:
        """Mean and variance of the scores of cells: (M,) each."""

    def score_rows(self, draw: Draw, rows: Array, /) -> Pair:
        """Mean and variance of the scores of all cells of rows: (R, D) each."""

    def probability(self, mean: Array, variance: Array, /) -> Array:
        """Probability of a one at scores of some mean and variance: of their shape."""


@runtime_checkable
class ScoresNewRows(Protocol[Data]):
    """Has scores of rows not seen in training: `Posterior.recommend(new_rows=)`."""

    def score_new_rows(self, draw: Draw, new_data: Data, /) -> Pair:
        """Mean and variance of the scores of all cells of N' new rows: (N', D) each."""


# --- features, groups, documents, time ------------------------------------------------------------


@runtime_checkable
class HasFeatures(Protocol[Data]):
    """Has features of columns: `Posterior.features`, the report's pictures."""

    def features(self, draw: Draw, data: Data, /) -> Pair:
        """Mean and standard deviation of the features given a draw: (K, D) each."""


@runtime_checkable
class HasFactors(Protocol[Data]):
    """Has real factors of rows and of columns: `Posterior.factors`."""

    def factors(self, draw: HostDraw, data: Data, /) -> tuple[Array, Array]:
        """Vectors of rows (N, K) and of columns (D, K) whose products are in the means of cells.

        About their means where rows and columns have biases, which have these parts too.
        Cells are in the unit of the data (of columns, see `ScalesColumns`), or on the scale of
        scores. On the host.
        """


@runtime_checkable
class HasBias(Protocol):
    """May have a first feature that every row has."""

    @property
    def has_bias_feature(self) -> bool:
        """Whether slot 0 of ``z`` is always on."""


@runtime_checkable
class HasNetwork(Protocol):
    """Is made of blocks: pictures of the network, the number of groups."""

    def network(self) -> Any:
        """The `Network`."""


@runtime_checkable
class HasGroups(Protocol[Data]):
    """Has groups of tokens: `Posterior.top_entries`."""

    def over(self, data: Data, /) -> tuple[Any, Any]:
        """The network with its sizes, and the tokens; on the host."""

    def names(self, data: Data, column: str, /) -> Names | None:
        """The ids of the levels of a column, or None."""

    def category_table(self, draw: Draw, data: Data, name: str, /) -> Array:
        """Expected probabilities of the values of an observed block: (..., V) float."""


@runtime_checkable
class ShowsColumns(Protocol):
    """Says which groups a report shows."""

    def shown_columns(self) -> tuple[str, ...]:
        """Columns whose heaviest entries are listed."""


class GroupMoments(NamedTuple):
    """Moments of the groups of rows in a draw; a group is in use if it has rows.

    Attributes:
        counts: (K,) int, rows of each group.
        weights: (K,) float, expected probability that a further row is of the group.
        weight_sd: (K,) float, its standard deviation; NaN where it is not known.
        mean: (K, D) float, expected mean of the group's columns.
        mean_sd: (K, D) float, its standard deviation; NaN where it is not known.
        sd: (K, D) float, of rows around the mean of their group.
        level_probabilities: by column of more categories than 0 and 1, (K, V) float.
    """

    counts: Array
    weights: Array
    weight_sd: Array
    mean: Array
    mean_sd: Array
    sd: Array
    level_probabilities: Mapping[int, Array] = {}


@runtime_checkable
class HasRowGroups(Protocol[Data]):
    """Has groups of rows that have means: `Posterior.groups`."""

    def group_moments(self, draw: Draw, data: Data, /) -> GroupMoments:
        """Sizes, probabilities and means of the groups given a draw."""


@runtime_checkable
class HasBiclusters(Protocol[Data]):
    """Has features of rows `z`, of columns `v`, and weights between: `Posterior.biclusters`."""

    def weight_moments(self, key: Key, draw: Draw, data: Data, /) -> Pair:
        """Mean and standard deviation of the weights given the features of a draw: (K, L) each."""

    def num_bias_features(self) -> tuple[int, int]:
        """How many first features all rows, or all columns, have."""


@runtime_checkable
class HasSideGroups(Protocol[Data]):
    """Has groups of rows and of columns behind a matrix: `Posterior.preferences`."""

    @property
    def row_classes(self) -> Features | None:
        """`Features` with one indicator a class of rows, or None."""

    @property
    def column_classes(self) -> Features | None:
        """The same of columns."""

    def group_means(self, draw: Draw, data: Data, /) -> Array:
        """Expected values of all columns for a row at the mean of each group: (K, D) float."""

    def transpose(self) -> Model:
        """The model of the transposed data."""

    def transpose_draws(self, draws: Mapping[str, Value], /) -> dict[str, Value]:
        """Draws of the transposed model."""


@runtime_checkable
class CompletesDocuments(Protocol[Data]):
    """Predicts further words of new documents: `Posterior.document_completion`."""

    def fold(self, key: Key, draw: Draw, data: Data, new: Data, /) -> dict[str, Array]:
        """Probabilities of the indicators of new documents."""

    def word_probabilities(
        self, draw: Draw, data: Data, new: Data, folded: dict[str, Array], /
    ) -> Array:
        """p(word | document) of T tokens of documents that were folded in: (T,) float."""


@runtime_checkable
class LimitsDocuments(Protocol):
    """Takes new documents up to a length."""

    def check_documents(self, new: Tokens, name: str, /) -> None:
        """Refuses new documents (`Tokens`, which errors call `name`) that are too long."""


@runtime_checkable
class ScoresDocuments(Protocol[Data]):
    """Knows the probability of whole documents: `Posterior.document_log_likelihood`."""

    def log_probability_of_documents(
        self,
        key: Key,
        draw: Draw,
        data: Data,
        words: Array,
        lengths: Array,
        /,
        *,
        documents: Array,
        num_particles: int,
    ) -> Array:
        """Unbiased estimates of p(words (M, N) of documents of these lengths | draw), logs: (M,).

        Each document has random numbers by its index in `documents`, (M,) int.
        """


@runtime_checkable
class RanksWords(CompletesDocuments[Data], Protocol[Data]):
    """Ranks the words, or items, that a document or basket may have next."""

    def next_words(
        self, draw: Draw, data: Data, documents: Array, folded: dict[str, Array], /
    ) -> Array:
        """Probabilities of all words for one more token of documents: (R, V) float.

        Documents of the data where nothing is folded in, else the folded ones.
        """


@runtime_checkable
class KnowsTime(Protocol[Data]):
    """Models a series, and answers at any of its times: `Posterior.at`."""

    def at_time(self, draw: HostDraw, data: Data, time: float, /) -> tuple[Draw, PyTree]:
        """A draw at one time, and the data at that time as a container; on the host."""


# --- methods --------------------------------------------------------------------------------------


@runtime_checkable
class HasParticles(Protocol[Data]):
    """Is filtered: `jaxmf.particle_filter`."""

    def particle_draw(self, particle: PyTree, path: PyTree, data: Data, /) -> Draw:
        """The draw recorded from a particle and its path, as by `Algorithm.record`."""


@runtime_checkable
class Anneals(Protocol[Data]):
    """Has a path from its prior to its posterior, powers of its likelihood: `jaxmf.smc`."""

    def annealed(self, data: Data, /, **options: object) -> PyTree:
        """The `jaxmf.samplers.annealed_smc.AnnealedModel`: what is done with one state.

        On the host. Its keyword arguments are options of `jaxmf.smc`.

        Raises:
            ValueError: these data cannot be annealed.
        """


@runtime_checkable
class HasAscent(Protocol[Data]):
    """Is fitted by coordinate ascent: `jaxmf.variational`."""

    def prepare(self, data: Data, *, num_validation: int = 0, seed: Seed = 0) -> PyTree:
        """The data as the ascent goes through them; on the host."""

    def draw_of(self, last: object, /) -> Draw:
        """The draw recorded from the last state."""

    def summary_of(self, draw: Draw, /) -> dict[str, tuple[float, float]]:
        """Scalars of a fit by name: mean and sd, NaN where there is none."""


@runtime_checkable
class SolvesInClosedForm(Protocol[Data]):
    """Has a closed form: `jaxmf.variational(analytic=True)`."""

    def analytic(self, data: Data, /) -> Draw:
        """The fit, as `draw_of` keeps one; on the host."""


@runtime_checkable
class WarnsOfFits(Protocol[Data]):
    """Checks a fit for what makes it doubtful."""

    def alarms(self, draw: HostDraw, data: Data, /) -> list[tuple[str, str]]:
        """Kind and sentence of each alarm; empty if nothing is doubtful. On the host."""


@runtime_checkable
class HoldsOutOnes(Protocol[Data]):
    """Holds some ones out of the first epochs of a fit, to rank them: `variational(hold_out=)`."""

    def held_out_of(self, last: object, data: Data, /) -> dict[str, object]:
        """How the last state ranks these ones: scores by name, kept in the draw. On the host."""


@runtime_checkable
class SimulatesAlike(Protocol[SameData]):
    """Draws states and data from the prior: `jaxmf.testing.check_model` tests the sampler by it."""

    def simulate_like(self, key: Key, data: SameData, /) -> tuple[PyTree, SameData]:
        """A state of the sampler from the prior, and data given it, of the shapes of these.

        Cells that are missing in `data` are missing in what is drawn. Jittable.
        """


@runtime_checkable
class SimulatesMatrices(Protocol):
    """Draws states and matrices of any size from the prior: `simulation_based_calibration`."""

    def simulate_matrix(
        self, key: Key, shape: tuple[int, int], capacity: int, /
    ) -> tuple[PyTree, Any, Array]:
        """A state from the prior, a complete matrix given it, and whether slots ran out.

        The state is one of the sampler, except that fields may have a value where the sampler has
        None. The matrix is the model's container; () bool says that `capacity` slots for features
        or groups were too few. Jittable.
        """


@runtime_checkable
class SimulatesMore(Protocol[SameData]):
    """Draws a second data set of the same size: `simulation_based_calibration(data=)`."""

    def simulate_more(
        self, key: Key, state: PyTree, data: SameData, /
    ) -> tuple[PyTree, SameData, dict[str, Array]]:
        """The data with new data of the same size below them, a state for both, and overflow.

        The new data are drawn given the state, which is a draw from the posterior of `data`. Latent
        variables of new rows, such as their features, are drawn too and added to the state. A new
        row has missing cells where the row of `data` in its position has them. Overflow is as in
        `Info`. Jittable.

        Raises:
            ValueError: a setting of the model depends on its data, so that more data would change
                the model; or new data would need something that is not known, such as features.
        """


# --- functions of any model -----------------------------------------------------------------------


def settings_of(model: object) -> dict[str, Any]:
    """The fields of a model by name: the hyperparameters that it was made with.

    Raises:
        TypeError: it is no dataclass, so that nothing is known of what it was made with.
    """
    if isinstance(model, type) or not dataclasses.is_dataclass(model):
        raise TypeError(
            f"{type(model).__name__} must be a dataclass, so that its settings can be read and "
            "saved: put @dataclass(frozen=True) above the class"
        )
    return {field.name: getattr(model, field.name) for field in dataclasses.fields(model)}


def lacks(model: object, capability: type, question: str) -> ValueError:
    """The error of a question that a model cannot answer; it names the methods that would.

    Args:
        model: the model.
        capability: a protocol of this module that it lacks.
        question: what was asked, the beginning of the message: ``"predict"``.
    """
    hooks = [name for name in hooks_of(capability) if not hasattr(model, name)]
    return ValueError(
        f"{question}: {type(model).__name__} does not have {', '.join(hooks) or 'it'}; see "
        f"jaxmf.model.{capability.__name__}"
    )


def hooks_of(capability: type) -> tuple[str, ...]:
    """The names of the methods and attributes that a capability asks for."""
    return tuple(name for name in vars(capability) if not name.startswith("_"))
