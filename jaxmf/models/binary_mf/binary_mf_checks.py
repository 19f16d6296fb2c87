"""Checks of the settings of `BinaryMF`."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jaxmf.arguments import check_count, check_flag, check_word
from jaxmf.data import Dense, units
from jaxmf.data.checks import shown_id
from jaxmf.likelihoods.cells.bernoulli import Bernoulli
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.likelihoods.cells.poisson import Poisson
from jaxmf.models.binary_mf import defaults, fixed, sides
from jaxmf.models.binary_mf.binary_mf_spec import BinaryMFSpec
from jaxmf.priors import hyper
from jaxmf.priors.features import BetaBernoulli, IndianBuffet
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.samplers.feature_rows import check_whole_rows
from jaxmf.types import Array

SWEEPS = ("bits", "whole_rows")
STARTS = ("prior", "data", "search")
# Proposals of several bits a row and sweep: see `binary-mf/start` in benchmarks/results.
_NUM_SEVERAL = {"collapsed": 6, "explicit": 1}
# Pairs of features a side and sweep: see `mixing/binary-mf` in benchmarks/results.
NUM_BASES = 2
LIKELIHOODS = (Gaussian, Bernoulli, Poisson)
_LIKELIHOODS_WITH = {
    "weight_scale": (Gaussian, Bernoulli),
    "weight_shape": (Poisson,),
    "weight_rate": (Poisson,),
}
_WHY_NO_SPLIT_MERGE = {
    Bernoulli: "given its Polya-Gamma variables every cell has a precision of its own, and the "
    "weights, which the move sums out, no longer fall apart into columns",
    Poisson: "its weights, which the move sums out, have a Gamma prior",
}
WHOLE_ROWS_REMEDY = "use sweep='bits'"


def settings(model: BinaryMFSpec) -> dict[str, object]:
    """The settings of a model with defaults filled in.

    Raises:
      TypeError, ValueError: see `BinaryMF`.
    """
    _likelihood(model.likelihood)
    for name in ("diagonal", "row_bias", "column_bias"):
        check_flag(name, getattr(model, name))
    found: dict[str, Any] = {
        name: _feature_prior(name, getattr(model, name)) for name in ("row_prior", "column_prior")
    }
    found |= _weight_hyperparameters(model)
    found |= {name: fixed.as_fixed(name, getattr(model, name)) for name in fixed.SIDES}
    if model.diagonal:
        _diagonal(model, found)
    found["weight_mean"] = _weight_mean(model, found)
    _units(model)
    return found


def _likelihood(likelihood: object) -> None:
    if hyper.is_placeholder(likelihood):
        return
    if likelihood == "categorical":
        raise ValueError(
            "likelihood='categorical' is left out: the paper names it without giving its form. "
            "Code each category as a column of zeros and ones and use likelihood=mf.Bernoulli()"
        )
    if not isinstance(likelihood, LIKELIHOODS):
        known = ", ".join(f"mf.{each.__name__}()" for each in LIKELIHOODS)
        raise TypeError(f"likelihood must be one of {known}, got {likelihood!r}")


def _feature_prior(name: str, prior: Any) -> IndianBuffet | BetaBernoulli:
    if prior is None:
        import numpyro.distributions as dist

        prior = dist.Gamma(1.0, 1.0)
    if hyper.is_placeholder(prior):
        return prior
    if not isinstance(prior, (IndianBuffet, BetaBernoulli)):
        hyper.validate(name, prior)
        prior = IndianBuffet(prior)
    hyper.validate(f"{name}.alpha", prior.alpha)
    hyper.validate(f"{name}.concentration", prior.concentration)
    return prior


def _weight_hyperparameters(model: BinaryMFSpec) -> dict[str, Hyperparameter]:
    """The hyperparameters of weights; None where the likelihood has none.

    The scale of the weights of Gaussian cells and the rate of those of counts stay None where they
    are left open, so that a copy with another setting leaves them open too; see
    `defaults.hyperprior`.
    """
    found = {}
    for name, likelihoods in _LIKELIHOODS_WITH.items():
        value = getattr(model, name)
        needed = isinstance(model.likelihood, likelihoods)
        if value is None and needed and not defaults.is_left_open(model, name):
            value = _default(name)
        if value is not None and not needed:
            poisson = isinstance(model.likelihood, Poisson) and name == "weight_scale"
            other = " (its weights have weight_shape and weight_rate)" * poisson
            raise ValueError(
                f"{name} is given, but likelihood={model.likelihood!r} has none{other}"
            )
        if value is not None:
            hyper.validate(name, value)
        found[name] = value
    return found


def _default(name: str) -> Hyperparameter:
    if name == "weight_shape":
        return 1.0
    import numpyro.distributions as dist

    return dist.LogNormal(0.0, 1.0)


def _weight_mean(model: BinaryMFSpec, found: Mapping[str, Any]) -> float | Array | np.ndarray:
    """A finite number, or a matrix of them where features do not come and go."""
    value = model.weight_mean
    if hyper.is_placeholder(value):
        return value
    if isinstance(value, (bool, str)) or not _is_real(value):
        raise TypeError(f"weight_mean must be a number or a matrix (K, L) of them, got {value!r}")
    array = np.asarray(value)
    if not np.isfinite(array).all():
        where = f" at {tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])}" * array.ndim
        raise ValueError(f"weight_mean must be finite, got {array[~np.isfinite(array)][0]}{where}")
    if array.ndim == 0:
        return value
    sizes = _sizes(model, found)
    if sizes is None:
        return value
    if None in sizes:
        raise ValueError(
            "weight_mean as a matrix needs finite priors on both sides, "
            "BetaBernoulli(alpha, concentration, num_features): under a process features come and "
            "go, so a slot has no meaning of its own. Use one number"
        )
    if array.shape != sizes:
        raise ValueError(
            f"weight_mean must be a number or a matrix of shape {sizes}, features of rows by "
            f"features of columns with biases and given ones first, got shape {array.shape}"
        )
    return array


def _units(model: BinaryMFSpec) -> None:
    """Offset and scale of columns, offset of rows, of Gaussian cells."""
    for name, neutral in (("offset", 0), ("column_unit", 1), ("row_offset", 0)):
        value = getattr(model, name)
        if value is None or hyper.is_placeholder(value):
            continue
        hyper.validate_columns(name, value, is_positive=name == "column_unit")
        if not isinstance(model.likelihood, Gaussian) and np.any(np.asarray(value) != neutral):
            raise ValueError(f"{name} is given, but likelihood={model.likelihood!r} has none")


def _is_real(value: object) -> bool:
    if isinstance(value, numbers.Real):
        return True
    kind = getattr(value, "dtype", None)
    if kind is None and isinstance(value, (list, tuple)):
        kind = np.asarray(value).dtype
    return kind is not None and np.dtype(kind).kind in "iuf"


def _sizes(model: BinaryMFSpec, found: Mapping[str, Any]) -> tuple[int | None, int | None] | None:
    """How many features either side has, given ones included: None under a process.

    None alone where the priors cannot be looked at.
    """
    sizes = []
    for prior, bias, known in (
        (found["row_prior"], model.row_bias, found["fixed_row_features"]),
        (found["column_prior"], model.column_bias, found["fixed_column_features"]),
    ):
        if hyper.is_placeholder(prior) or hyper.is_placeholder(known):
            return None
        is_finite = isinstance(prior, BetaBernoulli)
        sizes.append(prior.num_features + int(bias) + sides.width(known) if is_finite else None)
    return sizes[0], sizes[1]


def _diagonal(model: BinaryMFSpec, found: Mapping[str, Any]) -> None:
    sizes = _sizes(model, found)
    if sizes is None:
        return
    if None in sizes:
        raise ValueError(
            "diagonal=True needs finite priors on both sides: "
            "BetaBernoulli(alpha, concentration, num_features)"
        )
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"diagonal=True needs as many features of rows as of columns, got {sizes[0]} and "
            f"{sizes[1]}, given ones included"
        )


def weights_option(model: BinaryMFSpec, weights: object) -> str:
    """How the sampler treats W: "collapsed" or "explicit".

    Raises ValueError: an unknown way, or one that the model does not have.
    """
    can_collapse = isinstance(model.likelihood, Gaussian)
    if weights is None:
        return "collapsed" if can_collapse and not model.diagonal else "explicit"
    if weights not in ("collapsed", "explicit"):
        raise ValueError(f"weights must be 'collapsed' or 'explicit', got {weights!r}")
    if weights == "collapsed" and not can_collapse:
        raise ValueError(
            "weights='collapsed' is there for Gaussian cells alone, not with "
            f"likelihood={model.likelihood!r}; use weights='explicit'"
        )
    return weights


def sweep_option(model: BinaryMFSpec, sweep: object, weights: str, num_slots: int) -> None:
    """Refuses a sweep that is not there.

    Raises ValueError: an unknown one; whole rows where the rows are not drawn with W summed out, or
    with too many slots.
    """
    if sweep not in SWEEPS:
        raise ValueError(f"sweep must be one of auto, {', '.join(SWEEPS)}, got {sweep!r}")
    if sweep == "bits":
        return
    if weights == "explicit" or model.diagonal:
        what = "a diagonal W" if model.diagonal else "weights='explicit'"
        raise ValueError(
            f"sweep='whole_rows' is there with W summed out and not diagonal, not with {what}; "
            f"{WHOLE_ROWS_REMEDY}"
        )
    check_whole_rows(num_slots, remedy=WHOLE_ROWS_REMEDY)


def several_option(num_proposals: int | None, weights: str, sweep: str) -> int:
    """How many proposals of several bits a row gets in a sweep, the default put in.

    Raises TypeError, ValueError: no number of proposals, or some for rows that are drawn whole.
    """
    if num_proposals is None:
        return 0 if sweep == "whole_rows" else _NUM_SEVERAL[weights]
    if check_count("several", num_proposals, 0) and sweep == "whole_rows":
        raise ValueError(
            "several is for rows whose bits are drawn one by one; sweep='whole_rows' draws all of "
            "a row together, so leave it out"
        )
    return num_proposals


def split_merge_option(model: BinaryMFSpec, num_proposals: object) -> None:
    """Refuses split-merge proposals where there are none.

    Raises TypeError, ValueError: no number of proposals, or a model without them.
    """
    why = _why_features_stay(model)
    if check_count("split_merge", num_proposals, 0) and why is not None:
        raise ValueError(f"split_merge is not there with {why}; use split_merge=0")


def change_basis_option(model: BinaryMFSpec, num_draws: object, weights: str) -> int:
    """How many pairs of features on either side get another basis in a sweep, the default put in.

    Raises TypeError, ValueError: no number of draws, or some where they are not there.
    """
    why = _why_features_stay(model)
    if why is None and weights != "collapsed":
        why = "weights='explicit': the move sums the weights out"
    if num_draws is None:
        return NUM_BASES if why is None else 0
    count = check_count("change_basis", num_draws, 0)
    if count and why is not None:
        raise ValueError(f"change_basis is not there with {why}; use change_basis=0")
    return count


def _why_features_stay(model: BinaryMFSpec) -> str | None:
    """Why columns of U or V are not proposed anew with the weights summed out, or None."""
    if model.diagonal:
        return (
            "diagonal=True: a feature of rows is tied to one of columns there, so changing the "
            "features of one side alone would break layers apart"
        )
    if np.ndim(model.weight_mean) > 0:
        return (
            "a matrix as weight_mean, only with one number: with a matrix the features are not "
            "exchangeable, and the move would take them between prior means"
        )
    why = _WHY_NO_SPLIT_MERGE.get(type(model.likelihood))
    return None if why is None else f"likelihood={model.likelihood!r}: {why}"


def start_option(model: BinaryMFSpec, start: object) -> None:
    """Refuses a start that is not there.

    Raises ValueError: an unknown one; from the data where features are tied to slots or to each
    other, or weights cannot be negative, as those between the features that it finds may be.
    """
    check_word("start", start, STARTS)
    if start == "search" and not isinstance(model.likelihood, Bernoulli):
        raise ValueError(
            f"start='search' is not there with likelihood={model.likelihood!r}, it is for 0/1 "
            "cells; use start='prior'"
        )
    if start == "data" and isinstance(model.likelihood, Poisson):
        raise ValueError(
            f"start='data' is not there with likelihood={model.likelihood!r}: weights between the "
            "features that it finds may be negative; use start='prior'"
        )
    if start == "data" and (model.diagonal or np.ndim(model.weight_mean) > 0):
        what = "diagonal=True" if model.diagonal else "a matrix as weight_mean"
        raise ValueError(
            f"start='data' is not there with {what}, which ties features of rows to those of "
            "columns; use start='prior'"
        )


def check_data(model: BinaryMFSpec, data: Dense, name: str) -> None:
    """Refuses data that the likelihood does not have, or that does not fit given features.

    Args: name: what the user calls it; only "data" is held against the features of rows.
    Raises ValueError: values that the likelihood does not have.
    """
    if isinstance(data.values, jax.core.Tracer):
        return
    if isinstance(model.likelihood, Gaussian):
        units.check_magnitude(data, name)
    elif data.spans_processes:
        for start, values, observed in units.blocks(data):
            title = f"{name}, of which rows are counted from {start} on"
            model.likelihood.check(values, title if start else name, observed=observed)
    else:
        model.likelihood.check(data.values, name, observed=data.observed)
    if name == "data":
        empty = np.flatnonzero(units.column_counts(data) == 0)
        if empty.size:
            raise ValueError(
                f"{name}: column {shown_id(data.column_names, int(empty[0]))} has no observed "
                f"cell ({empty.size} such columns). "
                "Nothing can be learned about its features; drop it"
            )
    fixed.check_fit(model, data, name)
