"""Alarms about counts that vary more than words, or rows, drawn one by one from topics or groups.

Given topics, the words of a document are drawn one by one, so that a count has nearly the variance
of a Poisson one. Counts of genes in cells, of sales, or of words that come in bursts vary more, and
totals of rows differ by how long was looked. Then standard deviations are too small, and further
topics or groups describe what is left as well as anything else.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from jaxmf.data import Dense, Tokens
from jaxmf.likelihoods.families.columns import IndependentColumns
from jaxmf.likelihoods.families.poisson import GammaPoisson
from jaxmf.model import HasNetwork, HasRowGroups, settings_of
from jaxmf.posterior.document_topics import levels_of_topics, proportions
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.records import Alarm
from jaxmf.posterior.topic_draws import (
    DocumentCounts,
    TopicBlocks,
    blocks_of,
    has_topics,
    topic_blocks,
    words_of_draw,
)

_DOCUMENTS_SEEN = 20  # fewer may have as many topics
_MANY_TOPICS = 0.1  # of the documents
# Squares of counts of words about what a draw expects, over those of words drawn one by one: .89 to
# .99 of corpora drawn from the model, 1.09 to 1.32 of counts with a gamma factor in each cell, 1.31
# of docstrings.
_MOST_VARIANCE = 1.05
_MOST_ERRORS = 3.0  # standard errors beyond it
_MOST_CELLS = 2**24  # of documents and words that are looked at
# Simulated (300 documents, five topics, negative binomial counts of mean 6): with 1.0, 3.4 and 7.5
# times the variance of words drawn one by one 86, 73 and 61 % of the proportions lay in their 90 %
# intervals. From 4 on standard deviations may be half of what is right, its root.
_LARGE = 4.0
_SPREAD_DOCUMENTS = (20, 200)  # the fewest that say something, and as many as are looked at
_FEWEST_COLUMNS = 5  # fewer may have equal shares by chance
_MOSTLY_TOTALS = 0.8  # of the deviance between two groups
_DRAWS_SEEN = 10


def counts_that_vary_more(posterior: Draws) -> Iterator[Alarm]:
    """Counts with several times the variance that words drawn one by one would have."""
    if not isinstance(posterior.data, Tokens) or not has_topics(posterior):
        return
    if _document_column(posterior) is None:
        return
    if next(topics_of_single_documents(posterior), None) is not None:
        return  # says the same of a number of topics that is learned
    ratios = _ratios_of_variances(posterior)
    if ratios.size < _SPREAD_DOCUMENTS[0] or (ratio := float(np.median(ratios))) < _LARGE:
        return
    yield Alarm(
        "counts vary more",
        f"Counts vary about their topics {ratio:.1f} times as much (median of {ratios.size} "
        "documents) as words drawn one by one, as counts of genes in cells do, or words in long "
        "texts, or where there are too few topics. Standard deviations and intervals of topics "
        f"and of their shares are then too small, by up to a factor of {np.sqrt(ratio):.1f}. See "
        "if more topics fit new documents better (post.document_completion), and trust differences "
        "only if they are many standard deviations large",
    )


def _ratios_of_variances(posterior: Draws) -> np.ndarray:
    """Squared deviations of documents over those of words drawn one by one: (n,).

    About what the reference draw expects; n is 0 where the table of its words is large.
    """
    blocks = topic_blocks(posterior)
    chain, draw = posterior.reference()
    cells = posterior.draws[f"{blocks.word}_cells"][chain, draw]
    if cells.size > _MOST_CELLS:
        return np.empty(0)
    kept = DocumentCounts(posterior, blocks)
    documents = np.asarray(posterior.data.columns[blocks.document])
    filled = np.flatnonzero(np.bincount(documents))
    most = min(_SPREAD_DOCUMENTS[1], _MOST_CELLS // cells.shape[0], filled.size)
    chosen = filled[np.linspace(0, filled.size - 1, most).astype(int)]
    seen = _counts_of(posterior.data, blocks, chosen, len(cells))
    topics = kept.at(chain, draw, chosen).astype(float)
    probabilities = cells / np.maximum(cells.sum(axis=0), 1)
    squares = np.square(seen - topics @ probabilities.T).sum(axis=1)
    expected = topics @ (1 - np.square(probabilities).sum(axis=0))
    return np.asarray(squares[expected > 0] / expected[expected > 0])


def _document_column(posterior: Draws) -> str | None:
    """The variable of documents whose words have topics of their own; None without such."""
    model, blocks = posterior.model, blocks_of(posterior.model)
    if blocks is None or not isinstance(model, HasNetwork):
        return None
    is_by_document = blocks.document in model.network().blocks[blocks.topic].by
    return blocks.document if is_by_document else None


def _counts_of(data: Tokens, blocks: TopicBlocks, chosen: np.ndarray, num_words: int) -> np.ndarray:
    """How often documents have each word: (n, V). Args: chosen (n,) int, the documents."""
    document, word = (np.asarray(data.columns[name]) for name in (blocks.document, blocks.word))
    index = np.full(int(data.sizes[blocks.document]), -1)
    index[chosen] = np.arange(chosen.size)
    rows = index[document]
    flat = rows[rows >= 0] * num_words + word[rows >= 0]
    return np.bincount(flat, minlength=chosen.size * num_words).reshape(-1, num_words)


def topics_of_single_documents(posterior: Draws) -> Iterator[Alarm]:
    """Many learned topics, and counts that vary more about them than words drawn one by one."""
    counts, data = posterior.draws.get("num_topic"), posterior.data
    if counts is None or counts.size == 0 or not isinstance(data, Tokens):
        return
    if (column := _document_column(posterior)) is None:
        return
    if data.elsewhere is not None:
        num_documents = int(np.count_nonzero(data.elsewhere.row_counts))
    else:
        num_documents = np.unique(np.asarray(data.columns[column])).size
    num_topics = float(np.sum(posterior.weights * counts))
    if num_documents < _DOCUMENTS_SEEN or num_topics <= _MANY_TOPICS * num_documents:
        return
    is_many, more = num_topics > num_documents / 2, ""
    # with as many topics as that little is left to explain
    found = None if is_many else _variance_about_topics(posterior, data)
    if found is not None and found[0] > _MOST_VARIANCE + _MOST_ERRORS * found[1]:
        is_many, more = True, ", and counts of words still vary more than these explain"
    if is_many:
        yield Alarm(
            "topics of single documents",
            f"There are {num_topics:.0f} topics of {num_documents:,} documents{more}: many are "
            "almost only in one document. Counts that vary more than words drawn one by one (of "
            "genes in cells, of sales) are described by further topics, so this number is not that "
            "of the topics that documents share. State a number, LDA(K), and see by "
            "post.document_completion(new_documents) what more of them gain",
        )


def _variance_about_topics(posterior: Draws, data: Tokens) -> tuple[float, float] | None:
    """The variance of counts about the reference draw over that of its words, and its error.

    With proportions theta of a document, n words and probabilities phi, counts have mean
    e = n theta phi; squares about it are averaged over theta given the draw, a Dirichlet
    distribution. So corpora of the model have a ratio of 1, or less as phi follows them. None
    where the model has no Dirichlet proportions of documents.
    """
    if data.elsewhere is not None or not has_topics(posterior):
        return None
    blocks = topic_blocks(posterior)
    kept = DocumentCounts(posterior, blocks)
    levels = levels_of_topics(kept.network, blocks)
    if len(levels) != 1:
        return None
    chain, draw = posterior.reference()
    phi = words_of_draw(posterior, kept.network, blocks, chain, draw)[1]
    size, num_words = int(data.sizes[blocks.document]), phi.shape[0]
    chosen = np.arange(0, size, -(-size * num_words // _MOST_CELLS))
    cells = _counts_of(data, blocks, chosen, num_words)
    theta, variance = proportions(kept, levels, chain, draw, chosen)
    num_tokens = cells.sum(axis=1)
    shares = theta @ phi.T
    concentrated = np.sum(shares**2, axis=1)
    # m (1 - m) / (1 + n + a) of every topic
    precision = np.sum(theta * (1 - theta), axis=1) / np.maximum(np.sum(variance, axis=1), 1e-30)
    spread = (theta @ np.sum(phi**2, axis=0) - concentrated) / np.maximum(precision, 1)
    expected = num_tokens[:, None] * shares
    squares = np.sum((cells - expected) ** 2) + np.sum(num_tokens**2 * spread)
    usual = np.sum(num_tokens * (1 - concentrated))
    if usual <= 0:  # there is one word
        return None
    error = np.sqrt(np.sum(expected + 2 * expected**2))
    return float(squares / usual), float(error / usual)


def groups_of_totals(posterior: Draws) -> Iterator[Alarm]:
    """Groups of rows of Poisson counts that differ in the totals of their rows alone.

    Ten draws are looked at.
    """
    data, labels = posterior.data, posterior.draws.get("group_of_tokens")
    if labels is None or not isinstance(posterior.model, HasRowGroups):
        return
    if not isinstance(data, Dense) or data.observed is not None:
        return
    family = settings_of(posterior.model).get("family")
    if not isinstance(family, IndependentColumns) or not isinstance(family.family, GammaPoisson):
        return
    if labels.size == 0 or labels.shape[-1] != data.num_rows or data.num_columns < _FEWEST_COLUMNS:
        return
    counts = np.asarray(data.values, float)
    draws = labels.reshape(-1, data.num_rows)
    draws = draws[np.linspace(0, len(draws) - 1, min(_DRAWS_SEEN, len(draws))).astype(int)]
    if np.mean([_are_of_totals(counts, groups) for groups in draws]) >= 0.5:
        yield Alarm(
            "totals",
            "Most rows are in groups that differ from another group in the totals of their rows, "
            "not in the shares of the columns, and totals vary within groups more than counts do: "
            "groups are bands of totals. If totals say how long was looked (molecules caught in a "
            "cell, length of a text), describe the shares: topics, "
            "mf.LDA(K) of mf.Tokens.from_counts(table), take the totals as fixed",
        )


def _are_of_totals(counts: np.ndarray, labels: np.ndarray) -> bool:
    """Whether groups, one for each row of counts (N, D), are bands of the rows' totals."""
    groups, sizes = np.unique(labels, return_inverse=True, return_counts=True)[1:]
    num_rows, num_groups = len(counts), sizes.size
    totals = counts.sum(axis=1)
    means = np.bincount(groups, totals) / sizes
    about = np.sum((totals - means[groups]) ** 2 / np.maximum(means, 1)[groups])
    freedom = max(num_rows - num_groups, 1)
    if about / freedom <= 1 + 4 * np.sqrt(2 / freedom):
        return False
    sums = np.eye(num_groups)[groups].T @ counts
    is_band = [_differs_in_total(sums, sizes, k) for k in range(num_groups)]
    return bool(sizes[is_band].sum() > num_rows / 2)


def _differs_in_total(sums: np.ndarray, sizes: np.ndarray, group: int) -> bool:
    """Whether most of the Poisson deviance between a group and another one is of the totals.

    That of two groups is the deviance of their totals and that of the shares of columns given
    these, of which chance makes one for each column but one. Args: sums (G, D) of counts of groups.
    """
    size, pair = sizes + sizes[group], sums + sums[group]
    totals, total = sums.sum(axis=1), pair.sum(axis=1)
    total_deviance, cell_deviance = np.zeros(len(sums)), np.zeros(len(sums))
    for one, n in ((sums, sizes), (np.broadcast_to(sums[group], sums.shape), sizes[group])):
        expected = pair * (n / size)[:, None]
        cell_deviance += 2 * np.sum(_times_log(one, expected), axis=1)
        total_deviance += 2 * _times_log(one.sum(axis=1), total * n / size)
    share_deviance = np.maximum(cell_deviance - total_deviance - (np.sum(pair > 0, axis=1) - 1), 0)
    is_far = np.abs(np.log((totals + 1) / sizes * sizes[group] / (totals[group] + 1))) > 0.4
    return bool(
        np.any(is_far & (total_deviance > _MOSTLY_TOTALS * (total_deviance + share_deviance)))
    )


def _times_log(x: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """x log(x / expected), 0 where x is 0."""
    return x * np.log(np.where(x > 0, x, 1) / np.where(x > 0, expected, 1))
