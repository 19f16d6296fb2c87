"""What is left of data once a run over several processes is done: size, ids and fingerprint."""

from __future__ import annotations

from typing import TypeVar

import jax

from jaxmf.data.cells_by_id import SpansProcesses
from jaxmf.data.container import assign, bare
from jaxmf.data.dense import Dense
from jaxmf.data.process_cells import ADVICE
from jaxmf.types import Array

C = TypeVar("C")


@jax.tree_util.register_pytree_with_keys_class
class DenseElsewhere(Dense):
    """A `Dense` without its cells: whatever asks for them is refused."""

    spans_processes = True

    @property
    def values(self) -> Array:
        """Refused: ValueError."""
        raise ValueError(ADVICE)

    @property
    def observed(self) -> Array | None:
        """Refused: ValueError."""
        raise ValueError(ADVICE)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, D)."""
        found: tuple[int, int] = self.__dict__["_shape"]
        return found

    def __repr__(self) -> str:
        return f"Dense({' x '.join(map(str, self.shape))}, in several processes)"


def are_elsewhere(data: object) -> bool:
    """Whether some cells of a container lie in other processes."""
    return isinstance(data, SpansProcesses) and data.spans_processes


def without_cells(data: C) -> C | DenseElsewhere:
    """The data, or of cells that lie in several processes what each of these knows of all."""
    if not are_elsewhere(data) or isinstance(data, DenseElsewhere):
        return data
    if not isinstance(data, Dense):
        return data.without_cells()  # type: ignore[attr-defined]
    left = bare(DenseElsewhere, row_names=data.row_names, column_names=data.column_names)
    assign(left, _shape=data.shape, _fingerprint=data.fingerprint())
    return left
