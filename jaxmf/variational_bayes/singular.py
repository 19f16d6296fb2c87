"""Leading singular vectors of a sparse matrix plus a constant, on the host in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator


@dataclass(frozen=True)
class SparsePlusConstant:
    """A sparse matrix with one constant added to every cell; never made dense."""

    sparse: Any  # (N, D) scipy.sparse, no cell stored twice
    constant: float = 0.0  # what is added to every cell

    @property
    def shape(self) -> tuple[int, int]:
        """(N, D)."""
        return self.sparse.shape

    def operator(self) -> LinearOperator:
        """The matrix as a scipy LinearOperator, float64."""
        from scipy.sparse.linalg import LinearOperator

        forward, back = self.sparse.tocsr().astype(float), self.sparse.T.tocsr().astype(float)
        constant = self.constant

        def product(matrix: object, x: np.ndarray) -> np.ndarray:
            return matrix @ x + constant * x.sum(axis=0)

        return LinearOperator(
            self.shape,
            dtype=np.float64,
            matvec=lambda x: product(forward, np.ravel(x)),
            rmatvec=lambda x: product(back, np.ravel(x)),
            matmat=lambda x: product(forward, x),
            rmatmat=lambda x: product(back, x),
        )

    def sum_of_squares(self) -> float:
        """Sum of squares of all cells."""
        stored, constant = self.sparse.data.astype(float), self.constant
        stray = np.sum(stored**2) + 2 * constant * np.sum(stored)
        return float(stray + constant**2 * float(self.shape[0]) * float(self.shape[1]))


class SingularVectors(NamedTuple):
    """The leading part of a singular value decomposition, largest value first."""

    left: np.ndarray  # (N, K) float64
    values: np.ndarray  # (K,) float64
    right: np.ndarray  # (D, K) float64


def truncated_svd(
    matrix: SparsePlusConstant | np.ndarray, *, num_factors: int, tolerance: float = 0.0
) -> SingularVectors:
    """The K largest singular values and their vectors, by Lanczos iterations (ARPACK).

    Start vector and signs are fixed (the largest entry of a right vector is positive): the same
    matrix gives the same result.

    Args:
        matrix: (N, D).
        num_factors: K, at least 1, at most min(N, D).
        tolerance: relative accuracy of the squared values; 0 is that of the float.
    Raises:
        ValueError: K out of range, or cells that are not finite.
    Example:
        >>> truncated_svd(np.diag([1.0, 3.0, 2.0]), num_factors=2).values.round(6).tolist()
        [3.0, 2.0]
    """
    smaller = min(matrix.shape)
    if not 1 <= num_factors <= smaller:
        raise ValueError(
            f"num_factors: {num_factors} factors of a matrix {matrix.shape[0]} x "
            f"{matrix.shape[1]}; it has from 1 to {smaller}."
        )
    stored = matrix.sparse.data if isinstance(matrix, SparsePlusConstant) else matrix
    if not np.isfinite(stored).all():
        raise ValueError("matrix: has a cell that is not finite; every cell must be observed.")
    if 2 * num_factors >= smaller:
        # few rows or columns: dense, it takes no more room than the factors
        left, values, right = np.linalg.svd(_dense(matrix), full_matrices=False)
    else:
        from scipy.sparse.linalg import svds

        start = np.random.default_rng(0).standard_normal(smaller)
        linear = matrix.operator() if isinstance(matrix, SparsePlusConstant) else matrix
        left, values, right = svds(linear, num_factors, v0=start, tol=tolerance)
    order = np.argsort(-values, kind="stable")[:num_factors]
    left, values, right = left[:, order], values[order], right[order].T
    largest = np.take_along_axis(right, np.abs(right).argmax(axis=0)[None], axis=0)
    sign = np.where(largest < 0, -1.0, 1.0)
    return SingularVectors(left * sign, values, right * sign)


def _dense(matrix: SparsePlusConstant | np.ndarray) -> np.ndarray:
    if isinstance(matrix, SparsePlusConstant):
        return matrix.sparse.toarray().astype(float) + matrix.constant
    return np.asarray(matrix, float)
