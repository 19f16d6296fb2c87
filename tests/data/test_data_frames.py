"""DataFrames of other libraries are read as those of pandas are."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import jaxmf as mf
from jaxmf.data import as_container
from jaxmf.data.cell_features import CellFeatures
from jaxmf.data.frames import as_pandas

pl = pytest.importorskip("polars")

LONG = {"who": ["ann", "bo", "ann"], "what": ["tea", "tea", "milk"], "stars": [5, 3, 4]}


def frames(columns):
    return pd.DataFrame(columns), pl.DataFrame(columns)


@pytest.mark.parametrize(
    "read",
    [
        lambda f: mf.Entries.from_pandas(f, row="who", column="what", value="stars"),
        lambda f: mf.SparseBinary.from_pairs(f[["who", "what"]]),
        lambda f: mf.SparseSeries.from_triples(f),
        lambda f: mf.Tokens.from_columns(f),
        lambda f: CellFeatures.from_pandas(f, row="who", column="what", features=["stars"]),
        lambda f: mf.Features.from_pandas(f[["what", "stars"]]),
    ],
    ids=["entries", "pairs", "triples", "tokens", "cell features", "features"],
)
def test_a_polars_frame_is_read_as_the_same_of_pandas(read):
    theirs, ours = map(read, frames(LONG))
    assert ours.fingerprint() == theirs.fingerprint()


def test_a_matrix_keeps_names_and_missing_cells():
    columns = {"a": [1.0, None, 3.0], "b": [4, 5, None]}
    data = as_container(pl.DataFrame(columns), mf.Dense)
    assert data.column_names.tolist() == ["a", "b"]
    expected = [[1.0, 4.0], [np.nan, 5.0], [3.0, np.nan]]
    np.testing.assert_array_equal(data.to_array(), expected)


def test_a_wide_frame_of_numbers_is_a_matrix_of_entries():
    table = pd.DataFrame(np.eye(2, 5), ["r", "s"], list("abcde")).astype("Int64")
    table.iloc[0, 1] = pd.NA
    data = as_container(table, mf.Entries)
    assert (data.shape, data.num_entries, data.row_names.tolist()) == ((2, 5), 9, ["r", "s"])


def test_a_matrix_that_was_read_prints_its_size_and_first_ids(tmp_path):
    table = pd.DataFrame(np.eye(9), [f"row {k}" for k in range(9)])
    for some, gaps in ((table, ""), (table.where(table > 0), ", 72 of 81 cells missing")):
        some.to_csv(tmp_path / "a.csv")
        assert repr(mf.data.read_matrix(tmp_path / "a.csv")) == (
            f"LabelledMatrix(9 x 9{gaps}, rows 'row 0', 'row 1', 'row 2', ..., "
            "columns 0, 1, 2, ...)"
        )


def test_lazy_frames_and_categories_are_read():
    table = pl.LazyFrame(LONG).with_columns(pl.col("what").cast(pl.Categorical))
    data = mf.Entries.from_pandas(table, row="who", column="what", value="stars")
    assert data.column_names.tolist() == ["tea", "milk"]


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.Enum(["2020-01-01", "2020-02-01"])])
def test_categories_are_levels_and_decimals_numbers_as_in_pandas(dtype):
    money = [Decimal("1.50"), Decimal("2.50"), None]
    table = pl.DataFrame({"day": ["2020-01-01", "2020-02-01", "2020-01-01"], "money": money})
    table = table.with_columns(pl.col("day").cast(dtype))
    plain = pd.DataFrame({"day": table["day"].to_list(), "money": money})
    plain = plain.astype({"day": "category"})
    theirs, ours = (mf.Features.from_pandas(each, missing="zero") for each in (plain, table))
    assert ours.labels == ("day=2020-01-01", "day=2020-02-01", "money")
    assert ours.fingerprint() == theirs.fingerprint()
    np.testing.assert_array_equal(ours.to_array()[:, 2], [-1, 1, 0])
    stars = pl.DataFrame(LONG).with_columns(pl.col("stars").cast(pl.Decimal(10, 1)))
    data = mf.Entries.from_pandas(stars, row="who", column="what", value="stars")
    assert data.values.tolist() == [5, 3, 4]


def test_a_column_of_texts_in_a_matrix_is_named():
    with pytest.raises(TypeError, match=r"column 'who'.*numbers are needed, first 'ann'"):
        as_container(pl.DataFrame(LONG), mf.Dense)


def test_what_is_no_frame_is_left_as_it_is():
    for x in (np.eye(2), [[1, 2]], "text", None, pl.Series([1, 2])):
        assert as_pandas(x) is x


def test_a_first_column_of_texts_is_the_ids_as_in_files():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"id": ["x", "y"], "a": [1.0, 2.0], "b": [3.0, 4.0]})
    data = mf.Dense.from_array(table)
    assert (data.row_names.tolist(), data.column_names.tolist()) == (["x", "y"], ["a", "b"])
    np.testing.assert_array_equal(data.to_array(), [[1, 3], [2, 4]])
    assert mf.Tokens.from_counts(table.astype({"a": int})).names["document"].tolist() == ["x", "y"]
    numbered = table.set_axis([0, 1], axis=0)  # not a range, and says no more than one
    assert mf.Dense.from_array(numbered).row_names.tolist() == ["x", "y"]
    for other in (table.assign(id="x"), table[["a", "id", "b"]], table.set_index(["a"])):
        with pytest.raises(TypeError, match=r"column 'id'.*df.set_index\('id'\)"):
            mf.Dense.from_array(other)


@pytest.mark.parametrize(
    "words", [["the cat sat", "a dog"], [["the", "cat"], ["a"]], np.array(["a b", "c"])]
)
def test_words_in_place_of_counts_are_sent_to_the_constructor_of_words(words):
    with pytest.raises(TypeError, match=r"these are words.*Tokens.from_columns\(\{'document'"):
        mf.Tokens.from_counts(words)


def test_a_table_with_a_line_a_token_is_sent_to_from_columns():
    sales = {"shop": ["01", "02"] * 4, "item": list("abcd") * 2}
    network = mf.Network(
        kind=mf.Block(mf.Dirichlet(2), by="shop"),
        item=mf.Block(mf.DirichletMultinomial(), by="kind", observed=True),
    )
    priced = pd.DataFrame(sales | {"price": range(8)})
    for table in (sales, pd.DataFrame(sales), priced):
        with pytest.raises(TypeError, match=r"^data: a .* by mf\.Tokens\.from_columns\(df\)"):
            mf.sample(network, table)
    counts = pd.DataFrame({"a": [1, 2], "b": [0, 3], "c": ["x", "x"]})
    with pytest.raises(TypeError, match=r"'c' .*pandas"):
        mf.sample(mf.LDA(2), counts)
    with pytest.raises(TypeError, match=r"astype\(float\)"):
        mf.sample(mf.LDA(2), pd.DataFrame([[1, 2], [0, 3]], dtype=object))


def test_a_table_with_texts_is_no_matrix_of_features():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"id": ["x", "y"], "age": [20, 30]})
    with pytest.raises(TypeError, match=r"Features.from_pandas\(df, id='column of the ids'\)"):
        mf.Features(table)
    assert mf.Features(table[["age"]]).shape == (2, 1)


def test_lines_of_features_are_numbered_as_in_the_file(tmp_path):
    path = tmp_path / "users.csv"
    path.write_text("id,age,job\n\na,20,x\n\nb,,y\n")
    with pytest.raises(ValueError, match=r"column 'age': the value in line 5, of 'b', is missing"):
        mf.data.read_features(path)
    path.write_text("id,age\n\na,20\n,30\n")
    with pytest.raises(ValueError, match="line 4 has no id in column 'id'"):
        mf.data.read_features(path)


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        (["no", "yes", "n/a", "no"], r"df\[\['q1'\]\]\.map\(\{'no': 0, 'yes': 1\}\.get\)"),
        (["Ja", "", "nein", "-"], r"df\[\['q1'\]\]\.map\(\{'nein': 0, 'Ja': 1\}\.get\)"),
        (["no", "yes", "maybe", "no"], r"pandas\.to_numeric"),
        (["1,234", "2,001", "", "1,000"], r"commas separate thousands"),
    ],
)
def test_answers_in_words_are_refused_with_the_map_that_makes_them_numbers(cells, says):
    frame = pd.DataFrame({"q0": [0, 1, 0, 1], "q1": cells})
    with pytest.raises(TypeError, match=says):
        mf.Dense.from_array(frame)


def test_columns_of_a_matrix_without_numbers_are_named_at_once():
    wide = pd.DataFrame({f"x{k}": [1.0, 2.0] for k in range(6)})
    words = r"'Revenue'.*nor does 'end'.*str\.replace.*read_matrix"
    money = wide.assign(
        Revenue=["6,203,558,937", "(1,200)"], end=pd.to_datetime(["2020-01-02"] * 2)
    )
    for container in (mf.Dense, mf.Entries):
        with pytest.raises(TypeError, match=words) as said:
            as_container(money, container)
        assert "set_index" not in str(said.value)
    with pytest.raises(TypeError, match="Dates are no numbers of a matrix: drop"):
        as_container(money.drop(columns="Revenue"), mf.Dense)
