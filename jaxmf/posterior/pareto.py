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
_CELLS_AT_ONCE = 256
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
        for start in range(0, num_cells, _CELLS_AT_ONCE):
            some = slice(start, start + _CELLS_AT_ONCE)
            shapes[some] = _smooth_tails(log_weights[:, some], num_tail)
    weights = np.exp(log_weights)
    return weights / weights.sum(axis=0), shapes


def _smooth_tails(log_weights: np.ndarray, num_tail: int) -> np.ndarray:
    """Smooths the largest of log weights (S, M) in position; the shapes k (M,) of their tails."""
    order = np.argsort(log_weights, axis=0, kind="stable")[-num_tail - 1 :]
    largest = np.exp(np.take_along_axis(log_weights, order, axis=0))
    cutoff, excess = largest[0], largest[1:] - largest[0]
    shapes = np.full(log_weights.shape[1], -np.inf)
    cells = np.flatnonzero(excess[-1] > 1e-10)  # all but equal weights need no smoothing
    if not cells.size:
        return shapes
    shapes[cells], scale = pareto_fit(np.maximum(excess[:, cells], 1e-300))
    levels = (np.arange(num_tail) + 0.5)[:, None] / num_tail
    quantiles = pareto_quantiles(levels, shapes[cells], scale)
    # no weight exceeds the largest that was seen
    smoothed = np.minimum(np.log(cutoff[cells] + quantiles), 0.0)
    log_weights[order[1:, cells], cells] = smoothed
    return shapes


def pareto_quantiles(levels: np.ndarray, shape: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Quantiles of generalised Pareto distributions at levels below one; inf beyond floats.

    Args: levels (T, 1); shape, scale (M,), of each distribution. Returns (T, M).
    """
    logs = np.log1p(-levels)
    is_exponential = np.abs(shape) < 1e-6
    divisor = np.where(is_exponential, 1, shape)
    with np.errstate(over="ignore"):
        return np.where(is_exponential, -scale * logs, scale * np.expm1(-shape * logs) / divisor)


def pareto_fit(excess: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shapes k and scales, (M,) each, of generalised Pareto distributions.

    The profile posterior mean of Zhang and Stephens, shape regularised towards 1/2.

    Args: excess (T, M), sorted positive values of each distribution.
    """
    num_values = len(excess)
    num_points = 30 + int(np.sqrt(num_values))
    grid = 1 - np.sqrt(num_points / (np.arange(1, num_points + 1) - 0.5))
    quartile = excess[int(num_values / 4 + 0.5) - 1]
    theta = grid[:, None] / (3 * quartile) + 1 / excess[-1]
    shapes = np.array([np.mean(np.log1p(-point * excess), axis=0) for point in theta])
    log_profile = num_values * (np.log(-theta / shapes) - shapes - 1)
    weights = np.exp(log_profile - log_profile.max(axis=0))
    mean = np.sum(theta * weights, axis=0) / weights.sum(axis=0)
    shape = np.mean(np.log1p(-mean * excess), axis=0)
    scale = -shape / mean
    return (shape * num_values + 0.5 * _PRIOR_COUNT) / (num_values + _PRIOR_COUNT), scale
