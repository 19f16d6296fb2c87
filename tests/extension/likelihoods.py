"""Student-t cells for FeatureModel: features add up, and outliers are likely."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

import jaxmf as mf


def _total(z, y):
    return z.astype(y.dtype) @ y


@mf.register
def student_t(degrees, scale, x, z, y):
    """log p(x_d | z, y) of cells (D,): Student-t about sum_k z_k y_kd."""
    return dist.StudentT(degrees, _total(z, y), scale).log_prob(x)


@mf.register
def student_t_moments(degrees, scale, z, y):
    """Mean and variance (D,) of the cells; degrees above 2."""
    mean = _total(z, y)
    return mean, jnp.full_like(mean, scale**2 * degrees / (degrees - 2))


@mf.register
def student_t_row(degrees, scale, key, z, y):
    """A row (D,)."""
    mean = _total(z, y)
    return mean + scale * jax.random.t(key, degrees, mean.shape)
