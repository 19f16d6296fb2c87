"""The prior of one side of X ~ f(U W V'), U or V: features that are given, and others drawn."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from jaxmf.data import Features
from jaxmf.priors.features import BetaBernoulli, IndianBuffet
from jaxmf.types import Array, Key

FeatureSpec = IndianBuffet | BetaBernoulli


def exists(prior: FeatureSpec, bits: Array, num_fixed: int) -> Array:
    """(K,) bool: slots that are features, the given ones among them."""
    free = prior.exists(jnp.sum(bits[:, num_fixed:], axis=0))
    return jnp.concatenate([jnp.ones((num_fixed,), bool), free])


def width(features: Features | np.ndarray | None) -> int:
    """How many given features there are."""
    if isinstance(features, Features):
        return features.width
    return 0 if features is None else int(np.shape(features)[1])


def fixed_features(bias: bool, fixed: object, num_rows: int) -> Array:
    """(I, F) bool: the fixed features, the bias first."""
    columns = [jnp.ones((num_rows, 1), bool)] if bias else []
    if fixed is not None:
        columns.append(jnp.asarray(fixed, bool))
    return jnp.concatenate([jnp.zeros((num_rows, 0), bool), *columns], axis=1)


def draw_bits(key: Key, prior: FeatureSpec, fixed: Array, num_slots: int) -> Array:
    """Given features, and others from their prior in the slots after them."""
    drawn, _ = prior.sample(key, fixed.shape[0], num_slots - fixed.shape[1])
    return jnp.concatenate([fixed, drawn], axis=1)
