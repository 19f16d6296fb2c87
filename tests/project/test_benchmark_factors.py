"""The pieces of the benchmark of factors: splits, averages of draws, made-up ratings, curves."""

import numpy as np

import jaxmf as mf
from benchmarks import factors, recommender, side_information
from benchmarks.factor_chains import random_split, run, split
from jaxmf import datasets
from jaxmf.data import Entries

DATA = Entries([0, 0, 1, 2, 2], [0, 1, 1, 0, 2], [1.0, 5.0, 3.0, 2.0, 4.0], (3, 3))


class Alternating:
    """A chain whose predictions are one too high and one too low in turn."""

    def __init__(self, data):
        self.data, self.num_sweeps = data, 0

    def sweep(self):
        self.num_sweeps += 1

    def predicted(self):
        return self.data.values + (1 if self.num_sweeps % 2 else -1)


def test_a_split_keeps_every_rating_once():
    is_test = np.array([False, True, False, False, True])
    found = split(DATA, is_test)
    assert found.values.tolist() == [5, 4]
    assert found.train.num_entries == 3
    assert found.mean == 2
    assert found.error(np.array([9.0, 3.0])) == np.sqrt(2.5)  # 9 is cut off at 3
    whole = random_split(DATA, 3, share=0.5)
    assert whole.train.num_entries + len(whole.values) == 5


def test_folds_are_tenths_that_do_not_overlap():
    folds = [factors.tenth(101, fold=fold) for fold in range(10)]
    assert np.sum(folds, axis=0).tolist() == [1] * 101
    assert [fold.sum() for fold in folds] == [11] + [10] * 9


def test_predictions_are_averaged_without_the_first():
    held = split(DATA, np.array([False, False, True, True, False]))
    found = run(Alternating(held), num_warmup=1, num_draws=4)
    # draws are one too low, one too high, ...: the average of an even number is exact
    np.testing.assert_allclose(found.errors[[1, 3]], 0, atol=1e-12)
    assert found.errors[0] > found.errors[2] > 0
    assert np.all(np.diff(found.seconds) >= 0)


def test_made_up_ratings_are_of_as_many_different_cells():
    data = factors.made_up(5_000, shape=(400, 90))
    cells = np.asarray(data.rows) * 90 + np.asarray(data.columns)
    assert len(np.unique(cells)) == 5_000
    counts = np.sort(np.bincount(np.asarray(data.columns)))[::-1]
    assert counts[:9].sum() > 2 * 0.1 * 5_000  # a few items have most of the ratings


def test_means_of_users_and_movies_are_drawn_towards_that_of_all():
    found = split(DATA, np.array([True, False, False, False, False]))
    off = (5 - 3.5) / (1 + 5.0)
    np.testing.assert_allclose(recommender.means_of(found, "user"), [3.5 + off])
    np.testing.assert_allclose(recommender.means_of(found, "movie"), [3.5 - 1.5 / 6])


def test_parts_by_sd_and_curves():
    held = split(DATA, np.array([False, False, True, True, True]))
    generator = np.random.default_rng(0)
    means = held.values + generator.normal(size=(recommender.NUM_WARMUP + 8, 3))
    means[: recommender.NUM_WARMUP] += 2
    variances = np.tile([1e-6, 4.0, 4.0], (len(means), 1))
    found = recommender.by_sd(means, variances, held, parts=2)
    assert found["sd"][0] < found["sd"][1]
    assert found["coverage"][1] == 1
    paths = recommender.curves(means, held)
    assert len(paths["single"]) == len(means)
    assert len(paths["after_warmup"]) == 8
    assert paths["after_warmup"][-1] < paths["running"][-1]


def rated(times):
    """Three users and two movies as MovieLens has them."""
    table = ([0, 0, 1, 1, 2], [0, 1, 0, 1, 0], [5.0, 3.0, 4.0, 1.0, 2.0])
    return datasets.ratings.Ratings(
        data=Entries(*table, (3, 2), [11, 12, 13], [21, 22]),
        time=np.array(times),
        test={},
        titles=np.array(["Alien (1979)", "Heat (1995)"]),
        genres=np.array([[True, False], [False, True]]),
        genre_names=np.array(["Horror", "Crime"]),
        user_age=np.array([20, 40, 60]),
        user_is_male=np.array([True, False, True]),
        user_occupation=np.array(["a", "b", "a"]),
        user_zip=np.array(["", "", ""]),
    )


def test_a_users_day_is_a_row_and_has_the_features_of_the_user():
    days = side_information.DAY * np.array([900, 902, 900, 900, 901])
    is_test = np.array([False, True, False, False, True])
    data, known = side_information.with_side_information(rated(days), is_test)
    rows = known["row_features"]
    assert list(rows.blocks) == ["rated", "about", "user", "day"]
    assert data.train.shape == (4, 2)  # the first user has two days
    assert data.rows.tolist() == [1, 3]
    assert data.values.tolist() == [3, 2]
    seen = rows.to_array()[:, rows.blocks["rated"]]
    np.testing.assert_allclose(seen[:2], [[1, 0], [1, 0]])  # without what is held out, on both
    np.testing.assert_allclose(seen[2:], [[0.5**0.5] * 2, [0, 0]], rtol=1e-6)
    users = rows.to_array()[:, rows.blocks["user"]]
    np.testing.assert_allclose(users, np.eye(3)[[0, 0, 1, 2]])
    raters = known["column_features"].to_array()[:, :3]
    np.testing.assert_allclose(raters, [[0.5**0.5] * 2 + [0], [0, 1, 0]], rtol=1e-6)
    model = mf.BPMF(1, coefficients=False, **known)
    assert model.matched(data.train).row_features.parts == rows.parts


def test_without_dates_rows_are_users():
    is_test = np.array([False, True, False, False, True])
    data, known = side_information.with_side_information(rated([1, 2, 1, 2, 1]), is_test)
    assert data.train.shape == (3, 2)
    assert list(known["row_features"].blocks) == ["rated", "about"]
