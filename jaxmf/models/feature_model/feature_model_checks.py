"""Checks of the parts of a `FeatureModel`, before a filter is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from jaxmf.arguments import check_flag, check_word
from jaxmf.data import Dense
from jaxmf.devices import AUTO
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.likelihoods.cells.likelihood import BinaryCells, CountCells, Likelihood
from jaxmf.likelihoods.cells.ordinal import Ordinal
from jaxmf.likelihoods.cells.student_t import StudentT
from jaxmf.models.feature_model.feature_model_spec import (
    FUNCTIONS,
    FeatureModelSpec,
    argument_names,
    check_shape,
)
from jaxmf.models.feature_model.likelihood_checks import check_cells, check_object
from jaxmf.models.feature_model.queries import BY_MOMENTS
from jaxmf.priors import hyper
from jaxmf.priors.features import BetaBernoulli, IndianBuffet
from jaxmf.priors.hyper import is_placeholder
from jaxmf.programs import LOWEST_LEVEL, jit
from jaxmf.types import Array

if TYPE_CHECKING:
    import numpyro.distributions as dist


SWEEPS = ("bits", "particle_gibbs")
_DRAW_NAMES = ("z", "y", "alpha", "concentration", "num_features", "log_joint")
_PRIOR_METHODS = ("exists", "log_odds", "new_rate")
_WITH_DEFAULTS = (Gaussian, StudentT, BinaryCells, CountCells, Ordinal)  # of features
_MOST_ROWS = 64
_NUM_TRIED = 3
_jit_once = jit(compiler_options=LOWEST_LEVEL)


def sweep_option(sweep: object, likelihood: Likelihood | None = None) -> str:
    """The sweep by its name, that of the likelihood for "auto".

    Raises ValueError: it is unknown; the message names those there are.
    """
    known = check_word("sweep", sweep, (AUTO, *SWEEPS))
    default = "particle_gibbs" if isinstance(likelihood, CountCells) else "bits"
    return default if known == AUTO else known


def check_parts(model: FeatureModelSpec) -> None:
    """Refuses parts of the wrong kind. Parts inside a transformation of jax are not looked at."""
    if any(is_placeholder(leaf) for leaf in jax.tree.leaves(model)):
        return
    if model.likelihood is not None:
        check_object(model)
    elif not callable(model.log_likelihood):
        raise TypeError(
            "log_likelihood must be a function (x, z, y) -> log p(x | z, Y), got "
            f"{model.log_likelihood!r}; or give likelihood=mf.Gaussian(0.5) or another object"
        )
    optional = {"moments": "(z, y) -> mean, variance", "sample_row": "(key, z, y) -> x"}
    for name, signature in optional.items():
        function = getattr(model, name)
        if function is not None and not callable(function):
            raise TypeError(f"{name} must be a function {signature}, got {function!r}")
    if model.likelihood is None:
        for name in ("offset", "column_unit"):
            if getattr(model, name) is not None:
                raise ValueError(
                    f"{name} goes with likelihood=...; write it into log_likelihood and moments"
                )
        check_word("cell_distribution", model.cell_distribution, BY_MOMENTS)
    _check_prior(model.prior)
    _check_parameters(model)
    if model.bias is not None:
        check_flag("bias", model.bias)
    if model.feature_prior is None and isinstance(model.likelihood, _WITH_DEFAULTS):
        return
    feature_prior = model.feature_prior
    if isinstance(feature_prior, Partial):
        feature_prior = _made_prior(model)
    _check_feature_prior(feature_prior)


def _check_predictor(model: FeatureModelSpec, data: Dense, name: str) -> None:
    """Refuses features of a likelihood object that have another shape or sign than it needs."""
    if len(model.row_shape) != 1:
        raise ValueError(
            f"feature_prior: rows of Y have shape {model.row_shape}; with likelihood="
            f"{model.likelihood!r} they have one number a column, shape (columns,)"
        )
    if model.row_shape != data.values.shape[1:]:
        raise ValueError(
            f"feature_prior: rows of Y have {model.row_shape[0]} numbers, {name} has "
            f"{data.num_columns} columns; one a column is needed"
        )
    y = model.draw_features(jax.random.key(0), _NUM_TRIED)
    if (
        model.likelihood is not None
        and model.likelihood.needs_nonnegative
        and (np.asarray(y) < 0).any()
    ):
        raise ValueError(
            f"feature_prior draws negative numbers, but likelihood={model.likelihood!r} needs "
            "features of at least 0; use a Gamma distribution, or Bernoulli for causes"
        )


def _check_parameters(model: FeatureModelSpec) -> None:
    """Refuses parameters that are no numbers or priors, or that no function takes."""
    if not isinstance(model.parameters, dict):
        raise TypeError(
            "parameters must be a dict of names and numbers or numpyro distributions, got "
            f"{model.parameters!r}"
        )
    check_flag("columns_independent", model.columns_independent)
    functions = [getattr(model, name) for name in FUNCTIONS]
    known = {n for f in functions if isinstance(f, Partial) for n in argument_names(f)}
    for name, prior in model.parameters.items():
        hyper.validate_number(f"parameters[{name!r}]", prior)
        if name in _DRAW_NAMES:
            raise ValueError(
                f"parameters: the name {name!r} is taken in draws; give the argument another name"
            )
        if name not in known:
            raise ValueError(
                f"parameters: {name!r} is an argument of none of {', '.join(FUNCTIONS)}; name an "
                "argument of one of them so, or leave it out"
            )


def _made_prior(model: FeatureModelSpec) -> dist.Distribution:
    """The value of the function `feature_prior` at the parameters where a chain starts."""
    try:
        return model.at_start.feature_prior
    except TypeError as error:
        raise TypeError(
            "feature_prior must be a numpyro distribution, or a function that returns one when it "
            f"is called with those of {sorted(model.parameters)} that it names: {error}"
        ) from error


def check_density(prior: object) -> None:
    """Refuses a prior of Z of which no density is known."""
    if not callable(getattr(prior, "log_prob", None)):
        raise TypeError(
            f"prior, a {type(prior).__name__}, has no method log_prob(counts, gram, num_rows), "
            "which mf.sample needs for log_joint; add it, or use mf.particle_filter"
        )


def without_priors(model: FeatureModelSpec) -> FeatureModelSpec:
    """The model with numbers for its hyperparameters; refuses one where they have priors."""
    if model.learned:
        raise ValueError(
            f"{next(iter(model.learned))} has a prior, but mf.particle_filter takes numbers for "
            "hyperparameters; give a number, or use mf.sample, which learns it"
        )
    return model.at_start


def _check_feature_prior(feature_prior: dist.Distribution) -> None:
    needed = ("sample", "log_prob", "event_shape", "batch_shape")
    if isinstance(feature_prior, type) or not all(hasattr(feature_prior, name) for name in needed):
        raise TypeError(
            "feature_prior must be a numpyro distribution of a row of Y, such as "
            f"dist.Normal(0, 1).expand([D]).to_event(1), got {feature_prior!r}"
        )
    if feature_prior.batch_shape != ():
        raise ValueError(
            "feature_prior must be the distribution of one row of Y, but "
            f"{type(feature_prior).__name__} has batch shape {feature_prior.batch_shape}: write "
            f".to_event({len(feature_prior.batch_shape)}) behind it"
        )


def _check_prior(prior: object) -> None:
    lacking = [name for name in _PRIOR_METHODS if not callable(getattr(prior, name, None))]
    if isinstance(prior, type) or lacking:
        raise TypeError(
            "prior must be an object such as IndianBuffet(1.0) with the methods "
            f"{', '.join(_PRIOR_METHODS)}, got {prior!r}"
            + (f", which lacks {', '.join(lacking)}" if lacking else "")
        )
    if jax.tree_util.all_leaves([prior]):
        raise TypeError(
            f"prior, a {type(prior).__name__}, must be a pytree: make it a frozen dataclass and "
            "register it with jax.tree_util.register_dataclass"
        )
    for leaf in jax.tree.leaves(prior):
        if not np.issubdtype(np.asarray(leaf).dtype, np.number):
            raise TypeError(f"prior must hold plain numbers, got {leaf!r} in {prior!r}")
        if not np.all(np.isfinite(np.asarray(leaf, float))):
            raise ValueError(f"prior must hold finite numbers, got {prior!r}")
    if not isinstance(prior, IndianBuffet | BetaBernoulli):
        for name, value in vars(prior).items():
            if not hyper.is_fixed(value):
                raise TypeError(
                    f"prior: {name} must be a number in a {type(prior).__name__}, got "
                    f"{type(value).__name__}; those of IndianBuffet and BetaBernoulli are learned"
                )
    for name in ("alpha", "concentration"):
        value = getattr(prior, name, None)
        if value is not None and hyper.is_fixed(value) and np.any(np.asarray(value, float) <= 0):
            raise ValueError(f"prior: {name} must be positive, got {value}")


def check_likelihood(model: FeatureModelSpec, data: Dense, name: str) -> None:
    """Tries log_likelihood on rows of the data, with features from their prior.

    Raises ValueError, TypeError: it fails, returns the wrong shape, NaN or plus infinity.
    """
    x = data.values[:_MOST_ROWS]
    observed = None if data.observed is None else data.observed[:_MOST_ROWS]
    y = jax.eval_shape(lambda key: model.draw_features(key, _NUM_TRIED), jax.random.key(0))
    if model.likelihood is not None:
        _check_predictor(model, data, name)
        check_cells(model)
    try:
        value = jax.eval_shape(model.log_densities, x[0], np.zeros(_NUM_TRIED, bool), y)
    except Exception as error:
        raise ValueError(
            f"log_likelihood cannot be called with x {x[0].shape} {x.dtype}, z ({_NUM_TRIED},) "
            f"bool and y {y.shape} {y.dtype}: {type(error).__name__}: {error}"
        ) from error
    check_shape(value, x[0], missing=observed is not None)
    if model.columns_independent:
        _check_columns(model, x, observed)
    if model.likelihood is None and observed is not None:
        _check_missing(model, data, name)
    what = "log_likelihood"
    if model.likelihood is not None:
        what = f"likelihood={model.likelihood!r}: log_density"
    found = np.asarray(_tried(model, x, observed))
    bad = np.argwhere(np.isnan(found) | (found == np.inf))
    if len(bad):
        pattern, row = bad[0]
        features = f"{pattern} features drawn from feature_prior" if pattern else "no features"
        remedy = "" if model.likelihood is None else ". Are its numbers ones that it may have?"
        raise ValueError(
            f"{what} returned {found[pattern, row]} for row {row} of {name} with "
            f"{features}; it must be a log probability, finite or -inf{remedy}"
        )
    if np.all(found == -np.inf):
        raise ValueError(
            f"{what} returned -inf for every one of the first {len(x)} rows of {name}, "
            "whatever their features: are these values possible under it?"
        )


def _check_missing(model: FeatureModelSpec, data: Dense, name: str) -> None:
    """Refuses a log likelihood of which observed cells change with what stands in missing ones."""
    x, observed = np.asarray(data.values), np.asarray(data.observed)
    some = np.flatnonzero(~observed.all(axis=1))[:_MOST_ROWS]
    # a value that the column has, and not the 0 of missing cells, where there is one
    other = x[np.abs(x).argmax(axis=0), np.arange(x.shape[1])]
    seen = observed[some]
    filled = np.where(seen, x[some], other)
    before, after = (np.asarray(_tried_rows(model, each)) for each in (x[some], filled))
    differs = ~np.isclose(before, after, rtol=1e-4, atol=1e-5, equal_nan=True) & seen
    if differs.any():
        index, column = np.argwhere(differs)[0]
        raise ValueError(
            f"log_likelihood of cell ({some[index]}, {column}) of {name} changes from "
            f"{before[index, column]} to {after[index, column]} with what stands in missing cells "
            "of its row; a cell must not depend on missing ones: leave out rows or columns with "
            "missing cells, or write the likelihood so that cells are independent given z and y"
        )


@_jit_once
def _tried_rows(model: FeatureModelSpec, x: Array) -> Array:
    """Log likelihoods of cells of rows with all of a few features: (rows, D)."""
    y = model.draw_features(jax.random.key(0), _NUM_TRIED)
    return jax.vmap(model.log_densities, in_axes=(0, None, None))(x, jnp.ones(_NUM_TRIED, bool), y)


def _check_columns(model: FeatureModelSpec, x: Array, observed: Array | None) -> None:
    """Refuses `columns_independent` where a cell changes with Y in another column."""
    if model.row_shape != x.shape[1:]:
        raise ValueError(
            f"columns_independent: rows of Y have shape {model.row_shape}, rows of the data "
            f"{x.shape[1:]}; they must have the same columns, or leave columns_independent out"
        )
    before, after, changed = (np.asarray(each) for each in _tried_columns(model, x, observed))
    if before.shape != (len(x), x.shape[1]):
        raise ValueError(
            "columns_independent: log_likelihood must return one number a cell, shape "
            f"{x.shape[1:]}, got {before.shape[1:]}"
        )
    differs = ~np.isclose(before, after, rtol=1e-4, atol=1e-5, equal_nan=True) & ~changed
    if differs.any():
        row, column = np.argwhere(differs)[0]
        raise ValueError(
            f"columns_independent: log_likelihood of cell ({row}, {column}) changes from "
            f"{before[row, column]} to {after[row, column]} when Y changes in other columns alone; "
            "leave columns_independent out"
        )


@_jit_once
def _tried_columns(
    model: FeatureModelSpec, x: Array, observed: Array | None
) -> tuple[Array, Array, Array]:
    """Log likelihoods of cells before and after changes of Y in about half of the columns."""
    keys = [jax.random.fold_in(jax.random.key(0), index) for index in range(3)]
    y, other = (model.draw_features(key, _NUM_TRIED) for key in keys[:2])
    changed = jax.random.bernoulli(keys[2], shape=x.shape[1:]).at[0].set(True)
    z = jnp.ones((_NUM_TRIED,), bool)
    over_rows = jax.vmap(model.cell_log_likelihood, in_axes=(0, 0, None, None))
    before, after = (over_rows(x, observed, z, each) for each in (y, jnp.where(changed, other, y)))
    return before, after, changed


@_jit_once
def _tried(model: FeatureModelSpec, x: Array, observed: Array | None) -> Array:
    """Log likelihoods of the rows with the first 0, 1, ... of a few features: (patterns, rows)."""
    y = model.draw_features(jax.random.key(0), _NUM_TRIED)
    patterns = jnp.tril(jnp.ones((_NUM_TRIED + 1, _NUM_TRIED), bool), -1)
    over_rows = jax.vmap(model.row_log_likelihood, in_axes=(0, 0, None, None))
    return jax.vmap(over_rows, in_axes=(None, None, 0, None))(x, observed, patterns, y)
