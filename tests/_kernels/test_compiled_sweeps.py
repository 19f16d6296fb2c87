"""What makes a sweep fast changes nothing: padding, fused loops, chains in turn, kept weights."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

import jaxmf as mf
from benchmarks import by_hand
from jaxmf._kernels import fusion, tables
from jaxmf.blocks import sparse_by_word
from jaxmf.blocks.sequential import sweep
from jaxmf.blocks.sequential_prior import assign_all
from jaxmf.data import Tokens
from jaxmf.priors.hdp import HDP

NUM_TOKENS, NUM_DOCUMENTS, NUM_WORDS = 300, 40, 70


def some_tokens():
    generator = np.random.default_rng(0)
    words = np.sort(generator.integers(0, NUM_WORDS, NUM_TOKENS))
    documents = generator.integers(0, NUM_DOCUMENTS, NUM_TOKENS)
    sizes = {"document": NUM_DOCUMENTS, "word": NUM_WORDS}
    return Tokens({"document": documents, "word": words}, sizes)


def topics(prior):
    words = mf.DirichletMultinomial(NUM_WORDS, 0.1)
    return mf.Network(
        topic=mf.Block(prior, by="document"), word=mf.Block(words, by="topic", observed=True)
    )


def paths():
    words = mf.DirichletMultinomial(NUM_WORDS, 0.1)
    return mf.Network(
        above=mf.Block(mf.Dirichlet(3, 0.5), by="document"),
        below=mf.Block(mf.Dirichlet(5, 0.5), by=("document", "above")),
        word=mf.Block(words, by="below", observed=True),
    )


CASES = {
    "lda": (topics(mf.Dirichlet(5, 0.2)), ("topic",)),
    "hdp": (topics(mf.HDP(1.0, 1.0)), ("topic",)),
    "paths": (paths(), ("above", "below")),
    "above": (paths(), ("above",)),
}


def started(network):
    """A state, its tokens, and a fresh compiled sweep."""
    tokens = some_tokens()
    state = jax.jit(network.sampler(capacity=32).init)(jax.random.key(1), tokens)
    return state, tokens


def swept(network, names, state, tokens):
    def run(key, state, tokens):
        return sweep(network, names, key, state, tokens)[0]

    compiled = jax.jit(run, compiler_options=fusion.wide_vectors())
    return compiled(jax.random.key(2), state, tokens)


def assert_same(one, other):
    for name, values in one.values.items():
        np.testing.assert_array_equal(values, other.values[name])
    for left, right in zip(
        jax.tree.leaves(one.hyperparameters), jax.tree.leaves(other.hyperparameters), strict=True
    ):
        np.testing.assert_allclose(left, right, rtol=1e-5)


@pytest.mark.tiers(exhaustive=["paths"])
@pytest.mark.parametrize("name", CASES)
def test_padding_wide_vectors_and_one_kernel_change_no_draw(name, monkeypatch):
    network, names = CASES[name]
    state, tokens = started(network)
    fast = swept(network, names, state, tokens)
    assert not np.array_equal(fast.values[names[-1]], state.values[names[-1]])
    monkeypatch.setattr(fusion, "is_available", lambda: False)
    monkeypatch.setattr(tables, "padded", lambda size: size)
    assert_same(swept(network, names, state, tokens), fast)


def test_wide_vectors_are_asked_for_on_the_conditions_of_one_kernel(monkeypatch):
    assert bool(fusion.wide_vectors()) == fusion.is_available()
    monkeypatch.setenv("JAXMF_FUSE_LOOPS", "0")
    assert fusion.wide_vectors() == {}


def test_another_order_of_tokens_is_another_draw():
    network, names = CASES["lda"]
    state, tokens = started(network)
    back = jax.tree.map(lambda leaf: leaf[::-1], (state.values, tokens))
    other = swept(network, names, state._replace(values=back[0]), back[1])
    with pytest.raises(AssertionError):
        assert_same(other, swept(network, names, state, tokens))


@pytest.mark.tiers(exhaustive=["hdp"])
@pytest.mark.parametrize("name", ["lda", "hdp"])
def test_chains_together_are_chains_one_by_one(name):
    network, names = CASES[name]
    state, tokens = started(network)
    keys = jax.random.split(jax.random.key(3), 3)

    def run(key, state):
        return sweep(network, names, key, state, tokens)[0]

    together = jax.jit(jax.vmap(run, in_axes=(0, None)))(keys, state)
    for chain, key in enumerate(keys):
        assert_same(jax.tree.map(lambda leaf: leaf[chain], together), jax.jit(run)(key, state))  # noqa: B023


def test_the_loop_by_hand_draws_the_same_topics():
    network, names = CASES["lda"]
    state, tokens = started(network)
    columns = tokens.columns["document"], tokens.columns["word"]
    shape = NUM_DOCUMENTS, NUM_WORDS, 5
    concentrations = jnp.asarray([0.2, 0.1])
    sweep_by_hand = jax.jit(by_hand._sweep, static_argnames=("shape",))
    drawn = sweep_by_hand(
        jax.random.key(2), columns, state.values["topic"], concentrations, shape=shape
    )
    np.testing.assert_array_equal(drawn, swept(network, names, state, tokens).values["topic"])


@pytest.mark.skipif(
    not fusion.is_available(), reason="one kernel only for releases it was tried with"
)
@pytest.mark.parametrize("name", CASES)
def test_a_sweep_copies_no_table(name):
    network, names = CASES[name]
    state, tokens = started(network)

    def run(key, state, tokens):
        return sweep(network, names, key, state, tokens)[0]

    text = jax.jit(run).lower(jax.random.key(2), state, tokens).compile().as_text()
    assert "xla_cpu_small_call" in text
    assert not copied_tables(text)


@pytest.mark.skipif(
    not fusion.is_available(), reason="one kernel only for releases it was tried with"
)
def test_the_sweep_word_by_word_draws_topics_in_their_place_and_copies_no_list():
    network, _ = CASES["lda"]
    state, tokens = started(network)

    def run(key, state, tokens):
        return sparse_by_word.sweep(network, key, state, tokens)[0]

    run = jax.jit(run, donate_argnums=1)
    text = run.lower(jax.random.key(2), state, tokens).compile().as_text()
    assert not copied_tables(text)
    # nor is there another array for the topics than that of the order, and what is passed
    assert not re.findall(rf"s32\[{NUM_TOKENS}\]\S* copy\(", text)


@pytest.mark.skipif(
    not fusion.is_available(), reason="one kernel only for releases it was tried with"
)
def test_values_of_sets_from_their_prior_are_not_copied_for_every_token():
    documents = jnp.arange(NUM_TOKENS, dtype=jnp.int32) % NUM_DOCUMENTS
    first = documents // 2  # a set of the tokens of two documents

    def start(key, batches, first):
        prior = mf.DirichletProcess(1.0)
        shape = (NUM_DOCUMENTS, 8)
        return assign_all(key, prior, prior.start(8), batches, shape, first=first)[0]

    start = jax.jit(start)
    arguments = jax.random.key(0), documents, first
    text = start.lower(*arguments).compile().as_text()
    loops = text[: text.index("ENTRY")]
    assert "xla_cpu_small_call" in text
    assert not re.findall(rf"s32\[{NUM_TOKENS}\]\S* copy\(", loops)
    drawn = start(*arguments)
    np.testing.assert_array_equal(drawn, drawn[first])


def test_a_table_read_before_it_is_changed_is_found_out():
    def careless(table, slots):
        def one(index, carry):
            table, sums = carry
            slot = tables.row(slots, index)
            before = tables.row(table, slot)
            table = tables.add_entry(table, slot, index % 8, 1.0)
            return table, tables.put(sums, index, jnp.sum(before * tables.row(table, slot)))

        return jax.lax.fori_loop(0, slots.size, one, (table, jnp.zeros(slots.size)))

    loop = jax.jit(fusion.fused_on_cpu(careless, sequential=True))
    slots = jnp.zeros(NUM_TOKENS, jnp.int32)
    text = loop.lower(jnp.zeros((NUM_DOCUMENTS, 8)), slots).compile().as_text()
    assert copied_tables(text) == {(NUM_DOCUMENTS, 8)}


def copied_tables(text):
    """Shapes of the tables that a compiled program copies."""
    found = re.findall(r"[fsu]32\[(\d+),(\d+)\]\S* copy\(", text)
    return {tuple(map(int, shape)) for shape in found}


@pytest.mark.slow
def test_weights_kept_of_an_hdp_are_those_taken_afresh():
    prior = HDP(0.8, 1.3)
    generator = np.random.default_rng(4)
    hyperparameters = prior.start(8)
    seating = prior.begin(jnp.zeros((3, 8), jnp.int32), hyperparameters, with_sizes=True)
    assign, unassign = jax.jit(prior.assign), jax.jit(prior.unassign)
    items, num_births = [], 0
    for _ in range(120):
        if items and generator.random() < 0.45:
            batch, group = items.pop(generator.integers(len(items)))
            seating = unassign(seating, jnp.asarray(batch), jnp.asarray(group))
        else:
            weights, room = prior.weights(seating, jnp.asarray(generator.integers(3)))
            assert room == (seating.free < 8)
            group = int(generator.choice(np.flatnonzero(np.asarray(weights) > 0)))
            num_births += int(seating.totals[group] == 0)
            item = int(generator.integers(3)), group
            uniform = jnp.asarray(generator.random(), jnp.float32)
            seating = assign(seating, *map(jnp.asarray, item), uniform)
            items.append(item)
        afresh = prior.begin(*prior.end(seating), with_sizes=True)
        for one, other in zip(jax.tree.leaves(seating), jax.tree.leaves(afresh), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)
        total = seating.hyperparameters["rest"] + jnp.sum(seating.hyperparameters["weights"])
        np.testing.assert_allclose(total, 1, rtol=1e-4)
    assert num_births > 8
    stale = seating._replace(pseudo=seating.pseudo[::-1])
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(stale.pseudo, seating.pseudo, rtol=1e-5)


def test_tokens_of_counts_stand_word_by_word():
    counts = np.array([[2, 0, 1], [0, 3, 1]])
    tokens = Tokens.from_counts(counts)
    np.testing.assert_array_equal(tokens.columns["word"], [0, 0, 1, 1, 1, 2, 2])
    np.testing.assert_array_equal(tokens.columns["document"], [0, 0, 1, 1, 1, 0, 1])


def test_tokens_of_many_documents_stand_block_by_block():
    rows = np.array([5000, 0, 9000, 1, 5001, 0])
    words = np.array([0, 1, 1, 0, 1, 0])
    counts = sparse.coo_array((np.ones(6, int), (rows, words)), shape=(9001, 2))
    tokens = Tokens.from_counts(counts)
    np.testing.assert_array_equal(tokens.columns["document"], [0, 1, 0, 5000, 5001, 9000])
    np.testing.assert_array_equal(tokens.columns["word"], [0, 0, 1, 0, 1, 1])
