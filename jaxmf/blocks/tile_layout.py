"""How the tokens of topics are laid out for the sweep by tiles, and which networks have it.

Documents are dealt into P groups and words into P groups, all with about as many tokens, by their
counts alone. What that is for stands in `tiles.py`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf._kernels import tables
from jaxmf._kernels.fusion import fused_on_cpu
from jaxmf.blocks.counts import part_of
from jaxmf.blocks.sparse_by_word import can_be_sparse
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.devices import default_platform
from jaxmf.types import Array, PyTree

_MOST_GROUPS = 32  # as many devices at most have something to do
# With fewer in a group its masses are drawn from small counts, and hold tokens as words would.
_LEAST_WORDS = 4
_LEAST_TOKENS = 10  # of a topic
_HEAVY = 2**31 - 1  # more tokens than there are


class TileLayout(NamedTuple):
    """The tokens in the order of a sweep, tile by tile.

    Sorted by the bits of the round and of the group of documents in turn, the highest first. So the
    tiles of 2^s groups of documents with 2^s of words stand side by side, for every s.
    """

    order: Array  # (T,) int32, where they stand in the data
    position: Array  # (T,) int32, where those of the data stand in this order
    documents: Array  # (T,) int32, their documents, those of a group side by side
    words: Array  # (T,) int32, their words, likewise
    starts: Array  # (P * P + 1,) int32, where tiles start in this order
    word_at: Array  # (P * words of a group,) int32, which words these are; V where there is none

    @property
    def num_groups(self) -> int:
        """P."""
        return math.isqrt(self.starts.shape[0] - 1)


class Tiled(NamedTuple):
    """Data with the layout of their tokens."""

    data: object
    layout: TileLayout


def can_be_tiled(network: Wiring) -> bool:
    """Whether the network is words of a fixed number of topics by documents, as LDA."""
    return (
        can_be_sparse(network)
        and len(network.indicators) == 1
        and not network.distributions[network.indicators[0]].grows
        and bool(network.blocks[network.indicators[0]].by)
    )


def are_tiled(network: Wiring, data: Tokens) -> bool:
    """Whether the parallel sweep of a network over these tokens goes by tiles.

    On a CPU alone: elsewhere each of T / P steps would be some kernels that the host starts. And
    not where the table of documents and topics that it takes would be larger than 2^31 entries.
    """
    if default_platform() != "cpu" or not can_be_tiled(network):
        return False
    (name,) = network.indicators
    num_documents = network.parts(name, network.sizes(data, {})).num_parts
    return num_documents * network.distributions[name].num_groups(1) <= tables.MOST_FLAT


def num_groups(num_tokens: int, num_topics: int, num_words: int) -> int:
    """P, of documents as of words: a power of two, whatever the number of devices."""
    most = min(num_words // _LEAST_WORDS, num_tokens // (num_topics * _LEAST_TOKENS), _MOST_GROUPS)
    return 1 << num_bits(max(most, 2))


def layout_of(network: Wiring, data: Tokens) -> TileLayout:
    """The layout of tokens; it depends on their documents and words alone."""
    (name,) = network.indicators
    (word,) = network.children(name)
    parts = network.parts(name, network.sizes(data, {}))
    items = part_of(parts, data.columns, data.num_tokens), data.columns[word]
    sizes = parts.num_parts, network.distributions[word].size
    num_topics = network.distributions[name].num_groups(1)
    count = num_groups(data.num_tokens, num_topics, sizes[1])
    dealt, groups = [], []
    for item, size in zip(items, sizes, strict=True):
        dealt.append(deal(jnp.zeros((size,), jnp.int32).at[item].add(1), count))
        groups.append(dealt[-1][item] // -(-size // count))
    tile = interleaved(groups[0] ^ groups[1], groups[0], num_bits(count))
    order, in_tiles = tables.sorted_by(tile, count**2)
    starts = jnp.concatenate([jnp.zeros((1,), jnp.int32), jnp.cumsum(in_tiles, dtype=jnp.int32)])
    word_at = jnp.full((count * -(-sizes[1] // count),), sizes[1], jnp.int32)
    word_at = word_at.at[dealt[1]].set(jnp.arange(sizes[1], dtype=jnp.int32))
    documents, words = (new[item[order]] for new, item in zip(dealt, items, strict=True))
    position = jnp.zeros_like(order).at[order].set(jnp.arange(order.shape[0], dtype=jnp.int32))
    return TileLayout(order, position, documents, words, starts, word_at)


def num_bits(power: int) -> int:
    """Bits that numbers below a power of two have."""
    return power.bit_length() - 1


def interleaved(first: Array, second: Array, num_bits: int) -> Array:
    """The bits of two numbers in turn, the highest of the first number first."""
    pairs = (((first >> bit & 1) * 2 + (second >> bit & 1)) << 2 * bit for bit in range(num_bits))
    return sum(pairs, jnp.zeros_like(second))


def deal(sizes: Array, num_groups: int) -> Array:
    """Deals items to groups, the largest first, each to the lightest group that has room.

    Args: sizes (N,) int32.
    Returns (N,) int32, new numbers of the items, those of a group side by side.
    """
    room = -(-sizes.shape[0] // num_groups)

    def loop(sizes: Array, order: Array) -> Array:
        def one(index: Array, carry: PyTree) -> PyTree:
            new, weights, taken = carry
            item = tables.row(order, index)
            lightest = jnp.min(jnp.where(taken < room, weights, _HEAVY))
            is_it = (taken < room) & (weights == lightest)
            group = tables.lowest(is_it)
            new = tables.put(new, item, group * room + tables.row(taken, group))
            weights = tables.add(weights, group, tables.row(sizes, item))
            return new, weights, tables.add(taken, group, 1)

        nothing = jnp.zeros((num_groups,), jnp.int32)
        start = (jnp.zeros_like(sizes), nothing, nothing)
        return jax.lax.fori_loop(0, sizes.shape[0], one, start)[0]

    order = jnp.argsort(-sizes, stable=True).astype(jnp.int32)
    return fused_on_cpu(loop, sequential=True)(sizes, order)
