"""Topics with their words, averaged over matched draws."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from jaxmf.answers import Answer, Lines, data_frame, listed_ids
from jaxmf.arguments import check_count, check_number
from jaxmf.data.names import ids_or_positions
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.quantities import agreed_answers, slow_quantities
from jaxmf.posterior.topic_draws import match, topic_blocks
from jaxmf.posterior.topics import TopEntries, named_entries

if TYPE_CHECKING:
    import pandas as pd

ORDERS = ("probability", "relevance", "exclusivity", "distinction")
"""By what the words of a topic are ranked."""

_SHOWN = 40  # topics that are printed
_WORDS_SHOWN = 8
NOT_MIXED = "by R-hat the run has not mixed, and other draws may have other topics"
_MOSTLY = 0.95
_ODDS = 2.0  # of a topic given a distinctive word, over those without it
_BEHIND = 1e3  # nats, more than scores differ by: words that are not distinctive come last

WordScore = Callable[[int, np.ndarray], np.ndarray]
"""A function of a topic and positions of words, with a score for each word."""


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
        distinctive: the n most relevant words of those at which the odds of the topic are twice
            those of all tokens or more, phi_w / p_w >= 2 / (1 + share): common words are in many
            topics, and say nothing of one. Others follow where there are fewer than n. Names of
            topics are made of these; weights are as of ``relevant``.
        relevance: lambda.
        num_draws: how many draws are averaged over.
        has_mixed: whether no R-hat raises an alarm, see `Posterior.topic_agreement`; where one
            does, a topic that all draws have is one that the chains have not left, and may not be
            sure.
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
    distinctive: TopEntries
    relevance: float
    num_draws: int
    has_mixed: bool

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
            by: "probability", "relevance", "exclusivity" or "distinction".
        Raises:
            ValueError: another word.
        """
        if by not in ORDERS:
            raise ValueError(f"by: takes {', '.join(map(repr, ORDERS))}, got {by!r}")
        ranked = self.probable, self.relevant, self.exclusive, self.distinctive
        return ranked[ORDERS.index(by)].lists()

    def labels(self, n: int = 3) -> list[str]:
        """A name for every topic: its first n distinctive words, which common ones are not."""
        return [listed_ids(words[:n]) for words in self.lists("distinction")]

    def table(self) -> dict[str, np.ndarray]:
        """Columns of a table with one line a topic."""
        joined = {by: [listed_ids(words) for words in self.lists(by)] for by in ORDERS}
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
        heading = ("topic", "share", "found", "similarity", "nearest", "distinctive words")
        lines: Lines = [heading]
        for topic, words in enumerate(self.lists("distinction")[:_SHOWN]):
            shown = listed_ids(words[:_WORDS_SHOWN])
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
        if not self.has_mixed:
            caption += f"; {NOT_MIXED}"
        hidden = len(self) - _SHOWN
        return f"{caption}; {hidden} smaller topics are not shown" if hidden > 0 else caption


def topics(posterior: Draws, n: int = 10, *, relevance: float = 0.6) -> Topics:
    """The topics with their words, averaged over draws and chains.

    Topics of different draws are matched by their words with those of the reference draw
    (highest log joint): one to one, with the largest sum of similarities. `found` is the part
    of the draws that have a topic (a match of at least 0.5), `similarity` how alike its matches
    are, `nearest` how alike the most similar other topic is.

    Args:
        n: at most this many words of each topic, which all have a token in it.
        relevance: lambda of Sievert & Shirley (2014): 1 ranks relevant words by probability,
            0 by probability over frequency in the data.
    Returns:
        Topics in the order of their size in the reference draw, with words by probability,
        relevance, exclusivity and distinction. It prints itself with distinctive words, of
        which `.labels()` are made; `.to_pandas()` is the table, `.word_table()` the
        probabilities of all words.
    Raises:
        ValueError: the model has no topics, or the draws hold scalars alone.
    Example:
        >>> import jaxmf as mf
        >>> texts = 3 * [["tea", "milk", "tea"], ["king", "queen", "king"]]
        >>> model = mf.LDA(2, topic_concentration=0.1, word_concentration=0.1)
        >>> post = mf.sample(model, mf.Tokens.from_lists(texts), num_samples=20, progress=False)
        >>> sorted(post.topics(n=1).lists())
        [['king'], ['tea']]
    """
    check_count("n", n)
    relevance = check_number("relevance", relevance, least=0, most=1)
    matched = match(posterior)
    blocks = topic_blocks(posterior)
    phi, has_word = matched.word_probabilities, matched.has_word
    mean, sd = _moments(matched.weights, matched.shares)
    is_found = matched.labels >= 0
    words = posterior.model.names(posterior.data, blocks.word)
    tokens = posterior.model.over(posterior.data)[1].columns[blocks.word]
    counts = np.bincount(np.asarray(tokens), minlength=phi.shape[1])
    log_frequency = np.log(np.maximum(counts, 1) / counts.sum())  # of 0 tokens: never ranked
    rules = _Ranking(phi, phi.sum(axis=0), log_frequency, mean, relevance)
    ranked = partial(_ranked, has_word=has_word, n=n, shares=mean, names=words)
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
        probable=ranked(rules.probability, rules.probability),
        relevant=ranked(rules.relevance_of, rules.relevance_of),
        exclusive=ranked(rules.frequent_and_exclusive, rules.exclusivity),
        distinctive=ranked(rules.distinction, rules.relevance_of),
        relevance=relevance,
        num_draws=matched.draws.size,
        has_mixed=not slow_quantities(posterior) or agreed_answers(posterior) is not None,
    )


class _Ranking(NamedTuple):
    """Scores by which words are ranked, and that are shown of them.

    Each is a function of a topic and positions (m,) int of words: (m,) float.
    """

    phi: np.ndarray  # (G, V) float, probabilities of words
    total: np.ndarray  # (V,) float, sums of these over topics
    log_frequency: np.ndarray  # (V,) float, of words in the data
    shares: np.ndarray  # (G,) float, of topics
    relevance: float  # lambda

    def probability(self, topic: int, words: np.ndarray) -> np.ndarray:
        return np.asarray(self.phi[topic, words])

    def relevance_of(self, topic: int, words: np.ndarray) -> np.ndarray:
        rest = (1 - self.relevance) * self.log_frequency[words]
        return np.asarray(np.log(self.phi[topic, words]) - rest)

    def exclusivity(self, topic: int, words: np.ndarray) -> np.ndarray:
        return np.asarray(self.phi[topic, words] / self.total[words])

    def frequent_and_exclusive(self, topic: int, words: np.ndarray) -> np.ndarray:
        """The harmonic mean of the ranks by probability and by exclusivity."""
        first, second = (
            _ranks(score(topic, words)) for score in (self.probability, self.exclusivity)
        )
        return np.asarray(2 / (1 / first + 1 / second))

    def distinction(self, topic: int, words: np.ndarray) -> np.ndarray:
        """Relevance, of words before all others whose odds in the topic are `_ODDS` times."""
        score = self.relevance_of(topic, words)
        lift = np.log(self.phi[topic, words]) - self.log_frequency[words]
        is_distinctive = lift >= np.log(_ODDS / (1 + (_ODDS - 1) * self.shares[topic]))
        return np.asarray(np.where(is_distinctive, score, score - _BEHIND))


def _moments(weights: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and standard deviation over the first axis; NaN without any."""
    if weights.sum() == 0:
        return (np.full(values.shape[1:], np.nan),) * 2
    weights = weights / weights.sum()
    mean = weights @ values
    return mean, np.sqrt(weights @ (values - mean) ** 2)


def _ranks(values: np.ndarray) -> np.ndarray:
    """The share of values that are at most as large as each: (n,), in (0, 1]."""
    rank = np.searchsorted(np.sort(values), values, side="right")
    return np.asarray(np.maximum(rank, 1) / max(values.size, 1))


def best_words(score: WordScore, has_word: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The n words of every topic with the largest scores, of those that it has tokens of.

    Args: score: (topic, positions (m,) of words) -> (m,) float; has_word (G, V) bool.
    Returns (G, n) positions of words, and whether there is one, (G, n) bool each.
    """
    shape = has_word.shape[0], min(n, has_word.shape[1])
    best, is_entry = np.zeros(shape, int), np.zeros(shape, bool)
    for topic, there in enumerate(has_word):
        words = np.flatnonzero(there)
        first = words[np.argsort(-score(topic, words), kind="stable")][:n]
        best[topic, : first.size], is_entry[topic, : first.size] = first, True
    return best, is_entry


def _ranked(
    score: WordScore,
    weight: WordScore,
    has_word: np.ndarray,
    *,
    n: int,
    shares: np.ndarray,
    names: np.ndarray | None,
) -> TopEntries:
    """The n words of every topic with the largest scores, and their weights."""
    best, is_entry = best_words(score, has_word, n)
    weights = np.stack([weight(topic, words) for topic, words in enumerate(best)])
    entries = named_entries(np.where(is_entry, best, -1), names)
    return TopEntries(np.arange(len(best)), shares, entries, np.where(is_entry, weights, np.nan))
