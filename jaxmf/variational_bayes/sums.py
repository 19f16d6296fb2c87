"""Sums over the cells of every line: what the updates of one side need of the other.

With q_ij = w_ij 2 dF / dvariance and r_ij = w_ij (dF / dmean - x_ij kappa), where w counts how
often a cell is taken, the sums are the derivatives of a line's cost in the means and variances of
its factors. Where F is quadratic, q is the curvature Lambda and r = q m - l with l = w x kappa.
Cells are gone through in three ways:

- all zeros with Gaussian cells: in closed form, from sums over the others;
- zeros shared by all lines: blocks of lines by products of matrices;
- ones, missing cells and zeros sampled per line: gathered, in pieces.

A one adds f(x = 1) - c f(x = -1), a missing cell -c f(x = -1), where c is the weight of its column
among the zeros of all cells; as F does not depend on x both are one sum, with the weights
x - c of F and x + c of the linear part, x being 1 or 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from jaxmf import row_shards
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.types import Array, PyTree
from jaxmf.variational_bayes.contracts import Likelihood
from jaxmf.variational_bayes.parameters import Half, Normal
from jaxmf.variational_bayes.pieces import (
    Pieces,
    PieceTable,
    add_lines,
    fetch,
    fetch_cells_last,
    num_lines,
    num_others,
    sum_over_ones,
)
from jaxmf.variational_bayes.zeros import All, PerLine, Zeros, weights_of_others

# blocks of lines, so small that a few arrays of this many elements stay in the cache, ...
_CACHED_CELLS = 2**18
# ... but of at least this many lines, as each block reads all others; with a bound on memory
_LEAST_LINES = 64
_MOST_CELLS = 2**20


class CellSums(NamedTuple):
    """Sums over the cells of each line; M is L, or L (L + 1) / 2 for the block form.

    The first axis is 1 instead of N where all lines have the same.
    """

    residual_cross: Array  # (N, L), sum of r s
    residual: Array  # (N, 1), sum of r
    weight: Array  # (N, 1), sum of q
    cross: Array  # (N, L), sum of q s
    spread: Array  # (N, L), sum of q times the variance of s
    # (N, M), sum of q s s', its upper triangle by rows; or its diagonal alone. In the block form it
    # may be the last M columns of more, see `positions`
    square: Array


def positions(square: Array, width: int) -> np.ndarray:
    """Where in `CellSums.square` the entries (L, L) of a line's matrix are, in the block form."""
    rows, columns = np.triu_indices(width)
    found = np.zeros((width, width), int)
    found[rows, columns] = found[columns, rows] = np.arange(rows.size)
    return found + square.shape[1] - rows.size


def side_sums(
    view: Half,
    table: PieceTable,
    zeros: Zeros,
    *,
    likelihood: Likelihood,
    noise: Array,
    block: bool,
    over_rows: bool = False,
) -> CellSums:
    """The sums of every line of one side.

    Args: block: whether to take the whole matrix of second derivatives of a line or its diagonal;
    over_rows: whether the others are rows, which may be spread over devices: their sums are added.
    Returns sums, of the likelihood alone: priors are not in them.
    """
    cells = _CellTerms(likelihood, noise, block)
    others = view.others
    c = weights_of_others(zeros, table, others.mean.dtype, over_rows=over_rows)
    gathered: list[tuple[Pieces, float]] = []
    if not isinstance(zeros, All):
        gathered.append((table.ones, 1.0))
    if table.missing is not None and not isinstance(zeros, PerLine):
        gathered.append((table.missing, 0.0))
    if isinstance(zeros, All) and isinstance(likelihood, Gaussian):
        total = _all_gaussian(cells, view, num_others(table))
    elif isinstance(zeros, PerLine):
        total = _per_line_zeros(cells, view, zeros)
    else:
        chosen, weight = others, c
        if not isinstance(zeros, All):
            chosen = chosen_others(others, zeros.indices, over_rows=over_rows)
            weight = zeros.weight.astype(c.dtype)
            weight = row_shards.part_of(weight) if over_rows else weight
        total = _shared_zeros(cells, view, chosen, weight)
    if gathered:
        packed = _pack(total, num_lines(table))
        for pieces, is_one in gathered:
            packed = _add_gathered(cells, packed, view, pieces, c, is_one)
        total = _unpack(packed, others.mean.shape[1])
        if block and not over_rows:
            # what all devices add is as short as it can be; elsewhere no copy of most of the sums
            total = total._replace(square=packed)
    if isinstance(zeros, All):
        total = _add_linear(cells, total, view, table)
    return CellSums(*row_shards.add_over_devices(total)) if over_rows else total


def chosen_others(others: Normal, indices: Array, *, over_rows: bool) -> Normal:
    """Some of the others; of rows that are spread over devices, those that fall to this device."""
    if not over_rows:
        return Normal(*(part[indices] for part in others))
    return Normal(*(row_shards.part_of(row_shards.rows_of_all(part, indices)) for part in others))


class _CellTerms(NamedTuple):
    """The terms that one cell adds to the sums."""

    likelihood: Any
    noise: Array  # () float, variance
    block: bool  # whether the whole matrix s s' or its diagonal


def _all_gaussian(cells: _CellTerms, view: Half, num_columns: int) -> CellSums:
    """All cells as if they were -1; with m + 1 for m - x, so that nothing cancels."""
    rate = 1 / cells.noise
    mean, variance = view.others
    gram, total = mean.T @ mean, jnp.sum(mean, axis=0)
    intercept = view.intercept.mean + 1
    square = gram[np.triu_indices(gram.shape[0])] if cells.block else jnp.diagonal(gram)
    return CellSums(
        residual_cross=rate * (view.factors.mean @ gram + intercept * total),
        residual=rate * (view.factors.mean @ total + num_columns * intercept)[:, None],
        weight=jnp.full((1, 1), num_columns * rate),
        cross=rate * total[None],
        spread=rate * jnp.sum(variance, axis=0)[None],
        square=rate * square[None],
    )


def _add_linear(cells: _CellTerms, total: CellSums, view: Half, table: PieceTable) -> CellSums:
    """The ones beside all cells as zeros: c is one everywhere, and what is left is linear."""
    change = 2 * cells.likelihood.slope(cells.noise)
    ones = sum_over_ones(table.ones, view.others.mean, num_lines=num_lines(table))
    dtype = ones.dtype
    counts = jnp.zeros((num_lines(table),), dtype)
    counts = add_lines(counts, table.ones.line.ravel(), table.ones.counts.ravel().astype(dtype))
    return total._replace(
        residual_cross=total.residual_cross - change * ones,
        residual=total.residual - change * counts[:, None],
    )


def _shared_zeros(cells: _CellTerms, view: Half, others: Normal, weight: Array) -> CellSums:
    """Blocks of lines with others that are the same for all."""
    features = _features(others, cells.block)
    slope = cells.likelihood.slope(cells.noise)
    plain = jnp.concatenate([others.mean, jnp.ones_like(others.mean[..., :1])], axis=-1)

    def one_block(factors: Normal) -> Array:
        mean, variance = shared_moments(factors, others, view.intercept)
        slopes = cells.likelihood.slopes(mean, variance, cells.noise)
        q, r = weight * slopes.weight, weight * (slopes.mean + slope)
        return jnp.concatenate([r @ plain, q @ features], axis=1)

    packed = map_lines(one_block, view.factors, num_cells=weight.shape[0])
    return _unpack(packed, others.mean.shape[1])


def _features(others: Normal, block: bool) -> Array:
    """Multipliers of q: one, s, its variance, and s s' or its diagonal, side by side."""
    mean = others.mean
    if block:
        upper = np.triu_indices(mean.shape[-1])
        square = mean[..., upper[0]] * mean[..., upper[1]]
    else:
        square = mean**2
    one = jnp.ones_like(mean[..., :1])
    return jnp.concatenate([one, mean, others.variance, square], axis=-1)


def shared_moments(factors: Normal, others: Normal, intercept: Normal) -> tuple[Array, Array]:
    """Mean and variance of the scores of lines (B, L) with others (n, L): (B, n) each."""
    mean = factors.mean @ others.mean.T + intercept.mean
    # one product for both parts of the variance
    left = jnp.concatenate([factors.mean**2 + factors.variance, factors.variance], axis=1)
    right = jnp.concatenate([others.variance, others.mean**2], axis=1)
    return mean, left @ right.T + intercept.variance


class Gathered(NamedTuple):
    """Moments of the other side's factors at cells (B, p), each (B, L, p) float."""

    mean: Array  # s
    variance: Array  # of s
    square: Array  # s^2


def gatherer(others: Normal) -> Callable[[Array], Gathered]:
    """A function of the indices (B, p) of cells among the others."""
    tables = Gathered(others.mean, others.variance, others.mean**2)
    return lambda indices: Gathered(*(fetch_cells_last(table, indices) for table in tables))


def gathered_moments(factors: Normal, others: Gathered, intercept: Normal) -> tuple[Array, Array]:
    """Mean and variance of the scores of lines, each with separate others: (B, p) each.

    Args: factors (B, L) each; others (B, L, p) each; intercept () each.
    """
    mean = _over_factors(factors.mean, others.mean) + intercept.mean
    variance = (
        _over_factors(factors.mean**2 + factors.variance, others.variance)
        + _over_factors(factors.variance, others.square)
        + intercept.variance
    )
    return mean, variance


def _over_factors(factors: Array, others: Array) -> Array:
    return jnp.einsum("bl,blp->bp", factors, others)


def _over_cells(weight: Array, others: Array) -> Array:
    return jnp.einsum("bp,blp->bl", weight, others)


def _gathered_sums(
    cells: _CellTerms,
    factors: Normal,
    others: Gathered,
    intercept: Normal,
    weights: tuple[Array, Array],
) -> CellSums:
    """Sums over cells (B, p) of lines.

    Args: weights: of F and of the linear part, (B, p) each; see the module.
    """
    mean, variance = gathered_moments(factors, others, intercept)
    slopes = cells.likelihood.slopes(mean, variance, cells.noise)
    q = weights[0] * slopes.weight
    r = weights[0] * slopes.mean - cells.likelihood.slope(cells.noise) * weights[1]
    if cells.block:
        left = q[:, None, :] * others.mean
        square = _upper(jnp.einsum("bkp,blp->bkl", left, others.mean))
    else:
        square = _over_cells(q, others.square)
    return CellSums(
        residual_cross=_over_cells(r, others.mean),
        residual=jnp.sum(r, axis=1, keepdims=True),
        weight=jnp.sum(q, axis=1, keepdims=True),
        cross=_over_cells(q, others.mean),
        spread=_over_cells(q, others.variance),
        square=square,
    )


def _upper(matrix: Array) -> Array:
    """Upper triangles by rows, (B, L (L + 1) / 2), of matrices (B, L, L)."""
    width = matrix.shape[-1]
    rows, columns = np.triu_indices(width)
    return matrix.reshape(-1, width * width)[:, rows * width + columns]


def _pack(sums: CellSums, size: int) -> Array:
    """Sums of this many lines side by side, in their order: (B, 3 L + 2 + M) float."""
    return jnp.concatenate([jnp.broadcast_to(x, (size, x.shape[1])) for x in sums], axis=1)


def _unpack(packed: Array, width: int) -> CellSums:
    """Sums that were put side by side."""
    ends = np.cumsum([width, 1, 1, width, width])
    return CellSums(*jnp.split(packed, ends, axis=1))


def _add_gathered(
    cells: _CellTerms, total: Array, view: Half, pieces: Pieces, c: Array, is_one: float
) -> Array:
    """Sums side by side, and the ones or missing cells beside zeros counted with the weights c."""
    gather = gatherer(view.others)

    def one_chunk(total: Array, chunk: Pieces) -> tuple[Array, None]:
        factors = take_lines(view.factors, chunk.line)
        there = piece_mask(chunk, total.dtype)
        piece_c = fetch(c, chunk.indices)
        weights = there * (is_one - piece_c), there * (is_one + piece_c)
        part = _gathered_sums(cells, factors, gather(chunk.indices), view.intercept, weights)
        return add_lines(total, chunk.line, _pack(part, chunk.line.shape[0])), None

    return jax.lax.scan(one_chunk, total, pieces)[0]


def piece_mask(chunk: Pieces, dtype: DTypeLike) -> Array:
    """(B, P) float: one where a piece has a cell."""
    return (jnp.arange(chunk.indices.shape[1]) < chunk.counts[:, None]).astype(dtype)


def take_lines(factors: Normal, line: Array) -> Normal:
    """The factors of the lines of pieces; for an empty piece those of some line."""
    kept = jnp.minimum(line, factors.mean.shape[0] - 1)
    return Normal(fetch(factors.mean, kept), fetch(factors.variance, kept))


def _per_line_zeros(cells: _CellTerms, view: Half, zeros: PerLine) -> CellSums:
    gather = gatherer(view.others)
    width = view.factors.mean.shape[1]

    def one_block(block: tuple[Normal, PerLine]) -> CellSums:
        factors, sample = block
        weight = sample.weight.astype(factors.mean.dtype)
        return _gathered_sums(
            cells, factors, gather(sample.indices), view.intercept, (weight, -weight)
        )

    num_cells = zeros.indices.shape[1] * width
    return map_lines(one_block, (view.factors, zeros), num_cells=num_cells)


def map_lines(function: Callable[[PyTree], PyTree], lines: object, *, num_cells: int) -> PyTree:
    """A function of blocks of lines over all lines, a block at a time, in bounded memory.

    Args: function: from a pytree of arrays (B, ...) to another; lines: a pytree of arrays (N, ...);
    num_cells: array elements that one line needs while it is computed.
    """
    num_all, each = jax.tree.leaves(lines)[0].shape[0], max(1, num_cells)
    lines_fitting = max(_CACHED_CELLS // each, min(_LEAST_LINES, _MOST_CELLS // each))
    block = max(1, min(num_all, lines_fitting))
    # of nearly that size, and of equal sizes if possible, so that nothing is padded
    block = next((size for size in range(block, block // 2, -1) if num_all % size == 0), block)
    if block == num_all:
        return function(lines)
    num_blocks = -(-num_all // block)

    def fold(leaf: Array) -> Array:
        padding = [(0, num_blocks * block - num_all)] + [(0, 0)] * (leaf.ndim - 1)
        return jnp.pad(leaf, padding).reshape(num_blocks, block, *leaf.shape[1:])

    # a derivative goes through the blocks again instead of keeping them
    result = jax.lax.map(jax.checkpoint(function), jax.tree.map(fold, lines))
    return jax.tree.map(
        lambda leaf: leaf.reshape(num_blocks * block, *leaf.shape[2:])[:num_all], result
    )
