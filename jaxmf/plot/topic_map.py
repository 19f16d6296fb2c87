"""Topics as a map: near where their words are alike, large where they have many tokens.

Source: Chuang, Manning & Heer (2012) and Sievert & Shirley (2014) for the map; Torgerson (1952) for
classical multidimensional scaling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from scipy.special import xlogy

from jaxmf.plot.style import CHAIN_COLOURS, GRID, INK, MUTED, SEQUENTIAL, colours, figure_of
from jaxmf.posterior.topic_draws import word_counts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
    from matplotlib.figure import Figure
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

    from jaxmf.posterior.answers import Answers
    from jaxmf.posterior.topic_table import Topics

_LARGEST = 1500.0  # area of the largest circle, in square points
_SMALLEST = 50.0
_NUMBERED = 90.0  # circles below this area have their label beside them
_LISTED = 24
_LINE = 62  # characters of words of a topic
_NUM_WORDS = 20


class Scaled(NamedTuple):
    """Points in the plane."""

    positions: np.ndarray  # (G, 2) float
    explained: np.ndarray  # (2,) float, what part of the squared distances each axis has


def squared_distances(probabilities: np.ndarray) -> np.ndarray:
    """Jensen-Shannon divergences of distributions (G, V), in nats: (G, G) float.

    Their square roots are distances.
    """
    entropies = -xlogy(probabilities, probabilities).sum(axis=1)
    result = np.zeros((len(probabilities),) * 2)
    for index, one in enumerate(probabilities):
        middle = (one + probabilities[:index]) / 2
        between = -xlogy(middle, middle).sum(axis=1)
        divergence = between - (entropies[index] + entropies[:index]) / 2
        result[index, :index] = result[:index, index] = np.maximum(divergence, 0)
    return result


def scale(squared: np.ndarray) -> Scaled:
    """Classical multidimensional scaling of squared distances (G, G) to the plane.

    The sign of an axis is such that its point furthest from 0 is positive.
    """
    centred = squared - squared.mean(axis=0)
    products = -(centred - centred.mean(axis=1, keepdims=True)) / 2
    values, vectors = np.linalg.eigh((products + products.T) / 2)
    largest = np.maximum(values[::-1][:2], 0)
    positions = vectors[:, ::-1][:, :2] * np.sqrt(largest)
    furthest = np.take_along_axis(positions, np.abs(positions).argmax(axis=0)[None], axis=0)
    positions = positions * np.where(furthest < 0, -1, 1)
    explained = largest / max(np.maximum(values, 0).sum(), np.finfo(float).tiny)
    short = 2 - largest.size
    return Scaled(np.pad(positions, ((0, 0), (0, short))), np.pad(explained, (0, short)))


def topics(posterior: Answers, topic: int | None = None, *, max_topics: int = 60) -> Figure:
    """A map of the topics: near where their words are alike, large where they have many tokens.

    Topics are those of `Posterior.topics`, in the order of their size in the reference draw;
    areas of circles are shares of the tokens, pale topics are in few draws. Distances are
    square roots of Jensen-Shannon divergences of the words, shown in the plane by classical
    multidimensional scaling.

    Args:
        topic: one whose most relevant words are shown beside the map; all topics with their
            distinctive words by default.
        max_topics: how many are shown at most, the first ones.
    Raises:
        ValueError: a topic that there is not, or that is not among the first `max_topics`.
    """
    table = posterior.topics(n=_NUM_WORDS)
    shown = min(len(table), max_topics)
    if topic is not None and topic >= shown:
        raise ValueError(
            f"topic: {topic} is not among the {shown} topics that max_topics={max_topics} shows; "
            f"pass max_topics={topic + 1} or more"
        )
    figure, axes = figure_of(1, 2, width=9.6, height=5.2)
    scaled = scale(squared_distances(table.word_probabilities[:shown]))
    sizes = np.maximum(table.shares[:shown], 0)
    areas = np.maximum(_LARGEST * sizes / max(sizes.max(), 1e-12), _SMALLEST)
    x, y = scaled.positions.T
    edges = [CHAIN_COLOURS[1] if index == topic else "white" for index in range(shown)]
    axes[0].axhline(0, color=GRID, linewidth=0.8, zorder=0)
    axes[0].axvline(0, color=GRID, linewidth=0.8, zorder=0)
    circles = axes[0].scatter(
        x,
        y,
        s=areas,
        c=table.found[:shown],
        cmap=colours(SEQUENTIAL[1:3]),
        vmin=0,
        vmax=1,
        alpha=0.45,  # the numbers are read on them, on a dark page too
        edgecolors=edges,
        linewidths=[2.0 if index == topic else 0.8 for index in range(shown)],
    )
    first, second = (f"{part:.0%} of squared distances" for part in scaled.explained)
    axes[0].set(xlabel=f"first axis, {first}", ylabel=f"second axis, {second}")
    low, high = scaled.positions.min(axis=0), scaled.positions.max(axis=0)
    # a quarter more on each side for circles and labels; of margins an equal aspect takes away
    axes[0].update_datalim([low - (high - low) / 4, high + (high - low) / 4])
    axes[0].autoscale_view()
    axes[0].set_aspect("equal", adjustable="datalim")
    bar = figure.colorbar(circles, ax=axes[0], orientation="horizontal", shrink=0.5, aspect=30)
    bar.set_label("part of the draws that have the topic", fontsize=7.5, color=MUTED)
    bar.ax.tick_params(labelsize=7, colors=MUTED)
    bar.outline.set_visible(False)
    if topic is None:
        _list(axes[1], table, shown)
    else:
        _bars(axes[1], posterior, table, topic)
    _label(figure, axes[0], table, scaled.positions, areas)
    return figure


def _list(axes: Axes, topics: Topics, shown: int) -> None:
    """The topics by size with their distinctive words."""
    axes.set_axis_off()
    listed = min(shown, _LISTED)
    for topic, words in enumerate(topics.lists("distinction")[:listed]):
        height = 1 - (topic + 0.5) / (_LISTED + 1)
        text = ", ".join(map(str, words))
        if len(text) > _LINE:
            text = text[:_LINE].rsplit(",", 1)[0] + ", ..."
        share = f"{topics.shares[topic]:.1%}"
        style: dict[str, Any] = {
            "fontsize": 7.5,
            "va": "center",
            "color": INK,
            "transform": axes.transAxes,
        }
        axes.text(0.03, height, str(topic), ha="right", weight="bold", **style)
        axes.text(0.15, height, share, ha="right", **(style | {"color": MUTED}))
        axes.text(0.18, height, text, parse_math=False, **style)
    if len(topics) > listed:
        rest = f"and {len(topics) - listed} smaller topics"
        height = 1 - (listed + 0.5) / (_LISTED + 1)
        axes.text(0.18, height, rest, fontsize=7.5, color=MUTED, transform=axes.transAxes)
    axes.set_title("topic, share of tokens, distinctive words", loc="left", fontsize=8.5)


def _bars(axes: Axes, posterior: Answers, topics: Topics, topic: int) -> None:
    """The most relevant words of a topic: how often the data has them, and in this topic."""
    counts = word_counts(posterior, topics.words.size)
    words = topics.relevant.lists()[topic]
    index_of = {word: index for index, word in enumerate(topics.words.tolist())}
    chosen = [index_of[word] for word in words]
    inside = topics.shares[topic] * counts.sum() * topics.word_probabilities[topic, chosen]
    heights = np.arange(len(words))[::-1]
    axes.barh(heights, counts[chosen], color=SEQUENTIAL[1], label="in the data")
    axes.barh(heights, inside, color=CHAIN_COLOURS[0], height=0.5, label="in the topic, expected")
    axes.set_yticks(heights, [str(word) for word in words], parse_math=False)
    axes.set(xlabel="tokens", ylim=(-0.7, _NUM_WORDS - 0.3))
    axes.legend(frameon=False, fontsize=7.5, loc="lower right")
    title = f"topic {topic}, {topics.shares[topic]:.1%} of the tokens: most relevant words"
    axes.set_title(f"{title} (\N{GREEK SMALL LETTER LAMDA} = {topics.relevance:g})", fontsize=8.5)


def _label(
    figure: Figure, axes: Axes, topics: Topics, positions: np.ndarray, areas: np.ndarray
) -> None:
    """Number the circles, and write words beside those where these cover nothing else."""
    from matplotlib.transforms import Bbox

    for _ in range(2):  # the limits that follow from the first layout have other tick labels
        figure.draw_without_rendering()
    figure.set_layout_engine("none")
    renderer = cast("FigureCanvasAgg", figure.canvas).get_renderer()
    radii = np.sqrt(areas / np.pi)
    for topic, (position, radius) in enumerate(zip(positions, radii, strict=True)):
        small = np.pi * radius**2 < _NUMBERED
        axes.annotate(
            str(topic),
            tuple(position),
            xytext=(radius + 2, 0) if small else (0, 0),
            textcoords="offset points",
            ha="left" if small else "center",
            va="center",
            fontsize=7,
            color=INK,
        )
    taken = [text.get_window_extent(renderer) for text in axes.texts]
    taken += [
        Bbox.from_bounds(x - radius, y - radius, 2 * radius, 2 * radius)
        for (x, y), radius in zip(
            axes.transData.transform(positions), 0.8 * radii * figure.dpi / 72, strict=True
        )
    ]
    for topic, words in enumerate(topics.labels(2)[: len(areas)]):
        label = _free_label(axes, words, positions[topic], radii[topic], taken, renderer)
        if label is not None:
            taken.append(label.get_window_extent(renderer))


def _free_label(
    axes: Axes,
    words: str,
    position: np.ndarray,
    radius: float,
    taken: list[Bbox],
    renderer: RendererAgg,
) -> Text | None:
    """Words below, above or beside a circle where nothing else is written, or None."""
    frame = axes.get_window_extent(renderer)
    for x, y in ((0, -1), (0, 1), (1, 0), (-1, 0)):
        label = axes.annotate(
            words,
            tuple(position),
            xytext=((radius + 3) * x, (radius + 2) * y),
            textcoords="offset points",
            ha=("right", "center", "left")[x + 1],
            va=("top", "center", "bottom")[y + 1],
            fontsize=6.5,
            color=INK,
            parse_math=False,
        )
        box = label.get_window_extent(renderer)
        inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0
        if inside and box.y1 <= frame.y1 and not any(box.overlaps(other) for other in taken):
            return label
        label.remove()
    return None
