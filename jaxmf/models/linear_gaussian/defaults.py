"""What a linear-Gaussian model takes from the data where the user left it open.

The offset is the column means, about which rows without features have a level of their own, columns
in different units are divided by their standard deviations, and priors of scales are relative to
the spread of the data about the offset: a choice by the data itself (empirical Bayes), so that x
and a + b x have the same features.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import jax
import numpy as np

from jaxmf.data import Dense, units
from jaxmf.data.checks import shown_id
from jaxmf.models.linear_gaussian.linear_gaussian_spec import LinearGaussianSpec
from jaxmf.priors import column_noise, hyper
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.user_warnings import warn

# A row that needs more features than this is a warning, one that needs more than that is refused.
_MANY_FEATURES = 25
_TOO_MANY_FEATURES = 10_000
# Columns whose spreads differ by more than this share no noise scale.
_UNEQUAL_SPREADS = 100.0
_NUM_PRIOR_DRAWS = 1_001

Spec = TypeVar("Spec", bound=LinearGaussianSpec)


def matched(model: Spec, data: Dense) -> Spec:
    """The model with units and priors that were left open taken from a data set.

    Args:
      data: (N, D).
    Raises:
      ValueError: values so large or small that their squares leave the range of floats, a feature
        scale so small that rows would need 10,000 features of that scale, or an offset or a unit
        that is not one number a column.

    Warns where a row needs more than 25 features of the scale that was set, where columns are in
    very different units but taken in one, as a scale or the offset was stated, and of heavy counts.
    """
    if data.num_rows == 0 or isinstance(data.values, jax.core.Tracer):
        return model
    units.check_magnitude(data, "data")
    offset = hyper.by_column("offset", model.offset, data)
    column_unit = hyper.by_column("column_unit", model.column_unit, data)
    scales, spreads = (model.noise_scale, model.feature_scale), units.column_scales(data)
    found = None
    if offset is None and column_unit is None and scales == (None, None):
        found = units.different_units(data, spreads, always=bool(model.column_noise))
    if found is not None:
        offset, column_unit = found
    if model.column_noise is None:
        # noise that was equal is not so any more where columns are divided by their spreads
        model = replace(model, column_noise=found is not None)
    if units.are_heavy_counts(data):
        warn(
            "data: counts with a heavy tail. Gaussian noise is as large for small counts as for "
            "large ones, so rows of large counts take features of their own: expect hundreds, and "
            f"slow steps. {units.COUNTS_REMEDY}."
        )
    elif column_unit is None and not model.column_noise:
        _warn_of_columns(data, spreads)
    may_have_level = model.offset is None and model.feature_scale is None
    if offset is None:
        is_centred = model.feature_scale is None or model.bias
        offset = units.column_means(data) if is_centred else 0.0
    settings: dict[str, Any] = {"offset": offset, "column_unit": column_unit}
    model = replace(model, **settings)
    unit = units.scale_about(data, offset, column_unit) if None in scales else 1.0
    if model.bias is None:
        # features raise the means, so rows without any are about a level of their own; without
        # features a row of that level, all but zero, would make small ones likely
        bias = may_have_level and units.is_more_than_noise(data, offset, column_unit)
        model = replace(model, bias=bias)
    result = model.completed(unit, units.least_noise(data))
    if model.column_noise and model.noise_scale is not None:
        per_unit = spreads if column_unit is None else spreads / column_unit
        column_noise.check_least(column_noise.least_noise(result.noise_scale), per_unit)
    if model.feature_scale is not None:
        _compare_scales(result, data)
    return result


def _warn_of_columns(data: Dense, spreads: np.ndarray) -> None:
    """One noise scale serves all columns: says so where their spreads are far from each other."""
    varied = np.flatnonzero(spreads > 0)
    if varied.size == 0:
        return
    least, most = varied[np.argmin(spreads[varied])], int(np.argmax(spreads))
    if spreads[most] > _UNEQUAL_SPREADS * spreads[least]:
        warn(
            f"data: column {shown_id(data.column_names, most)} has standard deviation "
            f"{spreads[most]:.3g} and column {shown_id(data.column_names, int(least))} "
            f"{spreads[least]:.3g}, but one noise_scale serves all columns: those of small spread "
            "will count as constant. If they are in different units, give these: column_unit=(one "
            "number a column), such as their standard deviations."
        )


def _compare_scales(model: LinearGaussianSpec, data: Dense) -> None:
    """Says where the scales that the user chose make rows need very many features."""
    largest = _upper_value(model.feature_scale)
    noise = _upper_value(model.noise_scale)
    squares = units.row_mean_squares(data, model.offset, model.column_unit)
    row = int(np.argmax(squares))
    num_needed = max(squares[row] - noise**2, 0.0) / largest**2
    if num_needed <= _MANY_FEATURES:
        return
    has_offset = model.offset is not None and np.ndim(model.offset) > 0
    remedy = (
        "Leave feature_scale out, so that it is learned in the units of the data"
        if has_offset or model.bias
        else "Centre the columns, set bias=True, or leave feature_scale out, so that the data are "
        "centred and it is learned in their units"
    )
    message = (
        f"data: row {row} lies {np.sqrt(squares[row]):.3g} from "
        f"{'the offset' if has_offset else 'zero'} in the root mean square, but "
        f"feature_scale is at most {largest:.3g}: such a row may need about {num_needed:.3g} "
        f"features. {remedy}"
    )
    if num_needed > _TOO_MANY_FEATURES:
        raise ValueError(message)
    warn(message + ".")


def _upper_value(prior: Hyperparameter) -> float:
    """The number itself; of a prior the largest of many draws."""
    if hyper.is_fixed(prior):
        return float(prior)
    return float(np.max(np.asarray(prior.sample(jax.random.key(0), (_NUM_PRIOR_DRAWS,)))))
