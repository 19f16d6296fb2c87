"""What people use to rank: SVD, implicit's ALS, LMF and BPR, hpfrec, poismf, and EASE.

The packages are installed by the extra `bench`; one thread each. EASE (Steck, 2019) is written out:
item-item weights B = I - P diag(P)^-1 with P = (X'X + l I)^-1, no factors.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.ranking import Factors, Method, Scores
from jaxmf.variational_bayes.singular import SparsePlusConstant, truncated_svd


def svd(train: sparse.csr_array, num_factors: int, seed: int) -> Scores:
    """The truncated SVD of the ones and zeros."""
    del seed
    vectors = truncated_svd(SparsePlusConstant(train), num_factors=num_factors, tolerance=1e-6)
    return Factors(vectors.left * vectors.values, vectors.right)


def ease(train: sparse.csr_array, penalty: float, seed: int) -> Scores:
    """EASE, closed form in the columns."""
    del seed
    gram = (train.T @ train).toarray().astype(np.float32)
    gram[np.diag_indices_from(gram)] += penalty
    inverse = np.linalg.inv(gram)
    weights = -inverse / np.diag(inverse)
    weights[np.diag_indices_from(weights)] = 0
    return lambda rows: train[rows] @ weights


def _implicit(make: Callable[[Any, int], Any]) -> Any:
    def fit(train: sparse.csr_array, settings: Any, seed: int) -> Scores:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make(settings, seed)
            model.fit(sparse.csr_matrix(train), show_progress=False)
        return Factors(model.user_factors, model.item_factors)

    return fit


def _als(settings: Any, seed: int) -> Any:
    from implicit.als import AlternatingLeastSquares

    factors, regularization, alpha = settings
    return AlternatingLeastSquares(
        factors=factors, regularization=regularization, alpha=alpha, num_threads=1,
        random_state=seed,
    )  # fmt: skip


def _lmf(settings: Any, seed: int) -> Any:
    from implicit.lmf import LogisticMatrixFactorization

    factors, regularization, learning_rate, iterations = settings
    return LogisticMatrixFactorization(
        factors=factors, regularization=regularization, learning_rate=learning_rate,
        iterations=iterations, num_threads=1, random_state=seed,
    )  # fmt: skip


def _bpr(settings: Any, seed: int) -> Any:
    from implicit.bpr import BayesianPersonalizedRanking

    factors, regularization, learning_rate, iterations = settings
    return BayesianPersonalizedRanking(
        factors=factors, regularization=regularization, learning_rate=learning_rate,
        iterations=iterations, num_threads=1, random_state=seed,
    )  # fmt: skip


def _hpf(train: sparse.csr_array, settings: Any, seed: int) -> Scores:
    from hpfrec import HPF

    model = HPF(
        k=settings, random_seed=seed, ncores=1, verbose=False, reindex=False, maxiter=100,
        check_every=10, stop_crit="train-llk", stop_thr=1e-3, keep_all_objs=False,
        produce_dicts=False,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(sparse.coo_matrix(train))
    return Factors(model.Theta, model.Beta)


def _poismf(train: sparse.csr_array, settings: Any, seed: int) -> Scores:
    from poismf import PoisMF

    factors, penalty = settings
    model = PoisMF(k=factors, method="tncg", l2_reg=penalty, nthreads=1, random_state=seed,
                   reindex=False)  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(sparse.coo_matrix(train))
    return Factors(model.A, model.B)


PEERS: dict[str, Method] = {
    "SVD": Method(svd, (3, 5, 10, 20, 40, 80)),
    "ALS": Method(
        _implicit(_als),
        (
            (5, 30.0, 1.0),
            (40, 10.0, 1.0),
            (20, 10.0, 10.0),
            (40, 30.0, 10.0),
            (10, 100.0, 40.0),
            (20, 100.0, 40.0),
        ),
        package="implicit",
        note="factors, regularization, alpha",
    ),
    "LMF": Method(
        _implicit(_lmf),
        (
            (10, 0.6, 1.0, 30),
            (20, 0.6, 1.0, 30),
            (10, 0.6, 1.0, 100),
            (10, 2.0, 1.0, 100),
            (20, 2.0, 1.0, 100),
            (10, 10.0, 0.3, 60),
        ),
        package="implicit",
        note="factors, regularization, learning rate, iterations",
    ),
    "BPR": Method(
        _implicit(_bpr),
        (
            (10, 0.01, 0.05, 100),
            (20, 0.03, 0.05, 100),
            (40, 0.01, 0.05, 100),
            (10, 0.1, 0.05, 100),
            (10, 0.01, 0.1, 30),
            (40, 0.03, 0.05, 300),
        ),
        package="implicit",
        note="factors, regularization, learning rate, iterations",
    ),
    "HPF": Method(_hpf, (3, 5, 10, 20, 30, 40), package="hpfrec"),
    "PMF": Method(
        _poismf,
        ((5, 1e2), (10, 1e1), (10, 1e2), (10, 1e3), (20, 1e2), (20, 1e3)),
        package="poismf",
        note="poismf by truncated Newton; factors, penalty",
    ),
    "EASE": Method(
        ease, (10.0, 30.0, 100.0, 300.0, 1e3, 3e3), note="no factors; memory is columns squared"
    ),
}


def installed() -> dict[str, Method]:
    """The peers whose packages are there."""
    return {
        name: method
        for name, method in PEERS.items()
        if not method.package or importlib.util.find_spec(method.package)
    }
