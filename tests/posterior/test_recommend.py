"""Recommendations for new rows by their first entries, and ids against positions in questions."""

import numpy as np
import pytest

import jaxmf as mf
from jaxmf.data import Features
from jaxmf.posterior.named_cells import read_rows

SHORT = {"num_warmup": 3, "num_samples": 5, "num_chains": 2, "progress": False}
NUM_ROWS, NUM_COLUMNS = 12, 8
COLUMNS = [f"i{j}" for j in range(NUM_COLUMNS)]
GENERATOR = np.random.default_rng(0)
SEEN = GENERATOR.random((NUM_ROWS, NUM_COLUMNS)) < 0.6
STARS = GENERATOR.integers(1, 6, SEEN.shape).astype(float)
# ids in another order than those of the data, so that positions would be other columns
FIRST_RATINGS = mf.Entries(
    [0, 0, 1], [0, 1, 0], [5.0, 1.0, 4.0], (2, 2), ["new", "other"], ["i6", "i2"]
)


def rating_data():
    names = [f"u{i}" for i in range(NUM_ROWS)], COLUMNS
    return mf.Entries(*np.nonzero(SEEN), STARS[SEEN], SEEN.shape, *names)


def rated(model):
    return mf.sample(model, rating_data(), **SHORT)


@pytest.fixture(scope="module")
def stars():
    return rated(mf.BPMF(1))


@pytest.fixture(scope="module")
def baskets():
    names = [f"u{i}" for i in range(NUM_ROWS)], COLUMNS
    data = mf.SparseBinary(*np.nonzero(SEEN), SEEN.shape, *names)
    return mf.variational(mf.SparseBinaryMF(2), data, num_epochs=3, progress=False)


def check_new_rows(post):
    """The best columns are those of the largest predicted means, without those of the row."""
    found = post.recommend(new_rows=FIRST_RATINGS, n=20, seed=3)
    assert found.row_names.tolist() == ["new", "other"]
    cells = mf.Positions(np.zeros(NUM_COLUMNS, int), np.arange(NUM_COLUMNS))
    means = post.predict(cells, new_rows=FIRST_RATINGS, seed=3).mean
    unseen = np.setdiff1d(np.arange(NUM_COLUMNS), [6, 2])
    assert set(found.columns[0][:6]) == set(unseen)
    np.testing.assert_allclose(found.scores.mean[0, :6], np.sort(means[unseen])[::-1], rtol=1e-4)
    np.testing.assert_allclose(found.scores.mean[0, :6], means[found.columns[0, :6]], rtol=1e-4)
    assert found.columns[0, 6:].tolist() == [-1, -1]
    assert list(found.column_names[0][:6]) == [COLUMNS[j] for j in found.columns[0, :6]]
    other = post.recommend(["other"], new_rows=FIRST_RATINGS, n=20, seed=3, include_known=True)
    assert other.row_names.tolist() == ["other"]
    assert sorted(other.columns[0]) == list(range(NUM_COLUMNS))


def test_new_rows_by_their_first_ratings(stars):
    check_new_rows(stars)


@pytest.mark.exhaustive
def test_new_rows_of_groups_by_their_first_ratings():
    check_new_rows(rated(mf.BiLDA(2, 2)))


def test_new_baskets_by_their_first_ones(baskets):
    new = mf.SparseBinary.from_baskets([["i6", "i2"], ["i0"]])
    for by in (None, "score"):
        found = baskets.recommend(new_rows=new, n=20, by=by)
        whole = baskets.predict(new_rows=new)
        chances = whole.mean[whole.rows == 0]
        kept = found.columns[0][found.columns[0] >= 0]
        assert set(kept) == set(range(NUM_COLUMNS)) - {6, 2}
        np.testing.assert_allclose(found.scores.probability[0, :6], chances[kept], rtol=1e-4)
        values = found.scores.mean if by else found.scores.probability
        assert (np.diff(values[0, :6]) <= 0).all()


def test_unknown_columns_of_new_rows_are_refused_or_dropped(stars):
    new = mf.Entries([0, 0], [0, 1], [5.0, 2.0], (1, 2), ["new"], ["i6", "z"])
    with pytest.raises(
        ValueError, match="new_rows: the column 'z' at position 1 is not one of the 8"
    ):
        stars.recommend(new_rows=new)
    found = stars.recommend(new_rows=new, unknown="drop", n=7)
    assert sorted(found.columns[0]) == [0, 1, 2, 3, 4, 5, 7]
    with pytest.raises(ValueError, match='unknown="prior": nothing can be said of columns'):
        stars.recommend(new_rows=new, unknown="prior")


def test_unknown_rows_are_refused_dropped_or_of_the_prior(stars):
    asked = ["u3", "nobody", "u1", "nobody"]
    with pytest.raises(ValueError, match=r"no row has the id 'nobody'.*answers such rows by the"):
        stars.recommend(asked)
    known = stars.recommend(["u3", "u1"], n=3)
    dropped = stars.recommend(asked, n=3, unknown="drop")
    assert dropped.row_names.tolist() == ["u3", "u1"]
    np.testing.assert_array_equal(dropped.columns, known.columns)
    with pytest.raises(ValueError, match="rows: none of the 1 is the id of a row"):
        stars.recommend("nobody", unknown="drop")
    found = stars.recommend(asked, n=NUM_COLUMNS, unknown="prior", seed=2)
    assert found.row_names.tolist() == asked
    np.testing.assert_array_equal(found.columns[0, :3], known.columns[0])
    np.testing.assert_array_equal(found.columns[1], found.columns[3])
    assert sorted(found.columns[1]) == list(range(NUM_COLUMNS))
    means = stars.predict((["nobody"] * NUM_COLUMNS, COLUMNS), unknown="prior", seed=2).mean
    np.testing.assert_allclose(found.scores.mean[1], np.sort(means)[::-1], rtol=1e-4)
    assert stars.recommend("nobody", unknown="prior").row_names.tolist() == ["nobody"]
    with pytest.raises(ValueError, match='unknown: takes "error" or "drop" or "prior" here'):
        stars.recommend(asked, unknown="skip")


def test_models_that_cannot_answer_for_new_or_unknown_rows_say_so(baskets):
    post = rated(mf.URP(2, family=mf.NormalInverseGamma(), values=None))
    with pytest.raises(ValueError, match="URP does not predict real values of new_rows"):
        post.recommend(new_rows=FIRST_RATINGS)
    with pytest.raises(ValueError, match=r'"prior": SparseBinaryMF .*For a row without ones'):
        baskets.recommend(["nobody"], unknown="prior")
    nothing = mf.SparseBinary.from_baskets({"nobody": ["nothing"]})
    found = baskets.recommend(new_rows=nothing, n=NUM_COLUMNS, unknown="drop")
    assert found.row_names.tolist() == ["nobody"]
    assert sorted(found.columns[0]) == list(range(NUM_COLUMNS))
    empty = mf.SparseBinary.from_baskets({"new": []})
    zeros = mf.SparseBinary.from_array(np.zeros((1, NUM_COLUMNS)), row_names=["new"])
    for rows in (empty, zeros):
        again = baskets.recommend(new_rows=rows, n=NUM_COLUMNS)
        assert again.row_names.tolist() == ["new"]
        np.testing.assert_array_equal(again.columns, found.columns)
        np.testing.assert_array_equal(again.scores.mean, found.scores.mean)
    for data, size in ((empty, 0), (zeros, NUM_COLUMNS)):
        with pytest.raises(ValueError, match=f"data: has no ones, is 1 x {size} zeros"):
            mf.variational(mf.SparseBinaryMF(2), data)
    with pytest.raises(ValueError, match="row_features: this SparseBinaryMF was fitted without"):
        baskets.recommend(row_features=Features(np.ones((1, 1))))


@pytest.fixture(scope="module")
def known_sides():
    users = Features(np.arange(float(NUM_ROWS))[:, None], columns=["age"])
    items = Features(np.arange(float(NUM_COLUMNS))[:, None], columns=["year"])
    return rated(mf.BPMF(1, row_features=users, column_features=items))


@pytest.mark.exhaustive
def test_new_rows_known_by_their_features_alone(known_sides):
    post = known_sides
    newcomers = Features(np.array([[3.0], [4.0]]), ["x", "y"], columns=["age"])
    frame = pytest.importorskip("pandas").DataFrame({"age": [20, 40]})
    with pytest.raises(TypeError, match=r"row_features .*, got a DataFrame$"):
        post.recommend(row_features=frame)
    found = post.recommend(row_features=newcomers, n=NUM_COLUMNS, seed=1)
    assert found.row_names.tolist() == ["x", "y"]
    means = post.predict(row_features=newcomers, seed=1).mean.reshape(2, NUM_COLUMNS)
    np.testing.assert_allclose(found.scores.mean, -np.sort(-means, axis=1), rtol=1e-4)


@pytest.mark.slow
def test_new_columns_known_by_their_features_are_ranked_for_rows(known_sides):
    post = known_sides
    films = Features(np.array([[9.0], [-2.0], [3.0]]), ["x", "y", "z"], columns=["year"])
    found = post.recommend(["u3", "u1"], column_features=films, n=2, titles={"x": "Tee"}, seed=1)
    assert found.row_names.tolist() == ["u3", "u1"]
    cells = np.repeat(["u3", "u1"], 3), ["x", "y", "z"] * 2
    predicted = post.predict(cells, column_features=films, seed=1)
    order = np.argsort(-predicted.mean.reshape(2, 3), axis=1)[:, :2]
    np.testing.assert_array_equal(found.columns, order)
    for part in ("mean", "sd"):
        expected = np.take_along_axis(getattr(predicted, part).reshape(2, 3), order, axis=1)
        np.testing.assert_allclose(getattr(found.scores, part), expected, rtol=1e-4)
    ids = np.array(["x", "y", "z"])[order]
    assert found.column_names.tolist() == ids.tolist()
    assert found.column_titles.tolist() == np.where(ids == "x", "Tee", ids).tolist()
    assert post.recommend(column_features=films).columns.shape == (NUM_ROWS, 3)
    with pytest.raises(ValueError, match="recommend for one of them at a time"):
        post.recommend(new_rows=FIRST_RATINGS, column_features=films)
    options = {"column_features": films, "unknown": "prior", "seed": 1}
    found = post.recommend(["u3", "nobody"], n=3, **options)
    predicted = post.predict((np.repeat(["u3", "nobody"], 3), ["x", "y", "z"] * 2), **options)
    means = np.take_along_axis(predicted.mean.reshape(2, 3), found.columns, axis=1)
    np.testing.assert_allclose(found.scores.mean, means, rtol=1e-4)
    with pytest.raises(ValueError, match="columns: no column has the id 'i3'"):
        post.predict((["u3"], ["i3"]), **options)


def test_features_of_new_columns_that_cannot_be_are_refused(stars, baskets):
    films = Features([[1.0]], ["x"], columns=["year"])
    with pytest.raises(ValueError, match=r"column_features: .* was fitted without features"):
        stars.recommend(column_features=films)
    with pytest.raises(ValueError, match="SparseBinaryMF takes none, nor column_features"):
        baskets.recommend(column_features=films)


# --- ids against positions ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda p: p.recommend([2]), "rows: 2 at position 0 is no id of a row: those of the data"),
        (lambda p: p.recommend(["u1", 2]), r"rows: 2 at position 1.*texts, such as 'u0'"),
        (lambda p: p.recommend([2], unknown="drop"), "rows: 2 at position 0 is no id of a row"),
        (lambda p: p.recommend([2], unknown="prior"), "rows: 2 at position 0 is no id of a row"),
        (lambda p: p.predict(([0], [1])), r"cells: rows: 0 .* as mf.Positions\(rows, columns\)"),
        (lambda p: p.predict((["u0"], [1])), "cells: columns: 1 at position 0 is no id of a col"),
        (lambda p: p.predict([["u0", 1]]), "cells: columns: 1 at position 0 is no id of a col"),
        (lambda p: p.reconstruction([0]), r"positions are passed as mf.Positions\(rows\)"),
        (lambda p: p.held_out_log_likelihood([1.0], ([0], ["i0"])), "cells: rows: 0 at position 0"),
    ],
)
def test_whole_numbers_are_no_positions_where_ids_are_texts(stars, ask, says):
    with pytest.raises(ValueError, match=says):
        ask(stars)


def test_cells_named_before_the_run_are_named_by_id():
    with pytest.raises(ValueError, match="predict_at: rows: 0 at position 0 is no id of a row"):
        mf.sample(mf.BPMF(1), rating_data(), predict_at=([0], [1]), **SHORT)


def test_texts_are_no_ids_where_they_are_whole_numbers():
    data = mf.Dense(GENERATOR.normal(size=(4, 2)), row_names=[10, 20, 30, 40])
    with pytest.raises(ValueError, match="rows: '20' at position 0 is no id of a row: those of th"):
        read_rows(["20"], data)
    assert read_rows([20, 40], data).tolist() == [1, 3]
    assert read_rows(mf.Positions([1, 3]), data).tolist() == [1, 3]
    with pytest.raises(ValueError, match="rows: no row has the id 1"):
        read_rows([1], data)


def test_positions_are_positions_whatever_the_ids_are(stars):
    np.testing.assert_array_equal(
        stars.recommend(mf.Positions([3])).columns, stars.recommend("u3").columns
    )
    by_position = stars.predict(mf.Positions([3, 0], [1, 7]))
    by_id = stars.predict((["u3", "u0"], ["i1", "i7"]))
    np.testing.assert_array_equal(by_position.mean, by_id.mean)
    with pytest.raises(ValueError, match=r"cells: rows: 12 at position 0 is outside 0..11"):
        stars.predict(mf.Positions([12], [0]))
    with pytest.raises(ValueError, match="cells: these positions name rows alone"):
        stars.predict(mf.Positions([1]))
    with pytest.raises(ValueError, match="rows: are positions of cells, with columns"):
        stars.recommend(mf.Positions([1], [1]))
