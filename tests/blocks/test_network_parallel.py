"""Parallel sweeps: joint distributions, enumeration, tables of customers, eight devices."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf
from jaxmf._kernels import tables
from jaxmf.blocks import batches, in_kernel, parallel, starting, tile_layout
from jaxmf.blocks.elimination import Factor, choose_all, draw_all
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.subset import random_tokens, sweep_subset
from jaxmf.data import Tokens
from jaxmf.devices import BLOCK_SIZES, BlockSize
from jaxmf.engine import Info
from jaxmf.samplers import restaurants
from jaxmf.samplers.restaurants import count_tables_at_once
from jaxmf.testing import check_means
from tests import FAST_COMPILE
from tests.support.eight_devices import run_on_eight_devices
from tests.support.network_checks import (
    BASE,
    GAMMA,
    check_step,
    observed,
    posterior_of,
    whole_step,
    words,
)

CASES = {
    "topics": (
        {
            "topic": mf.Block(mf.Dirichlet(3, GAMMA), by="document"),
            "word": observed(mf.DirichletMultinomial(3, dist.Gamma(2.0, 2.0)), "topic"),
            "answer": observed(mf.BetaBinary(0.5, 1.0), ("item", "topic")),
        },
        (),
    ),
    "process": (
        {
            "group": mf.Block(mf.DirichletProcess(GAMMA)),
            "length": observed(mf.NormalInverseGamma(0.5, 0.3, 2.0, 1.0), "group"),
            "place": observed(mf.NormalInverseWishart(2, 0.5, 0.3, 4.0, 1.0), "group"),
            "times": observed(mf.GammaPoisson(2.0, 0.5), "group"),
        },
        (),
    ),
    "a process a document": (
        {
            "group": mf.Block(mf.PitmanYor(GAMMA, dist.Beta(2.0, 2.0)), by="document"),
            "word": words(("document", "group")),
        },
        (),
    ),
    "hierarchy": (
        {"topic": mf.Block(mf.HDP(GAMMA, GAMMA), by="document"), "word": words("topic")},
        (),
    ),
    "nested, together": (
        {
            "super": mf.Block(mf.HDP(GAMMA, GAMMA), by="document"),
            "sub": mf.Block(mf.HDP(GAMMA, GAMMA), by="super"),
            "word": words("sub"),
        },
        (("super", "sub"),),
    ),
    "two sides": (
        {
            "group": mf.Block(mf.HDP(GAMMA, GAMMA), by="document"),
            "kind": mf.Block(mf.Dirichlet(2, 0.7), by="item"),
            "word": words(("group", "kind")),
        },
        (),
    ),
    "a function, together": (
        {
            "group": mf.Block(mf.Dirichlet(3, 0.7), by="document"),
            "kind": mf.Block(mf.Dirichlet(2, 0.7), by="item"),
            "word": words(lambda kind, item, group: (kind + group + item) % 2),
        },
        (("group", "kind"),),
    ),
}


def check(title, blocks, joint, *, alone=False, sweep="parallel"):
    """The whole step; `alone`: the parallel sweeps, which keep the groups in use."""
    network = mf.Network(**blocks)
    sampler = network.sampler(sweep=sweep, joint=joint)
    named = {name for names in joint for name in names}
    sets = (*joint, *((name,) for name in network.indicators if name not in named))

    def sweeps(key, state, data):
        for index, names in enumerate(sets):
            step_key = jax.random.fold_in(key, index)
            state = parallel.sweep(network.at(data), names, step_key, state, data)
        return state, Info(overflow={})

    check_step(title, network, sweeps if alone else whole_step(sampler))


SLOW = ("process",)
TIERS = {"hierarchy": []} | {name: [pytest.mark.slow] for name in SLOW}


@pytest.mark.tiers(slow=["hierarchy"], exhaustive=["process"])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=TIERS.get(n, [pytest.mark.exhaustive])) for n in CASES]
)
def test_a_step_leaves_the_joint_distribution_as_it_is(name):
    check(name, *CASES[name])


BY_DOCUMENT = ("hierarchy", "topics", "nested, together", "two sides", "a function, together")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", BY_DOCUMENT)
def test_so_does_a_step_that_draws_proportions_as_on_accelerators(name, monkeypatch):
    for module in (batches, tables):
        monkeypatch.setattr(module, "default_platform", lambda: "gpu")
    for cells in ("token cells", "token sums"):  # several blocks of documents and of tokens
        monkeypatch.setitem(BLOCK_SIZES, cells, BlockSize(5, 5))
    check(name, *CASES[name])


IN_KERNEL = {
    "topics": {
        "topic": mf.Block(mf.Dirichlet(3, GAMMA), by="document"),
        "word": observed(mf.DirichletMultinomial(3, dist.Gamma(2.0, 2.0)), "topic"),
    },
    "hierarchy": CASES["hierarchy"][0],
    "paths": {
        "general": mf.Block(mf.Dirichlet(2, GAMMA), by="document"),
        "topic": mf.Block(mf.Dirichlet(2, GAMMA), by=("document", "general")),
        "word": observed(mf.DirichletMultinomial(3, dist.Gamma(2.0, 2.0)), "topic"),
    },
}


@pytest.mark.slow
@pytest.mark.tiers(exhaustive=["paths", "topics"])
@pytest.mark.parametrize("name", IN_KERNEL)
def test_and_one_that_draws_topics_by_the_kernel(name, monkeypatch):
    for module in (batches, in_kernel, tables, tile_layout):
        monkeypatch.setattr(module, "default_platform", lambda: "gpu")
    check("kernel", IN_KERNEL[name], (), sweep="partially_collapsed")


def free_to_go(holders, groups):
    """The naive sweep: every token may join every group in use, and leave its own."""
    return jnp.where(jnp.isfinite(holders.smallest[holders.batches]), 0.0, -jnp.inf)


@pytest.mark.exhaustive
def test_a_sweep_that_may_empty_groups_is_caught(monkeypatch):
    partition = {"group": mf.Block(mf.DirichletProcess(1.5)), "word": words("group")}
    check("held", partition, (), alone=True)
    monkeypatch.setattr(parallel, "_log_allowed", free_to_go)
    with pytest.raises(AssertionError, match="pairs of group"):
        check("naive", partition, (), alone=True)


# --- against enumeration --------------------------------------------------------------------------

FIVE = Tokens({"word": [0, 1, 1, 2, 0]}, {"word": 3})


def check_partitions(sweep_fn, distribution, *, num_chains=20_000):
    """Chains from the exact posterior of five tokens; after a few sweeps it must still be that."""
    network = mf.Network(group=mf.Block(distribution), word=words("group"))
    variables = {name: np.asarray(column) for name, column in FIVE.columns.items()}
    partitions, posterior = posterior_of(network, variables, "group", 5)
    chosen = np.random.default_rng(0).choice(len(partitions), size=num_chains, p=posterior)
    start = NetworkState(
        {}, {"group": distribution.start(5), "word": {"concentration": jnp.float32(0.5)}}, {}
    )
    start = start._replace(slots={"group": jnp.ones(5, bool)})
    network = network.at(FIVE)

    def run(key, labels):
        state = start._replace(values={"group": labels})
        state = jax.lax.fori_loop(
            0, 3, lambda i, groups: sweep_fn(network, jax.random.fold_in(key, i), groups), state
        )
        groups = state.values["group"]
        same = groups[:, None] == groups
        is_partition = jnp.all(same == (partitions[:, :, None] == partitions[:, None]), axis=(1, 2))
        return {
            "partition": is_partition.astype(float),
            "groups": jnp.sum(jnp.sum(1 / same.sum(1))),
        }

    keys = jax.random.split(jax.random.key(4), num_chains)
    labels = jnp.asarray(partitions[chosen], jnp.int32)
    found = jax.jit(jax.vmap(run), compiler_options=FAST_COMPILE)(keys, labels)
    exact = {"partition": posterior, "groups": np.sum(posterior * (partitions.max(1) + 1))}
    return check_means(found, exact, title="five tokens", max_standard_error=0.01)


def all_at_once(network, key, state):
    return parallel.sweep(network, ("group",), key, state, FIVE)


def with_a_few(network, key, state):
    """A step whose sequential part sees two of the five."""
    of_few, of_all = jax.random.split(key)
    few = random_tokens(of_few, 5, 2)
    state, _ = sweep_subset(network, ("group",), of_few, state, FIVE, few)
    return all_at_once(network, of_all, state)


@pytest.mark.slow
def test_a_parallel_sweep_against_enumeration():
    check_partitions(all_at_once, mf.PitmanYor(1.2, 0.4))


@pytest.mark.slow
def test_a_naive_parallel_sweep_is_caught_by_enumeration(monkeypatch):
    monkeypatch.setattr(parallel, "_log_allowed", free_to_go)
    with pytest.raises(AssertionError, match=r"groups .* expected"):
        check_partitions(all_at_once, mf.PitmanYor(1.2, 0.4))


@pytest.mark.exhaustive
def test_a_step_with_a_few_sequential_updates_against_enumeration():
    check_partitions(with_a_few, mf.DirichletProcess(1.2))


# --- pieces ---------------------------------------------------------------------------------------


def test_a_few_tokens_are_different_and_equally_likely():
    drawn = jax.vmap(lambda key: random_tokens(key, 11, 4))(jax.random.split(jax.random.key(0), 99))
    assert all(len(set(row)) == 4 for row in np.asarray(drawn).tolist())
    assert set(np.asarray(drawn).ravel().tolist()) == set(range(11))


def test_joint_draws_of_many_tokens():
    generator = np.random.default_rng(1)
    tables = {
        ("a",): generator.dirichlet(np.ones(3)),
        ("a", "b"): generator.dirichlet(np.ones(2), size=3),
        ("b", "c"): generator.dirichlet(np.ones(4), size=2),
        ("c",): np.array([0.2, 0.0, 3.0, 0.5]),
        ("a", "c"): generator.gamma(1.0, size=(3, 4)),
    }
    exact = np.einsum("a,ab,bc,c,ac->abc", *tables.values())
    factors = [Factor(names, jnp.log(jnp.asarray(table))[None]) for names, table in tables.items()]
    uniforms = jax.random.uniform(jax.random.key(2), (40_000, 3))
    draw = jax.jit(lambda table: draw_all("abc", factors, table))
    a, b, c = draw(uniforms)
    found = np.zeros((40_000, *exact.shape))
    found[np.arange(40_000), a, b, c] = 1
    check_means({"joint": found}, {"joint": exact / exact.sum()}, title="joint draws")


def test_places_without_weight_are_not_chosen():
    log_weights = jnp.log(jnp.asarray([[0.0, 1.0, 0.0, 1.0, 0.0]] * 4))
    uniforms = jnp.asarray([0.0, 0.4999999, 0.5, 1 - 2.0**-24])
    assert jax.jit(choose_all)(log_weights, uniforms).tolist() == [1, 1, 3, 3]


def test_tables_counted_at_once():
    counts = jnp.asarray([[4, 0, 1, 0], [2, 3, 0, 0]])
    pseudo = jnp.asarray([0.7, 2.0, 1e-30, 1.0])
    keys = jax.random.split(jax.random.key(3), 20_000)
    count = jax.vmap(lambda key: count_tables_at_once(key, counts, pseudo, num_items=10))
    found = jax.jit(count, compiler_options=FAST_COMPILE)(keys)

    def expected(group):
        pseudo_count = float(pseudo[group])
        return sum(
            pseudo_count / (pseudo_count + t) for n in counts[:, group].tolist() for t in range(n)
        )

    check_means({"tables": found}, {"tables": np.array([expected(k) for k in range(4)])})


@pytest.mark.slow
def test_tables_of_restaurants_without_a_flat_index_are_the_same(monkeypatch):
    generator = np.random.default_rng(0)
    counts = jnp.asarray(generator.integers(0, 4, (30, 7)) * (generator.random((30, 7)) < 0.5))
    num_customers, pseudo = int(counts.sum()) + 3, jnp.asarray(generator.gamma(1.0, size=7))
    index = jnp.arange(num_customers, dtype=jnp.int32)
    flat = restaurants._customers(counts, index)
    by_row = restaurants._customers_by_row(counts, index)
    for before, after in zip(flat, by_row, strict=True):
        np.testing.assert_array_equal(after[:-3], before[:-3])
    assert not np.any(by_row[1][-3:] < by_row[2][-3:])  # there are no further customers
    key, tables_of = jax.random.key(4), []
    for most, at_once in ((restaurants.tables.MOST_FLAT, 10_000), (10, 10_000), (10, 1)):
        monkeypatch.setattr(restaurants.tables, "MOST_FLAT", most)
        monkeypatch.setattr(restaurants, "_CUSTOMERS_AT_ONCE", at_once)
        tables_of.append(count_tables_at_once(key, counts, pseudo, num_items=num_customers))
    np.testing.assert_array_equal(tables_of[0], tables_of[1])
    np.testing.assert_array_equal(tables_of[0], tables_of[2])


@pytest.mark.slow
def test_customers_that_are_counted_a_few_at_a_time_are_the_same(monkeypatch):
    """Many for a small table, so that it takes several turns; with empty cells, and cells cut."""
    generator = np.random.default_rng(1)
    counts = jnp.asarray(generator.integers(0, 400, (5, 4)) * (generator.random((5, 4)) < 0.5))
    num_customers, pseudo = int(counts.sum()), jnp.asarray(generator.gamma(1.0, size=4))
    count = partial(count_tables_at_once, jax.random.key(5), counts, pseudo)
    at_once = count(num_items=num_customers)
    monkeypatch.setattr(restaurants, "_CUSTOMERS_AT_ONCE", 50)
    np.testing.assert_array_equal(count(num_items=num_customers), at_once)
    np.testing.assert_array_equal(count(num_items=num_customers + 99) > 0, at_once > 0)


@pytest.mark.parametrize("sweep", ["sequential", "parallel"])
@pytest.mark.parametrize("model", [mf.LDA(1_000), mf.HDPLDA()], ids=["lda", "hdp"])
def test_documents_times_topics_may_exceed_what_32_bits_can_index(model, sweep):
    # 8.2 million documents, as many as PubMed's, and 1,000 topics: traced, not run
    columns = {"document": np.arange(7) % 3, "word": np.arange(7) % 5}
    tokens = mf.Tokens(columns, {"document": 8_200_000, "word": 141_043})
    options = {"capacity": 512} if isinstance(model, mf.HDPLDA) else {}
    algorithm = model.sampler(sweep=sweep, keep="scalars", **options)
    state = jax.eval_shape(algorithm.init, jax.random.key(0), tokens)
    after, _ = jax.eval_shape(algorithm.step, jax.random.key(0), state, tokens, jnp.ones(()))
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, state)


@pytest.mark.slow
def test_a_sweep_in_blocks_of_tokens_is_the_same(monkeypatch):
    network = mf.Network(group=mf.Block(mf.DirichletProcess(1.0)), word=words("group")).at(FIVE)
    hyperparameters = {
        name: block.distribution.start(*([5] * (name == "group")))
        for name, block in network.blocks.items()
    }
    values, slots = jnp.asarray([0, 1, 1, 2, 0]), jnp.asarray([True] * 3 + [False] * 2)
    state = NetworkState({"group": values}, hyperparameters, {"group": slots})

    def both(key):
        once = parallel.sweep(network, ("group",), key, state, FIVE)
        monkeypatch.setitem(BLOCK_SIZES, "token cells", BlockSize(10, 10))
        return once, parallel.sweep(network, ("group",), key, state, FIVE)

    once, pieces = jax.jit(both, compiler_options=FAST_COMPILE)(jax.random.key(0))
    np.testing.assert_array_equal(once.values["group"], pieces.values["group"])


def test_a_sweep_that_is_none_is_refused():
    network = mf.Network(**CASES["hierarchy"][0])
    sweeps = "'auto', 'sequential', 'sparse', 'parallel', 'partially_collapsed'"
    with pytest.raises(ValueError, match=f"sweep must be one of {sweeps}, got 'x'"):
        network.sampler(sweep="x")


@pytest.mark.exhaustive
def test_a_chain_starts_from_a_few(monkeypatch):
    monkeypatch.setattr(starting, "_FIRST", 3)
    network = mf.Network(**CASES["nested, together"][0])
    sampler = network.sampler(sweep="parallel", joint=(("super", "sub"),), capacity=6)
    _, data = network.simulate(jax.random.key(0), BASE)
    start = jax.jit(sampler.init, compiler_options=FAST_COMPILE)(jax.random.key(1), data)
    for name in ("super", "sub"):
        in_use = np.isin(np.arange(6), start.values[name])
        np.testing.assert_array_equal(start.slots[name], in_use)
        weights = start.hyperparameters[name]["weights"]
        np.testing.assert_array_equal(weights > 0, in_use)
        np.testing.assert_allclose(
            jnp.sum(weights) + start.hyperparameters[name]["rest"], 1, rtol=1e-5
        )


@pytest.mark.exhaustive
def test_slots_grow():
    network = mf.Network(**CASES["hierarchy"][0])
    _, data = network.simulate(jax.random.key(0), BASE)
    post = mf.sample(
        network, data, sweep="parallel", capacity=1, num_warmup=5, num_samples=20, num_chains=1
    )
    assert np.max(post.draws["num_topic"]) > 1


@pytest.mark.slow
def test_two_hierarchies_drawn_together_keep_their_groups():
    # "super" comes before "sub" in the network and after it in the alphabet
    network = mf.Network(**CASES["nested, together"][0])
    columns = {"document": [0, 0, 0, 1, 1, 1], "word": [0, 1, 2, 0, 1, 2]}
    data = Tokens(columns, {"document": 2, "word": 3})
    labels = {"super": jnp.asarray([0, 0, 1, 1, 0, 1]), "sub": jnp.asarray([0, 1, 2, 0, 1, 2])}
    start = NetworkState(labels, {"word": network.blocks["word"].distribution.start()}, {})
    for name, size in {"super": 2, "sub": 3}.items():
        in_use = start.slots[name] = jnp.arange(4) < size
        weights = {"weights": jnp.where(in_use, 0.25, 0), "rest": jnp.float32(1 - 0.25 * size)}
        start.hyperparameters[name] = network.blocks[name].distribution.start(4) | weights
    sized = network.at(data)

    def sweep(key):
        return parallel.sweep(sized, ("super", "sub"), key, start, data).values

    keys = jax.random.split(jax.random.key(1), 20)
    after = jax.jit(jax.vmap(sweep), compiler_options=FAST_COMPILE)(keys)
    for name, size in {"super": 2, "sub": 3}.items():
        used = [np.unique(chain).tolist() for chain in np.asarray(after[name])]
        assert used == [[*range(size)]] * 20, name


@pytest.mark.slow
def test_a_start_of_words_that_the_first_few_tokens_do_not_have(monkeypatch):
    # the probabilities of such a word are too small for floats in all topics
    monkeypatch.setattr(starting, "_FIRST", 20)
    generator = np.random.default_rng(0)
    columns = {"document": generator.integers(9, size=200), "word": np.arange(200)}
    data = Tokens(columns, {"document": 9, "word": 200})
    sampler = mf.PAM((2, 3), word_concentration=0.01).sampler(sweep="parallel")
    start = jax.jit(sampler.init, compiler_options=FAST_COMPILE)(jax.random.key(1), data)
    for name, size in {"level_1": 2, "level_2": 3}.items():
        assert np.unique(start.values[name]).tolist() == [*range(size)]


SETUP = """
import jax, numpy as np
import jaxmf as mf
from jax.sharding import Mesh
from jaxmf._kernels import tables
from jaxmf.blocks import at_once, batches, parallel
from jaxmf.data import Tokens

assert jax.device_count() == 8
at_once.block_size = parallel.block_size = lambda kind: 1_000  # several blocks
generator = np.random.default_rng(0)
columns = {"document": generator.integers(7, size=1_001), "word": generator.integers(9, size=1_001)}
data = Tokens(columns, {"document": 7, "word": 9})
network = mf.Network(
    topic=mf.Block(mf.HDP(1.0, 1.0), by="document"),
    word=mf.Block(mf.DirichletMultinomial(9, 0.1), by="topic", observed=True),
)
"""
SWEEP = """
groups = mf.Network(
    topic=mf.Block(mf.DirichletProcess(1.0)),
    word=mf.Block(mf.DirichletMultinomial(9, 0.1), by="topic", observed=True),
)
parallel.block_size = lambda kind: 20_000
at_once.block_size = lambda kind: {"token cells": 48, "token sums": 90}[kind]
mesh = Mesh(np.array(jax.devices()), ("data",))
for declared, platform in ((network, "cpu"), (network, "gpu"), (groups, "cpu")):
    batches.default_platform = tables.default_platform = lambda: platform
    state, tokens = declared.simulate(jax.random.key(0), data, capacity=16)
    sized = declared.at(tokens)
    arguments = (jax.random.key(1), state, tokens)

    def compiled():
        sweep = jax.jit(lambda *own: parallel.sweep(sized, ("topic",), *own).values["topic"])
        return sweep.lower(*arguments).compile()

    single = compiled()
    whole, work = np.asarray(single(*arguments)), single.cost_analysis()["flops"]
    with jax.set_mesh(mesh):
        everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        arguments = jax.device_put(arguments, everywhere)
        spread = compiled()
        # shares of batches are added up: tokens that two devices drew would be too large
        np.testing.assert_array_equal(np.asarray(spread(*arguments)), whole)
share = spread.cost_analysis()["flops"] / work
assert share < 0.4, share
print("agrees")
"""
RUN = """
settings = dict(num_warmup=1, num_samples=2, sweep="parallel", keep="assignments", seed=1)
single = mf.sample(network, data, num_chains=2, chain_method="vectorized", **settings)
mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("chain", "data"))
spread = mf.sample(network, data, num_chains=2, mesh=mesh, **settings)
np.testing.assert_array_equal(spread.draws["topic_of_tokens"], single.draws["topic_of_tokens"])
np.testing.assert_allclose(spread.draws["log_joint"], single.draws["log_joint"], rtol=1e-5)
print("agrees")
"""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(SWEEP, id="sweep", marks=pytest.mark.slow),
        pytest.param(RUN, id="run", marks=pytest.mark.exhaustive),
    ],
)
def test_tokens_spread_over_eight_devices_give_the_draws_of_one(program):
    assert run_on_eight_devices(SETUP + program) == ["agrees"]
