"""Hyperparameters of a `FeatureModel`: those of the prior of Z, and arguments of its functions.

`at_values` replaces all of them by numbers. What comes of it is a `FeatureModel` without
open hyperparameters, which the sweeps, the filter and the questions of a posterior take.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from jaxmf.data.container import bare
from jaxmf.priors import hyper
from jaxmf.priors.features import BetaBernoulli, IndianBuffet, RowByRowPrior
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.types import Array, Key

if TYPE_CHECKING:
    from jaxmf.models.feature_model.feature_model import FeatureModel

FUNCTIONS = ("log_likelihood", "moments", "sample_row", "feature_prior")
PRIOR_NAMES = ("alpha", "concentration")


def priors_of(model: FeatureModel) -> dict[str, Hyperparameter]:
    """Numbers and priors by name: of the prior of Z, of the likelihood, then `parameters`."""
    row_hyperparameters = {}
    if isinstance(model.prior, IndianBuffet | BetaBernoulli):
        row_hyperparameters = {name: getattr(model.prior, name) for name in PRIOR_NAMES}
    return row_hyperparameters | priors_of_likelihood(model) | dict(model.parameters)


def priors_of_likelihood(model: FeatureModel) -> dict[str, Hyperparameter]:
    """Numbers and priors of the likelihood by name; none where it is a function."""
    if model.likelihood is None:
        return {}
    return {name: getattr(model.likelihood, name) for name in model.likelihood.hyperparameters}


def has_priors(model: FeatureModel) -> bool:
    """Whether any hyperparameter is to be learned."""
    return not all(hyper.is_fixed(prior) for prior in priors_of(model).values())


def initial_values(model: FeatureModel) -> dict[str, Array]:
    """Where a chain starts: numbers, and means or medians of priors, () float each."""
    return {name: hyper.initial_value(prior) for name, prior in priors_of(model).items()}


def sample_values(model: FeatureModel, key: Key) -> dict[str, Array]:
    """A draw of all hyperparameters from their priors, () float each."""
    return {
        name: hyper.sample_prior(jax.random.fold_in(key, index), prior)
        for index, (name, prior) in enumerate(priors_of(model).items())
    }


def log_prior(model: FeatureModel, values: Mapping[str, Array]) -> Array:
    """Log prior density of the hyperparameters that have one, () float."""
    learned = [each for each in priors_of(model).items() if not hyper.is_fixed(each[1])]
    return sum((hyper.log_prior(prior, values[name]) for name, prior in learned), jnp.zeros(()))


def at_values(model: FeatureModel, values: Mapping[str, Array | float]) -> FeatureModel:
    """The model with numbers for its hyperparameters; itself where it has nothing to fill in.

    Args:
        values: () float by name, for instance a draw; other names are ignored, and fixed numbers
            may be left out.
    """
    is_function = isinstance(model.feature_prior, Partial)
    if not model.parameters and not has_priors(model) and not is_function:
        return model
    fixed = {name: prior for name, prior in priors_of(model).items() if hyper.is_fixed(prior)}
    values = fixed | dict(values)
    fields = {field.name: getattr(model, field.name) for field in dataclasses.fields(model)}
    arguments = {name: values[name] for name in model.parameters}
    for name in FUNCTIONS:
        if isinstance(fields[name], Partial):
            fields[name] = bind(fields[name], arguments)
    if isinstance(fields["feature_prior"], Partial):
        fields["feature_prior"] = fields["feature_prior"]()
    fields["prior"] = prior_at(model.prior, values)
    if model.likelihood is not None:
        fields["likelihood"] = model.likelihood.at_values(
            {name: values[name] for name in priors_of_likelihood(model)}
        )
    return bare(type(model), **(fields | {"parameters": {}}))


def prior_at(prior: RowByRowPrior, values: Mapping[str, Array | float]) -> Any:
    """The prior of Z with numbers for alpha and concentration; one of another class as it is."""
    if isinstance(prior, BetaBernoulli):
        return BetaBernoulli(values["alpha"], values["concentration"], prior.num_features)
    if isinstance(prior, IndianBuffet):
        return IndianBuffet(values["alpha"], values["concentration"])
    return prior


def argument_names(function: Callable[..., object]) -> list[str]:
    """Names of the arguments that a function has left, in their order; none where it hides them."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def bind(function: Partial, arguments: Mapping[str, object]) -> Partial:
    """The function with those of the arguments that it names.

    Those that stand first are bound by position, as what follows them is passed by position.
    """
    named = [name for name in argument_names(function) if name in arguments]
    leading = []
    for name in argument_names(function)[: len(named)]:
        if name not in arguments:
            break
        leading.append(arguments[name])
    rest = {name: arguments[name] for name in named[len(leading) :]}
    return Partial(function, *leading, **rest)
