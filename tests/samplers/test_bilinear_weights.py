"""Weights of X = U W V' + noise given cells of which some are missing, in single precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf.samplers.bilinear import weights as weight_moves
from jaxmf.samplers.bilinear.weight_prior import WeightPrior

NUM_ROWS, NUM_COLUMNS = 40, 30


def dependent(random, num_lines):
    """Features (M, 5) of which the last two follow from the others."""
    some = random.random((num_lines, 3)) < 0.4
    return np.column_stack([some, some[:, 0] & ~some[:, 1], some[:, 0] & some[:, 1]])


def exact(u, v, x, observed, noise, scale, *, diagonal):
    """Mean and covariance of vec W in 64 bits."""
    i, j = np.nonzero(observed)
    design = (
        (u[i] * v[j]) if diagonal else (u[i][:, :, None] * v[j][:, None, :]).reshape(i.size, -1)
    ).astype(float)
    covariance = np.linalg.inv(design.T @ design / noise**2 + np.eye(design.shape[1]) / scale**2)
    return design, covariance @ (design.T @ x[i, j]) / noise**2, covariance


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("noise", [0.3, 0.01, 0.001])
def test_weights_of_features_that_depend_on_each_other(diagonal, noise):
    """Cells have the mean and the variance of 64 bits, where a ridge is less than a rounding."""
    random = np.random.default_rng(5)
    u, v = dependent(random, NUM_ROWS), dependent(random, NUM_COLUMNS)
    x = u @ random.normal(size=(5, 5)) @ v.T + noise * random.normal(size=(NUM_ROWS, NUM_COLUMNS))
    observed = random.random(x.shape) < 0.8
    x = np.float32(x).astype(float)  # of what both are given
    design, mean, covariance = exact(u, v, x, observed, noise, 1.0, diagonal=diagonal)

    precision = jnp.where(observed, jnp.float32(noise**-2), 0)
    terms = weight_moves.NormalTerms(precision, precision * jnp.asarray(x, jnp.float32))
    one = jnp.float32(1)
    prior = WeightPrior(mean=0 * one, scale=one, shape=one, rate=one, diagonal=diagonal)
    found, factor = jax.jit(
        lambda u, v: weight_moves.weight_conditional(u, v, terms, weight_prior=prior)
    )(jnp.asarray(u), jnp.asarray(v))
    found = np.diagonal(found) if diagonal else np.asarray(found).ravel()
    half = np.linalg.solve(np.asarray(factor, float), design.T)
    sd = np.sqrt(np.sum((design @ covariance) * design, axis=1))

    assert np.abs(design @ (found - mean)).max() < 0.02 * noise + 1e-4
    np.testing.assert_allclose(np.sqrt(np.sum(half**2, axis=0)), sd, rtol=0.02)
    inverse = np.linalg.inv(np.asarray(factor, float))
    sds = np.sqrt(np.sum(inverse**2, axis=0)), np.sqrt(np.diagonal(covariance))
    np.testing.assert_allclose(*sds, rtol=0.05)
