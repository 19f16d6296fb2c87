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

    Returns:
        Number, numpyro distribution, or None where it is left open or the likelihood has none.
    """
    return getattr(model.likelihood if name in _OF_LIKELIHOODS else model, name, None)


def hyperprior(model: BinaryMF, name: str) -> Hyperparameter:
    """A hyperparameter of the model; LogNormal(0, 2) for a scale left open that no data fixed.

    Returns:
        Number, numpyro distribution, or None where the likelihood has none.
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
    offset = model.offset
    if offset is None:
        has_mean = np.ndim(model.weight_mean) > 0 or float(model.weight_mean) != 0
        is_centred = "weight_scale" in left_open and not has_mean
        offset = units.overall_mean(data) if is_centred else 0.0
    settings: dict[str, Any] = {"offset": offset}
    if left_open:
        unit = units.scale_about(data, offset)
        priors = {"noise_scale": hyper.noise_prior, "weight_scale": hyper.effect_prior}
        chosen = {name: priors[name](unit) for name in left_open}
        if "noise_scale" in chosen:
            settings["likelihood"] = Gaussian(chosen.pop("noise_scale"))
        settings |= chosen
    return replace(model, **settings)
