"""Mixtures: adjusted Rand index of known classes, beside mixtures of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from sklearn import datasets as bundled
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

import jaxmf as mf
from benchmarks.defaults.measure import Case, fitted

Labelled = tuple[np.ndarray, np.ndarray]


def _blobs(scale: float = 1.0, shift: float = 0.0) -> Labelled:
    x, labels = bundled.make_blobs(300, n_features=3, centers=5, random_state=1)
    return x * scale + shift, labels


def _incomes() -> Labelled:
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 3, 400)
    return np.round(np.array([18_000, 42_000, 95_000])[labels] + 4_000 * rng.normal(size=400))[
        :, None
    ], labels


def _digits() -> Labelled:
    digits = bundled.load_digits(n_class=6)
    return PCA(8, random_state=0).fit_transform(digits.data[:400]), digits.target[:400]


SETS: dict[str, Callable[[], Labelled]] = {
    "blobs": _blobs,
    "blobs + 1e5": lambda: _blobs(shift=1e5),
    "blobs x 1e-6": lambda: _blobs(scale=1e-6),
    "incomes": _incomes,
    "iris (report)": lambda: bundled.load_iris(return_X_y=True),
    "wine (report)": lambda: bundled.load_wine(return_X_y=True),
    "digits, 8 components (report)": _digits,
}
MODELS: dict[str, tuple[Callable[[int], Any], Callable[[int], Any], str]] = {
    "mixture-of-gaussians": (
        mf.MixtureOfGaussians,
        lambda classes: GaussianMixture(classes, random_state=0),
        "GaussianMixture of scikit-learn",
    ),
    "dp-mixture": (
        lambda classes: mf.DPMixture(),
        lambda classes: BayesianGaussianMixture(n_components=10, random_state=0),
        "BayesianGaussianMixture(10) of scikit-learn",
    ),
}


@cache
def labelled(name: str) -> Labelled:
    """Rows and their classes."""
    x, labels = SETS[name]()
    return np.asarray(x, float), np.asarray(labels)


def _ours(make: Callable[[int], Any], name: str, quick: bool) -> tuple[float, str]:
    x, labels = labelled(name)
    post, note = fitted(make(len(np.unique(labels))), x, quick)
    shares = np.asarray(post.transform(x))
    return adjusted_rand_score(labels, shares.argmax(axis=-1)), note


def _theirs(make: Callable[[int], Any], name: str) -> float:
    x, labels = labelled(name)
    return adjusted_rand_score(labels, make(len(np.unique(labels))).fit_predict(x))


def _case(model: str, name: str) -> Case:
    ours, theirs, peer = MODELS[model]
    peers = {peer: partial(_theirs, theirs, name)}
    return Case("Rand", partial(_ours, ours, name), peers, more_is_better=True)


CASES: dict[str, Case] = {
    f"{model}/{name}": _case(model, name) for model in MODELS for name in SETS
}
