"""Which optional moves a step makes: tried in the warm-up, fixed after it.

A move such as a birth of a shared feature brings chains on where it is accepted, and costs time
for nothing where it is not. In the warm-up every move is tried, `num_proposals` times a step. In
the last quarter of the warm-up, when a chain has left its start and nothing is annealed any more,
proposals and accepted ones are counted. A move stays if

    accepted / (proposals * cost)  >=  `LEAST_ACCEPTED`,

the cost of a proposal being counted in steps without optional moves: a constant of the code and not
a time of this run, so that the same key gives the same draws. Each chain decides for itself. After
the warm-up nothing is counted and nothing changes: draws come from one kernel, which leaves the
posterior invariant as each of its moves does.

Acceptance stands for effective samples here: how many of those a move brings could not be estimated
from a few hundred steps of one chain, while a move that is hardly ever accepted surely brings none.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypedDict

import jax.numpy as jnp
import numpy as np

from jaxmf.engine import Info, merge_overflow
from jaxmf.types import Array, PyTree

# accepted proposals in the time of a step
LEAST_ACCEPTED = 0.03
_UNCOUNTED = 0.75  # of the warm-up, while a start may be annealed


class MoveRecord(NamedTuple):
    """One move in one chain."""

    num_proposals: Array  # () int32, of each step after the warm-up
    # num_tried, num_accepted: () int32, proposals in the last quarter of the warm-up, and accepted
    num_tried: Array
    num_accepted: Array


# by the names of the moves; None for a state whose moves are all made
MoveSchedule = dict[str, MoveRecord] | None


class OptionalMove(NamedTuple):
    """A move that a schedule may leave out."""

    name: str
    num_proposals: int  # a step, while it is tried and where it stays
    cost: float  # CPU time of a proposal, in steps without optional moves
    # (state, how many proposals) -> state, info, () int32 how many were accepted
    kernel: Callable[[PyTree, Array], tuple[PyTree, Info, Array]]


def start_schedule(num_proposals: dict[str, int]) -> MoveSchedule:
    """Before the first step: every move with a positive number of proposals; None for no move."""
    zero = jnp.zeros((), jnp.int32)
    schedule = {
        name: MoveRecord(jnp.asarray(count, jnp.int32), zero, zero)
        for name, count in num_proposals.items()
        if count
    }
    return schedule or None


def make_moves(
    state: PyTree, moves: Sequence[OptionalMove], progress: Array | float
) -> tuple[PyTree, Info]:
    """The moves of a step, one after another, those that its schedule leaves out left out.

    Args: state, with a field `schedule`; progress () float, the share of the warm-up that is over.
    """
    overflows: list[dict[str, Array]] = []
    schedule = state.schedule
    for move in moves:
        if not move.num_proposals:
            continue
        count: Array = jnp.asarray(move.num_proposals, jnp.int32)
        if schedule is not None:
            count = jnp.where(progress < 1, count, schedule[move.name].num_proposals)
        state, info, num_accepted = move.kernel(state, count)
        overflows.append(info.overflow)
        if schedule is not None:
            record = counted(schedule[move.name], move, progress, num_accepted)
            schedule = schedule | {move.name: record}
    return state._replace(schedule=schedule), Info(overflow=merge_overflow(*overflows))


def counted(
    record: MoveRecord, move: OptionalMove, progress: Array | float, num_accepted: Array
) -> MoveRecord:
    """The record after a step in which `num_accepted` () int32 proposals were accepted."""
    counts = (progress >= _UNCOUNTED) & jnp.asarray(progress < 1)
    num_tried = record.num_tried + move.num_proposals
    num_accepted = record.num_accepted + num_accepted.astype(jnp.int32)
    pays = num_accepted >= LEAST_ACCEPTED * move.cost * num_tried
    new = MoveRecord(jnp.where(pays, move.num_proposals, 0), num_tried, num_accepted)
    return MoveRecord(
        *(
            jnp.where(counts, after, before).astype(jnp.int32)
            for after, before in zip(new, record, strict=True)
        )
    )


class MoveFacts(TypedDict):
    """Facts about a move for `Meta.run`."""

    proposals: list[int]  # of each step after the warm-up, of every chain
    # the share of the counted proposals that was, over all chains; None where none was counted
    accepted: float | None


def facts(state: PyTree) -> dict[str, MoveFacts]:
    """Facts for `Meta.run` from the last state of chains (C, ...), by the name of a move."""
    schedule = getattr(state, "schedule", None) or {}
    found: dict[str, MoveFacts] = {}
    for name, record in schedule.items():
        tried, accepted = (int(np.sum(counts)) for counts in record[1:])
        share = float(f"{accepted / tried:.3g}") if tried else None
        found[name] = MoveFacts(proposals=np.asarray(record.num_proposals).tolist(), accepted=share)
    return found


def describe(moves: Mapping[str, MoveFacts]) -> str:
    """Facts in a line.

    Example:
        >>> describe({"births": {"proposals": [2, 2, 0, 2], "accepted": 0.031}})
        'births: 2 a sweep in 3 of 4 chains, 0.031 accepted'
    """
    lines = []
    for name, move in moves.items():
        counts = move["proposals"]
        kept = [count for count in counts if count]
        line = f"{name}: {max(counts)} a sweep" if kept else f"{name}: none after the warm-up"
        if 0 < len(kept) < len(counts):
            line += f" in {len(kept)} of {len(counts)} chains"
        if move["accepted"] is not None:
            line += f", {move['accepted']:g} accepted"
        lines.append(line)
    return "; ".join(lines)
