"""Polya-Gamma draws against moments, Laplace transform and symmetry of their distribution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf.samplers import polya_gamma as module
from jaxmf.samplers.polya_gamma import mean_polya_gamma, polya_gamma
from jaxmf.testing import check_means

TILTS = np.array([0.0, 0.3, 1.0, 2.5, 3.1, 3.2, 5.0, 12.0, 40.0])
NUM_DRAWS = 50_000


def laplace_transform(t, z):
    """E exp(-t omega) = cosh(z/2) / cosh(sqrt((z^2/2 + t) / 2))."""
    return np.cosh(z / 2) / np.cosh(np.sqrt((z**2 / 2 + t) / 2))


def moments(z):
    """Mean and variance of PG(1, z)."""
    if z == 0:
        return 1 / 4, 1 / 24
    mean = np.tanh(z / 2) / (2 * z)
    # (sinh z - z) / (4 z^3 cosh^2(z/2)), without overflow
    variance = (2 * np.tanh(z / 2) - z / np.cosh(z / 2) ** 2) / (4 * z**3)
    return mean, variance


def samples_and_exact(key):
    z = jnp.asarray(np.tile(TILTS, (NUM_DRAWS, 1)), jnp.result_type(float))
    draws = np.asarray(jax.jit(lambda key, z: polya_gamma(key, z))(key, z), np.float64)
    mean, variance = np.array([moments(z) for z in TILTS]).T
    # each in units of its own size, so that the largest spread does not hide the others
    samples = {
        "mean": draws / mean,
        "variance": (draws - mean) ** 2 / variance,
        "Laplace transform at 1": np.exp(-draws),
        "Laplace transform at 20": np.exp(-20 * draws) / laplace_transform(20, TILTS),
    }
    exact = {
        "mean": np.ones_like(TILTS),
        "variance": np.ones_like(TILTS),
        "Laplace transform at 1": laplace_transform(1, TILTS),
        "Laplace transform at 20": np.ones_like(TILTS),
    }
    return draws, samples, exact


def test_moments_and_laplace_transform():
    draws, samples, exact = samples_and_exact(jax.random.key(1))
    assert (draws > 0).all()
    print(check_means(samples, exact, title="PG(1, z)"))


def test_a_wrong_tilt_is_caught(monkeypatch):
    """z instead of z / 2."""
    right = module._attempt
    monkeypatch.setattr(module, "_attempt", lambda key, half: right(key, 2 * half))
    _, samples, exact = samples_and_exact(jax.random.key(1))
    with pytest.raises(AssertionError, match="FAILED"):
        check_means(samples, exact)


def test_sign_and_shape_do_not_matter():
    z = jnp.linspace(-4, 4, 12).reshape(3, 4)
    means = [moments(abs(tilt))[0] for tilt in np.append(0.0, np.asarray(z, float))]
    np.testing.assert_allclose(mean_polya_gamma(jnp.append(0.0, z)), means, rtol=1e-6)
    draws = polya_gamma(jax.random.key(2), z)
    assert draws.shape == (3, 4)
    np.testing.assert_array_equal(draws, polya_gamma(jax.random.key(2), -z))
    assert polya_gamma(jax.random.key(2), jnp.asarray(1.0)).shape == ()


@pytest.mark.parametrize("x64", [False, True])
def test_extreme_tilts_and_dtypes(x64):
    with jax.enable_x64(x64):
        z = jnp.asarray([0.0, 1e-8, 300.0, 3e4])
        draws = jax.vmap(lambda key: polya_gamma(key, z))(
            jax.random.split(jax.random.key(3), 1_000)
        )
        assert draws.dtype == z.dtype
        assert jnp.all(jnp.isfinite(draws))
        assert jnp.all(draws > 0)
        np.testing.assert_allclose(draws.mean(axis=0)[2:], [1 / 600, 1 / 6e4], rtol=0.02)
