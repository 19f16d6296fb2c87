"""The state of a chain of a `FeatureModel`."""

from __future__ import annotations

from typing import NamedTuple

from jaxmf.types import Array


class FeatureState(NamedTuple):
    """Where a chain is."""

    z: Array  # (N, K) bool
    y: Array  # (K, ...), rows of Y; slots without a feature hold one fixed draw
    hyperparameters: dict[str, Array]  # () float by name, as the model lists them
