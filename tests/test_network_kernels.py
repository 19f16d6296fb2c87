"""Joint distributions of whole steps of networks, with priors on all that may have one."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf
from jaxmf.data import Tokens
from jaxmf.testing import check_kernel, check_means, enumerate_partitions
from tests import network_oracles as oracles

FAST_COMPILE = {"xla_backend_optimization_level": 0}  # the runs themselves are short
GAMMA = dist.Gamma(2.0, 1.0)
DOCUMENTS, ITEMS = [0, 0, 0, 1, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1, 1, 0]
BASE = Tokens({"document": DOCUMENTS, "item": ITEMS}, {"document": 3, "item": 2})


def observed(law, by):
    return mf.Block(law, by=by, observed=True)


def words(by):
    return observed(mf.DirichletMultinomial(3, 0.5), by)


PATH = {
    "super": mf.Block(mf.Dirichlet(2, 0.5), by="document"),
    "sub": mf.Block(mf.Dirichlet(3, GAMMA), by=("document", "super")),
    "word": words("sub"),
}
NESTED = {
    "super": mf.Block(mf.HDP(GAMMA, GAMMA), by="document"),
    "sub": mf.Block(mf.HDP(GAMMA, GAMMA), by="super"),
    "word": words("sub"),
}
HIERARCHY = {"topic": mf.Block(mf.HDP(GAMMA, GAMMA), by="document"), "word": words("topic")}
CASES = {
    "hierarchy": (HIERARCHY, ()),
    "topics": (
        {
            "topic": mf.Block(mf.Dirichlet(3, GAMMA), by="document"),
            "word": observed(mf.DirichletMultinomial(3, dist.Gamma(2.0, 2.0)), "topic"),
            "answer": observed(mf.BetaBinary(0.5, 1.0), "topic"),
        },
        (),
    ),
    "all families": (
        {
            "group": mf.Block(mf.DirichletProcess(GAMMA)),
            "length": observed(mf.NormalInverseGamma(0.5, 0.3, 2.0, 1.0), "group"),
            "place": observed(mf.NormalInverseWishart(2, 0.5, 0.3, 4.0, 1.0), "group"),
            "times": observed(mf.GammaPoisson(2.0, 0.5), "group"),
            "word": words("group"),
        },
        (),
    ),
    "a process a document": (
        {
            "group": mf.Block(mf.PitmanYor(GAMMA, dist.Beta(2.0, 2.0)), by="document"),
            "word": words(("document", "group")),
        },
        (),
    ),
    "path": (PATH, ()),
    "path, together": (PATH, (("super", "sub"),)),
    "nested": (NESTED, ()),
    "nested, together": (NESTED, (("super", "sub"),)),
    "two sides": (
        {
            "group": mf.Block(mf.HDP(GAMMA, GAMMA), by="document"),
            "kind": mf.Block(mf.HDP(GAMMA, GAMMA), by="item"),
            "word": words(("group", "kind")),
        },
        (),
    ),
    # nothing hangs on the indicators: the prior must come back
    "likelihood off": (
        {
            "finite": mf.Block(mf.Dirichlet(3, GAMMA), by="document"),
            "process": mf.Block(mf.DirichletProcess(GAMMA)),
            "own": mf.Block(mf.PitmanYor(GAMMA, dist.Beta(2.0, 2.0)), by="document"),
            "hierarchy": mf.Block(mf.HDP(GAMMA, GAMMA), by="item"),
        },
        (),
    ),
}


def statistics_of(network):
    """Functions of state and data that do not depend on labels."""

    def statistics(pair, data):
        state, drawn = pair
        found = {}
        together = jnp.asarray(DOCUMENTS)[:, None] == jnp.asarray(DOCUMENTS)
        for name, labels in state.values.items():
            same = labels[:, None] == labels
            if not network.blocks[name].law.labels_shared and network.blocks[name].by:
                same &= together
            found[f"pairs of {name}"] = jnp.sum(same)
            found[f"some of {name}"] = same[0, 1] + 2 * same[3, 4] + 4 * same[6, 7] + 8 * same[0, 3]
            for child in network.children(name):
                values = drawn.values[child] if child in drawn.values else drawn.columns.get(child)
                if values is not None:
                    values = values.reshape(len(DOCUMENTS), -1).astype(jnp.result_type(float))
                    apart = jnp.sum(jnp.abs(values[:, None] - values), axis=-1)
                    found[f"{child} within {name}"] = jnp.sum(same * jnp.exp(-apart))
        for name, numbers in state.numbers.items():
            for label, number in numbers.items():
                if number.ndim == 0 and label not in ("a", "b"):
                    found[f"{label} of {name}"] = number
        return found

    return statistics


def check(title, blocks, joint):
    network = mf.Network(**blocks)
    step = network.sampler(joint=joint).step

    def kernel(key, pair, data):
        state, info = step(key, pair[0], data, jnp.ones(()))
        return (state, data), info

    return check_kernel(
        kernel,
        sample_prior=lambda key: network.simulate(key, BASE),
        simulate=lambda key, pair: pair[1],
        statistics=statistics_of(network),
        key=jax.random.key(1),
        title=title,
        compiler_options=FAST_COMPILE,
    )


@pytest.mark.parametrize("name", CASES)
def test_a_step_leaves_the_joint_distribution_as_it_is(name):
    check(name, *CASES[name])


@pytest.mark.slow
def test_a_hierarchy_that_loses_the_weight_of_an_emptied_group_is_caught():
    class Forgetful(mf.HDP):
        def unseat(self, seating, batch, group):
            left = super().unseat(seating, batch, group)
            return left._replace(numbers=left.numbers | {"rest": seating.numbers["rest"]})

    jax.tree_util.register_dataclass(Forgetful, ["concentration", "base_concentration"], [])
    blocks = HIERARCHY | {"topic": mf.Block(Forgetful(GAMMA, GAMMA), by="document")}
    with pytest.raises(AssertionError, match="FAILED"):
        check("forgetful", blocks, ())


@pytest.mark.slow
def test_a_hierarchy_by_direct_assignment_against_enumeration():
    """All partitions of six tokens, the weights summed out over numbers of tables."""
    documents, values = [0, 0, 0, 1, 1, 1], [0, 1, 1, 0, 1, 2]
    sizes = {"document": 2, "word": 3}
    data = Tokens({"document": documents, "word": values}, sizes)
    network = mf.Network(topic=mf.Block(mf.HDP(1.2, 0.7), by="document"), word=words("topic"))
    partitions = enumerate_partitions(6)
    variables = {"document": np.array(documents), "word": np.array(values)}
    log_posterior = np.array(
        [oracles.log_joint(network, variables | {"topic": own}) for own in partitions]
    )
    posterior = np.exp(log_posterior - log_posterior.max())
    posterior /= posterior.sum()
    same = partitions[:, :, None] == partitions[:, None]
    number = partitions.max(1) + 1
    exact = {"pairs": np.tensordot(posterior, same, 1)[np.triu_indices(6, 1)]}
    exact["groups"] = np.array([posterior[number == k].sum() for k in range(1, 5)])
    sampler = network.sampler(capacity=8)

    def run(key):
        def step(carry, index):
            state, _ = sampler.step(jax.random.fold_in(key, index), carry, data, jnp.ones(()))
            labels = state.values["topic"]
            pairs = (labels[:, None] == labels)[np.triu_indices(6, 1)]
            groups = jnp.sum(state.slots["topic"]) == jnp.arange(1, 5)
            return state, {"pairs": pairs, "groups": groups}

        _, found = jax.lax.scan(step, sampler.init(key, data), jnp.arange(60))
        # from where it starts six tokens need few steps; twenty are left out
        return jax.tree.map(lambda own: jnp.mean(own[20:].astype(float), axis=0), found)

    keys = jax.random.split(jax.random.key(5), 6_000)
    found = jax.jit(jax.vmap(run), compiler_options=FAST_COMPILE)(keys)
    check_means(found, exact, title="direct assignment", max_standard_error=2e-3)
