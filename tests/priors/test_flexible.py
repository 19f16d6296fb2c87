"""Flexible priors: exact distributions, special cases, moments, what is refused."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf
from jaxmf import settings
from jaxmf._kernels import tables
from jaxmf.blocks.learning import match_moments_by_sampling
from jaxmf.priors import flexible_distribution
from jaxmf.priors.moments import match_moments
from jaxmf.testing import check_means, enumerate_partitions
from tests.support import network_oracles as oracles

WEIGHTS = np.array([0.3, -1.0, 0.8, 1.5, 0.2, -0.4, 1.0, 0.5])
PARTITIONS = enumerate_partitions(8)


def sizes_of(labels):
    """m of one partition of eight items."""
    groups = np.bincount(labels)
    return np.bincount(groups[groups > 0], minlength=9)[1:]


COUNTS = np.array([sizes_of(labels) for labels in PARTITIONS])


def some_features(counts):
    """How many groups, and whether any is single."""
    return jnp.stack([jnp.sqrt(jnp.sum(counts)), (counts[0] > 0).astype(counts.dtype)])


def exact(log_weights):
    probability = np.exp(log_weights - np.logaddexp.reduce(log_weights))
    return np.logaddexp.reduce(log_weights), probability @ COUNTS


def test_the_recursion_is_the_sum_over_all_partitions():
    prior = mf.FlexiblePrior(WEIGHTS)
    log_normaliser, counts = exact(COUNTS @ WEIGHTS)
    assert prior.log_normaliser(8) == pytest.approx(log_normaliser, abs=1e-5)
    np.testing.assert_allclose(prior.expected_counts(8), counts, rtol=1e-5)
    expected = COUNTS[77] @ WEIGHTS - log_normaliser
    assert prior.log_probability(PARTITIONS[77]) == pytest.approx(expected, abs=1e-5)
    # groups of more items than there are do not matter
    small = enumerate_partitions(5)
    few = np.array([np.bincount(np.bincount(labels), minlength=9)[1:] for labels in small])
    total = np.logaddexp.reduce(few @ WEIGHTS)
    # partitions of fewer items have a distribution of their own
    assert prior.log_normaliser(5) == pytest.approx(total, abs=1e-5)


def test_features_are_summed_over_signatures():
    prior = mf.FlexiblePrior(WEIGHTS, some_features, [0.7, -1.2])
    features = np.asarray(jax.jit(jax.vmap(some_features))(jnp.asarray(COUNTS)))
    log_normaliser, counts = exact(COUNTS @ WEIGHTS + features @ [0.7, -1.2])
    assert prior.log_normaliser(8) == pytest.approx(log_normaliser, abs=1e-5)
    np.testing.assert_allclose(prior.expected_counts(8), counts, rtol=1e-5)
    found = flexible_distribution.signatures(8)
    assert len(found.counts) == 22
    assert np.exp(found.log_num_partitions).sum() == pytest.approx(4140)


def test_processes_are_special_cases():
    process = mf.FlexiblePrior.dirichlet_process(1.3, num_items=8)
    with_discount = mf.FlexiblePrior.pitman_yor(1.3, 0.4, num_items=8)
    negative = mf.FlexiblePrior.pitman_yor(-0.2, 0.4, num_items=8)
    for labels in PARTITIONS[::500]:
        expected = oracles.log_of_restaurant(labels.tolist(), 1.3)
        assert process.log_probability(labels) == pytest.approx(expected, abs=1e-5)
        expected = oracles.log_of_restaurant(labels.tolist(), 1.3, 0.4)
        assert with_discount.log_probability(labels) == pytest.approx(expected, abs=1e-5)
        assert np.isfinite(negative.log_probability(labels))
    same = mf.FlexiblePrior.parametric(np.log(1.3), 1.0, 0.0, num_items=8)
    np.testing.assert_allclose(same.log_weights, process.log_weights, rtol=1e-6)
    # of many items the differences keep their digits
    steps = mf.FlexiblePrior.dirichlet_process(1.0, num_items=400_000).log_steps
    np.testing.assert_allclose(steps[-1], np.log(399_999), rtol=1e-6)


def test_a_line_added_to_the_weights_changes_nothing():
    prior, other = (mf.FlexiblePrior(WEIGHTS + slope * np.arange(1, 9)) for slope in (0.0, 2.5))
    np.testing.assert_allclose(prior.expected_counts(8), other.expected_counts(8), rtol=1e-4)


@pytest.mark.parametrize("with_features", [False, True])
def test_draws_have_the_exact_distribution(with_features):
    more = (some_features, [0.7, -1.2]) if with_features else ()
    prior = mf.FlexiblePrior(WEIGHTS, *more)
    drawn = prior.sample(jax.random.key(1), num_items=8, num_samples=20_000)
    counts = np.array([sizes_of(labels) for labels in drawn])
    together = (drawn[:, :, None] == drawn[:, None]).mean(axis=(1, 2))
    expected = prior.expected_counts(8)
    sizes = np.arange(1, 9)
    exact_values = {
        "counts": expected,
        "pairs": expected @ sizes**2 / 64,
        "first": expected @ sizes**2 / 8,
    }
    # the group of the first item is drawn as likely as its size
    first = (drawn == drawn[:, :1]).sum(axis=1)
    samples = {"counts": counts, "pairs": together, "first": first}
    check_means(samples, exact_values, title="draws")


def test_draws_of_another_prior_are_refused():
    drawn = mf.FlexiblePrior(WEIGHTS[::-1]).sample(
        jax.random.key(1), num_items=8, num_samples=20_000
    )
    counts = np.array([sizes_of(labels) for labels in drawn])
    with pytest.raises(AssertionError, match="FAILED"):
        check_means({"m": counts}, {"m": mf.FlexiblePrior(WEIGHTS).expected_counts(8)})


# --- in a sweep -----------------------------------------------------------------------------------


@pytest.mark.parametrize("with_features", [False, True])
def test_weights_are_the_conditionals_of_the_distribution(with_features):
    """Eq 7.5 against the distribution of the partitions that each choice leads to."""
    more = (some_features, [0.7, -1.2]) if with_features else ()
    with jax.enable_x64(True):
        prior = mf.FlexiblePrior(WEIGHTS, *more)

        def weights(counts, unobserved):
            hyperparameters = {"unobserved": unobserved}
            seating = prior.begin(counts, hyperparameters, with_sizes=False)
            # an item comes and goes: what is kept of groups must be what it was
            seating = prior.assign(seating, 0, jnp.asarray(1), jnp.zeros(()))
            seating = prior.unassign(seating, 0, jnp.asarray(1))
            return prior.weights(seating, 0)[0], prior.log_prob(counts, hyperparameters)

        run = jax.jit(weights)
        for counts, unobserved in (([3, 0, 1, 2, 0], [0] * 5), ([2, 0, 0, 2, 0], [1, 0, 1, 0, 0])):
            counts, unobserved = (jnp.asarray([row], jnp.int32) for row in (counts, unobserved))
            found, _ = run(counts, unobserved)
            logs = [run(counts.at[0, k].add(1), unobserved)[1] for k in (0, 1, 2, 3)]
            expected = np.exp(np.array(logs) - max(logs))
            np.testing.assert_allclose(found[:4] / found[:4].sum(), expected / expected.sum())
            assert found[4] == 0


# --- from expected counts -------------------------------------------------------------------------

EXPECTED_COUNTS = mf.FlexiblePrior(WEIGHTS).expected_counts(8)


def test_moments_are_matched_exactly():
    found = match_moments(EXPECTED_COUNTS)
    assert found.missed < 1e-4
    # the distribution, as the weights are known up to a line
    for labels in PARTITIONS[::700]:
        expected = mf.FlexiblePrior(WEIGHTS).log_probability(labels)
        assert found.prior.log_probability(labels) == pytest.approx(expected, abs=1e-2)


def test_what_cannot_be_met_is_missed_by_as_much_as_the_potential_allows():
    expected, shrinkage = [2.0, 0.0, 0.0, 1.0, 0.0, 0.0], 1e-3
    found = match_moments(expected, shrinkage=shrinkage)
    assert 0 < found.missed < 0.01
    missed = np.array(expected) - found.expected_counts
    np.testing.assert_allclose(missed, shrinkage * found.prior.log_weights, atol=1e-4)


@pytest.mark.exhaustive
def test_the_interrupted_sampler_comes_to_the_same():
    found = match_moments_by_sampling(EXPECTED_COUNTS, num_steps=500, num_chains=24, seed=1)
    counts = found.prior.expected_counts(8)
    # weights that move as those of independent draws would: 1 / sqrt(chains x steps), ten times
    np.testing.assert_allclose(counts, EXPECTED_COUNTS, atol=10 / np.sqrt(24 * 250))
    start = mf.FlexiblePrior.dirichlet_process(1.0, num_items=8).expected_counts(8)
    assert np.abs(start - EXPECTED_COUNTS).max() > 10 / np.sqrt(24 * 250)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: mf.FlexiblePrior(), TypeError, "either log_weights or log_steps"),
        (lambda: mf.FlexiblePrior([[0.0]]), ValueError, r"got shape \(1, 1\)"),
        (lambda: mf.FlexiblePrior([0.0, -np.inf]), ValueError, "got -inf for groups of 2"),
        (lambda: mf.FlexiblePrior([0.0, 99.0, 0.0]), ValueError, "198 nats apart"),
        (lambda: mf.FlexiblePrior([0.0], lambda m: m.sum()), ValueError, r"both must be \(F,\)"),
        (lambda: mf.FlexiblePrior([0.0], lambda m: m, [1.0, 2.0]), ValueError, r"shape \(2,\)"),
        (lambda: mf.FlexiblePrior([0.0], None, [1.0]), ValueError, "of which there are none"),
        (lambda: mf.FlexiblePrior([0.0], num_unobserved=-1), ValueError, "got -1"),
        (lambda: mf.FlexiblePrior([0.0], num_unobserved=[1.5]), ValueError, "one for every batch"),
        (lambda: mf.FlexiblePrior([0.0, 0.0]).log_normaliser(3), ValueError, "of 1 to 2 items"),
        (lambda: match_moments([1.0, 1.0]), ValueError, "scale them by 0.666667"),
        (lambda: match_moments([2.0, 0.0]), ValueError, "groups of 2 never occur"),
        (lambda: match_moments([4.0, -1.0]), ValueError, "got -1.0 for groups of 2"),
        (lambda: mf.FlexibleMixture(mf.DirichletProcess(1.0)), TypeError, "got DirichletProcess"),
        (lambda: mf.HFP(3.0), TypeError, "table_prior must be a FlexiblePrior"),
    ],
)
def test_settings_that_are_none_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_signatures_have_an_end():
    prior = mf.FlexiblePrior.pitman_yor(1.0, 0.5, num_items=60)
    with pytest.raises(ValueError, match="60 items have too many signatures"):
        prior.log_normaliser(60)


def test_a_prior_is_written_down_and_read():
    for prior in (
        mf.FlexiblePrior(WEIGHTS, num_unobserved=[1, 0]),
        mf.FlexiblePrior.pitman_yor(1.3, 0.4, num_items=8),
    ):
        again = settings.decode(settings.encode(prior))
        assert again.num_unobserved == prior.num_unobserved
        leaves = itertools.zip_longest(jax.tree.leaves(again), jax.tree.leaves(prior))
        for left, right in leaves:
            np.testing.assert_array_equal(left, right)
        assert jax.tree.structure(again) == jax.tree.structure(prior)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: mf.FlexiblePrior.pitman_yor(-0.9, 0.5, num_items=4),
            "concentration must .*-0.5",
        ),
        (lambda: mf.FlexiblePrior.pitman_yor(1.0, 1.2, num_items=4), "discount must be .*below 1"),
        (lambda: mf.FlexiblePrior.pitman_yor(1.0, -0.5, num_items=4), "discount must be .*least 0"),
        (lambda: mf.FlexiblePrior.dirichlet_process(-1.0, num_items=4), "concentration must be"),
        (lambda: mf.FlexiblePrior.parametric(0.0, 1.0, -2.0, num_items=4), "c must be .*above -1"),
    ],
)
def test_settings_of_special_cases_that_are_none(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_weights_of_rows_are_those_of_all_groups():
    prior = mf.FlexiblePrior.parametric(-1.0, 1.0, 0.3, num_items=6)
    counts = np.zeros((3, 24), np.int32)
    counts[0, [0, 1, 2, 9]] = 1, 3, 2, 1
    counts[1, :17] = 1
    counts[2] = 1

    @jax.jit
    def both(counts, batch):
        cache = prior.begin(counts, {}, with_sizes=False)
        rows, has_new = [], jnp.zeros((), bool)
        for start in (0, 8, 16):
            lanes = tables.Lanes(jnp.asarray(start), 1, 8)
            weights, has_new = prior.weights_of_row(cache, batch, lanes, has_new)
            rows.append(weights)
        return (jnp.concatenate(rows), has_new), prior.weights(cache, batch)

    for batch in range(3):
        by_rows, at_once = both(jnp.asarray(counts), jnp.asarray(batch))
        jax.tree.map(np.testing.assert_array_equal, by_rows, at_once)


def test_a_prior_with_other_weights_is_not_asked_for_rows():
    class Other(mf.FlexiblePrior):
        def weights(self, cache, batch):
            weights, room = super().weights(cache, batch)
            return weights**2, room

    assert mf.FlexiblePrior([0.0, 1.0]).weighs_rows
    assert not Other([0.0, 1.0]).weighs_rows
    assert not mf.FlexiblePrior([0.0, 1.0], features=lambda counts: counts[:1]).weighs_rows
