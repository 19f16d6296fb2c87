"""How the blocks of a network hang together: order, children, parts; and what cannot be.

A `Wiring` is the structure of a network without what is done with it; `Network` is one that is a
model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf._kernels.tables import Lanes
from jaxmf.arguments import assign
from jaxmf.blocks.block import Block, Distribution
from jaxmf.data import Tokens
from jaxmf.priors.flexible import FlexiblePrior
from jaxmf.types import STATIC, Array, PyTree

_LARGEST_TABLE = 2**22
_GROUPS_GUESSED = 10  # of a growing number, where a scale is taken from the data


def check_wiring(blocks: Mapping[str, Block]) -> tuple[str, ...]:
    """The names of the blocks, parents before children.

    Raises TypeError, ValueError: an unknown parent, a circle, or blocks that cannot be combined.
    """
    if not blocks:
        raise ValueError("a network needs at least one block")
    for name, block in blocks.items():
        if not isinstance(block, Block):
            raise TypeError(
                f"{name}: {block!r} is no Block; write {name}=Block(distribution, by=...)"
            )
        if name in block.by:
            raise ValueError(f"{name}: is partitioned by itself; name other variables in `by`")
        for parent in block.by:
            if parent in blocks:
                _check_pair(name, block, parent, blocks[parent])
        if block.per:
            _check_sets(name, blocks)
    order: list[str] = []
    waiting = dict(blocks)
    while waiting:
        ready = [
            n for n, block in waiting.items() if waiting.keys().isdisjoint((*block.by, *block.per))
        ]
        if not ready:
            circle = " -> ".join(_circle(waiting))
            raise ValueError(f"the blocks partition each other in a circle: {circle}")
        order += ready
        for name in ready:
            del waiting[name]
    return tuple(order)


def _check_pair(name: str, block: Block, parent: str, above: Block) -> None:
    """A block and one of its parents, if that is a block too."""
    if above.observed and above.distribution.is_log:
        raise ValueError(
            f"{name}: is partitioned by {parent!r}, whose values are not from a finite set, as "
            "those of a parent must be"
        )
    if above.observed:
        return
    if not above.distribution.labels_shared:
        missing = [other for other in above.by if other not in block.by]
        if missing:
            also = ", ".join(map(repr, (*missing, parent)))
            raise ValueError(
                f"{name}: labels of {parent!r} mean nothing outside their part, since "
                f"{type(above.distribution).__name__} partitions each part separately: write "
                f"by=({also}), or use "
                "HDP, whose groups are shared"
            )
    if not block.observed and not block.distribution.labels_shared:
        raise ValueError(
            f"{name}: a {type(block.distribution).__name__} partitioned by the latent "
            f"{parent!r} is not "
            "supported: its labels would change their meaning whenever that changes. Use HDP or "
            "Dirichlet"
        )
    if block.rho is not None and above.distribution.grows:
        raise ValueError(
            f"{name}: a function of {parent!r}, which has no fixed number of values, is not "
            "supported; name it in `by`, or give it a Dirichlet prior"
        )


def _check_sets(name: str, blocks: Mapping[str, Block]) -> None:
    """A block with a value for every set of tokens."""
    block = blocks[name]
    if any(parent in blocks for parent in block.by):
        raise ValueError(f"{name}: has `per`, so `by` can name columns of the tokens only")
    if any(not blocks[child].observed for child in children(blocks, name)):
        raise ValueError(f"{name}: has `per`, and can partition observed blocks only")
    above = [parent for parent in block.per if parent in blocks]
    for parent in above:
        if blocks[parent].observed or blocks[parent].per:
            raise ValueError(f"{name}: `per` names {parent!r}, which is no indicator of tokens")
        if any(other in blocks for other in blocks[parent].by) or children(blocks, parent):
            raise ValueError(
                f"{name}: {parent!r} in `per` can be partitioned by columns only, and partition "
                "nothing itself"
            )
        missing = [other for other in blocks[parent].by if other not in block.per]
        if missing and not blocks[parent].distribution.labels_shared:
            raise ValueError(
                f"{name}: labels of {parent!r} mean nothing outside their part: write "
                f"per=({', '.join(map(repr, (*missing, *block.per)))})"
            )
    is_flexible = above and isinstance(block.distribution, FlexiblePrior)
    if is_flexible and (block.by or block.distribution.num_unobserved is not None):
        raise ValueError(
            f"{name}: a FlexiblePrior of the groups of tables is one for all tables, `by` "
            "nothing, and without num_unobserved: empty tables have representatives"
        )
    others = {source for other, its in blocks.items() if other != name for source in its.per}
    if len(above) > 1 or others.intersection(above):
        raise ValueError(
            f"{name}: `per` can name one indicator, which is for one block alone; got {block.per}"
        )


def _circle(waiting: Mapping[str, Block]) -> list[str]:
    path = [next(iter(waiting))]
    while True:
        last = waiting[path[-1]]
        following = next(parent for parent in (*last.by, *last.per) if parent in waiting)
        if following in path:
            return [*path[path.index(following) :], following][::-1]
        path.append(following)


def children(blocks: Mapping[str, Block], name: str) -> tuple[str, ...]:
    """The blocks that a variable partitions."""
    return tuple(child for child, block in blocks.items() if name in block.by)


class BlockParts(NamedTuple):
    """The parts of one block, for the numbers of values of its parents."""

    by: tuple[str, ...]  # the parents
    sizes: tuple[int, ...]  # how many values each has
    # None, or (prod sizes,) int32: the part of every combination of values
    table: np.ndarray | None
    num_parts: int  # how many parts there are

    @property
    def shape(self) -> tuple[int, ...]:
        """The axes that statistics over parts have: the parents', or one where a function is."""
        return self.sizes if self.table is None else (self.num_parts,)

    def without(self, name: str) -> BlockParts:
        """The parts that the other parents alone would make."""
        kept = [index for index, parent in enumerate(self.by) if parent != name]
        sizes = tuple(self.sizes[index] for index in kept)
        num_parts = int(np.prod(sizes, dtype=np.int64))
        return BlockParts(tuple(self.by[index] for index in kept), sizes, None, num_parts)

    def flat(self, values: Mapping[str, Array]) -> Array:
        """The index of the combination of the parents' values, any shape."""
        index = jnp.zeros((), jnp.int32)
        for name, size in zip(self.by, self.sizes, strict=True):
            index = index * size + values[name]
        return index

    def of(self, values: Mapping[str, Array], table: Array | None) -> Array:
        """The part of tokens with these values of the parents; `table` as an array, or None."""
        index = self.flat(values)
        return index if table is None else table[index]

    def lanes(self, values: Mapping[str, Array], name: str, table: Array | None) -> Lanes:
        """The parts of one token for every value of the parent `name`."""
        index = self.by.index(name)
        start = self.flat({**values, name: jnp.zeros((), jnp.int32)})
        stride = int(np.prod(self.sizes[index + 1 :], dtype=np.int64))
        return Lanes(start, stride, self.sizes[index], table)


def parts(name: str, block: Block, sizes: Mapping[str, int]) -> BlockParts:
    """The parts of a block.

    Raises ValueError: an unknown parent, too many parts for int32, a function whose values are
    none.
    """
    unknown = [parent for parent in block.by if parent not in sizes]
    if unknown:
        raise ValueError(
            f"{name}: is partitioned by {unknown[0]!r}, which is neither a block nor a column of "
            f"the tokens; there are {', '.join(map(repr, sizes))}"
        )
    sizes_of_parents = tuple(sizes[parent] for parent in block.by)
    num_parts = int(np.prod(sizes_of_parents, dtype=object)) if sizes_of_parents else 1
    if num_parts > np.iinfo(np.int32).max:
        raise ValueError(f"{name}: {num_parts:,} parts are more than int32 can number")
    if block.rho is None:
        return BlockParts(block.by, sizes_of_parents, None, num_parts)
    if num_parts > _LARGEST_TABLE:
        raise ValueError(
            f"{name}: its function would be asked for {num_parts:,} combinations of values of "
            f"{block.by}; at most {_LARGEST_TABLE:,} are tabulated"
        )
    grids = np.indices(sizes_of_parents).reshape(len(sizes_of_parents), -1).astype(np.int32)
    with jax.ensure_compile_time_eval():  # a function may be written with jax.numpy
        table = np.asarray(block.rho(*grids))
    if table.shape not in ((), (num_parts,)):
        raise ValueError(
            f"{name}: its function gets arrays, {num_parts} combinations of values of {block.by} "
            f"at once, and must give a part for each; got shape {table.shape}"
        )
    table = np.broadcast_to(table, (num_parts,))
    largest = np.iinfo(np.int32).max
    if not np.issubdtype(table.dtype, np.integer) or table.min() < 0 or table.max() >= largest:
        raise ValueError(
            f"{name}: its function must return integers from 0 up, the parts; got "
            f"{table.dtype} between {table.min()} and {table.max()}"
        )
    return BlockParts(block.by, sizes_of_parents, table.astype(np.int32), int(table.max()) + 1)


@dataclass(frozen=True, init=False)
class Wiring:
    """The blocks of a network, as sweeps, densities and predictions take them: see `Network`."""

    blocks: dict[str, Block]
    order: tuple[str, ...] = field(repr=False, metadata=STATIC)

    def __init__(
        self,
        blocks: Mapping[str, Block] | None = None,
        order: tuple[str, ...] | None = None,
        **named: Block,
    ) -> None:
        if not isinstance(blocks, Mapping | None):
            kind = type(blocks).__name__
            raise TypeError(f"blocks must be a mapping from names to blocks, got a {kind}")
        together = {**(blocks or {}), **named}
        assign(self, blocks=together, order=order or check_wiring(together))

    @property
    def distributions(self) -> dict[str, Distribution]:
        """The family of each observed block, the prior of each latent one."""
        return {name: block.distribution for name, block in self.blocks.items()}

    @property
    def indicators(self) -> tuple[str, ...]:
        """The latent blocks, parents first."""
        return tuple(name for name in self.order if not self.blocks[name].observed)

    @property
    def observed(self) -> tuple[str, ...]:
        """The observed blocks."""
        return tuple(name for name in self.order if self.blocks[name].observed)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the tokens must have: parents that are no blocks, and observed blocks."""
        named = [p for name in self.order for p in (*self.blocks[name].by, *self.blocks[name].per)]
        named_columns = [parent for parent in named if parent not in self.blocks]
        return tuple(dict.fromkeys((*named_columns, *self.observed)))

    @property
    def tables(self) -> dict[str, str]:
        """Indicators that sets of tokens are made of -> the variable over these sets."""
        return {
            table: name
            for name in self.order
            for table in self.blocks[name].per
            if table in self.blocks
        }

    def children(self, name: str) -> tuple[str, ...]:
        """The blocks that a variable partitions."""
        return children(self.blocks, name)

    def parts(self, name: str, sizes: Mapping[str, int]) -> BlockParts:
        """The parts of a block at these counts of values of the variables."""
        return parts(name, self.blocks[name], sizes)

    def with_blocks(self, changed: Mapping[str, Block]) -> Self:
        """The network with other blocks in place of some."""
        return type(self)({**self.blocks, **changed}, self.order)

    def at(self, data: Tokens) -> Self:
        """The network with the sizes of its families taken from the tokens.

        What a family leaves open is as without data; `Network.matched` takes it from them.
        """
        changed = {}
        for name in self.observed:
            distribution = self.distributions[name]
            if name in data.columns:
                distribution = distribution.with_size(data.sizes[name])
            elif name in data.values and data.values[name].ndim == 2:
                distribution = distribution.with_size(data.values[name].shape[1])
            changed[name] = self.blocks[name].with_distribution(distribution.standard())
        return self.with_blocks(changed)

    def known_from(self, data: Tokens) -> Self:
        """The network with what its families leave open taken from the values of the tokens."""
        changed = {}
        for name, num_groups in self.groups_of_values(data).items():
            block = self.blocks[name]
            if block.distribution.is_of_data:
                known = block.distribution.known_from(data.values[name], num_groups=num_groups)
                changed[name] = block.with_distribution(known)
        return self.with_blocks(changed) if changed else self

    def groups_of_values(self, data: Tokens) -> dict[str, float]:
        """How many groups share the volume of the values of each block, before a run.

        Blocks by one indicator share its groups as columns of rows do: of K groups D columns have
        K^(1 / D) each.
        """
        width = {
            name: 1 if data.values[name].ndim == 1 else data.values[name].shape[1]
            for name in self.observed
            if name in data.values
        }
        found: dict[str, float] = {}
        for name in width:
            latent = self._latent_parents(name)
            beside = sum(width[other] for other in width if latent & self._latent_parents(other))
            num_groups = max(map(self._num_groups_guessed, latent), default=1)
            found[name] = num_groups ** (width[name] / max(beside, width[name]))
        return found

    def _latent_parents(self, name: str) -> set[str]:
        return {parent for parent in self.blocks[name].by if parent in self.indicators}

    def _num_groups_guessed(self, name: str) -> int:
        """A guess, before a run, of how many groups an indicator has."""
        prior = self.distributions[name]
        num_groups: int = _GROUPS_GUESSED if prior.grows else prior.num_groups(1)
        return num_groups

    def sizes(self, data: Tokens, slots: Mapping[str, int]) -> dict[str, int]:
        """The number of values of every column and indicator."""
        return {**data.sizes, **slots}


class BlockModel(Protocol):
    """A model made of blocks, as the steps of its chain see it."""

    def network(self) -> Wiring:
        """The blocks that the model is made of."""

    def over(self, data: PyTree, /) -> tuple[Wiring, Tokens]:
        """The network with its sizes, and the tokens."""
