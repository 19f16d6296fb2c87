"""Matrices of numbers: cells hidden at random, beside scikit-learn's nearest neighbours."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from sklearn import datasets as bundled
from sklearn.impute import KNNImputer

import jaxmf as mf
from benchmarks.defaults.measure import Case, fitted

HIDDEN = 0.1


def _images() -> np.ndarray:
    return np.asarray(mf.datasets.section_4_2(0).x, float)


def _low_rank() -> np.ndarray:
    rng = np.random.default_rng(3)
    return rng.normal(size=(3000, 4)) @ rng.normal(size=(4, 40)) + rng.normal(size=(3000, 40))


def _constant_columns() -> np.ndarray:
    x = bundled.load_iris().data.copy()
    return np.column_stack([x, np.full(len(x), 7.0), np.zeros(len(x))])


def _small(shift: float) -> np.ndarray:
    return np.random.default_rng(10).normal(size=(12, 4)) + shift


# "report": not used for choosing
SETS: dict[str, Callable[[], np.ndarray]] = {
    "images": _images,
    "images + 100": lambda: _images() + 100,
    "images x 1e-4": lambda: _images() * 1e-4,
    "12 x 4 normal": lambda: _small(0.0),
    "12 x 4 normal + 30": lambda: _small(30.0),
    "12 x 4 normal + 100": lambda: _small(100.0),
    "iris, constant columns": _constant_columns,
    "wine (report)": lambda: bundled.load_wine().data,
    "breast cancer (report)": lambda: bundled.load_breast_cancer().data[:200],
    "genes 38 x 150 (report)": lambda: np.asarray(mf.datasets.golub().data.values)[:150].T,
    "3,000 x 40 (report)": _low_rank,
}
MODELS = {"linear-gaussian-ibp": mf.LinearGaussianIBP, "binary-mf": mf.BinaryMF}


@cache
def hidden(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The matrix, the matrix with NaN, and which cells are hidden."""
    x = SETS[name]()
    mask = np.random.default_rng(0).random(x.shape) < HIDDEN
    return x, np.where(mask, np.nan, x), mask


def error(x: np.ndarray, mask: np.ndarray, filled: np.ndarray) -> float:
    """Root mean squared error of hidden cells in units of their columns' sd."""
    scale = np.where(x.std(axis=0) > 0, x.std(axis=0), 1)
    return float(np.sqrt(np.mean((((filled - x) / scale)[mask]) ** 2)))


def _ours(make: Any, name: str, quick: bool) -> tuple[float, str]:
    x, shown, mask = hidden(name)
    post, note = fitted(make(), shown, quick)
    filled = shown.copy()
    rows, columns = np.nonzero(mask)
    filled[mask] = np.asarray(post.predict((rows, columns)).mean)
    number = post.num_features().mean
    return error(x, mask, filled), f"{number:.0f} features, {note}"


def _means(name: str) -> float:
    x, shown, mask = hidden(name)
    return error(x, mask, np.broadcast_to(np.nanmean(shown, axis=0), x.shape))


def _neighbours(name: str) -> float:
    x, shown, mask = hidden(name)
    return error(x, mask, KNNImputer().fit_transform(shown))


def _case(model: str, name: str) -> Case:
    peers = {
        "column means": partial(_means, name),
        "KNNImputer of scikit-learn": partial(_neighbours, name),
    }
    return Case("RMSE in sd", partial(_ours, MODELS[model], name), peers)


CASES: dict[str, Case] = {
    f"{model}/{name}": _case(model, name)
    for model in MODELS
    for name in SETS
    if model == "linear-gaussian-ibp" or not name.startswith("12 x 4")
}
