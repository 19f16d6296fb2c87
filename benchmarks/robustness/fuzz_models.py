"""The models that `fuzz` tries: default priors, odd data, few steps, and what answers may be.

A model has two sizes of data, each compiled once: a small one, and the smallest there is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import jaxmf as mf
from benchmarks.robustness import odd_data
from benchmarks.robustness.odd_data import Generator
from jaxmf.registry import examples

Maker = Callable[[Generator, bool], Any]
_SAMPLE = {"num_warmup": 3, "num_samples": 3, "num_chains": 1}
_FILTER = {"num_particles": 8}
_FIT = {"num_epochs": 3}


@dataclass(frozen=True)
class Subject:
    """A model and its data.

    Args:
        model: the model of a data set; the same one for all data of a size.
        data: odd data; the flag asks for the smallest size.
        verb: sample, particle_filter or variational.
        cells: what a predicted cell may be: "real", "binary", "counts" or "ratings".
        options: of the verb.
    """

    model: Callable[[Any], Any]
    data: Maker
    verb: str = "sample"
    cells: str = "real"
    options: dict[str, Any] = field(default_factory=lambda: dict(_SAMPLE))


def real(generator: Generator, smallest: bool) -> Any:
    """Real numbers, some missing."""
    values = odd_data.real_matrix(generator, (2, 1) if smallest else (12, 4))
    return mf.Dense.from_array(odd_data.with_missing(generator, values))


def points(generator: Generator, smallest: bool) -> Any:
    """Real numbers, none missing."""
    return mf.Dense.from_array(odd_data.real_matrix(generator, (1, 1) if smallest else (12, 2)))


def binary(generator: Generator, smallest: bool) -> Any:
    """Zeros and ones, some missing."""
    values = odd_data.binary_matrix(generator, (2, 1) if smallest else (12, 5))
    return mf.Dense.from_array(odd_data.with_missing(generator, values))


def counts(generator: Generator, smallest: bool) -> Any:
    """Counts, some missing."""
    values = odd_data.count_matrix(generator, (2, 1) if smallest else (10, 5))
    return mf.Dense.from_array(odd_data.with_missing(generator, values))


def documents(generator: Generator, smallest: bool) -> Any:
    """Forty words of six documents, or two words of three: some documents may be empty."""
    sizes = {"document": 3, "word": 2} if smallest else {"document": 6, "word": 8}
    return _tokens(generator, sizes, 2 if smallest else 40)


def tables(generator: Generator, smallest: bool) -> Any:
    """Forty tokens with author, year and word, or two."""
    sizes = {"author": 2, "year": 1, "word": 2} if smallest else {"author": 4, "year": 3, "word": 5}
    return _tokens(generator, sizes, 2 if smallest else 40)


def _tokens(generator: Generator, sizes: dict[str, int], number: int) -> Any:
    columns = {name: odd_data.categories(generator, k, number) for name, k in sizes.items()}
    return mf.Tokens(columns, sizes)


def _entries(values: Callable[[Generator, int], np.ndarray]) -> Maker:
    def make(generator: Generator, smallest: bool) -> Any:
        shape, number = ((2, 2), 1) if smallest else ((8, 6), 30)
        rows, columns = odd_data.cells(generator, shape, number)
        return mf.Entries(rows, columns, values(generator, number), shape)

    return make


ratings = _entries(odd_data.ratings)
stars = _entries(lambda generator, number: odd_data.real_matrix(generator, (number, 1))[:, 0])
likes = _entries(lambda generator, number: odd_data.binary_matrix(generator, (number, 1))[:, 0])


def baskets(generator: Generator, smallest: bool) -> Any:
    """Twenty-four ones of 96 cells, or one of four."""
    shape, number = ((2, 2), 1) if smallest else ((12, 8), 24)
    return mf.SparseBinary(*odd_data.cells(generator, shape, number), shape)


def series(generator: Generator, smallest: bool) -> Any:
    """Three times of a matrix, thirty ones in all, at odd distances; or two times with one each."""
    times, shape, number = (2, (2, 2), 1) if smallest else (3, (10, 6), 10)
    when = np.sort(generator.normal(size=times)) * 10 ** generator.uniform(-3, 3)
    found = [odd_data.cells(generator, shape, number) for _ in range(times)]
    rows, columns = (np.concatenate(part) for part in zip(*found, strict=True))
    steps = np.repeat(np.arange(times), number)
    return mf.SparseSeries(rows, steps, columns, when, (shape[0], times, shape[1]))


def _rated_features(data: Any) -> Any:
    """Ratings whose users and items have side information, one number of it far from one."""
    generator = np.random.default_rng(0)
    rows, columns = (generator.normal(size=(n, 2)) for n in data.shape)
    rows[:, 0] = 1e4 + 1e3 * rows[:, 0]
    return mf.BPMF(2, row_features=mf.Features(rows), column_features=mf.Features(columns))


def _flexible(data: Any) -> Any:
    prior = mf.FlexiblePrior.parametric(-1.0, 1.2, 0.5, num_items=data.shape[0])
    return mf.FlexibleMixture(prior)


def _flexible_topics(data: Any) -> Any:
    number = data.num_tokens
    # one word more than the longest document, for the topics of a new one
    table_prior = mf.FlexiblePrior.parametric(-1.0, 1.2, 0.5, num_items=number + 1)
    return mf.HFP(table_prior, mf.FlexiblePrior.dirichlet_process(1.0, num_items=number))


def _network(data: Any) -> Any:
    return mf.Network(
        topic=mf.Block(mf.HDP(1.0, 1.0), by="document"),
        word=mf.Block(mf.DirichletMultinomial(data.sizes["word"], 0.5), by="topic", observed=True),
    )


def _feature_model(data: Any) -> Any:
    import dataclasses

    import numpyro.distributions as dist

    model, _ = examples.feature_model()
    prior = dist.Normal(0.0, 1.0).expand([data.shape[1]]).to_event(1)
    return dataclasses.replace(model, feature_prior=prior)


def _always(make: Callable[[], Any]) -> Callable[[Any], Any]:
    return lambda data: make()


def _fixed(data: Any) -> Any:
    return mf.LinearGaussianIBP(alpha=1.0, noise_scale=0.5, feature_scale=1.0)


SUBJECTS: dict[str, Subject] = {
    "mixture-of-gaussians": Subject(lambda data: mf.MixtureOfGaussians(2), points),
    "dp-mixture": Subject(_always(mf.DPMixture), points),
    "flexible-mixture": Subject(_flexible, points),
    "dcm": Subject(_always(mf.DirichletCompoundMultinomial), documents),
    "lda": Subject(lambda data: mf.LDA(2), documents),
    "hdp": Subject(_always(mf.HDPLDA), documents),
    "hfp": Subject(_flexible_topics, documents),
    "pam": Subject(lambda data: mf.PAM((2, 3)), documents),
    "network": Subject(_network, documents),
    "multi-lda": Subject(lambda data: mf.MultiLDA({"author": 2, "year": 2}, "word"), tables),
    "multi-hdp": Subject(lambda data: mf.MultiHDP(("author", "year"), "word"), tables),
    "bi-lda": Subject(lambda data: mf.BiLDA(2, 2), ratings, cells="ratings"),
    "bi-hdp": Subject(_always(mf.BiHDP), ratings, cells="ratings"),
    "urp": Subject(lambda data: mf.URP(2), ratings, cells="ratings"),
    "bpmf": Subject(lambda data: mf.BPMF(2), stars),
    "bpmf-probit": Subject(lambda d: mf.BPMF(2, likelihood=mf.Probit()), likes, cells="binary"),
    "bpmf-ordinal": Subject(
        lambda data: mf.BPMF(2, likelihood=mf.Ordinal()), ratings, cells="ratings"
    ),
    "bpmf-features": Subject(_rated_features, stars),
    "sparse-binary": Subject(
        lambda data: mf.SparseBinaryMF(2, likelihood=mf.Bernoulli()),
        baskets, "variational", "binary", _FIT,
    ),
    "sparse-binary-gaussian": Subject(
        # whose cells are normal, so that predictions are; the probabilities of its scores are not
        lambda data: mf.SparseBinaryMF(2, likelihood=mf.Gaussian()),
        baskets, "variational", "real", _FIT,
    ),
    "sparse-binary-series": Subject(
        lambda data: mf.SparseBinarySeries(2), series, "variational", "binary", _FIT
    ),
    "noisy-or-ibp": Subject(_always(mf.NoisyOrIBP), binary, cells="binary"),
    "noisy-or-ibp-filter": Subject(
        _always(mf.NoisyOrIBP), binary, "particle_filter", "binary", _FILTER
    ),
    "linear-gaussian-ibp": Subject(_always(mf.LinearGaussianIBP), real),
    "linear-gaussian-ibp-bias": Subject(lambda data: mf.LinearGaussianIBP(bias=True), real),
    "linear-gaussian-ibp-fixed": Subject(_fixed, real),
    "linear-gaussian-ibp-filter": Subject(
        _always(mf.LinearGaussianIBP), real, "particle_filter", "real", _FILTER
    ),
    "feature-model": Subject(_feature_model, real),
    "feature-model-filter": Subject(_feature_model, real, "particle_filter", "real", _FILTER),
    "binary-mf": Subject(_always(mf.BinaryMF), real),
    "binary-mf-logistic": Subject(
        lambda data: mf.BinaryMF(likelihood=mf.Bernoulli()), binary, cells="binary"
    ),
    "binary-mf-poisson": Subject(
        lambda data: mf.BinaryMF(likelihood=mf.Poisson()), counts, cells="counts"
    ),
}  # fmt: skip
