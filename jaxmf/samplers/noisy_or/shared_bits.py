"""All bits that a row of a noisy-OR model shares with others, drawn together by particle Gibbs."""

from typing import NamedTuple

import jax.numpy as jnp

from jaxmf.likelihoods import noisy_or
from jaxmf.likelihoods.noisy_or import NoisyOrCells, Tally
from jaxmf.samplers import particle_rows
from jaxmf.samplers.feature_layout import RowPrior
from jaxmf.types import Array, Key


class _CauseRow(NamedTuple):
    """Bits (K,) bool, and how many active causes each column has, (D,) int32."""

    z: Array
    eta: Array


def draw_shared_bits(
    key: Key,
    z: Array,
    y: Array,
    cells: NoisyOrCells,
    *,
    num_singletons: Array,
    table: Tally,
    conditional: RowPrior,
) -> Array:
    """The bits of a row given Y; see `particle_rows`.

    Args:
      z: (K,) bool, without the causes that the row alone has.
      y: (K, D) float.
      cells: (D,) bool, of the row.
      num_singletons: () float, causes of the row alone, their activity summed out.
      table: of `new_causes.count_table`.
    Returns:
      (K,) bool.
    """
    log_one, log_zero = (each[num_singletons.astype(jnp.int32)] for each in table)
    activity = y.astype(jnp.int32)

    def at(bits: Array) -> _CauseRow:
        return _CauseRow(bits, noisy_or.num_active(bits, y, y.dtype).astype(jnp.int32))

    def flip(row: _CauseRow, k: Array) -> _CauseRow:
        change = jnp.where(row.z[k], -activity[k], activity[k])
        return _CauseRow(row.z ^ (jnp.arange(z.shape[0]) == k), row.eta + change)

    def log_likelihood(row: _CauseRow) -> Array:
        ones = jnp.where(cells.ones, noisy_or.look_up(log_one, row.eta), 0)
        zeros = jnp.where(cells.zeros, noisy_or.look_up(log_zero, row.eta), 0)
        return jnp.sum(ones + zeros)

    row: _CauseRow = particle_rows.draw_row(
        particle_rows.draw_uniforms(key, z.shape[0]),
        z,
        particle_rows.RowTarget(at, flip, log_likelihood),
        prior_log_odds=conditional.log_odds,
        movable=conditional.movable,
    )
    return row.z
