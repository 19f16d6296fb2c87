"""What a network asks of a prior of partitions, and what all of them share.

Items come in batches (the words of a document, the ratings of a user; all of them where there is
one batch only). A prior says how likely an item of batch g is to join group k, its probabilities
summed out: a weight for each group that depends on the counts n_gk alone, and for growing priors
one for a group that no item has yet, which takes the lowest free slot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf._kernels import tables
from jaxmf._kernels.tables import Lanes
from jaxmf.arguments import assign
from jaxmf.priors import hyper
from jaxmf.readable import Readable
from jaxmf.types import Array

Hyperparameters = dict[str, Array]
"""The hyperparameters of a prior in a state, by name; those of the HDP include its weights."""


class CountCache(NamedTuple):
    """Counts as a sweep works on them: G batches, K groups (slots).

    What `PartitionPrior.begin` returns by default; ``counts`` and ``hyperparameters`` are always
    there, and all that the `weights` of a prior of one's own need.

    Attributes:
        counts: (G, K) float, items of batch g in group k; exact up to 2^24.
        sizes: (G,) float, items of a batch; None where nothing asks for it.
        totals: (K,) int32, items of a group, of a prior whose groups are shared by batches and come
            and go; otherwise None.
        hyperparameters: () float each, by name.
        pseudo: (K,) float, what is added to the counts of a batch; of priors whose groups are
            shared by batches, otherwise None.
        whole: () float, the sum of it and of what other groups have; likewise.
        free: () int32, the lowest group that no item has, K where there is none; of priors with
            ``totals``, otherwise None.
    """

    counts: Array
    sizes: Array | None
    totals: Array | None
    hyperparameters: Hyperparameters
    pseudo: Array | None = None
    whole: Array | None = None
    free: Array | None = None


class PartitionPrior(Readable, ABC):
    """Base of the priors of partitions: the methods that a network calls.

    In the methods G is the number of batches, K the number of groups (slots); ``counts`` (G, K)
    int32 has the items of each batch in each group, ``batch`` and ``group`` are () int32,
    ``hyperparameters`` is a dict of () float by name. A ``cache`` is what `begin` returns and a
    sweep carries along.
    A prior needs `weights` and `log_prob`; the rest has defaults (Porteous 2010, chapter 4).

    Attributes:
        grows: whether there is always room for a group that no item has yet.
        labels_shared: whether label k means the same group in every batch.
        pads: whether a sweep may have more groups than there are, which have no weight, and more
            batches.
        fuses: whether what it does may stand in one kernel with a loop (`jaxmf._kernels.fusion`).
        weighs_rows: whether it has `weights_of_row`, so that a sweep weighs groups in use only.
        sequential: whether items drawn one after the other, each by `weights`, follow its
            distribution.
        hyperparameters: names of the fields that may have priors.
    """

    grows = True
    labels_shared = False
    pads = False
    fuses = True
    weighs_rows = False
    sequential = True
    hyperparameters: tuple[str, ...] = ("concentration",)

    @property
    def new_group_is_random(self) -> bool:
        """Whether an item that makes a group draws the weight that all batches give the group."""
        return self.grows and self.labels_shared

    def num_groups(self, capacity: int) -> int:
        """K, for a wished number of slots."""
        return capacity

    def start(self, num_slots: int) -> Hyperparameters:
        """Hyperparameters before any item: at the means of their priors."""
        del num_slots
        return {name: hyper.initial_value(getattr(self, name)) for name in self.hyperparameters}

    def simulate_hyperparameters(self, key: Array, num_slots: int) -> Hyperparameters:
        """Hyperparameters from their priors, before any item."""
        del num_slots
        keys = jax.random.split(key, len(self.hyperparameters))
        return {
            name: hyper.sample_prior(key, getattr(self, name))
            for key, name in zip(keys, self.hyperparameters, strict=True)
        }

    def begin(
        self, counts: Array, hyperparameters: Hyperparameters, *, with_sizes: bool
    ) -> CountCache:
        """Counts as a sweep works on them, with the number of items of each batch if asked for."""
        dtype = jnp.result_type(float)
        return CountCache(
            counts=counts.astype(dtype),
            sizes=jnp.sum(counts, axis=1).astype(dtype) if with_sizes else None,
            totals=jnp.sum(counts, axis=0) if self.new_group_is_random else None,
            hyperparameters=hyperparameters,
        )

    def end(self, cache: CountCache) -> tuple[Array, Hyperparameters]:
        """The counts (G, K) int32 and hyperparameters that a sweep leaves."""
        return cache.counts.astype(jnp.int32), cache.hyperparameters

    def unassign(self, cache: CountCache, batch: Array, group: Array) -> CountCache:
        """Takes an item of a batch out of its group."""
        return self.move(cache, batch, group, -1)

    def assign(self, cache: CountCache, batch: Array, group: Array, uniform: Array) -> CountCache:
        """Puts an item into a group; `uniform` () in [0, 1) decides how large a new group is."""
        del uniform
        return self.move(cache, batch, group, 1)

    def move(self, cache: CountCache, batch: Array, group: Array, amount: int) -> CountCache:
        """An item of a known group joins a batch (amount 1) or leaves it (-1)."""
        return moved(cache, batch, group, amount)

    @abstractmethod
    def weights(self, cache: CountCache, batch: Array) -> tuple[Array, Array]:
        """Weights of the groups for the next item of a batch.

        ``cache.counts[batch]`` (K,) float has the items that the batch has in each group now, the
        next one not among them, and ``cache.hyperparameters`` () floats by name.

        Returns:
            (K,) float, not normalised, 0 for groups that it cannot join; and () bool, whether there
            was room for a new group. Where groups come and go, a new one has its weight in the
            lowest free slot, ``jnp.argmin(counts > 0)``, and all other free slots have 0.
        """

    def weights_of_row(
        self, cache: CountCache, batch: Array, lanes: Lanes, has_new: Array
    ) -> tuple[Array, Array]:
        """As `weights`, of some groups side by side; asked for where `weighs_rows` is set.

        Args: has_new: () bool, whether a slot before them is free for a new group.
        Returns (lanes.size,) float, and whether one before them or among them is.
        """
        raise missing_hook(self, "weights_of_row", "weighs_rows=True", "weighs_rows=False")

    def next_probabilities(self, cache: CountCache, lanes: Lanes) -> tuple[Array, Array]:
        """Probabilities of the next item of several batches, and whether there was room.

        (lanes.size, K) and (). Of priors with shared labels only; needs sizes.
        """
        pseudo, room = self.pseudo(cache)
        weights = tables.take(cache.counts, lanes) + pseudo
        return weights * (1 / _normalisers(cache, lanes))[:, None], room

    def predictive(self, cache: CountCache, lanes: Lanes, group: Array) -> Array:
        """Probability that the next item of several batches is in a group in use: (lanes.size,).

        Of priors with shared labels only; needs sizes.
        """
        pseudo, _ = self.pseudo(cache)
        counts = tables.take_from_column(cache.counts, lanes, group)
        return (counts + tables.row(pseudo, group)) / _normalisers(cache, lanes)

    def pseudo(self, cache: CountCache) -> tuple[Array, Array]:
        """Pseudo-counts, (K,), and whether there was room for a new group.

        Raises:
            TypeError: the groups of a batch mean nothing in another.
        """
        if cache.pseudo is None:
            raise TypeError(
                f"the groups of a {type(self).__name__} are those of one batch; only groups that "
                "batches share, as those of Dirichlet and HDP, have one weight for all"
            )
        room = jnp.ones((), bool) if cache.free is None else cache.free < cache.pseudo.size
        return cache.pseudo, room

    def prior_of_new_tables(self) -> PartitionPrior:
        """The prior of the group of a table when tables come and go, in a sweep over tokens."""
        return self

    @abstractmethod
    def log_prob(self, counts: Array, hyperparameters: Hyperparameters) -> Array:
        """Log probability of all items in some order, by the chain rule of `weights`: () float.

        `jaxmf.testing.check_chain_rule` compares the two.
        """

    def weight_shapes(
        self, counts: Array, hyperparameters: Hyperparameters
    ) -> tuple[Array, Array | None]:
        """Parameters of the Dirichlet distributions of the groups' probabilities given the items.

        Of priors that are Dirichlet conditionally, for `sweep="parallel"`.

        Returns:
            Parameters (G, K), 0 where a group is not in use, and that of all other groups together,
            () or (G,); None if there are no others.
        Raises:
            TypeError: the prior does not say.
        """
        raise missing_hook(self, "weight_shapes", 'sweep="parallel"', "sweep='sequential'")

    def update_hyperparameters(
        self, key: Array, hyperparameters: Hyperparameters, counts: Array
    ) -> Hyperparameters:
        """A draw of the hyperparameters from a kernel that leaves their conditional invariant.

        Without it those that are single positive numbers are slice sampled by `log_prob`.
        """
        raise missing_hook(
            self, "update_hyperparameters", "learning hyperparameters", "numbers for them"
        )


def missing_hook(prior: object, hook: str, need: str, instead: str) -> TypeError:
    """The error of a sampler that needs a method which a prior or a family does not have.

    Args: instead: what a user can write without.
    """
    return TypeError(
        f"{need} needs {type(prior).__name__}.{hook}, which is not defined; define it, or write "
        f"{instead}"
    )


def is_kind(prior: object, *kinds: type) -> bool:
    """Whether a prior or a family is one of some classes, with the probabilities of that class.

    A subclass with other probabilities is another prior: kernels that are derived from the
    probabilities of a class must not take it for that class.
    """
    return any(
        isinstance(prior, kind)
        and all(
            getattr(type(prior), name, None) is getattr(kind, name, None) for name in _PROBABILITIES
        )
        for kind in kinds
    )


_PROBABILITIES = ("weights", "log_prob", "log_marginal", "predictive")


def default_gamma(prior: object, names: tuple[str, ...]) -> None:
    """Gamma(1, 1) in place of fields that are None; refuses what is not a positive number."""
    for name in names:
        if getattr(prior, name) is None:
            import numpyro.distributions as dist

            assign(prior, **{name: dist.Gamma(1.0, 1.0)})
        hyper.validate(name, getattr(prior, name))


def moved(cache: CountCache, batch: Array, group: Array, amount: int) -> CountCache:
    """An item joins a group of a batch (amount 1) or leaves it (-1)."""
    sizes, totals = cache.sizes, cache.totals
    return cache._replace(
        counts=tables.add_entry(cache.counts, batch, group, amount),
        sizes=None if sizes is None else tables.add(sizes, batch, amount),
        totals=None if totals is None else tables.add(totals, group, amount),
    )


def _normalisers(cache: CountCache, lanes: Lanes) -> Array:
    assert cache.sizes is not None
    assert cache.whole is not None
    return tables.take(cache.sizes, lanes) + cache.whole


def at(index: Array, size: int) -> Array:
    """(size,) bool, true at one index."""
    return jnp.arange(size, dtype=jnp.int32) == index
