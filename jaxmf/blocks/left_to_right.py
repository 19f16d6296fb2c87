"""The probability of whole documents given a draw, words from left to right.

The words of a document are added one at a time to particles that hold a topic for each word so far:
p(w_n | w_<n) is the mean over particles of sum_k p(k | z_<n) phi_k(w_n), particles are resampled by
these weights, draw z_n, and topics of a few earlier words are drawn anew given all others. The
product over words is an unbiased estimate of p(w_1, ..., w_N), with any number of particles.

Source: Wallach, Murray, Salakhutdinov & Mimno (2009), section 4.5, for the algorithm from left to
right; without resampling it is biased (Buntine 2009, section 3). Gilks & Berzuini (2001) for
resampling with moves.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from jaxmf.blocks.folding import prior_of_new_levels
from jaxmf.blocks.prediction import Draw, category_probabilities
from jaxmf.blocks.wiring import Wiring
from jaxmf.samplers.resampling import systematic
from jaxmf.types import Array, Key

_Carry = tuple[Array, Array, Array]

NUM_MOVES = 8
"""Earlier words of a document whose topics are drawn anew after each word."""


def log_probability(
    network: Wiring,
    key: Key,
    draw: Draw,
    words: Array,
    lengths: Array,
    *,
    documents: Array,
    num_particles: int,
) -> Array:
    """log p(words of a document | draw), topics summed out, of several documents: (M,) float.

    The probabilities of words in topics are their means given the draw. All topics that an HDP has
    no tokens of count as one, with the prior's mean of words. Documents without words have 0.

    Args:
        network: word by the last of the indicators; the first one hangs on the document, each
            further one on the document and those before it.
        words: (M, N) int32, anything beyond the length of a document.
        lengths: (M,) int32, of the documents.
        documents: (M,) int32; each has random numbers by its index.
    """
    priors = [prior_of_new_levels(network, draw, name).concentration for name in network.indicators]
    (word,) = network.observed
    table = category_probabilities(network, draw, word).T
    grid = tuple(prior.shape[0] for prior in priors)
    num_paths, num_steps = math.prod(grid), jnp.max(lengths)

    def path_weights(counts: Array, word: Array) -> Array:
        """Weights (P, J) of all paths of topics for one more word, given counts (P, J) of paths."""
        by_level = counts.reshape(-1, *grid)
        weights = jnp.broadcast_to(table[word], by_level.shape)
        for level, prior in enumerate(priors):
            below = tuple(range(level + 2, 1 + len(grid)))
            added = jnp.sum(by_level, axis=below, keepdims=True)
            added = added + prior.reshape(-1, *[1] * len(below))
            weights = weights * (added / jnp.sum(added, axis=level + 1, keepdims=True))
        return weights.reshape(counts.shape)

    def add_word(index: Array, carry: _Carry, key: Key, words: Array, length: Array) -> _Carry:
        paths, counts, total = carry
        ancestor_key, path_key, move_key = jax.random.split(jax.random.fold_in(key, index), 3)
        weights = path_weights(counts, words[index])
        mass = jnp.sum(weights, axis=1)
        total = total + jnp.where(index < length, jnp.log(jnp.mean(mass)), 0)
        ancestors, _ = systematic(ancestor_key, jnp.log(mass), num_particles)
        path = _choose(path_key, weights[ancestors])
        paths = paths[ancestors].at[:, index].set(path)
        counts = counts[ancestors] + jax.nn.one_hot(path, num_paths, dtype=counts.dtype)

        def move(turn: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            paths, counts = carry
            index_key, path_key = jax.random.split(jax.random.fold_in(move_key, turn))
            earlier = jax.random.randint(index_key, (), 0, index + 1)
            counts = _without(counts, paths, earlier)
            path = _choose(path_key, path_weights(counts, words[earlier]))
            added = jax.nn.one_hot(path, num_paths, dtype=counts.dtype)
            return paths.at[:, earlier].set(path), counts + added

        paths, counts = jax.lax.fori_loop(0, NUM_MOVES, move, (paths, counts))
        return paths, counts, total

    def one_document(document: Array, words: Array, length: Array) -> Array:
        document_key = jax.random.fold_in(key, document)
        start = (
            jnp.zeros((num_particles, words.size), jnp.int32),
            jnp.zeros((num_particles, num_paths), table.dtype),
            jnp.zeros((), table.dtype),
        )
        return jax.lax.fori_loop(
            0,
            num_steps,
            lambda index, carry: add_word(index, carry, document_key, words, length),
            start,
        )[2]

    return jax.vmap(one_document)(documents, words, lengths)


def _choose(key: Key, weights: Array) -> Array:
    """An index of each row (P, J), with probability proportional to its weight: (P,) int32."""
    running = jnp.cumsum(weights, axis=1)
    # in (0, 1], so that no index of weight zero is drawn
    goal = (1 - jax.random.uniform(key, weights.shape[:1], weights.dtype)) * running[:, -1]
    return jnp.sum(running < goal[:, None], axis=1, dtype=jnp.int32)


def _without(counts: Array, paths: Array, index: Array) -> Array:
    """Counts (P, J) of paths, without that of the word at an index."""
    return counts - jax.nn.one_hot(paths[:, index], counts.shape[1], dtype=counts.dtype)
