"""Features made of ratings, beside examples worked out by hand."""

import numpy as np
import pytest

from jaxmf.data import Entries, from_ratings, implicit_features, rating_features
from jaxmf.data.from_ratings import RatedCells, neighbour_ratings, neighbours, previous_ratings

#        user, item, rating, time
TRAIN = np.array([
    (0, 0, 5, 10), (0, 1, 3, 10), (0, 2, 1, 20), (0, 3, 4, 30),
    (1, 0, 4, 5), (1, 1, 2, 40),
    (2, 0, 2, 7), (2, 3, 3, 8),
])  # fmt: skip
MEAN = 3.0


def data(table=TRAIN):
    rows, columns, values, _ = table.T
    return Entries(rows, columns, values, (4, 4), list("abcd"), [10, 11, 12, 13])


def test_previous_ratings_are_the_users_own_and_earlier():
    train = data()
    cells = RatedCells(TRAIN[:, 0], TRAIN[:, 1], TRAIN[:, 3].astype(float))
    found = previous_ratings(train, TRAIN[:, 3], cells, num_previous=2)
    expected = [
        (0, 0), (0, 0),  # of the same time: neither is before the other
        (3, 5), (1, 3),
        (0, 0), (4, 0),
        (0, 0), (2, 0),
    ]  # fmt: skip
    expected = [[rating - MEAN if rating else 0 for rating in pair] for pair in expected]
    np.testing.assert_allclose(found, expected)
    new = RatedCells(np.array([0, 0, 1, 3]), np.zeros(4, int), np.array([25.0, 10.0, 99.0, 50.0]))
    found = previous_ratings(train, TRAIN[:, 3], new, num_previous=3)
    np.testing.assert_allclose(found, [[-2, 0, 2], [0, 0, 0], [-1, 1, 0], [0, 0, 0]])


def test_what_comes_later_changes_nothing():
    cells = RatedCells(TRAIN[:3, 0], TRAIN[:3, 1], TRAIN[:3, 3].astype(float))
    before = previous_ratings(data(), TRAIN[:, 3], cells, num_previous=2)
    changed = TRAIN.copy()
    changed[[2, 3], 2] = [4, 1]  # the cell itself and a later one, the mean as it was
    after = previous_ratings(data(changed), TRAIN[:, 3], cells, num_previous=2)
    np.testing.assert_array_equal(before, after)


def pearson(x, y):
    both = ~np.isnan(x) & ~np.isnan(y)
    if both.sum() < 2 or np.std(x[both]) == 0 or np.std(y[both]) == 0:
        return 0.0, both.sum()
    return np.corrcoef(x[both], y[both])[0, 1], both.sum()


@pytest.mark.parametrize("shrinkage", [0.0, 5.0])
def test_neighbours_are_those_of_the_largest_correlation(shrinkage, monkeypatch):
    monkeypatch.setattr(from_ratings, "_ITEMS_AT_ONCE", 3)
    generator = np.random.default_rng(0)
    x = np.where(generator.random((60, 8)) < 0.7, generator.integers(1, 6, (60, 8)), np.nan)
    found = neighbours(Entries.from_array(x), num_neighbours=4, shrinkage=shrinkage, num_folds=3)
    for fold, item in np.ndindex(3, 8):
        others = x[np.arange(60) % 3 != fold]
        close = np.full(8, -1.0)
        for other in set(range(8)) - {item}:
            correlation, common = pearson(others[:, item], others[:, other])
            close[other] = correlation * common / max(common + shrinkage, 1)
        best = np.argsort(-close, kind="stable")[:4]
        assert found[fold, item].tolist() == [int(k) if close[k] > 1e-9 else -1 for k in best]


def test_ratings_of_neighbours_are_looked_up_in_training():
    one = np.array([[1, 3], [0, -1], [3, 0], [-1, -1]])
    similar = np.stack([one, one])
    similar[1, 2] = [0, 3]  # for users 1 and 3
    cells = RatedCells(np.array([0, 1, 2, 3]), np.array([0, 2, 1, 0]))
    found = neighbour_ratings(data(), similar, cells)
    means = np.array([11 / 3, 2.5, 1, 3.5])
    expected = [[3 - means[1], 4 - means[3]], [4 - means[0], 0], [2 - means[0], 0], [0, 0]]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_all_features_of_training_cells_and_of_new_ones():
    train = data()
    found = rating_features(
        train,
        times=TRAIN[:, 3],
        new_cells=(["d", "b"], [13, 12]),
        new_times=[40, 22.5],
        flag_at=10,
        num_previous=1,
        num_neighbours=2,
        shrinkage=0,
    )
    labels = ("date", "date flag", "previous 1", "neighbour 1", "neighbour 2")
    assert found.labels == labels
    assert found.num_cells == 10
    mean_date = ((TRAIN[:, 3] - 5) / 35).mean()
    rows, columns = np.array([0, 3, 1]), np.array([2, 3, 2])
    features = np.asarray(found.take(rows, columns))
    dates = [(when - 5) / 35 - mean_date for when in (20, 40, 22.5)]
    np.testing.assert_allclose(features[:, 0], dates, atol=1e-6)
    np.testing.assert_allclose(features[:, 1], -3 / 8, atol=1e-6)
    np.testing.assert_allclose(features[:, 2], [0, 0, 1], atol=1e-6)
    assert np.all(features[1, 3:] == 0)  # a user without a rating
    assert rating_features(train, num_neighbours=1).labels == ("neighbour 1",)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_neighbours": 0}, "nothing is left"),
        ({"times": [1]}, "times: has 1 values"),
        ({"new_times": [1]}, "there are no new_cells"),
        ({"times": TRAIN[:, 3], "new_cells": (["d"], [10])}, "give both, or none"),
        ({"new_cells": (["d"], [99])}, "no column has the id 99"),
        ({"new_cells": (["a"], [10])}, "duplicate cell"),
        ({"times": [np.nan] * 8}, "times: must be finite"),
    ],
)
def test_refusals(options, words):
    with pytest.raises(ValueError, match=words):
        rating_features(data(), **options)


def test_who_rated_what_is_scaled_by_the_root_of_how_many():
    found = implicit_features(data())
    assert found.is_sparse
    assert found.ids.tolist() == list("abcd")
    assert found.parts == (4,)
    assert found.labels[1] == "rated=11"
    third = 1 / np.sqrt(3)
    expected = np.array([[0.5] * 4, [0.5**0.5] * 2 + [0] * 2, [0.5**0.5, 0, 0, 0.5**0.5], [0] * 4])
    np.testing.assert_allclose(found.to_array(), expected, rtol=1e-6)
    others = implicit_features(data(), of="columns", sparse=False)
    assert not others.is_sparse
    assert others.ids.tolist() == [10, 11, 12, 13]
    assert others.labels[0] == "rated by=a"
    np.testing.assert_allclose(others.to_array()[0], [third, third, third, 0], rtol=1e-6)
    np.testing.assert_allclose(others.to_array()[2], [1, 0, 0, 0])
    with pytest.raises(ValueError, match="of: must be"):
        implicit_features(data(), of="users")
