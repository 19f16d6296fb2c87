"""The protocol every method follows, and the two ways of composing kernels.

A kernel is a pure function ``(key, state, data) -> (state, Info)`` that leaves a stated
distribution invariant. An `Algorithm` is what the run loop drives: where a chain starts, what a
step does, what a draw keeps, and how the state grows when a step runs out of slots.

`Limit` says how far a growing axis may go. A state that fits its data needs a number of features or
groups that the data can support. A sampler whose scales are small against the data takes new ones
without end, and every doubling of the capacity makes a step slower: such a run is stopped with an
explanation rather than left to hang.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from types import MethodType
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from jaxmf.types import Array, Key, PyTree

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
    """Capacity that a step needed and may not have."""

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


def size_for(size: int, shortage: int, limit: int) -> int | None:
    """The first capacity of `next_size` after `size` slots that has `shortage` more.

    Example:
        >>> size_for(8, 1, 100), size_for(8, 30, 100), size_for(8, 300, 100), size_for(9, 1, 9)
        (16, 64, 100, None)
    """
    larger = next_size(size, limit)
    while larger is not None and larger < min(size + shortage, limit):
        larger = next_size(larger, limit)
    return larger


class Info(NamedTuple):
    """Report of a kernel beside the new state.

    Attributes:
        overflow: axis name -> () bool; True where the step needed more slots than there are.
            The state that comes with it is not used: the step is repeated at larger capacity.
        shortage: axis name -> () int32, how many more it needed at least, for kernels that know:
            the loop then compiles no program for a capacity that is too small as well.
    """

    overflow: dict[str, Array]
    shortage: dict[str, Array] = {}  # noqa: RUF012


def short_of(axis: str, shortage: Array) -> Info:
    """Report of a kernel that is short of () int slots, or () bool whether of any."""
    return Info(overflow={axis: shortage > 0}, shortage={axis: shortage.astype(jnp.int32)})


Kernel = Callable[[Key, PyTree, PyTree], tuple[PyTree, Info]]


class Algorithm(NamedTuple):
    """Pure functions that make one Markov chain, filter or ascent; build it with `algorithm`.

    Every field is a `jax.tree_util.Partial`, so an Algorithm is a pytree: numbers bound to its
    functions are leaves, and a second model with other numbers recompiles nothing.

    Attributes:
        init: ``(key, data) -> state``.
        step: ``(key, state, data, progress) -> (state, Info)``; progress is a () float, the share
            of the warm-up that is over, 1 when sampling.
        record: ``(key, state, data) -> dict``, what a draw keeps. Scalars are shown while it runs;
            ``log_joint`` must be finite.
        grow: ``(state, {axis: size}) -> state``, the same state at larger capacity, new slots zero.
        capacity: ``state -> {axis: size}``, the sizes of the growing axes, from shapes alone.
        average: ``(key, state, data) -> dict`` of quantities whose mean over draws is wanted.
        compiler_options: ``() -> dict``, options of XLA for the programs that the loop makes of it.
        prepare: ``data -> data`` as the steps go through them, done once a run; the other functions
            take either.
        limit: ``data -> {axis: Limit}``, the largest capacity that is of use for these data, from
            shapes alone; an axis not named may grow to `growth.MAX_CAPACITY`. A run whose step
            needs more ends there: see `run`.
        row_arrays: ``() -> names`` of the arrays of the data, the state and the draws whose first
            axis goes over rows, where an axis "data" of a mesh can spread them.
        share_out: ``(data, num_devices) -> data``, instead of `prepare` on such a mesh: the
            data as the steps go through them there, the arrays of `row_arrays` with equal shares
            of all devices. Called on the host, not in a program.
    """

    init: Callable[..., PyTree]
    step: Callable[..., tuple[PyTree, Info]]
    record: Callable[..., dict[str, Array]]
    grow: Callable[..., PyTree] | None = None
    capacity: Callable[..., dict[str, int]] | None = None
    average: Callable[..., dict[str, Array]] | None = None
    compiler_options: Callable[[], dict[str, object]] | None = None
    prepare: Callable[..., PyTree] | None = None
    limit: Callable[..., dict[str, Limit]] | None = None
    row_arrays: Callable[[], tuple[str, ...]] | None = None
    share_out: Callable[..., PyTree] | None = None


def algorithm(
    *,
    init: Callable[..., PyTree],
    step: Callable[..., tuple[PyTree, Info]],
    record: Callable[..., dict[str, Array]],
    grow: Callable[..., PyTree] | None = None,
    capacity: Callable[..., dict[str, int]] | None = None,
    average: Callable[..., dict[str, Array]] | None = None,
    compiler_options: Callable[[], dict[str, object]] | None = None,
    prepare: Callable[..., PyTree] | None = None,
    limit: Callable[..., dict[str, Limit]] | None = None,
    row_arrays: Callable[[], tuple[str, ...]] | None = None,
    share_out: Callable[..., PyTree] | None = None,
) -> Algorithm:
    """An Algorithm from plain functions, Partials or methods of a registered dataclass.

    Args:
        init, step, record, ...: the fields of `Algorithm`.
    Returns:
        An Algorithm whose fields are pytrees.
    Example:
        >>> import jax
        >>> from jaxmf.engine import Info, algorithm
        >>> def step(key, state, data, progress):
        ...     return state + jax.random.normal(key), Info(overflow={})
        >>> walk = algorithm(
        ...     init=lambda key, data: 0.0, step=step, record=lambda key, state, data: {"x": state}
        ... )
        >>> walk.grow is None
        True
    """
    if (grow is None) != (capacity is None):
        raise ValueError("algorithm: grow and capacity belong together; give both or neither")
    required = (as_partial(function) for function in (init, step, record))
    optional = (grow, capacity, average, compiler_options, prepare, limit, row_arrays, share_out)
    return Algorithm(*required, *(f if f is None else as_partial(f) for f in optional))


def as_partial(function: Callable[..., PyTree]) -> Partial:
    """The function as a pytree; a method of a pytree has that pytree's leaves."""
    if isinstance(function, Partial):
        return function
    if isinstance(function, MethodType):
        owner = function.__self__
        if not jax.tree_util.all_leaves([owner]):
            return Partial(function.__func__, owner)
    return Partial(function)


def sequence(*kernels: Kernel) -> Kernel:
    """One kernel after the other on the shared state; kernel i is given ``fold_in(key, i)``.

    Args:
        *kernels: kernels that leave the same distribution invariant.
    Returns:
        A kernel, which overflows where one of them does.
    """
    if not kernels:
        raise ValueError("sequence: at least one kernel is needed")
    return Partial(_sequence, tuple(as_partial(kernel) for kernel in kernels))


def merge_overflow(*overflows: dict[str, Array]) -> dict[str, Array]:
    """The overflow of several kernels together: an axis overflows where one of them says so.

    Args:
        *overflows: axis name -> () bool, as in `Info`; they need not name the same axes.
    Example:
        >>> from jaxmf.engine import merge_overflow
        >>> full, free = jax.numpy.array(True), jax.numpy.array(False)
        >>> merged = merge_overflow({"rows": free}, {"rows": full, "features": free})
        >>> {axis: bool(flag) for axis, flag in merged.items()}
        {'rows': True, 'features': False}
    """
    merged: dict[str, Array] = {}
    for overflow in overflows:
        for axis, flag in overflow.items():
            merged[axis] = jnp.logical_or(merged[axis], flag) if axis in merged else flag
    return merged


def no_overflow(axes: Iterable[str]) -> dict[str, Array]:
    """The overflow of a kernel that had slots enough: axis name -> False."""
    return {axis: jnp.zeros((), bool) for axis in axes}


def repeat(kernel: Kernel, num_times: int) -> Kernel:
    """The kernel applied `num_times` times, time i with ``fold_in(key, i)``.

    Args:
        kernel: the kernel to repeat.
        num_times: how often; a number passed as data, so another one compiles nothing new.
    Returns:
        A kernel, which overflows where one of its turns does.
    """
    return Partial(_repeat, as_partial(kernel), num_times)


def _sequence(
    kernels: tuple[Kernel, ...], key: Key, state: PyTree, data: PyTree
) -> tuple[PyTree, Info]:
    overflows = []
    for index, kernel in enumerate(kernels):
        state, info = kernel(jax.random.fold_in(key, index), state, data)
        overflows.append(info.overflow)
    return state, Info(overflow=merge_overflow(*overflows))


def _repeat(
    kernel: Kernel, num_times: int, key: Key, state: PyTree, data: PyTree
) -> tuple[PyTree, Info]:
    def once(index: Array, carry: tuple[PyTree, Info]) -> tuple[PyTree, Info]:
        state, before = carry
        state, info = kernel(jax.random.fold_in(key, index), state, data)
        return state, Info(overflow=merge_overflow(before.overflow, info.overflow))

    _, shapes = jax.eval_shape(kernel, key, state, data)
    none_yet = Info(overflow=no_overflow(shapes.overflow))
    return jax.lax.fori_loop(0, num_times, once, (state, none_yet))
