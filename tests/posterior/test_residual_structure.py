"""The alarm about structure that features leave in the residuals, and the move that finds it."""

import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf
from jaxmf.posterior.residual_structure import left_in_residuals, ratio_to_noise
from jaxmf.results import Posterior
from tests.posterior.test_alarms import kinds, posterior


def wide_table(seed=0, *, num_rows=60, num_columns=200):
    """A table far from zero of two strong features and a weak one of every other row."""
    rng = np.random.default_rng(seed)
    z = np.column_stack([rng.random((num_rows, 2)) < 0.4, np.arange(num_rows) % 2 == 1])
    loadings = rng.normal(size=(3, num_columns)) * [[1.2], [1.2], [0.4]]
    noise = 0.4 * rng.normal(size=(num_rows, num_columns))
    return rng.normal(8, 1, num_columns) + z @ loadings + noise, z


def alarm_of(values, z, **draws) -> list[str]:
    num_draws = 20
    post: Posterior = posterior(
        data=values,
        z=np.broadcast_to(z, (2, num_draws, *z.shape)),
        log_joint=np.zeros((2, num_draws)),
        noise_scale=np.full((2, num_draws), 0.4),
        **draws,
    )
    return [alarm.sentence for alarm in post.alarms() if alarm.kind == "residuals"]


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_a_feature_of_many_rows_that_was_not_found_raises_an_alarm(missing):
    values, z = wide_table()
    values[np.random.default_rng(1).random(values.shape) < missing] = np.nan
    (sentence,) = alarm_of(values, z[:, :2])
    assert "shared_births=1 or split_merge=5 or num_warmup=1000" in sentence
    assert not alarm_of(values, z)


def test_columns_of_unequal_noise_and_far_cells_raise_none():
    values, z = wide_table(2)
    values = values * np.geomspace(1e-3, 1e3, values.shape[1])
    values[3, 5] *= 100
    assert not alarm_of(values, z)


def test_columns_without_noise_raise_none():
    values, z = wide_table(4, num_columns=12)
    loadings = np.random.default_rng(5).normal(size=(3, 5))
    values[:, :6], values[:, 6:11] = 7.3, z @ loadings
    assert ratio_to_noise(values.astype(np.float32), z, None) < 1.25
    assert ratio_to_noise(values, z, None) < 1.25


def test_features_that_need_not_add_up_and_filters():
    values, z = wide_table()
    model = mf.FeatureModel(lambda x, z, y: x.sum(), dist.Normal(0, 1).expand([3]).to_event(1))
    draws = {"z": np.tile(z[:, :2], (2, 1, 1, 1)), "noise_scale": np.full((2, 1), 0.4)}
    draws["log_joint"] = np.zeros((2, 1))
    assert not [*left_in_residuals(posterior(model, values, **draws))]
    (alarm,) = left_in_residuals(posterior(None, values, method="smc", **draws))
    assert alarm.sentence.endswith("Try mf.sample")


def test_few_rows_for_many_features_raise_none():
    values, _ = wide_table(num_rows=10)
    assert not alarm_of(values, np.tril(np.ones((10, 4), bool)))


def test_less_than_two_in_a_hundred_alarms_are_false():
    rng = np.random.default_rng(3)
    num_false = 0
    for _ in range(300):
        num_rows, num_columns = rng.integers(12, 80, 2)
        z = rng.random((num_rows, 3)) < 0.4
        noise = rng.standard_t(rng.choice([3, 30]), (num_rows, num_columns))
        values = z @ rng.normal(size=(3, num_columns)) + noise * 10 ** rng.uniform(-1, 1)
        num_false += ratio_to_noise(values, z, rng.random(values.shape) < 0.9) > 1.25
    assert num_false <= 6


@pytest.mark.exhaustive
@pytest.mark.usefixtures("long_runs")
def test_births_find_a_feature_that_no_row_alone_would_begin():
    values, z = wide_table()
    settings = {"num_warmup": 200, "num_samples": 50, "num_chains": 2, "progress": False}
    plain, born = (
        mf.sample(mf.LinearGaussianIBP(), values, shared_births=births, **settings)
        for births in (0, 1)
    )
    assert "residuals" in kinds(plain)
    assert "residuals" not in kinds(born)
    assert born.draws["log_joint"][:, -1].min() > plain.draws["log_joint"].max() + 100
    found = born.reference_draw()["z"]
    agreement = np.abs((found[:, found.any(axis=0)] == z[:, 2:]).mean(axis=0) - 0.5).max()
    assert agreement > 0.45  # or its complement


def test_counts_whose_dispersion_stands_for_a_feature_are_said_and_others_are_not():
    """By groups of rows on a logarithmic scale: the mean of counts adds up, and so their noise."""
    model, num_false = mf.FeatureModel(likelihood=mf.NegativeBinomial()), 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        z = rng.random((60, 2)) < 0.4
        loadings = rng.gamma(3.0, 3.0, (2, 30)) * (rng.random((2, 30)) < 0.4)
        dispersion = (0.1, 0.5, 2.0)[seed % 3]
        rates = (0.15 + z @ loadings) * rng.gamma(1 / dispersion, dispersion, (60, 30))
        counts = rng.poisson(rates).astype(np.float32)
        counts[rng.random(counts.shape) < 0.05] = np.nan
        found = [
            [str(alarm) for alarm in left_in_residuals(posterior(model, counts, **draws))]
            for some in (z, z[:, :1])
            for draws in [{"z": some[None, None], "dispersion": np.full((1, 1), dispersion)}]
        ]
        num_false += bool(found[0])
        if dispersion < 2:
            assert "the dispersion stands for it. See what mf.Poisson() finds" in found[1][0]
    assert num_false <= 1
