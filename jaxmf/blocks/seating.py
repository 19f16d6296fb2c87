"""Indicators from their prior, one after the other."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxmf import tables
from jaxmf.fusion import fused_on_cpu
from jaxmf.types import Array, Key


def seat_all(
    key: Key,
    law: Any,
    numbers: dict[str, Array],
    batches: Array,
    shape: tuple[int, int],
    *,
    first: Array | None = None,
) -> tuple[Array, dict[str, Array], Array]:
    """Indicators of all tokens from their prior, each given those before it.

    Args:
        key: typed PRNG key.
        law: a prior of partitions.
        numbers: its hyperparameters, before any item.
        batches: (T,) int32.
        shape: G and K.
        first: (T,) int32, of each token the first that shares its indicator; none by default.

    Returns:
        The indicators (T,), the hyperparameters (with the weights of an HDP), counts (G, K) of
        tokens, or of sets that share one.
    """
    uniforms = jax.random.uniform(key, (batches.shape[0], 2), jnp.result_type(float))
    seating = law.begin(jnp.zeros(shape, jnp.int32), numbers, with_sizes=False)
    first = jnp.arange(batches.shape[0], dtype=jnp.int32) if first is None else first

    def loop(seating: Any, batches: Array | None, first: Array, uniforms: Array) -> Any:
        def one(index: Array, carry: Any) -> Any:
            drawn, seating = carry
            batch, mine = batch_of(batches, index), tables.row(first, index)
            weights, _ = law.weights(seating, batch)
            value = tables.choose(weights, uniforms[index, 0])
            value = jnp.where(mine == index, value, tables.row(drawn, mine))
            after = law.assign(seating, batch, value, uniforms[index, 1])
            return tables.put(drawn, index, value), tables.either(mine == index, after, seating)

        return jax.lax.fori_loop(0, first.shape[0], one, (jnp.zeros_like(first), seating))

    run = fused_on_cpu(loop, in_turn=True) if law.fuses else loop
    drawn, seating = run(seating, batches if shape[0] > 1 else None, first, uniforms)
    counts, numbers = law.end(seating)
    return drawn, numbers, counts


def batch_of(batches: Array | None, index: Array) -> Array:
    """The batch of an item in a fused loop, given None where there is one only.

    Of one batch the compiler would find that nobody reads the numbers, and abort: see
    `fused_on_cpu`.
    """
    return jnp.zeros((), jnp.int32) if batches is None else tables.row(batches, index)
