"""Split-merge moves of an HDP: enumeration, joint distributions, factors left out."""

import itertools
import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf
from jaxmf.blocks import split_merge_shared
from jaxmf.blocks.state import NetworkState
from jaxmf.data import Tokens
from jaxmf.testing import check_kernel, check_means
from tests import FAST_COMPILE
from tests.support.network_checks import observed, posterior_of
from tests.support.network_oracles import stirling

ALPHA, GAMMA = 1.2, 0.7
FIVE = Tokens(
    {"document": [0, 1, 0, 1, 0], "word": [0, 0, 1, 1, 1], "kind": [0, 0, 1, 0, 1]},
    {"document": 2, "word": 3, "kind": 2},
)


def network_of(prior, *, likelihood=True):
    blocks = {"topic": mf.Block(prior, by="document")}
    if likelihood:
        blocks["word"] = observed(mf.DirichletMultinomial(3, 1.0), ("kind", "topic"))
    return mf.Network(**blocks)


def move(network, key, state, data, *, num_scans, num_proposals=5):
    return split_merge_shared.split_merge_shared(
        network,
        "topic",
        key,
        state,
        data,
        num_proposals=num_proposals,
        num_scans=num_scans,
        # less than all tokens, so that some proposals are not made
        most_tokens=4,
    )


@cache
def exact_states(num_chains):
    """Chains from the exact posterior: partitions (P, 5), their probabilities (P,), and of each
    chain the labels (C, 5) and weights (C, 6), the rest last."""
    network = network_of(mf.HDP(ALPHA, GAMMA)).at(FIVE)
    variables = {name: np.asarray(column) for name, column in FIVE.columns.items()}
    partitions, posterior = posterior_of(network, variables, "topic", 5)
    generator = np.random.default_rng(0)
    chosen = np.sort(generator.choice(len(partitions), size=num_chains, p=posterior))
    indices, counts = np.unique(chosen, return_counts=True)
    weights = [
        weights_of(generator, variables["document"], partitions[index], count)
        for index, count in zip(indices, counts, strict=True)
    ]
    return partitions, posterior, partitions[chosen].astype(np.int32), np.concatenate(weights)


def weights_of(generator, documents, partition, num_draws):
    """tau given the groups: (num_draws, 6). By the exact distribution of the numbers of tables."""
    cells, sizes = np.unique(np.stack([documents, partition], axis=1), axis=0, return_counts=True)
    num_groups = partition.max() + 1
    options, terms = [], []
    for tables in itertools.product(*(range(1, size + 1) for size in sizes)):
        of_group = np.bincount(cells[:, 1], tables, num_groups).astype(int)
        total = sum(tables)
        term = ALPHA**total / np.prod(GAMMA + np.arange(total))
        term *= np.prod([stirling(n, m) for n, m in zip(sizes, tables, strict=True)])
        options.append(of_group)
        terms.append(term * np.prod([math.factorial(m - 1) for m in of_group]))
    drawn = generator.choice(len(terms), size=num_draws, p=np.array(terms) / sum(terms))
    gammas = generator.gamma(
        np.concatenate([np.array(options)[drawn], np.full((num_draws, 1), GAMMA)], axis=1)
    )
    shares = gammas / gammas.sum(axis=1, keepdims=True)
    return np.concatenate(
        [shares[:, :-1], np.zeros((num_draws, 5 - num_groups)), shares[:, -1:]], axis=1
    )


def check_partitions(*, num_scans, num_chains=20_000):
    """Chains from the exact posterior of five tokens; after proposals it must still be that."""
    network = network_of(mf.HDP(ALPHA, GAMMA)).at(FIVE)
    partitions, posterior, labels, weights = exact_states(num_chains)
    fixed = {
        name: block.distribution.start(*([5] * (name == "topic")))
        for name, block in network.blocks.items()
    }

    def of_weights(labels, weights):
        sizes = jnp.sum(labels[:, None] == jnp.arange(5), axis=0)
        return {
            "squares": jnp.sum(weights**2),
            "of the first": weights[labels[0]],
            "of sizes": jnp.sum(weights * sizes) / 5,
        }

    def run(key, labels, weights):
        hyperparameters = fixed | {
            "topic": fixed["topic"] | {"weights": weights[:-1], "rest": weights[-1]}
        }
        state = NetworkState({"topic": labels}, hyperparameters, {"topic": jnp.ones(5, bool)})
        state, _ = move(network, key, state, FIVE, num_scans=num_scans)
        after = state.values["topic"]
        same = after[:, None] == after
        index = jnp.all(same == (partitions[:, :, None] == partitions[:, None]), axis=(1, 2))
        moved = jnp.any(same != (labels[:, None] == labels))
        changes = jax.tree.map(
            jnp.subtract,
            of_weights(after, state.hyperparameters["topic"]["weights"]),
            of_weights(labels, weights[:-1]),
        )
        return {"partition": index.astype(float), **changes}, moved

    keys = jax.random.split(jax.random.key(4), num_chains)
    run_all = jax.jit(jax.vmap(run), compiler_options=FAST_COMPILE)
    found, moved = run_all(keys, jnp.asarray(labels), jnp.asarray(weights, jnp.result_type(float)))
    assert np.mean(moved) > 0.2
    exact = {"partition": posterior, "squares": 0.0, "of the first": 0.0, "of sizes": 0.0}
    return check_means(found, exact, title="five tokens", max_standard_error=0.01)


@pytest.mark.tiers(slow=["1"], exhaustive=["0"])
@pytest.mark.parametrize("num_scans", [1, 0])
def test_splits_and_merges_of_shared_groups_against_enumeration(num_scans):
    check_partitions(num_scans=num_scans)


@pytest.mark.tiers(exhaustive=["proposal"])
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["Jacobian", "proposal"])
def test_a_ratio_that_leaves_a_factor_out_is_caught(fault, monkeypatch):
    share_out = split_merge_shared._TablePasses.share_out

    def forgetful(self, *args):
        scan = share_out(self, *args)
        if fault == "proposal":
            return scan._replace(log_proposal=jnp.zeros_like(scan.log_proposal))
        # the weights of a and b, as if they were those of one group: without B(m_a, m_b)
        log_beta = jax.scipy.special.betaln(scan.counts[0], scan.counts[1])
        return scan._replace(log_ratio=scan.log_ratio - log_beta)

    monkeypatch.setattr(split_merge_shared._TablePasses, "share_out", forgetful)
    with pytest.raises(AssertionError, match=r"partition.* expected"):
        check_partitions(num_scans=0)


def check_joint(title, network, *, step=None):
    """That the move, or a whole step, leaves the joint distribution as it is; and the weights."""
    network = network.at(FIVE)

    def kernel(key, pair, data):
        state, info = (
            step(key, pair[0], data)
            if step
            else move(network, key, pair[0], data, num_scans=1, num_proposals=2)
        )
        return (state, data), info

    def statistics(pair, data):
        state, data = pair
        labels, words = state.values["topic"], data.columns["word"]
        same = labels[:, None] == labels
        hyperparameters = state.hyperparameters["topic"]
        weights = hyperparameters["weights"]
        return {
            "pairs": jnp.sum(same),
            "some": same[0, 1] + 2 * same[0, 2] + 4 * same[3, 4],
            "words": jnp.sum(same & (words[:, None] == words)),
            "groups": jnp.sum(state.slots["topic"]),
            "squares": jnp.sum(weights**2),
            "weight of a token": weights[labels[0]],
            "rest": hyperparameters["rest"],
            "concentration": hyperparameters["concentration"],
            "base": hyperparameters["base_concentration"],
        }

    return check_kernel(
        kernel,
        sample_prior=lambda key: network.simulate(key, FIVE, capacity=6),
        simulate=lambda key, pair: pair[1],
        statistics=statistics,
        key=jax.random.key(1),
        title=title,
        compiler_options=FAST_COMPILE,
    )


@pytest.mark.tiers(exhaustive=["False", "True"])
@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [True, False])
def test_the_move_leaves_the_joint_distribution_as_it_is(likelihood):
    prior = mf.HDP(dist.Gamma(2.0, 1.0), dist.Gamma(2.0, 1.0))
    check_joint(f"likelihood {likelihood}", network_of(prior, likelihood=likelihood))


@pytest.mark.exhaustive
@pytest.mark.parametrize("sweep", ["sequential", "parallel"])
def test_a_step_with_the_move_leaves_the_joint_distribution_as_it_is(sweep):
    network = network_of(mf.HDP(dist.Gamma(2.0, 1.0), dist.Gamma(2.0, 1.0)))
    sampler = network.sampler(sweep=sweep, split_merge=2)
    check_joint(sweep, network, step=lambda *args: sampler.step(*args, jnp.ones(())))
