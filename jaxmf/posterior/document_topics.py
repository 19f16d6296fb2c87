"""Topics of the documents of the data, and documents with similar topics."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from jaxmf.answers import Answer, Lines, data_frame, long_table
from jaxmf.arguments import check_count
from jaxmf.blocks.folding import prior_of_new_levels
from jaxmf.blocks.network import Network
from jaxmf.data.names import ids_or_positions, positions
from jaxmf.engine.memory import available_host_bytes, in_words
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.topic_draws import (
    DocumentCounts,
    MatchedTopics,
    TopicBlocks,
    match,
    topic_blocks,
)
from jaxmf.priors.hdp import HDP
from jaxmf.priors.partition_prior import is_kind
from jaxmf.priors.partitions import Dirichlet

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = 10  # documents that are printed
_TOPICS_SHOWN = 4


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class DocumentTopics(Answer):
    """The proportions of the topics in every document.

    Topics are those of `Posterior.topics`, in its order; 0 counts where a draw lacks a topic.

    Args:
        documents: (N,) ids of the documents, or positions.
        mean: (N, G) posterior mean of the proportions; those of the prior for a document without
            tokens.
        sd: (N, G) their posterior standard deviation.
        unmatched: (N,) expected proportion of topics that the reference draw has no counterpart of,
            also of those without tokens; it adds up to one with those of the document.
        column: what a document is called in the data.
        is_of_tokens: whether the prior has no proportions (`HFP`): all of this is then of the parts
            of a document's tokens, NaN for one without tokens.
    """

    documents: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    unmatched: np.ndarray
    column: str = "document"
    is_of_tokens: bool = False

    _axes: ClassVar = {"mean sd": "document topic", "unmatched": "document"}
    _labels: ClassVar = {"document": "documents"}

    def table(self) -> dict[str, np.ndarray]:
        """Columns of a table with one line for each document and topic."""
        return long_table(
            {self.column: self.documents},
            {"topic": np.arange(self.mean.shape[1])},
            {"mean": self.mean, "sd": self.sd},
        )

    def to_pandas(self) -> pd.DataFrame:
        """The means as a pandas DataFrame: a row a document, a column a topic."""
        frame = data_frame("to_pandas", self.mean, index=self.documents)
        return frame.rename_axis(index=self.column, columns="topic")

    def lines(self) -> Lines:
        names = [str(name) for name in self.documents[:_SHOWN]]
        lines: Lines = [(self.column, "topics of its tokens" if self.is_of_tokens else "topics")]
        for name, mean, sd in zip(names, self.mean, self.sd, strict=False):
            best = np.argsort(-mean, kind="stable")[:_TOPICS_SHOWN]
            nothing = "no tokens" if np.isnan(mean).any() else "every topic below 0.5%"
            shown = [f"topic {k} {mean[k]:.0%} ± {sd[k]:.0%}" for k in best if mean[k] >= 0.005]
            lines.append((name, ", ".join(shown) or nothing))
        return lines

    def footer(self) -> str:
        hidden = self.documents.size - _SHOWN
        return f"and {hidden:,} more" if hidden > 0 else ""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SimilarDocuments(Answer):
    """Documents with topics like those of one document, the most similar first.

    Args:
        documents: (M,) ids, or positions.
        similarity: (M,) posterior mean of sum_k sqrt(s_k t_k), s and t being the parts of
            the tokens of the two documents: between 0 and 1, where they are the same.
        sd: (M,) its posterior standard deviation.
    """

    documents: np.ndarray
    similarity: np.ndarray
    sd: np.ndarray

    _axes: ClassVar = {"similarity sd": "document"}
    _labels: ClassVar = {"document": "documents"}

    def table(self) -> dict[str, np.ndarray]:
        """Columns of a table with one line a document."""
        return {"document": self.documents, "similarity": self.similarity, "sd": self.sd}


def document_topics(posterior: Draws, documents: object = None) -> DocumentTopics:
    """The proportions of the topics in every document of the data, or in some of them.

    Topics as in `topics`. The proportions theta_d are what the topics of the tokens are drawn
    from; given a draw they have a Dirichlet distribution, with mean (n_dk + a_k) / (n_d + a),
    n_dk the tokens of a topic and a_k what the prior adds, with the hyperparameters of the draw
    (`LDA`: the concentrations, `HDPLDA`: topic_concentration times the weight of a topic,
    `PAM`: products of such proportions along the levels). The standard deviations have the
    variance within a draw and that between draws. `transform` has the means for new documents.

    The prior of an `HFP` has no proportions: its answer is of the parts of a document's tokens
    (`is_of_tokens` says so), whose standard deviations are too small for proportions.

    Args:
        documents: ids of documents (positions where the data has none), or `Positions`; all by
            default.
    Returns:
        Means and standard deviations by document; `.to_pandas()` is a table with the ids of the
        documents, `.table()` one line for each document and topic.
    Raises:
        ValueError: the model has no topics, or the draws are scalars; an unknown document.
        MemoryError: the answer for all these documents does not fit.
    """
    matched = match(posterior)
    blocks = topic_blocks(posterior)
    counts = DocumentCounts(posterior, blocks)
    levels = levels_of_topics(counts.network, blocks)
    ids = documents_of(posterior, blocks.document)
    chosen = _chosen(posterior, documents, blocks.document, ids.size)
    shape = (chosen.size, matched.labels.shape[1])
    _refuse_many(shape)
    mean, sd = np.zeros(shape), np.zeros(shape)
    for here in counts.blocks(chosen.size):
        some = chosen[here]

        def moments(
            chain: int, draw: int, some: np.ndarray = some
        ) -> tuple[np.ndarray, np.ndarray | float]:
            if levels:
                return proportions(counts, levels, chain, draw, some)
            return counts.parts(chain, draw, some), 0.0

        mean[here], sd[here] = mean_and_sd(matched, moments)
    return DocumentTopics(
        documents=ids[chosen],
        mean=mean,
        sd=sd,
        unmatched=np.clip(1 - mean.sum(axis=1), 0, 1),
        column=blocks.document,
        is_of_tokens=not levels,
    )


def _chosen(posterior: Draws, documents: object, column: str, size: int) -> np.ndarray:
    """(n,) positions of the documents that are asked for."""
    if documents is None:
        return np.arange(size)
    names = posterior.model.names(posterior.data, column)
    return positions("documents", documents, names=names, size=size, line=column)


def _refuse_many(shape: tuple[int, int]) -> None:
    """Refuses an answer that does not fit into memory.

    Raises MemoryError: with its size.
    """
    available, needed = available_host_bytes(), 2 * 8 * shape[0] * shape[1]
    if available is not None and needed > available:
        raise MemoryError(
            f"document_topics: means and standard deviations of {shape[0]:,} documents and "
            f"{shape[1]:,} topics need {in_words(needed)}, and {in_words(available)} are "
            "available. Ask for some documents at a time: documents=[...], their ids or positions"
        )


def mean_and_sd(
    matched: MatchedTopics, moments: Callable[[int, int], tuple[np.ndarray, np.ndarray | float]]
) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean and sd (N, G) of numbers up to one that every topic of a draw has.

    Args:
        matched: the topics in every draw; one that a draw lacks has 0.
        moments: of (chain, draw): means given the draw, (N, K), and variances, (N, K) or a number.
    """
    mean: np.ndarray | float = 0.0
    square: np.ndarray | float = 0.0
    lines = zip(matched.chains, matched.draws, matched.weights, matched.labels, strict=True)
    for chain, draw, weight, labels in lines:
        part, variance = moments(chain, draw)
        second = np.where(labels >= 0, (part**2 + variance)[:, labels], 0)
        part = np.where(labels >= 0, part[:, labels], 0)
        mean, square = mean + weight * part, square + weight * second
    assert isinstance(mean, np.ndarray)
    # of numbers up to one a difference of squares is exact enough
    variance = np.maximum(square - mean**2, 0)
    return mean, np.sqrt(np.where(variance < 1e-14, variance * 0, variance))


def levels_of_topics(network: Network, blocks: TopicBlocks) -> tuple[str, ...]:
    """The indicators from document to topic, none where a document has no proportions.

    It has those of a Dirichlet prior, or around the weights of an HDP, at every level.
    """
    levels: tuple[str, ...] = ()
    above = [blocks.topic]
    while len(above) == 1:
        block, levels = network.blocks[above[0]], (*above, *levels)
        has_proportions = is_kind(block.distribution, Dirichlet, HDP) and block.rho is None
        if block.per or blocks.document not in block.by or not has_proportions:
            return ()
        above = [label for label in block.by if label != blocks.document]
    return () if above else levels


def proportions(
    kept: DocumentCounts, levels: tuple[str, ...], chain: int, draw: int, documents: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (N, K) of the proportions of topics in documents, given a draw.

    Those of a level are Dirichlet(n + a), of a document and the topic above on their own; a
    document has theta = x T, T the proportions below each topic and x those of the topics:

        E[theta_k theta_l] = E[T_k]' (S - diag(w)) E[T_l] + [k = l] sum_j w_j E[T_jk],

    S = E[x x'], w_j = S_jj / (1 + sum_k n_jk + a_k). With a single level that is the variance
    m (1 - m) / (1 + n + a) of a Dirichlet distribution.
    """
    mean, second = np.ones((1, 1, 1)), np.ones((1, 1, 1))
    arrays = kept.arrays(chain, draw)
    for name in levels:
        counts = kept.tokens.counts(kept.network, arrays, name, documents)
        shapes = counts.reshape(counts.shape[0], -1, counts.shape[-1]).astype(float)
        shapes += np.asarray(prior_of_new_levels(kept.network, arrays, name).concentration)
        totals = shapes.sum(axis=-1, keepdims=True)
        each = shapes / totals
        alone = np.diagonal(second, axis1=1, axis2=2)[:, None] / (1 + totals[..., 0])[:, None]
        mean, same = mean @ each, (alone @ each)[:, 0]
        inner = second - alone * np.eye(second.shape[-1])
        if name != levels[-1]:
            second = each.swapaxes(1, 2) @ inner @ each + same[..., None] * np.eye(each.shape[-1])
    # of the topics of words, which may be many, the diagonal alone
    square = np.sum(each * (inner @ each), axis=1) + same
    return mean[:, 0], np.maximum(square - mean[:, 0] ** 2, 0)


def similar_documents(posterior: Draws, document: object, n: int = 10) -> SimilarDocuments:
    """The documents of the data whose topics are most like those of one of them.

    By the parts of their tokens, compared draw by draw, so that labels of topics do not matter.

    Args:
        document: its id, or its position where the data has no ids.
        n: how many.
    Returns:
        Documents with their similarity (0 to 1) and its standard deviation.
    Raises:
        ValueError: an unknown document or one without tokens; the model has no topics.
    """
    check_count("n", n)
    blocks = topic_blocks(posterior)
    tokens = posterior.model.over(posterior.data)[1]
    (position,) = positions(
        "document",
        [document],
        names=tokens.names.get(blocks.document),
        size=tokens.sizes[blocks.document],
        line=blocks.document,
    )
    kept = DocumentCounts(posterior, blocks)
    there = kept.tokens.sizes
    if there[position] == 0:
        raise ValueError(f"document: {document!r} has no tokens, so it is like no other")
    mean, square = np.zeros(there.size), np.zeros(there.size)
    for chain, draw, weight in zip(*posterior.spread_draws(), strict=True):
        root = np.sqrt(kept.parts(chain, draw, np.array([position]))[0])
        for here in kept.blocks(there.size):
            parts = kept.parts(chain, draw, np.arange(here.start, here.stop))
            similarity = np.minimum(np.sqrt(np.nan_to_num(parts)) @ root, 1)
            mean[here] += weight * similarity
            square[here] += weight * similarity**2
    others = np.flatnonzero((there > 0) & (np.arange(there.size) != position))
    best = others[np.argsort(-mean[others], kind="stable")][:n]
    return SimilarDocuments(
        documents=documents_of(posterior, blocks.document)[best],
        similarity=mean[best],
        sd=np.sqrt(np.maximum(square - mean**2, 0))[best],
    )


def documents_of(posterior: Draws, column: str) -> np.ndarray:
    """Ids of the documents, or positions: (N,)."""
    names = posterior.model.names(posterior.data, column)
    return ids_or_positions(names, posterior.model.over(posterior.data)[1].sizes[column])
