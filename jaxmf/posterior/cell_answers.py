"""Questions about cells and rows: predictions, held-out values, representations of new rows."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from jaxmf import registry
from jaxmf.arguments import check_count, check_number, check_seed
from jaxmf.data.names import ids_or_positions
from jaxmf.model import HasNetwork, HasRowGroups, KnowsTime, TransformsDocuments, TransformsRows
from jaxmf.posterior import cells as cell_questions
from jaxmf.posterior import row_groups, tables, topics, transposed
from jaxmf.posterior.draws import Draws, SomeDraws
from jaxmf.posterior.prediction import Prediction
from jaxmf.posterior.representation import Representation
from jaxmf.programs import jit_method


def predict(
    posterior: Draws,
    cells: object = None,
    *,
    new_rows: object = None,
    new_columns: object = None,
    row_features: object = None,
    column_features: object = None,
    unknown: str = "error",
    quantiles: tuple[float, ...] = (0.05, 0.95),
    num_draws: int | None = None,
    seed: int = 0,
) -> Prediction:
    """Predict cells: the missing ones, those asked for, or those of new rows or columns.

    The predictive distribution is the mixture over draws, noise included. Draws without factors
    have it for the cells named by predict_at alone, which then are the default.

    Args:
        cells: (rows, columns), an (M, 2) array, or a boolean matrix; by default the missing
            cells. With `new_rows` they lie in these. They are named by id where the data has
            ids, else by position; `mf.Positions(rows, columns)` are positions always.
        new_rows: data with the same columns, which are matched by id where both sides have
            ids, else by position. By default its missing cells are predicted, given its
            observed ones, and all of them when none is missing.
        new_columns: data with the same rows, likewise, for models that treat rows and columns
            alike.
        row_features: `Features` of the new rows, for models that take them; without `new_rows`
            these are rows without any known cell.
        column_features: those of new columns, likewise.
        unknown: of ids that the data lacks: "error"; "drop" to leave out the cells that have them,
            or the columns of new rows; "prior" to predict `cells` with them from the prior of rows
            and columns, for models that can (BPMF).
        quantiles: levels between 0 and 1.
        num_draws: predictive draws kept for each cell (quantiles are taken from them); by
            default a thousand, more where there are more posterior draws, fewer when the cells
            are many.
        seed: of these draws.
    Returns:
        Mean, sd, quantiles and draws for each cell.
    Raises:
        ValueError: nothing is missing and no cells are named, or cells lie outside the data.
    """
    cell_questions.check_cells(posterior)
    settings: dict[str, Any] = {
        "unknown": unknown,
        "quantiles": cell_questions.check_levels(quantiles),
        "num_draws": None if num_draws is None else check_count("num_draws", num_draws),
        "seed": check_seed("seed", seed),
    }
    if new_columns is None and column_features is None:
        return cell_questions.predict(
            posterior, cells, new_rows=new_rows, row_features=row_features, **settings
        )
    if new_rows is not None or row_features is not None:
        raise ValueError("new rows and new columns: predict one of them at a time")
    return cell_questions.predict_columns(
        posterior, cells, new_columns, features=column_features, **settings
    )


def transform(
    posterior: Draws,
    new_rows: object,
    *,
    row_features: object = None,
    unknown: str = "error",
    seed: int = 0,
) -> Representation:
    """Latent representation of rows not seen in training: probability of each feature.

    Features are those of the reference draw (highest log joint), in the order of `features`. For a
    model with real factors the values are their posterior means, which may be any number; for a
    mixture the probabilities of its groups in the order of `groups`, and last, if there may be
    further groups (or some of a fixed number have no rows), that of a group without rows; for a
    document the proportions of the topics in the order of `topics`, and last, where their number is
    learned, that of a new topic.

    Args:
        new_rows: data with the same columns; missing cells are summed out. Columns, items and
            words are matched by id where both sides have ids, else by position. Documents and
            baskets may use a part of the words or items.
        row_features: `Features` of the new rows, of models that have such.
        unknown: of columns, items and words that the data lacks: "error", or "drop" to leave
            them out.
        seed: of the chain over features where they are too many to sum over.
    Returns:
        (M, K) float with the ids of the rows, an array for numpy; between 0 and 1 but for real
        factors. `.to_pandas()` has a row for each and a column for each feature, group or topic.
    Warns:
        UserWarning: more than half of the tokens of new documents are left out, or all those of
            one, which then has the proportions of the prior.
    Raises:
        ValueError: the model has no representation of new rows; a column that the data lacks.
    """
    check_seed("seed", seed)
    if not isinstance(posterior.model, TransformsRows | TransformsDocuments):
        also = "; group_probabilities(...) has the groups of the data"
        raise ValueError(
            f"{type(posterior.model).__name__} has no latent representation of new rows; fit it to "
            f"all rows{also if isinstance(posterior.model, HasNetwork) else ''}"
        )
    target = posterior.container(new_rows, "new_rows", unknown=unknown)
    if isinstance(posterior.model, TransformsDocuments):
        if row_features is not None:
            raise ValueError(
                f"row_features: {type(posterior.model).__name__} takes none; leave them out"
            )
        return topics.transform(posterior, target, seed)
    cell_questions.check_draws(posterior)
    key = jax.random.key(seed)
    model = transposed.model_of_new(posterior, target, row_features)
    values = np.asarray(_transform(model, key, posterior.reference_draw(), posterior.data, target))
    if isinstance(model, HasRowGroups):
        values, part = row_groups.in_order(posterior, values), "group"
    elif isinstance(model, HasNetwork):
        part = "group"
    elif "z" in posterior.draws:
        values, part = values[:, tables.features(posterior).slots], "feature"
    else:
        part = "factor"
    names = ids_or_positions(target.row_names, target.num_rows)
    return Representation(values, names, "row", part, "mean" if part == "factor" else "probability")


def at(posterior: SomeDraws, time: float) -> SomeDraws:
    """The posterior at one time of a series: one of its times, between two, or after the last.

    The whole posterior answers for its last time, this one for the time that is passed. Columns
    that a row is known to have are those of that time, if it is observed.

    Args:
        time: a number, in the unit of the times of the data.
    Returns:
        A posterior of the same rows and columns at that time alone.
    Raises:
        ValueError: the model knows no times, or this posterior is of one time already.
    Example:
        >>> import jaxmf as mf
        >>> model, data = mf.registry.get("sparse-binary-series").example()
        >>> post = mf.fit(model, data, num_epochs=3, progress=False)
        >>> post.at(3.5).scores(([0, 1], [2, 2])).mean.shape
        (2,)
    """
    whole = registry.entry_of(posterior.model).container
    if not (isinstance(posterior.model, KnowsTime) and isinstance(posterior.data, whole)):
        raise ValueError(f"{type(posterior.model).__name__} has no times; leave at() out")
    check_number("time", time)
    draw, data = posterior.model.at_time(posterior.reference_draw(), posterior.data, time)
    draws = {name: np.asarray(value)[None, None] for name, value in draw.items()}
    return dataclasses.replace(posterior, draws=draws, data=data)


_transform = jit_method(TransformsRows.transform_rows)
