"""What a model with a likelihood object takes from the data where the user left it open.

The offset is the level of each column, columns in different units are divided by their spreads,
rows without features are about a level of their own where the data show features, and the priors of
features and of noise are on the scale of the data: a choice by the data itself (empirical Bayes),
so that Gaussian x and a + b x have the same features.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import numpy as np
from scipy.special import logit, ndtri

from jaxmf.data import Dense, units
from jaxmf.data.container import unchecked
from jaxmf.likelihoods.cells.bernoulli import Bernoulli
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.likelihoods.cells.likelihood import CountCells, Likelihood
from jaxmf.likelihoods.cells.negative_binomial import NegativeBinomial
from jaxmf.likelihoods.cells.noisy_or import NoisyOr
from jaxmf.likelihoods.cells.poisson import Poisson
from jaxmf.likelihoods.cells.probit import Probit
from jaxmf.likelihoods.cells.student_t import StudentT
from jaxmf.models.feature_model.feature_model_spec import FeatureModelSpec
from jaxmf.priors import hyper

if TYPE_CHECKING:
    import numpyro.distributions as dist

Spec = TypeVar("Spec", bound=FeatureModelSpec)


def matched(model: Spec, data: Dense) -> Spec:
    """The model with its offset, prior of features and noise; see `FeatureModel`."""
    likelihood = model.likelihood
    if likelihood is None or isinstance(data.values, jax.core.Tracer):
        return model
    settings: dict[str, Any] = {
        name: hyper.by_column(name, stated, data)
        for name in ("offset", "column_unit")
        if (stated := getattr(model, name)) is not None
    }
    if not model.left_open:
        return replace(model, **settings) if settings else model
    likelihood.check(data.values, "data", observed=data.observed)
    may_have_level = model.offset is None and model.feature_prior is None
    if may_have_level:
        settings["offset"] = _offset(likelihood, data)
    centred = data
    if isinstance(likelihood, Gaussian | StudentT):
        units.check_magnitude(data, "data")
        is_open = may_have_level and likelihood.noise_scale is None and model.column_unit is None
        if is_open and units.are_different(data, spreads := column_spreads(likelihood, data)):
            settings["column_unit"] = units.units_of_spreads(data, spreads)
        about, unit = settings.get("offset"), settings.get("column_unit")
        about = units.column_medians(data) if about is None else about
        centred = units.centred(data, about, unit)
        if model.bias is None:
            # features raise the level of a column, so rows without any are about one of their own
            has_level = may_have_level and units.is_more_than_noise(data, about, unit)
            settings["bias"] = has_level
        if likelihood.noise_scale is None:
            noise = hyper.noise_prior(_size(likelihood, centred), units.least_noise(data))
            settings["likelihood"] = replace(likelihood, noise_scale=noise)
    elif isinstance(likelihood, Poisson | NegativeBinomial):
        settings["likelihood"] = _counts(likelihood, data)
    if model.feature_prior is None:
        settings["feature_prior"] = _prior_of_features(likelihood, centred)
    return replace(model, **settings)


def _counts(likelihood: Poisson | NegativeBinomial, data: Dense) -> Likelihood:
    """The likelihood with priors of the base rate and of the dispersion where these are open."""
    import numpyro.distributions as dist

    chosen: dict[str, Any] = {}
    if likelihood.base_rate is None:
        chosen["base_rate"] = hyper.base_rate_prior(units.overall_mean(data))
    if isinstance(likelihood, NegativeBinomial) and likelihood.dispersion is None:
        chosen["dispersion"] = dist.Exponential(1.0)
    return replace(likelihood, **chosen)


def _offset(likelihood: Likelihood, data: Dense) -> np.ndarray | None:
    """Level of a column without features, (D,): its mean, its median, or the score of its ones."""
    match likelihood:
        case Gaussian():
            return units.column_means(data)
        case StudentT():
            return units.column_medians(data)
        case Bernoulli() | Probit():
            counts = units.column_counts(data)
            share = (counts * units.column_means(data) + 0.5) / (counts + 1)
            return logit(share) if isinstance(likelihood, Bernoulli) else ndtri(share)
    return None


def _prior_of_features(likelihood: Likelihood, data: Dense) -> dist.Distribution:
    """The prior of a row of Y (D,), the same for all columns."""
    import numpyro.distributions as dist

    one: dist.Distribution
    match likelihood:
        case Gaussian() | StudentT():
            one = dist.Normal(0.0, _size(likelihood, data))
        case CountCells():
            one = dist.Gamma(1.0, 1.0 / units.mean_of_positive(data))
        case NoisyOr():
            one = dist.Bernoulli(0.5)
        case _:
            one = dist.Normal(0.0, 2.0)  # log odds, or in units of the noise of scores
    return one.expand([data.num_columns]).to_event(1)


def column_spreads(likelihood: Likelihood | None, data: Dense) -> np.ndarray:
    """Standard deviations (D,) of columns; where noise has long tails by medians.

    Of a column of which half of the cells are one number the standard deviation all the same.
    """
    spreads = units.column_scales(data)
    if not isinstance(likelihood, StudentT):
        return spreads
    about = np.asarray(units.centred(data, units.column_medians(data)).values)
    distances = unchecked(data, values=np.abs(about))
    # a bulk of ones is one distance from the middle
    robust = units.column_medians(distances) * units.scale_of_bulk(np.ones(1))
    return np.where(robust > 0, robust, spreads)


def _size(likelihood: Likelihood, data: Dense) -> float:
    """Root mean square of the observed cells; by their median where noise has long tails."""
    if isinstance(likelihood, Gaussian):
        return units.scale_about(data)
    observed = ... if data.observed is None else np.asarray(data.observed)
    return units.scale_of_bulk(np.asarray(data.values)[observed]) or units.scale_about(data)
