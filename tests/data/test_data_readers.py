"""Matrices and tables from files."""

import gc
import importlib.util

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from jaxmf.data import Dense, as_container, read_columns, read_matrix
from jaxmf.data.corpora import read_tokens

X = np.asarray([[1.0, np.nan, 3.0], [4.0, 5.0, -6.5]])


def written(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    return path


def test_npy_and_npz(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "x.npz", X)
    np.savez(tmp_path / "two.npz", a=X, b=np.eye(2))
    scipy.sparse.save_npz(tmp_path / "sparse.npz", scipy.sparse.csr_matrix(np.eye(2)))
    np.testing.assert_array_equal(read_matrix(tmp_path / "x.npy").values, X)
    np.testing.assert_array_equal(read_matrix(tmp_path / "x.npz").values, X)
    np.testing.assert_array_equal(read_matrix(tmp_path / "two.npz", key="a").values, X)
    sparse = read_matrix(tmp_path / "sparse.npz")
    np.testing.assert_array_equal(as_container(sparse, Dense).values, np.eye(2))


@pytest.mark.filterwarnings("error::ResourceWarning")
def test_a_damaged_archive_is_refused_and_closed(tmp_path):
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(ValueError, match=r"x\.npz: numpy cannot read it"):
        read_matrix(tmp_path / "x.npz")
    with pytest.raises(ValueError, match=r"x\.npz: numpy cannot read it"):
        read_tokens(tmp_path / "x.npz")
    gc.collect()  # a file left open warns when it is collected


@pytest.mark.parametrize(
    ("content", "rows", "columns"),
    [
        ("1,,3\n4,5,-6.5\n", None, None),
        ("1,NA,3\n4,5,-6.5", None, None),
        ("\ufeff1, nan ,3\r\n4,5,-6.5\r\n\r\n", None, None),
        ("a,b,c\n1,,3\n4,5,-6.5\n", None, ["a", "b", "c"]),
        (",a,b,c\nu,1,,3\nv,4,5,-6.5\n", ["u", "v"], ["a", "b", "c"]),
        ("id,a,b,c\nu,1,,3\nv,4,5,-6.5\n", ["u", "v"], ["a", "b", "c"]),
        ("u,1,,3\nv,4,5,-6.5\n", ["u", "v"], None),
        (",0,1,2\n0,1,,3\n1,4,5,-6.5\n", [0, 1], [0, 1, 2]),
        (',"a, or so",b,c\n10,1,,3\n20,4,5,-6.5\n', [10, 20], ["a, or so", "b", "c"]),
    ],
)
def test_csv_and_tsv(tmp_path, content, rows, columns):
    tables = [read_matrix(written(tmp_path, "x.csv", content))]
    if '"' not in content:
        tables.append(read_matrix(written(tmp_path, "x.tsv", content.replace(",", "\t"))))
    for table in tables:
        np.testing.assert_array_equal(table.values, X)
        data = as_container(table, Dense)
        assert (None if data.row_names is None else data.row_names.tolist()) == rows
        assert (None if data.column_names is None else data.column_names.tolist()) == columns


def test_texts_among_which_a_few_look_like_numbers_are_ids(tmp_path):
    """Symbols of genes beside numbers of genes."""
    genes = ["HLA-A", "1-Mar", "0012", "12", "α-globin"]
    content = "gene,s1\n" + "".join(f"{gene},1\n" for gene in genes)
    table = read_matrix(written(tmp_path, "x.csv", content))
    assert table.row_names.tolist() == genes
    assert table.column_names.tolist() == ["s1"]
    slip = written(tmp_path, "slip.csv", "age,weight\n1,1\nten,2\n3,3\n4,4\n")
    with pytest.raises(ValueError, match=r"column 1 \('age'\) holds numbers, but 'ten' in line 3"):
        read_matrix(slip)


def test_csv_written_by_pandas_comes_back(tmp_path):
    frame = pd.DataFrame(X, index=["u", "v"], columns=["a", "b", "c"])
    frame.to_csv(tmp_path / "x.csv")
    data = as_container(read_matrix(tmp_path / "x.csv"), Dense)
    ours = Dense.from_array(frame)
    assert data.fingerprint() == ours.fingerprint()
    assert data.row_names.tolist() == ours.row_names.tolist()


def test_infinite_cell_of_a_file_is_found(tmp_path):
    path = written(tmp_path, "x.csv", "1,2\n3,inf\n")
    with pytest.raises(ValueError, match="inf at row 1, column 1"):
        as_container(read_matrix(path), Dense)


def test_parquet(tmp_path):
    if importlib.util.find_spec("pyarrow") is None:
        written(tmp_path, "x.parquet", "PAR1")
        with pytest.raises(ValueError, match="pyarrow"):
            read_matrix(tmp_path / "x.parquet")
        return
    pd.DataFrame(X, columns=["a", "b", "c"]).to_parquet(tmp_path / "x.parquet")
    np.testing.assert_array_equal(read_matrix(tmp_path / "x.parquet").values, X)


def test_columns(tmp_path):
    path = written(tmp_path, "cells.csv", "row, column,note\n3,a,x\n4,b,y\n")
    cells = read_columns(path, ["row", "column"])
    assert cells["row"].tolist() == [3, 4]
    assert cells["column"].tolist() == ["a", "b"]
