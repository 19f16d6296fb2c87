"""Further levels of a column, such as documents or users not seen in training, given a draw.

What the training data taught is held at its posterior mean: the predictive distributions of
observed blocks, and of indicators that do not hang on the column. The indicators of the new tokens
that do are sampled, each new level having separate probabilities, and these are averaged.

New levels are independent of each other given a draw, and their answers too: random numbers follow
from what a level's tokens are, not from the others that are asked for with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import xlogy

from jaxmf._kernels import tables
from jaxmf._kernels.tables import Lanes
from jaxmf.blocks.counts import all_parts, all_values, slot_sizes, statistics_of
from jaxmf.blocks.kept_counts import num_groups
from jaxmf.blocks.prediction import (
    Draw,
    family_statistics,
    hyperparameters_of,
    probabilities,
    pseudo_counts,
)
from jaxmf.blocks.sequential import first_sweep, sweep
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.likelihoods.families.family import SweptFamily
from jaxmf.priors.partition_prior import PartitionPrior
from jaxmf.priors.partitions import Dirichlet
from jaxmf.types import Array, Key, PyTree


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _KnownFamily(SweptFamily):
    """A family whose groups have the statistics of the training data, whatever joins them."""

    distribution: Any
    known: PyTree
    hyperparameters: dict[str, Array]

    pads = False

    @property
    def is_log(self) -> bool:  # type: ignore[override]
        return self.distribution.is_log

    def statistics(self, groups: Array, values: Array, num_groups: int) -> PyTree:
        del groups, values, num_groups
        return ()

    def begin(self, statistics: PyTree, hyperparameters: dict[str, Array]) -> PyTree:
        del statistics, hyperparameters
        return self.distribution.begin(self.known, self.hyperparameters)

    def move(self, cache: PyTree, group: Array, value: Array, amount: int) -> PyTree:
        del group, value, amount
        return cache

    def predictive(self, cache: PyTree, lanes: Lanes, value: Array) -> Array:
        return self.distribution.predictive(cache, lanes, value)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _KnownPartition(PartitionPrior):
    """Groups with fixed probabilities in every batch: (G, K) float."""

    table: Array

    grows = False
    labels_shared = True
    hyperparameters = ()

    def num_groups(self, capacity: int) -> int:
        del capacity
        return self.table.shape[1]

    def begin(
        self, counts: Array, hyperparameters: dict[str, Array], *, with_sizes: bool
    ) -> PyTree:
        del counts, hyperparameters, with_sizes
        return self.table

    def unassign(self, counts: object, batch: Array, group: Array) -> PyTree:
        del batch, group
        return counts

    def assign(self, counts: object, batch: Array, group: Array, uniform: Array) -> PyTree:
        del batch, group, uniform
        return counts

    def move(self, counts: object, batch: Array, group: Array, amount: int) -> PyTree:
        del batch, group, amount
        return counts

    def weights(self, counts: PyTree, batch: Array) -> tuple[Array, Array]:
        return tables.row(counts, batch), jnp.ones((), bool)

    def next_probabilities(self, counts: PyTree, lanes: Lanes) -> tuple[Array, Array]:
        return tables.take(counts, lanes), jnp.ones((), bool)

    def predictive(self, counts: PyTree, lanes: Lanes, group: Array) -> Array:
        return tables.take_from_column(counts, lanes, group)

    def log_prob(self, counts: Array, hyperparameters: dict[str, Array]) -> Array:
        del hyperparameters
        return jnp.sum(xlogy(counts, self.table))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _AroundShared(Dirichlet):
    """A Dirichlet prior around shared weights, which are zero where no group is."""

    def __post_init__(self) -> None:
        pass


def fold_in(
    network: Wiring,
    key: Key,
    draw: Draw,
    new: Tokens,
    column: str,
    *,
    num_sweeps: int = 40,
) -> dict[str, Array]:
    """Probabilities of the indicators of new levels of a column.

    The answer for a level depends on its tokens, their order and the key alone.

    Args:
        new: tokens whose levels of `column` are the new ones; all other columns have the levels of
            the training data.
        column: such as "document".
        num_sweeps: over the new tokens; the second half is averaged.
    Returns:
        For every indicator that hangs on the column (*parts, K) float, the column's axis having the
        new levels; groups are those of the draw.
    Raises:
        ValueError: no indicator hangs on the column.
    """
    inside = tuple(name for name in network.indicators if column in network.blocks[name].by)
    if not inside:
        raise ValueError(f"no indicator of the network is partitioned by {column!r}")
    held = _held(network, draw, column)
    values = {name: jnp.zeros((new.num_tokens,), jnp.int32) for name in held.indicators}
    hyperparameters = {
        name: {"concentration": held.distributions[name].concentration} if name in inside else {}
        for name in held.indicators
    }
    hyperparameters |= {
        name: hyperparameters_of(network, draw, name) if column in network.blocks[name].by else {}
        for name in held.observed
    }
    state = NetworkState(values, hyperparameters, {})
    if new.num_tokens == 0:
        return _current(held, inside, state, new)
    known: tuple[str, ...] = ()
    token_keys = _token_keys(key, new, column)
    for position, name in enumerate(held.indicators):
        state = first_sweep(held, (name,), known, _fold_all(token_keys, position), state, new)
        known = (*known, name)

    def once(index: Array, carry: tuple[NetworkState, dict[str, Array]]) -> PyTree:
        state, total = carry
        for position, name in enumerate(held.indicators):
            turn = len(known) * (1 + index) + position
            state, _ = sweep(held, (name,), _fold_all(token_keys, turn), state, new)
        current = _current(held, inside, state, new)
        is_kept = index >= num_sweeps // 2
        return state, {name: total[name] + jnp.where(is_kept, current[name], 0) for name in inside}

    start = jax.tree.map(jnp.zeros_like, _current(held, inside, state, new))
    total = jax.lax.fori_loop(0, num_sweeps, once, (state, start))[1]
    return {name: total[name] / (num_sweeps - num_sweeps // 2) for name in inside}


def level_keys(key: Key, new: Tokens, column: str) -> Key:
    """Keys (M,) of levels by what their tokens are, in whatever order.

    A sum of hashes of the tokens: with the same random numbers for all levels an average over
    levels would have the error of a single one.
    """
    described = {**new.columns, **new.values}
    hashes = jnp.zeros((new.num_tokens,), jnp.uint32)
    for name in sorted(described):
        if name != column:
            bits = jax.lax.bitcast_convert_type(described[name], jnp.uint32)
            for part in bits.reshape(new.num_tokens, math.prod(bits.shape[1:])).T:
                hashes = _mixed(hashes ^ part)
    contents = jnp.zeros((new.sizes[column],), jnp.uint32).at[new.columns[column]].add(hashes)
    return jax.vmap(lambda content: jax.random.fold_in(key, content))(contents)


def _token_keys(key: Key, new: Tokens, column: str) -> Key:
    """Keys (T,) by level and the position of a token among the tokens of its level."""
    levels = new.columns[column]
    order, sizes = tables.sorted_by(levels, new.sizes[column])
    starts = jnp.cumsum(sizes) - sizes
    positions = jnp.zeros_like(order).at[order].set(jnp.arange(order.size) - starts[levels[order]])
    return jax.vmap(jax.random.fold_in)(level_keys(key, new, column)[levels], positions)


def _mixed(bits: Array) -> Array:
    """A hash of 32 bits, in which every bit of the argument counts (Wellons, lowbias32)."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x7FEB352D)
    bits = (bits ^ (bits >> 15)) * jnp.uint32(0x846CA68B)
    return bits ^ (bits >> 16)


def _fold_all(keys: Key, turn: Array | int) -> Key:
    return jax.vmap(lambda key: jax.random.fold_in(key, turn))(keys)


def _held(network: Wiring, draw: Draw, column: str) -> Wiring:
    """The network with learned parameters in place of unknown ones."""
    blocks = {}
    for name, block in network.blocks.items():
        distribution = block.distribution
        if block.observed and column in block.by:
            continue
        if block.observed:
            if f"{name}_cells" in draw:
                distribution = distribution.with_size(draw[f"{name}_cells"].shape[0])
            statistics, _ = family_statistics(network, draw, name)
            known = hyperparameters_of(network, draw, name)
            distribution = _KnownFamily(distribution, statistics, known)
        elif column in block.by:
            distribution = prior_of_new_levels(network, draw, name)
        else:
            table = probabilities(network, draw, name)
            distribution = _KnownPartition(table.reshape(-1, table.shape[-1]))
        blocks[name] = block.with_distribution(distribution)
    return network.with_blocks(blocks)


def prior_of_new_levels(network: Wiring, draw: Draw, name: str) -> Dirichlet:
    """The prior of a new level's probabilities: a Dirichlet prior around the shared weights."""
    distribution = network.distributions[name]
    if not distribution.labels_shared:
        raise ValueError(
            f"{name}: the groups of a {type(distribution).__name__} have no meaning for new "
            "levels; use HDP"
        )
    return _AroundShared(num_groups(draw, name), pseudo_counts(network, draw, name))


def _current(
    network: Wiring, names: tuple[str, ...], state: NetworkState, data: Tokens
) -> dict[str, Array]:
    """(n + a) / (N + sum a) of some indicators: (*parts, K) float."""
    values, parts = all_values(state, data), all_parts(network, state, data)
    slots = slot_sizes(state, network)
    result = {}
    for name in names:
        distribution = network.distributions[name]
        counts = statistics_of(name, distribution, parts[name], values, slots[name])
        weights = counts + state.hyperparameters[name]["concentration"]
        shares = weights / jnp.sum(weights, axis=1, keepdims=True)
        result[name] = shares.reshape(*parts[name].shape, -1)
    return result
