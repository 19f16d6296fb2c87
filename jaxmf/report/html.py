"""The style and the script of the report's page, and its parts: sections, tables, pictures."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jaxmf.plot.style import png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NARROW = 430  # pixels of a picture that a phone shows whole
_LONG = 24  # characters of a cell that has its line on a phone
_FOLDER = Path(__file__).parent
STYLE = (_FOLDER / "page.css").read_text(encoding="utf-8")
SCRIPT = (_FOLDER / "page.js").read_text(encoding="utf-8")
"""What sorts and filters tables and draws the map of topics; without it the page is complete."""


class Html(str):
    """A text that is HTML already."""


def escaped(text: object) -> str:
    """A text as HTML."""
    return text if isinstance(text, Html) else html.escape(str(text))


def section(title: str, words: str, content: str) -> str:
    """A part of the page."""
    return f"<section><h2>{escaped(title)}</h2><p>{words}</p>{content}</section>"


def table(heading: Sequence[object], lines: Iterable[Sequence[object]], kind: str = "") -> str:
    """A table in its frame; readers with scripts may sort it by a column and filter its lines.

    Args:
        heading: of every column.
        lines: a cell for each; the first is the heading of its line.
        kind: "left" for columns of texts; on a phone long ones have lines to themselves.
    """
    cells = [tuple(map(escaped, line)) for line in lines]
    titles = [escaped(cell) for cell in heading]
    longest = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    is_long = [kind == "left" and length > _LONG for length in longest]
    marks = [
        f' class="long" data-label="{title}"' if long else ""
        for title, long in zip(titles, is_long, strict=True)
    ]
    head = "".join(f"<th>{title}</th>" for title in titles)
    rows = (
        f"<th>{line[0]}</th>"
        + "".join(f"<td{mark}>{cell}</td>" for mark, cell in zip(marks[1:], line[1:], strict=True))
        for line in cells
    )
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table class="sortable {kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def short(value: float) -> str:
    """Three digits, or all before the point, without an exponent for large values."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def interval(bounds: Iterable[float], ends: tuple[float, float], kind: str) -> Html:
    """An interval and a point in it as a drawing between two ends, with a text that says them.

    Args: bounds: lower end, point and upper end.
    """
    low, middle, high = bounds
    width = (ends[1] - ends[0]) or 1.0
    x = [5 + 120 * (value - ends[0]) / width for value in (low, middle, high)]
    return Html(
        f'<svg class="interval" viewBox="0 0 130 14" role="img" aria-label="{short(middle)}, '
        f'{kind}: {short(low)} to {short(high)}"><line x1="{x[0]:.1f}" x2="{x[2]:.1f}" y1="7" '
        f'y2="7"/><circle cx="{x[1]:.1f}" cy="7" r="4"/></svg>'
    )


def as_json(values: object) -> str:
    """Values for the script of the page, in an element that browsers do not show."""
    text = json.dumps(values, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json">{text}</script>'


def picture(figure: Figure, described: str) -> str:
    """A figure with a text that says what is seen; on a phone, wide ones scroll in their frame."""
    encoded = base64.b64encode(png(figure)).decode()
    # Drawn at 150 dots an inch for sharp screens, shown at 96.
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    narrowest = round((0.7 if width <= _NARROW else 0.9) * width)
    return (
        f'<div class="scroll"><img alt="{html.escape(described)}" width="{width}" '
        f'height="{height}" src="data:image/png;base64,{encoded}" '
        f'style="min-width: {narrowest}px"></div>'
    )
