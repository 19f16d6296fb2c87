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
from jaxmf.blocks.packing import Packing
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.engine import Info
from jaxmf.priors.partition_prior import CountCache, PartitionPrior
from jaxmf.types import Array, Key, PyTree

_LANES = tables.NUM_LANES
_PIECE = 32  # topics whose weights have one sum; the same at every capacity, see `tables.choose`


def sweep(
    network: Wiring, name: str, key: Key, state: NetworkState, data: Tokens
) -> tuple[NetworkState, Info]:
    """Kernel: the topic of every token, document after document, given all else.

    Args: network: one for which `sparse_by_word.can_be_sparse` holds, with one indicator.
    Returns the state after, and overflow of a growing indicator.
    """
    values, slots = all_values(state, data), slot_sizes(state, network)
    distribution, num_topics = network.blocks[name].distribution, slots[name]
    (word,) = network.children(name)
    num_words = network.blocks[word].distribution.size
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
    drawn, totals, prior_share, no_room = loop(
        tokens, slot, jnp.cumsum(sizes), start, settings, uniforms
    )
    state = state._replace(values={**state.values, name: drawn})
    if not distribution.grows:
        return state, Info(overflow={})
    hyperparameters = {**state.hyperparameters, name: prior_share}
    occupied = {**state.slots, name: totals > 0}
    state = state._replace(hyperparameters=hyperparameters, slots=occupied)
    return state, Info(overflow={name: no_room})


class _DocumentTokens(NamedTuple):
    """The tokens, those of a document side by side: (T,) int32 each."""

    order: Array  # where they stand in the data
    words: Array  # their words
    topics: Array  # their topics


class _Lists(NamedTuple):
    """The topics of every word.

    An entry is a topic and its count in one word, see `Packing`. One whose count has fallen to zero
    leaves a hole, which the next new one takes; a list never has more entries than the word has
    tokens, nor than there are topics while counts are below the largest that an entry can hold.
    """

    starts: Array  # (V,) int32, where the list of a word starts
    lengths: Array  # (V,) int32, how many entries it has, holes included
    entries: Array  # (M,) uint32; zero behind the end of a list


def _lists(
    packing: Packing, tokens: _DocumentTokens, num_words: int, num_topics: int
) -> tuple[_Lists, Array]:
    """The lists, and of each token (T,) int32 the entry of its word and topic."""
    num_tokens = tokens.words.shape[0]
    order, sizes = tables.sorted_by(tokens.words, num_words)
    room = -(-packing.room(sizes, num_topics) // _LANES) * _LANES
    most = num_tokens + (_LANES - 1) * min(num_words, num_tokens)
    if num_tokens <= packing.most:
        most = min(most, num_words * (-(-min(num_tokens, num_topics) // _LANES) * _LANES))
    lists = _Lists(
        starts=jnp.cumsum(room) - room,
        lengths=jnp.zeros((num_words,), jnp.int32),
        # there may be no token
        entries=jnp.zeros((max(most, _LANES),), jnp.uint32),
    )
    last = jnp.full((num_topics,), -1, jnp.int32)
    build = fused_on_cpu(partial(_build, packing), sequential=True)
    return build(tokens.words, tokens.topics, order, lists, last)


def _build(
    packing: Packing, words: Array, topics: Array, order: Array, lists: _Lists, last: Array
) -> tuple[_Lists, Array]:
    """Word after word; `last` is the entry that each topic had last, in this list or before it."""

    def one(index: Array, carry: PyTree) -> PyTree:
        lengths, entries, last, entry_of = carry
        token = tables.row(order, index)
        word, topic = tables.row(words, token), tables.row(topics, token)
        start = tables.row(lists.starts, word)

        def append(carry: PyTree) -> PyTree:
            lengths = tables.add(carry[2], word, 1)
            return jnp.zeros((), bool), start + tables.row(lengths, word) - 1, lengths

        # a loop that turns once or not at all, and whose result is not computed again for each use
        entry = tables.row(last, topic)
        is_full = packing.counts(tables.row(entries, jnp.maximum(entry, 0))) == packing.most
        new = ((entry < start) | is_full, entry, lengths)
        _, entry, lengths = jax.lax.while_loop(lambda carry: carry[0], append, new)
        last, entry_of = tables.put(last, topic, entry), tables.put(entry_of, token, entry)
        entries = tables.put(entries, entry, packing.raised(tables.row(entries, entry), topic))
        return lengths, entries, last, entry_of

    begin = (lists.lengths, lists.entries, last, jnp.zeros_like(words))
    done = jax.lax.fori_loop(0, words.shape[0], one, begin)
    return _Lists(lists.starts, *done[:2]), done[3]


class _Table(NamedTuple):
    """G_k of the document that is worked on, and its sums."""

    weights: Array  # (M,) float; zeros at the end; M is a power of two, see `tables.entries_at`
    sums: Array  # (P,) float, over pieces of 32; zeros at the end, P is a multiple of eight


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
        start: tuple[_Lists, Array, CountCache],
        settings: tuple[Array, Array],
        uniforms: Array,
    ) -> tuple[Array, Array, dict[str, Array], Array]:
        """Topics of all tokens (T,), tokens of topics (K,), hyperparameters, no room."""
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
                entry = tables.row(entries, index)
                without = tables.row(word_lists.entries, entry) - 1
                without = tables.put(word_lists.entries, entry, without)
                word_lists = word_lists._replace(entries=without)
                totals, cache, table = self.moved(totals, cache, table, whole, topic, None)
                _, room = self.distribution.pseudo(cache)
                b = tables.row(concentration, word) if concentration.ndim else concentration
                topic, word_lists = _drawn(self.packing, word_lists, word, table, b, chance)
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
        return done[1], done[3], done[4].hyperparameters, done[5]

    def table(self, cache: CountCache, totals: Array, whole: Array) -> _Table:
        """All of it afresh."""
        pseudo, _ = self.distribution.pseudo(cache)
        weights = (cache.counts[0] + pseudo) / (totals + whole)
        weights = jnp.pad(weights, (0, -self.num_topics % _PIECE))
        sums = tables.sums_of_pieces(weights, _PIECE)
        return _Table(tables.to_power_of_two(weights), sums)

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
        zero, amount = jnp.zeros((), jnp.int32), -1 if birth is None else 1
        totals = tables.add(totals, topic, amount)
        if birth is None:
            cache = self.distribution.unassign(cache, zero, topic)
        else:
            cache = self.distribution.assign(cache, zero, topic, birth)
        pseudo, _ = self.distribution.pseudo(cache)
        total = tables.row(totals, topic)
        weight = (tables.entry(cache.counts, zero, topic) + tables.row(pseudo, topic)) / (
            total + whole
        )
        weights, piece = tables.put(table.weights, topic, weight), topic // _PIECE
        sums = tables.sum_in_lanes(_run(weights, piece * _PIECE, _PIECE))
        sums = tables.put(table.sums, piece, sums)
        table = _Table(weights, sums)
        if not self.distribution.grows:
            return totals, cache, table
        # where a topic comes or goes, which is seldom, others may have another share
        has_changed = total == (0 if birth is None else 1)

        def again(carry: PyTree) -> PyTree:
            return jnp.zeros((), bool), self.table(cache, totals, whole)

        table = jax.lax.while_loop(lambda carry: carry[0], again, (has_changed, table))[1]
        return totals, cache, table


def _drawn(
    packing: Packing,
    lists: _Lists,
    word: Array,
    table: _Table,
    concentration: Array,
    chance: Array,
) -> tuple[Array, _Lists]:
    """A topic for a token of a word, and the lists with it."""
    start, length = tables.row(lists.starts, word), tables.row(lists.lengths, word)
    num_rows = -(-length // _LANES)

    def add_row(index: Array, lanes: Array) -> Array:
        found = _run(lists.entries, start + index * _LANES, _LANES)
        weights = tables.entries_at(table.weights, packing.topics(found))
        return lanes + packing.counts(found) * weights

    lanes = jax.lax.fori_loop(0, num_rows, add_row, jnp.zeros((_LANES,), table.weights.dtype))
    list_weight = tables.sum_in_lanes(lanes)
    smooth_weight = concentration * tables.sum_in_lanes(table.sums)
    is_listed = chance[0] * (list_weight + smooth_weight) < list_weight
    lane = tables.choose(lanes, chance[1])
    goal = chance[2] * tables.row(lanes, lane)

    def follow(carry: PyTree) -> PyTree:
        index, passed, chosen, word_of_chosen, _ = carry
        entry = start + index * _LANES + lane
        found = tables.row(lists.entries, entry)
        weight = packing.counts(found) * tables.entries_at(table.weights, packing.topics(found))
        passed = passed + weight
        # rounding may let the sum end short of the goal: then it is the last one with weight
        chosen, word_of_chosen = tables.either(weight > 0, (entry, found), (chosen, word_of_chosen))
        return index + 1, passed, chosen, word_of_chosen, passed > goal

    nothing, nowhere = jnp.zeros((), goal.dtype), jnp.zeros((), jnp.uint32)
    begin = (jnp.zeros((), jnp.int32), nothing, start, nowhere, ~is_listed)
    done = jax.lax.while_loop(lambda carry: ~carry[4] & (carry[0] < num_rows), follow, begin)

    listed, listed_word = packing.topics(done[3]), done[3]

    def find_entry(carry: PyTree) -> PyTree:
        piece = tables.choose(table.sums, chance[1])
        inside = _run(table.weights, piece * _PIECE, _PIECE)
        topic = piece * _PIECE + tables.choose(inside, chance[2])
        topic = jnp.where(is_listed, listed, topic)
        entry = _entry_for(packing, lists, start, num_rows, topic)
        return jnp.zeros((), bool), topic, entry, tables.row(lists.entries, entry)

    # what stands in the entry comes out of the loops: read beside them, all would be copied
    is_full = packing.counts(listed_word) == packing.most
    begun = (~is_listed | is_full, listed, done[2], listed_word)
    _, topic, entry, found = jax.lax.while_loop(lambda carry: carry[0], find_entry, begun)
    entries = tables.put(lists.entries, entry, packing.raised(found, topic))
    length = jnp.maximum(length, entry - start + 1)
    return topic, lists._replace(lengths=tables.put(lists.lengths, word, length), entries=entries)


def _entry_for(
    packing: Packing, lists: _Lists, start: Array, num_rows: Array, topic: Array
) -> Array:
    """The entry of a topic with room, or that which it takes: the first hole, or behind the end."""
    size = lists.entries.shape[0]
    across = jnp.arange(_LANES, dtype=jnp.int32)
    least = packing.entry(topic, 0)

    def look(index: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        there, hole = carry
        first = start + index * _LANES
        found = _run(lists.entries, first, _LANES)
        # in whole numbers without sign those of other topics are far away on either side
        is_topic, is_hole = found - least < packing.most, packing.counts(found) == 0
        there = jnp.minimum(there, jnp.min(jnp.where(is_topic, first + across, size)))
        return there, jnp.minimum(hole, jnp.min(jnp.where(is_hole, first + across, size)))

    none = jnp.full((), size, jnp.int32)
    there, hole = jax.lax.fori_loop(0, num_rows, look, (none, none))
    hole = jnp.minimum(hole, start + num_rows * _LANES)
    return jnp.where(there < size, there, hole)


def _run(table: Array, start: Array, size: int) -> Array:
    """Entries of a table that stand side by side: (size,)."""
    return tables.take(table, tables.Lanes(start, 1, size))
