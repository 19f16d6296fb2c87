"""Numbers of tables in Chinese restaurants, against their distribution by Stirling ranks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from jaxmf.samplers.restaurants import count_ranks, count_tables, log_rising_of_ranks
from jaxmf.testing import LEVEL
from tests.support.network_oracles import stirling

NUM_RESTAURANTS, NUM_CUSTOMERS = 4_000, 6


def distribution_of_tables(size, weight):
    """P(1), ..., P(n) tables of n customers: |s(n, m)| p^m / (p)_n."""
    chances = np.array([stirling(size, m) * weight**m for m in range(1, size + 1)])
    return chances / chances.sum()


def counted(weights, customers):
    """Restaurants side by side: as many groups of one batch, their customers mixed."""
    groups = np.tile(np.arange(NUM_RESTAURANTS), customers)
    np.random.default_rng(0).shuffle(groups)
    groups = jnp.asarray(groups, jnp.int32)
    count = jax.jit(count_tables, static_argnames="num_batches")
    return np.asarray(
        count(jax.random.key(1), jnp.zeros_like(groups), groups, weights, num_batches=1)
    )


def assert_distribution(found, expected):
    counts = np.bincount(found, minlength=NUM_CUSTOMERS + 1)
    assert counts[0] == 0
    assert stats.chisquare(counts[1:], expected * NUM_RESTAURANTS).pvalue > LEVEL


def test_tables_have_the_distribution_of_stirling_numbers():
    found = counted(jnp.full(NUM_RESTAURANTS, 1.3), NUM_CUSTOMERS)
    assert_distribution(found, distribution_of_tables(NUM_CUSTOMERS, 1.3))
    with pytest.raises(AssertionError):
        assert_distribution(found, distribution_of_tables(NUM_CUSTOMERS, 1.5))


def test_batches_are_restaurants_of_their_own():
    """A group in five batches of two customers: five tables, and a sixth to tenth by chance."""
    batches = jnp.asarray(np.repeat(np.arange(5), 2), jnp.int32)
    count = jax.vmap(lambda key: count_tables(key, batches, batches * 0, weight, num_batches=5))
    weight = jnp.asarray([0.5, 2.0])
    found = np.asarray(jax.jit(count)(jax.random.split(jax.random.key(2), 4_000)))
    assert np.all(found[:, 1] == 0)
    counts = np.bincount(found[:, 0] - 5, minlength=6)
    expected = stats.binom(5, 0.5 / 1.5).pmf(np.arange(6)) * 4_000
    assert stats.chisquare(counts, expected).pvalue > LEVEL


def test_every_group_with_customers_has_a_table_and_none_other():
    weights = jnp.asarray([0.0, 1e-45, 1e-30, 1e30, 1.0])
    groups = jnp.asarray([0, 0, 1, 2, 2, 3, 3], jnp.int32)
    count = jax.jit(count_tables, static_argnames="num_batches")
    found = count(jax.random.key(3), groups * 0, groups, weights, num_batches=1)
    assert found.tolist() == [1, 1, 1, 2, 0]


@pytest.mark.parametrize("num_groups", [3, 400])  # counted in a table, and in a loop over items
def test_numbers_of_items_say_all_that_one_concentration_depends_on(num_groups):
    """Beside counts by numpy, and rising factorials by gamma functions; a cell of more than 256."""
    generator = np.random.default_rng(0)
    batches, groups = generator.integers(0, 5, 700), generator.integers(0, 3, 700)
    batches[:400], groups[:400] = 4, 1
    cells = np.zeros((5, num_groups), int)
    np.add.at(cells, (batches, groups), 1)
    count = jax.jit(count_ranks, static_argnames=("num_batches", "num_groups"))
    items = jnp.asarray(batches, jnp.int32), jnp.asarray(groups, jnp.int32)
    ranks = count(*items, num_batches=5, num_groups=num_groups)
    assert ranks.shape == (768,)
    np.testing.assert_array_equal(ranks, (cells.ravel() > np.arange(768)[:, None]).sum(1))
    is_used = cells > 0
    for weight in (1e-30, 0.02, 3.0, 1e4):
        rising = special.gammaln(cells + weight) - special.gammaln(weight)
        expected = np.sum(np.where(is_used, rising - special.gammaln(np.maximum(cells, 1)), 0))
        found = log_rising_of_ranks(ranks, jnp.asarray(weight))
        np.testing.assert_allclose(found, expected, rtol=2e-5)
