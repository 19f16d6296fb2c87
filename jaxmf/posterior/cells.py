"""Questions about the cells of a matrix: predictions, probabilities, scores of held-out ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from jaxmf import diagnostics
from jaxmf.arguments import check_numbers, check_seed
from jaxmf.data import Entries, MatrixContainer, Positions, as_container
from jaxmf.data.alignment import UNKNOWN, check_unknown
from jaxmf.data.checks import as_numeric
from jaxmf.data.container import bare
from jaxmf.data.convert import complete_matrix, matched_cells
from jaxmf.diagnostics import HeldOutScore
from jaxmf.model import (
    CompletesDocuments,
    HasColumnValues,
    PredictsCells,
    ScoresFurtherRows,
    TakesNewRows,
    TakesUnknownIds,
    category_columns,
)
from jaxmf.posterior import (
    categories,
    kept_cells,
    level_probabilities,
    named_cells,
    prediction,
    transposed,
    unknown_ids,
)
from jaxmf.posterior.cell_distributions import cell_distribution
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.level_probabilities import Probabilities
from jaxmf.posterior.named_cells import Cells, read_cells
from jaxmf.posterior.prediction import CellMixture, Prediction

_MOST_DRAWS = 1_000  # that whole rows are scored by


def check_cells(posterior: Draws) -> None:
    """Refuses models without cells."""
    if not isinstance(posterior.model, PredictsCells):
        completes = isinstance(posterior.model, CompletesDocuments)
        also = ", transform and document_completion" if completes else " and group_probabilities"
        raise ValueError(
            f"{type(posterior.model).__name__} has no cells to predict; see top_entries{also}"
        )


def check_levels(quantiles: object) -> tuple[float, ...]:
    """Levels of quantiles as floats.

    Raises TypeError, ValueError: no numbers between 0 and 1.
    """
    levels = tuple(check_numbers("quantiles", quantiles).tolist())
    for position, level in enumerate(levels):
        if not 0 < level < 1:
            raise ValueError(
                f"quantiles must lie between 0 and 1, got {level} at position {position}"
            )
    return levels


def check_draws(posterior: Draws) -> None:
    """Refuses draws that were made without what predictions need."""
    if kept_cells.lacks(posterior.model, posterior.draws):
        raise ValueError(
            "the draws were made without what this needs (keep_factors=False); sample again with "
            "keep_factors, and a larger thin where factors are too large for every draw"
        )


def predict(
    posterior: Draws,
    cells: object,
    *,
    new_rows: object,
    row_features: object,
    unknown: str,
    quantiles: tuple[float, ...],
    num_draws: int | None,
    seed: int,
) -> Prediction:
    """Cells of the data or of new rows; see `Posterior.predict`."""
    check_unknown(unknown, UNKNOWN)
    new = new_rows_of(posterior, new_rows, row_features, unknown)
    if unknown == "prior":
        posterior, cells = unknown_ids.with_unknown(posterior, cells, seed)
    target = posterior.data if new is None else new
    model = posterior.model
    if new is not None:
        check_draws(posterior)
        model = transposed.model_of_new(posterior, new, row_features)
    if unknown == "error" and new is None and isinstance(posterior.model, TakesUnknownIds):
        _refuse_unknown(cells, posterior)
    where = _chosen(posterior, cells, new, drop=unknown == "drop")
    asked = dataclasses.replace(posterior, model=model)
    if categories.has_categories(model):
        probabilities_of_values = _probabilities(asked, where, new, seed)
        values = np.asarray(model.values, float)
        mixture = categories.mixture(
            probabilities_of_values, values, num_draws=num_draws, seed=seed
        )
        levels = categories.quantiles(probabilities_of_values, values, quantiles)
    else:
        mixture = _mixture(asked, where, new, num_draws=num_draws, seed=seed)
        levels = np.quantile(mixture.draws, quantiles, axis=0)
    is_category, mean = _with_categories(asked, where, new, mixture.mean)
    row_names, column_names = target.row_names, target.column_names
    return Prediction(
        rows=where[0],
        columns=where[1],
        mean=mean,
        sd=np.where(is_category, np.nan, np.sqrt(mixture.variance)),
        quantiles=np.where(is_category, np.nan, levels),
        levels=tuple(quantiles),
        draws=mixture.draws,
        row_names=None if row_names is None else row_names[where[0]],
        column_names=None if column_names is None else column_names[where[1]],
        shape=(target.num_rows, target.num_columns),
        is_category=is_category if is_category.any() else None,
    )


def _with_categories(
    posterior: Draws, where: Cells, new: MatrixContainer | None, mean: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Which cells are in columns of categories, and means with the most probable category there."""
    is_category = category_columns(posterior.model, posterior.data.num_columns)[where[1]]
    if is_category.any():
        cells = where[0][is_category], where[1][is_category]
        found = level_probabilities.by_column(posterior, cells, new)
        mean = mean.copy()
        mean[is_category] = found.levels[np.argmax(found.values, axis=1)]
    return is_category, mean


def predict_columns(
    posterior: Draws,
    cells: object,
    new_columns: object,
    *,
    features: object,
    **options: Any,
) -> Prediction:
    """Cells of new columns: they are cells of new rows of the transposed posterior."""
    if options["unknown"] == "prior" and new_columns is None:
        posterior, cells = unknown_ids.beside_new_columns(posterior, cells, options["seed"])
        options["unknown"] = "error"
    turned, unknown = transposed.posterior(posterior), options["unknown"]
    if features is not None:
        transposed.with_row_features(turned.model, features, "column_features")
    new = None if new_columns is None else _turned_columns(turned, new_columns, unknown)
    if cells is not None:
        rows = transposed.rows_without_cells(turned, features, new)
        assert rows is not None  # one of new_columns and features is passed
        read = read_cells(cells, transposed.transpose(rows), drop=unknown == "drop")
        cells = Positions(read.columns, read.rows)
    units = transposed.units_of_new(posterior.model, new)
    if units is not None and new is not None:
        new = _in_units(new, *units)
    found = predict(turned, cells, new_rows=new, row_features=features, **options)
    if units is not None:
        found = _from_units(found, *units)
    return dataclasses.replace(
        found,
        rows=found.columns,
        columns=found.rows,
        row_names=found.column_names,
        column_names=found.row_names,
    )


def _turned_columns(turned: Draws, new_columns: object, unknown: str) -> Entries:
    """New columns as new rows of the transposed posterior, with its columns."""
    new = transposed.transpose(as_container(new_columns, Entries, "new_columns"))
    if unknown == "prior":
        raise ValueError('unknown="prior": is of cells; rows of new columns are dropped: "drop"')
    return new.align_columns(turned.data, argument="new_columns", word="row", unknown=unknown)


def _in_units(new: Entries, offsets: np.ndarray, units: np.ndarray) -> Entries:
    """Cells of new rows with offsets and units (N,), in these units."""
    rows = np.asarray(new.rows)
    values = (np.asarray(new.values, float) - offsets[rows]) / units[rows]
    return bare(Entries, **vars(new) | {"values": values.astype(new.values.dtype)})


def _from_units(found: Prediction, offsets: np.ndarray, units: np.ndarray) -> Prediction:
    """A prediction that was made in the offsets and units (N,) of rows."""
    offset, unit = offsets[found.rows], units[found.rows]
    return dataclasses.replace(
        found,
        mean=found.mean * unit + offset,
        sd=found.sd * unit,
        quantiles=found.quantiles * unit + offset,
        draws=(found.draws * unit + offset).astype(found.draws.dtype),
    )


def _refuse_unknown(cells: object, posterior: Draws) -> None:
    """Refuses cells whose ids the data lack, where `unknown="prior"` would predict these."""
    pair = None if cells is None else named_cells.pair_of(cells, posterior.data)
    if pair is None or isinstance(pair, Positions):
        return
    for ids, word in zip(pair, ("row", "column"), strict=True):
        refuse_unknown_ids(posterior, ids, word, f"cells: {word}s")


def refuse_unknown_ids(posterior: Draws, ids: object, word: str, argument: str) -> None:
    """Refuses ids of rows, or columns, that the data lack, where `unknown="prior"` would answer.

    Raises ValueError: one of them is such an id.
    """
    data = posterior.data
    names = getattr(data, f"{word}_names")
    if names is None or isinstance(ids, Positions):
        return
    lacking = named_cells.positions_or_unknown(ids, data, word, argument) < 0
    if lacking.any() and unknown_ids.answers_unknown(posterior, word):
        first = named_cells.index_array(ids, argument).tolist()[int(np.argmax(lacking))]
        known = ", ".join(map(repr, names[:3].tolist()))
        raise ValueError(
            f"{argument}: no {word} has the id {first!r} ({type(first).__name__}); the data have "
            f"{known}, ... "
            f"unknown='prior' answers such {argument.partition(':')[0]} by the prior, new_rows= "
            f"from cells that are known of the row{_by_features(posterior, word)}"
        )


def _by_features(posterior: Draws, word: str) -> str:
    has_some = getattr(getattr(posterior.model, f"{word}_features", None), "width", 0)
    return f", {word}_features= from what is known of the {word}" if has_some else ""


def new_rows_of(
    posterior: Draws, new_rows: object, row_features: object, unknown: str
) -> MatrixContainer | None:
    """New rows as a container with the columns of the data; None where there are none.

    Args:
        new_rows: as a user passes them, or None.
        row_features: of the new rows; without `new_rows` they are rows without a cell.
        unknown: of columns that the data lacks: "error" or "drop".
    Raises:
        ValueError: `unknown` is "prior", which is for cells; or the data lacks a column.
    """
    new_rows = transposed.rows_without_cells(posterior, row_features, new_rows)
    if new_rows is None:
        return None
    if unknown == "prior":
        raise ValueError(
            'unknown="prior": nothing can be said of columns of new_rows that the data lacks; '
            'use "error", or "drop" to leave them out'
        )
    return posterior.container(new_rows, "new_rows", unknown=unknown)


def moments(
    posterior: Draws, where: Cells, new: MatrixContainer | None, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Predictive mean and variance of cells, each (M,) float.

    In columns of categories, the most probable category and the variance of the codes.

    Args:
        posterior: with the model for questions about these rows.
        where: the cells.
        new: the rows that they are in, with the columns of the data; None for those of the data.
        seed: of what is drawn of the rows.
    """
    if categories.has_categories(posterior.model):
        probabilities = _probabilities(posterior, where, new, seed)
        values = np.asarray(posterior.model.values, float)
        mean = probabilities @ values
        return mean, np.sum(probabilities * (values - mean[:, None]) ** 2, axis=1)
    mixture = _mixture(posterior, where, new, num_draws=0, seed=seed)
    return _with_categories(posterior, where, new, mixture.mean)[1], mixture.variance


def _chosen(posterior: Draws, cells: object, new: MatrixContainer | None, *, drop: bool) -> Cells:
    """The cells asked for; by default the missing ones, or all cells of new rows without these.

    If draws keep too little for other cells, the default is those of `predict_at`.
    """
    target = posterior.data if new is None else new
    where: Cells
    if cells is not None:
        where = named_cells.read_cells(cells, target, drop=drop)
    elif new is None and kept_cells.is_answered(posterior):
        where = posterior.predicted_at["rows"], posterior.predicted_at["columns"]
    elif target.num_missing or new is None:
        where = target.missing_cells()
    else:
        rows, columns = np.indices((target.num_rows, target.num_columns))
        where = rows.ravel(), columns.ravel()
    if where[0].size == 0:
        raise ValueError("the data has no missing cells to predict; name some: predict(cells)")
    return where


def _mixture(
    posterior: Draws,
    where: Cells,
    new: MatrixContainer | None,
    *,
    num_draws: int | None,
    seed: int,
) -> CellMixture:
    """The predictive distribution of real-valued cells."""
    model, data = posterior.model, posterior.data
    draws, weights = posterior.flat_draws()
    model_draws = None
    if not kept_cells.lacks(model, posterior.draws):
        model_draws = prediction.model_draws(model, data, draws, where, seed, new)
    if new is None and kept_cells.is_answered(posterior):
        blocks = kept_cells.moments(posterior, where)
    elif new is None:
        blocks = prediction.predict_cells(model, data, draws, *where)
    elif not isinstance(model, TakesNewRows):
        raise ValueError(
            f"{type(model).__name__} does not predict real values of new_rows; fit it to all rows"
        )
    else:
        key = jax.random.key(seed)
        blocks = prediction.predict_rows(model, data, draws, new, where, key)
    return prediction.gather(
        blocks,
        weights,
        num_cells=where[0].size,
        num_draws=num_draws,
        seed=seed,
        distribution=cell_distribution(model),
        model_draws=model_draws,
    )


def probabilities(
    posterior: Draws,
    cells: object = None,
    *,
    new_rows: object = None,
    row_features: object = None,
    unknown: str = "error",
    seed: int = 0,
) -> Probabilities:
    """The probability of every value that a cell may have: of ratings and of categories.

    In mixtures with a family for each column: of columns of categories (`DirichletMultinomial`)
    and of zeros and ones (`BetaBinary`).

    Args:
        cells: which cells, as in `predict`; by default those that are missing, in columns that
            have a finite set of values.
        new_rows: new rows that the cells are in, with the columns of the data, as in `predict`.
        row_features: `Features` of the new rows, for models with features of rows.
        unknown: what to do with ids that the data lacks: "error", or "drop" to leave out cells
            that have them, and such columns of new rows.
        seed: of the latent variables of new rows.
    Returns:
        (M, V) float, an array for numpy, with the values and the ids of the cells; `.to_pandas()`
        has one line a cell, with a column for each value.
    Raises:
        ValueError: the cells do not have a finite set of values, or there are no cells.
    """
    check_seed("seed", seed)
    check_unknown(unknown, ("error", "drop"))
    model = posterior.model
    has_categories = categories.has_categories(model)
    if not has_categories and not isinstance(model, HasColumnValues):
        raise ValueError(f"{type(model).__name__} has no finite set of values; see predict(cells)")
    new = new_rows_of(posterior, new_rows, row_features, unknown)
    if new is not None:
        check_draws(posterior)
        model = transposed.model_of_new(posterior, new, row_features)
    target = posterior.data if new is None else new
    asked = dataclasses.replace(posterior, model=model)
    where = _chosen(posterior, cells, new, drop=unknown == "drop")
    if has_categories:
        found = _probabilities(asked, where, new, seed)
        return level_probabilities.named(target, where, found, model.values)
    if cells is None:
        known = [model.column_values(column) is not None for column in range(target.num_columns)]
        is_kept = np.array(known)[where[1]]
        where = where[0][is_kept], where[1][is_kept]
    if not where[0].size:
        raise ValueError(
            "cells: none of the missing ones is in a column with a finite set of values; name some"
        )
    return level_probabilities.by_column(asked, where, new)


def _probabilities(
    posterior: Draws, where: Cells, new: MatrixContainer | None = None, seed: int = 0
) -> np.ndarray:
    if new is None and kept_cells.is_answered(posterior):
        return kept_cells.probabilities(posterior, where)
    draws, weights = posterior.flat_draws()
    return categories.probabilities(
        posterior.model, posterior.data, draws, weights, where, new, seed
    )


def reconstruction(posterior: Draws, rows: object = None) -> np.ndarray:
    """Posterior mean of the noise-free matrix at some rows: features added up.

    Args:
        rows: (R,) ids of rows, or positions, as in `cooccurrence`; all by default.
    Returns:
        (R, D) float.
    """
    check_cells(posterior)
    check_draws(posterior)
    data = posterior.data
    row_indices = np.arange(data.num_rows) if rows is None else named_cells.read_rows(rows, data)
    where = (
        np.repeat(row_indices, data.num_columns),
        np.tile(np.arange(data.num_columns), row_indices.size),
    )
    draws, weights = posterior.flat_draws()
    mean = np.zeros(where[0].size)
    for block, means, _ in prediction.predict_cells(posterior.model, data, draws, *where):
        mean += weights[block] @ means
    return mean.reshape(row_indices.size, data.num_columns)


def held_out_cells(
    posterior: Draws, values: object, cells: object, *, argument: str = "values"
) -> tuple[Cells, np.ndarray]:
    """Which cells are scored, and their values (M,); see `Posterior.held_out_log_likelihood`.

    Args: argument: what the user calls the values, for the message.
    """
    data = posterior.data
    if isinstance(values, Entries):
        if cells is None:
            return diagnostics.hidden_cells(data, values, argument=argument)
        rows, columns, known = matched_cells(values, data, argument=argument)
        asked = named_cells.read_cells(cells, data)
        found, missing = named_cells.positions_among(asked, (rows, columns), data.num_columns)
        kept = np.delete(np.arange(found.size), missing)
        if not kept.size:
            raise ValueError(f"{argument}: has none of the {found.size} cells")
        return (asked.rows[kept], asked.columns[kept]), known[found[kept]]
    where = data.missing_cells() if cells is None else named_cells.read_cells(cells, data)
    whole = data.num_rows, data.num_columns
    if tuple(getattr(values, "shape", ())) == whole:
        known = complete_matrix(values, data, argument=argument)[where]
    else:
        known = as_numeric(argument, values).astype(float)
        known = known[where] if known.shape == whole else known
    if known.shape != where[0].shape:
        raise ValueError(
            f"{argument} has shape {known.shape}; give the whole matrix {whole}, or one value for "
            f"each of the {where[0].size} cells"
        )
    scored = np.isfinite(known)
    if not scored.any():
        raise ValueError("there is no cell to score: none is missing in the data, or all are NaN")
    return (where[0][scored], where[1][scored]), known[scored]


def held_out_log_likelihood(posterior: Draws, values: object, cells: object = None) -> HeldOutScore:
    """Log posterior predictive density of cells whose values are now known.

    Each cell's density is averaged over the posterior draws before the log is taken. Mixtures
    of complete rows score whole new rows, with at most 1,000 draws.

    Args:
        values: the whole matrix (N, D), of which the cells missing in training are scored; or the
            known cells as `Entries`; rows and columns are matched by id if both sides have ids. Or
            one value for each of `cells`, (M,). For mixtures new rows (M, D), columns matched by
            id.
        cells: which cells, as in `predict`.
    Returns:
        The log density of each cell (of each new row) (M,), their mean, and its standard error
        over them.
    """
    return score_held_out(posterior, values, cells, argument="values")


def score_held_out(
    posterior: Draws, values: object, cells: object, *, argument: str
) -> HeldOutScore:
    """`held_out_log_likelihood`; `argument` is what the user calls the values, for messages."""
    check_cells(posterior)
    model, data = posterior.model, posterior.data
    if is_of_rows(posterior, cells):
        return _held_out_rows(posterior, values, argument)
    where, known = held_out_cells(posterior, values, cells, argument=argument)
    if categories.has_categories(model):
        probabilities_of_values = _probabilities(posterior, where)
        levels = np.asarray(model.values, float)
        return diagnostics.held_out_score(
            categories.log_density(probabilities_of_values, levels, known)
        )
    if kept_cells.is_answered(posterior):
        return diagnostics.held_out_score(kept_cells.log_density(posterior, where, known))
    draws, weights = posterior.flat_draws()
    blocks = prediction.log_densities(model, data, draws, where, known)
    return diagnostics.held_out_score(prediction.averaged(blocks, weights, known.size))


def is_of_rows(posterior: Draws, cells: object) -> bool:
    """Whether held-out values are whole new rows, for mixtures of rows.

    If cells of the data are missing and the model predicts them, the values are of these cells.
    """
    if cells is not None or (posterior.model.predicts_its_rows and posterior.data.num_missing):
        return False
    return isinstance(posterior.model, ScoresFurtherRows)


def _held_out_rows(posterior: Draws, values: object, argument: str) -> HeldOutScore:
    """Scores whole rows by at most 1,000 draws, as `jaxmf.compare` does those of the data."""
    new = posterior.container(values, argument, can_drop=False)
    draws, weights = posterior.flat_draws()
    kept, weights = diagnostics.fewer_draws(weights, _MOST_DRAWS)
    draws = {name: each[kept] for name, each in draws.items()}
    x = new.to_array()  # NaN where a cell is missing
    blocks = prediction.log_densities_of_rows(posterior.model, posterior.data, draws, x)
    return diagnostics.held_out_score(prediction.averaged(blocks, weights, new.num_rows))
