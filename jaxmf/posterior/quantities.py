"""Quantities of draws that do not depend on the labels of features or groups."""

from __future__ import annotations

import numpy as np

from jaxmf.data.names import ids_or_positions
from jaxmf.model import HasBias
from jaxmf.posterior.draws import Draws

NUM_PAIRS = 3
"""Entries of ZZ' in a summary."""


def quantities_of(posterior: Draws, num_pairs: int) -> dict[str, np.ndarray]:
    """Name -> (chains, draws); see `Posterior.quantities`."""
    fixed = posterior.model.hyperparameters
    scalars = {
        name: values
        for name, values in posterior.draws.items()
        if values.ndim == 2 and not isinstance(fixed.get(name), (int, float))
    }
    order = ["log_joint", "num_features"]
    names = [name for name in order if name in scalars]
    names += [name for name in scalars if name not in order]
    table = {name: scalars[name] for name in names}
    if "z" in posterior.draws and posterior.data.num_rows > 1:
        z = feature_bits(posterior)
        rows = np.linspace(0, z.shape[2], 4).astype(int)[:3] % z.shape[2]
        pairs = [(rows[0], rows[1]), (rows[1], rows[2]), (rows[0], rows[2])]
        ids = ids_or_positions(posterior.data.row_names, z.shape[2])
        for i, j in [pair for pair in pairs if pair[0] != pair[1]][:num_pairs]:
            table[f"shared[{ids[i]}, {ids[j]}]"] = (z[:, :, i] & z[:, :, j]).sum(axis=-1)
    return table


def feature_bits(posterior: Draws) -> np.ndarray:
    """(chains, draws, N, K) features, without the one that is always on."""
    if "z" not in posterior.draws:
        raise ValueError(f"{type(posterior.model).__name__} keeps no binary features")
    z = posterior.draws["z"]
    has_bias = isinstance(posterior.model, HasBias) and posterior.model.has_bias_feature
    return z[..., 1:] if has_bias else z
