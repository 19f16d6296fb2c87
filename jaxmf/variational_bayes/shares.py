"""Rows of a sparse matrix over the devices of a mesh: each has the ones of its rows, twice.

A device has a layout of its rows alone, by row and by column, as if there were no others. Updates
are written for such a layout: what is summed over rows is added over devices where the rows are
shares (`row_shards`), and what belongs to columns is the same on all of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from jaxmf import row_shards
from jaxmf.data import SparseBinary
from jaxmf.data.process_cells import cells_of_lines, devices_here, largest, put_shares
from jaxmf.devices import block_size
from jaxmf.engine.chunk import leaf_names
from jaxmf.engine.processes import gather_texts
from jaxmf.engine.sharding import refuse_uneven_rows
from jaxmf.types import STATIC, PyTree
from jaxmf.variational_bayes.batches import fill, stack
from jaxmf.variational_bayes.held_out import HeldOut, leave_out
from jaxmf.variational_bayes.pieces import Layout, PieceTable, lay_out, piece_length


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SharedOnes:
    """The data of an ascent over devices, each of which sees `PreparedOnes` of its rows.

    Attributes:
      prepared: `PreparedOnes` whose arrays of rows have the shares of all devices one after another
        along their first axis. Its numbers of ones and of cells are those of all rows.
      num_devices: how many shares there are.
    """

    prepared: Any
    num_devices: int = field(metadata=STATIC)


# arrays that have shares, by their names in the data and in the state
_PIECES = map(".".join, product(("ones", "missing"), ("indices", "line", "counts")))
_DATA_ARRAYS = {"layout.columns.order", "held_out.row_counts", "held_out.column_counts"} | {
    f"layout.{side}.{part}" for side, part in product(("rows", "columns"), [*_PIECES, "starts"])
}
_STATE_ARRAYS = {
    f"{prefix}parameters.{side}.{part}"
    for prefix, side, part in product(
        ("", "best.", "unknowing."), ("rows", "row_bias"), ("mean", "variance")
    )
}


def row_arrays() -> tuple[str, ...]:
    """The names of what is spread, as the engine sees `SharedOnes` and the state of an ascent."""
    return tuple(sorted(_STATE_ARRAYS | {f"prepared.{name}" for name in _DATA_ARRAYS}))


def lay_out_shares(
    rows: np.ndarray,
    columns: np.ndarray,
    *,
    shape: tuple[int, int],
    missing: tuple[np.ndarray, np.ndarray],
    held_out: np.ndarray,
    num_devices: int,
) -> tuple[Layout, HeldOut | None]:
    """The layouts of all devices one after another, made on the host, a share at a time.

    Args:
      rows, columns, shape, missing: as in `pieces.lay_out`.
      held_out: positions (M,) of the ones that are left out at first.
    Raises ValueError: the devices cannot have equally many rows.
    """
    cells = _Cells(
        shape=shape,
        rows=rows,
        columns=columns,
        missing=missing,
        held_out=(rows[held_out], columns[held_out]),
        num_missing=missing[0].size,
        row_counts=np.bincount(rows, minlength=shape[0]),
        column_counts=np.bincount(columns, minlength=shape[1]),
    )
    return _lay_out(cells, num_devices)


def lay_out_shares_of_processes(
    data: SparseBinary, *, held_out: np.ndarray, num_devices: int
) -> tuple[Layout, HeldOut | None]:
    """As `lay_out_shares`, of rows of which each process has a part: it makes its devices' shares.

    Args: held_out: positions (M,) among the ones of all processes.
    """
    assert data.elsewhere is not None
    part, gaps = data.elsewhere.cells, data.elsewhere.missing
    assert part is not None
    refuse_uneven_rows(data.num_rows, num_devices)
    num_rows = data.num_rows // num_devices
    here = held_out - part.first_cell
    here = here[(here >= 0) & (here < len(part.arrays[0]))]
    left = np.stack([array[here] for array in part.arrays]) if here.size else np.zeros((2, 0), int)
    every = [json.loads(text) for text in gather_texts(json.dumps(left.tolist()))]
    nothing = np.zeros(0, np.int32), np.zeros(0, np.int32)
    rows, columns = cells_of_lines(part, num_rows)
    missing: Any = nothing if gaps is None else cells_of_lines(gaps, num_rows)
    cells = _Cells(
        shape=data.shape,
        rows=rows,
        columns=columns,
        missing=missing,
        held_out=tuple(np.concatenate([np.array(one[i], int) for one in every]) for i in (0, 1)),
        num_missing=data.num_missing,
        row_counts=data.row_counts,
        column_counts=data.column_counts,
        mesh=part.mesh,
    )
    return _lay_out(cells, num_devices)


class _Cells(NamedTuple):
    """The cells of the rows of some devices, and how many all of them have."""

    shape: tuple[int, int]  # of the whole matrix, as the rows and columns of cells
    rows: np.ndarray  # (T,) int, as columns: of the ones of the devices here
    columns: np.ndarray
    missing: tuple[np.ndarray, np.ndarray]  # of the devices here
    held_out: tuple[np.ndarray, ...]  # rows and columns (M,) of all devices
    num_missing: int  # of all devices
    row_counts: np.ndarray  # (N,) int, ones of all devices
    column_counts: np.ndarray  # (D,) int
    mesh: Mesh | None = None  # of rows of which each process has a part


def _lay_out(cells: _Cells, num_devices: int) -> tuple[Layout, HeldOut | None]:
    shape, mesh = cells.shape, cells.mesh
    refuse_uneven_rows(shape[0], num_devices)
    num_rows, num_ones = shape[0] // num_devices, int(cells.row_counts.sum())
    lengths = piece_length(num_ones, shape[0]), piece_length(num_ones // num_devices, shape[1])
    layouts, counts = [], []
    first, num_here = (0, num_devices) if mesh is None else devices_here(mesh)
    for device in range(first, first + num_here):
        here = partial(_cells_of_share, first=device * num_rows, num_rows=num_rows)
        layout = lay_out(
            *here(cells.rows, cells.columns),
            shape=(num_rows, shape[1]),
            missing=here(*cells.missing) if cells.num_missing else None,
            chunk_pieces=block_size("sparse pieces"),
            lengths=lengths,
        )
        layout, without = leave_out(layout, *here(*cells.held_out))
        layouts.append(jax.tree.map(np.asarray, _without_taken(layout)))
        counts.append((np.asarray(without.row_counts), np.asarray(without.column_counts)))
    stacked = stack(layouts, largest=int if mesh is None else largest)

    def put(leaf: PyTree) -> PyTree:
        flat = _one_after_another(leaf)
        return flat if mesh is None else put_shares(mesh, flat)

    num_observed = float(shape[0]) * float(shape[1]) - cells.num_missing
    # numpy's, which go straight to their devices
    dtype = stacked.num_ones.dtype
    sizes: Any = [np.asarray(n, dtype) for n in (num_ones, num_observed)]
    orders: Any = [
        np.argsort(each, kind="stable").astype(np.int32)
        for each in (cells.column_counts, cells.row_counts)
    ]
    tables: Any = [
        table._replace(
            ones=jax.tree.map(put, table.ones),
            missing=jax.tree.map(put, table.missing),
            starts=put(table.starts),
            taken=table.taken[0],
            order=order,
        )
        for table, order in ((stacked.rows, orders[0]), (stacked.columns, orders[1]))
    ]
    layout = Layout(*tables, *sizes)
    if not cells.held_out[0].size:
        return layout, None
    left: Any = [
        put(np.stack([fill(each, table.ones.counts.shape[1], 0) for each in part]))
        for table, part in zip(
            (stacked.rows, stacked.columns), zip(*counts, strict=True), strict=True
        )
    ]
    out: Any = (each.astype(np.int32) for each in cells.held_out)
    return layout, HeldOut(*out, *left)


def _cells_of_share(
    rows: np.ndarray, columns: np.ndarray, *, first: int, num_rows: int
) -> tuple[np.ndarray, np.ndarray]:
    here = (rows >= first) & (rows < first + num_rows)
    return rows[here] - first, columns[here]


def _without_taken(layout: Layout) -> Layout:
    """Without what only zeros drawn for each line go by."""

    def without(table: PieceTable) -> PieceTable:
        return table._replace(taken=table.taken[:0])

    return layout._replace(rows=without(layout.rows), columns=without(layout.columns))


def _one_after_another(leaf: np.ndarray) -> np.ndarray:
    return leaf.reshape(leaf.shape[0] * leaf.shape[1], *leaf.shape[2:]) if leaf.ndim > 1 else leaf


def with_shares(function: Callable[..., PyTree], *trees: PyTree, data: PyTree) -> PyTree:
    """`function(*trees, data)`; of shares, as each device calls it with its rows.

    Args: function: its result has the axis of rows where the names of a state have it; data:
    `PreparedOnes` or `SharedOnes`.
    """
    if not isinstance(data, SharedOnes):
        return function(*trees, data)
    arguments = (*trees, data.prepared)
    leaves, structure = jax.tree.flatten(arguments)
    # by leaves, for a model of specifications would be refused by its own checks
    specs = [spec for tree in arguments for spec in _specs(tree)]

    def on_leaves(*leaves: jax.Array) -> PyTree:
        return function(*jax.tree.unflatten(structure, leaves))

    shares = map(partial(_share, data.num_devices), leaves, specs)
    out = jax.eval_shape(on_leaves, *shares)
    out_specs = jax.tree.unflatten(jax.tree.structure(out), _specs(out))
    return row_shards.on_each_device(on_leaves, tuple(specs), out_specs)(*leaves)


def _specs(tree: PyTree) -> list[PartitionSpec]:
    """How the leaves of a tree are spread, by their names."""
    names = leaf_names(tree) if jax.tree.leaves(tree) else []
    have_rows = _DATA_ARRAYS | _STATE_ARRAYS
    return [PartitionSpec(*[row_shards.DATA_AXIS] * (name in have_rows)) for name in names]


def _share(num_devices: int, leaf: jax.Array, spec: PartitionSpec) -> jax.ShapeDtypeStruct:
    first = [size // num_devices for size in leaf.shape[:1]] if len(spec) else leaf.shape[:1]
    return jax.ShapeDtypeStruct((*first, *leaf.shape[1:]), leaf.dtype)
