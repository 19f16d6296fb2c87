"""Sparse sweeps word by word: enumeration, long lists, paths, joint distributions."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf
from jaxmf.blocks import chain
from jaxmf.blocks import sparse_by_word as sparse
from jaxmf.data import Tokens
from jaxmf.testing import check_means
from tests import FAST_COMPILE
from tests.support.network_checks import GAMMA, check_step, observed, whole_step
from tests.support.sparse_checks import (
    FLAT,
    check_a_long_list,
    check_five_tokens,
    state_of,
    topics,
)


def levels(first, second, concentration):
    """Pachinko allocation of two levels."""
    return mf.Network(
        first=mf.Block(first, by="document"),
        topic=mf.Block(second, by=("document", "first")),
        word=observed(mf.DirichletMultinomial(3, concentration), "topic"),
    )


PATHS = levels(mf.Dirichlet(2, [0.4, 1.1]), mf.Dirichlet(2, [0.5, 0.8]), [0.3, 0.9, 0.5])


def left_in(moved):
    """The naive sweep: a token draws by weights that it is itself a part of."""

    def moved_without_leaving(self, totals, cache, table, whole, topic, index, birth):
        after = moved(self, totals, cache, table, whole, topic, index, birth)
        return after if birth is not None else (*after[:2], table)

    return moved_without_leaving


@pytest.mark.tiers(exhaustive=["topics"])
@pytest.mark.slow
@pytest.mark.parametrize("network", [FLAT, PATHS], ids=["topics", "paths"])
def test_sweeps_of_five_tokens_against_enumeration(network, monkeypatch):
    if network is FLAT:  # an entry holds one token, so that topics with more have several
        monkeypatch.setattr(sparse.Packing, "of", lambda num_topics: sparse.Packing(1))
    check_five_tokens(network, sparse.sweep)


@pytest.mark.exhaustive
def test_a_token_that_is_not_taken_out_first_is_caught(monkeypatch):
    monkeypatch.setattr(sparse._SweepByWord, "moved", left_in(sparse._SweepByWord.moved))
    with pytest.raises(AssertionError, match="five tokens"):
        check_five_tokens(FLAT, sparse.sweep)


@pytest.mark.exhaustive
def test_counts_of_the_first_level_that_stay_behind_are_caught(monkeypatch):
    monkeypatch.setattr(sparse._SweepByWord, "moved_first", lambda self, first, *moved: first)
    with pytest.raises(AssertionError, match="five tokens"):
        check_five_tokens(PATHS, sparse.sweep)


@pytest.mark.slow
def test_a_token_whose_document_has_18_topics_among_150_has_its_conditional(monkeypatch):
    monkeypatch.setattr(sparse.Packing, "of", lambda num_topics: sparse.Packing(2))
    check_a_long_list(sparse.sweep)


@pytest.mark.exhaustive
def test_a_path_among_60_in_a_long_document_has_its_conditional():
    generator = np.random.default_rng(2)
    columns = {"document": np.repeat([0, 1], [80, 20]), "word": generator.integers(0, 3, 100)}
    columns["word"][0] = 0
    data = Tokens(columns, {"document": 2, "word": 3})
    labels = {"first": generator.integers(0, 4, 100), "topic": generator.integers(0, 15, 100)}
    a, c = generator.gamma(1.0, size=4), generator.gamma(1.0, size=15)
    network = levels(mf.Dirichlet(4, a), mf.Dirichlet(15, c), 0.4).at(data)
    others = {name: values[1:] for name, values in labels.items()}
    inside, of_word = np.arange(1, 100) < 80, columns["word"][1:] == 0
    in_first = np.bincount(others["first"][inside], minlength=4)
    paths = np.bincount((others["first"] * 15 + others["topic"])[inside], minlength=60)
    totals = np.bincount(others["topic"], minlength=15)
    weights = ((in_first + a) / (in_first + c.sum()))[:, None] * (paths.reshape(4, 15) + c)
    weights *= (np.bincount(others["topic"][of_word], minlength=15) + 0.4) / (totals + 1.2)
    exact = weights.ravel() / weights.sum()

    def run(key):
        state, _ = sparse.sweep(network, key, state_of(network, labels), data)
        return state.values["first"][0] * 15 + state.values["topic"][0]

    keys = jax.random.split(jax.random.key(3), 10_000)
    drawn = np.eye(60)[jax.jit(jax.vmap(run), compiler_options=FAST_COMPILE)(keys)]
    check_means({"path": drawn}, {"path": exact}, max_standard_error=0.01)


JOINT = {
    "learned": topics(mf.Dirichlet(3, GAMMA), dist.Gamma(2.0, 2.0)),
    "fixed": topics(mf.Dirichlet(3, 0.7), 0.5),
    "process": topics(mf.HDP(GAMMA, GAMMA), 0.5),
    "paths": levels(mf.Dirichlet(2, GAMMA), mf.Dirichlet(3, 0.7), 0.5),
}


@pytest.fixture
def all_by_word(monkeypatch):
    monkeypatch.setattr(chain, "_MANY_TOKENS", 0)


def check_joint(name):
    check_step(f"sparse, {name}", JOINT[name], whole_step(JOINT[name].sampler(sweep="sparse")))


@pytest.mark.tiers(exhaustive=["learned", "paths", "process"])
@pytest.mark.slow
@pytest.mark.parametrize("name", JOINT)
def test_a_step_leaves_the_joint_distribution_as_it_is(all_by_word, name):
    check_joint(name)


@pytest.mark.slow
def test_a_token_that_is_left_in_is_caught_by_the_joint_distribution(all_by_word, monkeypatch):
    monkeypatch.setattr(sparse._SweepByWord, "moved", left_in(sparse._SweepByWord.moved))
    with pytest.raises(AssertionError, match="pairs of topic"):
        check_joint("fixed")
