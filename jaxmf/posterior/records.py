"""What a posterior answers with, and the facts of its run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np


@dataclasses.dataclass(frozen=True)
class Meta:
    """The facts of a run.

    Args:
        method: the verb: ``sample``, ``particle_filter``, ...
        seed: int or typed key.
        run: settings of the run loop, such as num_samples and num_chains.
        options: options of the method, as given.
        versions: of jaxmf, jax, jaxlib, numpyro, numpy and Python.
        device: what it ran on.
        seconds: how long the steps took, over all parts of a resumed or extended run.
        wall_seconds: how long the last call took, compilation included.
        complete: False if it was interrupted.
        capacity: final sizes of the growing axes.
    """

    method: str
    seed: Any
    run: Mapping[str, Any]
    options: Mapping[str, Any]
    versions: Mapping[str, str]
    device: str
    seconds: float
    wall_seconds: float
    complete: bool
    capacity: Mapping[str, int]


class Evidence(NamedTuple):
    """Estimate of log p(X) and its standard error, NaN where no error can be trusted."""

    value: float
    standard_error: float


class Features(NamedTuple):
    """The features of one draw, most frequent first.

    Args:
        mean: (K, D) posterior mean of each feature given this draw's Z.
        sd: (K, D) its standard deviation.
        counts: (K,) rows that have it.
        slots: (K,) its column in the draw's Z.
        chain: which chain the draw is of.
        draw: which draw of it.
    """

    mean: np.ndarray
    sd: np.ndarray
    counts: np.ndarray
    slots: np.ndarray
    chain: int
    draw: int

    def __repr__(self) -> str:
        num_features, width = self.mean.shape
        return (
            f"{num_features} features of {width} columns, from the draw with the highest log joint "
            f"(chain {self.chain}, draw {self.draw}); rows that have them: "
            f"{', '.join(str(int(count)) for count in self.counts)}"
        )


class NumFeatures(NamedTuple):
    """Posterior distribution of the number of features.

    Args:
        values: (V,) int, in increasing order.
        probabilities: (V,) float.
    """

    values: np.ndarray
    probabilities: np.ndarray

    @property
    def mean(self) -> float:
        return float(self.values @ self.probabilities)

    @property
    def mode(self) -> int:
        return int(self.values[np.argmax(self.probabilities)])

    def __repr__(self) -> str:
        likely = np.argsort(-self.probabilities, kind="stable")[:8]
        pairs = [(self.values[index], self.probabilities[index]) for index in np.sort(likely)]
        words = ", ".join(f"{value}: {p:.3f}" for value, p in pairs)
        rest = 1 - sum(p for _, p in pairs)
        others = f", others: {rest:.3f}" if rest > 5e-4 else ""
        return f"number of {self._counted()}: {words}{others}"

    def _counted(self) -> str:
        return "features"


class NumGroups(NumFeatures):
    """Posterior distribution of the number of groups; as `NumFeatures`."""

    def _counted(self) -> str:
        return "groups"


class NumTopics(NumFeatures):
    """Posterior distribution of the number of topics that have tokens; as `NumFeatures`."""

    def _counted(self) -> str:
        return "topics"
