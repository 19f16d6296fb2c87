"""The one sequential sweep over rows of binary features whose weights are summed out.

For each row: take it out; the features that it alone has leave with it, their number is remembered;
draw the bits of the features that other rows have, given that number; draw the number of new
features from its exact sum; draw the missing cells; put the row back. Missing cells are summed out
of the first two draws. What the weights are given the other rows is computed anew every 128 rows.

What a likelihood has to say of a row is a `CollapsedRows`: linear-Gaussian rows in
`collapsed_sweep.py`, rows of binary matrix factorisation in `bilinear/collapsed.py`, with diagonal
weights in `bilinear/plaid.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from jaxmf import slots
from jaxmf.devices import default_platform
from jaxmf.likelihoods import gaussian
from jaxmf.samplers.feature_layout import FeaturePrior, RowPrior, row_prior, write_rows
from jaxmf.types import Array, Key, PyTree

_ROWS_A_BLOCK = 128
_LESS_THAN_ONE = 0.5  # counts are whole, but floats of sums and differences


class DrawnRow(NamedTuple):
    """A row drawn anew."""

    z: Array  # (K,) bool, bits of existing features
    num_new: Array | None  # () int, new features; None where their number is fixed
    cut_off: Array | None  # () bool, whether the sum over their number was cut off
    cells: PyTree  # as the row brought them, the missing ones drawn; None where none is missing


class CollapsedRows(Protocol):
    """Rows of data as a sweep sees them, the weights of their features summed out.

    `cells` are the arrays of rows that drawing missing cells changes, `seen` those that nothing
    changes; `posterior` is that of the weights given the other rows.
    """

    def draws(self, key: Key, rows: Array) -> PyTree:
        """The random numbers of rows (R,) int, on a leading axis; a row's depend on its index."""

    def block(self, start: Array, size: int) -> tuple[PyTree, PyTree]:
        """Cells, and what is seen, of `size` rows from `start` on, on a leading axis."""

    def targets(self, cells: PyTree) -> Array:
        """(R, P) float: what the features are regressed on."""

    def values(self, cells: PyTree) -> Array | None:
        """(R, D) float: the cells themselves; asked for where some are missing."""

    def posterior(self, gram: Array, cross: Array) -> PyTree:
        """Posterior of the weights, from Z'Z (K, K) and Z' targets (K, P)."""

    def remove(
        self,
        posterior: PyTree,
        z: Array,
        empty: Array,
        cells: PyTree,
        others: Callable[[Array], tuple[Array, Array]],
    ) -> PyTree:
        """Without a row of features z (K,) float; slots `empty` (K,) bool back at the prior.

        `others` computes Z'Z and Z' targets of the other rows, for where an update loses digits; it
        is for `gaussian.anew_unless`.
        """

    def draw(
        self,
        draws: PyTree,
        posterior: PyTree,
        z: Array,
        cells: PyTree,
        seen: PyTree,
        conditional: RowPrior,
        num_singletons: Array,
    ) -> DrawnRow:
        """The row drawn anew from its features z (K,) bool that other rows have."""

    def add(self, posterior: PyTree, z: Array, empty: Array, cells: PyTree) -> PyTree:
        """With a row of features z (K,) float; slots `empty` (K,) bool were at the prior."""


class _RowBlock(NamedTuple):
    z: Array
    cells: PyTree
    posterior: PyTree
    counts: Array
    overflow: Array


class _RowInput(NamedTuple):
    draws: PyTree
    here: Array
    seen: PyTree


def sweep_collapsed_rows(
    key: Key,
    z: Array,
    cells: Array | None,
    statistics: tuple[Array, Array],
    likelihood: CollapsedRows,
    *,
    prior: FeaturePrior,
    num_fixed: int = 0,
    num_rows: Array | None = None,
) -> tuple[Array, Array | None, Array]:
    """One pass over the rows; leaves p(Z, missing cells | observed cells) invariant.

    Args: z (N, K) bool; cells (N, D) float, missing cells imputed, or None where none is missing;
    statistics: Z'Z (K, K) and Z' targets (K, P); num_fixed, num_rows: as in
    `feature_layout.sweep_rows`.
    Returns z, cells, and () bool: whether a row needed more slots than there are.
    """
    total_rows = z.shape[0]
    size = min(_ROWS_A_BLOCK, total_rows)
    present = jnp.asarray(total_rows if num_rows is None else num_rows, jnp.int32)
    dtype = statistics[1].dtype

    # rows are read from z and the data and written to others: see `write_rows`
    def sweep_block(block: Array, carry: PyTree) -> PyTree:
        z_out, cells_out, gram, cross, overflow = carry
        start, first = gaussian.piece_start(block, size, total_rows)
        rows = start + jnp.arange(size)
        here = (rows >= first) & (rows < present)
        z_before = jax.lax.dynamic_slice_in_dim(z, start, size)
        cells_before, seen = likelihood.block(start, size)
        drawn = _RowInput(likelihood.draws(key, rows), here, seen)
        inside = _products(z_before, likelihood.targets(cells_before))
        outside = gram - inside[0], cross - inside[1]

        def update(index: Array, block: _RowBlock) -> _RowBlock:
            row = jax.tree.map(lambda leaf: _at(leaf, index), drawn)
            return _update_row(
                row, index, block, outside, likelihood, prior=prior, num_fixed=num_fixed,
                num_rows=present.astype(dtype),
            )  # fmt: skip

        before = _RowBlock(
            z=z_before,
            cells=cells_before,
            posterior=likelihood.posterior(gram, cross),
            counts=jnp.diagonal(gram),
            overflow=overflow,
        )
        bounds: tuple[Array | int, Array | int] = (0, size)
        if default_platform() == "cpu":  # elsewhere the host is asked where a loop ends
            bounds = first - start, jnp.clip(present - start, 0, size)
        after = jax.lax.fori_loop(*bounds, update, before)
        inside = _products(after.z, likelihood.targets(after.cells))
        gram, cross = outside[0] + inside[0], outside[1] + inside[1]
        z_out = write_rows(z_out, after.z, start, here)
        values = likelihood.values(after.cells)
        if cells_out is not None and values is not None:
            cells_out = write_rows(cells_out, values, start, here)
        return z_out, cells_out, gram, cross, after.overflow

    carry = (z, cells, *statistics, jnp.zeros((), bool))
    z, cells, _, _, overflow = jax.lax.fori_loop(0, -(-present // size), sweep_block, carry)
    return z, cells, overflow


def _products(z: Array, targets: Array) -> tuple[Array, Array]:
    """Z'Z and Z' targets of the rows of a block."""
    bits = z.astype(targets.dtype)
    return bits.T @ bits, bits.T @ targets


def _update_row(
    row: _RowInput,
    index: Array,
    block: _RowBlock,
    outside: tuple[Array, Array],
    likelihood: CollapsedRows,
    *,
    prior: FeaturePrior,
    num_fixed: int,
    num_rows: Array,
) -> _RowBlock:
    """The block with row `index` drawn anew; unchanged where the row is not `here`.

    `outside` is Z'Z and Z' targets of the rows of other blocks.
    """
    dtype, here = block.counts.dtype, row.here
    z_old = _at(block.z, index)
    cells = jax.tree.map(lambda leaf: _at(leaf, index), block.cells)
    leaving = (z_old & here).astype(dtype)
    counts = block.counts - leaving
    conditional = row_prior(prior, counts, num_rows, num_fixed=num_fixed)
    conditional = conditional._replace(movable=conditional.movable & here)
    empty = counts < _LESS_THAN_ONE

    def others(no: Array) -> tuple[Array, Array]:
        is_other = no | (jnp.arange(block.z.shape[0]) != index)
        inside = _products(block.z & is_other[:, None], likelihood.targets(block.cells))
        return outside[0] + inside[0], outside[1] + inside[1]

    # slots without ones are put back to the prior exactly, so rounding cannot gather there
    posterior = likelihood.remove(block.posterior, leaving, empty, cells, others)
    singletons = z_old & conditional.free
    drawn = likelihood.draw(
        row.draws,
        posterior,
        z_old & ~singletons & here,
        cells,
        row.seen,
        conditional,
        jnp.sum(singletons & here, dtype=dtype),
    )
    z_new, overflow = drawn.z, block.overflow
    if drawn.num_new is not None and drawn.cut_off is not None:
        claim = slots.claim(~conditional.free, jnp.where(here, drawn.num_new, 0))
        z_new = z_new | claim.claimed
        overflow = overflow | (here & (claim.overflow | drawn.cut_off))
    z_new = jnp.where(here, z_new, z_old)
    cells_block = block.cells
    if drawn.cells is not None:
        cells = jax.tree.map(lambda new, old: jnp.where(here, new, old), drawn.cells, cells)
        cells_block = jax.tree.map(
            lambda leaf, new: jax.lax.dynamic_update_index_in_dim(leaf, new, index, 0),
            block.cells,
            cells,
        )
    arriving = (z_new & here).astype(dtype)
    return _RowBlock(
        z=jax.lax.dynamic_update_index_in_dim(block.z, z_new, index, 0),
        cells=cells_block,
        posterior=likelihood.add(posterior, arriving, empty, cells),
        counts=counts + arriving,
        overflow=overflow,
    )


def _at(array: Array, index: Array) -> Array:
    return jax.lax.dynamic_index_in_dim(array, index, keepdims=False)
