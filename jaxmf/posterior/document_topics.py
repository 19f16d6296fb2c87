"""Topics of the documents of the data, and documents with similar topics."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from jaxmf.answers import Answer, Lines, data_frame, long_table
from jaxmf.data.names import ids_or_positions, positions
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.topic_draws import MatchedTopics, document_counts, topic_blocks

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = 10  # documents that are printed
_TOPICS_SHOWN = 4


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class DocumentTopics(Answer):
    """What part of the tokens of every document is of which topic.

    Topics are those of `Posterior.topics`, in its order; 0 counts where a draw lacks a topic.

    Args:
        documents: (N,) ids of the documents, or positions.
        mean: (N, G) posterior mean of the part; NaN for a document without tokens.
        sd: (N, G) its posterior standard deviation.
        unmatched: (N,) expected part of topics that the reference draw has no counterpart of; it
            adds up to one with those of the document.
        column: what a document is called in the data.
    """

    documents: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    unmatched: np.ndarray
    column: str = "document"

    _axes: ClassVar = {"mean sd": "document topic", "unmatched": "document"}

    def coordinates(self) -> dict[str, object]:
        return {"document": self.documents}

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
        lines: Lines = [(self.column, "topics")]
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
        similarity: (M,) posterior mean of sum_k sqrt(s_k t_k), s and t being the parts of the
            topics in the two documents: between 0 and 1, where they are the same.
        sd: (M,) its posterior standard deviation.
    """

    documents: np.ndarray
    similarity: np.ndarray
    sd: np.ndarray

    _axes: ClassVar = {"similarity sd": "document"}

    def coordinates(self) -> dict[str, object]:
        return {"document": self.documents}

    def table(self) -> dict[str, np.ndarray]:
        """Columns of a table with one line a document."""
        return {"document": self.documents, "similarity": self.similarity, "sd": self.sd}


def document_topics(posterior: Draws, matched: MatchedTopics) -> DocumentTopics:
    """See `Posterior.document_topics`."""
    blocks = topic_blocks(posterior)
    mean, sd = mean_and_sd(posterior, matched, lambda part: part)
    return DocumentTopics(
        documents=documents_of(posterior, blocks.document),
        mean=mean,
        sd=sd,
        unmatched=np.clip(1 - mean.sum(axis=1), 0, 1),
        column=blocks.document,
    )


def mean_and_sd(
    posterior: Draws, matched: MatchedTopics, function: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd over draws of a function of the parts (N, G) of topics; NaN without tokens."""
    blocks = topic_blocks(posterior)
    mean: np.ndarray | float = 0.0
    square: np.ndarray | float = 0.0
    lines = zip(matched.chains, matched.draws, matched.weights, matched.labels, strict=True)
    for chain, draw, weight, labels in lines:
        counts = document_counts(posterior, blocks, chain, draw)
        part = function(np.where(labels >= 0, counts[:, labels], 0) / _sizes(counts))
        mean, square = mean + weight * part, square + weight * part**2
    assert isinstance(mean, np.ndarray)
    # of numbers up to one a difference of squares is exact enough
    variance = np.maximum(square - mean**2, 0)
    return mean, np.sqrt(np.where(variance < 1e-14, variance * 0, variance))


def similar_documents(posterior: Draws, document: object, n: int) -> SimilarDocuments:
    """See `Posterior.similar_documents`."""
    blocks = topic_blocks(posterior)
    tokens = posterior.model.over(posterior.data)[1]
    (position,) = positions(
        "document",
        [document],
        names=tokens.names.get(blocks.document),
        size=tokens.sizes[blocks.document],
        line=blocks.document,
    )
    there = np.bincount(
        np.asarray(tokens.columns[blocks.document]), minlength=tokens.sizes[blocks.document]
    )
    if there[position] == 0:
        raise ValueError(f"document: {document!r} has no tokens, so it is like no other")
    mean, square = np.zeros(there.size), np.zeros(there.size)
    for chain, draw, weight in zip(*posterior.spread_draws(), strict=True):
        counts = document_counts(posterior, blocks, chain, draw)
        part = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        similarity = np.minimum(np.sqrt(part) @ np.sqrt(part[position]), 1)
        mean, square = mean + weight * similarity, square + weight * similarity**2
    others = np.flatnonzero((there > 0) & (np.arange(there.size) != position))
    best = others[np.argsort(-mean[others], kind="stable")][:n]
    return SimilarDocuments(
        documents=documents_of(posterior, blocks.document)[best],
        similarity=mean[best],
        sd=np.sqrt(np.maximum(square - mean**2, 0))[best],
    )


def _sizes(counts: np.ndarray) -> np.ndarray:
    """Tokens of every document, (N, 1) float; NaN for none."""
    sizes = counts.sum(axis=1, keepdims=True).astype(float)
    return np.where(sizes > 0, sizes, np.nan)


def documents_of(posterior: Draws, column: str) -> np.ndarray:
    """Ids of the documents, or positions: (N,)."""
    names = posterior.model.names(posterior.data, column)
    return ids_or_positions(names, posterior.model.over(posterior.data)[1].sizes[column])
