"""What a sweep keeps of a flexible prior: counts, and the weight of every group for one more."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxmf._kernels import tables
from jaxmf.priors.partition_prior import Hyperparameters
from jaxmf.types import PyTree


class FlexibleCache(NamedTuple):
    """Counts as a sweep works on them."""

    counts: Array  # (G, K) float, items of batch g in group k
    joining: Array  # (G, K) float, the weight of every group for one more item; 0 where it has none
    weights: Array  # (L + 1,) float, that of a group of 0 to L items
    hyperparameters: Hyperparameters  # what else the state holds
    # (G, K) float, items that no data belong to; None where there are none
    unobserved: Array | None


def joined(cache: PyTree, batch: Array, group: Array) -> PyTree:
    """The weight of a group after its size has changed."""
    total = tables.entry(cache.counts, batch, group)
    if cache.unobserved is not None:
        total = total + tables.entry(cache.unobserved, batch, group)
    weight = tables.row(cache.weights, total.astype(jnp.int32))
    weight = jnp.where(total > 0, weight, jnp.zeros_like(weight))
    return cache._replace(joining=tables.put_entry(cache.joining, batch, group, weight))
