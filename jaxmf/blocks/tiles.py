"""The parallel sweep of topics by tiles: tiles side by side, the tokens of each one by one.

Documents are dealt into P groups and words into P groups, all with about as many tokens. The tokens
of a group of documents and a group of words are a tile. Tiles with other documents and other words
have nothing in common but the totals of topics, and these come apart as well, by the aggregation
property of the Dirichlet distribution. The words of topic k are drawn as

    m_k ~ Dirichlet(b_1, ..., b_P),     the group of each word;  b_g is the sum of b_w in group g
    psi_kg ~ Dirichlet(b_w; w in g),    the word within it.

Given m, with psi and the proportions of documents summed out,

    p(z_i = k | other tokens, m) ~ (n_dk + a_k) m_kg (n_wk + b_w) / (n_kg + b_g),

where no number is of another document or another group of words. So P tiles may be swept at the
same time, and P such rounds are a sweep. Drawn is m alone, P numbers a topic from large counts, so
that a token changes its topic nearly as easily as with all parameters summed out. Were the words of
topics drawn, a token of a rare word would hardly ever leave the topic that it gave the word to.

Tile (g, g XOR r) is of round r. So blocks of 2, 4, 8, ... groups meet as blocks: of a mesh axis
"data" every device has a block of documents and one block of words at a time, which then goes to
another. Uniforms are those of the token, sums are of whole numbers, and the order of tiles that are
not independent is the same, so the draws are the same on any number of devices.

Source: Ihler & Newman (2012), Understanding errors in approximate distributed latent Dirichlet
allocation, for tiles that share totals alone; Ferguson (1973), A Bayesian analysis of some
nonparametric problems, for the aggregation property.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from jaxmf._kernels import special, tables
from jaxmf._kernels.fusion import fused_on_cpu
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.tile_layout import TileLayout, num_bits
from jaxmf.blocks.tile_shares import TileShares, count_from
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.row_shards import DATA_AXIS, on_each_device
from jaxmf.types import Array, Key, PyTree

_LEAST = 1e-30


class _SweepInput(NamedTuple):
    """Inputs of a sweep; a device has the tokens of its documents."""

    documents: Array  # (T,) int32, in the order of the sweep, as all of a token is
    words: Array  # (T,) int32
    topics: Array  # (T,) int32
    uniforms: Array  # (T,) float
    turns: Array  # (B + 1,) int32, where the turns of a device start
    alpha: Array  # (K,) float, zero for topics that only fill up vectors
    beta: Array  # (P * words of a group,) float
    wholes: Array  # (P,) float, b_g
    totals: Array  # (P, K) int32, n_kg
    masses: Array  # (P, K) float, m_kg


# what every device has its share of
_SPREAD = ("documents", "words", "topics", "uniforms", "turns")


class _WordTables(NamedTuple):
    """Tables of the group of words that a device has at the time."""

    counts: Array  # (V', K) float
    totals: Array  # (G, K) int32
    shares: Array  # (G, K) float, m_kg / (n_kg + b_g)


def sweep(
    network: Wiring,
    key: Key,
    state: NetworkState,
    data: Tokens,
    layout: TileLayout | TileShares,
) -> NetworkState:
    """Kernel: the topic of every token given all else, tiles side by side.

    Leaves the posterior invariant.

    Args:
        network: one for which `can_be_tiled` holds.
        layout: see `layout_of`, or the shares of devices; the topics of the state lie as these.
    Returns:
        The state after.
    """
    (name,) = network.indicators
    (word,) = network.children(name)
    num_topics = network.distributions[name].num_groups(1)
    num_words = network.distributions[word].size
    num_documents = network.parts(name, network.sizes(data, {})).num_parts
    uniforms_key, masses_key = jax.random.split(key)
    alpha = jnp.broadcast_to(state.hyperparameters[name]["concentration"], (num_topics,))
    beta = jnp.broadcast_to(state.hyperparameters[word]["concentration"], (num_words,))
    beta = jnp.append(beta, 0)[layout.word_at]
    wholes = jnp.sum(beta.reshape(layout.num_groups, -1), axis=1)
    padding = tables.padded(num_topics) - num_topics
    if isinstance(layout, TileShares):
        topics = state.values[name]
        uniforms = layout.by_token(special.uniforms_at, layout.position, uniforms_key)
        turns, num_blocks = layout.turns, layout.num_blocks
        counts = layout.counts(layout.words, topics, (beta.size, num_topics + padding))
        totals = jnp.sum(counts.reshape(layout.num_groups, -1, counts.shape[1]), axis=1)
    else:
        topics = state.values[name][layout.order]
        uniforms = special.uniforms(uniforms_key, (data.num_tokens,))
        turns, num_blocks = layout.starts[jnp.array([0, -1])], 1
        groups = layout.words // (beta.size // wholes.size)
        totals = tables.count_pairs(groups, topics, (layout.num_groups, num_topics + padding))
    masses = _masses(masses_key, totals[:, :num_topics] + wholes[:, None])
    inputs = _SweepInput(
        layout.documents,
        layout.words,
        topics,
        uniforms,
        turns,
        jnp.pad(alpha, (0, padding)),
        beta,
        wholes,
        totals,
        jnp.pad(masses, [(0, 0), (0, padding)]),
    )
    run = _TileSweep(num_topics, num_documents, layout.num_groups, num_blocks)
    if not isinstance(layout, TileShares):
        drawn = run.all_turns(inputs, None, jnp.zeros((), jnp.int32))[layout.position]
        return state._replace(values=state.values | {name: drawn})

    def share(inputs: _SweepInput, counts: Array) -> Array:
        return run.all_turns(inputs, counts, jax.lax.axis_index(DATA_AXIS))

    spread, everywhere = PartitionSpec(DATA_AXIS), PartitionSpec()
    fields: PyTree = {
        field: spread if field in _SPREAD else everywhere for field in _SweepInput._fields
    }
    specs = (inputs._replace(**fields), everywhere)
    drawn = on_each_device(share, specs, spread)(inputs, counts)
    return state._replace(values=state.values | {name: drawn})


def _masses(key: Key, shapes: Array) -> Array:
    """m_kg from Dirichlet distributions with n_kg + b_g: (P, K) float, from (P, K)."""
    is_group = shapes > 0  # there may be fewer words than groups
    logs = special.loggammas(key, jnp.where(is_group, shapes, 1))
    return jax.nn.softmax(jnp.where(is_group, logs, -jnp.inf), axis=0)


class _TileSweep(NamedTuple):
    """A sweep, as decided when it is traced; block b of documents is that of device b."""

    num_topics: int
    num_documents: int
    num_groups: int
    num_blocks: int

    @property
    def groups_of_block(self) -> int:
        """How many groups of documents, or of words, a device has at a time."""
        return self.num_groups // self.num_blocks

    def all_turns(self, inputs: _SweepInput, counts: Array | None, device: Array) -> Array:
        """The topics (T,) int32 of the documents of a device.

        Args: counts: (P * words of a group, K) int32 of all documents; None where the sweep counts.
        """
        width, size = inputs.alpha.shape[0], inputs.beta.shape[0] // self.num_blocks
        shape = (-(-self.num_documents // self.num_groups) * self.groups_of_block, width)
        if counts is None:
            documents, here = (jnp.zeros(s, inputs.alpha.dtype) for s in (shape, (size, width)))
        else:
            documents = count_from(inputs.documents, inputs.topics, device * shape[0], shape)
            here = jax.lax.dynamic_slice_in_dim(counts, device * size, size)
            documents, here = (one.astype(inputs.alpha.dtype) for one in (documents, here))
        totals, masses, wholes = (
            self._rows_of(each, device) for each in (inputs.totals, inputs.masses, inputs.wholes)
        )
        # a group without words has neither
        shares = masses / jnp.maximum(totals + wholes[:, None], _LEAST)
        carry = (jnp.zeros_like(inputs.topics), documents, _WordTables(here, totals, shares))

        def one_turn(turn: Array, carry: PyTree) -> PyTree:
            return fused_on_cpu(self.draw, sequential=True)(inputs, device, turn, *carry)

        bits = num_bits(self.num_blocks)
        return self._in_turn(one_turn, bits, jnp.zeros((), jnp.int32), carry)[0]

    def _in_turn(
        self, one: Callable[[Array, PyTree], PyTree], bits: int, turn: Array, carry: PyTree
    ) -> PyTree:
        """2^bits turns: each of as many devices has each of their blocks of words once.

        Half of the turns, then the blocks go to the device whose number differs in the highest of
        these bits, then the other half; and back again.
        """
        if not bits:
            return one(turn, carry)
        mask = 1 << (bits - 1)
        swaps = [(device, device ^ mask) for device in range(self.num_blocks)]

        def half(carry: PyTree, which: Array) -> tuple[PyTree, None]:
            drawn, documents, words = self._in_turn(one, bits - 1, 2 * turn + which, carry)
            words = jax.tree.map(lambda leaf: jax.lax.ppermute(leaf, DATA_AXIS, swaps), words)
            return (drawn, documents, words), None

        return jax.lax.scan(half, carry, jnp.arange(2, dtype=jnp.int32))[0]

    def _rows_of(self, table: Array, block: Array) -> Array:
        """The rows of a table (P, ...) that belong to the groups of a block."""
        first = block * self.groups_of_block
        return jax.lax.dynamic_slice_in_dim(table, first, self.groups_of_block)

    def draw(
        self,
        inputs: _SweepInput,
        device: Array,
        turn: Array,
        drawn: Array,
        documents: Array,
        words: _WordTables,
    ) -> tuple[Array, Array, _WordTables]:
        """All tiles of the documents of a device with the words that it has in a turn."""
        num_lanes = tables.lanes_for(self.num_topics)
        words_of_group = inputs.beta.shape[0] // self.num_groups
        first_document = device * documents.shape[0]
        first_group = (device ^ turn) * self.groups_of_block
        first_word = first_group * words_of_group

        def moved(
            documents: Array,
            words: _WordTables,
            document: Array,
            word: Array,
            topic: Array,
            amount: int,
        ) -> tuple[Array, _WordTables]:
            group = word // words_of_group
            mass = tables.entry(inputs.masses, group, topic)
            whole = tables.row(inputs.wholes, group)
            group, word = group - first_group, word - first_word
            # changed first, then read: else the old totals must be kept, which is a copy
            totals = tables.add_entry(words.totals, group, topic, amount)
            share = mass / (tables.entry(totals, group, topic).astype(mass.dtype) + whole)
            shares = tables.put_entry(words.shares, group, topic, share)
            counts = tables.add_entry(words.counts, word, topic, amount)
            documents = tables.add_entry(documents, document, topic, amount)
            return documents, _WordTables(counts, totals, shares)

        def one_token(index: Array, carry: PyTree) -> PyTree:
            drawn, documents, words = carry
            document = tables.row(inputs.documents, index) - first_document
            word, topic = tables.row(inputs.words, index), tables.row(inputs.topics, index)
            documents, words = moved(documents, words, document, word, topic, -1)
            weights = tables.row(documents, document) + inputs.alpha
            weights *= tables.row(words.counts, word - first_word) + tables.row(inputs.beta, word)
            weights *= tables.row(words.shares, word // words_of_group - first_group)
            chance = tables.row(inputs.uniforms, index)
            topic = tables.choose(weights, chance, num_lanes=num_lanes)
            documents, words = moved(documents, words, document, word, topic, 1)
            return tables.put(drawn, index, topic), documents, words

        def one_count(index: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            document, word = tables.row(inputs.documents, index), tables.row(inputs.words, index)
            topic = tables.row(inputs.topics, index)
            counts = tables.add_entry(carry[1], word, topic, 1)
            return tables.add_entry(carry[0], document, topic, 1), counts

        if self.num_blocks == 1:  # in the same kernel: between two, large tables are copied
            num_tokens, carry = inputs.topics.shape[0], (documents, words.counts)
            documents, counts = jax.lax.fori_loop(0, num_tokens, one_count, carry)
            words = words._replace(counts=counts)
        # one loop over all tiles: a loop of loops would copy the tables before each
        start, end = (tables.row(inputs.turns, turn + after) for after in (0, 1))
        return jax.lax.fori_loop(start, end, one_token, (drawn, documents, words))
