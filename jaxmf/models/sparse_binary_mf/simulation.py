"""Parameters from the prior, and data from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.data import SparseBinary
from jaxmf.models.sparse_binary_mf.ascent import start_priors
from jaxmf.types import Key
from jaxmf.variational import Gaussian, Normal, Parameters

if TYPE_CHECKING:
    from jaxmf.models.sparse_binary_mf.model import SparseBinaryMF

_BLOCK_CELLS = 2**22


def simulate(
    model: SparseBinaryMF, key: Key, shape: tuple[int, int], *, bias: float | None
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
    row_offset = column_offset = None
    if model.offsets == "rows_columns":
        row_offset = draw(Normal(nothing, priors.row_offset), (shape[0],))
        column_offset = draw(Normal(nothing, priors.column_offset), (shape[1],))
    level = Normal(nothing, nothing)
    if bias is not None:
        level = Normal(jnp.asarray(bias, dtype), nothing)
    elif model.offsets != "none":
        level = Normal(jnp.sqrt(priors.bias) * normals[-1], nothing)
    noise = jnp.ones((), dtype)
    if isinstance(model.likelihood, Gaussian) and model.likelihood.noise_variance is not None:
        noise = jnp.asarray(model.likelihood.noise_variance, dtype)
    parameters = Parameters(rows, columns, row_offset, column_offset, level, priors, noise)
    return parameters, _cells(model, parameters, jax.random.fold_in(key, 1), shape)


def _sizes(shape: tuple[int, int], num_factors: int) -> list[int]:
    return [shape[0] * num_factors, shape[1] * num_factors, *shape]


def _cells(
    model: SparseBinaryMF, parameters: Parameters, key: Key, shape: tuple[int, int]
) -> SparseBinary:
    """Ones, a block of rows at a time."""
    generator = np.random.default_rng(np.ravel(jax.random.key_data(key)).tolist())
    scores = _score_function(parameters)
    is_gaussian = isinstance(model.likelihood, Gaussian)
    noise_scale = float(np.sqrt(parameters.noise))
    block = max(1, _BLOCK_CELLS // shape[1])
    rows, columns = [], []
    for start in range(0, shape[0], block):
        mean = scores(slice(start, start + block))
        if is_gaussian:
            ones = mean + noise_scale * generator.standard_normal(mean.shape) > 0
        else:
            # uniform < sigma(m), by the logistic quantile of the uniform
            uniform = generator.random(mean.shape, np.float32)
            ones = np.log(uniform) - np.log1p(-uniform) < mean
        found = np.nonzero(ones)
        rows.append(found[0] + start)
        columns.append(found[1])
    return SparseBinary(np.concatenate(rows), np.concatenate(columns), shape)


def _score_function(parameters: Parameters) -> Callable[[slice], np.ndarray]:
    p = jax.tree.map(np.asarray, parameters)

    def scores(rows: slice) -> np.ndarray:
        mean = p.rows.mean[rows] @ p.columns.mean.T + p.bias.mean
        if p.row_offset is not None:
            mean = mean + p.row_offset.mean[rows, None] + p.column_offset.mean
        return mean

    return scores
