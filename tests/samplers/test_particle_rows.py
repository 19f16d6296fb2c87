"""Particle Gibbs of one row: its transition matrix, an exact draw where nothing is left out, twins.

The order of the bits and the test path are fixed numbers here: the kernel must be right for each.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf.samplers import particle_rows
from jaxmf.samplers.particle_rows import RowUniforms
from tests import FAST_COMPILE

pytestmark = pytest.mark.usefixtures("double_precision")

NUM_SLOTS = 4
MOVABLE = np.array([True, True, False, True])
LOG_ODDS = np.array([-0.4, 0.3, 5.0, 0.8])
# bits that fit together: from one set of features to another through rows that fit badly
LOG_LIKELIHOODS = np.array([0.0, -4.0, -3.5, 1.2, -5.0, -0.7, 0.9, -2.5])
# rows without a likelihood, and one far below the lowest value of the targets before the last
IMPOSSIBLE = np.array([0.0, -np.inf, -np.inf, -np.inf, -5_000.0, -np.inf, -np.inf, 1.0])
PATTERNS = np.array(list(itertools.product([False, True], repeat=3)))
POWERS = np.array([4, 2, 0, 1])
STARTS = np.insert(PATTERNS, 2, True, axis=1)
TOLERANCE = 1e-12


def conditional(log_likelihoods):
    """The distribution of the row, written out."""
    log_weights = log_likelihoods + PATTERNS @ LOG_ODDS[MOVABLE]
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def compile_transitions(num_particles):
    """(uniforms, rows, log likelihoods) -> the distributions of the next rows, vectorised."""

    def transition(uniforms, z, log_likelihoods):
        target = particle_rows.target_of_bits(lambda bits: log_likelihoods[bits @ POWERS])
        children = particle_rows.run_particles(
            uniforms,
            z,
            target,
            prior_log_odds=jnp.asarray(LOG_ODDS),
            movable=jnp.asarray(MOVABLE),
            num_particles=num_particles,
        )
        reached = jnp.zeros(8).at[children.rows.z @ POWERS]
        return reached.add(jax.nn.softmax(children.log_weight))

    return jax.jit(jax.vmap(transition, in_axes=(0, 0, None)), compiler_options=FAST_COMPILE)


transitions = functools.cache(compile_transitions)


def uniforms_with(seed, resample):
    """A fixed order and test path; resample (B,) is for the last bit, the first with a choice."""
    order, path = np.random.default_rng(seed).random((2, NUM_SLOTS))
    others = np.full((len(resample), NUM_SLOTS), 0.5)
    others[:, np.argmax(np.where(MOVABLE, order, -1))] = resample
    order, path = (np.broadcast_to(each, others.shape) for each in (order, path))
    return RowUniforms(order, path, others, np.zeros(len(others)))


def integral(function, num_cells=48, num_halvings=48):
    """Of a piecewise constant function of uniforms (B,): cells with a jump in them are halved."""
    left = np.linspace(0, 1, num_cells + 1)[:-1]
    width, total = 1 / num_cells, 0.0
    for _ in range(num_halvings):
        points = np.full(2 * num_cells, 0.5)  # of one length: compiled once
        points[: len(left)], points[num_cells : num_cells + len(left)] = left, left + width
        values = function(np.minimum(points, 1 - 1e-16))
        begin, end = values[: len(left)], values[num_cells : num_cells + len(left)]
        jumps = np.any(begin != end, axis=1)
        total = total + width * begin[~jumps].sum(axis=0)
        width = width / 2
        left = np.concatenate([left[jumps], left[jumps] + width])
    return total


def matrix_of(run, seed, log_likelihoods):
    """The transition matrix (8, 8) with one order and one test path."""

    def row(z):
        def function(resample):
            rows = np.broadcast_to(z, (len(resample), NUM_SLOTS))
            return np.asarray(run(uniforms_with(seed, resample), rows, log_likelihoods))

        return integral(function)

    return np.array([row(z) for z in STARTS])


@pytest.mark.tiers(exhaustive=["impossible"])
@pytest.mark.parametrize("log_likelihoods", [LOG_LIKELIHOODS, IMPOSSIBLE], ids=["", "impossible"])
def test_the_conditional_distribution_of_a_row_stays_invariant(log_likelihoods):
    exact = conditional(log_likelihoods)
    possible = exact > 0
    for seed in range(3):
        matrix = matrix_of(transitions(2), seed, log_likelihoods)
        np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=TOLERANCE)
        np.testing.assert_allclose(exact @ matrix, exact, rtol=0, atol=TOLERANCE)
        assert np.all(matrix[np.ix_(possible, ~possible)] == 0)
        assert matrix.diagonal()[possible].max() < 1  # it does move


def test_with_a_particle_for_every_row_it_is_an_independent_draw():
    rows = transitions(4)(uniforms_with(0, np.full(8, 0.3)), STARTS, LOG_LIKELIHOODS)
    np.testing.assert_allclose(rows, np.tile(conditional(LOG_LIKELIHOODS), (8, 1)), atol=TOLERANCE)


def _forget_in_shift(monkeypatch):
    """The others are chosen as if the present row were not among the children."""
    monkeypatch.setattr(particle_rows, "_shift", lambda uniform, begin, end: uniform)


def _lose_retained(monkeypatch):
    """The heaviest child is kept in place of the present row."""
    right = particle_rows._resample

    def twin(uniform, log_weight, retained, num):
        return right(uniform, log_weight, jnp.argmax(log_weight).astype(jnp.int32), num)

    monkeypatch.setattr(particle_rows, "_resample", twin)


@pytest.mark.parametrize("break_it", [_forget_in_shift, _lose_retained])
def test_broken_twins_are_seen(monkeypatch, break_it):
    break_it(monkeypatch)
    matrix, exact = (
        matrix_of(compile_transitions(2), 0, LOG_LIKELIHOODS),
        conditional(LOG_LIKELIHOODS),
    )
    np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=TOLERANCE)
    deviation = np.abs(exact @ matrix - exact).max()
    print(f"largest deviation {deviation:.1e}")
    assert deviation > 1e-3


# --- several resamplings in a row -----------------------------------------------------------------

NUM_BITS = 6
ALL_ROWS = np.array(list(itertools.product([False, True], repeat=NUM_BITS)))


def largest_z(num_particles, num_rows=100_000):
    """How far rows drawn after exact rows are from exact rows, in standard errors.

    With 2 particles all bits but the first two are decided after a resampling that leaves some out.
    """
    rng = np.random.default_rng(5)
    log_odds, log_likelihoods = rng.normal(size=NUM_BITS), 2 * rng.normal(size=len(ALL_ROWS))
    powers = 2 ** np.arange(NUM_BITS)[::-1]
    weights = np.exp(log_likelihoods + ALL_ROWS @ log_odds)
    exact = weights / weights.sum()

    def transition(key, z):
        children = particle_rows.run_particles(
            particle_rows.draw_uniforms(key, NUM_BITS),
            z,
            particle_rows.target_of_bits(lambda bits: jnp.asarray(log_likelihoods)[bits @ powers]),
            prior_log_odds=jnp.asarray(log_odds),
            movable=jnp.ones(NUM_BITS, bool),
            num_particles=num_particles,
        )
        reached = jnp.zeros(len(ALL_ROWS)).at[children.rows.z @ powers]
        return reached.add(jax.nn.softmax(children.log_weight))

    rows = ALL_ROWS[rng.choice(len(ALL_ROWS), num_rows, p=exact)]
    run = jax.jit(jax.vmap(transition), compiler_options=FAST_COMPILE)
    found = np.asarray(run(jax.random.split(jax.random.key(3), num_rows), rows))
    return np.abs((found.mean(axis=0) - exact) / found.std(axis=0) * num_rows**0.5).max()


@pytest.mark.exhaustive
@pytest.mark.parametrize("num_particles", [2, 5])
def test_many_resamplings_keep_the_conditional_distribution(num_particles):
    assert largest_z(num_particles) < 5  # of 64 normal deviates: 4e-5


@pytest.mark.slow
def test_weights_that_forget_how_likely_a_choice_was_are_seen(monkeypatch):
    right = particle_rows._resample

    def twin(uniform, log_weight, retained, num):
        chosen, log_new, retained = right(uniform, log_weight, retained, num)
        return chosen, jnp.where(jnp.isfinite(log_new), log_weight[chosen], -jnp.inf), retained

    monkeypatch.setattr(particle_rows, "_resample", twin)
    assert largest_z(2) > 8
