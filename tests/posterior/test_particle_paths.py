"""Particles of a filter with one path in common: how much they should differ, and the alarm."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf
from jaxmf.posterior import particle_paths
from jaxmf.posterior.records import Meta
from jaxmf.results import Posterior

ROWS, COLUMNS, PARTICLES = 40, 12, 60
Y = np.kron(np.eye(2), np.ones((1, COLUMNS // 2))).astype(bool)


def filtered(*, efficacy, leak, spread=0.0, first=0):
    """A filter's posterior on cells of two causes.

    Each particle has `spread` of the rows from `first` on anew.
    """
    random = np.random.default_rng(0)
    z = random.random((ROWS, 2)) < 0.4
    x = random.random((ROWS, COLUMNS)) < 1 - (1 - leak) * (1 - efficacy) ** (z @ Y.astype(int))
    differs = random.random((PARTICLES, ROWS, 1)) < spread
    differs[:, :first] = False
    draws = {
        "z": np.where(differs, random.random((PARTICLES, ROWS, 2)) < 0.4, z)[None],
        "y": np.broadcast_to(Y, (1, PARTICLES, *Y.shape)),
        "log_joint": np.zeros((1, PARTICLES)),
    }
    model = mf.NoisyOrIBP(alpha=1.0, cause_probability=0.5, efficacy=efficacy, leak=leak)
    for name in ("alpha", "concentration", "cause_probability", "efficacy", "leak"):
        draws[name] = np.full((1, PARTICLES), getattr(model, name), np.float32)
    meta = Meta("particle_filter", 0, {}, {"num_particles": PARTICLES}, {}, "", 1.0, 1.0, True, {})
    data = mf.Dense.from_array(jnp.asarray(x, jnp.float32))
    return Posterior(model, data, draws, meta, particle_log_weights=np.zeros((1, PARTICLES)))


def test_the_doubt_of_a_row_is_that_of_its_features_changed_one_at_a_time():
    post = filtered(efficacy=0.5, leak=0.2)
    x, z = np.asarray(post.data.values), post.draws["z"][0, 0]
    rows = np.array([3, 8, 30])
    known = (*(part.ravel() for part in np.indices(x.shape)), x.ravel())
    draw = {name: values[0, 0] for name, values in post.draws.items()}
    found = particle_paths._conditional_doubt(post, draw, known, rows)
    for row, doubt in zip(rows, found, strict=True):
        others = np.delete(z, row, axis=0).sum(axis=0) + 0.5
        density = []
        for change in ((0, 0), (1, 0), (0, 1)):
            features = z[row] ^ np.array(change, bool)
            on = 1 - 0.8 * 0.5 ** (features @ Y.astype(int))
            prior = np.where(features, others, ROWS - others)
            density.append(np.prod(np.where(x[row] == 1, on, 1 - on)) * np.prod(prior))
        np.testing.assert_allclose(doubt, 1 - density[0] / np.sum(density), rtol=1e-4)


@pytest.mark.parametrize(
    ("settings", "raises"),
    [
        ({"efficacy": 0.5, "leak": 0.2}, True),
        ({"efficacy": 0.5, "leak": 0.2, "spread": 0.6, "first": ROWS // 2}, True),
        ({"efficacy": 0.5, "leak": 0.2, "spread": 0.6}, False),
        ({"efficacy": 0.95, "leak": 0.01}, False),
    ],
    ids=["one path", "later rows differ", "particles that differ", "nothing to doubt"],
)
def test_particles_with_one_path_are_said_where_features_may_be_others(settings, raises):
    post = filtered(**settings)
    assert ("particles" in [alarm.kind for alarm in post.alarms()]) == raises
    doubt = post.path_degeneracy()
    is_one_path = "spread" not in settings or "first" in settings
    assert (doubt.among_particles < 1e-9) == is_one_path


def summed_out(*, wrong, noise=0.5, empty=()):
    """A filter's posterior of one path whose features of some rows are wrong; the weights are not
    in it."""
    random = np.random.default_rng(1)
    z = random.random((ROWS, 3)) < 0.4
    z[:, 0] = True  # the bias
    x = z @ random.normal(0, 2, (3, COLUMNS)) + noise * random.normal(size=(ROWS, COLUMNS))
    z[:wrong, 1] ^= True
    x[list(empty)] = np.nan
    scales = {"alpha": 1.0, "noise_scale": noise, "feature_scale": 2.0}
    draws = {"z": np.broadcast_to(z, (1, PARTICLES, *z.shape)), "concentration": 1.0} | scales
    draws = {
        name: np.broadcast_to(x, (1, PARTICLES, *np.shape(x)[2:])) for name, x in draws.items()
    }
    draws["log_joint"] = np.zeros((1, PARTICLES))
    model = mf.LinearGaussianIBP(**scales, bias=True, offset=0, column_unit=1, column_noise=False)
    meta = Meta("particle_filter", 0, {}, {"num_particles": PARTICLES}, {}, "", 1.0, 1.0, True, {})
    data = mf.Dense.from_array(jnp.asarray(x, jnp.float32))
    return Posterior(model, data, draws, meta, particle_log_weights=np.zeros((1, PARTICLES)))


def test_the_doubt_of_a_row_counts_what_its_features_say_of_weights_that_are_summed_out():
    post = summed_out(wrong=4, noise=6.0)
    x, z = np.asarray(post.data.values, float), post.draws["z"][0, 0]
    known = (*(part.ravel() for part in np.indices(x.shape)), x.ravel())
    draw = {name: values[0, 0] for name, values in post.draws.items()}
    for row in (2, 30):
        others = np.delete(z, row, axis=0).sum(axis=0) + 0.5
        density = []
        for change in ((0, 0, 0), (0, 1, 0), (0, 0, 1)):
            changed = z.copy()
            changed[row] ^= np.array(change, bool)
            covariance = 36 * np.eye(ROWS) + 4 * changed.astype(float) @ changed.T
            prior = np.where(changed[row], others, ROWS - others)[1:]
            density.append(
                np.log(prior).sum()
                - 0.5 * COLUMNS * np.linalg.slogdet(covariance)[1]
                - 0.5 * np.sum(x * np.linalg.solve(covariance, x))
            )
        weights = np.exp(density - np.max(density))
        found = particle_paths._conditional_doubt(post, draw, known, np.array([row]))
        assert 0.01 < found[0] < 0.99
        np.testing.assert_allclose(found, 1 - weights[0] / weights.sum(), rtol=1e-3)


@pytest.mark.parametrize("wrong", [0, 4])
def test_wrong_features_of_early_rows_are_said_where_weights_are_summed_out(wrong):
    post = summed_out(wrong=wrong)
    assert ("particles" in [alarm.kind for alarm in post.alarms()]) == (wrong > 0)


@pytest.mark.filterwarnings("ignore:data. .* rows have no observed cell")
def test_rows_without_cells_are_passed_over():
    assert summed_out(wrong=0, empty=range(3, 9)).path_degeneracy().num_rows == ROWS // 2 - 6
    assert summed_out(wrong=0, empty=range(ROWS // 2)).path_degeneracy() is None
