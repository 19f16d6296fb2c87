"""A sweep of a noisy-OR feature model that samples all rows at once, for accelerators.

As in `parallel_sweep`: rows are independent given Y and the probabilities of the causes, so these
are drawn; the bits of all rows are drawn together, refusing for each column a change that would
empty it; then the singletons of every row are drawn anew. Given the shared causes, the numbers of
causes that only one row has are independent Poisson variables, each times the likelihood of its row
with their rows of Y summed out; these are then drawn jointly within each row. Last, all of Y.

Rows may be spread over the axis "data" of a mesh: devices exchange counts of columns for each slot
that is visited, rows of Y for new causes, and for each cause the gain of each column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf import devices, row_shards, slots
from jaxmf.likelihoods import noisy_or
from jaxmf.likelihoods.noisy_or import AnyParameters, NoisyOrCells, Tally
from jaxmf.samplers import feature_rows
from jaxmf.samplers.feature_layout import FeaturePrior, RowDraws
from jaxmf.samplers.noisy_or.new_causes import count_table, new_cause_log_weights
from jaxmf.samplers.noisy_or.sweep import draw_activity, flip_log_odds
from jaxmf.samplers.noisy_or.target import NoisyOrTarget
from jaxmf.samplers.parallel_bits import (
    at_slots,
    flip_bits_of_all_rows,
    prior_of_rows,
    spread_draws,
)
from jaxmf.samplers.parallel_sweep import draw_log_odds
from jaxmf.types import Array, Key


def noisy_or_parallel_sweep(
    key: Key, z: Array, y: Array, target: NoisyOrTarget, *, starts: Array | None = None
) -> tuple[Array, Array, Array]:
    """One pass over all rows at once and one over Y; p(Z, Y | observed cells) stays invariant.

    Args, Returns: as `sweep.noisy_or_sweep`, but how many more slots were needed at least.
      starts: () bool, whether the chain still begins. Rows then have new causes only as far as
        there are slots, see `draw_singleton_causes`, and nothing stays invariant.
    """
    x, observed, prior, parameters = target
    cells = noisy_or.cells_of(x, observed)
    draws = spread_draws(jax.random.fold_in(key, 1), z, None, x.dtype)
    z = draw_all_bits(
        jax.random.fold_in(key, 2), draws, z, y, cells, prior=prior, parameters=parameters
    )
    z, y, overflow = draw_singleton_causes(
        jax.random.fold_in(key, 3),
        draws,
        z,
        y,
        cells,
        prior=prior,
        parameters=parameters,
        starts=starts,
    )
    active = prior.exists(row_shards.column_counts(z, x.dtype))
    return z, draw_activity(jax.random.fold_in(key, 4), z, y, target, active=active), overflow


def draw_all_bits(
    key: Key,
    draws: RowDraws,
    z: Array,
    y: Array,
    cells: NoisyOrCells,
    *,
    prior: FeaturePrior,
    parameters: AnyParameters,
) -> Array:
    """The bits of all rows given Y, each row in its own order, no column left empty.

    Args: z (N, K) bool; y (K, D) bool; cells (N, D) bool.
    """
    dtype = draws.bits.dtype
    counts = row_shards.column_counts(z, dtype)
    log_odds = draw_log_odds(key, prior, counts, jnp.asarray(z.shape[0], dtype))
    gain_of_zeros = parameters.log_fail * (cells.zeros.astype(dtype) @ y.T.astype(dtype))
    table = noisy_or.gain_table(z.shape[1] + 1, parameters)

    def propose(
        k: Array, on: Array, sign: Array, eta: Array
    ) -> tuple[Array, Callable[[Array], Array]]:
        active = y[k]
        without = jnp.maximum(eta - on[:, None], 0)  # right where the cause is active
        gain = jnp.sum(jnp.where(active & cells.ones, noisy_or.look_up(table, without), 0), axis=1)
        odds = flip_log_odds(on, log_odds[k], gain + at_slots(gain_of_zeros, k))
        change = jnp.where(active, sign[:, None], 0).astype(eta.dtype)
        return odds, lambda flip: eta + jnp.where(flip[:, None], change, 0)

    eta = noisy_or.num_active(z, y, dtype).astype(jnp.int32)
    return flip_bits_of_all_rows(draws, z, eta, propose=propose, prior=prior)


def draw_singleton_causes(
    key: Key,
    draws: RowDraws,
    z: Array,
    y: Array,
    cells: NoisyOrCells,
    *,
    prior: FeaturePrior,
    parameters: AnyParameters,
    starts: Array | None = None,
) -> tuple[Array, Array, Array]:
    """The singletons of every row and their rows of Y, given the causes that rows share.

    From a state without causes, rows that know nothing of each other would each begin some of their
    own: thousands for a few that they then come to share. While the chain `starts`, rows drawn at
    random have theirs, as far as there are slots.

    Args: draws, z, y, cells, prior, parameters, starts: as above.
    Returns z (N, K) bool, y (K, D) bool, and () int32: how many more slots were needed at least.
    """
    num_rows, num_slots = z.shape
    dtype = draws.bits.dtype
    counts = row_shards.column_counts(z, dtype)
    conditional = prior_of_rows(prior, counts, num_rows, num_fixed=0)
    shared = z & ~conditional.free
    eta = noisy_or.num_active(shared, y, dtype)
    table = count_table(num_slots, parameters)
    num_new, cut_off = row_shards.by_row(
        _draw_counts, (draws.num_new, eta, *cells), conditional.rate, table
    )
    shortage = jnp.any(cut_off).astype(jnp.int32)
    if starts is not None:
        fitting = _as_many_as_fit(jax.random.fold_in(key, num_rows), num_new, conditional.free)
        num_new = jnp.where(starts, fitting, num_new)
        shortage = jnp.where(starts, 0, shortage)
    last = row_shards.running_total(num_new)
    claim = slots.claim(~conditional.free, jnp.sum(num_new))
    position = jnp.cumsum(claim.claimed, dtype=jnp.int32) - 1
    owner = row_shards.sum_over_rows(_num_rows_before, (last,), position)
    before = row_shards.rows_at(last - num_new, jnp.minimum(owner, num_rows - 1))
    new = _NewCauses(claim.claimed, owner, position - before)
    y = jnp.where(conditional.free[:, None], False, y)
    y = _draw_their_activity(key, y, new, num_new, eta, cells, parameters)
    z = shared | (claim.claimed & (jnp.arange(num_rows)[:, None] == owner))
    return z, y, jnp.maximum(claim.shortage, shortage)


def _as_many_as_fit(key: Key, num_new: Array, free: Array) -> Array:
    """How many new causes each row has, (N,) int, if only some rows may have theirs.

    Args: num_new (N,) int, how many each would have; free (K,) bool, the slots for them.
    """
    room = jnp.sum(free, dtype=num_new.dtype)
    total = jnp.maximum(jnp.sum(num_new), 1)
    may = jax.random.uniform(key, num_new.shape) * total < room
    num_new = jnp.where(may, num_new, 0)
    return jnp.where(row_shards.running_total(num_new) <= room, num_new, 0)


def _draw_counts(
    uniforms: Array, eta: Array, ones: Array, zeros: Array, rate: Array, table: Tally
) -> tuple[Array, Array]:
    """How many new causes each row has, (N,) int, and (N,) bool: whether there may be more."""

    def draw_count(row: tuple[Array, Array, NoisyOrCells]) -> tuple[Array, Array]:
        uniform, eta, cells = row
        tally = noisy_or.tally_of(eta, cells, table.ones.shape[1])
        log_weights, cut_off = new_cause_log_weights(tally, rate, table)
        return feature_rows.draw_index(uniform, log_weights), cut_off

    rows = (uniforms, eta, NoisyOrCells(ones, zeros))
    drawn: tuple[Array, Array] = jax.lax.map(
        draw_count, rows, batch_size=devices.block_size("noisy-or rows")
    )
    return drawn


def _num_rows_before(last: Array, position: Array) -> Array:
    """How many rows end their new causes, `last` (N,), at or before each position (K,)."""
    return jnp.sum(last[:, None] <= position, axis=0, dtype=jnp.int32)


class _NewCauses(NamedTuple):
    """Which slots (K,) have new causes: the one number `rank` of row `owner`."""

    claimed: Array  # bool
    owner: Array  # int
    rank: Array  # int


def _draw_their_activity(
    key: Key,
    y: Array,
    causes: _NewCauses,
    num_new: Array,
    eta: Array,
    cells: NoisyOrCells,
    parameters: AnyParameters,
) -> Array:
    """Y with the rows of all new causes.

    In iteration `new` every row that has this many draws one, those still to come summed out.
    """
    dtype = eta.dtype
    claimed, owner, rank = causes
    num_rows = eta.shape[0]
    rows = row_shards.spread(jnp.arange(num_rows))
    keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(rows)

    def draw(new: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        y, eta = carry

        def draw_row(key: Key, eta: Array, cells: NoisyOrCells, num_new: Array) -> Array:
            to_come = jnp.maximum(num_new - new - 1, 0).astype(dtype)
            log_odds = noisy_or.unseen_log_odds(eta, cells, parameters, to_come)
            uniforms = jax.random.uniform(jax.random.fold_in(key, new), eta.shape, dtype)
            return (uniforms < jax.nn.sigmoid(log_odds)) & (new < num_new)

        active = jax.vmap(draw_row)(keys, eta, cells, num_new)
        here = claimed & (rank == new)
        drawn = row_shards.rows_at(active, jnp.minimum(owner, num_rows - 1))
        return jnp.where(here[:, None], drawn, y), eta + active

    return jax.lax.fori_loop(0, jnp.max(num_new), draw, (y, eta))[0]
