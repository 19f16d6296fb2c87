"""Checks of settings that the models with a variational fit share."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from jaxmf import arguments
from jaxmf.arguments import check_count, check_word
from jaxmf.likelihoods.cells.bernoulli import Bernoulli
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.priors import hyper
from jaxmf.variational_bayes.contracts import AscentPlan, CellSettings
from jaxmf.variational_bayes.zeros import Exact, RowSample, SharedSample

LIKELIHOODS = (Gaussian, Bernoulli)
ZEROS = (Exact, SharedSample, RowSample)
BIASES = ("none", "intercept", "rows_columns")
STARTS = ("svd", "random")


def cell_settings(model: CellSettings) -> dict[str, object]:
    """The settings `likelihood`, `zeros` and `bias` of a model, classes made objects.

    Raises TypeError, ValueError: see `SparseBinaryMF`; also of `num_factors`, `column_mean` and
    `column_scale`, `bias_scale` and `intercept_scale`.
    """
    check_count("num_factors", model.num_factors)
    likelihood = Bernoulli() if model.likelihood is None else model.likelihood
    likelihood = one_of("likelihood", likelihood, LIKELIHOODS, "mf.Bernoulli()")
    zeros = model.zeros
    if zeros is None:
        zeros = Exact() if isinstance(likelihood, Gaussian) else SharedSample(500)
    zeros = one_of("zeros", zeros, ZEROS, "mf.SharedSample(500)")
    # a command line reads the word none as None
    bias = "none" if model.bias is None else model.bias
    check_word("bias", bias, BIASES)
    if isinstance(likelihood, Gaussian) and likelihood.noise_scale is not None:
        check_number("Gaussian: noise_scale", likelihood.noise_scale, positive=True)
    check_per_factor(model, "column_mean", positive=False)
    check_per_factor(model, "column_scale", positive=True)
    for name in ("bias_scale", "intercept_scale"):
        value = getattr(model, name)
        if name == "intercept_scale" or value is not None:
            check_number(name, value, positive=True)
    return {"likelihood": likelihood, "zeros": zeros, "bias": bias}


def check_stopping(plan: AscentPlan) -> None:
    """Options of when an ascent looks at its free energy, and when it stops.

    Raises TypeError, ValueError: an option of a wrong type, or outside its range.
    """
    for name in ("num_epochs", "evaluate_every", "num_evaluation", "patience"):
        check_count(name, getattr(plan, name))
    check_count("hold_priors", plan.hold_priors, 0)
    check_word("start", plan.start, STARTS)
    # steps still descend between these
    arguments.check_number("relaxation", plan.relaxation, above=0, below=2)
    arguments.check_number("tolerance", plan.tolerance, least=0, below=1)


def one_of(name: str, value: Any, classes: tuple[type, ...], example: str) -> Any:
    """An object of the classes, passed as such, as a class, or as its name."""
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


def check_per_factor(model: CellSettings, name: str, *, positive: bool) -> None:
    """Refuses what is not None, a number, or one number a factor."""
    value = getattr(model, name)
    if value is None or hyper.is_placeholder(value):
        return
    if np.ndim(value) == 0:
        check_number(name, value, positive=positive)
        return
    array = np.asarray(value, dtype=float)
    if array.shape != (model.num_factors,):
        raise ValueError(
            f"{name} must be a number, or one for each of the {model.num_factors} factors, got "
            f"shape {array.shape}"
        )
    for index, each in enumerate(array):
        check_number(f"{name}[{index}]", float(each), positive=positive)


def check_number(name: str, value: Any, *, positive: bool) -> None:
    """Refuses what is not a finite number."""
    if hyper.is_placeholder(value):
        return
    kind = getattr(value, "dtype", None)
    is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (is_real or (kind is not None and np.dtype(kind).kind in "iuf")):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not math.isfinite(value) or (positive and value <= 0):
        raise ValueError(
            f"{name} must be finite{' and positive' if positive else ''}, got {value!r}"
        )
