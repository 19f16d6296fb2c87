"""The alarm of columns that are predicted unequally well though they share their noise."""

import dataclasses

import numpy as np
import pytest

from jaxmf import Posterior
from jaxmf.posterior import leave_one_out, run_alarms
from tests.posterior.test_leave_one_out import factors_given_columns, linear_gaussian, repeated

UNEQUAL = np.array([0.05, 0.1, 0.8, 1.0])


def is_named(columns, errors):
    _, means, p_value = run_alarms.compare_columns(columns, errors)
    is_unequal = means.max() > run_alarms._UNEQUAL_ERRORS * means.min()
    return p_value < run_alarms._FALSE_COLUMNS and bool(is_unequal)


@pytest.mark.parametrize("tails", ["normal", "t"])
def test_columns_alike_are_seldom_named_and_unlike_ones_always(tails):
    """256 errors over four or twenty columns; some rows are predicted worse than others."""
    rng = np.random.default_rng(0)
    num_named = np.zeros(2, int)
    for index in range(1_000):
        columns = rng.integers(0, (4, 20)[index % 2], 256)
        residuals = rng.normal(size=256) if tails == "normal" else rng.standard_t(3, 256)
        residuals *= rng.choice([1.0, 1.5], 256)
        spread = UNEQUAL[columns % 4]
        num_named += is_named(columns, residuals**2), is_named(columns, (spread * residuals) ** 2)
    assert num_named[0] <= 10
    assert num_named[1] == 1_000


def test_few_errors_and_one_column_say_nothing():
    assert run_alarms.compare_columns(np.arange(40), np.arange(40.0))[2] == 1
    assert run_alarms.compare_columns(np.zeros(40, int), np.arange(40.0))[2] == 1


def features(rng, noise):
    """Cells of features at N(0, 1), and draws that know which rows have them."""
    z = rng.random((40, 3)) < 0.5
    return linear_gaussian(z @ rng.normal(size=(3, 8)) + noise * rng.normal(size=(40, 8)), z)


def sentences(post):
    return [alarm.sentence for alarm in run_alarms.unequal_errors(post)]


def test_at_most_two_of_a_hundred_calibrated_runs_are_said_to_have_unequal_noise():
    rng = np.random.default_rng(8)
    runs = [features(rng, np.full(8, 0.5)) for _ in range(50)]
    runs += [factors_given_columns(rng, scale=0.5, num_rows=40) for _ in range(50)]
    assert np.mean([leave_one_out.compare(run) is not None for run in runs]) > 0.7
    assert np.mean([bool(sentences(run)) for run in runs]) <= 0.02


def test_columns_of_unequal_noise_are_named_with_what_to_turn():
    rng = np.random.default_rng(9)
    for _ in range(5):
        run = features(rng, np.repeat(UNEQUAL, 2))
        (sentence,) = sentences(run)
        assert "Try column_noise=True" in sentence
        assert sentence in " ".join(str(run).split())
    model = dataclasses.replace(run.model, column_noise=True)
    draws = run.draws | repeated(noise_factors=np.ones(8), noise_spread=0.5)
    assert not sentences(Posterior(model, run.data, draws, run.meta))
