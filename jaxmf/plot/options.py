"""What all pictures check of their options, before anything is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
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
    counts = [name for name in options if name.startswith("max_") and name != "max_pairs"]
    checks: dict[str, Callable[[Any], Any]] = {
        **{name: partial(check_count, name) for name in counts},
        "image_shape": lambda shape: _image_shape(posterior, shape),
        "topic": lambda index: check_count("topic", index, 0, len(posterior.topics()) - 1),
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
