"""Flexible priors in networks: sweeps, unobserved items, empty tables, learning from data."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxmf as mf
from jaxmf.blocks import learning, unobserved
from jaxmf.blocks.franchise import topics_of_new_documents as franchise_topics
from jaxmf.data import Tokens
from jaxmf.priors.flexible_weights import Representatives
from jaxmf.testing import check_means, enumerate_partitions
from tests import FAST_COMPILE
from tests.blocks.test_network_sets import BASE, check, franchise
from tests.support import network_oracles as oracles
from tests.support.network_checks import check_topics_of_six, words

generator = np.random.default_rng(3)
WEIGHTS = np.array([0.0, 0.8, 1.5, 1.2, 2.5, 3.0, 4.0])
VALUES = [0, 0, 1, 1, 2]
DATA = Tokens({"all": [0] * 5, "word": VALUES}, {"all": 1, "word": 3})
PAIRS = np.triu_indices(5, 1)


def posterior(prior, num_items):
    """Of five words and as many further items as are left: their pairs and the counts of groups."""
    partitions = enumerate_partitions(num_items)
    logs = []
    for labels in partitions:
        total = prior.log_probability(labels, normalised=False)
        for group in set(labels[:5].tolist()):
            held = [value for value, at in zip(VALUES, labels, strict=False) if at == group]
            total += oracles.log_of_sequence(held, [0.5] * 3)
        logs.append(total)
    probability = np.exp(np.array(logs) - np.logaddexp.reduce(logs))
    seen = partitions[:, :5]
    same = (seen[:, :, None] == seen[:, None])[:, *PAIRS]
    sizes = (partitions[:, :, None] == np.arange(num_items)).sum(1)
    counts = (sizes[:, :, None] == np.arange(1, num_items + 1)).sum(1)
    return {"pairs": probability @ same, "counts": probability @ counts[:, :4]}


def check_posterior(prior, num_items, num_chains=8_000):
    """Chains that start from the exact prior by the recursion are not needed: sweeps are short."""
    network = mf.Network(group=mf.Block(prior), word=words("group"))
    sampler = network.sampler(capacity=num_items + 1)
    sizes = jnp.arange(1, num_items + 1)

    def run(key):
        def step(index, state):
            return sampler.step(jax.random.fold_in(key, index), state, DATA, jnp.ones(()))[0]

        state = jax.lax.fori_loop(0, 25, step, sampler.init(key, DATA))
        labels = state.values["group"]
        totals = jnp.sum(labels[:, None] == jnp.arange(num_items + 1), axis=0)
        totals += state.hyperparameters["group"].get("unobserved", jnp.zeros((1, 1), jnp.int32))[0]
        return {
            "pairs": (labels[:, None] == labels)[PAIRS].astype(float),
            "counts": jnp.sum(totals[:, None] == sizes[:4], axis=0).astype(float),
        }

    keys = jax.random.split(jax.random.key(5), num_chains)
    found = jax.jit(jax.vmap(run), compiler_options=FAST_COMPILE)(keys)
    expected = posterior(prior, num_items)
    check_means(found, expected, title="mixture", max_standard_error=0.02)


@pytest.mark.exhaustive
def test_unobserved_items_are_summed_out():
    check_posterior(mf.FlexiblePrior(WEIGHTS, num_unobserved=2), 7)


@pytest.mark.exhaustive
def test_features_in_a_sweep():
    check_posterior(mf.FlexiblePrior.pitman_yor(-0.2, 0.5, num_items=5), 5)


@pytest.mark.exhaustive
def test_unobserved_items_that_stay_where_they_are_are_caught(monkeypatch):
    monkeypatch.setattr(
        "jaxmf.blocks.chain.sweep_unobserved",
        lambda network, key, state, data: (state, learning.Info(overflow={})),
    )
    # their start is drawn given the data, so that what is left to see is small
    with pytest.raises(AssertionError, match="FAILED"):
        check_posterior(mf.FlexiblePrior(WEIGHTS, num_unobserved=2), 7, num_chains=64_000)


# --- tables and their representatives -------------------------------------------------------------

TABLES = mf.FlexiblePrior(generator.normal(size=8), num_unobserved=[1, 0, 2])
# groups of five are by far the likeliest: the distribution of fewer items is another one
DISHES = mf.FlexiblePrior([0.0, -2.0, -2.0, 0.0, 5.0, 2.0, 1.0, 0.0, 0.0, 0.0])


@pytest.mark.slow
def test_a_step_leaves_the_joint_distribution_as_it_is():
    check("HFP", franchise(TABLES, DISHES))


@pytest.mark.slow
def test_new_tables_with_the_weights_of_one_more_are_caught(monkeypatch):
    """A representative's dish is known; the weights of a further item are another distribution."""

    def even(self, seating, batch):
        in_use = (seating.counts + seating.unobserved)[batch] > 0
        return jnp.where(in_use, 1.0, 0.0), jnp.ones((), bool)

    monkeypatch.setattr(Representatives, "weights", even)
    with pytest.raises(AssertionError, match="FAILED"):
        check("HFP", franchise(TABLES, DISHES))


@pytest.mark.exhaustive
def test_documents_in_groups_of_flexible_sizes():
    blocks = {"dish": mf.Block(mf.FlexiblePrior(WEIGHTS), per="document"), "word": words("dish")}
    check("documents", blocks)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_with_the_weights_of_processes_it_is_the_hdp():
    """Dishes of six tokens against those of the HDP, weights and tables summed out."""
    direct = mf.Network(topic=mf.Block(mf.HDP(1.2, 0.7), by="document"), word=words("topic"))
    tables = mf.FlexiblePrior.dirichlet_process(1.2, num_items=6)
    dishes = mf.FlexiblePrior.dirichlet_process(0.7, num_items=6)
    network = mf.Network(**franchise(tables, dishes))
    check_topics_of_six("HFP", network, "dish", direct=direct)


@pytest.mark.exhaustive
def test_representatives_are_as_many_as_words():
    network = mf.Network(**franchise(TABLES, DISHES))
    assert unobserved.holders(network) == ("table", "dish")
    state, tokens = jax.jit(network.simulate, compiler_options=FAST_COMPILE)(
        jax.random.key(2), BASE
    )
    for name, count in (("table", 3), ("dish", 10)):
        counts = learning.statistics_of_block(
            network, name, network.parts(name, network.sizes(tokens, {"table": 16, "dish": 16})),
            state, tokens,
        )  # fmt: skip
        hidden = np.asarray(state.hyperparameters[name]["unobserved"])
        if name == "dish":
            assert counts.sum() + hidden.sum() == count
            assert 0 < counts.sum() <= 7
        else:
            np.testing.assert_array_equal(hidden.sum(1), [1, 0, 2])


# --- new documents --------------------------------------------------------------------------------

NEW_WORDS = [0, 1, 1]
NEW_TABLES = mf.FlexiblePrior([0.0, 2.0, -1.0, 3.0])


def topic_of_one_more(phi, weights, partitions):
    """By the sum over partitions of the words and one more into tables, and over their topics."""
    total, expected = 0.0, np.zeros(len(weights))
    for groups, one_more in partitions:
        of_tables = np.tile(weights, (5, 1))
        for word, group in zip(NEW_WORDS, groups, strict=False):
            of_tables[group] *= phi[word]
        sums = of_tables.sum(axis=1)
        weight = np.prod(sums[np.unique(groups)])
        weight *= np.exp(NEW_TABLES.log_probability(groups, normalised=False))
        total += weight
        expected += weight * one_more(groups) @ (of_tables / sums[:, None])
    return expected / total


def one_more_by_size(groups):
    """Its table given those of the words: eq 7.5."""
    sizes = np.bincount(groups, minlength=5)
    steps = np.exp(np.diff(NEW_TABLES.log_weights, prepend=0.0))
    weights = np.where(sizes > 0, steps[np.minimum(sizes, 3)], 0)
    weights[max(groups) + 1] = steps[0]
    return weights / weights.sum()


@pytest.mark.exhaustive
def test_topics_of_new_documents_are_the_sum_over_tables_and_their_topics():
    cells = np.array([[5, 1, 0], [1, 6, 0], [2, 2, 0]])  # the last topic is one that has no table
    draw = {
        "topic_counts": jnp.asarray([3, 1, 0], jnp.int32),
        "word_cells": jnp.asarray(cells, jnp.int32),
        "word_totals": jnp.asarray(cells.sum(0), jnp.int32),
    }
    model = mf.HFP(NEW_TABLES, mf.DirichletProcess(0.7), 0.5)
    phi, weights = (cells + 0.5) / (cells + 0.5).sum(0), np.array([3, 1, 0.7]) / 4.7
    expected = topic_of_one_more(
        phi, weights, [(groups, lambda g: np.eye(5)[g[3]]) for groups in enumerate_partitions(4)]
    )
    num_documents = 2_000
    documents = np.repeat(np.arange(num_documents), 3)
    columns = {"document": documents, "word": np.tile(NEW_WORDS, num_documents), "copy": documents}
    # one document without words, which has the topics of a further table
    new = Tokens(columns, {"document": num_documents + 1, "word": 3, "copy": num_documents})
    shares = np.asarray(
        jax.jit(lambda: franchise_topics(model.over(new)[0], jax.random.key(0), draw, new))()
    )
    np.testing.assert_allclose(shares[-1], weights, rtol=1e-5)
    found = {"topic": shares[:-1]}
    check_means(found, {"topic": expected}, title="topics of new documents")
    # broken twins: tables of the words alone, and topics of tables that are all as likely
    words_alone = topic_of_one_more(
        phi, weights, [(groups, one_more_by_size) for groups in enumerate_partitions(3)]
    )
    even = topic_of_one_more(
        phi, np.full(3, 1 / 3), [(g, lambda g: np.eye(5)[g[3]]) for g in enumerate_partitions(4)]
    )
    for wrong in (words_alone, even):
        with pytest.raises(AssertionError, match="FAILED"):
            check_means(found, {"topic": wrong}, title="a broken twin")


def test_new_documents_with_more_words_than_the_prior_covers_are_refused():
    model = mf.HFP(NEW_TABLES, mf.DirichletProcess(1.0), 0.5)
    model.check_documents(Tokens.from_lists([["a"] * 3], documents=["short"]), "rows")
    new = Tokens.from_lists([["a"], ["a"] * 4], documents=["short", "long"])
    refused = "rows: the document 'long' has 4 words, .* covers 4, where its words and one more"
    with pytest.raises(ValueError, match=refused):
        model.check_documents(new, "rows")


# --- learning -------------------------------------------------------------------------------------


def form(parameters):
    return mf.FlexiblePrior.parametric(parameters["a"], parameters["b"], 0.5, num_items=7)


def check_gradient(num_prior_sweeps, *, scale=1.0):
    """Chains of the prior from the posterior, long enough to forget it, against E_post - E_prior.

    With phi = sum m_i and sum m_i log Gamma(i + c), the derivatives by a and b.
    """
    parameters = {"a": jnp.asarray(0.4), "b": jnp.asarray(0.7)}
    prior = form(parameters)
    network = mf.Network(group=mf.Block(prior), word=words("group"))
    sampler = network.sampler(capacity=6)

    def run(key):
        def step(index, state):
            step_key = jax.random.fold_in(key, index)
            return sampler.step(step_key, state, DATA, jnp.ones(()))[0]

        def forget(index, state):
            step_key = jax.random.fold_in(key, 100 + index)
            return learning.sweep_prior(network, "group", step_key, state, DATA)[0]

        state = jax.lax.fori_loop(0, 20, step, sampler.init(key, DATA))
        after = jax.lax.fori_loop(0, num_prior_sweeps, forget, state)
        pair = state, after
        return learning.contrast(form, parameters, network, "group", pair, DATA)

    keys = jax.random.split(jax.random.key(7), 6_000)
    found = jax.jit(jax.vmap(run), compiler_options=FAST_COMPILE)(keys)
    apart = np.zeros(5)
    apart[:4] = posterior(prior, 5)["counts"]
    apart[4] = (5 - apart[:4] @ np.arange(1, 5)) / 5
    apart -= prior.expected_counts(5)
    phi = {"a": np.ones(5), "b": [float(jax.scipy.special.gammaln(i + 0.5)) for i in range(1, 6)]}
    expected = {name: scale * apart @ np.array(leaf) for name, leaf in phi.items()}
    check_means(found, expected, title="contrastive divergence", max_standard_error=0.03)


@pytest.mark.slow
def test_the_gradient_of_contrastive_divergence():
    check_gradient(20)


@pytest.mark.slow
def test_a_gradient_of_the_other_sign_is_caught():
    with pytest.raises(AssertionError, match="FAILED"):
        check_gradient(20, scale=-1.0)


@pytest.mark.exhaustive
def test_sizes_are_learned_from_data():
    """Forty pairs of numbers far apart: the prior must come to prefer pairs."""
    values = np.repeat(20.0 * np.arange(40), 2) + np.tile([0.0, 0.5], 40)
    family = mf.NormalInverseGamma(400.0, 1e-6, 3.0, 1.0)
    start = mf.FlexiblePrior.dirichlet_process(1.0, num_items=80)
    found = mf.contrastive_divergence(
        mf.FlexibleMixture(start, family), mf.Dense.from_array(values[:, None]), "group",
        form=lambda weights: mf.FlexiblePrior(jnp.pad(weights, (0, 76), mode="edge")),
        parameters=np.zeros(4), optimizer=optax.adam(0.2), num_steps=50,
    )  # fmt: skip
    weights = np.asarray(found.parameters)
    # up to a line: pairs beside singles and groups of four
    assert weights[1] - (weights[0] + weights[2]) / 2 > 1
    counts = np.bincount(np.bincount(np.asarray(found.state.values["group"])), minlength=3)
    assert counts[2] >= 36


# --- what is refused ------------------------------------------------------------------------------


def learned(form=lambda _: mf.FlexiblePrior(np.zeros(3)), num_steps=1):
    return mf.contrastive_divergence(
        mf.FlexibleMixture(mf.FlexiblePrior(np.zeros(3))), mf.Dense.from_array(np.eye(3)[:, :1]),
        "group", form=form, parameters={}, optimizer=optax.sgd(1.0), num_steps=num_steps,
    )  # fmt: skip


WITH_WORDS = Tokens({**BASE.columns, "word": [0] * 7}, {**BASE.sizes, "word": 3})


@pytest.mark.parametrize(
    ("make", "words_of_error"),
    [
        (
            lambda: mf.sample(
                mf.FlexibleMixture(mf.FlexiblePrior([0.0, 1.0])), np.zeros((3, 2)), num_samples=1
            ),
            "covers groups of 1 to 2 items, and a batch has 3",
        ),
        (
            lambda: (
                mf.Network(**franchise(TABLES, mf.FlexiblePrior(np.zeros(9)))).check_data(
                    WITH_WORDS, "data"
                )
            ),
            "dish: log_weights covers groups of 1 to 9 items, and a batch has 10",
        ),
        (
            lambda: mf.Network(
                **franchise(mf.FlexiblePrior(np.zeros(9), num_unobserved=[1, 2]), DISHES)
            ).check_data(WITH_WORDS, "data"),
            "num_unobserved has 2 values, and there are 3",
        ),
        (
            lambda: mf.Network(**franchise(TABLES, mf.FlexiblePrior([0.0], num_unobserved=1))),
            "empty tables have representatives",
        ),
        (
            lambda: mf.FlexibleMixture(mf.FlexiblePrior([0.0])).sampler(sweep="parallel"),
            "a FlexiblePrior has no probabilities of groups",
        ),
        (
            lambda: mf.contrastive_divergence(
                mf.LDA(2), WITH_WORDS, "topic", form=form, parameters={}, optimizer=optax.sgd(1.0),
                num_steps=1,
            ),
            "'topic' is no indicator of tokens with a FlexiblePrior; there are none",
        ),
        (lambda: learned(num_steps=0), "num_steps must be at least 1"),
        (lambda: learned(lambda _: mf.FlexiblePrior([0.0, 1.0])), "a batch has 3"),
        (
            lambda: learned(lambda _: mf.FlexiblePrior(np.zeros(4), num_unobserved=1)),
            "has num_unobserved=1, and 'group' of the model None",
        ),
        (
            lambda: mf.match_moments_by_sampling([1.0, 1.0], num_steps=0),
            "num_steps must be at least 1",
        ),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(make, words_of_error):
    with pytest.raises(ValueError, match=words_of_error):
        make()


def test_held_out_words_of_a_document_that_has_none_are_refused():
    prior = mf.FlexiblePrior(np.zeros(9), num_unobserved=(2, 0, 1))
    model = mf.HFP(prior, mf.DirichletProcess(1.0), 0.5)
    with pytest.raises(ValueError, match="documents: 1 has no words that are held out"):
        model.held_out_probabilities(None, WITH_WORDS, np.array([0, 1]), np.array([0, 0]))


@pytest.mark.exhaustive
def test_tables_weighed_in_rows_are_those_weighed_at_once(monkeypatch):
    """The same draws, and no table is copied for a token."""
    generator = np.random.default_rng(3)
    columns = {"document": np.sort(generator.integers(0, 6, 120)), "word": np.arange(120) % 7}
    tokens = Tokens(columns, {"document": 6, "word": 7})
    prior = mf.FlexiblePrior.dirichlet_process(9.0, num_items=40)
    sampler = mf.HFP(prior, mf.DirichletProcess(3.0), 0.5).network().at(tokens).sampler(capacity=24)
    state = jax.jit(sampler.init, compiler_options=FAST_COMPILE)(jax.random.key(0), tokens)

    def stepped():
        step = jax.jit(lambda key, state: sampler.step(key, state, tokens, jnp.ones(()))[0])
        compiled = step.lower(jax.random.key(1), state).compile(FAST_COMPILE)
        return compiled(jax.random.key(1), state), compiled.as_text()

    by_rows, text = stepped()
    inside = [line for line in text.splitlines() if "while/body" in line]
    assert not [line for line in inside if re.search(r"32\[\d+,\d+\]\S* copy\(", line)]
    monkeypatch.setattr(mf.FlexiblePrior, "weighs_rows", False)
    at_once, _ = stepped()
    assert int(jnp.max(by_rows.values["table"])) > 8
    jax.tree.map(np.testing.assert_array_equal, by_rows, at_once)
