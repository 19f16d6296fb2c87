"""The state of a network's chain."""

from __future__ import annotations

from typing import NamedTuple

from jaxmf.types import Array


class NetworkState(NamedTuple):
    """State of a network's chain; counts are taken afresh from the values."""

    values: dict[str, Array]  # latent indicator -> (T,) int32, its value for every token
    # block -> the hyperparameters of its family or prior
    hyperparameters: dict[str, dict[str, Array]]
    slots: dict[str, Array]  # indicator of a growing prior -> (K,) bool, values that some token has
