"""The topics of every document as lists, which the sweep word by word reads and changes.

Inside a fused loop: nothing here scatters, sorts or calls a library.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf._kernels import tables
from jaxmf._kernels.fusion import fused_on_cpu
from jaxmf.blocks.packing import Packing
from jaxmf.types import Array

LANES = 16  # entries of a list that are a line of the cache


class DocumentLists(NamedTuple):
    """The topics of every document, or paths.

    An entry is a topic and its count in one word, see `Packing`. One whose count has fallen to zero
    leaves a hole, which the next new one takes; a list never has more entries than the document has
    tokens, nor than there are topics while counts are below the largest that an entry can hold.
    """

    starts: Array  # (D,) int32, the row where the list of a document starts
    lengths: Array  # (D,) int32, how many entries it has, holes included
    rows: Array  # (R, L) uint32, zero behind the end of a list


def lists_of(
    packing: Packing, documents: Array, paths: Array, num_documents: int, num_paths: int
) -> DocumentLists:
    """The lists of documents whose tokens (T,) int32 have these topics, or paths."""
    num_tokens = documents.shape[0]
    zeros = jnp.zeros_like(documents)
    sizes = tables.count_pairs(zeros, documents, (1, num_documents))[0]
    room = -(-packing.room(sizes, num_paths) // LANES)
    most = (num_tokens + (LANES - 1) * min(num_documents, num_tokens)) // LANES
    if num_tokens <= packing.most:
        most = min(most, num_documents * -(-min(num_tokens, num_paths) // LANES))
    lists = DocumentLists(
        starts=jnp.cumsum(room) - room,
        lengths=jnp.zeros((num_documents,), jnp.int32),
        rows=jnp.zeros((max(1, most), LANES), jnp.uint32),
    )

    def build(documents: Array, paths: Array, lists: DocumentLists) -> DocumentLists:
        def one(index: Array, lists: DocumentLists) -> DocumentLists:
            document, path = tables.row(documents, index), tables.row(paths, index)
            span = span_of(lists, document, tables.row(lists.starts, document))
            return added(packing, lists, span, entry_for(packing, lists, span, path), path)

        return jax.lax.fori_loop(0, documents.shape[0], one, lists)

    return fused_on_cpu(build, sequential=True)(documents, paths, lists)


class ListSpan(NamedTuple):
    """Where the list of a document stands; each is () int32."""

    document: Array
    start: Array
    length: Array
    num_rows: Array


def span_of(lists: DocumentLists, document: Array, start: Array) -> ListSpan:
    """Where the list of a document stands whose first row is known."""
    length = tables.row(lists.lengths, document)
    return ListSpan(document, start, length, -(-length // LANES))


def entry_of(packing: Packing, lists: DocumentLists, span: ListSpan, path: Array) -> Array:
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


def entry_for(packing: Packing, lists: DocumentLists, span: ListSpan, path: Array) -> Array:
    """The entry of a topic with room, or that which it takes: the first hole, or behind the end."""
    most = jnp.iinfo(jnp.int32).max
    across = jnp.arange(LANES, dtype=jnp.int32)

    def look(index: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        there, hole = carry
        found = tables.row(lists.rows, span.start + index)
        entries = index * LANES + across
        is_it = found - packing.entry(path, 0) < packing.most
        there = jnp.minimum(there, jnp.min(jnp.where(is_it, entries, most)))
        is_hole = packing.counts(found) == 0
        return there, jnp.minimum(hole, jnp.min(jnp.where(is_hole, entries, most)))

    # what goes into the loop is not read again after it, when the length may have changed
    begin = (jnp.full((), most, jnp.int32), span.num_rows * LANES)
    there, hole = jax.lax.fori_loop(0, span.num_rows, look, begin)
    return jnp.where(there < most, there, hole)


def added(
    packing: Packing, lists: DocumentLists, span: ListSpan, entry: Array, path: Array
) -> DocumentLists:
    """A token more in an entry, which is or becomes that of its topic."""
    row, lane = span.start + entry // LANES, entry % LANES
    length = jnp.maximum(span.length, entry + 1)
    found = packing.raised(tables.entry(lists.rows, row, lane), path)
    rows = tables.put_entry(lists.rows, row, lane, found)
    return lists._replace(lengths=tables.put(lists.lengths, span.document, length), rows=rows)
