"""Completing binary rows from their observed columns: independent cells, neighbours, a mixture.

Each method is a function of (train, shown, settings): complete rows (N, J), rows (M, J) with NaN
where a cell is missing, and its settings; it returns the probability of a one in every cell of
`shown`, (M, J). Settings are chosen by the score of held-out rows among the complete ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.neighbors import NearestNeighbors

Method = Callable[[np.ndarray, np.ndarray, Any], np.ndarray]
NUM_COMPONENTS = 10
NUM_STARTS, NUM_STEPS = 8, 50
NUM_FOLDS = 3


def score(truth: np.ndarray, shown: np.ndarray, probability: np.ndarray) -> np.ndarray:
    """Mean log likelihood of the missing cells of each row: (M,)."""
    missing = np.isnan(shown)
    chance = np.where(truth == 1, probability, 1 - probability)
    return np.log(np.where(missing, chance, 1)).sum(axis=1) / missing.sum(axis=1)


def independent(train: np.ndarray, shown: np.ndarray, smoothing: float) -> np.ndarray:
    """Every column by its share of ones, with so many of either value added."""
    share = (train.sum(axis=0) + smoothing) / (len(train) + 2 * smoothing)
    return np.broadcast_to(share, shown.shape)


def neighbours(train: np.ndarray, shown: np.ndarray, settings: tuple[int, float]) -> np.ndarray:
    """Votes of the k nearest complete rows, by the observed columns, with votes of their mean.

    Rows of `shown` miss the same columns. Settings: k, and votes of every column's share of ones.
    """
    number, votes = settings
    seen = ~np.isnan(shown[0])
    near = NearestNeighbors(n_neighbors=number).fit(train[:, seen])
    chosen = near.kneighbors(shown[:, seen], return_distance=False)
    prior = independent(train, shown, 1.0)
    return (train[chosen].sum(axis=1) + votes * prior) / (number + votes)


def mixture(train: np.ndarray, shown: np.ndarray, smoothing: float) -> np.ndarray:
    """A mixture of 10 rows of independent cells by expectation maximisation, the best of 8 starts.

    Missing cells are left out, so the observed halves train it as well. The prior of a component's
    cell is Beta(1 + smoothing, 1 + smoothing), that of the shares Dirichlet(2).
    """
    values = np.concatenate([train, shown])
    observed = (~np.isnan(values)).astype(float)
    ones = np.nan_to_num(values)
    best, found = -np.inf, np.empty(0)
    for start in range(NUM_STARTS):
        generator = np.random.default_rng(start)
        belongs = generator.dirichlet(np.full(NUM_COMPONENTS, 0.1), len(values))
        for _ in range(NUM_STEPS):
            share = (belongs.sum(axis=0) + 1) / (len(values) + NUM_COMPONENTS)
            count = belongs.T @ observed + 2 * smoothing
            cells = (belongs.T @ ones + smoothing) / count
            log_odds = np.log(cells) - np.log1p(-cells)
            log_joint = np.log(share) + ones @ log_odds.T + observed @ np.log1p(-cells).T
            top = log_joint.max(axis=1, keepdims=True)
            weights = np.exp(log_joint - top)
            belongs = weights / weights.sum(axis=1, keepdims=True)
        level = (top[:, 0] + np.log(weights.sum(axis=1))).sum() + np.log(share).sum()
        level += smoothing * (np.log(cells) + np.log1p(-cells)).sum()
        if level > best:
            best, found = level, belongs[len(train) :] @ cells
    return found


BASELINES: dict[str, tuple[Method, Sequence[Any]]] = {
    "independent pixels": (independent, [1.0]),
    "nearest neighbour": (neighbours, [(1, votes) for votes in (0.25, 0.5, 1.0, 2.0, 4.0)]),
    "nearest neighbours, tuned": (
        neighbours,
        [(k, votes) for k in (3, 5, 8, 12, 16, 24, 32, 48) for votes in (0.5, 1.0, 2.0, 4.0)],
    ),
    "mixture of 10": (mixture, [0.2, 0.5, 1.0, 2.0]),
}


def folds(train: np.ndarray, shown: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Splits of the complete rows: rows to train, rows with missing cells, and those complete.

    The missing cells are the columns that the rows of `shown` miss.
    """
    order = np.random.default_rng(0).permutation(len(train))
    splits = []
    for fold in range(NUM_FOLDS):
        out = order[fold::NUM_FOLDS]
        hidden = np.where(np.isnan(shown[0]), np.nan, train[out])
        splits.append((np.delete(train, out, axis=0), hidden, train[out]))
    return splits


def tuned(
    method: Method, choices: Sequence[Any], train: np.ndarray, shown: np.ndarray
) -> tuple[Any, np.ndarray]:
    """The settings that score best on held-out complete rows, and what they say of `shown`."""
    best = choices[0]
    if len(choices) > 1:
        splits = folds(train, shown)
        scores = [
            np.mean([score(truth, hidden, method(rest, hidden, one)).mean()
                     for rest, hidden, truth in splits])
            for one in choices
        ]  # fmt: skip
        best = choices[int(np.argmax(scores))]
    return best, method(train, shown, best)
