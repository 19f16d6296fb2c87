"""The tokens of the sweep by tiles over the devices of a mesh, each with those of its documents.

Tokens are dealt into tiles as on one device, see `tile_layout.py`. Device i of n has the i-th part
of the groups of documents, and of its tokens everything: document, word, topic. They lie turn by
turn, as it goes through them, and end with positions without a token where another device has more.
Between devices pass sums of counts: those of words and, where they are asked for, of documents.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf import row_shards
from jaxmf._kernels import tables
from jaxmf.blocks.counts import part_of
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.tile_layout import (
    Tiled,
    TileLayout,
    are_tiled,
    deal,
    interleaved,
    num_bits,
    num_groups,
)
from jaxmf.blocks.wiring import BlockModel, Wiring
from jaxmf.data import Tokens, process_tokens
from jaxmf.data.cells_by_id import are_elsewhere
from jaxmf.data.container import bare
from jaxmf.data.process_cells import (
    CellPart,
    cells_where,
    devices_here,
    largest,
    put_shares,
    sums,
)
from jaxmf.likelihoods.families.categories import Counts, check_counts
from jaxmf.types import STATIC, Array, Key, PyTree

# what is spread, by its name within these
ROW_ARRAYS = ("token", "position", "documents", "words", "turns")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TileShares:
    """The tokens of n devices, S positions each: what `TileLayout` is on one."""

    token: Array  # (n S,) int32, where they stand in the data; T where there is none
    position: Array  # (n S,) int32, where they stand in the order of a sweep; likewise
    documents: Array  # (n S,) int32, their documents, those of a group side by side; or -1
    words: Array  # (n S,) int32, their words, likewise
    turns: Array  # (n (B + 1),) int32, where the turns of a device start among its positions
    new_documents: Array  # (N,) int32, the number that a document has here
    new_words: Array  # (V,) int32
    word_at: Array  # (P * words of a group,) int32, which words these are; V where there is none
    sizes: tuple[tuple[str, int], ...] = field(metadata=STATIC)  # of the columns of the data
    num_tokens: int = field(metadata=STATIC)  # T
    num_groups: int = field(metadata=STATIC)  # P
    num_blocks: int = field(metadata=STATIC)  # B, how many devices have something to do

    @property
    def tokens(self) -> Tokens:
        """The data as far as sizes say; there are no columns."""
        column = jax.ShapeDtypeStruct((self.num_tokens,), jnp.int32)
        columns = {label: column for label, _ in self.sizes}
        return bare(Tokens, columns=columns, sizes=dict(self.sizes), values={}, names={})

    def by_token(self, draw: Callable[[Key, int, Array], Array], index: Array, key: Key) -> Array:
        """The numbers (n S,) of `draw(key, T, index)`, each device with those of its tokens."""
        last = self.num_tokens - 1

        def on_device(index: Array, key: Key) -> Array:
            return draw(key, last + 1, jnp.minimum(index, last))

        return row_shards.by_row(on_device, (index,), key)

    def counts(self, rows: Array, topics: Array, shape: tuple[int, int]) -> Array:
        """How often each topic occurs in each of the rows, of all devices: (M, K) int32."""

        def on_device(rows: Array, topics: Array) -> Array:
            return count_from(rows, topics, 0, shape)

        return row_shards.sum_over_rows(on_device, (rows, topics))

    def tables(
        self, network: Wiring, values: Mapping[str, Array], *, without: Collection[str] = ()
    ) -> dict[str, Array]:
        """Topics of documents (N, K) and words of topics (K, V), int32, by the blocks' names."""
        (name,), (word,) = network.indicators, network.observed
        num_topics, found = network.distributions[name].num_groups(1), {}
        if name not in without:
            rows = -(-self.new_documents.shape[0] // self.num_groups) * self.num_groups
            by_document = self.counts(self.documents, values[name], (rows, num_topics))
            found[name] = by_document[self.new_documents]
        shape = (self.word_at.shape[0], num_topics)
        by_word = self.counts(self.words, values[name], shape)[self.new_words]
        return found | {word: by_word.T}

    def statistics(
        self, network: Wiring, state: NetworkState, *, without: Collection[str] = ()
    ) -> dict[str, PyTree]:
        """As `block_statistics` of all tokens."""
        found: dict[str, PyTree] = self.tables(network, state.values, without=without)
        (word,) = network.observed
        return found | {word: Counts(found[word].T, jnp.sum(found[word], axis=1))}

    def log_prob_of_documents(self, network: Wiring, state: NetworkState, name: str) -> Array:
        """The log probability () of the topics of all documents, without a table of all."""
        prior = network.distributions[name]
        size = -(-self.new_documents.shape[0] // self.num_groups)
        shape = (size * self.num_groups // self.num_blocks, prior.num_groups(1))

        def on_device(documents: Array, topics: Array, hyperparameters: PyTree) -> Array:
            first = row_shards.first_row(shape[0])
            counts = count_from(documents, topics, first, shape)
            return row_shards.add_over_devices(prior.log_prob(counts, hyperparameters))

        rows = self.documents, state.values[name]
        return row_shards.with_rows(on_device, rows, state.hyperparameters[name])

    def in_order_of_data(self, state: NetworkState) -> NetworkState:
        """The state with the topics of all tokens (T,) as these stand in the data."""

        def on_device(token: Array, topics: Array) -> Array:
            nothing = jnp.zeros((self.num_tokens,), topics.dtype)
            return nothing.at[token].set(topics, mode="drop")

        values = {
            name: row_shards.sum_over_rows(on_device, (self.token, topics))
            for name, topics in state.values.items()
        }
        return state._replace(values=values)


def opened(data: PyTree) -> tuple[PyTree, TileLayout | TileShares | None]:
    """The data, and the layout of their tokens if they have one."""
    if isinstance(data, TileShares):
        return data.tokens, data
    return (data.data, data.layout) if isinstance(data, Tiled) else (data, None)


def count_from(rows: Array, topics: Array, first: Array | int, shape: tuple[int, int]) -> Array:
    """How often each topic occurs in each of the rows from `first` on: (M, K) int32."""
    is_row = (rows >= first) & (rows < first + shape[0])
    rows = jnp.where(is_row, rows - first, shape[0])
    return tables.count_pairs(rows, topics, (shape[0] + 1, shape[1]))[: shape[0]]


def row_arrays(model: BlockModel) -> tuple[str, ...]:
    """The names of what is spread, as the engine sees shares and the state of a chain."""
    return (*ROW_ARRAYS, *(f"values.{name}" for name in model.network().indicators))


def share_out(model: BlockModel, data: PyTree, num_devices: int) -> PyTree:
    """The tokens by the devices that have their documents, where the sweep goes by tiles.

    Made on the host, for how many tokens a device has depends on the documents.
    """
    network, tokens = model.over(data)
    if tokens is not data or not are_tiled(network, tokens):
        return gathered(data)
    (name,), (word,) = network.indicators, network.observed
    parts = network.parts(name, network.sizes(tokens, {}))
    num_topics = network.distributions[name].num_groups(1)
    sizes = parts.num_parts, network.distributions[word].size
    count = num_groups(tokens.num_tokens, num_topics, sizes[1])
    num_blocks = 1 << num_bits(min(num_devices, count))
    if tokens.elsewhere is None:
        rows = np.asarray(part_of(parts, tokens.columns, tokens.num_tokens))
        columns, index = np.asarray(tokens.columns[word]), np.arange(len(rows), dtype=np.int32)
        counts = (np.bincount(i, minlength=n) for i, n in zip((rows, columns), sizes, strict=True))
        dealt = [np.asarray(deal(jnp.asarray(one, jnp.int32), count)) for one in counts]
        owner = _ShareMaker(num_devices, None)
    else:
        part = tokens.elsewhere.cells
        counts_of_all = tokens.elsewhere.row_counts, tokens.elsewhere.column_counts
        assert part is not None
        check_counts(counts_of_all[1], word)
        dealt = [np.asarray(deal(jnp.asarray(one, jnp.int32), count)) for one in counts_of_all]
        owner = _ShareMaker(num_devices, part)
        rows, columns, index = owner.tokens(
            dealt[0] // -(-sizes[0] // count) // (count // num_blocks)
        )
    positions = _positions(dealt, (rows, columns, index), sizes, count, num_blocks, owner)
    words = np.full(count * -(-sizes[1] // count), sizes[1], np.int32)
    words[dealt[1]] = np.arange(sizes[1], dtype=np.int32)
    new_documents, new_words, word_at = (jnp.asarray(one) for one in (*dealt, words))
    return TileShares(
        **{name: owner.put(one) for name, one in zip(ROW_ARRAYS, positions, strict=True)},
        new_documents=new_documents,
        new_words=new_words,
        word_at=word_at,
        sizes=tuple(tokens.sizes.items()),
        num_tokens=tokens.num_tokens,
        num_groups=count,
        num_blocks=num_blocks,
    )


def gathered(data: PyTree, num_devices: int = 0) -> PyTree:
    """The tokens of all processes in each, where sweeps need them whole; other data as they are."""
    del num_devices
    if not are_elsewhere(data):
        return data
    part = data.elsewhere.cells
    assert part is not None
    columns = process_tokens.gathered(data.columns, part)
    return bare(Tokens, columns=columns, sizes=data.sizes, values={}, names={})


class _ShareMaker(NamedTuple):
    """Which devices shares are made for here: all, or those of this process."""

    num_devices: int  # of all processes
    part: CellPart | None

    @property
    def here(self) -> tuple[int, int]:
        """The first of them, and how many."""
        return (0, self.num_devices) if self.part is None else devices_here(self.part.mesh)

    def tokens(self, device_of_document: np.ndarray) -> tuple[np.ndarray, ...]:
        """Documents, words and positions in the data of the tokens of these devices."""
        assert self.part is not None
        first, num_devices = self.here
        num_tokens = len(self.part.arrays[0])
        index = self.part.first_cell + np.arange(num_tokens, dtype=np.int32)

        def are_here(documents: np.ndarray, *_: np.ndarray) -> np.ndarray:
            device = device_of_document[documents]
            return (device >= first) & (device < first + num_devices)

        return cells_where(self.part._replace(arrays=(*self.part.arrays, index)), are_here)

    def largest(self, value: int) -> int:
        """The largest value of all processes."""
        return value if self.part is None else largest(value)

    def sums(self, values: np.ndarray) -> np.ndarray:
        """The sums of what all processes have."""
        return values if self.part is None else sums(values.tolist())

    def put(self, array: np.ndarray) -> PyTree:
        """Shares on their devices, or for the engine to put there."""
        return array if self.part is None else put_shares(self.part.mesh, array)


def _positions(
    dealt: list[np.ndarray],
    arrays: tuple[np.ndarray, ...],
    sizes: tuple[int, int],
    num_groups: int,
    num_blocks: int,
    owner: _ShareMaker,
) -> tuple[np.ndarray, ...]:
    """The arrays of `ROW_ARRAYS` of the devices here.

    Args: dealt: new numbers of documents, and of words; arrays: of the tokens of these devices, in
    the order of the data, their documents, words and positions in it.
    """
    num_tiles, bits = num_groups**2, num_bits(num_groups)
    groups_of_block, (first, num_devices) = num_groups // num_blocks, owner.here
    new = [dealt_to[items] for dealt_to, items in zip(dealt, arrays, strict=False)]
    groups = [one // -(-size // num_groups) for one, size in zip(new, sizes, strict=True)]
    tile = np.asarray(interleaved(groups[0] ^ groups[1], groups[0], bits))
    order = np.argsort(tile, kind="stable")
    here = np.bincount(tile, minlength=num_tiles)
    starts = np.cumsum(owner.sums(here)) - owner.sums(here)
    rank = np.arange(len(tile)) - (np.cumsum(here) - here)[tile[order]]
    position = np.empty(len(tile), np.int32)
    position[order] = starts[tile[order]] + rank
    device = groups[0] // groups_of_block - first
    by_device = np.lexsort((tile, device))
    counts = np.bincount(device, minlength=num_devices)
    num_positions = owner.largest(max(int(counts.max(initial=0)), 1))
    at = np.arange(len(tile)) - (np.cumsum(counts) - counts)[device[by_device]]
    at += device[by_device] * num_positions

    def laid_out(values: np.ndarray, nothing: int) -> np.ndarray:
        found = np.full(num_devices * num_positions, nothing, np.int32)
        found[at] = values[by_device]
        return found

    turns = np.zeros((num_devices, num_blocks + 1), np.int32)
    turn_of = (groups[0] ^ groups[1]) // groups_of_block
    for one in range(num_devices):
        in_turn = np.bincount(turn_of[device == one], minlength=num_blocks)
        turns[one, 1:] = np.cumsum(in_turn)
    total = int(owner.sums(here).sum())
    return (
        laid_out(arrays[2], total),
        laid_out(position, total),
        laid_out(new[0], -1),
        laid_out(new[1], -1),
        turns.ravel(),
    )
