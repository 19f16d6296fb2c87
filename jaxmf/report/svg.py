"""Figures as SVG inside a page: small, in the colours of the page, light or dark."""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from typing import TYPE_CHECKING

import numpy as np

from jaxmf.plot.style import CHAIN_COLOURS, GRID, INK, MUTED, SHADED

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

_COLOURS = {
    INK: "ink",
    "#000000": "ink",
    MUTED: "muted",
    GRID: "line",
    SHADED: "shaded",
    CHAIN_COLOURS[0]: "accent",
    "#ffffff": "paper",
}
"""Colours of pictures -> variables of the page's style; others are the same in light and dark."""
_MOST_POINTS = 1_000  # of an artist; one with more is drawn as pixels, so that pages stay small
_DOTS_PER_INCH = 150  # of pixels
_FONT = "'DejaVu Sans', Verdana, sans-serif"  # widths are those of the first


def inline(figure: Figure) -> str:
    """A figure as an `svg` element, from the end of the name of the element on.

    So that the page may give it further attributes. Texts are texts, colours variables of the
    page's style, and no name in it is one of another picture's.
    """
    from matplotlib import rc_context

    from jaxmf.plot.picture import MISSING_LETTERS

    for axes in figure.axes:
        for artist in (*axes.lines, *axes.collections):
            if _num_points(artist) > _MOST_POINTS:
                artist.set_rasterized(True)
    file = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with (
        rc_context({"svg.fonttype": "none", "svg.hashsalt": "jaxmf"}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", MISSING_LETTERS)  # texts are drawn by the browser
        figure.savefig(file, format="svg", dpi=_DOTS_PER_INCH, transparent=True, metadata=nothing)
    return _for_a_page(file.getvalue())


def _num_points(artist: Artist) -> int:
    """Points of a line, or of the shapes of a collection and their positions."""
    from matplotlib.collections import Collection
    from matplotlib.lines import Line2D

    if isinstance(artist, Line2D):
        return np.size(artist.get_xdata(orig=False))
    assert isinstance(artist, Collection)
    shapes = sum(np.size(path.vertices) for path in artist.get_paths())
    return max(np.size(artist.get_offsets()), shapes) // 2


def _for_a_page(text: str) -> str:
    view_box = re.search(r'viewBox="[^"]*"', text)
    assert view_box is not None
    body = text[text.index(">", view_box.end()) :]
    body = re.sub(r"<(metadata|style).*?</\1>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r"((?:font|font-family): [^;\"]*?)'DejaVu Sans'[^;\"]*", rf"\1{_FONT}", body)
    for colour, name in _COLOURS.items():
        body = re.sub(rf"(?<=: ){colour}\b", f"var(--{name}, {colour})", body)
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', body))
    mark = f"p{hashlib.sha256(body.encode()).hexdigest()[:8]}"
    body = re.sub(
        r' id="([^"]+)"', lambda each: f' id="{mark}-{each[1]}"' if each[1] in used else "", body
    )
    body = re.sub(r'(href="#|url\(#)', rf"\g<1>{mark}-", body)
    body = re.sub(r">\s+<", "><", body).strip()
    return f" {view_box[0]}{body}"
