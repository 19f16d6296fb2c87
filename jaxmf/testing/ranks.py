"""Whether ranks are uniform: simultaneous bands of their empirical distribution function.

R ranks of L + 1 possible values are uniform if the counts of ranks below 1, ..., L have the
distribution that they have for uniform ranks: each is binomial, and together they are a Markov
chain. So the probability that all stay inside a band is computed exactly, and with it the p-value
of the one that is furthest out.

Source: Säilynoja, Bürkner & Vehtari (2022), Graphical test for discrete uniformity and its
applications in goodness-of-fit evaluation and multiple sample comparison, algorithm 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln
from scipy.stats import binom

_MOST_POINTS = 64
_NUM_LEVELS = 48  # of tail probabilities among which that of a band is chosen


class Band(NamedTuple):
    """A simultaneous band of empirical distribution functions of uniform ranks.

    Attributes:
        points: (P,) float between 0 and 1, where the function is looked at.
        lower, upper: (P,) float, bounds of the function less the points.
    """

    points: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def cutoffs(num_values: int) -> np.ndarray:
    """The values of ranks, (P,) int, below which ranks are counted; at most 64, evenly spread."""
    every = np.arange(1, num_values)
    if every.size <= _MOST_POINTS:
        return every
    return np.unique(np.linspace(1, num_values - 1, _MOST_POINTS).round().astype(int))


def counts_below(ranks: np.ndarray, num_values: int) -> np.ndarray:
    """How many ranks lie below each cutoff: (P,) int."""
    return np.searchsorted(np.sort(ranks), cutoffs(num_values), side="left")


def p_values(ranks: np.ndarray, num_values: int) -> np.ndarray:
    """The probability that uniform ranks leave a narrower band somewhere than these do: (Q,).

    Args:
        ranks: (Q, R) int from 0 to num_values - 1, of Q quantities.
        num_values: L + 1.
    """
    points = cutoffs(num_values) / num_values
    tails = _tails(ranks.shape[1], points)
    counts = np.array([counts_below(each, num_values) for each in ranks])
    smallest = tails[np.arange(points.size), counts].min(axis=1)
    return 1 - _probability_above(smallest, tails, points)


def band(num_ranks: int, num_values: int, level: float) -> Band:
    """The band that uniform ranks leave with probability `level` at most.

    Args:
        num_ranks: R.
        num_values: L + 1.
        level: between 0 and 1.
    """
    points = cutoffs(num_values) / num_values
    tails = _tails(num_ranks, points)
    candidates = np.geomspace(level / (10 * points.size), level, _NUM_LEVELS)
    coverage = _probability_above(candidates, tails, points)
    chosen = candidates[np.flatnonzero(coverage >= 1 - level)[-1]]
    is_inside = tails > chosen
    lower = is_inside.argmax(axis=1) / num_ranks - points
    upper = (num_ranks - is_inside[:, ::-1].argmax(axis=1)) / num_ranks - points
    return Band(points, lower, upper)


def _tails(num_ranks: int, points: np.ndarray) -> np.ndarray:
    """Two-sided tail probabilities (P, R + 1) of every count at every point."""
    counts = np.arange(num_ranks + 1)
    below = binom.cdf(counts, num_ranks, points[:, None])
    above = binom.sf(counts - 1, num_ranks, points[:, None])
    return np.minimum(2 * np.minimum(below, above), 1.0)


def _probability_above(levels: np.ndarray, tails: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The probability that tails of uniform ranks are above each level at all points: (G,)."""
    num_ranks = tails.shape[1] - 1
    counts = np.arange(num_ranks + 1)
    probability = np.zeros((levels.size, num_ranks + 1))
    probability[:, 0] = 1.0
    before = 0.0
    for point, tail in zip(points, tails, strict=True):
        share = (point - before) / (1 - before)
        probability = probability @ _transitions(counts, share)
        probability *= tail > levels[:, None]
        before = point
    return np.clip(probability.sum(axis=1), 0.0, 1.0)


def _transitions(counts: np.ndarray, share: float) -> np.ndarray:
    """From k ranks below one point to how many below the next: (R + 1, R + 1), rows sum to 1."""
    rest = counts[-1] - counts[:, None]
    new = counts - counts[:, None]
    is_possible = new >= 0
    new = np.where(is_possible, new, 0)
    log_choose = gammaln(rest + 1) - gammaln(new + 1) - gammaln(np.maximum(rest - new, 0) + 1)
    log_probability = log_choose + new * np.log(share) + (rest - new) * np.log1p(-share)
    return np.where(is_possible, np.exp(log_probability), 0.0)
