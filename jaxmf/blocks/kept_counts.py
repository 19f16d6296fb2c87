"""Counts of groups that a draw keeps: tables of all parts, or the groups of tokens instead.

A table of topics of documents has as many cells as documents times topics, the tokens may be far
fewer. A draw with ``keep="compact"`` then has the group of every token, from which the counts of
the parts that are asked for are made, and the tokens of each group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.types import Array

Draw = Mapping[str, Any]

_BLOCK_CELLS = 2**22


def is_table(draw: Draw, name: str) -> bool:
    """Whether draws have the counts of an indicator in every part."""
    return f"{name}_counts" in draw


def num_groups(draw: Draw, name: str) -> int:
    """How many values an indicator has."""
    return int(draw[f"{name}_counts" if is_table(draw, name) else f"{name}_totals"].shape[-1])


def counts_by_part(draw: Draw, name: str) -> Array:
    """Counts (G, K) int of all parts, or (1, K) of all of them together where there are no more."""
    if is_table(draw, name):
        return draw[f"{name}_counts"].reshape(-1, num_groups(draw, name))
    return draw[f"{name}_totals"][None]


def counts_at(network: Wiring, draw: Draw, name: str, data: Tokens, columns: Draw) -> Array:
    """Counts of the parts with some values of the columns: (M, *latent parents, K) int32.

    Args: draw: with the groups of tokens; columns: (M,) int32 each, by name.
    """
    parents = network.blocks[name].by
    known = [parent for parent in parents if parent not in network.indicators]
    # where the counts of a part stand: at one of the positions that ask for it
    num_asked, size = columns[known[0]].shape[0], 1
    asked, found = jnp.zeros((num_asked,), jnp.int32), jnp.zeros((), jnp.int32)
    for parent in known:
        size *= data.sizes[parent]
        asked = asked * data.sizes[parent] + columns[parent]
        found = found * data.sizes[parent] + data.columns[parent]
    index = jnp.full((size,), num_asked, jnp.int32).at[asked].set(jnp.arange(num_asked))
    latent = [parent for parent in parents if parent in network.indicators]
    groups = [draw[f"{each}_of_tokens"].astype(jnp.int32) for each in (*latent, name)]
    sizes = [num_groups(draw, each) for each in (*latent, name)]
    counts = jnp.zeros((num_asked, *sizes), jnp.int32)
    return counts.at[(index[found], *groups)].add(1, mode="drop")[index[asked]]


class TokensOfLevels:
    """The tokens of the levels of a column, on the host.

    Args: data: the tokens; column: such as "document".
    """

    def __init__(self, data: Tokens, column: str):
        self._column = column
        self._levels = np.asarray(data.columns[column])
        self.sizes = np.bincount(self._levels, minlength=data.sizes[column])
        self._ends = np.cumsum(self.sizes)
        is_sorted = bool(np.all(self._levels[1:] >= self._levels[:-1]))
        self._order = None if is_sorted else np.argsort(self._levels, kind="stable")

    def tokens_of(self, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the tokens of some levels stand, and at which of these levels: (T',) int each."""
        sizes = self.sizes[levels]
        index = np.repeat(np.arange(levels.size), sizes)
        first = (self._ends - self.sizes)[levels] - (np.cumsum(sizes) - sizes)
        tokens = np.arange(index.size) + np.repeat(first, sizes)
        return tokens if self._order is None else self._order[tokens], index

    def counts(self, network: Wiring, draw: Draw, name: str, levels: np.ndarray) -> np.ndarray:
        """Counts of the parts of some levels: (n, *latent parents, K) int.

        Args: name: of an indicator by this column and by indicators; levels (n,) int.
        """
        parents = network.blocks[name].by
        if is_table(draw, name):
            counts = np.moveaxis(draw[f"{name}_counts"], parents.index(self._column), 0)
            return np.asarray(counts[levels])
        tokens, flat = self.tokens_of(levels)
        shape = [levels.size]
        for each in (*(parent for parent in parents if parent != self._column), name):
            shape.append(num_groups(draw, each))
            flat = flat * shape[-1] + draw[f"{each}_of_tokens"][tokens]
        return np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape)


def in_blocks(num_levels: int, num_cells: int) -> Iterator[slice]:
    """Successive levels of which each has as many cells in a table, a few million cells at once."""
    size = max(1, _BLOCK_CELLS // max(num_cells, 1))
    for start in range(0, num_levels, size):
        yield slice(start, min(start + size, num_levels))
