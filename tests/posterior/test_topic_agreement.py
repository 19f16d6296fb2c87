"""Chains of topic models are judged by their topics where a concentration mixes slowly."""

import warnings

import numpy as np
import pytest

import jaxmf as mf
from jaxmf.posterior.records import Meta
from jaxmf.results import Posterior
from tests.support.alarms import kinds

CHAINS, DRAWS, DOCUMENTS, WORDS = 2, 120, 12, 15
LENGTH = 60  # words of a document
SLOW = {"log_joint", "word_concentration"}


def corpus():
    """Documents of three topics with five words each, and the topics of the tokens."""
    random = np.random.default_rng(0)
    document = np.repeat(np.arange(DOCUMENTS), LENGTH)
    topic = np.where(random.random(document.size) < 0.7, document % 3, random.integers(0, 3, 720))
    return document, 5 * topic + random.integers(0, 5, document.size), topic


DOCUMENT, WORD, TOPIC = corpus()


def posterior(*, moved=(), to=0, chains=CHAINS, draws=DRAWS, method="sample", **changed):
    """Chains that agree but for log joint and concentration, and name topics differently.

    Args:
      moved: words whose tokens the last chain has in another topic.
      to: this topic.
    """
    random = np.random.default_rng(1)
    word_cells = np.zeros((chains, draws, WORDS, 3), np.int32)
    topic_counts = np.zeros((chains, draws, DOCUMENTS, 3), np.int32)
    for chain, draw in np.ndindex(chains, draws):
        is_noise = random.random(WORD.size) < 0.1
        topic = np.where(is_noise, random.integers(0, 3, WORD.size), TOPIC)
        if chain == chains - 1:
            topic = np.where(np.isin(WORD, moved), to, topic)
        topic = (topic + chain) % 3
        np.add.at(word_cells[chain, draw], (WORD, topic), 1)
        np.add.at(topic_counts[chain, draw], (DOCUMENT, topic), 1)
    slow = np.arange(chains)[:, None] + random.normal(size=(chains, draws))
    found = {
        "log_joint": slow,
        "topic_counts": topic_counts,
        "word_cells": word_cells,
        "word_totals": word_cells.sum(axis=2),
        "word_concentration": 0.1 * np.exp(0.1 * slow),
    }
    sizes = {"document": DOCUMENTS, "word": WORDS}
    data = mf.Tokens({"document": DOCUMENT, "word": WORD}, sizes)
    run = {"num_warmup": 5, "num_samples": draws}
    meta = Meta(method, 0, run, {}, {}, "", 1.0, 1.0, True, {})
    return Posterior(mf.LDA(3), data, found | changed, meta)


def test_a_slow_concentration_is_said_and_no_alarm_where_topics_agree():
    post = posterior()
    assert set(post.slow_quantities) == SLOW
    assert "R-hat" not in kinds(post)
    agreement = post.topic_agreement()
    assert agreement.rhat.max() < 1.03
    assert agreement.share == pytest.approx(1)
    assert "agree on topics (those with 100% of the tokens" in post.summary().caption
    assert "not yet on log_joint, word_concentration" in post.summary().caption
    assert post.topics().has_mixed


@pytest.mark.parametrize(
    "fault",
    [{"moved": [0, 1], "to": 1}, {"moved": range(5), "to": 1}, {"moved": [5], "to": 2}],
    ids=["words of two topics", "a topic less", "one word"],
)
def test_chains_with_other_topics_raise_the_alarm(fault):
    post = posterior(**fault)
    assert "R-hat" in kinds(post)
    assert post.topic_agreement().share < 0.95
    assert "not yet on" not in post.summary().caption
    assert not post.topics().has_mixed


def test_an_r_hat_of_topics_is_that_of_their_words_taken_together():
    """The same by the definition: variances of all numbers, summed, between and within halves."""
    post = posterior(moved=[0], to=1)
    chain, draw, _ = post.spread_draws()
    cells = post.draws["word_cells"][chain, draw].astype(float)
    concentration = post.draws["word_concentration"][chain, draw]
    cells = np.stack([np.roll(each, -c, axis=1) for each, c in zip(cells, chain, strict=True)])
    phi = cells + concentration[:, None, None]
    phi /= phi.sum(axis=1, keepdims=True)
    root = np.sqrt(phi * cells.sum(axis=1, keepdims=True) / WORD.size)
    halves = [root[(chain == c) & (draw // (DRAWS // 2) == h)] for c in (0, 1) for h in (0, 1)]
    assert {len(half) for half in halves} == {25}
    within = np.mean([half.var(axis=0, ddof=1).sum(axis=0) for half in halves], axis=0)
    between = np.var([half.mean(axis=0) for half in halves], axis=0, ddof=1).sum(axis=0)
    expected = np.sqrt(24 / 25 + between / within)
    np.testing.assert_allclose(np.sort(post.topic_agreement().rhat), np.sort(expected), rtol=1e-6)


def test_a_number_of_topics_that_chains_disagree_on_stays_an_alarm():
    counts = np.broadcast_to([[3], [4]], (CHAINS, DRAWS))
    assert "R-hat" in kinds(posterior(num_topic=counts))


@pytest.mark.parametrize("unknown", [{"chains": 1}, {"draws": 40}, {"method": "smc"}])
def test_where_topics_say_too_little_there_is_no_agreement(unknown):
    assert posterior(**unknown).topic_agreement() is None


@pytest.mark.slow
def test_default_chains_agree_on_topics_that_there_are_and_not_on_mixtures_of_them():
    """Ten topics in four slots: which of them share one differs by chain."""
    found = {}
    for num_topics in (4, 10):
        random = np.random.default_rng(0)
        words = random.dirichlet(np.full(120, 0.05), num_topics)
        shares = random.dirichlet(np.full(num_topics, 0.2), 150)
        counts = np.stack([random.multinomial(60, share @ words) for share in shares])
        run = {"num_warmup": 300, "num_samples": 300, "num_chains": 2, "progress": False}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", mf.RunWarning)
            found[num_topics] = mf.sample(mf.LDA(4), mf.Tokens.from_counts(counts), seed=0, **run)
    assert "word_concentration" in found[4].slow_quantities
    assert found[4].topic_agreement().share == pytest.approx(1)
    assert kinds(found[4]) == []
    assert "R-hat" in kinds(found[10])
    assert found[10].topic_agreement().share < 0.5
