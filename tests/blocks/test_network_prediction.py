"""What a draw of a network says of further tokens, against sums written out by hand."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf
from jaxmf.blocks.folding import fold_in
from jaxmf.blocks.prediction import (
    category_probabilities,
    predict_categories,
    predict_moments,
    predictive_groups,
    probabilities,
)
from jaxmf.testing import check_means

KEY = jax.random.key(5)
GENERATOR = np.random.default_rng(3)


def tokens(num_tokens=40, **sizes):
    return mf.Tokens({n: GENERATOR.integers(0, s, num_tokens) for n, s in sizes.items()}, sizes)


def a_draw(network, data, num_steps=3):
    network = network.at(data)
    algorithm = network.sampler(capacity=6)
    state, step = jax.jit(algorithm.init)(KEY, data), jax.jit(algorithm.step)
    for index in range(num_steps):
        state, _ = step(jax.random.fold_in(KEY, index), state, data, 1.0)
    return network, jax.jit(algorithm.record)(KEY, state, data)


WORD = mf.Block(mf.DirichletMultinomial(concentration=0.3), by="topic", observed=True)
DATA = tokens(document=4, word=5)


def test_lda_is_a_product_of_two_tables():
    network = mf.Network(topic=mf.Block(mf.Dirichlet(3, 0.4), by="document"), word=WORD)
    network, draw = a_draw(network, DATA)
    counts, cells = np.asarray(draw["topic_counts"]), np.asarray(draw["word_cells"])
    theta = (counts + 0.4) / (counts + 0.4).sum(1, keepdims=True)
    phi = ((cells + 0.3) / (cells + 0.3).sum(0)).T
    found = predict_categories(network, draw, "word", DATA, {"document": jnp.array([2, 0])})
    np.testing.assert_allclose(found, (theta @ phi)[[2, 0]], rtol=1e-5)


def test_hdp_keeps_a_share_for_new_groups():
    network = mf.Network(topic=mf.Block(mf.HDP(2.0, 1.5), by="document"), word=WORD)
    network, draw = a_draw(network, DATA)
    counts, weights = np.asarray(draw["topic_counts"]), np.array(draw["topic_weights"])
    free = int(np.argmin(counts.sum(0) > 0))
    weights[free] += draw["topic_rest"]
    expected = (counts + 2.0 * weights) / (counts.sum(1, keepdims=True) + 2.0)
    found = probabilities(network, draw, "topic")
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    # a new group has the prior's words
    np.testing.assert_allclose(category_probabilities(network, draw, "word")[free], 0.2, rtol=1e-5)


@pytest.mark.tiers(exhaustive=["by itself", "path", "two sides"])
@pytest.mark.parametrize("kind", ["path", "two sides", "by itself", "function"])
def test_sums_over_indicators_written_out(kind):
    data = tokens(document=3, item=2, word=4)
    words = mf.DirichletMultinomial(concentration=0.3)
    networks = {
        "path": mf.Network(
            a=mf.Block(mf.Dirichlet(2), by="document"),
            b=mf.Block(mf.Dirichlet(3), by=("document", "a")),
            word=mf.Block(words, by="b", observed=True),
        ),
        "two sides": mf.Network(
            a=mf.Block(mf.HDP(1.0, 1.0), by="document"),
            b=mf.Block(mf.Dirichlet(3), by="item"),
            word=mf.Block(words, by=("b", "a"), observed=True),
        ),
        "by itself": mf.Network(
            a=mf.Block(mf.Dirichlet(2), by="document"),
            b=mf.Block(mf.DirichletProcess(1.0), by="item"),
            word=mf.Block(words, by=("item", "b", "a"), observed=True),
        ),
        "function": mf.Network(
            a=mf.Block(mf.Dirichlet(2), by="document"),
            b=mf.Block(mf.Dirichlet(3), by="item"),
            word=mf.Block(words, by=lambda a, b: np.where(a == 0, 0, 1 + b), observed=True),
        ),
    }
    network, draw = a_draw(networks[kind], data)
    first, second = (np.asarray(probabilities(network, draw, name)) for name in "ab")
    table = np.asarray(category_probabilities(network, draw, "word"))
    columns = {"document": jnp.array([0, 2, 1]), "item": jnp.array([1, 1, 0])}
    expected = np.zeros((3, 4))
    for index, (document, item) in enumerate(zip([0, 2, 1], [1, 1, 0], strict=True)):
        for a, b in itertools.product(range(first.shape[-1]), range(second.shape[-1])):
            cell = {"path": (document, a, b)}.get(kind, (item, b))
            distribution = {
                "path": lambda a, b, item: table[b],
                "two sides": lambda a, b, item: table[b, a],
                "by itself": lambda a, b, item: table[item, b, a],
                "function": lambda a, b, item: table[0 if a == 0 else 1 + b],
            }[kind](a, b, item)
            expected[index] += first[document, a] * second[cell] * distribution
    found = predict_categories(network, draw, "word", data, columns)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-5)


@pytest.mark.slow
def test_real_values_mix_means_and_variances():
    data = mf.Tokens({"user": GENERATOR.integers(0, 3, 60)}, {"user": 3}, {"x": 9 + _normal(60)})
    network = mf.Network(
        group=mf.Block(mf.Dirichlet(2), by="user"),
        x=mf.Block(mf.NormalInverseGamma(9.0, 0.5, 3.0, 2.0), by="group", observed=True),
    )
    network, draw = a_draw(network, data)
    theta = np.asarray(probabilities(network, draw, "group"))
    size, rate = np.asarray(draw["x_number"]), np.asarray(draw["x_rate"])
    variance = rate * (1.5 + size) / ((0.5 + size) * (2.0 + size / 2))
    mean = np.asarray(draw["x_location"])
    found = predict_moments(network, draw, "x", data, {"user": jnp.arange(3)})
    np.testing.assert_allclose(found.mean, theta @ mean, rtol=1e-4)
    second = theta @ (variance + mean**2) - (theta @ mean) ** 2
    np.testing.assert_allclose(found.variance, second, rtol=1e-2)


@pytest.mark.slow
def test_draws_of_a_smaller_capacity_are_padded_without_harm():
    """A slot that a later draw opened holds zeros in an earlier one."""
    model = mf.DPMixture(concentration=1.0, family=mf.NormalInverseGamma())
    data = mf.Dense(_normal((12, 1)))
    network, tokens_of_rows = model.over(data)
    network, draw = a_draw(network, tokens_of_rows)
    wider = {
        name: np.pad(value, [(0, 4)] + [(0, 0)] * (value.ndim - 1)) if value.ndim else value
        for name, value in draw.items()
    }
    x = jnp.asarray(_normal(5))
    ask = jax.jit(lambda draw: predictive_groups(network, draw, "group", "x", x))
    narrow_distribution, narrow = ask(draw)
    wide_distribution, wide = ask(wider)
    np.testing.assert_allclose(wide_distribution, narrow_distribution, rtol=1e-4)
    np.testing.assert_allclose(wide[:, :6], narrow, rtol=1e-3, atol=1e-5)


def test_new_documents_against_enumeration():
    """E[theta | words] with the topics' words held, summed over all assignments."""
    alpha, known = 0.7, [0, 1, 1]
    cells = np.array([[8, 1], [3, 5], [1, 6]])  # words by topics
    draw = {
        "topic_counts": jnp.ones((1, 2), jnp.int32),
        "word_cells": jnp.asarray(cells, jnp.int32),
        "word_totals": jnp.asarray(cells.sum(0), jnp.int32),
    }
    network = mf.Network(
        topic=mf.Block(mf.Dirichlet(2, alpha), by="document"),
        word=mf.Block(mf.DirichletMultinomial(3, 0.5), by="topic", observed=True),
    )
    phi = (cells + 0.5) / (cells + 0.5).sum(0)
    total, expected = 0.0, np.zeros(2)
    for assigned in itertools.product(range(2), repeat=3):
        counts = np.bincount(assigned, minlength=2)
        weight = np.prod([phi[w, z] for w, z in zip(known, assigned, strict=True)])
        weight *= np.prod([np.prod(alpha + np.arange(n)) for n in counts])
        total += weight
        expected += weight * (counts + alpha) / (3 + 2 * alpha)
    expected /= total
    num_documents = 3_000
    documents = np.repeat(np.arange(num_documents), 3)
    # a column that the network lacks makes them different: equal ones have the same answer
    columns = {"document": documents, "word": np.tile(known, num_documents), "copy": documents}
    new = mf.Tokens(columns, {"document": num_documents, "word": 3, "copy": num_documents})
    sums = jax.jit(
        lambda draw: fold_in(network, KEY, draw, new, "document", num_sweeps=80)["topic"]
    )
    check_means({"theta": sums(draw)}, {"theta": expected}, title="topics of new documents")
    # a broken twin: words that count as if they were spread evenly
    wrong = draw | {"word_cells": jnp.full((3, 2), 5, jnp.int32)}
    with pytest.raises(AssertionError):
        check_means({"theta": sums(wrong)}, {"theta": expected}, title="a broken twin")


@pytest.mark.slow
def test_new_levels_of_other_columns_are_refused():
    network = mf.Network(topic=mf.Block(mf.Dirichlet(2), by="document"), word=WORD)
    network, draw = a_draw(network, DATA)
    with pytest.raises(ValueError, match="no indicator of the network is partitioned by 'word'"):
        fold_in(network, KEY, draw, DATA, "word")
    alone = mf.Network(
        z=mf.Block(mf.DirichletProcess(1.0), by="document"),
        word=mf.Block(mf.DirichletMultinomial(), by=("document", "z"), observed=True),
    )
    alone, draw = a_draw(alone, DATA)
    with pytest.raises(ValueError, match="have no meaning for new levels"):
        fold_in(alone, KEY, draw, DATA, "document")


def _normal(shape):
    return GENERATOR.normal(size=shape)
