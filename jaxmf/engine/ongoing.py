"""A run under way on the host: how it starts, anew or from an earlier one, and what it ends as."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.engine.bound import BoundAlgorithm, Group
from jaxmf.engine.chunk import Batch, capacity_of, leaf_names
from jaxmf.engine.draws import DrawStore
from jaxmf.engine.result import Run, Schedule
from jaxmf.engine.sharding import Placement
from jaxmf.types import Key, PyTree, is_key


@dataclass
class OngoingRun:
    """A run under way: its groups of chains, what they kept, and the time so far."""

    schedule: Schedule  # steps and draws there are to be
    groups: list[Group]  # the chains
    store: DrawStore  # the draws kept
    num_dropped: int = 0  # draws of an earlier run that the store was not given
    seconds_before: float = 0.0  # time of earlier parts of a resumed run
    num_saved: int = 0  # draws of the store that are in a checkpoint
    began: float = field(default_factory=time.perf_counter)

    @property
    def step(self) -> int:
        """Steps done by every chain."""
        return min(group.step for group in self.groups)

    @property
    def num_stored(self) -> int:
        """Draws in the store."""
        return self.schedule.num_draws(self.step) - self.num_dropped

    @property
    def seconds(self) -> float:
        """Wall time so far."""
        return self.seconds_before + time.perf_counter() - self.began


def start_anew(
    bound: BoundAlgorithm, keys: list[tuple[slice, Key]], schedule: Schedule
) -> OngoingRun:
    """All chains before their first step."""
    groups = [bound.start(key, chains) for chains, key in keys]
    is_first = bound.placement.processes.is_first
    num_samples = schedule.num_samples
    store = DrawStore(_num_chains(keys), num_samples, schedule.folder, writes=is_first)
    return OngoingRun(schedule, groups, store)


def start_from(
    bound: BoundAlgorithm, keys: list[tuple[slice, Key]], schedule: Schedule, initial: Run
) -> OngoingRun:
    """All chains where an earlier run left them.

    Raises ValueError: if its state is not one of this algorithm and these chains.
    """
    batched = bound.placement.batch.batched
    capacity = capacity_of(bound.algorithm, initial.state, Batch(batched=True))
    groups = []
    for chains, key in keys:
        shapes, _ = bound.shapes(key, capacity)
        pick = chains if batched else chains.start
        group_state = jax.tree.map(
            lambda leaf, pick=pick: leaf[pick], (initial.state, initial.averages)
        )
        _check_like(group_state[0], shapes, _num_chains(keys))
        state, averages = bound.placement.put_group(*group_state)
        groups.append(Group(chains, key, state, averages, initial.num_steps, capacity))
    num_passed = min((x.shape[1] for x in initial.draws.values()), default=0)
    num_dropped = initial.num_draws - num_passed
    num_samples, is_first = schedule.num_samples - num_dropped, bound.placement.processes.is_first
    store = DrawStore(_num_chains(keys), num_samples, schedule.folder, writes=is_first)
    store.put(slice(None), 0, initial.draws)
    return OngoingRun(
        schedule, groups, store, num_dropped=num_dropped, seconds_before=initial.seconds
    )


def finish(bound: BoundAlgorithm, ongoing: OngoingRun) -> Run:
    """The `Run`, complete or interrupted."""
    seconds = ongoing.seconds
    groups, schedule = ongoing.groups, ongoing.schedule
    sizes = [group.capacity for group in groups]
    common = {axis: max(size[axis] for size in sizes) for axis in sizes[0]}
    for group in groups:
        bound.grow(group, common)
    store = ongoing.store
    store.reserve(_draw_shapes(bound, groups[0]))
    if schedule.folder is not None and bound.placement.processes.are_several:
        store.flush()
        bound.placement.processes.any_of(False)  # none reads before the first has written
    state, averages = _gather(groups, bound.placement)
    return Run(
        draws=store.get(0, ongoing.num_stored),
        averages=averages,
        state=state,
        num_steps=ongoing.step,
        num_warmup=schedule.num_warmup,
        complete=ongoing.step >= schedule.num_steps,
        seconds=seconds,
        capacity=common,
        num_draws=schedule.num_draws(ongoing.step),
        thin=schedule.thin,
    )


def _draw_shapes(
    bound: BoundAlgorithm, group: Group
) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    num_axes = bound.placement.batch.num_axes
    shapes = bound.draw_shapes(group.keys, group.state)
    return {name: (x.shape[num_axes:], x.dtype) for name, x in shapes}


def _gather(groups: list[Group], placement: Placement) -> tuple[PyTree, dict[str, np.ndarray]]:
    trees = [(group.state, group.averages) for group in groups]
    if placement.batch.batched:
        return jax.tree.map(_to_host, placement.processes.gather(trees[0]))
    return jax.tree.map(lambda *leaves: _stack(leaves), *trees)


def _stack(leaves: tuple[PyTree, ...]) -> PyTree:
    if is_key(leaves[0]):
        return jnp.stack(leaves)
    return np.stack([np.asarray(leaf) for leaf in leaves])


def _to_host(leaf: PyTree) -> PyTree:
    return leaf if is_key(leaf) else np.array(leaf)


def _check_like(state: PyTree, shapes: PyTree, num_chains: int) -> None:
    found = jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", state)
    expected = jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", shapes)
    there, needed = jax.tree.structure(found), jax.tree.structure(expected)
    if str(there) != str(needed):
        raise ValueError(
            f"initial: its state has the structure {there}, and this algorithm's has {needed}; "
            "it is a run of another algorithm"
        )
    pairs = zip(leaf_names(shapes), jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    for name, there, needed in pairs:
        if there != needed:
            is_other_float = there.replace("float32", "float64") == needed.replace(
                "float32", "float64"
            )
            remedy = "; switch jax_enable_x64 as it was in that run" if is_other_float else ""
            raise ValueError(
                f"initial: {name} of its state is {there} and should be {needed} for these data "
                f"and num_chains={num_chains}{remedy}"
            )


def _num_chains(keys: list[tuple[slice, Key]]) -> int:
    return keys[-1][0].stop
