"""Factorisation of a sparse matrix of zeros and ones by variational Bayes.

    a_ik ~ N(m_ak, v_ak),  s_jk ~ N(m_sk, v_sk)          factors of rows and of columns
    r_i ~ N(0, v_r),  c_j ~ N(0, v_c),  b ~ N(0, v_b)    biases and intercept
    m_ij = sum_k a_ik s_jk + r_i + c_j + b               the score of a cell
    x_ij | m_ij ~ N(m_ij, v_x)  or  p(x_ij) = sigma(x_ij m_ij),   x_ij = -1 or 1

Everything but x has a Gaussian of its own in Q, fitted by minimising the free energy, an upper
bound of -log p(X). How tight it is decides what is found in rows of few ones; see `Bernoulli`,
whose tilted bound takes scores for Gaussian. Zeros of the data are x = -1. Every sum over the zeros
is exact in the time of the ones (Gaussian cells), exact by blocks, or over a sample of the zeros.

Source: Fast and flexible variational Bayes for sparse binary matrices (2012), with its printed
formulas corrected; Raiko, Ilin & Karhunen (2007); Jaakkola & Jordan (1997); for rows of few ones
Saul & Jordan (1999).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.data import SparseBinary
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.model import Model
from jaxmf.readable import Readable
from jaxmf.types import STATIC, Array, Key
from jaxmf.variational_bayes import Normal, Parameters
from jaxmf.variational_bayes.answers import ScoredCells
from jaxmf.variational_bayes.contracts import Likelihood
from jaxmf.variational_bayes.parameters import draw_ones
from jaxmf.variational_bayes.start import start_priors
from jaxmf.variational_bayes.zeros import ZerosSpec


@dataclass(frozen=True)
class SparseBinaryMFSpec(Readable, ScoredCells, Model[SparseBinary]):
    """The fields of `SparseBinaryMF`, and what follows from them alone."""

    num_factors: int = field(default=20, metadata=STATIC)
    likelihood: Likelihood = None  # type: ignore[assignment]
    zeros: ZerosSpec = field(default=None, metadata=STATIC)  # type: ignore[assignment]
    bias: str = field(default="rows_columns", metadata=STATIC)
    row_mean: float | Array | None = 0.0
    row_scale: float | Array | None = 1.0
    column_mean: float | Array | None = 0.0
    column_scale: float | Array | None = 0.5**0.5
    bias_scale: float | None = 1.0
    intercept_scale: float = 10.0

    def simulate(
        self, key: Key, num_rows: int, num_columns: int, *, intercept: float | None = None
    ) -> tuple[Parameters, SparseBinary]:
        """Parameters from the prior, as a Q without spread, and data from them.

        Args:
          key: typed PRNG key.
          num_rows: N.
          num_columns: D.
          intercept: its value instead of a draw; about -5 makes one cell in a hundred a one.
        Returns:
          Parameters and SparseBinary (N, D), made on the host a block of rows at a time; cells of
          the Gaussian are ones where they are positive. What is learned is drawn at its start.
        """
        dtype = jnp.result_type(float)
        priors = start_priors(self, dtype)
        num_factors = self.num_factors
        sizes = [num_rows * num_factors, num_columns * num_factors, num_rows, num_columns]
        # in one call, which is all that has to be compiled
        normals = jax.random.normal(jax.random.fold_in(key, 0), (sum(sizes) + 1,), dtype)
        pieces = iter(np.split(np.asarray(normals), np.cumsum(sizes)))

        def draw(prior: Normal, size: tuple[int, ...]) -> Normal:
            mean = prior.mean + jnp.sqrt(prior.variance) * next(pieces).reshape(size)
            return Normal(mean, jnp.zeros_like(mean))

        nothing = jnp.zeros((), dtype)
        rows = draw(priors.rows, (num_rows, num_factors))
        columns = draw(priors.columns, (num_columns, num_factors))
        row_bias = column_bias = None
        if self.bias == "rows_columns":
            row_bias = draw(Normal(nothing, priors.row_bias), (num_rows,))
            column_bias = draw(Normal(nothing, priors.column_bias), (num_columns,))
        level = Normal(nothing, nothing)
        if intercept is not None:
            level = Normal(jnp.asarray(intercept, dtype), nothing)
        elif self.bias != "none":
            level = Normal(jnp.sqrt(priors.intercept) * normals[-1], nothing)
        noise = jnp.ones((), dtype)
        if isinstance(self.likelihood, Gaussian) and self.likelihood.noise_scale is not None:
            noise = jnp.asarray(self.likelihood.noise_scale, dtype) ** 2
        parameters = Parameters(rows, columns, row_bias, column_bias, level, priors, noise)
        ones = draw_ones(jax.random.fold_in(key, 1), parameters, likelihood=self.likelihood)
        return parameters, SparseBinary(*ones, (num_rows, num_columns))
