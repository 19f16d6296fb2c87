"""The statistics of a block, taken from the values of all tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from jaxmf.blocks.state import State
from jaxmf.blocks.wiring import Parts
from jaxmf.data import Tokens
from jaxmf.tables import count_pairs
from jaxmf.types import Array, PyTree

if TYPE_CHECKING:
    from jaxmf.blocks.network import Network


def slot_sizes(state: State, network: Network) -> dict[str, int]:
    """The number of values of every indicator."""
    return {
        name: state.slots[name].shape[-1]
        if name in state.slots
        else network.blocks[name].law.num_groups(1)
        for name in network.indicators
    }


def all_values(state: State, data: Tokens) -> dict[str, Array]:
    """Every variable of the tokens by name: columns, real values and indicators."""
    return {**data.columns, **data.values, **state.values}


def all_parts(network: Network, state: State, data: Tokens) -> dict[str, Parts]:
    """The parts of every block."""
    sizes = network.sizes(data, slot_sizes(state, network))
    return {name: network.parts(name, sizes) for name in network.order}


def part_of(parts: Parts, values: Mapping[str, Array], num_tokens: int) -> Array:
    """(T,) int32: the part of every token."""
    table = None if parts.table is None else jnp.asarray(parts.table)
    return jnp.broadcast_to(parts.of(values, table), (num_tokens,))


def statistics_of(
    name: str, law: Any, parts: Parts, values: Mapping[str, Array], num_slots: int | None
) -> PyTree:
    """The statistics of one block: counts (G, K) int32 of an indicator, otherwise its family's own.

    Args:
        name: of the block.
        law: of the block.
        parts: of the block.
        values: of its parents and of itself, (T,) each.
        num_slots: K of an indicator, None for an observed block.
    """
    own = values[name]
    groups = part_of(parts, values, own.shape[0])
    if num_slots is not None:
        return count_pairs(groups, own, (parts.number, num_slots))
    return law.statistics(groups, own, parts.number)


def block_statistics(network: Network, state: State, data: Tokens) -> dict[str, PyTree]:
    """The statistics of all blocks."""
    values, parts = all_values(state, data), all_parts(network, state, data)
    slots = slot_sizes(state, network)
    return {
        name: statistics_of(name, network.blocks[name].law, parts[name], values, slots.get(name))
        for name in network.order
    }
