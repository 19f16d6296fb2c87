"""Zeros and ones: cells hidden at random, beside nearest neighbours; the Brier score's root."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np
from sklearn import datasets as bundled
from sklearn.impute import KNNImputer

import jaxmf as mf
from benchmarks.defaults.measure import Case, fitted


def _noisy_or(num_rows: int, num_columns: int, num_causes: int) -> np.ndarray:
    rng = np.random.default_rng(4)
    causes = rng.random((num_rows, num_causes)) < 0.3
    links = rng.random((num_causes, num_columns)) < 0.25
    return (rng.random((num_rows, num_columns)) < 1 - 0.97 * 0.15 ** (causes @ links)).astype(float)


def _groceries() -> np.ndarray:
    x = mf.datasets.groceries().to_scipy().toarray()[:300].astype(float)
    return x[:, np.argsort(-x.sum(axis=0))[:30]]


SETS: dict[str, Callable[[], np.ndarray]] = {
    "questionnaire 250 x 20": lambda: _noisy_or(250, 20, 4),
    "digits, 8 x 8": lambda: (bundled.load_digits().data[:200] > 8).astype(float),
    "tiny 12 x 6": lambda: _noisy_or(12, 6, 2),
    "groceries 300 x 30 (report)": _groceries,
    "ones with chance .02 (report)": lambda: (
        np.random.default_rng(5).random((200, 30)) < 0.02
    ).astype(float),
    "bars 200 x 36 (report)": lambda: (
        np.asarray(mf.datasets.section_4_2(1).x, float) > 0.5
    ).astype(float),
}


@cache
def hidden(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The matrix, the matrix with NaN, and which cells are hidden."""
    x = SETS[name]()
    mask = np.random.default_rng(0).random(x.shape) < 0.1
    return x, np.where(mask, np.nan, x), mask


def _ours(name: str, quick: bool) -> tuple[float, str]:
    x, shown, mask = hidden(name)
    post, note = fitted(mf.NoisyOrIBP(), shown, quick)
    chance = np.asarray(post.predict(np.nonzero(mask)).mean)
    return float(np.sqrt(np.mean((chance - x[mask]) ** 2))), note


def _filled(name: str, fill: Callable[[np.ndarray], np.ndarray]) -> float:
    x, shown, mask = hidden(name)
    return float(np.sqrt(np.mean((fill(shown) - x)[mask] ** 2)))


def _case(name: str) -> Case:
    peers = {
        "column means": partial(
            _filled, name, lambda x: np.broadcast_to(np.nanmean(x, axis=0), x.shape)
        ),
        "KNNImputer of scikit-learn": partial(_filled, name, KNNImputer().fit_transform),
    }
    return Case("root Brier", partial(_ours, name), peers)


CASES: dict[str, Case] = {f"noisy-or-ibp/{name}": _case(name) for name in SETS}
