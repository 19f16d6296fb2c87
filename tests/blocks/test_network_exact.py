"""Sweeps of tiny networks against brute force: all states listed, all conditionals compared.

The posterior comes from `network_oracles`, with the parameters integrated out by other formulas.
Every conditional of every token in every state must be the posterior's, so that the transition
matrix of a sweep leaves it as it is, to 1e-10.
"""

import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf
from jaxmf._kernels import tables
from jaxmf.blocks import batches, elimination, sequential, set_turns
from jaxmf.blocks.counts import all_values
from jaxmf.blocks.roles import look_up_of, roles_of, statistics_of_roles
from jaxmf.blocks.state import NetworkState
from jaxmf.data import Tokens
from jaxmf.testing import check_means
from tests import FAST_COMPILE
from tests.support import network_oracles as oracles

TOLERANCE = 1e-10
NUM_TOKENS, NUM_SLOTS = 4, 5
FEWER = {"path of three levels": 3}  # tokens of cases with more states
COLUMNS = {
    "document": [0, 0, 1, 1],
    "item": [0, 1, 1, 0],
    "word": [0, 1, 1, 2],
    "answer": [1, 0, 1, 1],
    "length": [0.25, 1.5, 1.0, -2.0],
    "place": [[0.25, 0.0], [1.5, 2.0], [1.0, 1.0], [-2.0, 0.5]],
    "times": [0, 5, 3, 1],
    "gaps": [[0.25, 0.0], [np.nan, 2.0], [1.0, np.nan], [np.nan, np.nan]],
    "kinds": [[0.0, 2.0], [1.0, np.nan], [np.nan, 2.0], [1.0, 0.0]],
    "counted": [np.nan, 5.0, 3.0, np.nan],
    "mixed": [[0.25, 2, np.nan, 1], [np.nan, 1, 1.5, 5], [1.0, np.nan, 0.0, 3], [-2, 0, 1, np.nan]],
}


def block(distribution, by):
    return mf.Block(distribution, by=by, observed=True)


def words(by):
    return block(mf.DirichletMultinomial(3, [0.3, 0.9, 0.5]), by)


def path(by="sub"):
    return {
        "super": mf.Block(mf.Dirichlet(2, 0.5), by="document"),
        "sub": mf.Block(mf.Dirichlet(2, [0.4, 0.9]), by=("document", "super")),
        "word": words(by),
    }


PACHINKO = mf.PAM((2, 2), level_concentration=(0.5, [0.4, 0.9])).network().blocks
DEEP = mf.PAM((2, 2, 2), level_concentration=(0.5, [0.4, 0.9], [1.1, 0.3]))
THREE_LEVELS = DEEP.network().blocks | {"word": words("level_3")}


def both(prior, by=("group", "kind")):
    return {
        "group": mf.Block(prior, by="document"),
        "kind": mf.Block(prior, by="item"),
        "word": words(by),
    }


TOPIC = {"topic": mf.Block(mf.Dirichlet(3, 0.6), by="document")}
ASYMMETRIC = {"topic": mf.Block(mf.Dirichlet(2, [0.3, 1.1]), by="document")}
LENGTH = mf.NormalInverseGamma(0.5, 0.3, 2.0, 1.0)
IN_UNITS = mf.IndependentColumns(LENGTH, 2, location=[0.25, -0.5], scale=[0.5, 2.0])
CASES = {
    "missing cells": (
        {"group": mf.Block(mf.PitmanYor(0.8, 0.4)), "gaps": block(IN_UNITS, "group")},
        (),
    ),
    "missing cells of several blocks": (
        {
            "group": mf.Block(mf.Dirichlet(3, 0.7)),
            "kinds": block(
                mf.IndependentColumns(mf.DirichletMultinomial(3, [0.3, 0.9, 0.5]), 2), "group"
            ),
            "counted": block(
                mf.IndependentColumns(mf.GammaPoisson(1.5, 0.5)), lambda group: (group + 1) // 2
            ),
        },
        (),
    ),
    "missing cells of several kinds": (
        {
            "group": mf.Block(mf.DirichletProcess(0.8)),
            "mixed": block(
                mf.MixedColumns(
                    [LENGTH, mf.DirichletMultinomial(3, 0.5), LENGTH, mf.GammaPoisson(1.5, 0.5)]
                ),
                "group",
            ),
        },
        (),
    ),
    "topics": ({**TOPIC, "word": words("topic")}, ()),
    "asymmetric": ({**ASYMMETRIC, "answer": block(mf.BetaBinary(0.4, 1.2), "topic")}, ()),
    "process": (
        {"group": mf.Block(mf.DirichletProcess(0.8)), "length": block(LENGTH, "group")},
        (),
    ),
    "pitman-yor": (
        {
            "group": mf.Block(mf.PitmanYor(0.8, 0.4)),
            "place": block(mf.NormalInverseWishart(2, 0.2, 0.3, 4.5, 0.7), "group"),
        },
        (),
    ),
    "a process a document": (
        {
            "group": mf.Block(mf.DirichletProcess(0.8), by="document"),
            "word": words(("group", "document")),
        },
        (),
    ),
    "a function of an indicator": (
        {
            "group": mf.Block(mf.Dirichlet(3, 0.7)),
            "times": block(mf.GammaPoisson(1.5, 0.5), lambda group: (group + 1) // 2),
        },
        (),
    ),
    "path, one by one": (path(), ()),
    "path, together": (PACHINKO | {"word": words("level_2")}, (("level_1", "level_2"),)),
    "path of three levels": (THREE_LEVELS, DEEP.joint),
    "path to both": (path(("super", "sub")), (("super", "sub"),)),
    "two sides": (both(mf.Dirichlet(2, 0.7)), ()),
    "two sides, together": (both(mf.Dirichlet(2, 0.7)), (("group", "kind"),)),
    "two sides, a function": (
        both(mf.Dirichlet(2, 0.7), lambda kind, item, group: (kind + group + item) % 2),
        (("kind", "group"),),
    ),
    "two processes": (both(mf.DirichletProcess(1.1), ("document", "group", "kind", "item")), ()),
    "several children": (
        {
            **ASYMMETRIC,
            "word": words("topic"),
            "length": block(LENGTH, ("topic", "word")),
            "times": block(mf.GammaPoisson(1.5, 0.5), "topic"),
        },
        (),
    ),
    "the middle alone": (
        {
            "first": mf.Block(mf.Dirichlet(2, 0.5)),
            "second": mf.Block(mf.Dirichlet(2, 0.9), by="first"),
            "third": mf.Block(mf.Dirichlet(2, 0.6), by=("second", "document")),
            "word": words(("third", "first")),
        },
        (("third", "first"),),
    ),
}


class Problem(NamedTuple):
    """A network with all its states."""

    network: Any
    data: Any
    states: dict[str, np.ndarray]  # indicator -> (C, T)
    log_posterior: np.ndarray  # (C,), not normalised

    @property
    def keys(self):
        """State -> its index."""
        together = np.stack(list(self.states.values()), axis=1)
        return {labels.tobytes(): index for index, labels in enumerate(together)}


def tokens(network, num_tokens=NUM_TOKENS):
    """The columns that the network names, and no others."""
    named = dict.fromkeys(("document", *network.columns))
    named_columns = {name: np.asarray(COLUMNS[name][:num_tokens]) for name in named}
    columns = {n: c for n, c in named_columns.items() if c.dtype.kind == "i" and n != "times"}
    sizes = {name: 3 if name == "word" else 2 for name in columns}
    return Tokens(columns, sizes, {n: c for n, c in named_columns.items() if n not in columns})


def in_order(block, labels):
    """Labels in the order in which groups appear, within batches where these have their own."""
    if not block.distribution.grows:
        return labels
    batches = [()] * len(labels)
    if not block.distribution.labels_shared:
        batches = oracles.parts_of(block, COLUMNS, len(labels))
    known: dict = {}
    for batch, label in zip(batches, labels, strict=True):
        order = known.setdefault(batch, {})
        order.setdefault(label, len(order))
    return [known[batch][label] for batch, label in zip(batches, labels, strict=True)]


def all_labels(block, num_tokens):
    size = num_tokens if block.distribution.grows else block.distribution.num_groups(1)
    listed = itertools.product(range(size), repeat=num_tokens)
    return [labels for labels in listed if list(in_order(block, labels)) == list(labels)]


@functools.cache
def problem(name):
    network, num_tokens = mf.Network(**CASES[name][0]), FEWER.get(name, NUM_TOKENS)
    lists = [all_labels(network.blocks[one], num_tokens) for one in network.indicators]
    listed = np.array(list(itertools.product(*lists)))
    states = {n: listed[:, index] for index, n in enumerate(network.indicators)}
    variables = {n: COLUMNS[n][:num_tokens] for n in network.columns}
    log_posterior = np.array(
        [
            oracles.log_joint(network, variables | {n: labels[c] for n, labels in states.items()})
            for c in range(len(listed))
        ]
    )
    return Problem(network, tokens(network, num_tokens), states, log_posterior)


def all_states(problem):
    """As states of the library, with the chains first."""
    network = problem.network
    slots = {
        name: jnp.ones((len(problem.log_posterior), NUM_SLOTS), bool)
        for name in network.indicators
        if network.blocks[name].distribution.grows
    }
    hyperparameters = {
        name: network.blocks[name].distribution.start(
            *(() if name in network.observed else (NUM_SLOTS,))
        )
        for name in network.order
    }
    values = {name: jnp.asarray(labels, jnp.int32) for name, labels in problem.states.items()}
    return NetworkState(values, hyperparameters, slots)


AXES = NetworkState(0, None, 0)


def conditionals(network, names, states, data, *, axes=AXES, removes=True):
    """The sweep's own weights: for each token the values of the indicators, (C, K, ...)."""

    def of_state(state):
        widths = sequential._widths(network, names, state)
        roles = roles_of(network, names, network.sizes(data, widths))
        values = all_values(state, data)
        before = statistics_of_roles(roles, values, widths)
        hyperparameters = state.hyperparameters
        cache = {
            r.name: sequential._begin(r, before[r.name], hyperparameters[r.name]) for r in roles
        }
        look_up = look_up_of(roles)
        compiled = sequential._Compiled(names, (), (), roles, False)

        def of_token(token):
            token_values = {name: column[token] for name, column in values.items()}
            without = compiled.moved(cache, token_values, look_up, None) if removes else cache
            factors, _ = sequential._factors(roles, without, token_values, look_up)
            product = elimination._product(names, factors)
            assert product.names == names
            return product.values

        return jax.vmap(of_token)(jnp.arange(data.num_tokens))

    together = jax.jit(jax.vmap(of_state, in_axes=(axes,)), compiler_options=FAST_COMPILE)
    return np.moveaxis(np.asarray(together(states), np.float64), 1, 0)


def transitions(problem, names, weights, token):
    """The transition matrix (C, C) of drawing the indicators of one token."""
    keys, num_states = problem.keys, len(problem.log_posterior)
    matrix = np.zeros((num_states, num_states))
    blocks = problem.network.blocks
    for start in range(num_states):
        chances = weights[start] / weights[start].sum()
        for drawn in zip(*np.nonzero(chances), strict=True):
            after = {name: labels[start].copy() for name, labels in problem.states.items()}
            for name, value in zip(names, drawn, strict=True):
                after[name][token] = value
            together = np.array([in_order(blocks[name], labels) for name, labels in after.items()])
            matrix[start, keys[together.tobytes()]] += chances[drawn]
    return matrix


def exact_transitions(problem, names, token):
    """The same from the posterior: among the states that differ in this token alone."""
    posterior = np.exp(problem.log_posterior - problem.log_posterior.max())
    blocks, classes = problem.network.blocks, {}
    for index in range(len(posterior)):
        others = []
        for name, labelings in problem.states.items():
            labels = labelings[index].tolist()
            if name in names:
                labels[token] = -1  # a group of its own
            others.append(tuple(in_order(blocks[name], labels)))
        classes.setdefault(tuple(others), []).append(index)
    matrix = np.zeros((len(posterior), len(posterior)))
    for members in classes.values():
        matrix[np.ix_(members, members)] = posterior[members] / posterior[members].sum()
    return matrix


def assert_exact(problem, joint, *, removes=True, swept=None, tolerance=TOLERANCE):
    """All conditionals of a sweep, and the sweep as a whole; `swept` is what the sweep sees."""
    with jax.enable_x64(True):
        states, network = all_states(problem), problem.network
        swept = swept or network
        together = {name for chosen in joint for name in chosen}
        alone = [(name,) for name in network.indicators if name not in together]
        posterior = np.exp(problem.log_posterior - problem.log_posterior.max())
        posterior /= posterior.sum()
        after = posterior
        for names in (*alone, *joint):
            names = tuple(sorted(names, key=network.order.index))
            weights = conditionals(swept, names, states, problem.data, removes=removes)
            for token, table in enumerate(weights):
                matrix = transitions(problem, names, table, token)
                expected = exact_transitions(problem, names, token)
                np.testing.assert_allclose(matrix, expected, rtol=0, atol=tolerance)
                after = after @ matrix
        np.testing.assert_allclose(after, posterior, rtol=0, atol=tolerance)


@pytest.mark.tiers(
    slow=[
        "a function of an indicator",
        "a process a document",
        "missing cells of several kinds",
        "pitman-yor",
        "two sides, together",
    ],
    exhaustive=[
        "asymmetric",
        "missing cells of several blocks",
        "path to both",
        "path, one by one",
        "several children",
        "the middle alone",
        "two processes",
        "two sides",
    ],
)
@pytest.mark.parametrize("name", CASES)
def test_every_conditional_is_the_posteriors(name):
    case = problem(name)
    assert_exact(case, CASES[name][1])
    with jax.enable_x64(True):
        density = jax.vmap(lambda state: case.network.log_joint(state, case.data), in_axes=(AXES,))
        found = jax.jit(density, compiler_options=FAST_COMPILE)(all_states(case))
        np.testing.assert_allclose(found, case.log_posterior, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["topics"])
def test_a_token_that_is_not_taken_out_first_is_caught(name):
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_exact(problem(name), CASES[name][1], removes=False)


def over_the_first_level(blocks):
    """A plausible fault: the third level hangs on the first, not on the one before it."""
    wrong = mf.Block(blocks["level_3"].distribution, by=("document", "level_1"))
    return mf.Network(**blocks | {"level_3": wrong})


def test_a_third_level_over_the_wrong_one_is_caught():
    case, wrong = problem("path of three levels"), over_the_first_level(THREE_LEVELS)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_exact(case, DEEP.joint, swept=wrong)


def check_chains(sweep, network):
    """Chains from the exact posterior of three levels; after two steps it must still be that."""
    case, num_chains = problem("path of three levels"), 20_000
    posterior = np.exp(case.log_posterior - case.log_posterior.max())
    posterior /= posterior.sum()
    chosen = np.random.default_rng(0).choice(len(posterior), size=num_chains, p=posterior)
    sampler, states = network.sampler(sweep=sweep, joint=DEEP.joint), all_states(case)

    def run(key, start):
        def step(index, state):
            return sampler.step(jax.random.fold_in(key, index), state, case.data, jnp.ones(()))[0]

        state = states._replace(values={n: labels[start] for n, labels in states.values.items()})
        return pairs_of_paths(jax.lax.fori_loop(0, 2, step, state).values, jnp)

    keys = jax.random.split(jax.random.key(6), num_chains)
    found = jax.jit(jax.vmap(run), compiler_options=FAST_COMPILE)(keys, jnp.asarray(chosen))
    exact = np.tensordot(posterior, pairs_of_paths(case.states, np), 1)
    check_means({"paths": found}, {"paths": exact}, title=sweep, max_standard_error=0.01)


def pairs_of_paths(values, numpy):
    """Which path each pair of three tokens has, together: (..., 3, 64), of labels (..., 3)."""
    paths = 4 * values["level_1"] + 2 * values["level_2"] + values["level_3"]
    pairs = 8 * paths + numpy.roll(paths, 1, axis=-1)
    return (pairs[..., None] == numpy.arange(64)).astype(float)


@pytest.mark.tiers(exhaustive=["parallel-gpu", "sequential-cpu"])
@pytest.mark.slow
@pytest.mark.parametrize(
    ("sweep", "platform"), [("sequential", "cpu"), ("parallel", "cpu"), ("parallel", "gpu")]
)
def test_every_sweep_of_three_levels_against_enumeration(sweep, platform, monkeypatch):
    for module in (batches, set_turns, tables):
        monkeypatch.setattr(module, "default_platform", lambda: platform)
    check_chains(sweep, mf.Network(**THREE_LEVELS))
    with pytest.raises(AssertionError, match="paths"):
        check_chains(sweep, over_the_first_level(THREE_LEVELS))


def assert_no_underflow(blocks, labels, data):
    """The weights in float32 are those in float64, up to a factor."""
    network, found = mf.Network(**blocks), {}
    for wide in (True, False):
        with jax.enable_x64(wide):
            slots = {name: [NUM_SLOTS] for name in network.indicators}
            hyperparameters = {
                n: b.distribution.start(*slots.get(n, ())) for n, b in network.blocks.items()
            }
            values = {name: jnp.asarray([label], jnp.int32) for name, label in labels.items()}
            state = NetworkState(values, hyperparameters, {})
            weights = conditionals(network, network.indicators, state, Tokens(*data))[:, 0]
            weights = weights.reshape(len(weights), -1)
            found[wide] = weights / weights.sum(1, keepdims=True)
    np.testing.assert_allclose(found[False], found[True], atol=1e-3)


@pytest.mark.slow
def test_many_children_do_not_underflow():
    """Eight words of probability 1e-5 each, together 1e-40."""
    names = [f"word_{index}" for index in range(8)]
    blocks = {"group": mf.Block(mf.Dirichlet(2, 1.0))}
    blocks |= {name: block(mf.DirichletMultinomial(1_000_000, 1.0), "group") for name in names}
    columns = dict.fromkeys(names, np.array([0, 1, 0, 1]))
    data = (columns, dict.fromkeys(names, 1_000_000))
    assert_no_underflow(blocks, {"group": [0, 0, 1, 1]}, data)


@pytest.mark.slow
def test_far_away_values_of_several_blocks_do_not_underflow():
    """Each block alone would have the first token elsewhere, by more than a float can hold."""
    distribution = mf.NormalInverseGamma(0.0, 0.01, 40.0, 0.4)
    blocks = {
        "first": mf.Block(mf.Dirichlet(2, 1.0)),
        "second": mf.Block(mf.Dirichlet(2, 1.0)),
        "length": block(distribution, "first"),
        "width": block(distribution, ("first", "second")),
    }
    values = {"length": [9.0, 9.0, 9.0, -9.0, -9.0], "width": [-9.0, 9.0, 9.0, -9.0, -9.0]}
    labels = {"first": [1, 1, 1, 0, 0], "second": [0, 0, 1, 0, 0]}
    assert_no_underflow(blocks, labels, ({"document": [0] * 5}, {"document": 1}, values))


# --- the hierarchical Dirichlet process -----------------------------------------------------------


HIERARCHIES = {
    "topics": {"topic": mf.Block(mf.HDP(1.2, 0.7), by="document"), "word": words("topic")},
    "two sides": both(mf.HDP(1.2, 0.7)),
    "nested": {
        "super": mf.Block(mf.HDP(1.2, 0.7), by="document"),
        "sub": mf.Block(mf.HDP(0.6, 1.5), by="super"),
        "word": words("sub"),
    },
}
DRAWN = {
    "topics": [("topic",)],
    "two sides": [("group",), ("kind",), ("group", "kind")],
    "nested": [("super",), ("sub",), ("super", "sub")],
}
EVERY = NetworkState(0, 0, 0)


def some_states(network, num_states=10):
    """States with groups in any slots and any weights: a list, and all of them as one."""
    generator, listed = np.random.default_rng(0), []
    for _ in range(num_states):
        values, hyperparameters, slots = {}, {}, {}
        for name in network.order:
            distribution = network.blocks[name].distribution
            if name in network.observed:
                hyperparameters[name] = distribution.start()
                continue
            values[name] = generator.integers(NUM_SLOTS - 1, size=NUM_TOKENS).astype(np.int32)
            slots[name] = np.isin(np.arange(NUM_SLOTS), values[name])
            weights = generator.dirichlet(np.ones(NUM_SLOTS + 1)) * np.append(slots[name], True)
            weights /= weights.sum()
            hyperparameters[name] = distribution.start(NUM_SLOTS) | {
                "weights": weights[:-1],
                "rest": weights[-1],
            }
        listed.append(NetworkState(values, hyperparameters, slots))
    return listed


def stacked(states):
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *states)


def candidates(network, names, state, token, share=0.3):
    """The states that differ in one token: values, and the log density of new weights."""
    chosen = []
    for name in names:
        labels, hyperparameters = state.values[name], state.hyperparameters[name]
        others = np.delete(labels, token)
        weights, rest = np.array(hyperparameters["weights"]), float(hyperparameters["rest"])
        if labels[token] not in others:
            rest += weights[labels[token]]
            weights[labels[token]] = 0
        new = min(set(range(NUM_SLOTS)) - set(others.tolist()))
        options = [(value, weights, rest, 0.0) for value in sorted(set(others.tolist()))]
        gamma = float(network.blocks[name].distribution.base_concentration)
        with_new = weights.copy()
        with_new[new] = share * rest
        density = np.log(gamma) + (gamma - 1) * np.log(1 - share) - np.log(rest)
        chosen.append([*options, (new, with_new, rest * (1 - share), density)])
    for combination in itertools.product(*chosen):
        values, hyperparameters = dict(state.values), dict(state.hyperparameters)
        for name, (value, weights, rest, _) in zip(names, combination, strict=True):
            values[name] = np.where(np.arange(NUM_TOKENS) == token, value, values[name])
            hyperparameters[name] = hyperparameters[name] | {"weights": weights, "rest": rest}
        cell = tuple(value for value, *_ in combination)
        yield (
            cell,
            NetworkState(values, hyperparameters, state.slots),
            sum(one[-1] for one in combination),
        )


def assert_in_proportion(network, names):
    """Weights of a token's values as the joint density with the weights of groups in the state."""
    data, token = tokens(network), 1
    with jax.enable_x64(True):
        states = some_states(network)
        weights = conditionals(network, names, stacked(states), data, axes=EVERY)[token]
        listed = [list(candidates(network, names, state, token)) for state in states]
        density = jax.vmap(lambda state: network.log_joint(state, data))
        together = stacked([table for of_state in listed for _, table, _ in of_state])
        found = iter(np.asarray(jax.jit(density, compiler_options=FAST_COMPILE)(together)))
    for table, of_state in zip(weights, listed, strict=True):
        constants = [
            next(found) - new_density - np.log(table[cell]) for cell, _, new_density in of_state
        ]
        np.testing.assert_allclose(constants, constants[0], rtol=0, atol=TOLERANCE)
        assert np.count_nonzero(table) == len(of_state)


@pytest.mark.tiers(exhaustive=["topics"])
@pytest.mark.slow
@pytest.mark.parametrize("name", HIERARCHIES)
def test_conditionals_of_a_hierarchy_are_in_proportion_to_the_joint_density(name):
    network = mf.Network(**HIERARCHIES[name])
    for names in DRAWN[name]:
        assert_in_proportion(network, names)


def test_a_hierarchy_that_keeps_the_weight_of_an_emptied_group_is_caught():
    class Forgetful(mf.HDP):
        def unassign(self, seating, batch, group):
            left = super().unassign(seating, batch, group)
            return left._replace(hyperparameters=seating.hyperparameters, pseudo=seating.pseudo)

    blocks = HIERARCHIES["topics"] | {"topic": mf.Block(Forgetful(1.2, 0.7), by="document")}
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_in_proportion(mf.Network(**blocks), ("topic",))
