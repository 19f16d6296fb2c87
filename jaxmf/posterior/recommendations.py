"""Recommendations for rows of the data, and for new rows by their first entries."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from jaxmf.arguments import check_flag, check_seed
from jaxmf.data import Container, MatrixContainer
from jaxmf.data.alignment import UNKNOWN, check_unknown
from jaxmf.model import ScoresCells, ScoresNewRows
from jaxmf.posterior import cells, named_cells, ranking, transposed, unknown_ids
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.ranking import ExpectedRatings, Recommendations, Scores
from jaxmf.programs import jit
from jaxmf.types import Array, Draw, PyTree


def recommend(
    posterior: Draws,
    rows: Any,
    *,
    new_rows: object,
    row_features: object,
    unknown: str,
    n: int,
    by: str | None,
    include_known: bool,
    seed: int,
) -> Recommendations:
    """See `Posterior.recommend`."""
    check_flag("include_known", include_known)
    check_unknown(unknown, UNKNOWN)
    check_seed("seed", seed)
    if by is None:
        by = "probability" if isinstance(posterior.model, ScoresCells) else "score"
    ranking.check_question(posterior.model, n, by)
    new = cells.new_rows_of(posterior, new_rows, row_features, unknown)
    if new is not None:
        model = transposed.model_of_new(posterior, new, row_features)
        asked = dataclasses.replace(posterior, model=model)
        return _recommend_new_rows(
            asked, new, rows, n=n, by=by, include_known=include_known, seed=seed
        )
    if rows is None:
        positions = np.arange(posterior.data.num_rows)
    elif unknown == "prior":
        posterior, positions = unknown_ids.with_unknown_rows(posterior, rows, seed)
    else:
        positions = named_cells.read_rows(rows, posterior.data, drop=unknown == "drop")
    return ranking.recommend(posterior, positions, n=n, by=by, include_known=include_known)


def _recommend_new_rows(
    posterior: Draws,
    new: MatrixContainer,
    rows: Array,
    *,
    n: int,
    by: str,
    include_known: bool,
    seed: int,
) -> Recommendations:
    """The best columns of new rows; all of their cells are predicted at once.

    Args:
        rows: which of them, ids or positions; None for all.
        n, by, include_known, seed: as of `Posterior.recommend`.
    """
    positions = np.arange(new.num_rows) if rows is None else named_cells.read_rows(rows, new)
    shape = new.num_rows, new.num_columns
    scores: Scores | ExpectedRatings
    model = posterior.model
    if isinstance(model, ScoresNewRows):
        scores = _scores(posterior, new)
        is_plain = by == "score" or posterior.model.cell_distribution == "normal"
        values = scores.mean if is_plain else scores.probability
    else:
        where = tuple(index.ravel() for index in np.indices(shape))
        mean, variance = cells.moments(posterior, (where[0], where[1]), new, seed)
        scores = ExpectedRatings(mean.reshape(shape), np.sqrt(variance).reshape(shape))
        values = scores.mean
    values = np.array(values)[positions]
    if not include_known:
        known = ranking.known_cells(posterior.model, new)[positions].tocoo()
        values[known.row, known.col] = -np.inf
    best = ranking.best_columns(values, min(int(n), new.num_columns))
    chosen = positions[:, None], np.maximum(best, 0)
    parts = (getattr(scores, field.name)[chosen] for field in dataclasses.fields(scores))
    return ranking.assemble(new, positions, best, type(scores)(*parts))


def _scores(posterior: Draws, new: object) -> Scores:
    """Scores of all cells of new rows, of a model that has scores: (M, D)."""
    found = _score_new_rows(posterior.model, posterior.reference_draw(), new)
    mean, variance, probability, plain = map(np.asarray, found)
    return Scores(mean, np.sqrt(variance), probability, plain)


@jit
def _score_new_rows(model: PyTree, draw: Draw, new: Container) -> tuple[Array, ...]:
    return ranking.with_probabilities(model, *model.score_new_rows(draw, new))
