"""The state of a chain of the linear-Gaussian Indian buffet process."""

from __future__ import annotations

from typing import NamedTuple

from jaxmf.data import Dense
from jaxmf.priors.column_noise import NoiseOfColumns
from jaxmf.samplers.feature_layout import Scales
from jaxmf.types import Array, Draw

HYPERPARAMETERS = ("alpha", "concentration", "noise_scale", "feature_scale")


class LinearGaussianState(NamedTuple):
    """Where a chain is; Y is summed out."""

    z: Array  # (N, K) bool; with a bias feature, slot 0 is always on
    # (N, D) float, the data minus the offset, in units of columns, with missing cells imputed; None
    # when nothing is missing
    x: Array | None
    # alpha, concentration, noise_scale, feature_scale: () float
    alpha: Array
    concentration: Array
    noise_scale: Array
    feature_scale: Array
    column_noise: NoiseOfColumns | None = None  # None where all columns are alike


def complete(state: LinearGaussianState, data: Dense) -> Array:
    """The centred data (N, D), which is what `data` holds, with the missing cells."""
    return data.values if state.x is None else state.x


def scales(draw: Draw) -> Scales:
    """The scales of a draw."""
    return Scales(noise=draw["noise_scale"], feature=draw["feature_scale"])
