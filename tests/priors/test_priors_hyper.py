"""Hyperparameters: what is accepted, starting values, densities, updates and their broken twins."""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from jaxmf.engine import Info
from jaxmf.priors import hyper
from jaxmf.priors.features import BetaBernoulli, IndianBuffet, harmonic
from jaxmf.priors.scales import squared
from jaxmf.samplers.hyper import (
    update_feature_prior,
    update_probability,
    update_rate,
    update_scale,
    update_scales_in_turn,
)
from jaxmf.testing import check_kernel
from tests import FAST_COMPILE

NUM_ROWS = 6


@pytest.mark.parametrize(
    ("prior", "error", "words"),
    [
        (0.0, ValueError, "alpha must be positive and finite, got 0.0"),
        (-1, ValueError, "alpha must be positive and finite, got -1"),
        (float("nan"), ValueError, "alpha must be positive and finite, got nan"),
        (np.float32(np.inf), ValueError, "alpha must be positive and finite, got inf"),
        (True, TypeError, "positive number or a numpyro distribution, got True"),
        ("1", TypeError, "of type str"),
        (None, TypeError, "of type NoneType"),
        (1j, TypeError, "of type complex"),
        (np.ones(2), ValueError, r"one number, got an array of shape \(2,\)"),
        (np.array(True), TypeError, "array of bool"),
        (dist.Normal(0.0, 1.0), ValueError, "Normal allows negative ones"),
        (dist.Uniform(-1.0, 1.0), ValueError, "Uniform allows negative ones"),
        (dist.Poisson(1.0), ValueError, "Poisson is discrete"),
        (dist.Gamma(jnp.ones(2), 1.0), ValueError, "over one number"),
        (dist.Dirichlet(jnp.ones(2)), ValueError, "over one number"),
        (dist.Gamma(jnp.inf, 1.0), ValueError, "not finite"),
    ],
)
def test_validate_refuses(prior, error, words):
    with pytest.raises(error, match=words):
        hyper.validate("alpha", prior)


ACCEPTED = [
    dist.Gamma(2.0, 1.0),
    dist.Exponential(2.0),
    dist.InverseGamma(3.0, 1.0),
    dist.LogNormal(0.0, 0.5),
    dist.HalfNormal(1.0),
    dist.HalfCauchy(1.0),
    dist.Uniform(0.1, 2.0),
    dist.Weibull(1.0, 2.0),
    dist.TruncatedNormal(1.0, 2.0, low=0.0),
    dist.Pareto(1.0, 3.0),
]


@pytest.mark.parametrize("prior", [1, 0.5, np.float64(2), np.array(2.0), *ACCEPTED])
def test_validate_accepts(prior):
    hyper.validate("alpha", prior)

    @jax.jit
    def start_and_draw(key):
        value = hyper.initial_value(prior)
        return value, hyper.log_prior(prior, value), hyper.sample_prior(key, prior)

    value, log_density, drawn = start_and_draw(jax.random.key(0))
    assert value.shape == ()
    assert value.dtype == drawn.dtype == jnp.result_type(float)
    assert np.isfinite(value)
    assert value > 0
    assert np.isfinite(log_density)


def test_starting_values():
    assert hyper.initial_value(0.3) == pytest.approx(0.3)
    assert hyper.initial_value(dist.Gamma(2.0, 4.0)) == pytest.approx(0.5)
    # Infinite mean: the median.
    assert hyper.initial_value(dist.HalfCauchy(1.0)) == pytest.approx(1.0, rel=0.2)


@pytest.mark.parametrize(
    ("prior", "expected", "tolerance"),
    [
        # the mean is 5e21 or 1e4, in a tail that holds nothing
        (dist.LogNormal(0.0, 10.0), 1.0, 1.5),
        (dist.InverseGamma(1.0001, 1.0), 1.0, 0.05),
        # its mean divides by zero
        (dist.InverseGamma(1.0, 1.0), 1.0, 0.05),
        (dist.InverseGamma(0.5, 1.0), 2.0, 0.05),
        (dist.InverseGamma(0.001, 0.001), 1.0, 0.05),
        # the mean rounds to 1, where the density is infinite or zero
        (dist.Beta(1e9, 0.5), 1.0, 1e-6),
        (dist.Beta(1e9, 2.0), 1.0, 1e-6),
        # means that stay: a vague prior whose median is 0 in floats, bounds, long tails
        (dist.Gamma(1e-3, 1e-3), 1.0, 1e-6),
        (dist.Uniform(0.0, 1e-3), 5e-4, 1e-6),
        (dist.LogNormal(0.0, 2.0), math.exp(2.0), 1e-5),
        (dist.Beta(1e-3, 1e-3), 0.5, 1e-6),
        (dist.Normal(-2.0, 3.0), -2.0, 1e-6),
        (squared(dist.Uniform(0.0, 1e-3)), 2.5e-7, 0.2),
    ],
)
def test_a_start_has_a_density_and_lies_in_no_tail(prior, expected, tolerance):
    value = hyper.initial_value(prior)
    assert value == pytest.approx(expected, rel=tolerance)
    assert np.isfinite(hyper.log_prior(prior, value))


@pytest.mark.parametrize(
    "prior",
    [
        dist.Gamma(1.0, 1.0),
        dist.Beta(1.0, 9.0),
        dist.InverseGamma(2.0, 1.0),
        dist.LogUniform(0.01, 2.0),
        dist.LogNormal(0.0, 2.0),
        dist.HalfNormal(1.0).expand([3]),
    ],
)
def test_starts_of_usual_priors_compile_no_draws(prior):
    # those of a Gamma distribution alone take a second
    assert "random_" not in str(jax.make_jaxpr(hyper.initial_value)(prior))
    assert "random_" in str(jax.make_jaxpr(hyper.initial_value)(dist.Pareto(1.0, 3.0)))


def test_a_start_near_a_guess_stays_inside_the_support():
    narrow = dist.Uniform(0.0, 1e-3)
    assert hyper.initial_value_near(narrow, jnp.asarray(2e-4)) == pytest.approx(2e-4)
    for guess in (3.0, 0.0):
        assert hyper.initial_value_near(narrow, jnp.asarray(guess)) == pytest.approx(5e-4)
    assert hyper.initial_value_near(0.7, jnp.asarray(3.0)) == pytest.approx(0.7)


@pytest.mark.parametrize("unit", [1e-15, 1e-6, 1.0, 1e6, 1e15])
def test_log_prior_of_a_variance_is_exact_in_any_unit(unit):
    # numpyro's own takes the square of the variance: infinite at 1e15, log 0 at 1e-15
    prior, value = dist.InverseGamma(1.5, 2.0 * unit**2), jnp.asarray(0.7 * unit**2)
    expected = scipy.stats.invgamma(1.5, scale=2.0).logpdf(0.7) - 2 * np.log(unit)
    assert hyper.log_prior(prior, value) == pytest.approx(expected, abs=1e-4)


def test_log_prior_is_minus_infinity_outside_the_support():
    density = jax.jit(hyper.log_prior)
    assert density(dist.Uniform(0.1, 2.0), 3.0) == -jnp.inf
    assert density(dist.Gamma(2.0, 1.0), -1.0) == -jnp.inf
    assert hyper.log_prior(0.7, jnp.asarray(0.7)) == 0


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (dist.Gamma(1.0, 1.0), dist.Gamma(2.0, 0.5)),
        (dist.LogNormal(0.0, 1.0), dist.LogNormal(0.3, 0.5)),
        (dist.InverseGamma(1.0, 1.0), dist.InverseGamma(2.0, 3.0)),
        (dist.HalfCauchy(1.0), dist.HalfCauchy(2.0)),
        (1.0, 2.0),
    ],
)
def test_other_parameters_of_a_prior_compile_nothing_new(first, second):
    traces = []

    @jax.jit
    def density(prior, value):
        traces.append(None)
        return hyper.log_prior(prior, value)

    density(first, 1.0)
    density(second, 1.5)
    assert len(traces) == 1


class State(NamedTuple):
    z: jax.Array
    alpha: jax.Array
    concentration: jax.Array


ALPHA, CONCENTRATION = dist.Gamma(2.0, 2.0), dist.Gamma(3.0, 2.0)


def features(state, num_features=None):
    if num_features is None:
        return IndianBuffet(state.alpha, state.concentration)
    return BetaBernoulli(state.alpha, state.concentration, num_features)


def sample_state(key, *, alpha_prior=ALPHA, concentration_prior=1.0, num_features=None):
    alpha_key, concentration_key, z_key = jax.random.split(key, 3)
    alpha = hyper.sample_prior(alpha_key, alpha_prior)
    concentration = hyper.sample_prior(concentration_key, concentration_prior)
    state = State(jnp.zeros((NUM_ROWS, 1), bool), alpha, concentration)
    z, _ = features(state, num_features).sample(z_key, NUM_ROWS, 48)
    return State(z, alpha, concentration)


def statistics(state, data):
    return {
        "alpha": state.alpha,
        "log alpha": jnp.log(state.alpha),
        "concentration": state.concentration,
        "alpha times features": state.alpha * jnp.sum(state.z.any(0)),
        "alpha times bits": state.alpha * jnp.sum(state.z),
        "concentration times bits": state.concentration * jnp.sum(state.z),
    }


def feature_prior_kernel(key, state, data, *, alpha_prior, concentration_prior, num_features):
    alpha, concentration = update_feature_prior(
        key,
        features(state, num_features),
        alpha_prior=alpha_prior,
        concentration_prior=concentration_prior,
        counts=state.z.sum(0),
        num_rows=NUM_ROWS,
    )
    return State(state.z, alpha, concentration), Info(overflow={})


@pytest.mark.tiers(exhaustive=["finite", "slice"])
@pytest.mark.parametrize(
    ("alpha_prior", "concentration_prior", "num_features"),
    [
        (ALPHA, 1.0, None),
        pytest.param(dist.LogNormal(0.0, 0.7), CONCENTRATION, None, marks=pytest.mark.slow),
        pytest.param(ALPHA, CONCENTRATION, 4, marks=pytest.mark.slow),
    ],
    ids=["conjugate", "slice", "finite"],
)
def test_updates_of_mass_and_concentration(alpha_prior, concentration_prior, num_features):
    settings = {
        "alpha_prior": alpha_prior,
        "concentration_prior": concentration_prior,
        "num_features": num_features,
    }
    check_kernel(
        partial(feature_prior_kernel, **settings),
        sample_prior=partial(sample_state, **settings),
        simulate=lambda key, state: None,
        statistics=statistics,
        key=jax.random.key(12),
        compiler_options=FAST_COMPILE,
    )


def conjugate_twin(slip):
    """The conjugate update with one of the slips that published packages have."""

    def kernel(key, state, data):
        num_features = jnp.sum(state.z) if slip == "bits for features" else state.z.any(0).sum()
        rate = NUM_ROWS if slip == "rows for their harmonic number" else harmonic(NUM_ROWS, 1.0)
        shape = ALPHA.concentration + num_features
        alpha = jax.random.gamma(key, shape)
        total = ALPHA.rate + rate
        alpha = alpha * total if slip == "scale for rate" else alpha / total
        return State(state.z, alpha, state.concentration), Info(overflow={})

    return kernel


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "slip", ["bits for features", "rows for their harmonic number", "scale for rate"]
)
def test_known_slips_of_the_mass_are_caught(slip):
    with pytest.raises(AssertionError, match="FAILED"):
        check_kernel(
            conjugate_twin(slip),
            sample_prior=sample_state,
            simulate=lambda key, state: None,
            statistics=statistics,
            key=jax.random.key(13),
            compiler_options=FAST_COMPILE,
            num_replicates=2_048,
        )


class Scaled(NamedTuple):
    scale: jax.Array


@pytest.mark.parametrize("broken", [False, True])
def test_slice_update_of_a_scale(broken):
    prior = dist.HalfNormal(1.0)

    def kernel(key, state, x):
        def log_likelihood(scale):
            # The broken twin forgets the normaliser of one of the four observations.
            return -(3 if broken else 4) * jnp.log(scale) - 0.5 * jnp.sum((x / scale) ** 2)

        return Scaled(update_scale(key, prior, state.scale, log_likelihood)), Info(overflow={})

    def check():
        check_kernel(
            kernel,
            sample_prior=lambda key: Scaled(prior.sample(key)),
            simulate=lambda key, state: state.scale * jax.random.normal(key, (4,)),
            statistics=lambda state, x: {
                "scale": state.scale,
                "scale times size": state.scale * jnp.sqrt(jnp.sum(x**2)),
                "log size": jnp.log(state.scale) - 0.5 * jnp.log(jnp.sum(x**2)),
            },
            key=jax.random.key(14),
            compiler_options=FAST_COMPILE,
        )

    if broken:
        with pytest.raises(AssertionError, match="FAILED"):
            check()
    else:
        check()


def test_fixed_numbers_are_left_alone():
    value, key = jnp.asarray(0.7), jax.random.key(0)
    assert update_rate(key, 0.7, value, power=jnp.asarray(3), total=jnp.asarray(2.0)) is value
    assert update_scale(key, 0.7, value, lambda scale: scale) is value
    two = (value, value)
    assert update_scales_in_turn(key, (0.7, 0.7), two, lambda before, after: after[0]) is two


def test_scales_in_turn_are_those_one_by_one_and_what_they_share_is_traced_once():
    noise_prior, effect_prior = dist.LogUniform(0.1, 4.0), dist.InverseGamma(2.0, 2.0)
    start = (jnp.asarray(0.5), jnp.asarray(0.7), jnp.asarray(1.5))
    traced = []

    def log_density(values):
        noise, fixed, effect = values
        traced.append(None)
        return -3 * jnp.log(noise**2 + fixed * effect**2) - 2 / (noise**2 + effect**2)

    @jax.jit
    def in_turn(key):
        return update_scales_in_turn(
            key,
            (noise_prior, 0.7, effect_prior),
            start,
            lambda before, after: log_density(after) - jnp.log(before[0]),
        )

    @jax.jit
    def one_by_one(key):
        noise, fixed, effect = start
        keys = [jax.random.fold_in(key, index) for index in (0, 2)]
        noise = update_scale(
            keys[0], noise_prior, noise, lambda value: log_density((value, fixed, effect))
        )
        effect = update_scale(
            keys[1], effect_prior, effect, lambda value: log_density((noise, fixed, value))
        )
        return noise, fixed, effect

    found = [in_turn(jax.random.key(seed)) for seed in range(5)]
    assert len(traced) == 1
    expected = [one_by_one(jax.random.key(seed)) for seed in range(5)]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    moved = np.ptp(np.asarray(found), axis=0)
    np.testing.assert_array_equal(moved > 0, [True, False, True])


def test_updates_keep_double_precision():
    with jax.enable_x64(True):
        value, key = jnp.asarray(0.7), jax.random.key(0)
        for prior in (dist.Gamma(1.0, 1.0), dist.LogNormal(0.0, 1.0)):
            settings = {"power": jnp.asarray(3), "total": jnp.asarray(2.0)}
            new = jax.jit(partial(update_rate, prior=prior))(key, value=value, **settings)
            assert new.dtype == jnp.float64


def test_a_number_at_a_bound_of_its_prior_stays_in_the_support():
    # exp(log(v)) and the logistic function of log odds round to either side of v
    low = jnp.linspace(0.003, 700.0, 64)
    prior = dist.LogUniform(low, 2 * low)
    near = jax.jit(
        lambda key: update_scale(key, prior, low, lambda scale: -1e6 * jnp.log(scale / low))
    )
    assert jnp.any(jnp.exp(jnp.log(low)) < low)
    moved = near(jax.random.key(0))
    assert jnp.all(prior.support(moved))
    assert jnp.max(moved / low) < 1.001
    share = jnp.linspace(0.01, 0.9, 64)
    bounds = dist.Uniform(share, share + 0.05)
    key = jax.random.key(1)
    moved = jax.jit(lambda key: update_probability(key, bounds, share, lambda p: -1e6 * p))(key)
    assert jnp.all(bounds.support(moved))
