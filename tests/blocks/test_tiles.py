"""The parallel sweep by tiles: enumeration, joint distributions, devices, broken twins."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf
from jaxmf.blocks import tile_layout, tiles
from jaxmf.blocks.state import NetworkState
from jaxmf.data import Tokens
from jaxmf.testing import check_means
from tests import FAST_COMPILE
from tests.support.eight_devices import run_on_eight_devices
from tests.support.network_checks import GAMMA, check_step, whole_step

COLUMNS = {"document": [1, 0, 1, 3, 1, 0], "word": [0, 1, 0, 2, 1, 3]}
DATA = Tokens(COLUMNS, {"document": 4, "word": 5})
TOPICS = mf.Block(mf.Dirichlet(2, [0.3, 0.7]), by="document")
WORDS = mf.Block(mf.DirichletMultinomial(5, [0.4, 0.9, 0.2, 0.5, 0.3]), by="topic", observed=True)


def check_against_enumeration(title, *, words=WORDS, data=DATA, num_chains=20_000):
    """Chains from the exact posterior of six tokens; after a sweep it must still be that."""
    network = mf.Network(topic=TOPICS, word=words)
    states = jnp.asarray([*itertools.product(range(2), repeat=6)], jnp.int32)
    hyperparameters = {
        "topic": TOPICS.distribution.start(2),
        "word": words.distribution.start(),
    }

    def state_of(labels):
        return NetworkState({"topic": labels}, hyperparameters, {})

    density = jax.vmap(lambda labels: network.log_joint(state_of(labels), data))
    log_joint = jax.jit(density)(states)
    posterior = np.asarray(jax.nn.softmax(log_joint), float)
    posterior /= posterior.sum()
    chosen = np.random.default_rng(0).choice(len(states), size=num_chains, p=posterior)
    layout = tile_layout.layout_of(network, data)

    def run(key, labels):
        return tiles.sweep(network, key, state_of(labels), data, layout).values["topic"]

    keys = jax.random.split(jax.random.key(4), num_chains)
    after = jax.jit(jax.vmap(run), compiler_options=FAST_COMPILE)(keys, states[chosen])
    index = np.asarray(after) @ 2 ** np.arange(6)[::-1]
    check_means(
        {"states": np.eye(64)[index], "topics": np.asarray(after)},
        {"states": posterior, "topics": posterior @ np.asarray(states)},
        title=title,
    )


@pytest.mark.tiers(exhaustive=["2"])
@pytest.mark.parametrize("num_groups", [2, pytest.param(32, marks=pytest.mark.slow)])
def test_a_sweep_against_enumeration(num_groups, monkeypatch):
    monkeypatch.setattr(tile_layout, "num_groups", lambda *sizes: num_groups)
    check_against_enumeration(f"{num_groups} groups")


@pytest.mark.exhaustive
def test_a_sweep_of_a_single_word_leaves_the_prior_as_it_is():
    words = mf.Block(mf.DirichletMultinomial(1, 0.4), by="topic", observed=True)
    data = Tokens(COLUMNS | {"word": [0] * 6}, {"document": 4, "word": 1})
    check_against_enumeration("likelihood off", words=words, data=data)


def mean_masses(key, shapes):
    """Stale totals, as of approximate distributed samplers: the mean in place of a draw."""
    del key
    return shapes / jnp.sum(shapes, axis=0)


def test_masses_that_are_not_drawn_are_caught(monkeypatch):
    monkeypatch.setattr(tiles, "_masses", mean_masses)
    with pytest.raises(AssertionError, match="states"):
        check_against_enumeration("the mean of the masses")


@pytest.mark.exhaustive
def test_a_step_leaves_the_joint_distribution_as_it_is():
    topics = mf.Block(mf.Dirichlet(3, GAMMA.expand([3])), by="document")
    words = mf.DirichletMultinomial(3, dist.Gamma(2.0, 2.0))
    network = mf.Network(topic=topics, word=mf.Block(words, by="topic", observed=True))
    check_step("tiles", network, whole_step(network.sampler(sweep="parallel")))


def test_a_layout_has_every_token_once_in_its_tile():
    generator = np.random.default_rng(0)
    columns = {"document": generator.integers(30, size=900), "word": generator.zipf(1.5, 900) % 80}
    data = Tokens(columns, {"document": 30, "word": 80})
    layout = jax.jit(tile_layout.layout_of)(mf.LDA(2).network().at(data), data)
    order, starts = np.asarray(layout.order), np.asarray(layout.starts)
    np.testing.assert_array_equal(np.sort(order), np.arange(900))
    words = np.asarray(layout.word_at)
    np.testing.assert_array_equal(words[np.asarray(layout.words)], columns["word"][order])
    in_use = np.asarray(layout.documents)
    pairs = np.unique(np.stack([in_use, columns["document"][order]]), axis=1)
    assert len(pairs[0]) == len(np.unique(pairs[0])) == len(np.unique(pairs[1]))
    assert layout.num_groups == 16
    groups = in_use // 2, np.asarray(layout.words) // 5
    rounds, tiles_of = groups[0] ^ groups[1], np.repeat(np.arange(16**2), np.diff(starts))
    for bit in range(4):
        np.testing.assert_array_equal(tiles_of >> 2 * bit & 1, groups[0] >> bit & 1)
        np.testing.assert_array_equal(tiles_of >> 2 * bit + 1 & 1, rounds >> bit & 1)
    sizes = np.bincount(groups[0], minlength=16)
    assert sizes.max() - sizes.min() <= np.bincount(columns["document"]).max()


def test_groups_are_fewer_where_their_masses_would_be_of_small_counts():
    num_groups = tile_layout.num_groups
    assert num_groups(460_000, 20, 7_000) == num_groups(460_000, 1_000, 7_000) == 32
    assert num_groups(460_000, 20, 50) == num_groups(10_000, 100, 7_000) == 8
    assert num_groups(5, 20, 3) == 2


def test_which_networks_go_by_tiles(monkeypatch):
    assert tile_layout.are_tiled(mf.LDA(3).network().at(DATA), DATA)
    no_documents = mf.Network(topic=mf.Block(mf.Dirichlet(2)), word=WORDS)
    for network in (mf.HDPLDA().network(), mf.PAM((2, 3)).network(), no_documents):
        assert not tile_layout.can_be_tiled(network)
    monkeypatch.setattr(tile_layout, "default_platform", lambda: "gpu")
    assert not tile_layout.are_tiled(mf.LDA(3).network().at(DATA), DATA)


PROGRAM = """
import jax, numpy as np
import jaxmf as mf
import numpyro.distributions as dist
from jax.sharding import Mesh
from jaxmf._kernels.special import plain_uniforms_at
from jaxmf.blocks import counts
from tests.support.eight_devices import compiled_chunk, forget_programs, num_bytes

generator = np.random.default_rng(0)
columns = {"document": generator.integers(70, size=999), "word": generator.integers(40, size=999)}
data = mf.Tokens(columns, {"document": 70, "word": 40})
devices = np.array(jax.devices())
key, index = jax.random.key(3), np.array([5, 998, 0])
np.testing.assert_array_equal(
    plain_uniforms_at(key, 999, index), jax.random.uniform(key, (999,))[index]
)

def draws(model, **settings):
    settings = dict(num_warmup=1, num_samples=2, sweep="parallel", seed=1, num_chains=2) | settings
    return mf.sample(model, data, chain_method="vectorized", **settings).draws

learned = mf.LDA(5, dist.Gamma(1.0, 1.0), dist.Gamma(1.0, 1.0))
single = draws(learned, keep="assignments")
for mesh in (Mesh(devices[:3], ("data",)), Mesh(devices.reshape(2, 4), ("chain", "data"))):
    spread = draws(learned, keep="assignments", mesh=mesh)
    for name in single:
        np.testing.assert_array_equal(spread[name], single[name], err_msg=name)

counts.MOST_CELLS = 100  # as where topics of documents are too many for a table
forget_programs()
single = draws(mf.LDA(5), keep="compact")
spread = draws(mf.LDA(5), keep="compact", mesh=Mesh(devices, ("data",)))
assert single.keys() == spread.keys() and "topic_of_tokens" in single
for name in single:
    np.testing.assert_allclose(spread[name], single[name], rtol=1e-6, err_msg=name)

columns = {"document": generator.integers(400, size=40_000), "word": np.arange(40_000) % 500}
data = mf.Tokens(columns, {"document": 400, "word": 500})
algorithm = mf.LDA(4).sampler(sweep="parallel", keep="scalars")
assert num_bytes(compiled_chunk(algorithm, data, 1)) > 6 * num_bytes(
    compiled_chunk(algorithm, data, 8)
)
print("agrees")
"""


@pytest.mark.exhaustive
def test_tiles_of_several_devices_give_the_draws_of_one_in_a_part_of_its_memory():
    assert run_on_eight_devices(PROGRAM) == ["agrees"]
