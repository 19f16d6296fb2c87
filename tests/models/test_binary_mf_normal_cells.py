"""Counts as the normal cells of the annealed warm-up of `BinaryMF`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf
from jaxmf.models.binary_mf import normal_cells

PRIOR = mf.BetaBernoulli(1.0, 1.0, 2)
MODEL = mf.BinaryMF(
    likelihood=mf.Poisson(0.3), weight_shape=2.0, weight_rate=0.5, row_prior=PRIOR,
    column_prior=PRIOR,
)  # fmt: skip


def _made():
    """A state of 12 x 10 cells with features and weights, and counts with missing cells."""
    generator = np.random.default_rng(0)
    u, v = generator.random((12, 2)) < 0.5, generator.random((10, 2)) < 0.5
    weights = np.array([[30.0, 5.0], [2.0, 15.0]])
    x = generator.poisson(0.3 + u @ weights @ v.T).astype(np.float32)
    observed = generator.random(x.shape) < 0.9
    data = mf.Dense(jnp.asarray(x), jnp.asarray(observed))
    state = jax.jit(MODEL.sampler().init)(jax.random.key(0), data)
    state = state._replace(
        u=jnp.asarray(u), v=jnp.asarray(v), weights=jnp.asarray(weights, jnp.float32)
    )
    return state, data, 0.3 + u @ weights @ v.T


def test_normal_cells_are_counts_about_the_base_rate_and_draws_where_none_is_seen():
    state, data, rate = _made()
    y = normal_cells.cells(jax.random.key(1), state, data, noise_factor=0.0)
    right = np.where(data.observed, data.values, rate) - 0.3
    np.testing.assert_allclose(y, right, rtol=1e-5, atol=1e-5)


def test_weights_of_the_normal_model_have_the_moments_of_those_of_counts():
    """Gamma(2, rate 1/2): mean 4, standard deviation sqrt(8)."""
    state, data, _ = _made()
    normal, values = normal_cells.without_weights(MODEL, state, data)
    np.testing.assert_allclose(normal.weight_mean, 4.0, rtol=1e-6)
    np.testing.assert_allclose(values.weight_scale, 8**0.5, rtol=1e-6)
    assert values.weights is None


@pytest.mark.slow
def test_steps_while_annealing_lasts_leave_a_state_of_the_model():
    """Features on both sides, weights above zero, missing cells without influence."""
    state, data, _ = _made()
    sampler = MODEL.sampler()

    @jax.jit
    def run(data):
        def step(index, state):
            key = jax.random.fold_in(jax.random.key(2), index)
            return sampler.step(key, state, data, jnp.asarray(0.1))[0]

        after = jax.lax.fori_loop(0, 5, step, state)
        return after, MODEL.log_joint(after, data)

    after, log_joint = run(data)
    other, _ = run(mf.Dense(jnp.where(data.observed, data.values, 7.0), data.observed))
    assert after.u.any()
    assert after.v.any()
    assert np.isfinite(log_joint)
    assert np.min(after.weights) > 0
    for one, two in zip(jax.tree.leaves(after), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(one, two)


def test_counts_are_normal_cells_where_both_numbers_of_features_are_bounded():
    assert normal_cells.is_used(MODEL) == (jax.default_backend() == "cpu")
    assert not normal_cells.is_used(mf.BinaryMF(likelihood=mf.Poisson()))
    gaussian = mf.BinaryMF(row_prior=PRIOR, column_prior=PRIOR)
    assert not normal_cells.is_used(gaussian)


@pytest.mark.slow
def test_after_the_annealing_steps_are_those_without_any():
    state, data, _ = _made()

    def after(anneal):
        step = jax.jit(MODEL.sampler(anneal=anneal).step)
        return step(jax.random.key(3), state, data, jnp.asarray(0.9))[0]

    for one, two in zip(jax.tree.leaves(after(True)), jax.tree.leaves(after(False)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5)
