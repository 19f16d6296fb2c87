"""Annealed SMC of mixtures: conditionals at every power, and the evidence, against enumeration.

The mean over 10,000 runs of the ratio of each run's evidence to the exact one is one, and so are
means of pairs of rows in one group weighted by it.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.special import gamma, logsumexp, roots_genlaguerre

import jaxmf as mf
from jaxmf.blocks import annealed
from jaxmf.data import Dense
from jaxmf.samplers.annealed_smc import annealed_smc
from jaxmf.testing import check_means, enumerate_partitions
from tests.blocks.test_network_exact import COLUMNS, NUM_TOKENS, assert_exact, problem
from tests.samplers.test_annealed_smc import many_runs
from tests.support import network_oracles as oracles

VALUES = np.array([0.25, 1.5, 1.2, -2.0, -1.4])
ROWS = np.array([[0.2, 0.1], [1.5, 2.0], [1.2, 1.6], [-2.0, 0.5], [-1.4, 0.2]])
GAPS = np.where(np.arange(10).reshape(5, 2) % 4 == 1, np.nan, ROWS)
COUNTS = np.array([0.0, 5.0, 4.0, 1.0, 9.0])
NORMAL = mf.NormalInverseGamma(0.3, 0.4, 2.0, 0.6)
VECTORS = mf.NormalInverseWishart(2, 0.2, 0.5, 4.5, 0.7)
LEARNED = dist.Gamma(2.0, 1.0)
NODES, NODE_WEIGHTS = roots_genlaguerre(24, 1.0)  # of Gamma(2, 1)
MODELS = {
    "process, concentration learned": (mf.DPMixture(LEARNED, family=NORMAL), VALUES, {}),
    "process, splits": (mf.DPMixture(1.3, family=NORMAL), VALUES, {"split_merge": 2}),
    "pitman-yor, vectors": (mf.DPMixture(0.8, 0.4, family=VECTORS), ROWS, {}),
    "process, missing cells": (mf.DPMixture(0.8, family=mf.IndependentColumns(NORMAL)), GAPS, {}),
    "process, counts": (mf.DPMixture(0.8, family=mf.GammaPoisson(1.5, 0.5)), COUNTS, {}),
    "three groups": (mf.MixtureOfGaussians(3, 0.7, family=NORMAL), VALUES, {}),
}


# --- the kernel -----------------------------------------------------------------------------------


def powered(name, power):
    """A network of `test_network_exact`, its joint density with the likelihood to a power."""
    case = problem(name)
    family_name = case.network.observed[0]
    values = np.asarray(COLUMNS[family_name])
    family = case.network.blocks[family_name].distribution
    block = case.network.blocks[family_name]
    log_likelihood = []
    for labels in case.states["group"]:
        parts = oracles.parts_of(block, COLUMNS | {"group": labels}, NUM_TOKENS)
        members = [[values[i] for i in range(NUM_TOKENS) if parts[i] == p] for p in set(parts)]
        log_likelihood.append(sum(oracles.log_of_group(family, each) for each in members))
    reduced = case.log_posterior - (1 - power) * np.array(log_likelihood)
    return case._replace(log_posterior=reduced)


def swept_at(case, power):
    """What a sweep sees of the network at a power."""
    with jax.enable_x64(True):
        return annealed.raised(case.network.at(case.data), jnp.asarray(power, float))


@pytest.mark.parametrize(
    ("name", "power"),
    [("process", 0.03), ("pitman-yor", 0.6), ("a function of an indicator", 0.6)],
)
def test_every_conditional_at_a_power_is_exact(name, power):
    case = powered(name, power)
    assert_exact(case, (), swept=swept_at(case, power), tolerance=1e-12)


def test_conditionals_at_another_power_are_caught():
    case = powered("process", 0.6)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_exact(case, (), swept=swept_at(case, 0.61), tolerance=1e-12)


# --- the evidence ---------------------------------------------------------------------------------


def log_likelihood(model, values, labels):
    return sum(
        oracles.log_of_group(model.family, values[labels == group].tolist())
        for group in set(labels.tolist())
    )


def exact_of(model, values):
    """The evidence, and means of what `measured` measures, by enumeration."""
    indices = [0] * len(values)
    prior = model.network().blocks["group"].distribution
    if prior.grows:
        listed = enumerate_partitions(len(values))
    else:
        listed = np.array(list(itertools.product(range(3), repeat=len(values))))
    concentrations, weights = np.array([np.nan]), np.ones(1)
    priors = [prior]
    if model.concentration is LEARNED:
        concentrations, weights = NODES, NODE_WEIGHTS / gamma(2.0)
        priors = [mf.DirichletProcess(float(node)) for node in NODES]
    log_joint = np.array(
        [
            [oracles.log_of_partition(each, indices, labels.tolist()) for labels in listed]
            for each in priors
        ]
    )
    log_joint += [log_likelihood(model, values, labels) for labels in listed]
    log_joint += np.log(weights)[:, None]
    log_evidence = logsumexp(log_joint)
    probabilities = np.exp(log_joint - log_evidence)
    exact = {name: probabilities.sum(0) @ each for name, each in measured(listed).items()}
    if model.concentration is LEARNED:
        exact["concentration"] = probabilities.sum(1) @ concentrations
    return log_evidence, exact


def measured(labels):
    """Pairs of rows in one group, and how many groups there are, of labels (..., N)."""
    upper = np.triu_indices(labels.shape[-1], 1)
    same = (labels[..., :, None] == labels[..., None, :])[(..., *upper)]
    order = np.sort(labels, axis=-1)
    num_groups = 1 + (np.diff(order, axis=-1) > 0).sum(-1)
    return {"pairs": same.astype(float), "groups": (num_groups[..., None] == np.arange(1, 5)) * 1.0}


def check_evidence(name, *, num_runs=10_000):
    model, values, options = MODELS[name]
    data = Dense(values.reshape(len(values), -1))
    path = model.annealed(data, capacity=len(values), **options)
    algorithm = annealed_smc(path, num_particles=8, chain_length=4, powers=[0.3, 1.0])
    state, trace, overflow = many_runs(algorithm, data, num_steps=3, num_runs=num_runs)
    assert not overflow
    log_evidence, exact = exact_of(model, values)
    ratio = np.exp(trace["log_evidence"][:, -1].astype(float) - log_evidence)
    labels = state.particles.values["group"]
    means = {label: each.mean(1) for label, each in measured(labels).items()}
    if "concentration" in exact:
        means["concentration"] = state.particles.hyperparameters["group"]["concentration"].mean(1)
    samples = {
        label: ratio.reshape(-1, *[1] * (each.ndim - 1)) * each for label, each in means.items()
    }
    check_means({"evidence": ratio} | samples, {"evidence": 1.0} | exact, title="annealed mixture")


@pytest.mark.tiers(
    exhaustive=[
        "pitman-yor, vectors",
        "process, concentration learned",
        "process, counts",
        "process, splits",
        "three groups",
    ]
)
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_evidence_and_posterior_of_mixtures_against_enumeration(name):
    check_evidence(name)


@pytest.mark.slow
def test_labels_moved_at_the_wrong_power_are_caught(monkeypatch):
    monkeypatch.setattr(annealed, "raised", lambda network, power: network)
    with pytest.raises(AssertionError, match="annealed mixture"):
        check_evidence("three groups", num_runs=5_000)


@pytest.mark.exhaustive
def test_slots_that_come_later_do_not_change_the_run():
    model, values, _ = MODELS["process, counts"]
    data, runs = Dense(values[:, None]), []
    for num_slots in (1, 5):
        path = model.annealed(data, capacity=num_slots)
        algorithm = annealed_smc(path, num_particles=20, chain_length=4, powers=[0.3, 1.0])
        runs.append(mf.engine.run(algorithm, data, num_samples=3, seed=3))
        assert runs[-1].capacity == {"group": 5}
    np.testing.assert_array_equal(*(run.draws["log_evidence"] for run in runs))


# --- one row left out -----------------------------------------------------------------------------


def left_out(model, values):
    """log p(row | all others) of every row, by enumeration."""
    everything, _ = exact_of(model, values)
    others = [np.delete(values, row, axis=0) for row in range(len(values))]
    return everything - np.array([exact_of(model, each)[0] for each in others])


@pytest.mark.tiers(exhaustive=["three groups"])
@pytest.mark.parametrize("name", ["pitman-yor, vectors", "three groups"])
def test_leave_one_out_of_rows_is_exact_over_all_partitions(name):
    """1 / p(row | others) is the mean of 1 / p(row | others, their groups) over the posterior."""
    model, values, _ = MODELS[name]
    prior, data = model.network().blocks["group"].distribution, values.reshape(len(values), -1)
    if prior.grows:
        listed = enumerate_partitions(len(values))
    else:
        listed = np.array(list(itertools.product(range(3), repeat=len(values))))
    log_joint = np.array(
        [
            oracles.log_of_partition(prior, [0] * len(values), labels.tolist())
            + log_likelihood(model, values, labels)
            for labels in listed
        ]
    )
    with jax.enable_x64(True):
        container = Dense(data)
        path = model.annealed(container, capacity=len(values))
        state, _ = jax.jit(path.init)(jax.random.key(0), container, None)

        def density(labels):
            draw = path.record(jax.random.key(0), with_labels(state, labels), container)
            return model.row_log_density(draw, container, jnp.arange(len(values)))

        answer = jax.jit(jax.vmap(density))(jnp.asarray(listed, jnp.int32))
        without, again = (np.asarray(values, float) for values in answer)
    log_posterior = (log_joint - logsumexp(log_joint))[:, None]
    exact = left_out(model, values)
    np.testing.assert_allclose(-logsumexp(log_posterior - without, axis=0), exact, rtol=1e-9)
    assert np.abs(-logsumexp(log_posterior - again, axis=0) - exact).min() > 0.01


def with_labels(state, labels):
    slots = {name: jnp.isin(jnp.arange(each.size), labels) for name, each in state.slots.items()}
    return state._replace(values={"group": labels}, slots=slots)


@pytest.fixture(scope="module")
def compared():
    """Runs of one group, and of as many as are needed, on two groups of numbers."""
    x = np.random.default_rng(0).normal(size=24) * 0.5 + np.repeat([-2.0, 2.0], 12)
    settings = {"num_particles": 80, "chain_length": 4, "num_runs": 2, "progress": False}
    models = {
        "one": mf.MixtureOfGaussians(1, family=NORMAL),
        "any": mf.DPMixture(1.0, family=NORMAL),
    }
    return x, {name: mf.smc(model, x[:, None], **settings) for name, model in models.items()}


@pytest.mark.exhaustive
def test_mixtures_are_compared_by_rows_and_by_evidence(compared):
    x, posts = compared
    exact = oracles.log_of_normals(x, NORMAL)
    assert posts["one"].log_evidence == pytest.approx(exact, abs=1e-3)
    assert posts["one"].log_evidence_error < 1e-3
    table = mf.compare(posts)
    assert table.names == ["any", "one"]
    assert table["one", "log evidence"] == pytest.approx(exact, abs=1e-3)
    without = [exact - oracles.log_of_normals(np.delete(x, row), NORMAL) for row in range(24)]
    assert table["one", "elpd"] == pytest.approx(sum(without), abs=1e-3)
    found = posts["one"].log_likelihood()
    np.testing.assert_allclose(found.values[0, 0], without, atol=1e-4)
    assert "24 rows given the draw and all other rows" in str(found)
    assert list(found.table()) == ["row", "mean", "sd"]


@pytest.mark.slow
def test_what_a_mixture_has_no_likelihood_of_is_refused(compared):
    x, posts = compared
    with pytest.raises(ValueError, match="DPMixture has a likelihood of whole rows"):
        posts["any"].log_likelihood(([0], [0]))
    short = {"num_warmup": 2, "num_samples": 30, "num_chains": 1, "progress": False}
    post = mf.sample(posts["one"].model, x[:, None], keep="statistics", **short)
    with pytest.raises(ValueError, match='in which group a row is; run it with keep="assignments"'):
        post.log_likelihood()
    cells = mf.sample(mf.LinearGaussianIBP(noise_scale=1.0), x[:, None], **short)
    with pytest.raises(ValueError, match="'cells' has a likelihood of cells and 'one' of rows"):
        mf.compare({"one": posts["one"], "cells": cells})
