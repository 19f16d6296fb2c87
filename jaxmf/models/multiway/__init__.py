"""Observed values of several modalities, such as authors, years and words."""

from jaxmf.models.multiway.multiway_models import MultiHDP as MultiHDP
from jaxmf.models.multiway.multiway_models import MultiLDA as MultiLDA
