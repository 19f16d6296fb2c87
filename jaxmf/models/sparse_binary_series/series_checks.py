"""Checks of the settings of `SparseBinarySeries`."""

from __future__ import annotations

from jaxmf.arguments import check_word
from jaxmf.data import SparseSeries
from jaxmf.likelihoods.cells.bernoulli import Bernoulli
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.models.sparse_binary_series.sparse_binary_series_spec import SparseBinarySeriesSpec
from jaxmf.variational_bayes import fit_checks
from jaxmf.variational_bayes.contracts import AscentPlan
from jaxmf.variational_bayes.paths import KERNELS

UPDATES = ("joint", "factors")


def settings(model: SparseBinarySeriesSpec) -> dict[str, object]:
    """The settings of a model, classes made objects.

    Raises:
      TypeError, ValueError: see `SparseBinarySeries`.
    """
    found = fit_checks.cell_settings(model)
    found["likelihood"] = _quadratic(found["likelihood"])
    if model.lengthscale is not None:
        fit_checks.check_number("lengthscale", model.lengthscale, positive=True)
    check_word("kernel", model.kernel, KERNELS)
    for name, positive in (("row_mean", False), ("row_scale", True)):
        if getattr(model, name) is None:
            raise ValueError(
                f"{name} is None, but that of a row's paths is held: its scale is shared with the "
                "columns; give a number, and learn column_scale"
            )
        fit_checks.check_per_factor(model, name, positive=positive)
    return found


def _quadratic(likelihood: object) -> object:
    """The likelihood with a quadratic bound, which the search for the length scale compares by."""
    assert isinstance(likelihood, Gaussian | Bernoulli)
    if isinstance(likelihood, Gaussian) or likelihood.is_quadratic:
        return likelihood
    if likelihood.bound is None:
        return Bernoulli("quadratic")
    raise ValueError(
        f"likelihood: a series has the quadratic bound only, got {likelihood!r}; use "
        'mf.Bernoulli("quadratic"), or leave likelihood out'
    )


def options(plan: AscentPlan, *, update: str | None) -> None:
    """Refuses options of the ascent.

    Args: update: as passed; None for a choice by size.

    Raises:
      TypeError, ValueError: an option of a wrong type or out of range.
    """
    fit_checks.check_stopping(plan)
    if update is not None:
        check_word("update", update, UPDATES)


def data(series: SparseSeries, name: str) -> None:
    """Refuses a series without any one.

    Raises:
      ValueError: it has none.
    """
    if series.num_ones == 0:
        raise ValueError(f"{name}: has no ones at any time. At least one is needed.")
