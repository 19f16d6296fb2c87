"""Figures that say once which letters their font lacks."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING

from jaxmf.user_warnings import warn

if TYPE_CHECKING:
    from matplotlib.backend_bases import RendererBase
    from matplotlib.figure import Figure

MISSING_LETTERS = "The font of this picture lacks letters"
_OF_MATPLOTLIB = "Glyph "


def __getattr__(name: str) -> type[Figure]:
    if name == "QuietFigure":  # saved figures name their class
        return figure_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@functools.cache
def figure_class() -> type[Figure]:
    """Figures with one warning for all letters that become boxes; matplotlib has one each.

    Once for a figure, however often it is drawn. Made when first asked for, as is matplotlib.
    """
    from matplotlib.figure import Figure

    class QuietFigure(Figure):
        __qualname__ = "QuietFigure"
        has_warned = False

        def draw(self, renderer: RendererBase) -> None:
            caught: list[warnings.WarningMessage] = []
            try:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.filterwarnings("always", _OF_MATPLOTLIB)
                    super().draw(renderer)
            finally:
                letters = _missing_letters(caught)
                if letters and not self.has_warned:
                    self.has_warned = True
                    _warn(letters)

    return QuietFigure


def _missing_letters(caught: list[warnings.WarningMessage]) -> str:
    """The letters that warnings are about; other warnings are passed on."""
    codes: dict[int, None] = {}
    for each in caught:
        if str(each.message).startswith(_OF_MATPLOTLIB):
            codes[int(str(each.message).split()[1])] = None
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    return "".join(map(chr, codes))


def _warn(letters: str) -> None:
    shown = letters[:10] + "..." * (len(letters) > 10)
    warn(
        f"{MISSING_LETTERS}: {shown} are drawn as boxes. Name one that has them before "
        "the picture is made: matplotlib.rcParams['font.family'] = ['DejaVu Sans', "
        "'Noto Sans CJK JP'], of fonts that are installed"
    )
