"""`sweep="sparse"` of topics: enumeration, long lists of topics, joint distributions, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf
from jaxmf.blocks import sparse
from tests import FAST_COMPILE
from tests.support.network_checks import GAMMA, check_step, observed, whole_step, words
from tests.support.sparse_checks import (
    FIVE,
    FLAT,
    check_a_long_list,
    check_five_tokens,
    state_of,
    topics,
)


def sweep(network, key, state, data):
    return sparse.sweep(network, "topic", key, state, data)


def left_in(moved):
    """The naive sweep: a token draws by weights that it is itself a part of."""

    def moved_without_leaving(self, totals, cache, table, whole, topic, birth):
        after = moved(self, totals, cache, table, whole, topic, birth)
        return after if birth is not None else (*after[:2], table)

    return moved_without_leaving


def test_sweeps_of_five_tokens_against_enumeration(monkeypatch):
    # an entry holds one token, so that topics with more have several
    monkeypatch.setattr(sparse.Packing, "of", lambda num_topics: sparse.Packing(1))
    check_five_tokens(FLAT, sweep)


@pytest.mark.slow
def test_a_token_that_is_not_taken_out_first_is_caught(monkeypatch):
    monkeypatch.setattr(sparse._Sweep, "moved", left_in(sparse._Sweep.moved))
    with pytest.raises(AssertionError, match="five tokens"):
        check_five_tokens(FLAT, sweep)


def check_sums(num_moves=300):
    """Sums that follow by differences, against those of a table made afresh."""
    prior, whole = mf.Dirichlet(150, jnp.geomspace(0.01, 2.0, 150)), jnp.float32(3.0)
    compiled = sparse._Sweep(prior, 150, sparse.Packing.of(150))
    generator = np.random.default_rng(4)
    topics_of = jnp.asarray(generator.integers(0, 150, 60), jnp.int32)
    tokens, new = generator.integers(0, 60, num_moves), generator.integers(0, 150, num_moves)

    def one(carry, move):
        topics, totals, cache, table = carry
        token, topic = move
        before = compiled.moved(totals, cache, table, whole, topics[token], None)
        after = compiled.moved(*before, whole, topic, jnp.float32(0.5))
        return (topics.at[token].set(topic), *after), None

    def run(topics):
        totals = jnp.bincount(topics, length=150)
        cache = prior.begin(totals[None], prior.start(0), with_sizes=False)
        begin = (topics, totals + 5, cache, compiled.table(cache, totals + 5, whole))
        moves = jnp.asarray(tokens), jnp.asarray(new, jnp.int32)
        _, totals, cache, table = jax.lax.scan(one, begin, moves)[0]
        return table, compiled.table(cache, totals, whole)

    for kept, fresh in zip(*jax.jit(run, compiler_options=FAST_COMPILE)(topics_of), strict=True):
        np.testing.assert_allclose(kept, fresh, rtol=2e-5, err_msg="sums of the table")


def test_sums_that_follow_by_differences_are_those_of_all_weights():
    check_sums()


def test_sums_that_a_token_leaves_behind_are_caught(monkeypatch):
    monkeypatch.setattr(sparse.tables, "add", lambda table, index, amount: table)
    with pytest.raises(AssertionError, match="sums of the table"):
        check_sums()


@pytest.mark.slow
def test_the_first_token_of_a_word_with_forty_topics_among_150_has_its_conditional(monkeypatch):
    monkeypatch.setattr(sparse.Packing, "of", lambda num_topics: sparse.Packing(2))
    check_a_long_list(sweep)


JOINT = {
    "learned": topics(mf.Dirichlet(3, GAMMA), dist.Gamma(2.0, 2.0)),
    "fixed": topics(mf.Dirichlet(3, 0.7), 0.5),
    "process": topics(mf.HDP(GAMMA, GAMMA), 0.5),
}


def check_joint(name):
    check_step(f"sparse, {name}", JOINT[name], whole_step(JOINT[name].sampler(sweep="sparse")))


@pytest.mark.tiers(exhaustive=["fixed", "learned"])
@pytest.mark.slow
@pytest.mark.parametrize("name", JOINT)
def test_a_step_leaves_the_joint_distribution_as_it_is(name):
    check_joint(name)


@pytest.mark.exhaustive
def test_a_token_that_is_not_taken_out_first_is_caught_by_the_joint_distribution(monkeypatch):
    monkeypatch.setattr(sparse._Sweep, "moved", left_in(sparse._Sweep.moved))
    with pytest.raises(AssertionError, match="pairs of topic"):
        check_joint("fixed")


@pytest.mark.parametrize("name", ["sequential", "sparse"])
def test_five_thousand_topics_compile_to_one_kernel(name):
    network = topics(mf.Dirichlet(5_000, 0.1), 0.5).at(FIVE)
    sampler = network.sampler(sweep=name)
    state = state_of(network, {"topic": [4_999, 0, 7, 7, 4_000]})
    after, _ = jax.jit(sampler.step)(jax.random.key(0), state, FIVE, jnp.ones(()))
    assert np.all((after.values["topic"] >= 0) & (after.values["topic"] < 5_000))


@pytest.mark.exhaustive
def test_a_growing_number_of_topics_asks_for_more_slots_and_finishes():
    post = mf.sample(
        mf.HDPLDA(),
        FIVE,
        sweep="sparse",
        capacity=2,
        num_warmup=20,
        num_samples=10,
        num_chains=1,
    )
    assert post.meta.options["sweep"] == "sparse"
    assert post.meta.capacity["topic"] > 2
    assert np.max(post.draws["num_topic"]) > 1


def test_it_is_chosen_for_a_fixed_number_of_many_topics():
    for model, expected in {
        mf.LDA(999): "sequential",
        mf.LDA(1_000): "sparse",
        mf.HDPLDA(): "sequential",
        mf.PAM((2, 1_000)): "sequential",
    }.items():
        assert model.device_options({}, platform="cpu") == {"sweep": expected}
    assert mf.LDA(1_000).device_options({}, platform="gpu")["sweep"] != "sparse"


def test_networks_without_the_sweep_are_refused():
    by_document = {
        "topic": mf.Block(mf.DirichletProcess(1.0), by="document"),
        "word": words(("document", "topic")),
    }
    two_columns = {
        "topic": mf.Block(mf.Dirichlet(3, 0.7), by="document"),
        "word": words("topic"),
        "item": observed(mf.DirichletMultinomial(2, 0.5), "topic"),
    }
    for network in (mf.Network(**by_document), mf.Network(**two_columns), mf.PAM((2, 3, 2))):
        with pytest.raises(ValueError, match=r'^sweep: "sparse" is for topics .* "sequential"$'):
            network.sampler(sweep="sparse")
