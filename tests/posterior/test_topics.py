"""Posteriors of models of groups of tokens, end to end."""

import dataclasses
import warnings

import numpy as np
import pytest
from numpyro.distributions import Gamma
from scipy import sparse

import jaxmf as mf
from jaxmf.posterior.topics import halves

GENERATOR = np.random.default_rng(7)
WORDS = np.array([f"word{i}" for i in range(12)], dtype=object)


def corpus(num_documents, length=40):
    """Two topics with words of their own; every document is mostly about one of them."""
    about = GENERATOR.random(num_documents) < 0.5
    distribution = np.zeros((2, 12))
    distribution[0, :6], distribution[1, 6:] = 1 / 6, 1 / 6
    shares = np.where(about[:, None], [0.95, 0.05], [0.05, 0.95])
    return np.array([GENERATOR.multinomial(length, p) for p in shares @ distribution]), about


@pytest.fixture(scope="module")
def fitted():
    counts, about = corpus(40)
    data = mf.Tokens.from_counts(sparse.csr_array(counts), vocabulary=WORDS)
    model = mf.LDA(2, topic_concentration=0.2, word_concentration=0.1)
    run = {"num_warmup": 20, "num_samples": 4, "num_chains": 2, "progress": False}
    return mf.sample(model, data, **run), about


def test_top_entries_are_the_words_of_the_topics(fitted):
    post, _ = fitted
    top = post.top_entries("word", n=6)
    found = {frozenset(entries) for entries in top.entries}
    assert found == {frozenset(WORDS[:6]), frozenset(WORDS[6:])}
    assert top.shares[0] >= top.shares[1]
    assert top.shares.sum() == pytest.approx(1)
    np.testing.assert_allclose(top.weights.sum(1), 1, atol=0.05)
    assert list(top.table()) == ["group", "share", "rank", "entry", "weight"]
    assert "word" in repr(top)


def test_top_entries_of_documents_are_shares_of_tokens(fitted):
    post, _ = fitted
    top = post.top_entries("document", n=40)
    np.testing.assert_allclose(np.nansum(top.weights, axis=1), 1, rtol=1e-5)


def test_a_topic_has_no_entries_beyond_the_words_it_has_tokens_of(fitted):
    post, _ = fitted
    top = post.top_entries("word", n=12)
    counts = post.reference_draw()["word_cells"]
    slots = np.argsort(-counts.sum(axis=0), kind="stable")
    for slot, entries in zip(slots, top.lists(), strict=True):
        assert set(entries) == set(WORDS[counts[:, slot] > 0])
    assert (counts == 0).any(), "every topic has every word: the test asks nothing"
    assert sum(map(len, top.lists())) == (counts > 0).sum() == len(top.table()["entry"])
    assert "None" not in repr(top)


def test_new_documents_may_use_other_words_and_fewer(fitted):
    post, _ = fitted
    counts, _ = corpus(5)
    shares = post.transform(mf.Tokens.from_counts(counts, vocabulary=WORDS))
    some = mf.Tokens.from_columns(
        {"document": ["x", "x", "x", "y"], "word": [WORDS[0], WORDS[1], "strange", WORDS[7]]}
    )
    with pytest.raises(
        ValueError, match="new_rows: the word 'strange' at position 2 is not one of"
    ):
        post.transform(some)
    found = post.transform(some, unknown="drop")
    assert found.shape == (2, shares.shape[1])
    assert found.to_pandas().index.tolist() == ["x", "y"]
    assert list(found.table()) == ["document", "topic 0", "topic 1"]
    assert (found[0] > 0.5).argmax() != (found[1] > 0.5).argmax()
    score = post.document_completion(some, unknown="drop")
    assert score.log_likelihood.size == 1


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:new_")
@pytest.mark.parametrize("name", ["LDA", "HDPLDA", "PAM", "HFP"])
def test_a_new_document_of_unknown_words_alone_is_as_among_others(fitted, name):
    post, _ = fitted
    models = {
        "HDPLDA": mf.HDPLDA(),
        "PAM": mf.PAM((2, 2)),
        "HFP": mf.HFP(mf.FlexiblePrior.parametric(-2.0, 1.0, 0.5, num_items=60)),
    }
    if name in models:
        run = {"num_warmup": 2, "num_samples": 2, "num_chains": 1, "progress": False}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", mf.RunWarning)
            plain = {"split_merge": 0} if name == "HDPLDA" else {}  # however draws are made
            post = mf.sample(models[name], post.data, **plain, **run)
    alone = mf.Tokens.from_lists([["strange", "strange"]])
    among = mf.Tokens.from_lists([["strange"], [WORDS[0], WORDS[1]]])
    shares = post.transform(alone, unknown="drop")
    np.testing.assert_allclose(shares.sum(), 1, rtol=1e-5)
    if name == "HDPLDA":  # topics of the data, and a further one
        assert shares.shape[1] == len(post.top_entries("word").groups) + 1
    np.testing.assert_allclose(shares[0], post.transform(among, unknown="drop")[0], atol=1e-6)
    if name == "LDA":
        one, two = (post.recommend(new_rows=new, unknown="drop", n=3) for new in (alone, among))
        np.testing.assert_allclose(one.scores.probability[0], two.scores.probability[0], rtol=1e-5)
        with pytest.raises(ValueError, match="none has a word, so there is nothing to score"):
            post.document_log_likelihood(alone, unknown="drop")
        with pytest.raises(ValueError, match="no document has two tokens"):
            post.document_completion(alone, unknown="drop")


def test_the_topics_of_a_new_document_do_not_depend_on_the_others(fitted):
    post, _ = fitted
    counts = GENERATOR.multinomial(40, np.full(12, 1 / 12), size=5)  # of both topics: unclear
    shares = post.transform(counts)
    np.testing.assert_allclose(post.transform(counts[::-1]), shares[::-1], atol=1e-6)
    with_others = np.concatenate([counts[:2], corpus(3)[0]])
    np.testing.assert_allclose(post.transform(with_others)[:2], shares[:2], atol=1e-6)
    for alone, share in zip(counts[:2, None], shares, strict=False):
        np.testing.assert_allclose(post.transform(alone)[0], share, atol=1e-6)
    # and the seed still matters
    assert not np.allclose(post.transform(counts, seed=1), shares, atol=1e-3)


def test_new_documents_find_their_topic_and_perplexity_is_that_of_six_words(fitted):
    post, _ = fitted
    counts, new_about = corpus(20)
    shares = post.transform(counts)
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-5)
    first = post.top_entries("word", n=1).entries[0, 0] in WORDS[:6]
    assert np.mean((shares[:, 0] > 0.5) == (new_about == first)) == 1
    score = post.document_completion(counts, num_draws=2)
    # six words, and another topic for one word in twenty: exp(entropy) is 7.3
    assert np.exp(-score.mean) == pytest.approx(7.3, abs=0.6)
    assert score.log_likelihood.size == 20 * 20


def test_new_documents_without_any_word_have_the_proportions_of_the_prior(fitted):
    post, _ = fitted
    with pytest.warns(UserWarning, match="new_rows: have no word"):
        shares = post.transform(np.zeros((2, len(WORDS)), int))
    with_others = np.zeros((2, len(WORDS)), int)
    with_others[0, 0] = 3
    expected = post.transform(with_others)[1]
    np.testing.assert_allclose(shares, [expected, expected], atol=1e-6)
    with pytest.raises(ValueError, match="all counts are 0"):
        post.document_completion(np.zeros((2, len(WORDS)), int))


def test_halves_split_every_document(fitted):
    data = mf.Tokens.from_counts(np.array([[3, 2], [1, 0], [2, 2]]))
    known, rest = halves(data, seed=0)
    sizes = [
        np.bincount(np.asarray(part.columns["document"]), minlength=3) for part in (known, rest)
    ]
    np.testing.assert_array_equal(sizes[0], [3, 1, 2])
    np.testing.assert_array_equal(sizes[1], [2, 0, 2])
    with pytest.raises(ValueError, match="no document has two tokens"):
        halves(mf.Tokens.from_counts(np.eye(2, dtype=int)), seed=0)


def test_saved_and_loaded(fitted, tmp_path):
    post, _ = fitted
    again = mf.load(post.save(tmp_path / "run"))
    for name, values in post.draws.items():
        np.testing.assert_array_equal(again.draws[name], values)
    assert again.data.names["word"].tolist() == WORDS.tolist()
    assert (
        again.top_entries("word", 3).entries.tolist()
        == post.top_entries("word", 3).entries.tolist()
    )
    assert again.facts()["data"].startswith("1,600 tokens (document: 40, word: 12)")
    page = again.report(tmp_path / "r.html").read_text()
    assert "<h2>Topics</h2>" in page
    assert f'aria-label="Map of {len(again.topics())} topics; topic 0 has ' in page
    assert "word11" in page


@pytest.mark.slow
def test_pachinko_allocation_has_concentrations_of_each_level(fitted, tmp_path):
    data = fitted[0].data
    learned = Gamma(1.0, 1.0).expand([3])
    model = mf.PAM((2, 3), level_concentration=[[0.1, 0.4], learned])
    run = {"num_warmup": 1, "num_samples": 2, "num_chains": 1, "progress": False}
    post = mf.sample(model, data, **run)
    assert post.draws["level_2_concentration"].shape == (1, 2, 3)
    assert "level_1_concentration" not in post.draws
    assert np.unique(post.draws["level_2_concentration"]).size == 6
    again = mf.load(post.save(tmp_path / "run"))
    first = again.model.network().blocks["level_1"].distribution
    np.testing.assert_allclose(first.concentration, [0.1, 0.4], rtol=1e-6)
    for name, values in post.draws.items():
        np.testing.assert_array_equal(again.draws[name], values)


@pytest.mark.parametrize(
    ("concentrations", "message"),
    [
        ((0.1,), "level_concentration: has 1 entries for 2 levels"),
        ((0.1, [0.2, 0.3]), r"level_concentration\[1\] must be one number or 3 of them"),
        ((0.1, [0.2, -0.3, 0.4]), r"level_concentration\[1\] must be positive .* position 1"),
        ((-0.1, 0.2), r"level_concentration\[0\] must be positive"),
    ],
)
def test_wrong_concentrations_of_a_level_are_named(concentrations, message):
    with pytest.raises(ValueError, match=message):
        mf.PAM((2, 3), level_concentration=concentrations)


@pytest.mark.slow
def test_a_network_says_what_can_be_asked_of_it():
    columns = {"shop": [0, 0, 1, 1], "item": [0, 1, 1, 0]}
    data = mf.Tokens.from_columns(columns, values={"price": [1.0, -1.0, 0.5, 0.0]})
    model = mf.Network(
        kind=mf.Block(mf.Dirichlet(2), by="shop"),
        item=mf.Block(mf.DirichletMultinomial(), by="kind", observed=True),
        price=mf.Block(mf.NormalInverseGamma(), by="kind", observed=True),
    )
    run = {"num_warmup": 1, "num_samples": 2, "num_chains": 1, "progress": False}
    post = mf.sample(model, data, keep="assignments", **run)
    draw = post.reference_draw()
    assert draw["kind_of_tokens"].shape == (4,)
    says = "ask 'item', 'shop'. It has numbers: .* price_location, .* price_number"
    with pytest.raises(ValueError, match=says):
        post.top_entries("price")
    for column in ("item", "shop"):
        assert post.top_entries(column).groups.size
    np.testing.assert_array_equal(
        np.bincount(draw["kind_of_tokens"], minlength=2), draw["price_number"]
    )
    with pytest.raises(ValueError, match=r"see top_entries and group_probabilities$"):
        post.predict()


def test_wrong_questions_are_answered_in_words(fitted):
    post, _ = fitted
    with pytest.raises(ValueError, match="neither an observed block"):
        post.top_entries("author")
    with pytest.raises(ValueError, match="12"):
        post.transform(np.ones((2, 5), int))
    with pytest.raises(ValueError, match="no finite set of values"):
        post.probabilities(([0], [0]))


@pytest.fixture(scope="module")
def rated():
    """Two kinds of users, two kinds of items, and what each thinks of each."""
    users, items = GENERATOR.random(30) < 0.5, GENERATOR.random(20) < 0.5
    liked = np.where(users[:, None] == items, 5.0, 1.0)
    seen = GENERATOR.random((30, 20)) < 0.6
    x = np.where(seen, liked, np.nan)
    names = {
        "row_names": [f"u{i}" for i in range(30)],
        "column_names": [f"i{j}" for j in range(20)],
    }
    data = mf.Entries.from_array(x, **names)
    model = mf.BiLDA(2, 2, user_concentration=0.1, item_concentration=0.1)
    run = {"num_warmup": 150, "num_samples": 4, "num_chains": 1, "progress": False}
    return mf.sample(model, data, **run), liked, seen


def test_ratings_of_unseen_cells(rated):
    post, liked, seen = rated
    prediction = post.predict()
    assert len(prediction) == (~seen).sum()
    error = prediction.mean - liked[~seen]
    assert np.sqrt(np.mean(error**2)) < 1
    distribution = post.probabilities(mf.Positions(prediction.rows, prediction.columns))
    np.testing.assert_allclose(distribution.sum(1), 1, rtol=1e-4)
    values = np.arange(1, 6)
    np.testing.assert_allclose(distribution @ values, prediction.mean, rtol=1e-4)
    spread = np.sqrt(np.sum(distribution * (values - prediction.mean[:, None]) ** 2, axis=1))
    np.testing.assert_allclose(spread, prediction.sd, rtol=1e-3)
    assert set(np.unique(prediction.draws)) <= set(values)
    assert set(np.unique(prediction.quantiles)) <= set(values)
    score = post.held_out_log_likelihood(liked[~seen], ~seen)
    levels = (liked[~seen] - 1).astype(int)
    np.testing.assert_allclose(
        score.log_likelihood, np.log(distribution[np.arange(levels.size), levels]), rtol=1e-4
    )


@pytest.mark.slow
def test_cells_of_new_users(rated):
    post, liked, _ = rated
    half = np.full((2, 20), np.nan)
    half[:, :10] = liked[:2, :10]
    new = mf.Entries.from_array(half, row_names=["ann", "bob"])
    prediction = post.predict(new_rows=new)
    expected = liked[prediction.rows, prediction.columns]
    assert np.sqrt(np.mean((prediction.mean - expected) ** 2)) < 1.2
    found = post.transform(new)
    assert found.shape == (2, 2)
    assert found.to_pandas().index.tolist() == ["ann", "bob"]
    assert "group 1" in repr(found)


def test_recommended_are_the_best_of_what_a_user_has_not_rated(rated):
    post, _, seen = rated
    every = post.predict(mf.Positions(*np.indices(seen.shape).reshape(2, -1)))
    means, sds = every.mean.reshape(seen.shape), every.sd.reshape(seen.shape)
    found = post.recommend(["u7", "u2"], n=3)
    for line, user in enumerate((7, 2)):
        order = np.argsort(-np.where(seen[user], -np.inf, means[user]), kind="stable")[:3]
        np.testing.assert_allclose(found.scores.mean[line], means[user, order], rtol=1e-4)
        np.testing.assert_allclose(
            found.scores.mean[line], means[user, found.columns[line]], rtol=1e-4
        )
        np.testing.assert_allclose(found.scores.sd[line], sds[user, found.columns[line]], rtol=1e-3)
        assert not seen[user, found.columns[line]].any()
        assert list(found.column_names[line]) == [f"i{item}" for item in found.columns[line]]
    assert list(found.table()) == ["row", "rank", "column", "mean", "sd"]
    everything = post.recommend(n=20)
    assert ((everything.columns >= 0).sum(axis=1) == (~seen).sum(axis=1)).all()
    assert np.isnan(everything.scores.mean[everything.columns < 0]).all()
    of_all = post.recommend(mf.Positions([2]), n=20, include_known=True)
    assert (np.sort(of_all.columns[0]) == np.arange(20)).all()


@pytest.mark.exhaustive
def test_recommendations_of_zeros_and_ones_leave_out_the_ones_alone(fitted):
    ones = GENERATOR.random((6, 5)) < 0.5
    data = mf.Entries.from_array(ones.astype(float))
    model = mf.URP(2, family=mf.BetaBinary())
    post = mf.sample(model, data, num_warmup=2, num_samples=2, num_chains=1, progress=False)
    found = post.recommend(n=5, by="probability")
    for user in range(6):
        items = found.columns[user][found.columns[user] >= 0]
        assert set(items) == set(np.flatnonzero(~ones[user]))
    cells = found.table()
    distribution = post.probabilities((cells["row"], cells["column"]))
    np.testing.assert_allclose(cells["mean"], distribution[:, 1], rtol=1e-4)
    plain = dataclasses.replace(fitted[0], model=mf.DirichletCompoundMultinomial())
    with pytest.raises(ValueError, match="DirichletCompoundMultinomial has no recommendations"):
        plain.recommend()


def test_recommendations_that_cannot_be_given_are_refused_in_words(rated):
    post, *_ = rated
    with pytest.raises(ValueError, match="nobody"):
        post.recommend(["nobody"])
    with pytest.raises(ValueError, match="outside 0"):
        post.recommend(mf.Positions([30]))
    with pytest.raises(ValueError, match="n must be at least 1"):
        post.recommend(["u1"], n=0)
    with pytest.raises(ValueError, match="ranks ratings by their mean"):
        post.recommend(["u1"], by="probability")
    with pytest.raises(ValueError, match="by must be one of"):
        post.recommend(["u1"], by="luck")


def test_ratings_outside_the_declared_values():
    data = mf.Entries([0, 1], [0, 1], [3.0, 3.5], (2, 2))
    with pytest.raises(ValueError, match=r"3.5 in row 1, column 1 is not one of the values"):
        mf.sample(mf.BiLDA(2, 2), data, num_samples=1)
    with pytest.raises(ValueError, match="values must be two or more finite numbers that rise"):
        mf.BiLDA(2, 2, values=(2, 1))
    with pytest.raises(TypeError, match="NormalInverseGamma"):
        mf.URP(2, family=mf.GammaPoisson())
