"""The concentration of words of a vocabulary that was collected from the documents."""

from fractions import Fraction
from functools import partial
from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import gammaln
from scipy.stats import kstest

import jaxmf as mf
from jaxmf.priors.hyper import initial_value
from jaxmf.priors.occurring import log_all_occur
from jaxmf.samplers.hyper import update_scale
from jaxmf.settings.json_form import decode, encode
from jaxmf.testing import SUITE_FALSE_ALARM_RATE


def _all_occur(a: Fraction, num_words: int, num_tokens: int) -> float:
    """P(V words of a Dirichlet-multinomial all occur), by inclusion and exclusion."""
    total = Fraction(0)
    for missing in range(num_words):
        none_of_them = Fraction(1)
        for i in range(num_tokens):
            none_of_them *= (a * (num_words - missing) + i) / (a * num_words + i)
        total += (-1) ** missing * comb(num_words, missing) * none_of_them
    return float(total)


@pytest.mark.parametrize("a", [Fraction(1, 100), Fraction(1, 5), Fraction(1), Fraction(30)])
@pytest.mark.parametrize("sizes", [(30, 60), (20, 22), (20, 20), (5, 200), (2, 3), (1, 4)])
def test_probability_that_all_words_occur(a, sizes):
    found = float(log_all_occur(np.array(float(a)), *sizes))
    assert found == pytest.approx(np.log(_all_occur(a, *sizes)), rel=0, abs=0.1)


def test_density_and_draws():
    prior = mf.OccurringWords(num_words=20, num_tokens=400, num_topics=1)
    points = np.exp(np.linspace(np.log(0.01), np.log(30), 20_000))
    density = np.exp(np.asarray(prior.log_prob(jnp.asarray(points)), float))
    masses = np.diff(points) * (density[1:] + density[:-1]) / 2
    assert masses.sum() == pytest.approx(1, abs=2e-3)
    draws = np.asarray(prior.sample(jax.random.key(0), (2_000,)), float)
    assert np.all(prior.support(draws))
    assert not prior.support(-1.0)
    distribution = np.concatenate([[0], np.cumsum(masses)]) / masses.sum()
    test = kstest(draws, lambda x: np.interp(x, points, distribution))
    assert test.pvalue > SUITE_FALSE_ALARM_RATE


def test_words_that_occur_once_are_no_evidence_for_words_that_are_alike():
    # one topic, 600 words of a text of which most occur once
    words = np.unique(np.random.default_rng(0).zipf(1.6, size=600) % 5_000, return_inverse=True)[1]
    counts = np.bincount(words)
    prior = mf.OccurringWords(len(counts), 600, 1)

    def log_likelihood(b):
        log_rising = jnp.sum(gammaln(counts + b) - gammaln(b))
        return log_rising + gammaln(len(counts) * b) - gammaln(len(counts) * b + 600)

    def step(value, key):
        value = update_scale(key, prior, value, log_likelihood)
        return value, value

    keys = jax.random.split(jax.random.key(0), 600)
    draws = jax.jit(partial(jax.lax.scan, step))(initial_value(prior), keys)[1]
    found = np.log(np.asarray(draws, float))[100:]
    points = np.linspace(np.log(0.01), np.log(30), 4_000)
    likelihood = np.asarray(jax.vmap(log_likelihood)(jnp.exp(jnp.asarray(points))), float)

    def mean_and_sd(log_prior):
        weights = likelihood + points + log_prior
        weights = np.exp(weights - weights.max())
        mean = np.average(points, weights=weights)
        return mean, np.sqrt(np.average((points - mean) ** 2, weights=weights))

    mean, sd = mean_and_sd(np.asarray(prior.log_prob(jnp.exp(jnp.asarray(points))), float))
    assert abs(found.mean() - mean) < 0.4 * sd
    # without the condition
    others, _ = mean_and_sd(-10 * np.exp(points))
    assert abs(found.mean() - others) > 2 * sd
    assert np.exp(mean) < 0.1 < np.exp(others)


def test_the_prior_is_for_short_documents_whose_words_are_the_vocabulary():
    counts = [[1, 2, 0], [1, 0, 0]]
    model = mf.LDA(2).matched(mf.Tokens.from_counts(counts))
    assert type(model.word_concentration).__name__ == "Gamma"
    assert model.matched(mf.Tokens.from_counts([[1, 1], [0, 1]])) is model
    # long, also beside documents without words; none of the words once
    for other in ([[6, 1, 0], [0, 0, 1]], [[6, 1, 0], [0, 0, 1], [0] * 3], [[1, 1], [1, 1]]):
        found = mf.LDA(2).matched(mf.Tokens.from_counts(other))
        assert type(found.word_concentration).__name__ == "Gamma"
    learned = mf.LDA(2).matched(mf.Tokens.from_counts([[2, 1, 0], [0, 0, 1]]))
    assert learned.word_concentration == mf.OccurringWords(3, 4, 2)
    assert decode(encode(learned.word_concentration)) == learned.word_concentration


def test_refusals():
    with pytest.raises(ValueError, match="num_tokens: 5 words cannot all occur among 4 tokens"):
        mf.OccurringWords(num_words=5, num_tokens=4, num_topics=1)
