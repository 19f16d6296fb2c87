"""Split-merge moves of processes: enumeration, joint distributions, a merged mode."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf
from jaxmf.blocks import split_merge
from jaxmf.blocks.split_merge import can_split
from jaxmf.blocks.state import NetworkState
from jaxmf.data import Tokens
from jaxmf.testing import check_kernel, check_means
from tests import FAST_COMPILE
from tests.support.network_checks import observed, posterior_of
from tests.support.network_oracles import log_joint

PITMAN_YOR = mf.PitmanYor(1.2, 0.4)
LENGTH = mf.NormalInverseGamma(0.5, 0.3, 2.0, 1.0)
FIVE = Tokens(
    {"word": [0, 1, 1, 2, 0], "kind": [0, 0, 1, 0, 1]},
    {"word": 3, "kind": 2},
    {
        "length": np.array([0.2, 1.0, -0.5, 2.0, 0.4]),
        "gaps": np.array([[0.2, np.nan], [1.0, 2.0], [-0.5, 0.1], [np.nan, 2.2], [np.nan, 0.3]]),
    },
)
GAPS = {"gaps": observed(mf.IndependentColumns(LENGTH, 2, scale=[3.0, 2.0]), "group")}

EIGHT = Tokens(
    {"word": [0, 1, 1, 2, 0, 0, 1, 2], "kind": [0, 0, 1, 0, 1, 0, 0, 1]},
    {"word": 3, "kind": 2},
    {"length": np.array([0.2, 3.0, -0.5, 2.0, 0.4, 0.3, 2.7, 1.2])},
)


def blocks(distribution):
    return {
        "group": mf.Block(distribution),
        "word": observed(mf.DirichletMultinomial(3, 0.5), ("kind", "group")),
        "length": observed(LENGTH, "group"),
    }


def check_partitions(blocks, data, *, num_chains=20_000):
    """Chains from the exact posterior of five tokens; after proposals it must still be that."""
    network = mf.Network(**blocks).at(data)
    variables = {n: np.asarray(value) for n, value in {**data.columns, **data.values}.items()}
    partitions, posterior = posterior_of(network, variables, "group", 5)
    chosen = np.random.default_rng(0).choice(len(partitions), size=num_chains, p=posterior)
    hyperparameters = {
        n: value.distribution.start(*([5] * (n == "group"))) for n, value in network.blocks.items()
    }

    def run(key, labels):
        state = NetworkState({"group": labels}, hyperparameters, {"group": jnp.ones(5, bool)})
        state, _ = split_merge.split_merge(network, "group", key, state, data, num_proposals=5)
        groups = state.values["group"]
        same = groups[:, None] == groups
        is_partition = jnp.all(same == (partitions[:, :, None] == partitions[:, None]), axis=(1, 2))
        moved = jnp.any(same != (labels[:, None] == labels))
        return {"partition": is_partition.astype(float), "groups": jnp.sum(1 / same.sum(1))}, moved

    keys = jax.random.split(jax.random.key(4), num_chains)
    labels = jnp.asarray(partitions[chosen], jnp.int32)
    found, moved = jax.jit(jax.vmap(run), compiler_options=FAST_COMPILE)(keys, labels)
    assert np.mean(moved) > 0.3
    exact = {"partition": posterior, "groups": np.sum(posterior * (partitions.max(1) + 1))}
    return check_means(found, exact, title="five tokens", max_standard_error=0.01)


@pytest.mark.slow
def test_splits_and_merges_against_enumeration():
    check_partitions(blocks(PITMAN_YOR), FIVE)


@pytest.mark.exhaustive
def test_splits_and_merges_of_rows_with_missing_cells_against_enumeration():
    check_partitions({"group": mf.Block(PITMAN_YOR), **GAPS}, FIVE)


@pytest.mark.exhaustive
def test_splits_and_merges_with_one_particle_against_enumeration(monkeypatch):
    monkeypatch.setattr(split_merge, "_WIDEST", 0)
    check_partitions(blocks(PITMAN_YOR), FIVE)


@pytest.mark.exhaustive
def test_partitions_without_a_likelihood_are_those_of_the_prior():
    same = Tokens({"word": np.zeros(5, int)}, {"word": 1})
    nothing = observed(mf.DirichletMultinomial(1, 0.5), "group")
    check_partitions({"group": mf.Block(PITMAN_YOR), "word": nothing}, same)


def check_particles(monkeypatch, *, num_chains=20_000):
    """Three particles against all 64 ways of having the first two of eight tokens in two groups.

    They are resampled before every member unless all weights are equal.

    Drawn beside one group, A must have the mean that it estimates. Beside two, drawn from all ways,
    so must 1 / A, and the way of a particle chosen by its weight be as likely as before.
    """
    monkeypatch.setattr(split_merge, "_LEAST_SHARE", 1.0)
    network = mf.Network(**blocks(PITMAN_YOR)).at(EIGHT)
    ways = np.array([[0, 1, *rest] for rest in itertools.product((0, 1), repeat=6)])
    variables = {n: np.asarray(value) for n, value in {**EIGHT.columns, **EIGHT.values}.items()}
    logs = [log_joint(network, variables | {"group": way}) for way in (0 * ways[0], *ways)]
    chances = np.exp(np.array(logs[1:]) - max(logs[1:]))
    log_new = np.log(1.2 + 0.4) - np.log(1 - 0.4)
    log_ratio = np.log(chances.sum()) + max(logs[1:]) - logs[0] - log_new
    chances /= chances.sum()
    start = np.random.default_rng(0).choice(64, size=num_chains, p=chances)
    hyperparameters = {
        n: value.distribution.start(*([8] * (n == "group"))) for n, value in network.blocks.items()
    }

    def run(key, labels, splits):
        order_key, key = jax.random.split(key)
        order = 2 + jax.random.permutation(order_key, 6)
        order = jnp.concatenate([jnp.arange(2), order, jnp.arange(2)])
        path, log_found = split_merge._shared_out(
            network,
            "group",
            key,
            NetworkState({"group": labels}, hyperparameters, {"group": jnp.ones(8, bool)}),
            (EIGHT, {"group": 8}),
            in_order=order,
            num_members=6,
            now=labels[order],
            splits=splits,
            num_particles=3,
        )
        way = jnp.zeros(8, jnp.int32).at[order[:8]].set(path[:8])
        error = jnp.where(splits, 1, -1) * (log_found - log_ratio)
        return jnp.exp(error), jnp.all(way == ways, axis=1).astype(float)

    run = jax.jit(jax.vmap(run, (0, 0, None)), compiler_options=FAST_COMPILE)
    keys, labels = jax.random.split(jax.random.key(4), num_chains), jnp.asarray(ways[start])
    found = {"A": run(keys, 0 * labels, True)[0]}
    found["1 / A"], found["ways"] = run(keys, labels, False)
    often = chances > 1e-3
    found["ways"] = found["ways"][:, often]
    expected = {"A": 1.0, "1 / A": 1.0, "ways": chances[often]}
    check_means(found, expected, title="eight tokens", max_standard_error=0.05)


@pytest.mark.slow
def test_particles_against_enumeration(monkeypatch):
    check_particles(monkeypatch)


@pytest.mark.exhaustive
def test_a_filter_that_does_not_keep_the_present_state_is_caught(monkeypatch):
    right = split_merge._resampled
    monkeypatch.setattr(
        split_merge, "_resampled", lambda particles, uniforms, _: right(particles, uniforms, False)
    )
    with pytest.raises(AssertionError, match=r"1 / A .* expected"):
        check_particles(monkeypatch)


@pytest.mark.slow
def test_a_filter_that_forgets_the_weights_before_is_caught(monkeypatch):
    right = split_merge._resampled

    def forgetful(particles, *given):
        after, parents = right(particles, *given)
        return after._replace(log_mean=particles.log_mean), parents

    monkeypatch.setattr(split_merge, "_resampled", forgetful)
    with pytest.raises(AssertionError, match=r"A .* expected"):
        check_particles(monkeypatch)


@pytest.mark.exhaustive
@pytest.mark.parametrize("sweep", ["sequential", "parallel"])
def test_a_step_leaves_the_joint_distribution_as_it_is(sweep):
    gamma = dist.Gamma(2.0, 1.0)
    distribution = mf.PitmanYor(gamma, dist.Beta(2.0, 2.0))
    network = mf.Network(
        group=mf.Block(distribution, by="document"),
        word=observed(mf.DirichletMultinomial(3, 0.5), ("document", "group")),
        times=observed(mf.GammaPoisson(2.0, 0.5), ("group", "document")),
    )
    step = network.sampler(sweep=sweep, split_merge=3).step
    documents = np.array([0, 0, 0, 1, 1, 1, 2])
    base = Tokens({"document": documents}, {"document": 3})
    together = documents[:, None] == documents

    def kernel(key, pair, data):
        state, info = step(key, pair[0], data, jnp.ones(()))
        return (state, data), info

    def statistics(pair, data):
        state, data = pair
        labels, word, times = state.values["group"], data.columns["word"], data.values["times"]
        same = (labels[:, None] == labels) & together
        return {
            "pairs": jnp.sum(same),
            "words": jnp.sum(same & (word[:, None] == word)),
            "times": jnp.sum(same * jnp.exp(-jnp.abs(times[:, None] - times))),
            **state.hyperparameters["group"],
        }

    check_kernel(
        kernel,
        sample_prior=lambda key: network.simulate(key, base),
        simulate=lambda key, pair: pair[1],
        statistics=statistics,
        key=jax.random.key(1),
        title=sweep,
        compiler_options=FAST_COMPILE,
    )


@pytest.mark.exhaustive
def test_a_merged_mode_is_left():
    """Two clusters in ten dimensions, started as one.

    Whether a token of 400 goes off alone is decided by its ten values together, and a few such
    must meet before a second group pays: plain Gibbs makes 30 sweeps without it. One proposal in
    two picks tokens of different clusters, and sharing the others out then tells them apart.
    """
    generator = np.random.default_rng(0)
    truth = np.arange(400) % 2
    points = generator.normal(size=(400, 10)) + 2.0 * truth[:, None]
    data = Tokens({"all": np.zeros(400, int)}, {"all": 1}, {"point": points})
    network = mf.Network(
        group=mf.Block(mf.DirichletProcess(1.0)),
        point=observed(mf.NormalInverseWishart(10, 0.0, 0.01, 12.0, 1.0), "group"),
    )
    found, keys = {}, jax.random.split(jax.random.key(1), 8)
    for num_proposals in (0, 2):
        sampler = network.sampler(split_merge=num_proposals, capacity=16)
        start = sampler.init(jax.random.key(0), data)
        start = start._replace(
            values={"group": jnp.zeros(400, jnp.int32)}, slots={"group": jnp.arange(16) < 1}
        )

        def run(key, start, data, sampler=sampler):
            def step(state, index):
                step_key = jax.random.fold_in(key, index)
                return sampler.step(step_key, state, data, jnp.ones(()))[0], None

            state, _ = jax.lax.scan(step, start, jnp.arange(30))
            return state.values["group"]

        labels = jax.jit(jax.vmap(run, (0, None, None)))(keys, start, data)
        found[num_proposals] = [
            np.mean((labelling[:, None] == labelling) == (truth[:, None] == truth))
            for labelling in np.asarray(labels)
        ]
    assert np.max(found[0]) < 0.6, found
    assert np.min(found[2]) > 0.95, found


def test_what_is_no_number_of_proposals_is_refused():
    network = mf.Network(**blocks(PITMAN_YOR))
    assert can_split(network, "group")
    with pytest.raises(ValueError, match="split_merge must be at least 0, got -1"):
        network.sampler(split_merge=-1)
    with pytest.raises(ValueError, match="split_merge: is for indicators with"):
        mf.Network(**blocks(mf.Dirichlet(3))).sampler(split_merge=1)
