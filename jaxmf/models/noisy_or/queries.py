"""What a draw of the noisy-OR model says: activity of causes, rows not seen in training.

A draw is the dictionary that a chain records, Y included.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxmf.data import Dense
from jaxmf.likelihoods import noisy_or
from jaxmf.likelihoods.noisy_or import NoisyOrCells, NoisyOrParameters
from jaxmf.samplers import new_rows
from jaxmf.samplers.feature_layout import FeaturePrior, row_prior
from jaxmf.samplers.new_rows import NewRow
from jaxmf.types import Array, Key


def activity(z: Array, y: Array, data: Dense, parameters: NoisyOrParameters) -> Array:
    """P(y_kd = 1) given Z, all other entries of Y and the observed cells: (K, D) float."""
    dtype = data.values.dtype
    num_rows, num_columns = data.values.shape
    z_float = z.astype(dtype)

    def weigh_columns(at: Callable[[Array], Array]) -> Array:
        seen = None if data.observed is None else at(data.observed)
        cells = noisy_or.cells_of(at(data.values), seen)
        y_block = at(y).astype(dtype)
        eta = noisy_or.num_active(z_float, y_block, dtype)
        in_zeros = parameters.log_fail * (z_float.T @ cells.zeros.astype(dtype))

        def weigh_cause(column: Array, row: Array, gain_of_zeros: Array) -> Array:
            others = eta - column[:, None] * row
            gain = noisy_or.log_one(others + 1, parameters) - noisy_or.log_one(others, parameters)
            gain_of_ones = column @ jnp.where(cells.ones, gain, 0)
            return jax.nn.sigmoid(parameters.log_odds + gain_of_ones + gain_of_zeros)

        return jax.lax.map(lambda each: weigh_cause(*each), (z_float.T, y_block, in_zeros))

    start = jnp.zeros(y.shape, dtype)
    return noisy_or.map_columns(weigh_columns, num_rows, num_columns, start_value=start)


def draw_new_rows(
    key: Key,
    z: Array,
    y: Array,
    new_data: Dense,
    *,
    prior: FeaturePrior,
    parameters: NoisyOrParameters,
) -> NewRow:
    """Causes of further rows given a draw, each as the customer after the N of Z (N, K).

    Args: z (N, K) bool; y (K, D) bool; new_data (N_new, D).
    """
    dtype = new_data.values.dtype
    counts = jnp.sum(z, axis=0, dtype=dtype)
    conditional = row_prior(prior, counts, z.shape[0] + 1, num_fixed=0)
    nothing = jnp.zeros((z.shape[1],), bool)
    table = noisy_or.count_table(z.shape[1], new_rows.MOST_NEW_FEATURES, parameters)

    def new_row(row_key: Key, cells: NoisyOrCells) -> NewRow:
        def log_weights(bits: Array) -> Array:
            eta = noisy_or.num_active(bits, y, dtype)
            counts = noisy_or.tally_of(eta, cells, z.shape[1] + 1)
            likelihood = noisy_or.log_likelihood_of_counts(counts, table)
            return new_rows.log_prior_of_settings(bits, conditional) + likelihood

        return new_rows.draw_new_row(row_key, log_weights, conditional, always_on=nothing)

    cells = noisy_or.cells_of(new_data.values, new_data.observed)
    return new_rows.over_rows(new_row, key, cells)
