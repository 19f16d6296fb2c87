"""Lists of everything: left-ordered classes of binary matrices, and set partitions."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from jaxmf.arguments import checks_call


@dataclass(frozen=True)
class FeatureClasses:
    """All left-ordered classes of binary matrices with N rows and at most K features.

    A history is a non-empty column: which rows have the feature. A class is a multiset of
    histories, so it is given by how often each history occurs.

    Attributes:
        histories: (2^N - 1, N) bool, the largest binary number first, row 0 the highest bit.
        counts: (C, 2^N - 1) int, how many features have each history.
        z: (C, N, K) bool, the class in left-ordered form, padded with empty columns.
    """

    histories: np.ndarray
    counts: np.ndarray
    z: np.ndarray

    @property
    def num_features(self) -> np.ndarray:
        """(C,) int: the number of features of each class."""
        return self.counts.sum(axis=1)

    def mass_left_out(self, alpha: float, concentration: float = 1.0) -> float:
        """Prior probability of the classes that are not listed, under the Indian buffet process.

        The number of features is Poisson with mean alpha * sum_i beta / (beta + i - 1).

        Args:
            alpha: mass of the process.
            concentration: its beta.
        """
        num_rows, max_features = self.z.shape[1:]
        mean = alpha * sum(concentration / (concentration + row) for row in range(num_rows))
        # The terms themselves: one minus the cumulative sum would lose what is small.
        first = max_features + 1
        term = math.exp(first * math.log(mean) - mean - math.lgamma(first + 1))
        total = 0.0
        for count in itertools.count(first + 1):
            total += term
            term *= mean / count
            if term <= 1e-20 * total:
                return total
        raise AssertionError("unreachable")


@checks_call
def enumerate_features(num_rows: int, max_features: int) -> FeatureClasses:
    """All left-ordered classes of binary matrices with at most `max_features` columns.

    Args:
        num_rows: N, small: there are 2^N - 1 histories.
        max_features: K.
    Returns:
        `FeatureClasses`, by number of features; N = 3, K = 12 has 50,388 classes.
    Example:
        >>> classes = enumerate_features(2, 2)
        >>> classes.z.shape, classes.num_features.tolist()
        ((10, 2, 2), [0, 1, 1, 1, 2, 2, 2, 2, 2, 2])
    """
    num_histories = 2**num_rows - 1
    codes = np.arange(num_histories, 0, -1)
    bits = codes[:, None] >> np.arange(num_rows - 1, -1, -1)
    histories = (bits & 1).astype(bool)
    columns = []  # which history each column has; num_histories stands for an empty column
    for num_features in range(max_features + 1):
        chosen = itertools.combinations_with_replacement(range(num_histories), num_features)
        flat = np.fromiter(itertools.chain.from_iterable(chosen), dtype=np.int64)
        block = flat.reshape(math.comb(num_histories + num_features - 1, num_features), -1)
        padding = [(0, 0), (0, max_features - num_features)]
        columns.append(np.pad(block, padding, constant_values=num_histories))
    column = np.concatenate(columns)
    z = np.concatenate([histories, np.zeros((1, num_rows), bool)])[column].swapaxes(1, 2)
    rows = np.broadcast_to(np.arange(len(column))[:, None], column.shape)
    counts = np.zeros((len(column), num_histories + 1), np.int64)
    np.add.at(counts, (rows, column), 1)
    return FeatureClasses(histories=histories, counts=counts[:, :-1], z=z)


@checks_call
def enumerate_partitions(num_items: int) -> np.ndarray:
    """All partitions of a set, as labels in the order in which groups appear.

    Args:
        num_items: n, small: there are as many as the n-th Bell number.
    Returns:
        (B_n, n) int; row entries are group labels, the first item has label 0.
    Example:
        >>> enumerate_partitions(3).tolist()
        [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1], [0, 1, 2]]
    """
    partitions: list[tuple[int, ...]] = [()]
    for _ in range(num_items):
        partitions = [
            (*labels, label)
            for labels in partitions
            for label in range(max(labels, default=-1) + 2)
        ]
    return np.array(partitions, dtype=np.int64).reshape(len(partitions), num_items)
