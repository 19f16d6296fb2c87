"""Checks of single numbers that users give: each names the argument and says what it must be."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np


def check_count(name: str, value: Any, least: int = 1) -> int:
    """A whole number, at least so large, as an int.

    Args:
        name: how the user calls it, for the message.
        value: a Python or NumPy integer.
        least: the smallest allowed.

    Raises:
        TypeError: no whole number.
        ValueError: a smaller one.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


def check_number(
    name: str,
    value: Any,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
) -> float:
    """A finite real number between bounds, as a float.

    Args:
        name: how the user calls it, for the message.
        value: a real number.
        least, most: bounds that are allowed themselves.
        above, below: bounds that are not.

    Raises:
        TypeError: no real number.
        ValueError: not finite, or beyond a bound.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    number = float(value)
    inside = least <= number <= most and above < number < below
    if not (math.isfinite(number) and inside):
        bounds = (("at least", least), ("above", above), ("at most", most), ("below", below))
        words = [f"{word} {bound:g}" for word, bound in bounds if math.isfinite(bound)]
        raise ValueError(f"{name} must be finite{''.join(', ' + w for w in words)}, got {value}")
    return number
