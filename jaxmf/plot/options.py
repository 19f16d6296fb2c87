"""What all pictures check of their options, before anything is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxmf.arguments import check_count
from jaxmf.data import Entries
from jaxmf.data.convert import complete_matrix
from jaxmf.plot.panels import check_image_shape
from jaxmf.posterior.named_cells import read_rows

if TYPE_CHECKING:
    from jaxmf.posterior.answers import Answers


def check_options(posterior: Answers, options: Mapping[str, object]) -> dict[str, object]:
    """The options of a picture, by the names that they have in all of them.

    Args: options: name -> value, those at their defaults included.
    Returns the options; rows as positions.
    Raises TypeError, ValueError: names the option.
    """
    checked = dict(options)
    checks: dict[str, Callable[[Any], Any]] = {
        "image_shape": lambda shape: _image_shape(posterior, shape),
        "max_features": lambda value: check_count("max_features", value),
        "max_rows": lambda value: check_count("max_rows", value),
        "max_columns": lambda value: check_count("max_columns", value),
        "max_biclusters": lambda value: check_count("max_biclusters", value),
        "max_topics": lambda value: check_count("max_topics", value),
        "topic": lambda index: check_count("topic", index, 0, len(posterior.topics()) - 1),
        "max_cells": lambda value: check_count("max_cells", value),
        "chain": lambda index: check_count("chain", index, 0, posterior.num_chains - 1),
        "draw": lambda index: check_count("draw", index, 0, posterior.num_draws - 1),
        "rows": lambda rows: read_rows(rows, posterior.data),
        "truth": lambda truth: _truth(posterior, truth),
    }
    optional = ("image_shape", "chain", "draw", "rows", "topic", "truth")
    for name, check in checks.items():
        if name in options and not (options[name] is None and name in optional):
            checked[name] = check(options[name])
    return checked


def _image_shape(posterior: Answers, shape: tuple[int, int]) -> tuple[int, int]:
    check_image_shape(shape, posterior.data.num_columns)
    return shape


def _truth(posterior: Answers, truth: object) -> Entries | np.ndarray:
    if isinstance(truth, Entries):
        return truth
    return complete_matrix(truth, posterior.data, argument="truth")
