"""Transition matrices of the collapsed sweep of U given V, from its own conditionals: pi P = pi.

States are labelled matrices U of I = 3 rows in three slots, as in the linear-Gaussian tests, whose
assembly of matrices is used here; X has J = 3 columns and V takes several values.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, logsumexp

from jaxmf.likelihoods import bilinear_rows
from jaxmf.likelihoods.bilinear_rows import turn, turned_posterior
from jaxmf.priors.features import BetaBernoulli, IndianBuffet
from jaxmf.samplers import feature_rows
from jaxmf.samplers.bilinear import rows as rows_of_bits
from jaxmf.samplers.bilinear.collapsed import whole_row_log_weights
from jaxmf.samplers.feature_layout import row_prior
from tests.models.test_linear_gaussian_exact_kernel import (
    LEFT_TO_RIGHT,
    NUM_ROWS,
    NUM_SLOTS,
    RANDOM_ORDER,
    STATES,
    TOLERANCE,
    class_indices,
    exact_over_classes,
    lump,
    state_index,
    stationary_distribution,
    sweep_matrices,
)
from tests.support.bilinear_oracle import finite_side, log_likelihood, process_side
from tests.support.oracles import Posterior

pytestmark = pytest.mark.usefixtures("double_precision")

X = np.array([[1.3, -0.4, 0.7], [0.9, 0.8, -0.5], [-0.2, 1.1, 1.6]])
SCALES = {"noise_scale": 0.5, "weight_scale": 1.1}
ALPHA = 1.2
VS = np.array(
    [
        [[1, 0, 1], [1, 1, 0], [0, 1, 1]],
        [[1, 1, 0], [1, 1, 0], [0, 0, 0]],  # columns that depend on each other, and a free slot
    ],
    bool,
)
MEAN = np.array([[0.3, -0.6, 0.2]])  # the same for every feature, so that slots carry no meaning
MEANS = np.array([[0.3, -0.6, 0.1], [0.0, 0.8, -0.4], [-0.5, 0.2, 0.6]])
HIDDEN = np.array([[True, False, False], [True, True, True], [True, True, True]])


def conditionals(prior, *, weight_mean=0.0, num_fixed=0, observed=None, forget_singletons=False):
    """Of every V, state and row: chances of flipping each bit, weights of new features and rows."""
    scales = {name: jnp.asarray(value) for name, value in SCALES.items()}
    noise_variance, x = scales["noise_scale"] ** 2, jnp.asarray(X)

    def of_row(v, u, row):
        turned = turn(v, weight_mean=jnp.asarray(weight_mean), num_slots=NUM_SLOTS, **scales)
        old, turned_x = u.astype(float), x @ turned.basis
        gram, cross = old.T @ old, old.T @ turned_x
        others = gram - jnp.outer(old[row], old[row]), cross - jnp.outer(old[row], turned_x[row])
        posterior = turned_posterior(gram, cross, turned)
        counts = jnp.diagonal(gram) - old[row]
        conditional = row_prior(prior, counts, NUM_ROWS, num_fixed=num_fixed)
        alone = jnp.where(counts < 0.5, old[row], 0)
        posterior = bilinear_rows.remove_row(
            posterior, old[row], alone, turned_x[row], turned, lambda _: others
        )
        posterior = bilinear_rows.reset_slots(posterior, counts < 0.5, turned)
        singletons = u[row] & conditional.free
        partial = None
        if observed is not None:
            seen = jnp.asarray(observed)
            grams = bilinear_rows.observed_grams(seen, turned.basis)
            partial = rows_of_bits.PartialRow(x[row], seen[row], grams[row])
        fit = rows_of_bits.row_fit(posterior, u[row] & ~singletons, turned_x[row], turned, partial)
        num_singletons = 0 * jnp.sum(singletons) if forget_singletons else jnp.sum(singletons)
        extra = num_singletons * turned.strength
        with_singletons = rows_of_bits.shifted(fit, num_singletons * turned.prior_mean[-1])
        log_odds = jax.vmap(
            lambda k: rows_of_bits.flip_log_odds(
                with_singletons, k, extra, noise_variance, conditional.log_odds
            )
        )(jnp.arange(NUM_SLOTS))
        candidates = {"rate": conditional.rate, "noise_variance": noise_variance}
        patterns, row_log_weights, _ = whole_row_log_weights(
            fit, turned, conditional, noise_variance=noise_variance
        )
        likelihoods = jax.vmap(
            lambda pattern: rows_of_bits.log_likelihood(
                rows_of_bits.moved(with_singletons, pattern), extra, noise_variance
            )
        )(patterns)
        return {
            "flip": jnp.where(conditional.movable, jax.nn.sigmoid(log_odds), 0),
            "kept": fit.z,
            "free": conditional.free,
            "new": rows_of_bits.new_feature_log_weights(fit, turned, **candidates)[0],
            "row": row_log_weights,
            "patterns": patterns,
            "movable": conditional.movable,
            "log_odds": conditional.log_odds,
            "likelihood": likelihoods,
        }

    over_rows = jax.vmap(of_row, in_axes=(None, None, 0))
    over_states = jax.vmap(over_rows, in_axes=(None, 0, None))
    over_v = jax.jit(jax.vmap(over_states, in_axes=(0, None, None)))
    arguments = jnp.asarray(VS), jnp.asarray(STATES), jnp.arange(NUM_ROWS)
    compiled = over_v.lower(*arguments).compile({"xla_backend_optimization_level": 0})
    tables = jax.device_get(compiled(*arguments))
    return [jax.tree.map(lambda array, v=v: array[v], tables) for v in range(len(VS))]


def posterior_given(side, v, *, weight_mean=0.0, observed=None, num_fixed=0):
    log_joint = side.log_prior + log_likelihood(
        side.z, v, X, weight_mean=weight_mean, observed=observed, **SCALES
    )
    evidence = logsumexp(log_joint)
    return Posterior(side.z, np.exp(log_joint - evidence), evidence, side.left_out, num_fixed > 0)


def check_process(tables, *, whole_rows, rows=range(NUM_ROWS), **settings):
    """Every row's update leaves the posterior of classes invariant, for every V."""
    num_fixed = settings.get("num_fixed", 0)
    side = process_side(NUM_ROWS, NUM_SLOTS - num_fixed, alpha=ALPHA, num_fixed=num_fixed)
    classes = class_indices(bias=num_fixed > 0)
    states = np.flatnonzero(STATES[:, :, :num_fixed].all(axis=(1, 2)))
    for v, table in zip(VS, tables, strict=True):
        exact = exact_over_classes(classes, posterior_given(side, v, **settings))
        matrices = sweep_matrices(table, whole_rows=whole_rows)
        for row in rows:
            lumped, difference = lump(matrices[row], classes, states)
            assert difference < TOLERANCE  # labels do not matter, so it is a kernel over classes
            np.testing.assert_allclose(exact @ lumped, exact, rtol=0, atol=TOLERANCE)


@pytest.mark.tiers(slow=["missing cells"], exhaustive=["complete"])
@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        pytest.param({}, range(NUM_ROWS), marks=pytest.mark.slow),
        ({"weight_mean": MEAN, "num_fixed": 1}, range(NUM_ROWS)),
        # the other rows' cells are as they were imputed: here they have none
        ({"weight_mean": MEAN, "observed": HIDDEN}, [0]),
    ],
    ids=["complete", "prior mean and a given feature", "missing cells"],
)
def test_sweeps_of_the_process_leave_the_posterior_invariant(settings, rows):
    tables = conditionals(IndianBuffet(ALPHA), **settings)
    for whole_rows in (False, True):
        check_process(tables, whole_rows=whole_rows, rows=rows, **settings)


def proposal_matrix(table, row):
    """Subsets of the movable bits proposed from their prior, accepted by their likelihood."""
    matrix = np.zeros((len(STATES), len(STATES)))
    patterns, powers = table["patterns"][0, 0], 2 ** np.arange(NUM_SLOTS)
    for state, z in enumerate(STATES):
        movable, likelihood = table["movable"][state, row], table["likelihood"][state, row]
        kept = table["kept"][state, row]
        chosen_chance = np.where(movable, 0.4, 0.0)
        on = expit(table["log_odds"][state, row])
        now = likelihood[kept @ powers]
        for pattern, value in zip(patterns, likelihood, strict=True):
            # each bit: chosen and proposed so, or left as it is
            chance = chosen_chance * np.where(pattern, on, 1 - on)
            chance = np.prod(chance + (1 - chosen_chance) * (pattern == kept))
            accept = min(1.0, np.exp(value - now))
            target = z.copy()
            target[row] = pattern | (z[row] & ~kept)
            matrix[state, state_index(target[None])[0]] += chance * accept
            matrix[state, state] += chance * (1 - accept)
    return matrix


@pytest.mark.exhaustive
@pytest.mark.slow
def test_proposals_of_several_bits_leave_the_posterior_invariant():
    """Also with features that the row alone has: they stay, and count in the likelihood."""
    table = conditionals(IndianBuffet(ALPHA), weight_mean=MEAN)[0]
    side, classes = process_side(NUM_ROWS, NUM_SLOTS, alpha=ALPHA), class_indices()
    exact = exact_over_classes(classes, posterior_given(side, VS[0], weight_mean=MEAN))
    for row in range(NUM_ROWS):
        lumped, _ = lump(proposal_matrix(table, row), classes, np.arange(len(STATES)))
        np.testing.assert_allclose(exact @ lumped, exact, rtol=0, atol=TOLERANCE)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_sweeps_of_the_finite_model():
    """Labelled features, each with a prior mean of its own; any order will do."""
    tables = conditionals(BetaBernoulli(ALPHA, 1.3, NUM_SLOTS), weight_mean=MEANS)
    side = finite_side(NUM_ROWS, NUM_SLOTS, alpha=ALPHA, concentration=1.3)
    for v, table in zip(VS, tables, strict=True):
        posterior = posterior_given(side, v, weight_mean=MEANS)
        exact = np.zeros(len(STATES))
        exact[state_index(posterior.z)] = posterior.probability
        for whole_rows in (False, True):
            for matrix in sweep_matrices(table, orders=LEFT_TO_RIGHT, whole_rows=whole_rows):
                np.testing.assert_allclose(exact @ matrix, exact, rtol=0, atol=TOLERANCE)


@pytest.mark.slow
def test_faults_are_seen():
    """Singletons forgotten while the bits are drawn; bits scanned from left to right."""
    side, classes = process_side(NUM_ROWS, NUM_SLOTS, alpha=ALPHA), class_indices()
    exact = exact_over_classes(classes, posterior_given(side, VS[0]))
    table = conditionals(IndianBuffet(ALPHA), forget_singletons=True)[0]
    lumped, _ = lump(sweep_matrices(table)[0], classes, np.arange(len(STATES)))
    assert np.abs(exact @ lumped - exact).max() > 1e-4
    table = conditionals(IndianBuffet(ALPHA))[0]
    for orders, at_least in ((RANDOM_ORDER, None), (LEFT_TO_RIGHT, 1e-4)):
        sweep = np.linalg.multi_dot(sweep_matrices(table, orders=orders))
        found = np.bincount(classes, weights=stationary_distribution(sweep))
        total_variation = 0.5 * np.abs(found - exact).sum()
        print(f"total variation {total_variation:.2e}")
        if at_least is None:
            assert total_variation < 1e-10
        else:
            assert total_variation > at_least


def test_there_are_patterns_for_every_state():
    """The patterns of whole rows are numbered by their binary digits, as the proposals assume."""
    patterns = np.asarray(feature_rows.all_patterns(NUM_SLOTS))
    digits = list(itertools.product([False, True], repeat=NUM_SLOTS))
    np.testing.assert_array_equal(patterns[:, ::-1], digits)
