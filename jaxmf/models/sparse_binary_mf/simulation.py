"""Parameters from the prior, and data from them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.data import SparseBinary
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.models.sparse_binary_mf.sparse_binary_mf_spec import SparseBinaryMFSpec
from jaxmf.types import Key
from jaxmf.variational_bayes import Normal, Parameters
from jaxmf.variational_bayes.simulation import draw_ones
from jaxmf.variational_bayes.start import start_priors


def simulate(
    model: SparseBinaryMFSpec, key: Key, shape: tuple[int, int], *, intercept: float | None
) -> tuple[Parameters, SparseBinary]:
    """See `SparseBinaryMF.simulate`."""
    dtype = jnp.result_type(float)
    priors = start_priors(model, dtype)
    num_factors = model.num_factors
    # in one call, which is all that has to be compiled
    normals = jax.random.normal(
        jax.random.fold_in(key, 0), ((shape[0] + shape[1]) * (num_factors + 1) + 1,), dtype
    )
    pieces = iter(np.split(np.asarray(normals), np.cumsum(_sizes(shape, num_factors))))

    def draw(prior: Normal, size: tuple[int, ...]) -> Normal:
        mean = prior.mean + jnp.sqrt(prior.variance) * next(pieces).reshape(size)
        return Normal(mean, jnp.zeros_like(mean))

    nothing = jnp.zeros((), dtype)
    rows = draw(priors.rows, (shape[0], num_factors))
    columns = draw(priors.columns, (shape[1], num_factors))
    row_bias = column_bias = None
    if model.bias == "rows_columns":
        row_bias = draw(Normal(nothing, priors.row_bias), (shape[0],))
        column_bias = draw(Normal(nothing, priors.column_bias), (shape[1],))
    level = Normal(nothing, nothing)
    if intercept is not None:
        level = Normal(jnp.asarray(intercept, dtype), nothing)
    elif model.bias != "none":
        level = Normal(jnp.sqrt(priors.intercept) * normals[-1], nothing)
    noise = jnp.ones((), dtype)
    if isinstance(model.likelihood, Gaussian) and model.likelihood.noise_scale is not None:
        noise = jnp.asarray(model.likelihood.noise_scale, dtype) ** 2
    parameters = Parameters(rows, columns, row_bias, column_bias, level, priors, noise)
    ones = draw_ones(jax.random.fold_in(key, 1), parameters, likelihood=model.likelihood)
    return parameters, SparseBinary(*ones, shape)


def _sizes(shape: tuple[int, int], num_factors: int) -> list[int]:
    return [shape[0] * num_factors, shape[1] * num_factors, *shape]
