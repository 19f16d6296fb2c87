"""Side information of MovieLens for BPMF, for a comparison with published errors.

The features of "On the difficulty of evaluating baselines" (Rendle, Zhang & Koren, 2019; timeSVD++
flipped), as myFM's examples have them: the movies that a user rated, the users who rated a movie,
the day of a rating; and what is known of users and movies. All of it from training ratings alone:
where a rating to be predicted stands enters nothing, but for its day.

The day of a rating is no feature of a user or a movie. So the ratings of a user on a day are a row
of the matrix, with the user, the day and the user's features: its factors are those of the user,
and of the day, and what is left.
"""

from __future__ import annotations

import numpy as np

from benchmarks.factor_chains import Split, split
from jaxmf import datasets
from jaxmf.data import Entries, Features, implicit_features

DAY = 86_400


def has_dates(known: datasets.ratings.Ratings) -> bool:
    """Whether times are seconds, not positions in a user's order."""
    return int(np.max(known.time)) > 10**6


def with_side_information(
    known: datasets.ratings.Ratings, is_test: np.ndarray
) -> tuple[Split, dict[str, Features]]:
    """Ratings split by a mask, and features of rows and columns.

    Rows are the users' days where times are dates, and users elsewhere.
    """
    data = split(known.data, is_test)
    users, items = data.train.row_names, data.train.column_names
    # dense: one cell in 17 is there, or in 25, and then products are faster
    rated = implicit_features(data.train, sparse=False)
    raters = implicit_features(data.train, of="columns", sparse=False)
    columns = {"rated by": raters, "about": known.item_features().match(items)}
    rows = {"rated": rated, "about": known.user_features().match(users)}
    if has_dates(known):
        keys = np.asarray(known.data.rows, np.int64) * 10**6 + np.asarray(known.time) // DAY
        names, positions = np.unique(keys, return_inverse=True)
        own = names // 10**6
        rows = {name: Features(one.to_array()[own]) for name, one in rows.items()}
        rows |= {"user": _levels(own), "day": _levels(names % 10**6)}
        cells = np.asarray(known.data.columns), np.asarray(known.data.values)
        ids = np.arange(len(names)), items
        data = split(Entries(positions, *cells, (len(names), len(items)), *ids), is_test)
    sides = {"row_features": Features.from_blocks(rows)}
    return data, sides | {"column_features": Features.from_blocks(columns)}


def _levels(values: np.ndarray) -> Features:
    return Features.from_columns({"is": values}, categorical=["is"])
