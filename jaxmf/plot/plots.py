"""The pictures of a posterior, reached as ``post.plot.features()`` and so on."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar, cast

import numpy as np

from jaxmf import diagnostics
from jaxmf.data import Dense, Entries, Positions
from jaxmf.data.checks import as_lines
from jaxmf.data.convert import complete_matrix
from jaxmf.diagnostics import evenly_spread
from jaxmf.model import HasBiclusters, HasFactors, HasNetwork, PredictsCells, category_columns
from jaxmf.plot import bilinear, topic_map
from jaxmf.plot.calibration import QUANTILES, coverage_picture, reliability_picture
from jaxmf.plot.graph import graph_of_draw
from jaxmf.plot.network import network_picture
from jaxmf.plot.options import check_options
from jaxmf.plot.panels import (
    held_out_picture,
    images,
    label_axis,
    matrix,
    scree,
    topics_over_panels,
    trace_panels,
)
from jaxmf.plot.style import CHAIN_COLOURS, SEQUENTIAL, bare, colours, empty, figure_of
from jaxmf.posterior import kept_cells
from jaxmf.posterior.topic_draws import has_topics
from jaxmf.types import ArrayLike, PyTree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from jaxmf.posterior.answers import Answers


Method = TypeVar("Method", bound=Callable[..., Any])
Options = ParamSpec("Options")


class Capability(NamedTuple):
    """Something that a picture shows, and whether a posterior has it."""

    words: str
    is_there: Callable[[Answers], bool]


FEATURES = Capability("binary features of rows", lambda posterior: "z" in posterior.draws)
COLUMN_FEATURES = Capability(
    "binary features of columns", lambda posterior: {"z", "v"} <= posterior.draws.keys()
)
NUM_FEATURES = Capability(
    "a number of features", lambda posterior: "num_features" in posterior.draws
)
CELLS = Capability("cells to predict", lambda posterior: isinstance(posterior.model, PredictsCells))
MATRIX = Capability("a full matrix as data", lambda posterior: hasattr(posterior.data, "to_array"))
NETWORK = Capability(
    "a network of blocks", lambda posterior: isinstance(posterior.model, HasNetwork)
)

MISSING = Capability(
    "cells that are missing", lambda posterior: getattr(posterior.data, "num_missing", 0) > 0
)
FACTORS = Capability(
    "real factors of rows and columns",
    lambda posterior: isinstance(posterior.model, HasFactors) and _has_cells(posterior),
)
VALUES = Capability(
    "values of cells to compare with predictions of them",
    lambda posterior: (
        CELLS.is_there(posterior)
        and posterior.model.predicts_its_rows
        and isinstance(posterior.data, Dense | Entries)
        and _has_cells(posterior)
    ),
)
BICLUSTERS = Capability(
    "weights between features of rows and of columns",
    lambda posterior: (
        isinstance(posterior.model, HasBiclusters) and COLUMN_FEATURES.is_there(posterior)
    ),
)
TOPICS = Capability("topics of documents", has_topics)


def _has_cells(posterior: Answers) -> bool:
    """Whether the draws keep what predictions of any cell need."""
    return not kept_cells.lacks(posterior.model, posterior.draws)


def shows(*capabilities: Capability) -> Callable[[Method], Method]:
    """Says what a picture needs; refuses posteriors without it, and wrong options."""

    def with_checked_options(method: Method) -> Method:
        signature = inspect.signature(method)

        @functools.wraps(method)
        def checked(self: Plots, *arguments: object, **options: object) -> PyTree:
            self._check(method.__name__)
            bound = signature.bind(self, *arguments, **options)
            bound.apply_defaults()
            _, *named = bound.arguments.items()  # the first is the posterior
            return method(self, **check_options(self._posterior, dict(named)))

        _SHOWS[method.__name__] = capabilities
        return cast(Method, checked)

    return with_checked_options


def picture(
    function: Callable[Concatenate[Answers, Options], Figure], *capabilities: Capability
) -> Callable[Concatenate[Plots, Options], Figure]:
    """A method that draws by a function of its name, which takes a posterior first."""

    @functools.wraps(function)
    def method(self: Plots, /, *arguments: Options.args, **options: Options.kwargs) -> Figure:
        return function(self._posterior, *arguments, **options)

    return shows(*capabilities)(method)


_SHOWS: dict[str, tuple[Capability, ...]] = {}
"""What every picture needs, by its name."""


class Plots:
    """Pictures of one posterior, of what it has: `available` names them.

    Args:
        posterior: what is shown.
    """

    def __init__(self, posterior: Answers) -> None:
        self._posterior = posterior

    def __repr__(self) -> str:
        return "post.plot: " + ", ".join(f"{name}()" for name in self.available())

    def available(self) -> tuple[str, ...]:
        """The names of the pictures that this posterior has."""
        return tuple(sorted(name for name in _SHOWS if self._lacks(name) is None))

    def _lacks(self, name: str) -> Capability | None:
        """The first thing that a picture needs and the posterior does not have."""
        lacking = (each for each in _SHOWS[name] if not each.is_there(self._posterior))
        return next(lacking, None)

    def _check(self, name: str) -> None:
        lacks = self._lacks(name)
        if lacks is not None:
            posterior = self._posterior
            raise ValueError(
                f"plot.{name}: needs {lacks.words}; a {type(posterior.model).__name__} of "
                f"{type(posterior.data).__name__} data has none. There are "
                f"{', '.join(self.available())}"
            )

    def _hidden(self, truth: object, max_cells: int) -> tuple[Positions, np.ndarray]:
        """Cells that are missing in the data and known in `truth`, thinned, and their values."""
        cells, values = diagnostics.hidden_cells(self._posterior.data, truth)
        some = evenly_spread(values.size, max_cells)
        return Positions(*(index[some] for index in cells)), values[some]

    def _real_cells(self, cells: Positions, values: np.ndarray) -> tuple[Positions, np.ndarray]:
        """The cells, and their values, that are not of columns of categories."""
        posterior = self._posterior
        is_category = category_columns(posterior.model, posterior.data.num_columns)
        kept = ~is_category[np.asarray(cells.columns)]
        return Positions(*(index[kept] for index in cells)), values[kept]

    @shows(FEATURES)
    def features(
        self, *, image_shape: tuple[int, int] | None = None, max_features: int = 24
    ) -> Figure:
        """The features of the reference draw (highest log joint), most frequent first.

        Args:
            image_shape: (height, width) to draw each as an image; as rows of a matrix otherwise.
            max_features: how many are shown at most.
        """
        features = self._posterior.features()
        mean = features.mean[:max_features]
        if mean.shape[0] == 0:
            return empty("the reference draw has no features")
        share = features.counts[:max_features] / self._posterior.data.num_rows
        titles = [f"{100 * value:.0f} % of rows" for value in share]
        scaled_by = mean
        if features.level is not None:
            titles[features.level] = "level of all rows"
            # a level far from zero would leave the features without colours
            if len(mean) > 1:
                scaled_by = np.delete(mean, features.level, axis=0)
        if image_shape is None:
            names = getattr(self._posterior.data, "column_names", None)
            return matrix(mean, titles, "feature", names, scaled_by=scaled_by)
        return images(mean, titles, image_shape, scaled_by=scaled_by)

    @shows()
    def trace(self, names: Sequence[str] | None = None) -> Figure:
        """Label-free quantities along the run: draws of a chain, rows of a filter, epochs of a fit.

        Args:
            names: which quantities; all scalars by default.
        Raises:
            ValueError: an unknown name, or a run that kept no draw.
        """
        self._posterior.require_draws()
        quantities = _traces(self._posterior)
        names = list(quantities) if names is None else as_lines("names", names, "a list of names")
        unknown = [name for name in names if name not in quantities]
        if unknown:
            raise ValueError(
                f"names: there is no trace of {unknown[0]!r}; there are {', '.join(quantities)}"
            )
        varying = [name for name in names if np.ptp(quantities[name]) > 0] or names[:1]
        along = "row" if self._posterior.is_weighted else "draw"
        along = "epoch" if self._posterior.is_variational else along
        return trace_panels({name: quantities[name] for name in varying}, along=along)

    @shows(NUM_FEATURES)
    def num_features(self) -> Figure:
        """Posterior distribution of the number of features."""
        from matplotlib.ticker import MaxNLocator

        values, probabilities = self._posterior.num_features()
        figure, (axes,) = figure_of(1, 1, width=4.2, height=2.8)
        full = np.arange(values.min(), values.max() + 1)
        heights = np.zeros(full.size)
        heights[values - values.min()] = probabilities
        axes.bar(full, heights, color=CHAIN_COLOURS[0], width=0.8)
        axes.set(xlabel="number of features", ylabel="probability")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlim(full[0] - 0.9, full[-1] + 0.9)
        return figure

    @shows(FEATURES)
    def cooccurrence(self, rows: ArrayLike | None = None, *, max_rows: int = 300) -> Figure:
        """Heat map of E[ZZ'], rows sorted by the features they have in the reference draw.

        Args:
            rows: (R,) ids of rows, or positions where the data has no ids; all by default.
            max_rows: more rows than this are thinned evenly.
        """
        posterior = self._posterior
        shown = np.arange(posterior.data.num_rows) if rows is None else np.asarray(rows)
        if shown.size > max_rows:
            shown = shown[evenly_spread(shown.size, max_rows)]
        z = posterior.reference_draw()["z"][shown]
        order = np.lexsort((-z.astype(int))[:, np.argsort(-z.sum(axis=0), kind="stable")[::-1]].T)
        shared = posterior.cooccurrence(Positions(shown[order])).values
        figure, (axes,) = figure_of(1, 1, width=5.4, height=4.8)
        picture = axes.imshow(shared, cmap=colours(SEQUENTIAL), vmin=0, interpolation="nearest")
        bare(axes)
        names = posterior.data.row_names
        label_axis(axes, None if names is None else names[shown[order]], "y", most=24)
        axes.set(xlabel="rows, sorted by features", ylabel="rows, in the same order")
        figure.colorbar(picture, ax=axes, shrink=0.85).set_label("shared features, E[ZZ']")
        return figure

    @shows(FEATURES)
    def causal_graph(
        self, *, chain: int | None = None, draw: int | None = None, max_rows: int = 60
    ) -> Figure:
        """The bipartite graph of one draw: hidden causes above, the rows they act on below.

        Args:
            chain, draw: which draw; the reference draw (highest log joint) by default.
            max_rows: more rows than this are thinned evenly.
        """
        return graph_of_draw(self._posterior, chain=chain, draw=draw, max_rows=max_rows)

    @shows(NETWORK)
    def network(self) -> Figure:
        """The blocks of a model that is a network: which variable partitions which.

        Raises:
            ValueError: the model is none.
        """
        return network_picture(self._posterior.model.network())

    topics = picture(topic_map.topics, TOPICS)

    @shows(TOPICS)
    def topics_over(self, values: object, *, num_bins: int = 10, max_topics: int = 12) -> Figure:
        """Shares of topics in documents over time, over another number, or by group of documents.

        Lines are posterior means of the share in a bin, averaged over its documents. Shades are two
        standard errors, of draws and documents together; a bin with one document has none. See
        `Posterior.topics_over`.

        Args:
            values: a number, date or group (text) of every document: a mapping or pandas Series by
                id, or a list in their order. Documents with NaN, NaT or None are left out.
            num_bins: bins of equal width; one for each value where there are no more values.
            max_topics: how many are shown at most, the first ones.
        Raises:
            TypeError: a value that is no number, and dates or texts beside other values.
            ValueError: a document without a value, all of them missing, or numbers that are texts.
        """
        labels = self._posterior.topics(n=2).labels(2)[:max_topics]
        titles = [f"{topic}: {words}" for topic, words in enumerate(labels)]
        over = self._posterior.topics_over(values, num_bins=num_bins)
        return topics_over_panels(over, titles)

    @shows(CELLS, MATRIX)
    def reconstruction(
        self,
        rows: Sequence[int] | None = None,
        *,
        image_shape: tuple[int, int] | None = None,
        truth: object = None,
    ) -> Figure:
        """Some rows as observed, beside the posterior mean of the features added up.

        A matrix is shown less the means of the columns where these are far from zero, and in
        standard deviations of the columns where these differ tenfold.

        Args:
            rows: which rows, eight spread over the data by default.
            image_shape: (height, width) to draw rows as images.
            truth: (N, D) the complete matrix; adds a line of what the missing cells held.
        """
        posterior = self._posterior
        num_rows = 8 if image_shape else 40
        positions = (
            evenly_spread(posterior.data.num_rows, num_rows) if rows is None else np.asarray(rows)
        )
        values = posterior.data.to_array()
        observed = values[positions]
        expected = posterior.reconstruction(Positions(positions))
        lines = {"observed": observed, "reconstructed": expected}
        if truth is not None:
            lines["complete"] = complete_matrix(truth, posterior.data, argument="truth")[positions]
        if image_shape is None:
            lines = bilinear.less_column_means(bilinear.in_one_unit(lines, values))
        return bilinear.draw_lines(posterior, lines, positions, image_shape)

    @shows(CELLS, MISSING)
    def held_out(self, truth: object, *, max_cells: int = 2_000) -> Figure:
        """Predictions of the missing cells against what they were, with 90 % intervals.

        Args:
            truth: (N, D) the complete matrix, or `Entries` with the cells that are known.
            max_cells: more cells than this are thinned evenly.
        """
        cells, values = self._real_cells(*self._hidden(truth, max_cells))
        if not values.size:
            raise ValueError("truth: all cells are of categories, see calibration")
        prediction = self._posterior.predict(cells, quantiles=(0.05, 0.95))
        return held_out_picture(values, prediction)

    @shows(VALUES)
    def calibration(self, truth: object = None, *, max_cells: int = 2_000) -> Figure:
        """Whether intervals hold what they promise: shares of cells inside, by level and by sd.

        Of cells with zeros and ones, how often those of some probability are one; where all are
        of categories, how often a category of some probability is the true one. Otherwise cells of
        categories are left out.

        Args:
            truth: (N, D) the complete matrix, or `Entries`, with cells that are missing in the
                data. By default the cells of the data, which the model has seen: their coverage
                says little of other cells.
            max_cells: more cells than this are thinned evenly.
        """
        posterior = self._posterior
        if truth is None:
            cells, values = diagnostics.observed_cells(posterior.data, max_cells)
        else:
            cells, values = self._hidden(truth, max_cells)
        kind = "training" if truth is None else "held-out"
        real = self._real_cells(cells, values)
        if not real[1].size:
            found = posterior.probabilities(cells)
            is_true, probabilities = values[:, None] == found.levels, found.values
            may_be = probabilities > 0  # other columns have more categories
            words = {"of": "a category", "share": "share of cells with that category"}
            return reliability_picture(is_true[may_be], probabilities[may_be], kind, **words)
        cells, values = real
        prediction = posterior.predict(cells, quantiles=QUANTILES)
        if np.isin(values, (0, 1)).all():
            return reliability_picture(values, prediction.mean, kind)
        return coverage_picture(values, prediction, kind)

    @shows(FACTORS)
    def factors(self) -> Figure:
        """How much each of `Posterior.factors` adds to cells, with 90 % intervals over draws."""
        factors = self._posterior.factors()
        return scree(factors.sizes, factors.size_bounds)

    biclusters = picture(bilinear.biclusters, BICLUSTERS, MATRIX)
    column_features = picture(bilinear.column_features, COLUMN_FEATURES)
    average_images = picture(bilinear.average_images, FEATURES, MATRIX)
    completed = picture(bilinear.completed, CELLS, MATRIX, MISSING)
    blocks = picture(bilinear.blocks, COLUMN_FEATURES, MATRIX)


def _traces(posterior: Answers) -> dict[str, np.ndarray]:
    if posterior.is_weighted:
        return posterior.trace
    if posterior.is_variational:
        epochs = int(posterior.draws["num_epochs"][0, 0])
        kept = {name: x for name, x in posterior.trace.items() if name != "num_epochs"}
        return {name: values[:, :epochs] for name, values in kept.items()}
    return posterior.quantities()
