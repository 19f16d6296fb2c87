"""Topics in every draw, matched with those of the reference draw.

Labels of topics mean nothing across draws and chains. So the topics of each draw are matched one to
one with those of the reference draw, the one with the highest log joint: the assignment with the
largest sum of similarities (Kuhn 1955, the Hungarian method). Two topics are as similar as their
words: sum_w sqrt(phi_w psi_w), between 0 and 1, one minus the squared Hellinger distance. A pair
below `MIN_SIMILARITY` is no match, the draw then lacks the topic.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from jaxmf.blocks.kept_counts import Draw as KeptDraw
from jaxmf.blocks.kept_counts import TokensOfLevels, in_blocks, num_groups
from jaxmf.blocks.network import Network
from jaxmf.likelihoods.families.categories import DirichletMultinomial
from jaxmf.model import HasNetwork
from jaxmf.posterior.draws import Draws, once
from jaxmf.posterior.left_out_tokens import value_concentrations
from jaxmf.priors.partition_prior import is_kind

_MOST_DOUBLES = 2**24  # words of topics, beyond which single precision does
MIN_SIMILARITY = 0.5
"""Least similarity of the words of two topics that count as one."""


class TopicBlocks(NamedTuple):
    """The names of the variables of a topic model."""

    word: str  # the observed block of categories, by topic
    topic: str  # the indicator
    document: str  # the column whose levels have topics


class MatchedTopics(NamedTuple):
    """G topics of the reference draw, by their size in it, and where S draws have them."""

    # chains, draws: (S,) int, which draws
    chains: np.ndarray
    draws: np.ndarray
    weights: np.ndarray  # (S,) float, summing to one
    # (S, G) int, the label that a topic has in a draw; -1 where the draw lacks it
    labels: np.ndarray
    similarity: np.ndarray  # (S, G) float, of the words of the best match, whether it counts or not
    shares: np.ndarray  # (S, G) float, of all tokens; 0 where the draw lacks the topic
    word_probabilities: np.ndarray  # (G, V) float, averaged over the draws that have the topic
    # (G,) float, similarity of the words of a topic to those of the most similar other topic of the
    # reference draw; 0 where it is the only one
    nearest: np.ndarray
    # (G, V) bool, whether a token of the word is in the topic in one of these draws
    has_word: np.ndarray


def has_topics(posterior: Draws) -> bool:
    """Whether a posterior has topics, and counts of their words in its draws."""
    blocks = blocks_of(posterior.model)
    return blocks is not None and f"{blocks.word}_cells" in posterior.draws


def topic_blocks(posterior: Draws) -> TopicBlocks:
    """Which blocks and columns of a model are word, topic and document.

    Raises ValueError: the model has no topics, or its draws do not have their counts.
    """
    blocks = blocks_of(posterior.model)
    if blocks is None:
        raise ValueError(
            f"{type(posterior.model).__name__} has no topics, which are groups of the words of "
            "documents; LDA, HDPLDA, PAM and HFP have"
        )
    posterior.require_draws()
    if f"{blocks.word}_cells" not in posterior.draws:
        raise ValueError(
            'topics: the draws have no counts of words: sample again without keep="scalars"'
        )
    return blocks


def word_counts(posterior: Draws, num_words: int) -> np.ndarray:
    """How many tokens of the data are each of the words, (V,)."""
    tokens = posterior.model.over(posterior.data)[1]
    return np.bincount(tokens.columns[topic_blocks(posterior).word], minlength=num_words)


def blocks_of(model: object) -> TopicBlocks | None:
    """The variables of a model, None where there is no single block of words by topic."""
    network = model.network() if isinstance(model, HasNetwork) else None
    if network is None or len(network.observed) != 1:
        return None
    (word,) = network.observed
    block = network.blocks[word]
    is_of_words = is_kind(block.distribution, DirichletMultinomial) and block.rho is None
    if not is_of_words or len(block.by) != 1 or block.by[0] not in network.indicators:
        return None
    topic = block.by[0]
    above, columns = [topic], list[str]()
    while above:
        parent = network.blocks[above.pop()]
        for label in (*parent.by, *parent.per):
            (above if label in network.blocks else columns).append(label)
    if len(set(columns)) != 1:
        return None
    return TopicBlocks(word, topic, columns[0])


class DocumentCounts:
    """Tokens of every topic in documents of a posterior, draw by draw."""

    def __init__(self, posterior: Draws, blocks: TopicBlocks):
        self._posterior, self._blocks = posterior, blocks
        self.network, data = posterior.model.over(posterior.data)
        self._data = data

    @functools.cached_property
    def tokens(self) -> TokensOfLevels:
        """The tokens of documents, which have to be sorted for this."""
        return TokensOfLevels(self._data, self._blocks.document)

    def at(self, chain: int, draw: int, documents: np.ndarray) -> np.ndarray:
        """Tokens of every topic in some documents of a draw: (n, K) int.

        Raises ValueError: the draws do not have them.
        """
        draws, (_, topic, document) = self._posterior.draws, self._blocks
        by_document = f"{topic}_by_{document}"
        if by_document in draws:
            return np.asarray(draws[by_document][chain, draw][documents])
        if document not in self.network.blocks[topic].by:
            raise ValueError(
                f"{document}: the draws do not say how many tokens of a {document} have a topic; "
                "sample again"
            )
        arrays = self.arrays(chain, draw)
        counts = self.tokens.counts(self.network, arrays, topic, documents)
        return np.asarray(counts.sum(axis=tuple(range(1, counts.ndim - 1))))

    def parts(self, chain: int, draw: int, documents: np.ndarray) -> np.ndarray:
        """Shares of topics among the tokens of documents: (n, K), NaN without tokens."""
        counts = self.at(chain, draw, documents)
        sizes = counts.sum(axis=1, keepdims=True).astype(float)
        return np.asarray(counts / np.where(sizes > 0, sizes, np.nan))

    def arrays(self, chain: int, draw: int) -> KeptDraw:
        """The arrays of a draw that belong to its indicators."""
        return {
            name: values[chain, draw]
            for name, values in self._posterior.draws.items()
            if name.startswith(self.network.indicators)
        }

    def blocks(self, num_documents: int) -> Iterator[slice]:
        """Successive documents, as many at once as have a small table of their topics."""
        draws = self._posterior.draws
        sizes = [num_groups(draws, name) for name in self.network.indicators]
        return in_blocks(num_documents, int(np.prod(sizes)))


@once
def match(posterior: Draws) -> MatchedTopics:
    """The topics of the reference draw in every draw, see the module.

    Raises:
        ValueError: as `topic_blocks`.
    """
    from scipy.optimize import linear_sum_assignment

    blocks = topic_blocks(posterior)
    network = posterior.model.over(posterior.data)[0]
    reference, probabilities = words_of_draw(posterior, network, blocks, *posterior.reference())
    slots = np.argsort(-reference.sum(axis=0), kind="stable")
    slots = slots[reference.sum(axis=0)[slots] > 0]
    root = np.sqrt(probabilities[:, slots])
    del probabilities
    chains, draws, weights = posterior.spread_draws()
    size = (chains.size, slots.size)
    labels, similarity, shares = np.full(size, -1), np.zeros(size), np.zeros(size)
    total, found_weight = np.zeros(root.T.shape, root.dtype), np.zeros(slots.size)
    has_word = np.zeros(total.shape, bool)
    for index, (chain, draw, weight) in enumerate(zip(chains, draws, weights, strict=True)):
        cells, probabilities = words_of_draw(posterior, network, blocks, chain, draw)
        totals = cells.sum(axis=0)
        used = np.flatnonzero(totals)
        affinity = _affinity(probabilities, used, root)
        pairs = linear_sum_assignment(affinity, maximize=True)
        similarity[index, pairs[1]] = affinity[pairs]
        is_match = affinity[pairs] >= MIN_SIMILARITY
        slot, topic = used[pairs[0][is_match]], pairs[1][is_match]
        labels[index, topic] = slot
        shares[index, topic] = totals[slot] / totals.sum()
        total[topic] += weight * probabilities[:, slot].T
        has_word[topic] |= cells[:, slot].T > 0
        found_weight[topic] += weight
    # the reference draw need not be among those averaged over
    lacking = found_weight == 0
    total[lacking], found_weight[lacking] = (root**2).T[lacking], 1
    has_word[lacking] = (reference[:, slots] > 0).T[lacking]
    return MatchedTopics(
        chains=chains,
        draws=draws,
        weights=weights,
        labels=labels,
        similarity=np.clip(similarity, 0, 1),
        shares=shares,
        word_probabilities=total / found_weight[:, None],
        nearest=_nearest(root),
        has_word=has_word,
    )


def matched_words(
    posterior: Draws, matched: MatchedTopics, chosen: np.ndarray
) -> Iterator[np.ndarray]:
    """Probabilities of the words in the topics of some of the matched draws, by position in these.

    Yields (G, V) float for each, 0 in topics that the draw lacks.
    """
    blocks = topic_blocks(posterior)
    network = posterior.model.over(posterior.data)[0]
    for chain, draw, labels in zip(
        matched.chains[chosen], matched.draws[chosen], matched.labels[chosen], strict=True
    ):
        probabilities = words_of_draw(posterior, network, blocks, chain, draw)[1]
        yield np.where(labels >= 0, probabilities[:, labels], 0).T


def _affinity(probabilities: np.ndarray, used: np.ndarray, root: np.ndarray) -> np.ndarray:
    """sum_w sqrt(phi_w psi_w) of some topics of a draw, (V, K), and roots (V, G): (n, G)."""
    result = np.zeros((used.size, root.shape[1]), root.dtype)
    for words in in_blocks(root.shape[0], used.size):
        result += np.sqrt(probabilities[words, used]).T @ root[words]
    return result


def _nearest(root: np.ndarray) -> np.ndarray:
    """The largest similarity of every topic to another one, given roots (V, G): (G,)."""
    between = root.T @ root
    np.fill_diagonal(between, 0)
    return np.clip(between.max(axis=0), 0, 1)


def words_of_draw(
    posterior: Draws, network: Network, blocks: TopicBlocks, chain: int, draw: int
) -> tuple[np.ndarray, np.ndarray]:
    """Counts of words in the topics of a draw, (V, K) int, and expected probabilities."""
    arrays = posterior.draw_at(chain, draw)
    cells = np.asarray(arrays[f"{blocks.word}_cells"])
    added = value_concentrations(network, arrays, blocks.word, cells.shape[0])
    probabilities = cells.astype(np.float32 if cells.size > _MOST_DOUBLES else float)
    probabilities += added[:, None].astype(probabilities.dtype)
    probabilities /= probabilities.sum(axis=0, dtype=float).astype(probabilities.dtype)
    return cells, probabilities
