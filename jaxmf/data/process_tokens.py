"""Tokens of which each process of `jax.distributed` has those of its documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, NoReturn, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh

from jaxmf.arguments import assign
from jaxmf.data import process_cells
from jaxmf.data.cells_by_id import Elsewhere
from jaxmf.data.checks import INT32_MAX
from jaxmf.data.container import bare, digest
from jaxmf.data.process_cells import ADVICE, CellPart, SpreadColumn
from jaxmf.types import Names, PyTree

T = TypeVar("T")


class ColumnElsewhere(NamedTuple):
    """A column of tokens that lie in several processes: whatever asks for it is refused."""

    shape: tuple[int]
    dtype: np.dtype = np.dtype(np.int32)

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise ValueError(ADVICE)

    def __getitem__(self, _: object) -> NoReturn:
        raise ValueError(ADVICE)


class _Pairs(NamedTuple):
    """Two columns of tokens as the rows and columns of cells."""

    rows: np.ndarray
    columns: np.ndarray
    row_names: Names | None
    column_names: Names | None
    num_rows: int
    num_columns: int


def from_process_rows(
    cls: type[T], make: Callable[[], PyTree], mesh: Mesh, labels: tuple[str, str]
) -> T:
    """See `Tokens.from_process_rows`."""
    if jax.process_count() == 1:
        process_cells.check_mesh(mesh)
        local: T = make()
        return local
    found = process_cells.merge(
        lambda: _pairs(make(), labels),
        mesh,
        names=("rows", "columns"),
        split_by_row=True,
        is_sorted=False,
    )
    if found.part.num_cells > INT32_MAX:
        raise ValueError(
            f"data: the {found.part.num_cells:,} tokens of all processes are more than int32 can "
            f"number ({INT32_MAX:,}). Fit a part of the documents"
        )
    counts = process_cells.counts_of_lines(found.part, found.shape)
    column = ColumnElsewhere((found.part.num_cells,))
    names = dict(zip(labels, (found.row_names, found.column_names), strict=True))
    sizes = dict(zip(labels, found.shape, strict=True))
    result = bare(
        cls,
        columns=dict.fromkeys(labels, column),
        sizes=sizes,
        values={},
        names={label: ids for label, ids in names.items() if ids is not None},
    )
    spread = {label: SpreadColumn(found.part, which) for which, label in enumerate(labels)}
    # now, when all processes are here: later one of them may ask alone
    fingerprint = digest("Tokens", tuple(sorted(sizes.items())), dict(sorted(spread.items())))
    elsewhere = Elsewhere(found.part.num_cells, 0, *counts, cells=found.part)
    assign(result, _elsewhere=elsewhere, _fingerprint=fingerprint)
    return result


def gathered(columns: Iterable[str], part: CellPart) -> dict[str, np.ndarray]:
    """The columns of the tokens of all processes in each, in their order; called by all of them."""
    return {
        label: np.concatenate([*SpreadColumn(part, which).blocks()])
        for which, label in enumerate(columns)
    }


def _pairs(tokens: PyTree, labels: tuple[str, str]) -> _Pairs:
    if set(tokens.columns) != set(labels) or tokens.values:
        has = ", ".join(map(repr, (*tokens.columns, *tokens.values)))
        raise ValueError(
            f"data: tokens in several processes have the columns {labels[0]!r} and {labels[1]!r} "
            f"and no values, these have {has}; name the two by row= and column="
        )
    return _Pairs(
        rows=np.asarray(tokens.columns[labels[0]]),
        columns=np.asarray(tokens.columns[labels[1]]),
        row_names=tokens.names.get(labels[0]),
        column_names=tokens.names.get(labels[1]),
        num_rows=tokens.sizes[labels[0]],
        num_columns=tokens.sizes[labels[1]],
    )
