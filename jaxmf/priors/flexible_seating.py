"""What a sweep keeps of a flexible prior: counts, and the weight of every group for one more."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxmf import tables
from jaxmf.priors.partition_prior import Numbers


class FlexibleSeating(NamedTuple):
    """Counts as a sweep works on them.

    Attributes:
        counts: (G, K) float, items of batch g in group k.
        joining: (G, K) float, the weight of every group for one more item; 0 where it has none.
        weights: (L + 1,) float, that of a group of 0 to L items.
        numbers: what else the state holds.
        unobserved: (G, K) float, items that no data belong to; None where there are none.
    """

    counts: Array
    joining: Array
    weights: Array
    numbers: Numbers
    unobserved: Array | None


def joined(seating: Any, batch: Array, group: Array) -> Any:
    """The weight of a group after its size has changed."""
    total = tables.entry(seating.counts, batch, group)
    if seating.unobserved is not None:
        total = total + tables.entry(seating.unobserved, batch, group)
    weight = tables.row(seating.weights, total.astype(jnp.int32))
    weight = jnp.where(total > 0, weight, jnp.zeros_like(weight))
    return seating._replace(joining=tables.put_entry(seating.joining, batch, group, weight))
