"""Log probability of whole documents, from left to right, against sums over all topics."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf
from jaxmf.blocks import left_to_right
from jaxmf.posterior.left_to_right import _score

NUM_COPIES = 10_000
WORDS = np.array([0, 1, 1, 2, 0])
TRAINING = [["a", "b", "a", "a"], ["b", "b", "c", "b"], ["c", "a", "c", "c"], ["a", "b", "c"]]
RUN = {"num_warmup": 4, "num_samples": 3, "num_chains": 1, "progress": False}
MODELS = {
    "lda": mf.LDA(2, topic_concentration=[0.2, 0.5], word_concentration=0.1),
    "pam": mf.PAM((2, 2), level_concentration=(0.3, [0.2, 0.6]), word_concentration=0.1),
    "hdp": mf.HDPLDA(word_concentration=0.1),
}


@pytest.fixture(scope="module")
def fitted():
    """Posteriors by name, each sampled once and let go with the last test of the file."""
    return functools.cache(_posterior_of)


def _posterior_of(name):
    more = {"split_merge": 0} if name == "hdp" else {}  # draws are asked, however they were made
    return mf.sample(MODELS[name], mf.Tokens.from_lists(TRAINING), **more, **RUN)


def concentrations(name, draw):
    """Of every level of a path of topics, as the model has them."""
    if name == "hdp":
        weights = np.array(draw["topic_weights"])
        weights[np.argmin(weights > 0)] = draw["topic_rest"]  # all new topics as one
        return [draw["topic_concentration"] * weights]
    return {"lda": [np.array([0.2, 0.5])], "pam": [np.full(2, 0.3), np.array([0.2, 0.6])]}[name]


def exact(name, draw, words=WORDS):
    """p(words | draw): a sum over all paths of topics of all words."""
    cells = np.asarray(draw["word_cells"]) + 0.1
    phi = cells / cells.sum(axis=0)
    levels = concentrations(name, draw)
    paths = list(itertools.product(*[np.flatnonzero(prior) for prior in levels]))
    total = 0.0
    for chosen in itertools.product(paths, repeat=len(words)):
        product, before = 1.0, []
        for word, path in zip(words, chosen, strict=True):
            for level, prior in enumerate(levels):
                alike = [p[level] for p in before if p[:level] == path[:level]]
                added = alike.count(path[level]) + prior[path[level]]
                product *= added / (len(alike) + prior.sum())
            product *= phi[word, path[-1]]
            before.append(path)
        total += product
    return total


def off_by(posterior, name, num_particles=2):
    """How many standard errors the mean of many estimates is away from the exact probability."""
    draw = posterior.reference_draw()
    logs = jax.jit(
        lambda draw: left_to_right.log_probability(
            posterior.model.over(posterior.data)[0],
            jax.random.key(1),
            draw,
            jnp.tile(jnp.asarray(WORDS), (NUM_COPIES, 1)),
            jnp.full(NUM_COPIES, WORDS.size),
            documents=jnp.arange(NUM_COPIES),
            num_particles=num_particles,
        )
    )(draw)
    ratios = np.exp(np.asarray(logs, float)) / exact(name, draw)
    return abs(ratios.mean() - 1) / (ratios.std() / np.sqrt(NUM_COPIES))


@pytest.mark.tiers(exhaustive=["lda"])
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_mean_of_estimates_is_the_sum_over_all_topics(name, fitted):
    assert off_by(fitted(name), name) < 4


def test_without_moves_particles_must_be_resampled(monkeypatch, fitted):
    monkeypatch.setattr(left_to_right, "NUM_MOVES", 0)
    assert off_by(fitted("lda"), "lda") < 4
    not_resampled = lambda key, log_weights, num: (jnp.arange(num), None)  # noqa: E731
    monkeypatch.setattr(left_to_right, "systematic", not_resampled)
    assert off_by(fitted("lda"), "lda") > 6


@pytest.mark.tiers(slow=["removes another word"])
@pytest.mark.parametrize(
    ("function", "broken"),
    [
        (
            "_without",
            lambda counts, paths, index: jnp.maximum(
                counts - jax.nn.one_hot(paths[:, 0], 2, dtype=counts.dtype), 0
            ),
        ),
        ("_without", lambda counts, paths, index: counts),
    ],
    ids=["removes another word", "removes no word"],
)
def test_broken_twins_are_noticed(monkeypatch, fitted, function, broken):
    monkeypatch.setattr(left_to_right, function, broken)
    assert off_by(fitted("lda"), "lda") > 6


def test_documents_have_the_mean_over_draws_and_errors(fitted):
    post = fitted("lda")
    lists = [["c"], ["a", "b", "strange"], ["b", "a"]]
    new = mf.Tokens.from_lists(lists, documents=["x", "y", "z"])
    with pytest.raises(ValueError, match="strange"):
        post.document_log_likelihood(new)
    score = post.document_log_likelihood(new, unknown="drop", num_particles=100)
    draws = [{name: x[0, s] for name, x in post.draws.items()} for s in range(3)]
    expected = np.array([[exact("lda", d, w) for w in ([2], [0, 1], [1, 0])] for d in draws])
    np.testing.assert_allclose(np.exp(score.by_draw[:, 0]), expected[:, 0], rtol=1e-5)
    np.testing.assert_allclose(np.exp(score.by_draw), expected, rtol=0.1)
    estimates = np.exp(score.by_draw)
    np.testing.assert_allclose(score.log_likelihood, np.log(estimates.mean(axis=0)), rtol=1e-6)
    relative = estimates.std(axis=0, ddof=1) / np.sqrt(3) / estimates.mean(axis=0)
    np.testing.assert_allclose(score.monte_carlo_error, relative, rtol=1e-5)
    assert score.num_words.tolist() == [1, 2, 2]
    assert score.num_dropped == 1
    assert score.mean == pytest.approx(score.log_likelihood.sum() / 5)
    assert "5 words of 3 documents" in repr(score)
    frame = score.to_pandas().set_index("document")
    assert frame["log_likelihood"].to_dict() == dict(zip("xyz", score.log_likelihood, strict=True))
    labelled = score.to_xarray()
    np.testing.assert_array_equal(labelled["by_draw"].sel(document="y"), score.by_draw[:, 1])


def test_one_draw_that_carries_the_probability_is_named():
    by_draw = np.array([[-10.0, -10.0], [-90.0, -10.1], [-80.0, -9.9]])
    score = _score(np.arange(2), by_draw, np.full(3, 1 / 3), np.array([20, 20]))
    assert score.monte_carlo_error[0] == pytest.approx(1)
    assert score.monte_carlo_error[1] < 0.1
    assert "of 1 a single draw carries most of the probability" in repr(score)
    assert "±" in repr(score)
    alone = repr(_score(np.arange(1), by_draw[:, :1], np.full(3, 1 / 3), np.array([20])))
    assert "±" not in alone  # one document has no spread
    assert "nan" not in alone


def test_models_without_documents_are_refused(fitted):
    post = dataclasses.replace(fitted("lda"), model=mf.BPMF(1))
    with pytest.raises(ValueError, match="BPMF has no probability of a whole document"):
        post.document_log_likelihood([["a"]])
