"""The paper's own methods by their names, as they stand in jaxmf.

First letter: Gaussian or sigmoid cells. Second: S for sums in the time of the ones, D for sums over
all cells, A for the analytic solution. A small e: biases of rows and columns. Beside them topic
models, whose documents are the rows and whose words are the columns of the ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

import jaxmf as mf
from benchmarks.ranking import Factors, Method, Scores
from jaxmf.blocks.prediction import probabilities
from jaxmf.variational_bayes.analytic import analytic_solution, coded_ones
from jaxmf.variational_bayes.analytic_sigmoid import sigmoid_solution
from jaxmf.variational_bayes.singular import SparsePlusConstant, truncated_svd

NUM_SAMPLES = 500
# dense sums in sensible time, as in the paper's Figure 1
SMALL = ("1k", "retail")
BASKETS = ("retail", "groceries")


def _fit(train: sparse.csr_array, seed: int, *, num_epochs: int, **settings: Any) -> Scores:
    model = mf.SparseBinaryMF(**settings)
    data = mf.SparseBinary.from_scipy(train.astype(np.int8))
    posterior = mf.variational(model, data, seed=seed, num_epochs=num_epochs, progress=False)
    draw = {name: values[0, -1] for name, values in posterior.draws.items()}
    return Factors(draw["row_mean"], draw["column_mean"], draw.get("column_bias"))


def samples(train: sparse.csr_array) -> int:
    """Sampled zeros a row, at most the smaller side."""
    return min(NUM_SAMPLES, *train.shape)


def gaussian(bias: str) -> Any:
    """Gaussian cells: exact sums over all cells in the time of the ones."""

    def fit(train: sparse.csr_array, settings: Any, seed: int) -> Scores:
        num_factors, num_epochs, variance = settings
        return _fit(
            train, seed, num_factors=num_factors, likelihood=mf.Gaussian(), bias=bias,
            column_scale=None if variance is None else variance**0.5, num_epochs=num_epochs,
        )  # fmt: skip

    return fit


def sigmoid(bias: str, zeros: str = "shared") -> Any:
    """Cells of 0 and 1; zeros shared by all rows, fixed for each (the paper's), or all of them."""

    def fit(train: sparse.csr_array, settings: Any, seed: int) -> Scores:
        num_factors, num_epochs, variance = settings
        chosen = {
            "shared": mf.SharedSample(samples(train)),
            "fixed": mf.RowSample(samples(train), resample=False),
            "all": mf.Exact(),
        }[zeros]
        return _fit(
            train, seed, num_factors=num_factors, likelihood=mf.Bernoulli("quadratic"),
            zeros=chosen, bias=bias, column_scale=None if variance is None else variance**0.5,
            num_epochs=num_epochs,
        )  # fmt: skip

    return fit


def dense_gaussian(train: sparse.csr_array, settings: Any, seed: int) -> Scores:
    """GD: the updates of GS with sums over all cells of a dense matrix, in numpy."""
    num_factors, num_epochs, variance = settings
    x = np.where(train.toarray() > 0, 1.0, -1.0).astype(np.float32)
    vectors = truncated_svd(SparsePlusConstant(train), num_factors=num_factors, tolerance=1e-6)
    means = [vectors.left * np.sqrt(len(x)), vectors.right * vectors.values / np.sqrt(len(x))]
    variances = [np.full_like(mean, 0.1) for mean in means]
    priors = [np.ones(num_factors), np.full(num_factors, variance or 1.0)]
    bias, noise = float(x.mean()), float(x.var())
    for epoch in range(num_epochs):
        for side, matrix in enumerate((x, x.T)):
            other, spread = means[1 - side], variances[1 - side].sum(axis=0)
            curvature = other.T @ other / noise + np.diag(1 / priors[side] + spread / noise)
            means[side] = np.linalg.solve(curvature, other.T @ (matrix - bias).T / noise).T
            variances[side] = np.broadcast_to(1 / np.diag(curvature), means[side].shape)
        fitted = means[0] @ means[1].T
        bias = float((x - fitted).mean())
        square = (means[0] ** 2).sum(axis=0) @ variances[1].sum(axis=0)
        square += variances[0].sum(axis=0) @ (means[1] ** 2 + variances[1]).sum(axis=0)
        noise = float((np.sum((x - fitted - bias) ** 2) + square) / x.size)
        if variance is None and epoch >= 10:
            priors[1] = (means[1] ** 2 + variances[1]).mean(axis=0)
    return Factors(means[0], means[1])


def analytic_gaussian(train: sparse.csr_array, settings: Any, seed: int) -> Scores:
    """GA: the global solution, noise learned; zeros coded 0 as in the paper, or -1."""
    del seed
    num_factors, zero = settings
    solution = analytic_solution(
        coded_ones(train, zero=zero), num_factors=num_factors, tolerance=1e-6
    )
    return Factors(solution.row_means, solution.column_means)


def analytic_sigmoid(train: sparse.csr_array, settings: Any, seed: int) -> Scores:
    """SA: the analytic solution of pseudo-data, once (as in the paper) or several times."""
    del seed
    num_factors, num_iterations = settings
    solution, _ = sigmoid_solution(
        train, num_factors=num_factors, num_iterations=num_iterations, tolerance=1e-6
    )
    return Factors(solution.row_means, solution.column_means)


def topics(model: mf.LDA | mf.HDPLDA, train: sparse.csr_array, seed: int) -> Factors:
    """Probabilities of the next one of a row, as `recommend` has them: 200 sweeps, ten draws."""
    tokens = mf.Tokens.from_counts(train.astype(np.int32))
    posterior = mf.sample(model, tokens, num_warmup=100, num_samples=10, thin=10, num_chains=1,
                          seed=seed, progress=False)  # fmt: skip
    network = model.over(tokens)[0]
    draws = [{name: x[0, s] for name, x in posterior.draws.items()} for s in range(10)]
    rows = [np.asarray(probabilities(network, draw, "topic")) for draw in draws]
    columns = [np.asarray(model.entries(draw, tokens)).T for draw in draws]
    return Factors(np.concatenate(rows, axis=1) / len(draws), np.concatenate(columns, axis=1))


def _lda(train: sparse.csr_array, settings: Any, seed: int) -> Scores:
    return topics(mf.LDA(*settings), train, seed)


def _hdp(train: sparse.csr_array, settings: Any, seed: int) -> Scores:
    return topics(mf.HDPLDA(word_concentration=settings), train, seed)


# factors, epochs, prior variance of the columns' factors (None: learned)
EPOCHS = (
    (10, 24, 1.0),
    (20, 24, 1.0),
    (30, 24, 1.0),
    (20, 50, 1.0),
    (10, 24, None),
    (20, 24, None),
)
_SHARED = f"{NUM_SAMPLES} zeros shared by all rows"
OURS: dict[str, Method] = {
    "GS": Method(gaussian("intercept"), EPOCHS, compiles=True),
    "GSe": Method(gaussian("rows_columns"), EPOCHS, compiles=True),
    "GD": Method(dense_gaussian, EPOCHS, SMALL),
    "SS": Method(sigmoid("intercept"), EPOCHS, compiles=True, note=_SHARED),
    "SSe": Method(sigmoid("rows_columns"), EPOCHS, compiles=True, note=_SHARED),
    "SS fixed": Method(
        sigmoid("intercept", "fixed"),
        EPOCHS,
        ("1k", "retail"),
        compiles=True,
        note=f"{NUM_SAMPLES} zeros of each row, kept: as in the paper",
    ),
    "SD": Method(sigmoid("intercept", "all"), EPOCHS, SMALL, compiles=True),
    "GA": Method(
        analytic_gaussian,
        ((5, 0.0), (10, 0.0), (20, 0.0), (10, -1.0), (20, -1.0), (40, -1.0)),
        note="factors, what a zero is",
    ),
    "SA": Method(
        analytic_sigmoid,
        ((5, 1), (10, 1), (20, 1), (10, 5), (20, 5), (20, 20)),
        note="factors, iterations",
    ),
    "LDA": Method(
        _lda,
        (
            (10, 0.1, 0.01),
            (20, 0.1, 0.01),
            (40, 0.1, 0.01),
            (20, 0.02, 0.05),
            (40, 0.02, 0.05),
            (20, 0.5, 0.05),
        ),
        BASKETS,
        compiles=True,
        note="topics, concentrations of topics and of words; 200 sweeps",
    ),
    "HDP": Method(
        _hdp,
        (0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
        BASKETS,
        compiles=True,
        note="concentration of words; 200 sweeps",
    ),
}
