"""Annealed SMC of binary matrix factorisation against enumeration of 3 x 3 data.

The mean over 10,000 runs of the ratio of each run's evidence to the exact one is one, and so are
means of pairs of features weighted by it.
"""

import dataclasses

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.special import logsumexp

import jaxmf as mf
from jaxmf.models.binary_mf import chain, updates
from jaxmf.samplers.annealed_smc import annealed_smc
from jaxmf.testing import check_means
from tests.models.test_binary_mf_enumeration import (
    CAPACITY,
    DATA,
    Case,
    Closed,
    Quadrature,
    measure,
)
from tests.samplers.test_annealed_smc import many_runs
from tests.support import bilinear_oracle

LEAST, MOST = 0.4, 1.2
CASES = {
    "summed out": Case(missing=False, weights="collapsed"),
    "process, cells missing": Case(num_features=(None, 2), alpha=0.2),
    "diagonal": Case(diagonal=True, missing=False, weights="collapsed"),
    "logistic": Case("logistic", (2, 1)),
    "poisson": Case("poisson", (2, 1)),
}


def exact_of(case):
    """The joint posterior of U and V, and the log evidence."""
    if case.likelihood != "gaussian":
        exact = Quadrature(case)
        log_prior = exact.u.log_prior[:, None] + exact.v.log_prior
        return exact.joint, logsumexp(logsumexp(exact.log_terms, axis=2) + log_prior)
    exact = Closed(case)
    return exact.joint, log_evidence(case, exact.settings)


def log_evidence(case, settings):
    u, v = case.sides()
    options = {"observed": case.observed, **settings}
    log_joint = bilinear_oracle.log_likelihood(u.z[:, None], v.z[None], DATA["gaussian"], **options)
    return logsumexp(log_joint + u.log_prior[:, None] + v.log_prior)


def runs_of(model, case, *, num_runs=10_000, **options):
    path = model.annealed(case.data, weights=case.weights, several=1, **options)
    algorithm = annealed_smc(path, num_particles=8, chain_length=4, powers=[0.1, 1.0])
    state, trace, overflow = many_runs(algorithm, case.data, num_steps=3, num_runs=num_runs)
    assert not overflow
    return state.particles, trace["log_evidence"][:, -1].astype(float)


def check_case(case, **options):
    joint, exact = exact_of(case)
    particles, estimates = runs_of(case.model, case, capacity=CAPACITY, **options)
    ratio = np.exp(estimates - exact)
    means = joint.expectations(measure)
    samples = {"evidence": ratio}
    for side, bits in (("u", particles.u), ("v", particles.v)):
        for name, values in measure(bits).items():
            samples[f"{side}: {name}"] = ratio[:, None] * values.mean(axis=1)
    check_means(samples, {"evidence": 1.0} | means, title="annealed factorisation")


@pytest.mark.tiers(exhaustive=["diagonal", "poisson", "process, cells missing", "summed out"])
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_evidence_and_posterior_against_enumeration(case):
    check_case(case)


@pytest.mark.exhaustive
def test_weights_moved_at_the_wrong_power_are_caught(monkeypatch):
    right = updates.propose_weights

    def wrong(key, side, *, likelihood, **options):
        inverse = dataclasses.replace(likelihood, power=1 / likelihood.power)
        return right(key, side, likelihood=inverse, **options)

    monkeypatch.setattr(updates, "propose_weights", wrong)
    with pytest.raises(AssertionError, match="annealed factorisation"):
        check_case(CASES["logistic"])


def check_noise(weights, **options):
    """The noise scale uniform: the mean of the evidence over the nodes of a quadrature."""
    case = Case(num_features=(1, 1), missing=False, weights=weights)
    model = dataclasses.replace(case.model, likelihood=mf.Gaussian(dist.Uniform(LEAST, MOST)))
    nodes, masses = np.polynomial.legendre.leggauss(24)
    scales = LEAST + (MOST - LEAST) / 2 * (1 + nodes)
    settings = Closed(case).settings
    each = [log_evidence(case, settings | {"noise_scale": scale}) for scale in scales]
    exact = logsumexp(each, b=masses / 2)
    particles, estimates = runs_of(model, case, **options)
    ratio, evidences = np.exp(estimates - exact), np.exp(each - exact) * masses / 2
    noise = {f"noise^{k}": ratio * (particles.noise_scale**k).mean(axis=1) for k in (1, 2)}
    means = {f"noise^{k}": np.sum(evidences * scales**k) for k in (1, 2)}
    check_means({"evidence": ratio} | noise, {"evidence": 1.0} | means, title="annealed noise")


@pytest.mark.exhaustive
@pytest.mark.parametrize("weights", ["collapsed", "explicit"])
def test_a_noise_scale_that_is_learned_against_quadrature(weights):
    check_noise(weights)


@pytest.mark.exhaustive
@pytest.mark.parametrize("weights", ["collapsed", "explicit"])
def test_a_noise_scale_moved_at_the_wrong_power_is_caught(monkeypatch, weights):
    right = chain.update_hyperparameters

    def wrong(model, key, state, data, *, power):
        return right(model, key, state, data)

    monkeypatch.setattr(chain, "update_hyperparameters", wrong)
    with pytest.raises(AssertionError, match="annealed noise"):
        check_noise(weights, num_runs=4_000)


def test_weights_are_kept_where_cells_are_missing():
    case = CASES["process, cells missing"]
    key = jax.random.key(0)
    for data, kept in ((case.data, True), (Case(missing=False).data, False)):
        state, _ = case.model.annealed(data, capacity=3).init(key, data, None)
        assert (state.weights is not None) == kept
    with pytest.raises(ValueError, match='missing; set weights="explicit"'):
        case.model.annealed(case.data, weights="collapsed")
