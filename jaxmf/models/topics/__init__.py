"""Topic models: words of documents, topics shared by all of them."""

from jaxmf.models.topics.flexible import HFP as HFP
from jaxmf.models.topics.topic_models import HDPLDA as HDPLDA
from jaxmf.models.topics.topic_models import LDA as LDA
from jaxmf.models.topics.topic_models import PAM as PAM
from jaxmf.models.topics.topic_models import (
    DirichletCompoundMultinomial as DirichletCompoundMultinomial,
)
