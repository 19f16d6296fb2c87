"""Where chains of groups start: evenly over many, with room, whatever the values are."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf
from jaxmf import registry
from jaxmf.blocks.starting import num_first_groups
from jaxmf.data import Tokens
from tests import FAST_COMPILE


def corpus(num_documents=300, num_words=120, num_topics=30, length=40):
    """Documents of two topics each; every topic has four words of its own."""
    generator = np.random.default_rng(0)
    topics = generator.integers(num_topics, size=(num_documents, 2))
    which = topics[:, None, :][:, np.zeros(length, int)]
    chosen = np.where(generator.random((num_documents, length)) < 0.5, which[..., 0], which[..., 1])
    words = chosen * (num_words // num_topics) + generator.integers(4, size=chosen.shape)
    documents = np.repeat(np.arange(num_documents), length)
    sizes = {"document": num_documents, "word": num_words}
    return Tokens({"document": documents, "word": words.ravel()}, sizes)


DATA = corpus()


def start_of(model, data, **options):
    sampler = model.sampler(**options)
    return jax.jit(sampler.init, compiler_options=FAST_COMPILE)(jax.random.key(0), data)


@pytest.mark.parametrize("capacity", [None, 12])
def test_topics_of_an_hdp_start_evenly_over_many_with_room_for_more(capacity):
    state = start_of(mf.HDPLDA(), DATA, capacity=capacity)
    expected = math.isqrt(12_000) // 2 if capacity is None else 6
    labels, slots = np.asarray(state.values["topic"]), np.asarray(state.slots["topic"])
    np.testing.assert_array_equal(np.unique(labels), np.arange(expected))
    assert np.bincount(labels).max() < 2 * 12_000 / expected
    np.testing.assert_array_equal(slots, np.arange(slots.size) < expected)
    assert slots.size == capacity if capacity else slots.size >= 2 * expected
    hyperparameters = state.hyperparameters["topic"]
    np.testing.assert_array_equal(hyperparameters["weights"] > 0, slots)
    np.testing.assert_allclose(
        np.sum(hyperparameters["weights"]) + hyperparameters["rest"], 1, rtol=1e-6
    )


@pytest.mark.slow
def test_a_dozen_sweeps_find_the_topics_of_a_clear_corpus():
    """Thirty topics; a chain that started in turn has eleven then, which mix them: purity .28."""
    sampler = mf.HDPLDA().sampler(keep="scalars")
    state = start_of(mf.HDPLDA(), DATA)
    step = jax.jit(sampler.step, compiler_options=FAST_COMPILE)
    for sweep in range(12):
        state, info = step(jax.random.key(sweep), state, DATA, jnp.ones(()))
        assert not bool(info.overflow["topic"])
    pairs = np.zeros((state.slots["topic"].size, 30), int)
    np.add.at(pairs, (np.asarray(state.values["topic"]), np.asarray(DATA.columns["word"]) // 4), 1)
    purity = pairs.max(axis=1).sum() / pairs.sum()
    assert purity > 0.7
    assert len(np.unique(pairs.argmax(axis=1)[pairs.sum(axis=1) > 100])) > 24


def some(network, columns=(), *, num_tokens=400, **values):
    sizes = dict(columns)
    data = Tokens(
        {name: np.arange(num_tokens) % size for name, size in sizes.items()}, sizes, values
    )
    return num_first_groups(network.at(data), data)


def test_topics_of_a_small_corpus_are_split_and_merged_by_default():
    """And not where they are stated, of a fixed number, many tokens, or on an accelerator."""
    few = mf.Tokens.from_counts(np.full((4, 5), 3))
    many = mf.Tokens.from_counts(np.full((4, 5), 2_000))

    def proposals(model, data, platform="cpu", **options):
        return model.device_options(options, platform=platform, data=data).get("split_merge")

    assert proposals(mf.HDPLDA(), few) == 2
    assert proposals(mf.HDPLDA().network(), few) == 2
    assert proposals(mf.HDPLDA(), many) is None
    assert proposals(mf.HDPLDA(), few, platform="gpu") is None
    assert proposals(mf.HDPLDA(), few, split_merge=0) is None
    assert proposals(mf.LDA(3), few) is None


def test_no_more_groups_than_values_can_tell_apart():
    process, normal = mf.Block(mf.DirichletProcess()), mf.NormalInverseWishart()
    words = mf.Block(mf.DirichletMultinomial(), by="group", observed=True)
    vectors = mf.Block(normal, by="group", observed=True)
    assert some(mf.Network(group=process, word=words), [("word", 7)]) == 7
    assert some(mf.Network(group=process, word=words), [("word", 70)]) == 20
    nothing = [("all", 1)]
    for width, expected in ((1, 20), (9, 20), (24, 8), (400, 1)):
        network = mf.Network(group=process, x=vectors)
        assert some(network, nothing, x=np.zeros((400, width))) == expected
    of_users = mf.Network(
        group=mf.Block(mf.PitmanYor(), by="user"),
        word=mf.Block(mf.DirichletMultinomial(), by=("user", "group"), observed=True),
    )
    assert some(of_users, [("user", 4), ("word", 70)]) == 10


def test_several_indicators_start_in_turn():
    assert num_first_groups(mf.MultiHDP(("document",), "word").network().at(DATA), DATA) is not None
    both = mf.Network(
        topic=mf.Block(mf.HDP(), by="document"),
        group=mf.Block(mf.DirichletProcess()),
        word=mf.Block(mf.DirichletMultinomial(), by=("topic", "group"), observed=True),
    )
    assert num_first_groups(both.at(DATA), DATA) is None


def test_a_start_does_not_depend_on_slots_that_are_left_over():
    small, large = (start_of(mf.HDPLDA(), DATA, capacity=capacity) for capacity in (128, 200))
    np.testing.assert_array_equal(small.values["topic"], large.values["topic"])
    weights = large.hyperparameters["topic"]["weights"][:128]
    np.testing.assert_array_equal(small.hyperparameters["topic"]["weights"], weights)


@pytest.mark.parametrize(("stated", "slots"), [(12, 12), (32, 32), (33, 64), (200, 224)])
def test_many_slots_make_whole_vectors(stated, slots):
    state = start_of(mf.HDPLDA(), DATA, capacity=stated)
    assert state.slots["topic"].size == slots


def test_most_chains_of_a_given_number_of_groups_start_near_centres_of_their_own():
    """In turn, each row joins the first group, which is as narrow as that of one: none leaves."""
    generator = np.random.default_rng(0)
    kind = np.repeat(np.arange(3), 40)
    values = 1e3 + generator.normal(0, 2.0, (3, 20))[kind] + 0.5 * generator.normal(size=(120, 20))
    sampler = mf.MixtureOfGaussians(3).sampler()
    start = jax.jit(jax.vmap(sampler.init, (0, None)), compiler_options=FAST_COMPILE)
    keys = jax.random.split(jax.random.key(0), 40)
    starts = np.asarray(start(keys, mf.Dense(values)).values["group"])
    found = [len(set(zip(kind, labels, strict=True))) == 3 for labels in starts]
    alone = [len(set(labels)) == 1 for labels in starts]
    assert 25 <= sum(found) <= 39, "some chains are to start elsewhere"
    assert sum(found) + sum(alone) >= 35
    assert len({tuple(labels) for labels in starts}) >= 6, "labels are to differ"


@pytest.mark.parametrize(
    "values", [np.ones((5, 2)), np.repeat([[0.0, 1.0], [2.0, 1.0]], 3, axis=0)]
)
def test_a_start_near_centres_takes_fewer_different_rows_than_groups(values):
    state = start_of(mf.MixtureOfGaussians(4), mf.Dense(values))
    assert set(np.asarray(state.values["group"])) <= set(range(4))


NARROW = dist.Uniform(0.0, 1e-3)  # far below what the data suggest
NEVER_LEARNED = {"weight_shape", "weight_rate", "base_rate"}  # of counts, the example is Gaussian
SHOWN = ("noisy-or-ibp", "hdp", "bpmf")
# Networks whose hyperparameters and start are those of the others: before a release.
FURTHER = {"mixture-of-gaussians", "flexible-mixture", "dcm", "hfp", "bi-hdp", "urp"}
FURTHER |= {"lda", "pam", "multi-lda", "multi-hdp", "bi-lda", "network"}


def narrow(entry):
    """The example of a model with the narrow prior for every hyperparameter that may have one."""
    model, data = entry.example()
    settings = {
        field.name: NARROW
        for field in dataclasses.fields(model)
        if field.type == "Hyperparameter" and field.name not in NEVER_LEARNED
    }
    if isinstance(model, mf.BPMF):
        settings |= {"likelihood": mf.Gaussian(NARROW)}
        features = np.random.default_rng(0).normal(size=(8, 2)).astype(np.float32)
        settings |= {"row_features": mf.Features(features)}
    return model if not settings else dataclasses.replace(model, **settings), data


def marks(name):
    if name in SHOWN:
        return []
    return [pytest.mark.slow, *([pytest.mark.exhaustive] if name in FURTHER else [])]


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, id=entry.name, marks=marks(entry.name))
        for entry in registry.ENTRIES
        if "sample" in entry.methods and entry.name != "feature-model"
    ],
)
def test_every_model_starts_inside_bounds_far_from_its_data(entry):
    model, data = narrow(entry)
    state = start_of(model, data)
    log_joint = jax.jit(type(model).log_joint, compiler_options=FAST_COMPILE)
    assert np.isfinite(log_joint(model, state, data))
