"""Variables over sets of tokens: the franchise of restaurants, joint distributions."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf
from jaxmf.blocks import whole_sets
from jaxmf.data import Tokens
from jaxmf.testing import check_means, enumerate_partitions
from tests import FAST_COMPILE
from tests.support import network_oracles as oracles
from tests.support.network_checks import (
    GAMMA,
    check_step,
    check_topics_of_six,
    hyperparameters_of,
    observed,
    whole_step,
    words,
)

DOCUMENTS = np.array([0, 0, 0, 1, 1, 1, 2])
BASE = Tokens({"document": DOCUMENTS, "kind": [0, 1, 0, 0, 1, 1, 0]}, {"document": 3, "kind": 2})


def franchise(tables, dishes):
    return {
        "table": mf.Block(tables, by="document"),
        "dish": mf.Block(dishes, per=("document", "table")),
        "word": words("dish"),
    }


LENGTH = observed(mf.NormalInverseGamma(0.5, 0.3, 2.0, 1.0), ("dish", "kind"))
CASES = {
    "franchise": franchise(mf.DirichletProcess(GAMMA), mf.DirichletProcess(GAMMA)),
    "documents in groups": {
        "dish": mf.Block(mf.PitmanYor(GAMMA, dist.Beta(2.0, 2.0)), per="document"),
        "word": words("dish"),
        "length": LENGTH,
    },
    "dishes of a finite menu": franchise(mf.PitmanYor(GAMMA, 0.3), mf.Dirichlet(2, GAMMA))
    | {"length": LENGTH},
    "a function of the dishes": {
        "dish": mf.Block(mf.Dirichlet(3, GAMMA), per="document"),
        "word": mf.Block(
            mf.DirichletMultinomial(3, 0.5), by=lambda dish: np.minimum(dish, 1), observed=True
        ),
    },
    "dishes of a hierarchy": franchise(mf.Dirichlet(2, GAMMA), mf.HDP(GAMMA, GAMMA))
    | {"dish": mf.Block(mf.HDP(GAMMA, GAMMA), by="document", per=("document", "table"))},
}


def statistics_of(network):
    together = DOCUMENTS[:, None] == DOCUMENTS

    def statistics(pair, data):
        state, drawn = pair
        word, dish = drawn.columns["word"], state.values["dish"]
        same = dish[:, None] == dish
        found = {
            "pairs": jnp.sum(same),
            "some": same[0, 1] + 2 * same[3, 4] + 4 * same[0, 3] + 8 * same[5, 6],
            "words": jnp.sum(same & (word[:, None] == word)),
        }
        if "table" in state.values:
            table = state.values["table"]
            found["tables"] = jnp.sum((table[:, None] == table) & together)
        if "length" in network.blocks:
            length = drawn.values["length"]
            found["lengths"] = jnp.sum(same * jnp.exp(-jnp.abs(length[:, None] - length)))
        return found | hyperparameters_of(state)

    return statistics


def check(title, blocks):
    network = mf.Network(**blocks)
    step_fn, statistics = whole_step(network.sampler()), statistics_of(network)
    check_step(title, network, step_fn, base=BASE, statistics=statistics)


TIERS = {"franchise": [], "a function of the dishes": [pytest.mark.slow]}


@pytest.mark.tiers(slow=["franchise"], exhaustive=["a function of the dishes"])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=TIERS.get(n, [pytest.mark.exhaustive])) for n in CASES]
)
def test_a_step_leaves_the_joint_distribution_as_it_is(name):
    check(name, CASES[name])


CORPUS = Tokens(
    {"document": [0, 0, 1, 1, 1, 2, 3, 3], "word": [0, 0, 0, 1, 0, 2, 1, 1]},
    {"document": 4, "word": 3},
)


def check_documents():
    """All partitions of four documents, by chains that start from the prior."""
    distribution = mf.PitmanYor(1.2, 0.3)
    network = mf.Network(dish=mf.Block(distribution, per="document"), word=words("dish"))
    documents, word = (np.asarray(CORPUS.columns[name]) for name in ("document", "word"))
    partitions = enumerate_partitions(4)
    log_posterior = np.array(
        [
            oracles.log_of_restaurant(topics.tolist(), 1.2, 0.3)
            + sum(
                oracles.log_of_sequence(word[topics[documents] == group].tolist(), [0.5] * 3)
                for group in set(topics.tolist())
            )
            for topics in partitions
        ]
    )
    posterior = np.exp(log_posterior - log_posterior.max())
    posterior /= posterior.sum()
    same = partitions[:, :, None] == partitions[:, None]
    sampler, firsts = network.sampler(capacity=6), np.array([0, 2, 5, 6])

    def run(key):
        def step(index, state):
            return sampler.step(jax.random.fold_in(key, index), state, CORPUS, jnp.ones(()))[0]

        labels = jax.lax.fori_loop(0, 15, step, sampler.init(key, CORPUS)).values["dish"][firsts]
        return jnp.all((labels[:, None] == labels) == same, axis=(1, 2)).astype(float)

    keys = jax.random.split(jax.random.key(5), 20_000)
    found = jax.jit(jax.vmap(run), compiler_options=FAST_COMPILE)(keys)
    check_means({"partition": found}, {"partition": posterior}, title="documents")


@pytest.mark.slow
def test_documents_in_groups_against_enumeration():
    check_documents()


@pytest.mark.slow
def test_sets_whose_tokens_are_weighed_each_alone_are_caught(monkeypatch):
    def alone(self, caches, joined, weights, where, dish):
        without = self.moved(caches, dish, where, -1)

        def one(index, logs):
            token = {name: column[index] for name, column in self.columns.items()}
            return logs + self.below.log_predicted(without, token, self.look_up)

        logs = jax.lax.fori_loop(*where, one, jnp.zeros_like(weights))
        likely = jnp.exp(logs - jnp.max(jnp.where(weights > 0, logs, -jnp.inf)))
        return likely, self.moved(without, dish, where, 1), joined

    monkeypatch.setattr(whole_sets._SetTokens, "weighed", alone)
    with pytest.raises(AssertionError, match="FAILED"):
        check_documents()


@pytest.mark.exhaustive
def test_a_franchise_has_the_distribution_of_direct_assignment():
    direct = mf.Network(topic=mf.Block(mf.HDP(1.2, 0.7), by="document"), word=words("topic"))
    network = mf.Network(**franchise(mf.DirichletProcess(1.2), mf.DirichletProcess(0.7)))
    check_topics_of_six("franchise", network, "dish", direct=direct)


TABLE = mf.Block(mf.DirichletProcess(1.0), by="document")
FINITE = mf.Dirichlet(2)


@pytest.mark.parametrize(
    ("make", "words_of_error"),
    [
        (
            lambda: words("a") and mf.Block(FINITE, by="a", per="b"),
            r"not in.*write per=\('a', 'b'\)",
        ),
        (lambda: mf.Block(mf.BetaBinary(), observed=True, per="b"), "is for latent indicators"),
        (
            lambda: mf.Network(table=TABLE, dish=mf.Block(FINITE, per="table"), word=words("dish")),
            r"write per=\('document', 'table'\)",
        ),
        (
            lambda: mf.Network(
                table=TABLE,
                dish=mf.Block(FINITE, per=("document", "table")),
                word=words(("dish", "table", "document")),
            ),
            "partition nothing itself",
        ),
        (
            lambda: mf.Network(**franchise(FINITE, FINITE)).sampler(sweep="parallel"),
            "'parallel' is not for 'dish'",
        ),
        (
            lambda: mf.Network(**franchise(FINITE, FINITE)).sampler(joint=(("table", "dish"),)),
            "'table' has to do with sets of tokens",
        ),
    ],
)
def test_what_is_no_set_is_refused(make, words_of_error):
    with pytest.raises(ValueError, match=words_of_error):
        make()
