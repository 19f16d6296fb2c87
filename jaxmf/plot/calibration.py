"""The picture of simulation-based calibration: rank distributions less the uniform one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from jaxmf.plot.style import CHAIN_COLOURS, GRID, MUTED, figure_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PER_LINE = 3


def ecdf_differences(
    differences: Mapping[str, np.ndarray],
    points: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    failures: tuple[str, ...],
) -> Figure:
    """A panel for each quantity: its line, and the band that uniform ranks stay in.

    Args:
        differences: name -> (P,) empirical distribution function less the points.
        points: (P,) between 0 and 1.
        bounds: of the band, (P,) each.
        failures: the names whose line leaves it.
    """
    per_line = min(_PER_LINE, len(differences))
    num_lines = -(-len(differences) // per_line)
    figure, axes = figure_of(
        num_lines, per_line, width=2.7 * per_line + 0.4, height=1.9 * num_lines + 0.3
    )
    x = np.concatenate([[0.0], points, [1.0]])
    lower, upper = (np.pad(bound, 1) for bound in bounds)
    for each in axes[len(differences) :]:
        each.set_axis_off()
    for each, (name, line) in zip(axes, differences.items(), strict=False):
        failed = name in failures
        each.fill_between(x, lower, upper, color=GRID, linewidth=0)
        each.axhline(0, color=MUTED, linewidth=0.6)
        colour = CHAIN_COLOURS[1] if failed else CHAIN_COLOURS[0]
        each.plot(x, np.pad(line, 1), color=colour, linewidth=1.2, drawstyle="steps-post")
        label = name.replace("_", " ")
        each.set_title(f"{label}: not uniform" if failed else label, loc="left")
        each.set(xlim=(0, 1))
    for each in axes[max(0, len(differences) - per_line) : len(differences)]:
        each.set_xlabel("rank of the true value, as a share")
    axes[0].set_ylabel("ECDF less uniform")
    return figure
