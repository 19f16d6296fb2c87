"""The proportions of topics in documents: exact moments, coverage, the same as `transform`."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import jaxmf as mf
from jaxmf.posterior.document_topics import mean_and_sd
from jaxmf.posterior.topic_draws import DocumentCounts, match, topic_blocks

RUN = {"num_chains": 1, "progress": False, "seed": 0}


def moments_over_paths(shapes):
    """Mean and variance of the proportions of the last of several levels, path by path.

    Args:
        shapes: of the Dirichlet distributions of each level of a document, (K above, K) each.
    """
    size = shapes[-1].shape[1]
    paths = list(itertools.product(*(range(each.shape[1]) for each in shapes)))
    mean, square = np.zeros(size), np.zeros(size)
    for one in paths:
        rows = (0, *one)
        steps = [each[rows[i]][one[i]] / each[rows[i]].sum() for i, each in enumerate(shapes)]
        mean[one[-1]] += np.prod(steps)
        for two in paths:
            if two[-1] != one[-1]:
                continue
            product, others = np.prod(steps), (0, *two)
            for i, each in enumerate(shapes):
                row, is_same = each[others[i]], others[i] == rows[i]
                above = row[two[i]] + (is_same and one[i] == two[i])
                product *= above / (row.sum() + is_same)
            square[one[-1]] += product
    return mean, square - mean**2


@pytest.mark.tiers(exhaustive=["sizes1", "sizes2"])
@pytest.mark.parametrize("sizes", [(3,), (2, 3), (2, 3, 2)])
def test_proportions_below_several_levels_have_exact_moments(sizes):
    """A single draw of Pachinko allocation, against a sum over pairs of paths."""
    generator = np.random.default_rng(4)
    documents, words = np.repeat(np.arange(4), 6), generator.integers(0, 5, 24)
    tokens = mf.Tokens({"document": documents, "word": words}, {"document": 4, "word": 5})
    concentrations = (0.4, 0.7, 1.3)[: len(sizes)]
    model = mf.PAM(sizes, level_concentration=concentrations, word_concentration=0.5)
    post = mf.sample(model, tokens, num_warmup=2, num_samples=1, **RUN)
    found = post.document_topics()
    labels = match(post).labels[0]
    for document in range(4):
        shapes = [
            post.draws[f"level_{level}_counts"][0, 0, document].reshape(-1, size) + concentration
            for level, (size, concentration) in enumerate(
                zip(sizes, concentrations, strict=True), 1
            )
        ]
        mean, variance = moments_over_paths(shapes)
        np.testing.assert_allclose(found.mean[document], mean[labels], rtol=1e-5)
        np.testing.assert_allclose(found.sd[document] ** 2, variance[labels], rtol=1e-5)


def texts_of(model_sizes, seed):
    """Tokens of documents drawn from the prior of LDA, words of topics, proportions."""
    num_topics, num_words, num_documents, length = model_sizes
    generator = np.random.default_rng(seed)
    words = generator.dirichlet([0.05] * num_words, num_topics)
    proportions = generator.dirichlet([0.2] * num_topics, num_documents)
    documents = np.repeat(np.arange(num_documents), generator.poisson(length, num_documents))
    topics = [generator.choice(num_topics, p=proportions[i]) for i in documents]
    columns = {
        "document": documents,
        "word": np.array([generator.choice(num_words, p=words[topic]) for topic in topics]),
    }
    tokens = mf.Tokens(columns, {"document": num_documents, "word": num_words})
    return tokens, words, proportions


@pytest.fixture(scope="module")
def simulated():
    tokens, words, proportions = texts_of((5, 100, 250, 50), seed=3)
    model = mf.LDA(5, topic_concentration=0.2, word_concentration=0.05)
    post = mf.sample(model, tokens, num_warmup=150, num_samples=100, **RUN)
    similarity = np.sqrt(post.topics().word_probabilities) @ np.sqrt(words).T
    order = linear_sum_assignment(similarity, maximize=True)[1]
    assert similarity[np.arange(5), order].min() > 0.9, (
        "a chain that has lost a topic tests nothing"
    )
    return post, proportions[:, order]


def test_intervals_hold_the_proportions_that_documents_were_drawn_from(simulated):
    post, truth = simulated
    found = post.document_topics()
    is_large = found.mean > 0.02
    held = np.abs(truth - found.mean) < 1.645 * found.sd
    assert is_large.sum() > 500
    assert held[is_large].mean() == pytest.approx(0.9, abs=0.04)
    squares = ((truth - found.mean) ** 2).sum(), (found.sd**2).sum()
    assert squares[0] / squares[1] == pytest.approx(1, abs=0.15)
    counts, everyone = DocumentCounts(post, topic_blocks(post)), np.arange(len(truth))
    mean, sd = mean_and_sd(
        match(post), lambda chain, draw: (counts.parts(chain, draw, everyone), 0.0)
    )
    held = np.abs(truth - mean) < 1.645 * sd
    assert held[is_large].mean() < 0.75, "what is between draws alone holds them as well"


def test_documents_of_the_data_have_the_proportions_of_the_same_new_ones(simulated):
    post, _ = simulated
    found, new = post.document_topics(), post.transform(post.data)
    assert (
        np.sqrt(np.mean((found.mean - new) ** 2)) < 0.015
    )  # 20 draws of `transform`, one of words
