"""A prior of partitions with a random, finite number of groups."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import gammaln

import jaxmf as mf


@mf.register
@partial(jax.tree_util.register_dataclass, data_fields=["discount"], meta_fields=[])
@dataclass(frozen=True)
class Gnedin(mf.PartitionPrior):
    """Gnedin's process: the number of groups of an endless sequence is finite, and random.

    Of n items in K groups the next one joins group k with weight (n_k + 1) (n - K + g) and a new
    one with K (K - g), of which the sum is n (n + g).

    Args:
        discount: g between 0 and 1, a number or a numpyro distribution.

    Source: Gnedin (2010), A species sampling model with finitely many types.
    """

    discount: float | dist.Distribution = 0.5

    hyperparameters = ("discount",)

    def weights(self, cache, batch):
        counts, discount = cache.counts[batch], cache.hyperparameters["discount"]
        in_use = counts > 0
        size, num_groups = counts.shape[0], jnp.sum(in_use)
        free = jnp.argmin(in_use)
        new = jnp.where(num_groups == 0, 1.0, num_groups * (num_groups - discount))
        joined = (counts + 1) * (jnp.sum(counts) - num_groups + discount)
        is_new = (jnp.arange(size) == free) & ~in_use
        return jnp.where(in_use, joined, jnp.where(is_new, new, 0.0)), jnp.any(~in_use)

    def log_prob(self, counts, hyperparameters):
        discount, in_use = hyperparameters["discount"], counts > 0
        sizes, num_groups = jnp.sum(counts, axis=1), jnp.sum(in_use, axis=1)
        before = jnp.arange(1, counts.shape[1])
        opened = jnp.where(before < num_groups[:, None], jnp.log(before * (before - discount)), 0)
        joined = jnp.where(in_use, gammaln(counts + 1.0), 0)
        shared = gammaln(discount + sizes - num_groups) - gammaln(discount)
        # prod_{m=1}^{n-1} m (m + g)
        whole = gammaln(sizes) + gammaln(sizes + discount) - gammaln(1 + discount)
        each = jnp.sum(opened, axis=1) + jnp.sum(joined, axis=1) + shared - whole
        return jnp.sum(jnp.where(sizes > 0, each, 0))
