"""What `BPMF` refuses, in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from jaxmf.data import CellFeatures, Entries, Features
from jaxmf.likelihoods.families.multivariate_normal import NormalInverseWishart
from jaxmf.likelihoods.ordered import Ordinal, Probit
from jaxmf.priors import hyper
from jaxmf.priors.hdp import HDP
from jaxmf.priors.partition_prior import PartitionPrior
from jaxmf.variational.likelihood import Gaussian

_WIDEST = 512
_FIRST_SLOTS = 32


def settings(model: Any) -> dict[str, Any]:
    """The settings of a model with defaults filled in.

    Raises:
      TypeError, ValueError: see `BPMF`.
    """
    number = model.num_factors
    if isinstance(number, (bool, np.bool_)) or not isinstance(number, (int, np.integer)):
        raise TypeError(f"num_factors must be a whole number, got {number!r}")
    if number < 0:
        raise ValueError(f"num_factors must not be negative, got {number}")
    for name in ("biases", "coefficients"):
        flag(name, getattr(model, name))
    if number == 0 and not model.biases:
        raise ValueError("num_factors=0 without biases leaves nothing to be learned")
    for name, kind in (
        ("row_features", Features),
        ("column_features", Features),
        ("cell_features", CellFeatures),
    ):
        _features(name, getattr(model, name), kind, model.coefficients)
    for name in ("row_prior", "column_prior"):
        prior = getattr(model, name)
        if not isinstance(prior, NormalInverseWishart) and not hyper.is_placeholder(prior):
            raise TypeError(f"{name} must be NormalInverseWishart(...), got {type(prior).__name__}")
    _sizes(model)
    found: dict[str, Any] = {"num_factors": int(number), "mixture": _mixture(model.mixture)}
    is_mixed = any(prior is not None for prior in found["mixture"])
    if model.link and is_mixed:
        raise ValueError(
            "link=True: with a mixture the vectors of every group have a covariance of their own, "
            "which the weights of a link cannot share; leave one of them out"
        )
    found["link"] = not is_mixed if model.link is None else flag("link", model.link)
    found["likelihood"] = _likelihood(model.likelihood)
    found["link_precision"] = _with_default("link_precision", model.link_precision, "Gamma")
    _level(model.level)
    return found


def _sizes(model: Any) -> None:
    """Refuses priors of vectors of another length than there are."""
    for name, wanted in (("row_prior", model.row_width), ("column_prior", model.column_width)):
        size = getattr(getattr(model, name), "size", None)
        if isinstance(size, int) and size != wanted():
            raise ValueError(
                f"{name}: is of vectors of length {size}, here they have {wanted()}: factors, "
                "bias, and coefficients of features; leave the size out: NormalInverseWishart()"
            )


def _mixture(mixture: Any) -> tuple[Any, Any]:
    """The priors of the groups of both sides."""
    pair = tuple(mixture) if isinstance(mixture, (tuple, list)) else (mixture, mixture)
    if len(pair) != 2:
        raise ValueError(f"mixture: a prior for both sides, or a pair of them, got {len(pair)}")
    for prior in pair:
        if prior is None or hyper.is_placeholder(prior):
            continue
        if isinstance(prior, HDP) or not isinstance(prior, PartitionPrior):
            raise TypeError(
                "mixture must be DirichletProcess(), PitmanYor(), Dirichlet(num_components) or "
                f"None, got {prior!r}"
            )
    return pair


def capacity(value: Any) -> int:
    """Slots for groups to begin with.

    Raises:
      ValueError: no whole number, or none.
    """
    if value is None:
        return _FIRST_SLOTS
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"capacity must be an integer of at least 1, got {value!r}")
    return value


def flag(name: str, value: Any) -> bool:
    """True or False.

    Raises:
      TypeError: anything else.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return value


def _features(name: str, features: Any, kind: Any, coefficients: bool) -> None:
    if features is None or hyper.is_placeholder(features):
        return
    if not isinstance(features, kind):
        raise TypeError(
            f"{name} must be {kind.__name__}, got {type(features).__name__}; make them with "
            f"{kind.__name__}.from_pandas(...)"
        )
    if kind is Features and coefficients and features.width > _WIDEST:
        raise ValueError(
            f"{name}: {features.width} features would be a coefficient each for every row or "
            f"column, at most {_WIDEST} of them; use coefficients=False, with which factors "
            "depend on them"
        )


def _likelihood(likelihood: Any) -> Any:
    if hyper.is_placeholder(likelihood):
        return likelihood
    if isinstance(likelihood, Probit | Ordinal):
        return likelihood
    if not isinstance(likelihood, Gaussian):
        raise TypeError(
            f"likelihood must be Gaussian(), Probit() or Ordinal(levels), got {likelihood!r}"
        )
    variance = _with_default("noise_variance", likelihood.noise_variance, "InverseGamma")
    return replace(likelihood, noise_variance=variance)


def _with_default(name: str, prior: Any, family: str) -> Any:
    if prior is None:
        import numpyro.distributions as dist

        return getattr(dist, family)(1.0, 1.0)
    hyper.validate(name, prior)
    return prior


def _level(level: Any) -> None:
    if level is None or hyper.is_placeholder(level) or isinstance(level, jax.Array):
        return
    if isinstance(level, bool) or not isinstance(level, (int, float)) or not np.isfinite(level):
        raise TypeError(f"level must be a number or None, got {level!r}")


def data(model: Any, entries: Entries, name: str) -> None:
    """Refuses values that the likelihood does not have.

    Raises:
      ValueError: in words.
    """
    if model.is_normal:
        return
    try:
        model.likelihood.check(entries.values)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def matched(model: Any, entries: Entries) -> Any:
    """The model with its features in the order of the data; see `BPMF.matched`."""
    sides = {
        "row_features": (entries.row_names, entries.num_rows),
        "column_features": (entries.column_names, entries.num_columns),
    }
    found: dict[str, Any] = {
        name: getattr(model, name).match(ids, size=size, what=name)
        for name, (ids, size) in sides.items()
        if getattr(model, name) is not None and getattr(model, name).width
    }
    if model.cell_features is not None:
        found["cell_features"] = model.cell_features.match(
            entries.row_names, entries.column_names, shape=entries.shape
        )
    return replace(model, **found) if found else model
