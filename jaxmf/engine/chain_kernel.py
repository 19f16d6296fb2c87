"""One chain of an algorithm as pure functions, for programs that bring their own loop.

The host loop of `run.py` grows a state that ran out of slots. A pure function cannot: here a step
that needs more slots leaves the state as it was and says so, and so do all later ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxmf.engine.algorithm import Algorithm, no_overflow
from jaxmf.engine.chunk import Batch, capacity_of, check_axes, one_step, read_draw, start_state
from jaxmf.programs import full_products, jit
from jaxmf.types import Array, Key, PyTree, is_key


class ChainState(NamedTuple):
    """Where a chain is.

    Attributes:
        state: of the model.
        num_steps: () int32, steps done.
        overflow: axis -> () bool, whether the next step ran out of slots; empty where the number of
            slots is fixed. The chain stands still from then on.
    """

    state: PyTree
    num_steps: Array
    overflow: dict[str, Array]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)  # hashed by identity, as jax.jit does with functions
class ChainKernel:
    """A Markov chain as pure functions: ``init, step = kernel``, which may be jitted and mapped.

    A pytree: pass it to a jitted function as an argument, and other data of the same shapes compile
    nothing new. Made by `jaxmf.kernel`.

    Args:
        algorithm: what makes the chain.
        data: what it is given, as the steps go through it.
        model: with everything that was left open taken from the data: its `log_joint` is that of
            the chain, of hyperparameters as they are in the state.
    """

    algorithm: Algorithm
    data: PyTree
    model: PyTree = None

    def __iter__(self) -> Iterator[Callable[..., ChainState]]:
        yield self.init
        yield self.step

    @full_products
    def init(self, key: Key) -> ChainState:
        """The chain before its first step.

        Args:
            key: typed PRNG key.
        Raises:
            TypeError: a whole number, or a key of another kind.
        """
        _check_key(key)
        state = start_state(self.algorithm, self.data, key)
        axes = capacity_of(self.algorithm, state, Batch(batched=False))
        return ChainState(state, jnp.zeros((), jnp.int32), no_overflow(axes))

    @full_products
    def step(self, key: Key, state: ChainState, progress: Array | float = 1.0) -> ChainState:
        """The chain after one more step, which leaves the posterior invariant.

        Args:
            key: typed PRNG key, another one for every step.
            state: a `ChainState`.
            progress: the share of the warm-up that is over, 0 to 1, for samplers that anneal;
                1 leaves the posterior invariant.
        Returns:
            A `ChainState` of the same shapes. Where the step needs more slots it is the old one
            with `overflow` set: the draws up to there are those of a chain that still continues,
            and not of the posterior. `grow` it, and repeat the step with the same key: a new one
            would favour paths that need fewer slots.
        Raises:
            TypeError: `state` is another object, such as that of the model, or `key` no typed key.
        """
        _check_key(key)
        _check_state(state)
        share = jnp.asarray(progress, jnp.result_type(float))
        new, info = one_step(self.algorithm, self.data, key, state.state, share)
        check_axes(info.overflow, state.overflow)
        if not state.overflow:
            return ChainState(new, state.num_steps + 1, {})
        no = jnp.zeros((), bool)
        full = {axis: flag | info.overflow.get(axis, no) for axis, flag in state.overflow.items()}
        stands_still = jnp.any(jnp.stack(list(full.values())))
        kept = jax.tree.map(partial(jnp.where, stands_still), state.state, new)
        return ChainState(kept, state.num_steps + ~stands_still, full)

    @full_products
    def read(self, key: Key, state: ChainState) -> dict[str, Array]:
        """Arrays that a draw of `jaxmf.sample` records of the chain, by name.

        Args:
            key: typed PRNG key, for what is drawn given the state.
            state: a `ChainState`.
        Raises:
            TypeError: `state` is another object, or `key` no typed key.
        """
        _check_key(key)
        _check_state(state)
        return read_draw(self.algorithm, self.data, key, state.state)

    def capacity(self, state: ChainState) -> dict[str, int]:
        """Slots of the growing axes of one chain; empty where their number is fixed."""
        return capacity_of(self.algorithm, state.state, Batch(batched=False))

    def grow(self, state: ChainState, sizes: Mapping[str, int]) -> ChainState:
        """The same chain with more slots, and able to continue.

        Args:
            state: a `ChainState` of one chain; map the function over several.
            sizes: axis -> slots, as `capacity` names them.
        Raises:
            ValueError: an axis that there is not, or fewer slots than before.
        """
        before = self.capacity(state)
        for axis, size in sizes.items():
            if axis not in before:
                known = ", ".join(map(repr, before)) or "no growing axis"
                raise ValueError(f"sizes: {axis!r} is no axis of the chain; there are {known}")
            if size < before[axis]:
                raise ValueError(f"sizes: {size} of {axis!r} is less than {before[axis]}")
        grow: Any = self.algorithm.grow
        larger = state.state if grow is None else grow(state.state, before | dict(sizes))
        free = {axis: jnp.zeros_like(flag) for axis, flag in state.overflow.items()}
        return ChainState(larger, state.num_steps, free)


def _check_key(key: object) -> None:
    if not (isinstance(key, jax.Array) and is_key(key) and key.shape == ()):
        raise TypeError(
            f"key must be one typed key, jax.random.key(0), got {key!r}; jax.random.wrap_key_data "
            "makes one of the numbers of an old key"
        )


def _check_state(state: object) -> None:
    if not isinstance(state, ChainState):
        raise TypeError(
            "state: must be a ChainState, as init and step return it, got "
            f"{type(state).__name__}; put a state of the model into one by old._replace(state=new)"
        )


def chain_kernel(algorithm: Algorithm, data: PyTree, model: PyTree = None) -> ChainKernel:
    """The chain that `run` drives, as pure functions.

    Args:
        algorithm: with `init`, `step` and `record`.
        data: its data; prepared here where the algorithm does so.
        model: what the algorithm was made from, for the caller.
    """
    if algorithm.prepare is not None:
        data = prepared(algorithm.prepare, data)
    return ChainKernel(algorithm, data, model)


@jit
def prepared(prepare: Callable[..., PyTree], data: PyTree) -> PyTree:
    """The data as the steps go through them."""
    return prepare(data)
