"""The public names of jaxmf and where each stands; `__init__.py` reads this file."""

from . import data as data
from . import datasets as datasets
from . import diagnostics as diagnostics
from . import engine as engine
from . import model as model
from . import models as models
from . import plot as plot
from . import priors as priors
from . import registry as registry
from . import report as report
from . import samplers as samplers
from . import sklearn as sklearn
from . import testing as testing
from . import types as types
from .annealed import smc as smc
from .api import fit as fit
from .api import load as load
from .api import particle_filter as particle_filter
from .api import sample as sample
from .api import variational as variational
from .blocks import Block as Block
from .blocks import Network as Network
from .blocks.learning import contrastive_divergence as contrastive_divergence
from .blocks.learning import match_moments_by_sampling as match_moments_by_sampling
from .blocks.network_model import NetworkModel as NetworkModel
from .data import CellFeatures as CellFeatures
from .data import Dense as Dense
from .data import Entries as Entries
from .data import Features as Features
from .data import Positions as Positions
from .data import SparseBinary as SparseBinary
from .data import SparseSeries as SparseSeries
from .data import Tokens as Tokens
from .engine.disk_cache import use_compilation_cache as use_compilation_cache
from .likelihoods.cells.bernoulli import Bernoulli as Bernoulli
from .likelihoods.cells.gaussian import Gaussian as Gaussian
from .likelihoods.cells.likelihood import Likelihood as Likelihood
from .likelihoods.cells.negative_binomial import NegativeBinomial as NegativeBinomial
from .likelihoods.cells.noisy_or import NoisyOr as NoisyOr
from .likelihoods.cells.ordinal import Ordinal as Ordinal
from .likelihoods.cells.poisson import Poisson as Poisson
from .likelihoods.cells.probit import Probit as Probit
from .likelihoods.cells.student_t import StudentT as StudentT
from .likelihoods.families.additive import AdditiveFamily as AdditiveFamily
from .likelihoods.families.categories import BetaBinary as BetaBinary
from .likelihoods.families.categories import DirichletMultinomial as DirichletMultinomial
from .likelihoods.families.columns import IndependentColumns as IndependentColumns
from .likelihoods.families.family import Family as Family
from .likelihoods.families.mixed_columns import MixedColumns as MixedColumns
from .likelihoods.families.multivariate_normal import (
    NormalInverseWishart as NormalInverseWishart,
)
from .likelihoods.families.normal import NormalInverseGamma as NormalInverseGamma
from .likelihoods.families.poisson import GammaPoisson as GammaPoisson
from .model import Model as Model
from .models.binary_mf import BinaryMF as BinaryMF
from .models.bpmf import BPMF as BPMF
from .models.feature_model import FeatureModel as FeatureModel
from .models.linear_gaussian import LinearGaussianIBP as LinearGaussianIBP
from .models.mixtures import DPMixture as DPMixture
from .models.mixtures import FlexibleMixture as FlexibleMixture
from .models.mixtures import MixtureOfGaussians as MixtureOfGaussians
from .models.multiway import MultiHDP as MultiHDP
from .models.multiway import MultiLDA as MultiLDA
from .models.noisy_or import NoisyOrIBP as NoisyOrIBP
from .models.ratings import URP as URP
from .models.ratings import BiHDP as BiHDP
from .models.ratings import BiLDA as BiLDA
from .models.sparse_binary_mf import SparseBinaryMF as SparseBinaryMF
from .models.sparse_binary_series import SparseBinarySeries as SparseBinarySeries
from .models.topics import HDPLDA as HDPLDA
from .models.topics import HFP as HFP
from .models.topics import LDA as LDA
from .models.topics import PAM as PAM
from .models.topics import DirichletCompoundMultinomial as DirichletCompoundMultinomial
from .posterior import Prediction as Prediction
from .posterior.alarms import RunWarning as RunWarning
from .priors.features import BetaBernoulli as BetaBernoulli
from .priors.features import IndianBuffet as IndianBuffet
from .priors.flexible import FlexiblePrior as FlexiblePrior
from .priors.hdp import HDP as HDP
from .priors.moments import match_moments as match_moments
from .priors.occurring import OccurringWords as OccurringWords
from .priors.partition_prior import PartitionPrior as PartitionPrior
from .priors.partitions import Dirichlet as Dirichlet
from .priors.partitions import DirichletProcess as DirichletProcess
from .priors.partitions import PitmanYor as PitmanYor
from .priors.scales import RootInverseGamma as RootInverseGamma
from .pure_functions import free_energy as free_energy
from .pure_functions import kernel as kernel
from .registry import register as register
from .results import Posterior as Posterior
from .results.comparison import compare as compare
from .testing.calibration import (
    simulation_based_calibration as simulation_based_calibration,
)
from .variational_bayes.zeros import Exact as Exact
from .variational_bayes.zeros import RowSample as RowSample
from .variational_bayes.zeros import SharedSample as SharedSample

__version__: str
