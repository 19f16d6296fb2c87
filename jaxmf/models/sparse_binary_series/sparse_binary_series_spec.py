"""Factorisation of a series of sparse matrices of zeros and ones whose rows change with time.

    a_ik(.) ~ GP(m_ak, v_ak k(|t - t'| / lengthscale))   factors of a row, functions of time
    s_jk ~ N(m_sk, v_sk)                                 factors of a column, the same at all times
    r_i(.) ~ GP(0, v_r k), c_j ~ N(0, v_c), b ~ N(0, v_b)    biases and intercept
    m_itj = sum_k a_ik(t) s_jk + r_i(t) + c_j + b        the score of cell (i, j) at time t
    x_itj | m_itj ~ N(m_itj, v_x)  or  p(x_itj) = sigma(x_itj m_itj),   x_itj = -1 or 1

Q of a path is a Gaussian over all times at once, independent of those of other factors and rows;
everything else is as in `SparseBinaryMF`. Paths, with the length scale, and columns are updated in
turn.

Source: Fast and flexible variational Bayes for sparse binary matrices (2012), section 7, where this
is left to future work.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.data import SparseSeries
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.model import Model
from jaxmf.readable import Readable
from jaxmf.types import STATIC, Array, Key
from jaxmf.variational_bayes import Normal, Parameters
from jaxmf.variational_bayes.answers import ScoredCells
from jaxmf.variational_bayes.contracts import Likelihood
from jaxmf.variational_bayes.parameters import draw_ones
from jaxmf.variational_bayes.paths import correlation
from jaxmf.variational_bayes.start import start_priors
from jaxmf.variational_bayes.zeros import ZerosSpec


@dataclass(frozen=True)
class SparseBinarySeriesSpec(Readable, ScoredCells, Model[SparseSeries]):
    """The fields of `SparseBinarySeries`, and what follows from them alone."""

    num_factors: int = field(default=20, metadata=STATIC)
    lengthscale: float | None = None
    kernel: str = field(default="matern_3_2", metadata=STATIC)
    likelihood: Likelihood = None  # type: ignore[assignment]
    zeros: ZerosSpec = field(default=None, metadata=STATIC)  # type: ignore[assignment]
    bias: str = field(default="rows_columns", metadata=STATIC)
    row_mean: float | Array = 0.0
    row_scale: float | Array = 1.0
    column_mean: float | Array | None = 0.0
    column_scale: float | Array | None = 0.5**0.5
    bias_scale: float | None = 1.0
    intercept_scale: float = 10.0

    def simulate(
        self,
        key: Key,
        num_rows: int,
        num_columns: int,
        *,
        times: object,
        intercept: float | None = None,
    ) -> tuple[Parameters, SparseSeries]:
        """Parameters from the prior, as a Q without spread, and data from them.

        Args:
          key: typed PRNG key.
          num_rows: N.
          num_columns: D.
          times: (T,) numbers.
          intercept: its value instead of a draw.
        Returns:
          Parameters of the matrices below each other (line i T + t is row i at time t) and
          SparseSeries (N, T, D); cells of the Gaussian are ones where they are positive. What is
          learned is drawn at its start.
        Raises:
          ValueError: the length scale is to be learned.
        """
        times = np.sort(np.asarray(times, np.float64))
        dtype = jnp.result_type(float)
        priors = jax.tree.map(np.asarray, start_priors(self, dtype))
        num_times, num_factors = times.size, self.num_factors
        sizes = [num_rows * num_times * (num_factors + 1), num_columns * (num_factors + 1), 1]
        normals = np.asarray(jax.random.normal(jax.random.fold_in(key, 0), (sum(sizes),), dtype))
        row_normals, column_normals, level = np.split(normals, np.cumsum(sizes)[:-1])
        root = _root(self, times)
        smooth = np.einsum("ts,nsl->ntl", root, row_normals.reshape(num_rows, num_times, -1))
        smooth = smooth.reshape(num_rows * num_times, -1)
        columns = column_normals.reshape(num_columns, -1)

        def sure(mean: object) -> Normal:
            mean = jnp.asarray(mean, dtype)
            return Normal(mean, jnp.zeros_like(mean))

        has_biases = self.bias == "rows_columns"
        kept = slice(0, num_factors)
        if intercept is None:
            intercept = float(level[0] * np.sqrt(priors.intercept)) if self.bias != "none" else 0.0
        noise = 1.0
        if isinstance(self.likelihood, Gaussian) and self.likelihood.noise_scale is not None:
            noise = float(self.likelihood.noise_scale) ** 2
        parameters = Parameters(
            rows=sure(priors.rows.mean + np.sqrt(priors.rows.variance) * smooth[:, kept]),
            columns=sure(priors.columns.mean + np.sqrt(priors.columns.variance) * columns[:, kept]),
            row_bias=sure(np.sqrt(priors.row_bias) * smooth[:, -1]) if has_biases else None,
            column_bias=sure(np.sqrt(priors.column_bias) * columns[:, -1]) if has_biases else None,
            intercept=sure(intercept),
            priors=start_priors(self, dtype),
            noise=jnp.asarray(noise, dtype),
        )
        key = jax.random.fold_in(key, 1)
        lines, column_indices = draw_ones(key, parameters, likelihood=self.likelihood)
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
