"""Draws of the factors of all rows, sequentially, as one kernel of a CPU.

The sums over the cells of a row, their Cholesky factor and the draw all stay in the processor's
nearest cache. Four cells, or four pivots, are worked in at a time, as a product of rank four: of
less the compiler makes no vectors, and of a library's call for each small matrix most is not
arithmetic. Numbers are those of `rows.draw_rows`, which says what is drawn.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from jaxmf._kernels.fusion import fused_on_cpu
from jaxmf.samplers.factors.layout import Chunks, Design, RowPriors
from jaxmf.types import Array

_LANES = 8
_RANK = 4
_LONG = 48


class _CellInputs(NamedTuple):
    """Inputs of the kernel for cells that have features."""

    cells: Array  # (C, 4) int32, their positions
    features: Array  # (T + 1, F) float, of `Design`
    row_coefficients: Array  # (N, F) float, the rows' coefficients of these
    coefficients: Array  # (M + 1, F) float, the columns'


class _KernelInput(NamedTuple):
    """Inputs of the kernel. D is padded to P, a multiple of four, and lines to W, one of eight."""

    starts: Array  # (N + 1,) int32, the first chunk of every row, and the end
    others: Array  # (C, 4) int32, the columns of the cells
    values: Array  # (C, 4) float, the targets
    table: Array  # (M + 1, V) float, of `Design`, V at least W
    vectors: Array  # (N, V) float, what meets the table in the means
    normals: Array  # (N, D) float
    sides: Array  # (N, P) float, precision times mean, of the priors of the changes
    priors: Array  # (G, P, W) float, precisions, with ones on the padded diagonal
    # (P, W) float, the precision of the noise; zero in the padding but for the last column
    share: Array
    groups: Array | None  # (N,) int32; None with one group, for what is not read must not be there
    cell_inputs: _CellInputs | None  # None where cells have no features
    # (P,) float, one for the entries whose share in the residuals is asked for, zero for others;
    # None where none are
    part: Array | None
    present: Array | None  # (N, P) float, the present factors, with a part alone


def draw_rows_sequentially(
    normals: Array,
    factors: Array,
    design: Design,
    targets: Array,
    *,
    chunks: Chunks,
    priors: RowPriors,
    precision: Array,
    part: Array | None = None,
) -> tuple[Array, Array]:
    """As `rows.draw_rows`, with the sums of squares and products as an array, (1,) or (3,)."""
    size = factors.shape[1]
    num_pivots = _up(size, _RANK)
    width = _up(num_pivots + 1, _LANES)
    length = _up(max(width, design.table.shape[1]), _LANES)
    vectors = design.vectors(factors)
    deviations = priors.means - factors
    is_one_group = priors.precisions.shape[0] == 1
    if is_one_group:
        sides = deviations @ priors.precisions[0]
    else:
        sides = jnp.einsum("rde,re->rd", priors.precisions[priors.groups], deviations)
    is_entry, columns = jnp.arange(num_pivots)[:, None] < size, jnp.arange(width)
    is_read = is_entry & ((columns < size) | (columns == width - 1))
    padding = jnp.where(is_entry, 0, jnp.eye(num_pivots, width, dtype=factors.dtype))
    precisions = jnp.pad(priors.precisions, ((0, 0), (0, num_pivots - size), (0, width - size)))
    rows = _KernelInput(
        starts=chunks.starts,
        others=chunks.others,
        values=targets if chunks.cells is None else targets[chunks.cells],
        table=_padded(design.table, length),
        vectors=_padded(vectors, length),
        normals=normals,
        sides=_padded(sides, num_pivots),
        priors=precisions + padding,
        share=jnp.where(is_read, precision, 0).astype(factors.dtype),
        groups=None if is_one_group else priors.groups,
        cell_inputs=_cell_inputs(factors, design, chunks) if design.has_cells else None,
        part=None if part is None else _padded(part, num_pivots),
        present=None if part is None else _padded(factors, num_pivots),
    )
    changes, sums = _draw_all_fused(rows)
    return factors + changes, jnp.sum(sums.reshape(sums.shape[0], -1, _LANES), axis=(0, 2))


def _cell_inputs(factors: Array, design: Design, chunks: Chunks) -> _CellInputs:
    assert chunks.cells is not None
    row_coefficients = factors[:, design.num_shared :]
    return _CellInputs(
        chunks.cells, design.cell_features, row_coefficients, design.cell_coefficients
    )


def _draw_all(rows: _KernelInput) -> tuple[Array, Array]:
    """Changes (N, D) of the factors of all rows, and eight parts of each of their sums.

    These are of squared residuals, (N, 8); with a part of the entries also of its products with
    the residuals and of its squares, (N, 24).
    """
    num_pivots, width = rows.share.shape

    def draw(row: Array, drawn: tuple[Array, Array]) -> tuple[Array, Array]:
        changes, squares = drawn
        products, cell_squares = _products(rows, row)
        prior = rows.priors[0] if rows.groups is None else _at(rows.priors, _at(rows.groups, row))
        side = _at(rows.sides, row)[:, None] * _last(width, prior.dtype)
        factor = _factor(prior + rows.share * products + side)
        change = _solved(factor, _padded(_at(rows.normals, row), num_pivots))
        # stored first, and read from there: else it is computed anew for all that it is used for
        changes = _put(changes, change[: changes.shape[1]], row)
        change = _padded(_at(changes, row), num_pivots)
        sums = _rest(products, cell_squares, change)
        if rows.part is not None and rows.present is not None:
            values = rows.part * (_at(rows.present, row) + change)
            sums = jnp.concatenate([sums, _part_sums(products, change, values)])
        return changes, _put(squares, sums, row)

    nothing = jnp.zeros_like(rows.normals)
    num_sums = 1 if rows.part is None else 3
    parts = jnp.zeros((nothing.shape[0], num_sums * _LANES), nothing.dtype)
    return jax.lax.fori_loop(0, nothing.shape[0], draw, (nothing, parts))


_draw_all_fused = fused_on_cpu(_draw_all, sequential=True)


# --- products of the cells ------------------------------------------------------------------------


class _Sums(NamedTuple):
    """Sums over cells, and room for what is used often, see `_draw_all`."""

    products: Array  # (P, W) float, of w (w, e)'
    squares: Array  # (4,) float, of e e, in parts
    lanes: Array  # (5, 8) float, parts of the means
    residuals: Array  # (2, 4) float
    lines: Array | None  # (5, W) float, w of cells with features; None where they have none


def _products(rows: _KernelInput, row: Array) -> tuple[Array, Array]:
    """Sums over the cells of a row of w (w, e)' (P, W) and of e e (4,), e the residuals."""
    num_pivots, width = rows.share.shape
    dtype = rows.table.dtype
    vector, last = _at(rows.vectors, row), _last(width, dtype)

    def add(chunk: Array, sums: _Sums) -> _Sums:
        others = _at(rows.others, chunk)
        met = [_at(rows.table, other) for other in others]
        lanes = _first(sums.lanes, jnp.stack([_in_lanes(line * vector) for line in met]))
        new = _at(rows.values, chunk) - _sum_of_lanes(lanes[:_RANK])
        lines, room = [line[:width] for line in met], sums.lines
        if rows.cell_inputs is not None and room is not None:
            room, means = _with_features(rows, row, chunk, lines, room)
            lines, new = list(room[:_RANK]), new - means
        residuals = _first(sums.residuals, new[None])
        # the residual stands in the last column, so that sums of e w are there too
        ends = [line + e * last for line, e in zip(lines, residuals[0], strict=True)]
        outer = [a[:num_pivots, None] * b for a, b in zip(lines, ends, strict=True)]
        squares = sums.squares + residuals[0] ** 2
        return _Sums(sums.products + sum(outer[1:], outer[0]), squares, lanes, residuals, room)

    nothing = _Sums(
        products=jnp.zeros((num_pivots, width), dtype),
        squares=jnp.zeros((_RANK,), dtype),
        lanes=jnp.zeros((_RANK + 1, _LANES), dtype),
        residuals=jnp.zeros((2, _RANK), dtype),
        lines=None if rows.cell_inputs is None else jnp.zeros((_RANK + 1, width), dtype),
    )
    sums = jax.lax.fori_loop(_at(rows.starts, row), _at(rows.starts, row + 1), add, nothing)
    return sums.products, sums.squares


def _with_features(
    rows: _KernelInput, row: Array, chunk: Array, lines: list[Array], room: Array
) -> tuple[Array, Array]:
    """The lines w of four cells that have features, and what these add to the means (4,)."""
    assert rows.cell_inputs is not None
    cells, features, row_coefficients, coefficients = rows.cell_inputs
    num_shared = rows.normals.shape[1] - features.shape[1]
    in_row = _at(row_coefficients, row)
    pairs = zip(_at(cells, chunk), _at(rows.others, chunk), strict=True)
    found = [(_at(features, cell), in_row + _at(coefficients, other)) for cell, other in pairs]
    for i, (line, (feature, _)) in enumerate(zip(lines, found, strict=True)):
        whole = jnp.concatenate([line[:num_shared], feature])
        room = jax.lax.dynamic_update_slice(room, whole[None], (i, 0))
    return room, jnp.stack([jnp.sum(feature * both) for feature, both in found])


# --- factor and solution --------------------------------------------------------------------------


def _factor(matrix: Array) -> Array:
    """L' of a positive definite matrix, and in the last column L^-1 b: (P, W)."""
    num_pivots = matrix.shape[0]
    factor = jnp.zeros_like(matrix)
    # where a part is done the rest is cut out; after the last four pivots there is none
    half = [_up(num_pivots // 2, _RANK)] if num_pivots >= _LONG else []
    bounds = [0, *half, num_pivots - _RANK]
    for start, end in zip(bounds, bounds[1:], strict=False):
        matrix, factor = _eliminate(matrix, factor, start, end)
        matrix = matrix[end - start :]
    return _with_lines(matrix, factor, jnp.asarray(bounds[-1]))


def _eliminate(matrix: Array, factor: Array, first: int, end: int) -> tuple[Array, Array]:
    """Pivots from `first` to `end` of what is left of a matrix, (P - first, W)."""

    def panel(index: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        matrix, factor = carry
        start = index * _RANK
        factor = _with_lines(_slice(matrix, start - first), factor, start)
        lines = _slice(factor, start)
        return matrix - sum(line[first : factor.shape[0], None] * line for line in lines), factor

    return jax.lax.fori_loop(first // _RANK, end // _RANK, panel, (matrix, factor))


def _with_lines(rest: Array, factor: Array, start: Array) -> Array:
    """The factor with four lines more, of what is left of four lines (4, W) of the matrix."""
    corner = jax.lax.dynamic_slice(rest, (0, start), (_RANK, _RANK), allow_negative_indices=False)
    room = _first(jnp.zeros((_RANK + 1, _RANK), rest.dtype), _inverse_root(corner))
    lines = [sum(room[i, k] * rest[k] for k in range(_RANK)) for i in range(_RANK)]
    return jax.lax.dynamic_update_slice(
        factor, jnp.stack(lines), (start, 0), allow_negative_indices=False
    )


def _inverse_root(matrix: Array) -> Array:
    """L^-1 of a positive definite matrix (4, 4), entry by entry."""
    root: dict[tuple[int, int], Array] = {}
    inverse: dict[tuple[int, int], Array] = {}
    for k in range(_RANK):
        inverse[k, k] = jax.lax.rsqrt(matrix[k, k] - sum(root[k, j] ** 2 for j in range(k)))
        for i in range(k + 1, _RANK):
            below = matrix[i, k] - sum(root[i, j] * root[k, j] for j in range(k))
            root[i, k] = below * inverse[k, k]
        for j in range(k):
            rest = sum(root[k, i] * inverse[i, j] for i in range(j, k))
            inverse[k, j] = -inverse[k, k] * rest
    zero = jnp.zeros((), matrix.dtype)
    lines = [[inverse.get((i, j), zero) for j in range(_RANK)] for i in range(_RANK)]
    return jnp.stack([jnp.stack(line) for line in lines])


def _solved(factor: Array, normals: Array) -> Array:
    """L'^-1 (L^-1 b + normals): (P,)."""
    num_pivots, width = factor.shape
    right = factor[:, -1] + normals

    def solve(step: Array, solved: Array) -> Array:
        index = num_pivots - 1 - step
        line = _at(factor, index)
        rest = _at(right, index) - _sum_of_lanes(_in_lanes(line * solved))
        return _put(solved, rest / _at(line, index), index)

    nothing = jnp.zeros((width,), factor.dtype)
    return jax.lax.fori_loop(0, num_pivots, solve, nothing)[:num_pivots]


def _rest(products: Array, squares: Array, change: Array) -> Array:
    """Sums of the squared residuals after a change (P,), in parts (8,)."""
    width = products.shape[1]
    # d' G d - 2 d' b + e' e, with b in the last column of the products
    whole = _padded(change, width) - 2 * _last(width, change.dtype)
    return _in_lanes(_times(change, products) * whole) + _padded(squares, _LANES)


def _part_sums(products: Array, change: Array, values: Array) -> Array:
    """Sums of h e and of h h after a change (P,), in parts (16,); h what values (P,) add."""
    width = products.shape[1]
    total = _times(values, products)
    # e after the change is e - w' d
    rest = _last(width, change.dtype) - _padded(change, width)
    return jnp.concatenate([_in_lanes(total * rest), _in_lanes(total * _padded(values, width))])


def _times(values: Array, products: Array) -> Array:
    """Values (P,) times products (P, W): (W,)."""
    num_pivots, width = products.shape

    def add(index: Array, total: Array) -> Array:
        lines, factors = (_slice(part, index * _RANK) for part in (products, values))
        return total + sum(factors[i] * lines[i] for i in range(_RANK))

    nothing = jnp.zeros((width,), values.dtype)
    return jax.lax.fori_loop(0, num_pivots // _RANK, add, nothing)


# --- small tools ----------------------------------------------------------------------------------


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _padded(values: Array, width: int) -> Array:
    return jnp.pad(values, ((0, 0),) * (values.ndim - 1) + ((0, width - values.shape[-1]),))


def _last(width: int, dtype: DTypeLike) -> Array:
    """(0, ..., 0, 1)."""
    return (jnp.arange(width) == width - 1).astype(dtype)


def _at(values: Array, index: Array) -> Array:
    return _slice(values, index, size=1)[0]


def _slice(values: Array, start: Array, *, size: int = _RANK) -> Array:
    return jax.lax.dynamic_slice_in_dim(values, start, size, allow_negative_indices=False)


def _put(values: Array, value: Array, index: Array) -> Array:
    starts: tuple[Any, ...] = (index, *(0,) * value.ndim)
    return jax.lax.dynamic_update_slice(values, value[None], starts, allow_negative_indices=False)


def _first(room: Array, value: Array) -> Array:
    """A room (1 + n, ...) with the value (n, ...) at its beginning, which is then in memory.

    The room is larger by one: XLA takes a value that fills an array for the array, stores nothing,
    and computes the value anew for all that uses it.
    """
    return jax.lax.dynamic_update_slice(room, value, (0,) * room.ndim)


def _in_lanes(line: Array) -> Array:
    """Sums in parts: (V,) to (8,)."""
    parts = [line[i : i + _LANES] for i in range(0, line.shape[0], _LANES)]
    return sum(parts[1:], parts[0])


def _sum_of_lanes(lanes: Array) -> Array:
    """(..., 8) to (...)."""
    half = lanes[..., :4] + lanes[..., 4:]
    quarter = half[..., :2] + half[..., 2:]
    return quarter[..., 0] + quarter[..., 1]
