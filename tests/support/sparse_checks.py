"""What the tests of both sparse sweeps share: enumeration of five tokens, and a long list."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np

import jaxmf as mf
from jaxmf.blocks.state import NetworkState
from jaxmf.data import Tokens
from jaxmf.testing import check_means
from tests import FAST_COMPILE
from tests.support import network_oracles as oracles
from tests.support.network_checks import observed

FIVE = Tokens(  # of the documents one is empty and one has one token; one word does not occur
    {"document": np.array([3, 0, 3, 2, 0]), "word": np.array([0, 0, 1, 0, 1])},
    {"document": 4, "word": 3},
)


def topics(prior, concentration, size=3):
    word = observed(mf.DirichletMultinomial(size, concentration), "topic")
    return mf.Network(topic=mf.Block(prior, by="document"), word=word)


FLAT = topics(mf.Dirichlet(3, [0.4, 0.9, 0.6]), [0.3, 0.9, 0.5])


def state_of(network, labels):
    starts = {name: network.blocks[name].distribution.start(0) for name in network.indicators}
    starts["word"] = network.blocks["word"].distribution.start()
    indicators = {name: jnp.asarray(values, jnp.int32) for name, values in labels.items()}
    return NetworkState(indicators, starts, {})


def frequent(values, probabilities):
    """Values at what is frequent enough for a comparison of means."""
    return values[..., probabilities > 1e-3]


@functools.cache
def all_states(network):
    """Every state of five tokens (S, 5, levels), and its exact probability (S,)."""
    names = network.indicators
    sizes = [network.blocks[name].distribution.num_components for name in names]
    each = np.array(list(itertools.product(*map(range, sizes))))
    states = each[np.array(list(itertools.product(range(len(each)), repeat=5)))]
    log_posterior = [
        oracles.log_joint(network, {**FIVE.columns, **dict(zip(names, labels.T, strict=True))})
        for labels in states
    ]
    posterior = np.exp(np.array(log_posterior) - max(log_posterior))
    return states, posterior / posterior.sum()


def check_five_tokens(network, sweep):
    """Three sweeps from draws of the exact posterior, against all states of five tokens."""
    network, names = network.at(FIVE), network.indicators
    sizes = [network.blocks[name].distribution.num_components for name in names]
    states, posterior = all_states(network)
    chosen = np.random.default_rng(0).choice(len(states), 20_000, p=posterior)

    def run(key, labels):
        def one(state, sweep_key):
            return sweep(network, sweep_key, state, FIVE)[0], None

        start = state_of(network, dict(zip(names, labels.T, strict=True)))
        state, _ = jax.lax.scan(one, start, jax.random.split(key, 3))
        return jnp.stack([state.values[name] for name in names], axis=1)

    keys = jax.random.split(jax.random.key(2), len(chosen))
    drawn = np.asarray(jax.jit(jax.vmap(run), compiler_options=FAST_COMPILE)(keys, states[chosen]))
    first, second = np.triu_indices(5, 1)

    def together(labels):
        return (labels[:, :, None] == labels[:, None])[:, first, second].reshape(len(labels), -1)

    indices = (drawn @ [[sizes[1]], [1]])[..., 0] if len(sizes) == 2 else drawn[..., 0]
    indices = indices @ (np.prod(sizes) ** np.arange(5)[::-1])
    check_means(
        {"state": frequent(np.eye(len(states))[indices], posterior), "pairs": together(drawn)},
        {"state": frequent(posterior, posterior), "pairs": posterior @ together(states)},
        title="five tokens",
        max_standard_error=0.01,
    )


def check_a_long_list(sweep):
    """The first of 60 tokens among 150 topics, drawn 10,000 times from its conditional.

    Its document has 18 topics, and its word forty.
    """
    generator = np.random.default_rng(1)
    columns = {"document": np.repeat([0, 1, 2], 20), "word": generator.integers(0, 2, 60)}
    columns["word"][0] = 0
    data = Tokens(columns, {"document": 3, "word": 2})
    labels = generator.permutation(150)[:60]
    labels[2:5] = labels[0]
    concentration, word_concentration = generator.gamma(1.0, size=150), np.array([0.3, 0.9])
    network = topics(mf.Dirichlet(150, concentration), word_concentration, 2).at(data)
    rest, has_word, in_document = labels[1:], columns["word"][1:] == 0, np.arange(1, 60) < 20
    count = [np.bincount(labels, minlength=150) for labels in (rest, rest[has_word])]
    weights = np.bincount(rest[in_document], minlength=150) + concentration
    weights *= (count[1] + 0.3) / (count[0] + 1.2)

    def run(key):
        state, _ = sweep(network, key, state_of(network, {"topic": labels}), data)
        return state.values["topic"][0]

    keys = jax.random.split(jax.random.key(3), 10_000)
    drawn = np.eye(150)[jax.jit(jax.vmap(run), compiler_options=FAST_COMPILE)(keys)]
    exact = weights / weights.sum()
    drawn, exact = {"topic": frequent(drawn, exact)}, {"topic": frequent(exact, exact)}
    check_means(drawn, exact, max_standard_error=0.01)
