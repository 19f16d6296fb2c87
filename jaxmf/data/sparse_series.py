"""SparseSeries: matrices of zeros and ones of the same rows and columns, one a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.arguments import assign
from jaxmf.data import checks
from jaxmf.data.cells_by_id import CellsById
from jaxmf.data.container import bare, is_sparse, read_tuples
from jaxmf.data.names import as_names
from jaxmf.data.series_checks import (
    SeriesCells,
    as_part,
    as_times,
    check_once,
    checked_cells,
    checked_shape,
    checked_times,
    common_ids,
)
from jaxmf.data.sparse_binary import SparseBinary
from jaxmf.types import Array, Names

if TYPE_CHECKING:
    from scipy import sparse


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, init=False, eq=False, repr=False)
class SparseSeries(CellsById):
    """T matrices (N, D) of zeros and ones, given by their ones and their times.

    Every cell that is not listed is an observed zero, but for those listed as missing. Times are
    any real numbers, evenly spaced or not; matrices are kept in their order. Without a time, what
    is asked of a series is of its last one: `to_scipy`, `missing_cells`.

    A pytree of the arrays; the shape is static, the ids live on the host only.

    Args:
        rows: (M,) whole numbers in 0..N-1, rows of the ones.
        steps: (M,) whole numbers in 0..T-1, which of the times each is of.
        columns: (M,) whole numbers in 0..D-1.
        times: (T,) numbers, each once.
        shape: (N, T, D).
        row_names: N ids of any type, or None.
        column_names: D ids of any type, or None.
        missing_rows: (U,) rows of cells that were not observed; None where all were.
        missing_steps: (U,) whole numbers.
        missing_columns: (U,) whole numbers.
    Raises:
        TypeError: objects, text or complex numbers.
        ValueError: lengths that differ, indices out of range, a cell given twice, a time that
            stands twice, ids that do not fit.
    Example:
        >>> SparseSeries([0, 1], [0, 1], [2, 0], [2023.5, 2024.0], (2, 2, 3))
        SparseSeries(2 x 3 at 2 times from 2023.5 to 2024, 2 ones)
    """

    leaves = (*SeriesCells._fields, "times", *(f"missing_{name}" for name in SeriesCells._fields))

    rows: Array
    steps: Array
    columns: Array
    times: np.ndarray
    shape: tuple[int, int, int]
    row_names: Names | None
    column_names: Names | None
    missing_rows: Array | None
    missing_steps: Array | None
    missing_columns: Array | None

    def __init__(
        self,
        rows: object,
        steps: object,
        columns: object,
        times: object,
        shape: object,
        row_names: object = None,
        column_names: object = None,
        *,
        missing_rows: Any = None,
        missing_steps: object = None,
        missing_columns: object = None,
    ) -> None:
        shape = checked_shape(shape)
        times, rank = checked_times(times, shape[1])
        ids = (
            as_names("row_names", row_names, size=shape[0]),
            as_names("column_names", column_names, size=shape[2]),
        )
        missing = (missing_rows, missing_steps, missing_columns)
        if any(part is None for part in missing) and not all(part is None for part in missing):
            raise ValueError("missing_rows, missing_steps and missing_columns belong together.")
        ones = checked_cells((rows, steps, columns), shape, rank, "")
        gaps = None
        if missing_rows is not None and len(missing_rows):
            gaps = checked_cells(missing, shape, rank, "missing_")
        check_once(ones, gaps, shape, ids, times)
        assign(self, times=times, shape=shape, row_names=ids[0], column_names=ids[1])
        assign(self, **{name: jnp.asarray(part) for name, part in ones._asdict().items()})
        found = {} if gaps is None else gaps._asdict()
        for name in SeriesCells._fields:
            part = None if gaps is None else jnp.asarray(found[name])
            assign(self, **{f"missing_{name}": part})

    @classmethod
    def from_matrices(
        cls,
        matrices: object,
        times: object,
        *,
        row_names: object = None,
        column_names: object = None,
    ) -> Self:
        """Data from one matrix for each time, all of the same rows and columns.

        Args:
            matrices: T matrices (N, D): `SparseBinary`, scipy.sparse, arrays or DataFrames. One
                without any one is taken as it is.
            times: (T,) numbers, in the order of the matrices.
            row_names: N ids, instead of those of the matrices.
            column_names: D ids, instead of those of the matrices.
        Raises:
            TypeError, ValueError: as the class; shapes or ids that differ, a value other than 0
                and 1.
        Example:
            >>> SparseSeries.from_matrices([[[0, 1]], [[1, 1]]], [1.0, 2.5])
            SparseSeries(1 x 2 at 2 times from 1 to 2.5, 3 ones)
        """
        if is_sparse(matrices) or isinstance(matrices, (SparseBinary, str, bytes)):
            raise TypeError(
                f"matrices: is one {type(matrices).__name__}; a list with one for each time is "
                "needed."
            )
        listed = checks.as_lines("matrices", matrices, "a list with one matrix for each time")
        parts = [as_part(f"matrices[{index}]", each) for index, each in enumerate(listed)]
        if not parts:
            raise ValueError("matrices: is empty. At least one is needed.")
        times = as_times(times)
        if len(times) != len(parts):
            raise ValueError(
                f"times: has {len(times)} values but there are {len(parts)} matrices. Give one "
                "time for each, in their order."
            )
        for index, part in enumerate(parts):
            if part.shape != parts[0].shape:
                raise ValueError(
                    f"matrices[{index}]: has shape {part.shape}, the first has {parts[0].shape}. "
                    "All need the same rows and columns; SparseSeries.from_triples aligns them by "
                    "their ids."
                )
        ids = {
            "row_names": common_ids(parts, "row_names", row_names),
            "column_names": common_ids(parts, "column_names", column_names),
        }

        def joined(arrays: list[object]) -> np.ndarray:
            return np.concatenate([np.asarray(array, np.int64) for array in arrays])

        def steps(cells: list[Any]) -> np.ndarray:
            return np.repeat(np.arange(len(parts)), [len(each) for each in cells])

        ones = [part.ones for part in parts]
        gaps = [part.missing for part in parts]
        return cls(
            joined([each[0] for each in ones]),
            steps([each[0] for each in ones]),
            joined([each[1] for each in ones]),
            times,
            (parts[0].shape[0], len(parts), parts[0].shape[1]),
            **ids,
            missing_rows=joined([each[0] for each in gaps]),
            missing_steps=steps([each[0] for each in gaps]),
            missing_columns=joined([each[1] for each in gaps]),
        )

    @classmethod
    def from_triples(
        cls,
        triples: object,
        *,
        row_names: object = None,
        column_names: object = None,
        times: object = None,
    ) -> Self:
        """Data from triples (id of the row, id of the column, time), one for each one.

        Args:
            triples: M triples, or a DataFrame of three columns.
            row_names: all ids of rows, in order; None takes them in order of appearance.
            column_names: the same for columns.
            times: all times, those without a one included; None takes those of the triples.
        Raises:
            TypeError, ValueError: as the class; a line that is no triple, an unknown id or time.
        Example:
            >>> SparseSeries.from_triples([("ann", "tea", 1.0), ("bo", "tea", 3.0)])
            SparseSeries(2 x 1 at 2 times from 1 to 3, 2 ones)
        """
        lines, (rows, row_ids), (columns, column_ids) = read_tuples(
            "triples",
            triples,
            ("row", "column", "time"),
            nothing="there are no ones",
            known=(row_names, column_names),
        )
        line_times = as_times([line[2] for line in lines])
        checks.check_finite("times", line_times)
        known = np.unique(line_times) if times is None else np.unique(as_times(times))
        if not len(known):
            raise ValueError("times: is empty. At least one is needed.")
        steps = np.minimum(np.searchsorted(known, line_times), len(known) - 1)
        unknown = np.flatnonzero(known[steps] != line_times)
        if len(unknown):
            raise ValueError(
                f"triples: the time {line_times[unknown[0]]:g} at position {unknown[0]} is not "
                "one of times."
            )
        shape = (len(row_ids), len(known), len(column_ids))
        return cls(rows, steps, columns, known, shape, row_ids, column_ids)

    @property
    def num_times(self) -> int:
        """T."""
        return self.shape[1]

    @property
    def num_ones(self) -> int:
        """M."""
        return self.rows.shape[0]

    @property
    def num_missing(self) -> int:
        """U."""
        return 0 if self.missing_rows is None else self.missing_rows.shape[0]

    def gaps(self) -> np.ndarray:
        """(T, T) float64, how far apart the times are."""
        times = np.asarray(self.times, np.float64)
        return np.abs(times[:, None] - times)

    def lines(self) -> tuple[Array, Array]:
        """Lines i T + t of the ones in the matrices below each other, and their columns: (M,)."""
        return self.rows * self.num_times + self.steps, self.columns

    def missing_lines(self) -> tuple[Array, Array] | None:
        """The same for cells that were not observed; None if all were observed."""
        if self.missing_rows is None or self.missing_steps is None or self.missing_columns is None:
            return None
        return self.missing_rows * self.num_times + self.missing_steps, self.missing_columns

    def stacked(self) -> SparseBinary:
        """The matrices below each other: (N T, D), of which line i T + t is row i at time t."""
        gaps = self.missing_lines() or (None, None)
        shape = (self.num_rows * self.num_times, self.num_columns)
        return SparseBinary(*self.lines(), shape, missing_rows=gaps[0], missing_columns=gaps[1])

    def at(self, time: float) -> Self:
        """The series at one time alone; without ones where it has none of that time."""
        step = np.flatnonzero(np.asarray(self.times) == time)
        index = int(step[0]) if step.size else -1
        kept = np.asarray(self.steps) == index
        nothing = np.zeros(int(kept.sum()), np.int32)
        gaps: dict[str, object] = {}
        if self.missing_rows is not None:
            at_step = np.asarray(self.missing_steps) == index
            gaps = {
                "missing_rows": np.asarray(self.missing_rows)[at_step],
                "missing_steps": np.zeros(int(at_step.sum()), np.int32),
                "missing_columns": np.asarray(self.missing_columns)[at_step],
            }
        return type(self)(
            np.asarray(self.rows)[kept],
            nothing,
            np.asarray(self.columns)[kept],
            [time],
            (self.num_rows, 1, self.num_columns),
            self.row_names,
            self.column_names,
            **gaps,
        )

    def missing_cells(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the cells not observed at the last time."""
        if self.missing_rows is None:
            return np.zeros(0, np.int32), np.zeros(0, np.int32)
        last = np.asarray(self.missing_steps) == self.num_times - 1
        return np.asarray(self.missing_rows)[last], np.asarray(self.missing_columns)[last]

    def to_scipy(self) -> sparse.csr_array:
        """(N, D) scipy.sparse row-compressed array of the ones of the last time, on the host."""
        from scipy.sparse import csr_array

        last = np.asarray(self.steps) == self.num_times - 1
        rows, columns = np.asarray(self.rows)[last], np.asarray(self.columns)[last]
        return csr_array((np.ones(rows.size, np.int8), (rows, columns)), self.shape[::2])

    def _with_columns(
        self, order: np.ndarray, ids: Names | None, known: Self, argument: str
    ) -> Self:
        cells: dict[str, object] = {}
        for prefix in ("", "missing_"):
            parts = [getattr(self, f"{prefix}{name}") for name in SeriesCells._fields]
            if parts[0] is not None:
                parts = [np.asarray(part) for part in parts]
                parts[2] = order[parts[2]].astype(np.int32)
                kept = np.flatnonzero(parts[2] >= 0)
                kept = kept[np.lexsort([part[kept] for part in parts[::-1]])]
                parts = [jnp.asarray(part[kept]) for part in parts]
            cells |= {
                f"{prefix}{name}": p for name, p in zip(SeriesCells._fields, parts, strict=True)
            }
        shape = self.num_rows, self.num_times, known.num_columns
        ids_of = {"row_names": self.row_names, "column_names": ids}
        return bare(type(self), **cells, times=self.times, shape=shape, **ids_of)

    def describe(self) -> str:
        """How much of what there is, for messages."""
        sides = f"{self.num_rows:,} rows, {self.num_columns:,} columns, {self.num_times:,} times"
        return f"{sides}, {self.num_missing:,} cells missing"

    def __repr__(self) -> str:
        gaps = f", {self.num_missing} missing" if self.num_missing else ""
        last = self.num_times - 1
        span = f"time {self.times[0]:g}"
        if last:
            span = f"{last + 1} times from {self.times[0]:g} to {self.times[last]:g}"
        size = f"{self.num_rows} x {self.num_columns}"
        return f"SparseSeries({size} at {span}, {self.num_ones} ones{gaps})"
