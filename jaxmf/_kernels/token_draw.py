"""A kernel for GPUs: topics of tokens, documents side by side, the tokens of each in turn.

    p(z_i = k | other tokens of the document, phi) ~ (n_dk + a_k) phi_{k, x_i}

A program of the kernel has one document, and its counts in registers; in loops of JAX every token
would be some kernels that the host starts. A token reads the row of its word, adds up the weights
and takes the first topic whose running sum passes its uniform number times the whole.

Written in Pallas for Triton. It was interpreted on CPUs and compiled for an H100; it never ran on a
GPU. So `trouble` tries it there before it is used: it is compiled for the device and compared with
`draw_plainly`, which does the same on the host.

Which draws are equal: with weights whose sums have no more digits than their float holds, those of
both are, whatever the order of additions, and that is what `trouble` asks for. Other sums are
rounded, by a GPU in another order than by the host: a topic then differs where the uniform number
times the whole lies within the rounding of a running sum, and later tokens of its document see
other counts.

Source: Magnusson, Jonsson, Villani & Broman (2018), Sparse partially collapsed MCMC for parallel
inference in topic models.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.devices import default_platform
from jaxmf.programs import jit
from jaxmf.types import Array

MOST_TOPICS = 4_096
"""Counts of so many stay in the registers of one program."""

_TOPICS_A_WARP = 256  # eight for each thread
_MOST_WARPS = 8


class TokenInput(NamedTuple):
    """What a draw reads."""

    order: Array  # (T,) int32, the tokens of a document side by side
    starts: Array  # (D,) int32, where those of a document start in it
    ends: Array  # (D,) int32, where they end
    words: Array  # (T,) int32
    topics: Array  # (T,) int32, those before
    uniforms: Array  # (T,) float, in [0, 1)
    alpha: Array  # (K,) float
    phi: Array  # (V, K) float


def draw(inputs: TokenInput) -> Array:
    """The topics after: (T,) int32, zeros for tokens of no document. On a CPU it is interpreted."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    nothing, num_documents = jnp.zeros_like(inputs.topics), inputs.starts.shape[0]
    if nothing.size == 0 or num_documents == 0:
        return nothing
    width = 1 << (inputs.alpha.shape[0] - 1).bit_length()  # a vector has a power of two of entries
    num_warps = max(1, min(_MOST_WARPS, width // _TOPICS_A_WARP))
    call = pl.pallas_call(
        functools.partial(_draw_document, width),
        out_shape=jax.ShapeDtypeStruct(nothing.shape, nothing.dtype),
        grid=(num_documents,),
        input_output_aliases={len(inputs): 0},
        compiler_params=triton.CompilerParams(num_warps=num_warps, num_stages=1),
        interpret=default_platform() == "cpu",
        name="token_draw",
    )
    return call(*inputs, nothing)


def _draw_document(width: int, *refs: jax.Ref) -> None:
    """A program: the tokens of its document, one after another.

    Args: width: a power of two, K or more; refs: of a `TokenInput`, of zeros, and of what is drawn.
    """
    from jax.experimental import pallas as pl

    order, starts, ends, words, topics, uniforms, alpha, phi, _, drawn = refs
    num_topics, dtype = alpha.shape[0], alpha.dtype
    start, end = starts[pl.program_id(0)], ends[pl.program_id(0)]
    lane = jnp.arange(width, dtype=jnp.int32)
    is_topic = lane < num_topics
    column = jnp.minimum(lane, num_topics - 1)  # others read the last topic, and weigh nothing
    pseudo = alpha[column]

    def count(index: Array, counts: Array) -> Array:
        return counts + (lane == topics[order[index]]).astype(dtype)

    def one_token(index: Array, counts: Array) -> Array:
        position = order[index]
        counts = counts - (lane == topics[position]).astype(dtype)
        weights = jnp.where(is_topic, (counts + pseudo) * phi[words[position], column], 0)
        running = jnp.cumsum(weights)
        # rounded sums need not rise: the whole is the largest of them, not the last
        goal, is_some = uniforms[position] * jnp.max(running), weights > 0
        passed = jnp.min(jnp.where(is_some & (running > goal), lane, width))
        topic = jnp.minimum(passed, jnp.max(jnp.where(is_some, lane, 0)))
        drawn[position] = topic
        return counts + (lane == topic).astype(dtype)

    counts = jax.lax.fori_loop(start, end, count, jnp.zeros((width,), dtype))
    jax.lax.fori_loop(start, end, one_token, counts)


def draw_plainly(inputs: Sequence[np.ndarray]) -> np.ndarray:
    """As `draw`, in numpy, token after token. Args: inputs: those of a `TokenInput`."""
    order, starts, ends, words, topics, uniforms, alpha, phi = inputs
    drawn = np.zeros_like(topics)
    for start, end in zip(starts, ends, strict=True):
        members = order[start:end]
        counts = np.bincount(topics[members], minlength=alpha.size).astype(alpha.dtype)
        for token in members:
            counts[topics[token]] -= 1
            weights = (counts + alpha) * phi[words[token]]
            running, some = np.cumsum(weights), np.flatnonzero(weights > 0)
            passed = some[running[some] > uniforms[token] * running.max()]
            drawn[token] = [*passed[:1], *some[-1:], 0][0]
            counts[drawn[token]] += 1
    return drawn


# --- whether it is right on a device --------------------------------------------------------------


@functools.cache
def trouble(platform: str, num_topics: int) -> str:
    """Why the kernel is not to be used for so many topics: empty where it is right.

    Compiled and run once a process on the first device of the platform, for one chain and for two
    by `vmap`. A kernel that ends the process or never ends is not survived.
    """
    if platform != "gpu":
        return f"it is for GPUs, and this is a {platform}"
    if num_topics > MOST_TOPICS:
        return f"it takes {MOST_TOPICS:,} topics at most"
    try:
        # in a thread of its own: a kernel cannot be traced in all that a caller may be within
        with ThreadPoolExecutor(1) as thread:
            num_other = thread.submit(_num_other, platform, num_topics).result()
    except Exception as error:  # whatever a compiler may raise
        return f"it failed: {type(error).__name__}: {error}".splitlines()[0][:200]
    return f"{num_other} of its topics are not those of the plain form" if num_other else ""


def _num_other(platform: str, num_topics: int) -> int:
    """How many topics of a trial are not those of the plain form."""
    first, second = trial(num_topics, 0), trial(num_topics, 1)
    with jax.default_device(jax.local_devices(backend=platform)[0]):
        alone, both = _drawn(first, second)
    expected = draw_plainly(first), draw_plainly(second)
    return int(np.sum(alone != expected[0]) + np.sum(both != np.stack(expected)))


def _drawn(
    first: Sequence[np.ndarray], second: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The topics of one chain (T,) and those of two (2, T), with what chains share of the first."""
    pairs = [np.stack(pair) for pair in zip(first[4:], second[4:], strict=True)]

    def both(alone: list[Array], pairs: list[Array]) -> tuple[Array, Array]:
        of_chains = jax.vmap(lambda *varying: draw(TokenInput(*alone[:4], *varying)))
        return draw(TokenInput(*alone)), of_chains(*pairs)

    one, two = jit(both)([*first], pairs)
    return np.asarray(one), np.asarray(two)


def trial(num_topics: int, seed: int) -> list[np.ndarray]:
    """A small problem with weights whose sums are exact, halves times sixteenths.

    Documents of no token, of one, of a few and of 150, in no order; topics that a word does not
    have; the smallest and the largest uniform number. Of two seeds all but the counts, the uniforms
    and the parameters is the same.

    Returns what a `TokenInput` has.
    """
    sizes, num_words = np.asarray([3, 0, 1, 150, 1, 0, 40]), 6
    varying, shared = np.random.default_rng(seed), np.random.default_rng(7)
    ends, num_tokens = np.cumsum(sizes), int(sizes.sum())
    order, words = shared.permutation(num_tokens), shared.integers(0, num_words, num_tokens)
    shape = num_words, num_topics
    phi = varying.integers(0, 16, shape) * (varying.random(shape) < 0.6)
    phi[:, varying.integers(num_topics)] = 7
    uniforms = varying.integers(0, 2**23, num_tokens)
    uniforms[:2], uniforms[-2:] = 0, 2**23 - 1
    whole = [order, ends - sizes, ends, words, varying.integers(0, num_topics, num_tokens)]
    real = [uniforms / 2**23, varying.integers(1, 4, num_topics) / 2, phi / 16]
    dtype = np.dtype(jnp.result_type(float))
    return [*(each.astype(np.int32) for each in whole), *(each.astype(dtype) for each in real)]
