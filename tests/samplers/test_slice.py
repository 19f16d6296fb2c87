"""The slice sampler leaves its target invariant, whatever its width and step limit."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxmf.samplers.slice import slice_sample
from jaxmf.testing import LEVEL

NUM_CHAINS = 8_192


def two_peaks(x):
    return jnp.logaddexp(-0.5 * (x + 2.0) ** 2, -0.5 * ((x - 2.0) / 0.5) ** 2)


def draw_two_peaks(key):
    side_key, normal_key = jax.random.split(key)
    right = jax.random.uniform(side_key) < 1 / 3
    normal = jax.random.normal(normal_key)
    return jnp.where(right, 2.0 + 0.5 * normal, -2.0 + normal)


def cdf_two_peaks(x):
    return (2 * stats.norm.cdf(x, -2.0) + stats.norm.cdf(x, 2.0, 0.5)) / 3


def run(sampler, num_steps=3):
    """Chains that start at exact draws, after a few steps."""

    def chain(key):
        x = draw_two_peaks(jax.random.fold_in(key, 0))
        for step in range(1, num_steps + 1):
            x = sampler(jax.random.fold_in(key, step), x)
        return x

    return np.asarray(jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(3), NUM_CHAINS)))


@pytest.mark.tiers(exhaustive=["0.1-3"])
@pytest.mark.parametrize(("width", "max_steps"), [(0.1, 3), (1.0, 1), (1.0, 50), (30.0, 50)])
def test_the_target_is_invariant(width, max_steps):
    x = run(lambda key, x: slice_sample(key, two_peaks, x, width=width, max_steps=max_steps))
    assert stats.kstest(x, cdf_two_peaks).pvalue > LEVEL


def test_a_broken_sampler_is_seen():
    """Without the Jacobian of the log scale the update is of another target."""

    def broken(key, x):
        shifted = jnp.exp(
            slice_sample(key, lambda log: two_peaks(jnp.exp(log) - 6.0), jnp.log(x + 6.0))
        )
        return shifted - 6.0

    assert stats.kstest(run(broken), cdf_two_peaks).pvalue < LEVEL


def test_it_moves_between_the_peaks():
    x = run(lambda key, x: slice_sample(key, two_peaks, jnp.asarray(-2.0)), num_steps=1)
    assert 0.02 < np.mean(x > 0) < 0.5


def test_hard_edges_are_respected():
    def log_density(x):
        return jnp.where((x > 0) & (x < 1), 0.0, -jnp.inf)

    keys = jax.random.split(jax.random.key(4), 4_000)
    x = jax.vmap(lambda key: slice_sample(key, log_density, 0.3, width=5.0))(keys)
    assert stats.kstest(np.asarray(x), "uniform").pvalue > LEVEL


def test_values_that_are_independent_are_all_drawn_at_once():
    """Each waits for the others once it is drawn; one that went on would end where it started."""
    scales = jnp.array([0.5, 1.0, 20.0])

    def update(key, x):
        return slice_sample(key, lambda x: two_peaks(x / scales), x * scales) / scales

    def chain(key):
        start = jax.vmap(draw_two_peaks)(jax.random.split(jax.random.fold_in(key, 0), 3))
        return start, update(jax.random.fold_in(key, 1), start)

    before, after = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(8), NUM_CHAINS))
    assert np.mean(np.asarray(after == before), axis=0).max() < 0.01
    for column in np.asarray(after).T:
        assert stats.kstest(column, cdf_two_peaks).pvalue > LEVEL


def test_a_density_that_is_not_a_number_keeps_the_value():
    x = jax.jit(lambda key: slice_sample(key, lambda x: x * jnp.nan, 0.7))(jax.random.key(5))
    assert x == jnp.asarray(0.7)


def test_one_by_one_and_vmapped_chains_agree():
    keys = jax.random.split(jax.random.key(6), 16)

    def update(key):
        return slice_sample(key, two_peaks, 0.5)

    chex.assert_trees_all_close(jax.vmap(update)(keys), jax.lax.map(update, keys), rtol=1e-5)


def test_the_density_is_traced_once():
    traces = []

    def log_density(x):
        traces.append(x)
        return -x * x

    jax.jit(lambda key: slice_sample(key, log_density, 0.1)).lower(jax.random.key(0))
    assert len(traces) <= 2  # the loop's body, which jax may trace a second time for its types


def test_double_precision_is_kept():
    with jax.enable_x64(True):
        x = slice_sample(jax.random.key(7), two_peaks, jnp.asarray(0.5))
        assert x.dtype == jnp.float64
