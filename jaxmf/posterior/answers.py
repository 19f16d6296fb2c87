"""All questions about draws: what pictures and reports are made from.

Each is a function of a posterior in the module that answers it; `Answers` has them as methods.
"""

from jaxmf.arguments import checks_methods
from jaxmf.posterior import (
    agreement,
    alarms,
    answerable,
    biclusters,
    cell_answers,
    cells,
    certain_features,
    coherence,
    column_noise,
    cooccurrence,
    document_topics,
    factors,
    group_probabilities,
    left_to_right,
    named_losses,
    particle_paths,
    pointwise,
    quantities,
    ranking,
    recommendations,
    row_groups,
    side_groups,
    tables,
    topic_agreement,
    topic_table,
    topics,
    topics_over,
)
from jaxmf.posterior.draws import Draws


@checks_methods("post")
class Answers(Draws):
    """Draws, with the model and the data they belong to, and what may be asked of them.

    `jaxmf.Posterior` is this with pictures, reports, files and further draws.
    """

    def __dir__(self) -> list[str]:
        """The names that completion offers: of questions those that this posterior answers."""
        return answerable.answered(self, list(super().__dir__()))

    # A name is a module until it is a method: slow_quantities stand above quantities.

    # all draws together
    summary = tables.summary
    facts = tables.facts
    log_likelihood = pointwise.log_likelihood
    # whether the run has settled
    slow_quantities = property(quantities.slow_quantities)
    quantities = quantities.quantities
    cell_agreement = agreement.cell_agreement
    topic_agreement = topic_agreement.topic_agreement
    leave_one_out = named_losses.left_out_losses
    path_degeneracy = particle_paths.path_degeneracy
    alarms = alarms.alarms
    # features
    num_features = tables.num_features
    features = tables.features
    certain_features = certain_features.certain_features
    cooccurrence = cooccurrence.cooccurrence
    factors = factors.factors
    biclusters = biclusters.biclusters
    # cells and rows
    predict = cell_answers.predict
    probabilities = cells.probabilities
    held_out_log_likelihood = cells.held_out_log_likelihood
    reconstruction = cells.reconstruction
    transform = cell_answers.transform
    at = cell_answers.at
    # columns
    scores = ranking.scores
    column_noise = column_noise.column_noise
    recommend = recommendations.recommend
    # groups of rows, of columns and of tokens
    num_groups = tables.num_groups
    groups = row_groups.groups
    group_probabilities = group_probabilities.group_probabilities
    top_entries = side_groups.top_entries
    preferences = side_groups.preferences
    group_weights = side_groups.group_weights
    # topics and documents
    num_topics = tables.num_topics
    document_completion = topics.document_completion
    topics = topic_table.topics
    similar_documents = document_topics.similar_documents
    document_topics = document_topics.document_topics
    topics_over = topics_over.topics_over
    topic_coherence = coherence.topic_coherence
    topic_diversity = coherence.topic_diversity
    document_log_likelihood = left_to_right.document_log_likelihood
