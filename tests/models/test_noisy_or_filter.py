"""The filter of the noisy-OR Indian buffet process against enumeration of all Z."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.special import roots_genlaguerre, roots_jacobi

from jaxmf.data import Dense
from jaxmf.engine import run
from jaxmf.models.noisy_or import NoisyOrIBP
from jaxmf.models.noisy_or import filter as noisy_or_filter
from jaxmf.samplers.resampling import multinomial, optimal, residual, stratified, systematic
from jaxmf.testing import check_means, enumerate_features
from tests import LONG_RUNS
from tests.support import noisy_or_oracles as oracles
from tests.support.chain_runs import paths, run_filter
from tests.support.oracles import log_prior_of_classes

NUM_RUNS = 3_000
MOST_SHOWN = 4
MAX_FEATURES = 7
X = np.array([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
OBSERVED = np.array([[True, True, False], [True, True, True], [False, True, True]])
NUM_ROWS = len(X)
FIXED = {"alpha": 0.5, "cause_probability": 0.4, "efficacy": 0.8, "leak": 0.1}
PRIORS = {
    "alpha": dist.Gamma(16.0, 32.0),
    "cause_probability": dist.Beta(4.0, 6.0),
    "efficacy": dist.Beta(8.0, 2.0),
    "leak": dist.Beta(2.0, 12.0),
}
NUM_NODES = {"alpha": 12, "cause_probability": 7, "efficacy": 6, "leak": 5}


def nodes_of(name, value):
    """A prior as its values at the nodes of a quadrature, with the weights."""
    if isinstance(value, float):
        return np.array([value]), np.ones(1)
    if name == "alpha":
        nodes, weights = roots_genlaguerre(NUM_NODES[name], float(value.concentration) - 1)
        return nodes / float(value.rate), weights / weights.sum()
    shapes = float(value.concentration0) - 1, float(value.concentration1) - 1
    nodes, weights = roots_jacobi(NUM_NODES[name], *shapes)
    return (nodes + 1) / 2, weights / weights.sum()


@functools.cache
def exact(hyper, missing):
    """Log evidence and posterior means, summed over classes and the nodes of the priors."""
    classes = enumerate_features(NUM_ROWS, MAX_FEATURES)
    observed = OBSERVED if missing else np.ones(X.shape, bool)
    settings = PRIORS if hyper else FIXED
    log_prior = np.logaddexp.reduce(
        [
            log_prior_of_classes(classes, alpha=alpha) + np.log(weight)
            for alpha, weight in zip(*nodes_of("alpha", settings["alpha"]), strict=True)
        ]
    )
    names = ("cause_probability", "efficacy", "leak")
    grids = [list(zip(*nodes_of(name, settings[name]), strict=True)) for name in names]
    log_likelihood = np.logaddexp.reduce(
        [
            oracles.log_likelihood(
                classes.z,
                X,
                observed,
                **{name: node[0] for name, node in zip(names, point, strict=True)},
            )
            + np.log(np.prod([weight for _, weight in point]))
            for point in itertools.product(*grids)
        ]
    )
    joint = log_prior + log_likelihood
    evidence = np.logaddexp.reduce(joint)
    weights = np.exp(joint - evidence)
    z = classes.z.astype(float)
    num_features = classes.num_features
    return evidence, {
        "evidence": 1.0,
        "num_features": np.array([weights[num_features == k].sum() for k in range(MOST_SHOWN)]),
        "cooccurrence": np.einsum("c,cik,cjk->ij", weights, z, z)[np.triu_indices(NUM_ROWS)],
    }


def data_of(missing):
    return Dense(np.where(OBSERVED, X, np.nan) if missing else X)


def check(
    *,
    hyper=False,
    missing=False,
    num_particles=100,
    num_runs=NUM_RUNS,
    capacity=10,
    max_standard_error=0.02,
    **options,
):
    """Evidence ratio, and ratio times the mean of each statistic: unbiased, run by run."""
    model = NoisyOrIBP(**(PRIORS if hyper else FIXED))
    algorithm = model.filter(num_particles=num_particles, capacity=capacity, **options)
    log_evidence, means = exact(hyper, missing)
    data = data_of(missing)

    def one(key):
        cloud, (draws, overflow) = run_filter(algorithm, data, key, NUM_ROWS)
        z = paths(draws, cloud, NUM_ROWS).astype(cloud.log_weights.dtype)
        ratio = jnp.exp(cloud.log_evidence - log_evidence)
        weights = ratio * jax.nn.softmax(cloud.log_weights)
        num_features = jnp.sum(jnp.any(z > 0, axis=1), axis=1)
        overlap = jnp.einsum("p,pik,pjk->ij", weights, z, z)
        return {
            "evidence": ratio,
            "num_features": weights @ (num_features[:, None] == jnp.arange(MOST_SHOWN)),
            "cooccurrence": overlap[jnp.triu_indices(NUM_ROWS)],
        }, jnp.any(overflow)

    keys = jax.random.split(jax.random.key(7), num_runs)
    many = jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=500), compiler_options=LONG_RUNS)
    samples, overflow = many(keys)
    assert not np.any(overflow), "the test needs a larger capacity"
    report = check_means(samples, means, max_standard_error=max_standard_error)
    print(report)
    return report


# --- both proposals, with and without the rest --------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.slow
def test_prior_proposal():
    check(missing=True)


@pytest.mark.slow
def test_informed_proposal():
    check(proposal="informed", num_particles=40, missing=True)


@pytest.mark.tiers(
    exhaustive=[
        "informed-False-1-True-multinomial",
        "informed-True-2-False-systematic",
        "prior-False-2-True-stratified",
        "prior-True-0-False-residual",
        "prior-True-1-True-systematic",
    ]
)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("proposal", "hyper", "every", "missing", "resample_fn"),
    [
        ("prior", False, 2, True, stratified),
        ("prior", True, 0, False, residual),
        ("prior", True, 1, True, systematic),
        ("informed", False, 1, True, multinomial),
        ("informed", True, 2, False, systematic),
    ],
)
def test_all_ways(proposal, hyper, every, missing, resample_fn):
    check(
        hyper=hyper,
        missing=missing,
        proposal=proposal,
        resample_fn=resample_fn,
        rejuvenate_every=every,
        # of 900 000 sweeps with alpha from its prior some few make a particle with many causes
        capacity=14 if hyper and every else 10,
    )


@pytest.mark.exhaustive
def test_no_leak_in_the_finite_model():
    # then a one without a cause is impossible, and the last undecided bit decides alone
    settings = {"alpha": 1.0, "cause_probability": 0.5, "efficacy": 0.8, "leak": 0.0}
    exact = oracles.posterior_of_matrices(X, np.ones(X.shape, bool), num_features=3, **settings)
    model = NoisyOrIBP(**settings, num_features=3)
    algorithm = model.filter(num_particles=40, proposal="informed")

    def one(key):
        cloud, _ = run_filter(algorithm, data_of(False), key, NUM_ROWS)
        return {"evidence": jnp.exp(cloud.log_evidence - exact.log_evidence)}

    keys = jax.random.split(jax.random.key(8), 2_000)
    print(check_means(jax.jit(jax.vmap(one))(keys), {"evidence": 1.0}, max_standard_error=0.05))


def must_fail(**options):
    with pytest.raises(AssertionError, match="evidence"):
        check(num_runs=2_000, max_standard_error=None, **options)


@pytest.mark.exhaustive
def test_weighting_by_equation_8_is_caught(monkeypatch):
    """Line 5 of Algorithm 3 as it stands: the new causes not in the weight."""
    right = noisy_or_filter._log_probability

    def twin(eta, cells, parameters, unseen):
        return right(eta, cells, parameters, jnp.zeros_like(unseen))

    monkeypatch.setattr(noisy_or_filter, "_log_probability", twin)
    must_fail(missing=True)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_counting_missing_cells_is_caught(monkeypatch):
    right = Dense.row
    monkeypatch.setattr(Dense, "row", lambda data, index: (right(data, index)[0], None))
    must_fail(missing=True)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_an_informed_proposal_without_its_own_probability_is_caught(monkeypatch):
    """The prior's share alone in the weight: bits as if they had been proposed from the prior."""
    monkeypatch.setattr(noisy_or_filter, "_weight_of_choice", lambda on, prior, chance: 1.0)
    must_fail(proposal="informed")


# --- structure ----------------------------------------------------------------------------------


@pytest.mark.tiers(exhaustive=["informed", "prior"])
@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"proposal": "informed", "rejuvenate_every": 3}], ids=["prior", "informed"]
)
def test_grown_is_the_same_as_large_from_the_start(options):
    with jax.enable_x64(True):
        model = NoisyOrIBP(**FIXED | {"alpha": 2.0})
        data = Dense((np.random.default_rng(3).random((10, 6)) < 0.4) * 1.0)
        small, large = (
            run(
                model.filter(num_particles=8, capacity=capacity, **options),
                data,
                num_samples=10,
                seed=5,
                progress=False,
            )
            for capacity in (2, 16)
        )
        size = min(small.capacity["features"], large.capacity["features"])
        assert small.capacity["features"] > 2
        np.testing.assert_allclose(
            small.draws["log_evidence"], large.draws["log_evidence"], rtol=1e-9
        )
        for left, right in [
            (small.state.particles.y[..., :size, :], large.state.particles.y[..., :size, :]),
            (small.state.particles.counts[..., :size], large.state.particles.counts[..., :size]),
        ]:
            np.testing.assert_array_equal(left, right)
        assert not np.any(large.state.particles.counts[..., size:])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"proposal": "best"}, "proposal must be one of 'prior', 'informed'"),
        ({"resample_fn": optimal}, "use systematic"),
        ({"capacity": 0}, "capacity must be"),
        ({"num_particles": 0}, "num_particles"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(ValueError, match=words):
        NoisyOrIBP(**FIXED).filter(**{"num_particles": 4, **options})
