"""Ratings: error of hidden ones, beside the sum of row and column means and surprise's SVD."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

import jaxmf as mf
from benchmarks.defaults.measure import Case, fitted


class Cells(NamedTuple):
    """Rows, columns and values of ratings."""

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray


def _hundred_thousand(share: float = 1.0, scale: float = 1.0, shift: float = 0.0) -> Cells:
    return _part(mf.datasets.movielens_100k().data, share, scale, shift)


def _million(share: float) -> Cells:
    return _part(mf.datasets.movielens_1m().data, share, 1.0, 0.0)


def _part(data: Any, share: float, scale: float, shift: float) -> Cells:
    keep = np.random.default_rng(8).random(len(np.asarray(data.values))) < share
    values = np.asarray(data.values, float)[keep] * scale + shift
    return Cells(np.asarray(data.rows)[keep], np.asarray(data.columns)[keep], values)


def _few() -> Cells:
    rng = np.random.default_rng(9)
    rows, columns = np.divmod(rng.permutation(60)[:40], 6)
    return Cells(rows, columns, 1e-4 * rng.normal(3, 1, 40))


SETS: dict[str, Callable[[], Cells]] = {
    "MovieLens-100K, a tenth": lambda: _hundred_thousand(0.1),
    "a tenth, values + 1000": lambda: _hundred_thousand(0.1, shift=1000.0),
    "a tenth, values x 1e-4": lambda: _hundred_thousand(0.1, scale=1e-4),
    "few and small": _few,
    "MovieLens-1M, a hundredth (report)": lambda: _million(0.01),
    "MovieLens-100K (report)": _hundred_thousand,
}
MODELS: dict[str, Callable[[], Any]] = {"bpmf": lambda: mf.BPMF(16), "bi-hdp": mf.BiHDP}


@cache
def split(name: str) -> tuple[Cells, Cells]:
    """Ratings to learn from and hidden ones, a tenth, renumbered without gaps."""
    cells = SETS[name]()
    rows = np.unique(cells.rows, return_inverse=True)[1]
    columns = np.unique(cells.columns, return_inverse=True)[1]
    hide = np.random.default_rng(0).random(len(rows)) < 0.1
    both = [Cells(rows[m], columns[m], cells.values[m]) for m in (~hide, hide)]
    return both[0], both[1]


def _error(test: Cells, predicted: np.ndarray, train: Cells) -> float:
    return float(np.sqrt(np.mean((predicted - test.values) ** 2)) / train.values.std())


def _shape(train: Cells, test: Cells) -> tuple[int, int]:
    return (
        1 + int(max(train.rows.max(), test.rows.max())),
        1 + int(max(train.columns.max(), test.columns.max())),
    )


def _ours(make: Callable[[], Any], name: str, quick: bool) -> tuple[float, str]:
    train, test = split(name)
    data = mf.Entries(train.rows, train.columns, train.values, _shape(train, test))
    post, note = fitted(make(), data, quick)
    return _error(test, np.asarray(post.predict((test.rows, test.columns)).mean), train), note


def _means(name: str) -> float:
    """Level, row and column effects, shrunk by five observations."""
    train, test = split(name)
    level = train.values.mean()
    residual, effects = train.values - level, []
    for axis, size in zip((train.rows, train.columns), _shape(train, test), strict=True):
        sums = np.bincount(axis, residual, minlength=size)
        effects.append(sums / (np.bincount(axis, minlength=size) + 5))
        residual = residual - effects[-1][axis]
    return _error(test, level + effects[0][test.rows] + effects[1][test.columns], train)


def _surprise(name: str) -> float:
    import pandas as pd
    import surprise

    train, test = split(name)
    reader = surprise.Reader(rating_scale=(train.values.min(), train.values.max()))
    table = pd.DataFrame(train._asdict())
    data = surprise.Dataset.load_from_df(table, reader).build_full_trainset()
    model = surprise.SVD(random_state=0).fit(data)
    cells = zip(test.rows, test.columns, strict=True)
    return _error(test, np.array([model.predict(row, column).est for row, column in cells]), train)


def _case(model: str, name: str) -> Case:
    peers = {
        "row and column means": partial(_means, name),
        "SVD of surprise": partial(_surprise, name),
    }
    return Case("RMSE in sd", partial(_ours, MODELS[model], name), peers)


_WHOLE = ("MovieLens-100K, a tenth", "MovieLens-1M, a hundredth (report)")
CASES: dict[str, Case] = {
    f"{model}/{name}": _case(model, name)
    for model in MODELS
    for name in (SETS if model == "bpmf" else _WHOLE)
}
