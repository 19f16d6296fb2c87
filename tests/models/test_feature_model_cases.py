"""`FeatureModel` beside what it is a case of: simulated data, evidence of other filters."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf
from jaxmf.data import Dense
from jaxmf.models.linear_gaussian import LinearGaussianIBP
from jaxmf.models.noisy_or import NoisyOrIBP
from jaxmf.priors.features import IndianBuffet
from jaxmf.testing import check_means
from tests import FAST_COMPILE
from tests.models.test_feature_model import (
    SCALES,
    KnownChances,
    gaussian_model,
    noisy_or_model,
    poisson_model,
)

ALPHA, CONCENTRATION = 1.2, 1.7
PRIOR = IndianBuffet(ALPHA, CONCENTRATION)
SHARED = ALPHA / (1 + CONCENTRATION)  # expected number of features that two rows share
CAPACITY = 24


# --- simulated data -------------------------------------------------------------------------------


def poisson_row(key, z, y):
    """A row as a user draws it."""
    return dist.Poisson(0.4 + z @ y).sample(key)


GAUSSIAN, NOISY_OR = gaussian_model(PRIOR), noisy_or_model(PRIOR)
POISSON = dataclasses.replace(poisson_model(PRIOR), sample_row=poisson_row)


def simulated(model, num_draws=20_000):
    """X (draws, 2, D) of two rows."""

    def one(key):
        draw, overflow = model.simulate_features(jax.random.fold_in(key, 0), 2, CAPACITY)
        return model.simulate_data(jax.random.fold_in(key, 1), draw), overflow

    many = jax.jit(jax.vmap(one), compiler_options=FAST_COMPILE)
    x, overflow = many(jax.random.split(jax.random.key(3), num_draws))
    assert not np.any(overflow)
    return np.asarray(x)


def products(x):
    """Means, products within a row and between rows, cell by cell."""
    return {
        "first": x,
        "second": x**2,
        "rows": x[:, 0] * x[:, 1],
        "columns": x[:, :, 0] * x[:, :, 1],
    }


def exact_products(num_columns, *, mean, variance, rows, columns):
    """The same of a distribution with exchangeable rows and columns, from its covariances."""
    return {
        "first": np.full((2, num_columns), mean),
        "second": np.full((2, num_columns), variance + mean**2),
        "rows": np.full(num_columns, rows + mean**2),
        "columns": np.full(2, columns + mean**2),
    }


def test_gaussian_rows():
    feature, noise = SCALES["feature_scale"] ** 2, SCALES["noise_scale"] ** 2
    exact = exact_products(
        2, mean=0, variance=ALPHA * feature + noise, rows=SHARED * feature, columns=0
    )
    check_means(products(simulated(GAUSSIAN)), exact, max_standard_error=0.02)


@pytest.mark.slow
def test_noisy_or_rows():
    # the features of one row, and those that two share, are Poisson in number
    left_off = 1 - 0.4 * 0.6
    off = 0.8 * np.exp(-ALPHA * (1 - left_off))
    both_rows = 0.8**2 * np.exp(
        -2 * (ALPHA - SHARED) * (1 - left_off) - SHARED * 0.4 * (1 - (1 - 0.6) ** 2)
    )
    both_columns = 0.8**2 * np.exp(-ALPHA * (1 - left_off**2))
    exact = exact_products(
        3,
        mean=1 - off,
        variance=off * (1 - off),
        rows=both_rows - off**2,
        columns=both_columns - off**2,
    )
    x = simulated(NOISY_OR)
    assert np.isin(x, [0, 1]).all()
    check_means(products(x), exact, max_standard_error=0.01)


@pytest.mark.slow
def test_poisson_rows():
    mean = 0.4 + ALPHA / 1.5
    exact = exact_products(
        2,
        mean=mean,
        variance=mean + ALPHA * 2 / 1.5**2,
        rows=SHARED * 2 / 1.5**2,
        columns=ALPHA / 1.5**2,
    )
    check_means(products(simulated(POISSON)), exact, max_standard_error=0.08)


simulate = jax.jit(
    lambda key, capacity: GAUSSIAN.simulate(key, 6, capacity=capacity),
    static_argnums=1,
    compiler_options=FAST_COMPILE,
)


def test_data_and_a_draw_that_has_a_log_joint():
    draw, data = simulate(jax.random.key(0), 32)
    assert draw["z"].shape == (6, 32)
    assert draw["y"].shape == (32, 2)
    assert data.shape == (6, 2)
    assert np.isfinite(jax.jit(GAUSSIAN.log_joint, compiler_options=FAST_COMPILE)(draw, data))


@pytest.mark.exhaustive
def test_more_room_changes_no_data():
    draw, data = simulate(jax.random.key(0), 32)
    more, again = simulate(jax.random.key(0), 40)
    np.testing.assert_array_equal(more["z"][:, :32], draw["z"])
    np.testing.assert_allclose(again.values, data.values, rtol=1e-6)


def test_too_little_room_is_said():
    crowded = gaussian_model(IndianBuffet(30.0))
    assert crowded.simulate_features(jax.random.key(0), 3, 4)[1]


def test_a_custom_prior_is_gone_through_row_by_row():
    model = gaussian_model(KnownChances(jnp.asarray([0.6, 0.25]), 2))
    draw, overflow = model.simulate_features(jax.random.key(1), 20_000, 32)
    assert draw["z"].shape == (20_000, 2)
    assert not overflow
    check_means({"z": draw["z"]}, {"z": np.array([0.6, 0.25])}, max_standard_error=0.004)


def test_rows_that_cannot_be_drawn():
    with pytest.raises(ValueError, match=r"sample_row=function"):
        poisson_model(PRIOR).simulate(jax.random.key(0), 3)
    with pytest.raises(TypeError, match="sample_row must be a function"):
        dataclasses.replace(POISSON, sample_row=0.5)
    scalar_rows = dataclasses.replace(POISSON, sample_row=lambda key, z, y: jnp.sum(y))
    with pytest.raises(ValueError, match=r"sample_row returned shape \(\)"):
        scalar_rows.simulate(jax.random.key(0), 3)


# --- evidence beside the filters of the two models ------------------------------------------------

NUM_RUNS = 2_000


def evidence(model, data, *, key, **options):
    """Log evidence of many independent filters, (NUM_RUNS,)."""
    algorithm = model.filter(capacity=16, **options)

    def one(key):
        cloud = algorithm.init(jax.random.fold_in(key, 2**31), data)

        def step(cloud, row):
            step_key = jax.random.fold_in(key, row)
            cloud, info = algorithm.step(step_key, cloud, data, jnp.ones(()))
            return cloud, info.overflow["features"]

        cloud, overflow = jax.lax.scan(step, cloud, jnp.arange(data.num_rows))
        return cloud.log_evidence, jnp.any(overflow)

    keys = jax.random.split(key, NUM_RUNS)
    found, overflow = jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=200))(keys)
    assert not np.any(overflow), "the test needs a larger capacity"
    return np.asarray(found, np.float64)


def check_same_evidence(general, special, *, most_error):
    """The difference of the two evidences, in units of the second, is zero on average."""
    scale = np.logaddexp.reduce(special) - np.log(len(special))
    difference = np.exp(general - scale) - np.exp(special - scale)
    print(
        check_means({"difference": difference}, {"difference": 0.0}, max_standard_error=most_error)
    )


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_noisy_or_likelihood_has_the_evidence_of_the_noisy_or_model():
    settings = {"cause_probability": 0.4, "efficacy": 0.8, "leak": 0.1}
    special_model = NoisyOrIBP(alpha=ALPHA, concentration=CONCENTRATION, **settings)
    _, data = special_model.simulate(jax.random.key(1), 5, 4)
    values = np.array(data.values)
    values[1, 2] = np.nan
    data = Dense(values)
    special = evidence(special_model, data, key=jax.random.key(10), num_particles=200)

    def general(efficacy):
        model = noisy_or_model(PRIOR, 4, efficacy, settings["leak"], settings["cause_probability"])
        return evidence(model, data, key=jax.random.key(11), num_particles=200)

    check_same_evidence(general(0.8), special, most_error=0.015)
    with pytest.raises(AssertionError, match="difference"):
        check_same_evidence(general(0.7), special, most_error=None)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_gaussian_likelihood_has_the_evidence_of_the_linear_gaussian_model():
    special_model = LinearGaussianIBP(alpha=ALPHA, concentration=CONCENTRATION, **SCALES)
    _, data = special_model.simulate(jax.random.key(2), 5, 3)
    special = evidence(special_model, data, key=jax.random.key(12), num_particles=200)

    def general(noise_scale):
        model = dataclasses.replace(gaussian_model(PRIOR, 3), likelihood=mf.Gaussian(noise_scale))
        return evidence(model, data, key=jax.random.key(13), num_particles=200)

    check_same_evidence(general(SCALES["noise_scale"]), special, most_error=0.015)
    with pytest.raises(AssertionError, match="difference"):
        check_same_evidence(general(0.9), special, most_error=None)
