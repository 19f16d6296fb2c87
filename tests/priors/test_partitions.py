"""Priors of partitions: chain rule in any order, sums over all, extreme concentrations."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf
from jaxmf.blocks.hyperparameters import shared_weights
from jaxmf.priors.partition_prior import CountCache
from jaxmf.priors.partitions import (
    log_dirichlet_multinomial,
    log_exchangeable,
    log_falling,
    log_of_settings,
)
from jaxmf.testing import check_chain_rule, enumerate_partitions
from tests import FAST_COMPILE
from tests.extension.priors import Gnedin
from tests.support import network_oracles as oracles

BATCHES = np.array([0, 0, 2, 0, 1, 2, 2, 0, 1])  # batch 3 is empty
NUM_BATCHES, NUM_SLOTS = 4, 6
PRIORS = {
    "dirichlet": mf.Dirichlet(NUM_SLOTS, 0.7),
    "asymmetric": mf.Dirichlet(NUM_SLOTS, np.arange(1.0, NUM_SLOTS + 1) / 4),
    "process": mf.DirichletProcess(1.3),
    "pitman-yor": mf.PitmanYor(1.3, 0.4),
    "without discount": mf.PitmanYor(1.3, 0.0),
    "hdp": mf.HDP(1.3, 0.8),
}


def one_by_one(prior):
    """A compiled function that seats items one after the other: log probabilities, last seating."""

    def run(batches, groups, uniforms):
        start = prior.begin(
            jnp.zeros((NUM_BATCHES, NUM_SLOTS), jnp.int32), prior.start(NUM_SLOTS), with_sizes=False
        )

        def assign(seating, item):
            batch, group, uniform = item
            weights, room = prior.weights(seating, batch)
            before = seating.hyperparameters
            log_prob = jnp.log(weights[group] / jnp.sum(weights))
            seating = prior.assign(seating, batch, group, uniform)
            after = seating.hyperparameters
            if isinstance(prior, mf.HDP):
                # the density of a new weight, Beta(1, gamma) of the rest
                gamma, kept = before["base_concentration"], after["rest"] / before["rest"]
                density = jnp.log(gamma) + (gamma - 1) * jnp.log(kept) - jnp.log(before["rest"])
                log_prob += jnp.where(kept < 1, density, 0)
            return seating, (log_prob, room)

        seating, (log_probs, room) = jax.lax.scan(assign, start, (batches, groups, uniforms))
        counts, hyperparameters = prior.end(seating)
        return (
            jnp.sum(log_probs),
            prior.log_prob(counts, hyperparameters),
            counts,
            hyperparameters,
            room,
        )

    return jax.jit(run, compiler_options=FAST_COMPILE)


def lowest_free(prior, batches, groups):
    """The labels that items get which come in this order: the lowest free one for a new group."""
    if isinstance(prior, mf.Dirichlet):
        return groups
    labels, known = [], {}
    for batch, group in zip(batches, groups, strict=True):
        slots = known.setdefault(0 if prior.labels_shared else batch, {})
        labels.append(slots.setdefault(group, len(slots)))
    return np.array(labels)


@pytest.mark.parametrize("name", PRIORS)
def test_the_density_is_the_product_of_predictions_in_any_order(name):
    prior, generator = PRIORS[name], np.random.default_rng(0)
    groups = generator.integers(NUM_SLOTS - 1, size=len(BATCHES))
    weights = generator.dirichlet(np.ones(NUM_SLOTS))  # of groups; the last is the rest
    found = set()
    with jax.enable_x64(True):
        run = one_by_one(prior)
        for _ in range(3):
            order = generator.permutation(len(BATCHES))
            labels = lowest_free(prior, BATCHES[order], groups[order])
            uniforms, rest, seen = np.zeros(len(BATCHES)), 1.0, set()
            if isinstance(prior, mf.HDP):  # so that the weights come out the same
                for index, group in enumerate(groups[order]):
                    if group not in seen:
                        seen.add(group)
                        share = weights[group] / rest
                        uniforms[index] = 1 - (1 - share) ** float(prior.base_concentration)
                        rest -= weights[group]
            product, density, counts, hyperparameters, room = run(BATCHES[order], labels, uniforms)
            assert np.all(room)
            np.testing.assert_allclose(product, density, rtol=1e-12)
            found.add(round(float(density), 10))
            if isinstance(prior, mf.HDP):
                in_use = counts.sum(0) > 0
                order_in = list(dict.fromkeys(groups[order]))
                np.testing.assert_allclose(hyperparameters["weights"][in_use], weights[order_in])
                np.testing.assert_allclose(
                    hyperparameters["weights"].sum() + hyperparameters["rest"], 1
                )
            else:
                expected = oracles.log_of_partition(prior, BATCHES.tolist(), groups.tolist())
                np.testing.assert_allclose(density, expected, rtol=1e-12)
    assert len(found) == 1  # exchangeable


@pytest.mark.parametrize("name", [name for name in PRIORS if name != "hdp"])
def test_the_chain_rule_by_the_public_check(name):
    with jax.enable_x64(True):
        check_chain_rule(PRIORS[name])


def test_a_prior_of_another_package_keeps_the_chain_rule():
    check_chain_rule(Gnedin(0.3))


def test_a_weight_of_another_prior_breaks_the_chain_rule():
    class Forgetful(mf.PitmanYor):
        """A new group without the d K of the others."""

        def weights(self, seating, batch):
            weights, room = super().weights(seating, batch)
            free = seating.counts[batch] == 0
            return jnp.where(
                free & (weights > 0), seating.hyperparameters["concentration"], weights
            ), room

    with pytest.raises(AssertionError, match="chain rule of Forgetful"):
        check_chain_rule(Forgetful(1.3, 0.4))


def test_priors_without_a_chain_rule_of_weights_are_refused():
    with pytest.raises(TypeError, match="hyperparameters of HDP change as items join"):
        check_chain_rule(mf.HDP(1.3, 0.8))


@pytest.mark.parametrize(("concentration", "discount"), [(1.3, 0.0), (0.2, 0.7)])
def test_partitions_add_up_to_one(concentration, discount):
    partitions = enumerate_partitions(6)
    counts = (partitions[:, :, None] == np.arange(6)).sum(1)[:, None]
    with jax.enable_x64(True):
        density = functools.partial(
            log_exchangeable, concentration=jnp.asarray(concentration), discount=discount
        )
        total = np.exp(jax.jit(jax.vmap(density))(jnp.asarray(counts))).sum()
    assert total == pytest.approx(1, abs=1e-12)


def test_labelled_items_add_up_to_one():
    grids = np.indices((3,) * 5).reshape(5, -1).T
    counts = (grids[:, :, None] == np.arange(3)).sum(1)
    with jax.enable_x64(True):
        concentration = jnp.asarray([0.2, 1.0, 2.5])
        total = np.exp(jax.jit(log_dirichlet_multinomial)(jnp.asarray(counts), concentration)).sum()
    assert total == pytest.approx(1, abs=1e-12)


def test_a_franchise_adds_up_to_one():
    """The oracle itself."""
    batches = [0, 1, 0, 1, 0]
    total = sum(
        np.exp(oracles.log_of_franchise(batches, labels, 1.3, 0.8))
        for labels in enumerate_partitions(5).tolist()
    )
    assert total == pytest.approx(1, abs=1e-12)


# --- extreme concentrations -----------------------------------------------------------------------


def walk(prior, hyperparameters, key, num_moves=1_500):
    """Items leave and join at random, as weighed; the counts and hyperparameters at the end."""
    num_items, num_slots = 12, 14
    batches = jnp.arange(num_items) % NUM_BATCHES
    start = prior.begin(
        jnp.zeros((NUM_BATCHES, num_slots), jnp.int32),
        prior.start(num_slots) | hyperparameters,
        with_sizes=False,
    )
    uniforms = jax.random.uniform(key, (num_moves, 2))
    # with both ends of what a generator gives among them
    uniforms = uniforms.at[::50, 1].set(0.0).at[::49, 1].set(1 - 2.0**-24)

    def one(carry, uniform):
        seating, groups, index = carry
        item = index % num_items
        left = prior.unassign(seating, batches[item], groups[item])
        seating = jax.tree.map(lambda a, b: jnp.where(index >= num_items, a, b), left, seating)
        weights, _ = prior.weights(seating, batches[item])
        group = jnp.searchsorted(jnp.cumsum(weights), uniform[0] * jnp.sum(weights), side="right")
        group = jnp.minimum(group, num_slots - 1)
        group = jnp.where(weights[group] > 0, group, jnp.argmax(weights))
        seating = prior.assign(seating, batches[item], group, uniform[1])
        return (seating, groups.at[item].set(group), index + 1), None

    (seating, _, _), _ = jax.lax.scan(one, (start, jnp.zeros(num_items, int), 0), uniforms)
    counts, hyperparameters = prior.end(seating)
    return counts, hyperparameters, prior.log_prob(counts, hyperparameters)


EXTREMES = np.array([1e-6, 1e-2, 1.0, 1e6])


def all_extremes(prior):
    first, second = (grid.ravel() for grid in np.meshgrid(EXTREMES, EXTREMES))
    hyperparameters = {
        "concentration": jnp.asarray(first),
        "base_concentration": jnp.asarray(second),
    }
    keys = jax.random.split(jax.random.key(1), len(first))
    one = functools.partial(walk, prior)
    run = jax.jit(jax.vmap(one), compiler_options=FAST_COMPILE)
    return jax.tree.map(np.asarray, run(hyperparameters, keys))


def assert_weights(counts, hyperparameters, log_prob):
    weights, rest = hyperparameters["weights"], hyperparameters["rest"]
    np.testing.assert_array_equal(weights > 0, counts.sum(1) > 0)
    np.testing.assert_allclose(weights.sum(1) + rest, 1, atol=2e-4)
    assert np.all(rest > 0)
    assert np.all(np.isfinite(log_prob))


def test_weights_of_groups_add_up_to_one_at_any_concentration():
    assert_weights(*all_extremes(mf.HDP(1.0, 1.0)))


def test_a_group_that_keeps_its_weight_when_it_empties_is_caught():
    class Forgetful(mf.HDP):
        def unassign(self, seating, batch, group) -> CountCache:
            return seating._replace(
                counts=seating.counts.at[batch, group].add(-1),
                totals=seating.totals.at[group].add(-1),
            )

    with pytest.raises(AssertionError):
        assert_weights(*all_extremes(Forgetful(1.0, 1.0)))


def test_fresh_weights_at_any_concentration():
    counts = jnp.asarray([[0, 1, 3, 0], [1, 0, 0, 0], [10**6, 1, 1, 0]])
    keys = jax.random.split(jax.random.key(2), len(counts))
    by_counts = jax.vmap(shared_weights, in_axes=(0, 0, None))
    of_all = jax.vmap(by_counts, in_axes=(None, None, 0))
    draw = jax.jit(of_all, compiler_options=FAST_COMPILE)
    weights, rest = draw(keys, counts, jnp.asarray(EXTREMES, jnp.result_type(float)))
    np.testing.assert_array_equal(weights > 0, np.broadcast_to(counts > 0, weights.shape))
    np.testing.assert_allclose(weights.sum(-1) + rest, 1, atol=1e-5)
    assert np.all(rest > 0)


def test_weights_too_small_for_a_float_have_a_density():
    prior = mf.HDP(1e-6, 1.0)
    hyperparameters = {
        "concentration": jnp.asarray(1e-6),
        "base_concentration": jnp.asarray(1.0),
        "weights": jnp.asarray([1.0, np.finfo(np.float32).tiny, 0.0]),
        "rest": jnp.asarray(np.finfo(np.float32).tiny),
    }
    density = jax.jit(prior.log_prob)(jnp.asarray([[3, 1, 0], [2, 0, 0]]), hyperparameters)
    assert np.isfinite(density)


@pytest.mark.slow
def test_densities_of_hyperparameters_keep_their_digits():
    """In float32 with many items: differences between two values, as a slice sampler sees them."""
    counts = np.array([[400_000, 30_000, 5_000, 1, 0], [70, 20, 1, 0, 0]])
    ways = {
        "discount": (log_of_settings, (counts, 1.3, 0.42), (counts, 1.3, 0.4)),
        "concentration": (log_of_settings, (counts, 1.5, 0.4), (counts, 1.3, 0.4)),
        "falling": (lambda c, n: log_falling(c, n), (1.5, counts.sum(1)), (1.3, counts.sum(1))),
    }

    def differences():
        def all_ways(arguments):
            return [
                fn(*first) - fn(*second)
                for (fn, _, _), (first, second) in zip(ways.values(), arguments, strict=True)
            ]

        compiled = jax.jit(all_ways, compiler_options=FAST_COMPILE)
        return compiled(jax.tree.map(jnp.asarray, [way[1:] for way in ways.values()]))

    with jax.enable_x64(True):
        exact = np.asarray(differences())
    with jax.enable_x64(False):
        np.testing.assert_allclose(differences(), exact, rtol=1e-3, atol=1e-3)
        # not so of the whole density, whose constant terms are large
        density = jax.jit(log_exchangeable, compiler_options=FAST_COMPILE)
        whole = [float(density(counts, np.float32(c), 0.4)) for c in (1.5, 1.3)]
        assert abs(whole[0] - whole[1] - exact[1]) > 1e-2


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: mf.Dirichlet(0), ValueError, "num_components must be at least 1, got 0"),
        (lambda: mf.Dirichlet(2.5), TypeError, "num_components must be a whole number, got 2.5"),
        (lambda: mf.Dirichlet(True), TypeError, "num_components must be a whole number, got True"),
        (lambda: mf.Dirichlet(2, -1.0), ValueError, "concentration must be positive"),
        (lambda: mf.Dirichlet(2, [1.0, 0.0]), ValueError, "got 0.0 at position 1"),
        (lambda: mf.Dirichlet(2, [1.0, np.nan]), ValueError, "got nan at position 1"),
        (lambda: mf.Dirichlet(2, [1.0] * 3), ValueError, r"2 of them, got shape \(3,\)"),
        (lambda: mf.Dirichlet(2, "few"), TypeError, "concentration must be a positive number"),
        (lambda: mf.Dirichlet(2, dist.Normal(0.0, 1.0)), ValueError, "allows negative ones"),
        (lambda: mf.DirichletProcess(0.0), ValueError, "concentration must be positive"),
        (lambda: mf.PitmanYor(1.0, 1.0), ValueError, r"discount must be a probability in \[0, 1\)"),
        (lambda: mf.PitmanYor(1.0, -0.1), ValueError, "discount must be a probability"),
        (lambda: mf.PitmanYor(1.0, dist.Gamma(1.0, 1.0)), ValueError, "between 0 and 1"),
        (lambda: mf.HDP(1.0, -1.0), ValueError, "base_concentration must be positive"),
        (lambda: mf.HDP("1"), TypeError, "concentration must be a positive number"),
    ],
)
def test_settings_that_are_none_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_defaults():
    for prior in (mf.DirichletProcess(), mf.PitmanYor(), mf.HDP()):
        assert isinstance(prior.concentration, dist.Gamma)
    assert isinstance(mf.HDP().base_concentration, dist.Gamma)
    process = mf.DirichletProcess(1.0)
    seating = process.begin(jnp.zeros((1, 2), jnp.int32), process.start(2), with_sizes=False)
    with pytest.raises(TypeError, match="the groups of a DirichletProcess are those of one batch"):
        process.pseudo(seating)
