"""Quantities of draws that do not depend on the labels of features or groups."""

from __future__ import annotations

import numpy as np

from jaxmf import diagnostics
from jaxmf.arguments import check_count
from jaxmf.data.names import ids_or_positions
from jaxmf.model import HasBias, settings_of
from jaxmf.posterior.agreement import LARGEST_RHAT, CellAgreement, cell_agreement
from jaxmf.posterior.draws import Draws, once
from jaxmf.posterior.topic_agreement import TopicAgreement, topic_agreement

_FEWEST_DRAWS = 4  # R-hat is not defined for fewer
NUM_PAIRS = 3
"""Entries of ZZ' in a summary."""


def quantities(posterior: Draws, *, num_pairs: int = NUM_PAIRS) -> dict[str, np.ndarray]:
    """Label-free scalars of every draw: name -> (chains, draws).

    The scalars of the draws but for the model's fixed numbers, and for latent features of
    `num_pairs` pairs of rows the number of features that both have, an entry of ZZ'; or that one of
    them alone has, where `may_turn`.
    """
    check_count("num_pairs", num_pairs, 0)
    fixed = posterior.model.hyperparameters
    scalars = {
        name: values
        for name, values in posterior.draws.items()
        if values.ndim == 2 and not isinstance(fixed.get(name), (int, float))
    }
    first = {name: scalars[name] for name in ("log_joint", "num_features") if name in scalars}
    table = first | scalars
    if "z" in posterior.draws and posterior.data.num_rows > 1:
        z = feature_bits(posterior)
        rows = np.linspace(0, z.shape[2], 4).astype(int)[:3] % z.shape[2]
        pairs = [(rows[0], rows[1]), (rows[1], rows[2]), (rows[0], rows[2])]
        ids = ids_or_positions(posterior.data.row_names, z.shape[2])
        name, compare = ("differ", np.not_equal) if may_turn(posterior) else ("shared", np.minimum)
        for i, j in [pair for pair in pairs if pair[0] != pair[1]][:num_pairs]:
            compared = compare(z[:, :, i], z[:, :, j])
            table[f"{name}[{ids[i]}, {ids[j]}]"] = compared.sum(axis=-1)
    return table


def may_turn(posterior: Draws) -> bool:
    """Whether a feature and that of all other rows, with the opposite values, say the same.

    So it is where columns have a level that is learned. Values of a `feature_prior` may have one
    sign.
    """
    model = posterior.model
    has_levels = isinstance(model, HasBias) and model.has_bias_feature
    return has_levels and "feature_prior" not in settings_of(model)


def feature_bits(posterior: Draws) -> np.ndarray:
    """(chains, draws, N, K) features, without the one that is always on."""
    if "z" not in posterior.draws:
        raise ValueError(f"{type(posterior.model).__name__} keeps no binary features")
    z = posterior.draws["z"]
    has_bias = isinstance(posterior.model, HasBias) and posterior.model.has_bias_feature
    return z[..., 1:] if has_bias else z


@once
def slow_quantities(posterior: Draws) -> dict[str, float]:
    """The R-hat of the `quantities` that chains do not agree on, by name.

    Infinite where each chain stays at a value that is not that of all; empty of other runs than
    a sampler's and of fewer than four draws a chain.
    """
    if posterior.meta.method != "sample" or posterior.num_draws < _FEWEST_DRAWS:
        return {}
    found = quantities(posterior)
    table = diagnostics.summarise_chains(found)
    rhats = {name: table[name, "R-hat"] for name in table.names}
    for name, x in found.items():
        if np.ptp(x) > 0 and np.all(np.ptp(x, axis=1) == 0):
            rhats[name] = np.inf  # every chain stays where it is
    return {name: value for name, value in rhats.items() if value > LARGEST_RHAT}


def agreed_answers(posterior: Draws) -> CellAgreement | TopicAgreement | None:
    """What chains agree on in spite of a large R-hat: cells or topics; None if on neither.

    Topics speak for concentrations and the log joint, not for their own number.
    """
    found = cell_agreement(posterior) or (
        None
        if any(name.startswith("num_") for name in slow_quantities(posterior))
        else topic_agreement(posterior)
    )
    return found if found is not None and found.is_good else None
