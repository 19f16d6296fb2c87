"""The state of a chain of a `FeatureModel`."""

from __future__ import annotations

from typing import NamedTuple

from jaxmf.types import Array


class FeatureState(NamedTuple):
    """Where a chain is.

    Attributes:
        z: (N, K) bool.
        y: (K, ...), rows of Y; slots without a feature hold one fixed draw.
        hyperparameters: () float by name, as `hyperparameters.priors_of` lists them.
    """

    z: Array
    y: Array
    hyperparameters: dict[str, Array]
