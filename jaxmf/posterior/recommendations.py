"""Recommendations for rows of the data, and for new rows by their first entries."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from jaxmf.arguments import check_flag, check_seed
from jaxmf.data import Container, MatrixContainer
from jaxmf.data.alignment import UNKNOWN, check_unknown
from jaxmf.data.names import titled
from jaxmf.model import RanksWords, ScoresCells, ScoresNewRows
from jaxmf.posterior import (
    cells,
    filled_sizes,
    named_cells,
    next_words,
    ranking,
    transposed,
    unknown_ids,
)
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.ranking import ExpectedRatings, Recommendations, Scores
from jaxmf.posterior.topic_draws import topic_blocks
from jaxmf.programs import jit
from jaxmf.types import Array, Draw, Names, PyTree


def recommend(
    posterior: Draws,
    rows: Any = None,
    *,
    n: int = 10,
    by: str | None = None,
    include_known: bool = False,
    new_rows: object = None,
    row_features: object = None,
    column_features: object = None,
    unknown: str = "error",
    titles: object = None,
    seed: int = 0,
) -> Recommendations:
    """The n best columns of some rows, without those that a row is known to have.

    In 0/1 data these are its ones, in other ratings all that it rated. Models of ratings rank by
    the predictive mean, averaged over draws; of ratings 0 and 1 with `Probit` that is the
    probability of a 1.

    Args:
        rows: ids of rows, or positions, as in `cooccurrence`; all by default. With `new_rows`
            they are of these.
        n: how many; a row that has almost everything gets fewer.
        by: "score", the mean of the score or rating, or "probability" of a one, which weighs
            the uncertainty of the score too. None takes the probability where a model has
            scores and their uncertainty, as it ranks better in rows of few ones, else the mean.
        include_known: whether to rank what rows are known to have too.
        new_rows: rows that are not in the data, by their first entries, as in `predict`. All
            their cells are predicted at once.
        row_features: `Features` of the new rows, as in `predict`.
        column_features: `Features` of new columns, of which no cell is known. Only these are
            ranked, for rows of the data and not for new ones.
        unknown: of ids that the data lacks: "error"; "drop" to leave out such rows, or columns of
            new rows; "prior" to rank for unknown `rows` by the prior of rows, for models that can
            (BPMF).
        titles: of columns, shown beside their ids: a mapping from ids to titles (a Series is
            read by its index), or one for each in the order of the data, or of new columns.
        seed: of what is drawn for new or unknown rows.
    Returns:
        Columns best first, with their scores, sd and probabilities, or mean and sd of ratings.
    Of topics of baskets (`LDA`, `HDPLDA`, `PAM` on `Tokens`) rows are documents and columns
    words: `new_rows` are tokens or counts, and words are ranked by the probability of being
    the next one, averaged over draws, with its standard deviation over these.
    Raises:
        ValueError: the model ranks no columns, or takes no new rows; the rows are not in the
            data.
    """
    check_flag("include_known", include_known)
    check_seed("seed", seed)
    if isinstance(posterior.model, RanksWords):
        for name, features in (("row", row_features), ("column", column_features)):
            if features is not None:
                raise ValueError(
                    f"{name}_features: {type(posterior.model).__name__} takes none; leave them out"
                )
        options: dict[str, Any] = {"include_known": include_known, "unknown": unknown, "seed": seed}
        found = next_words.recommend(posterior, rows, new_rows=new_rows, n=n, by=by, **options)
        word, data = topic_blocks(posterior).word, posterior.data
        names, size = data.names.get(word), data.sizes[word]
    else:
        cells.check_draws(posterior)
        check_unknown(unknown, UNKNOWN)
        if by is None:
            by = "probability" if isinstance(posterior.model, ScoresCells) else "score"
        ranking.check_question(posterior.model, n, by)
        if column_features is not None:
            if new_rows is not None or row_features is not None:
                raise ValueError("new rows and new columns: recommend for one of them at a time")
            asked, positions = _rows_of(posterior, rows, unknown, seed)
            found, columns = _recommend_new_columns(asked, positions, column_features, n, seed)
            return _with_titles(found, titles, columns.column_names, columns.num_columns)
        new = cells.new_rows_of(posterior, new_rows, row_features, unknown)
        options = {"n": n, "by": by, "include_known": include_known}
        if new is not None:
            model = transposed.model_of_new(posterior, new, row_features)
            asked = dataclasses.replace(posterior, model=model)
            found = _recommend_new_rows(asked, new, rows, **options, seed=seed)
        else:
            asked, positions = _rows_of(posterior, rows, unknown, seed)
            found = ranking.recommend(asked, positions, **options)
        names, size = posterior.data.column_names, posterior.data.num_columns
    return _with_titles(found, titles, names, size)


def _with_titles(
    found: Recommendations, titles: object, names: Names | None, size: int
) -> Recommendations:
    return found if titles is None else found.with_titles(titled(names, titles, size))


def _rows_of(posterior: Draws, rows: object, unknown: str, seed: int) -> tuple[Draws, np.ndarray]:
    """The posterior, with a row for each id that it lacks where these are asked, and positions."""
    if rows is None:
        return posterior, np.arange(posterior.data.num_rows)
    if unknown == "prior":
        return unknown_ids.with_unknown_rows(posterior, rows, seed)
    if unknown == "error":
        cells.refuse_unknown_ids(posterior, rows, "row", "rows")
    return posterior, named_cells.read_rows(rows, posterior.data, drop=unknown == "drop")


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
        n, by, include_known, seed: as in `Posterior.recommend`.
    """
    positions = np.arange(new.num_rows) if rows is None else named_cells.read_rows(rows, new)
    shape = new.num_rows, new.num_columns
    scores: Scores | ExpectedRatings
    model = posterior.model
    if isinstance(model, ScoresNewRows):
        filled = filled_sizes.filled_rows(model, new)
        found = _score_new_rows(model, posterior.reference_draw(), filled)
        mean, variance, probability, plain = (np.asarray(part)[: new.num_rows] for part in found)
        scores = Scores(mean, np.sqrt(variance), probability, plain)
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


def _recommend_new_columns(
    posterior: Draws, rows: np.ndarray, features: object, n: int, seed: int
) -> tuple[Recommendations, MatrixContainer]:
    """The best for some rows among columns of which no cell is known, and data with the columns.

    Args: rows: (R,) positions in the data; features: `Features` of the columns.
    """
    turned = transposed.posterior(posterior)
    _, features = transposed.with_row_features(turned.model, features, "column_features")
    new = transposed.rows_without_cells(turned, features, None)
    assert new is not None  # features are passed
    asked = dataclasses.replace(turned, model=transposed.model_of_new(turned, new, features))
    shape = rows.size, new.num_rows
    where = np.tile(np.arange(new.num_rows), rows.size), np.repeat(rows, new.num_rows)
    mean, variance = (part.reshape(shape) for part in cells.moments(asked, where, new, seed))
    offset, unit = transposed.units_of_new(posterior.model, None) or (0.0, 1.0)
    scores = ExpectedRatings(mean * unit + offset, np.sqrt(variance) * unit)
    best = ranking.best_columns(scores.mean, min(int(n), new.num_rows))
    chosen = np.arange(rows.size)[:, None], np.maximum(best, 0)
    parts = ExpectedRatings(scores.mean[chosen], scores.sd[chosen])
    columns = transposed.transpose(new)
    return ranking.assemble(columns, rows, best, parts), columns


@jit
def _score_new_rows(model: PyTree, draw: Draw, new: Container) -> tuple[Array, ...]:
    return ranking.with_probabilities(model, *model.score_new_rows(draw, new))
