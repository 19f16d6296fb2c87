"""Colours, and figures outside pyplot's list of open ones."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

INK = "#1f2933"
MUTED = "#5b6875"
GRID = "#e4e7eb"
SHADED = "#c3ccd6"  # what is observed
CHAIN_COLOURS = ("#2f6db5", "#d9822b", "#3a9d6e", "#b5467b", "#7a5fc0", "#8a6d3b")
SIGNED = ("#1d4e89", "#7fb0dd", "#ffffff", "#f4b678", "#b3541e")
SEQUENTIAL = ("#ffffff", "#cfe1f2", "#7fb0dd", "#2f6db5", "#123a66")

_FAR = 0.5  # the lowest value over the highest, above which zero is no colour


def figure_of(
    num_rows: int, num_columns: int, *, width: float, height: float
) -> tuple[Figure, list[Axes]]:
    """A figure outside pyplot's list of open ones, and its axes row by row."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    from jaxmf.plot.picture import figure_class

    layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.08)
    figure = figure_class()(figsize=(width, height), layout=layout, facecolor="white")
    FigureCanvasAgg(figure)
    grid = figure.subplots(num_rows, num_columns, squeeze=False)
    axes = list(grid.ravel())
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
        each.spines[["left", "bottom"]].set_color(MUTED)
        each.tick_params(colors=MUTED, labelcolor=INK, labelsize=8)
        each.xaxis.label.set(color=INK, fontsize=9)
        each.yaxis.label.set(color=INK, fontsize=9)
        each.title.set(color=INK, fontsize=9)
    return figure, axes


def figure_of_panels(
    size: int,
    per_line: int,
    *,
    width: float,
    height: float,
    more: tuple[float, float],
    label: str,
) -> tuple[Figure, list[Axes]]:
    """A figure of `size` panels, some a line, with a label below the last of each column.

    Args: width, height: of a panel, in inches; more: of the whole figure.
    """
    lines = -(-size // per_line)
    figure, axes = figure_of(
        lines, per_line, width=width * per_line + more[0], height=height * lines + more[1]
    )
    for each in axes[size:]:
        each.set_axis_off()
    for each in axes[max(0, size - per_line) : size]:
        each.set_xlabel(label)
    return figure, axes


def bare(axes: Axes) -> None:
    """Takes the ticks away and leaves a light frame."""
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(True)
        spine.set_color(GRID)


def empty(words: str) -> Figure:
    """A figure that says why there is nothing to show."""
    figure, (axes,) = figure_of(1, 1, width=4, height=1)
    axes.set_axis_off()
    axes.text(0.5, 0.5, words, ha="center", va="center", color=MUTED, fontsize=10)
    return figure


def colours(colours: Sequence[str]) -> Colormap:
    """A map through the given colours; missing values are grey."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("jaxmf", colours).with_extremes(bad="#b8c0c9")


def colour_scale(values: np.ndarray) -> dict[str, Any]:
    """Colours for a matrix: white is zero where there are two signs, dark is high otherwise.

    Of values far above zero the lightest stands for the lowest, and else for zero.
    """
    finite = values[np.isfinite(values)]
    low, high = np.quantile(finite, (0.01, 0.995)) if finite.size else (0.0, 1.0)
    if low < -0.15 * max(high, 1e-12):
        bound = float(np.quantile(np.abs(finite), 0.995)) or 1.0
        return {"cmap": colours(SIGNED), "vmin": -bound, "vmax": bound}
    is_far = _FAR * high < low < high
    return {"cmap": colours(SEQUENTIAL), "vmin": low if is_far else 0.0, "vmax": high or 1.0}


def png(figure: Figure, *, dots_per_inch: int = 150) -> bytes:
    """A figure as the bytes of a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dots_per_inch)
    return file.getvalue()
