"""The topics of every word, or of every document, as lists which sparse sweeps read and change.

Inside a fused loop: nothing here scatters, sorts or calls a library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf._kernels import tables
from jaxmf._kernels.fusion import fused_on_cpu
from jaxmf.blocks.state import NetworkState
from jaxmf.engine import Info
from jaxmf.priors.partition_prior import CountCache, PartitionPrior
from jaxmf.types import Array, PyTree


class Packing(NamedTuple):
    """How topics and counts are packed; all of it is known when a program is traced."""

    bits: int  # of the count

    @classmethod
    def of(cls, num_topics: int) -> Packing:
        """For as many topics."""
        return cls(32 - max(1, (num_topics - 1).bit_length()))

    @property
    def most(self) -> int:
        """The largest count of an entry."""
        return (1 << self.bits) - 1

    def topics(self, entries: Array) -> Array:
        """The topics (...) int32 of entries (...) uint32."""
        return (entries >> self.bits).astype(jnp.int32)

    def counts(self, entries: Array) -> Array:
        """Their counts (...) int32."""
        return (entries & self.most).astype(jnp.int32)

    def entry(self, topic: Array, count: int) -> Array:
        """The entry () uint32 of a topic with a count."""
        return (topic.astype(jnp.uint32) << self.bits) + count

    def raised(self, entry: Array, topic: Array) -> Array:
        """An entry () uint32 with a token more; of the topic, which it may not have had before."""
        return self.entry(topic, 1) + (entry & self.most)

    def room(self, sizes: Array, num_topics: int) -> Array:
        """How long lists of as many tokens may become, (M,) int32.

        Each entry has a token; and where one entry can hold all of them no topic has a second.
        """
        return jnp.where(sizes <= self.most, jnp.minimum(sizes, num_topics), sizes)


_AFRESH = 2**12  # tokens after which a table is made afresh
LANES = 16  # entries of a list of a document that are a line of the cache


class TopicLists(NamedTuple):
    """The topics of every owner, a word or a document; of documents paths of topics too.

    An entry is a topic and its count in one word, see `Packing`. One whose count has fallen to zero
    leaves a hole, which the next new one takes; a list never has more entries than the owner has
    tokens, nor than there are topics while counts are below the largest that an entry can hold.
    """

    starts: Array  # (M,) int32, the row where the list of an owner starts
    lengths: Array  # (M,) int32, how many entries it has, holes included
    rows: Array  # (R, L) uint32, zero behind the end of a list


def empty_lists(
    packing: Packing, sizes: Array, num_tokens: int, num_topics: int, num_lanes: int
) -> TopicLists:
    """Room for the lists of owners with these numbers of tokens, (M,) int32."""
    num_owners = sizes.shape[0]
    room = -(-packing.room(sizes, num_topics) // num_lanes)
    most = (num_tokens + (num_lanes - 1) * min(num_owners, num_tokens)) // num_lanes
    if num_tokens <= packing.most:
        most = min(most, num_owners * -(-min(num_tokens, num_topics) // num_lanes))
    return TopicLists(
        starts=jnp.cumsum(room) - room,
        lengths=jnp.zeros((num_owners,), jnp.int32),
        rows=jnp.zeros((max(1, most), num_lanes), jnp.uint32),
    )


def lists_of(
    packing: Packing, documents: Array, paths: Array, num_documents: int, num_paths: int
) -> TopicLists:
    """The lists of documents whose tokens (T,) int32 have these topics, or paths."""
    zeros = jnp.zeros_like(documents)
    sizes = tables.count_pairs(zeros, documents, (1, num_documents))[0]
    lists = empty_lists(packing, sizes, documents.shape[0], num_paths, LANES)

    def build(documents: Array, paths: Array, lists: TopicLists) -> TopicLists:
        def one(index: Array, lists: TopicLists) -> TopicLists:
            document, path = tables.row(documents, index), tables.row(paths, index)
            span = span_of(lists, document, tables.row(lists.starts, document))
            return added(packing, lists, span, entry_for(packing, lists, span, path), path)

        return jax.lax.fori_loop(0, documents.shape[0], one, lists)

    return fused_on_cpu(build, sequential=True)(documents, paths, lists)


class ListSpan(NamedTuple):
    """Where the list of an owner stands; each is () int32."""

    owner: Array
    start: Array
    length: Array
    num_rows: Array


def span_of(lists: TopicLists, owner: Array, start: Array) -> ListSpan:
    """Where the list of an owner stands whose first row is known."""
    length = tables.row(lists.lengths, owner)
    return ListSpan(owner, start, length, -(-length // lists.rows.shape[1]))


def entry_of(packing: Packing, lists: TopicLists, span: ListSpan, path: Array) -> Array:
    """The first entry of a topic that has tokens."""
    across = jnp.arange(LANES, dtype=jnp.int32)
    first = packing.entry(path, 1)

    def look(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        index = carry[0] + 1
        # in whole numbers without sign those of other topics are far away on either side
        is_it = tables.row(lists.rows, span.start + index) - first < packing.most
        return index, jnp.min(jnp.where(is_it, across, LANES))

    def goes_on(carry: tuple[Array, Array]) -> Array:
        return (carry[1] == LANES) & (carry[0] + 1 < span.num_rows)

    begin = (jnp.full((), -1, jnp.int32), jnp.full((), LANES, jnp.int32))
    index, lane = jax.lax.while_loop(goes_on, look, begin)
    return index * LANES + lane


def entry_for(packing: Packing, lists: TopicLists, span: ListSpan, path: Array) -> Array:
    """The entry of a topic with room, or that which it takes: the first hole, or behind the end."""
    most, num_lanes = jnp.iinfo(jnp.int32).max, lists.rows.shape[1]
    across = jnp.arange(num_lanes, dtype=jnp.int32)

    def look(index: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        there, hole = carry
        found = tables.row(lists.rows, span.start + index)
        entries = index * num_lanes + across
        is_it = found - packing.entry(path, 0) < packing.most
        there = jnp.minimum(there, jnp.min(jnp.where(is_it, entries, most)))
        is_hole = packing.counts(found) == 0
        return there, jnp.minimum(hole, jnp.min(jnp.where(is_hole, entries, most)))

    # what goes into the loop is not read again after it, when the length may have changed
    begin = (jnp.full((), most, jnp.int32), span.num_rows * num_lanes)
    there, hole = jax.lax.fori_loop(0, span.num_rows, look, begin)
    return jnp.where(there < most, there, hole)


def cell_of(lists: TopicLists, span: ListSpan, entry: Array) -> tuple[Array, Array]:
    """Row and lane of an entry of a list."""
    row, lane = row_and_lane(entry, lists.rows.shape[1])
    return span.start + row, lane


def row_and_lane(entry: Array, num_lanes: int) -> tuple[Array, Array]:
    """Row and lane of an entry; `num_lanes` is a power of two, as `//` and `%` are slower."""
    return entry >> (num_lanes.bit_length() - 1), entry & (num_lanes - 1)


def added(
    packing: Packing, lists: TopicLists, span: ListSpan, entry: Array, path: Array
) -> TopicLists:
    """A token more in an entry, which is or becomes that of its topic."""
    row, lane = cell_of(lists, span, entry)
    length = jnp.maximum(span.length, entry + 1)
    found = packing.raised(tables.entry(lists.rows, row, lane), path)
    rows = tables.put_entry(lists.rows, row, lane, found)
    return lists._replace(lengths=tables.put(lists.lengths, span.owner, length), rows=rows)


def drawn(
    packing: Packing,
    lists: TopicLists,
    span: ListSpan,
    left: Array,
    weigh: Callable[[Array], Array],
    smooth: tuple[Array, Callable[[], Array]],
    chance: Array,
) -> tuple[Array, TopicLists]:
    """A topic for a token that leaves an entry, and the lists with it.

    Args:
      left: the entry, counted from the start of the list.
      weigh: weights of topics, beside their counts in the list.
      smooth: the weight of the part with all topics, and how one of these is drawn.
      chance: (3,) or more uniforms.
    """
    start, num_rows, num_lanes = span.start, span.num_rows, lists.rows.shape[1]
    # what is read from here on is the list without the token, or all of it would be copied
    row, lane = cell_of(lists, span, left)
    rows = tables.put_entry(lists.rows, row, lane, tables.entry(lists.rows, row, lane) - 1)
    without = lists._replace(rows=rows)

    def add_row(index: Array, lanes: Array) -> Array:
        entries = tables.row(without.rows, start + index)
        return lanes + packing.counts(entries) * weigh(packing.topics(entries))

    smooth_weight, draw_smooth = smooth
    nothing = jnp.zeros((num_lanes,), smooth_weight.dtype)
    lanes = jax.lax.fori_loop(0, num_rows, add_row, nothing)
    list_weight = tables.sum_in_lanes(lanes)
    is_listed = chance[0] * (list_weight + smooth_weight) < list_weight
    lane = tables.choose(lanes, chance[1], num_lanes=num_lanes)
    goal = chance[2] * tables.row(lanes, lane)

    def follow(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        index, passed, chosen, _ = carry
        found = tables.entry(without.rows, start + index, lane)
        weight = packing.counts(found) * weigh(packing.topics(found))
        passed, entry = passed + weight, index * num_lanes + lane
        # rounding may let the sum end short of the goal: then it is the last one with weight
        return index + 1, passed, jnp.where(weight > 0, entry, chosen), passed > goal

    zero = jnp.zeros((), jnp.int32)
    begun = (zero, jnp.zeros((), goal.dtype), zero, ~is_listed)
    done = jax.lax.while_loop(lambda carry: ~carry[3] & (carry[0] < num_rows), follow, begun)
    entry = done[2]

    listed = tables.entry(without.rows, *cell_of(without, span, entry))
    is_full = packing.counts(listed) == packing.most
    listed = packing.topics(listed)

    def find_entry(carry: PyTree) -> PyTree:
        topic = jnp.where(is_listed, listed, draw_smooth())
        return jnp.zeros((), bool), topic, entry_for(packing, without, span, topic)

    from_list = (~is_listed | is_full, listed, entry)
    _, topic, entry = jax.lax.while_loop(lambda carry: carry[0], find_entry, from_list)
    return topic, added(packing, without, span, entry, topic)


def moved_counts(
    distribution: PartitionPrior,
    totals: Array,
    cache: CountCache,
    topic: Array,
    birth: Array | None,
) -> tuple[Array, CountCache, Array]:
    """With a token out of a topic (birth None) or into it: tokens of topics, all and here.

    Returns totals (K,), the cache with counts (1, K), and the topic's count among these, ().
    """
    zero, amount = jnp.zeros((), jnp.int32), -1 if birth is None else 1
    totals = tables.add(totals, topic, amount)
    if birth is None:
        cache = distribution.unassign(cache, zero, topic)
    else:
        cache = distribution.assign(cache, zero, topic, birth)
    return totals, cache, tables.entry(cache.counts, zero, topic)


def made_again(make: Callable[[], PyTree], table: PyTree, is_needed: Array | None) -> PyTree:
    """The table, afresh where that is needed; None where it never is."""
    if is_needed is None:
        return table

    def again(carry: PyTree) -> PyTree:
        return jnp.zeros((), bool), make()

    return jax.lax.while_loop(lambda carry: carry[0], again, (is_needed, table))[1]


def is_due(
    distribution: PartitionPrior, total: Array, birth: Array | None, index: Array | None = None
) -> Array | None:
    """Whether a table of weights and sums is to be made afresh, or None where it never is.

    It is where a topic came or went: seldom, and others may have another share then. With an index
    also at every 4,096th token, as sums that follow by differences are rounded each time.

    Args: total () int32, tokens of the topic that a token left (birth None) or joined; index None
    or () int32, that of the token.
    """
    is_changed = total == (0 if birth is None else 1) if distribution.grows else None
    if index is None or birth is not None:
        return is_changed
    is_time = index & (_AFRESH - 1) == 0
    return is_time if is_changed is None else is_time | is_changed


def after_sweep(
    distribution: PartitionPrior,
    name: str,
    state: NetworkState,
    totals: Array,
    hyperparameters: dict[str, Array],
    no_room: Array,
) -> tuple[NetworkState, Info]:
    """The state with new topics, and what a growing prior of them keeps."""
    if not distribution.grows:
        return state, Info(overflow={})
    state = state._replace(
        hyperparameters={**state.hyperparameters, name: hyperparameters},
        slots={**state.slots, name: totals > 0},
    )
    return state, Info(overflow={name: no_room})
