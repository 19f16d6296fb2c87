"""Features that are the same in all rows, and next to no noise: what single precision must keep."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf.likelihoods import gaussian
from jaxmf.likelihoods.spectrum import marginal_change, power_change
from jaxmf.samplers.feature_layout import Scales
from jaxmf.samplers.parallel_sweep import draw_features

GENERATOR = np.random.default_rng(0)
Z = GENERATOR.random((60, 8)) < 0.4
Z[:, 6:] = Z[:, :2]
Y = GENERATOR.normal(size=(8, 4))


@jax.jit
def change(x, noise_scale):
    """log p(X | Z) less its value at power 0, and that at half the noise less that at the noise."""
    zero, one = jnp.zeros_like(noise_scale), jnp.ones_like(noise_scale)
    scales, half = (noise_scale, one), (noise_scale / 2, one)
    statistics = gaussian.spectrum(jnp.asarray(Z), x)
    return (
        power_change(statistics, *scales, zero, one),
        marginal_change(statistics, scales, half),
    )


@pytest.mark.parametrize("noise_scale", [0.1, 1e-2, 1e-3, 1e-4])
def test_log_densities_in_single_precision(noise_scale):
    """Before, rounding counted as data: 258 nats too much at .001, 172,000 at .0001."""
    x = Z @ Y + noise_scale * GENERATOR.normal(size=(60, 4))
    with jax.enable_x64(True):
        exact = change(x, np.float64(noise_scale))
    single = change(x.astype(np.float32), np.float32(noise_scale))
    assert single[0].dtype == np.float32
    np.testing.assert_allclose(single, exact, atol=0.2)


@pytest.mark.parametrize("noise_scale", [0.3, 1e-4])
def test_draws_of_features_have_their_mean_and_covariance(noise_scale):
    """Before, the Cholesky factor of Z'Z + r I was NaN where r is below rounding."""
    z = Z.astype(np.float32)
    x = (z @ Y + noise_scale * GENERATOR.normal(size=(60, 4))).astype(np.float32)
    scales = jnp.float32(noise_scale), jnp.float32(1.0)

    def draw(normals):
        return np.asarray(gaussian.draw_features(z.T @ z, z.T @ x, normals, *scales))

    penalised = z.T.astype(float) @ z + noise_scale**2 * np.eye(8)
    mean = draw(jnp.zeros((8, 4)))
    columns = [draw(jnp.zeros((8, 4)).at[k].set(1.0)) - mean for k in range(8)]
    root = np.stack([column[:, 0] for column in columns], axis=1).astype(float)
    np.testing.assert_allclose(mean, np.linalg.solve(penalised, z.T @ x), atol=2e-3)
    covariance = noise_scale**2 * np.linalg.inv(penalised)
    np.testing.assert_allclose(root @ root.T, covariance, atol=1e-4)


def test_a_parallel_sweep_draws_repeated_features_next_to_no_noise():
    """Before, the Cholesky factor was NaN there too, and all that followed."""
    z = np.tile(Z, (200, 1)).astype(np.float32)
    noise = GENERATOR.normal(size=(len(z), 4))
    x = (z @ Y + 0.01 * noise).astype(np.float32)
    scales = Scales(jnp.float32(0.01), jnp.float32(1.0))
    y = jax.jit(draw_features)(jax.random.key(0), z.T @ z, z.T @ x, scales)
    np.testing.assert_allclose(np.std(x - z @ y), 0.01, rtol=0.05)
