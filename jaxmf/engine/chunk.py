"""The jitted part of the run loop: as many steps as the host asks for, in one program.

The number of steps is an argument, so one compiled program serves every chunk length and a result
does not depend on how a run was cut. The program stops by itself where the host must act: the
buffer of draws is full, a step ran out of capacity, or something is not finite. A step that ran out
of capacity is not committed, so that the host can repeat it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.engine.algorithm import Algorithm, Info
from jaxmf.types import Array, Key, PyTree

INIT_FOLD = np.uint32(2**32 - 1)
MAY_BE_MINUS_INFINITY = "log_weights"


class ChunkPlan(NamedTuple):
    """Request of the host, all () int32: steps from `step` up to `end`."""

    step: object
    end: Any
    num_warmup: Any
    thin: Any


class Outcome(NamedTuple):
    """Result of a chunk; C is there for vectorized chains only."""

    state: PyTree  # state before step `step`, (C, ...); of no use where `bad`
    averages: dict[str, Array]  # running means over the kept draws, (C, ...)
    # name -> (rows, C, ...); the first `num_draws` rows count. If the last step of the plan was no
    # draw, the next row shows it.
    draws: dict[str, Array]
    num_draws: Array  # () int32
    step: Array  # () int32, steps done
    overflow: dict[str, Array]  # axis -> () int32, slots that step `step` is short of at least
    bad: dict[str, Array]  # quantity -> (C,) bool, what was not finite after the last step


class Batch(NamedTuple):
    """How one program covers chains: `batched` maps over a leading chain axis."""

    batched: bool
    spmd_axis: str | None = None

    def over(self, function: Callable[..., PyTree]) -> Callable[..., PyTree]:
        """The function on all chains of the program."""
        if not self.batched:
            return function
        return jax.vmap(function, spmd_axis_name=self.spmd_axis)

    @property
    def num_axes(self) -> int:
        """Leading axes that stand for chains."""
        return int(self.batched)


def start_state(algorithm: Algorithm, data: PyTree, key: Key) -> PyTree:
    """The state of one chain before its first step."""
    return jax.tree.map(_strong, algorithm.init(key, data))


def one_step(
    algorithm: Algorithm, data: PyTree, key: Key, state: PyTree, progress: Array
) -> tuple[PyTree, Info]:
    """The state of one chain after a step, and what the step ran out of."""
    new_state, info = algorithm.step(key, state, data, progress)
    return jax.tree.map(_strong, new_state), info


def read_draw(algorithm: Algorithm, data: PyTree, key: Key, state: PyTree) -> dict[str, Array]:
    """Arrays that a draw of one chain records."""
    draw = algorithm.record(key, state, data)
    return {name: _strong(value) for name, value in draw.items()}


def start_chain(algorithm: Algorithm, data: PyTree, chain_keys: Key, *, batch: Batch) -> PyTree:
    """State and zero averages of every chain before its first step."""

    def start(chain_key: Key) -> tuple[PyTree, dict[str, Array]]:
        key = jax.random.fold_in(chain_key, INIT_FOLD)
        state = start_state(algorithm, data, key)
        return state, _zero_averages(algorithm, key, state, data)

    # the barrier keeps outputs from being the very buffers of the data, which a later chunk,
    # to which the state is donated, would destroy
    return jax.lax.optimization_barrier(batch.over(start)(chain_keys))


def grow_chain(
    algorithm: Algorithm,
    data: PyTree,
    chain_keys: Key,
    state: PyTree,
    averages: dict[str, Array],
    *,
    sizes: tuple[tuple[str, int], ...],
    batch: Batch,
) -> PyTree:
    """The same state at larger capacity, with its averages padded by zeros."""

    def grow(
        chain_key: Key, state: PyTree, averages: dict[str, Array]
    ) -> tuple[PyTree, dict[str, Array]]:
        assert algorithm.grow is not None
        state = jax.tree.map(_strong, algorithm.grow(state, dict(sizes)))
        zeros = _zero_averages(algorithm, chain_key, state, data)
        return state, {name: _pad(averages[name], zeros[name].shape) for name in zeros}

    return jax.lax.optimization_barrier(batch.over(grow)(chain_keys, state, averages))


def run_chunk(
    algorithm: Algorithm,
    data: PyTree,
    chain_keys: Key,
    state: PyTree,
    averages: dict[str, Array],
    plan: ChunkPlan,
    *,
    draw_shapes: tuple[tuple[str, jax.ShapeDtypeStruct], ...],
    num_rows: int,
    batch: Batch,
) -> Outcome:
    """Steps until `plan.end`, or until the host must act.

    Args:
        chain_keys: (C,) keys, one a chain; () without a chain axis.
        averages: name -> mean over the draws kept so far.
        draw_shapes: what `record` gives, from `record_draw`.
        batch: whether there is a chain axis.
    Returns:
        An Outcome.
    """
    advance = _advance(algorithm, data, plan, batch)
    record = _record(algorithm, data, batch)
    shapes = dict(draw_shapes)
    axes = capacity_of(algorithm, state, batch)
    start = Outcome(
        state=state,
        averages=averages,
        draws={name: jnp.zeros((num_rows, *x.shape), x.dtype) for name, x in shapes.items()},
        num_draws=jnp.zeros((), jnp.int32),
        step=jnp.asarray(plan.step, jnp.int32),
        overflow={axis: jnp.zeros((), jnp.int32) for axis in axes},
        bad={name: jnp.zeros(chain_keys.shape, bool) for name in _checked(state, shapes)},
    )

    def must_go_on(carry: Outcome) -> Array:
        trouble = _any(carry.bad) | _any(carry.overflow)
        return (carry.step < plan.end) & (carry.num_draws < num_rows) & ~trouble

    def body(carry: Outcome) -> Outcome:
        index = carry.step
        keys = _step_keys(chain_keys, index, batch)
        state, bad, overflow = advance(keys, index, carry.state)
        _check_same_shapes(carry.state, state)
        committed = ~_any(overflow)
        kept = (index >= plan.num_warmup) & ((index + 1 - plan.num_warmup) % plan.thin == 0)
        # the last step of a chunk is recorded too, to be shown
        recorded = kept | (index + 1 == plan.end)
        draw = jax.lax.cond(recorded, record, lambda keys, state: _zeros(shapes), keys, state)
        if "log_joint" in draw:
            bad["log_joint"] = kept & ~jnp.isfinite(draw["log_joint"])
        averages = carry.averages
        if averages:
            count = (index + 1 - plan.num_warmup) // plan.thin
            average = _average(algorithm, data, count, batch)
            averages = jax.lax.cond(
                committed & kept, average, lambda keys, state, means: means, keys, state, averages
            )
        return Outcome(
            state=_choose(committed, state, carry.state) if axes else state,
            averages=averages,
            # written whether it counts or not: a row beyond num_draws is overwritten or left out
            draws={
                name: jax.lax.dynamic_update_index_in_dim(rows, draw[name], carry.num_draws, axis=0)
                for name, rows in carry.draws.items()
            },
            num_draws=carry.num_draws + (committed & kept).astype(jnp.int32),
            step=index + committed.astype(jnp.int32),
            overflow=overflow,
            bad=bad,
        )

    return jax.lax.while_loop(must_go_on, body, start)


def record_draw(
    algorithm: Algorithm, data: PyTree, chain_keys: Key, state: PyTree, *, batch: Batch
) -> dict[str, Array]:
    """Arrays that a draw records of all chains of a program; traced for its shapes alone."""
    keys = _step_keys(chain_keys, jnp.zeros((), jnp.int32), batch)
    return _record(algorithm, data, batch)(keys, state)


def capacity_of(algorithm: Algorithm, state: PyTree, batch: Batch) -> dict[str, int]:
    """Sizes of the growing axes of one chain, from the shapes of the state of all."""
    if algorithm.capacity is None:
        return {}
    one_chain = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[batch.num_axes :], leaf.dtype), state
    )
    return {axis: int(size) for axis, size in algorithm.capacity(one_chain).items()}


def leaf_names(tree: PyTree) -> list[str]:
    """A readable name for every leaf of a state."""
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]
    return [jax.tree_util.keystr(path, simple=True, separator=".") or "state" for path in paths]


def _step_keys(chain_keys: Key, index: Array, batch: Batch) -> Key:
    """(C,) keys of a step; the step, its record and its averages fold 0, 1 and 2 into them."""
    return batch.over(lambda chain_key: jax.random.fold_in(chain_key, index))(chain_keys)


def _advance(
    algorithm: Algorithm, data: PyTree, plan: ChunkPlan, batch: Batch
) -> Callable[[Key, Array, PyTree], tuple[PyTree, dict[str, Array], dict[str, Array]]]:
    def advance(
        keys: Key, index: Array, state: PyTree
    ) -> tuple[PyTree, dict[str, Array], dict[str, Array]]:
        default = jnp.result_type(float)
        share = jnp.asarray(index, default) / jnp.maximum(plan.num_warmup, 1).astype(default)
        progress = jnp.where(index < plan.num_warmup, share, jnp.ones_like(share))

        def one(key: Key, state: PyTree) -> tuple[PyTree, dict[str, Array], dict[str, Array]]:
            step_key = jax.random.fold_in(key, 0)
            new_state, info = one_step(algorithm, data, step_key, state, progress)
            bad = {name: _is_bad(name, leaf) for name, leaf in _float_leaves(new_state)}
            return new_state, bad, _shortage(info)

        axes = capacity_of(algorithm, state, batch)
        state, bad, overflow = batch.over(one)(keys, state)
        check_axes(overflow, axes)
        none = jnp.zeros((), jnp.int32)
        return state, bad, {axis: jnp.max(overflow.get(axis, none)) for axis in axes}

    return advance


def _shortage(info: Info) -> dict[str, Array]:
    """Slots that a step is short of, () int32 each: one where its kernel does not know."""
    return {
        axis: jnp.where(full, jnp.maximum(info.shortage.get(axis, 1), 1), 0).astype(jnp.int32)
        for axis, full in info.overflow.items()
    }


def check_axes(overflow: Collection[str], axes: Collection[str]) -> None:
    """Refuses overflow of an axis that cannot grow."""
    unknown = sorted(set(overflow) - set(axes))
    if unknown:
        raise ValueError(
            f"the step reports overflow of {unknown}, which the algorithm's capacity "
            f"({sorted(axes) or 'none'}) does not name: it could not grow"
        )


def _record(
    algorithm: Algorithm, data: PyTree, batch: Batch
) -> Callable[[Key, PyTree], dict[str, Array]]:
    def one(key: Key, state: PyTree) -> dict[str, Array]:
        return read_draw(algorithm, data, jax.random.fold_in(key, 1), state)

    return batch.over(one)


def _average(
    algorithm: Algorithm, data: PyTree, count: Array, batch: Batch
) -> Callable[[Key, PyTree, dict[str, Array]], dict[str, Array]]:
    def one(key: Key, state: PyTree, means: dict[str, Array]) -> dict[str, Array]:
        assert algorithm.average is not None
        values = algorithm.average(jax.random.fold_in(key, 2), state, data)
        return {
            name: mean + (values[name].astype(mean.dtype) - mean) / count.astype(mean.dtype)
            for name, mean in means.items()
        }

    return batch.over(one)


def _zero_averages(algorithm: Algorithm, key: Key, state: PyTree, data: PyTree) -> dict[str, Array]:
    if algorithm.average is None:
        return {}
    shapes = jax.eval_shape(algorithm.average, key, state, data)
    default = jnp.result_type(float)
    return {
        name: jnp.zeros(x.shape, x.dtype if jnp.issubdtype(x.dtype, jnp.inexact) else default)
        for name, x in shapes.items()
    }


def _float_leaves(state: PyTree) -> list[tuple[str, Array]]:
    named = zip(leaf_names(state), jax.tree.leaves(state), strict=True)
    return [(name, leaf) for name, leaf in named if jnp.issubdtype(leaf.dtype, jnp.inexact)]


def _is_bad(name: str, leaf: Array) -> Array:
    finite = jnp.isfinite(leaf)
    if name.rsplit(".", 1)[-1] == MAY_BE_MINUS_INFINITY:
        # a particle of weight zero is no trouble
        finite = finite | (leaf == -jnp.inf)
    return ~jnp.all(finite)


def _checked(state: PyTree, draw: Iterable[str]) -> list[str]:
    names = [name for name, _ in _float_leaves(state)]
    return names + [name for name in draw if name == "log_joint"]


def _check_same_shapes(before: PyTree, after: PyTree) -> None:
    was, now = jax.tree.structure(before), jax.tree.structure(after)
    if str(was) != str(now):
        raise TypeError(f"the step returned a state of another structure: {now} instead of {was}")
    leaves = zip(leaf_names(before), jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    for name, old, new in leaves:
        if old.shape != new.shape or old.dtype != new.dtype:
            raise TypeError(
                f"the step changed {name} from {old.dtype}{list(old.shape)} "
                f"to {new.dtype}{list(new.shape)}"
            )


def _strong(leaf: object) -> Array:
    leaf = jnp.asarray(leaf)
    is_weak = getattr(leaf, "weak_type", False)
    return jax.lax.convert_element_type(leaf, leaf.dtype) if is_weak else leaf


def _pad(leaf: Array, shape: tuple[int, ...]) -> Array:
    widths = [(0, needed - there) for there, needed in zip(leaf.shape, shape, strict=True)]
    return jnp.pad(leaf, widths)


def _zeros(shapes: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def _choose(condition: Array, chosen: PyTree, otherwise: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), chosen, otherwise)


def _any(flags: dict[str, Array]) -> Array:
    result = jnp.zeros((), bool)
    for flag in flags.values():
        result = result | jnp.any(flag)
    return result
