"""Tiny problems, one for each model: read by the compliance tests, the docs and the report.

Those of data alone are shared by several models.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jaxmf.blocks import Block, Network
from jaxmf.data import Dense, Entries, SparseBinary, SparseSeries, Tokens
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.likelihoods.families.categories import DirichletMultinomial
from jaxmf.model import Model
from jaxmf.models.binary_mf import BinaryMF
from jaxmf.models.bpmf import BPMF
from jaxmf.models.feature_model import FeatureModel
from jaxmf.models.linear_gaussian import LinearGaussianIBP
from jaxmf.models.mixtures import DPMixture, FlexibleMixture, MixtureOfGaussians
from jaxmf.models.multiway import MultiHDP, MultiLDA
from jaxmf.models.noisy_or import NoisyOrIBP
from jaxmf.models.ratings import URP, BiHDP, BiLDA
from jaxmf.models.sparse_binary_mf import SparseBinaryMF
from jaxmf.models.sparse_binary_series import SparseBinarySeries
from jaxmf.models.topics import HDPLDA, HFP, LDA, PAM, DirichletCompoundMultinomial
from jaxmf.priors.flexible import FlexiblePrior
from jaxmf.priors.hdp import HDP
from jaxmf.variational_bayes import SharedSample


def linear_gaussian_ibp() -> tuple[Model, object]:
    """Rows of real numbers that features add up to, three cells missing."""
    generator = np.random.default_rng(0)
    features = generator.normal(size=(2, 5))
    values = (generator.random((12, 2)) < 0.5) @ features + 0.3 * generator.normal(size=(12, 5))
    values[[1, 4, 7], [0, 2, 4]] = np.nan
    model = LinearGaussianIBP(alpha=1.0, noise_scale=0.3, feature_scale=1.0)
    return model, Dense.from_array(values)


def noisy_or_ibp() -> tuple[Model, object]:
    """Zeros and ones that causes turn on, three cells missing."""
    generator = np.random.default_rng(0)
    eta = (generator.random((12, 2)) < 0.5) @ (generator.random((2, 5)) < 0.4)
    values = 1.0 * (generator.random((12, 5)) < 1 - 0.95 * 0.2**eta)
    values[[1, 4, 7], [0, 2, 4]] = np.nan
    model = NoisyOrIBP(alpha=1.0, cause_probability=0.4, efficacy=0.8, leak=0.05)
    return model, Dense.from_array(values)


def binary_mf() -> tuple[Model, object]:
    """Features of rows and of columns with weights between them, three cells missing."""
    from jaxmf.priors.features import IndianBuffet

    generator = np.random.default_rng(1)
    rows, columns = generator.random((12, 2)) < 0.5, generator.random((6, 2)) < 0.5
    weights = generator.normal(size=(2, 2))
    values = rows @ weights @ columns.T + 0.3 * generator.normal(size=(12, 6))
    values[[1, 4, 7], [0, 2, 4]] = np.nan
    prior = IndianBuffet(1.0)
    model = BinaryMF(
        row_prior=prior, column_prior=prior, likelihood=Gaussian(0.3), weight_scale=1.0
    )
    return model, Dense.from_array(values)


def feature_model() -> tuple[Model, object]:
    """The data of `linear_gaussian_ibp` with a likelihood object."""
    import numpyro.distributions as dist

    from jaxmf.priors.features import IndianBuffet

    _, data = linear_gaussian_ibp()
    model = FeatureModel(
        feature_prior=dist.Normal(0.0, 1.0).expand([5]).to_event(1),
        likelihood=Gaussian(0.5),
        prior=IndianBuffet(1.0),
    )
    return model, data


def sparse_binary() -> tuple[Model, object]:
    """Ones where two factors agree."""
    generator = np.random.default_rng(0)
    rows, columns = generator.normal(size=(12, 2)), generator.normal(size=(8, 2))
    ones = rows @ columns.T + 0.3 * generator.normal(size=(12, 8)) > 0.8
    model = SparseBinaryMF(num_factors=2, zeros=SharedSample(5))
    rows_of_ones, columns_of_ones = np.nonzero(ones)
    return model, SparseBinary(rows_of_ones, columns_of_ones, ones.shape)


def corpus() -> Tokens:
    """Six documents of eight words."""
    generator = np.random.default_rng(0)
    shares = generator.dirichlet([0.5, 0.5], size=6)
    words = generator.dirichlet(np.full(8, 0.3), size=2)
    return Tokens.from_counts(generator.poisson(12 * shares @ words))


def rows() -> Dense:
    """Twelve points of two groups."""
    generator = np.random.default_rng(0)
    return Dense.from_array(generator.normal(size=(12, 2)) + 3 * (generator.random((12, 1)) < 0.5))


def ratings() -> Entries:
    """Thirty of 48 cells with 1 to 5."""
    generator = np.random.default_rng(0)
    rows, columns = np.divmod(generator.choice(48, 30, replace=False), 6)
    return Entries(rows, columns, generator.integers(1, 6, 30), (8, 6))


def stars() -> object:
    """Thirty of 48 cells with real numbers."""
    generator = np.random.default_rng(0)
    rows, columns = np.divmod(generator.choice(48, 30, replace=False), 6)
    means = (generator.normal(size=(8, 2)) @ generator.normal(size=(2, 6)))[rows, columns]
    return Entries(rows, columns, 3 + means + 0.3 * generator.normal(size=30), (8, 6))


def written() -> Tokens:
    """Forty tokens with author, year and word."""
    generator = np.random.default_rng(0)
    columns = {"author": 4, "year": 3, "word": 5}
    return Tokens({name: generator.integers(0, n, 40) for name, n in columns.items()}, columns)


def dcm() -> tuple[Model, object]:
    """The corpus with a learned concentration."""
    import numpyro.distributions as dist

    return DirichletCompoundMultinomial(dist.Gamma(1.0, 1.0)), corpus()


def flexible_mixture() -> tuple[Model, object]:
    """The points, and one more that is not observed."""
    prior = FlexiblePrior.parametric(-1.0, 1.2, 0.5, num_items=14, num_unobserved=1)
    return FlexibleMixture(prior), rows()


def hfp() -> tuple[Model, object]:
    """The corpus with a flexible prior of tables."""
    documents = corpus()
    tables = FlexiblePrior.parametric(-1.0, 1.2, 0.5, num_items=documents.num_tokens)
    topics = FlexiblePrior.dirichlet_process(1.0, num_items=documents.num_tokens)
    return HFP(tables, topics, 0.1), documents


def network() -> tuple[Model, object]:
    """The corpus with a network written out."""
    model = Network(
        topic=Block(HDP(1.0, 1.0), by="document"),
        word=Block(DirichletMultinomial(8, 0.5), by="topic", observed=True),
    )
    return model, corpus()


def sparse_binary_series() -> tuple[Model, object]:
    """Three times of a matrix whose rows go from one direction to another."""
    generator = np.random.default_rng(0)
    times = np.array([0.0, 1.0, 2.5])
    # every row goes from one direction to another
    first, last = generator.normal(size=(2, 10, 2))
    share = (times / times[-1])[:, None, None]
    rows, columns = (1 - share) * first + share * last, generator.normal(size=(6, 2))
    ones = rows @ columns.T + 0.3 * generator.normal(size=(3, 10, 6)) > 0.8
    model = SparseBinarySeries(num_factors=2, zeros=SharedSample(4))
    return model, SparseSeries.from_matrices(list(1 * ones), times)


EXAMPLES: dict[str, Callable[[], tuple[Model, object]]] = {
    "linear-gaussian-ibp": linear_gaussian_ibp,
    "noisy-or-ibp": noisy_or_ibp,
    "binary-mf": binary_mf,
    "feature-model": feature_model,
    "sparse-binary": sparse_binary,
    "sparse-binary-series": sparse_binary_series,
    "dcm": dcm,
    "flexible-mixture": flexible_mixture,
    "hfp": hfp,
    "network": network,
    "mixture-of-gaussians": lambda: (MixtureOfGaussians(2, concentration=1.0), rows()),
    "dp-mixture": lambda: (DPMixture(concentration=1.0), rows()),
    "lda": lambda: (LDA(2, topic_concentration=0.5), corpus()),
    "hdp": lambda: (HDPLDA(topic_concentration=1.0), corpus()),
    "pam": lambda: (PAM((2, 3), level_concentration=0.5), corpus()),
    "bi-lda": lambda: (BiLDA(2, 2, user_concentration=0.5), ratings()),
    "bi-hdp": lambda: (BiHDP(), ratings()),
    "urp": lambda: (URP(2, user_concentration=0.5), ratings()),
    "bpmf": lambda: (BPMF(2, offset=3.0), stars()),
    "multi-lda": lambda: (MultiLDA({"author": 2, "year": 2}, "word", 0.5), written()),
    "multi-hdp": lambda: (MultiHDP(("author", "year"), "word", 1.0), written()),
}
"""A model and data by the name of its entry in the registry."""
