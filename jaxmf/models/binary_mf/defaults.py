"""What a model of Gaussian cells takes from the data where the user left it open.

A choice by the data itself (empirical Bayes), so that x and a + b x have the same features.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from jaxmf.data import Dense, units
from jaxmf.priors import hyper


def matched(model: Any, data: Dense) -> Any:
    """See `BinaryMF.matched`."""
    if model.likelihood != "gaussian":
        return model
    units.check_magnitude(data, "data")
    left_open: frozenset[str] = getattr(model, "_left_open", frozenset())
    offset = model.offset
    if offset is None:
        has_mean = np.ndim(model.weight_mean) > 0 or float(model.weight_mean) != 0
        is_centred = "weight_scale" in left_open and not has_mean
        offset = units.overall_mean(data) if is_centred else 0.0
    settings: dict[str, Any] = {"offset": offset}
    if left_open:
        unit = units.scale_about(data, offset)
        priors = {"noise_scale": hyper.noise_prior, "weight_scale": hyper.effect_prior}
        settings |= {name: priors[name](unit) for name in left_open}
    return replace(model, **settings)
