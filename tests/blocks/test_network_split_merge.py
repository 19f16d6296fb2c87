"""Split-merge moves of processes: enumeration, joint distributions, a merged mode."""

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


def blocks(distribution):
    return {
        "group": mf.Block(distribution),
        "word": observed(mf.DirichletMultinomial(3, 0.5), ("kind", "group")),
        "length": observed(LENGTH, "group"),
    }


def check_partitions(distribution, *, num_chains=20_000, others=None):
    """Chains from the exact posterior of five tokens; after proposals it must still be that."""
    others = blocks(distribution) if others is None else {"group": mf.Block(distribution), **others}
    network = mf.Network(**others).at(FIVE)
    variables = {n: np.asarray(value) for n, value in {**FIVE.columns, **FIVE.values}.items()}
    partitions, posterior = posterior_of(network, variables, "group", 5)
    chosen = np.random.default_rng(0).choice(len(partitions), size=num_chains, p=posterior)
    hyperparameters = {
        n: value.distribution.start(*([5] * (n == "group"))) for n, value in network.blocks.items()
    }

    def run(key, labels):
        state = NetworkState({"group": labels}, hyperparameters, {"group": jnp.ones(5, bool)})
        state, _ = split_merge.split_merge(network, "group", key, state, FIVE, num_proposals=5)
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


def test_splits_and_merges_against_enumeration():
    check_partitions(PITMAN_YOR)


@pytest.mark.slow
def test_splits_and_merges_of_rows_with_missing_cells_against_enumeration():
    check_partitions(PITMAN_YOR, others=GAPS)


@pytest.mark.slow
def test_a_proposal_that_forgets_its_probability_is_caught(monkeypatch):
    chosen = split_merge.choose_side

    def forgetful(logs, uniform):
        side, log_chance = chosen(logs, uniform)
        return side, tuple(jnp.full_like(one, -jnp.log(2.0)) for one in log_chance)

    monkeypatch.setattr(split_merge, "choose_side", forgetful)
    with pytest.raises(AssertionError, match=r"partition.* expected"):
        check_partitions(PITMAN_YOR)


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


@pytest.mark.slow
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
