"""What the entries of a factor vector are, and the mean of a cell.

A row's vector U_i holds, in this order, its latent factors U_a (K), its bias where there are
biases, a coefficient for every feature of the columns, U_b, and one for every feature of the cells,
U_c; a column's vector V_j likewise, with coefficients for the features of the rows (Table 6.1):

    mu_ij = U_a' V_a + b_i + c_j + U_b' x_j + V_b' x_i + (U_c + V_c)' z_ij
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf import devices
from jaxmf.samplers.factors.layout import Design
from jaxmf.types import Array, PyTree


class Known(NamedTuple):
    """Features of rows, columns and cells; without any entries where there are none."""

    rows: Array  # (N, Fr) float
    columns: Array  # (M, Fc) float
    cells: Array  # (T, Fz) float

    def transpose(self) -> Known:
        """Rows and columns exchanged."""
        return Known(self.columns, self.rows, self.cells)


class Vector(NamedTuple):
    """The parts of vectors (..., D): latent factors, bias, coefficients of others and of cells."""

    latent: Array
    bias: Array
    others: Array
    cells: Array


def num_entries(num_factors: int, has_bias: bool, num_others: int, num_cells: int) -> int:
    """D."""
    return num_factors + int(has_bias) + num_others + num_cells


def split(vectors: Array, num_factors: int, num_others: int, num_cells: int) -> Vector:
    """The parts of vectors (..., D); there is a bias where one entry is left for it."""
    num_bias = vectors.shape[-1] - num_factors - num_others - num_cells
    ends = (num_factors, num_factors + num_bias, num_factors + num_bias + num_others)
    return Vector(*jnp.split(vectors, ends, axis=-1))


def design(v: Array, known: Known, num_factors: int) -> Design:
    """The design for the vectors of the rows.

    Args: v (M, D) float, the columns' vectors.
    """
    num_cells = known.cells.shape[1]
    parts = split(v, num_factors, known.rows.shape[1], num_cells)
    ones = jnp.ones_like(parts.bias)
    table = [parts.latent, ones, known.columns, parts.bias, parts.others]
    row_part = [jnp.ones((known.rows.shape[0], parts.bias.shape[1]), v.dtype), known.rows]
    return Design(
        table=_with_zeros(jnp.concatenate(table, axis=1)),
        row_part=jnp.concatenate(row_part, axis=1),
        cell_features=_with_zeros(known.cells),
        cell_coefficients=_with_zeros(parts.cells),
    )


def _with_zeros(table: Array) -> Array:
    """A line of zeros at the end, for cells that do not exist."""
    return jnp.concatenate([table, jnp.zeros_like(table[:1], shape=(1, table.shape[1]))])


def cell_means(
    u: Array, v: Array, known: Known, rows: Array, columns: Array, *, num_factors: int
) -> Array:
    """mu of some cells.

    Args: u, v (N, D) and (M, D') float; known: of the rows and columns of u and v, and of the T
    cells; rows, columns (T,) int.
    Returns (T,) float.
    """
    row_parts = split(u, num_factors, known.columns.shape[1], known.cells.shape[1])
    column_parts = split(v, num_factors, known.rows.shape[1], known.cells.shape[1])
    # the same sum as one product of two vectors, so that each cell reads two lines
    left = [
        row_parts.latent,
        row_parts.bias,
        row_parts.others,
        jnp.ones_like(row_parts.bias),
        known.rows,
    ]
    right = [column_parts.latent, jnp.ones_like(column_parts.bias), known.columns]
    left_table = jnp.concatenate(left, axis=1)
    right_table = jnp.concatenate([*right, column_parts.bias, column_parts.others], axis=1)

    def piece_means(cells: tuple[Array, Array, Array]) -> Array:
        row, column, features = cells
        means = jnp.sum(left_table[row] * right_table[column], axis=-1)
        return means + jnp.sum(
            features * (row_parts.cells[row] + column_parts.cells[column]), axis=-1
        )

    return in_pieces(piece_means, (rows, columns, known.cells))


def in_pieces(function: Callable[..., Array], arrays: PyTree, *, num_cells: int = 1) -> Array:
    """A function of lines, applied to pieces of arrays (T, ...) in bounded memory: (T,).

    Args: num_cells: cells a line.
    """
    num_lines, size = arrays[0].shape[0], max(1, devices.block_size("cell means") // num_cells)
    if num_lines <= size:
        return function(arrays)
    num_pieces = -(-num_lines // size)

    def folded(array: Array) -> Array:
        padding = ((0, num_pieces * size - num_lines), *((0, 0),) * (array.ndim - 1))
        return jnp.pad(array, padding).reshape(num_pieces, size, *array.shape[1:])

    result = jax.lax.map(function, jax.tree.map(folded, arrays))
    return result.reshape(-1, *result.shape[2:])[:num_lines]
