"""Containers: what goes in comes out, treatments that are stated hold, jax sees arrays only."""

import copy
import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jaxmf.data import Dense, Entries, SparseBinary, Tokens, as_container

NAN = np.nan


def float_dtype():
    return jnp.result_type(float)


EXAMPLES = [
    Dense([[1.0, NAN], [3.0, 4.0]], row_names=["a", "b"]),
    Entries([0, 2], [1, 0], [5, 3], (3, 2), ["a", "b", "c"]),
    SparseBinary([1, 0], [0, 1], (2, 2), None, ["tea", "milk"]),
    Tokens({"d": [0, 0], "w": [1, 1]}, {"d": 2, "w": 3}, {"age": [1, 2]}, {"w": ["x", "y", "z"]}),
]
BY_NAME = pytest.mark.parametrize("data", EXAMPLES, ids=lambda data: type(data).__name__)


@BY_NAME
def test_children_are_arrays_and_ids_stay_on_the_host(data):
    leaves, structure = jax.tree_util.tree_flatten(data)
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)
    again = jax.tree_util.tree_unflatten(structure, leaves)
    assert type(again) is type(data)
    assert again.fingerprint() == data.fingerprint()
    assert getattr(again, "row_names", None) is None
    passed = jax.jit(lambda x: x)(data)
    assert passed.fingerprint() == data.fingerprint()
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(data)]
    assert len(set(paths)) == len(leaves)


@BY_NAME
def test_other_ids_do_not_recompile(data):
    traces = []

    @jax.jit
    def touch(x):
        traces.append(1)
        return jax.tree.leaves(x)[0].sum()

    touch(data)
    touch(jax.tree.map(lambda a: a, data))  # the same without ids
    assert len(traces) == 1


@BY_NAME
def test_dtypes(data):
    kinds = {leaf.dtype for leaf in jax.tree.leaves(data)}
    assert kinds <= {jnp.dtype(float_dtype()), jnp.dtype(jnp.int32), jnp.dtype(bool)}


@BY_NAME
def test_unflattening_checks_nothing(data):
    blank = jax.tree.map(lambda _: None, data, is_leaf=lambda x: isinstance(x, jax.Array))
    assert type(blank) is type(data)
    repr(jax.eval_shape(lambda x: x, data))


@BY_NAME
def test_copy_keeps_everything(data):
    again = copy.deepcopy(data)
    assert again.fingerprint() == data.fingerprint()


def test_fingerprints_tell_apart():
    base = Dense([[1.0, 0.0]])
    others = [
        Dense([[1.0, 1.0]]),
        Dense([[1.0], [0.0]]),
        Dense([[1.0, NAN]]),
        Entries([0, 0], [0, 1], [1.0, 0.0], (1, 2)),
        Entries([0, 0], [0, 1], [1.0, 0.0], (2, 2)),
        SparseBinary([0], [0], (1, 2)),
        Tokens({"a": [0]}, {"a": 1}),
        Tokens({"b": [0]}, {"b": 1}),
        Tokens({"a": [0]}, {"a": 2}),
    ]
    prints = {data.fingerprint() for data in [base, *others]}
    assert len(prints) == 1 + len(others)
    assert Dense([[1.0, 0.0]], row_names=["u"]).fingerprint() == base.fingerprint()


# --- Dense ---------------------------------------------------------------------------------------


def test_dense_missing_cells():
    data = Dense.from_array([[1, NAN, 3], [NAN, 5, 6]])
    np.testing.assert_array_equal(data.values, [[1, 0, 3], [0, 5, 6]])
    np.testing.assert_array_equal(data.observed, [[1, 0, 1], [0, 1, 1]])
    assert (data.num_rows, data.num_columns, data.num_missing) == (2, 3, 2)
    rows, columns = data.missing_cells()
    assert (rows.tolist(), columns.tolist()) == ([0, 1], [1, 0])
    np.testing.assert_array_equal(data.to_array(), [[1, NAN, 3], [NAN, 5, 6]])


def test_a_row_of_dense():
    data = Dense([[1.0, 2.0], [np.nan, 4.0], [5.0, 6.0]])
    values, observed = jax.jit(lambda data, row: data.row(row))(data, 1)
    np.testing.assert_array_equal(values, data.values[1])
    np.testing.assert_array_equal(observed, [False, True])
    values, observed = Dense([[1.0, 2.0], [3.0, 4.0]]).row(0)
    np.testing.assert_array_equal(values, [1.0, 2.0])
    assert observed is None


def test_dense_complete_has_no_mask():
    for data in (Dense([[1.0, 2.0]]), Dense([[1.0, 2.0]], [[True, True]])):
        assert data.observed is None
        assert data.missing_cells()[0].size == 0


def test_dense_values_under_the_mask_do_not_matter():
    mask = np.asarray([[True, False]])
    ours = [Dense([[1.0, x]], mask) for x in (0.0, 7.0, NAN, np.inf)]
    assert len({data.fingerprint() for data in ours}) == 1


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("x", "line"), [([[1, NAN], [2, NAN]], "column 1"), ([[1, 2], [NAN, NAN]], "row 1")]
)
def test_dense_empty_line_is_taken_with_a_warning(x, line):
    with pytest.warns(UserWarning, match=f"{line}.*prior alone"):
        data = Dense.from_array(x)
    assert data.num_missing == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Dense(x)  # the class itself says nothing: models make data too


def test_dense_takes_what_people_have():
    x = np.asarray([[1.0, 2.0], [0.0, 4.0]])
    frame = pd.DataFrame(x, index=["u", "v"], columns=["a", "b"])
    annotated = SimpleNamespace(
        X=scipy.sparse.csr_matrix(x), obs_names=frame.index, var_names=["a", "b"]
    )
    for given_data in (
        x,
        x.tolist(),
        jnp.asarray(x),
        x.astype(np.float16),
        frame,
        scipy.sparse.csr_array(x),
        scipy.sparse.coo_matrix(x),
        annotated,
        np.ma.MaskedArray(x),
        Dense(x),
    ):
        data = as_container(given_data, Dense)
        np.testing.assert_array_equal(data.values, x)
        assert data.observed is None
    for named in (frame, annotated):
        data = as_container(named, Dense)
        assert data.row_names.tolist() == ["u", "v"]
        assert data.column_positions(["b", "a"]).tolist() == [1, 0]


def test_dense_masked_array_and_nullable_frame():
    masked = np.ma.MaskedArray([[1, 2], [3, 4]], [[False, True], [False, False]])
    frame = pd.DataFrame({"a": pd.array([1, 3], "Int64"), "b": pd.array([None, 4], "Int64")})
    for data in (Dense.from_array(masked), Dense.from_array(frame)):
        np.testing.assert_array_equal(data.to_array(), [[1, NAN], [3, 4]])


def test_dense_casts():
    limit = 2 ** (jnp.finfo(float_dtype()).nmant + 1)
    assert Dense(np.asarray([[limit]])).values[0, 0] == limit
    with pytest.raises(ValueError, match="without loss"):
        Dense(np.asarray([[limit + 1]]))
    assert Dense(np.asarray([[0.1]])).values.dtype == float_dtype()  # rounding is no loss
    if not jax.config.jax_enable_x64:
        with pytest.raises(ValueError, match="too large for float32"):
            Dense([[1e300]])
    np.testing.assert_array_equal(Dense([[True, False]]).values, [[1, 0]])
    assert Dense(np.asarray([[255]], np.uint8)).values[0, 0] == 255


def test_dense_in_transformations():
    stacked = jax.vmap(lambda x: Dense(x * 2))(jnp.ones((3, 2, 2)))
    assert stacked.values.shape == (3, 2, 2)
    total = jax.jit(lambda d: d.values.sum() + d.num_rows)(Dense([[1.0, NAN]]))
    assert total == 2


@settings(max_examples=30, deadline=None)
@given(
    hnp.arrays(
        float,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=6),
        elements=st.floats(-100, 100, width=16) | st.just(NAN),
    ).filter(lambda x: not np.isnan(x).all())
)
def test_dense_round_trip(x):
    np.testing.assert_array_equal(Dense(x).to_array(), x)


def test_ids_of_any_type():
    stamps = pd.date_range("2020-01-01", periods=2)
    for ids in ([("a", 1), ("b", 2)], [1.5, 2.5], [10, 20], ["x", 3], stamps, np.arange(2)):
        data = Dense(np.eye(2), row_names=ids)
        assert list(data.row_names) == list(np.asarray(ids) if ids is stamps else ids)
    tuples = Dense(np.eye(2), row_names=[("a", 1), ("b", 2)])
    assert tuples.row_positions([("b", 2)]).tolist() == [1]
    assert tuples.row_positions(("b", 2)).tolist() == [1]
    assert Dense(np.eye(2)).row_positions([1, 0]).tolist() == [1, 0]


# --- Entries -------------------------------------------------------------------------------------


def test_entries_from_pandas_gives_ids_back():
    frame = pd.DataFrame(
        {"user": ["b", "a", "b"], "item": [7, 7, 9], "stars": [5, 3, 4]}, index=[4, 4, 4]
    )
    data = Entries.from_pandas(frame, row="user", column="item", value="stars")
    assert data.shape == (2, 2)
    assert data.row_names.tolist() == ["b", "a"]
    assert data.column_names.tolist() == [7, 9]
    back = pd.DataFrame(
        {
            "user": data.row_names[data.rows],
            "item": data.column_names[data.columns],
            "stars": np.asarray(data.values),
        }
    )
    np.testing.assert_array_equal(back.to_numpy(), frame.to_numpy())
    held_out = Entries.from_pandas(
        frame[1:2],
        row="user",
        column="item",
        value="stars",
        row_names=data.row_names,
        column_names=data.column_names,
    )
    assert held_out.shape == data.shape
    assert held_out.rows.tolist() == [1]


def test_entries_rows_without_a_cell_are_taken():
    data = Entries([2], [0], [1.0], (5, 4))
    assert data.shape == (5, 4)
    assert data.num_entries == 1


def test_entries_from_sparse_and_array_agree():
    x = np.asarray([[1.0, NAN], [NAN, 0.0], [2.0, NAN]])
    sparse = scipy.sparse.coo_array(([1.0, 0.0, 2.0], ([0, 1, 2], [0, 1, 0])), shape=(3, 2))
    ours = [
        as_container(given_data, Entries) for given_data in (x, sparse, np.ma.masked_invalid(x))
    ]
    assert len({data.fingerprint() for data in ours}) == 1
    assert ours[0].num_entries == 3  # a stored zero is observed
    again = Entries.from_scipy(ours[0].to_scipy())
    assert again.fingerprint() == ours[0].fingerprint()


def test_entries_beyond_int32_cells_but_few_observed():
    data = Entries([99_999], [99_998], [1.0], (100_000, 100_000))
    assert data.num_entries == 1
    with pytest.raises(ValueError, match="duplicate"):
        Entries([99_999, 99_999], [99_998, 99_998], [1.0, 1.0], (100_000, 100_000))


# --- SparseBinary --------------------------------------------------------------------------------


def test_sparse_binary_makers_agree():
    x = np.asarray([[0, 1, 1], [0, 0, 0], [1, 0, 0]])
    rows, columns = np.nonzero(x)
    names = [["a", "b", "c"], ["x", "y", "z"]]
    pairs = [(names[0][i], names[1][j]) for i, j in zip(rows, columns, strict=True)]
    baskets = {"a": ["y", "z", "z"], "b": [], "c": ["x"]}
    ours = [
        SparseBinary(rows[::-1], columns[::-1], x.shape),
        SparseBinary.from_baskets(baskets, column_names=names[1]),
        SparseBinary.from_baskets(pd.Series(baskets), column_names=names[1]),
        SparseBinary.from_pairs(pairs, row_names=names[0], column_names=names[1]),
        SparseBinary.from_pairs(np.asarray(pairs), row_names=names[0], column_names=names[1]),
        SparseBinary.from_pairs(pd.DataFrame(pairs), row_names=names[0], column_names=names[1]),
        SparseBinary.from_scipy(scipy.sparse.csr_array(x)),
        *(as_container(g, SparseBinary) for g in (x, x.astype(bool), scipy.sparse.csc_matrix(x))),
        as_container(pd.DataFrame(x), SparseBinary),
    ]
    assert len({data.fingerprint() for data in ours}) == 1
    assert ours[1].row_names.tolist() == ["a", "b", "c"]
    assert ours[2].row_names.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(ours[0].to_scipy().toarray(), x)
    assert ours[0].num_ones == 3
    np.testing.assert_array_equal(ours[0].rows, rows)  # sorted, however they came


def test_cells_that_were_not_observed():
    x = np.array([[1, 0, 1], [0, 0, 1]])
    observed = np.array([[True, False, False], [True, True, True]])
    data = SparseBinary.from_array(x, observed=observed)
    assert repr(data) == "SparseBinary(2 x 3, 2 ones, 2 missing)"
    assert data.num_missing == 2
    np.testing.assert_array_equal(data.missing_cells(), [[0, 0], [1, 2]])
    np.testing.assert_array_equal(data.to_scipy().toarray(), x & observed)
    listed = SparseBinary([0, 1], [0, 2], (2, 3), missing_rows=[0, 0], missing_columns=[2, 1])
    assert data.fingerprint() == listed.fingerprint()
    whole = SparseBinary([0, 1], [0, 2], (2, 3))
    assert data.fingerprint() != whole.fingerprint()
    again = jax.tree.unflatten(*jax.tree.flatten(data)[::-1])
    assert again.num_missing == 2
    gaps = np.where(observed, x, NAN)
    for table in (gaps, pd.DataFrame(gaps)):
        with pytest.raises(ValueError, match=r"0 and 1 only: nan .* observed=~np\.isnan\(x\)"):
            SparseBinary.from_array(table)
        mended = SparseBinary.from_array(table, observed=~np.isnan(table))
        np.testing.assert_array_equal(mended.missing_cells(), data.missing_cells())
    with pytest.raises(ValueError, match=r"nan .* missing_rows="):
        SparseBinary.from_array(scipy.sparse.coo_array(gaps))
    everything = SparseBinary.from_array(x, observed=np.ones((2, 3), bool))
    assert everything.num_missing == whole.num_missing == 0


def test_the_advice_for_ids_that_stand_twice_gives_unique_ones():
    df = pd.DataFrame(np.arange(6.0).reshape(2, 3), columns=["DUP", "MIR", "DUP"])
    with pytest.raises(ValueError, match="'DUP' stands at positions 0 and 2") as error:
        as_container(df, Dense, "data")
    renamed = df.columns.astype(str) + "-" + df.T.groupby(level=0).cumcount().astype(str)
    for advice in (
        "df.columns.astype(str) + '-' + df.T.groupby(level=0).cumcount().astype(str)",
        "df.T.groupby(level=0).mean().T",
    ):
        assert advice in str(error.value)
    assert list(renamed) == ["DUP-0", "MIR-0", "DUP-1"]
    averaged = as_container(df.T.groupby(level=0).mean().T, Dense, "data")
    assert averaged.values.tolist() == [[1.0, 1.0], [4.0, 4.0]]


@pytest.mark.parametrize("order", [np.arange(600), np.random.default_rng(1).permutation(600)])
def test_ids_of_tokens_where_counts_are_meant_are_said_and_counts_go_through(order):
    rng = np.random.default_rng(0)
    ids = np.stack([np.repeat(np.arange(30), 20), rng.integers(0, 50, 600)], axis=1)[order]
    with pytest.warns(UserWarning, match=r"data: .* look like ids, .*mf.Tokens.from_columns\("):
        as_container(ids, Tokens, "data")
    for counts in (rng.poisson(5, (600, 2)), rng.negative_binomial(1, 0.1, (600, 2))):
        as_container(counts, Tokens, "data")


def test_a_pair_that_stands_twice_is_one_one():
    bought = [("bo", "tea"), ("ann", "jam"), ("bo", "tea"), ("bo", "jam"), ("ann", "jam")]
    once = SparseBinary.from_pairs(list(dict.fromkeys(bought)))
    for pairs in (bought, pd.DataFrame(bought)):
        data = SparseBinary.from_pairs(pairs)
        assert data.fingerprint() == once.fingerprint()
        assert data.row_names.tolist() == ["bo", "ann"]
    assert once.to_scipy().toarray().tolist() == [[1, 1], [0, 1]]


def test_sparse_binary_keeps_ids_with_their_types():
    data = SparseBinary.from_pairs([("ann", 3), ("bo", (1, 2)), ("ann", 7.5)])
    assert data.row_names.tolist() == ["ann", "bo"]
    assert data.column_names.tolist() == [3, (1, 2), 7.5]


# --- Tokens --------------------------------------------------------------------------------------


def test_tokens_from_counts():
    counts = np.asarray([[2, 0, 1], [0, 0, 0], [0, 3, 0]])
    frame = pd.DataFrame(counts, columns=["a", "b", "c"])
    for given_data in (counts, counts.astype(float), scipy.sparse.csr_array(counts), frame):
        data = as_container(given_data, Tokens)
        assert data.sizes == {"document": 3, "word": 3}  # the empty document stays
        back = np.zeros_like(counts)
        np.add.at(back, (np.asarray(data.columns["document"]), np.asarray(data.columns["word"])), 1)
        np.testing.assert_array_equal(back, counts)
    assert as_container(frame, Tokens).names["word"].tolist() == ["a", "b", "c"]
    named = Tokens.from_counts(counts, vocabulary=["x", "y", "z"], row="user", column="site")
    assert named.positions("site", ["z"]).tolist() == [2]
    assert named.num_tokens == 6


def test_tokens_from_columns():
    table = {"user": ["b", "a", "b"], "item": [7, 7, 9]}
    for columns in (table, pd.DataFrame(table)):
        data = Tokens.from_columns(columns, values={"age": [1, 2, 3]})
        assert data.sizes == {"user": 2, "item": 2}
        assert data.columns["user"].tolist() == [0, 1, 0]
        assert data.names["item"].tolist() == [7, 9]
        assert data.values["age"].dtype == float_dtype()
    data = Tokens.from_columns(table, names={"user": ["a", "b", "c"]})
    assert data.columns["user"].tolist() == [1, 0, 1]
    assert data.sizes["user"] == 3


def test_a_count_that_no_index_can_reach_is_refused():
    counts = np.array([[1.0, 1e19]])
    for whole in (counts, scipy.sparse.csr_array(counts)):
        with pytest.raises(ValueError, match=r"counts: count beyond int32: 1e\+19 at row 0"):
            Tokens.from_counts(whole)


def test_what_is_no_table_is_called_what_it_is():
    for x, error, says in (
        ((row for row in np.eye(2)), TypeError, r"a generator is no array .* list\(x\)"),
        (3.0, ValueError, "A single number is no table of rows"),
        (np.zeros((2, 2, 2)), ValueError, "to flatten each item"),
    ):
        with pytest.raises(error, match=says):
            Dense.from_array(x)


@pytest.mark.skipif(jax.config.jax_enable_x64, reason="64 bits tell them apart")
def test_differences_that_single_precision_loses_are_said():
    x = np.arange(12.0).reshape(4, 3)
    far = x + np.array([0, 1e9, 0])
    for lost in (far, np.where(x == 4, np.nan, far)):
        with pytest.warns(UserWarning, match=r"column 1 are about 1e\+09 and differ by 9 at most"):
            Dense.from_array(lost)
    # seconds since 1970, and what rounding leaves of equal values
    Dense.from_array(1.7e9 + 3_600 * x)
    Dense.from_array(0.1 + 1e-17 * x + np.where(x > 5, 2e-17, 0))


def test_ids_that_differ_in_type_alone_have_a_warning():
    """Two tables put together, of which one was read as texts."""
    with pytest.warns(UserWarning, match=r"row_names: 1 \(int\) and '1' \(str\) are two ids"):
        Dense(np.zeros((3, 2)), row_names=[1, "b", "1"])
    with pytest.warns(UserWarning, match=r"names\['shop'\]: 2 \(int\) and '2' \(str\)"):
        Tokens.from_columns({"shop": ["1", 2, "2", "1"]})
    Dense(np.zeros((3, 2)), row_names=[1, "2", 3.5])  # no warning, which would be an error
