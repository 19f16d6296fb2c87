"""Files of ones: pairs, baskets, matrices, triples, and masks of the observed cells."""

import numpy as np
import pytest

import jaxmf as mf
from jaxmf import cli
from jaxmf.data import read_ones, read_series


def test_ones_are_read_from_files(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("user,item\n1,7\n2,7\n1,9\n")
    pairs = read_ones(path)
    assert pairs.shape == (2, 2)
    assert pairs.row_names.tolist() == [1, 2]
    path.write_text("milk,bread\nmilk,,\nbread,beer,milk\n")
    baskets = read_ones(path)
    assert baskets.shape == (3, 3)
    assert baskets.num_ones == 6
    path.write_text("milk,bread\nbeer,milk\n")
    assert read_ones(path, form="baskets").shape == (2, 3)
    path.write_text("0,1,1\n1,0,0\n")
    assert read_ones(path).num_ones == 3
    path.write_text("a,b\nx\n")
    with pytest.raises(ValueError, match="line 2 is"):
        read_ones(path, form="pairs")
    with pytest.raises(ValueError, match="form must be pairs"):
        read_ones(path, form="lists")


@pytest.mark.parametrize(
    ("text", "shape", "columns"),
    [
        ("user,item\na,x\nb,y\n\n", (2, 2), ["x", "y"]),
        ("user,item\n007,x\n7,y\n", (2, 2), ["x", "y"]),
        ("milk,bread\n\njam\n\n\n", (3, 3), ["milk", "bread", "jam"]),
        ("milk,bread,tea\nmilk,jam,tea\n", (2, 4), ["milk", "bread", "tea", "jam"]),
    ],
)
def test_the_form_of_a_file_is_seen(tmp_path, text, shape, columns):
    path = tmp_path / "ones.csv"
    path.write_text(text)
    data = read_ones(path)
    assert data.shape == shape
    assert sorted(data.column_names) == sorted(columns)


def test_one_line_may_be_headings(tmp_path):
    path = tmp_path / "ones.csv"
    path.write_text("milk,bread,tea\n")
    with pytest.raises(ValueError, match=r"has one line, 'milk', .* say form='baskets'"):
        read_ones(path)
    assert read_ones(path, form="baskets").shape == (1, 3)
    assert read_ones(path, items=["milk", "bread", "tea", "jam"]).num_ones == 3


def test_an_odd_pair_is_named_by_its_line_in_the_file(tmp_path):
    path = tmp_path / "ones.csv"
    path.write_text("user,item\na,x\n\nb\n")
    with pytest.raises(ValueError, match=r"line 4 is \['b'\]"):
        read_ones(path, form="pairs")


def test_a_matrix_with_gaps_is_not_taken_for_baskets(tmp_path):
    path = tmp_path / "ones.csv"
    path.write_text("1,0,1\n0,1\n1,1,0\n")
    with pytest.raises(ValueError, match="form="):
        read_ones(path)


# --- headings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "headings", "ones"),
    [
        ("user,item\nann,tea\nbo,tea\n", None, 2),
        ("1,7\n2,7\n1,9\n", None, 3),  # whole numbers are ids
        ("user,7\n2,7\n", None, 2),  # and so is what comes again in its column
        ("user,item\n1,tea\n2,jam\n", None, 2),
        ("1,tea\n2,jam\n", None, 2),
        ("ann,tea\nbo,tea\n", None, 2),
        ("ann,tea\nbo,jam\n", None, 1),  # nothing tells it from headings
        ("ann,tea\nbo,jam\n", False, 2),
        ("1,7\n2,7\n1,9\n", True, 2),
    ],
)
def test_headings_of_pairs_are_seen_or_said(tmp_path, text, headings, ones):
    path = tmp_path / "ones.csv"
    path.write_text(text)
    assert read_ones(path, form="pairs", headings=headings).num_ones == ones


def test_headings_that_cannot_be(tmp_path):
    path = tmp_path / "ones.csv"
    path.write_text("ann,tea\n")
    with pytest.raises(ValueError, match="--no-headings"):
        read_ones(path)
    path.write_text("milk,bread,tea\njam,tea\n")
    with pytest.raises(ValueError, match="read as baskets"):
        read_ones(path, headings=True)


@pytest.mark.parametrize("form", ["baskets", None])
def test_ids_before_baskets_are_no_items_whether_the_form_is_stated_or_not(tmp_path, form):
    path, mask = tmp_path / "baskets.csv", tmp_path / "mask.csv"
    items = [["tea", "milk", "bread"], ["tea", "milk"], ["milk", "bread", "tea", "jam"]] * 4
    lines = [",".join([f"basket {row}", *basket]) for row, basket in enumerate(items)]
    path.write_text("\n".join(lines) + "\n")
    with pytest.warns(UserWarning, match="'basket 0', 'basket 1', ..., all differ; they are read"):
        data = read_ones(path, form=form)
    assert data.shape == (12, 4)
    assert data.row_names.tolist() == [f"basket {row}" for row in range(12)]
    assert data.column_names.tolist() == ["tea", "milk", "bread", "jam"]
    cells = [f"basket {row},{item}" for row in range(12) for item in data.column_names]
    mask.write_text("\n".join(cell for cell in cells if cell != "basket 0,jam") + "\n")
    with pytest.warns(UserWarning, match="read as ids of the baskets"):
        masked = read_ones(path, form=form, mask=mask)
    assert masked.num_missing == 1


@pytest.mark.parametrize("form", ["baskets", None])
def test_ids_before_a_few_baskets_are_seen_where_the_items_are_known(tmp_path, form):
    path = tmp_path / "baskets.csv"
    path.write_text("ann,tea,milk\nbob,tea\n")
    with pytest.warns(UserWarning, match="'ann', 'bob', all differ; they are read as ids"):
        data = read_ones(path, form=form, items=["milk", "tea", "jam"])
    assert data.row_names.tolist() == ["ann", "bob"]
    assert data.column_names.tolist() == ["tea", "milk"]
    data = read_ones(path, form=form, items=["milk", "tea", "ann"])  # which is an item
    assert data.row_names is None
    with pytest.warns(UserWarning, match="read as items, as in all files of fewer than ten lines"):
        assert read_ones(path, form=form).column_names.tolist() == ["ann", "tea", "milk", "bob"]


def test_a_first_pair_with_a_known_item_is_no_line_of_headings(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("ann,tea\n")
    data = read_ones(path, items=["tea", "milk"])
    assert (data.row_names.tolist(), data.column_names.tolist()) == (["ann"], ["tea"])


# --- masks ---------------------------------------------------------------------------------------


def test_a_mask_of_pairs_lists_what_was_observed(tmp_path):
    ones, mask = tmp_path / "ones.csv", tmp_path / "mask.csv"
    ones.write_text("user,item\n1,tea\n2,jam\n")
    # user 3 and bread have no ones, and are known by the mask alone
    mask.write_text("user,item\n1,tea\n1,jam\n2,jam\n3,tea\n3,bread\n")
    data = read_ones(ones, mask=mask)
    assert data.row_names.tolist() == [1, 2, 3]
    assert data.column_names.tolist() == ["tea", "jam", "bread"]
    assert data.num_ones == 2
    missing = set(zip(*(part.tolist() for part in data.missing_cells()), strict=True))
    assert missing == {(0, 2), (1, 0), (1, 2), (2, 1)}


@pytest.mark.parametrize("text", ["1,1,0\n1,0,1\n", "tea,bread,milk\n1,0,1\n1,1,0\n"])
def test_a_mask_may_be_a_matrix(tmp_path, text):
    """By position, or by the ids of its columns."""
    ones, mask = tmp_path / "ones.csv", tmp_path / "mask.csv"
    ones.write_text("tea,milk,bread\n1,0,0\n0,0,1\n")
    mask.write_text(text)
    data = read_ones(ones, mask=mask)
    missing = set(zip(*(part.tolist() for part in data.missing_cells()), strict=True))
    assert missing == {(0, 2), (1, 1)}
    np.save(tmp_path / "mask.npy", np.array([[1, 1, 0], [1, 0, 1]]))
    data = read_ones(ones, mask=tmp_path / "mask.npy")
    assert data.num_missing == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,0\n1,1\n", "has shape"),
        ("0,1,1\n1,1,1\n", "not among the observed cells"),
        ("2,1,1\n1,1,1\n", "must hold 0 and 1 only"),
        ("tea,bread,honey\n1,1,1\n1,1,1\n", "no .* has the id 'honey'"),
    ],
)
def test_masks_that_are_refused(tmp_path, text, words):
    ones, mask = tmp_path / "ones.csv", tmp_path / "mask.csv"
    ones.write_text("tea,milk,bread\n1,0,0\n0,0,1\n")
    mask.write_text(text)
    with pytest.raises(ValueError, match=words):
        read_ones(ones, mask=mask)


@pytest.mark.slow
def test_a_mask_from_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("JAXMF_CACHE", "off")
    ones, mask = tmp_path / "ones.csv", tmp_path / "mask.csv"
    ones.write_text("a,x\nb,x\nb,y\n")
    mask.write_text("a,x\nb,x\nb,y\na,z\n")
    out = tmp_path / "run"
    words = ["--mask", str(mask), "--no-headings", "--epochs", "1", "--set", "num_factors=1"]
    words += ["--set", "zeros=exact", "--set", "start=random"]
    assert cli.run(["fit", "sparse-binary", str(ones), "--out", str(out), *words]) == 0
    assert mf.load(out).data.num_missing == 2
    matrix = tmp_path / "x.npy"
    np.save(matrix, np.eye(3))
    words = ["fit", "linear-gaussian-ibp", str(matrix), "--out", str(tmp_path / "other")]
    capsys.readouterr()
    assert cli.run([*words, "--mask", str(mask)]) == 2
    assert "--mask is not for files of a matrix of numbers" in capsys.readouterr().err


# --- triples -------------------------------------------------------------------------------------


def test_triples_make_a_series(tmp_path):
    path = tmp_path / "ones.csv"
    path.write_text("1,tea,2023.5\n2,tea,2021\n1,jam,2023.5\n")
    data = read_series(path)
    assert data.shape == (2, 2, 2)
    assert data.times.tolist() == [2021, 2023.5]
    assert data.row_names.tolist() == [1, 2]
    np.testing.assert_array_equal(data.to_scipy().toarray(), [[1, 1], [0, 0]])
    path.write_text("time,row,column\n2023.5,1,tea\n2021,2,tea\n2023.5,1,jam\n")
    assert read_series(path).fingerprint() == data.fingerprint()
    path.write_text("who,what,when\n1,tea,2023.5\n2,tea,2021\n1,jam,2023.5\n")
    assert read_series(path).fingerprint() == data.fingerprint()


@pytest.mark.parametrize("heading", ["", "user,item,date\n"])
def test_times_of_triples_that_are_dates_are_days(tmp_path, heading):
    path = tmp_path / "ones.csv"
    path.write_text(f"{heading}ann,tea,2024-01-02\nbo,tea,2024-01-01\nann,jam,2024-01-02\n")
    with pytest.warns(UserWarning, match="times are dates; they are read as days since 1970"):
        data = read_series(path)
    assert data.shape == (2, 2, 2)
    assert data.times.tolist() == [19723, 19724]


def test_triples_that_repeat_one_count_once_as_pairs_do(tmp_path):
    path = tmp_path / "ones.csv"
    path.write_text("a,tea,1\nb,tea,1\na,tea,1\na,tea,2\n")
    with pytest.warns(UserWarning, match="1 of 4 lines repeat an earlier one"):
        data = read_series(path)
    assert np.bincount(np.asarray(data.steps)).tolist() == [2, 1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,tea,May\nb,tea,June\n", "'June' of row 'b', column 'tea' is no number and no date"),
        ("a,tea,1\nb,tea\n", r"line 2 is \['b', 'tea'\]; triples have three"),
        ("a,tea,1\nb,tea,inf\n", "no number"),
    ],
)
def test_triples_that_are_refused(tmp_path, text, words):
    path = tmp_path / "ones.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        read_series(path)


def test_an_unknown_item_is_refused_with_how_new_rows_are_asked_about():
    with pytest.raises(
        ValueError, match=r"no item has the id 'beer'.*need no column_names: .*drop"
    ):
        mf.SparseBinary.from_baskets([["milk", "beer"]], column_names=["milk", "tea"])
