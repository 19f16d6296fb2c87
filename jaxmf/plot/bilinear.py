"""Pictures of binary matrix factorisation: features of both sides, completed rows, blocks.

They follow Figures 2 to 5 of Meeds, Ghahramani, Neal & Roweis (2006).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jaxmf.data import Positions
from jaxmf.data.convert import complete_matrix
from jaxmf.diagnostics import evenly_spread
from jaxmf.model import settings_of
from jaxmf.plot.panels import image_lines, images, label_axis, matrix, row_titles, side_by_side
from jaxmf.plot.style import (
    CHAIN_COLOURS,
    INK,
    MUTED,
    SEQUENTIAL,
    bare,
    colour_scale,
    colours,
    empty,
    figure_of,
)
from jaxmf.posterior.biclusters import by_frequency

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from jaxmf.posterior.answers import Answers

_FAR_MEANS = 2  # times what rows differ by, beyond which column means would take all colours
_ROUNDING = 1e-6  # of a number in single precision
_FAR_SPREADS = 10  # times the smallest sd of a column, beyond which one column would take them


def column_features(
    posterior: Answers, *, image_shape: tuple[int, int] | None = None, max_features: int = 24
) -> Figure:
    """The features of the columns in the reference draw, most frequent first: which columns.

    Args: posterior: of a model that keeps `v`; image_shape (height, width) to draw each as an
    image; max_features: how many are shown at most.
    """
    v = _reference(posterior)["v"]
    order = by_frequency(v)[:max_features]
    if order.size == 0:
        return empty("the reference draw has no features of columns")
    share = v[:, order].mean(axis=0)
    titles = [f"{100 * value:.0f} % of columns" for value in share]
    values = v[:, order].T.astype(float)
    if image_shape is None:
        return matrix(values, titles, "feature", posterior.data.column_names)
    return images(values, titles, image_shape)


def average_images(
    posterior: Answers, *, image_shape: tuple[int, int], max_features: int = 24
) -> Figure:
    """The mean of the observed rows that have each row feature, most frequent first.

    Args: image_shape (height, width); max_features: how many are shown at most.
    """
    u = posterior.reference_draw()["z"]
    order = by_frequency(u)[:max_features]
    if order.size == 0:
        return empty("the reference draw has no features of rows")
    values = posterior.data.to_array()
    seen = np.isfinite(values).astype(float)
    total = u[:, order].T.astype(float) @ np.nan_to_num(values)
    counts = u[:, order].T.astype(float) @ seen
    means = np.where(counts > 0, total / np.maximum(counts, 1), np.nan)
    titles = [f"{count} rows" for count in u[:, order].sum(axis=0)]
    return images(means, titles, image_shape)


def completed(
    posterior: Answers,
    rows: object = None,
    *,
    image_shape: tuple[int, int] | None = None,
    truth: object = None,
    others: dict[str, object] | None = None,
    max_rows: int = 12,
) -> Figure:
    """Rows with missing cells as they were shown, and completed by the posterior mean.

    A matrix is shown in standard deviations of its columns where these differ tenfold.

    Args:
        rows: (R,) positions; those with missing cells by default.
        image_shape: (height, width) to draw rows as images; as rows of matrices otherwise.
        truth: (I, J) the complete matrix, shown first.
        others: name -> (R, J) further lines, such as other methods.
        max_rows: how many are shown at most.
    """
    values = posterior.data.to_array()
    if rows is None:
        rows = np.flatnonzero(np.isnan(values).any(axis=1))
    positions = np.asarray(rows)[:max_rows]
    if positions.size == 0:
        return empty("no row has missing cells")
    shown = values[positions]
    mean = posterior.reconstruction(Positions(positions))
    lines = {}
    if truth is not None:
        lines["complete"] = complete_matrix(truth, posterior.data, argument="truth")[positions]
    lines |= {"shown": shown, "mean": np.where(np.isnan(shown), mean, shown)}
    if posterior.model.cell_distribution == "bernoulli":
        lines["mode"] = np.where(np.isnan(shown), (mean > 0.5).astype(float), shown)
    for name, filled in (others or {}).items():
        lines[name] = np.asarray(filled, float)[: positions.size]
    if image_shape is None:
        lines = in_one_unit(lines, values)
    return draw_lines(posterior, lines, positions, image_shape)


def draw_lines(
    posterior: Answers,
    lines: dict[str, np.ndarray],
    positions: np.ndarray,
    image_shape: tuple[int, int] | None,
) -> Figure:
    """Rows of the data in several forms, name -> (R, J), as images or as matrices with ids."""
    data = posterior.data
    if image_shape is not None:
        return image_lines(lines, row_titles(data.row_names, positions), image_shape)
    ids = None if data.row_names is None else np.asarray(data.row_names)[positions]
    return side_by_side(lines, ids, data.column_names)


def in_one_unit(lines: dict[str, np.ndarray], values: np.ndarray) -> dict[str, np.ndarray]:
    """Rows in several forms, name -> (R, J), in standard deviations from the means of the columns.

    As they are where no column of measurements differs much more than another, for colours then
    show all columns. Columns of one or two values, such as yes and no, do not count.

    Args: values: (I, J) the data, NaN where missing.
    """
    is_known = np.isfinite(values)
    counts = np.maximum(is_known.sum(axis=0), 1)
    means = np.sum(values, axis=0, where=is_known) / counts
    spreads = np.sqrt(np.sum((values - means) ** 2, axis=0, where=is_known) / counts)
    # sums of equal numbers are rounded
    varies = spreads > _ROUNDING * np.abs(np.where(is_known, values, 0)).max(axis=0)
    several = [
        np.unique(cells[known]).size > 2 for cells, known in zip(values.T, is_known.T, strict=True)
    ]
    measured = spreads[varies & several]
    if measured.size == 0 or measured.max() <= _FAR_SPREADS * measured.min():
        return lines
    units = np.where(varies, spreads, 1)
    return {f"{name}, in sd of columns": (each - means) / units for name, each in lines.items()}


def less_column_means(lines: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Rows in several forms, name -> (R, J), less the column means of the first.

    As they are where the means are small beside what rows differ by: colours then show the rows.
    """
    first = next(iter(lines.values()))
    is_known = np.isfinite(first)
    sums = np.sum(first, axis=0, where=is_known)
    means = sums / np.maximum(is_known.sum(axis=0), 1)
    within = np.std((first - means)[is_known]) if is_known.any() else 0.0
    if np.sqrt(np.mean(means**2)) <= _FAR_MEANS * within:
        return lines
    return {f"{name}, less column means": values - means for name, values in lines.items()}


def biclusters(
    posterior: Answers, *, max_biclusters: int = 8, max_rows: int = 400, max_columns: int = 400
) -> Figure:
    """The matrix sorted by its surest biclusters, each with a frame, and known features beside it.

    Ids stand at the rows and columns where these are few. Frames go around the longest runs of
    members: rows that are in several biclusters cannot be beside all of their fellows.

    Args:
        posterior: of binary matrix factorisation.
        max_biclusters: how many have frames, the surest first.
        max_rows: more rows than this are thinned evenly.
        max_columns: more columns than this are thinned evenly.
    """
    found = posterior.biclusters()
    count = min(max_biclusters, len(found))
    if count == 0:
        return empty("no bicluster whose weight is beyond its uncertainty")
    known = settings_of(posterior.model).get("fixed_row_features")
    rows = _sorted_by_members(found.rows[:count], max_rows)
    columns = _sorted_by_members(found.columns[:count], max_columns)
    values = posterior.data.to_array()[np.ix_(rows, columns)]
    figure, axes = figure_of(1, 1 if known is None else 2, width=8.4, height=5.6)
    grid = axes[0].get_gridspec()
    if known is not None and grid is not None:
        strip = np.asarray(known, float)[rows]
        grid.set_width_ratios([min(0.04 * strip.shape[1], 0.3), 1])
        bits: dict[str, Any] = {"cmap": colours(SEQUENTIAL), "vmin": 0, "vmax": 1.4}
        axes[0].imshow(strip, aspect="auto", interpolation="nearest", **bits)
        bare(axes[0])
        axes[0].set_xlabel("known\nfeatures", fontsize=7.5)
    picture = axes[-1].imshow(
        values, aspect="auto", interpolation="nearest", **colour_scale(values)
    )
    bare(axes[-1])
    label_axis(axes[-1], found.column_names[columns], "x")
    label_axis(axes[0], found.row_names[rows], "y")
    axes[-1].set_xlabel("columns, sorted by biclusters", color=MUTED)
    axes[0].set_ylabel("rows, sorted by biclusters", color=MUTED)
    figure.colorbar(picture, ax=axes[-1], pad=0.015).outline.set_visible(False)
    frames = [
        frame_of(members[rows], found.columns[index][columns])
        for index, members in enumerate(found.rows[:count])
    ]
    corners = [frame and frame[:2] for frame in frames]
    for index, frame in reversed(list(enumerate(frames))):  # the surest above the others
        if frame is not None:
            labels_before = corners[:index].count(frame[:2])
            _draw_frame(axes[-1], frame, index, label=str(index), shift=14 * labels_before)
    return figure


def _sorted_by_members(members: np.ndarray, most: int) -> np.ndarray:
    """Positions of rows sorted by the biclusters (B, N) that they are in, thinned to `most`."""
    order = order_by_features(members.T)
    if order.size <= most:
        return order
    return order[np.linspace(0, order.size - 1, most).astype(int)]


def frame_of(rows: np.ndarray, columns: np.ndarray) -> tuple[int, int, int, int] | None:
    """Top, left, height and width of the longest runs of members; None without any."""
    sides = [max(runs(bits), key=lambda run: run[1], default=None) for bits in (rows, columns)]
    if sides[0] is None or sides[1] is None:
        return None
    (top, height), (left, width) = sides[0], sides[1]
    return top, left, height, width


def blocks(
    posterior: Answers,
    *,
    expected: bool = False,
    max_pairs: int = 8,
    max_rows: int = 4_000,
) -> Figure:
    """The matrix with rows and columns sorted by their features in the reference draw.

    Top left X, or its expectation; bottom left V'; top right U; bottom right W. Frames mark the
    two largest contiguous regions of the feature pairs with the largest weights.

    Args:
        posterior: of binary matrix factorisation.
        expected: show the expected matrix in place of the data.
        max_pairs: pairs of features with frames.
        max_rows: more rows than this are thinned evenly.
    """
    draw = _reference(posterior)
    u, v = draw["z"], draw["v"]
    weights = np.asarray(posterior.model.expected_weights(draw, posterior.data))
    rows = np.arange(len(u))
    if rows.size > max_rows:
        rows = evenly_spread(len(u), max_rows)
    if not u.any() or not v.any():
        return empty("the reference draw has no features on one of the sides")
    values = (
        posterior.reconstruction(Positions(rows)) if expected else posterior.data.to_array()[rows]
    )
    title = "expected" if expected else "data"
    return draw_blocks(values, u[rows], v, weights, title=title, max_pairs=max_pairs)


def draw_blocks(
    values: np.ndarray,
    u: np.ndarray,
    v: np.ndarray,
    weights: np.ndarray,
    *,
    title: str = "data",
    max_pairs: int = 8,
) -> Figure:
    """The picture of `blocks` from arrays: values (I, J), U (I, K), V (J, L), W (K, L)."""
    row_features, column_features = by_frequency(u), by_frequency(v)
    rows = order_by_features(u[:, row_features])
    columns = order_by_features(v[:, column_features])
    u, v = u[rows][:, row_features], v[columns][:, column_features]
    weights = weights[np.ix_(row_features, column_features)]
    values = values[np.ix_(rows, columns)]
    figure, axes = _block_axes(weights.shape)
    axes[0].imshow(values, aspect="auto", interpolation="nearest", **colour_scale(values))
    axes[0].set_title(title, loc="left")
    bits: dict[str, Any] = {"cmap": colours(SEQUENTIAL), "vmin": 0, "vmax": 1.4, "aspect": "auto"}
    axes[1].imshow(u, interpolation="nearest", **bits)
    axes[1].set_title("U", loc="left")
    axes[2].imshow(v.T, interpolation="nearest", **bits)
    axes[2].set_ylabel("V'")
    axes[3].imshow(weights, aspect="auto", interpolation="nearest", **colour_scale(weights))
    axes[3].set_ylabel("W")
    for each in axes:
        bare(each)
    _frame(axes[0], u, v, weights, max_pairs)
    return figure


def _block_axes(shape: tuple[int, int]) -> tuple[Figure, list[Axes]]:
    figure, axes = figure_of(2, 2, width=8.4, height=6.4)
    grid = axes[0].get_gridspec()
    assert grid is not None
    grid.set_width_ratios([5, max(0.8, min(2.0, 0.25 * shape[0]))])
    grid.set_height_ratios([5, max(0.8, min(2.0, 0.25 * shape[1]))])
    return figure, axes


def _frame(axes: Axes, u: np.ndarray, v: np.ndarray, weights: np.ndarray, max_pairs: int) -> None:
    """Frames around the two largest contiguous regions of the pairs with the largest weights."""
    strongest = np.argsort(-np.abs(weights), axis=None)[:max_pairs]
    for index, pair in enumerate(strongest):
        row_feature, column_feature = np.unravel_index(pair, weights.shape)
        regions = [
            (top, left, height, width)
            for top, height in runs(u[:, row_feature])
            for left, width in runs(v[:, column_feature])
        ]
        for top, left, height, width in sorted(regions, key=lambda r: -r[2] * r[3])[:2]:
            _draw_frame(axes, (top, left, height, width), index)
    axes.set_xlabel("columns, sorted by features", color=MUTED)
    axes.set_ylabel("rows, sorted by features", color=MUTED)


def _draw_frame(
    axes: Axes,
    frame: tuple[int, int, int, int],
    index: int,
    *,
    label: str | None = None,
    shift: int = 0,
) -> None:
    """A frame around top, left, height and width, in the colour of an index; shift in points."""
    from matplotlib.patches import Rectangle

    top, left, height, width = frame
    colour = CHAIN_COLOURS[index % len(CHAIN_COLOURS)]
    corner = (left - 0.5, top - 0.5)
    axes.add_patch(Rectangle(corner, width, height, fill=False, edgecolor=colour, linewidth=1.3))
    if label is not None:
        style: dict[str, Any] = {
            "xytext": (2 + shift, -2),
            "textcoords": "offset points",
            "va": "top",
            "fontsize": 8,
            "weight": "bold",
            "color": INK,
            "bbox": {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": colour},
        }
        axes.annotate(label, corner, **style)


def order_by_features(bits: np.ndarray) -> np.ndarray:
    """An order of rows (N, K) in which equal ones, then equal first features, lie together."""
    return np.lexsort((~bits.astype(bool))[:, ::-1].T)


def runs(bits: np.ndarray) -> list[tuple[int, int]]:
    """Start and length of every run of ones.

    Example:
        >>> runs(np.array([False, True, True, False, True]))
        [(1, 2), (4, 1)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[0], bits.astype(int), [0]])))
    return [
        (int(start), int(end - start)) for start, end in zip(edges[::2], edges[1::2], strict=True)
    ]


def _reference(posterior: Answers) -> dict[str, np.ndarray]:
    draw = posterior.reference_draw()
    if "v" not in draw:
        raise ValueError(f"{type(posterior.model).__name__} has no features of columns")
    return draw
