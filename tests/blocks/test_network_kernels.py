"""Joint distributions of whole steps of networks, with priors on all that may have one."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

import jaxmf as mf
from jaxmf.blocks import hyperparameters
from tests.support.network_checks import (
    GAMMA,
    check_step,
    check_topics_of_six,
    observed,
    whole_step,
    words,
)

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
COMMON = {
    "topic": mf.Block(mf.Dirichlet(2, dist.Gamma(jnp.array([3.0, 1.0]), 1.0)), by="document"),
    "word": observed(
        mf.DirichletMultinomial(3, dist.LogNormal(0.0, 0.7).expand([3])), ("topic", "item")
    ),
}
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
    "concentrations of each": (COMMON, ()),
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


def check(title, blocks, joint):
    network = mf.Network(**blocks)
    check_step(title, network, whole_step(network.sampler(joint=joint)))


@pytest.mark.tiers(
    slow=["all families", "hierarchy", "topics"],
    exhaustive=[
        "a process a document",
        "concentrations of each",
        "likelihood off",
        "nested",
        "nested, together",
        "path",
        "path, together",
        "two sides",
    ],
)
@pytest.mark.parametrize("name", CASES)
def test_a_step_leaves_the_joint_distribution_as_it_is(name, monkeypatch):
    monkeypatch.setattr(hyperparameters, "_TOKENS_A_STEP", 2)  # words' concentration: not in each
    check(name, *CASES[name])


@pytest.mark.slow
def test_a_hierarchy_that_loses_the_weight_of_an_emptied_group_is_caught():
    class Forgetful(mf.HDP):
        def unassign(self, seating, batch, group):
            left, rest = super().unassign(seating, batch, group), seating.hyperparameters["rest"]
            lost = left.hyperparameters["concentration"] * (left.hyperparameters["rest"] - rest)
            pseudo = left.pseudo.at[left.free].add(-lost, mode="drop")
            return left._replace(
                hyperparameters=left.hyperparameters | {"rest": rest}, pseudo=pseudo
            )

    jax.tree_util.register_dataclass(Forgetful, ["concentration", "base_concentration"], [])
    blocks = HIERARCHY | {"topic": mf.Block(Forgetful(GAMMA, GAMMA), by="document")}
    with pytest.raises(AssertionError, match="FAILED"):
        check("forgetful", blocks, ())


@pytest.mark.exhaustive
def test_concentrations_whose_sum_is_left_out_are_caught(monkeypatch):
    def of_sizes_alone(key, total, sizes):
        return jnp.sum(jnp.log1p(sizes))

    monkeypatch.setattr(hyperparameters, "_minus_log_shares", of_sizes_alone)
    with pytest.raises(AssertionError, match=r"concentration . of topic"):
        check("the sum left out", *CASES["concentrations of each"])


@pytest.mark.exhaustive
def test_concentrations_that_see_no_repeated_word_are_caught(monkeypatch):
    def of_new_ones_alone(ranks, concentration):
        return ranks[0] * jnp.log(concentration)

    monkeypatch.setattr(hyperparameters, "log_rising_of_ranks", of_new_ones_alone)
    with pytest.raises(AssertionError, match="concentration of word"):
        check("repeated words left out", *CASES["topics"])


@pytest.mark.exhaustive
def test_a_hierarchy_by_direct_assignment_against_enumeration():
    """All partitions of six tokens, the weights summed out over ranks of tables."""
    network = mf.Network(topic=mf.Block(mf.HDP(1.2, 0.7), by="document"), word=words("topic"))
    check_topics_of_six("direct assignment", network, "topic", direct=network)
