"""The one loop over rows of binary features whose rows of Y are part of the state."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from jaxmf.priors.features import RowByRowPrior
from jaxmf.samplers.feature_layout import RowPrior, row_prior
from jaxmf.types import Array, Key


class UpdateRow(Protocol):
    """Kernel of one row: it leaves p(z_row, y | other rows, data) invariant."""

    def __call__(
        self, row_key: Key, row: Array, z_row: Array, y: Array, conditional: RowPrior, /
    ) -> tuple[Array, Array, Array]:
        """The row drawn anew.

        Args:
          row_key: of this row alone.
          row: () int, its index: for its cells.
          z_row: (K,) bool.
          y: (K, ...), rows of Y, which a row may change.
          conditional: prior of the row given the others.
        Returns:
          z_row, y, and () bool: whether more slots were needed.
        """


class _Carry(NamedTuple):
    z: Array
    y: Array
    counts: Array
    overflow: Array


def sweep_rows(
    key: Key,
    z: Array,
    y: Array,
    *,
    update_row: UpdateRow,
    prior: RowByRowPrior,
    num_rows: Array | int | None = None,
) -> tuple[Array, Array, Array]:
    """One pass over rows: each is taken out of the counts, updated and added again.

    Args:
      key: row n has fold_in(key, n).
      z: (N, K) bool.
      y: (K, ...), rows of Y, passed from row to row.
      num_rows: () int; only the first `num_rows` rows are there, as in a filter that goes over
        earlier rows once more. The others must have no features. None for all.
    Returns:
      z, y, and () bool: whether a row needed more slots than there are.
    """
    dtype = jnp.result_type(float)
    present = jnp.asarray(z.shape[0] if num_rows is None else num_rows, jnp.int32)

    def visit(row: Array, carry: _Carry) -> _Carry:
        # read from z as it came, written to another: one array for both would be copied every row
        z_row = jax.lax.dynamic_index_in_dim(z, row, keepdims=False)
        others = carry.counts - z_row
        conditional = row_prior(prior, others, present.astype(dtype), num_fixed=0)
        row_key = jax.random.fold_in(key, row)
        z_new, y, overflow = update_row(row_key, row, z_row, carry.y, conditional)
        return _Carry(
            z=jax.lax.dynamic_update_index_in_dim(carry.z, z_new, row, 0),
            y=y,
            counts=others + z_new,
            overflow=carry.overflow | overflow,
        )

    start = _Carry(z, y, jnp.sum(z, axis=0, dtype=dtype), jnp.zeros((), bool))
    end = jax.lax.fori_loop(0, present, visit, start)
    return end.z, end.y, end.overflow
