"""The update of the variance of normal noise."""

from __future__ import annotations

import jax.numpy as jnp

from jaxmf._kernels.compensated import normal_change
from jaxmf.priors.hyper import Hyperparameter, is_fixed
from jaxmf.samplers.hyper import update_scale
from jaxmf.types import Array, Key


def variance_shape(prior: Hyperparameter, count: int) -> Array | None:
    """Shape (1,) of the Gamma draw that `update_variance` needs; None where it needs none."""
    if is_fixed(prior):
        return None
    import numpyro.distributions as dist

    if not isinstance(prior, dist.InverseGamma):
        return None
    return jnp.reshape(prior.concentration + count / 2, (1,))


def update_variance(
    key: Key,
    prior: Hyperparameter,
    variance: Array,
    *,
    squares: Array,
    count: int,
    log_gamma: Array | None,
) -> Array:
    """Gibbs update of a variance: inverse-gamma where the prior is, a slice update elsewhere.

    Args: variance () float, the present one; squares () float, the sum of squared residuals;
    log_gamma () float, the logarithm of a Gamma draw of `variance_shape`, where that is one.
    Returns () float, unchanged if it is fixed.
    """
    if is_fixed(prior):
        return variance
    if log_gamma is not None:
        return ((prior.rate + squares / 2) * jnp.exp(-log_gamma)).astype(variance.dtype)
    return update_scale(
        key,
        prior,
        variance,
        lambda value: normal_change(count, squares, jnp.sqrt(variance), jnp.sqrt(value)),
    )
