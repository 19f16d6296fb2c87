"""Arrays as pictures: lines of images, matrices side by side, traces, predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jaxmf.arguments import check_count
from jaxmf.plot.style import CHAIN_COLOURS, GRID, MUTED, bare, colour_scale, figure_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from jaxmf.posterior.prediction import Prediction


_MOST_IDS = 30  # that stand at the columns of a picture
_LONGEST_ID = 14


def check_image_shape(image_shape: tuple[int, int], size: int) -> None:
    """Refuse a (height, width) that does not hold a row of `size` cells."""
    if not isinstance(image_shape, tuple | list) or len(image_shape) != 2:
        raise TypeError(f"image_shape must be (height, width), such as (8, 8), got {image_shape!r}")
    height, width = (check_count("image_shape", side) for side in image_shape)
    if height * width != size:
        raise ValueError(
            f"image_shape {height} x {width} has {height * width} cells, rows have {size}"
        )


def images(values: np.ndarray, titles: list[str], image_shape: tuple[int, int]) -> Figure:
    """Rows of a matrix (M, height * width) as small images, one title each."""
    check_image_shape(image_shape, values.shape[1])
    per_line = min(len(values), 8)
    lines = -(-len(values) // per_line)
    figure, axes = figure_of(lines, per_line, width=1.15 * per_line + 0.4, height=1.5 * lines)
    scale = colour_scale(values)
    for each in axes:
        each.set_axis_off()
    for each, image, title in zip(axes, values, titles, strict=False):
        each.set_axis_on()
        picture = each.imshow(image.reshape(image_shape), interpolation="nearest", **scale)
        each.set_title(title, fontsize=7.5, color=MUTED, pad=3, parse_math=False)
        bare(each)
    bar = figure.colorbar(picture, ax=axes, shrink=0.8, aspect=25 * lines, pad=0.015)
    bar.ax.tick_params(labelsize=7, colors=MUTED)
    bar.outline.set_visible(False)
    return figure


def matrix(
    values: np.ndarray, titles: list[str], word: str, columns: np.ndarray | None = None
) -> Figure:
    """A matrix with a title at each row; `word` says what the rows are.

    Up to 30 columns have their ids, `columns`, at them.
    """
    figure, (axes,) = figure_of(1, 1, width=7.5, height=0.9 + 0.28 * len(values))
    picture = axes.imshow(values, aspect="auto", interpolation="nearest", **colour_scale(values))
    axes.set_yticks(range(len(values)), titles, parse_math=False)
    axes.set(xlabel="column", ylabel=word)
    if columns is not None and len(columns) <= _MOST_IDS:
        labels = [_shortened(name) for name in columns.tolist()]
        axes.set_xticks(range(len(columns)), labels, parse_math=False)
        axes.tick_params(axis="x", labelrotation=0 if len(columns) <= 8 else 60)
    figure.colorbar(picture, ax=axes, pad=0.015).outline.set_visible(False)
    return figure


def _shortened(name: object) -> str:
    text = str(name)
    return text if len(text) <= _LONGEST_ID else f"{text[: _LONGEST_ID - 1]}\N{HORIZONTAL ELLIPSIS}"


def trace_panels(quantities: dict[str, np.ndarray], *, along: str) -> Figure:
    """A panel for each quantity (chains, steps), a line for each chain; `along` names the steps."""
    per_line = min(2, len(quantities))
    lines = -(-len(quantities) // per_line)
    figure, axes = figure_of(lines, per_line, width=4.4 * per_line, height=1.75 * lines + 0.2)
    for each in axes[len(quantities) :]:
        each.set_axis_off()
    for each, (name, values) in zip(axes, quantities.items(), strict=False):
        for chain, line in enumerate(values):
            colour = CHAIN_COLOURS[chain % len(CHAIN_COLOURS)]
            each.plot(line, color=colour, linewidth=0.9, alpha=0.85)
        each.set_title(name.replace("_", " "), loc="left")
        each.grid(axis="y", color=GRID, linewidth=0.6)
        each.margins(x=0.01)
    for each in axes[max(0, len(quantities) - per_line) : len(quantities)]:
        each.set_xlabel(along)
    return figure


def image_lines(
    lines: dict[str, np.ndarray], titles: list[str], image_shape: tuple[int, int]
) -> Figure:
    """Lines of images under one another, name -> (M, height * width)."""
    first = next(iter(lines.values()))
    check_image_shape(image_shape, first.shape[1])
    figure, axes = figure_of(
        len(lines), len(first), width=1.1 * len(first), height=1.3 * len(lines)
    )
    scale = colour_scale(np.concatenate(list(lines.values())))
    for index, (each, image) in enumerate(
        zip(axes, np.concatenate(list(lines.values())), strict=True)
    ):
        each.imshow(image.reshape(image_shape), interpolation="nearest", **scale)
        bare(each)
        line, column = divmod(index, len(first))
        if column == 0:
            each.set_ylabel(list(lines)[line], fontsize=8)
        if line == 0:
            each.set_title(titles[column], fontsize=7.5, color=MUTED, pad=3, parse_math=False)
    return figure


def side_by_side(lines: dict[str, np.ndarray]) -> Figure:
    """Matrices of one shape beside one another, name -> (M, D)."""
    figure, axes = figure_of(1, len(lines), width=3.4 * len(lines) + 0.5, height=3.2)
    scale = colour_scale(np.concatenate(list(lines.values())))
    for each, (name, values) in zip(axes, lines.items(), strict=True):
        picture = each.imshow(values, aspect="auto", interpolation="nearest", **scale)
        each.set_title(name, loc="left")
        each.set_xlabel("column")
        bare(each)
    axes[0].set_ylabel("row")
    figure.colorbar(picture, ax=axes, pad=0.015).outline.set_visible(False)
    return figure


def held_out_picture(known: np.ndarray, prediction: Prediction) -> Figure:
    """Known values of held-out cells against their predictions, with intervals."""
    figure, (axes,) = figure_of(1, 1, width=4.2, height=3.6)
    low, high = prediction.quantiles[0], prediction.quantiles[-1]
    axes.vlines(known, low, high, color=CHAIN_COLOURS[0], alpha=0.15, linewidth=1)
    axes.scatter(known, prediction.mean, s=9, color=CHAIN_COLOURS[0], alpha=0.7, linewidths=0)
    ends = [min(known.min(), low.min()), max(known.max(), high.max())]
    axes.plot(ends, ends, color=MUTED, linewidth=1, linestyle="--")
    covered = np.mean((known >= low) & (known <= high))
    share = prediction.levels[-1] - prediction.levels[0]
    axes.set(xlabel="value", ylabel="predicted")
    axes.set_title(
        f"{100 * covered:.0f} % of cells inside their {100 * share:.0f} % interval", fontsize=9
    )
    return figure
