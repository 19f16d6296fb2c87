"""Features of cells: what is known of a rating besides who gave it to what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.arguments import ChecksNames, assign
from jaxmf.data import checks, names
from jaxmf.data.container import bare, check_headings, checked_cells, digest, lookup
from jaxmf.data.encoding import Column
from jaxmf.data.features import Features
from jaxmf.data.frames import as_pandas
from jaxmf.types import Array, Names, PyTree

if TYPE_CHECKING:
    import pandas as pd

_REMEDY = "Give the features of each cell once."


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, init=False, eq=False, repr=False)
class CellFeatures(ChecksNames):
    """Side information about cells: M lines of F numbers, each with its row and its column.

    The cells are those of the data and those to be predicted, in any order; they are kept by rows,
    and by columns within a row. A cell that is not listed has none: its numbers are zero, so that
    products leave them out.

    A pytree of ``offsets`` (N + 1,), where each row's cells begin, ``columns`` (M,) and ``values``
    (M, F); the shape is static, ids and names live on the host only.

    Args:
        rows: (M,) whole numbers in 0..N-1.
        columns: (M,) whole numbers in 0..D-1.
        features: `Features` with M lines in the same order, or a matrix (M, F) of numbers.
        shape: (N, D) of the data.
        row_names: N ids, or None.
        column_names: D ids, or None.
    Raises:
        TypeError, ValueError: lengths that differ, indices out of range, a cell given twice, no
            cells, values that are not finite, ids that do not fit.
    Example:
        >>> days = CellFeatures([1, 0], [0, 1], [[3.0], [5.0]], (2, 2))
        >>> days.take(np.array([0, 0]), np.array([1, 0])).tolist()
        [[5.0], [0.0]]
    """

    offsets: Array
    columns: Array
    values: Array
    shape: tuple[int, int]
    row_names: Names | None
    column_names: Names | None
    described: tuple[Column, ...]

    def __init__(
        self,
        rows: object,
        columns: object,
        features: object,
        shape: object,
        *,
        row_names: object = None,
        column_names: object = None,
    ) -> None:
        shape = checks.check_shape_pair("shape", shape)
        table = features if isinstance(features, Features) else Features(features)
        rows, columns, ids = checked_cells(
            rows, columns, shape, names=(row_names, column_names), remedy=_REMEDY
        )
        if table.num_rows != len(rows):
            raise ValueError(
                f"features: have {table.num_rows} lines for {len(rows)} cells. Give one for each."
            )
        order = np.lexsort((columns, rows))
        assign(
            self,
            offsets=jnp.asarray(np.cumsum([0, *np.bincount(rows, minlength=shape[0])]), jnp.int32),
            columns=jnp.asarray(columns[order]),
            values=jnp.asarray(table.to_array()[order]),
            shape=shape,
            row_names=ids[0],
            column_names=ids[1],
            described=table.described,
        )

    @classmethod
    def from_pandas(
        cls, frame: pd.DataFrame, *, row: str, column: str, features: Sequence[str], **options: Any
    ) -> Self:
        """Features of cells from a long table with one cell a line.

        Args:
            frame: a DataFrame.
            row: its column with the ids of the rows.
            column: its column with the ids of the columns.
            features: its columns that are features.
            options: as in `Features.from_columns`.
        Raises:
            TypeError, ValueError: as the class; a column that the table lacks, a missing id.
        """
        frame = as_pandas(frame)
        requested = [("row", row), ("column", column), *(("features", name) for name in features)]
        check_headings(frame, requested)
        rows, row_ids = lookup(f"column {row!r}", frame[row], None)
        columns, column_ids = lookup(f"column {column!r}", frame[column], None)
        table = Features.from_pandas(frame[list(features)].reset_index(drop=True), **options)
        shape = (len(row_ids), len(column_ids))
        return cls(rows, columns, table, shape, row_names=row_ids, column_names=column_ids)

    @property
    def num_cells(self) -> int:
        """M, the number of cells that have features."""
        return self.columns.shape[0]

    @property
    def width(self) -> int:
        """F, how many numbers a cell has."""
        return self.values.shape[1]

    @property
    def labels(self) -> tuple[str, ...]:
        """F names."""
        return tuple(column.label for column in self.described)

    def cells(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns (M,) of the cells, by rows, on the host."""
        offsets = np.asarray(self.offsets)
        rows = np.repeat(np.arange(self.shape[0], dtype=np.int32), np.diff(offsets))
        return rows, np.asarray(self.columns)

    def match(self, row_names: object, column_names: object, *, shape: tuple[int, int]) -> Self:
        """The same features with rows and columns in the order of a data set.

        Args:
            row_names: the ids of its rows, or None.
            column_names: the ids of its columns, or None.
            shape: its shape (N, D).
        Raises:
            ValueError: ids on one side alone and another number of rows or columns; no cell of
                the features has a row and a column of the data.
        """
        indices = [
            _new_indices(present, requested, size=size, num_present=num_present, what=what)
            for present, requested, size, num_present, what in (
                (self.row_names, row_names, shape[0], self.shape[0], "rows"),
                (self.column_names, column_names, shape[1], self.shape[1], "columns"),
            )
        ]
        rows, columns = (new[old] for new, old in zip(indices, self.cells(), strict=True))
        there = (rows >= 0) & (columns >= 0)
        if not there.any():
            raise ValueError(
                "cell_features: no cell has the ids of a row and a column of the data. Check their "
                "types, and which columns of the table hold them."
            )
        features = Features(np.asarray(self.values)[there], columns=self.described)
        names_of = {"row_names": row_names, "column_names": column_names}
        return type(self)(rows[there], columns[there], features, shape, **names_of)

    def take(self, rows: Array, columns: Array) -> Array:
        """(B, F) features of the cells at rows and columns (B,); zeros where there are none."""
        low, high = self.offsets[rows], self.offsets[rows + 1]
        end = high

        def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = bounds
            middle = (low + high) // 2
            is_open = low < high
            # beyond the last cell nothing is compared: such a search is over
            below = self.columns[jnp.minimum(middle, self.num_cells - 1)] < columns
            low = jnp.where(is_open & below, middle + 1, low)
            return low, jnp.where(is_open & ~below, middle, high)

        index, _ = jax.lax.fori_loop(0, self.num_cells.bit_length(), halve, (low, high))
        inside = jnp.minimum(index, self.num_cells - 1)
        found = (index < end) & (self.columns[inside] == columns)
        return jnp.where(found[:, None], self.values[inside], 0)

    def fingerprint(self) -> str:
        """SHA-256 of shape, cells and numbers, in hex; ids and names do not enter."""
        arrays = {"offsets": self.offsets, "columns": self.columns, "values": self.values}
        return digest("CellFeatures", self.shape, arrays)

    def __repr__(self) -> str:
        return f"CellFeatures({self.num_cells} cells x {self.width}: {', '.join(self.labels)})"

    def tree_flatten_with_keys(
        self,
    ) -> tuple[tuple[tuple[jax.tree_util.GetAttrKey, PyTree], ...], tuple[int, int]]:
        """The arrays; ids and names stay behind."""
        key = jax.tree_util.GetAttrKey
        children = tuple((key(n), getattr(self, n)) for n in ("offsets", "columns", "values"))
        return children, self.shape

    @classmethod
    def tree_unflatten(cls, shape: tuple[int, int], children: tuple[PyTree, ...]) -> Self:
        """Built without checks: the leaves may be anything jax puts there."""
        offsets, columns, values = children
        arrays = {"offsets": offsets, "columns": columns, "values": values}
        return bare(cls, **arrays, shape=shape, row_names=None, column_names=None, described=())


def _new_indices(
    present: Names | None, requested: object, *, size: int, num_present: int, what: str
) -> np.ndarray:
    """Where each of the own rows stands in the data, -1 where the data does not have it."""
    if present is None and requested is None:
        if num_present != size:
            raise ValueError(f"cell_features: are of {num_present} {what}, the data has {size}.")
        return np.arange(size)
    theirs = range(size) if requested is None else names.object_array(requested).tolist()
    table = {name: index for index, name in enumerate(theirs)}
    present_names = range(num_present) if present is None else present.tolist()
    return np.array([table.get(name, -1) for name in present_names], np.int64)
