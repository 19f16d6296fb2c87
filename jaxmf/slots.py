"""Fixed-capacity slots: how a growing number of features or groups lives in arrays of fixed shape.

Slot k is either occupied or free; arrays over slots are padded with zeros at free slots. Random
choices over slots come from one vector of draws, which is the same for the first slots whatever
the capacity, so that a step repeated at larger capacity makes the same choices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from jaxmf.types import Array, PyTree

FIRST_SLOTS = 16  # of a number of features without bound, where no `capacity` is given


class Claim(NamedTuple):
    """Slots handed out: `claimed` (K,) bool, and `shortage` () int32, how many more are needed."""

    claimed: Array
    shortage: Array

    @property
    def overflow(self) -> Array:
        """() bool, more asked for than free."""
        return self.shortage > 0


def claim(occupied: Array, num_new: Array | int) -> Claim:
    """Hands out the `num_new` lowest free slots.

    Args: occupied (K,) bool; num_new () int32, how many slots are needed.
    Returns `Claim`; on overflow all free slots are claimed and the caller must discard the step.

    Example:
        >>> claim(jnp.array([True, False, True, False, False]), 2).claimed.tolist()
        [False, True, False, True, False]
    """
    free = ~occupied
    rank = jnp.cumsum(free)
    shortage = jnp.maximum(jnp.asarray(num_new) - rank[-1], 0)
    return Claim(claimed=free & (rank <= num_new), shortage=shortage)


def release(array: Array, freed: Array, *, axis: int = -1) -> Array:
    """Sets the slots that are free again to zero.

    Args: array: any array with the slots on `axis`; freed (K,) bool.
    Returns the array with zeros at the freed slots.
    """
    shape = [1] * array.ndim
    shape[axis] = freed.shape[0]
    return jnp.where(freed.reshape(shape), jnp.zeros((), array.dtype), array)


def random_order(key: Array, occupied: Array) -> Array:
    """A uniformly random order of the occupied slots, followed by the free ones.

    A sweep over features must visit them in such a fresh order for every row: the order of the
    slots tells the age of a feature, and with it something about its bits.

    Args: occupied (K,) bool.
    Returns (K,) int32; the part over occupied slots does not depend on the capacity.
    """
    position = jax.random.uniform(key, occupied.shape)
    return jnp.argsort(jnp.where(occupied, position, 2.0), stable=True).astype(jnp.int32)


def visit(
    update: Callable[[Array, Array, PyTree], PyTree], state: object, *, order: Array, allowed: Array
) -> PyTree:
    """Updates a state once for each allowed slot, in the order of the numbers given.

    As a walk along `random_order`, but without the sort, which XLA would not take into one kernel
    with the updates.

    Args:
        update: of (k, here, state), k () int32 the slot and here (K,) bool true at k alone; returns
            the next state.
        order: (K,) float uniforms; slots are visited from the smallest up.
        allowed: (K,) bool, the slots to visit.
    Returns:
        The last state.
    """
    indices = jnp.arange(order.shape[0])

    def go_on(_: Array, carry: tuple[Array, PyTree]) -> tuple[Array, PyTree]:
        waiting, state = carry
        k = jnp.argmin(waiting)
        here = indices == k
        return jnp.where(here, jnp.inf, waiting), update(k, here, state)

    start = (jnp.where(allowed, order, jnp.inf), state)
    return jax.lax.fori_loop(0, jnp.sum(allowed, dtype=jnp.int32), go_on, start)[1]


def normals(key: Array, num_slots: int, size: int, dtype: DTypeLike) -> Array:
    """Standard normals over slots, and on the second axis over slots or anything else.

    A vector a slot, each under a key of its own: at a larger capacity of either axis the first
    ones are the same.

    Returns (K, L) of that dtype.
    """

    def visit(slot: Array) -> Array:
        return jax.random.normal(jax.random.fold_in(key, slot), (size,), dtype)

    return jax.vmap(visit)(jnp.arange(num_slots))


def pad_axis(array: Array, axis: int, size: int) -> Array:
    """The same array with zeros appended on one axis up to `size` slots.

    Returns the padded array.
    Raises ValueError: if `size` is smaller than the present length.

    Example:
        >>> pad_axis(jnp.ones((2, 1)), 1, 3).tolist()
        [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    """
    present = array.shape[axis]
    if size < present:
        raise ValueError(f"an axis of {present} slots cannot grow to {size}")
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, size - present)
    return jnp.pad(array, widths)


def occupied_first(occupied: Array) -> Array:
    """The order (K,) int in which occupied slots, as they follow each other, precede free ones.

    Args: occupied (K,) bool.

    Example:
        >>> occupied_first(jnp.array([True, False, True])).tolist()
        [0, 2, 1]
    """
    return jnp.argsort(~occupied, stable=True)


def trimmed(
    draws: Mapping[str, np.ndarray], bits: str, axes: Mapping[str, int], *, least: int
) -> dict[str, np.ndarray]:
    """Draws without the last slots, those that no draw uses.

    As draws of a chain of a smaller capacity: slots keep their positions, and at least one is left.

    Args: bits: the name of the array whose last axis is that of the slots, True where they are
    used; axes: all arrays with these slots, and on which axis; least: how many slots stay.

    Example:
        >>> trimmed({"z": np.array([[[True, False, True, False]]])}, "z", {"z": -1}, least=0)
        {'z': array([[[ True, False,  True]]])}
    """
    if bits not in draws:
        return dict(draws)
    array = draws[bits]
    used = np.flatnonzero(array.any(axis=tuple(range(array.ndim - 1))))
    size = max(1, least, 1 + int(used[-1]) if used.size else 0)
    if size >= array.shape[-1]:
        return dict(draws)
    kept = {
        name: np.moveaxis(np.moveaxis(draws[name], axis, 0)[:size], 0, axis)
        for name, axis in axes.items()
        if name in draws
    }
    # draws in files stay there
    kept = {
        name: view if isinstance(view, np.memmap) else np.ascontiguousarray(view)
        for name, view in kept.items()
    }
    return {**draws, **kept}
