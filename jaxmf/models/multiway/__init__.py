"""Observed values of several modalities, such as authors, years and words."""

from jaxmf.models.multiway.model import MultiHDP as MultiHDP
from jaxmf.models.multiway.model import MultiLDA as MultiLDA
