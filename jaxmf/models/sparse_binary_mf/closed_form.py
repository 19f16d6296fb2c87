"""The fit without epochs: Nakajima's global solution, or Seeger and Bouchard's iteration on it."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxmf.data import SparseBinary
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.models.sparse_binary_mf.sparse_binary_mf_spec import SparseBinaryMFSpec
from jaxmf.types import Draw
from jaxmf.variational_bayes.analytic import AnalyticSolution, analytic_solution, coded_ones
from jaxmf.variational_bayes.analytic_sigmoid import sigmoid_solution
from jaxmf.variational_bayes.state import as_draw

_NUM_ITERATIONS = 20
_TOLERANCE = 1e-6


def closed_form(model: SparseBinaryMFSpec, data: SparseBinary) -> Draw:
    """The closed-form fit, as `draw_of` records one; see `jaxmf.variational(analytic=True)`.

    Raises ValueError: the model or the data are not what the solution is for.
    """
    _check(model, data)
    solution = _solution(model, data)
    if not np.any(solution.row_means):
        raise ValueError(
            "analytic=True: every factor is switched off, the data are no more than noise to it; "
            "larger prior variances or more data may help, or leave analytic out"
        )
    about = {"free_energy": solution.free_energy, "num_epochs": 0}
    named = {name: np.asarray(value) for name, value in about.items()}
    return as_draw(solution.as_parameters()) | named  # type: ignore[return-value]


def _solution(model: SparseBinaryMFSpec, data: SparseBinary) -> AnalyticSolution:
    ones = data.to_scipy()
    settings: dict[str, Any] = {
        "num_factors": min(model.num_factors, *data.shape),
        "row_scale": float(model.row_scale),  # type: ignore[arg-type]
        "column_scale": None if model.column_scale is None else float(model.column_scale),
        "tolerance": _TOLERANCE,
    }
    if isinstance(model.likelihood, Gaussian):
        noise = model.likelihood.noise_scale
        return analytic_solution(
            coded_ones(ones), noise_scale=None if noise is None else float(noise), **settings
        )
    return sigmoid_solution(ones, num_iterations=_NUM_ITERATIONS, **settings).solution


def _check(model: SparseBinaryMFSpec, data: SparseBinary) -> None:
    if model.bias != "none":
        raise ValueError(
            f"analytic=True has neither intercept nor biases, but the model has bias="
            f"{model.bias!r}; use bias='none'"
        )
    for name in ("row_mean", "column_mean"):
        value = getattr(model, name)
        if value is None or np.any(np.asarray(value) != 0):
            raise ValueError(f"analytic=True needs {name}=0.0, the mean it is solved for")
    if model.row_scale is None or np.ndim(model.row_scale):
        raise ValueError("analytic=True needs one number as row_scale")
    if model.column_scale is not None and np.ndim(model.column_scale):
        raise ValueError("analytic=True needs one number as column_scale, or None to learn it")
    if data.missing_rows is not None:
        raise ValueError(
            "analytic=True is for fully observed data; these have cells that were not observed, "
            "so leave analytic out"
        )
