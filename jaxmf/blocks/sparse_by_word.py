"""The sweep of `sparse.py` word by word: of paths through two levels of topics, and of many tokens.

Each token is drawn from the same conditional as in `sequential.py`, parameters summed out, written
as a sum of two parts (Yao, Mimno & McCallum 2009; Yu et al. 2015, section 4.2, word by word):

    p(k) ~ n_dk Q_k + a_k Q_k,    Q_k = (n_wk + b_w) / (n_k + sum b).

The first has the topics that the document has now: a list of each document's topics and their
counts, built afresh before every sweep. The second has all topics; Q, and sums of a Q over pieces
of 32, are kept ready for the word that is worked on, and brought up to date where a count changes.
Words come one after the other, and there is no table of documents or words times topics. Lists of
documents are short where those of words have a thousand topics.

Topics of topics (Pachinko allocation of two levels) go the same way. The path of a token is j and
then k, drawn together, and with S_j = (n_dj + c_j) / (n_dj + sum a)

    p(j, k) ~ S_j n_djk Q_k + S_j a_k Q_k,

where the second part is a product of one over j and one over k.

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
    LANES,
    ListSpan,
    Packing,
    TopicLists,
    after_sweep,
    drawn,
    entry_of,
    is_due,
    lists_of,
    made_again,
    moved_counts,
    span_of,
)
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.engine import Info
from jaxmf.likelihoods.families.categories import DirichletMultinomial
from jaxmf.priors.hdp import HDP
from jaxmf.priors.partition_prior import CountCache, PartitionPrior, is_kind
from jaxmf.priors.partitions import Dirichlet
from jaxmf.types import Array, Key, PyTree

_PIECE_BITS = 5
_PIECE = 1 << _PIECE_BITS  # topics whose weights have one sum, at every capacity: `tables.choose`
_CHUNK = 64  # tokens that are read together,
_NUM_READ = 8  # and how many rows of the lists of their documents


def can_be_sparse(network: Wiring) -> bool:
    """Whether the network is words of topics of batches, as LDA, HDPLDA and PAM of two levels."""
    if len(network.indicators) not in (1, 2):
        return False
    *above, topics = network.indicators
    by = [frozenset(network.blocks[name].by) for name in network.indicators]
    kinds = (Dirichlet,) if above else (Dirichlet, HDP)
    is_path = not above or (by[1] == by[0] | {*above} and network.children(*above) == (topics,))
    below = network.children(topics)
    return (
        is_path
        and not by[0].intersection(network.indicators)
        and all(
            is_kind(network.distributions[name], *kinds)
            and not network.blocks[name].per
            and network.blocks[name].rho is None
            for name in network.indicators
        )
        and len(below) == 1
        and network.blocks[below[0]].by == (topics,)
        and network.blocks[below[0]].rho is None
        and is_kind(network.distributions[below[0]], DirichletMultinomial)
    )


def sweep(
    network: Wiring, key: Key, state: NetworkState, data: Tokens
) -> tuple[NetworkState, Info]:
    """Kernel: the topic of every token, or its path, word after word, given all else.

    Args: network: one for which `can_be_sparse` holds.
    Returns the state after, and overflow of a growing indicator.
    """
    values, slots = all_values(state, data), slot_sizes(state, network)
    *above, name = network.indicators
    distribution, num_topics = network.distributions[name], slots[name]
    (word,) = network.children(name)
    num_words = network.distributions[word].size
    parts = network.parts(network.indicators[0], network.sizes(data, slots))
    documents, paths = part_of(parts, values, data.num_tokens), values[name]
    totals = tables.count_pairs(jnp.zeros_like(paths), paths, (1, num_topics))
    cache = distribution.begin(totals, state.hyperparameters[name], with_sizes=False)
    first, num_paths = None, num_topics
    for parent in above:
        num_first = slots[parent]
        num_paths, paths = num_topics * num_first, values[parent] * num_topics + paths
        counts = tables.count_pairs(documents, values[parent], (parts.num_parts, num_first))
        concentration = state.hyperparameters[parent]["concentration"]
        concentration = jnp.broadcast_to(concentration, (num_first,))
        first = _FirstLevel(counts, concentration, cache.pseudo.sum())
    order, sizes = tables.sorted_by(values[word], num_words)
    in_use, kinds = tables.sorted_by((sizes == 0).astype(jnp.int32), 2)
    tokens = _WordTokens(order, documents, in_use, kinds[0], jnp.cumsum(sizes))
    packing = Packing.of(num_paths)
    lists = lists_of(packing, documents, paths, parts.num_parts, num_paths)
    concentration = state.hyperparameters[word]["concentration"]
    settings = (concentration, jnp.sum(jnp.broadcast_to(concentration, (num_words,))))
    compiled = _SweepByWord(distribution, num_topics, bool(above), packing)
    loop = fused_on_cpu(compiled.loop, sequential=True)
    words_of_key = jax.random.bits(key, (2,), jnp.uint32)
    paths, totals, prior_share, no_room, _ = loop(
        tokens, paths[:, None], (lists, totals[0], cache, first), settings, words_of_key
    )
    paths = paths[:, 0]
    topics = {name: paths}
    for parent in above:
        topics = {parent: paths // num_topics, name: paths % num_topics}
    state = state._replace(values=state.values | topics)
    return after_sweep(distribution, name, state, totals, prior_share, no_room)


class _WordTokens(NamedTuple):
    """The tokens, and the order in which they come: those of a word side by side."""

    order: Array  # (T,) int32
    documents: Array  # (T,) int32
    in_use: Array  # (V,) int32, the words, those that have tokens first
    num_in_use: Array  # () int32
    ends: Array  # (V,) int32, where the tokens of a word end in the order


class _FirstLevel(NamedTuple):
    """The first level of paths."""

    counts: Array  # (D, J) int32, tokens of a document
    concentration: Array  # (J,) float
    below: Array  # () float, the sum of the concentrations of the second level


class _TokenChunk(NamedTuple):
    """Some tokens that follow one another, and what they need, read at the same time.

    They are all over memory: one after the other each would wait for it anew.
    """

    tokens: Array  # (C,) int32, where they stand in the data
    documents: Array  # (C,) int32
    paths: Array  # (C,) int32
    starts: Array  # (C,) int32, the row where the list of the document starts
    uniforms: Array  # (C, 4) float
    touched: Array  # () int32, the least bit of some entries of their lists, now at hand


class _WordTable(NamedTuple):
    """Q and sums of it for the word that is worked on; zeros at the end."""

    weights: Array  # (M,) float, Q_k; M is a power of two, see `tables.entries_at`
    smooth: Array  # (32 P,) float, a_k Q_k
    sums: Array  # (P,) float, of these, over pieces of 32
    whole: Array  # () float, of all


class _SweepByWord(NamedTuple):
    """The loop over all tokens, as decided when it is traced."""

    distribution: PartitionPrior
    num_topics: int
    is_path: bool
    packing: Packing

    def loop(
        self,
        tokens: _WordTokens,
        paths: Array,
        start: tuple[TopicLists, Array, CountCache, _FirstLevel | None],
        settings: tuple[Array, Array],
        words_of_key: Array,
    ) -> tuple[Array, Array, dict[str, Array], Array, Array]:
        """Topics of all tokens (T, 1), tokens of topics (K,), hyperparameters, no room, lists.

        Args: paths (T, 1) int32, the topics of the tokens, of two levels j K + k. Each is read
        before it is drawn, so that the new ones overwrite the old. Tables that a kernel changes
        are not copied if they have two axes and are among what it returns, see `fused_on_cpu`.
        """
        concentration, whole = settings
        lists, totals, cache, first = start

        def one_word(index: Array, carry: PyTree) -> PyTree:
            begin, paths, lists, totals, cache, first, chunk, no_room = carry
            word = tables.row(tokens.in_use, index)
            end = tables.row(tokens.ends, word)
            b = tables.row(concentration, word) if concentration.ndim else concentration

            def count(index: Array, counts: Array) -> Array:
                path = tables.row(paths, tables.row(tokens.order, index))[0]
                zero, topic = jnp.zeros((), jnp.int32), self.topic(path)
                return tables.add_entry(counts, zero, topic, 1)

            counts = jax.lax.fori_loop(begin, end, count, jnp.zeros_like(cache.counts))
            cache = cache._replace(counts=counts)
            table = self.table(cache, totals, (b, whole))

            def one_token(index: Array, carry: PyTree) -> PyTree:
                paths, lists, totals, cache, table, first, chunk, no_room = carry
                chunk = _chunk(tokens, paths, lists, words_of_key, index, chunk)
                token, document, path, start, chance = (
                    tables.row(leaf, index % _CHUNK) for leaf in chunk[:5]
                )
                totals, cache, table = self.moved(
                    totals, cache, table, (b, whole), self.topic(path), index, None
                )
                first = self.moved_first(first, document, path, -1)
                _, room = self.distribution.pseudo(cache)
                span = span_of(lists, document, start)
                path, lists = self.drawn(lists, span, path, table, first, chance)
                totals, cache, table = self.moved(
                    totals, cache, table, (b, whole), self.topic(path), index, chance[3]
                )
                first = self.moved_first(first, document, path, 1)
                paths = tables.put(paths, token, path[None])
                return paths, lists, totals, cache, table, first, chunk, no_room | ~room

            begun = (paths, lists, totals, cache, table, first, chunk, no_room)
            done = jax.lax.fori_loop(begin, end, one_token, begun)
            return end, *done[:4], *done[5:]

        # the counts of one word after the other
        cache = cache._replace(counts=jnp.zeros((1, self.num_topics), cache.counts.dtype))
        zero, zeros = jnp.zeros((), jnp.int32), jnp.zeros((_CHUNK,), jnp.int32)
        uniforms = jnp.zeros((_CHUNK, 4), cache.counts.dtype)
        chunk = _TokenChunk(zeros, zeros, zeros, zeros, uniforms, zero)
        has_room = jnp.zeros((), bool)
        begun = (zero, paths, lists, totals, cache, first, chunk, has_room)
        done = jax.lax.fori_loop(0, tokens.num_in_use, one_word, begun)
        # no bit is negative; but what was touched has to be used
        no_room = done[7] | (done[6].touched < 0)
        return done[1], done[3], done[4].hyperparameters, no_room, done[2].rows

    def table(self, cache: CountCache, totals: Array, word: tuple[Array, Array]) -> _WordTable:
        """All of it afresh."""
        pseudo, _ = self.distribution.pseudo(cache)
        padding = (0, -self.num_topics % _PIECE)
        weights = (cache.counts[0] + word[0]) / (totals + word[1])
        smooth = jnp.pad(weights * pseudo, padding)
        sums = tables.sums_of_pieces(smooth, _PIECE)
        return _WordTable(tables.to_power_of_two(weights), smooth, sums, tables.sum_in_lanes(sums))

    def moved(
        self,
        totals: Array,
        cache: CountCache,
        table: _WordTable,
        word: tuple[Array, Array],
        topic: Array,
        index: Array,
        birth: Array | None,
    ) -> tuple[Array, CountCache, _WordTable]:
        """A token out of a topic (birth None), or into it."""
        totals, cache, count = moved_counts(self.distribution, totals, cache, topic, birth)
        pseudo, _ = self.distribution.pseudo(cache)
        total, share = tables.row(totals, topic), tables.row(pseudo, topic)
        amount = -1 if birth is None else 1
        weight = (count + word[0]) / (total + word[1])
        smooth = weight * share
        # what it was is computed and not read: the table would be copied
        change = smooth - (count - amount + word[0]) / (total - amount + word[1]) * share
        table = _WordTable(
            tables.put(table.weights, topic, weight),
            tables.put(table.smooth, topic, smooth),
            tables.add(table.sums, topic >> _PIECE_BITS, change),
            table.whole + change,
        )
        is_needed = is_due(self.distribution, total, birth, index)
        make = partial(self.table, cache, totals, word)
        return totals, cache, made_again(make, table, is_needed)

    def topic(self, path: Array) -> Array:
        """The last topic of paths."""
        return jax.lax.rem(path, jnp.full_like(path, self.num_topics)) if self.is_path else path

    def moved_first(
        self, first: _FirstLevel | None, document: Array, path: Array, amount: int
    ) -> _FirstLevel | None:
        """A token out of the first of its topics (amount -1), or into it."""
        if first is None:
            return None
        counts = tables.add_entry(first.counts, document, path // self.num_topics, amount)
        return first._replace(counts=counts)

    def drawn(
        self,
        lists: TopicLists,
        span: ListSpan,
        path: Array,
        table: _WordTable,
        first: _FirstLevel | None,
        chance: Array,
    ) -> tuple[Array, TopicLists]:
        """A topic, or a path, for a token that had another, and the lists with it."""
        shares = None
        if first is not None:
            counts = tables.row(first.counts, span.owner)
            shares = (counts + first.concentration) / (counts + first.below)

        def weigh(paths: Array) -> Array:
            weights = tables.entries_at(table.weights, self.topic(paths))
            if shares is None:
                return weights
            return weights * tables.entries_at(shares, paths // self.num_topics)

        def draw_smooth() -> Array:
            piece = tables.choose(table.sums, chance[1])
            inside = tables.take(table.smooth, tables.Lanes(piece * _PIECE, 1, _PIECE))
            path = piece * _PIECE + tables.choose(inside, chance[2])
            if shares is not None:
                path = path + self.num_topics * tables.choose(shares, chance[3])
            return path

        smooth_weight = table.whole
        if shares is not None:
            smooth_weight = smooth_weight * jnp.sum(shares)
        left = entry_of(self.packing, lists, span, path)
        return drawn(self.packing, lists, span, left, weigh, (smooth_weight, draw_smooth), chance)


def _chunk(
    tokens: _WordTokens,
    paths_of_all: Array,
    lists: TopicLists,
    words_of_key: Array,
    index: Array,
    old: _TokenChunk,
) -> _TokenChunk:
    """The chunk that a token is in, given that of the token before."""

    def fresh(carry: PyTree) -> PyTree:
        across = jnp.arange(_CHUNK, dtype=jnp.int32)
        order = tables.entries_at(
            tokens.order, jnp.minimum(index + across, tokens.order.shape[0] - 1)
        )
        documents = tables.entries_at(tokens.documents, order)
        paths = tables.entries_at(paths_of_all, order)[:, 0]
        starts = tables.entries_at(lists.starts, documents)
        last = jnp.maximum(-(-tables.entries_at(lists.lengths, documents) // LANES) - 1, 0)
        rows = jnp.minimum(jnp.arange(_NUM_READ)[:, None], last) + starts
        touched = lists.rows.at[rows, 0].get(mode="promise_in_bounds") >> 31
        touched = jnp.min(touched).astype(jnp.int32)
        pairs = jnp.arange(2 * _CHUNK, dtype=jnp.uint32)
        block = (index // _CHUNK).astype(jnp.uint32)
        both = special.pairs_of_uniforms(words_of_key, pairs, block, old.uniforms.dtype)
        uniforms = jnp.stack(both).reshape(old.uniforms.shape)
        chunk = _TokenChunk(order, documents, paths, starts, uniforms, touched)
        return jnp.zeros((), bool), chunk

    return jax.lax.while_loop(lambda carry: carry[0], fresh, (index % _CHUNK == 0, old))[1]
