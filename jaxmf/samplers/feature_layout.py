"""What sweeps over binary features share: scales, priors of the bits of a row, random numbers.

`sweep_rows` is the one loop over rows whose rows of Y are part of the state.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from jaxmf._kernels.special import as_normals
from jaxmf.priors.features import RowByRowPrior
from jaxmf.types import Array, Key, PyTree


class FeaturePrior(RowByRowPrior, Protocol):
    """Methods of a prior of Z that sweeps call; `IndianBuffet` and `BetaBernoulli` have them."""

    def probability_parameters(self, counts: Array, num_rows: Array | int) -> tuple[Array, Array]:
        """(K,) floats a, b: the probability of a feature given its column is Beta(a, b)."""


class Scales(NamedTuple):
    """Standard deviations of the noise and of the entries of Y, () float."""

    noise: Array
    feature: Array

    @property
    def ratio(self) -> Array:
        """r, noise variance over feature variance."""
        return (self.noise / self.feature) ** 2

    @property
    def noise_variance(self) -> Array:
        return self.noise**2


class RowPrior(NamedTuple):
    """The prior of one row of Z given the others."""

    log_odds: Array  # (K,) float, of each bit
    rate: Array  # () float, Poisson rate of the row's new features
    movable: Array  # (K,) bool, slots whose bits may change
    free: Array  # (K,) bool, slots for new features


def row_prior(
    prior: RowByRowPrior, counts: Array, num_rows: Array | int, *, num_fixed: int
) -> RowPrior:
    """The prior of a row, given the counts (K,) float of the other rows.

    The first `num_fixed` slots hold fixed features: neither movable nor free.
    """
    exists = prior.exists(counts[num_fixed:])
    log_odds = prior.log_odds(counts[num_fixed:], num_rows).astype(counts.dtype)
    fixed = jnp.zeros((num_fixed,), bool)
    return RowPrior(
        log_odds=jnp.concatenate([jnp.zeros((num_fixed,), counts.dtype), log_odds]),
        rate=jnp.asarray(prior.new_rate(num_rows), counts.dtype),
        movable=jnp.concatenate([fixed, exists]),
        free=jnp.concatenate([fixed, ~exists]),
    )


def capacity(state: PyTree) -> dict[str, int]:
    """Slots for features of a state with z (N, K), fixed features among them."""
    return {"features": state.z.shape[-1]}


def num_features(z: Array) -> Array:
    """() int32: the columns of z (N, K) bool that some row has."""
    return jnp.sum(jnp.any(z, axis=0), dtype=jnp.int32)


class RowDraws(NamedTuple):
    """The random numbers of a row, over slots (K,), over columns (D,) or alone ().

    The uniforms `order`, `bits` and `num_new` and the normals `cells` stay as they are when there
    are more slots.
    """

    order: Array
    bits: Array
    num_new: Array
    cells: Array | None


def row_draws(key: Key, num_slots: int, num_columns: int | None, dtype: DTypeLike) -> RowDraws:
    """The random numbers of one row; `num_columns` only where cells are missing.

    Args: num_columns: D, or None.
    """
    cells, (order, bits, num_new) = row_uniforms(key, num_columns or 0, num_slots, 3, dtype)
    return RowDraws(
        order=order,
        bits=bits,
        num_new=num_new[0],
        cells=None if num_columns is None else as_normals(cells),
    )


def draws_of_rows(
    key: Key, rows: Array, num_slots: int, num_columns: int | None, dtype: DTypeLike
) -> RowDraws:
    """`row_draws` of several rows (R,) int on a leading axis; a row's depend on its index."""
    return jax.vmap(
        lambda row: row_draws(jax.random.fold_in(key, row), num_slots, num_columns, dtype)
    )(rows)


def row_uniforms(
    key: Key, num_columns: int, num_slots: int, num_streams: int, dtype: DTypeLike
) -> tuple[Array, Array]:
    """Uniforms over columns (D,) and over slots, (S, K), by one call of the generator.

    More slots leave those of the first ones as they are, since the generator counts through the
    numbers of a slot before it starts the next (with JAX's `jax_threefry_partitionable`, its
    default; without it a number depends on how many are drawn). One call, because each takes a
    quarter of a second to compile.
    """
    drawn = jax.random.uniform(key, (num_columns + num_slots * num_streams,), dtype)
    return drawn[:num_columns], drawn[num_columns:].reshape(num_slots, num_streams).T


def write_rows(array: Array, rows: Array, start: Array, here: Array) -> Array:
    """The array with those of `rows` (M, ...) that are `here` (M,) written from row `start` on.

    For a loop over blocks of rows: it reads them from the array as it came and writes them to
    another; one that did both on one array would copy all of it for every block.
    """
    present = jax.lax.dynamic_slice_in_dim(array, start, rows.shape[0])
    rows = jnp.where(here[:, None], rows, present)
    return jax.lax.dynamic_update_slice_in_dim(array, rows, start, 0)


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
    num_fixed: int = 0,
) -> tuple[Array, Array, Array]:
    """One pass over rows: each is taken out of the counts, updated and added again.

    Args:
      key: row n has fold_in(key, n).
      z: (N, K) bool.
      y: (K, ...), rows of Y, passed from row to row.
      num_rows: () int; only the first `num_rows` rows are there, as in a filter that goes over
        earlier rows once more. The others must have no features. None for all.
      num_fixed: the first `num_fixed` slots hold fixed features, which never change.
    Returns:
      z, y, and () bool: whether a row needed more slots than there are.
    """
    dtype = jnp.result_type(float)
    present = jnp.asarray(z.shape[0] if num_rows is None else num_rows, jnp.int32)

    def visit(row: Array, carry: _Carry) -> _Carry:
        # read from z as it came, written to another: one array for both would be copied every row
        z_row = jax.lax.dynamic_index_in_dim(z, row, keepdims=False)
        others = carry.counts - z_row
        conditional = row_prior(prior, others, present.astype(dtype), num_fixed=num_fixed)
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
