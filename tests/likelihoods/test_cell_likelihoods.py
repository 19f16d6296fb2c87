"""The likelihoods of a cell: densities, draws, moments, supports, and how they are kept."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special, stats

import jaxmf as mf
from jaxmf import settings
from jaxmf.testing import check_means

SIZE, DISPERSION = 1 / 0.4, 0.4


def negative_binomial(eta):
    mean = 0.3 + eta
    return stats.nbinom(SIZE, SIZE / (SIZE + mean))


# likelihood, its distribution by scipy given eta, predictors, cells
CASES = {
    "gaussian": (
        mf.Gaussian(0.7),
        lambda eta: stats.norm(eta, 0.7),
        [-1.0, 0.0, 2.5],
        [-2.0, 0.1, 30.0],
    ),
    "student t": (
        mf.StudentT(5.0, 0.7),
        lambda eta: stats.t(5, eta, 0.7),
        [-1.0, 0.0, 2.5],
        [-2.0, 0.1, 30.0],
    ),
    "bernoulli": (
        mf.Bernoulli(),
        lambda eta: stats.bernoulli(special.expit(eta)),
        [-9.0, 0.3, 2.0],
        [0.0, 1.0],
    ),
    "probit": (
        mf.Probit(),
        lambda eta: stats.bernoulli(special.ndtr(eta)),
        [-3.0, 0.3, 2.0],
        [0.0, 1.0],
    ),
    "noisy or": (
        mf.NoisyOr(0.6, 0.1),
        lambda eta: stats.bernoulli(1 - 0.9 * 0.4**eta),
        [0.0, 1.0, 4.0],
        [0.0, 1.0],
    ),
    "poisson": (
        mf.Poisson(0.3),
        lambda eta: stats.poisson(0.3 + eta),
        [0.0, 1.0, 4.0],
        [0.0, 1.0, 9.0],
    ),
    "negative binomial": (
        mf.NegativeBinomial(DISPERSION, 0.3),
        negative_binomial,
        [0.0, 1.0, 4.0],
        [0.0, 1.0, 9.0],
    ),
    "ordinal": (
        mf.Ordinal((1, 2, 3), thresholds=(-0.5, 1.0)),
        lambda eta: stats.rv_discrete(
            values=([1, 2, 3], np.diff(special.ndtr(np.array([-np.inf, -0.5, 1, np.inf]) - eta)))
        ),
        [-1.0, 0.3, 2.0],
        [1.0, 2.0, 3.0],
    ),
}
NAMES = {name: type(case[0]).__name__ for name, case in CASES.items()}


def log_density_by_scipy(distribution, value):
    is_discrete = isinstance(getattr(distribution, "dist", distribution), stats.rv_discrete)
    return distribution.logpmf(value) if is_discrete else distribution.logpdf(value)


@pytest.mark.parametrize("name", CASES)
def test_densities_and_moments_are_those_of_scipy(name):
    likelihood, distribution, predictors, cells = CASES[name]
    eta, x = (one.ravel() for one in np.meshgrid(predictors, cells))
    found, (mean, variance) = jax.jit(
        lambda x, eta, few: (likelihood.log_density(x, eta), likelihood.moments(few))
    )(jnp.asarray(x, float), jnp.asarray(eta, float), jnp.asarray(predictors))
    expected = [
        log_density_by_scipy(distribution(e), value) for e, value in zip(eta, x, strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    exact = [distribution(e) for e in predictors]
    moments = np.array([[each.mean(), each.var()] for each in exact]).T
    np.testing.assert_allclose(mean, moments[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(variance, moments[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dispersion", [1e-8, 1e-4, 0.02, 0.5, 10.0])
def test_counts_that_are_nearly_poisson_keep_their_digits(dispersion):
    x, mean = np.array([0.0, 1.0, 7.0, 90.0, 2000.0]), np.array([0.3, 2.0, 9.0, 80.0, 1900.0])
    found = mf.NegativeBinomial(jnp.float32(dispersion), 0.3).log_density(
        jnp.asarray(x, jnp.float32), jnp.asarray(mean - 0.3, jnp.float32)
    )
    size = 1 / dispersion
    expected = stats.nbinom(size, size / (size + mean)).logpmf(x)
    # log x! of 2,000 alone is known to .001 in float32
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=3e-3)


@pytest.mark.parametrize("name", CASES)
def test_draws_have_the_mean_and_the_variance(name):
    likelihood, distribution, predictors, _ = CASES[name]
    eta = predictors[1]
    drawn = jax.jit(likelihood.sample)(jax.random.key(3), jnp.full((150, 100), eta))
    drawn = np.asarray(drawn, float)
    assert drawn.shape == (150, 100)
    assert likelihood.in_support(drawn).all()
    flat, exact = drawn.ravel(), distribution(eta)
    mean, variance = exact.mean(), exact.var()
    print(
        check_means(
            {"mean": flat, "variance": (flat - mean) ** 2},
            {"mean": mean, "variance": variance},
        )
    )


@pytest.mark.parametrize("name", CASES)
def test_kernels_differ_from_densities_by_what_does_not_depend_on_the_predictor(name):
    likelihood, _, predictors, cells = CASES[name]
    eta, x = jnp.asarray(predictors)[:, None], jnp.asarray(cells)
    constant = jax.jit(
        lambda x, eta: likelihood.log_density(x, eta) - likelihood.log_kernel(x, eta)
    )(x, eta)
    np.testing.assert_allclose(constant, jnp.broadcast_to(constant[0], constant.shape), atol=2e-4)


@pytest.mark.parametrize("name", CASES)
def test_an_annealed_likelihood_has_a_ninth_of_the_differences(name):
    likelihood, _, predictors, cells = CASES[name]
    eta, x = jnp.asarray(predictors)[:, None], jnp.asarray(cells)
    whole, part = jax.jit(
        lambda x, eta: (likelihood.log_kernel(x, eta), likelihood.annealed(3.0).log_kernel(x, eta))
    )(x, eta)
    np.testing.assert_allclose((part[1:] - part[0]) * 9, whole[1:] - whole[0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", CASES)
def test_likelihoods_are_written_and_read(name):
    likelihood = CASES[name][0]
    assert settings.decode(settings.encode(likelihood)) == likelihood
    assert settings.parse(repr(likelihood)) == likelihood


@pytest.mark.parametrize("name", CASES)
def test_missing_cells_are_not_looked_at_and_others_are(name):
    likelihood, _, _, cells = CASES[name]
    values = np.array([[cells[0], np.nan], [cells[1], cells[0]]])
    likelihood.check(values, "data", observed=~np.isnan(values))
    with pytest.raises(ValueError, match=rf"data: nan at row 0, column 1; .*{NAMES[name]}"):
        likelihood.check(values, "data")


@pytest.mark.parametrize(
    ("likelihood", "value", "words"),
    [
        (mf.Bernoulli(), 2.0, "needs 0 or 1 .*Threshold them, for instance"),
        (mf.NoisyOr(), 0.5, "needs 0 or 1 .*Threshold them, for instance"),
        (mf.Poisson(), -1.0, "needs counts 0, 1, 2, ..."),
        (mf.NegativeBinomial(), 0.5, "needs counts 0, 1, 2, ..."),
        (mf.Ordinal((1, 2)), 3.0, "needs one of the levels 1, 2"),
        (mf.Gaussian(), np.inf, "needs finite numbers"),
    ],
)
def test_cells_outside_the_support_are_refused_with_their_position(likelihood, value, words):
    with pytest.raises(ValueError, match=words) as caught:
        likelihood.check(np.array([[1.0, 1.0], [value, value]]), "X")
    assert f"X: {value:g} at row 1, column 0" in str(caught.value)
    assert "(2 such values)" in str(caught.value)


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case[0].hyperparameters])
def test_hyperparameters_may_be_priors_and_must_be_positive(name):
    likelihood = CASES[name][0]
    for field in likelihood.hyperparameters:
        with_prior = dataclasses.replace(likelihood, **{field: dist.Beta(2.0, 2.0)})
        assert with_prior.at_values({field: 0.25, "other": 1.0}) == dataclasses.replace(
            likelihood, **{field: 0.25}
        )
        with pytest.raises(ValueError, match=field):
            dataclasses.replace(likelihood, **{field: -1.0})
        with pytest.raises(TypeError, match=field):
            dataclasses.replace(likelihood, **{field: "much"})


def test_a_student_t_without_a_variance_says_that_it_is_infinite():
    mean, variance = mf.StudentT(2.0, 1.0).moments(jnp.zeros(2))
    assert mean.tolist() == [0, 0]
    assert np.isinf(variance).all()


def test_levels_without_thresholds_are_refused_where_these_are_needed():
    with pytest.raises(ValueError, match="thresholds are not known"):
        mf.Ordinal((1, 2, 3)).mean(jnp.zeros(1))
    with pytest.raises(ValueError, match="BPMF learns thresholds"):
        mf.BPMF(likelihood=mf.Ordinal((1, 2), thresholds=(0.5,)))
