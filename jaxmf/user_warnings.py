"""Warnings that name the line of the user's program which they are about."""

from __future__ import annotations

import sys
import warnings


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns, as raised by the line that called into this package, however deep the caller is.

    Args:
        message: what was seen, and what to do.
        category: of the warning.
    """
    package = __name__.partition(".")[0]
    frame, level, outermost = sys._getframe(1), 1, 1
    while True:
        if frame.f_globals.get("__name__", "").partition(".")[0] == package:
            outermost = level
        if frame.f_back is None:
            break
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=outermost + 2)
