"""What is no network, no block, or no data of a network: refused, in words."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf
from jaxmf.blocks.wiring import BlockParts
from jaxmf.data import Tokens

WORDS = mf.DirichletMultinomial(3, 0.5)
TOPIC = mf.Block(mf.Dirichlet(2), by="document")
WORD = mf.Block(WORDS, by="topic", observed=True)
LENGTH = mf.Block(mf.NormalInverseGamma(), by="topic", observed=True)
DATA = Tokens(
    {"document": [0, 0, 1, 2], "word": [0, 2, 1, 1]},
    {"document": 3, "word": 3},
    {"length": [0.1, 0.2, 0.3, 0.4]},
)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: mf.Block(mf.Dirichlet(2), observed=True), TypeError, "Dirichlet is a prior of"),
        (lambda: mf.Block(WORDS), TypeError, "is a family of observed values; give observed=True"),
        (lambda: mf.Block("Dirichlet"), TypeError, "'Dirichlet' is neither a family nor a prior"),
        (lambda: mf.Block(mf.Dirichlet), TypeError, "is neither a family nor a prior"),
        (lambda: mf.Block(mf.Dirichlet(2), by=3), TypeError, "by: 3 is no name; write by='doc"),
        (lambda: mf.Block(mf.Dirichlet(2), by=("a", 1)), TypeError, "by: 1 is no name"),
        (lambda: mf.Block(mf.Dirichlet(2), by=("a", "a")), ValueError, "names a parent twice"),
        (lambda: mf.Block(mf.Dirichlet(2), by=lambda: 0), ValueError, "name the parents.*none"),
        (lambda: mf.Block(mf.Dirichlet(2), by=lambda *all: 0), ValueError, "one each.*got all"),
    ],
)
def test_what_is_no_block(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_ways_to_name_parents():
    assert mf.Block(mf.Dirichlet(2)).by == ()
    assert mf.Block(mf.Dirichlet(2), by="a").by == ("a",)
    assert mf.Block(mf.Dirichlet(2), by=["a", "b"]).by == ("a", "b")
    block = mf.Block(mf.Dirichlet(2), by=lambda b, a: a + b)
    assert block.by == ("b", "a")
    assert tuple(inspect.signature(block.rho).parameters) == ("b", "a")


@pytest.mark.parametrize(
    ("blocks", "error", "words"),
    [
        ({}, ValueError, "at least one block"),
        ({"topic": mf.Dirichlet(2)}, TypeError, r"topic: .* is no Block; write topic=Block\("),
        ({"topic": mf.Block(mf.Dirichlet(2), by="topic")}, ValueError, "partitioned by itself"),
        (
            {
                "a": mf.Block(mf.Dirichlet(2), by="c"),
                "b": mf.Block(mf.Dirichlet(2), by="a"),
                "c": mf.Block(mf.Dirichlet(2), by="b"),
            },
            ValueError,
            "in a circle: a -> b -> c -> a",
        ),
        (
            {"topic": TOPIC, "length": LENGTH, "word": mf.Block(WORDS, by="length", observed=True)},
            ValueError,
            "word: is partitioned by 'length', whose values are not from a finite set",
        ),
        (
            {"topic": mf.Block(mf.DirichletProcess(1.0), by="document"), "word": WORD},
            ValueError,
            r"labels of 'topic' mean nothing outside.*write by=\('document', 'topic'\), or use HDP",
        ),
        (
            {"topic": mf.Block(mf.PitmanYor(1.0, 0.5), by=("a", "b")), "word": WORD},
            ValueError,
            r"PitmanYor partitions each part separately: write by=\('a', 'b', 'topic'\)",
        ),
        (
            {"topic": TOPIC, "sub": mf.Block(mf.DirichletProcess(1.0), by="topic")},
            ValueError,
            "sub: a DirichletProcess partitioned by the latent 'topic' is not supported",
        ),
        (
            {
                "topic": mf.Block(mf.HDP(1.0, 1.0), by="document"),
                "word": mf.Block(WORDS, by=lambda topic: topic // 2, observed=True),
            },
            ValueError,
            "word: a function of 'topic', which has no fixed number of values",
        ),
        ([mf.Block(mf.Dirichlet(2))], TypeError, "must be a mapping from names to blocks, got a"),
    ],
)
def test_what_is_no_network(blocks, error, words):
    with pytest.raises(error, match=words):
        mf.Network(blocks)


def network_of(**changes):
    return mf.Network(**({"topic": TOPIC, "word": WORD} | changes))


def by_function(rho):
    return mf.Block(WORDS, by=rho, observed=True)


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (network_of(topic=mf.Block(mf.Dirichlet(2), by="author")), "no column 'author', which the"),
        (network_of(text=mf.Block(WORDS, by="topic", observed=True)), "no column 'text'.*'word'"),
        (network_of(topic=mf.Block(mf.Dirichlet(2), by="length")), "'length' has real values"),
        (
            mf.Network(document=mf.Block(mf.Dirichlet(2)), word=mf.Block(WORDS, observed=True)),
            "have a column 'document', which is a latent block",
        ),
        (network_of(word=mf.Block(mf.DirichletMultinomial(2), observed=True)), "2 at token 1"),
        (network_of(length=mf.Block(WORDS, observed=True)), "length: its family .* got float"),
        (network_of(word=mf.Block(mf.BetaBinary(), observed=True)), "outside 0..1"),
        (
            network_of(length=mf.Block(mf.NormalInverseWishart(2), observed=True)),
            "length: NormalInverseWishart.2. takes vectors of length 2",
        ),
        (
            network_of(length=mf.Block(mf.GammaPoisson(), observed=True)),
            "0.1.* at token 0 is no co",
        ),
        (
            network_of(word=mf.Block(mf.NormalInverseGamma(), by="topic", observed=True)),
            "^data: 'word' is a column of categories.*values={'word': ...}.*DirichletMultinomial",
        ),
        (network_of(word=by_function(lambda topic: topic / 2)), "integers.*got float"),
        (network_of(word=by_function(lambda topic: topic - 1)), "between -1 and 0"),
        (
            network_of(word=by_function(lambda topic: topic.astype(np.int64) * 2**40)),
            "integers from 0 up",
        ),
        (
            network_of(word=by_function(lambda topic, document: topic[:3])),
            r"6 combinations of values of \('topic', 'document'\).*got shape \(3,\)",
        ),
    ],
)
def test_data_that_a_network_cannot_take(network, words):
    with pytest.raises(ValueError, match=words):
        network.check_data(DATA, "data")


def test_numbers_of_parts_that_are_too_large():
    sizes = {"user": 2**20, "item": 2**12, "z": 2}
    block = mf.Block(WORDS, by=("user", "item"), observed=True)
    with pytest.raises(ValueError, match="4,294,967,296 parts are more than int32"):
        mf.Network(x=block).parts("x", sizes)
    block = by_function(lambda user, z: user * z)
    assert mf.Network(x=block).parts("x", sizes | {"user": 10}).num_parts == 10
    block = by_function(lambda user, item: user)
    with pytest.raises(ValueError, match="at most 4,194,304 are tabulated"):
        mf.Network(x=block).parts("x", sizes | {"user": 2**11})
    with pytest.raises(ValueError, match=r"'shop', which is neither a block nor a column.*'user'"):
        mf.Network(x=mf.Block(WORDS, by="shop", observed=True)).parts("x", sizes)


def test_good_data_pass():
    network = network_of(length=LENGTH)
    network.check_data(DATA, "data")
    assert network.order == ("topic", "word", "length")
    assert network.columns == ("document", "word", "length")
    assert (network.indicators, network.observed) == (("topic",), ("word", "length"))
    assert network.children("topic") == ("word", "length")
    assert network.children("document") == ("topic",)


def test_parts_are_numbered_as_an_array_of_their_shape():
    sizes = {"a": 2, "b": 3, "c": 4}
    network = mf.Network(x=mf.Block(WORDS, by=("c", "a", "b"), observed=True))
    parts = network.parts("x", sizes)
    assert (parts.shape, parts.num_parts) == ((4, 2, 3), 24)
    values = {"a": jnp.asarray([1, 0]), "b": jnp.asarray([2, 0]), "c": jnp.asarray([3, 1])}
    expected = np.ravel_multi_index(([3, 1], [1, 0], [2, 0]), (4, 2, 3))
    np.testing.assert_array_equal(parts.of(values, None), expected)
    one = {name: column[0] for name, column in values.items()}
    for name, positions in (("a", [20, 23]), ("b", [21, 22, 23]), ("c", [5, 11, 17, 23])):
        assert parts.lanes(one, name, None).positions().tolist() == positions
    assert isinstance(parts, BlockParts)


@pytest.mark.parametrize(
    "rho",
    [
        lambda a, b: (a + b) % 2,
        lambda a, b: jnp.where(a + b == 1, 1, 0) + jnp.zeros_like(a),
        lambda a, b: np.maximum(a, b),
    ],
)
def test_functions_are_tabulated_inside_a_compiled_program_too(rho):
    network = mf.Network(x=by_function(rho))

    def pair_index(a, b):
        parts = network.parts("x", {"a": 2, "b": 2})
        return parts.of({"a": a, "b": b}, jnp.asarray(parts.table))

    found = jax.jit(pair_index)(jnp.asarray([0, 0, 1, 1]), jnp.asarray([0, 1, 0, 1]))
    expected = [int(rho(np.int32(a), np.int32(b))) for a in (0, 1) for b in (0, 1)]
    assert found.tolist() == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"keep": "all"},
            "keep must be one of 'statistics', 'compact', 'assignments', 'scalars', got 'all'",
        ),
        ({"capacity": 0}, "capacity must be at least 1, got 0"),
        ({"joint": (("topic", "word"),)}, "joint: 'word' is no latent indicator.*'topic'"),
        ({"joint": (("topic",), ("topic",))}, "stands in two sets"),
    ],
)
def test_options_of_the_sampler(options, words):
    with pytest.raises(ValueError, match=words):
        network_of().sampler(**options)
