"""Resampling schemes: unbiased, exact where they promise it, broken twins caught."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from jaxmf.samplers import resampling
from jaxmf.samplers.resampling import (
    effective_sample_size,
    log_mean_weight,
    multinomial,
    optimal,
    residual,
    stratified,
    systematic,
)
from jaxmf.testing import LEVEL

SCHEMES = [multinomial, stratified, systematic, residual, optimal]
NUM_DRAWS = 20_000
NUM_CHOSEN = 5
# All of one length, so that a scheme is compiled once.
WEIGHTS = {
    "uneven": [0.02, 0.3, 0.11, 0.0, 0.25, 0.32, 0, 0, 0, 0, 0, 0],
    "one heavy": [0.97, 0.01, 0.01, 0.01, 0, 0, 0.02, 0.03, 0, 0, 0, 0],
    "equal": [0.25] * 12,
    "as many as places": [0.125] * 5 + [0.0] * 7,
    "squares": (np.arange(1.0, 13.0) ** 2).tolist(),
    "fewer positive": [0.0, 0.3, 0.0, 0.7, 0.0, 0, 0, 0, 0, 0, 0, 0],
}


@partial(jax.jit, static_argnums=0)
def new_weights(scheme, log_weights, keys):
    def one(key):
        ancestors, new = scheme(key, log_weights, NUM_CHOSEN)
        return jnp.zeros_like(log_weights).at[ancestors].add(jnp.exp(new))

    return jax.vmap(one)(keys)


def worst_z(scheme, weights):
    """The largest deviation of a mean new weight from its due, in standard errors."""
    log_weights = jnp.log(jnp.asarray(weights, jnp.result_type(float))) + 3
    keys = jax.random.split(jax.random.key(0), NUM_DRAWS)
    draws = np.asarray(new_weights(scheme, log_weights, keys), np.float64)
    mean, error = draws.mean(0), draws.std(0) / np.sqrt(NUM_DRAWS)
    expected = NUM_CHOSEN * np.asarray(weights) / np.sum(weights)
    # Rounding in single precision, where a scheme leaves a candidate no randomness at all.
    return np.max(np.abs(mean - expected) / np.maximum(error, 2e-5))


@partial(jax.jit, static_argnums=(0, 3))
def chosen(scheme, key, log_weights, num):
    return scheme(key, log_weights, num)


def critical(num_statistics):
    return stats.norm.isf(LEVEL / num_statistics / 2)


@pytest.mark.parametrize("case", WEIGHTS)
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda f: f.__name__)
def test_unbiased(scheme, case):
    assert worst_z(scheme, WEIGHTS[case]) < critical(12)


def forgets_weights(key, log_weights, num):
    ancestors, _ = optimal(key, log_weights, num)
    return ancestors, jnp.zeros(num)


def one_position_off(key, log_weights, num):
    weights = resampling._relative_weights(log_weights)
    positions = jnp.arange(num) / num
    del key
    found = resampling._search(resampling._distribution(weights), positions, weights > 0)
    return found, jnp.zeros(num)


@pytest.mark.parametrize("scheme", [forgets_weights, one_position_off])
def test_broken_twin_is_caught(scheme):
    assert worst_z(scheme, WEIGHTS["uneven"]) > 2 * critical(12)


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    weights=st.lists(st.floats(0.0, 1e3, width=32), min_size=6, max_size=6).filter(
        lambda values: sum(values) > 1e-3
    ),
    shift=st.floats(-300.0, 300.0),
    seed=st.integers(0, 2**31),
)
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda f: f.__name__)
def test_structure(scheme, weights, shift, seed):
    num = 4
    dtype = jnp.result_type(float)
    log_weights = jnp.log(jnp.asarray(weights, dtype)) + jnp.asarray(shift, dtype)
    ancestors, new = chosen(scheme, jax.random.key(seed), log_weights, num)
    assert ancestors.dtype == jnp.int32
    assert ancestors.shape == new.shape == (num,)
    assert new.dtype == log_weights.dtype
    new, ancestors = np.asarray(new), np.asarray(ancestors)
    # Never a candidate of weight zero; the mean weight is one.
    relative = np.asarray(log_weights)
    assert np.all(np.isfinite(relative[ancestors[new > -np.inf]]))
    assert np.exp(new).mean() == pytest.approx(1.0, abs=2e-5)
    if scheme in (stratified, systematic, residual):
        expected = num * np.exp(relative - relative.max())
        expected /= np.exp(relative - relative.max()).sum()
        counts = np.bincount(ancestors, minlength=6)
        slack = 2.0 if scheme is stratified else 1.0
        if scheme is residual:
            assert np.all(counts >= np.floor(expected - 1e-4))
        else:
            assert np.all(np.abs(counts - expected) < slack + 1e-4)


def test_optimal_keeps_exactly_what_is_above_the_threshold():
    weights = np.array([0.4, 0.02, 0.25, 0.03, 0.01, 0.05, 0.2, 0.04])
    num = 5
    # The unbiased threshold by bisection.
    low, high = 1e-9, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(weights / middle, 1).sum() > num else (low, middle)
    threshold = (low + high) / 2
    above = np.flatnonzero(weights > threshold)
    for seed in range(20):
        ancestors, new = chosen(optimal, jax.random.key(seed), jnp.log(jnp.asarray(weights)), num)
        ancestors, new = np.asarray(ancestors), np.exp(np.asarray(new)) / num
        assert len(set(ancestors.tolist())) == num
        assert set(above) <= set(ancestors.tolist())
        for candidate, weight in zip(ancestors, new, strict=True):
            expected = weights[candidate] if candidate in above else threshold
            assert weight == pytest.approx(expected, rel=1e-5)


def test_optimal_keeps_all_when_there_are_few():
    log_weights = jnp.array([-jnp.inf, 0.0, -jnp.inf, -2.0, -jnp.inf])
    ancestors, new = chosen(optimal, jax.random.key(0), log_weights, 4)
    kept = np.asarray(new) > -np.inf
    assert set(np.asarray(ancestors)[kept].tolist()) == {1, 3}
    assert kept.sum() == 2
    weights = np.exp(np.asarray(new)[kept]) / 4
    np.testing.assert_allclose(weights, np.exp([0, -2]) / np.exp([0, -2]).sum(), rtol=1e-5)


def test_optimal_takes_fewer_candidates_than_places():
    ancestors, new = chosen(optimal, jax.random.key(0), jnp.log(jnp.array([1.0, 3.0])), 4)
    kept = np.asarray(new) > -np.inf
    assert sorted(np.asarray(ancestors)[kept].tolist()) == [0, 1]


def test_optimal_works_in_logs():
    # Weights that differ by more than a float can hold are still resampled among themselves.
    log_weights = jnp.concatenate([jnp.array([0.0]), jnp.full(50, -2000.0)])
    ancestors, new = chosen(optimal, jax.random.key(1), log_weights, 11)
    ancestors = np.asarray(ancestors)
    assert ancestors[0] == 0
    assert len(set(ancestors.tolist())) == 11
    np.testing.assert_allclose(
        np.asarray(new)[1:], -2000.0 + np.log(50 / 10) + np.log(11), rtol=1e-5
    )


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda f: f.__name__)
def test_never_a_weight_of_zero_among_many(scheme):
    log_weights = jnp.where(jnp.arange(4096) % 3 == 1, 0.0, -jnp.inf).at[:5].set(-jnp.inf)
    for seed in range(10):
        ancestors, new = chosen(scheme, jax.random.key(seed), log_weights, 2048)
        used = np.asarray(ancestors)[np.asarray(new) > -np.inf]
        assert np.all(np.asarray(log_weights)[used] > -np.inf)


def test_effective_sample_size_and_log_mean():
    log_weights = jnp.log(jnp.array([1.0, 1.0, 2.0])) + 400.0
    assert float(effective_sample_size(log_weights)) == pytest.approx(16 / 6, rel=1e-5)
    assert float(log_mean_weight(log_weights)) == pytest.approx(400 + np.log(4 / 3), rel=1e-6)
    dead = jnp.full(3, -jnp.inf)
    assert float(effective_sample_size(dead)) == 0.0
    assert float(log_mean_weight(dead)) == -np.inf
