"""Dense: a matrix of numbers, some of them perhaps missing."""

from dataclasses import dataclass
from functools import partial
from typing import Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxmf.arguments import assign
from jaxmf.data import alignment, checks, names, process_rows
from jaxmf.data.cells_by_id import CellsById
from jaxmf.data.container import bare, peel
from jaxmf.data.long_arrays import aligned_empty
from jaxmf.types import Array, Names, PyTree
from jaxmf.user_warnings import warn

D = TypeVar("D", bound="Dense")

# cells that are checked at once
BLOCK_CELLS = 2**20


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, init=False, eq=False, repr=False)
class Dense(CellsById):
    """A matrix (N, D) of real numbers; NaN means missing.

    Missing cells hold 0 in ``values`` and False in ``observed``; ``observed`` is None when nothing
    is missing. A row or column without any observed cell is accepted, with a warning from
    :meth:`from_array`: nothing is learned about it, and answers about it come from the prior. A
    matrix with no observed cell is an error. Inf is an error.

    A pytree of ``values`` and ``observed``. The ids live on the host only: a Dense that came out of
    a jax transformation has none.

    Args:
        values: (N, D) numbers; NaN marks missing cells where ``observed`` is not given.
        observed: (N, D) bool, or None.
        row_names: N ids of any type, or None.
        column_names: D ids of any type, or None.
    Raises:
        TypeError: objects, text or complex numbers.
        ValueError: not a matrix, no rows or columns, infinite values, numbers that the floating
            dtype cannot hold, nothing observed, ids that do not fit.
    Example:
        >>> data = Dense([[1.0, 2.0], [float("nan"), 4.0]])
        >>> data.num_missing, data.missing_cells()
        (1, (array([1]), array([0])))
    """

    leaves = ("values", "observed")

    values: Array
    observed: Array | None
    row_names: Names | None
    column_names: Names | None

    def __init__(
        self,
        values: object,
        observed: object = None,
        row_names: object = None,
        column_names: object = None,
    ) -> None:
        arrays = {"values": values, "observed": observed}
        if checks.is_traced(values, observed):
            assign(self, **arrays, row_names=None, column_names=None)
            return
        array = checks.as_numeric("data", _plain_matrix(values))
        checks.check_matrix_shape("data", array.shape)
        ids = (
            names.as_names("row_names", row_names, size=array.shape[0]),
            names.as_names("column_names", column_names, size=array.shape[1]),
        )
        assign(self, **_normalise(array, observed, ids), row_names=ids[0], column_names=ids[1])

    @classmethod
    def from_array(
        cls,
        x: object,
        *,
        observed: object = None,
        row_names: object = None,
        column_names: object = None,
    ) -> Self:
        """Data from an array, DataFrame, masked array, scipy.sparse matrix or AnnData.

        Cells that a sparse matrix does not store are zeros. Ids of a DataFrame or AnnData are kept.

        Args:
            x: (N, D) numbers; NaN (or masked) means missing.
            observed: (N, D) bool, or None: the NaN cells are the missing ones.
            row_names: N ids, instead of those of ``x``.
            column_names: D ids, instead of those of ``x``.
        Raises:
            TypeError, ValueError: as the class.
        """
        if isinstance(x, cls):
            return x
        result = cls._read(x, observed, row_names, column_names)
        result._warn_of_empty_lines()
        return result

    @classmethod
    def from_new_rows(cls, x: object) -> Self:
        """As `from_array`, of rows beside known ones: that a column has no cell is no warning."""
        if isinstance(x, cls):
            return x
        result = cls._read(x)
        result._warn_of_empty_lines(columns=False)
        return result

    @classmethod
    def _read(
        cls,
        x: object,
        observed: object = None,
        row_names: object = None,
        column_names: object = None,
    ) -> Self:
        table = peel("data", x)
        values = table.values
        if hasattr(values, "toarray"):
            checks.check_matrix_shape("data", values.shape)
            values = values.toarray()
        return cls(
            values,
            observed,
            table.row_names if row_names is None else row_names,
            table.column_names if column_names is None else column_names,
        )

    @classmethod
    def from_process_rows(
        cls,
        x: object,
        *,
        mesh: Mesh,
        observed: object = None,
        row_names: object = None,
        column_names: object = None,
    ) -> Self:
        """Data of which each process of `jax.distributed` has some rows and none has all.

        Every process makes this call with its rows: those of process 0 come first, then those of
        process 1, and so on, as many in each. They go to the devices of the mesh that belong to it.
        `jaxmf.sample` of `LinearGaussianIBP` takes such data, with the same mesh; draws, ids and
        fingerprint are those of the whole matrix. Single cells are not read afterwards: the
        posterior has all draws, and says what to do where a question needs cells.

        Args:
            x: (n, D) numbers, the rows of this process, as for `from_array`.
            mesh: with an axis "data" that goes through the devices of the processes in their order.
            observed: (n, D) bool, or None: the NaN cells are the missing ones.
            row_names: n ids, texts or whole numbers, instead of those of ``x``.
            column_names: D ids, instead of those of ``x``; the same in all processes.
        Raises:
            TypeError, ValueError: as the class, in all processes together; rows of different
                numbers, columns or dtypes; rows that the devices cannot share evenly.
        """
        return _from_process_rows(
            cls, x, process_rows.check_mesh(mesh), observed, row_names, column_names
        )

    @property
    def spans_processes(self) -> bool:
        """Whether some rows lie in other processes: see `from_process_rows`."""
        return "values" not in self.__dict__ or process_rows.spans_processes(self.values)

    def without_cells(self) -> Self:
        """Size, ids and fingerprint of rows that lie in several processes: all that each knows."""
        if not self.spans_processes:
            return self
        ids = {"row_names": self.row_names, "column_names": self.column_names}
        return bare(type(self), _shape=self.shape, _fingerprint=self.fingerprint(), **ids)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, D)."""
        if "_shape" in self.__dict__:
            return self.__dict__["_shape"][0], self.__dict__["_shape"][1]
        return self.values.shape[0], self.values.shape[1]

    @property
    def num_missing(self) -> int:
        """How many cells are missing."""
        return 0 if self.observed is None else int(np.sum(~np.asarray(self.observed)))

    def missing_cells(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the missing cells, in row-major order, on the host."""
        if self.observed is None:
            return np.zeros(0, int), np.zeros(0, int)
        rows, columns = np.nonzero(~np.asarray(self.observed))
        return rows, columns

    def row(self, index: Array | int) -> tuple[Array, Array | None]:
        """One row, inside a transformation too: values (D,), observed (D,) bool or None."""
        at = partial(jax.lax.dynamic_index_in_dim, index=index, keepdims=False)
        return at(self.values), None if self.observed is None else at(self.observed)

    def to_array(self) -> np.ndarray:
        """(N, D) float on the host, NaN where a cell is missing."""
        values = np.array(self.values)
        if self.observed is not None:
            values[~np.asarray(self.observed)] = np.nan
        return values

    def _with_columns(
        self, order: np.ndarray, ids: Names | None, known: Self, argument: str
    ) -> Self:
        alignment.check_complete(order, known.column_names, known.num_columns, argument=argument)
        kept = np.flatnonzero(order >= 0)
        take = np.empty(known.num_columns, np.int64)
        take[order[kept]] = kept
        values, observed = self.values, self.observed
        if not np.array_equal(take, np.arange(self.num_columns)):
            values = jnp.asarray(np.asarray(values)[:, take])
            observed = None if observed is None else jnp.asarray(np.asarray(observed)[:, take])
        arrays = {"values": values, "observed": observed}
        return bare(type(self), **arrays, row_names=self.row_names, column_names=ids)

    def with_more(self, values: Array) -> Self:
        """The matrix with as many simulated rows (N, D) below, cells missing where they are above.

        Values are of a trace and go in unchecked; ids are left out.
        """
        observed = self.observed
        if observed is not None:
            values = jnp.where(observed, values, 0)
            observed = jnp.concatenate([observed, observed])
        values = jnp.concatenate([self.values, values.astype(self.values.dtype)])
        return bare(type(self), values=values, observed=observed, row_names=None, column_names=None)

    def append_rows(self, new: Self, *, argument: str = "data") -> Self:
        """The matrix with further rows below, whose columns are those of this one.

        Ids 0, 1, 2, ... of further rows, as a table has them by default, continue the ids above.

        Args: new (M, D), see `align_columns`.

        Raises:
            ValueError: a further row has the id of one that there is.
        """
        names_of_rows = alignment.continued_names(
            self.row_names, new.row_names, sizes=(self.num_rows, new.num_rows), argument=argument
        )
        values = np.concatenate([self.to_array(), new.to_array()])
        return type(self)(values, row_names=names_of_rows, column_names=self.column_names)

    def __repr__(self) -> str:
        if self.spans_processes:
            return f"Dense({' x '.join(map(str, self.shape))}, in several processes)"
        missing = ""
        if not checks.is_traced(self.observed):
            missing = f", {self.num_missing} missing"
        return f"Dense({' x '.join(map(str, jnp.shape(self.values)))}{missing})"

    def _warn_of_empty_lines(self, *, columns: bool = True) -> None:
        if self.observed is None:
            return
        observed = np.asarray(self.observed)
        for line, axis in (("row", 1), ("column", 0))[: 2 if columns else 1]:
            seen = observed.any(axis=axis)
            if not seen.all():
                ids = getattr(self, f"{line}_names")
                first = checks.shown_id(ids, int(np.argmin(seen)))
                warn(
                    f"data: {int(np.sum(~seen))} {line}s have no observed cell, the first is "
                    f"{line} {first}. What is said of them comes from the prior alone; drop them "
                    "if that is not meant."
                )

    def tree_flatten_with_keys(
        self,
    ) -> tuple[tuple[tuple[jax.tree_util.GetAttrKey, PyTree], ...], None]:
        """The arrays; ids stay behind. The shape is theirs, so that a batch of them is one too."""
        key = jax.tree_util.GetAttrKey
        return ((key("values"), self.values), (key("observed"), self.observed)), None

    @classmethod
    def tree_unflatten(cls, _: object, children: tuple[PyTree, ...]) -> Self:
        values, observed = children
        return bare(cls, values=values, observed=observed, row_names=None, column_names=None)


def _from_process_rows(cls: type[D], x: object, mesh: Mesh, observed: object, *ids: object) -> D:
    local, error = None, None
    try:
        table = peel("data", x)
        names_of_sides = [
            stated if stated is not None else found
            for stated, found in zip(ids, (table.row_names, table.column_names), strict=True)
        ]
        values = table.values.toarray() if hasattr(table.values, "toarray") else table.values
        local = cls(values, observed, *names_of_sides)
        cells = local.values, local.observed
        facts = process_rows.facts_of(*cells, local.row_names, local.column_names)
    except Exception as raised:
        facts, error = None, raised
    every = process_rows.agree(
        facts,
        error,
        compared=process_rows.Facts._fields[:-2],
        what="rows",
        remedy="All need as many rows, the same columns in the same order and the same dtype; move "
        "rows from one to another, or leave some out",
    )
    assert local is not None
    result = bare(cls, **process_rows.spread(*cells, mesh, every))
    all_ids = [name for other in every for name in other.row_names or ()]
    row_names = names.as_names("row_names", all_ids or None, size=result.shape[0])
    assign(result, row_names=row_names, column_names=local.column_names)
    # now, when all processes are here: later one of them may ask alone
    assign(result, _fingerprint=result.fingerprint())
    return result


def _plain_matrix(values: object) -> object:
    """The values, unless they are of a type that `Dense.from_array` reads."""
    if hasattr(values, "columns") or hasattr(values, "toarray") or hasattr(values, "obs_names"):
        raise TypeError(
            f"values: is a {type(values).__name__}; use Dense.from_array, which takes it as it is."
        )
    return values


def _normalise(
    array: np.ndarray, observed: object, ids: tuple[Names | None, Names | None]
) -> dict[str, Array | None]:
    """Checked values and mask, as they are stored; ids of rows and columns are for messages."""
    mask = None if observed is None else checks.as_mask("observed", observed, array.shape)
    stored, seen, num_observed = _in_blocks(array, mask, ids)
    if not num_observed:
        raise ValueError(
            f"data: all {array.size} cells are missing (NaN). At least one observed cell is "
            "needed; check how the data was read."
        )
    lost = checks.column_of_lost_digits(array, mask, max(1, BLOCK_CELLS // array.shape[1]))
    if lost is not None:
        column, size, spread = lost
        warn(
            f"data: the values of column {checks.shown_id(ids[1], column)} are about {size:.3g} "
            f"and differ by {spread:.3g} at most, which {stored.dtype} cannot tell apart. Subtract "
            "the mean of such columns first (x - x.mean(axis=0)), or switch 64 bits on: "
            'jax.config.update("jax_enable_x64", True)'
        )
    # aligned as they are, new arrays are taken over without another copy
    kept = None
    if num_observed < array.size:
        kept = jax.device_put(seen) if mask is None else jnp.asarray(seen)
    return {"values": jax.device_put(stored), "observed": kept}


def _in_blocks(
    array: np.ndarray, mask: np.ndarray | None, ids: tuple[Names | None, Names | None]
) -> tuple[np.ndarray, np.ndarray | None, int]:
    """The checked values in the floating dtype, zero where missing, the mask, and its count.

    Block by block of rows, so that beside the result nothing of its size is made.

    Args: array (N, D) numbers; mask (N, D) bool, or None: the cells that are not NaN.
    """
    dtype = np.dtype(jnp.result_type(float))
    stored, num_observed = aligned_empty(array.shape, dtype), 0
    seen = mask
    num_rows = max(1, BLOCK_CELLS // array.shape[1])
    for first in range(0, array.shape[0], num_rows):
        rows = slice(first, first + num_rows)
        block, offset = array[rows], (first, 0)
        values = checks.as_float("data", block, offset=offset)
        there = ~np.isnan(values) if mask is None else mask[rows]
        infinite = ~np.isfinite(values) & there
        if infinite.any():
            raise checks.offence(
                "data",
                values,
                infinite,
                "not finite",
                "Missing cells are marked with NaN (or observed=False); repair or mark these.",
                offset=offset,
                ids=ids,
            )
        count = int(np.count_nonzero(there))
        if count < there.size and seen is None:
            seen = aligned_empty(array.shape, np.dtype(bool))
            seen[:first] = True
        if mask is None and seen is not None:
            seen[rows] = there
        stored[rows] = values if count == there.size else np.where(there, values, 0)
        num_observed += count
    return stored, seen, num_observed
