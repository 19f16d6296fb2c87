"""Mixtures of rows: each row belongs to one group."""

from jaxmf.models.mixtures.model import DPMixture as DPMixture
from jaxmf.models.mixtures.model import FlexibleMixture as FlexibleMixture
from jaxmf.models.mixtures.model import MixtureOfGaussians as MixtureOfGaussians
