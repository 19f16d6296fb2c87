"""The hot paths, by public names alone: name -> what makes the function that is timed.

Each is a call as users make it, of a tenth of a second or more on one core, on made-up data.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import jaxmf as mf

Run = Callable[[], Any]


def _sampled(model: Any, data: Any, num_steps: int, **options: Any) -> Run:
    """A chain of so many steps."""
    run = {"num_warmup": 0, "num_samples": num_steps, "num_chains": 1, "seed": 0}
    return partial(mf.sample, model, data, progress=False, **run, **options)


def _matrix(num_rows: int, num_columns: int, num_features: int = 6) -> np.ndarray:
    """Binary features and noise of .5: (N, D)."""
    generator = np.random.default_rng(0)
    z = generator.random((num_rows, num_features)) < 0.5
    y = generator.normal(size=(num_features, num_columns))
    return z @ y + 0.5 * generator.normal(size=(num_rows, num_columns))


def _texts() -> mf.Tokens:
    """300 documents of a hundred words about twenty topics."""
    generator = np.random.default_rng(0)
    topics = generator.dirichlet(np.full(1_000, 0.05), 20)
    shares = generator.dirichlet(np.full(20, 0.2), 300)
    words = [generator.choice(1_000, 100, p=shares_of @ topics) for shares_of in shares]
    columns = {"document": np.repeat(np.arange(300), 100), "word": np.concatenate(words)}
    return mf.Tokens(columns, {"document": 300, "word": 1_000})


def _ratings() -> mf.Entries:
    generator = np.random.default_rng(0)
    rows, columns = np.divmod(generator.choice(400 * 300, 12_000, replace=False), 300)
    values = np.sum(_matrix(400, 4)[rows] * _matrix(300, 4)[columns], axis=1)
    return mf.Entries(rows, columns, values, (400, 300))


def _linear_gaussian() -> mf.LinearGaussianIBP:
    return mf.LinearGaussianIBP(alpha=1.0, noise_scale=0.5, feature_scale=1.0)


def _feature_model() -> Run:
    import numpyro.distributions as dist

    features = dist.Gamma(1.0, 1.0).expand([10]).to_event(1)
    model = mf.FeatureModel(likelihood=mf.Poisson(), feature_prior=features)
    return _sampled(model, np.abs(_matrix(60, 10)).round(), 10)


def _baskets() -> Run:
    ones = np.random.default_rng(0).random((1_000, 500)) < 0.02
    data = mf.SparseBinary.from_array(ones.astype(np.int8))
    options: dict[str, Any] = {"num_epochs": 10, "tolerance": 0.0, "seed": 0, "progress": False}
    return partial(mf.variational, mf.SparseBinaryMF(20), data, **options)


def _filter() -> Run:
    options: dict[str, Any] = {"num_particles": 200, "seed": 0, "progress": False}
    return partial(mf.particle_filter, _linear_gaussian(), _matrix(50, 36), **options)


CASES: dict[str, Callable[[], Run]] = {
    "linear-gaussian/collapsed": lambda: _sampled(
        _linear_gaussian(), _matrix(200, 36), 20, sweep="collapsed"
    ),
    "linear-gaussian/parallel": lambda: _sampled(
        _linear_gaussian(), _matrix(200, 36), 5, sweep="parallel"
    ),
    "lda/k20": lambda: _sampled(mf.LDA(20), _texts(), 30),
    "lda/k100": lambda: _sampled(mf.LDA(100), _texts(), 20),
    "lda/k400": lambda: _sampled(mf.LDA(400), _texts(), 10),
    "hdp-lda": lambda: _sampled(mf.HDPLDA(), _texts(), 10),
    "dp-mixture": lambda: _sampled(mf.DPMixture(), _matrix(200, 10), 50),
    "bpmf": lambda: _sampled(mf.BPMF(16), _ratings(), 20),
    "binary-mf": lambda: _sampled(mf.BinaryMF(), _matrix(60, 20), 10),
    "noisy-or": lambda: _sampled(mf.NoisyOrIBP(), (_matrix(100, 20) > 0).astype(int), 20),
    "feature-model": _feature_model,
    "sparse-binary": _baskets,
    "particle-filter": _filter,
}
