"""A network of mixture blocks as a picture: boxes for blocks, arrows from their parents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxmf.plot.style import INK, MUTED, SHADED, figure_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from jaxmf.blocks.wiring import Wiring

_STEP, _WIDTH, _HEIGHT = (2.6, 1.15), 1.7, 0.62  # between centres across and down; of a box


def network_picture(network: Wiring) -> Figure:
    """The blocks from left to right, parents before children, as in Porteous (2010), chapter 4.

    Observed blocks are shaded; columns of the tokens that are no blocks are names without a box.

    Returns a Figure.
    """
    positions = _grid_positions(network)
    columns = [position[0] for position in positions.values()]
    lines = [position[1] for position in positions.values()]
    width = _STEP[0] * max(columns) + _WIDTH + 0.3
    spans = [
        positions[name][0] - positions[parent][0]
        for name in network.order
        for parent in network.blocks[name].by
    ]
    above = max((0.6 + 0.13 * span for span in spans if span > 1), default=0.0)
    height = _STEP[1] * (max(lines) - min(lines)) + _HEIGHT + 0.3 + above
    figure, (axes,) = figure_of(1, 1, width=0.75 * width, height=0.75 * height)
    middles = {name: (_STEP[0] * x, -_STEP[1] * y) for name, (x, y) in positions.items()}
    for name in network.order:
        for parent in network.blocks[name].by:
            _arrow(axes, middles[parent], middles[name], positions[name][0] - positions[parent][0])
    for name, (x, y) in middles.items():
        if name in network.blocks:
            _box(axes, x, y, shaded=network.blocks[name].observed)
            axes.text(x, y + 0.1, name, ha="center", va="center", fontsize=8, color=INK, zorder=4)
            label = _label(network.distributions[name])
            axes.text(
                x, y - 0.15, label, ha="center", va="center", fontsize=6, color=MUTED, zorder=4
            )
        else:
            axes.text(x, y, name, ha="center", va="center", fontsize=8, color=INK, zorder=4)
    down = [y for _, y in middles.values()]
    axes.set(
        xlim=(-_WIDTH / 2 - 0.15, _STEP[0] * max(columns) + _WIDTH / 2 + 0.15),
        ylim=(min(down) - _HEIGHT / 2 - 0.15, max(down) + _HEIGHT / 2 + 0.15 + above),
    )
    axes.set_aspect("equal")
    axes.set_axis_off()
    return figure


def _grid_positions(network: Wiring) -> dict[str, tuple[int, float]]:
    """For every block and column which step from the left it stands on, and which line."""
    step: dict[str, int] = {}
    for name in network.order:
        parents = [step.get(parent, 0) for parent in network.blocks[name].by]
        step[name] = 1 + max(parents, default=0)
    for name in network.columns:
        if name not in network.blocks:
            step[name] = min(step[child] for child in network.children(name)) - 1
    first = min(step.values())
    line: dict[str, float] = {}
    for position in range(first, max(step.values()) + 1):
        here = [name for name in (*network.columns, *network.order) if step[name] == position]
        here = list(dict.fromkeys(here))
        here.sort(key=lambda name: _middle(network, name, line))
        for rank, name in enumerate(here):
            line[name] = rank - (len(here) - 1) / 2
    return {name: (step[name] - first, line[name]) for name in step}


def _middle(network: Wiring, name: str, line: dict[str, float]) -> float:
    """The middle line of a block's parents, so that few arrows cross."""
    parents = network.blocks[name].by if name in network.blocks else ()
    return sum(line[parent] for parent in parents) / max(len(parents), 1)


def _label(distribution: object) -> str:
    """The name of a family or prior, with its number of groups where it is known."""
    name = type(distribution).__name__
    size = getattr(distribution, "num_components", None) or getattr(distribution, "size", None)
    return f"{name}, {size:,}" if isinstance(size, int) else name


def _box(axes: Axes, x: float, y: float, *, shaded: bool) -> None:
    from matplotlib.patches import FancyBboxPatch

    axes.add_patch(
        FancyBboxPatch(
            (x - _WIDTH / 2, y - _HEIGHT / 2),
            _WIDTH,
            _HEIGHT,
            boxstyle="round,pad=0,rounding_size=0.12",
            facecolor=SHADED if shaded else "white",
            edgecolor=INK,
            linewidth=0.9,
            zorder=3,
        )
    )


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], steps: int) -> None:
    """From the right edge of one box to the left edge of another; bent over boxes between."""
    from matplotlib.patches import FancyArrowPatch

    bend = 0.0 if steps < 2 else -(0.45 + 0.1 * steps) / steps
    over = (_HEIGHT / 2 - 0.02) if bend else 0.0
    across = (0.1, _WIDTH / 2 - 0.1) if bend else (_WIDTH / 2, _WIDTH / 2)
    axes.add_patch(
        FancyArrowPatch(
            (start[0] + across[0], start[1] + over),
            (end[0] - across[1], end[1] + over),
            connectionstyle=f"arc3,rad={bend}",
            arrowstyle="-|>",
            mutation_scale=9,
            color=MUTED,
            linewidth=1.1,
            shrinkA=0,
            shrinkB=1,
            zorder=2,
        )
    )
