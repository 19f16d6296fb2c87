"""Rows not seen in training, given one draw of a `FeatureModel`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from jaxmf.data import Dense
from jaxmf.samplers.feature_layout import row_prior
from jaxmf.samplers.new_rows import draw_bits
from jaxmf.types import Array, Key

if TYPE_CHECKING:
    from jaxmf.models.feature_model.model import FeatureModel


def new_rows(
    model: FeatureModel, key: Key, draw: dict[str, Array], new_data: Dense
) -> tuple[Array, Array]:
    """Features drawn for every new row (N_new, K) bool, and their probabilities (N_new, K).

    Features of the row's own are left out: their rows of Y cannot be summed out of a likelihood
    known by its value alone.
    """
    z, y = draw["z"], draw["y"]
    nothing = jnp.zeros((z.shape[1],), bool)
    counts = jnp.sum(z, axis=0, dtype=jnp.result_type(float))
    conditional = row_prior(model.prior, counts, z.shape[0] + 1, num_fixed=0)

    def new_row(pieces: tuple[Key, Array, Array]) -> tuple[Array, Array]:
        key, x, observed = pieces

        def log_weight(z: Array) -> Array:
            log_prior = jnp.sum(jnp.where(z & conditional.movable, conditional.log_odds, 0))
            return log_prior + model.row_log_likelihood(x, observed, z, y)

        return draw_bits(key, log_weight, conditional.movable, always_on=nothing)

    keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(new_data.values.shape[0]))
    return jax.lax.map(new_row, (keys, new_data.values, new_data.observed), batch_size=16)
