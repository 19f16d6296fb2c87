"""What the tests of networks share: blocks in few words, joint distributions, enumeration."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import jaxmf as mf
from jaxmf.data import Tokens
from jaxmf.testing import check_kernel, check_means, enumerate_partitions
from tests import FAST_COMPILE
from tests.support import network_oracles as oracles

GAMMA = dist.Gamma(2.0, 1.0)
DOCUMENTS, ITEMS = [0, 0, 0, 1, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1, 1, 0]
BASE = Tokens({"document": DOCUMENTS, "item": ITEMS}, {"document": 3, "item": 2})


def observed(distribution, by):
    return mf.Block(distribution, by=by, observed=True)


def words(by):
    return observed(mf.DirichletMultinomial(3, 0.5), by)


def statistics_of(network):
    """Functions of state and data that do not depend on labels."""
    together = np.asarray(DOCUMENTS)[:, None] == np.asarray(DOCUMENTS)

    def statistics(pair, data):
        state, drawn = pair
        found = {}
        for name, labels in state.values.items():
            same = labels[:, None] == labels
            if not network.blocks[name].distribution.labels_shared and network.blocks[name].by:
                same &= together
            found[f"pairs of {name}"] = jnp.sum(same)
            found[f"some of {name}"] = same[0, 1] + 2 * same[3, 4] + 4 * same[6, 7] + 8 * same[0, 3]
            for child in network.children(name):
                values = drawn.values[child] if child in drawn.values else drawn.columns.get(child)
                if values is not None:
                    values = values.reshape(len(DOCUMENTS), -1).astype(jnp.result_type(float))
                    apart = jnp.nansum(jnp.abs(values[:, None] - values), axis=-1)
                    found[f"{child} within {name}"] = jnp.sum(same * jnp.exp(-apart))
        return found | hyperparameters_of(state)

    return statistics


def hyperparameters_of(state):
    """Hyperparameters, but for the weights of groups, whose order means nothing."""
    found = {}
    for name, hyperparameters in state.hyperparameters.items():
        for label, value in hyperparameters.items():
            if value.ndim == 0:
                found[f"{label} of {name}"] = value
            elif label == "concentration":
                found |= {f"{label} {k} of {name}": component for k, component in enumerate(value)}
    return found


def check_step(title, network, step_fn, *, base=BASE, statistics=None, **settings):
    """That a step leaves the joint distribution as it is.

    Args:
        title: of the test.
        network: that the state and the data are simulated from.
        step_fn: (key, state, data) -> (state, info).
        base: tokens with the columns that are given.
        statistics: functions of (state, data), by default those of `statistics_of`.
        settings: further ones of `check_kernel`.
    """

    def kernel(key, pair, data):
        state, info = step_fn(key, pair[0], data)
        return (state, data), info

    return check_kernel(
        kernel,
        sample_prior=lambda key: network.simulate(key, base),
        simulate=lambda key, pair: pair[1],
        statistics=statistics or statistics_of(network),
        key=jax.random.key(1),
        title=title,
        compiler_options=FAST_COMPILE,
        **settings,
    )


def whole_step(sampler):
    """The step of a sampler, as `check_step` takes it."""
    return lambda key, state, data: sampler.step(key, state, data, jnp.ones(()))


def posterior_of(network, variables, indicator, num_items):
    """All partitions of some items and their exact posterior: (P, n) and (P,)."""
    partitions = enumerate_partitions(num_items)
    log_posterior = np.array(
        [oracles.log_joint(network, variables | {indicator: labels}) for labels in partitions]
    )
    posterior = np.exp(log_posterior - log_posterior.max())
    return partitions, posterior / posterior.sum()


def check_topics_of_six(title, network, indicator, *, direct):
    """Chains of a network over two documents of three words, against all partitions.

    Args:
        title: of the test.
        network: whose chains are run.
        indicator: of the network, whose partition is looked at.
        direct: the network with the indicator "topic" whose joint density is enumerated.
    """
    variables = {"document": np.array([0, 0, 0, 1, 1, 1]), "word": np.array([0, 1, 1, 0, 1, 2])}
    data = Tokens(variables, {"document": 2, "word": 3})
    partitions, posterior = posterior_of(direct, variables, "topic", 6)
    same = partitions[:, :, None] == partitions[:, None]
    num_groups = partitions.max(1) + 1
    exact = {"pairs": np.tensordot(posterior, same, 1)[np.triu_indices(6, 1)]}
    exact["groups"] = np.array([posterior[num_groups == k].sum() for k in range(1, 5)])
    sampler = network.sampler(capacity=8)

    def run(key):
        def step(carry, index):
            state, _ = sampler.step(jax.random.fold_in(key, index), carry, data, jnp.ones(()))
            labels = state.values[indicator]
            pairs = (labels[:, None] == labels)[np.triu_indices(6, 1)]
            groups = jnp.sum(state.slots[indicator]) == jnp.arange(1, 5)
            return state, {"pairs": pairs, "groups": groups}

        _, found = jax.lax.scan(step, sampler.init(key, data), jnp.arange(60))
        # from where it starts six tokens need few steps; twenty are left out
        return jax.tree.map(lambda leaf: jnp.mean(leaf[20:].astype(float), axis=0), found)

    keys = jax.random.split(jax.random.key(5), 6_000)
    found = jax.jit(jax.vmap(run), compiler_options=FAST_COMPILE)(keys)
    check_means(found, exact, title=title, max_standard_error=2e-3)
