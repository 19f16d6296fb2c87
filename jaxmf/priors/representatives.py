"""The dishes of tables that come and go, where each is that of a representative.

Source: Porteous (2010), section 7.4.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxmf import tables
from jaxmf.priors.partition_prior import Numbers, PartitionPrior


class RepresentativeSeating(NamedTuple):
    """Of every dish how many representatives are at tables, and how many have none.

    Attributes:
        counts: (1, K) float.
        unobserved: (1, K) float.
    """

    counts: Array
    unobserved: Array


class Representatives(PartitionPrior):
    """Tables are opened by representatives who have a dish already, and closed without losing it.

    Of N representatives those of empty tables are the unobserved items; a table is as likely to be
    opened by each, so the weight of a dish is the number of them who have it, and the law of all
    dishes stays as it is (Figure 7.4).
    """

    hyperparameters = ()

    def begin(self, counts: Array, numbers: Numbers, *, with_sizes: bool) -> Any:
        del with_sizes
        dtype = jnp.result_type(float)
        return RepresentativeSeating(counts.astype(dtype), numbers["unobserved"].astype(dtype))

    def end(self, seating: Any) -> tuple[Array, Numbers]:
        unobserved = seating.unobserved.astype(jnp.int32)
        return seating.counts.astype(jnp.int32), {"unobserved": unobserved}

    def weights(self, seating: Any, batch: Array) -> tuple[Array, Array]:
        return tables.row(seating.unobserved, batch), jnp.ones((), bool)

    def move(self, seating: Any, batch: Array, group: Array, amount: Any) -> Any:
        return RepresentativeSeating(
            tables.add_entry(seating.counts, batch, group, amount),
            tables.add_entry(seating.unobserved, batch, group, -amount),
        )

    def unseat(self, seating: object, batch: Array, group: Array) -> Any:
        return self.move(seating, batch, group, -1)

    def seat(self, seating: object, batch: Array, group: Array, uniform: Array) -> Any:
        del uniform
        return self.move(seating, batch, group, 1)

    def log_prob(self, counts: Array, numbers: Numbers) -> Array:
        """Every choice of the representatives at tables is as likely as any other."""
        del numbers
        return jnp.zeros((), jnp.result_type(float)) * jnp.sum(counts)
