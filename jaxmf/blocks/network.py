"""A network of mixture blocks, as a model: declared by its blocks, sampled as compiled from them.

Each block is a variable with a value for every token: an observed column, or a latent indicator.
The parents of a block partition its tokens, and given the partition the blocks are independent (eq
4.2). With the parameters of every part summed out, an indicator is drawn from its prior and the
predictive distributions of the blocks that it partitions (eq 5.5).

Source: Porteous (2010), Networks of mixture blocks for nonparametric Bayesian models, chapters
4 and 5.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax

from jaxmf.blocks import simulation
from jaxmf.blocks.network_model import NetworkModel
from jaxmf.blocks.open_families import known_families, notes_of_families
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.types import Key


@jax.tree_util.register_dataclass
@dataclass(frozen=True, init=False)
class Network(Wiring, NetworkModel[Tokens]):
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

    def __repr__(self) -> str:
        blocks = [f"{name}={self.blocks[name]!r}" for name in self.order]
        return f"Network({', '.join(blocks)})"

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

    def matched(self, data: Tokens) -> Network:
        """The network with what its families leave open taken from the tokens."""
        families = known_families(self, data)
        blocks = {name: self.blocks[name].with_distribution(of) for name, of in families.items()}
        return self.with_blocks(blocks) if blocks else self

    def notes(self, data: Tokens) -> tuple[str, ...]:
        """Choices that `matched` took from the tokens."""
        return notes_of_families(self, data)

    def network(self) -> Network:
        """The network itself."""
        return self

    def tokens(self, data: Tokens) -> Tokens:
        return data
