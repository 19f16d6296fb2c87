"""What a posterior answers with, and the facts of its run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from jaxmf.answers import Answer, Lines, long_table
from jaxmf.types import Names


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
        notes: what was done to the data unasked that affects the answers, a clause each.
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
    notes: tuple[str, ...] = ()


def sweep_note(options: Mapping[str, object]) -> str:
    """Which sweep a run makes, for its progress line and its report: "sweep=collapsed"."""
    named = [f"{name}={options[name]}" for name in ("sweep", "weights") if options.get(name)]
    return ", ".join(named)


class Alarm(NamedTuple):
    """A reason not to trust a run.

    Args:
        kind: one word or two for programs, such as ``"R-hat"``.
        sentence: what was seen and what to do.
    """

    kind: str
    sentence: str

    def __str__(self) -> str:
        return self.sentence


class Evidence(NamedTuple):
    """Estimate of log p(X) and its standard error, NaN where no error can be trusted."""

    value: float
    standard_error: float

    @property
    def error_text(self) -> str:
        """The standard error as text, after the value."""
        if np.isfinite(self.standard_error):
            return f"± {self.standard_error:.2f}"
        return "without an error that can be trusted"


class _Features(NamedTuple):
    mean: np.ndarray
    sd: np.ndarray
    counts: np.ndarray
    slots: np.ndarray
    chain: int
    draw: int
    columns: Names
    units: np.ndarray
    level: int | None = None


class DrawFeatures(Answer, _Features):
    """The features of one draw, most frequent first.

    Args:
        mean: (K, D) posterior mean of each feature given this draw's Z.
        sd: (K, D) its standard deviation.
        counts: (K,) rows that have it.
        slots: (K,) its column in the draw's Z.
        chain: which chain the draw is of.
        draw: which draw of it.
        columns: D ids, or positions.
        units: (D,) units of the columns, in which these are compared; 1 where all have one.
        level: which of them is the bias, the level of rows without features; None where the model
            has none.
    """

    _axes: ClassVar = {"mean sd": "feature column", "counts": "feature", "units": "column"}
    _labels: ClassVar = {"column": "columns"}

    def table(self) -> dict[str, np.ndarray]:
        """Columns of a table with one line for each feature and column of the data."""
        return long_table(
            {"feature": np.arange(len(self.mean)), "rows": self.counts},
            {"column": self.columns},
            {"mean": self.mean, "sd": self.sd},
        )

    def lines(self) -> Lines:
        sides = enumerate(zip(self.counts, self.mean, strict=True))
        body = (
            (
                "level" if k == self.level else str(k),
                str(count),
                largest_columns(x, self.columns, self.units),
            )
            for k, (count, x) in sides
        )
        return [("feature", "rows", "largest in"), *body]

    def footer(self) -> str:
        num_features, width = self.mean.shape
        level = ""
        if self.level is not None:
            num_features, level = num_features - 1, " and the level of all rows"
        return (
            f"{num_features} features of {width} columns{level}, from the draw with the highest "
            f"log joint (chain {self.chain}, draw {self.draw})"
        )


def largest_columns(values: np.ndarray, names: np.ndarray, units: np.ndarray) -> str:
    """The three columns in which a feature is largest in units of these, with its values there."""
    columns = np.argsort(-np.abs(values) / units, kind="stable")[:3]
    return ", ".join(f"{names[column]} {values[column]:+.3g}" for column in columns)


class _Distribution(NamedTuple):
    values: np.ndarray
    probabilities: np.ndarray


class NumFeatures(Answer, _Distribution):
    """Posterior distribution of the number of features.

    Args:
        values: (V,) int, in increasing order.
        probabilities: (V,) float.
    """

    _axes: ClassVar = {"probabilities": "number"}
    _counted: ClassVar[str] = "features"
    _labels: ClassVar = {"number": "values"}

    def table(self) -> dict[str, np.ndarray]:
        """Columns of a table with one line a number."""
        return {f"number of {self._counted}": self.values, "probability": self.probabilities}

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
        return f"number of {self._counted}: {words}{others}"


class NumGroups(NumFeatures):
    """Posterior distribution of the number of groups; as `NumFeatures`."""

    _counted = "groups"


class NumTopics(NumFeatures):
    """Posterior distribution of the number of topics that have tokens; as `NumFeatures`.

    Attributes:
        mean_large: posterior mean of the number of topics that hold more than 1 % of the tokens.
    """

    _counted = "topics"
    mean_large: float

    def __repr__(self) -> str:
        return f"{super().__repr__()}; {self.mean_large:.3g} hold more than 1 % of the tokens"
