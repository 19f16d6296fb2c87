"""Observed cells predicted from all others: exact answers, and the alarm that stands on them."""

import jax
import numpy as np
import pytest

import jaxmf as mf
from jaxmf.posterior import leave_one_out, pareto, prediction
from jaxmf.posterior.cell_distributions import CELL_DISTRIBUTIONS
from jaxmf.posterior.records import Meta
from jaxmf.results import Posterior
from tests.support.alarms import kinds

RUN = {"num_warmup": 100, "num_samples": 100}
NUM_DRAWS = 100


def posterior(model, data, **draws):
    """Of one chain; draws are (S, ...)."""
    meta = Meta("sample", 0, RUN, {}, {}, "CPU", 1.0, 1.0, True, {})
    return Posterior(model, data, {name: np.asarray(x)[None] for name, x in draws.items()}, meta)


def repeated(**values):
    """The same numbers in every draw."""
    values = {name: np.asarray(x) for name, x in values.items()}
    return {name: np.broadcast_to(x, (NUM_DRAWS, *x.shape)) for name, x in values.items()}


def linear_gaussian(x, z):
    draws = repeated(z=z, noise_scale=0.5, feature_scale=1.0, alpha=1.0)
    model = mf.LinearGaussianIBP(alpha=1.0, noise_scale=0.5, feature_scale=1.0, offset=0.0)
    return posterior(model, mf.Dense.from_array(x.astype(np.float32)), **draws)


def noisy_or(x, z, y):
    draws = repeated(z=z, y=y, leak=0.05, efficacy=0.9, alpha=1.0, cause_probability=0.4)
    return posterior(mf.NoisyOrIBP(), mf.Dense.from_array(x.astype(np.float32)), **draws)


def test_leaving_a_cell_out_by_its_leverage_is_leaving_it_out():
    rng = np.random.default_rng(0)
    z, x, noise = rng.integers(0, 2, (12, 3)).astype(float), rng.normal(size=12), 0.3

    def replicate(rows):
        precision = z[rows].T @ z[rows] / noise + np.eye(3)
        mean = np.linalg.solve(precision, z[rows].T @ x[rows] / noise)
        return z @ mean, noise + np.einsum("nk,kn->n", z, np.linalg.solve(precision, z.T))

    everything = replicate(np.arange(12))
    mean, log_density = leave_one_out.without_cell(
        x, *(part[None] for part in everything), np.array([[noise]])
    )
    for row in range(12):
        left_mean, left_variance = (part[row] for part in replicate(np.delete(np.arange(12), row)))
        exact = -0.5 * (
            np.log(2 * np.pi * left_variance) + (x[row] - left_mean) ** 2 / left_variance
        )
        np.testing.assert_allclose(mean[0, row], left_mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(log_density[0, row], exact, rtol=1e-9)


def test_weighted_draws_of_a_mean_give_the_mean_without_a_cell():
    rng = np.random.default_rng(1)
    x = rng.normal(size=20)
    draws = x.mean() + rng.normal(size=(4000, 1)) / np.sqrt(20)
    log_density = -0.5 * (x - draws) ** 2
    weights, shapes = pareto.smoothed_weights(-log_density)
    exact = (x.sum() - x) / 19
    assert np.all(shapes < pareto.largest_shape(4000))
    np.testing.assert_allclose((weights * draws).sum(axis=0), exact, atol=0.03)
    # without weights the mean knows the cell
    assert np.abs(draws.mean() - exact).max() > 0.06


@pytest.mark.parametrize("shape", [0.1, 0.5, 0.9])
def test_the_shape_of_a_pareto_tail_is_estimated(shape):
    rng = np.random.default_rng(2)
    sample = pareto.pareto_quantiles(np.sort(rng.random((2000, 1)), axis=0), np.array([shape]), 2.0)
    found, scale = pareto.pareto_fit(sample)
    assert abs(found - shape) < 0.12
    assert abs(scale - 2) < 0.3


def test_weights_without_a_mean_are_called_unreliable():
    rng = np.random.default_rng(3)
    log_ratios = 3 * rng.standard_cauchy((200, 5))
    assert np.all(pareto.smoothed_weights(log_ratios)[1] > pareto.largest_shape(200))


def test_weights_over_thousands_of_nats_have_finite_means_and_no_warning():
    # the fitted tail's largest quantiles are beyond the range of floats
    log_ratios = np.linspace(0, 8000, 1600)[:, None]
    weights, shapes = pareto.smoothed_weights(log_ratios)
    np.testing.assert_allclose(weights.sum(axis=0), 1.0)
    assert shapes[0] > 100


def test_means_of_the_other_cells_do_not_know_the_cell():
    rng = np.random.default_rng(4)
    rows, columns = (part.ravel() for part in np.indices((8, 5)))
    values = rng.normal(0, 3, 8)[rows] + rng.normal(0, 3, 5)[columns] + rng.normal(size=40)
    one = np.array([17])
    before = leave_one_out.row_and_column_means(rows, columns, values, one)
    true_error = abs(before[0] - values[17])
    assert true_error < 2.5
    moved = values.copy()
    moved[17] += 1e-3
    after = leave_one_out.row_and_column_means(rows, columns, moved, one)
    # the ratio of the variances alone has seen it
    assert abs(after - before)[0] < 1e-4
    ones = (values > 0).astype(float)
    frequency = leave_one_out.column_frequencies(columns, ones, one)
    others = ones[(columns == columns[17]) & (np.arange(40) != 17)]
    assert frequency == pytest.approx((others.sum() + 0.5) / 8)


def test_features_that_predict_worse_than_row_and_column_means_are_said():
    rng = np.random.default_rng(5)
    z = rng.random((30, 4)) < 0.5
    from_model = z @ rng.normal(size=(4, 8)) + 0.5 * rng.normal(size=(30, 8))
    additive = rng.normal(size=(30, 1)) + rng.normal(size=(1, 8)) + 0.1 * rng.normal(size=(30, 8))
    assert "prediction" not in kinds(linear_gaussian(from_model, z))
    raised = linear_gaussian(additive, z)
    assert "prediction" in kinds(raised)
    assert "row and column means" in str(raised)
    assert raised.leave_one_out() is raised.leave_one_out()
    named = mf.Dense(additive.astype(np.float32), row_names=[f"r{row}" for row in range(30)])
    losses = Posterior(raised.model, named, raised.draws, raised.meta).leave_one_out()
    assert f"r{raised.leave_one_out().rows[0]}" == losses.table()["row"][0]
    assert losses.standard_error == pytest.approx(raised.leave_one_out().standard_error)


def test_causes_that_predict_worse_than_the_frequencies_of_columns_are_said():
    rng = np.random.default_rng(6)
    z, y = rng.random((60, 3)) < 0.4, rng.random((3, 10)) < 0.4
    from_model = rng.random((60, 10)) < 1 - 0.95 * 0.1 ** (z.astype(float) @ y)
    by_column = rng.random((60, 10)) < np.linspace(0.05, 0.95, 10)
    assert "prediction" not in kinds(noisy_or(from_model, z, y))
    raised = noisy_or(by_column, z, y)
    assert "prediction" in kinds(raised)
    assert "frequencies of the columns" in str(raised)


def test_a_model_without_cells_or_with_few_draws_is_not_compared():
    x = np.random.default_rng(7).normal(size=(30, 4))
    assert posterior(mf.DPMixture(), mf.Dense.from_array(x), log_joint=np.zeros(100)).alarms() == ()
    short = linear_gaussian(x, np.ones((30, 1), bool))
    few = Posterior(
        short.model, short.data, {n: v[:, :50] for n, v in short.draws.items()}, short.meta
    )
    with pytest.raises(ValueError, match=r"^leave_one_out: 100 draws or more .* run has 50$"):
        few.leave_one_out()


def test_the_reason_why_cells_are_not_left_out_is_the_real_one(monkeypatch):
    x = np.random.default_rng(7).normal(size=(30, 4)).astype(np.float32)
    run = linear_gaussian(x, np.ones((30, 1), bool))
    without = {name: values for name, values in run.draws.items() if name != "z"}
    with pytest.raises(ValueError, match="made without features or vectors"):
        Posterior(run.model, run.data, without, run.meta).leave_one_out()
    small = linear_gaussian(x[:9], np.ones((9, 1), bool))
    with pytest.raises(ValueError, match=r"40 cells .* these data have 36"):
        small.leave_one_out()
    with pytest.raises(ValueError, match="DPMixture has no cells"):
        posterior(mf.DPMixture(), run.data, log_joint=np.zeros(100)).leave_one_out()
    monkeypatch.setattr(leave_one_out, "_MOST_ENTRIES", 2_000)  # a draw has 33
    with pytest.raises(ValueError, match=r"too large: 60 would be used, and 100 are needed"):
        run.leave_one_out()


def factors_given_columns(rng, *, scale, num_rows=15):
    """Ratings from the prior, and exact draws of the rows' factors given those of the columns."""
    v = rng.normal(size=(8, 2))
    x = scale * rng.normal(size=(num_rows, 2)) @ v.T + rng.normal(size=(num_rows, 8))
    covariance = np.linalg.inv(v.T @ v + np.eye(2) / scale**2)
    noise = rng.normal(size=(NUM_DRAWS, num_rows, 2)) @ np.linalg.cholesky(covariance).T
    u = (x @ v @ covariance + noise).astype(np.float32)
    rows, columns = (part.ravel() for part in np.indices(x.shape))
    data = mf.Entries(rows, columns, x.ravel().astype(np.float32), x.shape)
    draws = repeated(v=v.astype(np.float32), noise_scale=np.float32(1))
    return posterior(mf.BPMF(2, bias=False), data, u=u, **draws)


@pytest.mark.slow
def test_at_most_two_of_a_hundred_calibrated_runs_are_called_worse_than_means():
    rng = np.random.default_rng(8)
    runs = [
        factors_given_columns(rng, scale=scale) for scale in (0.1, 0.5, 1.0) for _ in range(100)
    ]
    compared = [leave_one_out.compare(run) for run in runs]
    assert np.mean([one is not None for one in compared]) > 0.7
    assert np.mean(["prediction" in kinds(run) for run in runs]) <= 0.02


def test_factors_of_other_rows_are_called_worse_than_means():
    run = factors_given_columns(np.random.default_rng(9), scale=1.0, num_rows=60)
    mean = run.draws["u"].mean(axis=1, keepdims=True)
    one_value = np.broadcast_to(mean, run.draws["u"].shape)
    assert "prediction" not in kinds(run)
    for rows, raises in ((slice(None), False), (slice(None, None, -1), True)):
        draws = run.draws | {"u": one_value[:, :, rows]}
        assert ("prediction" in kinds(Posterior(run.model, run.data, draws, run.meta))) is raises


@pytest.mark.parametrize("name", ["normal", "bernoulli"])
def test_densities_on_the_host_are_those_of_programs(name):
    """And nothing is compiled for them."""
    rng = np.random.default_rng(10)
    mean, variance = rng.random((2, 5, 4)).astype(np.float32)
    values = np.array([0.0, 1.0, 1.0, 0.5])
    log_density = CELL_DISTRIBUTIONS[name].log_density
    found = log_density(values, mean, variance)
    assert isinstance(found, np.ndarray)
    expected = jax.jit(log_density)(values, mean, variance)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_cells_that_are_asked_for_once_have_the_same_predictions():
    rng = np.random.default_rng(11)
    post = linear_gaussian(rng.normal(size=(12, 4)), rng.random((12, 3)) < 0.5)
    draws = {name: values[0, :5] for name, values in post.draws.items()}
    cells = np.arange(4), np.arange(4)
    usual, once = (
        list(prediction.predict_cells(post.model, post.data, draws, *cells, once=flag))
        for flag in (False, True)
    )
    for one, other in zip(usual, once, strict=True):
        np.testing.assert_allclose(one[1], other[1], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(one[2], other[2], rtol=1e-4)
