"""How far the growing axes of an algorithm may grow, and how a run ends that needs more.

A state that fits its data needs a number of features or groups that the data can support. A sampler
whose scales are small against the data takes new ones without end, and every doubling of the
capacity makes a step slower: such a run is stopped with an explanation rather than left to hang.
"""

from __future__ import annotations

import os
from typing import NamedTuple

MAX_CAPACITY = 2**16
_MANY = 256
_WHOLE = 32  # slots of whole vectors
ADVICE = (
    "Most often the scales of the model are small against the data, so that large values are "
    "explained by ever more features or groups: centre and scale the columns, or pass larger "
    "scales, or priors that allow them"
)


class Limit(NamedTuple):
    """The largest capacity of a growing axis.

    Attributes:
        size: slots; the capacity grows until it would exceed them, then it is exactly this.
        advice: what a user can do where a step needs more.
    """

    size: int = MAX_CAPACITY
    advice: str = ADVICE


class Exceeded(NamedTuple):
    """What a step needed and may not have."""

    axis: str  # the growing axis
    size: int  # its capacity when it could not grow any more
    chains: slice  # the chains of the group that needs more
    step: int  # at which step, counted from 0, warm-up included
    reason: str  # why it may not grow, one sentence, and what to do
    is_memory: bool = False  # whether it is the memory that does not allow it

    def describe(self) -> str:
        """The axis, the size, the chain, the step and the reason, as a sentence."""
        first, last = self.chains.start, self.chains.stop - 1
        who = f"chain {first}" if first == last else f"one of the chains {first} to {last}"
        return (
            f"{who} needs more than {self.size} slots of {self.axis!r} at step {self.step}, and "
            f"cannot have them: {self.reason}"
        )


class GrowthError(RuntimeError):
    """A step needed more slots than an axis may have, before any draw was kept.

    Attributes:
        axis: the growing axis.
        size: its capacity.
        step: at which step, counted from 0, warm-up included.
    """

    def __init__(self, exceeded: Exceeded, checkpoint: str | os.PathLike[str] | None):
        self.axis, self.size, self.step = exceeded.axis, exceeded.size, exceeded.step
        kept = "" if checkpoint is None else f". The steps before it are kept in {checkpoint}"
        super().__init__(f"{exceeded.describe()}. No draw was kept yet{kept}")


class GrowthWarning(RuntimeWarning):
    """A run ended early because a step needed more slots than an axis may have."""


def next_size(size: int, limit: int) -> int | None:
    """The capacity after one of `size` slots that was too small; None if there is none.

    Twice as many, and half as many more from 256 on: what a step takes there follows the slots,
    and a chain that is short of one would leave nearly half of twice as many empty.

    Example:
        >>> next_size(8, 12), next_size(12, 12), next_size(0, 12)
        (12, None, 1)
    """
    if size >= limit:
        return None
    larger = 2 * size if size < _MANY else -(-3 * size // (2 * _WHOLE)) * _WHOLE
    return min(max(1, larger), limit)
