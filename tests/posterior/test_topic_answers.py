"""Topics averaged over matched draws, topics of documents, coherence, diversity."""

import dataclasses
import itertools
import json
import math
import pathlib
import random
import re
import shutil
import statistics
import string
import subprocess
import sys
import warnings
from collections import Counter

import jax
import numpy as np
import pandas as pd
import pytest

import jaxmf as mf
from jaxmf import cli
from jaxmf.posterior import topic_table

GENERATOR = np.random.default_rng(11)
NUM_DOCUMENTS, NUM_WORDS, NUM_TOPICS = 8, 12, 3
WORDS = [f"w{i}" for i in range(NUM_WORDS)]
NAMES = [f"doc{i}" for i in range(NUM_DOCUMENTS)]
CHAINS, DRAWS = 2, 3
CONCENTRATION = 0.1


def assignments():
    """Documents, words, and topics of the tokens in every draw: mostly the word's own third."""
    lengths = GENERATOR.integers(15, 30, NUM_DOCUMENTS)
    documents = np.repeat(np.arange(NUM_DOCUMENTS), lengths)
    shares = GENERATOR.dirichlet([1.2, 0.8, 0.5], NUM_DOCUMENTS)
    about = np.array([GENERATOR.choice(NUM_TOPICS, p=shares[d]) for d in documents])
    words = about * 4 + np.minimum(GENERATOR.geometric(0.5, documents.size) - 1, 3)
    topics = np.empty((CHAINS, DRAWS, documents.size), int)
    for index in np.ndindex(CHAINS, DRAWS):
        is_other = GENERATOR.random(documents.size) < 0.1
        topics[index] = np.where(is_other, GENERATOR.integers(0, NUM_TOPICS, documents.size), about)
    return documents, words, topics


DOCUMENTS, TOKEN_WORDS, TOPICS = assignments()


def draws_of(topics, num_slots=NUM_TOPICS):
    """What a chain keeps of these topics of the tokens."""
    cells = np.zeros((CHAINS, DRAWS, NUM_WORDS, num_slots), np.int32)
    counts = np.zeros((CHAINS, DRAWS, NUM_DOCUMENTS, num_slots), np.int32)
    for chain, draw in np.ndindex(CHAINS, DRAWS):
        np.add.at(cells[chain, draw], (TOKEN_WORDS, topics[chain, draw]), 1)
        np.add.at(counts[chain, draw], (DOCUMENTS, topics[chain, draw]), 1)
    log_joint = np.zeros((CHAINS, DRAWS))
    log_joint[1, 1] = 1.0  # the reference draw
    totals = cells.sum(axis=2)
    return {
        "log_joint": log_joint,
        "topic_counts": counts,
        "word_cells": cells,
        "word_totals": totals,
    }


@pytest.fixture(scope="module")
def fitted():
    """A run whose draws are replaced by ones that are known."""
    tokens = mf.Tokens(
        {"document": DOCUMENTS, "word": TOKEN_WORDS},
        {"document": NUM_DOCUMENTS, "word": NUM_WORDS},
        names={"document": NAMES, "word": WORDS},
    )
    model = mf.LDA(NUM_TOPICS, word_concentration=CONCENTRATION)
    run = {"num_warmup": 0, "num_samples": 1, "num_chains": 1, "progress": False}
    post = mf.sample(model, tokens, **run)
    return dataclasses.replace(post, draws=draws_of(TOPICS))


ORDER = np.argsort(-np.bincount(TOPICS[1, 1], minlength=NUM_TOPICS), kind="stable")


def expected_phi():
    """Expected probabilities of the words in the topics by size, averaged over draws."""
    cells = draws_of(TOPICS)["word_cells"] + CONCENTRATION
    return (cells / cells.sum(axis=2, keepdims=True)).mean(axis=(0, 1)).T[ORDER]


def test_topics_are_averages_over_draws_ranked_by_hand(fitted):
    topics = fitted.topics(n=5, relevance=0.4)
    phi = expected_phi()
    np.testing.assert_allclose(topics.word_probabilities, phi, rtol=1e-6)
    shares = (draws_of(TOPICS)["word_totals"] / TOKEN_WORDS.size).reshape(-1, 3)[:, ORDER]
    np.testing.assert_allclose(topics.shares, shares.mean(0))
    np.testing.assert_allclose(topics.share_sd, shares.std(0))
    np.testing.assert_allclose(topics.found, 1)
    np.testing.assert_allclose(topics.found_by_chain, np.ones((CHAINS, NUM_TOPICS)))
    frequency = np.bincount(TOKEN_WORDS, minlength=NUM_WORDS) / TOKEN_WORDS.size
    relevance = 0.4 * np.log(phi) + 0.6 * np.log(phi / frequency)
    for topic in range(NUM_TOPICS):
        there = {int(w) for w in TOKEN_WORDS[(ORDER[topic] == TOPICS).any(axis=(0, 1))]}
        for entries, score in ((topics.probable, phi), (topics.relevant, relevance)):
            best = sorted(there, key=lambda w, s=score[topic]: -s[w])[:5]
            assert entries.lists()[topic] == [WORDS[w] for w in best]
            shown = entries.weights[topic][: len(best)]
            np.testing.assert_allclose(shown, score[topic][best], rtol=1e-6)
        exclusive = phi[topic] / phi.sum(0)
        ranks = [
            {w: np.mean([v[other] <= v[w] for other in there]) for w in there}
            for v in (phi[topic], exclusive)
        ]
        both = {w: 2 / (1 / ranks[0][w] + 1 / ranks[1][w]) for w in there}
        found = topics.exclusive.lists()[topic]
        values = [both[WORDS.index(word)] for word in found]
        np.testing.assert_allclose(values, sorted(both.values(), reverse=True)[:5])
        weights = topics.exclusive.weights[topic][: len(found)]
        np.testing.assert_allclose(weights, [exclusive[WORDS.index(word)] for word in found])


def test_similarity_is_that_of_the_words(fitted):
    topics = fitted.topics()
    cells = draws_of(TOPICS)["word_cells"] + CONCENTRATION
    roots = np.sqrt(cells / cells.sum(axis=2, keepdims=True))[..., ORDER]
    between = np.einsum("cdwk,wk->cdk", roots, roots[1, 1])
    np.testing.assert_allclose(topics.similarity, between.mean((0, 1)), rtol=1e-6)
    others = roots[1, 1].T @ roots[1, 1] - 2 * np.eye(NUM_TOPICS)
    np.testing.assert_allclose(topics.nearest, others.max(0), rtol=1e-6)


def test_words_with_a_comma_read_as_one(fitted):
    found = fitted.topics()
    entries = found.distinctive.entries.astype(object)
    entries[0, 0] = "cheese, young"
    distinctive = dataclasses.replace(found.distinctive, entries=entries)
    quoted = f'"cheese, young", {entries[0, 1]}'
    assert dataclasses.replace(found, distinctive=distinctive).labels(2)[0] == quoted
    assert quoted in str(distinctive)


def test_words_that_all_topics_have_are_in_no_label(fitted):
    """Texts in which four of ten tokens are of two words, whatever the topic."""
    random = np.random.default_rng(5)
    is_common = random.random(TOKEN_WORDS.size) < 0.4
    words = np.where(is_common, random.integers(0, 2, is_common.size), 2 + TOKEN_WORDS % 10)
    sizes = {"document": NUM_DOCUMENTS, "word": NUM_WORDS}
    names = {"document": NAMES, "word": ["the", "of", *WORDS[2:]]}
    data = mf.Tokens({"document": DOCUMENTS, "word": words}, sizes, names=names)
    draws = draws_of(TOPICS)
    draws["word_cells"] = np.zeros_like(draws["word_cells"])
    for chain, draw in np.ndindex(CHAINS, DRAWS):
        np.add.at(draws["word_cells"][chain, draw], (words, TOPICS[chain, draw]), 1)
    topics = dataclasses.replace(fitted, data=data, draws=draws).topics(n=5)
    assert all({"the", "of"} & set(line[:2]) for line in topics.lists())
    assert any({"the", "of"} & set(line[:2]) for line in topics.lists("relevance"))
    labels = [label.split(", ") for label in topics.labels(2)]
    assert not any({"the", "of"} & set(label) for label in labels)
    assert len({word for label in labels for word in label}) == 6
    # the rule: at the words of a label the odds of the topic are twice those of all tokens
    frequency = np.bincount(words, minlength=NUM_WORDS) / words.size
    for topic, label in enumerate(labels):
        share, positions = topics.shares[topic], [names["word"].index(word) for word in label]
        given = share * topics.word_probabilities[topic, positions] / frequency[positions]
        given = np.minimum(given, 0.999)
        assert (given / (1 - given) >= 2 * share / (1 - share)).all()


@pytest.mark.parametrize("rhats", [{}, {"log_joint": 1.3}])
def test_topics_of_chains_that_have_not_mixed_are_no_certain_ones(fitted, monkeypatch, rhats):
    """All draws of a chain may have a topic only because it was never left."""
    monkeypatch.setattr(topic_table, "slow_quantities", lambda posterior: rhats)
    found = fitted.topics()
    assert found.has_mixed is not bool(rhats)
    assert ("has not mixed" in str(found)) is bool(rhats)


def test_topics_are_arrays_with_words_and_documents_as_labels(fitted):
    topics, documents = fitted.topics(), fitted.document_topics()
    labelled = topics.to_xarray()
    word = topics.words[1]
    np.testing.assert_array_equal(
        labelled["word_probabilities"].sel(word=word), topics.word_probabilities[:, 1]
    )
    assert labelled["label"].values.tolist() == list(topics.labels())
    shares = documents.to_xarray()["mean"].sel(document=documents.documents[2])
    np.testing.assert_array_equal(shares, documents.mean[2])
    for each in (topics, documents):
        assert each._repr_html_().startswith("<table")


def test_topics_of_documents_are_proportions_given_their_tokens(fitted):
    """Of Dirichlet distributions, with the law of total variance over draws."""
    found = fitted.document_topics()
    counts = draws_of(TOPICS)["topic_counts"].reshape(-1, NUM_DOCUMENTS, NUM_TOPICS)[..., ORDER]
    shapes = counts + 0.1
    totals = shapes.sum(-1, keepdims=True)
    means = shapes / totals
    within = means * (1 - means) / (totals + 1)
    np.testing.assert_allclose(found.mean, means.mean(0), rtol=1e-6)
    np.testing.assert_allclose(found.sd, np.sqrt(within.mean(0) + means.var(0)), rtol=1e-6)
    np.testing.assert_allclose(found.unmatched, 0, atol=1e-12)
    assert not found.is_of_tokens
    frame = found.to_pandas()
    assert frame.index.tolist() == NAMES
    assert frame.index.name == "document"
    np.testing.assert_array_equal(frame.to_numpy(), found.mean)
    assert set(found.table()) == {"document", "topic", "mean", "sd"}
    assert "doc0" in repr(found)


def permuted(topics):
    """The same draws with the labels of each permuted."""
    orders = np.array([GENERATOR.permutation(NUM_TOPICS) for _ in range(CHAINS * DRAWS)])
    assert not (np.diff(orders, axis=0) == 0).all(), "no label is permuted"
    orders = orders.reshape(CHAINS, DRAWS, NUM_TOPICS)
    return np.take_along_axis(orders, topics, axis=2)


def test_answers_do_not_depend_on_the_labels_of_topics(fitted):
    other = dataclasses.replace(fitted, draws=draws_of(permuted(TOPICS), num_slots=5))
    one, two = fitted.topics(), other.topics()
    assert one.lists("relevance") == two.lists("relevance")
    for name in ("shares", "share_sd", "found", "similarity", "nearest", "word_probabilities"):
        np.testing.assert_allclose(getattr(one, name), getattr(two, name), rtol=1e-12)
    for name in ("mean", "sd"):
        left, right = (getattr(post.document_topics(), name) for post in (fitted, other))
        np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-12)
    assert fitted.topic_coherence("c_v").mean == other.topic_coherence("c_v").mean
    left, right = (post.similar_documents("doc1") for post in (fitted, other))
    assert left.documents.tolist() == right.documents.tolist()
    np.testing.assert_allclose(left.similarity, right.similarity)
    expected = "number of topics: 3: 1.000; 3 hold more than 1 % of the tokens"
    assert repr(other.num_topics()) == expected
    totals = np.zeros_like(fitted.draws["word_totals"])
    totals[..., :3] = [200, 199, 2]  # the last one less than 1 %
    small = dataclasses.replace(fitted, draws=fitted.draws | {"word_totals": totals}).num_topics()
    assert (small.mean, small.mean_large) == pytest.approx((3, 2))


def test_a_draw_with_other_topics_is_not_averaged_over(fitted):
    topics = TOPICS.copy()
    topics[0, 0][topics[0, 0] == ORDER[2]] = ORDER[1]  # one draw has two topics in one
    other = dataclasses.replace(fitted, draws=draws_of(topics))
    found = other.topics()
    assert found.found[0] == pytest.approx(1)
    (weak,) = np.flatnonzero(found.found < 0.99)
    assert found.found[weak] == pytest.approx(5 / 6)
    np.testing.assert_allclose(found.found_by_chain[:, weak], [2 / 3, 1])
    expected = draws_of(topics)["word_totals"].reshape(-1, NUM_TOPICS)[1:, ORDER[weak]].sum()
    assert found.shares[weak] == pytest.approx(expected / 6 / DOCUMENTS.size)
    shares = other.document_topics()
    np.testing.assert_allclose(shares.mean.sum(1) + shares.unmatched, 1)
    sizes = np.bincount(DOCUMENTS)
    by_prior = 0.1 / (sizes + 0.3) / 6  # in one draw the topic has no tokens
    np.testing.assert_allclose(shares.unmatched, by_prior, rtol=1e-6)


def test_tokens_of_topics_that_the_reference_draw_lacks_are_unmatched(fitted):
    topics = TOPICS.copy()
    topics[1, 1][topics[1, 1] == ORDER[2]] = ORDER[1]  # the reference draw has two topics in one
    other = dataclasses.replace(fitted, draws=draws_of(topics))
    assert len(other.topics()) == 2
    shares = other.document_topics()
    np.testing.assert_allclose(shares.mean.sum(1) + shares.unmatched, 1)
    counts = draws_of(topics)["topic_counts"]
    proportions = (counts + 0.1) / (counts + 0.1).sum(-1, keepdims=True)
    by_topic = proportions.reshape(6, -1, 3).mean(0)  # of the reference draw, what the prior adds
    closest = np.abs(by_topic[:, ORDER[1:]] - shares.unmatched[:, None]).max(0).min()
    assert closest == pytest.approx(0, abs=1e-7)
    assert repr(other.num_topics()).startswith("number of topics: 2: 0.167, 3: 0.833; ")


def test_a_topic_that_no_averaged_draw_has_keeps_the_words_of_the_reference_draw(fitted):
    """The reference draw is not among those averaged, as it has no weight."""
    draws = {name: values.copy() for name, values in fitted.draws.items()}
    for name in ("word_cells", "word_totals"):
        others = np.ones((CHAINS, DRAWS), bool)
        others[1, 1] = False
        draws[name][others] = 0
    draws["word_cells"][others, 0, 0] = draws["word_totals"][others, 0] = 5
    log_weights = np.where(others, np.log(1 / others.sum()), -np.inf)
    post = dataclasses.replace(fitted, draws=draws, particle_log_weights=log_weights)
    post.__dict__.pop("_kept", None)
    found = post.topics(n=2)
    lacking = np.flatnonzero(found.found == 0)
    assert lacking.size >= 2
    assert all(len(words) == 2 for words in np.array(found.lists(), object)[lacking])


def test_a_reference_may_be_a_mapping_and_must_know_words_of_the_topics(fitted):
    texts = [list(WORDS[:4]), list(WORDS[4:8])]
    by_name = fitted.topic_coherence("npmi", reference=dict(enumerate(texts)))
    np.testing.assert_array_equal(
        by_name.values, fitted.topic_coherence("npmi", reference=texts).values
    )
    with pytest.raises(ValueError, match="reference: has none of the words of the topics"):
        fitted.topic_coherence(reference=[["other", "words"]])
    with pytest.raises(TypeError, match="position 0 has at position 1 the list"):
        fitted.topic_coherence(reference=[["a", ["b"]]])
    with pytest.raises(TypeError, match="Tokens, or lists of words; got int"):
        fitted.topic_coherence(reference=5)


def test_cooccurrence_of_documents_names_the_answer_that_there_is(fitted):
    with pytest.raises(ValueError, match=r"post\.similar_documents\(document\) lists those"):
        fitted.cooccurrence(["doc1", "doc2"])


def test_similar_documents_are_those_with_a_topic_in_common(fitted):
    found = fitted.similar_documents("doc2", n=3)
    counts = draws_of(TOPICS)["topic_counts"].reshape(-1, NUM_DOCUMENTS, NUM_TOPICS)
    shares = counts / counts.sum(-1, keepdims=True)
    by_draw = np.sqrt(shares * shares[:, 2:3]).sum(-1)
    expected = by_draw.mean(0)
    order = [d for d in np.argsort(-expected) if d != 2][:3]
    assert found.documents.tolist() == [NAMES[d] for d in order]
    np.testing.assert_allclose(found.similarity, expected[order])
    np.testing.assert_allclose(found.sd, by_draw.std(0)[order], atol=1e-7)
    assert found.to_pandas().shape == (3, 3)
    with pytest.raises(ValueError, match="no document has the id 'doc99'"):
        fitted.similar_documents("doc99")


def npmi_by_hand(words, windows):
    """Matrix of NPMI of some words from a list of sets of words."""
    total = len(windows)
    matrix = np.zeros((len(words), len(words)))
    for i, one in enumerate(words):
        for j, two in enumerate(words):
            first = sum(one in window for window in windows) / total
            second = sum(two in window for window in windows) / total
            joint = sum(one in window and two in window for window in windows) / total + 1e-12
            matrix[i, j] = np.log(joint / (first * second)) / -np.log(joint)
    return matrix


@pytest.mark.parametrize("measure", ["npmi", "c_v", "u_mass"])
@pytest.mark.parametrize("case", ["documents", "tokens", "lists", "windows"])
def test_coherence_is_what_the_formula_gives(fitted, measure, case):
    lists = [[WORDS[w] for w in TOKEN_WORDS[d == DOCUMENTS]] for d in range(NUM_DOCUMENTS)]
    options = {}
    if case != "documents":
        lists = [list(GENERATOR.choice(WORDS[:11], size)) for size in (9, 4, 1, 12, 7, 10, 3)]
        reference = [[*words, "strange"] for words in lists]
        options["reference"] = reference if case != "tokens" else mf.Tokens.from_lists(reference)
        lists = reference
    windows = [set(words) for words in lists]
    if case == "windows":
        options["window"] = 4
        windows = [
            set(words[start : start + 4])
            for words in lists
            for start in range(max(1, len(words) - 3))
        ]
    found = fitted.topic_coherence(measure, n=4, **options)
    for value, words in zip(found.values, fitted.topics(n=4).lists(), strict=True):
        there = [word for word in words if any(word in window for window in windows)]
        matrix = npmi_by_hand(there, windows)
        everywhere = np.array([all(word in window for window in windows) for word in there])
        matrix[everywhere[:, None] & everywhere] = 0
        expected = matrix[np.triu_indices(len(there), 1)].mean()
        if measure == "c_v":
            total = matrix.sum(axis=0)
            cosines = [row @ total / np.sqrt((row @ row) * (total @ total)) for row in matrix]
            expected = np.mean(cosines)
        if measure == "u_mass":
            inside = np.array([[word in window for word in there] for window in windows]) * 1
            with_both, alone = inside.T @ inside, inside.sum(axis=0)
            pairs = [(i, j) for i in range(len(there)) for j in range(i)]
            expected = np.mean([np.log((with_both[i, j] + 1) / alone[j]) for i, j in pairs])
        assert value == pytest.approx(expected, abs=1e-9)
    assert found.mean == pytest.approx(np.mean(found.values))
    assert np.ptp(found.values) > 0


@pytest.mark.parametrize("window", [None, 2])
def test_c_v_is_the_published_definition_worked_by_hand(fitted, window):
    """Roeder, Both & Hinneburg (2015): one against all, NPMI (epsilon 1e-12), cosines, their mean.

    P(a) = 3/4, P(b) = P(c) = 1/2; P(ab) = 1/2, P(ac) = 1/4, P(bc) = 0.
    NPMI(a, b) = log(4/3) / log 2 = 0.41504, (a, c) = -log(3/2) / log 4 = -0.29248,
    (b, c) = log(4e-12) / -log(1e-12) = -0.94983, of a word with itself 1.
    Their sum over the words is (1.12256, 0.46521, -0.24231), its cosines with the three vectors
    0.99776, 0.65071 and -0.57960: on average 0.35629. The mean NPMI of pairs is -0.27576.
    """
    a, b, c = fitted.topics(n=3).lists()[0]
    reference = [[a, b], [b, a], [c], [c, a]]
    if window == 2:  # the same four sets of words
        reference = [["strange", c, a, b, a]]
    options = {"n": 3, "reference": reference, "window": window}
    assert fitted.topic_coherence("c_v", **options).values[0] == pytest.approx(0.35629, abs=1e-5)
    assert fitted.topic_coherence("npmi", **options).values[0] == pytest.approx(-0.27576, abs=1e-5)


def test_u_mass_worked_by_hand(fitted):
    """Documents ab, ba, c, ca: b given a log(3/3), c given a log(2/3), c given b log(1/2)."""
    a, b, c = fitted.topics(n=3).lists()[0]
    reference = [[a, b], [b, a], [c], [c, a]]
    found = fitted.topic_coherence("u_mass", n=3, reference=reference).values[0]
    assert found == pytest.approx((np.log(2 / 3) + np.log(1 / 2)) / 3)


def test_words_that_always_meet_are_coherent_and_those_that_never_meet_are_not(fitted):
    together = [["w0", "w1", "w2", "w3"], ["w4", "w5", "w6", "w7"], ["w8", "w9", "w10", "w11"]]
    apart = [[word] for words in together for word in words]
    best = fitted.topics(n=3).lists()
    assert all(len({int(word[1:]) // 4 for word in words}) == 1 for words in best)
    always = fitted.topic_coherence(n=3, reference=together).values
    never = fitted.topic_coherence(n=3, reference=apart).values
    np.testing.assert_allclose(always, 1, atol=1e-6)
    assert (never < -0.8).all()


def test_diversity_counts_words_that_topics_share(fitted):
    assert fitted.topic_diversity(3) == 1
    lists = fitted.topics(n=8).lists()
    words = [word for words in lists for word in words]
    assert fitted.topic_diversity(8) == len(set(words)) / len(words) < 1


def test_tables_are_shown(fitted):
    topics = fitted.topics(n=4)
    frame = topics.to_pandas()
    assert frame.index.tolist() == [0, 1, 2]
    assert frame["words by probability"][0] == ", ".join(topics.lists()[0])
    assert topics.word_table().loc["w3"].to_numpy() == pytest.approx(
        topics.word_probabilities[:, 3]
    )
    assert "similarity" in repr(topics)
    assert "<table>" in topics._repr_html_()
    assert topics.labels(2) == [", ".join(words[:2]) for words in topics.lists("distinction")]
    assert topics.relevant.to_pandas().shape[1] == 5


def test_a_table_of_words_without_pandas_names_the_extra(monkeypatch, fitted):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match=r"word_table needs pandas.*jaxmf\[data\]"):
        fitted.topics(n=4).word_table()


def test_topics_have_the_order_of_transform(fitted):
    new = mf.Tokens.from_lists([[word] * 20 for word in ("w0", "w4", "w8")])
    shares = fitted.transform(new)
    first = [words[0] for words in fitted.topics(n=1).lists()]
    assert [first[topic] for topic in shares.argmax(1)] == ["w0", "w4", "w8"]


def test_a_topic_has_one_label_in_all_answers(fitted):
    topics = np.array([2, 0, 1])[np.argsort(ORDER)][TOPICS]  # the largest topic in the last slot
    draws = draws_of(topics) | {"topic_of_tokens": topics}
    post = dataclasses.replace(fitted, draws=draws, run=None)
    new = mf.Tokens.from_lists([[word] * 20 for word in ("w0", "w4", "w8")])
    top = post.top_entries("word", n=1).to_pandas().set_index("entry")["group"]
    labels = top[["w0", "w4", "w8"]].tolist()
    assert sorted(labels) == [0, 1, 2]
    assert post.transform(new).to_pandas().idxmax(axis=1).tolist() == labels
    found = post.group_probabilities().most_probable
    for word, label in zip((0, 4, 8), labels, strict=True):
        assert np.bincount(found[word == TOKEN_WORDS]).argmax() == label


def test_topics_over_a_number_follow_the_trend_of_the_documents(fitted):
    shares = fitted.document_topics().mean
    year = 2000 + np.argsort(np.argsort(shares[:, 0])) // 2  # the share of topic 0 increases
    over = fitted.topics_over(dict(zip(NAMES, year.tolist(), strict=True)))
    assert over.lower.tolist() == over.upper.tolist() == [2000, 2001, 2002, 2003]
    assert over.num_documents.tolist() == [2, 2, 2, 2]
    assert (np.diff(over.mean[:, 0]) > 0).all()
    label = np.empty((CHAINS, DRAWS, 4))
    draws = draws_of(TOPICS)["topic_counts"]
    parts = (draws / draws.sum(axis=-1, keepdims=True))[..., ORDER[0]]
    for index in range(4):
        label[..., index] = parts[..., year == 2000 + index].mean(axis=-1)
    np.testing.assert_allclose(over.mean[:, 0], label.mean(axis=(0, 1)), rtol=1e-6)
    np.testing.assert_allclose(over.sd[:, 0], label.std(axis=(0, 1)), rtol=1e-4, atol=1e-7)
    means = parts.mean(axis=(0, 1))
    spread = [means[year == 2000 + index].var(ddof=1) / 2 for index in range(4)]
    expected = np.sqrt(label.var(axis=(0, 1)) + spread)
    np.testing.assert_allclose(over.error[:, 0], expected, rtol=1e-4)
    frame, arrays = over.to_pandas(), over.to_xarray()
    assert len(frame) == 4 * NUM_TOPICS
    assert set(arrays) <= set(frame), "one word for a thing in tables and in labelled arrays"
    np.testing.assert_array_equal(frame["mean"], arrays["mean"].values.ravel())

    figure = fitted.plot.topics_over(year, max_topics=2)
    assert [axes.get_title(loc="left")[:3] for axes in figure.axes] == ["0: ", "1: "]
    for topic, axes in enumerate(figure.axes):
        np.testing.assert_allclose(axes.lines[0].get_xdata(), [2000, 2001, 2002, 2003])
        np.testing.assert_allclose(axes.lines[0].get_ydata(), over.mean[:, topic])


def test_bins_of_equal_width_leave_out_missing_values(fitted):
    values = np.array([0.0, 1.0, 1.5, 10.0, 9.0, np.nan, 0.5, 5.0])
    over = fitted.topics_over(values, num_bins=4)
    np.testing.assert_allclose(over.lower, [0, 2.5, 5, 7.5])
    assert over.num_documents.tolist() == [4, 0, 1, 2]
    assert np.isnan(over.mean[1]).all()
    assert np.isnan(over.error).all(axis=1).tolist() == [False, True, True, False]
    counts = draws_of(TOPICS)["topic_counts"][..., ORDER]
    shares = (counts / counts.sum(axis=-1, keepdims=True)).mean(axis=(0, 1))
    np.testing.assert_allclose(over.mean[0], shares[[0, 1, 2, 6]].mean(axis=0))
    np.testing.assert_allclose(over.mean[3], shares[[3, 4]].mean(axis=0))


def test_topics_over_dates_have_dates_as_bins(fitted):
    days = pd.to_datetime(["2001-01-01", "2001-01-02", "2001-01-11", "2001-01-05"] * 2)
    dates = pd.Series(days, NAMES)
    dates["doc7"] = pd.NaT
    over = fitted.topics_over(dates, num_bins=2)
    without = dict(zip(NAMES, [*dates.dt.to_pydatetime()], strict=True)) | {"doc7": math.nan}
    np.testing.assert_array_equal(fitted.topics_over(without, num_bins=2).mean, over.mean)
    offsets = np.array([0, 1, 10, 4, 0, 1, 10, np.nan])
    expected = fitted.topics_over(offsets, num_bins=2)
    np.testing.assert_array_equal(over.mean, expected.mean)
    assert over.num_documents.tolist() == expected.num_documents.tolist() == [5, 2]
    assert over.lower.astype(str).tolist() == [f"2001-01-0{day}T00:00:00.000000" for day in (1, 6)]
    assert over.upper[-1] == np.datetime64("2001-01-11")
    assert over.to_pandas()["lower"].dtype.kind == over.to_xarray()["lower"].dtype.kind == "M"
    zoned = days[:7].tz_localize("Europe/Paris").tz_convert("UTC").tz_localize(None)
    shifted = fitted.topics_over([*days[:7].tz_localize("Europe/Paris"), pd.NaT], num_bins=4)
    assert shifted.lower[0] == zoned.min().to_datetime64()
    several = (list(days.date), days.to_numpy(), days, list(days))
    one, *others = (fitted.topics_over(values, num_bins=3).to_pandas() for values in several)
    for other in others:
        pd.testing.assert_frame_equal(one, other)
    assert "2001-01-01" in repr(fitted.topics_over(dates))
    (axes, *_) = fitted.plot.topics_over(dates).axes
    assert fitted.plot.topics_over(dates).axes[-1].get_xlabel().startswith("date")
    assert axes.lines[0].get_xdata()[0] == np.datetime64("2001-01-01")


def test_topics_are_shown_on_the_command_line(fitted, monkeypatch, capsys):
    monkeypatch.setattr("jaxmf.cli.results._load", lambda folder: fitted)
    assert cli.run(["show", "run"]) == 0
    assert str(fitted.topics()) in capsys.readouterr().out


def test_topics_over_groups_are_those_of_numbers_for_them(fitted):
    parties = ["left", "right", "centre, liberal", None, "right", "left", "left", math.nan]
    codes = [1, 2, 0, math.nan, 2, 1, 1, math.nan]
    expected = fitted.topics_over(codes)
    for values in (parties, dict(zip(NAMES, parties, strict=True)), pd.Series(parties, NAMES)):
        over = fitted.topics_over(values, num_bins=1)
        assert over.lower.tolist() == over.upper.tolist() == ["centre, liberal", "left", "right"]
        assert over.num_documents.tolist() == [1, 3, 2]
        for name in ("mean", "sd", "error"):
            np.testing.assert_array_equal(getattr(over, name), getattr(expected, name))
    assert over.to_pandas()["lower"].unique().tolist() == ["centre, liberal", "left", "right"]
    assert "centre, liberal" in repr(over)
    assert over.to_xarray()["lower"].values.tolist() == over.lower.tolist()
    figure = fitted.plot.topics_over(parties, max_topics=2)
    assert figure.axes[-1].get_xlabel().startswith("group")
    for topic, axes in enumerate(figure.axes):
        assert [label.get_text() for label in axes.get_xticklabels()][1:] == ["left", "right"]
        np.testing.assert_array_equal(axes.lines[0].get_ydata(), over.mean[:, topic])


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ([*pd.to_datetime(["2001-01-01"] * 7), 2001], TypeError, "must be numbers, got Timestamp"),
        ({"doc0": 1.0}, ValueError, "the document 'doc1' has none, the ids there are 'doc0'"),
        ([1.0, 2.0], ValueError, "values: are 2, and there are 8 documents"),
        ([np.nan] * 8, ValueError, "no document with tokens has a finite one"),
        (["May", *range(7)], TypeError, "values must be numbers, got 'May'"),
        (["2001", None] * 4, ValueError, "values: are texts such as '2001'.* make them numbers"),
        (["2001-02-03", "2001-05-01"] * 4, ValueError, "values: are texts such as '2001-02-03'"),
        (pd.Series(np.arange(9), [*NAMES, NAMES[0]]), ValueError, "has an id twice"),
        (pd.Series(range(8)), ValueError, r"or values.tolist\(\) where they are in the order"),
        (pd.DataFrame({"year": np.arange(8)}, NAMES), TypeError, "values: is a table"),
    ],
)
def test_wrong_values_of_documents_are_named(fitted, values, error, message):
    with pytest.raises(error, match=message):
        fitted.topics_over(values)


def test_a_pachinko_model_has_the_topics_of_its_last_level(fitted):
    draws = draws_of(TOPICS)
    parents = GENERATOR.integers(0, 2, DOCUMENTS.size)
    counts = np.zeros((CHAINS, DRAWS, NUM_DOCUMENTS, 2, NUM_TOPICS), np.int32)
    for chain, draw in np.ndindex(CHAINS, DRAWS):
        np.add.at(counts[chain, draw], (DOCUMENTS, parents, TOPICS[chain, draw]), 1)
    draws["level_1_counts"] = counts.sum(axis=-1)
    draws["level_2_counts"] = counts
    del draws["topic_counts"]
    settings = {"level_concentration": (0.7, 0.3), "word_concentration": CONCENTRATION}
    model = mf.PAM((2, NUM_TOPICS), **settings)
    other = dataclasses.replace(fitted, model=model, draws=draws)
    above, below = counts.sum(axis=-1) + 0.7, counts + 0.3
    above, below = (shapes / shapes.sum(axis=-1, keepdims=True) for shapes in (above, below))
    expected = np.sum(above[..., None] * below, axis=-2).mean(axis=(0, 1))[:, ORDER]
    np.testing.assert_allclose(other.document_topics().mean, expected, rtol=1e-6)
    assert other.topics().lists() == fitted.topics().lists()


def test_an_hdp_adds_the_weights_of_its_topics_and_of_the_others(fitted):
    draws = draws_of(TOPICS, num_slots=5)
    shares = np.random.default_rng(5).dirichlet([1.0] * 4, (CHAINS, DRAWS))
    draws["topic_weights"] = np.pad(shares[..., :3], [(0, 0), (0, 0), (0, 2)])
    draws["topic_rest"] = shares[..., 3]
    draws["topic_concentration"] = np.array([[0.5, 1.0, 2.0], [3.0, 4.0, 5.0]])
    draws["topic_base_concentration"] = np.ones((CHAINS, DRAWS))
    model = mf.HDPLDA(word_concentration=CONCENTRATION)
    found = dataclasses.replace(fitted, model=model, draws=draws).document_topics()
    concentration = draws["topic_concentration"][..., None, None]
    shapes = draws["topic_counts"][..., :3] + concentration * shares[:, :, None, :3]
    totals = np.bincount(DOCUMENTS)[:, None] + concentration
    means = (shapes / totals)[..., ORDER].reshape(6, NUM_DOCUMENTS, NUM_TOPICS)
    within = means * (1 - means) / (totals.reshape(6, NUM_DOCUMENTS, 1) + 1)
    np.testing.assert_allclose(found.mean, means.mean(0), rtol=1e-5)
    np.testing.assert_allclose(found.sd, np.sqrt(within.mean(0) + means.var(0)), rtol=1e-5)
    rest = concentration[..., 0] * shares[..., 3:] / totals[..., 0]
    np.testing.assert_allclose(found.unmatched, rest.mean(axis=(0, 1)), rtol=1e-5)


@pytest.mark.slow
def test_a_flexible_model_keeps_the_topics_of_documents(fitted):
    prior = mf.FlexiblePrior.parametric(-2.0, 1.0, 0.5, num_items=30)
    model, key = mf.HFP(prior, word_concentration=CONCENTRATION), jax.random.key(0)
    algorithm = model.sampler(keep="assignments", capacity=8)
    record = jax.jit(lambda data: algorithm.record(key, algorithm.init(key, data), data))
    draw = jax.device_get(record(fitted.data))
    counts = np.zeros_like(draw["topic_by_document"])
    np.add.at(counts, (DOCUMENTS, draw["topic_of_tokens"]), 1)
    np.testing.assert_array_equal(draw["topic_by_document"], counts)
    draws = {name: values[None, None] for name, values in draw.items()}
    post = dataclasses.replace(fitted, model=model, draws=draws)
    shares = np.sort(counts / counts.sum(1, keepdims=True), axis=1)
    answer = post.document_topics()
    assert answer.is_of_tokens
    assert "topics of its tokens" in repr(answer)
    found = np.sort(answer.mean, axis=1)
    np.testing.assert_allclose(found, shares[:, -found.shape[1] :])
    assert counts.any(axis=0).sum() > 1, "one topic has all documents: the test asks nothing"


def test_empty_documents_have_the_prior_and_positions_stand_for_ids():
    tokens = mf.Tokens.from_lists([["a", "b"], [], ["a", "a"], ["b"]])
    run = {"num_warmup": 1, "num_samples": 2, "num_chains": 1, "progress": False}
    post = mf.sample(mf.LDA(2), tokens, **run)
    found = post.document_topics()
    assert not found.is_of_tokens
    here = found.mean[1] > 0  # a topic that the reference draw has no token of is unmatched
    np.testing.assert_allclose(found.mean[1] + np.where(here, 0, found.unmatched[1]), 0.5)
    np.testing.assert_allclose(found.sd[1][here], 0.5 / np.sqrt(1.2), rtol=1e-6)
    assert post.similar_documents(0).documents.tolist().count(1) == 0
    with pytest.raises(ValueError, match="document: 1 has no tokens"):
        post.similar_documents(1)
    without = dataclasses.replace(found, mean=np.array([[0.0], [np.nan], [0.0], [0.0]]))
    assert repr(without).count("no tokens") == 1


@pytest.mark.parametrize(
    ("ask", "match"),
    [
        (lambda p: p.topics(relevance=1.5), "relevance must be"),
        (lambda p: p.topics(0), "n must be"),
        (lambda p: p.topics().lists("size"), "by: takes 'probability'"),
        (lambda p: p.topic_coherence("c_uci"), "measure: takes 'npmi', 'c_v', 'u_mass'"),
        (lambda p: p.topic_coherence(window=5), "window: needs texts in their order"),
        (lambda p: p.topic_coherence(reference=[["a"], "b c"]), "reference: the document at pos"),
        (lambda p: p.topic_coherence(reference=[[]]), "reference: all documents are empty"),
    ],
)
def test_wrong_questions_are_refused_by_name(fitted, ask, match):
    with pytest.raises((ValueError, TypeError), match=match):
        ask(fitted)


def test_models_without_topics_and_scalar_draws_are_refused(fitted):
    plain = dataclasses.replace(fitted, model=mf.DirichletCompoundMultinomial(0.1))
    for ask in (plain.topics, plain.document_topics, plain.num_topics, plain.topic_diversity):
        with pytest.raises(ValueError, match="DirichletCompoundMultinomial has no topics"):
            ask()
    scalars = dataclasses.replace(fitted, draws={"log_joint": np.zeros((2, 3))})
    with pytest.raises(ValueError, match='without keep="scalars"'):
        scalars.topics()


@pytest.mark.compare
@pytest.mark.parametrize("measure", ["c_v", "npmi", "u_mass"])
def test_coherence_is_that_of_gensim(fitted, measure, monkeypatch):
    """On the descriptions of Python's functions, windows of 110, 10, and whole documents.

    A word stands once in a text: gensim forgets one that leaves a window even where it stands in it
    a second time.
    """
    models = pytest.importorskip("gensim.models.coherencemodel")
    confirmation = pytest.importorskip("gensim.topic_coherence.direct_confirmation_measure")
    from gensim.corpora import Dictionary

    texts = descriptions()
    dictionary = Dictionary(texts)
    words = [word for word, _ in Counter(itertools.chain(*texts)).most_common(NUM_WORDS)]
    tokens = fitted.data
    renamed = mf.Tokens(tokens.columns, tokens.sizes, names=tokens.names | {"word": words})
    post = dataclasses.replace(fitted, data=renamed)
    window = {"c_v": 110, "npmi": 10, "u_mass": None}[measure]
    if measure == "u_mass":
        # Mimno and others add one document, gensim all but nothing
        monkeypatch.setattr(confirmation, "EPSILON", 1 / len(texts))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = models.CoherenceModel(
            topics=post.topics(n=6).lists(),
            texts=texts,
            corpus=[dictionary.doc2bow(text) for text in texts],
            dictionary=dictionary,
            coherence={"npmi": "c_npmi"}.get(measure, measure),
            window_size=window,
            topn=6,
            processes=1,
        )
        expected = other.get_coherence_per_topic()
    found = post.topic_coherence(measure, n=6, reference=texts, window=window)
    np.testing.assert_allclose(found.values, expected, rtol=1e-6)
    assert np.ptp(found.values) > 0.01


def descriptions():
    """Words of three letters and more of functions of Python's library."""
    modules = (random, statistics, string, json, math, pathlib, shutil, subprocess)
    found = (getattr(module, name) for module in modules for name in sorted(dir(module)))
    texts = [re.findall("[a-z]{3,}", (one.__doc__ or "").lower()) for one in found]
    return [list(dict.fromkeys(words)) for words in texts if len(words) > 5]


@pytest.mark.slow
def test_entries_of_a_block_with_several_parents_say_of_which():
    species = np.tile(["ash", "oak", "elm"], 8)
    kinds = np.where(np.arange(24) % 2 == 0, "few", "many")
    tokens = mf.Tokens.from_columns(
        {"site": np.repeat(np.arange(4), 6), "species": species, "kind": kinds}
    )
    kind = mf.Block(mf.DirichletMultinomial(), by=("group", "species"), observed=True)
    model = mf.Network(group=mf.Block(mf.Dirichlet(2), by="site"), kind=kind)
    post = mf.sample(model, tokens, num_warmup=0, num_samples=2, num_chains=1, progress=False)
    found = post.top_entries("kind")
    cells = np.asarray(post.reference_draw()["kind_cells"])
    table = found.to_pandas()
    assert set(table["species"]) == {"ash", "oak", "elm"}
    for share, group, name in zip(found.shares, *found.parents.values(), strict=True):
        column = list(tokens.names["species"]).index(name)
        assert round(24 * share) == cells[:, group, column].sum()
    assert found.lines()[0] == ("share", "group", "species", "entries")
    assert list(table)[:4] == ["group", "share", "group (parent)", "species"]
