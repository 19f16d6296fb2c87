"""A network of mixture blocks, as a model: declared by its blocks, sampled as compiled from them.

Each block is a variable with a value for every token: an observed column, or a latent indicator.
The parents of a block partition its tokens, and given the partition the blocks are independent (eq
4.2). With the parameters of every part summed out, an indicator is drawn from its prior and the
predictive distributions of the blocks that it partitions (eq 5.5).

Source: Porteous (2010), Networks of mixture blocks for nonparametric Bayesian models, chapters
4 and 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import jax

from jaxmf.blocks import simulation
from jaxmf.blocks.block import Block
from jaxmf.blocks.network_model import NetworkModel
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.unobserved import check_coverage
from jaxmf.blocks.wiring import BlockParts, check_wiring, children, parts
from jaxmf.data import Tokens
from jaxmf.types import Array, Key


@partial(jax.tree_util.register_dataclass, data_fields=["blocks"], meta_fields=["order"])
@dataclass(frozen=True, init=False)
class Network(NetworkModel[Tokens]):
    """Variables of tokens, and which of them partitions which.

    Args:
        blocks: name -> `Block`; as keywords, or as one mapping.
    Attributes:
        order: the names, parents before children.
    Raises:
        TypeError, ValueError: blocks that are no network: unknown kinds, circles, labels that mean
            nothing where they are used.
    Example:
        >>> import jaxmf as mf
        >>> lda = mf.Network(
        ...     topic=mf.Block(mf.Dirichlet(50, concentration=0.1), by="document"),
        ...     word=mf.Block(mf.DirichletMultinomial(1_000, 0.01), by="topic", observed=True),
        ... )
        >>> lda.indicators, lda.children("topic"), lda.columns
        (('topic',), ('word',), ('document', 'word'))
    """

    blocks: dict[str, Block]
    order: tuple[str, ...] = field(repr=False)

    def __init__(
        self,
        blocks: Mapping[str, Block] | None = None,
        order: tuple[str, ...] | None = None,
        **named: Block,
    ) -> None:
        together = {**(blocks or {}), **named}
        object.__setattr__(self, "blocks", together)
        object.__setattr__(self, "order", order or check_wiring(together))

    def __repr__(self) -> str:
        blocks = [f"{name}={self.blocks[name]!r}" for name in self.order]
        return f"Network({', '.join(blocks)})"

    # --- structure --------------------------------------------------------------------------------

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

    def at(self, data: Tokens) -> Network:
        """The network with the sizes of its families taken from the tokens."""
        blocks = dict(self.blocks)
        for name in self.observed:
            distribution = self.blocks[name].distribution
            if name in data.columns:
                distribution = distribution.with_size(data.sizes[name])
            elif name in data.values and data.values[name].ndim == 2:
                distribution = distribution.with_size(data.values[name].shape[1])
            blocks[name] = self.blocks[name].with_distribution(distribution)
        return Network(blocks, self.order)

    def sizes(self, data: Tokens, slots: Mapping[str, int]) -> dict[str, int]:
        """The number of values of every column and indicator."""
        return {**data.sizes, **slots}

    def check_data(self, data: Tokens, name: str) -> None:
        """Refuses tokens that lack a column, or have values that a family does not know.

        Raises:
            ValueError: the data and the network do not fit together.
        """
        if not self.observed:
            raise ValueError(
                f"{name}: no block of the network is observed, so the data say nothing about it; "
                "declare the block of a column with observed=True"
            )
        have = {*data.columns, *data.values}
        for column in self.columns:
            if column not in have:
                raise ValueError(
                    f"{name}: the tokens have no column {column!r}, which the network names; they "
                    f"have {', '.join(map(repr, sorted(have)))}"
                )
        for parent in self.columns:
            if parent in data.values and parent not in self.observed:
                raise ValueError(
                    f"{name}: {parent!r} has real values and cannot partition anything; pass it as "
                    "a column of indices"
                )
        for indicator in self.indicators:
            if indicator in have:
                raise ValueError(
                    f"{name}: the tokens have a column {indicator!r}, which is a latent block; "
                    "rename one, or declare the block observed=True"
                )
        sized = self.at(data)
        for block in self.observed:
            sized.blocks[block].distribution.check(observed_values(data, block), block)
        slots = {n: self.blocks[n].distribution.num_groups(1) for n in self.indicators}
        for block in self.order:
            self.parts(block, self.sizes(data, slots))
        check_coverage(self, data)

    # --- probability ------------------------------------------------------------------------------

    def simulate(
        self, key: Key, data: Tokens, *, capacity: int | None = None
    ) -> tuple[NetworkState, Tokens]:
        """A state from the prior, and values of the observed blocks given it.

        Args:
            key: typed PRNG key.
            data: tokens with the columns that are no blocks; those of observed blocks are replaced,
                and say how many values a family has whose size is None.
            capacity: slots of growing indicators; by default as many as there are tokens, so that
                there is always room.
        Returns:
            State and Tokens.
        Raises:
            ValueError: a family without a size, and no column that it follows from.
        """
        return simulation.simulate(self, key, data, capacity=capacity)

    # --- as a model
    # --------------------------------------------------------------------------------

    def network(self) -> Network:
        """The network itself."""
        return self

    def tokens(self, data: Tokens) -> Tokens:
        return data


def observed_values(data: Tokens, name: str) -> Array:
    """The column of an observed block: of indices or of real values."""
    return data.columns[name] if name in data.columns else data.values[name]
