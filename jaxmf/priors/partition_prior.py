"""What a network asks of a prior of partitions, and what all of them share.

Items come in batches (the words of a document, the ratings of a user; all of them where there is
one batch only). A prior says how likely an item of batch g is to join group k, its probabilities
summed out: a weight for each group that depends on the counts n_gk alone, and for growing priors
one for a group that no item has yet, which takes the lowest free slot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxmf import tables
from jaxmf.priors import hyper
from jaxmf.readable import Readable
from jaxmf.tables import Lanes

Numbers = dict[str, Array]
"""The hyperparameters of a prior in a state, by name; those of the HDP include its weights."""


class Seating(NamedTuple):
    """Counts as a sweep works on them.

    Attributes:
        counts: (G, K) float, items of batch g in group k; exact up to 2^24.
        sizes: (G,) float, items of a batch; None where nothing asks for it.
        totals: (K,) int32, items of a group, of a prior whose groups are shared by batches and
            come and go; otherwise None.
        numbers: the hyperparameters.
        pseudo: (K,) float, what is added to the counts of a batch; of priors whose groups are
            shared by batches, otherwise None.
        whole: () float, the sum of it and of what other groups have; likewise.
        free: () int32, the lowest group that no item has, K where there is none; of priors with
            `totals`, otherwise None.
    """

    counts: Array
    sizes: Array | None
    totals: Array | None
    numbers: Numbers
    pseudo: Array | None = None
    whole: Array | None = None
    free: Array | None = None


class PartitionPrior(Readable, ABC):
    """What a network asks of a prior of partitions, and what all of them share.

    Attributes:
        grows: whether there is always room for a group that no item has yet.
        labels_shared: whether label k means the same group in every batch.
        pads: whether a sweep may have more groups than there are, which have no weight, and more
            batches.
        fuses: whether what it does may stand in one kernel with a loop, see `jaxmf.fusion`.
        in_turn: whether items that come one after the other, each by `weights`, follow its law.
        hyperparameters: names of the fields that may have priors.
    """

    grows = True
    labels_shared = False
    pads = False
    fuses = True
    in_turn = True
    hyperparameters: tuple[str, ...] = ("concentration",)

    def num_groups(self, capacity: int) -> int:
        """K, for a wished number of slots."""
        return capacity

    def start(self, num_slots: int) -> Numbers:
        """Hyperparameters before any item: at the means of their priors."""
        del num_slots
        return {name: hyper.initial_value(getattr(self, name)) for name in self.hyperparameters}

    def simulate_numbers(self, key: Array, num_slots: int) -> Numbers:
        """Hyperparameters from their priors, before any item."""
        del num_slots
        keys = jax.random.split(key, len(self.hyperparameters))
        return {
            name: hyper.sample_prior(key, getattr(self, name))
            for key, name in zip(keys, self.hyperparameters, strict=True)
        }

    def begin(self, counts: Array, numbers: Numbers, *, with_sizes: bool) -> Seating:
        """Counts (G, K) int32 as a sweep works on them."""
        dtype = jnp.result_type(float)
        return Seating(
            counts=counts.astype(dtype),
            sizes=jnp.sum(counts, axis=1).astype(dtype) if with_sizes else None,
            totals=jnp.sum(counts, axis=0) if self.grows and self.labels_shared else None,
            numbers=numbers,
        )

    def end(self, seating: Seating) -> tuple[Array, Numbers]:
        """The counts (G, K) int32 and hyperparameters that a sweep leaves."""
        return seating.counts.astype(jnp.int32), seating.numbers

    def unseat(self, seating: Seating, batch: Array, group: Array) -> Seating:
        """Takes an item out."""
        return moved(seating, batch, group, -1)

    def seat(self, seating: Seating, batch: Array, group: Array, uniform: Array) -> Seating:
        """Puts an item in; `uniform` () in [0, 1) decides how large a new group is."""
        del uniform
        return moved(seating, batch, group, 1)

    def move(self, seating: Seating, batch: Array, group: Array, amount: int) -> Seating:
        """An item of a known group joins a batch (amount 1) or leaves it (-1)."""
        return moved(seating, batch, group, amount)

    @abstractmethod
    def weights(self, seating: Seating, batch: Array) -> tuple[Array, Array]:
        """Weights (K,) of the next item of a batch, and whether there was room for a new group."""

    def laws(self, seating: Seating, lanes: Lanes) -> tuple[Array, Array]:
        """Probabilities of the next item of several batches, and whether there was room.

        (lanes.size, K) and (). Of priors with shared labels only; needs sizes.
        """
        pseudo, room = self.pseudo(seating)
        weights = tables.take(seating.counts, lanes) + pseudo
        return weights * (1 / _normalisers(seating, lanes))[:, None], room

    def predictive(self, seating: Seating, lanes: Lanes, group: Array) -> Array:
        """Probability that the next item of several batches is in a group in use: (lanes.size,).

        Of priors with shared labels only; needs sizes.
        """
        pseudo, _ = self.pseudo(seating)
        counts = tables.take_from_column(seating.counts, lanes, group)
        return (counts + tables.row(pseudo, group)) / _normalisers(seating, lanes)

    def pseudo(self, seating: Seating) -> tuple[Array, Array]:
        """What is added to counts, (K,), and whether there was room for a new group.

        Raises:
            TypeError: the groups of a batch mean nothing in another.
        """
        if seating.pseudo is None:
            raise TypeError(
                f"the groups of a {type(self).__name__} are those of one batch; only groups that "
                "batches share, as those of Dirichlet and HDP, have one weight for all"
            )
        room = jnp.ones((), bool) if seating.free is None else seating.free < seating.pseudo.size
        return seating.pseudo, room

    def of_new_tables(self) -> PartitionPrior:
        """The law of the dish of a table when tables come and go, in a sweep over tokens."""
        return self

    @abstractmethod
    def log_prob(self, counts: Array, numbers: Numbers) -> Array:
        """Log probability of all items in some order: () float."""

    def weight_shapes(self, counts: Array, numbers: Numbers) -> tuple[Array, Array | None]:
        """Parameters of the Dirichlet distributions of the groups' probabilities given the items.

        Of priors that are Dirichlet conditionally, for `sweep="parallel"`.

        Args:
            counts: (G, K) int32.
            numbers: the hyperparameters.

        Returns:
            Parameters (G, K), 0 where a group is not in use, and that of all other groups together,
            () or (G,); None if there are no others.

        Raises:
            TypeError: the prior does not say.
        """
        raise missing_hook(self, "weight_shapes", 'sweep="parallel"', "sweep='sequential'")

    def update_numbers(self, key: Array, numbers: Numbers, counts: Array) -> Numbers:
        """A draw of the hyperparameters from a kernel that leaves their conditional invariant.

        Without it those that are single positive numbers are slice sampled by `log_prob`.

        Args:
            key: typed PRNG key.
            numbers: before.
            counts: (G, K) int32.

        Returns:
            The hyperparameters after.
        """
        raise missing_hook(self, "update_numbers", "learning hyperparameters", "numbers for them")


def missing_hook(prior: object, hook: str, need: str, instead: str) -> TypeError:
    """The error of a sampler that needs a method which a prior or a family does not have.

    Args:
        prior: a prior of partitions, or a family.
        hook: the name of the method.
        need: what needs it.
        instead: what a user can write without.
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


def default_gamma(prior: Any, names: tuple[str, ...]) -> None:
    """Gamma(1, 1) in place of fields that are None; refuses what is no positive number."""
    for name in names:
        if getattr(prior, name) is None:
            import numpyro.distributions as dist

            object.__setattr__(prior, name, dist.Gamma(1.0, 1.0))
        hyper.validate(name, getattr(prior, name))


def moved(seating: Seating, batch: Array, group: Array, amount: int) -> Seating:
    """An item joins a group of a batch (amount 1) or leaves it (-1)."""
    sizes, totals = seating.sizes, seating.totals
    return seating._replace(
        counts=tables.add_entry(seating.counts, batch, group, amount),
        sizes=None if sizes is None else tables.add(sizes, batch, amount),
        totals=None if totals is None else tables.add(totals, group, amount),
    )


def _normalisers(seating: Seating, lanes: Lanes) -> Array:
    assert seating.sizes is not None
    assert seating.whole is not None
    return tables.take(seating.sizes, lanes) + seating.whole


def at(place: Array, size: int) -> Array:
    """(size,) bool, true at one place."""
    return jnp.arange(size, dtype=jnp.int32) == place
