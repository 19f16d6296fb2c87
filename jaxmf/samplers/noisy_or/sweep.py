"""The Gibbs sweep of a noisy-OR feature model: Z row by row, then Y.

Source: Wood, Griffiths & Ghahramani (2006), A non-parametric Bayesian method for inferring hidden
causes; the order of the steps is what leaves the posterior invariant. For each row: take it out;
the causes that it alone has leave with their rows of Y, their number j0 is remembered; draw the
bits of the causes that other rows have, given j0 causes whose activity is summed out; draw the
number of new causes from its exact sum, activity summed out as well; draw the new rows of Y
jointly, one after another with those still to come summed out. When all rows are done, draw all of
Y, cause by cause. Every row, and the pass over Y, visits the slots in a fresh random order.

Missing cells have no factor in the likelihood, so they are never drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logit

from jaxmf import row_shards, slots
from jaxmf._kernels.fusion import fused_on_cpu
from jaxmf.likelihoods import noisy_or
from jaxmf.likelihoods.noisy_or import AnyParameters, NoisyOrCells, Tally
from jaxmf.samplers import feature_layout, feature_rows, particle_rows
from jaxmf.samplers.feature_layout import RowDraws, RowPrior, row_draws
from jaxmf.samplers.noisy_or.new_causes import count_table, draw_new_causes, new_cause_log_weights
from jaxmf.samplers.noisy_or.target import NoisyOrTarget
from jaxmf.types import Array, Key, PyTree

# Beyond this many columns XLA refuses to fuse the sums of a scan, and has little to gain by it.
_MOST_FUSED_COLUMNS = 2_048
# Streams of a row's key.
_ROW, _NEW_CAUSES, _SHARED_BITS = 0, 1, 2


def noisy_or_sweep(
    key: Key,
    z: Array,
    y: Array,
    target: NoisyOrTarget,
    *,
    num_rows: Array | None = None,
    bits_together: bool = False,
) -> tuple[Array, Array, Array]:
    """One pass over the rows of Z and one over Y; p(Z, Y | observed cells) stays invariant.

    Args: z (N, K) bool; y (K, D) bool, False in free slots; num_rows: as in
    `feature_layout.sweep_rows`; bits_together: whether the shared bits of a row are drawn together
    first.
    Returns z, y, and () bool: whether a row needed more slots than there are.
    """
    z, y, overflow = sweep_rows(
        jax.random.fold_in(key, 0), z, y, target, num_rows=num_rows, bits_together=bits_together
    )
    active = target.prior.exists(jnp.sum(z, axis=0, dtype=target.x.dtype))
    return z, draw_activity(jax.random.fold_in(key, 1), z, y, target, active=active), overflow


def sweep_rows(
    key: Key,
    z: Array,
    y: Array,
    target: NoisyOrTarget,
    *,
    num_rows: Array | None = None,
    bits_together: bool = False,
) -> tuple[Array, Array, Array]:
    """The pass over the rows alone; arguments and results as `noisy_or_sweep`."""
    x, observed, prior, parameters = target
    table = count_table(z.shape[1], parameters)

    def update_row(
        row_key: Key, row: Array, z_row: Array, y: Array, conditional: RowPrior, /
    ) -> tuple[Array, Array, Array]:
        at = jax.lax.dynamic_index_in_dim
        cells = noisy_or.cells_of(
            at(x, row, keepdims=False),
            None if observed is None else at(observed, row, keepdims=False),
        )
        return draw_row(
            row_key,
            z_row,
            y,
            cells,
            conditional,
            parameters=parameters,
            table=table,
            bits_together=bits_together,
        )

    z, y, overflow = feature_layout.sweep_rows(
        key, z, y.astype(x.dtype), update_row=update_row, prior=prior, num_rows=num_rows
    )
    return z, y > 0.5, overflow


def draw_row(
    key: Key,
    z_row: Array,
    y: Array,
    cells: NoisyOrCells,
    conditional: RowPrior,
    *,
    parameters: AnyParameters,
    table: Tally,
    bits_together: bool = False,
) -> tuple[Array, Array, Array]:
    """One row of Z and the rows of Y of the causes that it alone has.

    Args: z_row (K,) bool; y (K, D) float; cells (D,) bool, of the row; table: of `count_table`;
    bits_together: as in `noisy_or_sweep`.
    Returns the row (K,) bool, Y (K, D) float, and whether more slots were needed.
    """
    num_slots = z_row.shape[0]
    draws = row_draws(jax.random.fold_in(key, _ROW), num_slots, None, y.dtype)
    singletons = z_row & conditional.free
    y = jnp.where(conditional.free[:, None], 0, y)
    shared, num_singletons = z_row & ~singletons, jnp.sum(singletons, dtype=y.dtype)
    if bits_together:
        shared = draw_shared_bits(
            jax.random.fold_in(key, _SHARED_BITS),
            shared,
            y,
            cells,
            num_singletons=num_singletons,
            table=table,
            conditional=conditional,
        )
    bits, eta = scan_bits(
        draws,
        shared,
        y,
        cells,
        conditional,
        num_singletons=num_singletons,
        parameters=parameters,
        table=table,
    )
    log_weights, cut_off = new_cause_log_weights(
        noisy_or.tally_of(eta, cells, num_slots + 1), conditional.rate, table
    )
    num_new = feature_rows.draw_index(draws.num_new, log_weights)
    claim = slots.claim(~conditional.free, num_new)
    y = draw_new_causes(
        jax.random.fold_in(key, _NEW_CAUSES),
        y,
        claim.claimed,
        num_new,
        eta.astype(y.dtype),
        cells,
        parameters,
    )
    return bits | claim.claimed, y, claim.overflow | cut_off


class _Slots(NamedTuple):
    """Values of the slots (K,) that a scan needs before it visits them."""

    order: Array  # float uniforms; slots are visited from the smallest up
    threshold: Array  # float, a bit flips where it is below the log odds of that
    gain_of_zeros: Array  # float, what the bit being on adds to the log likelihood of the zeros
    prior_log_odds: Array  # float
    movable: Array  # bool


def _scan_bits(
    slots_of_row: _Slots, z: Array, y: Array, ones: Array, eta: Array, table: Array
) -> tuple[Array, Array]:
    order, threshold, gain_of_zeros, prior_log_odds, movable = slots_of_row
    at = jax.lax.dynamic_index_in_dim

    def update(k: Array, here: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        z, eta = state
        on = at(z, k, keepdims=False)
        active = at(y, k, keepdims=False) > 0.5
        without = jnp.maximum(eta - on, 0)  # right where the cause is active, and in the table
        gain = jnp.sum(jnp.where(active & ones, noisy_or.look_up(table, without), 0))
        log_odds = flip_log_odds(
            on, at(prior_log_odds, k, keepdims=False), gain + at(gain_of_zeros, k, keepdims=False)
        )
        flip = at(threshold, k, keepdims=False) < log_odds
        return z ^ (here & flip), eta + jnp.where(active & flip, jnp.where(on, -1, 1), 0)

    return slots.visit(update, (z, eta), order=order, allowed=movable)


_scan_bits_fused = fused_on_cpu(_scan_bits)


def flip_log_odds(on: Array, prior_log_odds: Array, gain: Array) -> Array:
    """Log odds of flipping one bit, or many, against leaving it.

    Args: on: bool, whether the bit is on now; gain: what the bit being on adds to the log
    likelihood.
    """
    return jnp.where(on, -1, 1) * (prior_log_odds + gain)


def scan_bits(
    draws: RowDraws,
    z: Array,
    y: Array,
    cells: NoisyOrCells,
    conditional: RowPrior,
    *,
    num_singletons: Array,
    parameters: AnyParameters,
    table: Tally,
) -> tuple[Array, Array]:
    """Gibbs-samples the bits of a row given Y, one after another.

    Args: z (K,) bool; y (K, D) float; cells (D,) bool, of the row; num_singletons () float, causes
    of the row alone, their activity summed out; table: of `count_table`.
    Returns the bits (K,) bool, and the active causes of the row in each column, (D,) int32.
    """
    scan = _scan_bits_fused if y.shape[1] <= _MOST_FUSED_COLUMNS else _scan_bits
    slots_of_row = _Slots(
        order=draws.order,
        threshold=logit(draws.bits),  # logit(0) = -inf is as it should be
        gain_of_zeros=parameters.log_fail * (y @ cells.zeros.astype(y.dtype)),
        prior_log_odds=conditional.log_odds,
        movable=conditional.movable,
    )
    eta = noisy_or.num_active(z, y, y.dtype).astype(jnp.int32)
    log_one = table.ones[num_singletons.astype(jnp.int32)]
    return scan(slots_of_row, z, y, cells.ones, eta, jnp.diff(log_one))


def draw_activity(key: Key, z: Array, y: Array, target: NoisyOrTarget, *, active: Array) -> Array:
    """Gibbs-samples Y given Z, cause by cause in a fresh random order, all columns at once.

    Args: active (K,) bool, slots that are causes.
    Returns (K, D) bool, False in the other slots.
    """
    x, observed, _, parameters = target
    num_columns = x.shape[1]
    order_key, bits_key = jax.random.fold_in(key, 0), jax.random.fold_in(key, 1)
    order = slots.random_order(order_key, active)
    # one vector over columns for each slot: a larger capacity leaves them as they are
    uniforms = jax.vmap(
        lambda slot: jax.random.uniform(jax.random.fold_in(bits_key, slot), (num_columns,), x.dtype)
    )(jnp.arange(z.shape[1]))
    threshold = logit(uniforms)
    num_active = jnp.sum(active, dtype=jnp.int32)
    rows = (z, x) if observed is None else (z, x, observed)
    drawn = row_shards.with_rows(
        _draw_all_columns, rows, y, order, num_active, threshold, parameters
    )
    return drawn & active[:, None]


def _draw_all_columns(z: Array, x: Array, *others: PyTree) -> Array:
    """Y (K, D) bool, a block of columns at a time."""
    observed, y, order, num_active, threshold, parameters = (None, *others)[-6:]
    z_float = z.astype(x.dtype)

    def draw_columns(at: Callable[[Array], Array]) -> Array:
        cells = noisy_or.cells_of(at(x), None if observed is None else at(observed))
        return _scan_causes(
            order, num_active, at(threshold), z_float, at(y).astype(x.dtype), cells, parameters
        )

    start = jnp.zeros(y.shape, bool)
    return noisy_or.map_columns(draw_columns, *x.shape, start_value=start)


def _scan_causes(
    order: Array,
    num_active: Array,
    threshold: Array,
    z: Array,
    y: Array,
    cells: NoisyOrCells,
    parameters: AnyParameters,
) -> Array:
    """Y of a block of columns (K, B) bool, cause by cause; z (N, K) and y (K, B) float."""
    table = noisy_or.gain_table(z.shape[1] + 1, parameters)
    num_zeros = row_shards.add_over_devices(z.T @ cells.zeros.astype(z.dtype))
    gain_of_zeros = parameters.log_fail * num_zeros

    def visit(position: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        y, eta = carry
        k = order[position]
        has, active = z[:, k][:, None] > 0.5, y[k]
        without = jnp.maximum(eta - active, 0)  # right where the row has the cause
        gain = jnp.sum(jnp.where(has & cells.ones, noisy_or.look_up(table, without), 0), axis=0)
        gain = row_shards.add_over_devices(gain) + gain_of_zeros[k]
        log_odds = flip_log_odds(active, parameters.log_odds, gain)
        flip = threshold[k] < log_odds
        eta = eta + jnp.where(has & flip, jnp.where(active, -1, 1), 0)
        return y.at[k].set(active ^ flip), eta

    start = (y > 0.5, noisy_or.num_active(z, y, z.dtype).astype(jnp.int32))
    return jax.lax.fori_loop(0, num_active, visit, start)[0]


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
    """The bits of a row given Y, (K,) bool; see `particle_rows`.

    Args: as of `scan_bits`, z without the causes that the row alone has; table: of
    `new_causes.count_table`.
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
