"""Baskets and clicks: one item of a row hidden, precision of the first recommendation."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from scipy import sparse

import jaxmf as mf
from benchmarks.defaults.measure import Case, fitted

_MOST_ROWS = 3000


def _cut(counts: Any, num_items: int | None, seed: int) -> Any:
    """Rows of at least two items, cut to so many of them; the most popular thousand items."""
    rng = np.random.default_rng(seed)
    x = sparse.csr_array(counts)
    x = x[:, np.sort(np.argsort(-np.asarray(x.sum(axis=0)).ravel(), kind="stable")[:1000])]
    rows = []
    for start, end in zip(x.indptr[:-1], x.indptr[1:], strict=True):
        items = x.indices[start:end]
        if len(items) >= 2:
            rows.append(items if num_items is None else rng.permutation(items)[:num_items])
    chosen = [rows[i] for i in rng.permutation(len(rows))[:_MOST_ROWS]]
    indptr = np.concatenate([[0], np.cumsum([len(items) for items in chosen])])
    data = np.ones(indptr[-1])
    return sparse.csr_array((data, np.concatenate(chosen), indptr), shape=(len(chosen), x.shape[1]))


def _likes() -> Any:
    data = mf.datasets.movielens_1m().data
    good = np.asarray(data.values) >= 4
    cells = (np.asarray(data.rows)[good], np.asarray(data.columns)[good])
    return sparse.csr_array((np.ones(good.sum()), cells), shape=data.shape)


SETS: dict[str, Callable[[], Any]] = {
    "groceries": lambda: _cut(mf.datasets.groceries().to_scipy(), None, 0),
    "groceries, two items": lambda: _cut(mf.datasets.groceries().to_scipy(), 2, 1),
    "retail, three items": lambda: _cut(mf.datasets.retail().to_scipy(), 3, 2),
    "MovieLens-1M, five likes (report)": lambda: _cut(_likes(), 5, 3),
    "T10I4D100K, three items (report)": lambda: _cut(mf.datasets.t10i4d100k().to_scipy(), 3, 4),
    "retail (report)": lambda: _cut(mf.datasets.retail().to_scipy(), None, 5),
}


@cache
def split(name: str) -> tuple[Any, np.ndarray]:
    """The matrix without one item of every row, and that item: (N,)."""
    x = sparse.lil_array(SETS[name]())
    rng = np.random.default_rng(0)
    hidden = np.array([rng.choice(items) for items in x.rows])
    x[np.arange(len(hidden)), hidden] = 0
    return sparse.csr_array(x), hidden


def _precision(scores: np.ndarray, name: str) -> float:
    """Share of rows whose best item, of those they do not have, is the hidden one."""
    train, hidden = split(name)
    scores = np.where(train.toarray() > 0, -np.inf, scores)
    return float(np.mean(scores.argmax(axis=1) == hidden))


def _ours(name: str, quick: bool) -> tuple[float, str]:
    train, hidden = split(name)
    post, note = fitted(mf.SparseBinaryMF(20), mf.SparseBinary.from_scipy(train), quick)
    best = post.recommend(np.arange(len(hidden)), n=1).columns[:, 0]
    return float(np.mean(best == hidden)), note


def _popularity(name: str) -> float:
    train, _ = split(name)
    return _precision(np.broadcast_to(np.asarray(train.sum(axis=0)), train.shape), name)


def _svd(name: str) -> float:
    from scipy.sparse.linalg import svds

    train, _ = split(name)
    left, values, right = svds(train, k=20, random_state=0)
    return _precision((left * values) @ right, name)


def _als(name: str) -> float:
    from implicit.als import AlternatingLeastSquares

    train, _ = split(name)
    model = AlternatingLeastSquares(random_state=0)
    model.fit(sparse.csr_matrix(train), show_progress=False)
    return _precision(model.user_factors @ model.item_factors.T, name)


def _case(name: str) -> Case:
    peers = {
        "popularity": partial(_popularity, name),
        "truncated SVD": partial(_svd, name),
        "ALS of implicit": partial(_als, name),
    }
    return Case("precision@1", partial(_ours, name), peers, more_is_better=True)


CASES: dict[str, Case] = {f"sparse-binary/{name}": _case(name) for name in SETS}
