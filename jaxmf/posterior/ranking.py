"""Scores of cells with their uncertainty, and the best columns of a row."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.posterior import prediction

if TYPE_CHECKING:
    from jaxmf.posterior.posterior import Posterior

_BLOCK_CELLS = 2**23
_SCORED_CELLS = 2**16
ORDERS = ("score", "probability")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Scores:
    """Scores of cells, on the scale of the likelihood's argument; of draws, of the values.

    Args:
        mean: of the score, any shape.
        sd: standard deviation of the score under the fitted law; of draws, of the cell's value,
            noise included.
        probability: of a one, with the uncertainty of the score averaged over; None where cells
            are not zeros and ones.
        plain_probability: of a one at the mean of the score; None likewise, and of draws.
    """

    mean: np.ndarray
    sd: np.ndarray
    probability: np.ndarray | None = None
    plain_probability: np.ndarray | None = None

    def __repr__(self) -> str:
        words = (
            f"Scores of {self.mean.size:,} cells, sd {np.nanmin(self.sd):.3g} to "
            f"{np.nanmax(self.sd):.3g}"
        )
        if self.probability is None:
            return words
        return words + (
            f", probability {np.nanmin(self.probability):.3g} to {np.nanmax(self.probability):.3g}"
        )


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Recommendations:
    """The best columns of R rows, best first; a row with fewer than n left ends in -1 and NaN.

    Args:
        rows: (R,) int, positions.
        columns: (R, n) int, positions.
        scores: (R, n) `Scores`.
        row_names: (R,) ids of the rows, or None.
        column_names: (R, n) ids of the columns (None where there is none), or None.
    """

    rows: np.ndarray
    columns: np.ndarray
    scores: Scores
    row_names: np.ndarray | None = None
    column_names: np.ndarray | None = None

    def table(self) -> dict[str, np.ndarray]:
        """Columns of a table with one line a recommendation."""
        kept = self.columns >= 0
        rows = self.rows if self.row_names is None else self.row_names
        columns = self.columns if self.column_names is None else self.column_names
        table = {
            "row": np.broadcast_to(rows[:, None], kept.shape)[kept],
            "rank": np.broadcast_to(1 + np.arange(kept.shape[1]), kept.shape)[kept],
            "column": columns[kept],
            "score": self.scores.mean[kept],
            "sd": self.scores.sd[kept],
        }
        if self.scores.probability is not None:
            table["probability"] = self.scores.probability[kept]
        return table

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.table())

    def __repr__(self) -> str:
        table = self.table()
        shown = min(len(table["row"]), 10)
        lines = ["  ".join(f"{name:>12}" for name in table)]
        for i in range(shown):
            values = (column[i] for column in table.values())
            lines.append(
                "  ".join(
                    f"{value:12.4g}" if isinstance(value, np.floating) else f"{value!s:>12}"
                    for value in values
                )
            )
        if len(table["row"]) > shown:
            lines.append(f"... {len(table['row']) - shown:,} more")
        return "\n".join(lines)


def scores(posterior: Posterior, cells: Any) -> Scores:
    """See `Posterior.scores`."""
    check(posterior, "scores")
    rows, columns = prediction.read_cells(cells, posterior.data)
    return _scores_of(posterior, rows, columns)


def check(posterior: Posterior, question: str) -> None:
    """Refuses a model without scores."""
    if not hasattr(posterior.model, "score_cells") and not _by_draws(posterior):
        raise ValueError(f"{type(posterior.model).__name__} has no {question}; see predict(cells)")


def _by_draws(posterior: Posterior) -> bool:
    """Whether scores are expected values, averaged over draws."""
    return hasattr(posterior.model, "expected_values")


def _scores_of(posterior: Posterior, rows: np.ndarray, columns: np.ndarray) -> Scores:
    if _by_draws(posterior):
        found = posterior.predict((rows, columns), num_draws=1)
        is_binary = getattr(posterior.model, "values", None) == (0.0, 1.0)
        return Scores(found.mean, found.sd, found.mean if is_binary else None)
    draw = posterior.reference_draw()
    # few sizes of blocks, so that few programs serve all numbers of cells, in bounded memory
    block = min(_SCORED_CELLS, 1 << max(rows.size - 1, 0).bit_length())
    parts = []
    for start in range(0, rows.size, block):
        here = np.minimum(np.arange(start, start + block), rows.size - 1)
        found = _score_cells(posterior.model, draw, rows[here], columns[here])
        parts.append([np.asarray(part)[: rows.size - start] for part in found])
    mean, variance, probability, plain = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Scores(mean, np.sqrt(variance), probability, plain)


@jax.jit
def _score_cells(model: Any, draw: Any, rows: Any, columns: Any) -> Any:
    mean, variance = model.score_cells(draw, rows, columns)
    plain = model.probability(mean, jnp.zeros_like(variance))
    return mean, variance, model.probability(mean, variance), plain


@jax.jit
def _score_rows(model: Any, draw: Any, rows: Any) -> Any:
    return model.score_rows(draw, rows)[0]


@jax.jit
def _probability_rows(model: Any, draw: Any, rows: Any) -> Any:
    return model.probability(*model.score_rows(draw, rows))


def recommend(
    posterior: Posterior, rows: Any, *, n: int, by: str, include_known: bool
) -> Recommendations:
    """See `Posterior.recommend`."""
    check(posterior, "recommendations")
    data = posterior.data
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise ValueError(f"n must be a whole number, at least 1, got {n!r}")
    if by not in ORDERS:
        raise ValueError(f"by must be one of {', '.join(ORDERS)}, got {by!r}")
    places = np.arange(data.num_rows) if rows is None else prediction.read_rows(rows, data)
    width = min(int(n), data.num_columns)
    best = np.full((places.size, width), -1)
    known = None if include_known else data.to_scipy()
    evaluate = _evaluation(posterior, by)
    block = max(1, min(places.size, _BLOCK_CELLS // data.num_columns))
    for start in range(0, places.size, block):
        # one size of block, so that one program serves all
        here = places[np.minimum(np.arange(start, start + block), places.size - 1)]
        values = np.array(evaluate(here))
        if known is not None:
            own = known[here].tocoo()
            values[own.row, own.col] = -np.inf
        kept = slice(start, min(start + block, places.size))
        best[kept] = _best(values, width)[: kept.stop - start]
    return _assemble(posterior, places, best)


def _evaluation(posterior: Posterior, by: str) -> Callable[[np.ndarray], Any]:
    """What orders the columns of some rows: rows (R,) -> (R, D)."""
    if not _by_draws(posterior):
        function = _score_rows if by == "score" else _probability_rows
        return partial(function, posterior.model, posterior.reference_draw())
    if by != "score":
        raise ValueError('by: draws of this model are ordered by the expected value, by="score"')
    draws, weights = posterior.flat_draws()

    def evaluate(rows: np.ndarray) -> np.ndarray:
        size = rows.size * posterior.data.num_columns
        total = np.zeros((rows.size, posterior.data.num_columns))

        def of_block(block: Any, indices: np.ndarray) -> Any:
            del indices
            return _expected_values(posterior.model, block, posterior.data, rows)

        for where, values in prediction.over_draws(of_block, draws, 8 * size):
            total += np.tensordot(weights[where], values, axes=1)
        return total

    return evaluate


@jax.jit
def _expected_values(model: Any, draws: Any, data: Any, rows: Any) -> Any:
    return jax.vmap(lambda draw: model.expected_values(draw, data, rows))(draws)


def _best(values: np.ndarray, width: int) -> np.ndarray:
    """Places of the largest values of each row, largest first; -1 for those of minus infinity."""
    if width < values.shape[1]:
        found = np.argpartition(-values, width - 1, axis=1)[:, :width]
        found.sort(axis=1)  # ties among these in the order of the columns
    else:
        found = np.broadcast_to(np.arange(width), values.shape)
    of_found = np.take_along_axis(values, found, axis=1)
    order = np.argsort(-of_found, axis=1, kind="stable")
    best = np.take_along_axis(found, order, axis=1)
    return np.where(np.isneginf(np.take_along_axis(of_found, order, axis=1)), -1, best)


def _assemble(posterior: Posterior, places: np.ndarray, best: np.ndarray) -> Recommendations:
    data = posterior.data
    there = best >= 0
    cells = np.repeat(places, best.shape[1]), np.where(there, best, 0).ravel()
    found = _scores_of(posterior, *cells)

    def fold(values: np.ndarray | None) -> Any:
        if values is None:
            return None
        return np.where(there, values.reshape(best.shape), np.nan)

    names = None
    if data.column_names is not None:
        names = np.array(data.column_names, dtype=object)[best]
        names[~there] = None
    return Recommendations(
        rows=places,
        columns=best,
        scores=Scores(*(fold(getattr(found, field.name)) for field in dataclasses.fields(Scores))),
        row_names=None if data.row_names is None else data.row_names[places],
        column_names=names,
    )
