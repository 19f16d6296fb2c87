"""A kernel for GPUs: a few tokens of growing topics, one after another, as topics come and go.

    p(z_i = k | rest) ~ (n_dk + alpha tau_k) (n_kw + b_w) / (n_k + sum b),

with all other tokens as they are, and alpha tau_rest for a topic that no token has. In a loop of
JAX every token would be some forty kernels that the host starts; here all of them are one, a
program for each chain. What topics have in all, and their weights, stay in registers. The counts of
the documents and words concerned lie in memory: a token reads those of its document and word, and
writes them back. All threads wait for one another before the next token reads.

Written in Pallas for Triton and tried on the device before it is used, as `token_draw.py`.

Source: Teh, Jordan, Beal & Blei (2006), Hierarchical Dirichlet processes, section 5.3.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf._kernels.token_draw import first_passed, num_warps_for, try_topics
from jaxmf.devices import default_platform
from jaxmf.programs import jit
from jaxmf.types import Array


class BirthInput(NamedTuple):
    """Inputs of a draw of S tokens. Documents and words have rows of their own here.

    K is a power of two; of its slots those from `num_slots` on do not exist.
    """

    documents: Array  # (S,) int32, the row of the token's document in `by_document`
    words: Array  # (S,) int32, that of its word in `by_word`
    topics: Array  # (S,) int32, those before
    uniforms: Array  # (S,) float, in [0, 1)
    kept: Array  # (S,) float, what a topic that the token begins leaves of the rest
    taken: Array  # (S,) float, what it takes of it
    pseudo: Array  # (S,) float, b of the token's word
    scalars: Array  # (3,) float: alpha, sum b, tau_rest
    num_slots: Array  # (1,) int32
    totals: Array  # (K,) int32, the tokens of a topic
    weights: Array  # (K,) float, tau
    by_document: Array  # (R, K) float, the tokens of a document in a topic
    by_word: Array  # (R, K) float, those of a word


class Births(NamedTuple):
    """Results of a draw."""

    topics: Array  # (S,) int32
    totals: Array  # (K,) int32
    weights: Array  # (K,) float
    rest: Array  # (1,) float
    no_room: Array  # (1,) int32, whether a token had no slot for a new topic


def draw(inputs: BirthInput) -> Births:
    """The topics after the tokens were drawn in their order. On a CPU it is interpreted."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    width, position = inputs.totals.shape[0], {n: i for i, n in enumerate(inputs._fields)}
    changed = (inputs.totals, inputs.weights, inputs.by_document, inputs.by_word)
    left = (inputs.topics, *changed, inputs.scalars[:1], inputs.num_slots)
    is_interpreted = default_platform() == "cpu"
    call = pl.pallas_call(
        functools.partial(_draw_tokens, None if is_interpreted else triton.debug_barrier),
        out_shape=tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in left),
        grid=(1,),
        input_output_aliases={position["by_document"]: 3, position["by_word"]: 4},
        compiler_params=triton.CompilerParams(num_warps=num_warps_for(width), num_stages=1),
        interpret=is_interpreted,
        name="token_births",
    )
    topics, totals, weights, _, _, rest, no_room = call(*inputs)
    return Births(topics, totals, weights, rest, no_room)


def _draw_tokens(barrier: object, *refs: jax.Ref) -> None:
    """A program: the tokens of a chain. The counts are read and written where they are left."""
    num_inputs = len(BirthInput._fields)
    inputs, (drawn, *ends) = BirthInput._make(refs[:num_inputs]), refs[num_inputs:]
    totals_after, weights_after, by_document, by_word, rest_after, no_room_after = ends
    (width,), dtype = inputs.totals.shape, inputs.weights.dtype
    lane = jnp.arange(width, dtype=jnp.int32)
    is_slot, tiny = lane < inputs.num_slots[0], jnp.finfo(dtype).tiny
    concentration, whole = inputs.scalars[0], inputs.scalars[1]

    def one_token(index: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        totals, weights, rest, no_room = carry
        document, word = inputs.documents[index], inputs.words[index]
        leaves = lane == inputs.topics[index]
        in_document = by_document[document, :] - leaves.astype(dtype)
        in_word = by_word[word, :] - leaves.astype(dtype)
        totals -= leaves.astype(jnp.int32)
        # a topic that no token has is one of the others: its weight goes back to them
        is_empty = leaves & (totals == 0)
        rest += jnp.sum(jnp.where(is_empty, weights, 0))
        weights = jnp.where(is_empty, 0, weights)
        free = jnp.min(jnp.where(is_slot & (totals == 0), lane, width))
        pseudo = concentration * (weights + jnp.where(lane == free, rest, 0))
        likely = (in_word + inputs.pseudo[index]) / (totals.astype(dtype) + whole)
        likely = jnp.where(is_slot, (in_document + pseudo) * likely, 0)
        topic = first_passed(likely, lane, inputs.uniforms[index])
        joins = lane == topic
        totals += joins.astype(jnp.int32)
        is_new = joins & (totals == 1)
        taken = jnp.maximum(inputs.taken[index] * rest, tiny)
        kept = jnp.maximum(inputs.kept[index] * rest, tiny)
        weights = jnp.where(is_new, taken, weights)
        rest = jnp.where(jnp.max(is_new.astype(jnp.int32)) > 0, kept, rest)
        by_document[document, :] = in_document + joins.astype(dtype)
        by_word[word, :] = in_word + joins.astype(dtype)
        drawn[index] = topic
        if callable(barrier):
            barrier()
        return totals, weights, rest, jnp.maximum(no_room, (free == width).astype(jnp.int32))

    start = (inputs.totals[:], inputs.weights[:], inputs.scalars[2], jnp.zeros((), jnp.int32))
    end = jax.lax.fori_loop(0, inputs.topics.shape[0], one_token, start)
    totals_after[:], weights_after[:], rest_after[0], no_room_after[0] = end


# --- whether it is right on a device --------------------------------------------------------------


@functools.cache
def trouble(platform: str, num_slots: int) -> str:
    """Why the kernel is not to be used for so many slots: empty where it is right."""
    return try_topics(platform, num_slots, functools.partial(num_wrong_in_trials, num_slots))


def num_wrong_in_trials(num_slots: int) -> int:
    """How many results of two chains are wrong, drawn together by `vmap`."""
    trials = [trial(num_slots, seed) for seed in (0, 1)]
    both = [np.stack(pair) for pair in zip(*trials, strict=True)]
    after = jit(jax.vmap(draw))(BirthInput(*map(jnp.asarray, both)))
    wrong = 0
    for chain, inputs in enumerate(trials):
        left = Births._make(np.asarray(leaf)[chain] for leaf in after)
        wrong += num_wrong(BirthInput._make(inputs), left)
    return wrong


def num_wrong(inputs: BirthInput, after: Births) -> int:
    """How many topics are not where their uniform numbers point, given those drawn before.

    And how many weights are not what follows from the topics; to the rounding of sums, which are
    added up in another order on every device.
    """
    totals, weights, rest = inputs.totals.copy(), inputs.weights.astype(float), inputs.scalars[2]
    by_document, by_word = inputs.by_document.astype(float), inputs.by_word.astype(float)
    alpha, whole, slots = *inputs.scalars[:2], int(inputs.num_slots[0])
    wrong, no_room = 0, False
    tokens = zip(*inputs[:7], after.topics, strict=True)
    for document, word, topic, uniform, kept, taken, pseudo, drawn in tokens:
        for counts in (totals, by_document[document], by_word[word]):
            counts[topic] -= 1
        if totals[topic] == 0:
            weights[topic], rest = 0, rest + weights[topic]
        free = np.flatnonzero(totals[:slots] == 0)
        no_room |= free.size == 0
        shares = weights.copy()
        shares[free[:1]] += rest
        likely = (by_document[document] + alpha * shares) * (by_word[word] + pseudo)
        likely = (likely / (totals + whole))[:slots]
        ends = np.cumsum(likely) / likely.sum()
        topic = min(max(int(drawn), 0), slots - 1)
        first = ends[topic - 1] if topic else 0.0
        is_right = first - 1e-5 <= uniform <= ends[topic] + 1e-5
        wrong += not (is_right and likely[topic] > 0 and topic == drawn)
        for counts in (totals, by_document[document], by_word[word]):
            counts[topic] += 1
        if totals[topic] == 1:
            weights[topic], rest = taken * rest, kept * rest
    wrong += int((totals != after.totals).sum()) + int(no_room != after.no_room[0])
    expected, left = np.r_[weights, rest], np.r_[after.weights, after.rest]
    return wrong + int((abs(left - expected) > 1e-5).sum())


def trial(num_slots: int, seed: int) -> list[np.ndarray]:
    """A small problem, as a `BirthInput` has it.

    Tokens of few documents and words, which follow one another in all ways; topics of one token and
    of many; the smallest and the largest uniform number.
    """
    generator, num_tokens, num_rows = np.random.default_rng(seed), 96, 7
    width, in_use = padded(num_slots), max(1, min(num_slots - 1, 12))
    rows = generator.integers(0, num_rows, (2, num_tokens))
    topics = generator.integers(0, in_use, num_tokens)
    totals = np.bincount(topics, minlength=width)
    tables = [np.zeros((num_rows, width)) for _ in rows]
    for table, row in zip(tables, rows, strict=True):
        np.add.at(table, (row, topics), 1)
    weights = np.zeros(width)
    weights[totals > 0] = generator.gamma(1.0, size=int((totals > 0).sum()))
    rest = generator.gamma(1.0)
    weights, rest = weights / (weights.sum() + rest), rest / (weights.sum() + rest)
    uniforms = generator.integers(0, 2**23, num_tokens) / 2**23
    uniforms[:2], uniforms[-2:] = 0, 1 - 2**-23
    kept, pseudo = generator.random(num_tokens), generator.gamma(1.0, size=num_rows)
    real = [uniforms, kept, 1 - kept, pseudo[rows[1]], np.asarray([3.0, pseudo.sum(), rest])]
    whole, dtype = [*rows, topics], np.dtype(jnp.result_type(float))
    return [
        *(each.astype(np.int32) for each in whole),
        *(each.astype(dtype) for each in real),
        np.asarray([num_slots], np.int32),
        totals.astype(np.int32),
        *(each.astype(dtype) for each in (weights, *tables)),
    ]


def padded(num_slots: int) -> int:
    """The size of tables: a power of two, as a vector has."""
    return 1 << (num_slots - 1).bit_length()
