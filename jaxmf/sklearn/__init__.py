"""scikit-learn estimators over the public API: thin, for pipelines and grid searches.

Each fits one model; ``posterior_`` of a fitted estimator has what an estimator cannot say:
uncertainty, predictions, pictures. Open `base.py` for what they share.
"""

from jaxmf.sklearn.biclusters import BiclusterMF as BiclusterMF
from jaxmf.sklearn.imputer import FactorImputer as FactorImputer
from jaxmf.sklearn.linear_gaussian import (
    LinearGaussianIBPTransformer as LinearGaussianIBPTransformer,
)
from jaxmf.sklearn.mixtures import MixtureClusterer as MixtureClusterer
from jaxmf.sklearn.noisy_or import NoisyOrTransformer as NoisyOrTransformer
from jaxmf.sklearn.ratings import RatingRecommender as RatingRecommender
from jaxmf.sklearn.sparse_binary import SparseBinaryRecommender as SparseBinaryRecommender
from jaxmf.sklearn.topics import TopicModel as TopicModel
