"""Priors of partitions: which group an item belongs to, given those of the others.

Items come in batches (the words of a document, the ratings of a user; all of them where there is
one batch only). A prior says how likely an item of batch g is to join group k, its probabilities
summed out: a weight for each group that depends on the counts n_gk alone, and for growing priors
one for a group that no item has yet, which takes the lowest free slot.

    Dirichlet            n_gk + a_k
    DirichletProcess     n_gk,                 new: alpha
    PitmanYor            n_gk - d,             new: alpha + d K_g
    HDP                  n_gk + alpha tau_k,   new: alpha tau_rest

Source: Porteous (2010), chapters 2 and 4; Teh, Jordan, Beal & Blei (2006), Hierarchical Dirichlet
processes, for the last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln

from jaxmf import tables
from jaxmf.priors import hyper
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.special import log_rising
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


class PartitionPrior:
    """What a network asks of a prior of partitions, and what all of them share.

    Attributes:
        grows: whether there is always room for a group that no item has yet.
        labels_shared: whether label k means the same group in every batch.
        pads: whether a sweep may have more groups than there are, which have no weight, and more
            batches.
        hyperparameters: names of the fields that may have priors.
    """

    grows = True
    labels_shared = False
    pads = False
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
        return _moved(seating, batch, group, -1)

    def seat(self, seating: Seating, batch: Array, group: Array, uniform: Array) -> Seating:
        """Puts an item in; `uniform` () in [0, 1) decides how large a new group is."""
        del uniform
        return _moved(seating, batch, group, 1)

    def move(self, seating: Seating, batch: Array, group: Array, amount: int) -> Seating:
        """An item of a known group joins a batch (amount 1) or leaves it (-1)."""
        return _moved(seating, batch, group, amount)

    def weights(self, seating: Seating, batch: Array) -> tuple[Array, Array]:
        """Weights (K,) of the next item of a batch, and whether there was room for a new group."""
        raise NotImplementedError

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
        """What is added to counts, (K,), and whether there was room for a new group."""
        if seating.pseudo is None:
            raise NotImplementedError(f"{type(self).__name__} has no groups that batches share")
        room = jnp.ones((), bool) if seating.free is None else seating.free < seating.pseudo.size
        return seating.pseudo, room

    def log_prob(self, counts: Array, numbers: Numbers) -> Array:
        """Log probability of all items in some order: () float."""
        raise NotImplementedError


def _register(cls: Any, data_fields: list[str], meta_fields: list[str]) -> Any:
    return jax.tree_util.register_dataclass(cls, data_fields, meta_fields)


def _moved(seating: Seating, batch: Array, group: Array, amount: int) -> Seating:
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


def _at(place: Array, size: int) -> Array:
    return jnp.arange(size, dtype=jnp.int32) == place


@partial(_register, data_fields=["concentration"], meta_fields=["num_components"])
@dataclass(frozen=True)
class Dirichlet(PartitionPrior):
    """A finite number of groups, with Dirichlet probabilities for every batch.

    pi_g ~ Dirichlet(a_1, ..., a_K), k_i ~ pi_g.

    Args:
        num_components: K.
        concentration: a, that of each group (a / K of some packages is theirs, the sum is K times
            this); a number, K numbers, or a numpyro distribution of one number for all.

    Raises:
        TypeError, ValueError: settings that are no such thing.

    Example:
        >>> Dirichlet(3, concentration=0.1).num_groups(16)
        3
    """

    num_components: int
    concentration: Hyperparameter = 0.1

    grows = False
    labels_shared = True
    pads = True

    def __post_init__(self) -> None:
        check_size("num_components", self.num_components)
        concentration = check_concentrations(self.concentration, self.num_components)
        object.__setattr__(self, "concentration", concentration)

    def num_groups(self, capacity: int) -> int:
        del capacity
        return self.num_components

    def begin(self, counts: Array, numbers: Numbers, *, with_sizes: bool) -> Seating:
        pseudo = self._all(numbers)
        wider = jnp.pad(pseudo, (0, counts.shape[1] - self.num_components))
        seating = super().begin(counts, numbers, with_sizes=with_sizes)
        return seating._replace(pseudo=wider, whole=jnp.sum(pseudo))

    def weights(self, seating: Seating, batch: Array) -> tuple[Array, Array]:
        pseudo, room = self.pseudo(seating)
        return tables.row(seating.counts, batch) + pseudo, room

    def log_prob(self, counts: Array, numbers: Numbers) -> Array:
        concentration = self._all(numbers)
        return jnp.sum(log_dirichlet_multinomial(counts, concentration))

    def _all(self, numbers: Numbers) -> Array:
        return jnp.broadcast_to(numbers["concentration"], (self.num_components,))


@partial(_register, data_fields=["concentration"], meta_fields=[])
@dataclass(frozen=True)
class DirichletProcess(PartitionPrior):
    """A Dirichlet process a batch: as many groups as the items need.

    The labels of a batch mean nothing in another: what depends on such a group depends on the batch
    too. Groups that batches share are those of `HDP`.

    Args:
        concentration: alpha, a number or a numpyro distribution; by default Gamma(1, 1).

    Raises:
        TypeError, ValueError: a setting that is no such thing.

    Example:
        >>> DirichletProcess(1.0).grows
        True
    """

    concentration: Hyperparameter = None

    def __post_init__(self) -> None:
        _default_gamma(self, self.hyperparameters)

    def weights(self, seating: Seating, batch: Array) -> tuple[Array, Array]:
        counts = tables.row(seating.counts, batch)
        size = counts.shape[0]
        new = tables.lowest(counts == 0)
        weights = counts + jnp.where(_at(new, size), seating.numbers["concentration"], 0)
        return weights, new < size

    def log_prob(self, counts: Array, numbers: Numbers) -> Array:
        return log_exchangeable(counts, numbers["concentration"], 0.0)


@partial(_register, data_fields=["concentration", "discount"], meta_fields=[])
@dataclass(frozen=True)
class PitmanYor(PartitionPrior):
    """A Pitman-Yor process a batch: more small groups than a Dirichlet process has.

    Args:
        concentration: alpha, a positive number or a numpyro distribution; by default Gamma(1, 1).
        discount: d in [0, 1), a number or a numpyro distribution.

    Raises:
        TypeError, ValueError: settings that are no such thing.

    Example:
        >>> PitmanYor(1.0, 0.5).discount
        0.5
    """

    concentration: Hyperparameter = None
    discount: Hyperparameter = 0.5

    hyperparameters = ("concentration", "discount")

    def __post_init__(self) -> None:
        _default_gamma(self, ("concentration",))
        hyper.validate_probability("discount", self.discount, zero=True)

    def weights(self, seating: Seating, batch: Array) -> tuple[Array, Array]:
        counts = tables.row(seating.counts, batch)
        size, discount = counts.shape[0], seating.numbers["discount"]
        occupied = counts > 0
        new = tables.lowest(~occupied)
        of_new = seating.numbers["concentration"] + discount * jnp.sum(occupied)
        weights = jnp.where(occupied, counts - discount, jnp.where(_at(new, size), of_new, 0))
        return weights, new < size

    def log_prob(self, counts: Array, numbers: Numbers) -> Array:
        return log_exchangeable(counts, numbers["concentration"], numbers["discount"])


@partial(_register, data_fields=["concentration", "base_concentration"], meta_fields=[])
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
        TypeError, ValueError: settings that are no such thing.

    Example:
        >>> HDP(concentration=1.0, base_concentration=1.0).labels_shared
        True
    """

    concentration: Hyperparameter = None
    base_concentration: Hyperparameter = None

    labels_shared = True
    hyperparameters = ("concentration", "base_concentration")

    def __post_init__(self) -> None:
        _default_gamma(self, self.hyperparameters)

    def start(self, num_slots: int) -> Numbers:
        return super().start(num_slots) | _no_groups(num_slots)

    def simulate_numbers(self, key: Array, num_slots: int) -> Numbers:
        return super().simulate_numbers(key, num_slots) | _no_groups(num_slots)

    def begin(self, counts: Array, numbers: Numbers, *, with_sizes: bool) -> Seating:
        seating = super().begin(counts, numbers, with_sizes=with_sizes)
        assert seating.totals is not None
        shares = _shares(seating.totals, numbers["weights"], numbers["rest"])
        pseudo, free = numbers["concentration"] * shares[0], shares[1]
        return seating._replace(pseudo=pseudo, whole=numbers["concentration"], free=free)

    def unseat(self, seating: Seating, batch: Array, group: Array) -> Seating:
        seating = _moved(seating, batch, group, -1)
        assert seating.totals is not None
        is_empty = tables.row(seating.totals, group) == 0

        def give_back(weights: Array, rest: Array) -> tuple[Array, Array]:
            # a group that no item has is one of the others: its weight goes back to them
            weight = tables.row(weights, group)
            return tables.put(weights, group, jnp.zeros_like(weight)), rest + weight

        return _settled(seating, is_empty, give_back)

    def seat(self, seating: Seating, batch: Array, group: Array, uniform: Array) -> Seating:
        seating = _moved(seating, batch, group, 1)
        assert seating.totals is not None
        is_new = tables.row(seating.totals, group) == 1
        base = seating.numbers["base_concentration"]

        def take(weights: Array, rest: Array) -> tuple[Array, Array]:
            # its share of the rest is Beta(1, gamma)
            log_kept = jnp.log1p(-uniform) / base
            # where gamma is small all but nothing is left, where it is large nothing is taken
            tiny = jnp.finfo(rest.dtype).tiny
            taken = jnp.maximum(-jnp.expm1(log_kept) * rest, tiny)
            left = jnp.maximum(jnp.exp(log_kept) * rest, tiny)
            return tables.put(weights, group, taken), left

        return _settled(seating, is_new, take)

    def weights(self, seating: Seating, batch: Array) -> tuple[Array, Array]:
        pseudo, room = self.pseudo(seating)
        return tables.row(seating.counts, batch) + pseudo, room

    def log_prob(self, counts: Array, numbers: Numbers) -> Array:
        in_use = jnp.sum(counts, axis=0) > 0
        weights = jnp.where(in_use, numbers["weights"], 1)
        base, concentration = numbers["base_concentration"], numbers["concentration"]
        # the density of the weights of K groups, whatever their order, and of the rest
        of_weights = jnp.sum(in_use) * jnp.log(base) - jnp.sum(jnp.log(weights))
        of_weights += (base - 1) * jnp.log(numbers["rest"])
        pseudo = concentration * weights
        # Gamma(n + p) / Gamma(p) by its first factor, as p may be too small for a float
        rising = jnp.log(concentration) + jnp.log(weights)
        rising += gammaln(counts + pseudo) - gammaln(1 + pseudo)
        of_items = jnp.sum(jnp.where(counts > 0, rising, 0))
        sizes = jnp.sum(counts, axis=1)
        of_items += jnp.sum(gammaln(concentration) - gammaln(concentration + sizes))
        return of_weights + of_items


def _shares(totals: Array, weights: Array, rest: Array) -> tuple[Array, Array]:
    """Weights (K,) of all groups, the rest at the lowest free one; and that, K where none is."""
    free = tables.lowest(totals == 0)
    return weights + jnp.where(_at(free, totals.shape[0]), rest, 0), free


def _settled(
    seating: Seating,
    has_changed: Array,
    change_fn: Callable[[Array, Array], tuple[Array, Array]],
) -> Seating:
    """The weights after a group has come or gone.

    That is seldom, so it is a loop that turns once or not at all: the arrays are not touched where
    nothing has changed.
    """
    numbers, totals = seating.numbers, seating.totals
    assert totals is not None
    assert seating.pseudo is not None
    assert seating.free is not None
    concentration = numbers["concentration"]

    def change(carry: Any) -> Any:
        _, weights, rest, _, _ = carry
        weights, rest = change_fn(weights, rest)
        shares, free = _shares(totals, weights, rest)
        return jnp.zeros((), bool), weights, rest, concentration * shares, free

    start = (has_changed, numbers["weights"], numbers["rest"], seating.pseudo, seating.free)
    done = jax.lax.while_loop(lambda carry: carry[0], change, start)
    _, weights, rest, pseudo, free = done
    numbers = numbers | {"weights": weights, "rest": rest}
    return seating._replace(numbers=numbers, pseudo=pseudo, free=free)


def _no_groups(num_slots: int) -> Numbers:
    dtype = jnp.result_type(float)
    return {"weights": jnp.zeros((num_slots,), dtype), "rest": jnp.ones((), dtype)}


def log_dirichlet_multinomial(counts: Array, concentration: Array) -> Array:
    """Log probability of items in some order with these counts, their probabilities summed out.

    Args:
        counts: (..., K).
        concentration: (K,) float.

    Returns:
        (...) float.
    """
    total = jnp.sum(concentration)
    rising = jnp.sum(gammaln(counts + concentration) - gammaln(concentration), axis=-1)
    return rising + gammaln(total) - gammaln(total + jnp.sum(counts, axis=-1))


def log_exchangeable(counts: Array, concentration: Array, discount: Array | float) -> Array:
    """Log probability of a partition of every batch under a Pitman-Yor process.

    prod_g [prod_{j<K_g} (alpha + j d)] [prod_k (1 - d)_(n_k - 1)] Gamma(alpha) / Gamma(alpha + n_g)
    with rising factorials (x)_n = x (x + 1) ... (x + n - 1).

    Args:
        counts: (G, K).
        concentration: () float, positive.
        discount: () float in [0, 1).

    Returns:
        () float.
    """
    dtype = jnp.result_type(float)
    of_sizes = gammaln(jnp.maximum(jnp.sum(counts, axis=1), 1).astype(dtype))
    of_counts = gammaln(jnp.maximum(counts, 1).astype(dtype))
    return log_of_settings(counts, concentration, discount) + jnp.sum(of_counts) - jnp.sum(of_sizes)


def log_of_settings(counts: Array, concentration: Array, discount: Array | float) -> Array:
    """`log_exchangeable` without the terms of the counts alone, which drown the others in float32.

    Args:
        counts, concentration, discount: as there.

    Returns:
        () float.
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
    of_each = gammaln(concentration) - log_rising(jnp.maximum(sizes, 1), concentration)
    return jnp.sum(jnp.where(sizes > 0, of_each, 0))


def check_size(name: str, value: Any) -> None:
    """Refuses what is no number of groups or values."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def check_concentrations(value: Any, size: int | None) -> Hyperparameter:
    """One concentration for all or one for each, as it is kept.

    Raises:
        TypeError, ValueError: not positive, or not as many as asked for.
    """
    if hyper.is_placeholder(value) or not hyper.is_fixed(value) or np.ndim(value) == 0:
        hyper.validate("concentration", value)
        return value
    array = np.asarray(value, float)
    if array.ndim != 1 or size not in (None, array.size):
        raise ValueError(
            "concentration must be one number or "
            f"{f'{size} of them' if size else 'one for each'}, got shape {array.shape}"
        )
    if not np.all(np.isfinite(array) & (array > 0)):
        first = int(np.argmin(np.isfinite(array) & (array > 0)))
        raise ValueError(
            f"concentration must be positive and finite, got {array[first]} at position {first}"
        )
    return jnp.asarray(array, jnp.result_type(float))


def _default_gamma(prior: Any, names: tuple[str, ...]) -> None:
    for name in names:
        if getattr(prior, name) is None:
            import numpyro.distributions as dist

            object.__setattr__(prior, name, dist.Gamma(1.0, 1.0))
        hyper.validate(name, getattr(prior, name))
