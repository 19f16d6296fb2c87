"""Seeger and Bouchard's iteration: logistic cells by analytic Gaussian solutions.

-log sigma(m) has a second derivative of at most 1/4, hence a Gaussian bound of variance 4 around
any point z: f(m) <= f(z) + f'(z) (m - z) + (m - z)^2/8. The best Gaussian factors for given points
are the analytic solution for the pseudo-data z - 4 f'(z) (`jaxmf.variational_bayes.analytic`),
the best points for given factors are the posterior means of m; so the bound never rises. Seeger and
Bouchard (2012), "Fast variational Bayesian inference for non-conjugate matrix factorization
models".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import numpy as np
from scipy.special import expit

from jaxmf.variational_bayes.analytic import AnalyticSolution, analytic_solution
from jaxmf.variational_bayes.singular import SparsePlusConstant

if TYPE_CHECKING:
    from scipy.sparse import sparray

CURVATURE = 0.25
_MOST_CELLS = 400_000_000


class SigmoidSolution(NamedTuple):
    """The last solution, and the bound on -log p(X) after every iteration."""

    # its noise variance is that of the bound, 4; its free energy the last bound
    solution: AnalyticSolution
    bounds: np.ndarray  # (T,) float64, never rising


def sigmoid_solution(
    ones: sparray,
    *,
    num_factors: int,
    zeros: Literal["shared", "each"] = "shared",
    num_iterations: int = 10,
    row_scale: float = 1.0,
    column_scale: float | None = 1.0,
    tolerance: float = 0.0,
) -> SigmoidSolution:
    """Factors of P(x_ij = 1) = sigma(a_i . s_j), every cell observed.

    Args:
        ones: (N, D) scipy.sparse of ones, as `SparseBinary.to_scipy` gives it.
        num_factors: the most factors, at most min(N, D).
        zeros: "shared" has one point of expansion for all zeros, the best one, and costs O(ones);
            "each" has one for every zero, a dense matrix.
        num_iterations: at least 1; it ends before if the bound falls by less than 1e-9 of itself.
        row_scale: prior standard deviation of every factor's rows, sqrt(u).
        column_scale: of its columns, sqrt(v); None learns one for each.
    Raises:
        ValueError: as `analytic_solution`; no iteration; more cells than 4e8 with "each".
    """
    if num_iterations < 1:
        raise ValueError(f"num_iterations: {num_iterations}; at least 1 is needed.")
    if zeros not in ("shared", "each"):
        raise ValueError(f"zeros: {zeros!r}; it is 'shared' or 'each'.")
    num_cells = float(ones.shape[0]) * float(ones.shape[1])
    if zeros == "each" and num_cells > _MOST_CELLS:
        raise ValueError(
            f"zeros: 'each' makes a dense matrix of {num_cells:.3g} cells, at most "
            f"{_MOST_CELLS:.0e} are allowed; use 'shared'."
        )
    ones = ones.tocoo()
    expansion = _Shared if zeros == "shared" else _Each
    points = expansion.start(ones)
    bounds: list[float] = []
    for _ in range(num_iterations):
        solution = analytic_solution(
            points.pseudo_data(ones),
            num_factors=num_factors,
            row_scale=row_scale,
            column_scale=column_scale,
            noise_scale=(1 / CURVATURE) ** 0.5,
            tolerance=tolerance,
        )
        points = expansion.at(ones, solution)
        bounds.append(points.misfit(ones, solution) + solution.divergence)
        if len(bounds) > 1 and bounds[-2] - bounds[-1] < 1e-9 * abs(bounds[-1]):
            break
    return SigmoidSolution(solution._replace(free_energy=bounds[-1]), np.asarray(bounds))


class _Shared(NamedTuple):
    """Points of expansion: one for each one (T,), and one for all zeros."""

    at_ones: np.ndarray
    at_zeros: float

    @classmethod
    def start(cls, ones: sparray) -> _Shared:
        return cls(np.zeros(ones.nnz), 0.0)

    @classmethod
    def at(cls, ones: sparray, solution: AnalyticSolution) -> _Shared:
        """The means of the ones, the mean of the means of the zeros: the best of each kind."""
        at_ones = _means_of_ones(ones, solution)
        total = solution.row_means.sum(axis=0) @ solution.column_means.sum(axis=0)
        num_zeros = float(ones.shape[0]) * float(ones.shape[1]) - ones.nnz
        return cls(at_ones, float(total - at_ones.sum()) / max(num_zeros, 1.0))

    def pseudo_data(self, ones: sparray) -> SparsePlusConstant:
        from scipy.sparse import csr_array

        constant = self.at_zeros - expit(self.at_zeros) / CURVATURE
        values = self.at_ones + expit(-self.at_ones) / CURVATURE - constant
        sparse = csr_array((values, (ones.row, ones.col)), shape=ones.shape)
        return SparsePlusConstant(cast(object, sparse), float(constant))

    def misfit(self, ones: sparray, solution: AnalyticSolution) -> float:
        """Expected bound of all cells, at these points."""
        a, s = solution.row_means, solution.column_means
        num_zeros = float(ones.shape[0]) * float(ones.shape[1]) - ones.nnz
        squares = np.sum((a.T @ a) * (s.T @ s)) - np.sum(self.at_ones**2)
        z = self.at_zeros
        # sum of (m - z)^2 over the zeros, z their mean: the slope's term is 0
        squared_deviations = max(float(squares) - num_zeros * z**2, 0.0)
        value = np.sum(np.logaddexp(0, -self.at_ones)) + num_zeros * np.logaddexp(0, z)
        return float(value + 0.5 * CURVATURE * (squared_deviations + _sum_of_variances(solution)))


class _Each(NamedTuple):
    """Points of expansion: one for every cell, (N, D)."""

    points: np.ndarray

    @classmethod
    def start(cls, ones: sparray) -> _Each:
        return cls(np.zeros(ones.shape))

    @classmethod
    def at(cls, ones: object, solution: AnalyticSolution) -> _Each:
        del ones
        return cls(solution.row_means @ solution.column_means.T)

    def pseudo_data(self, ones: sparray) -> np.ndarray:
        values = self.points - expit(self.points) / CURVATURE
        values[ones.row, ones.col] += 1 / CURVATURE
        return values

    def misfit(self, ones: sparray, solution: AnalyticSolution) -> float:
        value = np.logaddexp(0, self.points).sum() - self.points[ones.row, ones.col].sum()
        return float(value + 0.5 * CURVATURE * _sum_of_variances(solution))


def _means_of_ones(ones: sparray, solution: AnalyticSolution) -> np.ndarray:
    """(T,) posterior means of the ones, in blocks."""
    means = np.empty(ones.nnz)
    for start in range(0, ones.nnz, 100_000):
        piece = slice(start, start + 100_000)
        rows, columns = solution.row_means[ones.row[piece]], solution.column_means[ones.col[piece]]
        means[piece] = np.einsum("tk,tk->t", rows, columns)
    return means


def _sum_of_variances(solution: AnalyticSolution) -> float:
    """Variances of a_i . s_j summed over all cells, in O((N + D) K)."""
    row_square = (solution.row_means**2).sum(axis=0)
    row_variance = solution.row_variances.sum(axis=0)
    column_square = (solution.column_means**2).sum(axis=0)
    column_variance = solution.column_variances.sum(axis=0)
    each = row_square * column_variance + row_variance * (column_square + column_variance)
    return float(each.sum())
