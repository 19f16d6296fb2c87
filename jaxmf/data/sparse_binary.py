"""SparseBinary: a matrix of zeros and ones, given by its ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxmf.arguments import assign
from jaxmf.data import checks, names, process_cells
from jaxmf.data.cells_by_id import CellsById
from jaxmf.data.container import bare, checked_cells, is_sparse, lookup, peel, read_tuples
from jaxmf.data.long_arrays import cell_keys, sort_cells
from jaxmf.types import Array, Names, PyTree

if TYPE_CHECKING:
    from scipy import sparse

_REMEDY = "Give each one once; SparseBinary.from_pairs drops repeats."
GAPS_OF_SPARSE = (
    "Give the cells that were not observed: SparseBinary(rows, columns, shape, missing_rows=..., "
    "missing_columns=...)."
)


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, init=False, eq=False, repr=False)
class SparseBinary(CellsById):
    """The ones of a matrix (N, D) of zeros and ones, sorted by row, then column.

    Every cell that is not listed is an observed zero, but for those listed as missing. Rows and
    columns without a one are data like any other (an empty basket says something) and are taken as
    they are. New rows may have no ones at all; a fit needs at least one. A one given twice is an
    error.

    A pytree of the arrays; the shape is static, the ids live on the host only.

    Args:
        rows: (T,) whole numbers in 0..N-1.
        columns: (T,) whole numbers in 0..D-1.
        shape: (N, D).
        row_names: N ids of any type, or None.
        column_names: D ids of any type, or None.
        missing_rows: (U,) whole numbers, rows of cells that were not observed; None where all were.
        missing_columns: (U,) whole numbers.
    Raises:
        TypeError: objects, text or complex numbers.
        ValueError: lengths that differ, indices out of range, a cell given twice, ids that do not
            fit.
    Example:
        >>> SparseBinary([0, 1], [1, 0], (2, 2))
        SparseBinary(2 x 2, 2 ones)
    """

    leaves = ("rows", "columns", "missing_rows", "missing_columns")

    rows: Array
    columns: Array
    shape: tuple[int, int]
    row_names: Names | None
    column_names: Names | None
    missing_rows: Array | None
    missing_columns: Array | None

    def __init__(
        self,
        rows: object,
        columns: object,
        shape: Sequence[int],
        row_names: object = None,
        column_names: object = None,
        *,
        missing_rows: object = None,
        missing_columns: object = None,
    ) -> None:
        assign(self, missing_rows=missing_rows, missing_columns=missing_columns)
        if checks.is_traced(rows, columns):
            assign(self, rows=rows, columns=columns, shape=tuple(shape))
            assign(self, row_names=None, column_names=None)
            return
        shape = checks.check_shape_pair("shape", shape)
        rows, columns, ids = checked_cells(
            rows, columns, shape, names=(row_names, column_names), remedy=_REMEDY, can_be_empty=True
        )
        sort_cells(rows, columns, shape[1])
        assign(
            self,
            rows=jax.device_put(rows),
            columns=jax.device_put(columns),
            shape=shape,
            row_names=ids[0],
            column_names=ids[1],
        )
        if missing_rows is not None or missing_columns is not None:
            self._assign_missing(missing_rows, missing_columns)

    def _assign_missing(self, rows: object, columns: object) -> None:
        if rows is None or columns is None:
            raise ValueError("missing_rows and missing_columns belong together; give both.")
        rows = checks.as_index("missing_rows", rows, size=self.num_rows)
        columns = checks.as_index("missing_columns", columns, size=self.num_columns)
        checks.check_vector("missing_columns", columns, length=len(rows), like="missing_rows")
        if len(rows) == 0:
            assign(self, missing_rows=None, missing_columns=None)
            return
        order = np.lexsort((columns, rows))
        rows, columns = rows[order], columns[order]
        checks.check_no_duplicates(
            "missing_rows, missing_columns, rows, columns",
            np.concatenate([rows, np.asarray(self.rows)]),
            np.concatenate([columns, np.asarray(self.columns)]),
            num_columns=self.num_columns,
            remedy="A cell is a one or missing, not both, and is given once.",
            names=(self.row_names, self.column_names),
        )
        assign(self, missing_rows=jnp.asarray(rows), missing_columns=jnp.asarray(columns))

    @classmethod
    def from_baskets(
        cls, baskets: object, *, row_names: object = None, column_names: object = None
    ) -> Self:
        """Data from baskets, each a collection of ids of what is in it.

        A basket is a set: an item that stands in it twice is in it. An empty basket is a row of
        zeros; new customers may all have one.

        Args:
            baskets: N collections of ids of any type; a mapping or a Series gives ids of rows too.
            row_names: N ids of the baskets, or None.
            column_names: all ids of items, in order; None takes them in order of appearance.
        Raises:
            TypeError: a basket that is a text or no collection.
            ValueError: as the class; an item that ``column_names`` lacks.
        Example:
            >>> data = SparseBinary.from_baskets([["milk", "bread"], [], ["milk"]])
            >>> data, data.column_names.tolist()
            (SparseBinary(3 x 2, 3 ones), ['milk', 'bread'])
        """
        if isinstance(baskets, Mapping):
            row_names = list(baskets) if row_names is None else row_names
            baskets = list(baskets.values())
        elif hasattr(baskets, "index") and hasattr(baskets, "to_numpy"):
            row_names = baskets.index if row_names is None else row_names
        rows: list[int] = []
        items: list[Any] = []
        num_rows = 0
        for position, basket in enumerate(
            checks.as_lines("baskets", baskets, "a list of baskets, each a list of ids,")
        ):
            if isinstance(basket, (str, bytes)) or not isinstance(basket, Iterable):
                raise TypeError(
                    f"baskets: the basket at position {position} is {basket!r}, a collection of "
                    "ids is needed. One basket alone is written [basket]."
                )
            content = list(dict.fromkeys(basket))
            rows.extend([position] * len(content))
            items.extend(content)
            num_rows += 1
        if num_rows == 0:
            raise ValueError(
                "baskets: is empty, there is no basket. At least one is needed; check the filter "
                "or the file they came from. A new customer without items is [[]]."
            )
        if not items and column_names is None:
            cells = dict.fromkeys(("rows", "columns"), jnp.zeros(0, jnp.int32))
            gaps = dict.fromkeys(("missing_rows", "missing_columns"))
            ids = names.as_names("row_names", row_names, size=num_rows)
            fields = {"row_names": ids, "column_names": names.object_array([])}
            return bare(cls, **cells, **gaps, shape=(num_rows, 0), **fields)
        array = names.object_array(items)
        try:
            columns, column_ids = lookup("baskets", array, column_names, line="item")
        except ValueError as error:
            if column_names is None:
                raise
            raise ValueError(
                f"{error} New rows need no column_names: questions about them match items by id, "
                'and unknown="drop" leaves out those that the data lacks.'
            ) from None
        return cls(rows, columns, (num_rows, len(column_ids)), row_names, column_ids)

    @classmethod
    def from_pairs(
        cls, pairs: Any, *, row_names: object = None, column_names: object = None
    ) -> Self:
        """Data from pairs (id of the row, id of the column), one for each one.

        A pair that stands twice, such as an item that was bought again, is one one.

        Args:
            pairs: T pairs of ids of any type, or a DataFrame of two columns.
            row_names: all ids of rows, in order; None takes them in order of appearance.
            column_names: the same for columns.
        Raises:
            TypeError, ValueError: as the class; a line that is no pair, an unknown or missing id.
        Example:
            >>> SparseBinary.from_pairs([("ann", "tea"), ("bo", "tea")])
            SparseBinary(2 x 1, 2 ones)
        """
        _, (rows, row_ids), (columns, column_ids) = read_tuples(
            "pairs",
            pairs,
            ("row", "column"),
            nothing="the matrix has no ones",
            known=(row_names, column_names),
        )
        shape = (len(row_ids), len(column_ids))
        rows, columns = np.divmod(np.unique(cell_keys(rows, columns, shape[1])), shape[1])
        return cls(rows, columns, shape, row_ids, column_ids)

    @classmethod
    def from_scipy(
        cls,
        matrix: sparse.sparray | sparse.spmatrix,
        *,
        row_names: object = None,
        column_names: object = None,
    ) -> Self:
        """Data from a scipy.sparse matrix of ones; cells that it does not store are zeros.

        Args:
            matrix: (N, D) sparse.
            row_names: N ids, or None.
            column_names: D ids, or None.
        Raises:
            TypeError: not a sparse matrix.
            ValueError: as the class; a stored value that is neither 0 nor 1.
        """
        if not is_sparse(matrix):
            raise TypeError(
                f"matrix: a {type(matrix).__name__} is no scipy.sparse matrix. "
                "For an array of zeros and ones use SparseBinary.from_array."
            )
        cells = matrix.tocoo(copy=False)
        ones = checks.check_binary(
            "matrix", checks.as_numeric("matrix", cells.data), gaps=GAPS_OF_SPARSE
        )
        if ones.all():
            return cls(cells.row, cells.col, cells.shape, row_names, column_names)
        return cls(cells.row[ones], cells.col[ones], cells.shape, row_names, column_names)

    @classmethod
    def from_array(
        cls,
        x: object,
        *,
        observed: object = None,
        row_names: object = None,
        column_names: object = None,
    ) -> Self:
        """Data from a matrix of zeros and ones: array, DataFrame, AnnData or scipy.sparse.

        Args:
            x: (N, D) zeros and ones.
            observed: (N, D) bool, the cells that were observed; None for all. What lies beneath the
                others does not matter and may be NaN. Not with scipy.sparse.
            row_names: N ids, instead of those of ``x``.
            column_names: D ids, instead of those of ``x``.
        Raises:
            TypeError, ValueError: as the class; a value that is neither 0 nor 1.
        """
        table = peel("data", x)
        row_names = table.row_names if row_names is None else row_names
        column_names = table.column_names if column_names is None else column_names
        if is_sparse(table.values):
            if observed is not None:
                raise ValueError(
                    f"observed: does not go with a scipy.sparse matrix. {GAPS_OF_SPARSE}"
                )
            return cls.from_scipy(table.values, row_names=row_names, column_names=column_names)
        array = checks.as_numeric("data", table.values)
        checks.check_matrix_shape("data", array.shape)
        if observed is None:
            rows, columns = np.nonzero(checks.check_binary("data", array))
            return cls(rows, columns, array.shape, row_names, column_names)
        seen = checks.as_mask("observed", observed, array.shape)
        rows, columns = np.nonzero(checks.check_binary("data", np.where(seen, array, 0)))
        gaps = np.nonzero(~seen)
        return cls(
            rows,
            columns,
            array.shape,
            row_names,
            column_names,
            missing_rows=gaps[0],
            missing_columns=gaps[1],
        )

    @classmethod
    def from_process_rows(cls, x: object, *, mesh: Mesh) -> Self:
        """Data of which each process of `jax.distributed` has some rows and none has all.

        Every process makes this call with its rows, and keeps these: those of process 0 come first,
        then those of process 1, and so on. Ids of columns come in the order of their appearance,
        process after process; columns without ids are the same in all. `jaxmf.variational` of
        `SparseBinaryMF` takes such data, with the same mesh; the fit is that of the whole to
        rounding, ids and fingerprint are its own.

        Args:
            x: `SparseBinary` of this process, or what `from_array` takes.
            mesh: with an axis "data" that goes through the devices of the processes in their order.
        Raises:
            TypeError, ValueError: as the class, in all processes together; ids that do not fit each
                other, a row that two processes have.
        """

        def make() -> PyTree:
            data = x if isinstance(x, cls) else cls.from_array(x)
            data.check_has_ones("x")
            return data

        return cls._from_processes(make, mesh, cls.leaves[:2], split_by_row=True)

    def check_has_ones(self, name: str) -> None:
        """Refuses data of which nothing can be learned; `name` is what the message calls them.

        Raises ValueError: there is no one.
        """
        if self.num_ones == 0:
            raise ValueError(
                f"{name}: has no ones, is {self.size()} zeros. A fit needs at least one; check the "
                "filter or the file they came from. Rows of zeros may be new_rows of a fit."
            )

    @property
    def num_ones(self) -> int:
        """T."""
        return self.rows.shape[0] if self.elsewhere is None else self.elsewhere.num_cells

    @property
    def row_counts(self) -> np.ndarray:
        """How many ones the rows have, (N,) int on the host."""
        if self.elsewhere is not None:
            return self.elsewhere.row_counts
        return np.bincount(np.asarray(self.rows), minlength=self.num_rows)

    @property
    def column_counts(self) -> np.ndarray:
        """How many ones the columns have, (D,) int on the host."""
        if self.elsewhere is not None:
            return self.elsewhere.column_counts
        return np.bincount(np.asarray(self.columns), minlength=self.num_columns)

    @property
    def num_missing(self) -> int:
        """U."""
        if self.elsewhere is not None:
            return self.elsewhere.num_missing
        return 0 if self.missing_rows is None else self.missing_rows.shape[0]

    def missing_cells(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the cells not observed, (U,) each."""
        if self.missing_rows is None:
            return np.zeros(0, np.int32), np.zeros(0, np.int32)
        return np.asarray(self.missing_rows), np.asarray(self.missing_columns)

    def cells_of_rows(self, rows: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Rows and columns of the ones, then of the missing cells, of some rows, on the host.

        Of rows that lie in several processes: all of these call it.
        """
        is_asked = np.zeros(self.num_rows, bool)
        is_asked[rows] = True
        if self.elsewhere is None:
            ones = np.asarray(self.rows), np.asarray(self.columns)
            cells = [(both, is_asked[both[0]]) for both in (ones, self.missing_cells())]
            return [(both[0][there], both[1][there]) for both, there in cells]
        found = []
        for part in (self.elsewhere.cells, self.elsewhere.missing):
            if part is not None:
                row, column = process_cells.cells_where(part, lambda rows, _: is_asked[rows])
                found.append((row, column))
        return found

    def to_scipy(self) -> sparse.csr_array:
        """(N, D) scipy.sparse row-compressed array of ones, on the host."""
        from scipy.sparse import csr_array

        ones = np.ones(self.num_ones, np.int8)
        return csr_array((ones, (np.asarray(self.rows), np.asarray(self.columns))), self.shape)

    def _with_columns(
        self, order: np.ndarray, ids: Names | None, known: Self, argument: str
    ) -> Self:
        ones = _renumbered(order, self.rows, self.columns)
        gaps: tuple[Any, Any] = (None, None)
        if self.missing_rows is not None:
            gaps = _renumbered(order, self.missing_rows, self.missing_columns)
        cells = {"rows": ones[0], "columns": ones[1]}
        cells |= {"missing_rows": gaps[0], "missing_columns": gaps[1]}
        shape = self.num_rows, known.num_columns
        return bare(type(self), **cells, shape=shape, row_names=self.row_names, column_names=ids)

    def _arrays(self) -> dict[str, object]:
        return {n: getattr(self, n) for n in self.leaves if getattr(self, n) is not None}

    def __repr__(self) -> str:
        gaps = f", {self.num_missing} missing" if self.num_missing else ""
        return f"SparseBinary({self.num_rows} x {self.num_columns}, {self.num_ones} ones{gaps})"


def _renumbered(order: np.ndarray, rows: object, columns: object) -> tuple[Array, Array]:
    """Cells with new positions of their columns, sorted; those of position -1 are left out."""
    row_indices, column_indices = np.asarray(rows), order[np.asarray(columns)]
    kept = np.flatnonzero(column_indices >= 0)
    kept = kept[np.lexsort((column_indices[kept], row_indices[kept]))]
    return jnp.asarray(row_indices[kept]), jnp.asarray(column_indices[kept].astype(np.int32))
