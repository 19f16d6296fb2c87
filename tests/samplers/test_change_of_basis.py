"""Changes of basis of two columns: transition matrices, joint-distribution tests, broken twins."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf.data import Dense
from jaxmf.engine import Info
from jaxmf.models.linear_gaussian import LinearGaussianIBP
from jaxmf.models.linear_gaussian.updates import update_by_change_of_basis, update_features
from jaxmf.priors.features import IndianBuffet
from jaxmf.samplers import change_of_basis as moves
from jaxmf.samplers.split_merge_gaussian import linear_gaussian_columns
from tests.models.test_linear_gaussian_exact_kernel import (
    FINITE,
    NUM_SLOTS,
    SETTINGS,
    STATES,
    TOLERANCE,
    X,
    check_in_the_finite_model,
    check_with_a_bias_feature,
    over_classes,
    state_index,
)
from tests.models.test_linear_gaussian_kernels import FIXED, PRIORS, Setup

PAIRS = np.array(list(itertools.permutations(range(NUM_SLOTS), 2)))


def transition_matrix(prior, *, num_fixed=0, twin=None):
    """Of one draw over all states; ordered pairs of columns in use are picked equally often."""
    likelihood = linear_gaussian_columns(
        jnp.asarray(X),
        noise_scale=jnp.asarray(SETTINGS["noise_scale"]),
        feature_scale=jnp.asarray(SETTINGS["feature_scale"]),
    )

    def of_pair(z, pair):
        drawn = moves.bases(z, pair, prior=prior, likelihood=likelihood, num_fixed=num_fixed)
        counts = jnp.where(pair >= num_fixed, jnp.sum(drawn.columns, axis=1), 0)
        log_prior = jax.vmap(lambda m: prior.log_prob_labelled(m.astype(float), len(X)))(counts)
        return drawn, log_prior

    over_pairs = jax.vmap(of_pair, in_axes=(None, 0))
    drawn, log_prior = jax.device_get(
        jax.jit(jax.vmap(over_pairs, in_axes=(0, None)))(STATES, PAIRS)
    )
    log_weights = drawn.log_weights
    if twin == "no prior":
        log_weights = log_weights - log_prior
    probability = np.exp(log_weights - log_weights.max(axis=2, keepdims=True))
    probability /= probability.sum(axis=2, keepdims=True)
    if twin == "always moves":
        probability[..., 0] = 0
        whole = probability.sum(axis=2, keepdims=True)
        probability = np.where(whole > 0, probability / np.where(whole > 0, whole, 1), [1, 0, 0])
    matrix = np.zeros((len(STATES), len(STATES)))
    for state, z in enumerate(STATES):
        occupied = z.any(axis=0)
        possible = np.flatnonzero(occupied[PAIRS].all(axis=1))
        if not len(possible):
            matrix[state, state] = 1
        for pair, basis in itertools.product(possible, range(3)):
            target = z.copy()
            target[:, PAIRS[pair]] = drawn.columns[state, pair, basis]
            matrix[state, state_index(target[None])[0]] += probability[state, pair, basis] / len(
                possible
            )
    return matrix


def difference_over_classes(concentration=1.0, twin=None):
    matrix = transition_matrix(IndianBuffet(SETTINGS["alpha"], concentration), twin=twin)
    lumped, exact = over_classes(matrix, concentration)
    assert np.abs(lumped - np.eye(len(lumped))).max() > 0.1
    return np.abs(exact @ lumped - exact).max()


@pytest.mark.parametrize("concentration", [1.0, 0.4])
def test_a_change_of_basis_leaves_the_posterior_of_the_process_invariant(
    concentration, double_precision
):
    assert difference_over_classes(concentration) < TOLERANCE


@pytest.mark.parametrize("twin", ["no prior", "always moves"])
def test_a_change_of_basis_with_wrong_weights_is_seen(twin, double_precision):
    assert difference_over_classes(twin=twin) > 1e-3


def test_a_change_of_basis_with_a_bias_feature(double_precision):
    check_with_a_bias_feature(transition_matrix(IndianBuffet(SETTINGS["alpha"]), num_fixed=1))


def test_a_change_of_basis_in_the_finite_model(double_precision):
    check_in_the_finite_model(transition_matrix(FINITE))


def test_columns_are_picked_equally_often_among_those_in_use():
    """Whatever their slots: the ranks are counted among columns that are not empty."""
    z = jnp.array([[True, False, True, False, True], [False, False, True, False, False]])
    grid = (np.arange(12) + 0.5) / 12
    uniforms = jnp.asarray(list(itertools.product(grid, grid)))
    pick = jax.jit(jax.vmap(moves.pick_columns, in_axes=(0, None)))
    slots, there_are_two = pick(uniforms, z)
    assert bool(jnp.all(there_are_two))
    pairs, times = np.unique(np.asarray(slots), axis=0, return_counts=True)
    np.testing.assert_array_equal(pairs, list(itertools.permutations([0, 2, 4], 2)))
    np.testing.assert_array_equal(times, 24)
    for columns in ([], [3]):
        few = np.zeros((2, 5), bool)
        few[:, columns] = True
        assert not bool(jnp.any(pick(uniforms, few)[1]))
    edge = jnp.full((2,), np.nextafter(np.float32(1), np.float32(0)))
    assert set(np.asarray(pick(jnp.tile(edge, (len(uniforms), 1)), z)[0][0])) == {2, 4}


def test_a_second_constant_column_gives_way_to_its_few_exceptions():
    """37 of 40 rows beside a column of all rows say what a column of the other 3 says."""
    rng = np.random.default_rng(0)
    exceptions = np.arange(40) < 3
    x = 2.0 + 1.5 * rng.normal(size=6) * exceptions[:, None] + 0.3 * rng.normal(size=(40, 6))
    model = LinearGaussianIBP(alpha=1.0, noise_scale=0.3, feature_scale=1.0, offset=0.0)
    data = Dense.from_array(x)
    state = model.sampler().init(jax.random.key(0), data)
    z = jnp.zeros_like(state.z).at[:, 5].set(True).at[:, 9].set(~exceptions)
    kernel = jax.jit(partial(update_by_change_of_basis, model, num_draws=40))
    after, _ = kernel(jax.random.key(1), state._replace(z=z), data)
    counts = np.asarray(after.z).sum(axis=0)
    assert sorted(counts[counts > 0]) == [3, 40]


def kernel_with(model, change):
    """One sweep and some changes of basis, so that features come and go."""

    def kernel(key, state, data):
        state, info = update_features(
            model, jax.random.fold_in(key, 0), state, data, sweep="collapsed"
        )
        state, _ = change(jax.random.fold_in(key, 1), state, data)
        return state, Info(overflow=info.overflow)

    return kernel


@pytest.mark.exhaustive
@pytest.mark.parametrize("settings", [{"bias": True}, {"num_features": 4}], ids=str)
def test_changes_of_basis_alone_agree_with_fresh_data(settings):
    model = LinearGaussianIBP(concentration=1.4, **FIXED, **settings)
    kernel = partial(update_by_change_of_basis, model, num_draws=2)
    Setup(model, missing=False).check(kernel, key=jax.random.key(60), num_replicates=4_096)


@pytest.mark.slow
def test_a_sweep_with_changes_of_basis_agrees_with_fresh_data():
    model = LinearGaussianIBP(**PRIORS)
    change = partial(update_by_change_of_basis, model, num_draws=2)
    Setup(model).check(kernel_with(model, change), key=jax.random.key(61), num_replicates=4_096)


@pytest.mark.slow
def test_a_change_of_basis_that_forgets_the_prior_is_caught():
    class Twin(IndianBuffet):
        """All columns equally probable, however many rows have them."""

        def log_prob_labelled(self, counts, num_rows):
            return jnp.zeros(())

    model = LinearGaussianIBP(concentration=1.4, bias=True, **FIXED)

    def kernel(key, state, data):
        z = moves.change_of_basis(
            key,
            state.z,
            prior=Twin(state.alpha, state.concentration),
            likelihood=linear_gaussian_columns(
                data.values, noise_scale=state.noise_scale, feature_scale=state.feature_scale
            ),
            num_draws=2,
            num_fixed=1,
        )
        return state._replace(z=z), Info(overflow={})

    with pytest.raises(AssertionError, match="FAILED"):
        Setup(model, missing=False).check(kernel, key=jax.random.key(62), num_replicates=4_096)
