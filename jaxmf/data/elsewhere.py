"""What is left of data once a run over several processes is done: size, ids and fingerprint."""

from __future__ import annotations

from typing import TypeVar

import jax

from jaxmf.data.container import assign, bare
from jaxmf.data.dense import Dense
from jaxmf.types import Array

C = TypeVar("C")

_ADVICE = (
    "data: the rows lie in several processes, none of which has all of them, and this needs their "
    "cells. Where one process has room for all: post.save(folder, data=False), then "
    "jaxmf.load(folder, data=X) with the whole matrix"
)


@jax.tree_util.register_pytree_with_keys_class
class DenseElsewhere(Dense):
    """A `Dense` without its cells: whatever asks for them is refused."""

    @property
    def values(self) -> Array:
        """Refused: ValueError."""
        raise ValueError(_ADVICE)

    @property
    def observed(self) -> Array | None:
        """Refused: ValueError."""
        raise ValueError(_ADVICE)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, D)."""
        found: tuple[int, int] = self.__dict__["_shape"]
        return found

    def __repr__(self) -> str:
        return f"Dense({' x '.join(map(str, self.shape))}, in several processes)"


def without_cells(data: C) -> C | DenseElsewhere:
    """The data, or of rows that lie in several processes what each of these knows of all."""
    if not (isinstance(data, Dense) and data.spans_processes):
        return data
    left = bare(DenseElsewhere, row_names=data.row_names, column_names=data.column_names)
    assign(left, _shape=data.shape, _fingerprint=data.fingerprint())
    return left
