"""The sampler of a network: growth, ways to run it, what it records, and models that are equal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf
from jaxmf.blocks.sequential import sweep
from jaxmf.blocks.state import NetworkState
from jaxmf.data import Tokens
from jaxmf.engine import run
from tests import FAST_COMPILE

NUM_TOKENS = 30


def words(by, size=4):
    return mf.Block(mf.DirichletMultinomial(size, 0.5), by=by, observed=True)


GROWING = mf.Network(
    topic=mf.Block(mf.HDP(3.0, 3.0), by="document"),
    group=mf.Block(mf.DirichletProcess(2.0)),
    word=words(("topic", "group")),
)
MIXED = mf.Network(
    topic=mf.Block(mf.HDP(5.0, 3.0), by="document"),
    kind=mf.Block(mf.Dirichlet(3, 0.5), by=("topic", "item")),
    word=words("kind"),
    length=mf.Block(mf.NormalInverseGamma(), by=("topic",), observed=True),
)


TOPICS = mf.Network(topic=mf.Block(mf.HDP(1.0, 1.0), by="document"), word=words("topic"))


def some_tokens(seed, *, with_length=False):
    generator = np.random.default_rng(seed)
    sizes = {"document": 3, "item": 2, "word": 4}
    columns = {name: generator.integers(size, size=NUM_TOKENS) for name, size in sizes.items()}
    values = {"length": generator.normal(size=NUM_TOKENS)} if with_length else {}
    return Tokens(columns, sizes, values)


def some_groups(network, num_slots, num_groups=1):
    """Tokens in the first groups of every indicator, at random."""
    values, hyperparameters, slots = {}, {}, {}
    generator = np.random.default_rng(1)
    for name, block in network.blocks.items():
        hyperparameters[name] = block.distribution.start(*(() if block.observed else (num_slots,)))
        if block.observed:
            continue
        size = num_groups if block.distribution.grows else block.distribution.num_groups(num_slots)
        labels = np.append(np.arange(size), generator.integers(size, size=NUM_TOKENS - size))
        values[name] = jnp.asarray(labels, jnp.int32)
        if block.distribution.grows:
            slots[name] = jnp.arange(num_slots) < size
        if "weights" in hyperparameters[name]:
            weights = slots[name].astype(hyperparameters[name]["weights"].dtype) / (size + 1)
            hyperparameters[name] = hyperparameters[name] | {
                "weights": weights,
                "rest": 1 - jnp.sum(weights),
            }
    return NetworkState(values, hyperparameters, slots)


@pytest.mark.slow
def test_growing_gives_the_assignments_of_large_capacity():
    with jax.enable_x64(True):
        data, sampler = some_tokens(0), GROWING.sampler()
        step = jax.jit(sampler.step, compiler_options=FAST_COMPILE)
        small = some_groups(GROWING, 4)
        large = sampler.grow(small, {"topic": 32, "group": 32})
        num_grown = 0
        for index in range(12):
            key = jax.random.key(index)
            after, info = step(key, small, data, jnp.ones(()))
            if any(info.overflow.values()):
                num_grown += 1
                assert sampler.capacity(small) == {"topic": 4, "group": 4}
                small = sampler.grow(small, {"topic": 32, "group": 32})
                after, info = step(key, small, data, jnp.ones(()))
            # there was room at every token, or the weights would have been others
            elif sampler.capacity(small)["topic"] == 4:
                assert all(np.sum(slots) < 4 for slots in after.slots.values())
            small = after
            large, info = step(key, large, data, jnp.ones(()))
            assert not any(info.overflow.values())
            for name in GROWING.indicators:
                np.testing.assert_array_equal(small.values[name], large.values[name])
        assert num_grown == 1
        assert len(np.unique(large.values["topic"])) > 1
        np.testing.assert_allclose(
            small.hyperparameters["topic"]["weights"],
            large.hyperparameters["topic"]["weights"],
            rtol=1e-9,
        )


@pytest.mark.exhaustive
def test_the_engine_grows_a_chain():
    result = run(GROWING.sampler(capacity=4), some_tokens(1), num_samples=20, seed=3)
    assert result.capacity["topic"] > 4
    assert np.all(np.isfinite(result.draws["log_joint"]))
    weights = result.draws["topic_weights"].sum(-1) + result.draws["topic_rest"]
    np.testing.assert_allclose(weights, 1, atol=1e-5)


@pytest.mark.tiers(slow=["mixed"], exhaustive=["topics"])
@pytest.mark.parametrize("network", [TOPICS, MIXED], ids=["topics", "mixed"])
def test_fused_plain_and_vectorized_chains_agree(network, monkeypatch):
    def fresh_step():
        step = network.sampler().step
        return lambda key, state: step(key, state, data, jnp.ones(()))[0]

    with jax.enable_x64(True):
        data = some_tokens(2, with_length=True)
        start = some_groups(network, 16, 5)
        keys = jax.random.split(jax.random.key(7), 3)
        states = [start] * 3
        fused = jax.jit(fresh_step())
        with monkeypatch.context() as context:
            context.setenv("JAXMF_FUSE_LOOPS", "0")
            plain = jax.jit(fresh_step(), compiler_options=FAST_COMPILE)
            plain(keys[0], start)
        vectorized = jax.jit(jax.vmap(fresh_step()), compiler_options=FAST_COMPILE)
        for index in range(3):
            step_keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, index)
            if network is MIXED:
                together = vectorized(
                    step_keys, jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
                )
            for chain in range(3):
                arguments = step_keys[chain], states[chain]
                after, others = fused(*arguments), [plain(*arguments)]
                if network is MIXED:
                    others.append(jax.tree.map(lambda leaf, chain=chain: leaf[chain], together))
                assert_same(after, others)
                states[chain] = after
        first, second = (np.asarray(state.values["topic"]) for state in states[:2])
        assert not np.array_equal(first, second)


def assert_same(state, others):
    for other in others:
        assert jax.tree.structure(other) == jax.tree.structure(state)
        for leaf, another in zip(*map(jax.tree.leaves, (state, other)), strict=True):
            np.testing.assert_allclose(leaf, another, rtol=1e-9)


@pytest.mark.exhaustive
def test_a_step_outside_of_a_program_is_the_same():
    data, sampler = some_tokens(2, with_length=True), MIXED.sampler(capacity=24)
    key = jax.random.key(8)
    state = sampler.init(key, data)
    inside, _ = jax.jit(sampler.step)(key, state, data, jnp.ones(()))
    outside, _ = sampler.step(key, state, data, jnp.ones(()))
    for name in MIXED.indicators:
        np.testing.assert_array_equal(inside.values[name], outside.values[name])


def test_records_are_the_counts_of_the_assignments_and_a_second_data_set_compiles_nothing():
    sampler = MIXED.sampler(keep="assignments")
    step, record = (jax.jit(fn, compiler_options=FAST_COMPILE) for fn in sampler[1:3])
    for seed in (3, 4):
        data = some_tokens(seed, with_length=True)
        state = some_groups(MIXED, 16, 5)
        for index in range(12):
            key = jax.random.key(index)
            state, info = step(key, state, data, jnp.ones(()))
            assert not any(info.overflow.values())
        draw = jax.device_get(record(key, state, data))
        assert_counts(draw, data)
        assert len(np.unique(draw["kind_of_tokens"])) > 1
        assert step._cache_size() == 1
        assert record._cache_size() == 1
    draw["kind_counts"] = draw["kind_counts"] + np.eye(2, 3, dtype=int)
    with pytest.raises(AssertionError):
        assert_counts(draw, data)


def assert_counts(draw, data):
    document, item, word = (np.asarray(data.columns[n]) for n in ("document", "item", "word"))
    topic, kind = draw["topic_of_tokens"], draw["kind_of_tokens"]
    expected = {
        "topic_counts": np.zeros((3, 16), int),
        "kind_counts": np.zeros((16, 2, 3), int),
        "word_cells": np.zeros((4, 3), int),
        "word_totals": np.bincount(kind, minlength=3),
        "length_number": np.bincount(topic, minlength=16),
    }
    np.add.at(expected["topic_counts"], (document, topic), 1)
    np.add.at(expected["kind_counts"], (topic, item, kind), 1)
    np.add.at(expected["word_cells"], (word, kind), 1)
    for name, value in expected.items():
        np.testing.assert_array_equal(draw[name], value, err_msg=name)
    counts = expected["length_number"]
    assert draw["num_topic"] == np.count_nonzero(counts)
    np.testing.assert_array_equal(draw["topic_weights"] > 0, counts > 0)
    sums = np.bincount(topic, np.asarray(data.values["length"], float), 16)
    np.testing.assert_allclose(draw["length_location"], sums / (counts + 1), atol=1e-5)


@pytest.mark.parametrize("keep", ["statistics", "scalars"])
def test_what_a_draw_keeps(keep):
    sampler = MIXED.sampler(keep=keep, capacity=5)
    state = some_groups(MIXED, 5)
    data = some_tokens(3, with_length=True)
    draw = jax.eval_shape(sampler.record, jax.random.key(0), state, data)
    assert ("kind_counts" in draw) == (keep == "statistics")
    assert "kind_of_tokens" not in draw
    if keep == "scalars":
        assert all(value.shape == () for value in draw.values())
        assert {"log_joint", "num_topic", "topic_rest"} <= draw.keys()
    else:
        assert draw["kind_counts"].shape == (5, 2, 3)
        assert draw["word_cells"].shape == (4, 3)
        assert draw["length_rate"].shape == (5,)


def test_user_ratings_alone_are_ratings_with_every_item_its_own_group():
    """URP: rating by user group and item; Bi-LDA: by user group and item group."""
    user_group = mf.Block(mf.Dirichlet(3, 0.5), by="user")
    alone = mf.Network(group=user_group, rating=words(("group", "item"), 5))
    both = mf.Network(
        group=user_group,
        item_group=mf.Block(mf.Dirichlet(6, 0.5), by="item"),
        rating=words(("group", "item_group"), 5),
    )
    generator = np.random.default_rng(5)
    sizes = {"user": 4, "item": 6, "rating": 5}
    columns = {name: generator.integers(size, size=40) for name, size in sizes.items()}
    data = Tokens(columns, sizes)
    labels = {"group": jnp.asarray(generator.integers(3, size=40), jnp.int32)}
    fixed = {"item_group": data.columns["item"]}
    hyperparameters = {"rating": both.blocks["rating"].distribution.start()}
    hyperparameters |= {name: both.blocks[name].distribution.start(1) for name in both.indicators}

    @jax.jit
    def both_sweeps(key):
        first, _ = sweep(alone, ("group",), key, NetworkState(labels, hyperparameters, {}), data)
        second, _ = sweep(
            both, ("group",), key, NetworkState(labels | fixed, hyperparameters, {}), data
        )
        return first.values, second.values

    first, second = both_sweeps(jax.random.key(6))
    np.testing.assert_array_equal(first["group"], second["group"])
    np.testing.assert_array_equal(second["item_group"], data.columns["item"])
    assert not np.array_equal(first["group"], labels["group"])


def test_a_chain_starts_where_an_indicator_stands_between_those_of_a_set():
    network = mf.Network(
        first=mf.Block(mf.HDP(1.0, 1.0), by="document"),
        second=mf.Block(mf.Dirichlet(2, 0.9), by="first"),
        third=mf.Block(mf.HDP(1.0, 1.0), by=("second", "document")),
        word=words("third"),
    )
    data = some_tokens(6)
    sampler = network.sampler(joint=(("third", "first"),))
    state = jax.jit(sampler.init, compiler_options=FAST_COMPILE)(jax.random.key(9), data)
    for name in ("first", "third"):
        weights, rest = (state.hyperparameters[name][label] for label in ("weights", "rest"))
        np.testing.assert_allclose(weights.sum() + rest, 1, atol=1e-5)
        in_use = np.isin(np.arange(len(weights)), state.values[name])
        np.testing.assert_array_equal(weights > 0, in_use)
        np.testing.assert_array_equal(state.slots[name], in_use)
