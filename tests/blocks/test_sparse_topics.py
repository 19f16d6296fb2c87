"""`sweep="sparse"` of topics: enumeration, long lists of topics, joint distributions, refusals."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf
from jaxmf.blocks import sparse
from jaxmf.blocks.state import NetworkState
from jaxmf.data import Tokens
from jaxmf.testing import check_means
from tests import FAST_COMPILE
from tests.support import network_oracles as oracles
from tests.support.network_checks import GAMMA, check_step, observed, whole_step, words

PRIOR = mf.Dirichlet(3, [0.4, 0.9, 0.6])
FIVE = Tokens(  # of the documents one is empty and one has one token; one word does not occur
    {"document": np.array([3, 0, 3, 2, 0]), "word": np.array([0, 0, 1, 0, 1])},
    {"document": 4, "word": 3},
)


def topics(prior, concentration, size=3):
    word = observed(mf.DirichletMultinomial(size, concentration), "topic")
    return mf.Network(topic=mf.Block(prior, by="document"), word=word)


def state_of(network, labels):
    hyperparameters = {name: network.blocks[name].distribution.start(0) for name in ("topic",)}
    hyperparameters["word"] = network.blocks["word"].distribution.start()
    return NetworkState({"topic": jnp.asarray(labels, jnp.int32)}, hyperparameters, {})


def frequent(values, probabilities):
    """Values at what is frequent enough for a comparison of means."""
    return values[..., probabilities > 1e-3]


def check_five_tokens():
    """Three sweeps from draws of the exact posterior, against all 243 states of five tokens."""
    network = topics(PRIOR, [0.3, 0.9, 0.5]).at(FIVE)
    states = np.array(list(itertools.product(range(3), repeat=5)))
    log_posterior = [
        oracles.log_joint(network, {**FIVE.columns, "topic": labels}) for labels in states
    ]
    posterior = np.exp(np.array(log_posterior) - max(log_posterior))
    posterior /= posterior.sum()
    chosen = np.random.default_rng(0).choice(len(states), 20_000, p=posterior)

    def run(key, labels):
        def one(state, sweep_key):
            return sparse.sweep(network, "topic", sweep_key, state, FIVE)[0], None

        state, _ = jax.lax.scan(one, state_of(network, labels), jax.random.split(key, 3))
        return state.values["topic"] @ (3 ** np.arange(5)[::-1])

    keys = jax.random.split(jax.random.key(2), len(chosen))
    indices = jax.jit(jax.vmap(run), compiler_options=FAST_COMPILE)(keys, states[chosen])
    together = states[:, :, None] == states[:, None]
    first, second = np.triu_indices(5, 1)
    together = together[:, first, second]
    exact = {"state": frequent(posterior, posterior), "pairs": posterior @ together}
    drawn = {
        "state": frequent(np.eye(len(states))[indices], posterior),
        "pairs": together[indices],
    }
    check_means(drawn, exact, title="five tokens", max_standard_error=0.01)


def left_in(moved):
    """The naive sweep: a token draws by weights that it is itself a part of."""

    def moved_without_leaving(self, totals, cache, table, whole, topic, birth):
        after = moved(self, totals, cache, table, whole, topic, birth)
        return after if birth is not None else (*after[:2], table)

    return moved_without_leaving


def test_sweeps_of_five_tokens_against_enumeration(monkeypatch):
    # an entry holds one token, so that topics with more have several
    monkeypatch.setattr(sparse.Packing, "of", lambda num_topics: sparse.Packing(1))
    check_five_tokens()


def test_a_token_that_is_not_taken_out_first_is_caught(monkeypatch):
    monkeypatch.setattr(sparse._Sweep, "moved", left_in(sparse._Sweep.moved))
    with pytest.raises(AssertionError, match="five tokens"):
        check_five_tokens()


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


def test_the_first_token_of_a_word_with_forty_topics_among_150_has_its_conditional(monkeypatch):
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
        state, _ = sparse.sweep(network, "topic", key, state_of(network, labels), data)
        return state.values["topic"][0]

    keys = jax.random.split(jax.random.key(3), 10_000)
    drawn = np.eye(150)[jax.jit(jax.vmap(run), compiler_options=FAST_COMPILE)(keys)]
    exact = weights / weights.sum()
    drawn, exact = {"topic": frequent(drawn, exact)}, {"topic": frequent(exact, exact)}
    check_means(drawn, exact, max_standard_error=0.01)


JOINT = {
    "learned": topics(mf.Dirichlet(3, GAMMA), dist.Gamma(2.0, 2.0)),
    "fixed": topics(mf.Dirichlet(3, 0.7), 0.5),
    "process": topics(mf.HDP(GAMMA, GAMMA), 0.5),
}


def check_joint(name):
    check_step(f"sparse, {name}", JOINT[name], whole_step(JOINT[name].sampler(sweep="sparse")))


@pytest.mark.tiers(exhaustive=["fixed"])
@pytest.mark.slow
@pytest.mark.parametrize("name", JOINT)
def test_a_step_leaves_the_joint_distribution_as_it_is(name):
    check_joint(name)


@pytest.mark.slow
def test_a_token_that_is_not_taken_out_first_is_caught_by_the_joint_distribution(monkeypatch):
    monkeypatch.setattr(sparse._Sweep, "moved", left_in(sparse._Sweep.moved))
    with pytest.raises(AssertionError, match="pairs of topic"):
        check_joint("fixed")


@pytest.mark.parametrize("sweep", ["sequential", "sparse"])
def test_five_thousand_topics_compile_to_one_kernel(sweep):
    network = topics(mf.Dirichlet(5_000, 0.1), 0.5).at(FIVE)
    sampler = network.sampler(sweep=sweep)
    state = state_of(network, [4_999, 0, 7, 7, 4_000])
    after, _ = jax.jit(sampler.step)(jax.random.key(0), state, FIVE, jnp.ones(()))
    assert np.all((after.values["topic"] >= 0) & (after.values["topic"] < 5_000))


@pytest.mark.slow
def test_a_growing_number_of_topics_asks_for_more_slots_and_finishes():
    post = mf.sample(
        mf.HDPLDA(),
        FIVE,
        sweep="sparse",
        capacity=1,
        num_warmup=20,
        num_samples=10,
        num_chains=1,
    )
    assert post.meta.options["sweep"] == "sparse"
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
