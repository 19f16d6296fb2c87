"""The ones of a matrix laid out for speed: every line cut into padded pieces of equal length.

A sum over the ones of each row is then a batch of small dense sums, gone through in chunks that
stay in the cache, with one scattered addition a piece instead of one a cell.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Layout as AxisOrder
from jax.experimental.layout import with_layout_constraint

from jaxmf.data.long_arrays import BLOCK, aligned_empty, are_increasing, blocks, sort_cells
from jaxmf.devices import block_size, default_platform
from jaxmf.types import Array, PyTree

PIECE_LENGTH = 32
SHORT_PIECE_LENGTH = 8  # of lines that have few cells, where most of a longer piece is padding
_FEW_CELLS = 16  # of a line, on average
_FEW_PIECES = 512


class Pieces(NamedTuple):
    """Cells of a matrix by line, cut into pieces: C chunks of B pieces of P = 8 or 32 cells."""

    indices: Array  # (C, B, P) int32, where in its line a cell lies; 0 in the padding
    line: Array  # (C, B) int32, the line of a piece; the number of lines for an empty piece
    counts: Array  # (C, B) int32, cells of a piece


def max_pieces(num_cells: int, num_lines: int, length: int) -> int:
    """No matrix with this many cells has more pieces of a length."""
    return num_cells // length + min(num_lines, num_cells)


def piece_length(num_cells: int, num_lines: int) -> int:
    """The length of pieces, 8 or 32; by sizes alone, which programs depend on."""
    return SHORT_PIECE_LENGTH if num_cells < _FEW_CELLS * num_lines else PIECE_LENGTH


def cut(
    lines: PyTree,
    index: PyTree,
    *,
    num_lines: int,
    chunk_pieces: int | None = None,
    length: int | None = None,
) -> Pieces:
    """Cells cut into pieces.

    Args:
      lines: (T,) int32, the line of each cell, in increasing order; numpy or jax. With numpy arrays
        the number of chunks is what is needed, otherwise what is needed at most.
      index: (T,) int32, where in its line each cell lies.
      chunk_pieces: B, whatever the number of cells, of pieces of 32; by default less than 64 where
        where that holds all.
      length: of pieces; 32 with `chunk_pieces`, else by the sizes, unless stated.
    """
    xp: Any = np if isinstance(lines, np.ndarray) else jnp
    num_cells = lines.shape[0]
    # layouts that are stacked have one length
    if length is None:
        by_size = piece_length(num_cells, num_lines)
        length = by_size if chunk_pieces is None else PIECE_LENGTH
    ends = xp.searchsorted(lines, xp.arange(num_lines), side="right")
    starts = xp.searchsorted(lines, xp.arange(num_lines), side="left")
    last_piece = xp.cumsum(-(-(ends - starts) // length))
    most = max_pieces(num_cells, num_lines, length)
    # small problems of one shape have one number of pieces, so that nothing is compiled anew
    if xp is np and most > _FEW_PIECES:
        most = int(last_piece[-1])
    batch = max(1, min(block_size("sparse pieces"), most)) if chunk_pieces is None else chunk_pieces
    num_chunks = max(1, -(-most // batch))
    piece = xp.arange(num_chunks * batch)
    line = xp.searchsorted(last_piece, piece, side="right")
    known = xp.minimum(line, num_lines - 1)
    within = piece - (last_piece[known] - (-(-(ends[known] - starts[known]) // length)))
    first = starts[known] + within * length
    count = xp.where(line < num_lines, xp.clip(ends[known] - first, 0, length), 0)
    offset = xp.arange(length)

    def cells_of(some: slice) -> PyTree:
        position = xp.minimum(first[some, None] + offset, max(num_cells - 1, 0))
        if not num_cells:
            return 0 * position
        return xp.where(offset < count[some, None], index[position], 0)

    shape = (num_chunks, batch)
    if xp is np:  # in the form that is kept, beside which a block of pieces is made at a time
        cells = aligned_empty((len(piece), length), np.dtype(np.int32))
        for some in blocks(len(piece), BLOCK // length):
            cells[some] = cells_of(some)
    else:
        cells = cells_of(slice(None))
    return Pieces(
        indices=jnp.asarray(cells.reshape(*shape, length), jnp.int32),
        line=jnp.asarray(line.reshape(shape), jnp.int32),
        counts=jnp.asarray(count.reshape(shape), jnp.int32),
    )


class PieceTable(NamedTuple):
    """The cells of a matrix seen from the rows or from the columns; T ones, U missing cells.

    Attributes:
      ones: the ones of every line.
      missing: the cells of every line that were not observed; None where all were.
      starts: (N + 1,) int32, where the ones and missing cells of a line start in `taken`.
      taken: (T + U,) int32, the others with a one or nothing observed, sorted within a line.
      order: (D,) int32, the others by their number of ones, for strata.
    """

    ones: Pieces
    missing: Pieces | None
    starts: Array
    taken: Array
    order: Array


class Layout(NamedTuple):
    """A matrix of -1 and 1 in the form that the updates go through."""

    rows: PieceTable  # the cells by row
    columns: PieceTable  # the cells by column
    num_ones: Array  # () float
    num_observed: Array  # () float; a product of sizes, which int32 may not hold


def lay_out(
    rows: np.ndarray,
    columns: np.ndarray,
    *,
    shape: tuple[int, int],
    missing: tuple[np.ndarray, np.ndarray] | None = None,
    chunk_pieces: int | None = None,
    lengths: tuple[int | None, int | None] = (None, None),
) -> Layout:
    """Both sides of a matrix, made on the host.

    Args:
      rows: (T,) int, the rows of the ones.
      columns: (T,) int.
      shape: (N, D).
      missing: rows and columns of the U cells that were not observed, none of them a one.
      chunk_pieces: as in `cut`; where it is not None, no missing cells are a table without any.
      lengths: of the pieces of the rows and of the columns, as in `cut`.
    """
    num_missing = 0 if missing is None else len(missing[0])
    flipped = None if missing is None else missing[::-1]
    observed = float(shape[0]) * float(shape[1]) - num_missing
    dtype = jnp.result_type(float)
    return Layout(
        rows=_table(rows, columns, shape, missing, chunk_pieces, lengths[0]),
        columns=_table(columns, rows, shape[::-1], flipped, chunk_pieces, lengths[1]),
        num_ones=jnp.asarray(float(len(rows)), dtype),
        num_observed=jnp.asarray(observed, dtype),
    )


def _table(
    lines: np.ndarray,
    index: np.ndarray,
    shape: tuple[int, int],
    missing: tuple[np.ndarray, np.ndarray] | None,
    chunk_pieces: int | None,
    length: int | None,
) -> PieceTable:
    num_lines, num_others = shape
    lines, index = _sorted(lines, index, num_others)
    counts = np.bincount(index, minlength=num_others)
    order = np.argsort(counts, kind="stable")
    pieces: Any = {"num_lines": num_lines, "chunk_pieces": chunk_pieces, "length": length}
    taken, gaps = (lines, index), None
    if missing is not None and (len(missing[0]) or chunk_pieces is not None):
        gaps = cut(*_sorted(missing[0], missing[1], num_others), **pieces)
        both = [np.concatenate(pair) for pair in zip(taken, missing, strict=True)]
        taken = _sorted(both[0], both[1], num_others)
    return PieceTable(
        ones=cut(lines, index, **pieces),
        missing=gaps,
        starts=jnp.asarray(np.searchsorted(taken[0], np.arange(num_lines + 1)), jnp.int32),
        taken=jnp.asarray(taken[1], jnp.int32),
        order=jnp.asarray(order, jnp.int32),
    )


def _sorted(lines: np.ndarray, index: np.ndarray, num_others: int) -> tuple[np.ndarray, np.ndarray]:
    if are_increasing(lines, index, num_others):
        return lines, index
    cells = np.array(lines, np.int32), np.array(index, np.int32)
    sort_cells(*cells, num_others)
    return cells


def num_lines(table: PieceTable) -> int:
    """N, seen from the rows."""
    return int(table.starts.shape[0]) - 1


def num_others(table: PieceTable) -> int:
    """D, seen from the rows."""
    return int(table.order.shape[0])


def fetch(table: Array, index: Array) -> Array:
    """Rows of a table (D, ...) by indices (...) that are known to lie in it."""
    return table.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


def fetch_cells_last(table: Array, index: Array) -> Array:
    """Rows of a table (D, L) for the cells of pieces (B, p), as (B, L, p).

    On CPUs they are written in that order: products of small matrices with the cells in their last
    axis take a half to a third of the time, and left alone the compiler would keep the order of the
    table.
    """
    found = jnp.swapaxes(fetch(table, index), 1, 2)
    if default_platform() != "cpu":
        return found
    return with_layout_constraint(found, AxisOrder(major_to_minor=(0, 1, 2)))


def sum_over_ones(pieces: Pieces, others: Array, *, num_lines: int) -> Array:
    """Sum of `others` over the ones of each line: the sparse matrix times `others`.

    Args: others (D, L) float.
    Returns (N, L) float.
    """
    # what stands behind the end of a piece fetches a row of zeros
    table = jnp.pad(others, ((0, 1), (0, 0)))

    def one_chunk(total: Array, chunk: Pieces) -> tuple[Array, None]:
        return add_lines(total, chunk.line, _piece_sums(table, chunk.indices, chunk.counts)), None

    start = jnp.zeros((num_lines, others.shape[1]), others.dtype)
    return jax.lax.scan(one_chunk, start, pieces)[0]


@jax.custom_jvp
def _piece_sums(table: Array, indices: Array, counts: Array) -> Array:
    """Sums over pieces of rows of a table (D + 1, L) whose last one is zero: (B, L) float.

    Written as additions of 8 or 32 rows, which are fused with their look-up: nothing is stored
    between.
    """
    length = indices.shape[1]
    indices = jnp.where(jnp.arange(length) < counts[:, None], indices, table.shape[0] - 1)
    total = fetch(table, indices[:, 0])
    for cell in range(1, length):
        total = total + fetch(table, indices[:, cell])
    return total


@_piece_sums.defjvp
def _piece_sums_jvp(
    primals: tuple[Array, Array, Array], tangents: tuple[Array, PyTree, PyTree]
) -> tuple[Array, Array]:
    """As one product: its transpose is one scattered addition, not one for each cell of a piece."""
    table, index, counts = primals
    there = (jnp.arange(index.shape[1]) < counts[:, None]).astype(table.dtype)
    change = jnp.einsum("bp,bpl->bl", there, fetch(tangents[0], index))
    return _piece_sums(table, index, counts), change


def add_lines(total: Array, line: Array, part: Array) -> Array:
    """Adds a part (B, F) to lines of a total (N, F); that of an empty piece is dropped."""
    return total.at[line].add(part, mode="drop")
