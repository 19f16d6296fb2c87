"""Observed cells and vectors over the devices of a mesh.

Rows are shared out to n devices in order, N / n rows each, the last of them filled up with rows
that do not exist; columns likewise. Each device keeps the cells of its rows by rows, and those of
its columns by columns, so that every cell is there twice and on two devices at most. It draws the
vectors of its rows given the vectors of all columns, which are all that passes between devices
beside sums; then those of its columns given the rows'.

The number of cells that a device has room for is that of the device with most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxmf import row_shards
from jaxmf._kernels.special import uniforms_at
from jaxmf.data import Entries
from jaxmf.data.process_cells import cells_of_lines, devices_here, largest, put_shares
from jaxmf.samplers.factors.layout import Chunks, Design, RowPriors, chunk_width, piece_size
from jaxmf.samplers.factors.rows import Residuals, draw_rows
from jaxmf.samplers.factors.vectors import in_pieces
from jaxmf.types import STATIC, Array, Key


class SideShares(NamedTuple):
    """The cells of one side by rows: n times C chunks of W cells, device after device."""

    # as in `Chunks`, of each device: others (n C, W), with M where there is no cell; rows (n C,)
    # and starts (n (R + 1),) count the R rows and C chunks of the device
    others: Array
    rows: Array
    starts: Array
    values: Array  # (n C, W) float, of the cells; 0 where none is


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Shares:
    """Observed cells over devices: what `layout.Arranged` is on one."""

    by_row: SideShares
    by_column: SideShares
    num_devices: int = field(metadata=STATIC)
    num_rows: int = field(metadata=STATIC)  # N
    num_columns: int = field(metadata=STATIC)  # M
    num_cells: int = field(metadata=STATIC)  # T

    @property
    def values(self) -> Array:
        """The cells by rows: (n C, W) float."""
        return self.by_row.values

    @property
    def are_cells(self) -> Array:
        """Which of `values` are cells: (n C, W) bool."""
        return self.by_row.others < self.num_columns

    def transpose(self) -> Shares:
        """Rows and columns exchanged."""
        return Shares(
            by_row=self.by_column,
            by_column=self.by_row,
            num_devices=self.num_devices,
            num_rows=self.num_columns,
            num_columns=self.num_rows,
            num_cells=self.num_cells,
        )


# what is spread, by its name within these
ROW_ARRAYS = tuple(
    f"{side}.{name}" for side in ("by_row", "by_column") for name in SideShares._fields
)


def shared_out(data: Entries, sizes: tuple[int, int], *, values: Array, num_devices: int) -> Shares:
    """The cells by the devices that have their rows and their columns.

    Made on the host, for how many cells a device has depends on where they lie; values may be
    traced.

    Args: sizes: entries of a row's vector, and of a column's; values (T,) float, used
    instead of the data's.
    """
    rows, columns = np.asarray(data.rows), np.asarray(data.columns)
    padded: Array | np.ndarray = jnp.append(values, 0)
    if not isinstance(padded, jax.core.Tracer):
        padded = np.asarray(padded)
    num_rows, num_columns = data.shape
    owner = _Owner(num_devices, len(rows))
    return Shares(
        by_row=_side(rows, columns, padded, data.shape, sizes[0], owner),
        by_column=_side(columns, rows, padded, data.shape[::-1], sizes[1], owner),
        num_devices=num_devices,
        num_rows=num_rows,
        num_columns=num_columns,
        num_cells=len(rows),
    )


def shared_out_of_processes(
    data: Entries,
    sizes: tuple[int, int],
    values_of: Callable[[Array, Array, Entries], Array],
    num_devices: int,
) -> Shares:
    """As `shared_out`, of cells of which each process has a part: it makes its devices' shares.

    Args: values_of: of values (t,) and columns (t,) of some cells, what is used instead of values.
    """
    assert data.elsewhere is not None
    part = data.elsewhere.cells
    assert part is not None
    owner = _Owner(num_devices, part.num_cells, part.mesh)
    found: list[SideShares] = []
    for by_column in (False, True):
        shape = data.shape[::-1] if by_column else data.shape
        cells = cells_of_lines(part, -(-shape[0] // num_devices), by_column=by_column)
        taken = values_of(jnp.asarray(cells[2]), jnp.asarray(cells[1]), data)
        values = np.asarray(jnp.append(taken, 0))
        lines, others = cells[by_column], cells[not by_column]
        side = _side(lines, others, values, shape, sizes[by_column], owner)
        found.append(SideShares(*(put_shares(part.mesh, np.asarray(one)) for one in side)))
    return Shares(found[0], found[1], num_devices, *data.shape, part.num_cells)


class _Owner(NamedTuple):
    """Which devices the shares of one side are for."""

    num_devices: int  # all of them
    num_cells: int  # of all of them
    mesh: Mesh | None = None  # of cells of which each process has a part

    @property
    def here(self) -> tuple[int, int]:
        """The first device of this process, and how many it has."""
        return (0, self.num_devices) if self.mesh is None else devices_here(self.mesh)

    def largest(self, value: int) -> int:
        """The largest value of all processes."""
        return value if self.mesh is None else largest(value)


def _side(
    rows: np.ndarray,
    others: np.ndarray,
    values: Array | np.ndarray,  # (t + 1,), and zero where there is no cell
    shape: tuple[int, int],
    size: int,
    owner: _Owner,
) -> SideShares:
    """The shares of the devices here, whose rows have these cells."""
    num_cells, num_rows = len(rows), -(-shape[0] // owner.num_devices)
    first, num_devices = owner.here
    rows = rows - first * num_rows
    width = chunk_width(owner.num_cells, shape[0], size)
    counts = np.bincount(rows, minlength=num_devices * num_rows)
    starts = np.zeros((num_devices, num_rows + 1), np.int32)
    np.cumsum(-(-counts // width).reshape(num_devices, num_rows), axis=1, out=starts[:, 1:])
    most = owner.largest(int(starts[:, -1].max()))
    # a piece may be read from wherever a row starts, see `layout.in_chunks`
    num_chunks = most + piece_size(2 * most, width)
    order = np.argsort(rows, kind="stable")
    device, row = np.divmod(rows[order], num_rows)
    at = np.arange(num_cells) - (np.cumsum(counts) - counts)[rows[order]]
    at += (device.astype(np.int64) * num_chunks + starts[device, row]) * width

    def laid_out(cells: np.ndarray, empty: float) -> np.ndarray:
        flat = np.full(num_devices * num_chunks * width, empty, cells.dtype)
        flat[at] = cells[order]
        return flat.reshape(-1, width)

    positions = laid_out(np.arange(num_cells, dtype=np.int32), num_cells)
    at_chunks = [np.searchsorted(ends[1:], np.arange(num_chunks), side="right") for ends in starts]
    # numpy's, which go straight to their devices
    arrays: Any = {
        "others": laid_out(others.astype(np.int32), shape[1]),
        "rows": np.concatenate(at_chunks).astype(np.int32),
        "starts": starts.ravel(),
        "values": values[positions],
    }
    return SideShares(**arrays)


def uniforms_of_rows(
    key: Key, side: SideShares, *, size: int, start: int, width: int, num_devices: int
) -> Array:
    """The numbers of `uniforms(key, (size,))` from a start on, a line for each row of the devices.

    So the numbers of a row do not depend on the devices. Those of rows that do not exist are of no
    use.
    """

    def draw(rows: Array, key: Key) -> Array:
        index = start + rows[:, None] * width + jnp.arange(width, dtype=jnp.uint32)
        return uniforms_at(key, size, jnp.minimum(index, jnp.uint32(size - 1)))

    num_rows = side.starts.shape[0] - num_devices
    return row_shards.by_row(draw, (jnp.arange(num_rows, dtype=jnp.uint32),), key)


def draw_shared_rows(
    normals: Array,
    factors: Array,
    design: Design,
    *,
    side: SideShares,
    priors: RowPriors,
    precision: Array,
    part: Array,
) -> tuple[Array, Residuals]:
    """The vectors of all rows given the rest, each device drawing those of its rows.

    Args: as in `rows.draw_rows`, without features of cells; normals have lines for all rows of the
    devices.
    Returns the new vectors (N, D), and what they leave of the targets.
    """

    def draw(
        normals: Array,
        factors: Array,
        row_part: Array,
        means: Array,
        groups: Array,
        others: Array,
        rows: Array,
        starts: Array,
        values: Array,
        table: Array,
        precisions: Array,
        precision: Array,
        part: Array,
    ) -> tuple[Array, Array]:
        drawn, residuals = draw_rows(
            normals,
            factors,
            _without_cells(table, row_part),
            values,
            chunks=Chunks(others, None, rows, starts),
            priors=RowPriors(means, groups, precisions),
            precision=precision,
            part=part,
        )
        return drawn, jnp.stack(residuals)[None]

    padded = _with_rows(normals.shape[0], factors, design.row_part, priors.means, priors.groups)
    drawn, sums = row_shards.by_row(
        draw, (normals, *padded, *side), design.table, priors.precisions, precision, part
    )
    total = row_shards.sum_over_rows(lambda rows: jnp.sum(rows, axis=0), (sums,))
    return drawn[: factors.shape[0]], Residuals(*total)


def sum_of_squares(factors: Array, design: Design, *, side: SideShares, num_devices: int) -> Array:
    """The sum () of the squared residuals of all cells."""

    def squares(
        factors: Array, row_part: Array, others: Array, rows: Array, values: Array, table: Array
    ) -> Array:
        vectors = _without_cells(table, row_part).vectors(factors)

        def squares_of_chunks(chunks: tuple[Array, Array, Array]) -> Array:
            others, rows, values = chunks
            means = jnp.sum(table[others] * vectors[rows][:, None], axis=-1)
            return jnp.sum((values - means) ** 2, axis=-1)

        # a chunk after the last row has cells that do not exist, whose means and values are zero
        existing = jnp.minimum(rows, vectors.shape[0] - 1)
        return jnp.sum(
            in_pieces(squares_of_chunks, (others, existing, values), num_cells=others.shape[1])
        )

    padded = _with_rows(side.starts.shape[0] - num_devices, factors, design.row_part)
    return row_shards.sum_over_rows(squares, (*padded, *side[:2], side.values), design.table)


def _with_rows(num_rows: int, *arrays: Array) -> list[Array]:
    """Arrays (N, ...) filled up to a number of rows."""
    return [
        jnp.pad(array, ((0, num_rows - array.shape[0]), *((0, 0),) * (array.ndim - 1)))
        for array in arrays
    ]


def _without_cells(table: Array, row_part: Array) -> Design:
    nothing = jnp.zeros((1, 0), table.dtype)
    return Design(table, row_part, nothing, nothing)
