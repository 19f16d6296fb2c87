"""BPMF with whatever features: its error on MovieLens-100K, split u1, beside that without any.

Tables that say something, and such as say nothing: random, constant, repeated, of one level, of a
thousand levels. No option is set but the features and the number of factors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import jaxmf as mf
from benchmarks.factor_chains import Ours, Split, run, split
from benchmarks.harness import Row, row
from jaxmf import datasets
from jaxmf.data import Features

NUM_FACTORS, NUM_WARMUP, NUM_DRAWS = 8, 60, 60
# errors of version 0.1 with the same features, factors, seed and numbers of sweeps
BEFORE = {"none": 0.9082, "age and sex": 0.9062, "both tables": 1.4777}

Sides = dict[str, Features]


def _told(known: datasets.ratings.Ratings, data: Split) -> dict[str, Callable[[], Sides]]:
    """Features of users and movies by the name of the case."""
    ids = data.train.row_names, data.train.column_names
    users, films = known.user_features().match(ids[0]), known.item_features().match(ids[1])

    def both(make: Callable[[int], Features]) -> Sides:
        return {"row_features": make(0), "column_features": make(1)}

    def some_users() -> Sides:
        table = {"age": known.user_age, "sex": np.where(known.user_is_male, "M", "F")}
        return {"row_features": Features.from_columns(table, ids=ids[0])}

    def random(side: int) -> Features:
        numbers = np.random.default_rng(side).normal(size=(len(ids[side]), 20))
        return Features(numbers, ids[side])

    def constant(side: int) -> Features:
        return Features(np.full((len(ids[side]), 1), 3.5), ids[side])

    def repeated(side: int) -> Features:
        return Features(np.repeat((users, films)[side].to_array(), 2, axis=1), ids[side])

    def levels(number: int, side: int) -> Features:
        order = np.random.default_rng(side).permutation(len(ids[side]))
        table = {"level": [f"level {position % number}" for position in order]}
        return Features.from_columns(table, ids=ids[side], sparse=number > 1)

    return {
        "none": dict,
        "age and sex": some_users,
        "table of users": lambda: {"row_features": users},
        "table of films": lambda: {"column_features": films},
        "both tables": lambda: {"row_features": users, "column_features": films},
        "20 random columns": lambda: both(random),
        "a constant column": lambda: both(constant),
        "both tables, every column twice": lambda: both(repeated),
        "one level": lambda: both(partial(levels, 1)),
        "1,000 levels": lambda: both(partial(levels, 1_000)),
    }


def any_features(quick: bool) -> list[Row]:
    """Errors with every set of features, a row each."""
    known = datasets.movielens_100k()
    data = split(known.data, known.test["u1"])
    counts = {"num_warmup": 5, "num_draws": 5} if quick else {}
    counts = counts or {"num_warmup": NUM_WARMUP, "num_draws": NUM_DRAWS}
    rows, without = [], 0.0
    for name, make in _told(known, data).items():
        chain = Ours(mf.BPMF(NUM_FACTORS, **make()), data)
        error = run(chain, **counts).errors[-1]
        without = without or error
        old = f"; version 0.1: {BEFORE[name]:.4f}" if name in BEFORE else ""
        plain = float(np.sqrt(np.mean((data.values - data.mean) ** 2)))
        note = (
            f"{NUM_FACTORS} factors, {counts['num_warmup']} + {counts['num_draws']} sweeps, one "
            f"chain; {error - without:+.4f} beside none{old}; the mean of all {plain:.3f}"
        )
        case = f"factors/features/u1/{name.replace(',', '').replace(' ', '-')}"
        rows.append(
            row(case, "quality", "RMSE", [error], note=note, peer="no features", theirs=[without])
        )
    return rows
