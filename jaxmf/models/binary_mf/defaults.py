"""What a model of Gaussian cells takes from the data where the user left it open.

A choice by the data itself (empirical Bayes), so that x and a + b x have the same features.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxmf.data import Dense, units
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.priors import hyper
from jaxmf.priors.hyper import Hyperparameter

if TYPE_CHECKING:
    from jaxmf.models.binary_mf.model import BinaryMF

_SCALES = ("noise_scale", "weight_scale")
_OF_LIKELIHOODS = ("noise_scale", "base_rate")


def is_left_open(model: BinaryMF, name: str) -> bool:
    """Whether a scale is to be taken from the data."""
    is_scale = isinstance(model.likelihood, Gaussian) and name in _SCALES
    return is_scale and stated(model, name) is None


def stated(model: BinaryMF, name: str) -> Hyperparameter:
    """A hyperparameter as the user stated it, of the likelihood, of a prior of features or of W.

    Returns number, numpyro distribution, or None where it is left open or the likelihood has none.
    """
    return getattr(model.likelihood if name in _OF_LIKELIHOODS else model, name, None)


def hyperprior(model: BinaryMF, name: str) -> Hyperparameter:
    """A hyperparameter of the model; LogNormal(0, 2) for a scale left open that no data fixed.

    Returns number, numpyro distribution, or None where the likelihood has none.
    """
    if not is_left_open(model, name):
        return stated(model, name)
    import numpyro.distributions as dist

    return dist.LogNormal(0.0, 2.0)


def matched(model: BinaryMF, data: Dense) -> BinaryMF:
    """See `BinaryMF.matched`."""
    if not isinstance(model.likelihood, Gaussian):
        return model
    units.check_magnitude(data, "data")
    left_open = [name for name in _SCALES if is_left_open(model, name)]
    offset, scale = _units(model, data, is_open=len(left_open) == len(_SCALES))
    settings: dict[str, Any] = {"offset": offset, "column_unit": scale}
    if left_open:
        if scale is None:
            unit = units.scale_about(data, offset)
        else:
            unit = units.scale_about(units.centred(data, offset, scale))
        priors = {"noise_scale": hyper.noise_prior, "weight_scale": hyper.effect_prior}
        chosen = {name: priors[name](unit) for name in left_open}
        if "noise_scale" in chosen:
            settings["likelihood"] = Gaussian(chosen.pop("noise_scale"))
        settings |= chosen
    return replace(model, **settings)


def _units_of_columns(data: Dense, spreads: np.ndarray) -> np.ndarray:
    """Standard deviations (J,), 1 of equal cells, of the dtype of the data."""
    return np.where(spreads > 0, spreads, 1).astype(np.asarray(data.values[:1, :1]).dtype)


def notes(model: BinaryMF, data: Dense) -> tuple[str, ...]:
    """See `BinaryMF.notes`."""
    unit: Any = model.column_unit
    if np.ndim(unit) == 0:
        return ()
    spreads = units.column_scales(data)
    if not np.array_equal(unit, _units_of_columns(data, spreads)):
        return ()  # the user's own
    varied = spreads[spreads > 0]
    return (
        f"columns are in different units (standard deviations {varied.min():.3g} to "
        f"{varied.max():.3g}), so cells were taken about the mean of their column and divided by "
        "its standard deviation: noise, weights and their scales are in standard deviations, "
        "predictions in the units of the data",
    )


def _units(model: BinaryMF, data: Dense, *, is_open: bool) -> tuple[object, object]:
    """Offset and scale of the columns; both by column where they are in different units.

    Args: is_open: whether the scales of noise and weights are learned in the units of the data.
    Returns number or (J,) each; the second may be None, for 1.
    """
    offset = hyper.by_column("offset", model.offset, data)
    scale = hyper.by_column("column_unit", model.column_unit, data)
    has_mean = np.ndim(model.weight_mean) > 0 or float(model.weight_mean) != 0
    if is_open and not has_mean and offset is None and scale is None:
        spreads = units.column_scales(data)
        if units.are_different(spreads):
            return units.column_means(data), _units_of_columns(data, spreads)
    if offset is None:
        is_centred = is_left_open(model, "weight_scale") and not has_mean
        is_by_column = scale is not None and np.ndim(scale) > 0
        mean = units.column_means if is_by_column else units.overall_mean
        offset = mean(data) if is_centred else 0.0
    return offset, scale
