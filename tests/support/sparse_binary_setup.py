"""A small matrix from the sigmoid model, with two ones a row taken away, for several tests."""

import jax
import numpy as np

import jaxmf as mf

NUM_ROWS, NUM_COLUMNS, FACTORS = 150, 60, 3
MODEL = mf.SparseBinaryMF(num_factors=FACTORS, zeros=mf.SharedSample(30), column_scale=1.0)
GAUSSIAN = mf.SparseBinaryMF(
    num_factors=FACTORS, likelihood=mf.Gaussian(), column_scale=None, bias_scale=None
)


def fit(model, data, **options):
    return mf.variational(model, data, **({"progress": False, "num_epochs": 20} | options))


def simulate():
    """Parameters, their data with ids, and the ones that were taken away: two a row."""
    parameters, data = MODEL.simulate(jax.random.key(1), NUM_ROWS, NUM_COLUMNS, intercept=-2.0)
    rows, columns = np.asarray(data.rows), np.asarray(data.columns)
    hidden = np.zeros(rows.size, bool)
    generator = np.random.default_rng(0)
    for row in np.flatnonzero(np.bincount(rows, minlength=NUM_ROWS) >= 5):
        hidden[generator.choice(np.flatnonzero(rows == row), 2, replace=False)] = True
    kept = mf.SparseBinary(
        rows[~hidden],
        columns[~hidden],
        data.shape,
        row_names=[f"u{row}" for row in range(NUM_ROWS)],
        column_names=[f"i{column}" for column in range(NUM_COLUMNS)],
    )
    return parameters, kept, (rows[hidden], columns[hidden])


def precision_at_one(posterior, hidden):
    best = posterior.recommend(n=1).columns[:, 0]
    pairs = set(zip(*(part.tolist() for part in hidden), strict=True))
    rows = np.unique(hidden[0])
    return np.mean([(row, best[row]) in pairs for row in rows.tolist()])
