"""The ancestry of a filter's particles, kept compactly on the host.

After N rows the surviving particles have one common ancestor until shortly before the end, so the
tree of what still has descendants has about N + P log P nodes, where all that ever was has N P.
`History` keeps that tree: steps come in chunks, what has died out is dropped at once.

Reference: Jacob, Murray and Rubenthaler (2015), Path storage in the particle filter.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

_NO_PARENT = -1


class History:
    """The paths of the particles that are alive, as a tree.

    Args:
        num_particles: P.

    Example:
        >>> import numpy as np
        >>> history = History(2)
        >>> history.append({"z": np.array([[1, 2], [3, 4]])}, np.array([[0, 1], [1, 1]]))
        >>> history.trace()["z"].tolist()
        [[2, 3], [2, 4]]
        >>> history.num_nodes
        3
    """

    def __init__(self, num_particles: int) -> None:
        self.num_particles = num_particles
        self.num_rows = 0
        self._leaves = np.full(num_particles, _NO_PARENT, np.int64)
        self._parent = np.zeros(0, np.int64)
        self._num_children = np.zeros(0, np.int32)
        self._values: dict[str, np.ndarray] = {}
        self._free = np.zeros(0, np.int64)

    @property
    def num_nodes(self) -> int:
        """How many nodes of the tree are alive."""
        return len(self._parent) - len(self._free)

    @property
    def num_bytes(self) -> int:
        """Memory of the store in bytes, free nodes included."""
        arrays: list[np.ndarray] = [self._parent, self._num_children, self._free, self._leaves]
        return sum(array.nbytes for array in [*arrays, *self._values.values()])

    def append(
        self,
        kept: Mapping[str, np.ndarray],
        ancestors: np.ndarray,
        *,
        is_row: np.ndarray | None = None,
    ) -> None:
        """Add T steps of the filter.

        Args:
            kept: arrays (T, P, ...), what each particle keeps of each row. A trailing axis that
                has grown since the last chunk is padded with zeros in what is stored.
            ancestors: (T, P) int, each particle's parent in the step before.
            is_row: (T,) bool, False where a step took in no row (tempering); None for all rows.

        Raises:
            ValueError: shapes that do not fit.
        """
        kept = {name: np.asarray(values) for name, values in kept.items()}
        ancestors = np.asarray(ancestors)
        num_steps = len(ancestors)
        if ancestors.shape != (num_steps, self.num_particles):
            raise ValueError(
                f"ancestors must have shape (steps, {self.num_particles}), got {ancestors.shape}"
            )
        for name, values in kept.items():
            if values.shape[:2] != ancestors.shape:
                raise ValueError(
                    f"{name} must start with the axes {ancestors.shape}, got {values.shape}"
                )
        if num_steps == 0:
            return
        rows = np.ones(num_steps, bool) if is_row is None else np.asarray(is_row, bool)
        self._fit_values(kept)
        survivors = _survivors(ancestors)
        old_leaves = self._leaves
        origin = np.arange(ancestors.shape[-1])
        leaves = old_leaves
        for step in range(num_steps):
            alive = survivors[step]
            leaves = leaves[ancestors[step]]
            origin = origin[ancestors[step]]
            if rows[step]:
                leaves = self._add_nodes(
                    leaves, alive, {name: values[step] for name, values in kept.items()}
                )
        self._leaves = leaves
        gone = np.setdiff1d(old_leaves[old_leaves >= 0], old_leaves[np.unique(origin)])
        self._release(gone)

    def trace(self, particles: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Return whole paths, oldest row first.

        Args:
            particles: (n,) int indices; None for all.

        Returns:
            Arrays (n, N, ...), by name.
        """
        nodes = self._leaves if particles is None else self._leaves[np.asarray(particles)]
        paths = np.empty((self.num_rows, len(nodes)), np.int64)
        for row in range(self.num_rows - 1, -1, -1):
            paths[row] = nodes
            nodes = self._parent[nodes]
        return {name: values[paths.T] for name, values in self._values.items()}
