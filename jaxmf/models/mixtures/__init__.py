"""Mixtures of rows: each row belongs to one group."""

from jaxmf.models.mixtures.mixture_models import DPMixture as DPMixture
from jaxmf.models.mixtures.mixture_models import FlexibleMixture as FlexibleMixture
from jaxmf.models.mixtures.mixture_models import MixtureOfGaussians as MixtureOfGaussians
