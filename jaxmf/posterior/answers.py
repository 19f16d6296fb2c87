"""All questions about draws, in one class: what pictures and reports are made from."""

from jaxmf.posterior.cell_answers import CellAnswers
from jaxmf.posterior.column_answers import ColumnAnswers
from jaxmf.posterior.group_answers import GroupAnswers
from jaxmf.posterior.summaries import Summaries
from jaxmf.posterior.topic_answers import TopicAnswers


class Answers(Summaries, CellAnswers, GroupAnswers, TopicAnswers, ColumnAnswers):
    """Draws, with the model and the data they belong to, and what may be asked of them.

    `jaxmf.Posterior` is this with pictures, reports, files and further draws.
    """
