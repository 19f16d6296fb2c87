"""Changes of basis of binary matrix factorisation: weights, joint-distribution tests, twins."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf
from jaxmf.engine import Info
from jaxmf.models.binary_mf import updates
from jaxmf.samplers import change_of_basis as moves
from tests.support.binary_mf_setups import KNOWN, PRIORS, Setup, make, must_fail, whole_step

HYPERPARAMETERS = {"gaussian": {"noise_scale": 0.5, "weight_scale": 1.2, "weight_mean": 0.7}}


def bases_alone(model):
    def kernel(key, state, data):
        return updates.change_bases(model, key, state, data, num_draws=2), Info(overflow={})

    return kernel


@pytest.mark.tiers(exhaustive=["columns-0.0", "rows-0.0", "rows-0.7"])
@pytest.mark.parametrize("weight_mean", [0.0, 0.7])
@pytest.mark.parametrize("side", ["rows", "columns"])
def test_weights_of_bases_are_ratios_of_the_joint_density(side, weight_mean):
    prior = mf.BetaBernoulli(1.2, 1.4, 3)
    model = mf.BinaryMF(
        row_prior=prior,
        column_prior=prior,
        likelihood=mf.Gaussian(0.6),
        weight_scale=1.3,
        weight_mean=weight_mean,
        row_bias=True,
    )
    with jax.enable_x64(True):
        state, data, _ = model.simulate_matrix(jax.random.key(13), (9, 7), 3)
        state = state._replace(weights=None)
        if side == "columns":
            model, state, data = model.transpose(), state.transpose(), updates.transposed(data)
        slots = jnp.flatnonzero(state.u.any(axis=0))[-2:]
        found = jax.jit(
            lambda state, data: moves.bases(
                state.u,
                slots,
                prior=model.row_prior_at(state),
                likelihood=updates._pair_likelihood(model, state, data, 1.0),
                num_fixed=model.num_fixed_rows(),
            )
        )(state, data)
        joint = np.asarray(
            jax.jit(jax.vmap(lambda u: model.log_joint(state._replace(u=u), data)))(
                jax.vmap(lambda pair: state.u.at[:, slots].set(pair))(found.columns)
            )
        )
        weights = np.asarray(found.log_weights)
    np.testing.assert_allclose(weights - weights[0], joint - joint[0], atol=1e-8)
    assert np.ptp(joint) > 0.5


@pytest.mark.exhaustive
def test_unions_and_complements_give_way_to_the_features_that_they_are_made_of():
    """Sweeps alone stay at the parts of two features and at the complement of a third."""
    rng = np.random.default_rng(3)
    u, v = rng.random((40, 3)) < 0.4, rng.random((30, 2)) < 0.5
    x = u @ rng.normal(0, 2, (3, 2)) @ v.T + 0.3 * rng.normal(size=(40, 30))
    prior = mf.BetaBernoulli(1.0, 1.0, 6)
    model = mf.BinaryMF(
        row_prior=prior, column_prior=prior, likelihood=mf.Gaussian(0.3), weight_scale=2.0
    )
    data = mf.Dense.from_array(x.astype(np.float32))
    state = model.sampler().init(jax.random.key(0), data)
    a, b, c = u.T
    # unions, parts and complements fit as well
    found = np.stack([a & ~b, a & b, b, np.ones(40, bool), ~c, np.zeros(40, bool)], axis=1)
    columns = np.zeros((30, 6), bool)
    columns[:, :2] = v
    state = state._replace(u=jnp.asarray(found), v=jnp.asarray(columns))
    step = whole_step(model)

    @jax.jit
    def run(key, state):
        def once(index, state):
            return step(jax.random.fold_in(key, index), state, data)[0]

        return jax.lax.fori_loop(0, 60, once, state)

    after = np.asarray(run(jax.random.key(1), state).u)
    for feature in (a, b, c):
        assert (after == feature[:, None]).all(axis=0).any()


def test_the_move_is_on_where_weights_are_summed_out_and_refused_elsewhere():
    def basis_of(model, **options):
        return model.sampler(**options).step.args[0].change_basis

    assert basis_of(mf.BinaryMF()) == 2
    assert basis_of(mf.BinaryMF(), change_basis=0) == 0
    assert basis_of(mf.BinaryMF(), weights="explicit") == 0
    assert basis_of(mf.BinaryMF(likelihood=mf.Bernoulli())) == 0
    prior = mf.BetaBernoulli(1.0, 1.0, 2)
    tied = mf.BinaryMF(row_prior=prior, column_prior=prior, diagonal=True)
    many = mf.BinaryMF(row_prior=prior, column_prior=prior, weight_mean=np.ones((2, 2)))
    assert basis_of(tied) == basis_of(many) == 0
    for model, options, words in (
        (tied, {}, "change_basis is not there with diagonal=True"),
        (many, {}, "change_basis is not there with a matrix as weight_mean"),
        (mf.BinaryMF(), {"weights": "explicit"}, "weights='explicit'"),
        (mf.BinaryMF(likelihood=mf.Poisson()), {}, r"likelihood=.*use change_basis=0"),
    ):
        with pytest.raises(ValueError, match=words):
            model.sampler(change_basis=1, **options)
    with pytest.raises(ValueError, match="change_basis must be at least 0, got -1"):
        mf.BinaryMF().sampler(change_basis=-1)


@pytest.mark.tiers(exhaustive=["whole"])
@pytest.mark.slow
@pytest.mark.parametrize("missing", [False, True], ids=["whole", "missing"])
def test_changes_of_basis_alone(missing):
    """On both sides, weights summed out; a bias and a given feature stay as they are."""
    model = make("gaussian", hyperparameters=HYPERPARAMETERS, **KNOWN)
    Setup(model, missing, collapsed=True).check(bases_alone(model), num_replicates=4_096)


@pytest.mark.exhaustive
def test_a_step_with_changes_of_basis():
    model = make("gaussian", hyperparameters=PRIORS, **KNOWN)
    Setup(model, collapsed=True).check(whole_step(model, change_basis=3), num_steps=1)


@pytest.mark.slow
def test_changes_of_basis_that_are_always_made_are_caught():
    model = make("gaussian", hyperparameters=HYPERPARAMETERS)

    def twin(key, state, data):
        del data
        slots, there_are_two = moves.pick_columns(jax.random.uniform(key, (2,)), state.u)
        first, second = state.u[:, slots[0]], state.u[:, slots[1]]
        either = jnp.where(there_are_two & jnp.any(first ^ second), first ^ second, first)
        return state._replace(u=state.u.at[:, slots[0]].set(either)), Info(overflow={})

    must_fail(Setup(model, missing=False, collapsed=True), twin, num_replicates=4_096)
