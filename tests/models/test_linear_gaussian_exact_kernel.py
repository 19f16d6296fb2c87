"""Transition matrices of whole sweeps on tiny data, from the library's own conditionals: pi P = pi.

States are labelled matrices of N = 3 rows in three slots; the number of features is capped at the
number of slots, in the sweep and in the posterior alike. What no long run shows is seen here: that
each conditional is right, and that the order of updates does not depend on the state.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf import slots
from jaxmf.likelihoods import gaussian
from jaxmf.priors.features import BetaBernoulli, IndianBuffet
from jaxmf.samplers import feature_rows
from jaxmf.samplers.feature_layout import Scales, row_prior
from tests.support.oracles import all_matrices, posterior_of_classes, posterior_of_matrices

pytestmark = pytest.mark.usefixtures("double_precision")

NUM_ROWS, NUM_SLOTS = 3, 3
STATES = all_matrices(NUM_ROWS, NUM_SLOTS)
POWERS = 2 ** np.arange(NUM_ROWS * NUM_SLOTS - 1, -1, -1)
X = np.array([[1.3, -0.4], [0.9, 0.8], [-0.2, 1.1]])
SETTINGS = {"alpha": 1.2, "noise_scale": 0.5, "feature_scale": 1.1}
TOLERANCE = 1e-12


def state_index(z):
    """The index in `STATES` of each state (C, N, K)."""
    return z.reshape(len(z), -1).astype(int) @ POWERS


def conditionals(prior, *, bias=False):
    """Of all states and rows: chances of flipping each bit, weights of new features and of rows."""
    scales = Scales(noise=jnp.asarray(SETTINGS["noise_scale"]), feature=jnp.asarray(1.1))
    x = jnp.asarray(X)

    def of_row(z, row):
        old = z[row].astype(x.dtype)
        gram, cross = gaussian.gram_statistics(z, x)
        posterior = gaussian.row_posterior(gram, cross, scales.ratio)
        counts = jnp.diagonal(gram) - old
        alone = jnp.where(counts < 0.5, old, 0)
        others = gram - jnp.outer(old, old), cross - jnp.outer(old, x[row])
        posterior = gaussian.remove_row(
            posterior, old, alone, x[row], scales.ratio, lambda _: others
        )
        posterior = gaussian.reset_slots(posterior, counts < 0.5, scales.ratio)
        conditional = row_prior(prior, counts, NUM_ROWS, num_fixed=int(bias))
        singletons = z[row] & conditional.free
        fit = feature_rows.row_fit(posterior, z[row] & ~singletons, x[row], None)
        extra = jnp.sum(singletons) / scales.ratio
        sign = jnp.where(fit.z, -1, 1)
        log_odds = jax.vmap(feature_rows.bit_log_odds, in_axes=(0, 0, 0, None, None, 0))(
            fit.z,
            (
                jnp.full(NUM_SLOTS, fit.squared_error),
                fit.squared_error - 2 * sign * fit.slope + jnp.diagonal(fit.curvature),
            ),
            (
                jnp.full(NUM_SLOTS, 1 + fit.inflation + extra),
                1 + fit.inflation + 2 * sign * fit.m_z + jnp.diagonal(fit.spread) + extra,
            ),
            fit.num_observed,
            scales.noise_variance,
            conditional.log_odds,
        )
        new_features = {
            "ratio": scales.ratio,
            "noise_variance": scales.noise_variance,
            "num_candidates": NUM_SLOTS + 1,
        }
        log_weights, _ = feature_rows.new_feature_log_weights(
            fit.squared_error,
            fit.inflation,
            fit.num_observed,
            rate=conditional.rate,
            **new_features,
        )
        _, row_log_weights, _ = feature_rows.whole_row_log_weights(fit, conditional, **new_features)
        patterns = feature_rows.all_patterns(NUM_SLOTS)
        return {
            "flip": jnp.where(conditional.movable, jax.nn.sigmoid(log_odds), 0),
            "kept": fit.z,
            "free": conditional.free,
            "new": log_weights,
            "row": row_log_weights,
            "patterns": patterns,
        }

    rows = jnp.arange(NUM_ROWS)
    over_rows = jax.vmap(of_row, in_axes=(None, 0))
    return jax.device_get(jax.jit(jax.vmap(over_rows, in_axes=(0, None)))(STATES, rows))


@functools.cache
def process_conditionals(concentration=1.0):
    """Those of the Indian buffet process; call it with 64-bit floats on."""
    return conditionals(IndianBuffet(SETTINGS["alpha"], concentration))


def with_new(state, row, bits, free, num_new):
    """The state whose row has these bits, and new features in the lowest free slots."""
    claimed = np.flatnonzero(free)[:num_new]
    z = STATES[state].copy()
    z[row] = bits
    z[row, claimed] = True
    return state_index(z[None])[0]


def flip_matrix(table, row, slot):
    """One bit drawn given all others."""
    matrix = np.zeros((len(STATES), len(STATES)))
    flipped = STATES.copy()
    flipped[:, row, slot] ^= True
    probability = table["flip"][:, row, slot]
    everyone = np.arange(len(STATES))
    matrix[everyone, state_index(flipped)] = probability
    matrix[everyone, everyone] += 1 - probability
    return matrix


def new_matrix(table, row):
    """The number of new features drawn from its sum, cut off at the free slots."""
    matrix = np.zeros((len(STATES), len(STATES)))
    for state in range(len(STATES)):
        free = table["free"][state, row]
        log_weights = table["new"][state, row][: free.sum() + 1]
        weights = np.exp(log_weights - log_weights.max())
        for num_new, weight in enumerate(weights / weights.sum()):
            bits = table["kept"][state, row]
            matrix[state, with_new(state, row, bits, free, num_new)] += weight
    return matrix


def scan_matrix(table, row, orders):
    """All bits in an order, averaged over the orders."""
    flips = [flip_matrix(table, row, slot) for slot in range(NUM_SLOTS)]
    return sum(
        flips[first] @ flips[second] @ flips[third] for first, second, third in orders
    ) / len(orders)


def whole_row_matrix(table, row):
    """A row drawn from all its settings at once."""
    matrix = np.zeros((len(STATES), len(STATES)))
    for state in range(len(STATES)):
        free = table["free"][state, row]
        log_weights = table["row"][state, row][:, : free.sum() + 1]
        weights = np.exp(log_weights - log_weights.max())
        weights /= weights.sum()
        for pattern, num_new in zip(*np.nonzero(weights), strict=True):
            bits = table["patterns"][state, row][pattern]
            target = with_new(state, row, bits, free, num_new)
            matrix[state, target] += weights[pattern, num_new]
    return matrix


RANDOM_ORDER = list(itertools.permutations(range(NUM_SLOTS)))
LEFT_TO_RIGHT = [tuple(range(NUM_SLOTS))]


def sweep_matrices(table, *, orders=RANDOM_ORDER, whole_rows=False):
    """Transition matrix of the update of each row, over labelled states."""
    if whole_rows:
        return [whole_row_matrix(table, row) for row in range(NUM_ROWS)]
    return [scan_matrix(table, row, orders) @ new_matrix(table, row) for row in range(NUM_ROWS)]


def class_indices(*, bias=False):
    """The index of the class of each state."""
    start = int(bias)
    sorted_columns = np.sort((STATES[:, :, start:] * np.array([4, 2, 1])[:, None]).sum(axis=1))
    head = STATES[:, :, :start].reshape(len(STATES), -1)
    _, classes = np.unique(np.hstack([head, sorted_columns]), axis=0, return_inverse=True)
    return classes.reshape(-1)


def exact_over_classes(classes, posterior):
    """The posterior of the oracle, in the order of `classes`."""
    exact = np.zeros(classes.max() + 1)
    np.add.at(exact, classes[state_index(posterior.z)], posterior.probability)
    return exact


def lump(matrix, classes, states):
    """The matrix over classes, and how much the states of a class differ (over `states` only)."""
    member = np.eye(classes.max() + 1)[classes]
    onto_classes = matrix @ member
    lumped = np.zeros((member.shape[1], member.shape[1]))
    lumped[classes[states]] = onto_classes[states]
    return lumped, np.abs(onto_classes[states] - lumped[classes[states]]).max()


def over_classes(matrix, concentration=1.0):
    """A kernel of the process as one over classes, as labels do not matter; and their posterior."""
    classes = class_indices()
    posterior = posterior_of_classes(
        X, max_features=NUM_SLOTS, concentration=concentration, **SETTINGS
    )
    lumped, difference = lump(matrix, classes, np.arange(len(STATES)))
    assert difference < TOLERANCE
    np.testing.assert_allclose(lumped.sum(axis=1), 1, atol=TOLERANCE)
    return lumped, exact_over_classes(classes, posterior)


def check_with_a_bias_feature(matrix):
    """That a kernel with `num_fixed=1` leaves the posterior of the process invariant."""
    classes = class_indices(bias=True)
    posterior = posterior_of_classes(X, max_features=NUM_SLOTS - 1, bias=True, **SETTINGS)
    exact = exact_over_classes(classes, posterior)
    states = np.flatnonzero(STATES[:, :, 0].all(axis=1))
    np.testing.assert_allclose(matrix[states][:, states].sum(axis=1), 1, atol=TOLERANCE)
    lumped, difference = lump(matrix, classes, states)
    assert difference < TOLERANCE
    np.testing.assert_allclose(exact @ lumped, exact, rtol=0, atol=TOLERANCE)


FINITE = BetaBernoulli(SETTINGS["alpha"], 1.3, NUM_SLOTS)


def check_in_the_finite_model(*matrices):
    """That kernels of the prior `FINITE` leave the posterior invariant."""
    posterior = posterior_of_matrices(X, num_features=NUM_SLOTS, concentration=1.3, **SETTINGS)
    exact = np.zeros(len(STATES))
    exact[state_index(posterior.z)] = posterior.probability
    for matrix in matrices:
        np.testing.assert_allclose(exact @ matrix, exact, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("whole_rows", [False, True], ids=["bits", "whole rows"])
@pytest.mark.parametrize("concentration", [1.0, 0.4])
def test_sweeps_of_the_process_leave_the_posterior_invariant(whole_rows, concentration):
    table = process_conditionals(concentration)
    for matrix in sweep_matrices(table, whole_rows=whole_rows):
        lumped, exact = over_classes(matrix, concentration)
        np.testing.assert_allclose(exact @ lumped, exact, rtol=0, atol=TOLERANCE)


@pytest.mark.tiers(exhaustive=["bits"])
@pytest.mark.parametrize("whole_rows", [False, True], ids=["bits", "whole rows"])
def test_sweeps_with_a_bias_feature(whole_rows):
    table = conditionals(IndianBuffet(SETTINGS["alpha"]), bias=True)
    for matrix in sweep_matrices(table, whole_rows=whole_rows):
        check_with_a_bias_feature(matrix)


@pytest.mark.parametrize("orders", [RANDOM_ORDER, LEFT_TO_RIGHT], ids=["random", "fixed"])
def test_sweeps_of_the_finite_model(orders):
    """Labelled features have no age: here any order will do."""
    table = conditionals(FINITE)
    check_in_the_finite_model(*sweep_matrices(table, orders=orders))
    check_in_the_finite_model(*sweep_matrices(table, whole_rows=True))


def stationary_distribution(matrix):
    """Over the states that are visited from the empty one."""
    distribution = np.zeros(len(matrix))
    distribution[0] = 1.0
    squared = matrix
    for _ in range(12):  # 4,096 sweeps
        squared = squared @ squared
    distribution = distribution @ squared
    np.testing.assert_allclose(distribution @ matrix, distribution, atol=1e-10)
    return distribution


def compaction():
    """Deletes empty columns and closes the gaps, the order kept."""
    matrix = np.zeros((len(STATES), len(STATES)))
    for state, z in enumerate(STATES):
        order = np.argsort(~z.any(axis=0), kind="stable")
        matrix[state, state_index(z[None, :, order])[0]] = 1.0
    return matrix


@pytest.mark.parametrize(
    ("compacts", "orders", "at_least"),
    [(False, LEFT_TO_RIGHT, 1e-3), (True, LEFT_TO_RIGHT, 1e-3), (True, RANDOM_ORDER, None)],
    ids=["lowest free slot", "compact and append", "compact, random order"],
)
def test_the_order_of_the_scan(compacts, orders, at_least):
    """Bits scanned from left to right: right conditionals, a wrong stationary distribution."""
    table = process_conditionals()
    classes = class_indices()
    exact = exact_over_classes(classes, posterior_of_classes(X, max_features=NUM_SLOTS, **SETTINGS))
    sweep = np.eye(len(STATES))
    for matrix in sweep_matrices(table, orders=orders):
        sweep = sweep @ matrix
        if compacts:
            sweep = sweep @ compaction()
    found = np.bincount(classes, weights=stationary_distribution(sweep))
    total_variation = 0.5 * np.abs(found - exact).sum()
    print(f"total variation {total_variation:.2e}")
    if at_least is None:
        assert total_variation < 1e-10
    else:
        assert total_variation > at_least


def test_a_wrong_conditional_is_seen():
    """The rate of new features alpha in place of alpha / N."""

    class Twin(IndianBuffet):
        def new_rate(self, num_rows):
            return jnp.asarray(self.alpha)

    table = conditionals(Twin(SETTINGS["alpha"]))
    lumped, exact = over_classes(sweep_matrices(table)[0])
    assert np.abs(exact @ lumped - exact).max() > 1e-3


def test_new_features_take_the_lowest_free_slots():
    """The matrices above fill slots as `slots.claim` does."""
    free = jnp.array([True, False, True])
    claimed = slots.claim(~free, 1).claimed
    state = with_new(0, 0, np.zeros(3, bool), np.asarray(free), 1)
    np.testing.assert_array_equal(STATES[state][0], claimed)


@pytest.mark.parametrize(("uniform", "index"), [(0.0, 1), (0.49, 1), (0.51, 3), (1 - 2.0**-23, 3)])
def test_no_index_of_weight_zero_is_drawn(uniform, index):
    log_weights = jnp.asarray([-jnp.inf, 0.0, -jnp.inf, 0.0, -jnp.inf])
    assert feature_rows.draw_index(jnp.asarray(uniform), log_weights) == index


@pytest.mark.parametrize(
    "z",
    [
        [[0, 0, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0], [1, 0, 0, 1]],
        [[0, 0, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1]],
    ],
    ids=["two features of one row alone", "a combination of one row alone"],
)
def test_rows_are_removed_where_the_noise_is_next_to_nothing(z):
    # rows without noise, such as 0, 1, ..., 14: a weight that is NaN stopped such runs
    def log_weights(ratio, row):
        old = features[row].astype(x.dtype)
        gram, cross = gaussian.gram_statistics(features, x)
        empty = jnp.diagonal(gram) - old < 0.5
        posterior = gaussian.row_posterior(gram, cross, ratio)
        alone = jnp.where(empty, old, 0)
        others = gram - jnp.outer(old, old), cross - jnp.outer(old, x[row])
        posterior = gaussian.remove_row(posterior, old, alone, x[row], ratio, lambda _: others)
        posterior = gaussian.reset_slots(posterior, empty, ratio)
        fit = feature_rows.row_fit(posterior, features[row] & ~empty, x[row], None)
        settings = {"rate": 0.3, "ratio": ratio, "noise_variance": 0.003, "num_candidates": 9}
        return feature_rows.new_feature_log_weights(
            fit.squared_error, fit.inflation, fit.num_observed, **settings
        )[0]

    with jax.enable_x64(False):
        x = jnp.arange(15.0).reshape(5, 3) - jnp.array([6.0, 7.0, 8.0])
        features, ratios = jnp.array(z, bool), jnp.logspace(-5, -3, 300)
        each = jax.vmap(jax.vmap(log_weights, (None, 0)), (0, None))
        weights = jax.jit(each)(ratios, jnp.arange(5))
    assert np.isfinite(np.asarray(weights)).all()
