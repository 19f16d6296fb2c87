"""Words and ratings predicted from all others: exact where groups are clear, and their alarm."""

import jax
import numpy as np
import pytest

import jaxmf as mf
from jaxmf.posterior import leave_one_out, left_out_tokens
from jaxmf.posterior.records import Meta
from jaxmf.results import Posterior

NUM_DRAWS = 100


def posterior(model, data, labels, **fixed):
    """A run all of whose draws have these groups of the tokens."""
    network, tokens = model.over(data)
    draw = {}
    for name in network.indicators:
        block = network.blocks[name]
        size = max(block.distribution.num_groups(1), np.size(fixed.get(f"{name}_weights", 0)))
        counts = np.zeros((*(tokens.sizes[by] for by in block.by), size), int)
        np.add.at(counts, (*(np.asarray(tokens.columns[by]) for by in block.by), labels[name]), 1)
        draw[f"{name}_counts"] = counts
    (name,) = network.observed
    values = np.asarray(tokens.columns[name])
    groups = [labels.get(by, tokens.columns.get(by)) for by in network.blocks[name].by]
    sizes = [
        draw[f"{by}_counts"].shape[-1] if by in labels else tokens.sizes[by]
        for by in network.blocks[name].by
    ]
    cells = np.zeros((tokens.sizes[name], *sizes), int)
    np.add.at(cells, (values, *groups), 1)
    draw |= {f"{name}_cells": cells, f"{name}_totals": cells.sum(axis=0), "log_joint": 0.0, **fixed}
    draws = {k: np.broadcast_to(v, (1, NUM_DRAWS, *np.shape(v))) for k, v in draw.items()}
    meta = Meta("sample", 0, {"num_warmup": 9, "num_samples": 9}, {}, {}, "CPU", 1, 1, True, {})
    return Posterior(model, data, draws, meta)


def corpus(words):
    """Documents of equal length."""
    documents = np.repeat(np.arange(len(words)), words.shape[1])
    sizes = {"document": len(words), "word": 20}
    return mf.Tokens({"document": documents, "word": words.ravel()}, sizes)


def test_a_word_of_a_clear_topic_is_left_out_exactly():
    """Two topics without common words: beside counts that were taken anew without the token."""
    rng = np.random.default_rng(0)
    topics = (rng.random((6, 10)) < 0.4).astype(int)
    data = corpus(topics * 10 + rng.integers(0, 10, topics.shape))
    labels, words = topics.ravel(), np.asarray(data.columns["word"])
    documents = np.asarray(data.columns["document"])
    model = mf.LDA(2, topic_concentration=0.3, word_concentration=0.2)
    network, _ = model.over(data)
    draw = posterior(model, data, {"topic": labels}).reference_draw()
    columns = {name: np.asarray(column) for name, column in data.columns.items()}
    found = left_out_tokens.leave_out(network, draw, "word", columns, all_values=False)
    for token in range(0, 60, 7):
        others = np.arange(60) != token
        in_document = others & (documents == documents[token])
        shares = np.bincount(labels[in_document], minlength=2) + 0.3
        exact = 0.0
        for topic in range(2):
            inside = others & (labels == topic)
            density = (np.sum(words[inside] == words[token]) + 0.2) / (inside.sum() + 20 * 0.2)
            exact += shares[topic] / shares.sum() * density
        # the word of a topic that no other token has could be of either
        if np.sum(words[others] == words[token]):
            np.testing.assert_allclose(np.exp(found.log_probability[token]), exact, rtol=0.02)


def test_the_rounds_over_possible_groups_are_those_over_all():
    """Two indicators: the same fixed point as by arrays of all pairs of groups."""
    rng = np.random.default_rng(4)
    rows, columns = (part.ravel() for part in np.indices((8, 6)))
    data = mf.Entries(rows, columns, rng.integers(1, 6, rows.size).astype(float), (8, 6))
    model = mf.BiLDA(3, 4)
    labels = {"user_group": rng.integers(0, 3, 48), "item_group": rng.integers(0, 4, 48)}
    network, tokens = model.over(data)
    draw = posterior(model, data, labels).reference_draw()
    at = {name: np.asarray(column) for name, column in tokens.columns.items()}
    found = left_out_tokens.leave_out(network, draw, "rating", at, all_values=False)
    cells, totals = draw["rating_cells"][at["rating"]].astype(float), draw["rating_totals"]
    users, items = (draw[f"{side}_group_counts"][at[side]] for side in ("user", "item"))
    alphas = [
        float(left_out_tokens.hyperparameters_of(network, draw, f"{side}_group")["concentration"])
        for side in ("user", "item")
    ]
    beta = left_out_tokens.value_concentrations(network, draw, "rating", 5)

    def conditional(chance):
        shares = [chance.sum(axis=2), chance.sum(axis=1)]
        sides = [
            (counts - share + alpha)
            / (counts.sum(axis=1, keepdims=True) - 1 + alpha * share.shape[1])
            for counts, share, alpha in zip((users, items), shares, alphas, strict=True)
        ]
        density = (cells - chance + beta[0]) / (totals - chance + beta.sum())
        return sides[0][:, :, None] * sides[1][:, None] * density

    is_possible = (cells > 0) & (users > 0)[:, :, None] & (items > 0)[:, None]
    weights = is_possible.astype(float)
    for _ in range(9):
        chance = weights / weights.sum(axis=(1, 2), keepdims=True)
        weights = conditional(chance) * is_possible
    expected = np.log(conditional(chance).sum(axis=(1, 2)))
    np.testing.assert_allclose(found.log_probability, expected, rtol=1e-10)


@pytest.mark.parametrize("model", [mf.LDA(30), mf.HDPLDA()], ids=["LDA", "HDP"])
def test_topics_that_predict_words_worse_than_their_frequencies_are_said(model):
    """A topic for each document, of words that have nothing to do with documents."""
    rng = np.random.default_rng(1)
    same, kinds = rng.integers(0, 20, (30, 8)), rng.integers(0, 2, 30)
    fixed = {}
    if isinstance(model, mf.HDPLDA):
        fixed = {"topic_concentration": 1.0, "topic_weights": np.full(30, 1 / 31)}
        fixed["topic_rest"] = 1 / 31
    bad = posterior(model, corpus(same), {"topic": np.repeat(np.arange(30), 8)}, **fixed)
    assert [alarm.kind for alarm in bad.alarms()] == ["prediction"]
    assert "worse than frequencies: 240 tokens" in str(bad)
    clear = corpus(kinds[:, None] * 10 + rng.integers(0, 10, (30, 8)))
    good = posterior(model, clear, {"topic": np.repeat(kinds, 8)}, **fixed)
    assert good.alarms() == ()
    assert good.leave_one_out().excess < -0.3


def test_topics_that_predict_words_no_better_than_their_frequencies_are_said():
    """Two topics at random of words that have nothing to do with documents; and one topic."""
    rng = np.random.default_rng(1)
    data = corpus(rng.integers(0, 20, (30, 8)))
    labels = rng.integers(0, 2, 240)
    (alarm,) = posterior(mf.LDA(2, 5.0, 5.0), data, {"topic": labels}).alarms()
    assert alarm.kind == "no gain"
    assert "predict no better than none: 240 tokens" in alarm.sentence
    one = {"topic_concentration": 1.0, "topic_weights": np.array([0.5, 0]), "topic_rest": 0.5}
    alone = posterior(mf.HDPLDA(), data, {"topic": 0 * labels}, num_topic=1, **one)
    assert [alarm.kind for alarm in alone.alarms()] == ["one group"]
    # one topic is no better than none
    assert not posterior(mf.LDA(1, 5.0, 5.0), data, {"topic": 0 * labels}).alarms()


def test_more_tokens_are_asked_where_few_leave_it_open(monkeypatch):
    rng = np.random.default_rng(4)
    kinds = rng.integers(0, 2, 200)
    from_half = rng.random((200, 12)) < 0.6
    words = np.where(from_half, kinds[:, None], 1 - kinds[:, None]) * 10
    data = corpus(words + rng.integers(0, 10, (200, 12)))
    draws = {"topic": np.repeat(kinds, 12)}
    assert posterior(mf.LDA(2, 5.0, 5.0), data, draws).alarms() == ()
    assert posterior(mf.LDA(2, 5.0, 5.0), data, draws).leave_one_out().model.size == 1_024
    monkeypatch.setattr(leave_one_out, "_MOST_TOKENS", 0)
    (alarm,) = posterior(mf.LDA(2, 5.0, 5.0), data, draws).alarms()
    assert alarm.kind == "no gain"


@pytest.mark.slow
def test_groups_that_predict_ratings_worse_than_row_and_column_means_are_said():
    rng = np.random.default_rng(2)
    rows, columns = (part.ravel() for part in np.indices((20, 12)))
    kinds, others = rng.integers(0, 2, 20), rng.integers(0, 2, 12)
    model = mf.BiLDA(20, 12)

    def run(values, users, items):
        values = np.clip(np.round(values), 1, 5)
        data = mf.Entries(rows, columns, values, (20, 12))
        return posterior(model, data, {"user_group": users[rows], "item_group": items[columns]})

    noise = 0.3 * rng.normal(size=rows.size)
    additive = 3 + rng.normal(size=20)[rows] + rng.normal(size=12)[columns] + noise
    bad = run(additive, np.arange(20), np.arange(12))
    assert [alarm.kind for alarm in bad.alarms()] == ["prediction"]
    assert "row and column means" in str(bad)
    crossed = 3 + 1.5 * (2 * kinds[rows] - 1) * (2 * others[columns] - 1) + noise
    good = run(crossed, kinds, others)
    assert good.alarms() == ()
    assert good.leave_one_out().excess < -1


def test_a_mixture_of_words_without_documents_is_compared():
    network = mf.Network(
        kind=mf.Block(mf.Dirichlet(2)),
        word=mf.Block(mf.DirichletMultinomial(20), by="kind", observed=True),
    )
    words = np.random.default_rng(3).integers(0, 20, (10, 10))
    post = posterior(network, corpus(words), {"kind": np.arange(100) % 2})
    assert post.leave_one_out().unit == "log score of a token"


def test_networks_of_another_form_are_not_compared():
    for model in (mf.PAM((2, 3)), mf.DirichletCompoundMultinomial()):
        assert left_out_tokens.observed_block(model.network()) is None
    for model in (mf.URP(3), mf.BiHDP(), mf.HDPLDA(), mf.LDA(3)):
        assert left_out_tokens.observed_block(model.network()) is not None
    real = mf.BiHDP(family=mf.NormalInverseGamma())
    assert left_out_tokens.observed_block(real.network()) is None


@pytest.mark.exhaustive
def test_at_most_two_of_a_hundred_chains_over_data_of_their_model_raise_the_alarm():
    """Corpora from the prior, their chains from the topics that they were made of."""
    words = np.zeros((12, 15), int)
    model, template = mf.LDA(3, topic_concentration=0.5, word_concentration=0.5), corpus(words)
    sampler = model.sampler()

    def one(key):
        data_key, chain_key = jax.random.split(key)
        state, data = model.simulate_like(data_key, template)

        def step(state, index):
            index_key = jax.random.fold_in(chain_key, index)
            state, _ = sampler.step(index_key, state, data, 1.0)
            return state, sampler.record(index_key, state, data)

        draws = jax.lax.scan(step, state, np.arange(NUM_DRAWS))[1]
        return data.columns["word"], draws

    words, draws = jax.lax.map(one, jax.random.split(jax.random.key(0), 150))
    meta = Meta("sample", 0, {"num_warmup": 9, "num_samples": 9}, {}, {}, "CPU", 1, 1, True, {})
    raised, compared = 0, 0
    for index in range(len(words)):
        chain_draws = {name: np.asarray(values[index])[None] for name, values in draws.items()}
        post = Posterior(model, corpus(np.asarray(words[index]).reshape(12, 15)), chain_draws, meta)
        compared += leave_one_out.compare(post) is not None
        raised += "prediction" in [alarm.kind for alarm in post.alarms()]
    assert compared > 100
    assert raised <= 0.02 * len(words)
