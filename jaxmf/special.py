"""Draws that jax.random lacks, or is slow to compile."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array


def poisson(key: Array, rate: Array) -> Array:
    """A Poisson draw as the number of unit exponential gaps that fit into `rate`.

    Exact at every rate, in time proportional to it; `jax.random.poisson` takes seconds to
    compile.

    Args:
        key: typed PRNG key.
        rate: () float.

    Returns:
        () int32.
    """

    def gap(count: Array) -> Array:
        return jax.random.exponential(jax.random.fold_in(key, count), dtype=rate.dtype)

    def arrive(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        count, time = carry
        return count + 1, time + gap(count + 1)

    first = jnp.asarray(0, jnp.int32)
    count, _ = jax.lax.while_loop(lambda carry: carry[1] < rate, arrive, (first, gap(first)))
    return count
