"""The best columns of a row, and scores of cells with their uncertainty.

A variational fit ranks by scores of its one distribution. A model of ratings says by `known_cells`
what a row has already, and ranks by the predictive mean, averaged over draws: by `expected_values`
of whole rows where it has them, else cell by cell.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import jax.numpy as jnp
import numpy as np

from jaxmf.answers import Answer
from jaxmf.arguments import check_count, check_word
from jaxmf.data import Container, MatrixContainer
from jaxmf.model import HasCategories, Model, PredictsWholeRows, RanksColumns, ScoresCells
from jaxmf.posterior import draw_blocks, named_cells, prediction
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.topics import named_entries
from jaxmf.programs import jit
from jaxmf.types import Array, Draw

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_BLOCK_CELLS = 2**23
_SCORED_CELLS = 2**16
ORDERS = ("score", "probability")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Scores(Answer):
    """Scores of cells, on the scale of the likelihood's argument."""

    _axes: ClassVar = {"mean sd probability plain_probability": "cell"}

    mean: np.ndarray  # of the score, any shape
    sd: np.ndarray  # standard deviation of the score under the fitted distribution
    probability: np.ndarray  # of a one, with the uncertainty of the score averaged over
    # of a one at the mean of the score. Gaussian cells have no probability: both are the mean of
    # the cell as 0 or 1, cut off there.
    plain_probability: np.ndarray

    def table(self) -> dict[str, np.ndarray]:
        """One line for each cell; the columns that a table of recommendations shows."""
        return {"probability": self.probability, "score": self.mean, "sd": self.sd}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ExpectedRatings:
    """Predictive mean and standard deviation of ratings; of 0/1 values the mean is P(1).

    Args:
        mean: any shape.
        sd: noise included.
    """

    mean: np.ndarray
    sd: np.ndarray

    def table(self) -> dict[str, np.ndarray]:
        """Columns that a table of recommendations shows."""
        return {"mean": self.mean, "sd": self.sd}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class NextWords:
    """Probabilities of being the next word of a document, or item of a basket.

    Args:
        probability: averaged over draws, any shape.
        sd: its standard deviation over draws.
    """

    probability: np.ndarray
    sd: np.ndarray

    def table(self) -> dict[str, np.ndarray]:
        """Columns that a table of recommendations shows."""
        return {"probability": self.probability, "sd": self.sd}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Recommendations(Answer):
    """The best columns of R rows, best first; a row with fewer than n left ends in -1 and NaN.

    Args:
        rows: (R,) int, positions.
        columns: (R, n) int, positions.
        scores: (R, n) `Scores`, `ExpectedRatings` of a model of ratings, or `NextWords`.
        row_names: (R,) ids of the rows, or None.
        column_names: (R, n) ids of the columns (None where there is none), or None.
        column_titles: (R, n) titles of the columns, likewise, or None.
    """

    rows: np.ndarray
    columns: np.ndarray
    scores: Scores | ExpectedRatings | NextWords
    row_names: np.ndarray | None = None
    column_names: np.ndarray | None = None
    column_titles: np.ndarray | None = None

    def _ids(self) -> tuple[np.ndarray, np.ndarray]:
        """Ids of rows and columns, or positions."""
        rows = self.rows if self.row_names is None else self.row_names
        return rows, self.columns if self.column_names is None else self.column_names

    def coordinates(self) -> dict[str, object]:
        return {"row": self._ids()[0], "rank": 1 + np.arange(self.columns.shape[1])}

    def variables(self) -> dict[str, tuple[Sequence[str], np.ndarray]]:
        titles = {} if self.column_titles is None else {"title": self.column_titles}
        arrays = {"column": self._ids()[1], **titles, **self.scores.table()}
        return {name: (("row", "rank"), values) for name, values in arrays.items()}

    def table(self) -> dict[str, np.ndarray]:
        """Columns of a table with one line a recommendation."""
        kept = self.columns >= 0
        rows = self._ids()[0]
        return {
            "row": np.broadcast_to(rows[:, None], kept.shape)[kept],
            "rank": np.broadcast_to(1 + np.arange(kept.shape[1]), kept.shape)[kept],
            **{name: values[kept] for name, (_, values) in self.variables().items()},
        }

    def with_titles(self, titles: np.ndarray) -> Recommendations:
        """These with the titles of all columns (D,)."""
        return dataclasses.replace(self, column_titles=named_entries(self.columns, titles))


def scores(posterior: Draws, cells: object) -> Scores:
    """Scores of cells: mean, sd, and the probability of a one with and without that sd.

    Args:
        cells: which cells, as in `predict`.
    Raises:
        ValueError: the model has no scores.
    """
    if not isinstance(posterior.model, ScoresCells):
        raise ValueError(f"{type(posterior.model).__name__} has no scores; see predict(cells)")
    rows, columns = named_cells.read_cells(cells, posterior.data)
    return _scores_of(posterior, rows, columns)


def can_recommend(model: Model) -> bool:
    """Whether a model ranks the columns of a row."""
    return isinstance(model, ScoresCells | RanksColumns)


def _scores_of(posterior: Draws, rows: np.ndarray, columns: np.ndarray) -> Scores:
    draw = posterior.reference_draw()

    def evaluate(rows: np.ndarray, columns: np.ndarray) -> tuple[Array, ...]:
        return _score_cells(posterior.model, draw, rows, columns)

    mean, variance, probability, plain = _in_blocks(evaluate, rows, columns)
    return Scores(mean, np.sqrt(variance), probability, plain)


def _in_blocks(
    evaluate: Callable[[np.ndarray, np.ndarray], Sequence[np.ndarray | Array]],
    rows: np.ndarray,
    columns: np.ndarray,
) -> list[np.ndarray]:
    """Results for cells, (M,) each, computed a block of them at a time, in bounded memory."""
    # few sizes of blocks, so that few programs serve all numbers of cells
    length = min(_SCORED_CELLS, 1 << max(rows.size - 1, 0).bit_length())
    parts = [
        [np.asarray(part)[: where.stop - where.start] for part in evaluate(rows[at], columns[at])]
        for where, at in draw_blocks.filled_blocks(rows.size, length)
    ]
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


@jit
def _score_cells(model: ScoresCells, draw: Draw, rows: Array, columns: Array) -> tuple[Array, ...]:
    return with_probabilities(model, *model.score_cells(draw, rows, columns))


def with_probabilities(model: ScoresCells, mean: Array, variance: Array) -> tuple[Array, ...]:
    """The parts of `Scores`: with probabilities of a one by the variance and without it."""
    plain = model.probability(mean, jnp.zeros_like(variance))
    return mean, variance, model.probability(mean, variance), plain


@jit
def _score_rows(model: ScoresCells, draw: Draw, rows: Array) -> Array:
    return model.score_rows(draw, rows)[0]


@jit
def _probability_rows(model: ScoresCells, draw: Draw, rows: Array) -> Array:
    return model.probability(*model.score_rows(draw, rows))


def recommend(
    posterior: Draws, rows: np.ndarray, *, n: int, by: str, include_known: bool
) -> Recommendations:
    """The best columns of rows (R,) of the data by position, a block of rows at a time."""
    data = posterior.data
    width = min(int(n), data.num_columns)
    best = np.full((rows.size, width), -1)
    known = None if include_known else known_cells(posterior.model, data)
    in_rows = isinstance(posterior.model, ScoresCells | PredictsWholeRows)
    num_cells = _BLOCK_CELLS if in_rows else _SCORED_CELLS
    most = max(1, num_cells // data.num_columns)
    block = min(1 << max(rows.size - 1, 0).bit_length(), most)  # few programs for all numbers
    for kept, index in draw_blocks.filled_blocks(rows.size, block):
        here = rows[index]
        values = _values_of_rows(posterior, here, by)
        if known is not None:
            known_ones = known[here].tocoo()
            values[known_ones.row, known_ones.col] = -np.inf
        best[kept] = best_columns(values, width)[: kept.stop - kept.start]
    where = np.repeat(rows, width), np.maximum(best, 0).ravel()
    is_fit = isinstance(posterior.model, ScoresCells)
    scores = _scores_of(posterior, *where) if is_fit else _expected(posterior, *where)
    return assemble(data, rows, best, scores)


def check_question(model: Model, n: object, by: object) -> None:
    """Refuses a model that ranks no columns, and an order that it has not."""
    if not can_recommend(model):
        raise ValueError(f"{type(model).__name__} has no recommendations; see predict(cells)")
    check_count("n", n)
    check_word("by", by, ORDERS)
    is_binary = isinstance(model, ScoresCells) or (
        isinstance(model, HasCategories) and model.values == (0.0, 1.0)
    )
    if by == "probability" and not is_binary:
        raise ValueError(
            f"by: {type(model).__name__} ranks ratings by their mean; only those of 0 and 1 have "
            "a probability to rank by. Leave by out"
        )


def known_cells(model: RanksColumns[Container], data: Any) -> csr_array:
    """(N, D) sparse, the cells that are not recommended."""
    if isinstance(model, ScoresCells):
        return data.to_scipy().tocsr()
    from scipy.sparse import csr_array

    rows, columns = model.known_cells(data)
    return csr_array((np.ones(rows.size), (rows, columns)), shape=data.shape)


def _values_of_rows(posterior: Draws, rows: np.ndarray, by: str) -> np.ndarray:
    """Values by which the columns of some rows are ranked: (R, D) float, writable."""
    model = posterior.model
    if isinstance(model, ScoresCells):
        # means of Gaussian cells are in the order of their scores, and are cut off at 0 and 1
        is_plain = by == "score" or posterior.model.cell_distribution == "normal"
        evaluate = _score_rows if is_plain else _probability_rows
        return np.array(evaluate(model, posterior.reference_draw(), rows))
    if isinstance(model, PredictsWholeRows):
        return _expected_rows(posterior, rows)
    num_columns = posterior.data.num_columns
    cells = np.repeat(rows, num_columns), np.tile(np.arange(num_columns), rows.size)
    return _expected(posterior, *cells).mean.reshape(rows.size, num_columns)


def _expected_rows(posterior: Draws, rows: np.ndarray) -> np.ndarray:
    draws, weights = posterior.flat_draws()
    data = posterior.data
    model, draws, rows, _ = prediction.narrowed(posterior.model, data, draws, rows, None)

    def program(block: Draw, block_weights: np.ndarray) -> Array:
        return _expected_values(model, block, block_weights, data, rows)

    return draw_blocks.weighted_sum(program, draws, weights, draw_blocks.kept_size(draws))


@jit
def _expected_values(
    model: PredictsWholeRows[Container], draws: Draw, weights: Array, data: Container, rows: Array
) -> Array:
    return draw_blocks.sum_over_block(
        lambda draw: model.expected_values(draw, data, rows), draws, weights
    )


def _expected(posterior: Draws, rows: np.ndarray, columns: np.ndarray) -> ExpectedRatings:
    """Predictive moments of cells, mixed over draws."""
    draws, weights = posterior.flat_draws()

    def evaluate(rows: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        blocks = prediction.predict_cells(posterior.model, posterior.data, draws, rows, columns)
        mixture = prediction.gather(blocks, weights, num_cells=rows.size, num_draws=0, seed=0)
        return mixture.mean, np.sqrt(mixture.variance)

    return ExpectedRatings(*_in_blocks(evaluate, rows, columns))


def best_columns(values: np.ndarray, width: int) -> np.ndarray:
    """Positions of the largest values of each row, largest first; -1 for minus infinity."""
    if width < values.shape[1]:
        found = np.argpartition(-values, width - 1, axis=1)[:, :width]
        found.sort(axis=1)  # ties among these in the order of the columns
    else:
        found = np.broadcast_to(np.arange(width), values.shape)
    best_values = np.take_along_axis(values, found, axis=1)
    order = np.argsort(-best_values, axis=1, kind="stable")
    best = np.take_along_axis(found, order, axis=1)
    return np.where(np.isneginf(np.take_along_axis(best_values, order, axis=1)), -1, best)


def assemble(
    data: MatrixContainer, rows: np.ndarray, best: np.ndarray, scores: Scores | ExpectedRatings
) -> Recommendations:
    """The recommendations with the ids of rows and columns.

    Args: data: the container that has the rows and the columns; rows (R,) positions; best (R, n)
    positions of columns, -1 where there is none; scores: of these cells, (R n,).
    """
    there = best >= 0

    def fold(values: np.ndarray) -> np.ndarray:
        return np.where(there, values.reshape(best.shape), np.nan)

    names = None if data.column_names is None else data.column_names.astype(object)
    return Recommendations(
        rows=rows,
        columns=best,
        scores=type(scores)(
            *(fold(getattr(scores, field.name)) for field in dataclasses.fields(scores))
        ),
        row_names=None if data.row_names is None else data.row_names[rows],
        column_names=None if names is None else named_entries(best, names),
    )
