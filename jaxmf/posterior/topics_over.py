"""Shares of topics over time, another number, or groups that each document has."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np

from jaxmf.answers import Answer, long_table
from jaxmf.arguments import check_count, check_numbers
from jaxmf.data.dates import DATES, are_dates, microseconds
from jaxmf.data.names import is_missing_id, series_as_mapping
from jaxmf.data.text_tables import is_numeric
from jaxmf.posterior.document_topics import documents_of, mean_and_sd
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.topic_draws import DocumentCounts, MatchedTopics, match, topic_blocks


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TopicsOver(Answer):
    """Shares of topics among the tokens of documents, in bins of a number or of dates, or by group.

    Topics are those of `Posterior.topics`, in its order; 0 counts where a draw lacks a topic.

    Args:
        lower, upper: (B,) the bins, the upper end within the last one only; equal where each value
            has a bin. Float, or datetime64[us] of dates; of groups both are the names.
        num_documents: (B,) int, documents with tokens in each bin.
        mean: (B, G) posterior mean of the part, averaged over the documents of a bin; NaN where
            there are none.
        sd: (B, G) its posterior standard deviation, for these documents: how documents vary
            within a bin is no part of it.
        error: (B, G) standard error of the mean as one of further documents of such a date too:
            the root of sd² plus the variance of the documents' posterior means in the bin, divided
            by their number. NaN where a bin has fewer than two documents.
    """

    lower: np.ndarray
    upper: np.ndarray
    num_documents: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    error: np.ndarray

    _axes: ClassVar = {"mean sd error": "bin topic", "lower upper num_documents": "bin"}

    def table(self) -> dict[str, np.ndarray]:
        """Columns of a table with one line for each bin and topic."""
        return long_table(
            {name: getattr(self, name) for name in ("lower", "upper", "num_documents")},
            {"topic": np.arange(self.mean.shape[1])},
            {"mean": self.mean, "sd": self.sd, "error": self.error},
        )


def topics_over(posterior: Draws, values: object, *, num_bins: int = 10) -> TopicsOver:
    """Shares of topics in documents over time, over another number, or by group of documents.

    The parts of their tokens, averaged over the documents of a bin in every draw.

    Args:
        values: a number, date or group of every document, such as its year or its party: a
            mapping or pandas Series by id of the document, or a list in their order. Texts are
            names of groups. Documents with NaN, NaT or None are left out.
        num_bins: bins of equal width; one for each value where there are no more values, and for
            each group, in the order of their names.
    Returns:
        Means by bin with posterior standard deviations, and with standard errors in which
        documents vary too; `.to_pandas()` is the table.
    Raises:
        TypeError: a value that is no number, and dates or texts beside other values.
        ValueError: a document without a value, all of them missing, numbers or dates that are
            texts; the model has no topics.
    """
    check_count("num_bins", num_bins)
    matched = match(posterior)
    blocks = topic_blocks(posterior)
    documents = documents_of(posterior, blocks.document)
    covariate, is_of_dates, groups = _checked_values(documents, values)
    counts = DocumentCounts(posterior, blocks)
    is_used = np.isfinite(covariate) & (counts.tokens.sizes > 0)
    if not is_used.any():
        raise ValueError("values: no document with tokens has a finite one")
    lower, upper, bins = _bins(covariate[is_used], num_bins if groups is None else groups.size)
    if groups is not None:
        lower = upper = groups[lower.astype(int)]
    elif is_of_dates:
        lower, upper = (np.rint(ends).astype(np.int64).astype(DATES) for ends in (lower, upper))
    num_documents = np.bincount(bins, minlength=lower.size)
    # averages over the documents of each bin
    average = np.zeros((lower.size, documents.size))
    average[bins, np.flatnonzero(is_used)] = 1
    average /= np.where(num_documents > 0, num_documents, np.nan)[:, None]

    def moments(chain: int, draw: int) -> tuple[np.ndarray, float]:
        total: np.ndarray | float = 0.0
        for here in counts.blocks(documents.size):
            parts = counts.parts(chain, draw, np.arange(here.start, here.stop))
            total = total + average[:, here] @ np.nan_to_num(parts)
        return np.asarray(total), 0.0

    mean, sd = mean_and_sd(matched, moments)
    spread = _spread(matched, counts, average, num_documents)
    error = np.sqrt(sd**2 + spread / num_documents[:, None])
    return TopicsOver(lower, upper, num_documents, mean, sd, error)


def _spread(
    matched: MatchedTopics, counts: DocumentCounts, average: np.ndarray, num_documents: np.ndarray
) -> np.ndarray:
    """Variances (B, G) over the documents of a bin of their posterior means; NaN of fewer than two.

    Means of documents are taken a block of these at a time, each from all draws.
    """
    num_bins, size = average.shape
    sums = np.zeros((2, num_bins, matched.labels.shape[1]))
    draws = list(zip(matched.chains, matched.draws, matched.weights, matched.labels, strict=True))
    for here in counts.blocks(size):
        mean: np.ndarray | float = 0.0
        for chain, draw, weight, labels in draws:
            part = np.nan_to_num(counts.parts(chain, draw, np.arange(here.start, here.stop)))
            mean = mean + weight * np.where(labels >= 0, part[:, labels], 0)
        sums += np.stack([average[:, here] @ mean, average[:, here] @ np.square(mean)])
    freedom = np.where(num_documents > 1, num_documents - 1.0, np.nan)
    return np.maximum(sums[1] - sums[0] ** 2, 0) * (num_documents / freedom)[:, None]


def _checked_values(
    documents: np.ndarray, values: object
) -> tuple[np.ndarray, bool, np.ndarray | None]:
    """The value of every document, (N,) float; whether they are dates; the names of groups, if any.

    Dates are in microseconds, groups by position among their names.

    Raises ValueError: a document has none, there are more or fewer than documents, or texts are
    numbers or dates.
    """
    passed, values = values, series_as_mapping("values", values)
    if isinstance(values, Mapping):
        remedy = "pass NaN to leave it out"
        if values is not passed and len(values) == documents.size:
            remedy += ", or values.tolist() where they are in the order of the documents"
        for document in documents.tolist():
            if document not in values:
                ids = ", ".join(map(repr, list(values)[:3]))
                raise ValueError(
                    f"values: the document {document!r} has none, the ids there are {ids}, ...; "
                    f"{remedy}"
                )
        values = [values[document] for document in documents.tolist()]
    dates = microseconds(values)
    names, groups = _groups(values) if dates is None else (None, None)
    covariate = check_numbers("values", next(x for x in (names, dates, values) if x is not None))
    if covariate.size != documents.size:
        raise ValueError(f"values: are {covariate.size}, and there are {documents.size} documents")
    return covariate, dates is not None, groups


def _groups(values: object) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Positions (N,) among the names of groups, NaN for none, and the names; else two None."""
    if not isinstance(values, Iterable) or isinstance(values, str):
        return None, None
    cells = list(values)
    is_there = np.array([not is_missing_id(cell) for cell in cells], bool)
    known = [cell for cell, there in zip(cells, is_there, strict=True) if there]
    if not known or not all(isinstance(cell, str) for cell in known):
        return None, None
    names, found = np.unique(np.array(known), return_inverse=True)
    if are_dates(names.tolist()) or all(map(is_numeric, names.tolist())):
        raise ValueError(
            f"values: are texts such as {names[0].item()!r}, which are names of groups; make them "
            "numbers or dates (pandas.to_numeric, pandas.to_datetime)"
        )
    positions = np.full(is_there.size, np.nan)
    positions[is_there] = found
    return positions, names


def _bins(covariate: np.ndarray, num_bins: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lower and upper ends (B,), and the bin of each document: one for each value if few enough."""
    unique, inverse = np.unique(covariate, return_inverse=True)
    if unique.size <= num_bins:
        return unique, unique, inverse
    edges = np.linspace(unique[0], unique[-1], num_bins + 1)
    bins = np.clip(np.searchsorted(edges, covariate, side="right") - 1, 0, num_bins - 1)
    return edges[:-1], edges[1:], bins
