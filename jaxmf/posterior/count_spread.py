"""Whether counts vary about their topics more than words that are drawn one by one.

Given topics, the words of a document are drawn one by one, so that a count has nearly the variance
of a Poisson one. Counts of genes in cells, of sales, or of words that come in bursts vary more, and
then the standard deviations of what the topics say are too small. Simulated (300 documents, five
topics, negative binomial counts of mean 6): with 1.0, 3.4 and 7.5 times that variance 86, 73 and
61 % of the proportions lay in their 90 % intervals.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from jaxmf.data import Tokens
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.records import Alarm
from jaxmf.posterior.topic_draws import DocumentCounts, has_topics, topic_blocks

_MOST_CELLS = 2**22  # of words and documents, or words and topics, that are looked at
_DOCUMENTS = (20, 200)  # the fewest that say something, and as many as are looked at
_LARGE = 4.0  # times the variance, from which on standard deviations may be half of what is right


def counts_that_vary_more(posterior: Draws) -> Iterator[Alarm]:
    """Counts with several times the variance that words drawn one by one would have."""
    if not isinstance(posterior.data, Tokens) or not has_topics(posterior):
        return
    ratios = _ratios_of_variances(posterior)
    if ratios.size < _DOCUMENTS[0] or (ratio := float(np.median(ratios))) < _LARGE:
        return
    yield Alarm(
        "counts vary more",
        f"Counts vary about their topics {ratio:.1f} times as much (median of {ratios.size} "
        "documents) as words drawn one by one, as counts of genes in cells do, or words in long "
        "texts, or where there are too few topics. Standard deviations and intervals of topics "
        f"and of their shares are then too small, up to {np.sqrt(ratio):.1f} times. See if more "
        "topics fit new documents better (post.document_completion), and take differences for real "
        "only if they are many standard deviations large",
    )


def _ratios_of_variances(posterior: Draws) -> np.ndarray:
    """Squared deviations of documents over their expectation in the reference draw: (n,).

    None where the table of its words is large.
    """
    blocks = topic_blocks(posterior)
    chain, draw = posterior.reference()
    cells = posterior.draws[f"{blocks.word}_cells"][chain, draw]
    if cells.size > _MOST_CELLS:
        return np.empty(0)
    kept = DocumentCounts(posterior, blocks)
    filled = np.flatnonzero(kept.tokens.sizes)
    most = min(_DOCUMENTS[1], _MOST_CELLS // cells.shape[0], filled.size)
    chosen = filled[np.linspace(0, filled.size - 1, most).astype(int)]
    words = np.asarray(posterior.data.columns[blocks.word])
    tokens, index = kept.tokens.tokens_of(chosen)
    seen = np.zeros((chosen.size, cells.shape[0]))
    np.add.at(seen, (index, words[tokens]), 1)
    topics = kept.at(chain, draw, chosen).astype(float)
    probabilities = cells / np.maximum(cells.sum(axis=0), 1)
    squares = np.square(seen - topics @ probabilities.T).sum(axis=1)
    expected = topics @ (1 - np.square(probabilities).sum(axis=0))
    return np.asarray(squares[expected > 0] / expected[expected > 0])
