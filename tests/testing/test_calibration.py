"""Simulation-based calibration: the exact test of uniformity, right samplers, broken twins."""

import dataclasses
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.tree_util import Partial
from scipy import stats

import jaxmf as mf
from jaxmf.engine import Info, algorithm
from jaxmf.testing import calibration
from jaxmf.testing import ranks as uniformity

RUN = {"num_replicates": 200, "num_warmup": 5, "num_samples": 15, "thin": 1}
LONG = {"num_replicates": 80, "num_warmup": 40, "num_samples": 7, "thin": 5}
NOISE = dist.LogNormal(-0.7, 0.4)


@mf.register
@partial(jax.tree_util.register_dataclass, data_fields=["assumed"], meta_fields=[])
@dataclass(frozen=True)
class NoisyColumn(mf.Model):
    """m ~ N(0, 1), x_nd ~ N(m, 1); the sampler takes the noise scale to be `assumed`."""

    assumed: float = 1.0

    data_type = mf.Dense

    def sampler(self):
        return algorithm(
            init=Partial(lambda key, data: jnp.zeros(())),
            step=Partial(_step, self),
            record=Partial(_record),
        )

    def simulate_matrix(self, key, shape, capacity):
        mean_key, noise_key = jax.random.split(key)
        mean = jax.random.normal(mean_key)
        x = mean + jax.random.normal(noise_key, shape)
        return mean, mf.Dense(x), jnp.zeros((), bool)

    def simulate_more(self, key, mean, data):
        return mean, data.with_more(mean + jax.random.normal(key, data.shape)), {}


def _step(model, key, mean, data, progress):
    precision = 1 + data.values.size / model.assumed**2
    noise = jax.random.normal(key) / jnp.sqrt(precision)
    return jnp.sum(data.values) / model.assumed**2 / precision + noise, Info(overflow={})


def _record(key, mean, data):
    log_joint = -0.5 * (mean**2 + jnp.sum((data.values - mean) ** 2))
    return {"mean": mean, "above": (mean > 0).astype(jnp.int32), "log_joint": log_joint}


def linear_gaussian(**settings):
    fixed = {"alpha": 1.0, "noise_scale": NOISE, "feature_scale": 1.0, "offset": 0.0}
    return mf.LinearGaussianIBP(**fixed | settings)


def test_the_p_value_of_uniform_ranks_is_exact():
    """Beside 4,000 sets of uniform ranks: at most as often below a level as it says."""
    rng = np.random.default_rng(0)
    p_values = uniformity.p_values(rng.integers(0, 16, (4_000, 50)), 16)
    for level in (0.01, 0.1, 0.5):
        exact = np.mean(p_values <= level)
        assert exact < level + 4 * np.sqrt(level / 4_000)
    # discrete, and else as large as it can be
    assert np.mean(p_values <= 0.1) > 0.07


def test_the_band_is_left_as_often_as_its_level_says():
    rng = np.random.default_rng(1)
    band = uniformity.band(50, 16, 0.1)
    ranks = rng.integers(0, 16, (4_000, 50))
    lines = np.array([uniformity.counts_below(r, 16) for r in ranks]) / 50 - band.points
    leaves = np.any((lines < band.lower - 1e-9) | (lines > band.upper + 1e-9), axis=1)
    assert 0.06 < leaves.mean() < 0.12


def test_one_rank_has_the_p_value_of_its_tail():
    """A single cutoff is a binomial test."""
    ranks = np.array([[0] * 9 + [1]])
    expected = 2 * stats.binom.sf(8, 10, 0.5)
    assert uniformity.p_values(ranks, 2)[0] == pytest.approx(expected)


def test_ranks_that_are_not_uniform_are_called_so():
    rng = np.random.default_rng(2)
    narrow = np.where(rng.random((1, 200)) < 0.3, rng.choice([0, 31], (1, 200)), 15)
    assert uniformity.p_values(narrow, 32)[0] < 1e-6
    assert uniformity.p_values(rng.integers(0, 28, (1, 400)), 32)[0] < 1e-3


@pytest.mark.parametrize("unit", [1.0, 1e-9])
def test_posteriors_that_are_too_wide_are_seen_in_any_unit(unit):
    rng = np.random.default_rng(3)
    truth = {"noise_scale": unit * rng.gamma(8.0, size=200)}
    draws = {"noise_scale": unit * rng.gamma(1.0, 8.0, size=(200, 31))}
    assert calibration._table("Model", truth, draws, 0.01, 0).failures == ("noise_scale",)


@pytest.fixture(scope="module")
def right():
    return mf.simulation_based_calibration(NoisyColumn(), 3, 2, **RUN)


def test_a_right_sampler_is_calibrated(right):
    assert right.passed, right
    assert right.names == ["log_joint", "above", "mean"]
    assert right.ranks["mean"].shape == (200,)
    assert right.ranks["mean"].max() == 15
    assert right.conclusion == (
        "The sampler of NoisyColumn is calibrated as far as these ranks can tell."
    )
    assert abs(right["mean", "autocorrelation"]) < 0.05


def test_a_picture_shows_every_quantity(right):
    titles = [each.get_title(loc="left") for each in right.plot().axes]
    assert titles == ["log joint", "above", "mean"]


@pytest.mark.parametrize(("assumed", "quantity"), [(0.6, "mean"), (3.0, "log_joint")])
def test_a_sampler_with_another_noise_scale_is_caught(assumed, quantity):
    """Too little noise makes posteriors narrow; too much also shrinks them, seen by the data."""
    table = mf.simulation_based_calibration(NoisyColumn(assumed), 3, 2, **RUN)
    assert quantity in table.failures
    assert not table.passed
    assert (table["mean", "spread"] > 1.3) == (assumed < 1)
    assert "are not uniform. The sampler is wrong, or num_warmup is too short." in table.conclusion
    title = f"{quantity.replace('_', ' ')}: not uniform"
    assert title in [each.get_title(loc="left") for each in table.plot().axes]


@pytest.mark.parametrize(("assumed", "passes"), [(1.0, True), (0.6, False)])
def test_the_posterior_given_data_is_calibrated_and_one_that_is_too_narrow_is_caught(
    assumed, passes
):
    """Data far from what the prior has: their posterior is at 2.5, where the prior has 0.6 %."""
    given = 2.9 + 0.1 * np.arange(6.0).reshape(3, 2)
    table = mf.simulation_based_calibration(NoisyColumn(assumed), data=given, **RUN)
    assert table.passed == passes, table
    assert table.ranks["mean"].shape == (200,)
    if not passes:
        assert table["mean", "spread"] > 1.3


def leaning(algorithm):
    """The broken twin: a step that sees every cell at 0.7 of its distance from zero."""

    def step(key, state, data, progress):
        seen = dataclasses.replace(data, values=0.7 * data.values)
        return algorithm.step(key, state, seen, progress)

    return algorithm._replace(step=Partial(step))


CELLS = np.random.default_rng(0).normal(size=(6, 4)) + 2.0 * np.eye(6, 2).repeat(2, axis=1)
GAPS = np.where(np.eye(6, 4, dtype=bool), np.nan, CELLS)
SEEN = np.nonzero(np.random.default_rng(1).random((6, 5)) < 0.6)
COUNTS = np.random.default_rng(2).integers(0, 4, (4, 5))
CONTINUED = {
    "LinearGaussianIBP": (
        mf.LinearGaussianIBP(alpha=1.0, noise_scale=NOISE, feature_scale=1.0, offset=0.0),
        CELLS,
    ),
    "bias, missing": (
        mf.LinearGaussianIBP(
            alpha=1.0, noise_scale=NOISE, feature_scale=1.0, offset=0.5, bias=True
        ),
        GAPS,
    ),
    "NoisyOrIBP": (
        mf.NoisyOrIBP(alpha=0.7, leak=dist.Beta(1.0, 9.0), efficacy=0.9, cause_probability=0.4),
        (CELLS > 1).astype(float),
    ),
    "FeatureModel": (
        mf.FeatureModel(
            likelihood=mf.Gaussian(NOISE),
            feature_prior=dist.Normal(0.0, 1.0).expand([4]).to_event(1),
        ),
        GAPS,
    ),
    "BPMF": (
        mf.BPMF(2, scale=1.0, offset=0.0),
        mf.Entries(*SEEN, np.linspace(-2.0, 2.0, SEEN[0].size), (6, 5)),
    ),
    "MixtureOfGaussians": (
        mf.MixtureOfGaussians(2, family=mf.NormalInverseGamma(0.0, 0.1, 2.0, 1.0)),
        CELLS[:, :1],
    ),
    "LDA": (mf.LDA(2, 1.0, 1.0), mf.Tokens.from_counts(COUNTS)),
    "HDPLDA": (mf.HDPLDA(), mf.Tokens.from_counts(COUNTS)),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CONTINUED)
def test_samplers_of_models_are_calibrated_given_data(name):
    model, given = CONTINUED[name]
    run = LONG | {"num_replicates": 100, "thin": 10}
    table = mf.simulation_based_calibration(model, data=given, **run)
    assert table.passed, table
    assert "log_joint" in table.names


@pytest.mark.exhaustive
def test_a_linear_gaussian_sampler_that_sees_other_data_is_caught_given_data(monkeypatch):
    right = mf.LinearGaussianIBP.sampler
    monkeypatch.setattr(
        mf.LinearGaussianIBP, "sampler", lambda self, **options: leaning(right(self, **options))
    )
    model, given = CONTINUED["LinearGaussianIBP"]
    table = mf.simulation_based_calibration(model, data=given, **LONG)
    assert "noise_scale" in table.failures, table


@pytest.mark.slow
def test_the_sampler_of_the_linear_gaussian_model_is_calibrated_and_its_twin_caught(monkeypatch):
    """The broken twin believes that the noise is 1.5 times as large."""
    table = mf.simulation_based_calibration(linear_gaussian(), 6, 3, **LONG)
    assert table.passed, table
    assert table.names == ["log_joint", "noise_scale", "num_features"]
    right = mf.LinearGaussianIBP.sampler

    def sampler(self, **options):
        louder = dist.LogNormal(-0.7 + np.log(1.5), 0.4)
        return right(dataclasses.replace(self, noise_scale=louder), **options)

    monkeypatch.setattr(mf.LinearGaussianIBP, "sampler", sampler)
    twin = mf.simulation_based_calibration(linear_gaussian(), 6, 3, **LONG)
    assert "noise_scale" in twin.failures
    assert twin["noise_scale", "mean rank"] < 0.4


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "model",
    [
        mf.NoisyOrIBP(alpha=0.7, leak=dist.Beta(1.0, 9.0), efficacy=0.9, cause_probability=0.4),
        mf.BinaryMF(
            row_prior=mf.BetaBernoulli(1.0, num_features=2),
            column_prior=mf.BetaBernoulli(1.0, num_features=2),
            likelihood=mf.Gaussian(NOISE),
            weight_scale=1.0,
        ),
        mf.BPMF(2, scale=1.0, offset=0.0),
        mf.FeatureModel(
            likelihood=mf.Gaussian(NOISE),
            feature_prior=dist.Normal(0.0, 1.0).expand([4]).to_event(1),
        ),
    ],
    ids=["noisy-OR", "BinaryMF", "BPMF", "FeatureModel"],
)
def test_samplers_of_other_models_are_calibrated(model):
    run = LONG | {"num_replicates": 60, "thin": 10}
    table = mf.simulation_based_calibration(model, 5, 4, **run)
    assert table.passed, table


def test_what_cannot_be_calibrated_is_said():
    for asked, error, says in [
        (("x", 4, 2), TypeError, "model"),
        ((mf.LDA(2), 4, 2), ValueError, "LDA simulates no data of its own, .* pass data=y"),
        ((mf.SparseBinaryMF(), 4, 2), ValueError, "SparseBinaryMF does not have simulate_matrix"),
        ((mf.BPMF(2), 4, 2), ValueError, "BPMF takes the scale and the offset of real cells"),
        ((linear_gaussian(), 0, 2), ValueError, "num_rows"),
        ((linear_gaussian(), 4, 2.5), TypeError, "num_columns"),
    ]:
        with pytest.raises(error, match=says):
            mf.simulation_based_calibration(*asked)
    cells = np.eye(4)
    for model, given, says in [
        (mf.BinaryMF(), cells, "BinaryMF does not have simulate_more"),
        (mf.BPMF(2), cells, "BPMF takes the scale and the offset of real cells"),
        (mf.MixtureOfGaussians(2), cells, "takes the family of its groups from the data"),
    ]:
        with pytest.raises(ValueError, match=says):
            mf.simulation_based_calibration(model, data=given, **RUN)
    with pytest.raises(ValueError, match="with data=y they are those of the data"):
        mf.simulation_based_calibration(linear_gaussian(), 4, 2, data=cells)
    for option, error in [
        ({"num_replicates": 3}, ValueError),
        ({"level": 2.0}, ValueError),
        ({"seed": -1}, ValueError),
        ({"sweeps": 3}, TypeError),
    ]:
        with pytest.raises(error, match=next(iter(option))):
            mf.simulation_based_calibration(linear_gaussian(), 4, 2, **option)
