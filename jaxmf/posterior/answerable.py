"""Which questions a posterior answers, for the names that completion offers.

By what the model has (protocols of `jaxmf.model`) and the names of its draws: no data is read, and
nothing compiled. A question that is not listed still says why it is refused where it is asked.
"""

from __future__ import annotations

from collections.abc import Callable

from jaxmf.data import Dense, Entries
from jaxmf.model import (
    CompletesDocuments,
    HasBiclusters,
    HasColumnValues,
    HasFactors,
    HasFeatures,
    HasGroups,
    HasNetwork,
    HasRowGroups,
    HasRowLikelihood,
    HasSideGroups,
    KnowsTime,
    PredictsCells,
    RanksWords,
    ScoresCells,
    ScoresDocuments,
    TransformsDocuments,
    TransformsRows,
)
from jaxmf.posterior import categories, left_out_tokens, ranking
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.tables import growing_groups
from jaxmf.posterior.topic_draws import has_topics

Condition = Callable[[Draws], bool]


def _model_is(*capabilities: type) -> Condition:
    """Whether the model has one of these protocols."""
    return lambda posterior: isinstance(posterior.model, capabilities)


def _has_likelihood(posterior: Draws) -> bool:
    model, draws = posterior.model, posterior.draws
    if posterior.is_variational:
        return False
    if isinstance(model, HasRowLikelihood):
        return "group_of_tokens" in draws
    if isinstance(model, HasGroups) and isinstance(model, HasNetwork):
        return f"{left_out_tokens.observed_block(model.network())}_cells" in draws
    return model.cells_given_draw is not None and isinstance(model, PredictsCells)


def _has_probabilities(posterior: Draws) -> bool:
    model = posterior.model
    if categories.has_categories(model):
        return True
    columns = range(posterior.data.num_columns) if isinstance(model, HasColumnValues) else ()
    return any(model.column_values(column) is not None for column in columns)


def _has_group_probabilities(posterior: Draws) -> bool:
    kept = any(name.endswith("_of_tokens") for name in posterior.draws)
    return kept and isinstance(posterior.model, HasGroups)


def _has_features(posterior: Draws) -> bool:
    return isinstance(posterior.model, HasFeatures) and "z" in posterior.draws


def _has_pairs(posterior: Draws) -> bool:
    model = posterior.model
    has_units = isinstance(model, HasRowGroups | HasBiclusters) or "z" in posterior.draws
    return has_units and not isinstance(model, CompletesDocuments)


def _has_column_noise(posterior: Draws) -> bool:
    noise = posterior.draws.get("noise_scale")
    return noise is not None and noise.ndim == 2 and isinstance(posterior.data, Dense | Entries)


def _has_entries(posterior: Draws) -> bool:
    model = posterior.model
    by_token = isinstance(model, HasGroups) and not isinstance(model, HasRowGroups)
    return by_token or _has_side_groups(posterior)


def _has_side_groups(posterior: Draws) -> bool:
    kept = {"row_groups", "column_groups"} & posterior.draws.keys()
    return bool(kept) and isinstance(posterior.model, HasSideGroups)


def _recommends(posterior: Draws) -> bool:
    return isinstance(posterior.model, RanksWords) or ranking.can_recommend(posterior.model)


def _has_evidence(posterior: Draws) -> bool:
    return posterior.evidence is not None


_CELLS = _model_is(PredictsCells)

CONDITIONS: dict[str, Condition] = {
    "at": _model_is(KnowsTime),
    "biclusters": _model_is(HasBiclusters),
    "certain_features": _has_features,
    "column_noise": _has_column_noise,
    "cooccurrence": _has_pairs,
    "document_completion": _model_is(CompletesDocuments),
    "document_log_likelihood": _model_is(ScoresDocuments),
    "document_topics": has_topics,
    "factors": _model_is(HasFactors),
    "features": lambda posterior: (
        _has_features(posterior) and not isinstance(posterior.model, HasRowGroups)
    ),
    "group_probabilities": _has_group_probabilities,
    "group_weights": _has_side_groups,
    "groups": _model_is(HasRowGroups),
    "held_out_log_likelihood": _CELLS,
    "log_evidence": _has_evidence,
    "log_evidence_error": _has_evidence,
    "log_likelihood": _has_likelihood,
    "log_weights": lambda posterior: posterior.is_weighted,
    "num_features": lambda posterior: "num_features" in posterior.draws,
    "num_groups": lambda posterior: bool(growing_groups(posterior)),
    "num_topics": has_topics,
    "predict": _CELLS,
    "preferences": _has_side_groups,
    "probabilities": _has_probabilities,
    "recommend": _recommends,
    "reconstruction": _CELLS,
    "scores": _model_is(ScoresCells),
    "similar_documents": has_topics,
    "top_entries": _has_entries,
    "topic_coherence": has_topics,
    "topic_diversity": has_topics,
    "topics": has_topics,
    "topics_over": has_topics,
    "transform": _model_is(TransformsRows, TransformsDocuments),
}
"""What a question needs, by its name; all others are answered by every posterior."""


def answered(posterior: Draws, names: list[str]) -> list[str]:
    """Those of some names that are no question, or one that the posterior answers."""
    return [name for name in names if name not in CONDITIONS or CONDITIONS[name](posterior)]
