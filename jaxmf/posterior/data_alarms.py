"""Alarms about the data, and noise that does not suit them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import NormalDist

import numpy as np

from jaxmf.answers import shortened
from jaxmf.data import Container, Dense, Entries, suspects, units
from jaxmf.data.cells_by_id import are_elsewhere
from jaxmf.data.checks import shown_id
from jaxmf.data.stray_cells import stray_cells
from jaxmf.likelihoods.cells.student_t import StudentT
from jaxmf.likelihoods.families.columns import IndependentColumns
from jaxmf.likelihoods.families.mixed_columns import MixedColumns
from jaxmf.likelihoods.families.multivariate_normal import NormalInverseWishart
from jaxmf.likelihoods.families.normal import NormalInverseGamma
from jaxmf.model import DrawsCells, HasRowGroups, PredictsCells, ScalesColumns, settings_of
from jaxmf.posterior.categories import has_categories
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.leave_one_out import known_cells
from jaxmf.posterior.records import Alarm

_MOST_ORDINAL = 21  # levels, such as 0 to 10 in halves; more are slow to settle
_MOST_GRADES = 101  # such as per cent
_PILED = 5e-3  # share of the cells at the highest grade of a scale
_FEWEST_PILED = 10  # fewer cells there may be the tail of rounded measurements
_FALLING = 4  # values from 1 on, each rarer than the one before, that show counts without zeros
_USUAL = 1e-3  # share of the cells that a grade of a scale has
_STRANGE = 1e-2  # most cells outside of a scale; more, and there is none
_FEWEST_CELLS = 5  # of a column whose sd is compared with the noise,
_FEWEST_RATINGS = 30  # and of a column of ratings
_LARGEST_NOISE = 3.0  # the noise over the sd of a column of ratings, from which on it is strange
_FALSE_UNITS = 0.01  # the probability that chance alone puts the sd of some column below the noise


def suspect_data(posterior: Draws) -> Iterator[Alarm]:
    """Codes of missing cells that were taken for numbers, and columns that hold groups together."""
    data = posterior.data
    if isinstance(data, Dense | Entries):
        for found in suspects.codes_by_column(*_cells_with_codes(data)):
            count = f"{found.num_columns - 1} more column" if found.num_columns > 1 else ""
            more = f", and likewise of {count}{'s' * (found.num_columns > 2)}" if count else ""
            column = shown_id(data.column_names, found.column)
            yield Alarm(
                "codes",
                f"{found.num_cells:,} cells of column {column} are "
                f"{found.code:g}, and no other is {found.side} {found.outermost:.4g}{more}. They "
                "were taken for numbers: if they stand for missing cells, replace them by NaN, in "
                "a file by nothing",
            )
        # long tails give such a cell no weight
        if not isinstance(settings_of(posterior.model).get("likelihood"), StudentT):
            yield from _stray_cells(data)
    if isinstance(posterior.model, HasRowGroups) and isinstance(data, Dense):
        yield from _nearly_empty_columns(data)
        family = settings_of(posterior.model).get("family")
        if family is None or isinstance(family, NormalInverseWishart):
            yield from _redundant_columns(data)
        yield from _not_normal_columns(data, family)
    yield from _zeros_and_ones(posterior)
    yield from _long_tails(posterior)


def _cells_with_codes(data: Dense | Entries) -> tuple[np.ndarray, np.ndarray]:
    """Columns and values of observed cells, of a table those of columns with a possible code."""
    if isinstance(data, Entries):
        return np.asarray(data.columns), np.asarray(data.values, dtype=float)
    values = np.asarray(data.values)
    columns = np.flatnonzero(suspects.may_be_code(values).any(axis=0))
    is_known = np.ones(values.shape, bool) if data.observed is None else np.asarray(data.observed)
    is_known = is_known[:, columns]
    where = np.broadcast_to(columns, is_known.shape)
    return where[is_known], values[:, columns][is_known].astype(float)


def _nearly_empty_columns(data: Dense) -> Iterator[Alarm]:
    """Columns of so few known cells that groups learn next to nothing of them."""
    counts = units.column_counts(data)
    few = np.flatnonzero((counts > 0) & (counts < _FEWEST_CELLS))
    if few.size and data.num_rows >= _FEWEST_CELLS**2:
        column = int(few[0])
        more = f", and {few.size - 1} more columns few too" if few.size > 1 else ""
        yield Alarm(
            "nearly empty",
            f"Column {shown_id(data.column_names, column)} has {int(counts[column])} known cells "
            f"in {data.num_rows:,} rows{more}: what is said of its missing cells is next to the "
            "prior. Leave it out if that is not meant",
        )


def _stray_cells(data: Dense | Entries) -> Iterator[Alarm]:
    """A single value that cannot be one of its column, such as a 0 among values of 140."""
    found = stray_cells(data)
    if found is None:
        return
    more = ""
    if found.num_cells > 1:
        more = f" (and {found.num_cells - 1} more there)"
    if found.num_columns > 1:
        count = found.num_columns - 1
        more += f"; likewise in {count} more column{'s' * (count > 1)}"
    yield Alarm(
        "stray cell",
        f"The cell of row {shown_id(data.row_names, found.row)} and column "
        f"{shown_id(data.column_names, found.column)} is {found.value:g}{more}, and all others of "
        f"that column lie between {found.low:.4g} and {found.high:.4g}. If it is a slip, another "
        "unit or a missing cell, correct it or make it NaN: means, noise and groups follow it",
    )


def _zeros_and_ones(posterior: Draws) -> Iterator[Alarm]:
    """Columns of zeros and ones whose missing cells are predicted with Gaussian noise."""
    model, data = posterior.model, posterior.data
    if (
        not isinstance(data, Dense)
        or data.observed is None
        or not model.predicts_its_rows
        or has_categories(model)
        or model.cell_distribution != "normal"
        or isinstance(model, DrawsCells)
        or not isinstance(model, PredictsCells)
    ):
        return
    is_known, values = np.asarray(data.observed), np.asarray(data.values)
    two = units.two_valued_columns(data)
    is_binary = np.all((values[:, two] == 0) | (values[:, two] == 1), axis=0)
    found = two[is_binary & ~is_known[:, two].all(axis=0)]
    if not found.size:
        return
    yield Alarm(
        "support",
        f"Columns of zeros and ones: {named(data, found)}. Their noise is Gaussian, so "
        "predictions and intervals of their missing cells leave 0 to 1. Bring them to it, "
        "np.clip(mean, 0, 1), and read means as probabilities; what keeps to it are groups of "
        "rows, DPMixture with family=mf.MixedColumns([...]) and BetaBinary() for these columns, "
        "or for zeros and ones alone NoisyOrIBP or BinaryMF(likelihood=mf.Bernoulli())",
    )


def _long_tails(posterior: Draws) -> Iterator[Alarm]:
    """Positive cells, or counts, over orders of magnitude with Gaussian noise of one size."""
    model, data = posterior.model, posterior.data
    if (
        not isinstance(data, Dense)
        or isinstance(model, HasRowGroups)
        or model.cell_distribution != "normal"
        or "noise_scale" not in posterior.draws
        or isinstance(settings_of(model).get("likelihood"), StudentT)
    ):
        return
    skewed = units.skewed_columns(data)
    if units.are_heavy_counts(data):
        yield Alarm(
            "long tail",
            "The cells are counts with a heavy tail. Their noise is as large for small counts as "
            f"for large ones, so features describe the large ones alone. {units.COUNTS_REMEDY}",
        )
    elif skewed.size > data.num_columns / 2:
        yield Alarm(
            "long tail",
            f"Columns have a long tail: {named(data, skewed)}. Their noise is as large for small "
            "cells as for large ones, so that the answers follow the large ones alone. Take "
            "logarithms of the data first, and np.exp of the quantiles of predictions",
        )


def named(data: Dense, columns: Iterable[int]) -> str:
    """Ids of columns, of many the first five."""
    return shortened([shown_id(data.column_names, int(column)) for column in columns], 5)


def _redundant_columns(data: Dense) -> Iterator[Alarm]:
    """Columns that others determine, or that do not vary, where groups have covariances.

    With N rows and groups of shares p_k each costs a partition N H(p) / 2 nats, whatever its scale,
    since a group has to learn for itself that nothing varies there.
    """
    found = units.redundant_columns(data)
    if data.num_columns < 2 or found.size == 0:
        return
    yield Alarm(
        "redundant columns",
        "Columns that hold one number, or follow from the others (copies, totals): "
        f"{named(data, found)}. Each of them holds all rows in one group; drop them",
    )


def _not_normal_columns(data: Dense, family: object) -> Iterator[Alarm]:
    """Columns of two values, and long-tailed ones, where each group has a normal distribution.

    A group as narrow as one value, or one more for the tail, is always worth its price.
    """
    few, skewed = units.two_valued_columns(data), units.skewed_columns(data)
    remedy_of_two_values = (
        "give them a family of their own, such as BetaBinary() of zeros and ones in "
        "family=mf.MixedColumns([...]), or leave them out"
    )
    if few.size == data.num_columns:
        remedy_of_two_values = (
            "where they are zeros and ones, use family=mf.IndependentColumns(mf.BetaBinary()), "
            "which is made for them"
        )
    for found, what, remedy in (
        (few, "hold two values", remedy_of_two_values),
        (skewed, "have a long tail", "take their logarithms, or leave them out"),
    ):
        columns = [int(column) for column in found if is_normal(family, int(column))]
        if columns:
            yield Alarm(
                what.removeprefix("hold ").removeprefix("have a "),
                f"Columns {what}: {named(data, columns)}. The cells of a group are taken for "
                f"normal, so groups will be of these columns alone; {remedy}",
            )


def is_normal(family: object, column: int) -> bool:
    """Whether a family takes the cells of a column for normal within a group."""
    match family:
        case MixedColumns():
            return is_normal(family.families[column], column)
        case IndependentColumns():
            return is_normal(family.family, column)
    return family is None or isinstance(family, NormalInverseWishart | NormalInverseGamma)


def noise_above_data(posterior: Draws) -> Iterator[Alarm]:
    """Noise that is surely above the sd of the data: the model explains less than one number."""
    noise = _noise_of_all(posterior)
    values = observed_values(_in_noise_units(posterior))
    if noise is None or values is None or noise.ndim != 2 or values.size < 2:
        return
    spread = float(values.std())
    weights = posterior.weights
    if spread == 0 or _quantile(noise, weights, 0.05) <= 1.02 * spread:
        return
    fixed = posterior.model.hyperparameters.get("noise_scale")
    if isinstance(fixed, int | float):
        yield Alarm(
            "noise",
            f"noise_scale is fixed at {fixed:g}, and the sd of the data is {spread:.3g}: nothing "
            "can be found below the noise. State a smaller one, or leave it out to learn it",
        )
    else:
        yield Alarm(
            "noise",
            f"The noise ({float(np.sum(weights * noise)):.3g}) is larger than the sd of the data "
            f"({spread:.3g}): predictions are worse than the plain mean. The chain has not "
            "converged; run longer, or use fewer factors or features",
        )


def unlike_units(posterior: Draws) -> Iterator[Alarm]:
    """Noise that is surely above the sd of a column: in one noise scale for all it has no say."""
    noise, data = posterior.draws.get("noise_scale"), _in_noise_units(posterior)
    if noise is None or not isinstance(data, Dense | Entries) or noise.ndim != 2:
        return
    if "noise_factors" in posterior.draws:
        return
    spreads, counts = units.column_scales(data), units.column_counts(data)
    if isinstance(data, Entries):
        unequal = tuple(_unequal_columns(posterior, data, spreads * (counts >= _FEWEST_CELLS)))
        if unequal:
            yield from unequal
            return
        cells = observed_values(posterior.data)
        if cells is not None and np.unique(cells).size <= _MOST_ORDINAL:
            return  # all are of one scale, and those of some columns are nearly all alike
        # ratings of some columns vary less than others
        fewest, most = _FEWEST_RATINGS, _LARGEST_NOISE * spreads
    else:
        # an sd of n normal cells is known to one part in sqrt(2 n)
        errors = NormalDist().inv_cdf(1 - _FALSE_UNITS / len(spreads))
        most = (1 + errors / np.sqrt(2 * np.maximum(counts, _FEWEST_CELLS))) * spreads
        fewest = _FEWEST_CELLS
    least = _quantile(noise, posterior.weights, 0.05)
    drowned = np.flatnonzero((counts >= fewest) & (spreads > 0) & (least > most))
    values = observed_values(data)
    # noise above the sd of all cells has its own alarm
    if drowned.size == 0 or values is None or least > values.std():
        return
    column = int(drowned[np.argmin(spreads[drowned])])
    shown = shown_id(posterior.data.column_names, column)
    yield Alarm(
        "units",
        f"The noise ({least:.3g} or more) is larger than the sd of column {shown} "
        f"({spreads[column]:.3g}): one noise_scale serves all columns, and this "
        f"column has next to no influence. {_remedy_of_units(posterior)}",
    )


def _remedy_of_units(posterior: Draws) -> str:
    """Advice for columns in different units, by the settings that the model has."""
    takes_units = "column_unit" in settings_of(posterior.model)
    state = "give these, column_unit=(one number a column), or " if takes_units else ""
    return f"If columns are in different units, {state}divide each by its standard deviation"


def _unequal_columns(posterior: Draws, data: Entries, spreads: np.ndarray) -> Iterator[Alarm]:
    """Columns far apart in scale, whatever the noise."""
    if not units.are_different(data, spreads):
        return
    most, least = int(np.argmax(spreads)), int(np.argmin(np.where(spreads > 0, spreads, np.inf)))
    shown = [f"{shown_id(data.column_names, j)} ({spreads[j]:.3g})" for j in (most, least)]
    yield Alarm(
        "units",
        f"The sd of column {shown[0]} is far above that of column {shown[1]}: one "
        "noise_scale serves all columns, and those of small sd have next to no influence. "
        f"{_remedy_of_units(posterior)}",
    )


def _noise_of_all(posterior: Draws) -> np.ndarray | None:
    """The noise (chains, draws) of all cells together, by root mean square over columns."""
    noise, factors = (posterior.draws.get(name) for name in ("noise_scale", "noise_factors"))
    data = posterior.data
    if noise is None or factors is None or not isinstance(data, Dense | Entries):
        return noise
    counts = units.column_counts(data)
    return noise * np.sqrt(factors.astype(float) ** 2 @ (counts / counts.sum()))


def _in_noise_units(posterior: Draws) -> Container:
    """The data in the units of the noise: those of each column, where a model scales them."""
    model, data = posterior.model, posterior.data
    is_scaled = isinstance(model, ScalesColumns) and isinstance(data, Dense | Entries)
    return model.centred(data) if is_scaled else data


def _quantile(values: np.ndarray, weights: np.ndarray, level: float) -> float:
    """The smallest value that draws of this much weight do not exceed."""
    order = np.argsort(values, axis=None)
    below = np.cumsum(weights.ravel()[order])
    return float(values.ravel()[order[np.searchsorted(below, level * below[-1])]])


def observed_values(data: Container) -> np.ndarray | None:
    """(M,) values of the observed cells of a matrix; None for other data."""
    if are_elsewhere(data):
        return None
    if isinstance(data, Dense):  # without positions, which take twice the memory of the values
        values = np.asarray(data.values, dtype=float)
        return values.reshape(-1) if data.observed is None else values[np.asarray(data.observed)]
    known = known_cells(data)
    return None if known is None else known[2]


def outside_support(posterior: Draws) -> Iterator[Alarm]:
    """Gaussian noise on grades, whose intervals leave the scale, and grades far outside it."""
    likelihood = settings_of(posterior.model).get("likelihood")
    data = posterior.data
    if type(likelihood).__name__ != "Gaussian" or not isinstance(data, Entries):
        return
    values = observed_values(data)
    if values is None or values.size < 50:
        return
    grades, counts = np.unique(values, return_counts=True)
    if suspects.may_be_code(grades).any():  # which have an alarm of their own, and are no grades
        codes = [found.code for found in suspects.codes_by_column(*_cells_with_codes(data))]
        grades, counts = grades[~np.isin(grades, codes)], counts[~np.isin(grades, codes)]
    if values.size < data.num_rows * data.num_columns and _are_counts_above_zero(grades, counts):
        yield Alarm(
            "absent cells",
            f"The values are whole, 1 to {grades[-1]:g}, and most of them small: these seem to be "
            "counts whose zeros are not given. Cells that are not given are taken for "
            "unknown here, not for 0. Where they are zeros pass the whole table, such as "
            "X.toarray() of a sparse matrix, or fit a model of counts, such as LDA(K), which "
            "takes them for 0",
        )
        return
    usual = grades[counts >= max(2, _USUAL * values.size)]
    if 3 <= usual.size <= suspects.MOST_LEVELS and usual.size < grades.size:
        low, high = usual[0], usual[-1]
        is_outside = (grades < low) | (grades > high)
        is_far = (grades < 2 * low - high) | (grades > 2 * high - low)
        size, num_far = int(counts[is_outside].sum()), int(counts[is_far].sum())
        # the tail of counts begins where the usual ones end, and most of it is near them
        if num_far > size / 2 and size <= max(1, _STRANGE * values.size):
            shown = ", ".join(f"{x:g}" for x in grades[is_outside][:5])
            yield Alarm(
                "outside",
                f"{size:,} of {values.size:,} ratings lie outside {low:g} to {high:g}, where all "
                f"others are: {shown}. They widen the intervals of all; leave them out",
            )
            return
    sentence = _support_of(grades, counts)
    if sentence is not None:
        yield Alarm("support", sentence)


def _are_counts_above_zero(grades: np.ndarray, counts: np.ndarray) -> bool:
    """Whether values are 1, 2, 3 and so on, each rarer than the one before, to above any scale."""
    return (
        grades.size > _FALLING
        and grades[-1] > suspects.MOST_LEVELS
        and np.array_equal(grades[:_FALLING], np.arange(1, 1 + _FALLING))
        and bool(np.all(grades == np.round(grades)))
        and bool(np.all(np.diff(counts[: _FALLING + 1]) < 0))
    )


def _support_of(grades: np.ndarray, counts: np.ndarray) -> str | None:
    """Advice on Gaussian noise on these grades; None where they are no scale."""
    if not 2 <= grades.size <= _MOST_GRADES:
        return None
    is_halves = bool(np.all(2 * grades == np.round(2 * grades)))
    if not (is_halves and grades.size <= suspects.MOST_LEVELS):
        # ratings above the top of a scale pile up there; counts and measurements do not
        is_piled = counts[-1] >= max(counts[-2], _PILED * counts.sum(), _FEWEST_PILED)
        steps = grades / np.diff(grades).min()
        is_short = steps[-1] - steps[0] < _MOST_GRADES
        is_even = is_short and np.allclose(steps, np.round(steps), rtol=0, atol=1e-2)
        if not (is_piled and is_even):
            return None
    levels = tuple(int(x) if x == round(x) else round(x, 6) for x in grades.tolist())
    kind = "whole numbers" if all(isinstance(x, int) for x in levels) else "grades"
    scale = f"{kind} from {levels[0]} to {levels[-1]}"
    if len(levels) == 2:
        scale = f"{levels[0]} and {levels[1]}"
    where = f"The ratings are {scale}, and Gaussian"
    if levels == (0, 1):
        remedy = "likelihood=mf.Probit() keeps to it"
    elif grades.size <= _MOST_ORDINAL and is_halves:
        remedy = f"likelihood=mf.Ordinal(levels={levels}) keeps to it"
    else:
        ends = f"{levels[0]}, {levels[-1]}"
        return f"{where} means and intervals leave that scale. Bring them to it: np.clip(x, {ends})"
    return f"{where} intervals leave that scale. {remedy}"
