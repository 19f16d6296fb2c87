"""Draws of the factors of all rows, one row after the other, as one kernel of a CPU.

The sums over the cells of a row, their Cholesky factor and the draw all stay in the processor's
nearest cache: four cells, or four pivots, are worked in at a time, as one product of rank four. A
call into a library for each of them costs several times its arithmetic at a few dozen factors.
Numbers are those of `rows.draw_rows`, which says what is drawn.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxmf.fusion import fused_on_cpu
from jaxmf.samplers.factors.layout import Chunks
from jaxmf.types import Array

if TYPE_CHECKING:
    from jaxmf.samplers.factors.rows import Design, RowPriors

_LANES = 8  # floats of a vector register
_RANK = 4
_SHORT = 16
_LONG = 48


class _OfCells(NamedTuple):
    """What the kernel reads of cells that have features.

    Attributes:
      cells: (C, 4) int32, their places.
      features: (T + 1, F) float, of `Design`.
      own: (N, F) float, the rows' coefficients of these.
      coefficients: (M + 1, F) float, the columns'.
    """

    cells: Array
    features: Array
    own: Array
    coefficients: Array


class _Rows(NamedTuple):
    """What the kernel reads, padded: D to P, a multiple of four, and lines to W, one of eight.

    Attributes:
      starts: (N + 1,) int32, the first chunk of every row, and the end.
      others: (C, 4) int32, the columns of the cells.
      values: (C, 4) float, the targets.
      table: (M + 1, V) float, of `Design`, V at least W.
      own: (N, V) float, what meets the table in the means.
      normals: (N, P) float.
      sides: (N, P) float, precision times mean, of the priors of the changes.
      priors: (G, P, W) float, precisions, with ones on the padded diagonal.
      share: (P, W) float, the precision of noise, zero in the padding but for the last column.
      groups: (N,) int32; None with one group, for what is not read must not be there.
      of_cells: None where cells have no features.
    """

    starts: Array
    others: Array
    values: Array
    table: Array
    own: Array
    normals: Array
    sides: Array
    priors: Array
    share: Array
    groups: Array | None
    of_cells: _OfCells | None


def draw_in_turn(
    normals: Array,
    factors: Array,
    design: Design,
    targets: Array,
    *,
    chunks: Chunks,
    priors: RowPriors,
    precision: Array,
) -> tuple[Array, Array]:
    """As `rows.draw_rows`, of chunks of four cells."""
    size = factors.shape[1]
    num_pivots = _up(size, _RANK)
    width = _up(num_pivots + 1, _LANES)
    lines = _up(max(width, design.table.shape[1]), _LANES)
    own = jnp.concatenate([factors[:, : design.num_shared], design.own], axis=1)
    apart = priors.means - factors
    is_one_group = priors.precisions.shape[0] == 1
    if is_one_group:
        sides = apart @ priors.precisions[0]
    else:
        sides = jnp.einsum("rde,re->rd", priors.precisions[priors.groups], apart)
    is_own = jnp.arange(num_pivots)[:, None] < size
    is_real = is_own & (jnp.arange(width) < size)
    is_read = is_own & ((jnp.arange(width) < size) | (jnp.arange(width) == width - 1))
    identity = jnp.eye(num_pivots, width, dtype=factors.dtype)
    precisions = jnp.pad(priors.precisions, ((0, 0), (0, num_pivots - size), (0, width - size)))
    of_cells = None
    if design.has_cells:
        of_cells = _OfCells(
            chunks.cells,
            design.cell_features,
            factors[:, design.num_shared :],
            design.cell_coefficients,
        )
    rows = _Rows(
        starts=chunks.starts,
        others=chunks.others,
        values=targets[chunks.cells],
        table=_padded(design.table, lines),
        own=_padded(own, lines),
        normals=_padded(normals, num_pivots),
        sides=_padded(sides, num_pivots),
        priors=precisions + jnp.where(is_real, 0, identity),
        share=jnp.where(is_read, precision, 0).astype(factors.dtype),
        groups=None if is_one_group else priors.groups,
        of_cells=of_cells,
    )
    changes, squares = fused_on_cpu(partial(_draw_all, design.num_shared), in_turn=True)(rows)
    return factors + changes[:, :size], jnp.sum(squares)


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def _padded(values: Array, width: int) -> Array:
    return jnp.pad(values, ((0, 0),) * (values.ndim - 1) + ((0, width - values.shape[-1]),))


def _at(values: Array, place: Array) -> Array:
    return _slice(values, place, 1)[0]


def _slice(values: Array, start: Array, size: int) -> Array:
    return jax.lax.dynamic_slice_in_dim(values, start, size, allow_negative_indices=False)


def _put(values: Array, value: Array, place: Array) -> Array:
    starts = (place, *(0,) * value.ndim)
    return jax.lax.dynamic_update_slice(
        values, value[None], starts, allow_negative_indices=False
    )


def _draw_all(num_shared: int, rows: _Rows) -> tuple[Array, Array]:
    """Changes (N, P) of the factors of all rows, and parts (N, 8) of the sums of squares."""
    num_rows, num_pivots = rows.normals.shape

    def draw(row: Array, drawn: tuple[Array, Array]) -> tuple[Array, Array]:
        changes, squares = drawn
        products, own_squares = _products(num_shared, rows, row)
        prior = rows.priors[0] if rows.groups is None else _at(rows.priors, _at(rows.groups, row))
        sides = _at(rows.sides, row)[:, None] * _last(prior.shape[1], prior.dtype)
        matrix = prior + rows.share * products + sides
        factor = _factor(matrix)
        changes = _put(changes, _solved(factor, _at(rows.normals, row)), row)
        change = _at(changes, row)
        return changes, _put(squares, _rest(products, own_squares, change), row)

    dtype = rows.table.dtype
    nothing = jnp.zeros((num_rows, num_pivots), dtype), jnp.zeros((num_rows, _LANES), dtype)
    return jax.lax.fori_loop(0, num_rows, draw, nothing)


def _last(width: int, dtype: Any) -> Array:
    """(0, ..., 0, 1)."""
    return (jnp.arange(width) == width - 1).astype(dtype)


def _summed(lines: Array) -> Array:
    """Sums over neighbours in lanes: (..., V) to (..., 8)."""
    parts = [lines[..., i : i + _LANES] for i in range(0, lines.shape[-1], _LANES)]
    return sum(parts[1:], parts[0])


def _in_lanes(values: Array) -> Array:
    """(n,) in lanes: (8,)."""
    return _summed(jnp.pad(values, (0, _up(values.shape[0], _LANES) - values.shape[0])))


def _sum_of_lanes(lanes: Array) -> Array:
    """(..., 8) to (...)."""
    half = lanes[..., :4] + lanes[..., 4:]
    quarter = half[..., :2] + half[..., 2:]
    return quarter[..., 0] + quarter[..., 1]


class _Sums(NamedTuple):
    """Sums over cells, and room for what is read again, which is not computed twice so."""

    products: Array
    squares: Array
    lanes: Array
    residuals: Array
    stack: Array | None


def _first(room: Array, value: Array) -> Array:
    """A room (1 + n, ...) with the value (n, ...) at its beginning."""
    value = value if value.ndim == room.ndim else value[None]
    return jax.lax.dynamic_update_slice(room, value, (0,) * room.ndim)


def _products(num_shared: int, rows: _Rows, row: Array) -> tuple[Array, Array]:
    """Sums over the cells of a row of w (w, e)' (P, W) and of e e, e the residuals."""
    num_pivots, width = rows.share.shape
    rank, dtype = rows.others.shape[1], rows.table.dtype
    own, last = _at(rows.own, row), _last(width, dtype)

    def add(chunk: Array, carry: _Sums) -> _Sums:
        others = _at(rows.others, chunk)
        met = [_at(rows.table, others[i]) for i in range(rank)]
        lanes = _first(carry.lanes, jnp.stack([_summed(line * own) for line in met]))
        new = _at(rows.values, chunk) - _sum_of_lanes(lanes[:rank])
        lines, stack = [line[:width] for line in met], carry.stack
        if rows.of_cells is not None:
            features = [_at(rows.of_cells.features, _at(rows.of_cells.cells, chunk)[i]) for i in range(rank)]
            of_row = _at(rows.of_cells.own, row)
            new = new - jnp.stack(
                [
                    jnp.sum(feature * (of_row + _at(rows.of_cells.coefficients, other)))
                    for feature, other in zip(features, others, strict=True)
                ]
            )
            for i in range(rank):
                shared = lines[i][:num_shared]
                stack = jax.lax.dynamic_update_slice(
                    stack, jnp.concatenate([shared, features[i]])[None], (i, 0)
                )
            lines = [stack[i] for i in range(rank)]
        residuals = _first(carry.residuals, new)
        ends = [line + e * last for line, e in zip(lines, residuals[0], strict=True)]
        outer = [a[:num_pivots, None] * b for a, b in zip(lines, ends, strict=True)]
        return _Sums(
            products=carry.products + sum(outer[1:], outer[0]),
            squares=carry.squares + residuals[0] ** 2,
            lanes=lanes,
            residuals=residuals,
            stack=stack,
        )

    zeros = _Sums(
        products=jnp.zeros((num_pivots, width), dtype),
        squares=jnp.zeros((rank,), dtype),
        lanes=jnp.zeros((rank + 1, _LANES), dtype),
        residuals=jnp.zeros((2, rank), dtype),
        stack=None if rows.of_cells is None else jnp.zeros((rank + 1, width), dtype),
    )
    start, end = _at(rows.starts, row), _at(rows.starts, row + 1)
    sums = jax.lax.fori_loop(start, end, add, zeros)
    return sums.products, sums.squares


def _factor(matrix: Array) -> Array:
    """L' (P, W) of a positive definite matrix (P, P), and in the last column L^-1 b."""
    num_pivots = matrix.shape[0]
    factor = jnp.zeros_like(matrix)
    bounds = _stages(num_pivots)
    for start, end in zip(bounds, bounds[1:], strict=False):
        if end - start == _RANK:
            factor = _with_lines(matrix[:_RANK], factor, start)
            matrix = matrix[_RANK:] - _outer(factor[start:end], end, num_pivots)
        else:
            matrix, factor = _eliminate(matrix, factor, start, end)
            matrix = matrix[end - start :]
    return factor


def _stages(num_pivots: int) -> list[int]:
    """Pivots after which what is left of a matrix is cut out: at each cut there is less to do."""
    if num_pivots <= _SHORT:
        return list(range(0, num_pivots + 1, _RANK))
    half = [_up(num_pivots // 2, _RANK)] if num_pivots >= _LONG else []
    return [0, *half, num_pivots - _RANK, num_pivots]


def _eliminate(matrix: Array, factor: Array, first: int, end: int) -> tuple[Array, Array]:
    """Pivots from `first` to `end` of what is left of a matrix, (P - first, W)."""

    def panel(number: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        matrix, factor = carry
        start = number * _RANK
        own = _slice(matrix, start - first, _RANK)
        factor = _with_lines(own, factor, start)
        lines = _slice(factor, start, _RANK)
        return matrix - _outer(lines, first, factor.shape[0]), factor

    return jax.lax.fori_loop(first // _RANK, end // _RANK, panel, (matrix, factor))


def _outer(lines: Array, first: int, end: int) -> Array:
    """Sum of l l' of lines (4, W), the rows from `first` to `end`."""
    return sum(line[first:end, None] * line for line in lines)


def _with_lines(own: Array, factor: Array, start: Array | int) -> Array:
    """The factor with four lines more, of what is left of four lines (4, W) of the matrix."""

    def pivot(index: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        own, factor = carry
        line = _at(own, index)
        line = line * jax.lax.rsqrt(_at(line, start + index))
        # stored first, and read from there: else it is computed again for every number
        factor = _put(factor, line, start + index)
        line = _at(factor, start + index)
        return own - _slice(line, start, _RANK)[:, None] * line, factor

    return jax.lax.fori_loop(0, _RANK, pivot, (own, factor))[1]


def _solved(factor: Array, normals: Array) -> Array:
    """L'^-1 (L^-1 b + normals): (P,)."""
    num_pivots, width = factor.shape
    right = factor[:, -1] + normals

    def solve(number: Array, solved: Array) -> Array:
        place = num_pivots - 1 - number
        line = _at(factor, place)
        rest = _at(right, place) - _sum_of_lanes(_summed(line * solved))
        return _put(solved, rest / _at(line, place), place)

    solved = jax.lax.fori_loop(0, num_pivots, solve, jnp.zeros((width,), factor.dtype))
    return solved[:num_pivots]


def _rest(products: Array, squares: Array, change: Array) -> Array:
    """Sums of squares after the change, in parts (8,)."""
    num_pivots, width = products.shape

    def add(number: Array, total: Array) -> Array:
        start = number * _RANK
        lines, own = _slice(products, start, _RANK), _slice(change, start, _RANK)
        return total + sum(own[i] * lines[i] for i in range(_RANK))

    total = jax.lax.fori_loop(0, num_pivots // _RANK, add, jnp.zeros((width,), change.dtype))
    # d' (G d - 2 b), b in the last column of the products
    whole = jnp.pad(change, (0, width - num_pivots)) - 2 * _last(width, change.dtype)
    return _summed(total * whole) + _in_lanes(squares)
