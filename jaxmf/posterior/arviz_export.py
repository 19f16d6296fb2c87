"""Posteriors as trees of labelled arrays, for ArviZ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jaxmf import diagnostics

if TYPE_CHECKING:
    from jaxmf.posterior.posterior import Posterior


def to_arviz(posterior: Posterior) -> Any:
    """See `Posterior.to_arviz`."""
    try:
        import arviz_base
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "to_arviz needs arviz-base, an extra: pip install 'jaxmf[arviz]'"
        ) from None
    draws = dict(posterior.draws)
    if posterior.is_weighted:
        counts = diagnostics.choose_draws(posterior.weights.ravel(), posterior.weights.size)
        chosen = np.repeat(np.arange(counts.size), counts)
        draws = {
            name: x.reshape(counts.size, *x.shape[2:])[chosen][None] for name, x in draws.items()
        }
    groups = {"posterior": draws}
    if "log_joint" in draws:
        groups["sample_stats"] = {"lp": draws.pop("log_joint")}
    data = posterior.data
    if hasattr(data, "to_array"):
        groups["observed_data"] = {"x": data.to_array()}
    dims = {"x": ["row", "column"]} | ({"z": ["row", "feature"]} if "z" in draws else {})
    return arviz_base.from_dict(
        groups, coords=_coordinates(data), dims=dims, attrs={"posterior": posterior.facts()}
    )


def _coordinates(data: Any) -> dict[str, Any]:
    """Ids of rows and columns, of data that have such."""
    if not hasattr(data, "num_rows"):
        return {}
    rows, columns = data.row_names, data.column_names
    return {
        "row": np.arange(data.num_rows) if rows is None else rows,
        "column": np.arange(data.num_columns) if columns is None else columns,
    }
