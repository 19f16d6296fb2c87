r"""Splits and merges of causes of many rows in a noisy-OR model, their activity summed out.

A split that shares out the rows of a cause blindly is one of 3^m, and so is the way back from a
merge: for causes of dozens of rows neither is ever accepted. Here the rows are shared out by
restricted Gibbs scans (`split_merge.py`, where the move and its acceptance ratio are), and the
activities of the two causes are summed out. In each column d, given all other causes,

    L_d(a, b) = sum_{y_a, y_b} p(y_a) p(y_b) prod_i P(x_id | eta_id + z_ia y_a + z_ib y_b),

eta without the two, so that the logs of its four terms are sums over rows: a row that changes its
setting changes them by its gains alone. An accepted pair gets (y_a, y_b) from its distribution
given everything else, column by column; where it is refused Y stays. So p(Z, Y | X) is invariant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf.likelihoods import noisy_or
from jaxmf.likelihoods.noisy_or import AnyParameters
from jaxmf.samplers import shared_births
from jaxmf.samplers.feature_rows import draw_index
from jaxmf.samplers.noisy_or.target import NoisyOrTarget
from jaxmf.samplers.split_merge import propose
from jaxmf.types import Array, Key

_NUM_SCANS = 1


class Gains(NamedTuple):
    """Gains of the log likelihood of each cell by one and two more active causes, (N, D) float."""

    one: Array
    two: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NoisyOrColumns:
    """Two columns of Z whose rows of Y are summed out: a `PairLikelihood`."""

    y: Array  # (K, D) bool, of all causes; those of the two columns do not matter
    x: Array  # (N, D) float, zeros and ones
    observed: Array | None  # (N, D) bool, or None when nothing is missing
    parameters: AnyParameters  # of the likelihood

    def start(self, rest: Array) -> Gains:
        """See `PairLikelihood`; rest is (N, K) bool."""
        cells = noisy_or.cells_of(self.x, self.observed)
        table = noisy_or.gain_table(rest.shape[1] + 2, self.parameters)
        eta = noisy_or.num_active(rest, self.y, self.x.dtype).astype(jnp.int32)
        zero_gain = jnp.where(cells.zeros, self.parameters.log_fail, 0)
        first = jnp.where(cells.ones, noisy_or.look_up(table, eta), zero_gain)
        second = jnp.where(cells.ones, noisy_or.look_up(table, eta + 1), zero_gain)
        return Gains(first, first + second)

    def at(self, fixed: Gains, pair: Array) -> Array:
        """Log likelihood with a, b or both active in each column: (3, D) float."""
        either, both = jnp.sum(pair, axis=1) == 1, jnp.sum(pair, axis=1) == 2
        alone = pair.T @ fixed.one
        together = either.astype(pair.dtype) @ fixed.one + both.astype(pair.dtype) @ fixed.two
        return jnp.concatenate([alone, together[None]])

    def log_likelihood(self, fixed: Gains, statistics: Array) -> Array:
        del fixed
        log_weights = self.log_weights(statistics) + 2 * self.parameters.log_inactive
        return jnp.sum(jax.nn.logsumexp(log_weights, axis=-2), axis=-1)

    def log_weights(self, statistics: Array) -> Array:
        """For neither, a, b, and both active in each column: (..., 4, D) float."""
        odds = self.parameters.log_odds * jnp.array([1.0, 1.0, 2.0], statistics.dtype)
        log_weights = statistics + odds[:, None]
        return jnp.concatenate([jnp.zeros_like(log_weights[..., :1, :]), log_weights], axis=-2)

    def log_likelihoods(
        self, fixed: Gains, statistics: Array, row: Array, setting: Array, candidates: Array
    ) -> Array:
        one, two = (jax.lax.dynamic_index_in_dim(gain, row, keepdims=False) for gain in fixed)
        without = statistics - _added(setting, one, two)
        return self.log_likelihood(fixed, without + _added(candidates, one, two))

    def change(
        self, fixed: Gains, statistics: Array, row: Array, setting: Array, new: Array
    ) -> Array:
        one, two = (jax.lax.dynamic_index_in_dim(gain, row, keepdims=False) for gain in fixed)
        return statistics + _added(new, one, two) - _added(setting, one, two)


def _added(setting: Array, one: Array, two: Array) -> Array:
    """Contribution of a row with bits (..., 2) float to the statistics, (..., 3, D)."""
    alone = setting[..., None] * one
    count = jnp.sum(setting, axis=-1)[..., None, None]
    return jnp.concatenate(
        [alone, jnp.where(count == 1, one, jnp.where(count == 2, two, 0))], axis=-2
    )


def split_or_merge(
    key: Key, z: Array, y: Array, target: NoisyOrTarget
) -> tuple[Array, Array, Array]:
    """One proposal of a split or a merge; arguments and results as `moves.repeat_moves`."""
    x, observed, prior, parameters = target
    columns, dtype = NoisyOrColumns(y, x, observed, parameters), x.dtype
    proposal = propose(
        jax.random.fold_in(key, 0),
        z,
        prior=prior,
        likelihood=columns,
        num_scans=_NUM_SCANS,
        num_fixed=0,
    )
    every_slot = jnp.arange(z.shape[1])
    is_first, is_second = every_slot == proposal.slots[0], every_slot == proposal.slots[1]
    fixed = columns.start(proposal.z & ~is_first & ~is_second)
    statistics = columns.at(fixed, proposal.z[:, proposal.slots].astype(dtype))
    uniforms = jax.random.uniform(jax.random.fold_in(key, 1), y.shape[1:], dtype)
    drawn = jax.vmap(draw_index, in_axes=(0, 1))(uniforms, columns.log_weights(statistics))
    # an empty column of the finite model is a cause still, with an activity from its prior
    exists = prior.exists(jnp.sum(proposal.z, axis=0, dtype=dtype))[:, None]
    y_new = jnp.where(is_first[:, None], drawn % 2 == 1, y)
    y_new = jnp.where(is_second[:, None], drawn >= 2, y_new) & exists
    return proposal.z, jnp.where(proposal.accepted, y_new, y), proposal.overflow


def birth_or_death(
    key: Key, z: Array, y: Array, target: NoisyOrTarget
) -> tuple[Array, Array, Array]:
    """One proposal of a birth or death of a cause of several rows, see `shared_births.py`.

    Arguments and results as `moves.repeat_moves`.
    """
    x, observed, prior, parameters = target
    columns, dtype = NoisyOrColumns(y, x, observed, parameters), x.dtype
    proposal = shared_births.propose(
        jax.random.fold_in(key, 0), z, prior=prior, likelihood=columns, num_fixed=0
    )
    is_its_slot = jnp.arange(z.shape[1]) == proposal.slot
    fixed = columns.start(proposal.z & ~is_its_slot)
    column = proposal.z[:, proposal.slot].astype(dtype)
    statistics = columns.at(fixed, jnp.stack([column, jnp.zeros_like(column)], axis=1))
    log_weights = columns.log_weights(statistics)
    uniforms = jax.random.uniform(jax.random.fold_in(key, 1), y.shape[1:], dtype)
    active = uniforms < jax.nn.sigmoid(log_weights[1] - log_weights[0])
    # an empty column of the finite model is a cause still, with an activity from its prior
    exists = prior.exists(jnp.sum(proposal.z, axis=0, dtype=dtype))[:, None]
    y_new = jnp.where(is_its_slot[:, None], active, y) & exists
    return proposal.z, jnp.where(proposal.accepted, y_new, y), proposal.overflow
