"""All questions about draws: what pictures and reports are made from.

Each is a function of a posterior in the module that answers it; `Answers` has them as methods.
Functions end in `_of` here, as in the class their names are those of the methods.
"""

from jaxmf.posterior import (
    agreement,
    cell_answers,
    cells,
    coherence,
    left_to_right,
    particle_paths,
    pointwise,
    ranking,
    recommendations,
    row_groups,
    side_groups,
    tables,
)
from jaxmf.posterior.alarms import alarms as alarms_of
from jaxmf.posterior.biclusters import biclusters as biclusters_of
from jaxmf.posterior.certain_features import certain_features as certain_features_of
from jaxmf.posterior.column_noise import column_noise as column_noise_of
from jaxmf.posterior.cooccurrence import cooccurrence as cooccurrence_of
from jaxmf.posterior.document_topics import document_topics as document_topics_of
from jaxmf.posterior.document_topics import similar_documents as similar_documents_of
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.factors import factors as factors_of
from jaxmf.posterior.leave_one_out import compare as leave_one_out_of
from jaxmf.posterior.quantities import quantities as quantities_of
from jaxmf.posterior.quantities import slow_quantities as slow_quantities_of
from jaxmf.posterior.topic_table import topics as topics_of
from jaxmf.posterior.topics import document_completion as document_completion_of
from jaxmf.posterior.topics_over import topics_over as topics_over_of


class Answers(Draws):
    """Draws, with the model and the data they belong to, and what may be asked of them.

    `jaxmf.Posterior` is this with pictures, reports, files and further draws.
    """

    # all draws together
    summary = tables.summary
    facts = tables.facts
    log_likelihood = pointwise.log_likelihood
    # whether the run has settled
    quantities = quantities_of
    slow_quantities = property(slow_quantities_of)
    cell_agreement = agreement.cell_agreement
    leave_one_out = leave_one_out_of
    path_degeneracy = particle_paths.path_degeneracy
    alarms = alarms_of
    # features
    num_features = tables.num_features
    features = tables.features
    certain_features = certain_features_of
    cooccurrence = cooccurrence_of
    factors = factors_of
    biclusters = biclusters_of
    # cells and rows
    predict = cell_answers.predict
    probabilities = cells.probabilities
    held_out_log_likelihood = cells.held_out_log_likelihood
    reconstruction = cells.reconstruction
    transform = cell_answers.transform
    at = cell_answers.at
    # columns
    scores = ranking.scores
    column_noise = column_noise_of
    recommend = recommendations.recommend
    # groups of rows, of columns and of tokens
    num_groups = tables.num_groups
    groups = row_groups.groups
    top_entries = side_groups.top_entries
    preferences = side_groups.preferences
    group_weights = side_groups.group_weights
    # topics and documents
    num_topics = tables.num_topics
    topics = topics_of
    document_topics = document_topics_of
    similar_documents = similar_documents_of
    topics_over = topics_over_of
    topic_coherence = coherence.topic_coherence
    topic_diversity = coherence.topic_diversity
    document_completion = document_completion_of
    document_log_likelihood = left_to_right.document_log_likelihood
