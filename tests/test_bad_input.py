"""The table of bad inputs: each gets an error that names the argument, the position and the remedy.

A row is (name, call, exception, fragments of the message). ``call`` takes an empty folder, which
most rows do not need. To add rows, append to the group they belong to, or make a new group and list
it in ``GROUPS``.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from jaxmf.data import Dense, Entries, SparseBinary, Tokens, as_container, read_columns, read_matrix


class Bad(NamedTuple):
    name: str
    call: Callable[[Path], Any]
    exception: type[Exception]
    fragments: tuple[str, ...]


class AnnotatedData:
    """What is used of an AnnData."""

    def __init__(self, matrix):
        self.X = matrix
        self.obs_names = pd.Index(["cell"])
        self.var_names = pd.Index(["gene"])


def dense(x, **options):
    return lambda _: Dense.from_array(x, **options)


NAN, INF = np.nan, np.inf

DENSE = [
    Bad("vector", dense(np.zeros(3)), ValueError, ("data:", "(3,)", "reshape(1, -1)")),
    Bad("cube", dense(np.zeros((2, 2, 2))), ValueError, ("data:", "(2, 2, 2)", "flatten")),
    Bad("number", dense(3.0), ValueError, ("data:", "must be a matrix", "()")),
    Bad("ragged", dense([[1, 2], [3]]), ValueError, ("data:", "ragged", "NaN")),
    Bad("no rows", dense(np.zeros((0, 3))), ValueError, ("data:", "empty", "(0, 3)")),
    Bad("no columns", dense(np.zeros((3, 0))), ValueError, ("data:", "empty", "(3, 0)")),
    Bad(
        "infinite",
        dense([[1.0, 2.0], [3.0, -INF]]),
        ValueError,
        ("data:", "-inf", "row 1, column 1", "NaN"),
    ),
    Bad("all missing", dense(np.full((2, 3), NAN)), ValueError, ("data:", "all 6 cells", "check")),
    Bad(
        "too many cells",
        dense(np.broadcast_to(np.float32(0), (2**16, 2**16))),
        ValueError,
        ("data:", "65536 x 65536", "int32", "Split"),
    ),
    Bad(
        "too many cells, sparse",
        dense(scipy.sparse.coo_array((2**16, 2**16))),
        ValueError,
        ("data:", "int32", "sparse container"),
    ),
    Bad(
        "large whole numbers",
        dense(np.asarray([[1, 2**60 + 1]])),
        ValueError,
        ("data:", "int64", "without loss", "row 0, column 1"),
    ),
    Bad("complex", dense(np.eye(2) * 1j), TypeError, ("data:", "complex", ".real")),
    Bad("object", dense([[1, 2], [3, None]]), TypeError, ("data:", "None", "row 1, column 1")),
    Bad("text cells", dense([["a", "b"]]), TypeError, ("data:", "<U1", "Convert")),
    Bad("dates", dense(np.zeros((1, 1), "M8[D]")), TypeError, ("data:", "datetime64")),
    Bad("a path", dense("x.npy"), TypeError, ("data:", "'x.npy'", "read_matrix")),
    Bad("none", dense(None), TypeError, ("data:", "NoneType", "DataFrame")),
    Bad("mapping", dense({"a": [1]}), TypeError, ("data:", "dict", "DataFrame")),
    Bad(
        "frame with a text column",
        dense(pd.DataFrame({"age": [1, 2], "name": ["ann", "bo"]})),
        TypeError,
        ("data:", "'name'", "'ann'", "row 0", "Drop"),
    ),
    Bad("empty frame", dense(pd.DataFrame({"a": []})), ValueError, ("data:", "empty", "(0, 1)")),
    Bad("frame to the class", lambda _: Dense(pd.DataFrame([[1]])), TypeError, ("from_array",)),
    Bad("anndata without X", dense(AnnotatedData(None)), ValueError, ("data:", "X", "layer")),
    Bad("mask that is no bool", dense(np.eye(2), observed=np.eye(2)), TypeError, ("observed:",)),
    Bad(
        "mask of another shape",
        dense(np.eye(2), observed=np.ones((2, 3), bool)),
        ValueError,
        ("observed:", "(2, 3)", "(2, 2)"),
    ),
    Bad(
        "missing cell marked as observed",
        dense([[1.0, NAN]], observed=np.ones((1, 2), bool)),
        ValueError,
        ("data:", "nan", "row 0, column 1"),
    ),
    Bad("ids too few", dense(np.eye(3), row_names=["a"]), ValueError, ("row_names:", "1 ids", "3")),
    Bad(
        "ids twice",
        dense(np.eye(2), column_names=["a", "a"]),
        ValueError,
        ("column_names:", "'a'", "0 and 1", "unique"),
    ),
    Bad(
        "id missing",
        dense(np.eye(2), row_names=["a", None]),
        ValueError,
        ("row_names:", "position 1", "None"),
    ),
    Bad(
        "id unknown",
        lambda _: Dense(np.eye(2), row_names=["a", "b"]).row_positions(["b", "c"]),
        ValueError,
        ("rows:", "'c'", "'a', 'b'"),
    ),
    Bad(
        "position out of range",
        lambda _: Dense(np.eye(2)).column_positions(2),
        ValueError,
        ("columns:", "0..1", "2"),
    ),
]


def entries(rows, columns, values, shape=(3, 3), **options):
    return lambda _: Entries(rows, columns, values, shape, **options)


LONG = pd.DataFrame({"user": ["a", "b", "b"], "item": ["x", "x", "y"], "stars": [1.0, 2.0, 3.0]})


def from_pandas(frame, *, row="user", column="item", value="stars", **options):
    return lambda _: Entries.from_pandas(frame, row=row, column=column, value=value, **options)


ENTRIES = [
    Bad("row out of range", entries([0, 3], [0, 0], [1, 1]), ValueError, ("rows:", "0..2", "3 at")),
    Bad("negative column", entries([0], [-1], [1]), ValueError, ("columns:", "-1", "position 0")),
    Bad(
        "fractional index",
        entries([0, 0.5], [0, 0], [1, 1]),
        ValueError,
        ("rows:", "not a whole number", "0.5 at position 1"),
    ),
    Bad("mask for indices", entries([True], [0], [1]), TypeError, ("rows:", "nonzero")),
    Bad("text for indices", entries(["u"], [0], [1]), TypeError, ("rows:", "<U1")),
    Bad("matrix for indices", entries([[0]], [0], [1]), ValueError, ("rows:", "(1, 1)")),
    Bad(
        "duplicate cell",
        entries([0, 1, 1], [2, 1, 1], [1, 2, 3]),
        ValueError,
        ("rows, columns:", "row 1, column 1", "positions 1 and 2", "average"),
    ),
    Bad("columns too short", entries([0, 1], [0], [1, 1]), ValueError, ("columns:", "1", "rows")),
    Bad("values too long", entries([0], [0], [1, 1]), ValueError, ("values:", "2", "rows has 1")),
    Bad(
        "value missing",
        entries([0, 1], [0, 0], [1, NAN]),
        ValueError,
        ("values:", "nan at position 1", "drop"),
    ),
    Bad("value infinite", entries([0], [0], [INF]), ValueError, ("values:", "inf at position 0")),
    Bad("value complex", entries([0], [0], [1j]), TypeError, ("values:", "complex")),
    Bad(
        "value beyond the floats",
        entries([0], [0], np.asarray([2**62 + 1])),
        ValueError,
        ("values:", "without loss", "position 0"),
    ),
    Bad("no cells", entries([], [], []), ValueError, ("rows:", "empty", "At least one")),
    Bad("shape of three", entries([0], [0], [1], (1, 1, 1)), TypeError, ("shape:", "pair")),
    Bad("shape of zero", entries([0], [0], [1], (0, 1)), ValueError, ("shape:", "(0, 1)")),
    Bad("shape beyond int32", entries([0], [0], [1], (2**31, 1)), ValueError, ("shape:", "2147")),
    Bad(
        "more cells than int32",
        entries(*[np.broadcast_to(np.int32(0), 2**31)] * 3),
        ValueError,
        ("rows:", "2147483648 lines", "int32"),
    ),
    Bad("no such column", from_pandas(LONG, value="rating"), ValueError, ("'rating'", "'stars'")),
    Bad(
        "missing user",
        from_pandas(LONG.assign(user=["a", None, "b"])),
        ValueError,
        ("'user'", "line 1", "dropna"),
    ),
    Bad(
        "missing rating",
        from_pandas(LONG.assign(stars=[1, 2, NAN])),
        ValueError,
        ("'stars'", "line 2", "dropna"),
    ),
    Bad(
        "rating in words",
        from_pandas(LONG.assign(stars=["one", "two", "two"])),
        TypeError,
        ("'stars'", "'one'", "to_numeric"),
    ),
    Bad(
        "ratings with decimal commas",
        from_pandas(LONG.assign(stars=["3,5", "2,0", "4,5"])),
        TypeError,
        ("'stars'", "'3,5'", "pandas.read_csv(decimal=',')"),
    ),
    Bad(
        "infinite cell",
        lambda _: Entries.from_array([[1.0, 2.0], [np.inf, NAN]]),
        ValueError,
        ("infinite value", "row 1, column 0", "make it NaN"),
    ),
    Bad(
        "pairs for a matrix of ones",  # x > 0 would make a matrix of ids of them
        lambda _: as_container(
            pd.DataFrame({"user": [7, 8, 9], "item": [1, 1, 2], "ts": [5, 6, 7]}), SparseBinary
        ),
        ValueError,
        ("7 at row 0", "mf.SparseBinary.from_pairs(df[['user', 'item']])"),
    ),
    Bad(
        "ones coded as 1 and 2",  # of which x > 0 would make ones alone
        lambda _: SparseBinary.from_array([[1, 2], [2, 2]]),
        ValueError,
        ("All are 1 or 2", "x == 2) or x == 1"),
    ),
    Bad(
        "rated twice",
        from_pandas(LONG.assign(item=["x", "x", "x"])),
        ValueError,
        ("row 'b', column 'x'", "positions 1 and 2"),
    ),
    Bad(
        "user not among the given",
        from_pandas(LONG, row_names=["a", "c"]),
        ValueError,
        ("'user'", "'b'", "'a', 'c'"),
    ),
    Bad("no table", lambda _: from_pandas([1])(_), TypeError, ("frame:", "DataFrame", "[1]")),
    Bad("array as sparse", lambda _: Entries.from_scipy(np.eye(2)), TypeError, ("from_array",)),
    Bad(
        "all cells NaN",
        lambda _: Entries.from_array(np.full((2, 2), NAN)),
        ValueError,
        ("data:", "all 4 cells"),
    ),
    Bad(
        "sparse with duplicates",
        lambda _: Entries.from_scipy(scipy.sparse.coo_array(([1, 1], ([0, 0], [0, 0])))),
        ValueError,
        ("duplicate", "row 0, column 0"),
    ),
]

SPARSE_BINARY = [
    Bad(
        "one out of range",
        lambda _: SparseBinary([0], [5], (2, 2)),
        ValueError,
        ("columns:", "5 at position 0", "0..1"),
    ),
    Bad(
        "one given twice",
        lambda _: SparseBinary([0, 0], [1, 1], (2, 2)),
        ValueError,
        ("row 0, column 1", "0 and 1", "from_pairs drops"),
    ),
    Bad(
        "missing one",
        lambda _: SparseBinary([0], [1], (2, 2), missing_rows=[0], missing_columns=[1]),
        ValueError,
        ("missing_rows", "not both"),
    ),
    Bad(
        "missing outside",
        lambda _: SparseBinary([0], [1], (2, 2), missing_rows=[2], missing_columns=[1]),
        ValueError,
        ("missing_rows", "2"),
    ),
    Bad(
        "missing rows alone",
        lambda _: SparseBinary([0], [1], (2, 2), missing_rows=[0]),
        ValueError,
        ("belong together",),
    ),
    Bad(
        "mask of another shape",
        lambda _: SparseBinary.from_array([[0, 1]], observed=np.ones((2, 2), bool)),
        ValueError,
        ("observed:", "(1, 2)"),
    ),
    Bad(
        "a two",
        lambda _: SparseBinary.from_array([[0, 1], [2, 0]]),
        ValueError,
        ("data:", "2 at row 1, column 0", "x > 0"),
    ),
    Bad(
        "NaN",
        lambda _: SparseBinary.from_array([[0, NAN]]),
        ValueError,
        ("data:", "nan", "observed="),
    ),
    Bad(
        "stored two",
        lambda _: SparseBinary.from_scipy(scipy.sparse.csr_array([[0, 2]])),
        ValueError,
        ("matrix:", "2 at position 0"),
    ),
    Bad("array as sparse", lambda _: SparseBinary.from_scipy([[1]]), TypeError, ("from_array",)),
    Bad(
        "basket that is a text",
        lambda _: SparseBinary.from_baskets(["milk", "bread"]),
        TypeError,
        ("baskets:", "'milk'", "position 0"),
    ),
    Bad(
        "an item without a column",
        lambda _: SparseBinary.from_baskets([["a"], ["c"]], column_names=["a", "b"]),
        ValueError,
        ("baskets:", "no item", "'c'"),
    ),
    Bad("no baskets", lambda _: SparseBinary.from_baskets([]), ValueError, ("baskets:", "empty")),
    Bad(
        "item not among the given",
        lambda _: SparseBinary.from_baskets([["tea"]], column_names=["milk"]),
        ValueError,
        ("baskets", "'tea'", "'milk'"),
    ),
    Bad(
        "triple",
        lambda _: SparseBinary.from_pairs([("a", "b"), ("a", "b", 1)]),
        ValueError,
        ("pairs:", "position 1", "pair"),
    ),
    Bad(
        "pair twice",
        lambda _: SparseBinary([0, 0], [0, 0], (1, 1), ["a"], ["b"]),
        ValueError,
        ("row 'a', column 'b'", "0 and 1"),
    ),
    Bad("no pairs", lambda _: SparseBinary.from_pairs([]), ValueError, ("pairs:", "empty")),
]


def counts(x, **options):
    return lambda _: Tokens.from_counts(x, **options)


def tokens(columns, sizes, **options):
    return lambda _: Tokens(columns, sizes, **options)


TOKENS = [
    Bad("negative count", counts([[1, -2]]), ValueError, ("counts:", "-2", "row 0, column 1")),
    Bad("fractional count", counts([[1, 0.5]]), ValueError, ("counts:", "0.5", "whole numbers")),
    Bad("missing count", counts([[1, NAN]]), ValueError, ("counts:", "finite", "row 0, column 1")),
    Bad(
        "negative count, sparse",
        counts(scipy.sparse.csr_array([[0, 1], [-1, 0]])),
        ValueError,
        ("counts:", "-1 at row 1, column 0"),
    ),
    Bad(
        "fractional count, sparse",
        counts(scipy.sparse.csr_array([[0, 1], [0, 1.5]])),
        ValueError,
        ("counts:", "1.5 at row 1, column 1"),
    ),
    Bad("all counts zero", counts(np.zeros((2, 2))), ValueError, ("counts:", "no token")),
    Bad("empty counts", counts(np.zeros((0, 2))), ValueError, ("counts:", "empty", "(0, 2)")),
    Bad("too many tokens", counts([[2**31]]), ValueError, ("counts:", "2147483648", "int32")),
    Bad(
        "vocabulary too short",
        counts([[1, 1]], vocabulary=["a"]),
        ValueError,
        ("vocabulary:", "1 ids", "2"),
    ),
    Bad(
        "word twice",
        counts([[1, 1]], vocabulary=["a", "a"]),
        ValueError,
        ("vocabulary:", "'a'", "0 and 1"),
    ),
    Bad("index out of range", tokens({"w": [3]}, {"w": 3}), ValueError, ("'w'", "0..2", "3 at")),
    Bad(
        "column too short", tokens({"d": [0, 0], "w": [0]}, {"d": 1, "w": 1}), ValueError, ("'w'",)
    ),
    Bad("size missing", tokens({"d": [0]}, {}), ValueError, ("sizes:", "'d'")),
    Bad("size of zero", tokens({"d": [0]}, {"d": 0}), ValueError, ("sizes['d']", "between 1")),
    Bad("no tokens", tokens({"d": []}, {"d": 1}), ValueError, ("'d'", "empty", "no token")),
    Bad("no columns", tokens({}, {}), ValueError, ("columns:", "empty")),
    Bad("list for columns", tokens([[0]], {"d": 1}), TypeError, ("columns:", "list", "mapping")),
    Bad("column without a name", tokens({0: [0]}, {0: 1}), TypeError, ("columns:", "name 0")),
    Bad(
        "infinite value",
        tokens({"d": [0]}, {"d": 1}, values={"age": [INF]}),
        ValueError,
        ("'age'", "inf at position 0"),
    ),
    Bad(
        "name used twice",
        tokens({"d": [0]}, {"d": 1}, values={"d": [1.0]}),
        ValueError,
        ("values:", "'d'", "Rename"),
    ),
    Bad(
        "id missing in a column",
        lambda _: Tokens.from_columns({"who": ["a", None]}),
        ValueError,
        ("'who'", "line 1"),
    ),
    Bad("columns without names", lambda _: Tokens.from_columns([["a"]]), TypeError, ("mapping",)),
    Bad("no lines", lambda _: Tokens.from_columns({"who": []}), ValueError, ("'who'", "no token")),
]

ONE_READING = [
    Bad(
        "sparse counts for entries",
        lambda _: as_container(AnnotatedData(scipy.sparse.csr_matrix([[1.0]])), Entries),
        TypeError,
        ("data:", "is sparse", "from_scipy", "toarray"),
    ),
    Bad(
        "annotated data as sparse matrix",
        lambda _: Entries.from_scipy(AnnotatedData(np.ones((1, 1)))),
        TypeError,
        ("is AnnotatedData", "Entries.from_array"),
    ),
    Bad(
        "twice a column",
        lambda _: Dense(np.eye(2), column_names=["HLA-A", "HLA-A"]),
        ValueError,
        ("column_names: the id 'HLA-A'", "df.columns = ", "var_names_make_unique"),
    ),
    Bad(
        "twice a row",
        lambda _: Dense(np.eye(2), row_names=["s", "s"]),
        ValueError,
        (
            "row_names: the id 's'",
            "cumcount",
            "obs_names_make_unique",
            "df.groupby(level=0).mean()",
        ),
    ),
    Bad(
        "numbers as objects",
        lambda _: as_container(
            pd.DataFrame({"a": [1.5, 2.0], "b": [1, None]}, dtype=object), Dense
        ),
        TypeError,
        ("column 'a' has dtype object, numbers are needed. Its values are", "df.astype(float)"),
    ),
    Bad(
        "words among numbers",
        lambda _: as_container(
            pd.DataFrame({"a": [1, 2, "don't know"], "b": ["3", "<5", "4"], "c": [1, 2, 3]}), Dense
        ),
        TypeError,
        (
            '1 of its 3 cells hold words, first "don\'t know" at row 2',
            "df[['a', 'b']].apply(pandas.to_numeric, errors='coerce')",
        ),
    ),
    Bad(
        "decimal commas",
        lambda _: as_container(pd.DataFrame({"a": ["1,5", "1.002,25"], "b": [1, 2]}), Dense),
        TypeError,
        ("Its commas are decimal: df['a'].str.replace('.', '').str.replace(',', '.')",),
    ),
    Bad(
        "answers beside numbers",  # df.map(...) would make the numbers missing
        lambda _: as_container(
            pd.DataFrame({"a": [1, 2], "b": ["no", "yes"], "c": list("xy")}), Dense
        ),
        TypeError,
        ("column 'b' has dtype", "df[['b']] = df[['b']].map({'no': 0, 'yes': 1}.get)"),
    ),
    Bad(
        "answers alone",
        lambda _: as_container(pd.DataFrame({"a": ["no", "yes"], "b": ["yes", "no"]}), Dense),
        TypeError,
        (" by df.map({'no': 0, 'yes': 1}.get)",),
    ),
    Bad(
        "infinite with ids",
        lambda _: Dense([[1.0, -np.inf]], row_names=["s"], column_names=["HLA-A", "TP53"]),
        ValueError,
        ("-inf at row 's', column 'TP53'",),
    ),
    Bad(
        "other container",
        lambda _: as_container(Dense(np.eye(2)), Entries),
        TypeError,
        ("is Dense", "needs Entries", "from_pandas"),
    ),
    Bad(
        "frame for entries",
        lambda _: as_container(LONG, Entries),
        TypeError,
        ("data:", "more than one reading", "from_pandas"),
    ),
    Bad(
        "long or wide of more columns",
        lambda _: as_container(LONG.assign(time=1, user=[1, 2, 2], item=1, age=1), Entries),
        TypeError,
        ("data:", "more than one reading", "from_pandas"),
    ),
    Bad(
        "lists for baskets",
        lambda _: as_container([[1, 0]], SparseBinary),
        TypeError,
        ("data:", "more than one reading", "from_baskets"),
    ),
]


def text(name: str, content: str):
    """Read a file of this content."""

    def call(folder: Path):
        (folder / name).write_text(content)
        return read_matrix(folder / name)

    return call


def saved(name: str, save: Callable[[Path], Any]):
    """Read a file that ``save`` writes."""

    def call(folder: Path):
        save(folder / name)
        return read_matrix(folder / name)

    return call


def headings(folder: Path):
    (folder / "cells.csv").write_text("row,value\n1,2\n")
    return read_columns(folder / "cells.csv", ["row", "column"])


FILES = [
    Bad(
        "no file",
        lambda d: read_matrix(d / "x.npy"),
        FileNotFoundError,
        ("x.npy", "does not exist"),
    ),
    Bad("folder", lambda d: read_matrix(d), ValueError, ("is a folder",)),
    Bad("JSON", text("x.jsonl", "{}"), ValueError, ("'.jsonl'", "pandas.read_json(")),
    Bad("pipe", lambda _: read_matrix("-"), ValueError, ("-: ", "> data.csv")),
    Bad("extension", text("x.xlsx", "1"), ValueError, ("'.xlsx'", ".npy, .npz, ", "CSV UTF-8")),
    Bad("empty file", text("x.csv", ""), ValueError, ("x.csv", "empty")),
    Bad("ragged csv", text("x.csv", "1,2\n3\n"), ValueError, ("line 2 has 1 cells", "2")),
    Bad(
        "words in a column", text("x.csv", "1,2\n3,a\n"), ValueError, ("column 2", "'a' in line 2")
    ),
    Bad(
        "words under a heading",
        text("x.tsv", "a\tb\n1\tx\n"),
        ValueError,
        ("column 2 ('b')", "'x' in line 2"),
    ),
    Bad("headings only", text("x.csv", "a,b\n"), ValueError, ("no further lines",)),
    Bad("no npy", text("x.npy", "1,2"), ValueError, ("x.npy", "numpy.save")),
    Bad(
        "objects in npy",
        saved("x.npy", lambda path: np.save(path, np.asarray([[None]]), allow_pickle=True)),
        ValueError,
        ("x.npy", "numpy.save"),
    ),
    Bad(
        "two arrays in npz",
        saved("x.npz", lambda path: np.savez(path, a=np.eye(2), b=np.eye(2))),
        ValueError,
        ("2 arrays (a, b)", "key"),
    ),
    Bad("no such heading", headings, ValueError, ("'column'", "['row', 'value']")),
]

GROUPS = {
    "Dense": DENSE,
    "Entries": ENTRIES,
    "SparseBinary": SPARSE_BINARY,
    "Tokens": TOKENS,
    "one reading": ONE_READING,
    "files": FILES,
}

ROWS = [
    pytest.param(row, id=f"{group}: {row.name}") for group, rows in GROUPS.items() for row in rows
]


@pytest.mark.parametrize("row", ROWS)
def test_bad_input_is_refused_in_words(row: Bad, tmp_path: Path):
    with pytest.raises(row.exception) as caught:
        row.call(tmp_path)
    assert type(caught.value) is row.exception, "a subclass says something else"
    message = str(caught.value)
    missing = [fragment for fragment in row.fragments if fragment not in message]
    assert not missing, f"the message lacks {missing}: {message}"


def test_table_is_large_enough():
    assert len(ROWS) >= 40
    assert len({row.id for row in ROWS}) == len(ROWS)
