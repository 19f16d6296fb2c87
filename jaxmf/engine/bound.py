"""An algorithm, its data and a group of chains: start, advance, grow, by compiled programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxmf.engine.algorithm import Algorithm, Exceeded, Limit, size_for
from jaxmf.engine.chunk import (
    ChunkPlan,
    Outcome,
    capacity_of,
    grow_chain,
    record_draw,
    run_chunk,
    start_chain,
)
from jaxmf.engine.executables import CACHE, Executable, num_bytes, quick_to_compile
from jaxmf.engine.sharding import Placement
from jaxmf.engine.supervisor import Supervisor
from jaxmf.types import Array, Draw, Key, PyTree, is_key

# a chunk's draws wait on the device in a buffer of a fixed number of rows, so that one program
# serves every length: as many as fit these bytes, a power of two
BUFFER_BYTES = 32 * 2**20
MAX_BUFFER_ROWS = 2**14


# the fields of a group that the programs take over
DONATED = ("state", "averages")


@dataclass
class Group:
    """Chains that one program advances: one chain, or all of them along a leading axis.

    `seconds_per_step` is that of its latest steps, None before there is one; `has_grown` until a
    step was done at the new capacity.
    """

    chains: slice
    keys: Key
    state: PyTree
    averages: dict[str, Any]
    step: int
    capacity: dict[str, int]
    seconds_per_step: float | None = None
    has_grown: bool = False


class Failure(NamedTuple):
    """Name of an array that was not finite, its chain and step (counted from 0)."""

    quantity: str
    chain: int
    step: int


@dataclass
class ChunkResult:
    """Result of a chunk of one group of chains."""

    # pieces of kept draws in order, each name -> (chains, rows, ...)
    draws: list[dict[str, np.ndarray]] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    # name -> (chains,), of the last record
    scalars: dict[str, np.ndarray] = field(default_factory=dict)
    seconds: float = 0.0  # wall time of running, compilation left out, other groups' turns included
    failure: Failure | None = None  # what was not finite, if anything
    exceeded: Exceeded | None = None  # what it needed and may not have, if anything

    @property
    def is_stopped(self) -> bool:
        """Whether the group cannot take another step."""
        return self.failure is not None or self.exceeded is not None


@dataclass(frozen=True)
class BoundAlgorithm:
    """An algorithm bound to its data and to devices."""

    # algorithm, data: on their devices
    algorithm: Algorithm
    data: PyTree
    placement: Placement  # one chain or many a program, and where they lie
    # num_warmup, thin: which steps are kept
    num_warmup: int
    thin: int
    # called with every chunk program before it runs; raises a MemoryError if it is too large
    approve: Callable[[Executable], None] = lambda executable: None
    limits: dict[str, Limit] = field(default_factory=dict)  # axis -> how far it may grow
    _chunk_programs: dict[tuple[Hashable, ...], Executable] = field(default_factory=dict)

    def start_program(self, keys: Key) -> Executable:
        """The program that starts a group."""
        return self._get(start_chain, (self.algorithm, self.data, keys))

    def shapes(
        self, keys: Key, capacity: dict[str, int] | None = None
    ) -> tuple[PyTree, dict[str, Array]]:
        """Shapes of state and averages of a group, at this capacity."""
        shapes = self.placement.shapes_of_group(*self.start_program(keys).shapes)
        if not capacity or self.capacity(shapes[0]) == capacity:
            return shapes
        grown = self._grow_program(keys, shapes, capacity).shapes
        return self.placement.shapes_of_group(*grown)

    def shapes_at(self, group: Group, sizes: dict[str, int]) -> tuple[PyTree, dict[str, Array]]:
        """Shapes of state and averages of a group if these axes had these sizes."""
        shapes = self.placement.shapes_of_group(group.state, group.averages)
        grown = self._grow_program(group.keys, shapes, group.capacity | sizes).shapes
        return self.placement.shapes_of_group(*grown)

    def capacity(self, state: PyTree) -> dict[str, int]:
        """Sizes of the growing axes."""
        return capacity_of(self.algorithm, state, self.placement.batch)

    def draw_shapes(self, keys: Key, state: PyTree) -> tuple[tuple[str, jax.ShapeDtypeStruct], ...]:
        """Names, shapes and dtypes of a draw of the group."""
        state, _ = self.placement.shapes_of_group(state, {})
        traced = self._get(record_draw, (self.algorithm, self.data, keys, state))
        return tuple(sorted(traced.shapes.items()))

    def chunk_program(self, keys: Key, state: PyTree, averages: dict[str, Array]) -> Executable:
        """The program that advances a group of this state's shapes."""
        known = tuple(leaf.shape for leaf in jax.tree.leaves(state))
        if known not in self._chunk_programs:
            shapes = self.placement.shapes_of_group(state, averages)
            draw_shapes = self.draw_shapes(keys, state)
            args = (self.algorithm, self.data, keys, *shapes, self._plan(0, 0))
            num_rows = _num_rows(num_bytes(dict(draw_shapes)))
            self._chunk_programs[known] = self._get(
                run_chunk, args, draw_shapes=draw_shapes, num_rows=num_rows
            )
        return self._chunk_programs[known]

    def start(self, keys: Key, chains: slice) -> Group:
        """A group before its first step."""
        program = self.start_program(keys)
        state, averages = self._call(program, self.algorithm, self.data, keys)
        return Group(
            chains=chains,
            keys=keys,
            state=state,
            averages=averages,
            step=0,
            capacity=self.capacity(state),
        )

    def grow(self, group: Group, sizes: dict[str, int]) -> None:
        """Gives a group larger capacity on the named axes."""
        before = group.capacity
        larger = before | sizes
        if larger == before:
            return
        shapes = self.placement.shapes_of_group(group.state, group.averages)
        program = self._grow_program(group.keys, shapes, larger)
        group.state, group.averages = self._call(
            program, self.algorithm, self.data, group.keys, group.state, group.averages
        )
        if self.capacity(group.state) != larger:
            raise ValueError(
                f"the algorithm's grow was asked for the sizes {larger} and gave "
                f"{self.capacity(group.state)}"
            )
        group.capacity, group.has_grown = larger, True
        if group.seconds_per_step is not None:
            # steps take longer at larger capacity, by no more than its cube
            group.seconds_per_step *= (
                max(larger[axis] / max(1, before[axis]) for axis in larger) ** 3
            )

    def advance(
        self, groups: list[Group], end: int, supervisor: Supervisor | None = None
    ) -> list[ChunkResult]:
        """Takes groups up to step `end`, growing those whose steps overflow on the way.

        A step that overflows is repeated with the same key at larger capacity: drawing it anew
        would favour paths that need less room. Where one group must stop before `end`, all of them
        are left at the step that it reached.

        Args:
            groups: changed in place.
            supervisor: runs compiled programs, and nothing else, in its threads, and says when to
                stop. Tracing stays in this thread, where JAX's settings are the caller's.
        Returns:
            What each of them did.
        """
        supervisor = Supervisor() if supervisor is None else supervisor
        before = self._remember(groups)
        done = [ChunkResult() for _ in groups]
        # groups that stop at different steps must be brought together again
        may_stop = (
            partial(self._may_stop, supervisor) if len(groups) == 1 or any(before) else _never
        )
        self._advance(groups, done, end, supervisor, may_stop)
        reached = min(group.step for group in groups)
        later = [index for index, group in enumerate(groups) if group.step > reached]
        if later and not any(result.failure for result in done):
            for index in later:
                vars(groups[index]).update(self._restored(before[index]))
                done[index] = ChunkResult(seconds=done[index].seconds)
            again = [groups[index] for index in later]
            self._advance(again, [done[index] for index in later], reached, supervisor, _never)
        return done

    def _advance(
        self,
        groups: list[Group],
        done: list[ChunkResult],
        end: int,
        supervisor: Supervisor,
        may_stop: Callable[[], bool],
    ) -> None:
        while todo := [
            (group, result)
            for group, result in zip(groups, done, strict=True)
            if group.step < end and not result.is_stopped
        ]:
            if any(result.exceeded for result in done):
                return
            calls = [(self._prepare(group), group, result) for group, result in todo]
            if may_stop():
                return
            began = time.perf_counter()
            execute = partial(self._execute, end=end, supervisor=supervisor, may_stop=may_stop)
            overflows = supervisor.map(execute, calls)
            for (group, result), full in zip(todo, overflows, strict=True):
                result.seconds += time.perf_counter() - began
                result.exceeded = self._make_room(group, full)

    def _may_stop(self, supervisor: Supervisor) -> bool:
        return self.placement.processes.any_of(supervisor.is_stopping())

    def _make_room(self, group: Group, shortages: dict[str, int]) -> Exceeded | None:
        """Gives these axes the next capacity that is not short, or says why it cannot."""
        sizes = {}
        for axis, shortage in shortages.items():
            size, limit = group.capacity[axis], self.limits.get(axis, Limit())
            larger = size_for(size, shortage, limit.size)
            if larger is None:
                reason = f"that is the most for these data. {limit.advice}"
                return Exceeded(axis, size, group.chains, group.step, reason)
            sizes[axis] = larger
        if not sizes:
            return None
        try:
            shapes = self.shapes_at(group, sizes)
            self.approve(self.chunk_program(group.keys, *shapes))
        except MemoryError as error:
            axis = next(iter(sizes))
            size = group.capacity[axis]
            return Exceeded(axis, size, group.chains, group.step, str(error), is_memory=True)
        self.grow(group, sizes)
        return None

    def _remember(self, groups: list[Group]) -> list[dict[str, PyTree]]:
        """The groups as they are, where some could get ahead of others that must stop."""
        if len(groups) == 1 or not groups[0].capacity:
            return [{} for _ in groups]
        # programs destroy the state they are called with: a copy on the host
        return [
            vars(group) | {name: jax.tree.map(_on_host, getattr(group, name)) for name in DONATED}
            for group in groups
        ]

    def _restored(self, remembered: dict[str, object]) -> dict[str, object]:
        trees = {name: jax.tree.map(_from_host, remembered[name]) for name in DONATED}
        return remembered | dict(zip(DONATED, self.placement.put_group(**trees), strict=True))

    def _prepare(self, group: Group) -> Executable:
        program = self.chunk_program(group.keys, group.state, group.averages)
        self.approve(program)
        _ = program.compiled
        return program

    def _execute(
        self,
        call: tuple[Executable, Group, ChunkResult],
        *,
        end: int,
        supervisor: Supervisor,
        may_stop: Callable[[], bool],
    ) -> dict[str, int]:
        program, group, result = call
        full: dict[str, int] = {}
        while group.step < end and not full and result.failure is None and not may_stop():
            first = group.step
            # how long a step takes at a new capacity is to be seen first
            num_left = 1 if group.has_grown else end - first
            stop = first + _num_steps(num_left, group.seconds_per_step, supervisor.chunk_seconds)
            with program.turns.take():
                began = time.perf_counter()
                with supervisor.watch(group.chains, first, stop, group.seconds_per_step):
                    outcome = self._run(program, group, stop)
                seconds = self.placement.processes.first_value(time.perf_counter() - began)
            group.state, group.averages = outcome.state, outcome.averages
            group.step = int(outcome.step)
            self._keep(result, outcome.draws, int(outcome.num_draws), group.step)
            full = {axis: int(short) for axis, short in outcome.overflow.items() if short}
            result.failure = None if full else _failure(group, outcome.bad)
            group.has_grown = False
            # a step that overflowed was done as well
            group.seconds_per_step = seconds / max(1, group.step - first + bool(full))
        return full

    def _run(self, program: Executable, group: Group, end: int) -> Outcome:
        with self.placement.context():
            outcome = program(
                self.algorithm,
                self.data,
                group.keys,
                group.state,
                group.averages,
                self._plan(group.step, end),
            )
        counts = (outcome.num_draws, outcome.step, outcome.overflow, outcome.bad)
        num_draws, step, overflow, bad = jax.device_get(counts)
        return outcome._replace(num_draws=num_draws, step=step, overflow=overflow, bad=bad)

    def _call(self, program: Executable, *args: object) -> PyTree:
        _ = program.compiled
        with program.turns.take(), self.placement.context():
            return jax.block_until_ready(program(*args))

    def _keep(self, result: ChunkResult, draws: Draw, num_draws: int, step: int) -> None:
        piece = {}
        was_kept = step > self.num_warmup and (step - self.num_warmup) % self.thin == 0
        draws = self.placement.processes.gather(draws, num_draws + 1)
        for name, buffer in draws.items():
            rows = np.asarray(buffer)
            rows = np.moveaxis(rows, 1, 0) if self.placement.batch.batched else rows[None]
            piece[name] = np.array(rows[:, :num_draws])
            if rows.ndim == 2:
                result.scalars[name] = np.array(rows[:, num_draws - int(was_kept)])
        if num_draws:
            result.draws.append(piece)
            result.rows.append(num_draws)

    def _plan(self, step: int, end: int) -> ChunkPlan:
        counts = (step, end, self.num_warmup, self.thin)
        return ChunkPlan(*(np.asarray(count, np.int32) for count in counts))

    def _grow_program(
        self, keys: Key, shapes: tuple[PyTree, dict[str, Array]], capacity: dict[str, int]
    ) -> Executable:
        args = (self.algorithm, self.data, keys, *shapes)
        return self._get(grow_chain, args, sizes=tuple(sorted(capacity.items())))

    def _get(
        self, function: Callable[..., PyTree], args: tuple[PyTree, ...], **static: object
    ) -> Executable:
        with self.placement.context():
            options = self.placement.options(function, args, static)
        compiler_options = quick_to_compile()
        if self.algorithm.compiler_options is not None:
            compiler_options |= self.algorithm.compiler_options()
        options["compiler_options"] = compiler_options
        with self.placement.context():
            found = CACHE.get(function, args, {"batch": self.placement.batch, **static}, **options)
        self.placement.check_threads(found.batches, args[2].shape)
        return found


@dataclass(frozen=True)
class _Words:
    """A typed key on the host; no tree, so a leaf."""

    words: np.ndarray
    impl: object


def _on_host(leaf: PyTree) -> PyTree:
    if is_key(leaf):
        return _Words(np.array(jax.random.key_data(leaf)), jax.random.key_impl(leaf))
    return np.array(leaf)


def _from_host(leaf: object) -> PyTree:
    if isinstance(leaf, _Words):
        return jax.random.wrap_key_data(jax.numpy.asarray(leaf.words), impl=leaf.impl)
    return leaf


def _never() -> bool:
    return False


def _num_steps(num_left: int, seconds_per_step: float | None, chunk_seconds: float) -> int:
    """Steps of the next program of a chunk: all that are left, fewer where steps became slow.

    Example:
        >>> _num_steps(100, 0.01, 1.0), _num_steps(100, 0.5, 1.0), _num_steps(100, 9.0, 1.0)
        (100, 2, 1)
    """
    if seconds_per_step is None or num_left * seconds_per_step <= 2 * chunk_seconds:
        return num_left
    return max(1, min(num_left, int(chunk_seconds / seconds_per_step)))


def _failure(group: Group, bad: dict[str, Array]) -> Failure | None:
    for name, flags in bad.items():
        for chain in np.flatnonzero(flags):
            return Failure(name, group.chains.start + int(chain), group.step - 1)
    return None


def _num_rows(bytes_per_draw: int) -> int:
    rows = max(1, min(BUFFER_BYTES // max(1, bytes_per_draw), MAX_BUFFER_ROWS))
    return 1 << (rows.bit_length() - 1)
