"""Predictions of cells that were named before the run: `sample(..., predict_at=cells)`.

Running means of their predictive moments are gathered on the way. Draws that do not keep what
predictions need (factors, which are large) keep mean and variance of each of these cells instead,
so that the mixture over draws, and its quantiles, are those of draws that keep everything; of cells
with few values the averaged probabilities are that mixture already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import jax
import numpy as np
from jax.tree_util import Partial

from jaxmf.data import Container
from jaxmf.data.cells_by_id import are_elsewhere
from jaxmf.engine import Algorithm, as_partial
from jaxmf.model import DrawsCells, KeepsLess, Model, PredictsCells
from jaxmf.posterior import categories, named_cells
from jaxmf.posterior.cell_distributions import cell_distribution
from jaxmf.posterior.draws import Draws
from jaxmf.types import Array, Draw, Key, PyTree

Cells = dict[str, np.ndarray]
_KEPT = ("predicted_mean", "predicted_variance")
_MOST_FLOATS = 2**26
"""Floats of all draws together that moments of cells may take; more are not kept."""


def lacks(model: Model, draw: Mapping[str, object]) -> bool:
    """Whether a draw, or the draws of a run, are without what predictions need."""
    return isinstance(model, KeepsLess) and any(name not in draw for name in model.kept_for_cells)


def predicting_at(
    algorithm: Algorithm, model: Model, data: Container, predict_at: object, *, num_draws: int
) -> tuple[Algorithm, Cells]:
    """The algorithm with predictions of the cells that a user names, and their rows and columns.

    Args: num_draws: of all chains, whose memory decides whether each keeps moments of the cells.
    Raises ValueError: the model predicts no cells of its rows, they cannot be read, or the rows of
    the data lie in several processes; the message names the argument, predict_at.
    """
    if are_elsewhere(data):
        raise ValueError(
            "predict_at: the rows of the data lie in several processes, over which no cells are "
            "predicted on the way; leave it out"
        )
    _check_model(model)
    cells = cells_by_name(predict_at, data)
    keep = are_kept(algorithm, model, data, cells, num_draws=num_draws)
    return with_predictions(algorithm, model, cells, keep=keep), cells


def _check_model(model: Model) -> None:
    name = type(model).__name__
    if not isinstance(model, PredictsCells):
        raise ValueError(f"predict_at: {name} has no cells to predict; leave it out")
    if not model.predicts_its_rows:
        raise ValueError(
            f"predict_at: the rows of a {name} are complete, and its predictions are of a further "
            "row, the same for all; leave it out and see predict(new_rows=)"
        )


def are_kept(
    algorithm: Algorithm, model: Model, data: Container, cells: Cells, *, num_draws: int
) -> bool:
    """Whether draws are to keep the moments of the cells."""
    if categories.has_categories(model) or isinstance(model, DrawsCells):
        return False
    key = jax.random.key(0)
    state = jax.eval_shape(algorithm.init, key, data)
    is_small = num_draws * 2 * cells["rows"].size <= _MOST_FLOATS
    return is_small and lacks(model, jax.eval_shape(algorithm.record, key, state, data))


def with_predictions(algorithm: Algorithm, model: Model, cells: Cells, *, keep: bool) -> Algorithm:
    """The algorithm with predictive moments of cells among its running means.

    Args: cells: their rows and columns, (M,) each; keep: whether every draw keeps mean and variance
    of each, too.
    """
    # a model whose draws may leave out what predictions need says what these need
    whole = as_partial(model.whole_draw if isinstance(model, KeepsLess) else algorithm.record)
    where = jax.numpy.asarray(cells["rows"]), jax.numpy.asarray(cells["columns"])
    average = Partial(_moments, model, whole, algorithm.average, *where)
    algorithm = algorithm._replace(average=average)
    if not keep:
        return algorithm
    record = Partial(_record, model, whole, as_partial(algorithm.record), *where)
    return algorithm._replace(record=record)


def _moments(
    model: PyTree,
    whole: Callable[..., Draw],
    other: Callable[..., Draw] | None,
    rows: Array,
    columns: Array,
    key: Key,
    state: PyTree,
    data: Container,
) -> Draw:
    draw = whole(key, state, data)
    mean, variance = model.predict_cells(draw, data, rows, columns)
    moments = {"predicted": mean, "predicted_square": variance + mean**2}
    if categories.has_categories(model):
        moments["predicted_probabilities"] = model.cell_probabilities(draw, data, rows, columns)
    return moments if other is None else moments | other(key, state, data)


def _record(
    model: PredictsCells[Container],
    whole: Callable[..., Draw],
    record: Callable[..., Draw],
    rows: Array,
    columns: Array,
    key: Key,
    state: PyTree,
    data: Container,
) -> Draw:
    moments = model.predict_cells(whole(key, state, data), data, rows, columns)
    return record(key, state, data) | dict(zip(_KEPT, moments, strict=True))


def is_answered(posterior: Draws) -> bool:
    """Whether predictions are those of named cells, as the draws lack what others need.

    Raises ValueError: nothing was kept that predictions could be made of.
    """
    if not lacks(posterior.model, posterior.draws):
        return False
    if _KEPT[0] in posterior.draws or "predicted_probabilities" in posterior.averages:
        return True
    if posterior.predicted_at:
        raise ValueError(
            f"the moments of {posterior.predicted_at['rows'].size:,} cells in "
            f"{posterior.weights.size:,} draws were too many to keep; `averages` has their means "
            "and mean squares. Name fewer in predict_at, or sample again with keep_factors and a "
            "larger thin"
        )
    raise ValueError(
        "the draws were made without what predictions need (keep_factors=False); name the cells "
        "before the run, predict_at=cells, or sample again with keep_factors"
    )


def positions(posterior: Draws, where: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Which of the cells that were named before the run these are: (M,) int.

    Raises ValueError: a cell that is none of them.
    """
    named = posterior.predicted_at["rows"], posterior.predicted_at["columns"]
    found, missing = named_cells.positions_among(where, named, posterior.data.num_columns)
    if missing.size:
        row, column = where[0][missing[0]], where[1][missing[0]]
        raise ValueError(
            f"cells: row {row}, column {column} was not named in predict_at ({missing.size:,} such "
            "cells), and the draws keep no factors for others; sample again with keep_factors"
        )
    return found


def moments(
    posterior: Draws, where: tuple[np.ndarray, np.ndarray]
) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Conditional mean and variance of cells for every draw, as `prediction.predict_cells`."""
    found = positions(posterior, where)
    draws, weights = posterior.flat_draws()
    mean, variance = (draws[name][:, found] for name in _KEPT)
    yield slice(0, weights.size), mean, variance


def log_density(
    posterior: Draws, where: tuple[np.ndarray, np.ndarray], values: np.ndarray
) -> np.ndarray:
    """log of the density of values of cells averaged over draws, (M,)."""
    ((_, mean, variance),) = moments(posterior, where)
    each = np.asarray(cell_distribution(posterior.model).log_density(values, mean, variance), float)
    return np.logaddexp.reduce(each, axis=0) - np.log(len(each))


def probabilities(posterior: Draws, where: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """The probability of every value of cells, averaged over draws: (M, V) float."""
    found = positions(posterior, where)
    return posterior.averages["predicted_probabilities"].mean(axis=0)[found].astype(float)


def cells_by_name(cells: object, data: object) -> Cells:
    """Cells as a user names them, see `named_cells.read_cells`."""
    rows, columns = named_cells.read_cells(cells, data, name="predict_at")
    return {"rows": rows.astype(np.int64), "columns": columns.astype(np.int64)}
