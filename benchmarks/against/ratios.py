"""Ratios of seconds of two versions, from runs in pairs, with an interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

TOO_SLOW = 1.05
TOO_SLOW_ONCE = 1.2  # what was measured once is then measured again
FEWEST_PAIRS = 6  # of fewer the range itself is no interval of this level
_LEVEL = 0.95


class Ratio(NamedTuple):
    """Seconds now over seconds before.

    Args:
        before: median of the seconds.
        now: likewise.
        middle: median of the ratios of pairs.
        low: lower end of the interval of that median, 95 % where there are `FEWEST_PAIRS` or more.
        high: upper end.
        repeats: pairs.
    """

    before: float
    now: float
    middle: float
    low: float
    high: float
    repeats: int


def in_pairs(
    before: Callable[[], float], now: Callable[[], float], *, repeats: int
) -> list[tuple[float, float]]:
    """Figures of two functions called in the order A B B A A B ..., a pair each."""
    pairs = []
    for turn in range(repeats):
        if turn % 2:
            second = now()
            pairs.append((before(), second))
        else:
            first = before()
            pairs.append((first, now()))
    return pairs


def ratio_of(pairs: Sequence[Sequence[float]]) -> Ratio:
    """The median of the ratios of pairs between two of their order statistics.

    Example:
        >>> ratio_of([(1.0, 1.0), (1.0, 2.0), (2.0, 6.0)]).middle
        2.0
    """
    before, now = np.asarray(pairs, float).T
    ratios = np.sort(now / np.maximum(before, 1e-9))
    lowest = max(int(stats.binom.ppf((1 - _LEVEL) / 2, ratios.size, 0.5)), 1) - 1
    middle = float(np.median(ratios))
    ends = float(ratios[lowest]), float(ratios[-1 - lowest])
    return Ratio(float(np.median(before)), float(np.median(now)), middle, *ends, ratios.size)
