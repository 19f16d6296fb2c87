"""Posteriors as trees of labelled arrays, for ArviZ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jaxmf import diagnostics
from jaxmf.answers import import_extra
from jaxmf.data.names import ids_or_positions
from jaxmf.model import settings_of

if TYPE_CHECKING:
    import xarray as xr

    from jaxmf.posterior.answers import Answers


def to_arviz(posterior: Answers, *, log_likelihood: bool) -> xr.DataTree:
    """See `Posterior.to_arviz`."""
    arviz_base = import_extra("arviz_base", "to_arviz", "arviz")
    draws = _equally_weighted(posterior, dict(posterior.draws))
    groups = {"posterior": draws}
    if "log_joint" in draws:
        groups["sample_stats"] = {"lp": draws.pop("log_joint")}
    data = posterior.data
    if hasattr(data, "to_array"):
        groups["observed_data"] = {"x": data.to_array()}
    dims: dict[str, list[str]] = {"x": ["row", "column"]}
    dims |= {"z": ["row", "feature"]} if "z" in draws else {}
    settings = settings_of(posterior.model)
    units = {n: settings[n] for n in ("offset", "column_unit") if np.ndim(settings.get(n, 0))}
    stated = {name: draws.pop(name)[0, 0] for name in [*draws] if _is_stated(draws[name])}
    if units or stated:  # units: what noise_scale and feature_scale are in
        groups["constant_data"] = units | stated
        dims |= {name: ["column"] for name in units}
    tree = arviz_base.from_dict(
        groups, coords=_coordinates(data), dims=dims, attrs={"posterior": posterior.facts()}
    )
    if log_likelihood:
        tree["log_likelihood"] = _log_likelihood(posterior)
    return tree


def _is_stated(values: np.ndarray) -> bool:
    """Whether values of draws (chains, draws) are those of a hyperparameter that is a number.

    A learned one is never the same in all draws, and of a constant no R-hat can be computed.
    """
    is_one = values.ndim == 2 and values.dtype.kind == "f" and values.size > 1
    return is_one and bool(np.ptp(values) == 0)


def _equally_weighted(posterior: Answers, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays (chains, draws, ...); those of particles as one chain resampled by their weights."""
    if not posterior.is_weighted:
        return arrays
    counts = diagnostics.choose_draws(posterior.weights.ravel(), posterior.weights.size)
    chosen = np.repeat(np.arange(counts.size), counts)
    return {name: x.reshape(counts.size, *x.shape[2:])[chosen][None] for name, x in arrays.items()}


def _log_likelihood(posterior: Answers) -> xr.DataTree:
    """The group log_likelihood: ``x`` has other axes there than among the observed data."""
    import arviz_base
    import xarray as xr

    cells = posterior.log_likelihood()
    values = _equally_weighted(posterior, {"x": cells.values})
    tree = arviz_base.from_dict({"log_likelihood": values}, dims={"x": ["cell"]})
    labels = {f"cell_{side}": labels for side, labels in cells.coordinates().items()}
    return xr.DataTree(tree["log_likelihood"].to_dataset().assign_coords(labels))


def _coordinates(data: Any) -> dict[str, Any]:
    """Ids of rows and columns, of data that have such."""
    if not hasattr(data, "num_rows"):
        return {}
    return {
        "row": ids_or_positions(data.row_names, data.num_rows),
        "column": ids_or_positions(data.column_names, data.num_columns),
    }
