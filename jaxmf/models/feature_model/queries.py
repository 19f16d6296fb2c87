"""Rows not seen in training, given one draw of a `FeatureModel`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxmf.data import Dense
from jaxmf.samplers.feature_layout import row_prior
from jaxmf.samplers.feature_rows import all_patterns, draw_index
from jaxmf.types import Array, Key

_MOST_ENUMERATED = 10
_NUM_SWEEPS = 40


def new_rows(model: Any, key: Key, draw: dict[str, Array], new_data: Dense) -> tuple[Array, Array]:
    """Features drawn for every new row (N_new, K) bool, and their probabilities (N_new, K).

    All settings are summed over for up to 10 slots; beyond that 40 Gibbs sweeps are made and the
    probabilities averaged over the second half.
    """
    z, y = draw["z"], draw["y"]
    num_slots = z.shape[1]
    counts = jnp.sum(z, axis=0, dtype=jnp.result_type(float))
    conditional = row_prior(model.prior, counts, z.shape[0] + 1, num_fixed=0)

    def of_row(pieces):
        key, x, observed = pieces

        def log_weight(z):
            log_prior = jnp.sum(jnp.where(z & conditional.movable, conditional.log_odds, 0))
            return log_prior + model.row_log_likelihood(x, observed, z, y)

        if num_slots > _MOST_ENUMERATED:
            return _gibbs(key, conditional.movable, log_weight)
        patterns = all_patterns(num_slots)
        allowed = ~jnp.any(patterns & ~conditional.movable, axis=1)
        weights = jnp.where(allowed, jax.lax.map(log_weight, patterns), -jnp.inf)
        uniform = jax.random.uniform(key, (), weights.dtype)
        share = jax.nn.softmax(weights)
        probabilities = share @ patterns.astype(share.dtype)
        # a sum that rounding has carried beyond one
        return patterns[draw_index(uniform, weights)], jnp.minimum(probabilities, 1)

    keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(new_data.values.shape[0]))
    return jax.lax.map(of_row, (keys, new_data.values, new_data.observed), batch_size=16)


def _gibbs(key: Key, movable: Array, log_weight: Any) -> tuple[Array, Array]:
    num_slots = movable.shape[0]
    dtype = jnp.result_type(float)

    def sweep(step, carry):
        z, total = carry
        sweep_key = jax.random.fold_in(key, step)
        order = jnp.argsort(jax.random.uniform(jax.random.fold_in(sweep_key, 0), (num_slots,)))
        uniforms = jax.random.uniform(jax.random.fold_in(sweep_key, 1), (num_slots,), dtype)

        def visit(place, carry):
            z, probabilities = carry
            k = order[place]
            log_odds = log_weight(z.at[k].set(True)) - log_weight(z.at[k].set(False))
            probability = jnp.where(movable[k], jax.nn.sigmoid(log_odds), 0)
            return z.at[k].set(uniforms[k] < probability), probabilities.at[k].set(probability)

        z, probabilities = jax.lax.fori_loop(0, num_slots, visit, (z, jnp.zeros(num_slots, dtype)))
        return z, total + jnp.where(step >= _NUM_SWEEPS // 2, probabilities, 0)

    start = (jnp.zeros(num_slots, bool), jnp.zeros(num_slots, dtype))
    z, total = jax.lax.fori_loop(0, _NUM_SWEEPS, sweep, start)
    return z, total / (_NUM_SWEEPS - _NUM_SWEEPS // 2)
