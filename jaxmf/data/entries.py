"""Entries: the observed cells of a matrix of which most cells were never seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxmf.arguments import assign
from jaxmf.data import checks
from jaxmf.data.cells_by_id import CellsById
from jaxmf.data.container import (
    bare,
    check_headings,
    checked_cells,
    is_frame,
    is_sparse,
    lookup,
    peel,
)
from jaxmf.data.frames import as_pandas
from jaxmf.data.text_tables import have_decimal_commas
from jaxmf.types import Array, Names, PyTree

if TYPE_CHECKING:
    import pandas as pd
    from scipy import sparse

_LISTED_CELLS = 2**24
_REMEDY = (
    "Give each cell once: average the repeats, or keep the last (in pandas: "
    "df.sort_values(time).drop_duplicates([row, column], keep='last'))."
)


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, init=False, eq=False, repr=False)
class Entries(CellsById):
    """Observed cells of a matrix (N, D): rows, columns, values; all other cells are missing.

    The order of the cells is kept. Rows and columns without a cell are accepted (new users, items
    without a rating): nothing is learned about them, and answers about them come from the prior. No
    cell at all is an error, and so are repeated cells and values that are NaN or infinite: a
    missing cell is simply left out.

    A pytree of the three arrays; the shape is static, the ids live on the host only.

    Args:
        rows: (T,) whole numbers in 0..N-1.
        columns: (T,) whole numbers in 0..D-1.
        values: (T,) finite numbers.
        shape: (N, D).
        row_names: N ids of any type, or None.
        column_names: D ids of any type, or None.
    Raises:
        TypeError: objects, text or complex numbers.
        ValueError: lengths that differ, indices out of range, duplicate cells, values that are not
            finite or that the floating dtype cannot hold, no cells, ids that do not fit.
    Example:
        >>> Entries([0, 2], [1, 0], [5.0, 3.0], (3, 2))
        Entries(3 x 2, 2 observed)
    """

    leaves = ("rows", "columns", "values")

    rows: Array
    columns: Array
    values: Array
    shape: tuple[int, int]
    row_names: Names | None
    column_names: Names | None

    def __init__(
        self,
        rows: object,
        columns: object,
        values: object,
        shape: Sequence[int],
        row_names: object = None,
        column_names: object = None,
    ) -> None:
        if checks.is_traced(rows, columns, values):
            assign(self, rows=rows, columns=columns, values=values, shape=tuple(shape))
            assign(self, row_names=None, column_names=None)
            return
        shape = checks.check_shape_pair("shape", shape)
        rows, columns, ids = checked_cells(
            rows, columns, shape, names=(row_names, column_names), remedy=_REMEDY
        )
        values = checks.as_numeric("values", values)
        checks.check_vector("values", values, length=len(rows), like="rows")
        checks.check_finite("values", values)
        assign(
            self,
            rows=jax.device_put(rows),
            columns=jax.device_put(columns),
            values=jax.device_put(checks.as_float("values", values)),
            shape=shape,
            row_names=ids[0],
            column_names=ids[1],
        )

    @classmethod
    def from_pandas(
        cls,
        frame: pd.DataFrame,
        *,
        row: str,
        column: str,
        value: str,
        row_names: object = None,
        column_names: object = None,
    ) -> Self:
        """Data from a long table with one observed cell a line.

        Args:
            frame: a DataFrame of pandas, polars, pyarrow or any other that narwhals knows.
            row: the column of ``frame`` with the ids of the rows.
            column: the column with the ids of the columns.
            value: the column with the values.
            row_names: all ids of rows, in order, for instance those of a training set; None takes
                the ids in order of appearance.
            column_names: the same for columns.
        Raises:
            TypeError, ValueError: as the class; a column that the table lacks, a missing id.
        Example:
            >>> import pandas as pd
            >>> df = pd.DataFrame({"who": ["ann", "bo"], "what": ["tea", "tea"], "stars": [5, 3]})
            >>> Entries.from_pandas(df, row="who", column="what", value="stars").row_names.tolist()
            ['ann', 'bo']
        """
        frame = as_pandas(frame)
        if not is_frame(frame):
            raise TypeError(f"frame: must be a DataFrame, is {frame!r}. See Entries.from_array.")
        check_headings(frame, (("row", row), ("column", column), ("value", value)))
        rows, row_ids = lookup(f"column {row!r}", frame[row], row_names, line="row")
        columns, column_ids = lookup(
            f"column {column!r}", frame[column], column_names, line="column"
        )
        values = frame[value]
        missing = np.asarray(values.isna())
        if missing.any():
            raise ValueError(
                f"column {value!r}: the value at line {int(np.argmax(missing))} is missing "
                f"({int(missing.sum())} such lines). Missing cells are left out: "
                f"df.dropna(subset=[{value!r}])."
            )
        if getattr(values.dtype, "kind", "O") not in "biufc":
            remedy = "Convert it with pandas.to_numeric."
            if have_decimal_commas({text for text in values if isinstance(text, str)}):
                remedy = "Its commas are decimal: read the file with pandas.read_csv(decimal=',')."
            raise TypeError(
                f"column {value!r}: has dtype {values.dtype}, numbers are needed; the first is "
                f"{values.iloc[0]!r}. {remedy}"
            )
        cells = values.to_numpy(dtype=getattr(values.dtype, "numpy_dtype", None))
        return cls(rows, columns, cells, (len(row_ids), len(column_ids)), row_ids, column_ids)

    @classmethod
    def from_scipy(
        cls,
        matrix: sparse.sparray | sparse.spmatrix,
        *,
        row_names: object = None,
        column_names: object = None,
    ) -> Self:
        """Data from a scipy.sparse matrix: its stored cells, zeros among them, are the observed.

        Args:
            matrix: (N, D) sparse.
            row_names: N ids, or None.
            column_names: D ids, or None.
        Raises:
            TypeError: not a sparse matrix.
            ValueError: as the class.
        """
        if not is_sparse(matrix):
            raise TypeError(
                f"matrix: must be a scipy.sparse matrix, is {type(matrix).__name__}. For a matrix "
                "with NaN for missing cells (array, DataFrame, AnnData) use Entries.from_array."
            )
        cells = matrix.tocoo(copy=False)
        return cls(cells.row, cells.col, cells.data, cells.shape, row_names, column_names)

    @classmethod
    def from_array(
        cls, x: object, *, row_names: object = None, column_names: object = None
    ) -> Self:
        """Data from a matrix whose missing cells are NaN (or masked).

        Args:
            x: (N, D) numbers, an array, a wide DataFrame or an AnnData.
            row_names: N ids, instead of those of ``x``.
            column_names: D ids, instead of those of ``x``.
        Raises:
            TypeError, ValueError: as the class.
        """
        table = peel("data", x)
        if is_sparse(table.values):
            raise TypeError(
                "data: is sparse. Are its unstored cells missing, or zeros? Missing: "
                "Entries.from_scipy(matrix, row_names=, column_names=), of an AnnData its X. "
                "Zeros: Entries.from_array(matrix.toarray())."
            )
        array = checks.as_numeric("data", table.values)
        checks.check_matrix_shape("data", array.shape)
        checks.refuse(
            "data",
            array,
            np.isinf,
            "infinite value",
            "Only NaN is a missing cell: make it NaN, or repair it.",
        )
        rows, columns = np.nonzero(~np.isnan(array))
        if len(rows) == 0:
            raise ValueError(
                f"data: all {array.size} cells are missing (NaN). At least one observed cell is "
                "needed; check how the data was read."
            )
        return cls(
            rows,
            columns,
            array[rows, columns],
            array.shape,
            table.row_names if row_names is None else row_names,
            table.column_names if column_names is None else column_names,
        )

    @classmethod
    def from_process_rows(cls, x: object, *, mesh: Mesh) -> Self:
        """Data of which each process of `jax.distributed` has some cells and none has all.

        Every process makes this call with what it has, and keeps that. Where rows have ids, a row
        may have cells in several processes; rows without ids are those of process 0, then those of
        process 1, and so on. Ids come in the order of their appearance, process after process;
        columns without ids are the same in all. `jaxmf.sample` of `BPMF` takes such data, with the
        same mesh; draws are those of the whole to rounding, ids and fingerprint are its own. Its
        offset and unit are then settings of the model.

        Args:
            x: `Entries` of this process, or what `from_array` or `from_scipy` takes.
            mesh: with an axis "data" that goes through the devices of the processes in their order.
        Raises:
            TypeError, ValueError: as the class, in all processes together; ids or dtypes that do
                not fit each other, a cell that two processes have.
        """

        def make() -> PyTree:
            if isinstance(x, cls):
                return x
            return cls.from_scipy(x) if is_sparse(x) else cls.from_array(x)

        return cls._from_processes(make, mesh, cls.leaves, split_by_row=False)

    @property
    def num_entries(self) -> int:
        """T, the number of observed cells."""
        return self.rows.shape[0] if self.elsewhere is None else self.elsewhere.num_cells

    @property
    def num_missing(self) -> int:
        """N D - T, the number of cells that were not seen."""
        return self.num_rows * self.num_columns - self.num_entries

    def missing_cells(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the cells that were not seen, by rows.

        Raises:
            ValueError: there are too many to list.
        """
        if self.num_rows * self.num_columns > _LISTED_CELLS:
            raise ValueError(
                f"cells: {self.num_missing:,} cells were not seen, too many to list. Name those "
                "that matter: predict(cells)."
            )
        unseen = np.ones(self.shape, bool)
        unseen[np.asarray(self.rows), np.asarray(self.columns)] = False
        rows, columns = np.nonzero(unseen)
        return rows, columns

    def to_scipy(self) -> sparse.coo_array:
        """(N, D) scipy.sparse coordinate array of the observed cells, on the host."""
        from scipy.sparse import coo_array

        cells = (np.asarray(self.values), (np.asarray(self.rows), np.asarray(self.columns)))
        return coo_array(cells, shape=self.shape)

    def _with_columns(
        self, order: np.ndarray, ids: Names | None, known: Self, argument: str
    ) -> Self:
        columns = order[np.asarray(self.columns)]
        kept = np.flatnonzero(columns >= 0)
        rows = np.asarray(self.rows)
        kept = kept[np.lexsort((columns[kept], rows[kept]))]
        cells = {
            "rows": jnp.asarray(rows[kept]),
            "columns": jnp.asarray(columns[kept].astype(np.int32)),
            "values": jnp.asarray(np.asarray(self.values)[kept]),
        }
        shape = self.num_rows, known.num_columns
        return bare(type(self), **cells, shape=shape, row_names=self.row_names, column_names=ids)

    def describe(self) -> str:
        """How much of what there is, for messages."""
        sides = f"{self.num_rows:,} rows, {self.num_columns:,} columns"
        return f"{sides}, {self.num_entries:,} cells observed"

    def __repr__(self) -> str:
        return f"Entries({self.num_rows} x {self.num_columns}, {self.num_entries} observed)"
