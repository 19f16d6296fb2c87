"""Observed cells in the order in which the factors of one side are drawn, and what meets these.

The cells of a row stand in chunks of one width, the last of them filled up with cells that do not
exist. So a product over a chunk has one shape for rows with three cells and rows with thousands;
the products of the chunks of a row are then added up.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp

from jaxmf import devices
from jaxmf._kernels import cell_products, fusion
from jaxmf.data import Entries
from jaxmf.types import Array

SEQUENTIAL_CELLS = 4
_MOST_BROADCAST = 20
_MOST_SEQUENTIAL = 128


class Chunks(NamedTuple):
    """The cells of one side, by rows: C chunks of W cells."""

    # (C, W) int32, the column of each cell; the number of columns where there is no cell
    others: Array
    # (C, W) int32, its position in the data, the number of cells where there is none; or None where
    # values stand as the cells here do
    cells: Array | None
    rows: Array  # (C,) int32, the row of each chunk; the number of rows after the last one
    starts: Array  # (N + 1,) int32, the first chunk of every row, and the end


class Design(NamedTuple):
    """The vectors that multiply those of rows in the means of cells, for rows of one side."""

    # (M + 1, E + H) float, of every column: the E entries of w that are the column's, then the H of
    # g. The last line is zero: cells that do not exist lie there.
    table: Array
    row_part: Array  # (N, H) float, h_i
    cell_features: Array  # (T + 1, F) float, the last F entries of w; the last line is zero
    cell_coefficients: Array  # (M + 1, F) float, those of the column for them

    @property
    def num_shared(self) -> int:
        """E, the entries of w that every cell of a column has."""
        return self.table.shape[1] - self.row_part.shape[1]

    def vectors(self, factors: Array) -> Array:
        """The vectors of rows with these factors that multiply the table: (N, E + H) float."""
        return jnp.concatenate([factors[:, : self.num_shared], self.row_part], axis=1)

    def over(self, factors: Array, columns: Array) -> Design:
        """The design for cells divided by a factor of their column.

        Args: factors (M,) float; columns (T,) int32, of the cells.
        """
        by_line = jnp.concatenate([factors, jnp.ones_like(factors[:1])])[:, None]
        by_cell = jnp.concatenate([factors[columns], jnp.ones_like(factors[:1])])[:, None]
        features = self.cell_features / by_cell if self.has_cells else self.cell_features
        return self._replace(table=self.table / by_line, cell_features=features)

    @property
    def has_cells(self) -> bool:
        """Whether cells have features."""
        return self.cell_features.shape[1] > 0


class RowPriors(NamedTuple):
    """Normal priors of the factors of the rows."""

    means: Array  # (N, D) float
    groups: Array  # (N,) int32
    precisions: Array  # (G, D, D) float, of the groups

    def over(self, factors: Array) -> RowPriors:
        """Priors under which rows with `factors` (N,) times the noise are drawn like all others.

        (f^2 Lambda + tau S) is f^2 times the precision Lambda + tau S / f^2 of such a row, so its
        standard normals are f times as large.
        """
        precisions = factors[:, None, None] ** 2 * self.precisions[self.groups]
        return RowPriors(self.means, jnp.arange(factors.shape[0], dtype=jnp.int32), precisions)


class Arranged(NamedTuple):
    """Observed cells, and the order of both sides."""

    # rows, columns: (T,) int32
    rows: Array
    columns: Array
    values: Array  # (T,) float
    by_row: Chunks  # the chunks of the rows
    by_column: Chunks  # those of the columns, which are the rows of the transposed matrix

    @property
    def num_cells(self) -> int:
        """T."""
        return self.values.shape[0]

    @property
    def are_cells(self) -> None:
        """Which of `values` are cells: all."""

    @property
    def num_rows(self) -> int:
        """N."""
        return self.by_row.starts.shape[0] - 1

    @property
    def num_columns(self) -> int:
        """M."""
        return self.by_column.starts.shape[0] - 1

    def transpose(self) -> Arranged:
        """Rows and columns exchanged."""
        return Arranged(self.columns, self.rows, self.values, self.by_column, self.by_row)


def arranged(data: Entries, sizes: tuple[int, int], *, has_cells: bool = False) -> Arranged:
    """The cells in the order of both sides.

    Args: sizes: entries of a row's vector, and of a column's; has_cells: see `is_in_kernel`.
    """
    settings: dict[str, bool] = {"has_cells": has_cells}
    num_rows, num_columns = data.shape
    return Arranged(
        rows=data.rows,
        columns=data.columns,
        values=data.values,
        by_row=in_chunks(data.rows, data.columns, data.shape, sizes[0], **settings),
        by_column=in_chunks(data.columns, data.rows, (num_columns, num_rows), sizes[1], **settings),
    )


def piece_size(num_chunks: int, width: int) -> int:
    """How many chunks are read at a time, of all, the empty ones at the end among them."""
    return max(1, min(devices.block_size("factor cells") // width, num_chunks // 2))


def is_broadcast(size: int) -> bool:
    """Whether products of short vectors are summed element by element.

    Faster on CPUs than small matrix products up to about 20 entries, and much slower beyond.
    """
    return size <= _MOST_BROADCAST


def is_sequential(size: int) -> bool:
    """Whether rows, of vectors of a size, are drawn by the kernel of `sequential_rows.py`."""
    return fusion.is_available() and size <= _MOST_SEQUENTIAL


def is_in_kernel(size: int, *, has_cells: bool = False) -> bool:
    """Whether sums over cells, of vectors of a size, are those of the kernel for GPUs.

    Args: has_cells: whether cells have features, which the kernel lacks.
    """
    return not has_cells and not cell_products.trouble(devices.default_platform(), size + 1)


def in_chunks(
    rows: Array, others: Array, shape: tuple[int, int], size: int, *, has_cells: bool = False
) -> Chunks:
    """Cells (T,) by rows, in chunks.

    Args: rows (T,) int32; others (T,) int32, their columns; size: entries of a row's vector, on
    which the best width depends.
    Returns chunks, as many as T cells of N rows can need, and a piece of empty ones after them, so
    that a piece may be read from wherever a row starts. Their number does not depend on where the
    cells lie, so that another data set of the same size compiles nothing.
    """
    num_cells = rows.shape[0]
    num_rows, num_others = shape
    width = chunk_width(num_cells, num_rows, size, has_cells=has_cells)
    most = num_cells // width + min(num_rows, num_cells)
    num_chunks = most + piece_size(2 * most, width)
    counts = jnp.zeros((num_rows,), jnp.int32).at[rows].add(1)
    zero = jnp.zeros((1,), jnp.int32)
    starts = jnp.concatenate([zero, jnp.cumsum(-(-counts // width), dtype=jnp.int32)])
    firsts = jnp.concatenate([zero, jnp.cumsum(counts, dtype=jnp.int32)])
    order = jnp.argsort(rows, stable=True).astype(jnp.int32)
    sorted_rows = rows[order]
    positions = starts[sorted_rows] * width + jnp.arange(num_cells) - firsts[sorted_rows]

    def spread(values: Array, empty: int) -> Array:
        flat = jnp.full((num_chunks * width,), empty, jnp.int32)
        flat = flat.at[positions].set(values.astype(jnp.int32), unique_indices=True)
        return flat.reshape(num_chunks, width)

    return Chunks(
        others=spread(others[order], num_others),
        cells=spread(order, num_cells),
        rows=jnp.searchsorted(starts[1:], jnp.arange(num_chunks), side="right").astype(jnp.int32),
        starts=starts,
    )


def chunk_width(num_cells: int, num_rows: int, size: int, *, has_cells: bool = False) -> int:
    """Cells a chunk, a power of two between 4 and 256.

    Wider chunks fill up half a chunk a row more, and make fewer matrix products: with n cells a
    row, the products of (n + W / 2) cells at c (1 + 49 / W) each take least at W = 10 sqrt(n),
    about; gathering them takes its share too, hence 6 sqrt(n). Sums element by element gain little
    beyond 32.
    """
    if is_sequential(size):
        return SEQUENTIAL_CELLS
    if is_in_kernel(size, has_cells=has_cells):
        return cell_products.CELLS
    mean = num_cells / max(num_rows, 1)
    best = 6 * math.sqrt(mean) if not is_broadcast(size) else min(32, mean)
    return 1 << min(8, max(2, round(math.log2(max(best, 1)))))
