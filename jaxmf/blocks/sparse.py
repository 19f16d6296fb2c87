"""The exact sequential sweep of topics whose work a token does not grow with their number.

Each token is drawn from the same conditional as in `sequential.py`, parameters summed out, written
as a sum of two parts (Yao, Mimno & McCallum 2009; Yu et al. 2015):

    p(k) ~ n_wk G_k + b_w G_k,    G_k = (n_dk + a_k) / (n_k + sum b).

The first has the topics that the word has now: a list of each word's topics and their counts, built
afresh before every sweep. The second has all topics; G and sums of it over pieces of 32 are kept
ready for the document that is worked on, and brought up to date where a count changes. Documents
come one after the other, and there is no table of documents or words times topics.

Source: Yao, Mimno & McCallum (2009), Efficient methods for topic model inference on streaming
document collections; Yu, Hsieh, Yun, Vishwanathan & Dhillon (2015), A scalable asynchronous
distributed algorithm for topic modeling.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf._kernels import special, tables
from jaxmf._kernels.fusion import fused_on_cpu
from jaxmf.blocks.counts import all_values, part_of, slot_sizes
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.topic_lists import (
    Packing,
    TopicLists,
    after_sweep,
    drawn,
    empty_lists,
    is_due,
    made_again,
    moved_counts,
    row_and_lane,
    span_of,
)
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.engine import Info
from jaxmf.priors.partition_prior import CountCache, PartitionPrior
from jaxmf.types import Array, Key, PyTree

_LANES = tables.NUM_LANES
_PIECE_BITS = 5
_PIECE = 1 << _PIECE_BITS  # topics whose weights have one sum, at every capacity: `tables.choose`


def sweep(
    network: Wiring, name: str, key: Key, state: NetworkState, data: Tokens
) -> tuple[NetworkState, Info]:
    """Kernel: the topic of every token, document after document, given all else.

    Args: network: one for which `sparse_by_word.can_be_sparse` holds, with one indicator.
    Returns the state after, and overflow of a growing indicator.
    """
    values, slots = all_values(state, data), slot_sizes(state, network)
    distribution, num_topics = network.distributions[name], slots[name]
    (word,) = network.children(name)
    num_words = network.distributions[word].size
    parts = network.parts(name, network.sizes(data, slots))
    batches, topics = part_of(parts, values, data.num_tokens), values[name]
    order, sizes = tables.sorted_by(batches, parts.num_parts)
    tokens = _DocumentTokens(order, values[word][order], topics[order])
    packing = Packing.of(num_topics)
    lists, slot = _lists(packing, tokens, num_words, num_topics)
    totals = tables.count_pairs(jnp.zeros_like(topics), topics, (1, num_topics))
    cache = distribution.begin(totals, state.hyperparameters[name], with_sizes=False)
    concentration = state.hyperparameters[word]["concentration"]
    uniforms = special.uniforms(key, (data.num_tokens, 4 if distribution.grows else 3))
    start = (lists, totals[0], cache)
    settings = (concentration, jnp.sum(jnp.broadcast_to(concentration, (num_words,))))
    loop = fused_on_cpu(_Sweep(distribution, num_topics, packing).loop, sequential=True)
    topics, totals, prior_share, no_room, _ = loop(
        tokens, slot, jnp.cumsum(sizes), start, settings, uniforms
    )
    state = state._replace(values={**state.values, name: topics})
    return after_sweep(distribution, name, state, totals, prior_share, no_room)


class _DocumentTokens(NamedTuple):
    """The tokens, those of a document side by side: (T,) int32 each."""

    order: Array  # where they stand in the data
    words: Array  # their words
    topics: Array  # their topics


def _lists(
    packing: Packing, tokens: _DocumentTokens, num_words: int, num_topics: int
) -> tuple[TopicLists, Array]:
    """The lists, and of each token (T,) int32 the entry of its word and topic."""
    order, sizes = tables.sorted_by(tokens.words, num_words)
    lists = empty_lists(packing, sizes, tokens.words.shape[0], num_topics, _LANES)
    last = jnp.full((num_topics,), -1, jnp.int32)
    build = fused_on_cpu(partial(_build, packing), sequential=True)
    return build(tokens.words, tokens.topics, order, lists, last)


def _build(
    packing: Packing, words: Array, topics: Array, order: Array, lists: TopicLists, last: Array
) -> tuple[TopicLists, Array]:
    """Word after word; `last` is the entry that each topic had last, in this list or before it."""

    def one(index: Array, carry: PyTree) -> PyTree:
        lengths, rows, last, entry_of = carry
        token = tables.row(order, index)
        word, topic = tables.row(words, token), tables.row(topics, token)
        start = tables.row(lists.starts, word) * _LANES

        def append(carry: PyTree) -> PyTree:
            lengths = tables.add(carry[2], word, 1)
            return jnp.zeros((), bool), start + tables.row(lengths, word) - 1, lengths

        # a loop that turns once or not at all, and whose result is not computed again for each use
        entry = tables.row(last, topic)
        found = tables.entry(rows, *row_and_lane(jnp.maximum(entry, 0), _LANES))
        new = ((entry < start) | (packing.counts(found) == packing.most), entry, lengths)
        _, entry, lengths = jax.lax.while_loop(lambda carry: carry[0], append, new)
        last, entry_of = tables.put(last, topic, entry), tables.put(entry_of, token, entry - start)
        row, lane = row_and_lane(entry, _LANES)
        raised = packing.raised(tables.entry(rows, row, lane), topic)
        return lengths, tables.put_entry(rows, row, lane, raised), last, entry_of

    begin = (lists.lengths, lists.rows, last, jnp.zeros_like(words))
    done = jax.lax.fori_loop(0, words.shape[0], one, begin)
    return TopicLists(lists.starts, *done[:2]), done[3]


class _Table(NamedTuple):
    """G_k of the document that is worked on, and its sums."""

    weights: Array  # (M,) float; zeros at the end; M is a power of two, see `tables.entries_at`
    sums: Array  # (P,) float, over pieces of 32; zeros at the end, P is a multiple of eight
    whole: Array  # () float, of all


class _Sweep(NamedTuple):
    """The loop over all tokens, as decided when it is traced."""

    distribution: PartitionPrior
    num_topics: int
    packing: Packing

    def loop(
        self,
        tokens: _DocumentTokens,
        entries: Array,
        ends: Array,
        start: tuple[TopicLists, Array, CountCache],
        settings: tuple[Array, Array],
        uniforms: Array,
    ) -> tuple[Array, Array, dict[str, Array], Array, Array]:
        """Topics of all tokens (T,), tokens of topics (K,), hyperparameters, no room, lists."""
        concentration, whole = settings
        lists, totals, cache = start

        def one_document(document: Array, carry: PyTree) -> PyTree:
            first, drawn, word_lists, totals, cache, no_room = carry
            end = tables.row(ends, document)
            cache = cache._replace(counts=jnp.zeros_like(cache.counts))

            def count(index: Array, counts: Array) -> Array:
                return tables.add_entry(counts, jnp.zeros((), jnp.int32), topic_at(index), 1)

            cache = cache._replace(counts=jax.lax.fori_loop(first, end, count, cache.counts))
            table = self.table(cache, totals, whole)

            def one_token(index: Array, carry: PyTree) -> PyTree:
                drawn, word_lists, totals, cache, table, no_room = carry
                word, topic = tables.row(tokens.words, index), topic_at(index)
                chance = tables.row(uniforms, index)
                left = tables.row(entries, index)
                totals, cache, table = self.moved(totals, cache, table, whole, topic, None)
                _, room = self.distribution.pseudo(cache)
                b = tables.row(concentration, word) if concentration.ndim else concentration
                topic, word_lists = self.drawn(word_lists, word, left, table, b, chance)
                birth = chance[-1]
                totals, cache, table = self.moved(totals, cache, table, whole, topic, birth)
                drawn = tables.put(drawn, tables.row(tokens.order, index), topic)
                return drawn, word_lists, totals, cache, table, no_room | ~room

            begin = (drawn, word_lists, totals, cache, table, no_room)
            drawn, word_lists, totals, cache, _, no_room = jax.lax.fori_loop(
                first, end, one_token, begin
            )
            return end, drawn, word_lists, totals, cache, no_room

        def topic_at(index: Array) -> Array:
            return tables.row(tokens.topics, index)

        # the list of one document after the other
        cache = cache._replace(counts=jnp.zeros((1, self.num_topics), cache.counts.dtype))
        zero, empty = jnp.zeros((), jnp.int32), jnp.zeros_like(tokens.topics)
        begin = (zero, empty, lists, totals, cache, jnp.zeros((), bool))
        done = jax.lax.fori_loop(0, ends.shape[0], one_document, begin)
        return done[1], done[3], done[4].hyperparameters, done[5], done[2].rows

    def table(self, cache: CountCache, totals: Array, whole: Array) -> _Table:
        """All of it afresh."""
        pseudo, _ = self.distribution.pseudo(cache)
        weights = (cache.counts[0] + pseudo) / (totals + whole)
        weights = jnp.pad(weights, (0, -self.num_topics % _PIECE))
        sums = tables.sums_of_pieces(weights, _PIECE)
        return _Table(tables.to_power_of_two(weights), sums, tables.sum_in_lanes(sums))

    def moved(
        self,
        totals: Array,
        cache: CountCache,
        table: _Table,
        whole: Array,
        topic: Array,
        birth: Array | None,
    ) -> tuple[Array, CountCache, _Table]:
        """A token out of a topic (birth None), or into it."""
        totals, cache, count = moved_counts(self.distribution, totals, cache, topic, birth)
        pseudo, _ = self.distribution.pseudo(cache)
        total = tables.row(totals, topic)
        amount, pseudo = -1 if birth is None else 1, tables.row(pseudo, topic)
        weight = (count + pseudo) / (total + whole)
        # what the weight was is computed and not read: the table would be copied
        change = weight - (count - amount + pseudo) / (total - amount + whole)
        weights, sums = tables.put(table.weights, topic, weight), table.sums
        table = _Table(
            weights, tables.add(sums, topic >> _PIECE_BITS, change), table.whole + change
        )
        is_needed = is_due(self.distribution, total, birth)
        make = partial(self.table, cache, totals, whole)
        return totals, cache, made_again(make, table, is_needed)

    def drawn(
        self,
        lists: TopicLists,
        word: Array,
        left: Array,
        table: _Table,
        concentration: Array,
        chance: Array,
    ) -> tuple[Array, TopicLists]:
        """A topic for a token of a word that leaves an entry, and the lists with it."""

        def draw_smooth() -> Array:
            piece = tables.choose(table.sums, chance[1])
            inside = _run(table.weights, piece * _PIECE, _PIECE)
            return piece * _PIECE + tables.choose(inside, chance[2])

        span = span_of(lists, word, tables.row(lists.starts, word))
        weigh = partial(tables.entries_at, table.weights)
        smooth = concentration * table.whole, draw_smooth
        return drawn(self.packing, lists, span, left, weigh, smooth, chance)


def _run(table: Array, start: Array, size: int) -> Array:
    """Entries of a table that stand side by side: (size,)."""
    return tables.take(table, tables.Lanes(start, 1, size))
