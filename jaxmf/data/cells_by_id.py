"""What the containers of matrices share: sizes, positions of ids, and what jax sees of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import jax
import numpy as np
from jax.sharding import Mesh

from jaxmf.arguments import ChecksNames, assign
from jaxmf.data import alignment, names, process_cells
from jaxmf.data.container import bare, digest
from jaxmf.data.process_cells import ADVICE, CellPart, SpreadColumn
from jaxmf.types import Names, PyTree


class Elsewhere(NamedTuple):
    """Cells of which each process has a part, as a container has them: see `from_process_rows`."""

    num_cells: int  # of all processes, as num_missing
    num_missing: int
    # row_counts (N,), column_counts (D,): cells of each
    row_counts: np.ndarray
    column_counts: np.ndarray
    # cells, missing: of this process; None without, and once a run is done
    cells: CellPart | None
    missing: CellPart | None = None


class SpansProcesses(ChecksNames):
    """A container of which each process of `jax.distributed` may have a part."""

    @property
    def elsewhere(self) -> Elsewhere | None:
        """Facts about cells (or tokens) that lie in several processes; None of others."""
        return self.__dict__.get("_elsewhere")

    @property
    def spans_processes(self) -> bool:
        """Whether some cells (or tokens) lie in other processes: see `from_process_rows`."""
        return self.elsewhere is not None

    def without_cells(self) -> Self:
        """The same without the cells (tokens) of this process, where they lie in several."""
        if self.elsewhere is None:
            return self
        result = bare(type(self), **self.__dict__)
        assign(result, _elsewhere=self.elsewhere._replace(cells=None, missing=None))
        return result


def are_elsewhere(data: object) -> bool:
    """Whether some cells of a container lie in other processes."""
    return isinstance(data, SpansProcesses) and data.spans_processes


class CellsById(SpansProcesses, ABC):
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
        def num_missing(self) -> int: ...

    else:

        def __getattr__(self, name):
            if name in type(self).leaves and "_fingerprint" in self.__dict__:
                raise ValueError(ADVICE)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

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

    def describe(self) -> str:
        """How much of what there is, for messages."""
        sides = f"{self.num_rows:,} rows, {self.num_columns:,} columns"
        return f"{sides}, {self.num_missing:,} cells missing"

    def size(self) -> str:
        """How large it is, in a few characters."""
        return " x ".join(f"{length:,}" for length in self.shape)

    def fingerprint(self) -> str:
        """SHA-256 of shape and arrays, in hex; ids do not enter."""
        known: str | None = self.__dict__.get("_fingerprint")
        return known or digest(type(self).__name__, self.shape, self._arrays())

    def _arrays(self) -> dict[str, object]:
        """Arrays that the fingerprint is of, by name."""
        return {name: getattr(self, name) for name in self.leaves}

    @classmethod
    def _from_processes(
        cls, make: Callable[[], Self], mesh: Mesh, names: tuple[str, ...], *, split_by_row: bool
    ) -> Self:
        """Cells of which each process makes a part; all of them call it."""
        if jax.process_count() == 1:
            process_cells.check_mesh(mesh)
            return make()
        found = process_cells.merge(make, mesh, names=names, split_by_row=split_by_row)
        counts = process_cells.counts_of_lines(found.part, found.shape)
        num_missing = 0 if found.missing is None else found.missing.num_cells
        elsewhere = Elsewhere(found.part.num_cells, num_missing, *counts, found.part, found.missing)
        shape, *ids = found[2:]
        result = bare(cls, shape=shape, row_names=ids[0], column_names=ids[1])
        parts = (found.part, found.missing)
        arrays = [SpreadColumn(p, i) for p in parts if p is not None for i in range(len(p.arrays))]
        # now, when all processes are here: later one of them may ask alone
        fingerprint = digest(cls.__name__, shape, dict(zip(cls.leaves, arrays, strict=False)))
        assign(result, _elsewhere=elsewhere, _fingerprint=fingerprint)
        return result

    def tree_flatten_with_keys(
        self,
    ) -> tuple[tuple[tuple[jax.tree_util.GetAttrKey, PyTree], ...], tuple[int, ...] | Self | None]:
        """The arrays; ids stay behind. Of cells in several processes it is all of it, static."""
        if self.spans_processes:
            return (), self
        key = jax.tree_util.GetAttrKey
        return tuple((key(name), getattr(self, name)) for name in self.leaves), self.shape

    @classmethod
    def tree_unflatten(
        cls, shape: tuple[int, ...] | Self | None, children: tuple[PyTree, ...]
    ) -> Self:
        """Built without checks: the leaves may be anything jax puts there."""
        if isinstance(shape, cls):
            return shape
        arrays = dict(zip(cls.leaves, children, strict=True))
        return bare(cls, **arrays, shape=shape, row_names=None, column_names=None)
