"""A sweep of a noisy-OR feature model that samples all rows at once, for accelerators.

As in `parallel_sweep`: rows are independent given Y and the probabilities of the causes, so these
are drawn; the bits of all rows are drawn together, refusing for each column a change that would
empty it; then the singletons of every row are drawn anew. Given the shared causes, the numbers of
causes that only one row has are independent Poisson variables, each times the likelihood of its row
with their rows of Y summed out; these are then drawn jointly within each row. Last, all of Y.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import logit

from jaxmf import devices, slots
from jaxmf.likelihoods import noisy_or
from jaxmf.likelihoods.noisy_or import AnyParameters, NoisyOrCells
from jaxmf.samplers import feature_rows
from jaxmf.samplers.feature_layout import FeaturePrior, RowDraws, draws_of_rows, row_prior
from jaxmf.samplers.noisy_or.new_causes import count_table, new_cause_log_weights
from jaxmf.samplers.noisy_or.sweep import draw_activity, flip_log_odds
from jaxmf.samplers.parallel_sweep import draw_log_odds
from jaxmf.types import Array, Key


def noisy_or_parallel_sweep(
    key: Key,
    z: Array,
    y: Array,
    x: Array,
    observed: Array | None,
    *,
    prior: FeaturePrior,
    parameters: AnyParameters,
) -> tuple[Array, Array, Array]:
    """One pass over all rows at once and one over Y; p(Z, Y | observed cells) stays invariant.

    Args, Returns: as `sweep.noisy_or_sweep`.
    """
    num_rows, num_slots = z.shape
    cells = noisy_or.cells_of(x, observed)
    row_key = jax.random.fold_in(key, 1)
    draws = draws_of_rows(row_key, jnp.arange(num_rows), num_slots, None, x.dtype)
    z = draw_all_bits(
        jax.random.fold_in(key, 2), draws, z, y, cells, prior=prior, parameters=parameters
    )
    z, y, overflow = draw_singleton_causes(
        jax.random.fold_in(key, 3), draws, z, y, cells, prior=prior, parameters=parameters
    )
    active = prior.exists(jnp.sum(z, axis=0, dtype=x.dtype))
    y = draw_activity(
        jax.random.fold_in(key, 4), z, y, x, observed, active=active, parameters=parameters
    )
    return z, y, overflow


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
    num_rows = jnp.asarray(z.shape[0], dtype)
    counts = jnp.sum(z, axis=0, dtype=dtype)
    movable = row_prior(prior, counts, num_rows, num_fixed=0).movable
    log_odds = draw_log_odds(key, prior, counts, num_rows)
    gain_of_zeros = parameters.log_fail * (cells.zeros.astype(dtype) @ y.T.astype(dtype))
    threshold = logit(draws.bits)
    order = jnp.argsort(jnp.where(movable, draws.order, jnp.inf), axis=1)
    rows = jnp.arange(z.shape[0])
    table = noisy_or.gain_table(z.shape[1] + 1, parameters)

    def visit(step: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        z, eta, counts = carry
        k = order[:, step]
        on, active = z[rows, k], y[k]
        without = jnp.maximum(eta - on[:, None], 0)  # right where the cause is active
        gain = jnp.sum(jnp.where(active & cells.ones, noisy_or.look_up(table, without), 0), axis=1)
        odds = flip_log_odds(on, log_odds[k], gain + gain_of_zeros[rows, k])
        flip = threshold[rows, k] < odds
        sign = jnp.where(on, -1, 1)
        here = jnp.arange(z.shape[1]) == k[:, None]
        changes = jnp.sum(jnp.where(here & flip[:, None], sign[:, None], 0), axis=0)
        after = row_prior(prior, counts + changes, num_rows, num_fixed=0).movable
        refused = movable & ~after
        flip = (flip & ~refused[k])[:, None]
        return (
            z ^ (here & flip),
            eta + jnp.where(active & flip, sign[:, None], 0),
            counts + jnp.where(refused, 0, changes),
        )

    eta = noisy_or.num_active(z, y, dtype).astype(jnp.int32)
    start = (z, eta, counts)
    return jax.lax.fori_loop(0, jnp.sum(movable, dtype=jnp.int32), visit, start)[0]


def draw_singleton_causes(
    key: Key,
    draws: RowDraws,
    z: Array,
    y: Array,
    cells: NoisyOrCells,
    *,
    prior: FeaturePrior,
    parameters: AnyParameters,
) -> tuple[Array, Array, Array]:
    """The singletons of every row and their rows of Y, given the causes that rows share.

    Args: draws, z, y, cells, prior, parameters: as `draw_all_bits`.
    Returns z (N, K) bool, y (K, D) bool, and () bool: whether more slots were needed.
    """
    num_rows, num_slots = z.shape
    dtype = draws.bits.dtype
    # `exists` without any one row: a column with a single one is free without it
    counts = jnp.sum(z, axis=0, dtype=dtype)
    conditional = row_prior(prior, jnp.maximum(counts - 1, 0), num_rows, num_fixed=0)
    shared = z & ~conditional.free
    eta = noisy_or.num_active(shared, y, dtype)
    table = count_table(num_slots, parameters)

    def draw_count(uniform: Array, eta: Array, cells: NoisyOrCells) -> tuple[Array, Array]:
        log_weights, cut_off = new_cause_log_weights(
            noisy_or.tally_of(eta, cells, num_slots + 1), conditional.rate, table
        )
        return feature_rows.draw_index(uniform, log_weights), cut_off

    num_new, cut_off = jax.lax.map(
        lambda row: draw_count(*row),
        (draws.num_new, eta, cells),
        batch_size=devices.block_size("noisy-or rows"),
    )
    last = jnp.cumsum(num_new)
    claim = slots.claim(~conditional.free, last[-1])
    position = jnp.cumsum(claim.claimed, dtype=jnp.int32) - 1
    owner = jnp.searchsorted(last, position, side="right")
    rank = position - (last - num_new)[jnp.minimum(owner, num_rows - 1)]
    y = _draw_their_activity(
        key, jnp.where(conditional.free[:, None], False, y), claim.claimed, owner, rank,
        num_new, eta, cells, parameters,
    )  # fmt: skip
    z = shared | (claim.claimed & (jnp.arange(num_rows)[:, None] == owner))
    return z, y, claim.overflow | jnp.any(cut_off)


def _draw_their_activity(
    key: Key,
    y: Array,
    claimed: Array,
    owner: Array,
    rank: Array,
    num_new: Array,
    eta: Array,
    cells: NoisyOrCells,
    parameters: AnyParameters,
) -> Array:
    """Y with the rows of all new causes: cause `rank` (K,) of row `owner` (K,) in each slot.

    In iteration `new` every row that has this many draws one, those still to come summed out.
    """
    dtype = eta.dtype
    rows = jnp.arange(eta.shape[0])
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
        drawn = active[jnp.minimum(owner, len(rows) - 1)]
        return jnp.where(here[:, None], drawn, y), eta + active

    return jax.lax.fori_loop(0, jnp.max(num_new), draw, (y, eta))[0]
