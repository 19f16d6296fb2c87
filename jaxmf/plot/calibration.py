"""Pictures of calibration: rank distributions of simulations, coverage of predictive intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from jaxmf.plot.style import CHAIN_COLOURS, GRID, MUTED, figure_of, figure_of_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from jaxmf.posterior.prediction import Prediction

_PER_LINE = 3
LEVELS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
"""Levels of central predictive intervals."""
QUANTILES = tuple(round((1 + sign * level) / 2, 4) for level in LEVELS for sign in (-1, 1))
_NUM_BINS = 5
_SHOWN_LEVEL = 0.9


def ecdf_differences(
    differences: Mapping[str, np.ndarray],
    points: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    failures: tuple[str, ...],
) -> Figure:
    """A panel for each quantity: its line, and the band that uniform ranks stay in.

    Args: differences: name -> (P,) empirical distribution function less the points; points (P,)
    between 0 and 1; bounds: of the band, (P,) each.
    """
    per_line = min(_PER_LINE, len(differences))
    figure, axes = figure_of_panels(
        len(differences), per_line, width=2.7, height=1.9, more=(0.4, 0.3),
        label="rank of the true value, as a share",
    )  # fmt: skip
    x = np.concatenate([[0.0], points, [1.0]])
    lower, upper = (np.pad(bound, 1) for bound in bounds)
    for each, (name, line) in zip(axes, differences.items(), strict=False):
        failed = name in failures
        each.fill_between(x, lower, upper, color=GRID, linewidth=0)
        each.axhline(0, color=MUTED, linewidth=0.6)
        colour = CHAIN_COLOURS[1] if failed else CHAIN_COLOURS[0]
        each.plot(x, np.pad(line, 1), color=colour, linewidth=1.2, drawstyle="steps-post")
        label = name.replace("_", " ")
        each.set_title(f"{label}: not uniform" if failed else label, loc="left")
        each.set(xlim=(0, 1))
    axes[0].set_ylabel("ECDF less uniform")
    return figure


def are_inside(values: np.ndarray, prediction: Prediction) -> np.ndarray:
    """Whether values (M,) are in their central intervals: (L, M) bool, by `LEVELS`.

    Args: prediction: of them, with the quantiles `QUANTILES`.
    """
    low, high = prediction.quantiles[0::2], prediction.quantiles[1::2]
    return (values >= low) & (values <= high)


def coverage_picture(values: np.ndarray, prediction: Prediction, kind: str) -> Figure:
    """How many cells are in their predictive intervals: at every level, and by predicted sd.

    Bands and bars are 95 % for independent cells.

    Args: values (M,) of cells; prediction: of them, with the quantiles `QUANTILES`; kind: which
    cells these are, "held-out" or "training".
    """
    figure, axes = figure_of(1, 2, width=7.6, height=3.3)
    inside = are_inside(values, prediction)
    levels = np.array([0.0, *LEVELS, 1.0])
    band = _half_width(levels, values.size)
    axes[0].fill_between(levels, levels - band, levels + band, color=GRID, linewidth=0)
    axes[0].plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle="--")
    axes[0].plot(LEVELS, inside.mean(axis=1), "o-", color=CHAIN_COLOURS[0], markersize=4)
    axes[0].set(xlabel="level of the interval", xlim=(0, 1), ylim=(0, 1.02))
    axes[0].set_ylabel(f"share of {kind} cells inside")
    covered = inside[LEVELS.index(_SHOWN_LEVEL)]
    shown = f"{100 * _SHOWN_LEVEL:.0f} % interval"
    title = f"{100 * covered.mean():.0f} % in their {shown}"
    axes[0].set_title(title, loc="left", fontsize=9)
    if np.isin(prediction.quantiles, values).mean() > 0.9:
        note = "cells have few values, and an interval\nholds whole ones: more than its level"
        axes[0].text(0.97, 0.04, note, ha="right", fontsize=7.5, color=MUTED)
    by_sd = np.argsort(prediction.sd, kind="stable")
    bins = [some for some in np.array_split(by_sd, _NUM_BINS) if some.size]
    _bars(axes[1], prediction.sd, covered, bins)
    axes[1].axhline(_SHOWN_LEVEL, color=MUTED, linewidth=1, linestyle="--")
    axes[1].set(xlabel="predicted standard deviation", ylim=(0, 1.02))
    axes[1].set_ylabel(f"share in the {shown}")
    axes[1].set_title("by predicted standard deviation", loc="left", fontsize=9)
    return figure


def reliability_picture(
    values: np.ndarray,
    probabilities: np.ndarray,
    kind: str,
    *,
    of: str = "a one",
    share: str = "share of ones",
) -> Figure:
    """How often cells are one where that has some probability: (M,) zeros and ones, (M,) float.

    Args: of, share: what the probabilities and the shares are of, for the axes.
    """
    figure, (axes,) = figure_of(1, 1, width=4.2, height=3.3)
    order = np.argsort(probabilities, kind="stable")
    bins = [some for some in np.array_split(order, 2 * _NUM_BINS) if some.size]
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle="--")
    _bars(axes, probabilities, values, bins)
    axes.set(xlabel=f"predicted probability of {of}", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    axes.set_ylabel(f"{share}, {kind} cells")
    return figure


def _bars(axes: Axes, along: np.ndarray, is_one: np.ndarray, bins: list[np.ndarray]) -> None:
    """Shares in bins with their intervals, which stay inside 0 and 1 (Agresti & Coull 1998).

    Args: along, is_one (M,) of cells; bins: positions of the cells of each.
    """
    x, shares = (np.array([values[some].mean() for some in bins]) for values in (along, is_one))
    counts = np.array([some.size for some in bins])
    centre = (shares * counts + 2) / (counts + 4)
    half = _half_width(centre, counts + 4)
    ends = np.clip([centre - half, centre + half], 0, 1)
    ends = np.stack([np.minimum(ends[0], shares), np.maximum(ends[1], shares)])
    axes.errorbar(x, shares, np.abs(ends - shares), fmt="o-", color=CHAIN_COLOURS[0], markersize=4)


def _half_width(share: np.ndarray, count: int | np.ndarray) -> np.ndarray:
    width: np.ndarray = 1.96 * np.sqrt(share * (1 - share) / count)
    return width
