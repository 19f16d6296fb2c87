"""Updates of Z and Y of a `FeatureModel` given data: for rejuvenation in its filter.

Each leaves p(Z, Y | rows so far) invariant and needs only values of the likelihood:

- the bits of a row that other rows share, one after another in a fresh random order (Gibbs);
- the features that the row alone has, all at once: a new Poisson number of them with rows of Y from
  their prior is proposed and accepted with the ratio of likelihoods (Meeds et al. 2007, section
  3.1: that proposal is their prior, so nothing else enters);
- the row of Y of every feature, one after another: a draw from `feature_prior` is proposed and
  accepted with the ratio of likelihoods.

The order in which slots are visited depends on nothing but the key.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxmf import slots
from jaxmf.data import Dense
from jaxmf.samplers.feature_layout import RowPrior, row_prior
from jaxmf.special import accepts, poisson
from jaxmf.types import Array, Key


class _Carry(NamedTuple):
    """What goes from row to row; counts (K,) float are the ones of the columns of z."""

    z: Array
    y: Array
    counts: Array
    overflow: Array


def update_particle(
    key: Key, model: Any, z: Array, y: Array, data: Dense, num_rows: Array
) -> tuple[Array, Array, Array]:
    """One pass over the first `num_rows` rows, then over the features.

    Args:
        key: typed PRNG key.
        model: a `FeatureModel`.
        z: (N, K) bool, empty after the first `num_rows` rows.
        y: (K, ...).
        data: (N, D).
        num_rows: () int.

    Returns:
        z, y, and () bool: whether more slots were needed.
    """
    dtype = jnp.result_type(float)
    row_key, feature_key = (jax.random.fold_in(key, index) for index in range(2))

    def visit(row: Array, carry: _Carry) -> _Carry:
        # read from z as it came, written to another: one array for both would be copied every row
        z_row = jax.lax.dynamic_index_in_dim(z, row, keepdims=False)
        others = carry.counts - z_row
        conditional = row_prior(model.prior, others, num_rows.astype(dtype), num_fixed=0)
        z_new, y, needed = _update_row(
            jax.random.fold_in(row_key, row), model, z_row, carry.y, *data.row(row), conditional
        )
        return _Carry(
            z=jax.lax.dynamic_update_index_in_dim(carry.z, z_new, row, 0),
            y=y,
            counts=others + z_new,
            overflow=carry.overflow | needed,
        )

    start = _Carry(z, y, jnp.sum(z, axis=0, dtype=dtype), jnp.zeros((), bool))
    end = jax.lax.fori_loop(0, num_rows, visit, start)
    y = _update_features(feature_key, model, end.z, end.y, data, num_rows)
    return end.z, y, end.overflow


def _update_row(
    key: Key,
    model: Any,
    z: Array,
    y: Array,
    x: Array,
    observed: Array | None,
    conditional: RowPrior,
) -> tuple[Array, Array, Array]:
    """The row's shared bits, then the features of its own."""
    num_slots, dtype = z.shape[0], jnp.result_type(float)
    streams = [jax.random.fold_in(key, index) for index in range(5)]
    order = jax.random.uniform(streams[0], (num_slots,), dtype)
    uniforms = jax.random.uniform(streams[1], (num_slots,), dtype)

    def log_likelihood(z, y):
        return model.row_log_likelihood(x, observed, z, y)

    def flip(k, here, state):
        z, before = state
        flipped = z ^ here
        after = log_likelihood(flipped, y)
        sign = jnp.where(z[k], -1, 1)
        accepted = uniforms[k] < jax.nn.sigmoid(sign * conditional.log_odds[k] + after - before)
        return jnp.where(accepted, flipped, z), jnp.where(accepted, after, before)

    start = (z, log_likelihood(z, y))
    z, before = slots.visit(flip, start, order=order, allowed=conditional.movable)

    claim = slots.claim(~conditional.free, poisson(streams[2], conditional.rate))
    z_new = (z & ~conditional.free) | claim.claimed
    drawn = model.draw_features(streams[3], num_slots)
    y_new = jnp.where(claim.claimed.reshape(-1, *[1] * (y.ndim - 1)), drawn, y)
    log_ratio = log_likelihood(z_new, y_new) - before
    accepted = accepts(jax.random.uniform(streams[4], (), dtype), log_ratio)
    overflow = claim.overflow
    return jnp.where(accepted, z_new, z), jnp.where(accepted, y_new, y), overflow


def _update_features(
    key: Key, model: Any, z: Array, y: Array, data: Dense, num_rows: Array
) -> Array:
    """The row of Y of every feature: a draw from the prior, accepted by the likelihood."""
    num_slots, dtype = z.shape[1], jnp.result_type(float)
    streams = [jax.random.fold_in(key, index) for index in range(3)]
    order = jax.random.uniform(streams[0], (num_slots,), dtype)
    uniforms = jax.random.uniform(streams[1], (num_slots,), dtype)
    drawn = model.draw_features(streams[2], num_slots)
    present = jnp.arange(z.shape[0]) < num_rows
    over_rows = jax.vmap(model.row_log_likelihood, in_axes=(0, 0, 0, None))

    def log_likelihood(y):
        by_row = over_rows(data.values, data.observed, z, y)
        return jnp.sum(jnp.where(present, by_row, 0))

    def replace(k, _, state):
        y, before = state
        proposed = y.at[k].set(drawn[k])
        after = log_likelihood(proposed)
        accepted = accepts(uniforms[k], after - before)
        return jnp.where(accepted, proposed, y), jnp.where(accepted, after, before)

    exists = model.prior.exists(jnp.sum(z, axis=0, dtype=dtype))
    return slots.visit(replace, (y, log_likelihood(y)), order=order, allowed=exists)[0]
