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

from jaxmf.data import SparseSeries
from jaxmf.model import Model
from jaxmf.readable import Readable
from jaxmf.types import STATIC, Array
from jaxmf.variational_bayes.answers import ScoredCells
from jaxmf.variational_bayes.contracts import Likelihood
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
