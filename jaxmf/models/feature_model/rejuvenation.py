"""Updates of Z and Y of a `FeatureModel` given the rows so far: for rejuvenation in its filter."""

from __future__ import annotations

import jax

from jaxmf.data import Dense
from jaxmf.samplers import explicit_rows
from jaxmf.samplers.explicit_rows import ExplicitFeatures
from jaxmf.types import Array, Key


def update_particle(
    key: Key, model: ExplicitFeatures, z: Array, y: Array, data: Dense, num_rows: Array
) -> tuple[Array, Array, Array]:
    """One pass over the first `num_rows` rows, then over the features.

    Args: z (N, K) bool, empty after the first `num_rows` rows; y (K, ...).
    Returns z, y, and () bool: whether more slots were needed.
    """
    row_key, feature_key = (jax.random.fold_in(key, index) for index in range(2))
    z, y, overflow = explicit_rows.sweep_rows(
        row_key, model, z, y, data, update_row=explicit_rows.update_bits_and_new, num_rows=num_rows
    )
    y = explicit_rows.replace_features(feature_key, model, z, y, data, num_rows)
    return z, y, overflow
