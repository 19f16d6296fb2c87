"""Checks of the likelihood object of a `FeatureModel`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.likelihoods.cells.likelihood import CountCells, Likelihood
from jaxmf.likelihoods.cells.ordinal import Ordinal
from jaxmf.likelihoods.cells.student_t import StudentT
from jaxmf.models.feature_model.feature_model_spec import FeatureModelSpec
from jaxmf.priors import hyper

_BY_COLUMN = (
    "For numbers one a column give functions of whole rows instead: FeatureModel(log_likelihood, "
    "feature_prior, moments=..., sample_row=...)"
)


def check_object(model: FeatureModelSpec) -> None:
    """Refuses what is no likelihood, leaves something open, or has a function beside it."""
    likelihood = model.likelihood
    if not isinstance(likelihood, Likelihood):
        raise TypeError(
            f"likelihood must be an object such as mf.Poisson(), got {likelihood!r}; a function "
            "(x, z, y) -> log p(x | z, Y) is log_likelihood, the first argument"
        )
    _check_class(likelihood)
    for name in ("log_likelihood", "moments", "sample_row"):
        if getattr(model, name) is not None:
            raise ValueError(f"{name} follows from likelihood={likelihood!r}; leave it out")
    hyper.validate_columns("offset", model.offset)
    hyper.validate_columns("column_unit", model.column_unit, is_positive=True)
    if model.column_unit is not None and not isinstance(likelihood, Gaussian | StudentT):
        raise ValueError(
            f"column_unit is given, but cells of likelihood={likelihood!r} have no unit; leave it "
            "out"
        )
    if model.offset is not None and likelihood.needs_nonnegative:
        raise ValueError(f"offset is given, but likelihood={likelihood!r} has none; leave it out")
    missing = []
    if not isinstance(likelihood, Gaussian | StudentT | CountCells):
        missing = [n for n in likelihood.hyperparameters if getattr(likelihood, n) is None]
    if isinstance(likelihood, Ordinal) and likelihood.thresholds is None:
        missing.append("thresholds")
    if missing:
        raise ValueError(
            f"likelihood={likelihood!r} leaves {missing[0]} open; FeatureModel needs it: "
            f"{type(likelihood).__name__}(..., {missing[0]}=...)"
        )
    for name in likelihood.hyperparameters:
        if name in model.parameters:
            raise ValueError(f"parameters: {name!r} is one of likelihood={likelihood!r} already")
    _check_fields(likelihood)


def _check_class(likelihood: Likelihood) -> None:
    """Refuses a class whose hyperparameters are no fields, or that JAX does not know."""
    for name in likelihood.hyperparameters:
        if name not in vars(likelihood):
            raise ValueError(
                f"likelihood: hyperparameters of {type(likelihood).__name__} names {name!r}, which "
                f"is no field of it; its fields are {', '.join(vars(likelihood))}"
            )
    if jax.tree_util.all_leaves([likelihood]):
        raise TypeError(
            f"likelihood, a {type(likelihood).__name__}, must be a pytree: put "
            "@jax.tree_util.register_dataclass above its @dataclass(frozen=True)"
        )


def _check_fields(likelihood: Likelihood) -> None:
    """Refuses hyperparameters that are not single numbers, and priors of other fields."""
    label = type(likelihood).__name__
    for name in likelihood.hyperparameters:
        value = getattr(likelihood, name)
        shape = (
            np.shape(value) if hyper.is_fixed(value) else (*value.batch_shape, *value.event_shape)
        )
        if shape:
            raise ValueError(
                f"likelihood: {name} of {label} must be one number or a prior of one, got shape "
                f"{shape}. {_BY_COLUMN}"
            )
        if value is not None:
            hyper.validate_number(f"likelihood: {name} of {label}", value)
    for name, value in vars(likelihood).items():
        if name not in likelihood.hyperparameters and not hyper.is_fixed(value):
            raise ValueError(
                f"likelihood: {name} of {label} has a prior, but is not learned: write its name "
                f"into the hyperparameters of the class, {(*likelihood.hyperparameters, name)}, or "
                "give a number"
            )


def check_cells(model: FeatureModelSpec) -> None:
    """Refuses a likelihood whose methods depend on where a cell stands, as with numbers by column.

    Predictions ask for any cells in any order, so one cell must do for them.
    """
    likelihood = model.likelihood
    assert likelihood is not None
    one = jax.ShapeDtypeStruct((1,), jnp.result_type(float))
    key = jax.eval_shape(lambda: jax.random.key(0))
    calls = {"log_density": (one, one), "sample": (key, one), "mean": (one,), "variance": (one,)}
    for name, arguments in calls.items():
        try:
            shape = jax.eval_shape(getattr(likelihood, name), *arguments).shape
        except Exception as error:
            raise ValueError(
                f"likelihood={likelihood!r}: {name} cannot be called with one cell, shape (1,) "
                f"{one.dtype}: {type(error).__name__}: {error}"
            ) from error
        if shape != one.shape:
            raise ValueError(
                f"likelihood={likelihood!r}: {name} returned shape {shape} for one cell, shape "
                f"(1,); it must return the shape of its arguments. {_BY_COLUMN}"
            )
