"""The causal graph of a draw: hidden causes above, observed rows below, an edge for each one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxmf.diagnostics import evenly_spread
from jaxmf.plot.panels import shortened
from jaxmf.plot.style import CHAIN_COLOURS, INK, MUTED, SHADED, empty, figure_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from jaxmf.posterior.answers import Answers


def causal_graph(
    z: np.ndarray,
    *,
    row_names: Sequence[object] | np.ndarray | None = None,
    title: str = "",
) -> Figure:
    """The bipartite graph of a binary matrix, as in Figure 4 of Wood & Griffiths (2006).

    Args:
        z: (N, K) bool; causes that no row has are left out.
        row_names: N labels of the observed variables; their positions by default.
    Returns:
        A Figure.
    """
    z = np.asarray(z, bool)
    if not z.any():
        return empty("the draw has no causes")
    width = float(np.clip(0.45 * max(z.shape[0], z.any(axis=0).sum()), 2.5, 14))
    longest = 0 if row_names is None else max(map(len, shortened(list(row_names))))
    height = 2.2 + min(0.06 * longest, 1.6)  # names on end have their length below the graph
    figure, (axes,) = figure_of(1, 1, width=width, height=height)
    draw_graph(axes, z, row_names=row_names)
    axes.set_title(title, loc="left", fontsize=9, color=INK)
    return figure


def draw_graph(
    axes: Axes, z: np.ndarray, *, row_names: Sequence[object] | np.ndarray | None = None
) -> None:
    """The same on given axes; observed variables are shaded, causes are not.

    Causes stand in the order of the middle of their rows, so that few edges cross.

    Args: z (N, K) bool; row_names: N labels, or None for positions.
    """
    z = np.asarray(z, bool)
    num_rows = len(z)
    used = np.flatnonzero(z.any(axis=0))
    middles = np.array([np.flatnonzero(z[:, slot]).mean() for slot in used])
    order = used[np.argsort(middles, kind="stable")]
    right = max(num_rows - 1, len(order) - 1, 1)
    below = _spread(num_rows, right)
    above = _spread(len(order), right)
    for index, slot in enumerate(order):
        colour = CHAIN_COLOURS[index % len(CHAIN_COLOURS)]
        for row in np.flatnonzero(z[:, slot]):
            axes.plot([above[index], below[row]], [1, 0], color=colour, linewidth=1.1, zorder=1)
    size = float(np.clip(2600 / (right + 1), 20, 220))
    style: dict[str, Any] = {"s": size, "edgecolors": INK, "linewidths": 0.9, "zorder": 2}
    axes.scatter(above, np.ones(len(order)), facecolors="white", **style)
    axes.scatter(below, np.zeros(num_rows), facecolors=SHADED, **style)
    font: dict[str, Any] = {"ha": "center", "fontsize": 7.5, "color": MUTED}
    if num_rows <= 40 or row_names is not None:
        labels = shortened(list(range(num_rows) if row_names is None else row_names))
        room = axes.bbox.width / axes.figure.dpi / (right + 1)  # inches a circle
        turned = 90 if 0.065 * max(map(len, labels)) > room else 0
        for position, label in zip(below, labels, strict=True):
            axes.text(position, -0.16, label, va="top", rotation=turned, parse_math=False, **font)
    axes.set(xlim=(-0.6, right + 0.6), ylim=(-0.45, 1.4), xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)


def _spread(num_circles: int, right: float) -> np.ndarray:
    """Positions of this many circles between 0 and `right`, evenly; one alone in the middle."""
    return np.array([right / 2]) if num_circles == 1 else np.linspace(0, right, num_circles)


def graph_of_draw(
    posterior: Answers, *, chain: int | None = None, draw: int | None = None, max_rows: int = 60
) -> Figure:
    """The causal graph of one draw of a posterior with binary features.

    Args:
        chain, draw: which draw; the reference draw (highest log joint) by default.
    Raises:
        ValueError: the model has no binary features of rows, or the draw does not exist.
    """
    if "z" not in posterior.draws:
        raise ValueError(f"{type(posterior.model).__name__} keeps no binary features")
    index = posterior.reference()
    index = (index[0] if chain is None else chain, index[1] if draw is None else draw)
    if not (index[0] < posterior.num_chains and index[1] < posterior.num_draws):
        raise ValueError(
            f"there is no draw {index[1]} of chain {index[0]}; there are {posterior.num_chains} "
            f"chains of {posterior.num_draws} draws, counted from 0"
        )
    z = posterior.draws["z"][index]
    rows = np.arange(len(z))
    if len(z) > max_rows:
        rows = evenly_spread(len(z), max_rows)
    names = posterior.data.row_names
    return causal_graph(
        z[rows],
        row_names=rows if names is None else names[rows],
        title=f"causes of {len(rows)} rows, chain {index[0]}, draw {index[1]}",
    )
