"""Whether the particles of a filter say how sure their features are, or have one path in common.

After some resampling all particles descend from one, and have the same features in all rows but the
last ones; so rows of the earlier half are looked at. One path is right where the data leave no
doubt. Where they do, predictions are surer than they may be, and no weights of these particles can
show it: what a particle with other features in a row would weigh is computed here, with everything
else as it is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxmf.model import HasBias, PredictsCells
from jaxmf.posterior import leave_one_out
from jaxmf.posterior.draws import Draws, once

_MOST_ROWS = 32
_MOST_CELLS = 2**14
_NUM_DRAWS = 4
_FEWEST = 20  # rows, and particles
_MOST_ENTRIES = 2**25


class PathDegeneracy(NamedTuple):
    """Probabilities that the features of a row are others than the commonest, over some rows.

    Args:
        among_particles: by the weights of the particles.
        by_conditionals: by the particles' own conditional distributions, one feature changed.
        num_rows: how many rows were looked at.
    """

    among_particles: float
    by_conditionals: float
    num_rows: int


@once
def path_degeneracy(posterior: Draws) -> PathDegeneracy | None:
    """How much the particles of a filter differ in features of rows, and should differ.

    By up to 32 rows of the earlier half, in the heaviest run; see `Posterior.alarms`. Kept once
    computed.

    Returns:
        The probability that the features of a row are others than the commonest, by the weights
        of the particles and by changing one feature at a time; None for other runs and models.
    """
    model, data = posterior.model, posterior.data
    is_filter = posterior.meta.method == "particle_filter" and "z" in posterior.draws
    if not is_filter or model.cells_given_draw is None:
        return None
    is_independent = model.cells_given_draw == "independent"
    known = leave_one_out.known_cells(data) if isinstance(model, PredictsCells) else None
    run = int(np.argmax(posterior.weights.sum(axis=1)))
    draws = {name: values[run] for name, values in posterior.draws.items()}
    num_particles, num_rows, num_features = draws["z"].shape
    size = (num_features + 1) * num_rows * num_features
    if known is None or min(num_rows, num_particles) < _FEWEST or size > _MOST_ENTRIES:
        return None
    weights = posterior.weights[run] / posterior.weights[run].sum()
    random = np.random.default_rng(0)
    earlier = np.unique(known[0][known[0] < num_rows // 2])  # of those with cells
    count = min(_MOST_ROWS, earlier.size, max(1, _MOST_CELLS // data.num_columns))
    if not count:
        return None
    rows = np.sort(random.permutation(earlier)[:count])
    # where parameters are summed out, the cells of a row depend on the features of the others
    groups = [rows] if is_independent else np.split(rows, count)
    doubts = [
        _conditional_doubt(posterior, {name: x[at] for name, x in draws.items()}, known, group)
        for at in random.choice(num_particles, _NUM_DRAWS if is_independent else 1, p=weights)
        for group in groups
    ]
    shares = []  # of the commonest features of each row
    for row in rows:
        bits = np.packbits(draws["z"][:, row].astype(bool), axis=1)
        index = np.unique(bits, axis=0, return_inverse=True)[1]
        shares.append(np.bincount(index.ravel(), weights).max())
    return PathDegeneracy(max(0.0, 1 - float(np.mean(shares))), float(np.mean(doubts)), count)


def _conditional_doubt(
    posterior: Draws,
    draw: dict[str, np.ndarray],
    known: tuple[np.ndarray, np.ndarray, np.ndarray],
    rows: np.ndarray,
) -> np.ndarray:
    """The probability that a row has one feature more or less than in a draw: (R,) float.

    By the likelihood of the row, given all other cells where parameters are summed out, and the
    share of the other rows that have the feature, one half added. A bias, and features that no row
    has, stay as they are.

    Args: rows: (R,) int, of which all change at once.
    """
    is_chosen = np.isin(known[0], rows)
    cell_rows, columns, values = (part[is_chosen] for part in known)
    z = draw["z"].astype(bool)
    has_bias = isinstance(posterior.model, HasBias) and posterior.model.has_bias_feature
    features = np.arange(int(has_bias), z.shape[1])
    features = features[z[:, features].any(axis=0)]
    changed = np.repeat(z[None], features.size + 1, axis=0)
    for change, feature in enumerate(features, 1):
        changed[change, rows, feature] ^= True
    draws = {name: np.repeat(x[None], features.size + 1, axis=0) for name, x in draw.items()}
    draws["z"] = changed.astype(draw["z"].dtype)
    cells = cell_rows, columns
    found = leave_one_out.conditionals(posterior.model, posterior.data, draws, cells, values)
    log_weights = np.zeros((rows.size, features.size + 1))
    np.add.at(log_weights, np.searchsorted(rows, cell_rows), found.log_density.T)
    is_on = z[rows][:, features]
    others = z[:, features].sum(axis=0) - is_on
    log_odds = np.log((others + 0.5) / (len(z) - others - 0.5))
    log_weights[:, 1:] += np.where(is_on, -log_odds, log_odds)
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    return 1 - weights[:, 0] / weights.sum(axis=1)
