"""The statistics of a block, taken from the values of all tokens."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import jax.numpy as jnp

from jaxmf._kernels.tables import count_pairs
from jaxmf.blocks.block import Block
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.wiring import BlockParts, Wiring, parts
from jaxmf.data import Tokens
from jaxmf.likelihoods.families.family import Family
from jaxmf.priors.hdp import HDP
from jaxmf.priors.partition_prior import is_kind
from jaxmf.priors.partitions import Dirichlet
from jaxmf.types import Array, PyTree

MOST_CELLS = 2**24
"""Cells of a table of counts that a log joint makes, or a draw unless asked for: 64 MB."""


def slot_sizes(state: NetworkState, network: Wiring) -> dict[str, int]:
    """The number of values of every indicator."""
    return {
        name: state.slots[name].shape[-1]
        if name in state.slots
        else network.distributions[name].num_groups(1)
        for name in network.indicators
    }


def all_values(state: NetworkState, data: Tokens) -> dict[str, Array]:
    """Every variable of the tokens by name: columns, real values and indicators."""
    return {**data.columns, **data.values, **state.values}


def all_parts(network: Wiring, state: NetworkState, data: Tokens) -> dict[str, BlockParts]:
    """The parts of every block."""
    sizes = network.sizes(data, slot_sizes(state, network))
    return {name: network.parts(name, sizes) for name in network.order}


def part_of(parts: BlockParts, values: Mapping[str, Array], num_tokens: int) -> Array:
    """(T,) int32: the part of every token."""
    table = None if parts.table is None else jnp.asarray(parts.table)
    return jnp.broadcast_to(parts.of(values, table), (num_tokens,))


def statistics_of(
    name: str,
    distribution: Family,
    parts: BlockParts,
    values: Mapping[str, Array],
    num_slots: int | None,
) -> PyTree:
    """The statistics of one block: counts (G, K) int32 of an indicator, else its family's.

    Args: values: of its parents and of itself, (T,) each; num_slots: K of an indicator, None for an
    observed block.
    """
    values_of_block = values[name]
    groups = part_of(parts, values, values_of_block.shape[0])
    if num_slots is not None:
        return count_pairs(groups, values_of_block, (parts.num_parts, num_slots))
    return distribution.statistics(groups, values_of_block, parts.num_parts)


def set_parts(network: Wiring, name: str, sizes: Mapping[str, int]) -> BlockParts:
    """The sets that a block with `per` has a value for each of."""
    block = network.blocks[name]
    return parts(name, Block(block.distribution, by=block.per), sizes)


def first_of_sets(sets: Array, num_sets: int) -> Array:
    """(T,) int32: the first token of the set that a token is in."""
    index = jnp.arange(sets.shape[0], dtype=jnp.int32)
    return jnp.full((num_sets,), sets.shape[0], jnp.int32).at[sets].min(index)[sets]


def count_sets(pair: tuple[Array, Array], first: Array, shape: tuple[int, int]) -> Array:
    """How often each pair occurs, a set counting once.

    Args: pair: two of (T,) int32, within `shape`, alike for all tokens of a set; first (T,) int32,
    see `first_of_sets`.
    Returns (M, L) int32.
    """
    is_first = first == jnp.arange(first.shape[0])
    return jnp.zeros(shape, jnp.int32).at[pair].add(is_first)


def block_statistics(
    network: Wiring, state: NetworkState, data: Tokens, *, without: Collection[str] = ()
) -> dict[str, PyTree]:
    """The statistics of all blocks, or of those that are not left out."""
    parts = all_parts(network, state, data)
    return {
        name: statistics_of_block(network, name, parts[name], state, data)
        for name in network.order
        if name not in without
    }


def num_cells(network: Wiring, data: Tokens, slots: Mapping[str, int]) -> int:
    """The size of the largest table of counts of an indicator."""
    sizes = network.sizes(data, slots)
    parts = {name: network.parts(name, sizes).num_parts for name in network.indicators}
    return max((num_parts * slots[name] for name, num_parts in parts.items()), default=0)


def large_blocks(network: Wiring, data: Tokens, slots: Mapping[str, int]) -> tuple[str, ...]:
    """The indicators whose counts are too many for a table, as those of topics of documents.

    They have a `Dirichlet` or `HDP` prior, of which all that is asked follows from the tokens.

    Args: slots: the number of values of every indicator.
    """
    sizes = network.sizes(data, slots)
    return tuple(
        name
        for name in network.indicators
        if not network.blocks[name].per
        and name not in network.tables
        and network.blocks[name].rho is None
        and is_kind(network.distributions[name], Dirichlet, HDP)
        and network.parts(name, sizes).num_parts * slots[name] > MOST_CELLS
    )


def statistics_of_block(
    network: Wiring, name: str, parts: BlockParts, state: NetworkState, data: Tokens
) -> PyTree:
    """The statistics of one block; of one with `per` counts of sets."""
    values, slots = all_values(state, data), slot_sizes(state, network)
    block = network.blocks[name]
    if not block.per:
        return statistics_of(name, block.distribution, parts, values, slots.get(name))
    groups = part_of(parts, values, data.num_tokens)
    parts_of_sets = set_parts(network, name, network.sizes(data, slots))
    first = first_of_sets(part_of(parts_of_sets, values, data.num_tokens), parts_of_sets.num_parts)
    return count_sets((groups, values[name]), first, (parts.num_parts, slots[name]))
