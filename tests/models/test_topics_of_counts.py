"""How many topics an HDP finds in plain counts of a few factors."""

import numpy as np
import pytest

import jaxmf as mf


def num_topics(model):
    """Topics over 1 % of the counts, the mean over draws, of 100 x 80 counts of four factors."""
    random = np.random.default_rng(1)
    rate = random.gamma(0.5, 1, (100, 4)) @ random.gamma(0.5, 1, (4, 80))
    counts = random.poisson(2 * rate / rate.mean())
    run = {"num_warmup": 300, "num_samples": 20, "thin": 10, "num_chains": 1, "progress": False}
    sizes = np.asarray(mf.sample(model, mf.Tokens.from_counts(counts), **run).draws["word_totals"])
    return np.mean(np.sum(sizes > 0.01 * counts.sum(), axis=-1))


@pytest.mark.exhaustive
@pytest.mark.usefixtures("long_runs")
@pytest.mark.filterwarnings("ignore::jaxmf.RunWarning")
def test_plain_counts_of_four_factors_have_few_topics_where_the_words_are_learned():
    assert 4 <= num_topics(mf.HDPLDA()) <= 10 < num_topics(mf.HDPLDA(word_concentration=0.01))
