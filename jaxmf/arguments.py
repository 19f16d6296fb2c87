"""Checks of single numbers that users give: each names the argument and says what it must be."""

from __future__ import annotations

import math
import numbers
from pathlib import Path
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


def check_file(path: str | Path) -> Path:
    """The path of a file that exists and is not empty.

    Raises:
        FileNotFoundError: there is none; the message says in which folder it was looked for.
        ValueError: it is a folder, or empty.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path}: is a folder, a file is needed.")
    if not path.exists():
        raise FileNotFoundError(
            f"{path}: there is no such file (looked in {path.absolute().parent})."
        )
    if path.stat().st_size == 0:
        raise ValueError(f"{path}: the file is empty.")
    return path


def check_folder(path: Path) -> Path:
    """A folder that exists.

    Raises:
        FileNotFoundError: there is none.
    """
    if not path.is_dir():
        raise FileNotFoundError(f"there is no folder {path}")
    return path
