"""Tokens of batches in turn and all at once: enumeration, joint distributions, broken twins."""

import itertools
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf
from jaxmf._kernels import tables, token_draw
from jaxmf.blocks import at_once, batches, parallel
from jaxmf.blocks.state import NetworkState
from jaxmf.data import Tokens
from jaxmf.devices import BLOCK_SIZES, BlockSize
from jaxmf.priors.partition_prior import PartitionPrior
from jaxmf.testing import check_means
from tests import FAST_COMPILE

DATA = Tokens({"document": [1, 0, 1, 3, 1], "word": [0, 1, 0, 2, 1]}, {"document": 4, "word": 3})
WORDS = mf.Block(mf.DirichletMultinomial(3, 0.4), by="topic", observed=True)
MODELS = {
    "topics": mf.Network(topic=mf.Block(mf.Dirichlet(2, [0.3, 0.7]), by="document"), word=WORDS),
    "paths": mf.Network(
        general=mf.Block(mf.Dirichlet(2, 0.5), by="document"),
        topic=mf.Block(mf.Dirichlet(2, 0.4), by=("document", "general")),
        word=WORDS,
    ),
    "hierarchy": mf.Network(topic=mf.Block(mf.HDP(0.7, 1.0), by="document"), word=WORDS),
}


def check(model, *, num_chains=10_000, in_kernel=False):
    """Chains from the exact posterior of five tokens; after two sweeps it must still be that."""
    network = MODELS[model].at(DATA)
    names, start = network.indicators, network.blocks
    hyperparameters = {
        name: start[name].distribution.start(*([2] if name in network.indicators else []))
        for name in network.order
    }
    grows, slots = any(start[name].distribution.grows for name in names), {}
    if grows:
        slots = {"topic": jnp.ones(2, bool)}
        hyperparameters["topic"] |= {"weights": jnp.asarray([0.5, 0.3]), "rest": jnp.float32(0.2)}
    states = jnp.asarray([*itertools.product(range(2), repeat=5 * len(names))], jnp.int32)
    if grows:  # groups in use stay in use
        states = states[1:-1]

    def state_of(labels):
        each = labels.reshape(len(names), 5)
        return NetworkState(dict(zip(names, each, strict=True)), hyperparameters, slots)

    log_joint = jax.jit(jax.vmap(lambda one: network.log_joint(state_of(one), DATA)))(states)
    posterior = np.asarray(jax.nn.softmax(log_joint.astype(jnp.float32)), float)
    posterior /= posterior.sum()
    chosen = np.random.default_rng(0).choice(len(states), size=num_chains, p=posterior)

    def run(key, labels):
        state = state_of(labels)
        for index in range(2):
            sweep_key = jax.random.fold_in(key, index)
            state = parallel.sweep(network, names, sweep_key, state, DATA, in_kernel=in_kernel)
        return jnp.concatenate([state.values[name] for name in names])

    keys = jax.random.split(jax.random.key(4), num_chains)
    after = jax.jit(jax.vmap(run), compiler_options=FAST_COMPILE)(keys, states[chosen])

    def summaries(labels):
        pairs = labels[:, :, None] == labels[:, None]
        each = labels.reshape(len(labels), len(names), 5)
        same_word = (each[:, :, 0] == each[:, :, 2]).all(1)
        return {"pairs": pairs * 1.0, "topic": labels * 1.0, "same": same_word * 1.0}

    every, exact = summaries(np.asarray(states)), {}
    for name, values in every.items():
        exact[name] = np.tensordot(posterior, values, 1)
    off = np.triu_indices(5 * len(names), 1)
    drawn = summaries(np.asarray(after))
    drawn["pairs"], exact["pairs"] = drawn["pairs"][:, *off], exact["pairs"][off]
    check_means(drawn, exact, title=model)


@pytest.fixture(params=["cpu", "gpu"])
def platform(request, monkeypatch):
    """Batch after batch, and blocks of batches, of which the last is not full."""
    choose_platform(request.param, monkeypatch)
    return request.param


def choose_platform(platform, monkeypatch, *, cells=6, sums=2):
    """`cells`: 3 batches of 2 groups are a block, and 2 tokens at once are not all of its."""
    monkeypatch.setattr(batches, "default_platform", lambda: platform)
    monkeypatch.setattr(tables, "default_platform", lambda: platform)
    monkeypatch.setitem(BLOCK_SIZES, "token cells", BlockSize(cells, cells))
    monkeypatch.setitem(BLOCK_SIZES, "token sums", BlockSize(sums, sums))


LATER = [pytest.param(name, marks=pytest.mark.slow) for name in ("paths", "hierarchy")]


@pytest.mark.tiers(
    exhaustive=["cpu-hierarchy", "cpu-paths", "cpu-topics", "gpu-paths", "gpu-topics"]
)
@pytest.mark.parametrize("model", ["topics", *LATER])
def test_a_sweep_of_batches_against_enumeration(model, platform):
    del platform
    check(model)


@pytest.mark.tiers(exhaustive=["paths", "topics"])
@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_a_sweep_by_the_kernel_against_enumeration(model, monkeypatch):
    choose_platform("gpu", monkeypatch)
    check(model, num_chains=2_000, in_kernel=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("model", ["topics", *LATER])
def test_draws_on_accelerators_do_not_depend_on_blocks(model, monkeypatch):
    network = MODELS[model].at(DATA)
    names = network.indicators
    values = dict(zip(names, jnp.asarray([[0, 1, 1, 0, 1], [1, 0, 1, 1, 0]]), strict=False))
    hyperparameters = {
        name: network.blocks[name].distribution.start(*([2] if name in names else []))
        for name in network.order
    }
    slots = {n: jnp.ones(2, bool) for n in names if network.blocks[n].distribution.grows}
    if slots:
        hyperparameters["topic"] |= {"weights": jnp.asarray([0.5, 0.3]), "rest": jnp.float32(0.2)}
    state, keys = (
        NetworkState(values, hyperparameters, slots),
        jax.random.split(jax.random.key(1), 50),
    )

    def drawn(cells, sums):
        choose_platform("gpu", monkeypatch, cells=cells, sums=sums)
        sweep = jax.vmap(lambda key: parallel.sweep(network, names, key, state, DATA).values)
        return jax.jit(sweep, compiler_options=FAST_COMPILE)(keys)

    whole = drawn(10_000, 10_000)
    assert any(len(np.unique(chains, axis=0)) > 5 for chains in whole.values())
    for cells, sums in ((1, 1), (6, 2)):
        for name, chains in drawn(cells, sums).items():
            np.testing.assert_array_equal(chains, whole[name])


@pytest.mark.tiers(exhaustive=["gpu"])
def test_first_tokens_join_groups_in_use_where_nearly_all_is_left_to_new_ones(platform):
    del platform
    # all groups in use have exp(-1000) or so of a batch together
    network = mf.Network(topic=mf.Block(mf.HDP(1e-3, 1.0), by="document"), word=WORDS).at(DATA)
    slots = {"topic": jnp.asarray([False, True, True])}
    weights = {"weights": jnp.asarray([0.0, 0.3, 0.2]), "rest": jnp.float32(0.5)}
    hyperparameters = {
        "topic": network.blocks["topic"].distribution.start(3) | weights,
        "word": WORDS.distribution.start(),
    }
    few = NetworkState({"topic": jnp.asarray([1, 2])}, hyperparameters, slots)
    columns = {name: column[2:4] for name, column in DATA.columns.items()}
    few_tokens = Tokens(columns, DATA.sizes)
    everyone = few._replace(values={"topic": jnp.zeros(5, jnp.int32)})

    def run(key):
        few_of = (few, few_tokens)
        return parallel.first_sweep(network, ("topic",), (), key, few_of, everyone, DATA).values

    keys = jax.random.split(jax.random.key(0), 100)
    topics = jax.jit(jax.vmap(run), compiler_options=FAST_COMPILE)(keys)["topic"]
    assert np.unique(topics).tolist() == [1, 2]


def test_a_draw_among_many_groups_in_pieces():
    generator = np.random.default_rng(0)
    weights = generator.gamma(4.0, size=(3, 70)) * (generator.random((3, 70)) < 0.7)
    weights[0, 32:64] = 0  # a piece without weight
    weights[1, 64:] = 0
    rows = np.arange(60_000) % 3
    table = jnp.asarray(weights, jnp.float32)[rows]

    def weigh(index):
        each = table if index.ndim == 2 else table[:, None]
        return jnp.take_along_axis(each, index, axis=-1)

    ends = jnp.asarray([0, 0, 0, *[1 - 2**-23] * 3])  # of the uniforms that may come
    uniforms = jax.random.uniform(jax.random.key(3), rows.shape).at[:6].set(ends)
    chosen = np.asarray(jax.jit(lambda part: at_once.choose(weigh, 70, 32, part))(uniforms))
    assert np.all(weights[rows, chosen] > 0)
    assert chosen[:3].tolist() == [int(np.min(np.nonzero(part))) for part in weights]
    for row in range(3):
        found = {"chosen": (chosen[rows == row][:, None] == np.arange(70)) * 1.0}
        exact = {"chosen": weights[row] / weights[row].sum()}
        check_means(found, exact, title=f"row {row}")


@partial(jax.tree_util.register_dataclass, data_fields=["pull"], meta_fields=[])
@dataclass(frozen=True)
class Pulled(PartitionPrior):
    """Two groups, such as a user may write them."""

    pull: float

    hyperparameters = ("pull",)
    grows = False
    labels_shared = True

    def num_groups(self, capacity):
        return 2

    def weights(self, cache, batch):
        raise AssertionError("draws of the weights do not ask this")

    def log_prob(self, counts, hyperparameters):
        raise AssertionError("draws of the weights do not ask this")

    def weight_shapes(self, counts, hyperparameters):
        return counts + jnp.broadcast_to(hyperparameters["pull"], (2,)), None


def test_a_prior_of_the_user_may_name_its_hyperparameters():
    drawn = []
    for prior in (mf.Dirichlet(2, 0.7), Pulled(0.7)):
        network = mf.Network(topic=mf.Block(prior, by="document"), word=WORDS).at(DATA)
        hyperparameters = {"topic": prior.start(2), "word": WORDS.distribution.start()}
        state = NetworkState({"topic": jnp.asarray([0, 1, 1, 0, 1])}, hyperparameters, {})
        sweep = partial(parallel.sweep, network, ("topic",), state=state, data=DATA)
        after = jax.vmap(lambda key, sweep=sweep: sweep(key=key).values["topic"])
        keys = jax.random.split(jax.random.key(0), 20)
        drawn.append(jax.jit(after, compiler_options=FAST_COMPILE)(keys))
    np.testing.assert_array_equal(*drawn)


def test_a_token_that_stays_in_its_batch_is_caught(monkeypatch):
    left = batches._left

    def kept(turns, counts, token, *others):
        once_more = batches._moved(turns, counts, token, 1)
        return left(turns, counts, token, *others)[0], left(turns, once_more, token, *others)[1]

    monkeypatch.setattr(batches, "_left", kept)
    with pytest.raises(AssertionError, match="expected"):
        check("topics")


def apart(inputs):
    """Tokens that do not see the others of their document."""
    each = jnp.arange(5, dtype=jnp.int32)
    return inputs._replace(starts=each, ends=each + 1)


def without_holders(inputs):
    return inputs._replace(marks=jnp.ones_like(inputs.marks), limits=inputs.limits.at[:].set(0))


def without_level(inputs):
    """Topics of a document by the level above alone."""
    return inputs._replace(above=inputs.above * 1e6)


BROKEN = {"topics": apart, "hierarchy": without_holders, "paths": without_level}


@pytest.mark.slow
@pytest.mark.tiers(exhaustive=["paths", "topics"])
@pytest.mark.parametrize("model", MODELS)
def test_a_kernel_that_leaves_something_out_is_caught(model, monkeypatch):
    kernel = token_draw.draw
    monkeypatch.setattr(token_draw, "draw", lambda inputs: kernel(BROKEN[model](inputs)))
    choose_platform("gpu", monkeypatch)
    with pytest.raises(AssertionError, match="expected"):
        check(model, num_chains=2_000, in_kernel=True)


@pytest.mark.exhaustive
def test_proportions_that_are_not_drawn_are_caught(monkeypatch):
    def means(keys, distribution, counts, hyperparameters):
        shapes, _ = distribution.weight_shapes(counts, hyperparameters)
        return jnp.log(shapes / jnp.sum(shapes, axis=-1, keepdims=True))

    monkeypatch.setattr(at_once, "sample_log_weights", means)
    choose_platform("gpu", monkeypatch)
    with pytest.raises(AssertionError, match="expected"):
        check("topics")


def test_topics_that_are_not_drawn_are_caught(monkeypatch):
    def means(distribution, key, statistics, hyperparameters):
        return jnp.log(distribution.probabilities(statistics, hyperparameters))

    monkeypatch.setattr(mf.DirichletMultinomial, "sample_parameters", means)
    with pytest.raises(AssertionError, match="expected"):
        check("topics")
