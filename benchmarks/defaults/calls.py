"""Single calls that once went wrong in silence: side tables, all genes, evidence of a filter."""

from __future__ import annotations

import warnings
from functools import cache, partial
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.cluster import SpectralCoclustering
from sklearn.metrics import adjusted_rand_score

import jaxmf as mf
from benchmarks.defaults.measure import Case, alarms_of, fitted
from benchmarks.factor_chains import Split, split
from benchmarks.genes import levels, two_groups
from benchmarks.section_5_2 import causes

NUM_FACTORS = 16


# --- ratings with what is known of users and films ------------------------------------------------


@cache
def _ratings() -> tuple[Split, Any, Any]:
    """MovieLens-100K, split u1, features of users (age, sex, occupation) and of films (genres)."""
    known = mf.datasets.movielens_100k()
    data = split(known.data, known.test["u1"])
    users = known.user_features().match(data.train.row_names)
    return data, users, known.item_features().match(data.train.column_names)


def _with_features(quick: bool) -> tuple[float, str]:
    data, users, films = _ratings()
    model = mf.BPMF(NUM_FACTORS, row_features=users, column_features=films)
    post, note = fitted(model, data.train, quick)
    names = data.train.row_names[data.rows], data.train.column_names[data.columns]
    return data.error(np.asarray(post.predict(names).mean)), note


def _means() -> float:
    data, _, _ = _ratings()
    train = data.train
    rows, columns = np.asarray(train.rows), np.asarray(train.columns)
    residual, predicted = np.asarray(train.values, float) - data.mean, np.full(1, data.mean)
    for axis, cells, size in zip(
        (rows, columns), (data.rows, data.columns), train.shape, strict=True
    ):
        effect = np.bincount(axis, residual, size) / (np.bincount(axis, minlength=size) + 5)
        residual, predicted = residual - effect[axis], predicted + effect[cells]
    return data.error(predicted)


def _myfm() -> float:
    import myfm

    data, users, films = _ratings()
    tables = [sparse.csr_array(one.to_array()) for one in (users, films)]

    def design(rows: Any, columns: Any) -> Any:
        ones = [
            sparse.csr_array((np.ones(len(of)), (np.arange(len(of)), of)), shape=(len(of), size))
            for of, size in zip((rows, columns), data.train.shape, strict=True)
        ]
        return sparse.csr_matrix(
            sparse.hstack([*ones, tables[0][np.asarray(rows)], tables[1][np.asarray(columns)]])
        )

    model = myfm.MyFMRegressor(rank=NUM_FACTORS, random_seed=0)
    train = data.train
    model.fit(design(train.rows, train.columns), np.asarray(train.values, float), n_iter=100)
    return data.error(model.predict(design(data.rows, data.columns)))


# --- patients by all genes ------------------------------------------------------------------------


def _patients(quick: bool) -> tuple[float, str]:
    x, is_aml = levels(3051)
    post, note = fitted(mf.BinaryMF(), x, quick)
    v = np.asarray(post.flat_draws()[0]["v"], float)
    shared = np.mean(v @ np.swapaxes(v, 1, 2), axis=0)
    own = np.diag(shared)
    apart = np.maximum(own[:, None] + own - 2 * shared, 0)
    return adjusted_rand_score(is_aml, two_groups(apart)), note


def _spectral() -> float:
    x, is_aml = levels(3051)
    found = SpectralCoclustering(2, random_state=0).fit(np.exp(x))
    return adjusted_rand_score(is_aml, found.column_labels_)


# --- evidence of a filter -------------------------------------------------------------------------


def _evidence(quick: bool) -> tuple[float, str]:
    """How far two filters are apart, in standard errors of the difference as they state it."""
    del quick
    values, errors, notes = [], [], []
    for seed in (0, 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            post = mf.particle_filter(
                mf.NoisyOrIBP(), causes(0)[0], num_particles=500, num_runs=2, seed=seed,
                progress=False,
            )  # fmt: skip
        values.append(post.log_evidence)
        errors.append(post.log_evidence_error)
        notes.append(f"{values[-1]:.0f} +- {errors[-1]:.1f}, {alarms_of(post)}")
    return abs(values[0] - values[1]) / np.hypot(*errors), "; ".join(notes)


CASES: dict[str, Case] = {
    "bpmf-with-features/MovieLens-100K u1": Case(
        "RMSE",
        _with_features,
        {"row and column means": _means, "myFM, 100 iterations": _myfm},
        quick_limit=150.0,
    ),
    "binary-mf-groups/golub, 3,051 genes": Case(
        "Rand",
        _patients,
        {"SpectralCoclustering of scikit-learn": _spectral},
        more_is_better=True,
        quick_limit=120.0,
    ),
    "noisy-or-filter/evidence, 6 x 250": Case(
        "standard errors between two runs", _evidence, {"what an error promises": partial(float, 2)}
    ),
}
