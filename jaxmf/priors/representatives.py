"""The groups of tables that come and go, where each is that of a representative.

Source: Porteous (2010), section 7.4.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxmf._kernels import tables
from jaxmf.priors.partition_prior import Hyperparameters, PartitionPrior
from jaxmf.types import PyTree


class RepresentativeCache(NamedTuple):
    """Of every group how many representatives are at tables, and how many have none."""

    counts: Array  # (1, K) float
    unobserved: Array  # (1, K) float


class Representatives(PartitionPrior):
    """Tables are opened by representatives who have a group already, and closed without losing it.

    Of N representatives those of empty tables are the unobserved items; a table is as likely to be
    opened by each, so the weight of a group is the number of them who have it, and the distribution
    of all groups stays as it is (Figure 7.4).
    """

    hyperparameters = ()

    def begin(self, counts: Array, hyperparameters: Hyperparameters, *, with_sizes: bool) -> PyTree:
        del with_sizes
        dtype = jnp.result_type(float)
        return RepresentativeCache(
            counts.astype(dtype), hyperparameters["unobserved"].astype(dtype)
        )

    def end(self, cache: PyTree) -> tuple[Array, Hyperparameters]:
        unobserved = cache.unobserved.astype(jnp.int32)
        return cache.counts.astype(jnp.int32), {"unobserved": unobserved}

    def weights(self, cache: PyTree, batch: Array) -> tuple[Array, Array]:
        return tables.row(cache.unobserved, batch), jnp.ones((), bool)

    def move(self, cache: PyTree, batch: Array, group: Array, amount: Array | int) -> PyTree:
        return RepresentativeCache(
            tables.add_entry(cache.counts, batch, group, amount),
            tables.add_entry(cache.unobserved, batch, group, -amount),
        )

    def unassign(self, cache: PyTree, batch: Array, group: Array) -> PyTree:
        return self.move(cache, batch, group, -1)

    def assign(self, cache: PyTree, batch: Array, group: Array, uniform: Array) -> PyTree:
        del uniform
        return self.move(cache, batch, group, 1)

    def log_prob(self, counts: Array, hyperparameters: Hyperparameters) -> Array:
        """Every choice of the representatives at tables is as likely as any other."""
        del hyperparameters
        return jnp.zeros((), jnp.result_type(float)) * jnp.sum(counts)
