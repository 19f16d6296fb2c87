"""What `SparseBinaryMF` refuses, in words."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from jaxmf.priors import hyper
from jaxmf.variational import Exact, Gaussian, RowSample, SharedSample, Sigmoid

LIKELIHOODS = (Gaussian, Sigmoid)
ZEROS = (Exact, SharedSample, RowSample)
OFFSETS = ("none", "scalar", "rows_columns")
STARTS = ("svd", "random")
UPDATES = ("block", "partial_newton", "gradient")


def settings(model: Any) -> dict[str, Any]:
    """The settings of a model, classes made objects.

    Raises:
      TypeError, ValueError: see `SparseBinaryMF`.
    """
    _count("num_factors", model.num_factors)
    likelihood = Sigmoid() if model.likelihood is None else model.likelihood
    likelihood = _one_of("likelihood", likelihood, LIKELIHOODS, "mf.Sigmoid()")
    zeros = model.zeros
    if zeros is None:
        zeros = Exact() if isinstance(likelihood, Gaussian) else SharedSample(500)
    zeros = _one_of("zeros", zeros, ZEROS, "mf.SharedSample(500)")
    # a command line reads the word none as None
    offsets = "none" if model.offsets is None else model.offsets
    if not isinstance(offsets, str) or offsets not in OFFSETS:
        raise ValueError(f"offsets must be one of {', '.join(OFFSETS)}, got {offsets!r}")
    if isinstance(likelihood, Gaussian) and likelihood.noise_variance is not None:
        _number("Gaussian: noise_variance", likelihood.noise_variance, positive=True)
    for name in ("row_mean", "column_mean"):
        _per_factor(model, name, positive=False)
    for name in ("row_variance", "column_variance"):
        _per_factor(model, name, positive=True)
    if model.row_variance is None and model.column_variance is None:
        raise ValueError(
            "row_variance and column_variance are both None: a factor may be scaled up on one side "
            "and down on the other, so learn one of them and hold the other, such as "
            "row_variance=1.0"
        )
    for name in ("offset_variance", "bias_variance"):
        value = getattr(model, name)
        if name == "bias_variance" or value is not None:
            _number(name, value, positive=True)
    return {"likelihood": likelihood, "zeros": zeros, "offsets": offsets}


def _one_of(name: str, value: Any, classes: tuple[type, ...], example: str) -> Any:
    """An object of the classes, given as that, as a class, or as its name."""
    if isinstance(value, str):
        named = {each.__name__.lower(): each for each in classes}
        value = named.get(value.lower(), value)
    if isinstance(value, type) and value in classes:
        try:
            value = value()
        except TypeError:
            raise TypeError(
                f"{name}: {value.__name__} needs its number of samples, such as "
                f"mf.{value.__name__}(500)"
            ) from None
    if not isinstance(value, classes):
        words = ", ".join(f"mf.{each.__name__}" for each in classes)
        raise TypeError(f"{name} must be one of {words}, such as {example}; got {value!r}")
    return value


def _per_factor(model: Any, name: str, *, positive: bool) -> None:
    """None, a number, or one a factor."""
    value = getattr(model, name)
    if value is None or hyper.is_placeholder(value):
        return
    if np.ndim(value) == 0:
        _number(name, value, positive=positive)
        return
    array = np.asarray(value, dtype=float)
    if array.shape != (model.num_factors,):
        raise ValueError(
            f"{name} must be a number, or one for each of the {model.num_factors} factors, got "
            f"shape {array.shape}"
        )
    for place, number in enumerate(array):
        _number(f"{name}[{place}]", float(number), positive=positive)


def _number(name: str, value: Any, *, positive: bool) -> None:
    if hyper.is_placeholder(value):
        return
    kind = getattr(value, "dtype", None)
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (is_number or (kind is not None and np.dtype(kind).kind in "iuf")):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not math.isfinite(value) or (positive and value <= 0):
        raise ValueError(
            f"{name} must be finite{' and positive' if positive else ''}, got {value!r}"
        )


def _count(name: str, value: Any, least: int = 1) -> None:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def options(model: Any, given: dict[str, Any]) -> None:
    """Refuses options of the ascent.

    Raises:
      TypeError, ValueError: in words.
    """
    for name in ("num_epochs", "evaluate_every", "num_evaluation", "patience"):
        _count(name, given[name])
    _count("hold_priors", given["hold_priors"], 0)
    if given["start"] not in STARTS:
        raise ValueError(f"start must be one of {', '.join(STARTS)}, got {given['start']!r}")
    update = given["update"]
    if update not in UPDATES:
        raise ValueError(f"update must be one of {', '.join(UPDATES)}, got {update!r}")
    if given["optimizer"] is not None and update not in ("partial_newton", "gradient"):
        raise ValueError(
            "optimizer is given, but block updates have none; use update='gradient', or "
            "update='partial_newton' for one that takes the curvature"
        )
    if given["batch_size"] is not None:
        _count("batch_size", given["batch_size"])
        if update != "block":
            raise ValueError(
                f"batch_size is given, but batches have block updates, not update={update!r}; "
                "leave one of them out"
            )
    if not isinstance(given["decay"], (int, float)) or not 0.5 < given["decay"] <= 1:
        raise ValueError(
            "decay must lie above 1/2 and be at most 1, where decaying steps end in a minimum, "
            f"got {given['decay']!r}"
        )
    relaxation = given["relaxation"]
    if isinstance(relaxation, bool) or not isinstance(relaxation, (int, float)):
        raise TypeError(f"relaxation must be a number, got {relaxation!r}")
    if not 0 < relaxation < 2:
        raise ValueError(
            f"relaxation must lie between 0 and 2, where steps still descend, got {relaxation}"
        )
    tolerance = given["tolerance"]
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)):
        raise TypeError(f"tolerance must be a number, got {tolerance!r}")
    if not 0 <= tolerance < 1:
        raise ValueError(f"tolerance must lie between 0 and 1, got {tolerance!r}")
