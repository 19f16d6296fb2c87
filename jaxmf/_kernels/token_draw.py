"""A kernel for GPUs: topics of tokens, documents side by side, the tokens of each in turn.

    p(z_i = k | other tokens of the document, phi) ~ (n_dk + a_k) phi_{k, x_i},

and with a level above, whose topics s have a distribution in a document each,

    p(z_i = (s, k) | ...) ~ (n_ds + c_s) (n_dsk + a_k) / (n_ds + sum(a)) phi_{k, x_i}.

A program of the kernel has one document, and its counts in registers; in loops of JAX every token
would be some kernels that the host starts. A token reads the row of its word, adds up the weights
and takes the first topic whose running sum passes its uniform number times the whole. Where topics
come and go a token may be refused some, or have to stay (`blocks/parallel.py`).

Written in Pallas for Triton. It was right on an H100, and has not run on other GPUs. So `trouble`
tries it on a device before it is used: it is compiled for the device, and `num_wrong` asks of every
topic, given those drawn before it, whether it is where the uniform number points.
Pallas has a newer backend, Mosaic GPU, which has no running sum and no such reads of a row.

Source: Magnusson, Jonsson, Villani & Broman (2018), Sparse partially collapsed MCMC for parallel
inference in topic models; Terenin, Magnusson & Jonsson (2020) for the HDP.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf._kernels.trial import try_on_device
from jaxmf.devices import default_platform
from jaxmf.programs import jit
from jaxmf.types import Array

MOST_TOPICS = 4_096
"""Counts of so many stay in the registers of one program."""

_TOPICS_A_WARP = 256  # eight for each thread
_MOST_WARPS = 8
_ROUNDING = 1e-5  # of a share


class TokenInput(NamedTuple):
    """Inputs of a draw. With S topics above, a topic below is a path: s K + k; else S is 1."""

    order: Array  # (T,) int32, the tokens of a document side by side
    starts: Array  # (D,) int32, where those of a document start in it
    ends: Array  # (D,) int32, where they end
    words: Array  # (T,) int32
    topics: Array  # (T,) int32, those before
    uniforms: Array  # (T,) float, in [0, 1)
    marks: Array  # (T,) float: a token may stay where it is, and go to topics of a smaller limit
    limits: Array  # (K,) float
    above: Array  # (S,) float, c
    alpha: Array  # (K,) float, a
    phi: Array  # (V, K) float


def draw(inputs: TokenInput) -> Array:
    """The topics after: (T,) int32, zeros for tokens of no document. On a CPU it is interpreted."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    nothing, num_documents = jnp.zeros_like(inputs.topics), inputs.starts.shape[0]
    if nothing.size == 0 or num_documents == 0:
        return nothing
    num_paths = inputs.above.shape[0] * inputs.alpha.shape[0]
    width = 1 << (num_paths - 1).bit_length()  # a vector has a power of two of entries
    call = pl.pallas_call(
        functools.partial(_draw_document, width),
        out_shape=jax.ShapeDtypeStruct(nothing.shape, nothing.dtype),
        grid=(num_documents,),
        input_output_aliases={len(inputs): 0},
        compiler_params=triton.CompilerParams(num_warps=num_warps_for(width), num_stages=1),
        interpret=default_platform() == "cpu",
        name="token_draw",
    )
    return call(*inputs, nothing)


def _draw_document(width: int, *refs: jax.Ref) -> None:
    """A program: the tokens of its document, one after another.

    Args: width: a power of two, S K or more; refs: of a `TokenInput`, of zeros, and of what is
    drawn.
    """
    from jax.experimental import pallas as pl

    order, starts, ends, words, topics, uniforms, marks, limits, above, alpha, phi, _, drawn = refs
    (num_above,), (num_topics,), dtype = above.shape, alpha.shape, alpha.dtype
    start, end = starts[pl.program_id(0)], ends[pl.program_id(0)]
    lane = jnp.arange(width, dtype=jnp.int32)
    is_path = lane < num_above * num_topics
    path = jnp.minimum(lane, num_above * num_topics - 1)  # others read the last, and weigh nothing
    row, column = path // num_topics, path % num_topics
    pseudo, limit, is_deep = alpha[column], limits[column], num_above > 1
    if is_deep:
        pseudo_above, total = above[row], jnp.sum(jnp.where(lane < num_topics, pseudo, 0))

    def moved(counts: tuple[Array, ...], topic: Array, amount: int) -> tuple[Array, ...]:
        found = [lane == topic, row == topic // num_topics][: len(counts)]
        return tuple(
            count + amount * is_it.astype(dtype) for count, is_it in zip(counts, found, strict=True)
        )

    def count(index: Array, counts: tuple[Array, ...]) -> tuple[Array, ...]:
        return moved(counts, topics[order[index]], 1)

    def one_token(index: Array, counts: tuple[Array, ...]) -> tuple[Array, ...]:
        position = order[index]
        before = topics[position]
        counts = moved(counts, before, -1)
        weights = (counts[0] + pseudo) * phi[words[position], column]
        if is_deep:
            weights *= (counts[1] + pseudo_above) / (counts[1] + total)
        is_open = (limit < marks[position]) | (lane == before)
        weights = jnp.where(is_path & is_open, weights, 0)
        topic = first_passed(weights, lane, uniforms[position])
        drawn[position] = topic
        return moved(counts, topic, 1)

    nothing = (jnp.zeros((width,), dtype),) * (2 if is_deep else 1)
    counts = jax.lax.fori_loop(start, end, count, nothing)
    jax.lax.fori_loop(start, end, one_token, counts)


def num_warps_for(width: int) -> int:
    """How many warps share a vector of so many topics."""
    return max(1, min(_MOST_WARPS, width // _TOPICS_A_WARP))


def first_passed(weights: Array, lane: Array, uniform: Array) -> Array:
    """In a kernel: the first topic whose running sum passes the uniform number times the whole.

    Args: weights (W,) float, lane (W,) int32 the numbers from 0, uniform () float.
    """
    running = jnp.cumsum(weights)
    # rounded sums need not rise: the whole is the largest of them, not the last
    goal, is_some = uniform * jnp.max(running), weights > 0
    # One minimum for both cases: topics that pass have ranks from 0 up, and the others have ranks
    # after these in reverse order, so that where none passes the last one of some weight is found.
    size = weights.shape[0]
    rank = jnp.where(running > goal, lane, 2 * size - 1 - lane)
    found = jnp.min(jnp.where(is_some, rank, 2 * size - 1))
    return jnp.where(found < size, found, 2 * size - 1 - found)


# --- whether it is right on a device --------------------------------------------------------------


@functools.cache
def trouble(platform: str, num_above: int, num_topics: int) -> str:
    """Why the kernel is not to be used for so many topics: empty where it is right.

    Compiled and run once a process on the first device of the platform, for one chain and for two
    by `vmap`.
    """
    trials = functools.partial(_num_wrong_in_trials, num_above, num_topics)
    return try_topics(platform, num_above * num_topics, trials)


def try_topics(platform: str, num_topics: int, num_wrong: Callable[[], int]) -> str:
    """Why the kernel must not be used for `num_topics` topics on a platform; empty if it may.

    Args: num_wrong: runs it on the default device and counts what is wrong.
    """
    if platform != "gpu":
        return f"it is for GPUs, and this is a {platform}"
    if num_topics > MOST_TOPICS:
        return f"it takes {MOST_TOPICS:,} topics at most"

    def what_is_wrong() -> str:
        wrong = num_wrong()
        return f"{wrong} of its topics are not where their uniform numbers point" if wrong else ""

    return try_on_device(platform, what_is_wrong)


def num_wrong(inputs: Sequence[np.ndarray], drawn: np.ndarray) -> int:
    """How many topics are not where their uniform numbers point, given those drawn before.

    To the rounding of sums, which are added up in another order on every device.

    Args: inputs: those of a `TokenInput`; drawn (T,) int, of all tokens that are of a document.
    """
    order, starts, ends, words, topics, uniforms, marks, limits, above, alpha, phi = inputs
    wrong, shape = 0, (above.size, alpha.size)
    for start, end in zip(starts, ends, strict=True):
        members = order[start:end]
        counts = np.bincount(topics[members], minlength=above.size * alpha.size) * 1.0
        for token in members:
            counts[topics[token]] -= 1
            table = counts.reshape(shape)
            sums = table.sum(1, keepdims=True)
            weights = (table + alpha) * (sums + above[:, None]) / (sums + alpha.sum())
            is_open = np.broadcast_to(limits < marks[token], shape).reshape(-1)
            is_open = is_open | (np.arange(counts.size) == topics[token])
            weights = (weights * phi[words[token]]).reshape(-1) * is_open
            shares = np.cumsum(weights) / weights.sum()
            topic = min(max(drawn[token], 0), counts.size - 1)
            first = shares[topic - 1] if topic else 0.0
            is_right = first - _ROUNDING <= uniforms[token] <= shares[topic] + _ROUNDING
            wrong += not (is_right and weights[topic] > 0 and topic == drawn[token])
            counts[topic] += 1
    return wrong


def _num_wrong_in_trials(num_above: int, num_topics: int) -> int:
    """How many topics of two trials are wrong, drawn alone and together."""
    first, second = (trial(num_above, num_topics, seed) for seed in (0, 1))
    alone, both = drawn_of(first, second)
    return sum(map(num_wrong, (first, first, second), (alone, *both)))


def drawn_of(
    first: Sequence[np.ndarray], second: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The topics of one chain (T,) and those of two (2, T), with what chains share of the first."""
    pairs = [np.stack(pair) for pair in zip(first[4:], second[4:], strict=True)]

    def both(alone: list[Array], pairs: list[Array]) -> tuple[Array, Array]:
        of_chains = jax.vmap(lambda *varying: draw(TokenInput(*alone[:4], *varying)))
        return draw(TokenInput(*alone)), of_chains(*pairs)

    one, two = jit(both)([*first], pairs)
    return np.asarray(one), np.asarray(two)


def trial(num_above: int, num_topics: int, seed: int) -> list[np.ndarray]:
    """A small problem.

    Documents of no token, of one, of a few and of 150, in no order; topics that a word does not
    have, that a token may not join or is held by; the smallest and the largest uniform number. Of
    two seeds the documents and words are the same.

    Returns what a `TokenInput` has.
    """
    sizes, num_words = np.asarray([3, 0, 1, 150, 1, 0, 40]), 6
    varying, shared = np.random.default_rng(seed), np.random.default_rng(7)
    ends, num_tokens = np.cumsum(sizes), int(sizes.sum())
    order, words = shared.permutation(num_tokens), shared.integers(0, num_words, num_tokens)
    topics = varying.integers(0, num_above * num_topics, num_tokens)
    shape = num_words, num_topics
    phi = varying.integers(1, 16, shape) * (varying.random(shape) < 0.6)
    phi[words, topics % num_topics] += 1  # a token may stay where it is
    uniforms = varying.integers(0, 2**23, num_tokens)
    uniforms[:2], uniforms[-2:] = 0, 2**23 - 1
    marks = np.where(varying.random(num_tokens) < 0.1, -1.0, varying.random(num_tokens))
    limits, above = varying.random(num_topics) / 4, varying.gamma(1.0, size=num_above)
    real = [uniforms / 2**23, marks, limits, above, varying.gamma(1.0, size=num_topics), phi / 16]
    whole, dtype = [order, ends - sizes, ends, words, topics], np.dtype(jnp.result_type(float))
    return [*(each.astype(np.int32) for each in whole), *(each.astype(dtype) for each in real)]
