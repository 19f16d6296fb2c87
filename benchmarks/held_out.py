"""Held-out perplexity of topics by document completion, one evaluator for everybody's topics.

Of every held-out document one half of the tokens is seen, the other scored: exp of minus the mean
log probability of a scored token. The weights of the topics in a document follow from the seen
half by the fixed point theta_k ~ a_k + sum of the tokens' shares in k, with the topics held.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse


class Topics:
    """Topics as an evaluator knows them.

    Args:
        weights: (K, V) float, not negative: expected counts of words, pseudo-counts included.

    Attributes:
        words: (K, V) float, probabilities of the words of every topic.
        sizes: (K,) float, the share of the tokens in every topic.
    """

    def __init__(self, weights: Any) -> None:
        weights = np.asarray(weights, float)
        totals = weights.sum(axis=1)
        self.words = weights / totals[:, None]
        self.sizes = totals / totals.sum()

    @property
    def number(self) -> int:
        """K."""
        return len(self.sizes)


class Halves(NamedTuple):
    """Held-out documents: seen and scored (M, V) counts, sparse."""

    seen: Any
    scored: Any


def documents_split(counts: Any, *, seed: int = 0) -> tuple[Any, Halves]:
    """Nine tenths of the documents to learn from, halves of the others.

    Words that the first do not have are left out of the others.
    """
    generator = np.random.default_rng(seed)
    counts = sparse.csr_array(counts)
    order = generator.permutation(counts.shape[0])
    train = counts[np.sort(order[counts.shape[0] // 10 :])]
    known = np.asarray(train.sum(axis=0)).ravel() > 0
    held = sparse.coo_array(counts[order[: counts.shape[0] // 10]])
    keep = known[held.col]
    rows, columns, numbers = held.row[keep], held.col[keep], held.data[keep].astype(int)
    seen = generator.binomial(numbers, 0.5)
    halves = (
        sparse.csr_array((half, (rows, columns)), shape=held.shape)
        for half in (seen, numbers - seen)
    )
    return train, Halves(*halves)


def perplexity(topics: Topics, test: Halves, *, alpha: float, num_rounds: int = 20) -> float:
    """Perplexity of the scored halves.

    Args:
        topics: probabilities of words.
        test: the halves.
        alpha: the mean pseudo-count of a topic in a document; each has its share of K times it.
        num_rounds: of the fixed point.
    """
    prior = alpha * topics.number * topics.sizes
    seen = sparse.coo_array(test.seen)
    seen.eliminate_zeros()
    shares = topics.words[:, seen.col].T  # (tokens of a kind, K)
    gather = sparse.csr_array(
        (seen.data, (seen.row, np.arange(seen.nnz))), shape=(seen.shape[0], seen.nnz)
    )
    weights = np.tile(prior, (seen.shape[0], 1))
    for _ in range(num_rounds):
        theta = weights / weights.sum(axis=1, keepdims=True)
        each = shares * theta[seen.row]
        each /= each.sum(axis=1, keepdims=True)
        weights = prior + gather @ each
    theta = weights / weights.sum(axis=1, keepdims=True)
    scored = sparse.coo_array(test.scored)
    chances = np.einsum("ik,ki->i", theta[scored.row], topics.words[:, scored.col])
    return float(np.exp(-(scored.data * np.log(chances)).sum() / scored.data.sum()))
