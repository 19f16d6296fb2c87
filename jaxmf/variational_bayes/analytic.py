"""Global analytic variational solutions for fully observed matrices, on a truncated SVD.

The model is X (N, D) = A S' + noise of variance sigma^2, a_ik ~ N(0, u_k), s_jk ~ N(0, v_k), and
the posterior factors over all entries of A and S. Nakajima, Sugiyama, Babacan and Tomioka (2013),
"Global analytic solution of fully-observed variational Bayesian matrix factorization", show that
its best posterior keeps the singular vectors of X and shrinks the singular values one at a time,
with the prior variances fixed or learned (empirical Bayes). A matrix of ones and zeros is a sparse
matrix plus a constant, so that all this costs O(ones) a product.

This is host code in float64: the decomposition is SciPy's, what follows is a few values a factor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxmf.variational_bayes.parameters import Normal, Parameters, Priors
from jaxmf.variational_bayes.singular import SparsePlusConstant, truncated_svd

if TYPE_CHECKING:
    from scipy.sparse import sparray

_GRID = 200
_ALONE = 2.512862417252339  # where log(1 + z)/z is a half


def coded_ones(ones: sparray, *, zero: float = -1.0) -> SparsePlusConstant:
    """A matrix of ones and zeros with 1 for a one and `zero` for a zero.

    Args: ones (N, D) scipy.sparse of ones, as `SparseBinary.to_scipy` gives it; zero: -1 as in the
    model, or 0, which leaves the matrix sparse.
    """
    return SparsePlusConstant(ones.tocsr().astype(float) * (1.0 - zero), zero)


class Components(NamedTuple):
    """Posterior of each factor: lengths of the mean vectors, variances of entries."""

    row_length: np.ndarray  # (K,), of the mean of column k of A
    column_length: np.ndarray  # (K,), of the mean of column k of S
    row_variance: np.ndarray  # (K,), of every entry of column k of A
    column_variance: np.ndarray  # (K,), of every entry of column k of S


def shrunk_components(
    values: np.ndarray,
    *,
    shape: tuple[int, int],
    row_prior_variance: object,
    column_prior_variance: object,
    noise_variance: float,
) -> Components:
    """The global minimum of the free energy, factor by factor (Nakajima et al., 2013, Theorem 2).

    A singular value g becomes 0 where it is at most sigma sqrt(t + sqrt(t^2 - N D)),
    t = (N + D)/2 + sigma^2/(2 u v), and else
    g (1 - sigma^2/(2 g^2) (N + D + sqrt((N - D)^2 + 4 g^2/(u v)))).

    Args: values (K,) singular values of X; shape (N, D); row_prior_variance: u, () or (K,),
    positive; column_prior_variance: v, () or (K,), positive; noise_variance: sigma^2, positive.
    """
    num_rows, num_columns = map(float, shape)
    noise, g = noise_variance, np.maximum(values, np.finfo(float).tiny)
    u = np.broadcast_to(np.asarray(row_prior_variance, float), g.shape)
    v = np.broadcast_to(np.asarray(column_prior_variance, float), g.shape)
    # |mean of A|/|mean of S| = ratio = u (g - shrunk - D sigma^2/g)/sigma^2, written without a
    # difference of nearly equal values
    difference, square = num_rows - num_columns, 4 * g**2 / (u * v)
    root = np.sqrt(difference**2 + square)
    ratio = u / (2 * g) * (difference + root if difference >= 0 else square / (root - difference))
    shrunk = np.maximum(g - noise / (2 * g) * (num_rows + num_columns + root), 0.0)
    half = (num_rows + num_columns) / 2 + noise / (2 * u * v)
    is_pruned = g**2 <= noise * (half + np.sqrt(half**2 - num_rows * num_columns))
    # a pruned factor: both means 0, w = variance of A times that of S over sigma^2
    w = 1 / (half + np.sqrt(half**2 - num_rows * num_columns))
    return Components(
        np.where(is_pruned, 0.0, np.sqrt(shrunk * ratio)),
        np.where(is_pruned, 0.0, np.sqrt(shrunk / ratio)),
        np.where(is_pruned, u * (1 - num_columns * w), noise * ratio / g),
        np.where(is_pruned, v * (1 - num_rows * w), noise / (g * ratio)),
    )


def divergence(
    components: Components,
    *,
    shape: tuple[int, int],
    row_prior_variance: object,
    column_prior_variance: object,
) -> np.ndarray:
    """(K,): Kullback-Leibler divergence of each factor's posterior from its prior."""

    def side(length: np.ndarray, variance: np.ndarray, prior: object, size: float) -> np.ndarray:
        share = variance / np.asarray(prior, float)
        return 0.5 * (length**2 / prior + size * (share - np.log(share) - 1))

    return side(
        components.row_length, components.row_variance, row_prior_variance, float(shape[0])
    ) + side(
        components.column_length, components.column_variance, column_prior_variance, float(shape[1])
    )


def gaussian_misfit(
    values: np.ndarray, components: Components, *, shape: tuple[int, int], sum_of_squares: float
) -> float:
    """E |X - A S'|^2, as the factors keep the singular vectors of X."""
    row_square = components.row_length**2 + shape[0] * components.row_variance
    column_square = components.column_length**2 + shape[1] * components.column_variance
    fitted = values * components.row_length * components.column_length
    return float(sum_of_squares + np.sum(row_square * column_square - 2 * fitted))


def empirical_prior_variance(
    values: np.ndarray, *, shape: tuple[int, int], noise_variance: float
) -> np.ndarray:
    """(K,): the best v for u = 1, zero for pruned factors (Nakajima et al., 2013, Theorem 3).

    A factor is on where g exceeds sigma sqrt(M (1 + z) (1 + a/z)), M = max(N, D), a = min(N, D)/M,
    z the root of f(z) + f(z/a) = 0 with f(z) = log(1 + z)/z - 1/2. Then u v = g h/(N D), where
    h = g/2 (1 - q + sqrt((1 - q)^2 - 4 N D sigma^4/g^4)), q = (N + D) sigma^2/g^2.

    Args: values (K,) singular values of X; shape (N, D); noise_variance: sigma^2, positive.
    """
    from scipy.optimize import brentq

    smaller, larger = float(min(shape)), float(max(shape))
    share = smaller / larger

    def balance(z: float) -> float:
        return np.log1p(z) / z + np.log1p(z / share) * share / z - 1

    z = _ALONE if share == 1 else brentq(balance, _ALONE * share, _ALONE, xtol=1e-14)
    threshold = np.sqrt(noise_variance * larger * (1 + z) * (1 + share / z))
    g = np.maximum(values, threshold)
    gap = 1 - (smaller + larger) * noise_variance / g**2
    root = np.sqrt(np.maximum(gap**2 - 4 * smaller * larger * noise_variance**2 / g**4, 0.0))
    return np.where(values > threshold, g**2 * (gap + root) / (2 * smaller * larger), 0.0)


class AnalyticSolution(NamedTuple):
    """A posterior of Gaussian factors, every entry independent, float64 on the host."""

    row_means: np.ndarray  # (N, K), of A
    row_variances: np.ndarray  # (N, K)
    column_means: np.ndarray  # (D, K), of S
    column_variances: np.ndarray  # (D, K)
    row_prior_variance: np.ndarray  # (K,), u
    column_prior_variance: np.ndarray  # (K,), v
    noise_variance: float  # sigma^2
    divergence: float  # Kullback-Leibler, of the posterior from the prior
    free_energy: float  # its value, an upper bound of -log p(X)

    def as_parameters(self) -> Parameters:
        """The posterior in the form of every other fit: no intercept, no biases."""

        def normal(mean: object, variance: object) -> Normal:
            return Normal(*(jnp.asarray(part, float) for part in (mean, variance)))

        nothing = np.zeros(len(self.row_prior_variance))
        one = jnp.ones((), float)
        return Parameters(
            rows=normal(self.row_means, self.row_variances),
            columns=normal(self.column_means, self.column_variances),
            row_bias=None,
            column_bias=None,
            intercept=normal(0.0, 0.0),
            priors=Priors(
                rows=normal(nothing, self.row_prior_variance),
                columns=normal(nothing, self.column_prior_variance),
                row_bias=one,
                column_bias=one,
                intercept=one,
            ),
            noise=self.noise_variance * one,
        )


def analytic_solution(
    matrix: SparsePlusConstant | np.ndarray,
    *,
    num_factors: int,
    row_scale: float = 1.0,
    column_scale: float | None = None,
    noise_scale: float | None = None,
    tolerance: float = 0.0,
) -> AnalyticSolution:
    """The global minimum of the Gaussian free energy over posteriors that factor.

    Args:
        matrix: (N, D), every cell observed.
        num_factors: the most factors, at most min(N, D).
        row_scale: prior standard deviation of every factor's rows, sqrt(u).
        column_scale: of its columns, sqrt(v); None learns one for each (empirical Bayes), and
            leaves out the factors whose best v is 0: K may then be smaller than num_factors.
        noise_scale: sigma, the standard deviation of a cell; None learns it.
    Raises:
        ValueError: a number of factors out of range, a scale that is not positive, a cell that
            is not finite, a matrix of zeros.
    Example:
        >>> x = np.outer([1.0, -1.0, 2.0, 1.0, 0.0], [3.0, 1.0, 1.0]) + 0.1 * np.eye(5, 3)
        >>> solution = analytic_solution(x, num_factors=2)
        >>> solution.row_means.shape
        (5, 1)
    """
    scales = {"row_scale": row_scale, "column_scale": column_scale, "noise_scale": noise_scale}
    for name, value in scales.items():
        if value is not None and not 0 < value < np.inf:
            raise ValueError(f"{name}: {value!r}; a scale is positive and finite.")
    if isinstance(matrix, SparsePlusConstant):
        sum_of_squares = matrix.sum_of_squares()
    else:
        sum_of_squares = float(np.sum(np.square(np.asarray(matrix, float))))
    if sum_of_squares == 0:
        raise ValueError("matrix: every cell is 0; there is nothing to factor.")
    vectors = truncated_svd(matrix, num_factors=num_factors, tolerance=tolerance)
    priors = row_scale**2, None if column_scale is None else column_scale**2
    spectrum = _Spectrum(vectors.values, matrix.shape, sum_of_squares, *priors)
    noise = spectrum.best_noise_variance() if noise_scale is None else float(noise_scale) ** 2
    free_energy, components, u, v = spectrum.solved(noise)
    num_on = len(u)
    num_rows, num_columns = matrix.shape
    divergences = divergence(
        components, shape=matrix.shape, row_prior_variance=u, column_prior_variance=v
    )
    return AnalyticSolution(
        row_means=vectors.left[:, :num_on] * components.row_length,
        row_variances=np.broadcast_to(components.row_variance, (num_rows, num_on)).copy(),
        column_means=vectors.right[:, :num_on] * components.column_length,
        column_variances=np.broadcast_to(components.column_variance, (num_columns, num_on)).copy(),
        row_prior_variance=u,
        column_prior_variance=v,
        noise_variance=noise,
        divergence=float(divergences.sum()),
        free_energy=free_energy,
    )


class _Spectrum(NamedTuple):
    """All that the solution needs to know of the matrix, and the priors."""

    values: np.ndarray
    shape: tuple[int, int]
    sum_of_squares: float
    row_prior_variance: float
    column_prior_variance: float | None

    def solved(self, noise: float) -> tuple[float, Components, np.ndarray, np.ndarray]:
        """Free energy, components, u and v for a noise variance; factors without v left out."""
        values, shape = self.values, self.shape
        u = np.full(values.shape, float(self.row_prior_variance))
        if self.column_prior_variance is None:
            product = empirical_prior_variance(values, shape=shape, noise_variance=noise)
            num_on = int(np.count_nonzero(product))  # values fall, so the first ones are on
            values, u = values[:num_on], u[:num_on]
            v = product[:num_on] / u
        else:
            v = np.full(values.shape, float(self.column_prior_variance))
        priors = {"row_prior_variance": u, "column_prior_variance": v}
        components = shrunk_components(values, shape=shape, noise_variance=noise, **priors)
        misfit = gaussian_misfit(
            values, components, shape=shape, sum_of_squares=self.sum_of_squares
        )
        num_cells = float(shape[0]) * float(shape[1])
        free_energy = 0.5 * (num_cells * np.log(2 * np.pi * noise) + misfit / noise)
        free_energy += divergence(components, shape=shape, **priors).sum()
        return float(free_energy), components, u, v

    def best_noise_variance(self) -> float:
        """The minimum of the free energy over sigma^2: a grid, then a search between its points.

        It is at least what the best matrix of rank K leaves; there may be several minima, as
        factors are pruned one at a time.
        """
        from scipy.optimize import minimize_scalar

        num_cells = float(self.shape[0]) * float(self.shape[1])
        most = self.sum_of_squares / num_cells
        least = (self.sum_of_squares - np.sum(self.values**2)) / num_cells
        grid = np.geomspace(max(least, 1e-10 * most), 4 * most, _GRID)
        best = int(np.argmin([self.solved(noise)[0] for noise in grid]))
        ends = np.log(grid[[max(best - 1, 0), min(best + 1, _GRID - 1)]])
        optimum = minimize_scalar(
            lambda log_noise: self.solved(np.exp(log_noise))[0],
            bounds=ends,
            method="bounded",
            options={"xatol": 1e-10},
        )
        return float(np.exp(optimum.x))
