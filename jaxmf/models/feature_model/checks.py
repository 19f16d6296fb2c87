"""What can be said against the parts of a `FeatureModel`, before a filter is compiled."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.data import Dense
from jaxmf.priors.hyper import is_placeholder
from jaxmf.programs import jit

CELL_DISTRIBUTIONS = ("normal", "bernoulli")
_PRIOR_METHODS = ("exists", "log_odds", "new_rate")
_MOST_ROWS = 64
_NUM_TRIED = 3


def check_parts(model: Any) -> None:
    """Refuses parts of the wrong kind. Parts inside a transformation of jax are not looked at."""
    if any(is_placeholder(leaf) for leaf in jax.tree.leaves(model)):
        return
    if not callable(model.log_likelihood):
        raise TypeError(
            "log_likelihood must be a function (x, z, y) -> log p(x | z, Y), got "
            f"{model.log_likelihood!r}"
        )
    optional = {"moments": "(z, y) -> mean, variance", "sample_row": "(key, z, y) -> x"}
    for name, signature in optional.items():
        function = getattr(model, name)
        if function is not None and not callable(function):
            raise TypeError(f"{name} must be a function {signature}, got {function!r}")
    if model.cell_distribution not in CELL_DISTRIBUTIONS:
        raise ValueError(
            f"cell_distribution must be one of {', '.join(CELL_DISTRIBUTIONS)}, got "
            f"{model.cell_distribution!r}"
        )
    _check_feature_prior(model.feature_prior)
    _check_prior(model.prior)


def _check_feature_prior(feature_prior: Any) -> None:
    needed = ("sample", "log_prob", "event_shape", "batch_shape")
    if isinstance(feature_prior, type) or not all(hasattr(feature_prior, name) for name in needed):
        raise TypeError(
            "feature_prior must be a numpyro distribution of a row of Y, such as "
            f"dist.Normal(0, 1).expand([D]).to_event(1), got {feature_prior!r}"
        )
    if feature_prior.batch_shape != ():
        raise ValueError(
            "feature_prior must be the law of one row of Y, but "
            f"{type(feature_prior).__name__} has batch shape {feature_prior.batch_shape}: write "
            f".to_event({len(feature_prior.batch_shape)}) behind it"
        )


def _check_prior(prior: Any) -> None:
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
    for name in ("alpha", "concentration"):
        value = getattr(prior, name, None)
        if hasattr(value, "log_prob"):
            raise TypeError(f"prior: {name} must be a number here, got {type(value).__name__}")
        if value is not None and np.any(np.asarray(value, float) <= 0):
            raise ValueError(f"prior: {name} must be positive, got {value}")


def check_shape(value: Any, x: Any, *, missing: bool) -> None:
    """Refuses a value of log_likelihood of another shape than () or that of x."""
    shape = jnp.shape(value)
    if shape not in ((), x.shape):
        raise ValueError(
            f"log_likelihood returned shape {shape}; it must return one number, shape (), or one a "
            f"cell, shape {x.shape}"
        )
    if shape == () and missing:
        raise ValueError(
            "log_likelihood returned one number for the whole row, but cells are missing: it must "
            f"return one number a cell, shape {x.shape}, so that missing cells can be left out"
        )
    if not jnp.issubdtype(jnp.result_type(value), jnp.floating):
        raise TypeError(
            f"log_likelihood must return floats, got {jnp.result_type(value)}: a log probability"
        )


def check_likelihood(model: Any, data: Dense, name: str) -> None:
    """Tries log_likelihood on rows of the data, with features from their prior.

    Args:
        model: a `FeatureModel`.
        data: (N, D).
        name: what the user calls the data.

    Raises:
        ValueError, TypeError: it fails, returns the wrong shape, NaN or plus infinity.
    """
    x = data.values[:_MOST_ROWS]
    observed = None if data.observed is None else data.observed[:_MOST_ROWS]
    y = jax.eval_shape(lambda key: model.draw_features(key, _NUM_TRIED), jax.random.key(0))
    try:
        value = jax.eval_shape(model.log_likelihood, x[0], np.zeros(_NUM_TRIED, bool), y)
    except Exception as error:
        raise ValueError(
            f"log_likelihood cannot be called with x {x[0].shape} {x.dtype}, z ({_NUM_TRIED},) "
            f"bool and y {y.shape} {y.dtype}: {type(error).__name__}: {error}"
        ) from error
    check_shape(value, x[0], missing=observed is not None)
    found = np.asarray(_tried(model, x, observed))
    bad = np.argwhere(np.isnan(found) | (found == np.inf))
    if len(bad):
        pattern, row = bad[0]
        features = f"{pattern} features drawn from feature_prior" if pattern else "no features"
        raise ValueError(
            f"log_likelihood returned {found[pattern, row]} for row {row} of {name} with "
            f"{features}; it must be a log probability, finite or -inf"
        )
    if np.all(found == -np.inf):
        raise ValueError(
            f"log_likelihood returned -inf for every one of the first {len(x)} rows of {name}, "
            "whatever their features: are these values possible under it?"
        )


@jit
def _tried(model: Any, x: Any, observed: Any) -> Any:
    """Log likelihoods of the rows with the first 0, 1, ... of a few features: (patterns, rows)."""
    y = model.draw_features(jax.random.key(0), _NUM_TRIED)
    patterns = jnp.tril(jnp.ones((_NUM_TRIED + 1, _NUM_TRIED), bool), -1)
    over_rows = jax.vmap(model.row_log_likelihood, in_axes=(0, 0, None, None))
    return jax.vmap(over_rows, in_axes=(None, None, 0, None))(x, observed, patterns, y)
