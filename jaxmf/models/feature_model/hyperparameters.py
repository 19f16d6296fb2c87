"""Numbers for hyperparameters: in the prior of Z, and in the functions that take them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from jax.tree_util import Partial

from jaxmf.priors.features import BetaBernoulli, IndianBuffet, RowByRowPrior
from jaxmf.types import Array

FUNCTIONS = ("log_likelihood", "moments", "sample_row", "feature_prior")
PRIOR_NAMES = ("alpha", "concentration")


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
