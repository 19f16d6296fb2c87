"""Indicators from their prior, one after the other."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from jaxmf._kernels import tables
from jaxmf._kernels.fusion import fused_on_cpu
from jaxmf.priors.partition_prior import PartitionPrior
from jaxmf.programs import jit
from jaxmf.types import Array, Key, PyTree


# outside of programs a loop is compiled at every call
@partial(jit, inline=True, static_argnames="shape")
def assign_all(
    key: Key,
    distribution: PartitionPrior,
    hyperparameters: dict[str, Array],
    batches: Array,
    shape: tuple[int, int],
    *,
    first: Array | None = None,
    counts: Array | None = None,
) -> tuple[Array, dict[str, Array], Array]:
    """Indicators of all tokens from their prior, each given those before it.

    Args:
        batches: (T,) int32.
        first: (T,) int32, of each token the first that shares its indicator; none by default.
        counts: (G, K) int32, of tokens assigned before; none by default.
    Returns:
        The indicators (T,), the hyperparameters (with the weights of an HDP), counts (G, K) of
        tokens, or of sets that share one.
    """
    uniforms = jax.random.uniform(key, (batches.shape[0], 2), jnp.result_type(float))
    counts = jnp.zeros(shape, jnp.int32) if counts is None else counts
    cache = distribution.begin(counts, hyperparameters, with_sizes=False)
    alone = jnp.arange(batches.shape[0], dtype=jnp.int32)
    starts = alone if first is None else first

    loop = partial(_loop, distribution)
    run = fused_on_cpu(loop, sequential=True) if distribution.fuses else loop
    drawn, cache = run(cache, batches if shape[0] > 1 else None, starts, uniforms)
    counts, hyperparameters = distribution.end(cache)
    # those of sets are read after the loop: in it all would be copied for every token
    return drawn if first is None else drawn[first], hyperparameters, counts


def _loop(
    distribution: PartitionPrior,
    cache: PyTree,
    batches: Array | None,
    first: Array,
    uniforms: Array,
) -> PyTree:
    def one(index: Array, carry: PyTree) -> PyTree:
        drawn, cache = carry
        batch, first_of_set = batch_of(batches, index), tables.row(first, index)
        weights, _ = distribution.weights(cache, batch)
        value = tables.choose(weights, uniforms[index, 0])
        after = distribution.assign(cache, batch, value, uniforms[index, 1])
        return tables.put(drawn, index, value), tables.either(first_of_set == index, after, cache)

    return jax.lax.fori_loop(0, first.shape[0], one, (jnp.zeros_like(first), cache))


def batch_of(batches: Array | None, index: Array) -> Array:
    """The batch of an item in a fused loop; `batches` is None where there is one only.

    Of one batch the compiler would find that nobody reads the indices, and abort: see
    `fused_on_cpu`.
    """
    return jnp.zeros((), jnp.int32) if batches is None else tables.row(batches, index)
