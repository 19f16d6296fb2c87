"""Draws of the factors of all rows given those of the columns.

The mean of a cell is

    mu_ij = U_i' w_ij + h_i' g_ij

where w_ij holds what the row's factors meet (the column's factors, a one for its bias, features
of the column and of the cell) and the second term what the column's other coefficients add
(Table 6.1). Given everything else the rows are independent and normal (eq 6.24, 6.25),

    precision_i = Lambda + tau sum_j w w'

with Lambda the precision of the row's prior and tau that of the noise.

The draw is made as a change of the present factors, from the residuals of these: so a large common
level of the values costs no digits.

Source: Salakhutdinov & Mnih (2008), eqs 11 to 13; Porteous (2010), section 6.2.8, with the sign of
the covariances of eq 6.25 put right.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf import devices
from jaxmf._kernels import cell_products
from jaxmf._kernels.cell_products import CellInput
from jaxmf.samplers.factors.layout import (
    Chunks,
    Design,
    RowPriors,
    is_broadcast,
    is_in_kernel,
    is_sequential,
    piece_size,
)
from jaxmf.samplers.factors.sequential_rows import draw_rows_sequentially
from jaxmf.types import Array


class Residuals(NamedTuple):
    """Sums over the cells; h is what a part of the factors adds to the mean of a cell."""

    squares: Array  # () float, of the squared residuals
    products: Array  # () float, of the residuals times h; zero without a part
    part: Array  # () float, of the squares of h; likewise

    def scaled(self, change: Array) -> Residuals:
        """After h is multiplied by 1 + change."""
        squares = self.squares - 2 * change * self.products + change**2 * self.part
        products = (1 + change) * (self.products - change * self.part)
        return Residuals(squares, products, (1 + change) ** 2 * self.part)


class _FactorBlock(NamedTuple):
    """The arrays of a block of R rows."""

    factors: Array
    normals: Array
    row_part: Array
    means: Array
    groups: Array
    first: Array
    start: Array
    end: Array


def block_size(num_rows: int, width: int) -> int:
    """Rows whose products are held at a time."""
    return max(1, min(num_rows, devices.block_size("factor numbers") // (width + 1) ** 2))


def draw_rows(
    normals: Array,
    factors: Array,
    design: Design,
    targets: Array,
    *,
    chunks: Chunks,
    priors: RowPriors,
    precision: Array,
    part: Array | None = None,
) -> tuple[Array, Residuals]:
    """The factors of all rows given the rest.

    Args:
      normals: (N, D) float, standard normal.
      factors: (N, D) float, the present ones.
      targets: (T + 1,) float, values of the cells, normal about their means; the last is zero.
        (C, W) where chunks have no positions of cells, zero where there is no cell.
      part: (D,) float, one for the entries whose sums are asked for, zero for others; or None.
    Returns:
      The new factors (N, D), and what they leave of the targets.
    """
    num_rows, width = factors.shape
    if is_sequential(width):
        drawn, sums = draw_rows_sequentially(
            normals,
            factors,
            design,
            targets,
            chunks=chunks,
            priors=priors,
            precision=precision,
            part=part,
        )
        return drawn, _residuals(sums)
    blocks = _blocks(normals, factors, design, chunks, priors)

    def draw_block(sums: Array, block: _FactorBlock) -> tuple[Array, Array]:
        products = _products(block, design, targets, chunks)
        change = _draw_change(products, block, priors.precisions, precision)
        # e - w'change is what a cell leaves after the change, so (change, -1) on both sides of the
        # sums of (w, e)(w, e)' gives the squares of that: the cells are not gone through again
        after = jnp.concatenate([change, -jnp.ones_like(change[:, :1])], axis=1)
        lines = jnp.einsum("rde,re->rd", products, after)
        found = [jnp.sum(after * lines)]
        if part is not None:
            chosen = part * (block.factors + change)
            inner = jnp.einsum("rd,rde,re->", chosen, products[:, :-1, :-1], chosen)
            found += [-jnp.sum(chosen * lines[:, :-1]), inner]
        return sums + jnp.stack(found), block.factors + change

    zeros = jnp.zeros((1 if part is None else 3,), factors.dtype)
    sums, drawn = jax.lax.scan(draw_block, zeros, blocks)
    return drawn.reshape(-1, width)[:num_rows], _residuals(sums)


def _residuals(sums: Array) -> Residuals:
    """Residuals from their sums (1,) or (3,)."""
    zero = jnp.zeros((), sums.dtype)
    return Residuals(sums[0], *((sums[1], sums[2]) if sums.shape[0] > 1 else (zero, zero)))


def log_evidences(
    design: Design,
    targets: Array,
    *,
    chunks: Chunks,
    means: Array,
    precisions: Array,
    precision: Array,
    shifts: Array | float = 0.0,
) -> Array:
    """log p(cells of a row | group), its factors summed out, up to what groups have in common.

    Args: design, targets, chunks, precision: as in `draw_rows`; means (G, D) and precisions (G, D,
    D) float, of the groups; shifts (N, D) float, of the rows, added to the means of whichever
    group, or 0.
    Returns (N, G) float.
    """
    num_rows = design.row_part.shape[0]

    def group_evidences(moments: tuple[Array, Array]) -> Array:
        mean, inverse = moments
        factors = jnp.broadcast_to(mean + shifts, (num_rows, mean.shape[0]))
        priors = RowPriors(factors, jnp.zeros((num_rows,), jnp.int32), inverse[None])
        blocks = _blocks(jnp.zeros_like(factors), factors, design, chunks, priors)

        def block_evidences(block: _FactorBlock) -> Array:
            products = _products(block, design, targets, chunks)
            factor, half = _factor(products, block, inverse[None], precision)
            determinants = jnp.sum(jnp.log(jnp.diagonal(factor, axis1=1, axis2=2)), axis=1)
            squares = precision * products[:, -1, -1] - jnp.sum(half[..., 0] ** 2, axis=1)
            return -determinants - squares / 2

        return jax.lax.map(block_evidences, blocks).reshape(-1)[:num_rows]

    log_densities = jax.lax.map(group_evidences, (means, precisions)).T
    return log_densities + jnp.linalg.slogdet(precisions)[1] / 2


def _blocks(
    normals: Array, factors: Array, design: Design, chunks: Chunks, priors: RowPriors
) -> _FactorBlock:
    """The arrays of all blocks of rows; the first axis of each leaf is that of blocks."""
    num_rows, width = factors.shape
    size = block_size(num_rows, width)
    num_blocks = -(-num_rows // size)
    firsts = size * jnp.arange(num_blocks, dtype=jnp.int32)
    parts = factors, normals, design.row_part, priors.means, priors.groups
    return _FactorBlock(
        **{
            name: _in_blocks(part, num_blocks, size)
            for name, part in zip(_FactorBlock._fields, parts, strict=False)
        },
        first=firsts,
        start=chunks.starts[firsts],
        end=chunks.starts[jnp.minimum(firsts + size, num_rows)],
    )


def _in_blocks(values: Array, num_blocks: int, size: int) -> Array:
    padding = num_blocks * size - values.shape[0]
    padded = jnp.pad(values, ((0, padding), *((0, 0),) * (values.ndim - 1)))
    return padded.reshape(num_blocks, size, *values.shape[1:])


def _products(block: _FactorBlock, design: Design, targets: Array, chunks: Chunks) -> Array:
    """Sums over the cells of each row of (w, e)(w, e)', e the residual: (R, D + 1, D + 1)."""
    vectors = jnp.concatenate([block.factors[:, : design.num_shared], block.row_part], axis=1)
    if is_in_kernel(vectors.shape[1], has_cells=design.has_cells):
        return _products_in_kernel(block, vectors, design, targets, chunks)
    size, width = block.factors.shape
    num_chunks, at = chunks.rows.shape[0], chunks.cells
    piece = piece_size(num_chunks, chunks.others.shape[1])

    def add_piece(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        start, products = carry
        others, cells, rows = (
            jax.lax.dynamic_slice_in_dim(part, start, piece)
            for part in (chunks.others, targets if at is None else at, chunks.rows)
        )
        positions = jnp.where(start + jnp.arange(piece) < block.end, rows - block.first, size)
        here = jnp.minimum(positions, size - 1)
        met = design.table[others]
        means = jnp.einsum("pce,pe->pc", met, vectors[here])
        shared = met[..., : design.num_shared]
        if design.has_cells:
            features = design.cell_features[cells]
            both = block.factors[here, None, design.num_shared :] + design.cell_coefficients[others]
            means = means + jnp.sum(features * both, axis=-1)
            shared = jnp.concatenate([shared, features], axis=-1)
        residuals = (cells if at is None else targets[cells]) - means
        column = jnp.concatenate([shared, residuals[..., None]], axis=-1)
        if is_broadcast(width):
            squares = jnp.sum(column[..., :, None] * column[..., None, :], axis=1)
        else:
            squares = jnp.einsum("pcd,pce->pde", column, column)
        # positions rise, but saying so makes XLA's sums on a GPU forty times as slow (H100)
        products = products.at[positions].add(squares, mode="drop")
        return start + piece, products

    zeros = jnp.zeros((size, width + 1, width + 1), block.factors.dtype)
    _, products = jax.lax.while_loop(
        lambda carry: carry[0] < block.end, add_piece, (block.start, zeros)
    )
    return products


def _products_in_kernel(
    block: _FactorBlock, vectors: Array, design: Design, targets: Array, chunks: Chunks
) -> Array:
    """The sums of `_products` by the kernel for GPUs. Args: vectors (R, E + H) float."""
    num_rows, width = chunks.starts.shape[0] - 1, chunks.others.shape[1]
    rows = block.first + jnp.arange(block.factors.shape[0] + 1, dtype=jnp.int32)
    bounds = width * chunks.starts[jnp.minimum(rows, num_rows)]
    at = chunks.cells
    inputs = CellInput(
        firsts=bounds[:-1],
        ends=bounds[1:],
        others=chunks.others.ravel(),
        cells=None if at is None else at.ravel(),
        targets=targets.ravel(),
        table=design.table,
        vectors=vectors,
    )
    return cell_products.sums(inputs, design.num_shared)


def _draw_change(
    products: Array, block: _FactorBlock, precisions: Array, precision: Array
) -> Array:
    """New factors minus the present ones: (R, D)."""
    factor, half = _factor(products, block, precisions, precision)
    # the second solve waits for the first, see `likelihoods.gaussian.solve_both`
    return jax.lax.linalg.triangular_solve(
        factor, half + block.normals[..., None], left_side=True, lower=True, transpose_a=True
    )[..., 0]


def _factor(
    products: Array, block: _FactorBlock, precisions: Array, precision: Array
) -> tuple[Array, Array]:
    """L (R, D, D) of the precisions of the rows, and L^-1 b (R, D, 1), b that of the changes."""
    prior = precisions[block.groups]
    deviations = block.means - block.factors
    matrix = prior + precision * products[:, :-1, :-1]
    side = jnp.einsum("rde,re->rd", prior, deviations) + precision * products[:, :-1, -1]
    factor = jax.lax.linalg.cholesky(matrix, symmetrize_input=False)
    half = jax.lax.linalg.triangular_solve(factor, side[..., None], left_side=True, lower=True)
    return factor, half
