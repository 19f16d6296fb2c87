"""Functions of all draws, block by block, so that they need bounded memory on the device.

Blocks have one size, the last one filled up by repetition: one program serves all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.types import Array, Draw, PyTree

BLOCK_SIZE = 2**24
"""Numbers that a block of draws may hold on the device."""


def over_draws(
    function: Callable[[PyTree, np.ndarray], PyTree], draws: dict[str, np.ndarray], size: int
) -> Iterator[tuple[slice, PyTree]]:
    """Call a function on blocks of draws of one size, the last one filled up by repetition.

    Args:
        function: (block of draws, their indices) -> pytree with leading block axis.
        draws: name -> (S, ...).
        size: how many floats one draw needs on the device, roughly.
    Yields:
        (which draws, the result without the filling).
    """
    for where, block, indices in blocks_of_draws(draws, size):
        result = function(block, indices)
        kept = where.stop - where.start
        yield where, jax.tree.map(lambda leaf, kept=kept: np.asarray(leaf)[:kept], result)


def blocks_of_draws(
    draws: dict[str, np.ndarray], size: int
) -> Iterator[tuple[slice, dict[str, np.ndarray], np.ndarray]]:
    """Which draws, they themselves, and their indices: blocks of one size, see `over_draws`."""
    total = len(next(iter(draws.values())))
    num_blocks = -(-total // max(1, min(total, BLOCK_SIZE // max(1, size))))
    length = -(-total // num_blocks)
    for where, indices in filled_blocks(total, length):
        # a view where nothing is filled up: a copy of all draws is what a short answer would cost
        which = where if where.stop - where.start == length else indices
        yield where, {name: values[which] for name, values in draws.items()}, indices


def weighted_sum(
    program: Callable[[PyTree, np.ndarray], Array],
    draws: dict[str, np.ndarray],
    weights: np.ndarray,
    size: int,
) -> np.ndarray:
    """Σ_s w_s f(draw s), block by block: within a block in single precision, over them in double.

    Args:
        program: (block of draws, their weights) -> the sum over the block, see `sum_over_block`.
        draws: name -> (S, ...).
        weights: (S,) float.
        size: as for `over_draws`.
    """
    total = np.zeros(())
    for where, block, indices in blocks_of_draws(draws, size):
        # what the last block is filled up with has no weight
        filled = np.where(np.arange(indices.size) < where.stop - where.start, weights[indices], 0)
        total = total + np.asarray(program(block, filled)).astype(float)
    return total


def sum_over_block(function: Callable[[Draw], Array], draws: Draw, weights: Array) -> Array:
    """Σ_b w_b function(draw b) of the draws of a block, one after another, for use in a program."""

    def add(total: Array, weighted: tuple[Draw, Array]) -> tuple[Array, None]:
        draw, weight = weighted
        return total + weight * function(draw), None

    first = jax.eval_shape(add, 0.0, jax.tree.map(lambda leaf: leaf[0], (draws, weights)))[0]
    return jax.lax.scan(add, jnp.zeros_like(first), (draws, weights))[0]


def filled_blocks(size: int, length: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Blocks of one length, so that one program serves all: which items, and their positions.

    The last one is filled up by repetition of the last item.
    """
    for start in range(0, size, length):
        positions = np.minimum(np.arange(start, start + length), size - 1)
        yield slice(start, min(start + length, size)), positions


def kept_size(draws: dict[str, np.ndarray]) -> int:
    """How many numbers one draw has."""
    return sum(int(np.prod(values.shape[1:])) for values in draws.values())


def draw_size(draws: dict[str, np.ndarray], num_columns: int, num_cells: int) -> int:
    """Roughly how many floats one draw needs on the device while cells are predicted."""
    slots = {"z": draws["z"]} if "z" in draws else draws
    capacity = max((values.shape[-1] for values in slots.values() if values.ndim > 1), default=1)
    return kept_size(draws) + num_columns * capacity * (capacity + 2) + num_cells * (capacity + 2)
