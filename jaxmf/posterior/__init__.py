"""What may be asked of draws. Open ``answers.py`` first: the base class of `jaxmf.Posterior`.

Its methods are in ``draws.py``, ``summaries.py``, ``cell_answers.py``, ``group_answers.py``,
``topic_answers.py`` and ``column_answers.py``; what they compute is in the modules: ``tables.py``
of summaries and features,
``cells.py`` of predicted and held-out cells (``prediction.py`` mixes them over draws,
``categories.py`` has those of finitely many values, ``kept_cells.py`` those named before a run),
``ranking.py`` of the best columns of a row, ``topics.py``, ``row_groups.py`` and ``side_groups.py``
of groups, ``topic_draws.py``, ``topic_table.py``, ``document_topics.py`` and ``coherence.py`` of
topics matched across draws, ``transposed.py`` of new columns.
``records.py`` has what they come in, ``assemble.py`` takes them from a finished run,
``extension.py`` continues one and ``saving.py`` writes folders.
"""

from jaxmf.posterior.prediction import Prediction as Prediction
from jaxmf.posterior.records import DrawFeatures as DrawFeatures
from jaxmf.posterior.records import Meta as Meta
from jaxmf.posterior.records import NumFeatures as NumFeatures
