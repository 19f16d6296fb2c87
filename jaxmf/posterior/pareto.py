"""Pareto-smoothed importance sampling: weights of draws, and whether they can be trusted.

The largest weights of a cell are replaced by quantiles of a generalised Pareto distribution fitted
to them. Its shape k says how many moments the weights have: an estimate of which k is above
`largest_shape(S)` is not reliable.

Source: Vehtari, Simpson, Gelman, Yao & Gabry (2024), Pareto smoothed importance sampling, sections
2 and 3; Zhang & Stephens (2009) for the fit.
"""

from __future__ import annotations

import numpy as np

_FEWEST_IN_TAIL = 5
_PRIOR_COUNT = 10  # observations that the weak prior of k at 1/2 counts for


def largest_shape(num_draws: int) -> float:
    """The k up to which an estimate by this many draws is reliable: min(1 - 1 / log10 S, 0.7)."""
    return min(1 - 1 / np.log10(num_draws), 0.7)


def smoothed_weights(log_ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights of draws, from log importance ratios.

    Args:
        log_ratios: (S, M), of S draws for each of M cells; S at least 25.
    Returns:
        (S, M) weights that sum to one over the draws, and (M,) shapes k.
    """
    num_draws, num_cells = log_ratios.shape
    log_weights = log_ratios - log_ratios.max(axis=0)
    num_tail = int(np.ceil(min(num_draws / 5, 3 * np.sqrt(num_draws))))
    shapes = np.full(num_cells, -np.inf)
    if num_tail >= _FEWEST_IN_TAIL:
        for cell in range(num_cells):
            shapes[cell] = _smooth_tail(log_weights[:, cell], num_tail)
    weights = np.exp(log_weights)
    return weights / weights.sum(axis=0), shapes


def _smooth_tail(log_weights: np.ndarray, num_tail: int) -> float:
    """Smooths the largest of log weights (S,) in position; the shape k of their distribution."""
    order = np.argsort(log_weights, kind="stable")
    tail = order[-num_tail:]
    cutoff = np.exp(log_weights[order[-num_tail - 1]])
    excess = np.exp(log_weights[tail]) - cutoff
    if excess[-1] <= 1e-10:
        return -np.inf  # all but equal weights need no smoothing
    shape, scale = pareto_fit(np.maximum(excess, 1e-300))
    quantiles = pareto_quantiles((np.arange(num_tail) + 0.5) / num_tail, shape, scale)
    # no weight exceeds the largest that was seen
    log_weights[tail] = np.minimum(np.log(cutoff + quantiles), 0.0)
    return shape


def pareto_quantiles(levels: np.ndarray, shape: float, scale: float) -> np.ndarray:
    """Quantiles of a generalised Pareto distribution at levels below one; inf beyond floats."""
    if abs(shape) < 1e-6:
        return -scale * np.log1p(-levels)
    with np.errstate(over="ignore"):
        return scale * np.expm1(-shape * np.log1p(-levels)) / shape


def pareto_fit(excess: np.ndarray) -> tuple[float, float]:
    """Shape k and scale of a generalised Pareto distribution from sorted positive values (T,).

    The profile posterior mean of Zhang and Stephens, shape regularised towards 1/2.
    """
    num_values = excess.size
    num_points = 30 + int(np.sqrt(num_values))
    grid = 1 - np.sqrt(num_points / (np.arange(1, num_points + 1) - 0.5))
    quartile = excess[int(num_values / 4 + 0.5) - 1]
    theta = grid / (3 * quartile) + 1 / excess[-1]
    shapes = np.mean(np.log1p(-theta[:, None] * excess), axis=1)
    log_profile = num_values * (np.log(-theta / shapes) - shapes - 1)
    weights = np.exp(log_profile - log_profile.max())
    mean = np.sum(theta * weights) / weights.sum()
    shape = float(np.mean(np.log1p(-mean * excess)))
    scale = -shape / mean
    regularised = (shape * num_values + 0.5 * _PRIOR_COUNT) / (num_values + _PRIOR_COUNT)
    return regularised, float(scale)
