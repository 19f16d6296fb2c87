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

from jaxmf.data import SparseBinary
from jaxmf.model import Model
from jaxmf.readable import Readable
from jaxmf.types import STATIC, Array
from jaxmf.variational_bayes.answers import ScoredCells
from jaxmf.variational_bayes.contracts import Likelihood
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
