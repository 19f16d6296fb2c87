"""Topics with their words, averaged over matched draws."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from jaxmf.answers import Answer, Lines, data_frame
from jaxmf.data.names import ids_or_positions
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.topic_draws import MatchedTopics, TopicBlocks, topic_blocks
from jaxmf.posterior.topics import TopEntries, named_entries

if TYPE_CHECKING:
    import pandas as pd

ORDERS = ("probability", "relevance", "exclusivity")
"""By what the words of a topic are ranked."""

_SHOWN = 40  # topics that are printed
_WORDS_SHOWN = 8
_MOSTLY = 0.95


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Topics(Answer):
    """The topics of the reference draw, averaged over draws that have them.

    They stand in the order of their size in the reference draw; mean shares may have another.
    Topic g is column g of `Posterior.transform` and of `Posterior.document_topics`. The topics of
    every draw are matched with those of the reference draw by their words; ``found``,
    ``similarity`` and ``nearest`` say how sure that is: a topic that few draws have, or whose match
    is no more similar to it than another topic is, is one of this draw more than of the data.

    Args:
        shares: (G,) expected part of all tokens; 0 counts where a draw lacks the topic.
        share_sd: (G,) its standard deviation over draws.
        found: (G,) part of the draws that have the topic.
        found_by_chain: (C, G) likewise of every chain.
        similarity: (G,) mean over draws of the similarity of the best match, between 0 and 1.
        nearest: (G,) similarity of the topic to the most similar other one.
        words: (V,) ids of the words, or positions.
        word_probabilities: (G, V) expected probabilities of the words.
        probable: the n most probable words; weights are probabilities.
        relevant: the n most relevant words (Sievert & Shirley 2014); weights are
            lambda log phi_w + (1 - lambda) log(phi_w / p_w), p_w the frequency of w in the data.
        exclusive: the n words that are frequent in the topic and rare in others: those with the
            largest harmonic mean of two ranks, of phi_w and of phi_w over its sum over topics
            (Airoldi & Bischof 2016); weights are the latter, between 0 and 1.
        relevance: lambda.
        num_draws: how many draws are averaged over.
    """

    shares: np.ndarray
    share_sd: np.ndarray
    found: np.ndarray
    found_by_chain: np.ndarray
    similarity: np.ndarray
    nearest: np.ndarray
    words: np.ndarray
    word_probabilities: np.ndarray
    probable: TopEntries
    relevant: TopEntries
    exclusive: TopEntries
    relevance: float
    num_draws: int

    _axes: ClassVar = {
        "shares share_sd found similarity nearest": "topic",
        "found_by_chain": "chain topic",
        "word_probabilities": "topic word",
    }

    def coordinates(self) -> dict[str, object]:
        return {"word": self.words, "label": ("topic", self.labels())}

    def __len__(self) -> int:
        return self.shares.size

    def lists(self, by: str = "probability") -> list[list[object]]:
        """The words of every topic.

        Args:
            by: "probability", "relevance" or "exclusivity".
        Raises:
            ValueError: another word.
        """
        if by not in ORDERS:
            raise ValueError(f"by: takes {', '.join(map(repr, ORDERS))}, got {by!r}")
        ranked = dict(zip(ORDERS, (self.probable, self.relevant, self.exclusive), strict=True))
        return ranked[by].lists()

    def labels(self, n: int = 3) -> list[str]:
        """A name for every topic: its n most probable words."""
        return [", ".join(map(str, words[:n])) for words in self.lists()]

    def table(self) -> dict[str, np.ndarray]:
        """Columns of a table with one line a topic."""
        joined = {by: [", ".join(map(str, words)) for words in self.lists(by)] for by in ORDERS}
        return {
            "topic": np.arange(len(self)),
            "share": self.shares,
            "share sd": self.share_sd,
            "found": self.found,
            "similarity": self.similarity,
            "nearest": self.nearest,
            **{f"words by {by}": np.array(words, object) for by, words in joined.items()},
        }

    def to_pandas(self) -> pd.DataFrame:
        """The table as a pandas DataFrame. `word_table` has the probabilities of all words."""
        return super().to_pandas().set_index("topic")

    def word_table(self) -> pd.DataFrame:
        """The probabilities of all words in every topic: a pandas DataFrame (words, topics)."""
        frame = data_frame("word_table", self.word_probabilities.T, index=self.words)
        return frame.rename_axis(index="word", columns="topic")

    def lines(self) -> Lines:
        heading = ("topic", "share", "found", "similarity", "nearest", "words")
        lines: Lines = [heading]
        for topic, words in enumerate(self.lists()[:_SHOWN]):
            shown = ", ".join(map(str, words[:_WORDS_SHOWN]))
            share = f"{self.shares[topic]:.1%} ± {self.share_sd[topic]:.1%}"
            measures = (
                f"{self.found[topic]:.0%}",
                f"{self.similarity[topic]:.2f}",
                f"{self.nearest[topic]:.2f}",
            )
            lines.append((str(topic), share, *measures, shown))
        return lines

    def footer(self) -> str:
        num_certain = int((self.found >= _MOSTLY).sum())
        chains = len(self.found_by_chain)
        caption = (
            f"{num_certain} of {len(self)} topics are in {_MOSTLY:.0%} of the draws or more "
            f"({self.num_draws} draws of {chains} chain{'s' * (chains > 1)})"
        )
        hidden = len(self) - _SHOWN
        return f"{caption}; {hidden} smaller topics are not shown" if hidden > 0 else caption


def topics(posterior: Draws, matched: MatchedTopics, *, n: int, relevance: float) -> Topics:
    """See `Posterior.topics`."""
    blocks = topic_blocks(posterior)
    phi, has_word = matched.word_probabilities, matched.has_word
    mean, sd = _moments(matched.weights, matched.shares)
    is_found = matched.labels >= 0
    words = posterior.model.names(posterior.data, blocks.word)
    exclusivity = phi / phi.sum(axis=0)
    scores = {
        "probability": (phi, phi),
        "relevance": (_relevance(posterior, blocks, phi, relevance),) * 2,
        "exclusivity": (_frequent_and_exclusive(phi, exclusivity, has_word), exclusivity),
    }
    best = {
        by: _ranked(score, weight, has_word, n=n, shares=mean, names=words)
        for by, (score, weight) in scores.items()
    }
    by_chain = [
        _moments(matched.weights[here], is_found[here])[0]
        for here in (matched.chains == chain for chain in range(posterior.num_chains))
    ]
    return Topics(
        shares=mean,
        share_sd=sd,
        found=np.minimum(matched.weights @ is_found, 1),
        found_by_chain=np.array(by_chain),
        similarity=matched.weights @ matched.similarity,
        nearest=matched.nearest,
        words=ids_or_positions(words, phi.shape[1]),
        word_probabilities=phi,
        probable=best["probability"],
        relevant=best["relevance"],
        exclusive=best["exclusivity"],
        relevance=relevance,
        num_draws=matched.draws.size,
    )


def _moments(weights: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and standard deviation over the first axis; NaN without any."""
    if weights.sum() == 0:
        return (np.full(values.shape[1:], np.nan),) * 2
    weights = weights / weights.sum()
    mean = weights @ values
    return mean, np.sqrt(weights @ (values - mean) ** 2)


def _relevance(
    posterior: Draws, blocks: TopicBlocks, phi: np.ndarray, relevance: float
) -> np.ndarray:
    """lambda log phi + (1 - lambda) log(phi / p), (G, V); p is the frequency in the data."""
    tokens = posterior.model.over(posterior.data)[1]
    counts = np.bincount(np.asarray(tokens.columns[blocks.word]), minlength=phi.shape[1])
    frequency = np.maximum(counts, 1) / counts.sum()  # words without a token are never ranked
    result: np.ndarray = np.log(phi) - (1 - relevance) * np.log(frequency)
    return result


def _frequent_and_exclusive(
    phi: np.ndarray, exclusivity: np.ndarray, has_word: np.ndarray
) -> np.ndarray:
    """Harmonic mean of the ranks, in (0, 1], of probability and exclusivity in a topic: (G, V)."""
    ranks = []
    for values in (phi, exclusivity):
        below = np.full(phi.shape, 0.0)
        for topic, there in enumerate(has_word):
            sorted_values = np.sort(values[topic, there])
            rank = np.searchsorted(sorted_values, values[topic], side="right")
            below[topic] = np.maximum(rank, 1) / max(sorted_values.size, 1)
        ranks.append(below)
    harmonic: np.ndarray = 2 / (1 / ranks[0] + 1 / ranks[1])
    return harmonic


def _ranked(
    score: np.ndarray,
    weight: np.ndarray,
    has_word: np.ndarray,
    *,
    n: int,
    shares: np.ndarray,
    names: np.ndarray | None,
) -> TopEntries:
    """The n words of every topic with the largest scores, of those that it has tokens of."""
    best = np.argsort(-np.where(has_word, score, -np.inf), axis=1, kind="stable")[:, :n]
    is_entry = np.take_along_axis(has_word, best, axis=1)
    weights = np.where(is_entry, np.take_along_axis(weight, best, axis=1), np.nan)
    entries = named_entries(np.where(is_entry, best, -1), names)
    return TopEntries(np.arange(len(score)), shares, entries, weights)
