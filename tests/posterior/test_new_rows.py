"""Bits of a row that was not in training, against the distribution they are drawn from."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.special import softmax

import jaxmf as mf
from jaxmf.posterior import prediction
from jaxmf.samplers import new_rows
from jaxmf.testing import check_means

FIELD = np.array([0.7, -0.4, 3.0, 0.2, -5.0])
COUPLING = 1.5
ALWAYS_ON = np.array([False, False, False, True, False])
MOVABLE = np.array([True, True, True, False, False])


def log_density(z):
    """Five bits in a field, neighbours alike."""
    return jnp.sum(z * jnp.asarray(FIELD, float)) + COUPLING * jnp.sum(z[1:] & z[:-1])


def exact():
    """Means of the bits and of products of neighbours, over the settings allowed."""
    z = np.array(list(itertools.product([False, True], repeat=5)))
    z = z[((z == ALWAYS_ON) | MOVABLE).all(axis=1)]
    weights = softmax(z @ FIELD + COUPLING * (z[:, 1:] & z[:, :-1]).sum(axis=1))
    return weights @ z, weights @ (z[:, 1:] & z[:, :-1])


def drawn(num_draws=20_000):
    def draw(key):
        return new_rows.draw_bits(
            key, log_density, jnp.asarray(MOVABLE), always_on=jnp.asarray(ALWAYS_ON)
        )

    z, probabilities = jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), num_draws))
    assert (np.asarray(z)[:, ~MOVABLE] == ALWAYS_ON[~MOVABLE]).all()
    return {"bits": z, "pairs": z[:, 1:] & z[:, :-1], "probabilities": probabilities}


def test_all_settings_are_enumerated():
    bits, pairs = exact()
    found = drawn()
    np.testing.assert_allclose(found.pop("probabilities")[0], bits, rtol=1e-5, atol=1e-6)
    check_means(found, {"bits": bits, "pairs": pairs}, max_standard_error=0.004)


@pytest.mark.slow
def test_many_bits_by_gibbs_sweeps(monkeypatch):
    monkeypatch.setattr(new_rows, "_MOST_ENUMERATED", 4)
    bits, pairs = exact()
    exact_means = {"bits": bits, "pairs": pairs, "probabilities": bits}
    check_means(drawn(), exact_means, max_standard_error=0.004)


def test_blocks_of_rows_are_one_program():
    """A last block of another size would be a second copy of the function in the program."""

    def function(key, row):
        return row + 1, jnp.sum(row), key

    rows, key = jnp.arange(46.0).reshape(23, 2), jax.random.key(0)
    lowered = jax.jit(lambda rows: new_rows.over_rows(function, key, rows))
    more, sums, keys = lowered(rows)
    np.testing.assert_array_equal(more, rows + 1)
    np.testing.assert_array_equal(sums, rows.sum(axis=1))
    assert keys[22] == jax.random.fold_in(key, 22)
    assert lowered.lower(rows).as_text().count("stablehlo.reduce") == 1
    for few in (1, 16):
        found, *_ = new_rows.over_rows(function, key, rows[:few])
        np.testing.assert_array_equal(found, rows[:few] + 1)


def test_one_program_draws_however_often_a_draw_is_taken(caplog):
    """Particles of unequal weights are taken 1, 2, 5, 40 times; more than 16 in several calls."""
    model = mf.FeatureModel(
        likelihood=mf.Gaussian(1.0), feature_prior=dist.Normal(0.0, 1.0).expand([3]).to_event(1)
    )
    rng = np.random.default_rng(0)
    draws = {"z": rng.random((4, 6, 2)) < 0.5, "y": rng.normal(size=(4, 2, 3))}
    cells = np.array([0, 1, 5]), np.array([0, 2, 1])
    data = mf.Dense(rng.normal(size=(6, 3)))
    sample = prediction.model_draws(model, data, draws, cells, 7)
    caplog.clear()
    with jax.log_compiles(), caplog.at_level("WARNING", logger="jax"):
        found = [sample(index, count) for index, count in enumerate((1, 2, 5, 40))]
    compiled = [r.getMessage() for r in caplog.records if "Finished XLA comp" in r.getMessage()]
    assert sum("_sampled_cells" in message for message in compiled) == 1
    assert [each.shape for each in found] == [(1, 3), (2, 3), (5, 3), (40, 3)]
    key = jax.random.fold_in(jax.random.key(7), 3)
    draw = {name: values[3] for name, values in draws.items()}
    for index in (0, 15, 16, 39):
        expected = model.draw_cells(jax.random.fold_in(key, index), draw, data, *cells)
        np.testing.assert_allclose(found[3][index], expected, rtol=1e-5)
