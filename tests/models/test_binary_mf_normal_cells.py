"""Counts as the normal cells of the annealed warm-up of `BinaryMF`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf
from jaxmf.devices import default_platform
from jaxmf.models.binary_mf import chain, normal_cells

PRIOR = mf.BetaBernoulli(1.0, 1.0, 2)
MODEL = mf.BinaryMF(
    likelihood=mf.Poisson(0.3), weight_shape=2.0, weight_rate=0.5, row_prior=PRIOR,
    column_prior=PRIOR,
)  # fmt: skip


@pytest.fixture(scope="module")
def counts():
    """A state of 12 x 10 cells with features and weights, counts with missing cells, rates."""
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


@pytest.mark.exhaustive
def test_a_step_of_the_warm_up_leaves_a_state_of_the_model(counts):
    """Features on both sides and weights above zero, with missing cells."""
    state, data, _ = counts
    step = jax.jit(MODEL.sampler().step)
    after = step(jax.random.key(2), state, data, jnp.asarray(0.1))[0]
    assert after.u.any()
    assert after.v.any()
    assert after.weights.shape == (2, 2)
    assert np.min(after.weights) > 0
    assert not np.array_equal(after.weights, state.weights)
    assert np.isfinite(MODEL.log_joint(after, data))


def test_several_of_the_user_holds_for_the_warm_up(counts, monkeypatch):
    state, data, _ = counts
    seen = []
    # traced only: the options of the sweeps over normal cells
    monkeypatch.setattr(chain, "move_features", lambda plan, *_, **__: seen.append(plan) or 1 / 0)
    for several in (None, 0, 3):
        step = MODEL.sampler(several=several).step
        with pytest.raises(ZeroDivisionError):
            jax.eval_shape(step, jax.random.key(2), state, data, jnp.asarray(0.1))
    assert [plan.several for plan in seen] == [6, 0, 3]
    assert {plan.change_basis for plan in seen} == {2}


def test_normal_cells_are_counts_about_the_base_rate_and_draws_where_none_is_seen(counts):
    state, data, rate = counts
    y = normal_cells.cells(jax.random.key(1), state, data, noise_factor=0.0)
    right = np.where(data.observed, data.values, rate) - 0.3
    np.testing.assert_allclose(y, right, rtol=1e-5, atol=1e-5)


def test_weights_of_the_normal_model_have_the_moments_of_those_of_counts(counts):
    """Gamma(2, rate 1/2): mean 4, standard deviation sqrt(8)."""
    state, data, _ = counts
    normal, values = normal_cells.without_weights(MODEL, state, data)
    np.testing.assert_allclose(normal.weight_mean, 4.0, rtol=1e-6)
    np.testing.assert_allclose(values.weight_scale, 8**0.5, rtol=1e-6)
    assert values.weights is None


def test_counts_are_normal_cells_where_both_numbers_of_features_are_bounded(counts):
    small = counts[1]
    is_on_cpu = default_platform() == "cpu"
    assert normal_cells.is_used(MODEL, small) == is_on_cpu
    assert not normal_cells.is_used(mf.BinaryMF(likelihood=mf.Poisson()), small)
    gaussian = mf.BinaryMF(row_prior=PRIOR, column_prior=PRIOR)
    assert not normal_cells.is_used(gaussian, small)
    # 4 million: 2 * 2 * (2 I + 2 J)
    assert normal_cells.is_used(MODEL, mf.Dense(np.zeros((499_990, 10)))) == is_on_cpu
    assert not normal_cells.is_used(MODEL, mf.Dense(np.zeros((499_991, 10))))


@pytest.mark.exhaustive
def test_after_the_annealing_steps_are_those_without_any(counts):
    state, data, _ = counts

    def after(anneal):
        step = jax.jit(MODEL.sampler(anneal=anneal).step)
        return step(jax.random.key(3), state, data, jnp.asarray(0.9))[0]

    for one, two in zip(jax.tree.leaves(after(True)), jax.tree.leaves(after(False)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5)
