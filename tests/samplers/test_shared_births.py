"""Births and deaths of shared features: transition matrices, joint distributions, broken twins."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf.models.linear_gaussian import LinearGaussianIBP
from jaxmf.models.linear_gaussian.updates import update_by_shared_births
from jaxmf.models.noisy_or import NoisyOrIBP
from jaxmf.models.noisy_or.updates import propose
from jaxmf.priors.features import BetaBernoulli, IndianBuffet
from jaxmf.samplers import shared_births as moves
from jaxmf.samplers.noisy_or import informed
from jaxmf.samplers.split_merge import empty_slots, log_slot_choices
from jaxmf.samplers.split_merge_gaussian import linear_gaussian_columns
from jaxmf.testing import check_prior
from tests import FAST_COMPILE
from tests.models import test_noisy_or_kernels as noisy_or
from tests.models.test_linear_gaussian_exact_kernel import (
    FINITE,
    NUM_ROWS,
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
from tests.models.test_linear_gaussian_kernels import FIXED, Setup
from tests.support.containers import without_cells

COLUMNS = np.array(list(itertools.product([False, True], repeat=NUM_ROWS)))


@partial(jax.jit, static_argnames="num_fixed")
def compiled_flows(prior, rest, *, num_fixed):
    """Of matrices R (S, N, K): log chances of births and of deaths of every column.

    births (S, 8): of being proposed and accepted. deaths (S, 8): the same once the column is
    picked. choices (S, 8): of picking that column in R + c.
    """
    likelihood = linear_gaussian_columns(
        jnp.asarray(X),
        noise_scale=jnp.asarray(SETTINGS["noise_scale"]),
        feature_scale=jnp.asarray(SETTINGS["feature_scale"]),
    )

    def of_rest(rest):
        fixed = likelihood.start(rest)
        log_picks = moves.log_pick_probabilities(fixed, likelihood, NUM_ROWS)
        empty = empty_slots(prior, rest, num_fixed=num_fixed).num_features
        others = jnp.sum(moves.death_weights(rest, num_fixed=num_fixed))

        def of_path(row, num_joining, through, column):
            """One row, one launch and one column between: log chances, and log A of what comes."""
            held = jnp.arange(NUM_ROWS) == row
            first = moves.first_column(held, num_joining, fixed, likelihood)
            log_odds = partial(moves.joining_log_odds, prior=prior, likelihood=likelihood)
            log_through = moves.log_pass_probability(through, held, log_odds(first, fixed))
            log_q = moves.log_pass_probability(column, held, log_odds(through, fixed))
            log_held = jax.nn.logsumexp(jnp.where(column, log_picks, -jnp.inf))
            log_ratio = moves.log_gain(column, fixed, prior=prior, likelihood=likelihood)
            log_ratio += moves.log_death_choice(column, others) - log_q - log_held
            log_ratio += log_slot_choices(empty, empty >= 0)
            shares = jnp.log(jnp.arange(1.0, NUM_ROWS + 1)) / jnp.log(float(NUM_ROWS))
            log_joining = jnp.log(jnp.diff(shares))[num_joining]
            possible = through[row] & column[row] & (jnp.sum(column) > 1)
            log_path = log_through + log_joining + log_picks[row]
            birth = log_path + log_q + jnp.minimum(0, log_ratio)
            death = log_path - log_held + jnp.minimum(0, -log_ratio)
            return jnp.where(possible, birth, -jnp.inf), jnp.where(possible, death, -jnp.inf)

        every = jnp.arange(NUM_ROWS), jnp.arange(NUM_ROWS - 1), jnp.asarray(COLUMNS)
        paths = of_path
        for axis in (2, 1, 0):
            in_axes = [None] * 4
            in_axes[axis] = 0
            paths = jax.vmap(paths, in_axes=tuple(in_axes))

        def of_column(column):
            flows = paths(*every, column)
            births, deaths = (jax.nn.logsumexp(flow) for flow in flows)
            return births, deaths, moves.log_death_choice(column, others)

        return jax.vmap(of_column)(jnp.asarray(COLUMNS))

    return jax.vmap(of_rest)(rest)


def transition_matrix(prior, *, num_fixed=0, twin=None):
    """Of one proposal over all states; a birth into full slots is refused."""
    finite = isinstance(prior, BetaBernoulli)
    births, deaths, choices = map(np.exp, compiled_flows(prior, STATES, num_fixed=num_fixed))
    if twin == "any row":
        births = births / 2
    matrix = np.zeros((len(STATES), len(STATES)))
    for state, z in enumerate(STATES):
        free = [slot for slot in range(num_fixed, NUM_SLOTS) if not z[:, slot].any()]
        for slot in free if finite else free[:1]:
            for index, column in enumerate(COLUMNS):
                target = z.copy()
                target[:, slot] = column
                share = 1 / len(free) if finite else 1
                matrix[state, state_index(target[None])[0]] += share * births[state, index] / 2
        for slot in range(num_fixed, NUM_SLOTS):
            rest = z.copy()
            rest[:, slot] = False
            if z[:, slot].sum() > 1:
                after = state_index(rest[None])[0]
                index = z[:, slot] @ np.array([4, 2, 1])
                matrix[state, after] += deaths[after, index] * choices[after, index] / 2
        matrix[state, state] += 1 - matrix[state].sum()
    return matrix


def difference_over_classes(concentration=1.0, twin=None):
    matrix = transition_matrix(IndianBuffet(SETTINGS["alpha"], concentration), twin=twin)
    lumped, exact = over_classes(matrix, concentration)
    assert lumped.min() >= 0
    assert 1 - exact @ np.diag(lumped) > 0.02, "the move hardly ever moves"
    return np.abs(exact @ lumped - exact).max()


@pytest.mark.tiers(exhaustive=["1.0"])
@pytest.mark.parametrize("concentration", [1.0, 0.4])
def test_a_birth_or_death_leaves_the_posterior_of_the_process_invariant(
    concentration, double_precision
):
    assert difference_over_classes(concentration) < TOLERANCE


def test_births_that_are_too_few_are_seen(double_precision):
    assert difference_over_classes(twin="any row") > 1e-3


def test_a_birth_or_death_in_the_finite_model(double_precision):
    check_in_the_finite_model(transition_matrix(FINITE))


def test_a_birth_or_death_beside_a_bias_feature(double_precision):
    check_with_a_bias_feature(transition_matrix(IndianBuffet(SETTINGS["alpha"]), num_fixed=1))


# --- joint distributions -------------------------------------------------------------------------


def births_and_deaths(key, z, *, num_proposals, num_fixed=0, **parts):
    """Some proposals: z, whether a slot was missing, and how many were accepted."""

    def once(index, carry):
        z, overflow, num_accepted = carry
        proposal = moves.propose(jax.random.fold_in(key, index), z, num_fixed=num_fixed, **parts)
        return proposal.z, overflow | proposal.overflow, num_accepted + proposal.accepted

    start = (z, jnp.zeros((), bool), jnp.zeros((), jnp.int32))
    return jax.lax.fori_loop(0, num_proposals, once, start)


@pytest.mark.tiers(exhaustive=["{'num_features': 4}"])
@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"bias": True}, {"num_features": 4}], ids=str)
def test_births_and_deaths_alone_agree_with_fresh_data(settings):
    model = LinearGaussianIBP(concentration=1.4, **FIXED, **settings)
    setup = Setup(model, missing=False)
    kernel = partial(update_by_shared_births, model, num_proposals=4)
    setup.check(kernel, key=jax.random.key(70), num_replicates=4_096)


def causes_kernel(model):
    return lambda key, state, data: propose(
        model, informed.birth_or_death, key, state, 4, data=data
    )[:2]


@pytest.mark.exhaustive
@pytest.mark.parametrize("settings", [{}, {"num_features": 4}], ids=["process", "finite"])
def test_births_and_deaths_of_causes_agree_with_fresh_data(settings):
    model = NoisyOrIBP(concentration=1.4, **noisy_or.FIXED, **settings)
    noisy_or.Setup(model).check(causes_kernel(model), key=jax.random.key(72), num_steps=5)


@pytest.mark.tiers(exhaustive=["log_pass_probability"])
@pytest.mark.slow
@pytest.mark.parametrize("forgotten", ["log_death_choice", "log_pass_probability"])
def test_a_forgotten_factor_is_caught(forgotten, monkeypatch):
    monkeypatch.setattr(moves, forgotten, lambda *arguments: jnp.zeros(()))
    # several causes that can die, so that W matters
    model = NoisyOrIBP(concentration=1.4, **noisy_or.FIXED | {"alpha": 1.5})
    setup = noisy_or.Setup(model, False, 32)
    noisy_or.must_fail(setup, causes_kernel(model), num_replicates=4_096, num_steps=3)


@pytest.mark.exhaustive
def test_the_prior_comes_back_without_observed_cells():
    """The features that come and go are those of the prior, and so is their activity."""
    model = NoisyOrIBP(**noisy_or.PRIORS)
    setup = noisy_or.Setup(model)
    check_prior(
        causes_kernel(model),
        sample_prior=setup.sample_prior,
        data=without_cells((4, 3), 1.0),
        statistics=setup.statistics,
        key=jax.random.key(74),
        compiler_options=FAST_COMPILE,
        num_steps=5,
    )


# --- structure -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_more_slots_change_nothing(double_precision):
    z = jnp.asarray(np.random.default_rng(0).random((6, 3)) < 0.5)
    x = jnp.asarray(np.random.default_rng(1).normal(size=(6, 2)))
    likelihood = linear_gaussian_columns(
        x, noise_scale=jnp.asarray(0.5), feature_scale=jnp.asarray(1.0)
    )

    @jax.jit
    def many(z):
        return births_and_deaths(
            jax.random.key(0), z, prior=IndianBuffet(2.0), likelihood=likelihood, num_proposals=40
        )

    (small, _, accepted), (large, _, again) = (
        many(jnp.pad(z, ((0, 0), (0, more)))) for more in (20, 40)
    )
    assert accepted > 0
    assert accepted == again
    np.testing.assert_array_equal(np.pad(small, ((0, 0), (0, 20))), large)


@pytest.mark.slow
def test_nothing_to_die_and_fixed_features_stay():
    z = np.zeros((5, 6), bool)
    z[:, 0] = True
    z[2, 1] = True  # of one row alone: the sweep's
    x = jnp.asarray(np.random.default_rng(1).normal(size=(5, 2)))
    likelihood = linear_gaussian_columns(
        x, noise_scale=jnp.asarray(0.5), feature_scale=jnp.asarray(1.0)
    )
    after, _, _ = jax.jit(partial(births_and_deaths, num_proposals=30, num_fixed=1))(
        jax.random.key(3), z, prior=IndianBuffet(1.0), likelihood=likelihood
    )
    np.testing.assert_array_equal(after[:, :2], z[:, :2])
    counts = np.asarray(after)[:, 2:].sum(axis=0)
    assert not (counts == 1).any()
