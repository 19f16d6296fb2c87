"""Ids of new data matched with those of the data: reordered, refused, left out, or of the prior."""

import numpy as np
import pytest

import jaxmf as mf
from jaxmf.data import Features
from jaxmf.data.container import identity

SHORT = {"num_warmup": 3, "num_samples": 5, "num_chains": 2, "progress": False}
KNOWN = mf.Dense(np.arange(8.0).reshape(2, 4), column_names=list("abcd"))
SAME_LENGTH = mf.Dense([[0.0, 1.0, 2.0, 3.0]], column_names=list("dcba"))


def test_columns_of_a_matrix_are_put_in_the_order_of_the_data():
    new = mf.Dense([[0.0, np.nan, 2.0, 3.0]], row_names=["r"], column_names=list("dcba"))
    found = new.align_columns(KNOWN)
    np.testing.assert_array_equal(found.to_array(), [[3.0, 2.0, np.nan, 0.0]])
    assert found.column_names.tolist() == list("abcd")
    assert found.row_names.tolist() == ["r"]


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (list("abcz"), "new_rows: the column 'z' at position 3 is not one of the 4 columns"),
        ([0, 1, 2, 3], "ids of the data are str, this int"),
        (list("abc"), "new_rows: has no column 'd', which the data has .1 of 4"),
    ],
)
def test_other_columns_are_refused_with_the_first_difference(names, says):
    new = mf.Dense(np.ones((1, len(names))), column_names=names)
    with pytest.raises(ValueError, match=says):
        new.align_columns(KNOWN, argument="new_rows")


def test_without_ids_on_one_side_columns_are_taken_by_position():
    values = np.array([[4.0, 3.0, 2.0, 1.0]])
    assert mf.Dense(values).align_columns(KNOWN).column_names.tolist() == list("abcd")
    found = SAME_LENGTH.align_columns(mf.Dense(values))
    np.testing.assert_array_equal(found.to_array(), SAME_LENGTH.to_array())
    with pytest.raises(ValueError, match="data has 3 columns, the data has 4, and data has no ids"):
        mf.Dense(values[:, :3]).align_columns(KNOWN)


def test_unknown_columns_are_dropped_where_that_is_asked_for():
    new = mf.Dense([[9.0, 0.0, 1.0, 2.0, 3.0]], column_names=list("zdcba"))
    found = new.align_columns(KNOWN, unknown="drop")
    np.testing.assert_array_equal(found.to_array(), [[3.0, 2.0, 1.0, 0.0]])
    with pytest.raises(ValueError, match='unknown: takes "error" or "drop" here, got \'skip\''):
        new.align_columns(KNOWN, unknown="skip")


def test_cells_and_ones_need_not_name_every_column():
    known = mf.Entries([0], [3], [1.0], (1, 4), None, list("abcd"))
    new = mf.Entries([0, 0], [0, 1], [5.0, 7.0], (1, 2), ["r"], ["d", "b"])
    found = new.align_columns(known)
    assert found.shape == (1, 4)
    assert np.asarray(found.columns).tolist() == [1, 3]
    assert np.asarray(found.values).tolist() == [7.0, 5.0]
    known = mf.SparseBinary([0], [3], (1, 4), None, list("abcd"))
    new = mf.SparseBinary.from_baskets([["d", "q"], ["b", "a"]])
    found = new.align_columns(known, unknown="drop")
    assert np.asarray(found.rows).tolist() == [0, 1, 1]
    assert np.asarray(found.columns).tolist() == [3, 0, 1]


def test_a_document_may_use_a_part_of_the_words():
    known = mf.Tokens.from_counts(np.ones((2, 4), int), vocabulary=list("abcd"))
    new = mf.Tokens.from_columns({"document": ["x", "x", "y"], "word": ["d", "b", "q"]})
    with pytest.raises(ValueError, match="the word 'q' at position 2 is not one of the 4 words"):
        new.align_columns(known)
    with pytest.warns(UserWarning, match="1 of 3 tokens .* 1 document had no other"):
        found = new.align_columns(known, unknown="drop")
    assert found.sizes == {"document": 2, "word": 4}
    assert found.names["document"].tolist() == ["x", "y"]
    assert np.asarray(found.columns["word"]).tolist() == [1, 3]
    strange = mf.Tokens.from_columns({"document": ["x"], "word": ["q"]})
    with pytest.warns(UserWarning, match="1 of 1 tokens .* 1 document had no other"):
        found = strange.align_columns(known, unknown="drop")
    assert (found.num_tokens, found.sizes) == (0, {"document": 1, "word": 4})


@pytest.mark.parametrize(
    ("old", "new", "together"),
    [
        ([0, 1], [0, 1, 2], [0, 1, 2, 3, 4]),
        (None, None, None),
        (["a", "b"], ["c", "d", "e"], ["a", "b", "c", "d", "e"]),
        (["a", "b"], None, ["a", "b", 2, 3, 4]),
        (None, ["c", "d", "e"], [0, 1, "c", "d", "e"]),
        ([5, 6], [7, 8, 9], [5, 6, 7, 8, 9]),
    ],
)
def test_default_ids_of_further_rows_continue_those_above(old, new, together):
    above = mf.Dense(np.ones((2, 3)), row_names=old)
    found = above.append_rows(mf.Dense(np.zeros((3, 3)), row_names=new))
    assert found.shape == (5, 3)
    names = found.row_names
    assert (names if names is None else names.tolist()) == together


def test_an_id_of_a_further_row_that_is_there_already_is_named():
    above = mf.Dense(np.ones((2, 3)), row_names=["a", "b"])
    with pytest.raises(ValueError, match="new_rows: the row with the id 'b' at position 1"):
        above.append_rows(mf.Dense(np.ones((2, 3)), row_names=["c", "b"]), argument="new_rows")


TABLE = {"age": [20.0, 30.0, 41.0, 50.0, 60.0, 71.0, 33.0, 27.0], "sex": list("FMFMFFMM")}
USERS = Features.from_columns(TABLE, ids=[f"u{i}" for i in range(8)])


FEATURES = {"row_features": USERS, "column_features": Features(np.arange(6.0)[:, None])}
ROW_IDS, COLUMN_IDS = [f"u{i}" for i in range(8)], [f"i{j}" for j in range(6)]


def rated(row_ids, column_ids):
    """The same ratings under the ids that are passed."""
    generator = np.random.default_rng(0)
    rows, columns = np.nonzero(generator.random((8, 6)) < 0.7)
    return mf.Entries(
        rows, columns, 3 + generator.normal(size=rows.size), (8, 6), row_ids, column_ids
    )


@pytest.fixture(scope="module")
def stars():
    """Ratings factorised with features of their rows and of their columns."""
    return mf.sample(mf.BPMF(1, **FEATURES), rated(ROW_IDS, COLUMN_IDS), **SHORT)


def test_cells_with_unknown_ids_are_refused_dropped_or_of_the_prior(stars):
    post = stars
    cells = ["u1", "u9", "u1", "u9", "u8"], ["i0", "i0", "i7", "i7", "i1"]
    with pytest.raises(ValueError, match="no row has the id 'u9'"):
        post.predict(cells)
    known = post.predict((["u1"], ["i0"]))
    dropped = post.predict(cells, unknown="drop")
    assert dropped.row_names.tolist() == ["u1"]
    np.testing.assert_allclose(dropped.mean, known.mean, rtol=1e-6)
    found = post.predict(cells, unknown="prior", seed=1)
    assert found.row_names.tolist() == cells[0]
    assert found.column_names.tolist() == cells[1]
    np.testing.assert_allclose(found.mean[0], known.mean[0], rtol=1e-5)
    assert np.isfinite(found.mean).all()
    assert np.isfinite(found.sd).all()
    with pytest.raises(ValueError, match="none of the 1 cells has the ids"):
        post.predict((["u9"], ["i0"]), unknown="drop")


@pytest.mark.exhaustive
def test_the_prior_of_unknown_rows_is_that_of_rows_without_cells():
    """Against predict(new_rows=) of a row of which nothing is known, over many draws."""
    run = SHORT | {"num_samples": 600, "num_chains": 1}
    generator = np.random.default_rng(1)
    rows, columns = np.nonzero(generator.random((20, 5)) < 0.8)
    names = [f"u{i}" for i in range(20)], list("abcde")
    values = 3 + columns + 0.5 * generator.normal(size=rows.size)
    data = mf.Entries(rows, columns, values, (20, 5), *names)
    post = mf.sample(mf.BPMF(1), data, **run)
    found = post.predict((["new"] * 5, list("abcde")), unknown="prior")
    nothing_known = mf.Entries([0], [0], [4.0], (1, 1), ["other"], ["z"])
    expected = post.predict(new_rows=nothing_known, unknown="drop")
    assert expected.column_names.tolist() == list("abcde")
    np.testing.assert_allclose(found.mean, expected.mean, atol=0.25)
    np.testing.assert_allclose(found.sd, expected.sd, rtol=0.15)
    assert np.ptp(expected.mean) > 3
    partly = mf.Entries([0], [0], [4.0], (1, 1), ["other"], ["a"])
    assert post.predict(new_rows=partly).column_names.tolist() == list("bcde")


def test_features_of_new_rows_are_matched_by_their_columns(stars):
    users, post = USERS, stars
    new = users.encode({"age": [25.0], "sex": ["F"]}, ids=["new"])
    plain = post.predict(row_features=new).mean
    turned = post.predict(row_features=new.select(np.array([2, 0, 1]))).mean
    np.testing.assert_array_equal(turned, plain)
    # numbers that were standardised by themselves are brought to the units in training
    two = {"age": [25.0, 21.0], "sex": ["F", "M"]}
    alone = post.predict(row_features=Features.from_columns(two, ids=["x", "y"])).mean
    together = post.predict(row_features=users.encode(two, ids=["x", "y"])).mean
    np.testing.assert_allclose(alone, together, rtol=1e-4)
    strange = Features(np.ones((1, 3)), ["x"], columns=["age", "sex=F", "sex=X"])
    with pytest.raises(ValueError, match="have no column 'sex=M', which those in training have"):
        post.predict(row_features=strange)


def test_models_without_a_prior_of_rows_say_so():
    model, data = mf.registry.get("bi-lda").example()
    post = mf.sample(model, data, **SHORT)
    with pytest.raises(ValueError, match='unknown="prior": BiLDA answers for rows and columns of'):
        post.predict(([0], [0]), unknown="prior")


def test_one_text_is_no_list_of_ids():
    with pytest.raises(TypeError, match=r"column_names: is 'abcd'; a list with one id"):
        mf.Dense(np.ones((1, 4)), column_names="abcd")


def test_a_complete_matrix_is_matched_by_its_ids():
    """Scores of held-out cells by a table whose rows and columns stand in another order."""
    model, data = mf.registry.get("linear-gaussian-ibp").example()
    values = np.where(np.isnan(data.to_array()), 0.5, data.to_array())
    names = {"row_names": [f"r{i}" for i in range(12)], "column_names": list("abcde")}
    named = mf.Dense(data.values, data.observed, **names)
    post = mf.sample(model, named, **SHORT)
    complete = mf.Dense(values, **names)
    turned = mf.Dense(
        values[::-1, ::-1], row_names=names["row_names"][::-1], column_names=list("edcba")
    )
    for ask in (
        lambda truth: post.held_out_log_likelihood(truth).log_likelihood,
        lambda truth: mf.diagnostics.held_out_error(post, truth),
    ):
        np.testing.assert_array_equal(ask(turned), ask(complete))
        np.testing.assert_array_equal(ask(values), ask(complete))
    # the known cells of a part of the rows and columns, in another order
    rows, columns = (part[::-1] for part in np.nonzero(np.isnan(data.to_array())))
    order = np.arange(12)[::-1]
    entries = mf.Entries(
        order[rows], 4 - columns, values[rows, columns], (12, 5),
        names["row_names"][::-1], list("edcba"),
    )  # fmt: skip
    for ask, argument in (
        (lambda truth: post.held_out_log_likelihood(truth).mean, "values"),
        (lambda truth: mf.diagnostics.held_out_error(post, truth).rmse, "truth"),
        (lambda t: mf.compare({"a": post, "b": post}, held_out=t)["a", "elpd"], "held_out"),
    ):
        assert ask(entries) == pytest.approx(ask(complete), rel=1e-5)
        strange = mf.Entries([0], [0], [1.0], (1, 1), ["r99"], ["a"])
        with pytest.raises(ValueError, match=f"{argument}: the row 'r99' at position 0 is not one"):
            ask(strange)
    other = mf.Dense(values, row_names=names["row_names"], column_names=list("abcdz"))
    with pytest.raises(
        ValueError, match="values: the column 'z' at position 4 is not one of the 5"
    ):
        post.held_out_log_likelihood(other)


def test_a_run_is_not_resumed_with_permuted_ids(tmp_path):
    """The same numbers under other ids are other data, of rows, columns and words."""
    model, run = mf.BPMF(1, **FEATURES), SHORT | {"checkpoint": tmp_path / "run"}
    data = rated(ROW_IDS, COLUMN_IDS)
    first = mf.sample(model, data, **run)
    again = mf.sample(model, data, resume=True, **run)
    np.testing.assert_array_equal(again.draws["u"], first.draws["u"])
    for ids in ((["u1", "u0", *ROW_IDS[2:]], COLUMN_IDS), (ROW_IDS, ["i1", "i0", *COLUMN_IDS[2:]])):
        with pytest.raises(ValueError, match="is another one: data differ in a value or an id"):
            mf.sample(mf.BPMF(1, **FEATURES), rated(*ids), resume=True, **run)


def test_the_identity_of_data_has_the_ids_and_their_types():
    values = np.ones((2, 2))
    plain = mf.Dense(values)
    assert identity(plain) == plain.fingerprint()
    named = [
        mf.Dense(values, row_names=ids) for ids in (["1", "2"], [1, 2], ["2", "1"], ["1 2", ""])
    ]
    named.append(mf.Dense(values, column_names=["1", "2"]))
    for ids in (["a", "b"], ["b", "a"]):
        named.append(mf.Tokens.from_counts(np.eye(2, dtype=int), vocabulary=ids))
    assert len({identity(data) for data in [plain, *named]}) == 8
