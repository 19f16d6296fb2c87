"""The paths of a filter's particles, traced back through their ancestors on the host."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def trace_paths(
    kept: Mapping[str, np.ndarray], ancestors: np.ndarray, *, is_row: np.ndarray | None = None
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """What the particles that are alive in the end kept of every row, oldest row first.

    Args:
        kept: arrays (T, P, ...), what each particle keeps of each step.
        ancestors: (T, P) int, each particle's parent in the step before.
        is_row: (T,) bool, False where a step took in no row (tempering); None for all rows.
    Returns:
        Arrays (P, rows, ...) by name, and (P,) int, where each particle stood before the first
        step.
    Example:
        >>> kept = {"z": np.array([[1, 2], [3, 4]])}
        >>> paths, first = trace_paths(kept, np.array([[0, 1], [1, 1]]))
        >>> paths["z"].tolist(), first.tolist()
        ([[2, 3], [2, 4]], [1, 1])
    """
    indices = np.empty(ancestors.shape, np.int64)
    here = np.arange(ancestors.shape[1])
    for step in range(len(ancestors) - 1, -1, -1):
        indices[step] = here
        here = ancestors[step][here]
    steps = np.arange(len(ancestors)) if is_row is None else np.flatnonzero(is_row)
    where = steps[:, None], indices[steps]
    return {name: np.swapaxes(values[where], 0, 1) for name, values in kept.items()}, here
