"""The algorithms of Wood & Griffiths as their text has them, in numpy, for comparison.

The filter inverts the covariance of the rows so far by bordering (eq 7, a matrix that grows with
the data); the Gibbs sampler evaluates the collapsed likelihood once for each value of a bit, from
the N x N covariance or from the K x K form (eq 6). Alpha and both scales are fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular


class Settings(NamedTuple):
    """Mass of the prior, standard deviations of noise and features."""

    alpha: float
    noise_scale: float
    feature_scale: float


def particle_filter(
    generator: np.random.Generator, x: np.ndarray, settings: Settings, *, num_particles: int
) -> np.ndarray:
    """Algorithm 2 with resampling after every row: the paths (P, N, K) bool, equally weighted."""
    num_rows = x.shape[0]
    paths = [np.zeros((num_rows, 0)) for _ in range(num_particles)]
    inverses = [np.zeros((0, 0)) for _ in range(num_particles)]
    log_weights = np.zeros(num_particles)
    for row in range(num_rows):
        for p in range(num_particles):
            paths[p] = draw_row_from_prior(generator, paths[p], row, settings.alpha)
            inverses[p], log_weights[p] = grow_inverse(inverses[p], paths[p], x, row, settings)
        weights = np.exp(log_weights - log_weights.max())
        ancestors = generator.choice(num_particles, num_particles, p=weights / weights.sum())
        paths = [paths[ancestor] for ancestor in ancestors]
        inverses = [inverses[ancestor] for ancestor in ancestors]
    width = max(path.shape[1] for path in paths)
    return np.stack([np.pad(path, ((0, 0), (0, width - path.shape[1]))) for path in paths]) > 0


def draw_row_from_prior(
    generator: np.random.Generator, z: np.ndarray, row: int, alpha: float
) -> np.ndarray:
    """Algorithm 1: row `row` (from 0) of the Indian buffet process; Z with the new columns."""
    num_new = generator.poisson(alpha / (row + 1))
    z = np.concatenate([z, np.zeros((len(z), num_new))], axis=1)
    z[row] = generator.random(z.shape[1]) < z[:row].sum(axis=0) / (row + 1)
    z[row, z.shape[1] - num_new :] = 1
    return z


def grow_inverse(
    inverse: np.ndarray, z: np.ndarray, x: np.ndarray, row: int, settings: Settings
) -> tuple[np.ndarray, float]:
    """Eq 7: the inverse covariance of rows 0 ... row by bordering, and log p(row | rows before)."""
    covariance = settings.feature_scale**2 * (z[:row] @ z[row])
    weights = inverse @ covariance
    own = settings.noise_scale**2 + settings.feature_scale**2 * (z[row] @ z[row])
    variance = own - covariance @ weights
    error = x[row] - weights @ x[:row]
    grown = np.empty((row + 1, row + 1))
    grown[:row, :row] = inverse + np.outer(weights, weights) / variance
    grown[row, :row] = grown[:row, row] = -weights / variance
    grown[row, row] = 1 / variance
    log_density = -0.5 * (len(error) * np.log(2 * np.pi * variance) + error @ error / variance)
    return grown, log_density


LogLikelihood = Callable[[np.ndarray, np.ndarray, Settings], float]


def log_likelihood_by_covariance(z: np.ndarray, x: np.ndarray, settings: Settings) -> float:
    """log p(X | Z) up to a constant from the N x N covariance of a column."""
    covariance = settings.feature_scale**2 * (z @ z.T)
    covariance[np.diag_indices(len(z))] += settings.noise_scale**2
    factor = np.linalg.cholesky(covariance)
    whitened = solve_triangular(factor, x, lower=True)
    return float(-x.shape[1] * np.log(np.diag(factor)).sum() - 0.5 * (whitened**2).sum())


def log_likelihood_by_eq_6(z: np.ndarray, x: np.ndarray, settings: Settings) -> float:
    """The same from the K x K matrix of eq 6, inverted anew for every value of a bit."""
    noise, feature = settings.noise_scale**2, settings.feature_scale**2
    gram = z.T @ z + noise / feature * np.eye(z.shape[1])
    cross = z.T @ x
    log_determinant = np.linalg.slogdet(gram)[1] + z.shape[1] * np.log(feature / noise)
    explained = (cross * (np.linalg.inv(gram) @ cross)).sum()
    return float(-0.5 * (x.shape[1] * log_determinant + ((x**2).sum() - explained) / noise))


def gibbs_sweep(
    generator: np.random.Generator,
    z: np.ndarray,
    x: np.ndarray,
    settings: Settings,
    *,
    log_likelihood: LogLikelihood,
    max_new: int = 5,
    max_rows: int | None = None,
) -> np.ndarray:
    """One sweep over the bits; Z without empty columns; `max_rows` rows alone for timing."""
    num_rows = len(x)
    for row in range(num_rows if max_rows is None else max_rows):
        others = z.sum(axis=0) - z[row]
        num_own = int(z[row, others == 0].sum())
        z = np.concatenate([z[:, others > 0], _singletons(num_rows, row, num_own)], axis=1)
        others = others[others > 0]
        for k in generator.permutation(len(others)):
            log_odds = np.log(others[k]) - np.log(num_rows - others[k])
            for value, sign in ((0, -1), (1, 1)):
                z[row, k] = value
                log_odds += sign * log_likelihood(z, x, settings)
            z[row, k] = generator.random() < 0.5 * (1 + np.tanh(log_odds / 2))
        shared = z[:, : len(others)]
        candidates = [
            np.concatenate([shared, _singletons(num_rows, row, number)], axis=1)
            for number in range(max_new + 1)
        ]
        log_rate = np.log(settings.alpha / num_rows)
        numbers = np.arange(max_new + 1)
        log_weights = numbers * log_rate - np.cumsum(np.log(np.maximum(numbers, 1)))
        log_weights += [log_likelihood(candidate, x, settings) for candidate in candidates]
        weights = np.exp(log_weights - log_weights.max())
        z = candidates[generator.choice(max_new + 1, p=weights / weights.sum())]
    return z


def _singletons(num_rows: int, row: int, number: int) -> np.ndarray:
    columns = np.zeros((num_rows, number))
    columns[row] = 1
    return columns
