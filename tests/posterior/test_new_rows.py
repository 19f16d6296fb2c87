"""Bits of a row that was not in training, against the distribution they are drawn from."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import softmax

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


def test_many_bits_by_gibbs_sweeps(monkeypatch):
    monkeypatch.setattr(new_rows, "_MOST_ENUMERATED", 4)
    bits, pairs = exact()
    exact_means = {"bits": bits, "pairs": pairs, "probabilities": bits}
    check_means(drawn(), exact_means, max_standard_error=0.004)
