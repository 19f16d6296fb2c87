"""The filter of the linear-Gaussian Indian buffet process against enumeration of all Z."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from jaxmf.data import Dense
from jaxmf.models.linear_gaussian import LinearGaussianIBP, proposals
from jaxmf.samplers.resampling import (
    multinomial,
    optimal,
    residual,
    stratified,
    systematic,
)
from jaxmf.testing import check_means, enumerate_features
from tests import LONG_RUNS
from tests.support.chain_runs import paths, run_filter

NUM_RUNS = 10_000
NUM_ROWS = 3
MOST_SHOWN = 4

VALUES = np.array([[1.1, -0.4], [0.8, 0.3], [-0.3, 0.5]])
MISSING = np.array([[False, True], [False, False], [True, False]])

FIXED = {"alpha": 0.7, "noise_scale": 0.6, "feature_scale": 0.9}
# A prior as its value at the nodes of a quadrature, with the weights.
PRIORS = {
    "alpha": dist.Gamma(16.0, 25.0),
    "noise_scale": dist.LogNormal(math.log(0.6), 0.25),
    "feature_scale": dist.LogNormal(math.log(0.9), 0.25),
}


def data_of(missing):
    values = np.where(MISSING, np.nan, VALUES) if missing else VALUES
    return Dense(values.astype(jnp.result_type(float)))


def nodes_of(name, value):
    if name == "alpha" and not isinstance(value, float):
        from scipy.special import roots_genlaguerre

        x, w = roots_genlaguerre(12, 15.0)
        return x / 25.0, w / w.sum()
    if not isinstance(value, float):
        x, w = np.polynomial.hermite_e.hermegauss(11)
        return np.exp(float(value.loc) + float(value.scale) * x), w / w.sum()
    return np.array([value]), np.ones(1)


@functools.cache
def classes():
    """Which histories a class has, reduced to ZZ', and what is asked of it."""
    found = enumerate_features(NUM_ROWS, 12)
    z = found.z.astype(float)
    return found, np.einsum("cik,cjk->cij", z, z)


def log_class_prior(alpha):
    """Equation 2, for each class."""
    found, _ = classes()
    num = found.num_features
    sizes = found.histories.sum(1)
    log_history = np.array([math.lgamma(NUM_ROWS - m + 1) + math.lgamma(m) for m in sizes])
    log_history -= math.lgamma(NUM_ROWS + 1)
    log_orders = np.vectorize(math.lgamma)(found.counts + 1.0).sum(1)
    harmonic = sum(1 / i for i in range(1, NUM_ROWS + 1))
    return num * np.log(alpha) - alpha * harmonic + found.counts @ log_history - log_orders


def log_likelihood(overlap, noise, feature, missing, bias):
    """log p(observed X | Z), column by column."""
    total = 0.0
    for column in range(VALUES.shape[1]):
        seen = ~MISSING[:, column] if missing else np.ones(NUM_ROWS, bool)
        covariance = feature**2 * (overlap[:, seen][:, :, seen] + bias)
        covariance = covariance + noise**2 * np.eye(seen.sum())
        x = VALUES[seen, column]
        solved = np.linalg.solve(covariance, np.broadcast_to(x, (len(overlap), len(x)))[..., None])
        total = total - 0.5 * (np.linalg.slogdet(2 * np.pi * covariance)[1] + solved[..., 0] @ x)
    return total


@functools.cache
def exact(hyper, missing, bias=False):
    """Evidence and posterior means, summed over 50,388 classes and the nodes of the priors."""
    found, overlap = classes()
    unique, where = np.unique(overlap.reshape(len(overlap), -1), axis=0, return_inverse=True)
    unique = unique.reshape(-1, NUM_ROWS, NUM_ROWS)
    where = where.reshape(-1)
    settings = PRIORS if hyper else FIXED
    alphas, alpha_weights = nodes_of("alpha", settings["alpha"])
    log_prior = np.logaddexp.reduce(
        [log_class_prior(a) + np.log(w) for a, w in zip(alphas, alpha_weights, strict=True)]
    )
    grids = [zip(*nodes_of(n, settings[n]), strict=True) for n in ("noise_scale", "feature_scale")]
    likelihood = np.logaddexp.reduce(
        [
            log_likelihood(unique, noise, feature, missing, bias) + np.log(w * v)
            for (noise, w), (feature, v) in itertools.product(*map(list, grids))
        ]
    )
    joint = log_prior + likelihood[where]
    evidence = np.logaddexp.reduce(joint)
    weights = np.exp(joint - evidence)
    num = found.num_features
    means = {"evidence": 1.0}
    means["num_features"] = np.array([weights[num == k].sum() for k in range(MOST_SHOWN)])
    means["cooccurrence"] = np.einsum("c,cij->ij", weights, overlap)[np.triu_indices(NUM_ROWS)]
    return evidence, means


filtered = jax.jit(run_filter, static_argnums=3, compiler_options=LONG_RUNS)


def samples_of(algorithm, data, log_evidence, key, *, num_steps, start, num_runs):
    """Evidence ratio, and ratio times the mean of each statistic: unbiased, run by run."""

    def one(key):
        cloud, (draws, overflow) = run_filter(algorithm, data, key, num_steps)
        z = paths(draws, cloud, NUM_ROWS)[:, :, start:].astype(cloud.log_weights.dtype)
        ratio = jnp.exp(cloud.log_evidence - log_evidence)
        weights = ratio * jax.nn.softmax(cloud.log_weights)
        num = jnp.sum(jnp.any(z > 0, axis=1), axis=1)
        overlap = jnp.einsum("p,pik,pjk->ij", weights, z, z)
        return {
            "evidence": ratio,
            "num_features": weights @ (num[:, None] == jnp.arange(MOST_SHOWN)),
            "cooccurrence": overlap[jnp.triu_indices(NUM_ROWS)],
        }, jnp.any(overflow)

    keys = jax.random.split(key, num_runs)
    run = jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=500), compiler_options=LONG_RUNS)
    samples, overflow = run(keys)
    assert not np.any(overflow), "the test needs a larger capacity"
    return samples


def check(
    *,
    hyper=False,
    missing=False,
    bias=False,
    num_particles=12,
    anneal_steps=0,
    num_runs=NUM_RUNS,
    capacity=12,
    max_standard_error=0.003,
    **options,
):
    model = LinearGaussianIBP(**(PRIORS if hyper else FIXED), bias=bias)
    algorithm = model.filter(
        num_particles=num_particles,
        anneal_steps=anneal_steps,
        capacity=capacity,
        **options,
    )
    log_evidence, means = exact(hyper, missing, bias)
    samples = samples_of(
        algorithm,
        data_of(missing),
        log_evidence,
        jax.random.key(7),
        num_steps=NUM_ROWS + anneal_steps,
        start=model.first_slot(),
        num_runs=num_runs,
    )
    report = check_means(samples, means, max_standard_error=max_standard_error)
    print(report)
    return report


# --- every proposal, scheme, kind of hyperparameter, with and without the rest ------------------


@pytest.mark.slow
def test_prior_proposal():
    check(num_particles=16)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_prior_proposal_with_missing_cells_and_rejuvenation():
    check(num_particles=16, missing=True, rejuvenate_every=2, resample_fn=stratified)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_exact_proposal():
    check(num_particles=8, proposal="exact", missing=True, resample_fn=multinomial)


@pytest.mark.exhaustive
def test_annealed():
    check(num_particles=24, anneal_from=0.5, anneal_steps=3, rejuvenate_every=1)


SCHEMES = {"prior": residual, "exact": systematic, "optimal": optimal}
PARTICLES = {"prior": 24, "exact": 12, "optimal": 12}


@pytest.mark.tiers(
    exhaustive=[
        "exact-True-1-False",
        "optimal-False-1-True",
        "optimal-True-0-False",
        "prior-True-1-True",
    ]
)
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("way", "hyper", "every", "missing"),
    [
        ("prior", True, 1, True),
        ("exact", True, 0, True),
        ("exact", True, 1, False),
        ("optimal", False, 1, True),
        ("optimal", True, 0, False),
    ],
)
def test_all_ways(way, hyper, every, missing):
    # In double precision where nothing is random: that must be right to rounding.
    with jax.enable_x64(way == "optimal" and every == 0):
        check(
            hyper=hyper,
            missing=missing,
            proposal="prior" if way == "prior" else "exact",
            resample_fn=SCHEMES[way],
            rejuvenate_every=every,
            num_particles=PARTICLES[way],
            capacity=8 if way == "optimal" else 12,
            num_runs=1000 if way == "optimal" else 4000,
            max_standard_error=0.01,
        )


@pytest.mark.exhaustive
@pytest.mark.slow
def test_bias_feature():
    check(bias=True, missing=True, num_particles=8, rejuvenate_every=2, proposal="exact")


@pytest.mark.slow
def test_counting_imputed_cells_is_caught(monkeypatch):
    def fit_of(particle, features, x, observed):
        squared_error, inflation, _ = honest(particle, features, x, observed)
        return squared_error, inflation, jnp.asarray(x.shape[0], x.dtype)

    honest = proposals._fit_of
    monkeypatch.setattr(proposals, "_fit_of", fit_of)
    with pytest.raises(AssertionError, match="evidence"):
        check(num_particles=16, missing=True, num_runs=2000, max_standard_error=None)


# --- structure ----------------------------------------------------------------------------------


def small_data(num_rows=20, num_columns=4, missing=False):
    rng = np.random.default_rng(3)
    values = rng.normal(size=(num_rows, num_columns))
    if missing:
        values[rng.random(values.shape) < 0.2] = np.nan
    return Dense(values.astype(jnp.result_type(float)))


@pytest.mark.tiers(exhaustive=["exact", "prior, rejuvenated"])
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"rejuvenate_every": 3}, marks=pytest.mark.slow),
        pytest.param({"proposal": "exact"}, marks=pytest.mark.slow),
    ],
    ids=["prior", "prior, rejuvenated", "exact"],
)
def test_grown_is_the_same_as_large_from_the_start(options):
    from jaxmf.engine import run

    with jax.enable_x64(True):
        model = LinearGaussianIBP(alpha=2.0, noise_scale=0.5, feature_scale=1.0)
        data = small_data(12)
        clouds = []
        for capacity in (2, 8):
            algorithm = model.filter(num_particles=8, capacity=capacity, **options)
            clouds.append(run(algorithm, data, num_samples=12, seed=5, progress=False))
        small, large = clouds
        size = min(small.capacity["features"], large.capacity["features"])
        assert small.capacity["features"] > 2
        np.testing.assert_allclose(
            small.draws["log_evidence"], large.draws["log_evidence"], rtol=1e-9
        )
        z = [run.draws.get("z", run.state.particles.z) for run in clouds]
        np.testing.assert_array_equal(z[0][..., :size], z[1][..., :size])
        assert not np.any(z[0][..., size:])
        assert not np.any(z[1][..., size:])


@pytest.mark.slow
def test_statistics_stay_right_over_many_rows():
    # Rank-one updates in single precision against the Cholesky form of the last row's Z.
    model = LinearGaussianIBP(alpha=1.0, noise_scale=0.5, feature_scale=1.0)
    rng = np.random.default_rng(0)
    z = rng.random((2000, 3)) < 0.5
    values = z @ rng.normal(size=(3, 6)) + 0.5 * rng.normal(size=(2000, 6))
    data = Dense(values.astype(np.float32))
    algorithm = model.filter(num_particles=4, capacity=16)
    cloud, (draws, overflow) = filtered(algorithm, data, jax.random.key(0), 2000)
    assert not np.any(overflow)
    state, ancestor = np.asarray(draws["z"]), np.asarray(draws["ancestor"])
    index, path = 0, []
    for row in range(1999, -1, -1):
        path.append(state[row, index])
        index = ancestor[row, index]
    z = np.array(path[::-1], float)
    spread = np.linalg.inv(z.T @ z + 0.25 * np.eye(16))
    found = cloud.particles.posterior
    np.testing.assert_allclose(found.spread[0], spread, rtol=2e-3, atol=1e-5)
    np.testing.assert_allclose(found.mean[0], spread @ z.T @ values, rtol=2e-3, atol=2e-4)
    np.testing.assert_array_equal(cloud.particles.counts[0], z.sum(0))


def test_finite_model_of_one_row_is_exact():
    # One row, K features: the evidence is a sum over 2^K settings, exact with one particle.
    model = LinearGaussianIBP(alpha=1.5, noise_scale=0.6, feature_scale=0.9, num_features=7)
    data = Dense(VALUES[:1].astype(jnp.result_type(float)))
    algorithm = model.filter(num_particles=1, proposal="exact")
    cloud, _ = filtered(algorithm, data, jax.random.key(0), 1)
    probability = 1.5 / 7 / (1.5 / 7 + 1)
    terms = []
    for on in range(8):
        variance = 0.6**2 + 0.9**2 * on
        log_density = -np.log(2 * np.pi * variance) - 0.5 * (VALUES[0] ** 2).sum() / variance
        prior = math.comb(7, on) * probability**on * (1 - probability) ** (7 - on)
        terms.append(np.log(prior) + log_density)
    assert float(cloud.log_evidence) == pytest.approx(np.logaddexp.reduce(terms), abs=2e-5)
    assert algorithm.capacity(cloud)["features"] == 7


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"proposal": "best"}, "proposal must be one of"),
        ({"resample_fn": optimal}, "needs proposal='exact'"),
        ({"anneal_from": 0.5}, "set anneal_steps"),
        ({"anneal_from": 1.5, "anneal_steps": 3}, "anneal_from"),
        ({"anneal_steps": -1}, "anneal_steps"),
        ({"proposal": "exact", "capacity": 17}, "2\\^K"),
        ({"proposal": "exact", "resample_fn": optimal, "capacity": 11}, "2\\^K"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(ValueError, match=words):
        LinearGaussianIBP(**FIXED).filter(num_particles=4, **options)


def test_growing_past_what_can_be_enumerated_is_refused():
    algorithm = LinearGaussianIBP(**FIXED).filter(num_particles=2, proposal="exact", capacity=16)
    init = jax.jit(algorithm.init, compiler_options=LONG_RUNS)
    cloud = init(jax.random.key(0), small_data())
    with pytest.raises(ValueError, match="proposal='prior'"):
        algorithm.grow(cloud, {"features": 32})
