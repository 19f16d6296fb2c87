"""DataFrames of other libraries are read as those of pandas are."""

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


def test_lazy_frames_and_categories_are_read():
    table = pl.LazyFrame(LONG).with_columns(pl.col("what").cast(pl.Categorical))
    data = mf.Entries.from_pandas(table, row="who", column="what", value="stars")
    assert data.column_names.tolist() == ["tea", "milk"]


def test_a_column_of_texts_in_a_matrix_is_named():
    with pytest.raises(TypeError, match=r"column 'who'.*numbers are needed, first 'ann'"):
        as_container(pl.DataFrame(LONG), mf.Dense)


def test_what_is_no_frame_is_left_as_it_is():
    for x in (np.eye(2), [[1, 2]], "text", None, pl.Series([1, 2])):
        assert as_pandas(x) is x
