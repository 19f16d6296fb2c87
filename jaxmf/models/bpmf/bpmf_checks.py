"""Checks of the settings of `BPMF`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.arguments import MOST_SLOTS, check_count, check_flag, check_number
from jaxmf.data import CellFeatures, Entries, Features, units
from jaxmf.data.checks import is_traced
from jaxmf.data.feature_units import cells_in_units, in_units
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.likelihoods.cells.ordinal import Ordinal
from jaxmf.likelihoods.cells.probit import Probit
from jaxmf.likelihoods.families.multivariate_normal import NormalInverseWishart
from jaxmf.models.bpmf.bpmf_spec import WIDEST, BPMFSpec, moments_of_processes, unit_of
from jaxmf.priors import column_noise, hyper
from jaxmf.priors.hdp import HDP
from jaxmf.priors.partition_prior import PartitionPrior

_FIRST_SLOTS = 32
_SMALLEST = 1e-15  # of a spread

Spec = TypeVar("Spec", bound=BPMFSpec)


def settings(model: BPMFSpec) -> dict[str, object]:
    """The settings of a model with defaults filled in.

    Raises:
      TypeError, ValueError: see `BPMF`.
    """
    num_factors = check_count("num_factors", model.num_factors, 0)
    check_flag("bias", model.bias)
    check_flag("column_noise", model.column_noise)
    if model.coefficients is not None:
        check_flag("coefficients", model.coefficients)
    if num_factors == 0 and not model.bias:
        raise ValueError("num_factors=0 without a bias leaves nothing to be learned")
    for name, kind in (
        ("row_features", Features),
        ("column_features", Features),
        ("cell_features", CellFeatures),
    ):
        _features(name, getattr(model, name), kind, model.coefficients)
    for name in ("row_prior", "column_prior"):
        prior = getattr(model, name)
        is_known = prior is None or isinstance(prior, NormalInverseWishart)
        if not is_known and not hyper.is_placeholder(prior):
            raise TypeError(
                f"{name} must be NormalInverseWishart(...) or None, got {type(prior).__name__}"
            )
    _sizes(model)
    found: dict[str, Any] = {"num_factors": int(num_factors), "mixture": _mixture(model)}
    is_mixed = any(prior is not None for prior in found["mixture"])
    found["link"] = not is_mixed if model.link is None else check_flag("link", model.link)
    found["likelihood"] = _likelihood(model.likelihood)
    for name, rate in (("link_precision", 1.0), ("coefficient_precision", 0.001)):
        found[name] = _with_default(name, getattr(model, name), rate)
    _units(model, found["likelihood"])
    _scale(model.scale)
    _column_noise(model, found["likelihood"])
    return found


def _sizes(model: BPMFSpec) -> None:
    """Refuses priors of vectors of another length than there are."""
    for name in ("row_prior", "column_prior"):
        size = getattr(getattr(model, name), "size", None)
        if isinstance(size, int) and size != model.core_width:
            raise ValueError(
                f"{name}: is of vectors of length {size}, here they have {model.core_width}: the "
                "factors and the bias; leave the size out: NormalInverseWishart()"
            )


def classes(model: BPMFSpec) -> dict[str, Features | None]:
    """Features of both sides without the columns that name classes, and these.

    Raises TypeError, ValueError: see `BPMF`.
    """
    found: dict[str, Features | None] = {}
    for side in ("row", "column"):
        heading, name = getattr(model, f"{side}_classes"), f"{side}_classes"
        if heading is None or isinstance(heading, Features) or hyper.is_placeholder(heading):
            continue
        if not isinstance(heading, str):
            raise TypeError(
                f"{name} must be the heading of a column of {side}_features, got "
                f"{type(heading).__name__}"
            )
        features = getattr(model, f"{side}_features")
        if not isinstance(features, Features):
            raise ValueError(
                f"{name}: {heading!r} is to be a column of {side}_features, which are missing; "
                f"make them with Features.from_columns({{{heading!r}: labels}}, ids=...)"
            )
        found[f"{side}_features"], found[name] = features.separate(heading, what=f"{side}_features")
    return found


def _mixture(model: BPMFSpec) -> tuple[object, object]:
    """The priors of the groups of both sides."""
    mixture = model.mixture
    pair = tuple(mixture) if isinstance(mixture, (tuple, list)) else (mixture, mixture)
    if len(pair) != 2:
        raise ValueError(f"mixture: a prior for both sides, or a pair of them, got {len(pair)}")
    for prior, side in zip(pair, ("row", "column"), strict=True):
        classes = getattr(model, f"{side}_classes")
        if prior is not None and not hyper.is_placeholder(prior):
            _prior_of_groups(prior, side, classes)
        elif prior is None and classes is not None:
            raise ValueError(
                f"{side}_classes: are for groups that classes share, of which there are none; give "
                "mixture=HDP()"
            )
    return pair


def _prior_of_groups(prior: object, side: str, classes: object) -> None:
    if not isinstance(prior, PartitionPrior):
        raise TypeError(
            "mixture must be DirichletProcess(), PitmanYor(), HDP(), Dirichlet(num_components) or "
            f"None, got {prior!r}"
        )
    if isinstance(prior, HDP) and classes is None:
        raise ValueError(
            f"mixture: HDP() is of groups that classes share; name the {side}s' classes by "
            f"{side}_classes, or give that side another prior, mixture=(of rows, of columns)"
        )
    if classes is not None and not prior.labels_shared:
        raise ValueError(
            f"{side}_classes: have groups of their own with {type(prior).__name__}; give "
            "mixture=HDP(), or Dirichlet(num_components), whose groups they share"
        )


def capacity(value: object) -> int:
    """Slots for groups to begin with.

    Raises TypeError, ValueError: no whole number from 1 on.
    """
    if value is None:
        return _FIRST_SLOTS
    return check_count("capacity", value, most=MOST_SLOTS)


def _features(
    name: str, features: object, kind: type[Features | CellFeatures], coefficients: bool | None
) -> None:
    if features is None or hyper.is_placeholder(features):
        return
    if not isinstance(features, kind):
        raise TypeError(
            f"{name} must be {kind.__name__}, got {type(features).__name__}; make them with "
            f"{kind.__name__}.from_pandas(...)"
        )
    if kind is Features and coefficients is True and features.width > WIDEST:
        raise ValueError(
            f"{name}: {features.width} features would be a coefficient each for every row or "
            f"column, at most {WIDEST} of them; leave coefficients out, or use "
            "coefficients=False, with which factors depend on them"
        )


def _likelihood(likelihood: object) -> object:
    if hyper.is_placeholder(likelihood):
        return likelihood
    if isinstance(likelihood, Ordinal) and likelihood.thresholds is not None:
        raise ValueError("likelihood: BPMF learns thresholds; leave them out: Ordinal(levels)")
    if isinstance(likelihood, Probit | Ordinal):
        return likelihood
    if not isinstance(likelihood, Gaussian):
        raise TypeError(
            f"likelihood must be Gaussian(), Probit() or Ordinal(levels), got {likelihood!r}"
        )
    if likelihood.noise_scale is not None:
        hyper.validate("noise_scale", likelihood.noise_scale)
    return likelihood


def _with_default(name: str, prior: object, rate: float) -> object:
    if prior is None:
        import numpyro.distributions as dist

        return dist.Gamma(1.0, rate)
    hyper.validate(name, prior)
    return prior


def _units(model: BPMFSpec, likelihood: object) -> None:
    """Offset and units of columns, of Gaussian cells; of others an offset counts for nothing."""
    for name in ("offset", "column_unit"):
        value = getattr(model, name)
        hyper.validate_columns(name, value, is_positive=name == "column_unit")
        is_by_column = value is not None and (name == "column_unit" or np.ndim(value) > 0)
        if is_by_column and isinstance(likelihood, Probit | Ordinal):
            raise ValueError(f"{name} is given, but likelihood={likelihood!r} has none")


def _column_noise(model: BPMFSpec, likelihood: object) -> None:
    if model.column_noise and isinstance(likelihood, Probit | Ordinal):
        raise ValueError(f"column_noise: is of Gaussian cells, not of likelihood={likelihood!r}")


def _scale(scale: object) -> None:
    if scale is None or hyper.is_placeholder(scale) or isinstance(scale, jax.Array):
        return
    check_number("scale", scale, above=0)


def check_data(model: BPMFSpec, data: Entries, name: str) -> None:
    """Refuses values that the likelihood does not have.

    Raises:
      ValueError: values that the likelihood does not have.
    """
    if data.elsewhere is not None:
        _spread(moments_of_processes(data)[1], name)
        return
    if model.is_normal:
        values = np.asarray(data.values)
        # less one of them: the standard deviation of equal numbers is not always zero
        _spread(float(np.std(values.astype(float) - float(values[0]))), name)
        return
    model.likelihood.check(data.values, name)


def _spread(spread: float, name: str) -> None:
    """Refuses values so large, small or alike that their squares are no 32-bit floats."""
    if spread and not _SMALLEST <= spread <= 1 / _SMALLEST:
        raise ValueError(
            f"{name}: the values have a standard deviation of {spread:.2g}, whose square is no "
            f"32-bit float to calculate with; divide them by {spread:.0e}"
        )


def matched(model: Spec, data: Entries) -> Spec:
    """The model with its features in the order of the rows and columns of a data set.

    Units of columns that are left open are taken from the data.

    Raises:
      ValueError: a row or column without features; see `Features.match`; an offset or a unit
        that is not one number a column.
    """
    if model.is_normal and data.elsewhere is not None:
        # what no process can compute afterwards
        mean, spread = moments_of_processes(data)
        offset = mean if model.offset is None else model.offset
        scale = float(unit_of(*map(jnp.asarray, (mean, spread))))
        scale = scale if model.scale is None else model.scale
        model = replace(model, offset=offset, scale=scale)
    sides = {
        "row_features": (data.row_names, data.num_rows),
        "column_features": (data.column_names, data.num_columns),
    }
    sides |= {name.replace("features", "classes"): size for name, size in sides.items()}
    found: dict[str, Any] = {
        name: getattr(model, name).match(ids, size=size, what=name)
        for name, (ids, size) in sides.items()
        if getattr(model, name) is not None and getattr(model, name).width
    }
    for name in ("row_features", "column_features"):
        if name in found:
            found[name] = in_units(found[name])
    if model.cell_features is not None:
        found["cell_features"] = cells_in_units(
            model.cell_features.match(data.row_names, data.column_names, shape=data.shape)
        )
    found |= _units_of_columns(model, data)
    return replace(model, **found) if found else model


def _units_of_columns(model: BPMFSpec, data: Entries) -> dict[str, object]:
    """Offset, unit of columns and scale, where columns have these; see `BPMF`."""
    if not isinstance(model.likelihood, Gaussian):
        return {}
    if data.elsewhere is not None:
        if model.column_noise:
            raise ValueError(
                "column_noise: is not taken with data of which each process has a part; leave it "
                "out, or pass the data whole"
            )
        if model.column_unit is not None or np.ndim(model.offset):
            raise ValueError(
                "column_unit, offset: one number a column is not taken with data of which each "
                "process has a part; pass cells that are divided already"
            )
        return {}
    if is_traced(data.values):
        return {}
    offset: Any = hyper.by_column("offset", model.offset, data)
    unit: Any = hyper.by_column("column_unit", model.column_unit, data)
    if all(each is None for each in (offset, unit, model.scale, model.likelihood.noise_scale)):
        spreads = units.column_scales(data)
        offset, unit = units.different_units(data, spreads) or (None, None)
    if model.column_noise and model.likelihood.noise_scale is not None:
        least = column_noise.least_noise(model.cell_noise().noise_variance, power=0.5)
        spreads = units.column_scales(data)
        column_noise.check_least(least, spreads if unit is None else spreads / unit)
    if unit is None and np.ndim(offset) == 0:
        return {}
    if offset is None:
        means = units.column_means(data)
        offset = means if np.ndim(unit) else float(np.mean(np.asarray(data.values, float)))
    found = replace(model, offset=offset, column_unit=unit)
    # kept with the model: answers about some of the columns have no other cells to take it from
    return {"offset": offset, "column_unit": unit, "scale": float(found.unit(data))}


def not_spread(model: BPMFSpec) -> tuple[str, ...]:
    """Names of the settings with which cells cannot be spread over devices."""
    present = {
        "row_features": model.row_features is not None,
        "column_features": model.column_features is not None,
        "cell_features": model.cell_features is not None,
        "mixture": model.mixture != (None, None),
        "column_noise": model.column_noise,
        f"likelihood={type(model.likelihood).__name__}": not model.is_normal,
    }
    return tuple(name for name, there in present.items() if there)
