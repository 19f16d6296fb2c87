"""Tables of itemsets, and of sequences of them, as the Quest generator draws them.

What goes together is drawn first: how many members a pattern has, which, a weight for how often it
is bought, and a corruption level for how much of it is left out when it is.

Source: Agrawal & Srikant (1994), Fast algorithms for mining association rules, section 3.3; where
it leaves something open, the program that they published (version of June 1995):

- sizes are 1 more than a Poisson variable, so that their mean is the one asked for;
- items are not equally often put into itemsets but with exponential weights: 130 of the 1,000 items
  of T10I4D100K, an output of the program, never occur, where equal chances leave about 10;
- corruption levels have a standard deviation of 0.1 (a variance of 0.1 in the text), and all
  members of a pattern may be left out;
- correlation and corruption have a mean of 1/4, where the text has 1/2.

Other than there, the members of a pattern are all different ones.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_CORRUPTION_SD = 0.1
_MOST_CORRUPT = 0.99  # of a pattern something is left now and then, or nothing would ever be bought


class Patterns(NamedTuple):
    """A table of L patterns: sets of items, or sequences of itemsets.

    Attributes:
        members: L arrays of positions, of items in the data or of itemsets in their table.
        weights: (L,) float, the probability of each pattern, summing to one.
        corruption: (L,) float, the probability that one more member is left out.
    """

    members: list[np.ndarray]
    weights: np.ndarray
    corruption: np.ndarray


class Levels(NamedTuple):
    """Mean share of a pattern that comes from the one before, and mean corruption level."""

    correlation: float
    corruption: float


def chances(generator: np.random.Generator, count: int, *, equal: bool = False) -> np.ndarray:
    """Probabilities (count,) float: exponential weights divided by their sum, or equal ones."""
    weights = np.ones(count) if equal else generator.exponential(size=count)
    return weights / weights.sum()


def patterns(
    generator: np.random.Generator,
    member_weights: np.ndarray,
    count: int,
    *,
    mean_size: float,
    levels: Levels,
) -> Patterns:
    """A table of patterns.

    Args:
        generator: of the random choices.
        member_weights: (M,) float, the probability of every member.
        count: L.
        mean_size: of a pattern, at least 1.
        levels: correlation and corruption.
    """
    sizes = np.minimum(1 + generator.poisson(mean_size - 1, count), member_weights.size)
    shares = levels.correlation * generator.exponential(size=count)
    members: list[np.ndarray] = []
    for size, share in zip(sizes.tolist(), shares.tolist(), strict=True):
        # the keys of a dictionary: in order, each once
        chosen: dict[int, None] = {}
        if members:
            taken = min(int(share * size + 0.5), members[-1].size, size)
            chosen = dict.fromkeys(generator.permutation(members[-1])[:taken].tolist())
        while len(chosen) < size:
            chosen |= dict.fromkeys(
                generator.choice(member_weights.size, size, p=member_weights).tolist()
            )
        members.append(np.array(list(chosen)[:size]))
    corruption = levels.corruption + _CORRUPTION_SD * generator.normal(size=count)
    corruption = np.clip(corruption, 0, _MOST_CORRUPT) if levels.corruption else np.zeros(count)
    return Patterns(members, chances(generator, count), corruption)


class Hand:
    """Patterns of a table as they are bought: one after the other, some kept for the next buyer.

    Args:
        table: of the patterns.
        generator: of the random choices. They are drawn sequentially, in plain Python: what is
            bought depends on what was before.
    """

    def __init__(self, table: Patterns, generator: np.random.Generator) -> None:
        self._members = [one.tolist() for one in table.members]
        self._corruption = table.corruption.tolist()
        self._cumulative = np.cumsum(table.weights).tolist()
        self._random = random.Random(int(generator.integers(2**63)))
        self._kept: int | None = None

    def draw(self) -> int:
        """The pattern that was put back, or a new one by its weight."""
        kept, self._kept = self._kept, None
        if kept is not None:
            return kept
        (drawn,) = self._random.choices(range(len(self._members)), cum_weights=self._cumulative)
        return drawn

    def put_back(self, pattern: int) -> None:
        """The pattern is drawn next."""
        self._kept = pattern

    def coin(self, chance: float = 0.5) -> bool:
        """True with this probability."""
        return self._random.random() < chance

    def some_of(self, pattern: int) -> list[int]:
        """The members that are left of a pattern: one more leaves as long as a coin says so."""
        members, level = self._members[pattern], self._corruption[pattern]
        count = len(members)
        while count and self.coin(level):
            count -= 1
        return self.chosen(members, count)

    def all_of(self, pattern: int) -> list[int]:
        """All members, in their order."""
        return self._members[pattern]

    def is_corrupt(self, pattern: int) -> bool:
        """Whether a pattern is bought in part, by a coin with its level."""
        return self.coin(self._corruption[pattern])

    def chosen(self, members: Sequence[int], count: int) -> list[int]:
        """This many of them at random, in their order."""
        if count == len(members):
            return list(members)
        indices = sorted(self._random.sample(range(len(members)), count))
        return [members[index] for index in indices]
