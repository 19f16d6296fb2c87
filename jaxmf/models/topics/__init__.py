"""Topic models: words of documents, topics shared by all of them."""

from jaxmf.models.topics.flexible import HFP as HFP
from jaxmf.models.topics.model import HDPLDA as HDPLDA
from jaxmf.models.topics.model import LDA as LDA
from jaxmf.models.topics.model import PAM as PAM
from jaxmf.models.topics.model import DirichletCompoundMultinomial as DirichletCompoundMultinomial
