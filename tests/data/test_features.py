"""Side information of rows, columns and cells: levels, standardisation, matching by ids, files."""

import datetime as dt
import json

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import jaxmf as mf
from jaxmf import settings
from jaxmf.data import feature_parts, read_features

USERS = {"age": [20, 30, 40, 30], "sex": ["F", "M", "F", "F"], "job": [7, 3, 7, 7]}
IDS = ["ann", "bo", "cy", "di"]


def users(**options):
    return mf.Features.from_columns(USERS, ids=IDS, categorical=["job"], **options)


def test_numbers_are_standardised_and_levels_become_indicators():
    features = users()
    assert features.labels == ("age", "sex=F", "sex=M", "job=3", "job=7")
    assert features.blocks == {"age": slice(0, 1), "sex": slice(1, 3), "job": slice(3, 5)}
    root = np.sqrt(2.0)
    expected = [[-root, 1, 0, 0, 1], [0, 0, 1, 1, 0], [root, 1, 0, 0, 1], [0, 1, 0, 0, 1]]
    np.testing.assert_allclose(features.to_array(), expected, rtol=1e-6)
    assert users(standardise=False).to_array()[:, 0].tolist() == [20, 30, 40, 30]
    assert "4 x 5, with ids" in repr(features)


def test_truths_are_numbers_that_are_left_alone_and_a_constant_is_zero():
    features = mf.Features.from_columns({"seen": [True, False], "one": [3.0, 3.0]})
    assert features.to_array().tolist() == [[1.0, 0.0], [0.0, 0.0]]


def test_a_column_without_any_number_is_refused():
    with pytest.raises(ValueError, match="column 'age': holds no number at all"):
        mf.Features.from_columns({"age": np.full(2, np.nan)}, missing="zero")


def test_a_level_named_twice_in_a_cell_counts_once():
    features = mf.Features.from_columns(
        {"genres": ["War|War", "|Drama|", ""]}, lists={"genres": "|"}
    )
    assert features.to_array().tolist() == [[0, 1], [1, 0], [0, 0]]


@pytest.mark.parametrize("sparse", [False, True])
def test_lines_are_matched_by_id(sparse):
    features = users(sparse=sparse)
    assert features.is_sparse == sparse
    matched = features.match(np.array(["cy", "ann"], object))
    np.testing.assert_array_equal(matched.to_array(), features.to_array()[[2, 0]])
    assert matched.labels == features.labels
    with pytest.raises(ValueError, match=r"user_features: no line has the id 'eve' \(1 of 2"):
        features.match(["ann", "eve"], what="user_features")
    with pytest.raises(ValueError, match="None matches: check the types"):
        users(missing="zero").match([1, 2])
    gaps = users(sparse=sparse, missing="zero").match(["eve", "bo"])
    np.testing.assert_array_equal(gaps.to_array(), [np.zeros(5), features.to_array()[1]])


def test_lines_without_ids_go_by_order_and_ids_may_be_positions():
    plain = mf.Features(np.eye(3))
    assert plain.match(None, size=3) is plain
    assert plain.match(["a", "b", "c"], size=3).ids.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="have 3 lines for 4 in the data"):
        plain.match(None, size=4, what="row_features")
    by_position = mf.Features(np.eye(3), [2, 0, 1])
    np.testing.assert_array_equal(by_position.match(None, size=3).to_array(), np.eye(3)[[1, 2, 0]])
    some = mf.Features(np.eye(2), [2, 0], missing="zero")
    np.testing.assert_array_equal(some.match(None, size=3).to_array(), [[0, 1], [0, 0], [1, 0]])
    from_one = mf.Features(np.eye(3), [1, 2, 3], missing="zero")
    with pytest.raises(ValueError, match=r"have ids beyond 0\.\.2, and the data has no ids"):
        from_one.match(None, size=3)


def test_new_lines_have_the_old_columns():
    features = users()
    new = features.encode({"sex": ["M"], "age": [50], "job": [3], "shoe": [44]}, ids=["eve"])
    assert new.labels == features.labels
    np.testing.assert_allclose(new.to_array(), [[20 / np.sqrt(50), 0, 1, 1, 0]], rtol=1e-6)
    with pytest.raises(ValueError, match="the level 'X' at line 0 was not there"):
        features.encode({"sex": ["X"], "age": [50], "job": [3]})
    with pytest.raises(ValueError, match="no column 'job'"):
        features.encode({"sex": ["F"], "age": [50]})
    lenient = users(missing="zero").encode({"sex": ["X"], "age": [np.nan], "job": [3]})
    assert lenient.to_array().tolist() == [[0, 0, 0, 1, 0]]


@pytest.mark.parametrize("sparse", [False, True])
def test_lines_made_by_themselves_have_the_columns_and_units_of_others(sparse):
    table = {"age": [20, 40], "sex": ["F", "M"], "joined": ["2020-01-01", "2020-01-05"]}
    known = mf.Features.from_columns(table, sparse=sparse)
    lenient = mf.Features.from_columns(table, sparse=sparse, missing="zero")
    one = {"joined": ["2020-01-09"], "age": [50], "sex": ["M"]}
    found = mf.Features.from_columns(one, sparse=sparse).in_columns_of(known)
    assert found.labels == known.labels
    np.testing.assert_allclose(found.to_array(), known.encode(one).to_array())
    np.testing.assert_allclose(found.to_array(), [[2.0, 0, 1, 3.0]])
    new = mf.Features.from_columns(one | {"sex": ["X"]}, sparse=sparse)
    np.testing.assert_allclose(new.in_columns_of(lenient).to_array(), [[2.0, 0, 0, 3.0]])
    with pytest.raises(ValueError, match="have the level 'sex=X', which those in training lack"):
        new.in_columns_of(known)
    people = {name: cells * 2 for name, cells in one.items()} | {"sex": ["M", "X"]}
    named = mf.Features.from_columns(people, ids=["ann", "bo"], sparse=sparse)
    with pytest.raises(ValueError, match="have the level 'sex=X' of 'bo', which those in training"):
        named.in_columns_of(known)
    coded = mf.Features.from_columns(one | {"sex": [1]}, sparse=sparse)
    with pytest.raises(ValueError, match="have no column 'sex=F', which those in training have"):
        coded.in_columns_of(lenient)
    more = mf.Features.from_columns(one | {"town": ["here"]}, sparse=sparse)
    with pytest.raises(ValueError, match="have a column 'town=here', which those in training lack"):
        more.in_columns_of(lenient)
    del one["age"]
    with pytest.raises(ValueError, match="have no column 'age', which those in training have"):
        mf.Features.from_columns(one).in_columns_of(lenient)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("standardise", [False, True])
def test_gaps_in_a_new_table_take_the_mean_of_training(sparse, standardise):
    options = {"sparse": sparse, "missing": "zero"}
    known = mf.Features.from_columns({"age": [20, 40], "sex": ["F", "M"]}, **options)
    table = {"age": [50, None, 90], "sex": ["M", "F", None]}
    options["standardise"] = standardise
    new = mf.Features.from_columns(table, ids=["x", "y", "z"], **options)
    expected = [[2, 0, 1], [0, 1, 0], [6, 0, 0]]
    np.testing.assert_allclose(new.in_columns_of(known).to_array(), expected, atol=1e-6)
    np.testing.assert_allclose(known.encode(table).to_array(), expected, atol=1e-6)
    asked = new.match(["y", "x", "z"]).select(np.array([1, 2, 0]))  # gaps go with lines and columns
    found = asked.in_columns_of(known).to_array()
    np.testing.assert_allclose(found, np.array(expected)[[1, 0, 2]], atol=1e-6)
    blocks = mf.Features.from_blocks({"of": new}).in_columns_of(
        mf.Features.from_blocks({"of": known})
    )
    np.testing.assert_allclose(blocks.to_array(), expected, atol=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
def test_new_lines_that_are_not_there_take_the_mean_of_training(sparse):
    known = mf.Features.from_columns({"age": [20, 40]}, sparse=sparse)
    new = mf.Features.from_columns({"age": [50, 90]}, ids=["x", "z"], sparse=sparse, missing="zero")
    found = new.match(["x", "y", "z"]).in_columns_of(known).to_array()
    np.testing.assert_allclose(found, [[2], [0], [6]], atol=1e-6)


def test_gaps_of_a_matrix_take_the_mean_of_training():
    known = mf.Features.from_columns({"age": [20, 40]})
    lines = np.array([[50.0], [np.nan]])
    for matrix in (lines, scipy.sparse.csr_array(lines)):
        new = mf.Features(matrix, columns=["age"], missing="zero")
        assert new.to_array().tolist() == [[50], [0]]
        assert new.in_columns_of(known).to_array().tolist() == [[2], [0]]
        with pytest.raises(ValueError, match="features: must be finite"):
            mf.Features(matrix, columns=["age"])


def test_levels_that_are_whole_numbers_are_found_among_floats():
    known = mf.Features.from_columns({"zip": [1, 2, 3]}, categorical=["zip"], missing="zero")
    table = pd.DataFrame({"zip": [2.0, np.nan]})  # as pandas reads a gap
    new = mf.Features.from_pandas(table, categorical=["zip"], missing="zero")
    assert new.in_columns_of(known).to_array().tolist() == [[0, 1, 0], [0, 0, 0]]


def test_lists_of_levels_are_not_taken_for_levels():
    table = {"genres": ["a|b", "b"]}
    known = mf.Features.from_columns(table, lists={"genres": "|"}, missing="zero")
    new = mf.Features.from_columns({"genres": ["a|b"]}, missing="zero")
    with pytest.raises(ValueError, match="have no column 'genres=a'"):
        new.in_columns_of(known)


@pytest.mark.parametrize("swap", [False, True])
def test_dates_and_numbers_are_not_taken_for_each_other(swap):
    tables = {"joined": ["2020-01-01", "2020-01-05"]}, {"joined": [2020, 2021]}
    training, new = reversed(tables) if swap else tables
    known = mf.Features.from_columns(training)
    made = "numbers" if swap else "dates"
    with pytest.raises(ValueError, match=f"column 'joined': was made of {made} and holds"):
        known.encode(new)
    with pytest.raises(ValueError, match=f"the column 'joined' is of {made} in training"):
        mf.Features.from_columns(new).in_columns_of(known)


def test_columns_of_the_dtype_category_are_levels():
    codes = pd.Series([3, 1, 3], dtype="category")
    days = pd.Series(["2020-01-01", "2020-01-02", "2020-01-01"], dtype="category")
    frame = pd.DataFrame({"code": codes, "day": days, "age": [1, 2, 3]})
    labels = ("code=1", "code=3", "day=2020-01-01", "day=2020-01-02", "age")
    assert mf.Features.from_pandas(frame).labels == labels


@pytest.mark.parametrize(
    "dates",
    [
        pd.Series(pd.to_datetime(["2020-01-01", "2020-01-03", None])),
        pd.Series(pd.to_datetime(["2020-01-01", "2020-01-03", None]).tz_localize("UTC")),
        np.array(["2020-01-01", "2020-01-03", "NaT"], "datetime64[D]"),
        [dt.date(2020, 1, 1), dt.date(2020, 1, 3), None],
        ["2020-01-01", "2020-01-03", ""],
        ["2020-01-01 00:00:00", "2020-01-03T02:00+02:00", None],
    ],
    ids=["pandas", "zone", "numpy", "dates", "texts", "times"],
)
def test_dates_are_numbers_of_days(dates):
    features = mf.Features.from_columns({"joined": dates}, missing="zero")
    assert features.labels == ("joined",)
    np.testing.assert_allclose(features.to_array()[:, 0], [-1, 1, 0], atol=1e-6)
    plain = mf.Features.from_columns({"joined": dates[:2]}, standardise=False)
    np.testing.assert_allclose(plain.to_array()[:, 0], [18262, 18264])
    levels = mf.Features.from_columns({"joined": dates[:2]}, categorical=["joined"])
    assert levels.width == 2
    with pytest.raises(ValueError, match="column 'joined': the value at line 2 is missing"):
        mf.Features.from_columns({"joined": dates})


def test_texts_that_are_not_all_dates_are_levels():
    assert mf.Features.from_columns({"when": ["2020-01-01", "2020-13-01"]}).width == 2
    assert mf.Features.from_columns({"when": ["2020-01-01", "later"]}).width == 2


def test_texts_of_a_line_each_are_warned_of():
    titles, towns = [f"Film {n}" for n in range(40)], [f"t{n % 20}" for n in range(40)]
    with pytest.warns(UserWarning, match="column 'title': has 40 levels in 40 lines"):
        assert mf.Features.from_columns({"title": titles}).width == 40
    mf.Features.from_columns({"title": titles, "town": towns}, categorical=["title"])
    mf.Features.from_columns({"title": titles}, lists={"title": " "})
    pairs = [f"p{n // 2}" for n in range(39)]  # more levels than half of the lines; one is single
    mf.Features.from_columns({"pair": pairs})


def test_pandas_frames():
    frame = pd.DataFrame(USERS, index=IDS).assign(sex=lambda f: f["sex"].astype("category"))
    features = mf.Features.from_pandas(frame, categorical=["job"])
    np.testing.assert_array_equal(features.to_array(), users().to_array())
    assert features.ids.tolist() == IDS
    frame = frame.reset_index(names="who").convert_dtypes()
    assert mf.Features.from_pandas(frame, id="who").ids.tolist() == IDS
    frame.loc[1, "age"] = pd.NA
    with pytest.raises(ValueError, match="column 'age': the value at line 1, of 'bo', is missing"):
        mf.Features.from_pandas(frame, id="who")
    zero = mf.Features.from_pandas(frame, id="who", missing="zero")
    assert zero.to_array()[1, 0] == 0
    with pytest.raises(ValueError, match="no column 'user'"):
        mf.Features.from_pandas(frame, id="user")


def test_blocks_side_by_side():
    genres = mf.Features(scipy.sparse.eye_array(4, format="csr"), IDS[::-1], columns=list("wxyz"))
    both = mf.Features.from_blocks({"users": users(), "genres": genres})
    assert both.is_sparse
    assert both.blocks == {"users": slice(0, 5), "genres": slice(5, 9)}
    assert both.labels[:2] == ("users.age", "users.sex=F")
    np.testing.assert_array_equal(both.to_array()[:, 5:], np.eye(4)[::-1])
    np.testing.assert_array_equal(both.to_array()[:, :5], users().to_array())
    again = both.encode(USERS | dict(zip("wxyz", np.eye(4)[::-1].T, strict=True)), ids=IDS)
    np.testing.assert_array_equal(again.to_array(), both.to_array())


def test_products_of_dense_and_sparse_agree():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(6, 3)) * (generator.random((6, 3)) < 0.5)
    weights, values = generator.normal(size=(3, 2)), generator.normal(size=(6, 2))
    for features in (mf.Features(x), mf.Features(scipy.sparse.csr_array(x))):
        found = jax.jit(
            lambda f, w, v: (
                f.times(w), f.transpose_times(v), f.gram(), f.take(jnp.array([4, 4, 0]))
            )
        )(features, jnp.asarray(weights), jnp.asarray(values))  # fmt: skip
        exact = (x @ weights, x.T @ values, x.T @ x, x[[4, 4, 0]])
        for one, expected in zip(found, exact, strict=True):
            np.testing.assert_allclose(one, expected, rtol=1e-5, atol=1e-6)
        assert features.fingerprint() != mf.Features(2 * x).fingerprint()
    assert mf.Features.none(3).match(["a"] * 4).num_rows == 4
    assert mf.Features.none(4).times(jnp.zeros((0, 2))).shape == (4, 2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: mf.Features([[1.0, np.nan]]), "must be finite"),
        (lambda: mf.Features(np.zeros((2, 0))), "is empty"),
        (lambda: mf.Features(np.eye(2), ["a", "a"]), "'a' stands at positions 0 and 1"),
        (lambda: mf.Features(np.eye(2), ["a"]), "1 ids for 2 lines"),
        (lambda: mf.Features(np.eye(2), columns=["a"]), "1 names for 2 columns"),
        (lambda: mf.Features(np.eye(2), missing="drop"), '"refuse" or "zero"'),
        (lambda: mf.Features.from_columns({}), "there is no column"),
        (lambda: mf.Features.from_columns({"a": [1, 2], "b": [1]}), "column 'b': has 1 values"),
        (
            lambda: mf.Features.from_columns({"a": ["x", None]}),
            "'a': the value at line 1 is missing",
        ),
        (
            lambda: mf.Features.from_columns({"a": [1.0, np.inf]}),
            "'a': the value at line 1 must be finite",
        ),
        (lambda: mf.Features.from_columns({"a": [1]}, categorical=["b"]), "no column 'b'"),
        (lambda: mf.Features.from_columns({"a": [1]}, lists={"a": "|"}), "no text to be split"),
        (lambda: mf.Features.from_columns({"a": [[1]]}), "neither a number nor a level"),
        (lambda: mf.Features.from_blocks({}), "blocks: is empty"),
    ],
)
def test_refusals(make, words):
    with pytest.raises((ValueError, TypeError), match=words):
        make()


# --- cells ----------------------------------------------------------------------------------------


def test_features_of_cells_are_found_and_others_are_zero():
    generator = np.random.default_rng(1)
    shape = (5, 7)
    listed = np.flatnonzero(generator.random(35) < 0.4)
    generator.shuffle(listed)
    rows, columns = np.divmod(listed, 7)
    x = generator.normal(size=(len(listed), 2)).astype(np.float32)
    table = mf.CellFeatures(rows, columns, x, shape)
    dense = np.zeros((*shape, 2), np.float32)
    dense[rows, columns] = x
    everywhere = np.divmod(np.arange(35), 7)
    found = jax.jit(lambda t, r, c: t.take(r, c))(table, *map(jnp.asarray, everywhere))
    np.testing.assert_array_equal(found, dense.reshape(35, 2))


def test_features_of_cells_are_matched_by_both_ids():
    frame = pd.DataFrame(
        {"who": ["bo", "ann", "bo"], "what": ["tea", "tea", "jam"], "day": [1.0, 2.0, 6.0]}
    )
    table = mf.CellFeatures.from_pandas(frame, row="who", column="what", features=["day"])
    assert table.labels == ("day",)
    matched = table.match(["ann", "bo", "cy"], ["jam", "tea"], shape=(3, 2))
    days = (frame["day"] - 3) / frame["day"].std(ddof=0)
    found = matched.take(jnp.array([0, 1, 1, 2]), jnp.array([1, 0, 1, 1]))[:, 0]
    np.testing.assert_allclose(found, [days[1], days[2], days[0], 0], rtol=1e-6)
    with pytest.raises(ValueError, match="no cell has the ids"):
        table.match([1, 2], ["jam", "tea"], shape=(2, 2))
    with pytest.raises(ValueError, match="duplicate cell"):
        mf.CellFeatures([0, 0], [1, 1], np.eye(2), (1, 2))
    with pytest.raises(ValueError, match="2 lines for 1 cells"):
        mf.CellFeatures([0], [1], np.eye(2), (1, 2))
    with pytest.raises(ValueError, match="are of 1 rows, the data has 3"):
        mf.CellFeatures([0], [1], np.eye(1), (1, 2)).match(None, None, shape=(3, 2))


# --- files ----------------------------------------------------------------------------------------


def test_features_from_files(tmp_path):
    path = tmp_path / "movies.csv"
    path.write_text("movie,year,genres\n3,1990,War|Drama\n10,1992,Drama\n")
    films = read_features(path)
    assert films.ids.tolist() == [3, 10]
    assert films.labels == ("year", "genres=Drama", "genres=War")
    assert films.to_array().tolist() == [[-1, 1, 1], [1, 1, 0]]
    path = tmp_path / "users.tsv"
    path.write_text("age\tid\tjob\n20\tann\t1\n\tbo\t2\n")
    with pytest.raises(
        ValueError, match=r"users.tsv: column 'age': the value in line 3, of 'bo', is missing"
    ):
        read_features(path, id="id")
    people = read_features(path, id="id", categorical=["job"], missing="zero")
    assert people.labels == ("age", "job=1", "job=2")
    assert people.ids.tolist() == ["ann", "bo"]
    with pytest.raises(ValueError, match="has no column 'name'"):
        read_features(path, id="name")
    path.write_text("id\nann\n")
    with pytest.raises(ValueError, match="a column of ids, and features"):
        read_features(path)


@pytest.mark.parametrize(
    ("age", "problem"), [("", "is missing"), ("inf", "must be finite, is inf"), ("-inf", "is -inf")]
)
def test_errors_about_a_file_say_its_line_and_the_id(tmp_path, age, problem):
    path = tmp_path / "users.csv"
    path.write_text(f"id,age\n0,20\n\n1,{age}\n")
    with pytest.raises(
        ValueError, match=f"users.csv: column 'age': the value in line 4, of 1, .*{problem}"
    ):
        read_features(path)


def test_equal_lines_of_a_file_count_once(tmp_path):
    path = tmp_path / "users.csv"
    path.write_text("id,age,job\nann,20,a\nbo,30,b\n ann, 20,a\ncy,,b\n")
    with pytest.warns(UserWarning, match=r"users.csv: 1 of 4 lines repeat an earlier one"):
        people = read_features(path, missing="zero")
    assert people.ids.tolist() == ["ann", "bo", "cy"]
    assert people.to_array().tolist() == [[-1, 1, 0], [1, 0, 1], [0, 0, 1]]
    with (
        pytest.warns(UserWarning, match="count once"),
        pytest.raises(ValueError, match="in line 5, of 'cy', is missing"),
    ):
        read_features(path)


def test_lines_of_a_file_that_differ_about_one_id_are_refused(tmp_path):
    path = tmp_path / "users.csv"
    path.write_text("id,age,job\nann,20,a\n\nbo,30,b\nann,20,c\n")
    with pytest.raises(
        ValueError, match="the id 'ann' stands in lines 2 and 5, which differ in column 'job'"
    ):
        read_features(path)


# --- saved runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [IDS, [4, 3, 2, 1], None])
@pytest.mark.parametrize("sparse", [False, True])
def test_features_are_taken_apart_and_put_together(ids, sparse):
    features = mf.Features.from_columns(USERS, ids=ids, sparse=sparse, missing="zero")
    words = json.loads(json.dumps(settings.encode(features)))
    again = feature_parts.put_together(words, feature_parts.arrays(features))
    assert again.fingerprint() == features.fingerprint()
    assert again.labels == features.labels
    assert again.missing == "zero"
    np.testing.assert_array_equal(again.match(ids, size=4).to_array(), features.to_array())
    np.testing.assert_array_equal(again.encode(USERS).to_array(), features.to_array())
    other = feature_parts.arrays(mf.Features(2 * features.to_array()))
    with pytest.raises(ValueError, match="fingerprint differs"):
        feature_parts.put_together(words, other)


def test_features_of_cells_are_taken_apart_and_put_together():
    table = mf.CellFeatures([1, 0], [0, 1], [[3.0], [5.0]], (2, 2), row_names=["a", "b"])
    words = json.loads(json.dumps(settings.encode(table)))
    again = feature_parts.put_together(words, feature_parts.arrays(table))
    assert again.row_names.tolist() == ["a", "b"]
    assert again.take(jnp.array([0, 0]), jnp.array([1, 0])).tolist() == [[5.0], [0.0]]
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        settings.encode(mf.Features(np.eye(1), [("a", 1)]))
