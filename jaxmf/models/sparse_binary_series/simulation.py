"""Paths from the prior, and a series of matrices from them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.data import SparseSeries
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.models.sparse_binary_series.sparse_binary_series_spec import SparseBinarySeriesSpec
from jaxmf.types import Key
from jaxmf.variational_bayes import Normal, Parameters
from jaxmf.variational_bayes.paths import correlation
from jaxmf.variational_bayes.simulation import draw_ones
from jaxmf.variational_bayes.start import start_priors


def simulate(
    model: SparseBinarySeriesSpec,
    key: Key,
    shape: tuple[int, int],
    *,
    times: object,
    intercept: float | None,
) -> tuple[Parameters, SparseSeries]:
    """See `SparseBinarySeries.simulate`."""
    times = np.sort(np.asarray(times, np.float64))
    dtype = jnp.result_type(float)
    priors = jax.tree.map(np.asarray, start_priors(model, dtype))
    num_rows, num_columns = shape
    num_times, num_factors = times.size, model.num_factors
    sizes = [num_rows * num_times * (num_factors + 1), num_columns * (num_factors + 1), 1]
    normals = np.asarray(jax.random.normal(jax.random.fold_in(key, 0), (sum(sizes),), dtype))
    row_normals, column_normals, level = np.split(normals, np.cumsum(sizes)[:-1])
    root = _root(model, times)
    smooth = np.einsum("ts,nsl->ntl", root, row_normals.reshape(num_rows, num_times, -1))
    smooth = smooth.reshape(num_rows * num_times, -1)
    columns = column_normals.reshape(num_columns, -1)

    def sure(mean: object) -> Normal:
        mean = jnp.asarray(mean, dtype)
        return Normal(mean, jnp.zeros_like(mean))

    has_biases = model.bias == "rows_columns"
    kept = slice(0, num_factors)
    if intercept is None:
        intercept = float(level[0] * np.sqrt(priors.intercept)) if model.bias != "none" else 0.0
    noise = 1.0
    if isinstance(model.likelihood, Gaussian) and model.likelihood.noise_scale is not None:
        noise = float(model.likelihood.noise_scale) ** 2
    parameters = Parameters(
        rows=sure(priors.rows.mean + np.sqrt(priors.rows.variance) * smooth[:, kept]),
        columns=sure(priors.columns.mean + np.sqrt(priors.columns.variance) * columns[:, kept]),
        row_bias=sure(np.sqrt(priors.row_bias) * smooth[:, -1]) if has_biases else None,
        column_bias=sure(np.sqrt(priors.column_bias) * columns[:, -1]) if has_biases else None,
        intercept=sure(intercept),
        priors=start_priors(model, dtype),
        noise=jnp.asarray(noise, dtype),
    )
    key = jax.random.fold_in(key, 1)
    lines, column_indices = draw_ones(key, parameters, likelihood=model.likelihood)
    rows, steps = np.divmod(lines, num_times)
    series_shape = (num_rows, num_times, num_columns)
    return parameters, SparseSeries(rows, steps, column_indices, times, series_shape)


def _root(model: SparseBinarySeriesSpec, times: np.ndarray) -> np.ndarray:
    """A square root of the prior's correlations, which may be singular: (T, T)."""
    if model.lengthscale is None:
        raise ValueError("lengthscale is None, to be learned; data are drawn at a given one")
    gaps = np.abs(times[:, None] - times)
    values, vectors = np.linalg.eigh(
        np.asarray(correlation(model.kernel, jnp.asarray(gaps), jnp.asarray(model.lengthscale)))
    )
    return vectors * np.sqrt(np.maximum(values, 0))
