"""What a model takes from the data where the user left it open.

A choice by the data itself (empirical Bayes), so that Gaussian cells x and a + b x have the same
features, and the weights of counts are as large as these.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from jaxmf.data import Dense, units
from jaxmf.data.process_rows import rows_on_host
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.likelihoods.cells.poisson import Poisson
from jaxmf.models.binary_mf.binary_mf_spec import BinaryMFSpec
from jaxmf.priors import hyper
from jaxmf.priors.hyper import Hyperparameter

Spec = TypeVar("Spec", bound=BinaryMFSpec)

_SCALES = ("noise_scale", "weight_scale")
_RATES = {"weight_rate": 1.0, "base_rate": 0.1}  # without data
_OF_LIKELIHOODS = ("noise_scale", "base_rate")
# Of data with features the largest hundredth of the cells holds a tenth of the squares, up to .4
# where nine cells in ten are zero; of heavy-tailed spikes .6 to 1.
_LARGE_SHARE = 0.5
_FEWEST_CELLS, _MOST_CELLS = 200, 2**22


def is_left_open(model: BinaryMFSpec, name: str) -> bool:
    """Whether a scale or a rate is to be taken from the data."""
    names = {Gaussian: _SCALES, Poisson: tuple(_RATES)}.get(type(model.likelihood), ())
    return name in names and stated(model, name) is None


def stated(model: BinaryMFSpec, name: str) -> Hyperparameter:
    """A hyperparameter as the user stated it, of the likelihood, of a prior of features or of W.

    Returns number, numpyro distribution, or None where it is left open or the likelihood has none.
    """
    return getattr(model.likelihood if name in _OF_LIKELIHOODS else model, name, None)


def hyperprior(model: BinaryMFSpec, name: str) -> Hyperparameter:
    """A hyperparameter of the model, and what stands for one left open that no data fixed.

    That is LogNormal(0, 2) for a scale, a number for a rate.

    Returns number, numpyro distribution, or None where the likelihood has none.
    """
    if not is_left_open(model, name):
        return stated(model, name)
    if name in _RATES:
        return _RATES[name]
    import numpyro.distributions as dist

    return dist.LogNormal(0.0, 2.0)


def matched(model: Spec, data: Dense) -> Spec:
    """See `BinaryMF.matched`."""
    if isinstance(model.likelihood, Poisson):
        return _matched_to_counts(model, data)
    if not isinstance(model.likelihood, Gaussian):
        return model
    units.check_magnitude(data, "data")
    left_open = [name for name in _SCALES if is_left_open(model, name)]
    settings: dict[str, Any] = _units(model, data, is_open=len(left_open) == len(_SCALES))
    offset, scale, rows = settings.values()
    if left_open:
        if scale is None and rows is None:
            unit = units.scale_about(data, offset)
        else:
            stated = replace(model, **settings)
            unit = units.scale_about(stated.centred(data))
        priors = {
            "noise_scale": hyper.noise_prior(unit, units.least_noise(data)),
            "weight_scale": hyper.effect_prior(unit),
        }
        chosen = {name: priors[name] for name in left_open}
        if "noise_scale" in chosen:
            settings["likelihood"] = Gaussian(chosen.pop("noise_scale"))
        settings |= chosen
    return replace(model, **settings)


def _matched_to_counts(model: Spec, data: Dense) -> Spec:
    """Weights and base rate that are as large as the counts."""
    import numpyro.distributions as dist

    settings: dict[str, Any] = {}
    if is_left_open(model, "weight_rate"):
        settings["weight_rate"] = dist.Gamma(1.0, units.mean_of_positive(data))
    if is_left_open(model, "base_rate"):
        settings["likelihood"] = Poisson(hyper.base_rate_prior(units.overall_mean(data)))
    return replace(model, **settings)


def notes(model: BinaryMFSpec, data: Dense) -> tuple[str, ...]:
    """Notes that units of columns, or levels of rows and columns, were taken out of the data."""
    if not isinstance(model.likelihood, Gaussian):
        return ()
    unit: Any = model.column_unit
    if np.ndim(unit) == 0:
        common = units.note_of_common_value(data)
        return (*_notes_of_levels(model, data), *common, *_note_of_few_cells(model, data))
    return units.note_of_units(data, unit, "noise, weights and their scales")


def _notes_of_levels(model: BinaryMFSpec, data: Dense) -> tuple[str, ...]:
    taken: list[tuple[str, np.ndarray]] = []
    offset: Any = model.offset
    if np.ndim(offset) and np.array_equal(offset, units.column_medians(data)):
        taken.append(("column", np.asarray(offset)))
    rows: Any = model.row_offset
    if np.ndim(rows) and np.array_equal(rows, units.row_medians(data, offset)):
        taken.append(("row", np.asarray(rows)))
    return tuple(
        f"levels of {word}s spread more than the cells about them ({levels.min():.3g} to "
        f"{levels.max():.3g}), so cells were taken about the median of their {word}: features say "
        "what is above or below it, predictions are in the units of the data"
        for word, levels in taken
    )


def _note_of_few_cells(model: BinaryMFSpec, data: Dense) -> tuple[str, ...]:
    """A note if one cell in a hundred holds more than half of all squares about the offset."""
    centred = model.centred(data)
    some = slice(None, None, -(-centred.values.size // _MOST_CELLS))  # rows
    cells = rows_on_host(centred.values, some).astype(float)
    if centred.observed is not None:
        cells = cells[rows_on_host(centred.observed, some)]
    squares = np.square(cells.ravel())
    num_few = -(-squares.size // 100)
    share = np.partition(squares, -num_few)[-num_few:].sum() / (squares.sum() or 1)
    if squares.size < _FEWEST_CELLS or share <= _LARGE_SHARE:
        return ()
    return (
        f"one cell in a hundred holds {share:.0%} of all squares about the offset, which "
        "Gaussian noise does not describe: features mark such cells one by one, and unseen "
        "cells may be predicted worse than by column means. Hide some and compare, and "
        "bring the cells closer together, as np.arcsinh(x / s) does for cells far beyond s",
    )


def _units(model: BinaryMFSpec, data: Dense, *, is_open: bool) -> dict[str, object]:
    """Offset and scale of the columns, offset of the rows.

    Both of columns one a column where they are in different units, offsets one a column or a row
    where levels spread.

    Args: is_open: whether the scales of noise and weights are learned in the units of the data.
    Returns "offset", "column_unit" and "row_offset", in this order: number, one a line, or, but for
    the first, None, for none.
    """
    offset = hyper.by_column("offset", model.offset, data)
    scale = hyper.by_column("column_unit", model.column_unit, data)
    rows = _row_offset(model, data)
    has_mean = np.ndim(model.weight_mean) > 0 or float(model.weight_mean) != 0
    if is_open and not has_mean and offset is None and scale is None:
        found = units.different_units(data, units.column_scales(data))
        if found is not None:
            offset, scale = found
        elif rows is None:
            rows_differ, columns_differ = units.levels_differ(data)
            if columns_differ:
                offset = units.column_medians(data)
            elif rows_differ:
                offset = units.overall_mean(data)
            if rows_differ:
                rows = units.row_medians(data, offset)
    if offset is None:
        is_centred = is_left_open(model, "weight_scale") and not has_mean
        is_by_column = scale is not None and np.ndim(scale) > 0
        mean = units.column_means if is_by_column else units.overall_mean
        offset = mean(data) if is_centred else 0.0
    return {"offset": offset, "column_unit": scale, "row_offset": rows}


def _row_offset(model: BinaryMFSpec, data: Dense) -> np.ndarray | float | None:
    """`row_offset` as it is.

    Raises:
        ValueError: other than one number a row, with both numbers.
    """
    rows: Any = model.row_offset
    if np.ndim(rows) and np.shape(rows) != (data.num_rows,):
        raise ValueError(
            f"row_offset has {np.shape(rows)[0]} numbers, data has {data.num_rows} rows; one a row "
            "is needed"
        )
    return np.asarray(rows) if hasattr(rows, "to_dict") else rows
