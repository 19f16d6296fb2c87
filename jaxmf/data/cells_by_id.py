"""What the containers of matrices share: sizes, positions of ids, and what jax sees of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Self

import jax
import numpy as np

from jaxmf.data import alignment, names
from jaxmf.data.container import bare, digest
from jaxmf.types import Names, PyTree


class CellsById(ABC):
    """Rows and columns with ids, in a pytree of arrays; the base of the containers of matrices.

    A container names its arrays in ``leaves`` and says what is left of them when columns are
    matched to those of other data, `_with_columns`.
    """

    leaves: ClassVar[tuple[str, ...]]
    row_names: Names | None
    column_names: Names | None

    if TYPE_CHECKING:  # a field or a property: both are read

        @property
        def shape(self) -> tuple[int, ...]: ...

    @property
    def num_rows(self) -> int:
        """N."""
        return self.shape[0]

    @property
    def num_columns(self) -> int:
        """D."""
        return self.shape[-1]

    def row_positions(self, ids: object) -> np.ndarray:
        """Positions of rows by id (by position where the data has no ids)."""
        return names.positions("rows", ids, names=self.row_names, size=self.num_rows)

    def column_positions(self, ids: object) -> np.ndarray:
        """Positions of columns by id (by position where the data has no ids)."""
        return names.positions("columns", ids, names=self.column_names, size=self.num_columns)

    def align_columns(
        self,
        known: Self,
        *,
        argument: str = "data",
        unknown: str = "error",
        can_drop: bool = True,
        word: str = "column",
    ) -> Self:
        """The same cells with the columns of the data that a model was fitted to.

        Columns are matched by id where both have ids, else by position. A column of the data that
        is not there has no observed cell (`Entries`), holds zeros (ones of a sparse matrix), or is
        an error (`Dense`). Cells come out by rows, and by columns within a row.

        Args: unknown: of columns that the data lacks: "error", or "drop" to leave them out;
        can_drop: whether errors may advise the latter.

        Raises:
            ValueError: an unknown column; one of a `Dense` that is not there; other sizes where
                one side has no ids.
        """
        order = alignment.matched_positions(
            self.column_names,
            known.column_names,
            sizes=(self.num_columns, known.num_columns),
            argument=argument,
            unknown=unknown,
            can_drop=can_drop,
            word=word,
        )
        ids = self.column_names if known.column_names is None else known.column_names
        return self._with_columns(order, ids, known, argument)

    @abstractmethod
    def _with_columns(
        self, order: np.ndarray, ids: Names | None, known: Self, argument: str
    ) -> Self:
        """The cells by the columns of ``known``: column j becomes order[j], -1 is left out."""

    def size(self) -> str:
        """How large it is, in a few characters."""
        return " x ".join(f"{length:,}" for length in self.shape)

    def fingerprint(self) -> str:
        """SHA-256 of shape and arrays, in hex; ids do not enter."""
        arrays = {name: getattr(self, name) for name in self.leaves}
        return digest(type(self).__name__, self.shape, arrays)

    def tree_flatten_with_keys(
        self,
    ) -> tuple[tuple[tuple[jax.tree_util.GetAttrKey, PyTree], ...], tuple[int, ...] | None]:
        """The arrays; ids stay behind."""
        key = jax.tree_util.GetAttrKey
        return tuple((key(name), getattr(self, name)) for name in self.leaves), self.shape

    @classmethod
    def tree_unflatten(cls, shape: tuple[int, ...] | None, children: tuple[PyTree, ...]) -> Self:
        """Built without checks: the leaves may be anything jax puts there."""
        arrays = dict(zip(cls.leaves, children, strict=True))
        return bare(cls, **arrays, shape=shape, row_names=None, column_names=None)
