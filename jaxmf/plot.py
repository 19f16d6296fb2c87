"""Pictures of a posterior, reached as ``post.plot.features()`` and so on.

Each gives back a matplotlib Figure outside pyplot: a notebook shows it, ``savefig`` writes it.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from jaxmf.posterior import Posterior

INK = "#1f2933"
MUTED = "#7b8794"
GRID = "#e4e7eb"
CHAIN_COLOURS = ("#2f6db5", "#d9822b", "#3a9d6e", "#b5467b", "#7a5fc0", "#8a6d3b")
_SIGNED = ("#1d4e89", "#7fb0dd", "#ffffff", "#f4b678", "#b3541e")
_SEQUENTIAL = ("#ffffff", "#cfe1f2", "#7fb0dd", "#2f6db5", "#123a66")


class Plots:
    """Pictures of one posterior.

    Args:
        posterior: what is shown.
    """

    def __init__(self, posterior: Posterior) -> None:
        self._posterior = posterior

    def __repr__(self) -> str:
        names = [name for name in dir(self) if not name.startswith("_")]
        return "post.plot: " + ", ".join(f"{name}()" for name in names)

    def features(
        self, *, image_shape: tuple[int, int] | None = None, max_features: int = 24
    ) -> Figure:
        """The features of the reference draw (highest log joint), most frequent first.

        Args:
            image_shape: (height, width) to draw each as an image; as rows of a matrix otherwise.
            max_features: how many are shown at most.
        """
        features = self._posterior.features()
        mean = features.mean[:max_features]
        if mean.shape[0] == 0:
            return _empty("the reference draw has no features")
        share = features.counts[:max_features] / self._posterior.data.num_rows
        titles = [f"{100 * value:.0f} % of rows" for value in share]
        if getattr(self._posterior.model, "bias", False):
            titles[int(np.argmin(features.slots))] = "bias, every row"
        if image_shape is None:
            return _matrix(mean, titles, "feature")
        return _images(mean, titles, image_shape)

    def trace(self, names: Sequence[str] | None = None) -> Figure:
        """Label-free quantities along the run: draws of every chain, or the steps of a filter.

        Args:
            names: which quantities; all scalars by default.
        """
        quantities = _traces(self._posterior)
        names = list(quantities) if names is None else list(names)
        unknown = [name for name in names if name not in quantities]
        if unknown:
            raise ValueError(
                f"there is no trace of {unknown[0]!r}; there are {', '.join(quantities)}"
            )
        varying = [name for name in names if np.ptp(quantities[name]) > 0] or names[:1]
        by_row = self._posterior.is_weighted
        return _trace_panels({name: quantities[name] for name in varying}, by_row=by_row)

    def num_features(self) -> Figure:
        """Posterior distribution of the number of features."""
        from matplotlib.ticker import MaxNLocator

        values, probabilities = self._posterior.num_features()
        figure, (axes,) = _figure(1, 1, width=4.2, height=2.8)
        full = np.arange(values.min(), values.max() + 1)
        heights = np.zeros(full.size)
        heights[values - values.min()] = probabilities
        axes.bar(full, heights, color=CHAIN_COLOURS[0], width=0.8)
        axes.set(xlabel="number of features", ylabel="probability")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlim(full[0] - 0.9, full[-1] + 0.9)
        return figure

    def cooccurrence(self, rows: Any = None, *, max_rows: int = 300) -> Figure:
        """Heat map of E[ZZ'], rows sorted by the features they have in the reference draw.

        Args:
            rows: which rows; all by default.
            max_rows: more rows than this are thinned evenly.
        """
        posterior = self._posterior
        rows = np.arange(posterior.data.num_rows) if rows is None else np.asarray(rows)
        if rows.size > max_rows:
            rows = rows[np.linspace(0, rows.size - 1, max_rows).astype(int)]
        z = posterior.reference_draw()["z"][rows]
        order = np.lexsort((-z.astype(int))[:, np.argsort(-z.sum(axis=0), kind="stable")[::-1]].T)
        shared = posterior.cooccurrence(_ids_of(posterior.data, rows[order]))
        figure, (axes,) = _figure(1, 1, width=4.8, height=4.0)
        picture = axes.imshow(shared, cmap=_colours(_SEQUENTIAL), vmin=0, interpolation="nearest")
        _bare(axes)
        axes.set(xlabel="rows, sorted by features", ylabel="rows, in the same order")
        figure.colorbar(picture, ax=axes, shrink=0.85).set_label("shared features, E[ZZ']")
        return figure

    def reconstruction(
        self,
        rows: Sequence[int] | None = None,
        *,
        image_shape: tuple[int, int] | None = None,
        truth: Any = None,
    ) -> Figure:
        """Some rows as observed, beside the posterior mean of the features added up.

        Args:
            rows: which rows, eight spread over the data by default.
            image_shape: (height, width) to draw rows as images.
            truth: (N, D) the complete matrix; adds a line of what the missing cells held.
        """
        posterior = self._posterior
        number = 8 if image_shape else 40
        places = _spread(posterior.data.num_rows, number) if rows is None else np.asarray(rows)
        observed = posterior.data.to_array()[places]
        lines = {"observed": observed, "reconstructed": posterior.reconstruction(places)}
        if truth is not None:
            lines["complete"] = np.asarray(truth, dtype=float)[places]
        if image_shape is None:
            return _side_by_side(lines)
        return _image_lines(lines, [f"row {row}" for row in places], image_shape)

    def held_out(self, truth: Any, *, max_cells: int = 2_000) -> Figure:
        """Predictions of the missing cells against what they were, with 90 % intervals.

        Args:
            truth: (N, D) the complete matrix.
            max_cells: more cells than this are thinned evenly.
        """
        rows, columns = self._posterior.data.missing_cells()
        if rows.size > max_cells:
            some = _spread(rows.size, max_cells)
            rows, columns = rows[some], columns[some]
        names = _ids_of_cells(self._posterior.data, rows, columns)
        prediction = self._posterior.predict(names, quantiles=(0.05, 0.95))
        return held_out_picture(np.asarray(truth, dtype=float)[rows, columns], prediction)


def held_out_picture(known: np.ndarray, prediction: Any) -> Figure:
    """Known values of held-out cells against their predictions, with intervals."""
    figure, (axes,) = _figure(1, 1, width=4.2, height=3.6)
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


def png(figure: Figure, *, dots_per_inch: int = 150) -> bytes:
    """A figure as the bytes of a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dots_per_inch)
    return file.getvalue()


def _traces(posterior: Posterior) -> dict[str, np.ndarray]:
    if posterior.is_weighted:
        return posterior.trace
    return posterior.quantities()


def _figure(num_rows: int, num_columns: int, *, width: float, height: float) -> tuple[Any, list]:
    """A figure outside pyplot's list of open ones, and its axes row by row."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.08)
    figure = Figure(figsize=(width, height), layout=layout, facecolor="white")
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


def _bare(axes: Any) -> None:
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(True)
        spine.set_color(GRID)


def _empty(words: str) -> Figure:
    figure, (axes,) = _figure(1, 1, width=4, height=1)
    axes.set_axis_off()
    axes.text(0.5, 0.5, words, ha="center", va="center", color=MUTED, fontsize=10)
    return figure


def _colours(colours: Sequence[str], *, missing: str = "#eef0f2") -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("jaxmf", colours).with_extremes(bad=missing)


def _scale(values: np.ndarray) -> dict[str, Any]:
    """Colours for a matrix: white is zero where there are two signs, dark is high otherwise."""
    finite = values[np.isfinite(values)]
    low, high = np.quantile(finite, (0.01, 0.995)) if finite.size else (0.0, 1.0)
    if low < -0.15 * max(high, 1e-12):
        bound = float(np.quantile(np.abs(finite), 0.995)) or 1.0
        return {"cmap": _colours(_SIGNED), "vmin": -bound, "vmax": bound}
    return {"cmap": _colours(_SEQUENTIAL), "vmin": 0.0, "vmax": high or 1.0}


def check_image_shape(image_shape: tuple[int, int], size: int) -> None:
    """Refuse a (height, width) that does not hold a row of `size` cells."""
    height, width = image_shape
    if height * width != size:
        raise ValueError(
            f"image_shape {height} x {width} has {height * width} cells, rows have {size}"
        )


def _images(values: np.ndarray, titles: list[str], image_shape: tuple[int, int]) -> Figure:
    check_image_shape(image_shape, values.shape[1])
    per_line = min(len(values), 8)
    lines = -(-len(values) // per_line)
    figure, axes = _figure(lines, per_line, width=1.15 * per_line + 0.4, height=1.5 * lines)
    scale = _scale(values)
    for each in axes:
        each.set_axis_off()
    for each, image, title in zip(axes, values, titles, strict=False):
        each.set_axis_on()
        picture = each.imshow(image.reshape(image_shape), interpolation="nearest", **scale)
        each.set_title(title, fontsize=7.5, color=MUTED, pad=3)
        _bare(each)
    bar = figure.colorbar(picture, ax=axes, shrink=0.8, aspect=25 * lines, pad=0.015)
    bar.ax.tick_params(labelsize=7, colors=MUTED)
    bar.outline.set_visible(False)
    return figure


def _matrix(values: np.ndarray, titles: list[str], word: str) -> Figure:
    figure, (axes,) = _figure(1, 1, width=7.5, height=0.9 + 0.28 * len(values))
    picture = axes.imshow(values, aspect="auto", interpolation="nearest", **_scale(values))
    axes.set_yticks(range(len(values)), titles)
    axes.set(xlabel="column", ylabel=word)
    figure.colorbar(picture, ax=axes, pad=0.015).outline.set_visible(False)
    return figure


def _trace_panels(quantities: dict[str, np.ndarray], *, by_row: bool) -> Figure:
    per_line = min(2, len(quantities))
    lines = -(-len(quantities) // per_line)
    figure, axes = _figure(lines, per_line, width=4.4 * per_line, height=1.75 * lines + 0.2)
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
        each.set_xlabel("row" if by_row else "draw")
    return figure


def _image_lines(
    lines: dict[str, np.ndarray], titles: list[str], image_shape: tuple[int, int]
) -> Figure:
    first = next(iter(lines.values()))
    check_image_shape(image_shape, first.shape[1])
    figure, axes = _figure(len(lines), len(first), width=1.1 * len(first), height=1.3 * len(lines))
    scale = _scale(np.concatenate(list(lines.values())))
    for place, (each, image) in enumerate(
        zip(axes, np.concatenate(list(lines.values())), strict=True)
    ):
        each.imshow(image.reshape(image_shape), interpolation="nearest", **scale)
        _bare(each)
        line, column = divmod(place, len(first))
        if column == 0:
            each.set_ylabel(list(lines)[line], fontsize=8)
        if line == 0:
            each.set_title(titles[column], fontsize=7.5, color=MUTED, pad=3)
    return figure


def _side_by_side(lines: dict[str, np.ndarray]) -> Figure:
    figure, axes = _figure(1, len(lines), width=3.4 * len(lines) + 0.5, height=3.2)
    scale = _scale(np.concatenate(list(lines.values())))
    for each, (name, values) in zip(axes, lines.items(), strict=True):
        picture = each.imshow(values, aspect="auto", interpolation="nearest", **scale)
        each.set_title(name, loc="left")
        each.set_xlabel("column")
        _bare(each)
    axes[0].set_ylabel("row")
    figure.colorbar(picture, ax=axes, pad=0.015).outline.set_visible(False)
    return figure


def _spread(size: int, number: int) -> np.ndarray:
    return np.unique(np.linspace(0, size - 1, min(number, size)).astype(int))


def _ids_of(data: Any, rows: np.ndarray) -> Any:
    return rows if data.row_names is None else data.row_names[rows]


def _ids_of_cells(data: Any, rows: np.ndarray, columns: np.ndarray) -> Any:
    names = data.column_names
    return _ids_of(data, rows), columns if names is None else names[columns]
