"""The sweeps that are counted and timed: a model, data of any size, and options of its sampler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import jaxmf as mf
from jaxmf import registry
from jaxmf.data import as_container

KEY = jax.random.key(0)


class Problem(NamedTuple):
    """A sweep.

    Attributes:
      entry: the name of the model in the registry.
      model: makes the model.
      data: number of rows, tokens or ratings -> the data.
      sizes: two numbers of these; what grows between them is the loop.
      options: of the sampler.
    """

    entry: str
    model: Callable[[], Any]
    data: Callable[[int], Any]
    sizes: tuple[int, int]
    options: Mapping[str, Any]

    def algorithm_and_data(self, size: int) -> tuple[Any, Any]:
        """The algorithm, and the data as its steps take them, by their shapes."""
        entry, model = registry.get(self.entry), self.model()
        data = as_container(self.data(size), entry.container)
        model = model.matched(data)
        algorithm = entry.builder(model, "sample")(**self.options)
        if algorithm.prepare is not None:
            data = jax.eval_shape(algorithm.prepare, data)
        return algorithm, data


def step_of_chains(algorithm: Any, data: Any, keys: Any, states: Any) -> Any:
    """One step of all chains together."""
    step = jax.vmap(lambda key, state: algorithm.step(key, state, data, jnp.ones(())))
    return step(keys, states)


def arguments(problem: Problem, size: int, num_chains: int) -> tuple[Any, Any, Any, Any]:
    """Algorithm, data, keys and states of `step_of_chains`, as shapes where they are large."""
    algorithm, data = problem.algorithm_and_data(size)
    keys = jax.random.split(KEY, num_chains)
    states = jax.eval_shape(
        jax.vmap(lambda key, data: algorithm.init(key, data), in_axes=(0, None)), keys, data
    )
    return algorithm, data, keys, states


def _cells(size: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(size, 100)).astype(np.float32)


def _binary(size: int) -> np.ndarray:
    return (np.random.default_rng(0).random((size, 100)) < 0.3).astype(np.float32)


def _tokens(size: int) -> mf.Tokens:
    generator, documents = np.random.default_rng(0), max(1, size // 100)
    columns = {
        "document": np.sort(generator.integers(0, documents, size)),
        "word": generator.integers(0, 20_000, size),
    }
    return mf.Tokens(columns, {"document": documents, "word": 20_000})


def _ratings(size: int, shape: tuple[int, int] = (6_040, 3_706)) -> mf.Entries:
    generator = np.random.default_rng(0)
    flat = np.unique(generator.integers(0, shape[0] * shape[1], size))
    rows, columns = np.divmod(flat, shape[1])
    return mf.Entries(rows, columns, generator.integers(1, 6, flat.size), shape)


def _points(size: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(size, 2)).astype(np.float32)


def _linear_gaussian() -> mf.LinearGaussianIBP:
    prior = dist.Gamma(1.0, 1.0)
    return mf.LinearGaussianIBP(alpha=prior, noise_scale=prior, feature_scale=prior)


def _problems() -> dict[str, Problem]:
    found = {}
    for sweep in ("collapsed", "parallel"):
        options = {"sweep": sweep, "capacity": 16}
        found[f"linear-gaussian-ibp/{sweep}"] = Problem(
            "linear-gaussian-ibp", _linear_gaussian, _cells, (1_280, 10_240), options
        )
    for sweep in ("sequential", "parallel"):
        options = {"sweep": sweep, "capacity": 16}
        found[f"noisy-or-ibp/{sweep}"] = Problem(
            "noisy-or-ibp", mf.NoisyOrIBP, _binary, (1_000, 10_000), options
        )
        found[f"dp-mixture/{sweep}"] = Problem(
            "dp-mixture", mf.DPMixture, _points, (1_000, 10_000), {"sweep": sweep}
        )
    found["dp-mixture-100/parallel"] = Problem(
        "dp-mixture", mf.DPMixture, _cells, (1_000, 10_000), {"sweep": "parallel"}
    )
    for sweep in ("sequential", "parallel", "partially_collapsed"):
        kept = {"sweep": sweep, "keep": "scalars"}
        sizes = (100_000, 1_000_000)
        found[f"lda-1000/{sweep}"] = Problem(
            "lda", lambda: mf.LDA(1_000, word_concentration=0.01), _tokens, sizes, kept
        )
        found[f"hdp-lda/{sweep}"] = Problem(
            "hdp", mf.HDPLDA, _tokens, sizes, {**kept, "capacity": 256}
        )
        found[f"pam-16-64/{sweep}"] = Problem("pam", lambda: mf.PAM((16, 64)), _tokens, sizes, kept)
    summed = {"keep_factors": False}
    found["bpmf-32"] = Problem("bpmf", lambda: mf.BPMF(32), _ratings, (100_000, 1_000_000), summed)
    # the shape of MovieLens-20M
    found["bpmf-64-20m"] = Problem(
        "bpmf",
        lambda: mf.BPMF(64),
        partial(_ratings, shape=(138_493, 26_744)),
        (2_000_000, 20_000_000),
        summed,
    )
    return found


PROBLEMS = _problems()
