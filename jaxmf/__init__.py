"""jaxmf: Bayesian nonparametric matrix factorisation in JAX.

Describe what is believed as a model, fit it to data, ask the posterior:

    import jaxmf as mf
    post = mf.fit(mf.LinearGaussianIBP(alpha=1.0, noise_scale=0.5), X)
    post.summary()

Open `jaxmf.types` for the vocabulary, `jaxmf.api` for the verbs, `jaxmf.posterior` for what comes
back. ``jaxmf.datasets``, ``jaxmf.testing``, ``jaxmf.sklearn``, ``jaxmf.diagnostics`` and
``jaxmf.registry`` are imported when they are first named.
"""

import importlib as _importlib
from typing import Any as _Any

from jaxmf.api import fit as fit
from jaxmf.api import load as load
from jaxmf.api import particle_filter as particle_filter
from jaxmf.api import sample as sample
from jaxmf.api import variational as variational
from jaxmf.blocks import Block as Block
from jaxmf.blocks import Network as Network
from jaxmf.blocks.learning import contrastive_divergence as contrastive_divergence
from jaxmf.blocks.learning import match_moments_by_sampling as match_moments_by_sampling
from jaxmf.data import CellFeatures as CellFeatures
from jaxmf.data import Dense as Dense
from jaxmf.data import Entries as Entries
from jaxmf.data import Features as Features
from jaxmf.data import SparseBinary as SparseBinary
from jaxmf.data import SparseSeries as SparseSeries
from jaxmf.data import Tokens as Tokens
from jaxmf.likelihoods.families.categories import BetaBinary as BetaBinary
from jaxmf.likelihoods.families.categories import DirichletMultinomial as DirichletMultinomial
from jaxmf.likelihoods.families.multivariate_normal import (
    NormalInverseWishart as NormalInverseWishart,
)
from jaxmf.likelihoods.families.normal import NormalInverseGamma as NormalInverseGamma
from jaxmf.likelihoods.families.poisson import GammaPoisson as GammaPoisson
from jaxmf.likelihoods.ordered import Ordinal as Ordinal
from jaxmf.likelihoods.ordered import Probit as Probit
from jaxmf.models.binary_mf import BinaryMF as BinaryMF
from jaxmf.models.bpmf import BPMF as BPMF
from jaxmf.models.feature_model import FeatureModel as FeatureModel
from jaxmf.models.linear_gaussian import LinearGaussianIBP as LinearGaussianIBP
from jaxmf.models.mixtures import DPMixture as DPMixture
from jaxmf.models.mixtures import FlexibleMixture as FlexibleMixture
from jaxmf.models.mixtures import MixtureOfGaussians as MixtureOfGaussians
from jaxmf.models.multiway import MultiHDP as MultiHDP
from jaxmf.models.multiway import MultiLDA as MultiLDA
from jaxmf.models.noisy_or import NoisyOrIBP as NoisyOrIBP
from jaxmf.models.ratings import URP as URP
from jaxmf.models.ratings import BiHDP as BiHDP
from jaxmf.models.ratings import BiLDA as BiLDA
from jaxmf.models.sparse_binary_mf import SparseBinaryMF as SparseBinaryMF
from jaxmf.models.sparse_binary_series import SparseBinarySeries as SparseBinarySeries
from jaxmf.models.topics import HDPLDA as HDPLDA
from jaxmf.models.topics import HFP as HFP
from jaxmf.models.topics import LDA as LDA
from jaxmf.models.topics import PAM as PAM
from jaxmf.models.topics import DirichletCompoundMultinomial as DirichletCompoundMultinomial
from jaxmf.posterior import Posterior as Posterior
from jaxmf.posterior import Prediction as Prediction
from jaxmf.priors.features import BetaBernoulli as BetaBernoulli
from jaxmf.priors.features import IndianBuffet as IndianBuffet
from jaxmf.priors.flexible import FlexiblePrior as FlexiblePrior
from jaxmf.priors.hdp import HDP as HDP
from jaxmf.priors.moments import match_moments as match_moments
from jaxmf.priors.partitions import Dirichlet as Dirichlet
from jaxmf.priors.partitions import DirichletProcess as DirichletProcess
from jaxmf.priors.partitions import PitmanYor as PitmanYor
from jaxmf.variational_bayes.likelihood import Gaussian as Gaussian
from jaxmf.variational_bayes.likelihood import Sigmoid as Sigmoid
from jaxmf.variational_bayes.zeros import Exact as Exact
from jaxmf.variational_bayes.zeros import RowSample as RowSample
from jaxmf.variational_bayes.zeros import SharedSample as SharedSample

_MODULES = (
    "data",
    "datasets",
    "diagnostics",
    "engine",
    "models",
    "plot",
    "priors",
    "registry",
    "report",
    "samplers",
    "sklearn",
    "testing",
    "types",
)


def __getattr__(name: str) -> _Any:
    if name == "__version__":
        from importlib import metadata

        return metadata.version("jaxmf")
    if name in _MODULES:
        return _importlib.import_module(f"jaxmf.{name}")
    raise AttributeError(f"module 'jaxmf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, "__version__"})
