"""Tables of a run: its summary, numbers of features and groups, features, facts."""

from __future__ import annotations

import numpy as np

from jaxmf import diagnostics, settings
from jaxmf.column_units import units_of
from jaxmf.data import MatrixContainer
from jaxmf.data.names import ids_or_positions
from jaxmf.diagnostics import Summary
from jaxmf.model import HasBias, HasFeatures, HasNetwork, HasRowGroups, lacks, settings_of
from jaxmf.posterior.alarms import alarms
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.quantities import (
    agreed_answers,
    feature_bits,
    quantities,
    slow_quantities,
)
from jaxmf.posterior.records import DrawFeatures, NumFeatures, NumGroups, NumTopics
from jaxmf.posterior.topic_draws import topic_blocks
from jaxmf.programs import jit_method
from jaxmf.samplers import move_schedule

_SIDES = ("row_groups", "column_groups")


def summary(posterior: Draws) -> Summary:
    """Mean, sd, 5 % and 95 % of quantities that do not depend on labels.

    For chains also R-hat and effective sample size. ``shared[i, j]`` is the number of features that
    the rows with ids i and j have in common, an entry of ZZ' (positions i and j where the data has
    no ids); `cooccurrence` has it of other rows. Where columns have a level (`bias`), there is
    ``differ[i, j]`` instead, the number of features that just one of the two has: it stays the same
    if a feature is replaced by its complement (the other rows) and the level changed accordingly.

    Returns:
        A table, which prints itself: `table["alpha", "mean"]` is one number of it.
    """
    table = _table(posterior)
    slow = slow_quantities(posterior)
    found = agreed_answers(posterior) if slow else None
    said = "" if found is None else found.described(list(slow))
    table.caption = "; ".join(filter(None, (table.caption, said, *posterior.meta.notes)))
    table.notes = tuple(alarm.sentence for alarm in alarms(posterior))
    return table


def _table(posterior: Draws) -> Summary:
    if posterior.is_variational:
        return _variational_summary(posterior)
    found = quantities(posterior) if posterior.num_draws else {}
    if not posterior.is_weighted:
        return diagnostics.summarise_chains(found)
    size = diagnostics.weights_effective_size(posterior.log_weights)
    caption = f"{posterior.weights.size:,} particles, effective number {size:.0f}"
    if posterior.evidence is not None:
        evidence = posterior.evidence
        caption += f"; log evidence {evidence.value:.2f} {evidence.error_text}"
        if posterior.weights.shape[0] == 1 and np.isnan(evidence.standard_error):
            caption += " (num_runs=5 compares runs)"
    return diagnostics.summarise_weighted(found, posterior.log_weights, caption=caption)


def _variational_summary(posterior: Draws) -> Summary:
    rows = posterior.model.summary_of(posterior.reference_draw())
    epochs = int(posterior.draws["num_epochs"][0, 0])
    length = f"{epochs} epoch{'s' * (epochs != 1)}" if epochs else "in closed form"
    caption = f"{length}; sd of the fitted distribution, where it has one"
    return Summary(list(rows), ("mean", "sd"), np.array(list(rows.values())), caption)


def num_features(posterior: Draws) -> NumFeatures:
    """Posterior distribution of the number of features.

    Returns:
        values and probabilities, with `.mean` and `.mode`.
    """
    if "num_features" not in posterior.draws:
        also = f": ask num_groups() for {', '.join(growing_groups(posterior))}"
        num_factors = settings_of(posterior.model).get("num_factors")
        if not growing_groups(posterior):
            chosen = (
                f": num_factors={num_factors} was stated. Compare runs of several by mf.compare"
            )
            also = chosen if num_factors is not None else ""
        raise ValueError(f"{type(posterior.model).__name__} has no number of features{also}")
    return NumFeatures(*_distribution(posterior, "num_features"))


def num_groups(posterior: Draws, block: str | None = None) -> NumGroups:
    """Posterior distribution of the number of groups, such as topics, that have tokens.

    Args:
        block: the indicator that they are the values of; needed where several grow.
    Returns:
        values and probabilities, with `.mean` and `.mode`.
    Raises:
        ValueError: the model has no groups whose number is learned, or several and no name.
    """
    growing, name = growing_groups(posterior), type(posterior.model).__name__
    if not growing:
        raise ValueError(
            f"{name} has no groups whose number is learned; it is the one that you stated"
        )
    if block is None and len(growing) > 1:
        raise ValueError(f"block: name one of {', '.join(map(repr, growing))}")
    if block is not None and block not in growing:
        raise ValueError(
            f"block: {block!r} is no block of {name} whose number of groups is learned; there are "
            f"{', '.join(map(repr, growing))}"
        )
    return NumGroups(*_distribution(posterior, f"num_{block or growing[0]}"))


def num_topics(posterior: Draws) -> NumTopics:
    """Posterior distribution of the number of topics that have tokens.

    Returns:
        values and probabilities, with `.mean` and `.mode`, and `.mean_large`, how many topics hold
        more than 1 % of the tokens on average.
    Raises:
        ValueError: the model has no topics.
    """
    totals = posterior.draws[f"{topic_blocks(posterior).word}_totals"]
    counts = (totals > 0).sum(axis=-1)
    values, value_indices = np.unique(counts, return_inverse=True)
    weights = posterior.weights
    found = NumTopics(values, np.bincount(value_indices.ravel(), weights=weights.ravel()))
    is_large = totals > 0.01 * totals.sum(axis=-1, keepdims=True)
    found.mean_large = float(np.sum(weights * is_large.sum(axis=-1)))
    return found


def growing_groups(posterior: Draws) -> list[str]:
    """The indicators, or sides of a matrix, whose number of groups the draws have."""
    model = posterior.model
    indicators = model.network().indicators if isinstance(model, HasNetwork) else _SIDES
    return [name for name in indicators if f"num_{name}" in posterior.draws]


def _distribution(posterior: Draws, name: str) -> tuple[np.ndarray, np.ndarray]:
    flat, weights = posterior.flat_draws()
    values, value_indices = np.unique(flat[name].astype(int), return_inverse=True)
    return values, np.bincount(value_indices, weights=weights)


def features(posterior: Draws) -> DrawFeatures:
    """The features of the reference draw (highest log joint), most frequent first.

    Labels differ between draws, so features are not averaged over draws; how much they vary over
    draws is seen from `predict` and `cooccurrence`.

    Returns:
        Posterior mean and sd of the features given that draw's Z, and how many rows have them. A
        bias, which `num_features` does not count, is among them; `level` says which one it is.
    """
    if isinstance(posterior.model, HasRowGroups):
        raise ValueError(
            f"features: {type(posterior.model).__name__} has groups of rows instead; ask groups()"
        )
    if not isinstance(posterior.model, HasFeatures):
        raise lacks(posterior.model, HasFeatures, "features")
    feature_bits(posterior)  # which a model without binary features has not
    reference = posterior.reference_draw()
    mean, sd = features_of(posterior.model, reference, posterior.data)
    counts = reference["z"].sum(axis=0)
    used = np.flatnonzero(counts)
    slots = used[np.argsort(-counts[used], kind="stable")]
    chain, draw = posterior.reference()
    has_bias = isinstance(posterior.model, HasBias) and posterior.model.has_bias_feature
    return DrawFeatures(
        mean=np.asarray(mean)[slots],
        sd=np.asarray(sd)[slots],
        counts=counts[slots],
        slots=slots,
        chain=chain,
        draw=draw,
        columns=column_ids(posterior.data, mean.shape[1]),
        units=units_of(posterior.model, np.arange(mean.shape[1])),
        level=int(np.argmin(slots)) if has_bias and slots.size else None,
    )


def column_ids(data: MatrixContainer, width: int) -> np.ndarray:
    """Ids of what a feature has a value for, (width,): columns, or positions of something else."""
    return ids_or_positions(data.column_names if width == data.num_columns else None, width)


features_of = jit_method(HasFeatures.features)
"""Mean and sd of the features of one draw."""


def facts(posterior: Draws) -> dict[str, str]:
    """The facts of the run by name, for tables."""
    meta, model = posterior.meta, posterior.model
    described = {name: settings.describe(value) for name, value in settings_of(model).items()}
    words = ", ".join(f"{name}={value}" for name, value in described.items())
    found = {
        "model": f"{type(model).__name__}({words})",
        "data": posterior.data.describe(),
        "method": meta.method,
        **{name: settings.describe(value) for name, value in meta.run.items()},
        **{name: settings.describe(value) for name, value in meta.options.items()},
        "seed": str(settings.encode_seed(meta.seed)),
        "time": f"{meta.wall_seconds:.1f} s with compilation, {meta.seconds:.1f} s of it the steps",
        "device": meta.device,
        "versions": ", ".join(f"{name} {version}" for name, version in meta.versions.items()),
    }
    if "moves" in meta.run:
        found["moves"] = move_schedule.describe(meta.run["moves"])
    if not meta.complete:
        found["complete"] = "no, the run was interrupted"
    return found
