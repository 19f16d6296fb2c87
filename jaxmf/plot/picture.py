"""Figures that say once which letters their font lacks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure

from jaxmf.user_warnings import warn

MISSING_LETTERS = "The font of this picture lacks letters"
_OF_MATPLOTLIB = "Glyph "


class QuietFigure(Figure):
    """A figure with one warning for all letters that become boxes, where matplotlib has one each.

    Once for a figure, however often it is drawn.
    """

    has_warned = False

    def draw(self, renderer: RendererBase) -> None:
        with self._one_warning():
            super().draw(renderer)

    @contextmanager
    def _one_warning(self) -> Iterator[None]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.filterwarnings("always", _OF_MATPLOTLIB)
            yield
        letters = [each for each in caught if str(each.message).startswith(_OF_MATPLOTLIB)]
        for other in caught:
            if other not in letters:
                warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
        if letters and not self.has_warned:
            self.has_warned = True
            codes = dict.fromkeys(int(str(each.message).split()[1]) for each in letters)
            shown = "".join(map(chr, list(codes)[:10])) + "..." * (len(codes) > 10)
            warn(
                f"{MISSING_LETTERS}: {shown} are drawn as boxes. Name one that has them before "
                "the picture is made: matplotlib.rcParams['font.family'] = ['DejaVu Sans', "
                "'Noto Sans CJK JP'], of fonts that are installed"
            )
