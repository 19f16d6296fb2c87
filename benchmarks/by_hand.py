"""A sweep of latent Dirichlet allocation written out by hand, to compare the compiled one with."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxmf._kernels import special, tables
from jaxmf._kernels.fusion import LONG_ROW, fused_on_cpu, wide_vectors
from jaxmf.data import Tokens


@partial(fused_on_cpu, sequential=True)
def _loop(columns: Any, topics: Array, working: Any, pseudo: Array, uniforms: Array) -> Array:
    documents, words = columns
    last = jnp.asarray(working[1].shape[0] - 1, jnp.int32)
    alpha, beta, whole = pseudo

    def moved(working: Any, document: Array, word: Array, topic: Array, amount: int) -> Any:
        of_documents, of_words, totals = working
        of_documents = tables.add_entry(of_documents, document, topic, amount)
        totals = tables.add(totals, topic, amount)
        of_words = tables.add_entry(of_words, word, topic, amount)
        inverse = 1 / (tables.row(totals, topic).astype(whole.dtype) + whole)
        return of_documents, tables.put_entry(of_words, last, topic, inverse), totals

    def one_token(index: Array, carry: Any) -> Any:
        drawn, working = carry
        document, word, topic = (tables.row(one, index) for one in (documents, words, topics))
        working = moved(working, document, word, topic, -1)
        weights = (tables.row(working[1], word) + beta) * tables.row(working[1], last)
        weights *= tables.row(working[0], document) + alpha
        lanes = tables.lanes_for(weights.shape[0])
        topic = tables.choose(weights, tables.row(uniforms, index), num_lanes=lanes)
        return tables.put(drawn, index, topic), moved(working, document, word, topic, 1)

    start = (jnp.zeros_like(topics), working)
    return lax.fori_loop(0, topics.shape[0], one_token, start)[0]


@cache
def _compiled(num_topics: int) -> Any:
    options = wide_vectors() if num_topics >= LONG_ROW else {}
    return jax.jit(_sweep, static_argnames=("shape",), compiler_options=options)


def _sweep(key: Any, columns: Any, topics: Array, numbers: Array, *, shape: Any) -> Array:
    num_documents, num_words, num_topics = shape
    width = tables.padded(num_topics)
    alpha, beta = numbers
    documents, words = columns
    of_documents = tables.count_pairs(documents, topics, (num_documents, width))
    of_words = tables.count_pairs(words, topics, (num_words, width))
    totals = jnp.sum(of_words, axis=0)
    whole = beta * num_words
    inverse = 1 / (totals + whole)
    table = jnp.concatenate([of_words.astype(beta.dtype), inverse[None]])
    pads = jnp.where(jnp.arange(width) < num_topics, alpha, 0)
    uniforms = special.uniforms(key, topics.shape)
    working = of_documents.astype(beta.dtype), table, totals
    return _loop(columns, topics, working, (pads, beta, whole), uniforms)


class Chain:
    """A chain by the loop above."""

    def __init__(self, tokens: Tokens, num_topics: int, *, alpha: float, beta: float) -> None:
        self._columns = tokens.columns["document"], tokens.columns["word"]
        self._shape = tokens.sizes["document"], tokens.sizes["word"], num_topics
        self._numbers = jnp.asarray([alpha, beta])
        self._key, self._number = jax.random.key(0), 0
        self.topics = jax.random.randint(self._key, (tokens.num_tokens,), 0, num_topics)

    def sweeps(self, number: int) -> Array:
        """So many more sweeps."""
        for _ in range(number):
            self._number += 1
            key = jax.random.fold_in(self._key, self._number)
            more = self._columns, self.topics, self._numbers
            self.topics = _compiled(self._shape[2])(key, *more, shape=self._shape)
        return self.topics
