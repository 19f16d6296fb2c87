"""The hierarchical Dirichlet process: growing groups that all batches share.

The weights of group k for the next item of batch g are n_gk + alpha tau_k, and alpha tau_rest for a
new one.

Source: Teh, Jordan, Beal & Blei (2006), Hierarchical Dirichlet processes; Porteous (2010),
chapters 2 and 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from jaxmf._kernels import tables
from jaxmf._kernels.items import log_rising_of_batches, sum_of_many
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.priors.partition_prior import (
    CountCache,
    Hyperparameters,
    PartitionPrior,
    at,
    default_gamma,
    is_kind,
    moved,
)
from jaxmf.types import Array, PyTree


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class HDP(PartitionPrior):
    """Groups that all batches share, as many as the items need: a hierarchical Dirichlet process.

    G_0 ~ DP(gamma), G_g ~ DP(alpha, G_0), by direct assignment: the weights tau of the groups in
    use, and tau_rest of all others, are part of the state (Teh et al. 2006, section 5.3).

    Args:
        concentration: alpha of a batch around the shared weights, the sum over groups; a number or
            a numpyro distribution, by default Gamma(1, 1).
        base_concentration: gamma of the shared weights; likewise.
    Raises:
        TypeError, ValueError: a concentration that is neither a positive number nor a distribution.
    Example:
        >>> HDP(concentration=1.0, base_concentration=1.0).labels_shared
        True
    """

    concentration: Hyperparameter = None
    base_concentration: Hyperparameter = None

    labels_shared = True
    hyperparameters = ("concentration", "base_concentration")

    def __post_init__(self) -> None:
        default_gamma(self, self.hyperparameters)

    def start(self, num_slots: int) -> Hyperparameters:
        return super().start(num_slots) | _no_groups(num_slots)

    def simulate_hyperparameters(self, key: Array, num_slots: int) -> Hyperparameters:
        return super().simulate_hyperparameters(key, num_slots) | _no_groups(num_slots)

    def begin(
        self, counts: Array, hyperparameters: Hyperparameters, *, with_sizes: bool
    ) -> CountCache:
        cache = super().begin(counts, hyperparameters, with_sizes=with_sizes)
        assert cache.totals is not None
        shares = _shares(cache.totals, hyperparameters["weights"], hyperparameters["rest"])
        pseudo, free = hyperparameters["concentration"] * shares[0], shares[1]
        return cache._replace(pseudo=pseudo, whole=hyperparameters["concentration"], free=free)

    def unassign(self, cache: CountCache, batch: Array, group: Array) -> CountCache:
        cache = moved(cache, batch, group, -1)
        assert cache.totals is not None
        is_empty = tables.row(cache.totals, group) == 0

        def return_weight(weights: Array, rest: Array) -> tuple[Array, Array]:
            # a group that no item has is one of the others: its weight goes back to them
            weight = tables.row(weights, group)
            return tables.put(weights, group, jnp.zeros_like(weight)), rest + weight

        return _update_weights(cache, is_empty, return_weight)

    def assign(self, cache: CountCache, batch: Array, group: Array, uniform: Array) -> CountCache:
        cache = moved(cache, batch, group, 1)
        assert cache.totals is not None
        is_new = tables.row(cache.totals, group) == 1
        base = cache.hyperparameters["base_concentration"]

        def take(weights: Array, rest: Array) -> tuple[Array, Array]:
            # its share of the rest is Beta(1, gamma)
            log_kept = jnp.log1p(-uniform) / base
            # where gamma is small all but nothing is left, where it is large nothing is taken
            tiny = jnp.finfo(rest.dtype).tiny
            taken = jnp.maximum(-jnp.expm1(log_kept) * rest, tiny)
            left = jnp.maximum(jnp.exp(log_kept) * rest, tiny)
            return tables.put(weights, group, taken), left

        return _update_weights(cache, is_new, take)

    def weights(self, cache: CountCache, batch: Array) -> tuple[Array, Array]:
        pseudo, room = self.pseudo(cache)
        return tables.row(cache.counts, batch) + pseudo, room

    def log_prob(self, counts: Array, hyperparameters: Hyperparameters) -> Array:
        weights, log_prior = _weights_in_use(jnp.sum(counts, axis=0) > 0, hyperparameters)
        concentration = hyperparameters["concentration"]
        pseudo = concentration * weights
        # Gamma(n + p) / Gamma(p) by its first factor, as p may be too small for a float
        rising = jnp.log(concentration) + jnp.log(weights)
        rising += gammaln(counts + pseudo) - gammaln(1 + pseudo)
        log_items = jnp.sum(jnp.where(counts > 0, rising, 0))
        sizes = jnp.sum(counts, axis=1)
        log_items += jnp.sum(gammaln(concentration) - gammaln(concentration + sizes))
        return log_prior + log_items

    def log_prob_of_items(
        self, batches: Array, groups: Array, sizes: Array, hyperparameters: Hyperparameters
    ) -> Array:
        """`log_prob` without a table of counts.

        Args: batches, groups (T,) int32 of items; sizes (G,) int32, items of a batch.
        """
        in_use = jnp.zeros(hyperparameters["weights"].shape, bool).at[groups].set(True)
        weights, log_prior = _weights_in_use(in_use, hyperparameters)
        concentration = hyperparameters["concentration"]
        log_pseudo = jnp.log(concentration) + jnp.log(weights)
        rising = log_rising_of_batches(batches, groups, log_pseudo, num_batches=sizes.shape[0])
        falling = gammaln(concentration) - gammaln(concentration + sizes)
        return log_prior + sum_of_many(rising + falling)

    def weight_shapes(
        self, counts: Array, hyperparameters: Hyperparameters
    ) -> tuple[Array, Array | None]:
        """Parameters of Dirichlet(n_g1 + alpha tau_1, ..., n_gK + alpha tau_K, alpha tau_rest)."""
        if not is_kind(self, HDP):
            return super().weight_shapes(counts, hyperparameters)
        concentration = hyperparameters["concentration"]
        tiny = jnp.finfo(concentration.dtype).tiny
        in_use = hyperparameters["weights"] > 0
        pseudo = jnp.maximum(concentration * hyperparameters["weights"], tiny)
        rest = jnp.maximum(concentration * hyperparameters["rest"], tiny)
        return jnp.where(in_use, counts + pseudo, 0), rest


def _weights_in_use(in_use: Array, hyperparameters: Hyperparameters) -> tuple[Array, Array]:
    """Weights (K,), 1 of groups not in use; and the log density of those of the others, ().

    The density is that of K groups, whatever their order, and of the rest.
    """
    weights = jnp.where(in_use, hyperparameters["weights"], 1)
    base = hyperparameters["base_concentration"]
    log_prior = jnp.sum(in_use) * jnp.log(base) - jnp.sum(jnp.log(weights))
    return weights, log_prior + (base - 1) * jnp.log(hyperparameters["rest"])


def _shares(totals: Array, weights: Array, rest: Array) -> tuple[Array, Array]:
    """Weights (K,) of all groups, the rest at the lowest free one; and that, K where none is."""
    free = tables.lowest(totals == 0)
    return weights + jnp.where(at(free, totals.shape[0]), rest, 0), free


def _update_weights(
    cache: CountCache, has_changed: Array, change_fn: Callable[[Array, Array], tuple[Array, Array]]
) -> CountCache:
    """The weights after a group has come or gone.

    That is seldom, so it is a loop that turns once or not at all: the arrays are not touched where
    nothing has changed.
    """
    hyperparameters, totals = cache.hyperparameters, cache.totals
    assert totals is not None
    assert cache.pseudo is not None
    assert cache.free is not None
    concentration = hyperparameters["concentration"]

    def change(carry: PyTree) -> PyTree:
        _, weights, rest, _, _ = carry
        weights, rest = change_fn(weights, rest)
        shares, free = _shares(totals, weights, rest)
        return jnp.zeros((), bool), weights, rest, concentration * shares, free

    start = (
        has_changed,
        hyperparameters["weights"],
        hyperparameters["rest"],
        cache.pseudo,
        cache.free,
    )
    done = jax.lax.while_loop(lambda carry: carry[0], change, start)
    _, weights, rest, pseudo, free = done
    hyperparameters = hyperparameters | {"weights": weights, "rest": rest}
    return cache._replace(hyperparameters=hyperparameters, pseudo=pseudo, free=free)


def _no_groups(num_slots: int) -> Hyperparameters:
    dtype = jnp.result_type(float)
    return {"weights": jnp.zeros((num_slots,), dtype), "rest": jnp.ones((), dtype)}
