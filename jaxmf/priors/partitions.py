"""Priors of partitions whose batches have groups of their own, or a given number of them.

    Dirichlet            n_gk + a_k
    DirichletProcess     n_gk,                 new: alpha
    PitmanYor            n_gk - d,             new: alpha + d K_g

are the weights of group k for the next item of batch g; growing groups that batches share are those
of `hdp.HDP`.

Source: Porteous (2010), chapters 2 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from jaxmf._kernels import tables
from jaxmf._kernels.items import log_rising_of_batches, sum_of_many
from jaxmf._kernels.special import log_rising
from jaxmf.arguments import assign, check_count
from jaxmf.priors import hyper
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.priors.partition_prior import (
    CountCache,
    Hyperparameters,
    PartitionPrior,
    at,
    default_gamma,
    is_kind,
)
from jaxmf.types import STATIC, Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Dirichlet(PartitionPrior):
    """A finite number of groups, with Dirichlet probabilities for every batch.

    pi_g ~ Dirichlet(a_1, ..., a_K), k_i ~ pi_g.

    Args:
        num_components: K.
        concentration: a, that of each group (a / K of some packages is theirs, the sum is K times
            this); a number or K numbers, which stay fixed, or a numpyro distribution of one number
            for all or a batch of K, `Gamma(1, 1).expand([K])`, whose values are learned.
    Raises:
        TypeError, ValueError: a setting is neither in its range nor a distribution over it.
    Example:
        >>> Dirichlet(3, concentration=0.1).num_groups(16)
        3
    """

    num_components: int = field(metadata=STATIC)
    concentration: Hyperparameter = 0.1

    grows = False
    labels_shared = True
    pads = True

    def __post_init__(self) -> None:
        check_count("num_components", self.num_components)
        concentration = hyper.validate_concentrations(self.concentration, self.num_components)
        assign(self, concentration=concentration)

    def num_groups(self, capacity: int) -> int:
        del capacity
        return self.num_components

    def begin(
        self, counts: Array, hyperparameters: Hyperparameters, *, with_sizes: bool
    ) -> CountCache:
        pseudo = self._all(hyperparameters)
        wider = jnp.pad(pseudo, (0, counts.shape[1] - self.num_components))
        cache = super().begin(counts, hyperparameters, with_sizes=with_sizes)
        return cache._replace(pseudo=wider, whole=jnp.sum(pseudo))

    def weights(self, cache: CountCache, batch: Array) -> tuple[Array, Array]:
        pseudo, room = self.pseudo(cache)
        return tables.row(cache.counts, batch) + pseudo, room

    def log_prob(self, counts: Array, hyperparameters: Hyperparameters) -> Array:
        concentration = self._all(hyperparameters)
        return jnp.sum(log_dirichlet_multinomial(counts, concentration))

    def log_prob_of_items(
        self, batches: Array, groups: Array, sizes: Array, hyperparameters: Hyperparameters
    ) -> Array:
        """`log_prob` without a table of counts.

        Args: batches, groups (T,) int32 of items; sizes (G,) int32, items of a batch.
        """
        concentration = self._all(hyperparameters)
        log_pseudo, total = jnp.log(concentration), jnp.sum(concentration)
        rising = log_rising_of_batches(batches, groups, log_pseudo, num_batches=sizes.shape[0])
        return sum_of_many(rising + gammaln(total) - gammaln(total + sizes))

    def weight_shapes(
        self, counts: Array, hyperparameters: Hyperparameters
    ) -> tuple[Array, Array | None]:
        """Parameters of Dirichlet(n_g1 + a_1, ..., n_gK + a_K); there are no other groups."""
        if not is_kind(self, Dirichlet):
            return super().weight_shapes(counts, hyperparameters)
        return counts + hyperparameters["concentration"], None

    def _all(self, hyperparameters: Hyperparameters) -> Array:
        return jnp.broadcast_to(hyperparameters["concentration"], (self.num_components,))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DirichletProcess(PartitionPrior):
    """A Dirichlet process a batch: as many groups as the items need.

    The labels of a batch mean nothing in another: what depends on such a group depends on the batch
    too. Groups that batches share are those of `HDP`.

    Args:
        concentration: alpha, a number or a numpyro distribution; by default Gamma(1, 1).
    Raises:
        TypeError, ValueError: it is neither a positive number nor a distribution of one.
    Example:
        >>> DirichletProcess(1.0).grows
        True
    """

    concentration: Hyperparameter = None

    def __post_init__(self) -> None:
        default_gamma(self, self.hyperparameters)

    def weights(self, cache: CountCache, batch: Array) -> tuple[Array, Array]:
        counts = tables.row(cache.counts, batch)
        size = counts.shape[0]
        new = tables.lowest(counts == 0)
        weights = counts + jnp.where(at(new, size), cache.hyperparameters["concentration"], 0)
        return weights, new < size

    def log_prob(self, counts: Array, hyperparameters: Hyperparameters) -> Array:
        return log_exchangeable(counts, hyperparameters["concentration"], 0.0)

    def weight_shapes(
        self, counts: Array, hyperparameters: Hyperparameters
    ) -> tuple[Array, Array | None]:
        """Parameters of Dirichlet(n_g1, ..., n_gK, alpha)."""
        if not is_kind(self, DirichletProcess):
            return super().weight_shapes(counts, hyperparameters)
        concentration = hyperparameters["concentration"]
        return _exchangeable_shapes(counts, concentration, jnp.zeros_like(concentration))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PitmanYor(PartitionPrior):
    """A Pitman-Yor process a batch: more small groups than a Dirichlet process has.

    Args:
        concentration: alpha, a positive number or a numpyro distribution; by default Gamma(1, 1).
        discount: d in [0, 1), a number or a numpyro distribution.
    Raises:
        TypeError, ValueError: a setting is neither in its range nor a distribution over it.
    Example:
        >>> PitmanYor(1.0, 0.5).discount
        0.5
    """

    concentration: Hyperparameter = None
    discount: Hyperparameter = 0.5

    hyperparameters = ("concentration", "discount")

    def __post_init__(self) -> None:
        default_gamma(self, ("concentration",))
        hyper.validate_probability("discount", self.discount, zero=True)

    def weights(self, cache: CountCache, batch: Array) -> tuple[Array, Array]:
        counts = tables.row(cache.counts, batch)
        size, discount = counts.shape[0], cache.hyperparameters["discount"]
        occupied = counts > 0
        new = tables.lowest(~occupied)
        new_weight = cache.hyperparameters["concentration"] + discount * jnp.sum(occupied)
        weights = jnp.where(occupied, counts - discount, jnp.where(at(new, size), new_weight, 0))
        return weights, new < size

    def log_prob(self, counts: Array, hyperparameters: Hyperparameters) -> Array:
        return log_exchangeable(
            counts, hyperparameters["concentration"], hyperparameters["discount"]
        )

    def weight_shapes(
        self, counts: Array, hyperparameters: Hyperparameters
    ) -> tuple[Array, Array | None]:
        """Parameters of Dirichlet(n_g1 - d, ..., n_gK - d, alpha + d K_g)."""
        if not is_kind(self, PitmanYor):
            return super().weight_shapes(counts, hyperparameters)
        return _exchangeable_shapes(
            counts, hyperparameters["concentration"], hyperparameters["discount"]
        )


def _exchangeable_shapes(
    counts: Array, concentration: Array, discount: Array
) -> tuple[Array, Array]:
    in_use = counts > 0
    rest = concentration + discount * jnp.sum(in_use, axis=1)
    return jnp.where(in_use, counts - discount, 0), rest


def log_dirichlet_multinomial(counts: Array, concentration: Array) -> Array:
    """Log probability of items in some order with these counts, their probabilities summed out.

    Args: counts (..., K); concentration (K,) float.
    Returns (...) float.
    """
    total = jnp.sum(concentration)
    rising = jnp.sum(gammaln(counts + concentration) - gammaln(concentration), axis=-1)
    return rising + gammaln(total) - gammaln(total + jnp.sum(counts, axis=-1))


def log_exchangeable(counts: Array, concentration: Array, discount: Array | float) -> Array:
    """Log probability of a partition of every batch under a Pitman-Yor process.

    prod_g [prod_{j<K_g} (alpha + j d)] [prod_k (1 - d)_(n_k - 1)] Gamma(alpha) / Gamma(alpha + n_g)
    with rising factorials (x)_n = x (x + 1) ... (x + n - 1).

    Args: counts (G, K); concentration () float, positive; discount () float in [0, 1).
    Returns () float.
    """
    dtype = jnp.result_type(float)
    size_terms = gammaln(jnp.maximum(jnp.sum(counts, axis=1), 1).astype(dtype))
    count_terms = gammaln(jnp.maximum(counts, 1).astype(dtype))
    return (
        log_of_settings(counts, concentration, discount)
        + jnp.sum(count_terms)
        - jnp.sum(size_terms)
    )


def log_of_settings(counts: Array, concentration: Array, discount: Array | float) -> Array:
    """`log_exchangeable` without the terms of the counts alone, which drown the others in float32.

    Args: counts, concentration, discount: as there.
    Returns () float.
    """
    occupied = counts > 0
    num_groups = jnp.sum(occupied, axis=1)
    tables_before = jnp.arange(counts.shape[1])
    opened = jnp.where(
        tables_before < num_groups[:, None], jnp.log(concentration + discount * tables_before), 0
    )
    # log Gamma(n - d) / (Gamma(n) Gamma(1 - d))
    joined = log_rising(jnp.where(occupied, counts, 1) - discount, discount)
    joined = jnp.where(occupied, -joined - gammaln(1.0 - discount), 0)
    falling = log_falling(concentration, jnp.sum(counts, axis=1))
    return jnp.sum(opened) + jnp.sum(joined) + falling


def log_falling(concentration: Array, sizes: Array) -> Array:
    """sum_g log Gamma(c) Gamma(n_g) / Gamma(c + n_g), over batches with items: () float.

    Gamma(n) keeps the terms small; as c does not change it, a density of c may well have it.
    """
    batch_terms = gammaln(concentration) - log_rising(jnp.maximum(sizes, 1), concentration)
    return jnp.sum(jnp.where(sizes > 0, batch_terms, 0))
