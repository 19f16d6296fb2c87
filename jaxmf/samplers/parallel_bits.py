"""Sweeps over all rows at once: the loop that draws their bits, and slots for their new features.

The bits are drawn given the probabilities of the features.

Rows are independent then, and each visits the slots in another order. A sweep that could empty a
column without being able to make one would leave no Indian buffet process invariant, so changes
that would empty a column are refused.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.special import logit
from jax.typing import DTypeLike

from jaxmf import row_shards, slots
from jaxmf.samplers.feature_layout import (
    FeaturePrior,
    RowDraws,
    RowPrior,
    draws_of_rows,
    row_prior,
)
from jaxmf.types import Array, Key, PyTree

ProposeFlips = Callable[[Array, Array, Array, PyTree], tuple[Array, Callable[[Array], PyTree]]]
"""(slot of each row (N,) int, whether it is on (N,) bool, 1 or -1 that a flip adds (N,) float,
state) -> log odds of flipping (N,), and the state after the rows (N,) bool that do."""


def spread_draws(key: Key, z: Array, num_columns: int | None, dtype: DTypeLike) -> RowDraws:
    """The random numbers of every row of z; each device makes those of the rows that it has."""
    rows = row_shards.spread(jnp.arange(z.shape[0]))
    draws = draws_of_rows(key, rows, z.shape[1], num_columns, dtype)
    return jax.tree.map(row_shards.spread, draws)


def at_slots(array: Array, k: Array) -> Array:
    """The entry (N,) of each row of an array (N, K) in the slot k (N,) int of that row."""
    return jnp.take_along_axis(array, k[:, None], axis=1)[:, 0]


def flip_bits_of_all_rows(
    draws: RowDraws,
    z: Array,
    state: PyTree,
    *,
    propose: ProposeFlips,
    prior: FeaturePrior,
    num_fixed: int = 0,
) -> Array:
    """Z (N, K) bool with every bit drawn from its conditional, no column left empty.

    Args:
      state: what `propose` keeps of all rows, from slot to slot.
      num_fixed: the first `num_fixed` slots hold fixed features, which never change.
    """
    dtype = draws.bits.dtype
    num_rows = jnp.asarray(z.shape[0], dtype)
    counts = row_shards.column_counts(z, dtype)
    movable = row_prior(prior, counts, num_rows, num_fixed=num_fixed).movable
    threshold = logit(draws.bits)
    order = jnp.argsort(jnp.where(movable, draws.order, jnp.inf), axis=1)

    def visit(step: Array, carry: tuple[Array, PyTree, Array]) -> tuple[Array, PyTree, Array]:
        z, state, counts = carry
        k = order[:, step]
        on = at_slots(z, k)
        sign = jnp.where(on, -1, 1).astype(dtype)
        log_odds, state_after = propose(k, on, sign, state)
        flip = at_slots(threshold, k) < log_odds
        here = jnp.arange(z.shape[1]) == k[:, None]
        changes = jnp.sum(jnp.where(here & flip[:, None], sign[:, None], 0), axis=0)
        after = row_prior(prior, counts + changes, num_rows, num_fixed=num_fixed).movable
        # The bits of a column that are visited in this step are drawn from their conditional as if
        # the column might be empty. Taken or refused together they are a Metropolis step whose
        # proposal is the target where this is not zero: the ratio is one.
        refused = movable & ~after
        flip = flip & ~refused[k]
        return (
            z ^ (here & flip[:, None]),
            state_after(flip),
            counts + jnp.where(refused, 0, changes),
        )

    num_visits = jnp.sum(movable, dtype=jnp.int32)
    return jax.lax.fori_loop(0, num_visits, visit, (z, state, counts))[0]


def prior_of_rows(prior: FeaturePrior, counts: Array, num_rows: int, *, num_fixed: int) -> RowPrior:
    """The prior of any row given the features that several rows have; slots of others are free.

    Args: counts (K,) float, ones of each column of Z.
    """
    # `exists` without any one row: a column with a single one is free without it
    return row_prior(prior, jnp.maximum(counts - 1, 0), num_rows, num_fixed=num_fixed)


def hand_out(occupied: Array, num_new: Array) -> tuple[Array, slots.Claim]:
    """Slots for the new features of all rows, those of the first row in the lowest free slots.

    Args: occupied (K,) bool; num_new (N,) int, of each row.
    Returns bits (N, K) bool, and the claim for all of them.
    """
    claim = slots.claim(occupied, jnp.sum(num_new))
    rank = jnp.cumsum(claim.claimed, dtype=jnp.int32) - 1
    end = row_shards.running_total(num_new)[:, None]
    return claim.claimed & (end - num_new[:, None] <= rank) & (rank < end), claim
