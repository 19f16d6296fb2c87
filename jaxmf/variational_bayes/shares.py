"""Rows of a sparse matrix over the devices of a mesh: each has the ones of its rows, twice.

A device has a layout of its rows alone, by row and by column, as if there were no others. Updates
are written for such a layout: what is summed over rows is added over devices where the rows are
shares (`row_shards`), and what belongs to columns is the same on all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec

from jaxmf import row_shards
from jaxmf.devices import block_size
from jaxmf.engine.chunk import leaf_names
from jaxmf.engine.sharding import refuse_uneven_rows
from jaxmf.types import PyTree
from jaxmf.variational_bayes.batches import fill, stack
from jaxmf.variational_bayes.held_out import HeldOut, leave_out
from jaxmf.variational_bayes.pieces import Layout, PieceTable, lay_out, piece_length


@partial(jax.tree_util.register_dataclass, data_fields=["prepared"], meta_fields=["num_devices"])
@dataclass(frozen=True)
class SharedOnes:
    """The data of an ascent over devices, each of which sees `PreparedOnes` of its rows.

    Attributes:
      prepared: `PreparedOnes` whose arrays of rows have the shares of all devices one after another
        along their first axis. Its numbers of ones and of cells are those of all rows.
      num_devices: how many shares there are.
    """

    prepared: Any
    num_devices: int


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
      rows, columns, shape, missing: as of `pieces.lay_out`.
      held_out: positions (M,) of the ones that are left out at first.
    Raises ValueError: the devices cannot have equally many rows.
    """
    refuse_uneven_rows(shape[0], num_devices)
    num_rows = shape[0] // num_devices
    lengths = piece_length(len(rows), shape[0]), piece_length(len(rows) // num_devices, shape[1])
    layouts, counts = [], []
    for first in range(0, shape[0], num_rows):
        here = partial(_cells_of_share, first=first, num_rows=num_rows)
        layout = lay_out(
            *here(rows, columns),
            shape=(num_rows, shape[1]),
            missing=here(*missing) if missing[0].size else None,
            chunk_pieces=block_size("sparse pieces"),
            lengths=lengths,
        )
        layout, without = leave_out(layout, *here(rows[held_out], columns[held_out]))
        layouts.append(jax.tree.map(np.asarray, _without_taken(layout)))
        counts.append((np.asarray(without.row_counts), np.asarray(without.column_counts)))
    stacked = stack(layouts)
    flat = jax.tree.map(_one_after_another, stacked)
    by_columns = np.argsort(np.bincount(columns, minlength=shape[1]), kind="stable")
    by_rows = np.argsort(np.bincount(rows, minlength=shape[0]), kind="stable")
    num_observed = float(shape[0]) * float(shape[1]) - missing[0].size
    # numpy's, which go straight to their devices
    sizes: Any = [np.asarray(n, flat.num_ones.dtype) for n in (len(rows), num_observed)]
    layout = Layout(
        flat.rows._replace(order=by_columns.astype(np.int32)),
        flat.columns._replace(order=by_rows.astype(np.int32)),
        *sizes,
    )
    if not held_out.size:
        return layout, None
    left: Any = [
        _one_after_another(np.stack([fill(each, table.ones.counts.shape[1], 0) for each in part]))
        for table, part in zip(
            (stacked.rows, stacked.columns), zip(*counts, strict=True), strict=True
        )
    ]
    cells: Any = (each[held_out].astype(np.int32) for each in (rows, columns))
    return layout, HeldOut(*cells, *left)


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
