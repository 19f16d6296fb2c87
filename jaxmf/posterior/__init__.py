"""What may be asked of draws. Open ``answers.py`` first: the base class of `jaxmf.Posterior`.

Its methods are functions of the other modules, by what is asked about:

    summaries, features    tables, certain_features, cooccurrence, biclusters
    convergence            quantities, agreement, topic_agreement, leave_one_out,
                           left_out_losses, named_losses, particle_paths, *_alarms
    cells                  cell_answers, cells, prediction (mixtures over draws), categories
                           (finitely many values), kept_cells (named before a run), transposed
    columns                column_noise, ranking, recommendations, next_words
    groups and topics      row_groups, side_groups, topics, topic_draws, topic_table,
                           document_topics, coherence
    likelihoods            pointwise, pareto, left_out_tokens, left_to_right

``answerable.py`` says which of these a posterior answers, ``records.py`` has what they come in,
``assemble.py`` takes them from a finished run, ``extension.py`` continues one and ``saving.py``
writes folders.
"""

from jaxmf.posterior.prediction import Prediction as Prediction
from jaxmf.posterior.records import DrawFeatures as DrawFeatures
from jaxmf.posterior.records import Meta as Meta
from jaxmf.posterior.records import NumFeatures as NumFeatures
