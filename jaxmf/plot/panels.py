"""Arrays as pictures: lines of images, matrices side by side, traces, predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxmf.arguments import check_count
from jaxmf.diagnostics import evenly_spread
from jaxmf.plot.style import (
    CHAIN_COLOURS,
    GRID,
    INK,
    MUTED,
    bare,
    colour_scale,
    figure_of,
    figure_of_panels,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from jaxmf.posterior.prediction import Prediction
    from jaxmf.posterior.topics_over import TopicsOver


_MOST_IDS = 30  # that stand at the columns of a picture
_MOST_IDS_BESIDE = 20  # that stand at the columns of each of several matrices
_MOST_ROW_IDS = 40
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


def images(
    values: np.ndarray,
    titles: list[str],
    image_shape: tuple[int, int],
    *,
    scaled_by: np.ndarray | None = None,
) -> Figure:
    """Rows of a matrix (M, height * width) as small images, one title each.

    Args: scaled_by: the values that colours are chosen for; `values` if None.
    """
    check_image_shape(image_shape, values.shape[1])
    per_line = min(len(values), 8)
    lines = -(-len(values) // per_line)
    figure, axes = figure_of(lines, per_line, width=1.15 * per_line + 0.4, height=1.5 * lines)
    scale = colour_scale(values if scaled_by is None else scaled_by)
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
    values: np.ndarray,
    titles: list[str],
    word: str,
    columns: np.ndarray | None = None,
    *,
    scaled_by: np.ndarray | None = None,
) -> Figure:
    """A matrix with a title at each row; `word` says what the rows are.

    Columns have their ids, `columns`, at them, of more than 30 some of them. Args: scaled_by: as
    of `images`.
    """
    height = 0.9 + max(0.28 * len(values), 0.7) + _room_below(columns)
    figure, (axes,) = figure_of(1, 1, width=7.5, height=height)
    scale = colour_scale(values if scaled_by is None else scaled_by)
    picture = axes.imshow(values, aspect="auto", interpolation="nearest", **scale)
    axes.set_yticks(range(len(values)), titles, parse_math=False)
    axes.set(xlabel="column", ylabel=word)
    label_axis(axes, columns, "x")
    figure.colorbar(picture, ax=axes, pad=0.015).outline.set_visible(False)
    return figure


def label_axis(axes: Axes, names: np.ndarray | None, axis: str, *, most: int | None = None) -> None:
    """Ids at the columns ("x") or rows ("y") of a matrix, at as many of these as can be read."""
    if names is None:
        return
    at = evenly_spread(len(names), most or (_MOST_IDS if axis == "x" else _MOST_ROW_IDS))
    labels = shortened(np.asarray(names)[at].tolist())
    if axis == "x":
        axes.set_xticks(at, labels, parse_math=False)
        axes.tick_params(axis="x", labelrotation=60 if _stand_on_end(names) else 0)
    else:
        axes.set_yticks(at, labels, parse_math=False)


def _stand_on_end(names: np.ndarray | None) -> bool:
    """Whether ids of columns are turned, so that they have room beside each other."""
    return names is not None and len(names) > 8


def _room_below(names: np.ndarray | None) -> float:
    """Inches that ids of columns take of the height of a picture."""
    if names is None or not _stand_on_end(names):
        return 0.0
    return 0.065 * max(map(len, shortened(names.tolist())))


def shortened(names: Sequence[object]) -> list[str]:
    """Ids as they stand beside each other in a picture: at most 14 characters of each.

    Long ones lose their ends, or their middles where the ends are what they differ by.
    """
    texts = list(map(str, names))
    for start in (_LONGEST_ID - 1, 5):
        end = _LONGEST_ID - 1 - start
        labels = [
            text
            if len(text) <= _LONGEST_ID
            else f"{text[:start]}\N{HORIZONTAL ELLIPSIS}{text[len(text) - end :]}"
            for text in texts
        ]
        if len(set(labels)) == len(set(texts)):
            break
    return labels


def row_titles(names: np.ndarray | None, positions: np.ndarray) -> list[str]:
    """The ids of rows, or their positions where the data has no ids."""
    if names is None:
        return [f"row {row}" for row in positions]
    return shortened(np.asarray(names)[positions].tolist())


def trace_panels(quantities: dict[str, np.ndarray], *, along: str) -> Figure:
    """A panel for each quantity (chains, steps), a line for each chain; `along` names the steps."""
    from matplotlib.ticker import MaxNLocator

    size, per_line = len(quantities), min(2, len(quantities))
    figure, axes = figure_of_panels(
        size, per_line, width=4.4, height=1.75, more=(0, 0.2), label=along
    )
    for each, (name, values) in zip(axes, quantities.items(), strict=False):
        for chain, line in enumerate(values):
            colour = CHAIN_COLOURS[chain % len(CHAIN_COLOURS)]
            each.plot(line, color=colour, linewidth=0.9, alpha=0.85)
        each.set_title(name.replace("_", " "), loc="left", fontsize=9, color=INK)
        each.xaxis.set_major_locator(MaxNLocator(integer=True))
        each.grid(axis="y", color=GRID, linewidth=0.6)
        each.margins(x=0.01)
    return figure


def topics_over_panels(over: TopicsOver, titles: list[str]) -> Figure:
    """A panel for each title, that of a topic: its part by bin with two standard errors.

    Where a bin has one document, whose variation is not seen, no shade is drawn. Groups have points
    with bars, and their names below the panels.
    """
    size, per_line = len(titles), min(3, len(titles))
    is_of_groups = over.lower.dtype.kind not in "Mf"
    label = {"M": "date", "f": "value"}.get(over.lower.dtype.kind, "group")
    figure, axes = figure_of_panels(
        size,
        per_line,
        width=3.1,
        height=1.9,
        more=(0, 0.2),
        label=f"{label}, ± 2 standard errors",
    )
    groups = np.arange(over.lower.size)
    middles = groups if is_of_groups else over.lower + (over.upper - over.lower) / 2
    error = np.where(np.isnan(over.error), over.sd, over.error)
    highest = np.nanmax(np.minimum(over.mean + 2 * error, 1)[:, : len(titles)])
    for topic, (each, title) in enumerate(zip(axes, titles, strict=False)):
        mean, twice = over.mean[:, topic], 2 * over.error[:, topic]
        low, high = np.maximum(mean - twice, 0), np.minimum(mean + twice, 1)
        colour = CHAIN_COLOURS[0]
        if is_of_groups:
            each.vlines(middles, low, high, color=colour, alpha=0.4, linewidth=2)
            each.set_xticks(groups, shortened(over.lower.tolist()))
            each.tick_params(axis="x", labelrotation=90 if groups.size > 4 else 0)
            each.margins(x=0.2)
        else:
            each.fill_between(middles, low, high, color=colour, alpha=0.2, linewidth=0)
        width = 0 if is_of_groups else 1.2
        each.plot(middles, mean, color=colour, linewidth=width, marker="o", markersize=3)
        each.set_title(title, loc="left", fontsize=8.5, color=INK, parse_math=False)
        each.grid(axis="y", color=GRID, linewidth=0.6)
        each.set_ylim(0, 1.05 * float(highest) or 1)
        each.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    for each in axes[: len(titles) : per_line]:
        each.set_ylabel("part of the tokens")
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


def side_by_side(
    lines: dict[str, np.ndarray],
    rows: np.ndarray | None = None,
    columns: np.ndarray | None = None,
) -> Figure:
    """Matrices of one shape beside one another, name -> (M, D).

    Up to 40 rows and 20 columns have their ids, `rows` and `columns`, at them.
    """
    num_columns = next(iter(lines.values())).shape[1]
    if num_columns > _MOST_IDS_BESIDE:
        columns = None
    num_rows = len(next(iter(lines.values())))
    named = rows is not None and num_rows <= _MOST_ROW_IDS
    height = max(3.2, 0.14 * num_rows + 1.2) if named else 3.2
    width = 3.4 if columns is None else max(3.4, 0.2 * num_columns)
    figure, axes = figure_of(1, len(lines), width=width * len(lines) + 0.5, height=height)
    scale = colour_scale(np.concatenate(list(lines.values())))
    for each, (name, values) in zip(axes, lines.items(), strict=True):
        picture = each.imshow(values, aspect="auto", interpolation="nearest", **scale)
        each.set_title(name, loc="left", fontsize=9, color=INK)
        each.set_xlabel("column")
        bare(each)
        label_axis(each, columns, "x")
    axes[0].set_ylabel("row")
    label_axis(axes[0], rows if named else None, "y")
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


def scree(sizes: np.ndarray, bounds: np.ndarray) -> Figure:
    """Sizes of factors (K,), largest first, with bounds (2, K)."""
    from matplotlib.ticker import MaxNLocator

    figure, (axes,) = figure_of(1, 1, width=max(4.2, 1.4 + 0.16 * sizes.size), height=2.8)
    errors = np.stack([np.maximum(sizes - bounds[0], 0), np.maximum(bounds[1] - sizes, 0)])
    axes.bar(np.arange(sizes.size), sizes, color=CHAIN_COLOURS[0], width=0.8)
    axes.errorbar(np.arange(sizes.size), sizes, errors, fmt="none", ecolor=INK, elinewidth=1)
    axes.set(xlabel="factor", ylabel="size, root mean square", ylim=(0, None))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure
