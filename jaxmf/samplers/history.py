"""The ancestry of a filter's particles, kept compactly on the host.

After N rows the surviving particles have one common ancestor until shortly before the end, so the
tree of what still has descendants has about N + P log P nodes, where all that ever was has N P.
`History` keeps that tree: steps come in chunks, what has died out is dropped at once.

Reference: Jacob, Murray and Rubenthaler (2015), Path storage in the particle filter.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jaxmf.types import PyTree

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

    def _fit_values(self, kept: dict[str, np.ndarray]) -> None:
        """Make the stores for new names and pad those whose trailing axes have grown."""
        for name, values in kept.items():
            store = self._values.get(name)
            if store is None:
                store = np.zeros((len(self._parent), *values.shape[2:]), values.dtype)
            sizes = list(zip(values.shape[2:], store.shape[1:], strict=True))
            growth = [max(new - old, 0) for new, old in sizes]
            if any(growth):
                store = np.pad(store, [(0, 0), *((0, more) for more in growth)])
            self._values[name] = store
            lack = [max(old - new, 0) for new, old in sizes]
            if any(lack):
                kept[name] = np.pad(values, [(0, 0), (0, 0), *((0, more) for more in lack)])

    def _add_nodes(self, parents: np.ndarray, alive: np.ndarray, values: PyTree) -> np.ndarray:
        """Add the nodes of one row for the particles that will have descendants."""
        where = np.flatnonzero(alive)
        self._reserve(len(where))
        nodes, self._free = self._free[-len(where) :], self._free[: -len(where)]
        self._parent[nodes] = parents[where]
        self._num_children[nodes] = 0
        known = parents[where]
        np.add.at(self._num_children, known[known >= 0], 1)
        for name, value in values.items():
            self._values[name][nodes] = value[where]
        # A particle without descendants in this chunk gets no node, and nobody will ask for it.
        leaves = np.full(self.num_particles, _NO_PARENT, np.int64)
        leaves[where] = nodes
        self.num_rows += 1
        return leaves

    def _reserve(self, num_nodes: int) -> None:
        """Make sure that this many nodes are free, by half as much again when there are not."""
        size = len(self._parent)
        if len(self._free) >= num_nodes:
            return
        new_size = max(size + size // 2, size + num_nodes)
        more = new_size - size
        self._parent = np.concatenate([self._parent, np.full(more, _NO_PARENT, np.int64)])
        self._num_children = np.concatenate([self._num_children, np.zeros(more, np.int32)])
        self._free = np.concatenate([self._free, np.arange(new_size - 1, size - 1, -1)])
        for name, store in self._values.items():
            empty = np.zeros((more, *store.shape[1:]), store.dtype)
            self._values[name] = np.concatenate([store, empty])

    def _release(self, nodes: np.ndarray) -> None:
        """Free nodes without descendants, and their ancestors that now have none."""
        nodes = nodes[self._num_children[nodes] == 0]
        while len(nodes):
            self._free = np.concatenate([self._free, nodes])
            parents = self._parent[nodes]
            parents = parents[parents >= 0]
            np.subtract.at(self._num_children, parents, 1)
            nodes = np.unique(parents)
            nodes = nodes[self._num_children[nodes] == 0]


def _survivors(ancestors: np.ndarray) -> np.ndarray:
    """Which particles of each step have descendants at the last one: (T, P) bool."""
    alive = np.zeros(ancestors.shape, bool)
    alive[-1] = True
    for step in range(len(ancestors) - 1, 0, -1):
        alive[step - 1, ancestors[step, alive[step]]] = True
    return alive
