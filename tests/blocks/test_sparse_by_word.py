"""Sparse sweeps word by word: enumeration, long lists, paths, joint distributions."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf
from jaxmf.blocks import chain
from jaxmf.blocks import sparse_by_word as sparse
from jaxmf.blocks.state import NetworkState
from jaxmf.data import Tokens
from jaxmf.testing import check_means
from tests import FAST_COMPILE
from tests.support import network_oracles as oracles
from tests.support.network_checks import GAMMA, check_step, observed, whole_step

PRIOR = mf.Dirichlet(3, [0.4, 0.9, 0.6])
FIVE = Tokens(  # of the documents one is empty and one has one token; one word does not occur
    {"document": np.array([3, 0, 3, 2, 0]), "word": np.array([0, 0, 1, 0, 1])},
    {"document": 4, "word": 3},
)


def topics(prior, concentration, size=3):
    word = observed(mf.DirichletMultinomial(size, concentration), "topic")
    return mf.Network(topic=mf.Block(prior, by="document"), word=word)


def levels(first, second, concentration):
    """Pachinko allocation of two levels."""
    return mf.Network(
        first=mf.Block(first, by="document"),
        topic=mf.Block(second, by=("document", "first")),
        word=observed(mf.DirichletMultinomial(3, concentration), "topic"),
    )


FLAT = topics(PRIOR, [0.3, 0.9, 0.5])
PATHS = levels(mf.Dirichlet(2, [0.4, 1.1]), mf.Dirichlet(2, [0.5, 0.8]), [0.3, 0.9, 0.5])


def state_of(network, labels):
    starts = {name: network.blocks[name].distribution.start(0) for name in network.indicators}
    starts["word"] = network.blocks["word"].distribution.start()
    indicators = {name: jnp.asarray(values, jnp.int32) for name, values in labels.items()}
    return NetworkState(indicators, starts, {})


def frequent(values, probabilities):
    """Values at what is frequent enough for a comparison of means."""
    return values[..., probabilities > 1e-3]


def check_five_tokens(network):
    """Three sweeps from draws of the exact posterior, against all states of five tokens."""
    network, names = network.at(FIVE), network.indicators
    sizes = [network.blocks[name].distribution.num_components for name in names]
    each = np.array(list(itertools.product(*map(range, sizes))))
    states = each[np.array(list(itertools.product(range(len(each)), repeat=5)))]  # (S, 5, levels)
    log_posterior = [
        oracles.log_joint(network, {**FIVE.columns, **dict(zip(names, labels.T, strict=True))})
        for labels in states
    ]
    posterior = np.exp(np.array(log_posterior) - max(log_posterior))
    posterior /= posterior.sum()
    chosen = np.random.default_rng(0).choice(len(states), 20_000, p=posterior)

    def run(key, labels):
        def one(state, sweep_key):
            return sparse.sweep(network, sweep_key, state, FIVE)[0], None

        start = state_of(network, dict(zip(names, labels.T, strict=True)))
        state, _ = jax.lax.scan(one, start, jax.random.split(key, 3))
        return jnp.stack([state.values[name] for name in names], axis=1)

    keys = jax.random.split(jax.random.key(2), len(chosen))
    drawn = np.asarray(jax.jit(jax.vmap(run), compiler_options=FAST_COMPILE)(keys, states[chosen]))
    first, second = np.triu_indices(5, 1)

    def together(labels):
        return (labels[:, :, None] == labels[:, None])[:, first, second].reshape(len(labels), -1)

    indices = (drawn @ [[sizes[1]], [1]])[..., 0] if len(sizes) == 2 else drawn[..., 0]
    indices = indices @ (len(each) ** np.arange(5)[::-1])
    check_means(
        {"state": frequent(np.eye(len(states))[indices], posterior), "pairs": together(drawn)},
        {"state": frequent(posterior, posterior), "pairs": posterior @ together(states)},
        title="five tokens",
        max_standard_error=0.01,
    )


def left_in(moved):
    """The naive sweep: a token draws by weights that it is itself a part of."""

    def moved_without_leaving(self, totals, cache, table, whole, topic, index, birth):
        after = moved(self, totals, cache, table, whole, topic, index, birth)
        return after if birth is not None else (*after[:2], table)

    return moved_without_leaving


@pytest.mark.parametrize("network", [FLAT, PATHS], ids=["topics", "paths"])
def test_sweeps_of_five_tokens_against_enumeration(network, monkeypatch):
    if network is FLAT:  # an entry holds one token, so that topics with more have several
        monkeypatch.setattr(sparse.Packing, "of", lambda num_topics: sparse.Packing(1))
    check_five_tokens(network)


def test_a_token_that_is_not_taken_out_first_is_caught(monkeypatch):
    monkeypatch.setattr(sparse._SweepByWord, "moved", left_in(sparse._SweepByWord.moved))
    with pytest.raises(AssertionError, match="five tokens"):
        check_five_tokens(FLAT)


def test_counts_of_the_first_level_that_stay_behind_are_caught(monkeypatch):
    monkeypatch.setattr(sparse._SweepByWord, "moved_first", lambda self, first, *moved: first)
    with pytest.raises(AssertionError, match="five tokens"):
        check_five_tokens(PATHS)


def test_a_token_whose_document_has_18_topics_among_150_has_its_conditional(monkeypatch):
    monkeypatch.setattr(sparse.Packing, "of", lambda num_topics: sparse.Packing(2))
    generator = np.random.default_rng(1)
    columns = {"document": np.repeat([0, 1, 2], 20), "word": generator.integers(0, 2, 60)}
    columns["word"][0] = 0
    data = Tokens(columns, {"document": 3, "word": 2})
    labels = generator.permutation(150)[:60]
    labels[2:5] = labels[0]
    concentration, word_concentration = generator.gamma(1.0, size=150), np.array([0.3, 0.9])
    network = topics(mf.Dirichlet(150, concentration), word_concentration, 2).at(data)
    others, of_word, of_document = labels[1:], columns["word"][1:] == 0, np.arange(1, 60) < 20
    count = [np.bincount(labels, minlength=150) for labels in (others, others[of_word])]
    weights = np.bincount(others[of_document], minlength=150) + concentration
    weights *= (count[1] + 0.3) / (count[0] + 1.2)

    def run(key):
        state, _ = sparse.sweep(network, key, state_of(network, {"topic": labels}), data)
        return state.values["topic"][0]

    keys = jax.random.split(jax.random.key(3), 10_000)
    drawn = np.eye(150)[jax.jit(jax.vmap(run), compiler_options=FAST_COMPILE)(keys)]
    exact = weights / weights.sum()
    drawn, exact = {"topic": frequent(drawn, exact)}, {"topic": frequent(exact, exact)}
    check_means(drawn, exact, max_standard_error=0.01)


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


@pytest.mark.tiers(exhaustive=["fixed", "process"])
@pytest.mark.slow
@pytest.mark.parametrize("name", JOINT)
def test_a_step_leaves_the_joint_distribution_as_it_is(all_by_word, name):
    check_joint(name)


@pytest.mark.slow
def test_a_token_that_is_left_in_is_caught_by_the_joint_distribution(all_by_word, monkeypatch):
    monkeypatch.setattr(sparse._SweepByWord, "moved", left_in(sparse._SweepByWord.moved))
    with pytest.raises(AssertionError, match="pairs of topic"):
        check_joint("fixed")
