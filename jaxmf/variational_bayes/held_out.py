"""Ones that a fit does not know until most of its epochs are done, to be ranked beside popularity.

A few rows lose one of their ones; the fit takes it for a zero, as everyone does who has not seen
it. After four fifths of the epochs its parameters are kept and the ones are put back, so that the
end of the fit, whose steps are still long, knows all of the data. Nothing is compiled for that and
no array changes its shape: a piece of the ones ends with those that are left out, and only its
count says whether they are there.

The ranks are compared on the host, by 1 / log2(1 + rank): those by the probability of a one, and
those by how many ones the columns have, both among the columns that the row does not have.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.data import SparseBinary
from jaxmf.data.long_arrays import aligned_copy
from jaxmf.types import Array
from jaxmf.variational_bayes.parameters import Half, Parameters, half
from jaxmf.variational_bayes.pieces import Layout, Pieces

SHARE_OF_EPOCHS = 0.8  # until the ones are put back
_SHARE_OF_ONES = 50  # one in this many at most
_FEWEST, _MOST = 60, 500
_MOST_SCORES = 2**22
_MACKAY = math.pi / 8


class HeldOut(NamedTuple):
    """Ones that are left out, and what the pieces of the ones count without them."""

    row: Array  # (M,) int32, no row twice
    column: Array  # (M,) int32
    row_counts: Array  # of the pieces by row, as `Pieces.counts`
    column_counts: Array  # of the pieces by column, likewise


class Unknowing(NamedTuple):
    """Parameters before the ones were put back, and these ones: (M,) int32 each."""

    parameters: object
    row: Array
    column: Array


def default_num_held_out(num_ones: int) -> int:
    """How many ones are held out unless stated: 2 % of them up to 500, none where that is few."""
    num_held_out = min(num_ones // _SHARE_OF_ONES, _MOST)
    return num_held_out if num_held_out >= _FEWEST else 0


def choose(counts: np.ndarray, *, num_held_out: int, generator: np.random.Generator) -> np.ndarray:
    """Which of the ones are held out: one of a row that has two or more, (M,) int positions.

    Args:
      counts: (N,) int, how many ones the rows have, which stand in the order of the rows.
      num_held_out: M; fewer where fewer rows have two ones.
    """
    able = np.flatnonzero(counts >= 2)
    chosen = np.sort(generator.choice(able, min(num_held_out, able.size), replace=False))
    starts = np.cumsum(counts) - counts
    return starts[chosen] + generator.integers(0, counts[chosen])


def leave_out(layout: Layout, row: np.ndarray, column: np.ndarray) -> tuple[Layout, HeldOut]:
    """The layout with these ones at the ends of their pieces, and the counts without them."""
    by_row, row_counts = _last(layout.rows.ones, row, column)
    by_column, column_counts = _last(layout.columns.ones, column, row)
    layout = layout._replace(
        rows=layout.rows._replace(ones=by_row), columns=layout.columns._replace(ones=by_column)
    )
    return layout, HeldOut(
        row=jnp.asarray(row, jnp.int32),
        column=jnp.asarray(column, jnp.int32),
        row_counts=row_counts,
        column_counts=column_counts,
    )


def _last(pieces: Pieces, lines: np.ndarray, index: np.ndarray) -> tuple[Pieces, Array]:
    # JAX on a CPU takes an aligned array of its dtype over and does not copy it
    all_indices = aligned_copy(np.asarray(pieces.indices), np.dtype(np.int32))
    counts = np.array(pieces.counts)
    # of the few lines that lose a cell
    touched = np.isin(np.asarray(pieces.line), lines)
    indices, size = all_indices[touched], int(all_indices.max(initial=0)) + 1
    code = np.asarray(pieces.line, np.int64)[touched][:, None] * size + indices
    is_cell = np.arange(indices.shape[-1]) < counts[touched][:, None]
    is_out = is_cell & np.isin(code, lines.astype(np.int64) * size + index)
    # cells that stay, those left out, padding
    order = np.argsort(np.where(is_cell, is_out, 2), axis=-1, kind="stable")
    all_indices[touched] = np.take_along_axis(indices, order, axis=-1)
    counts[touched] -= is_out.sum(axis=-1)
    pieces = pieces._replace(indices=jnp.asarray(all_indices, jnp.int32))
    return pieces, jnp.asarray(counts, jnp.int32)


def as_known(layout: Layout, held_out: HeldOut | None, is_known: Array) -> Layout:
    """The layout with the ones that are left out, where they are known, or without them."""
    if held_out is None:
        return layout

    def counted(pieces: Pieces, without: Array) -> Pieces:
        return pieces._replace(counts=jnp.where(is_known, pieces.counts, without))

    missing = jnp.asarray(held_out.row.shape[0], layout.num_ones.dtype)
    return layout._replace(
        rows=layout.rows._replace(ones=counted(layout.rows.ones, held_out.row_counts)),
        columns=layout.columns._replace(ones=counted(layout.columns.ones, held_out.column_counts)),
        num_ones=layout.num_ones - jnp.where(is_known, 0, missing),
    )


def comparison(unknowing: Unknowing, data: SparseBinary) -> dict[str, np.ndarray]:
    """Scores of the ones held out by the fit and by popularity, on the host.

    Args:
      unknowing: parameters that do not know them.
      data: `SparseBinary`, all of it.
    Returns:
      ``held_out_score`` and ``held_out_popularity``: (M,) float, 1 / log2(1 + rank) of each one;
      ties take the middle of their ranks.
    """
    parameters: Parameters = jax.tree.map(np.asarray, unknowing.parameters)
    view = jax.tree.map(np.asarray, half(parameters, "rows"))
    row, column = np.asarray(unknowing.row), np.asarray(unknowing.column)
    counts = data.column_counts.astype(float)
    counts -= np.bincount(column, minlength=data.num_columns)
    block = max(1, _MOST_SCORES // data.num_columns)
    found: dict[str, list[np.ndarray]] = {"held_out_score": [], "held_out_popularity": []}
    for start in range(0, row.size, block):
        lines, columns = row[start : start + block], column[start : start + block]
        known = _known(data, lines)
        known[np.arange(lines.size), columns] = False
        scores = _scores(view, lines)
        for name, values in zip(
            found, (scores, np.broadcast_to(counts, scores.shape)), strict=True
        ):
            found[name].append(1 / np.log2(1 + _rank(values, columns, known)))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _scores(view: Half, rows: np.ndarray) -> np.ndarray:
    """Scores of all columns for some rows (M, D), in nearly the order of probabilities of a one."""
    a, a_variance = view.factors.mean[rows], view.factors.variance[rows]
    s, s_variance = view.others.mean, view.others.variance
    mean = a @ s.T + view.intercept.mean
    variance = (a**2 + a_variance) @ s_variance.T + a_variance @ (s**2).T + view.intercept.variance
    return np.asarray(mean / np.sqrt(1 + _MACKAY * variance))


def _known(data: SparseBinary, row: np.ndarray) -> np.ndarray:
    """(M, D) bool: the ones and the missing cells of some rows, no row twice."""
    known = np.zeros((row.size, data.num_columns), bool)
    position = np.full(data.num_rows, -1)
    position[row] = np.arange(row.size)
    for rows, columns in data.cells_of_rows(row):
        known[position[rows], columns] = True
    return known


def _rank(values: np.ndarray, columns: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The rank of one column of each line among those not known, ties by half: (M,) float."""
    target = values[np.arange(columns.size), columns][:, None]
    above = (values > target) + 0.5 * (values == target)
    return 0.5 + np.where(known, 0, above).sum(axis=1)
