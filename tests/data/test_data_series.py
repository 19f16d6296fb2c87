"""SparseSeries: what it holds, and what it refuses."""

import jax
import numpy as np
import pytest
import scipy.sparse

from jaxmf.data import SparseBinary, SparseSeries, as_container

TABLES = np.array([[[0, 1, 0], [1, 1, 0]], [[0, 0, 0], [0, 0, 0]], [[1, 0, 0], [0, 0, 1]]])


def test_matrices_of_all_kinds_make_one_series():
    import pandas as pd

    ids = {"row_names": ["a", "b"], "column_names": ["x", "y", "z"]}
    kinds = {
        "arrays": list(TABLES),
        "scipy": [scipy.sparse.csr_array(table) for table in TABLES],
        "frames": [pd.DataFrame(t, ids["row_names"], ids["column_names"]) for t in TABLES],
    }
    for name, matrices in kinds.items():
        given = {} if name == "frames" else ids
        data = SparseSeries.from_matrices(matrices, [3.0, -1.0, 2.0], **given)
        assert data.shape == (2, 3, 3)
        assert data.times.tolist() == [-1, 2, 3]
        assert data.row_names.tolist() == ["a", "b"]
        assert data.column_names.tolist() == ["x", "y", "z"]
        for time, table in zip((3.0, -1.0, 2.0), TABLES, strict=True):
            np.testing.assert_array_equal(data.at(time).to_scipy().toarray(), table)
        # the last time is that of the first matrix
        np.testing.assert_array_equal(data.to_scipy().toarray(), TABLES[0])
        stacked = data.stacked().to_scipy().toarray().reshape(2, 3, 3)
        np.testing.assert_array_equal(stacked, TABLES[[1, 2, 0]].transpose(1, 0, 2))
        np.testing.assert_array_equal(data.gaps(), [[0, 3, 4], [3, 0, 1], [4, 1, 0]])
    assert repr(data) == "SparseSeries(2 x 3 at 3 times from -1 to 3, 5 ones)"
    assert repr(data.at(9.0)) == "SparseSeries(2 x 3 at time 9, 0 ones)"


def test_cells_not_observed_are_kept():
    seen = np.ones((2, 3), bool)
    seen[0, 2] = False
    parts = [SparseBinary.from_array(TABLES[0], observed=seen), SparseBinary.from_array(TABLES[2])]
    data = SparseSeries.from_matrices(parts, [1.0, 2.0])
    assert data.num_missing == 1
    assert [part.tolist() for part in data.at(1.0).missing_cells()] == [[0], [2]]
    assert data.missing_cells()[0].size == 0
    assert data.stacked().num_missing == 1
    leaves, structure = jax.tree.flatten(data)
    again = jax.tree.unflatten(structure, leaves)
    assert again.fingerprint() == data.fingerprint() != data.at(1.0).fingerprint()
    assert as_container(data, SparseSeries) is data


def test_triples_are_put_in_order():
    triples = [("ann", "tea", 3), ("bo", "jam", 1.5), ("bo", "tea", 3)]
    data = SparseSeries.from_triples(triples)
    assert data.times.tolist() == [1.5, 3]
    np.testing.assert_array_equal(data.to_scipy().toarray(), [[1, 0], [1, 0]])
    more = SparseSeries.from_triples(triples, times=[0, 1.5, 3], row_names=["cy", "bo", "ann"])
    assert more.shape == (3, 3, 2)
    assert more.at(0).num_ones == 0


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (
            lambda: SparseSeries.from_matrices(TABLES, [1, 2]),
            ValueError,
            "has 2 values but",
        ),
        (
            lambda: SparseSeries.from_matrices(TABLES, [1, 2, 1]),
            ValueError,
            "1 stands twice",
        ),
        (lambda: SparseSeries.from_matrices(TABLES, [1, 2, np.nan]), ValueError, "must be finite"),
        (lambda: SparseSeries.from_matrices(TABLES, ["a", "b", "c"]), TypeError, "numbers are nee"),
        (
            lambda: SparseSeries.from_matrices(
                TABLES, np.array(["2020-01", "2020-02", "2020-03"], "datetime64[M]")
            ),
            TypeError,
            "Dates become numbers",
        ),
        (lambda: SparseSeries.from_matrices(TABLES, 3.0), TypeError, "a list of numbers is needed"),
        (
            lambda: SparseSeries.from_matrices([TABLES[0], TABLES[0][:1]], [1, 2]),
            ValueError,
            r"matrices\[1\]: has shape \(1, 3\), the first has \(2, 3\)",
        ),
        (lambda: SparseSeries.from_matrices([], []), ValueError, "matrices: is empty"),
        (
            lambda: SparseSeries.from_matrices(scipy.sparse.eye_array(3), [1]),
            TypeError,
            "one for each time",
        ),
        (
            lambda: SparseSeries.from_matrices([2 * TABLES[0]], [1]),
            ValueError,
            r"matrices\[0\]: must hold 0 and 1 only",
        ),
        (
            lambda: SparseSeries.from_matrices(
                [SparseBinary([0], [0], (1, 1), ["a"]), SparseBinary([0], [0], (1, 1), ["b"])],
                [1, 2],
            ),
            ValueError,
            r"matrices\[1\]: its row_names are not those of the first",
        ),
        (lambda: SparseSeries.from_triples([]), ValueError, "triples: is empty"),
        (lambda: SparseSeries.from_triples([("a", "b")]), ValueError, "a triple"),
        (
            lambda: SparseSeries.from_triples([("a", "b", 1), ("a", "b", 1)]),
            ValueError,
            r"duplicate cell \(row 'a', column 'b', time 1\)",
        ),
        (
            lambda: SparseSeries.from_triples([("a", "b", 1)], times=[2, 3]),
            ValueError,
            "the time 1 at position 0 is not one of times",
        ),
        (lambda: SparseSeries([0], [3], [0], [1, 2], (1, 2, 1)), ValueError, "steps: index out of"),
        (lambda: SparseSeries([0], [0], [0], [1], (1, 1)), TypeError, "shape: must be"),
        (lambda: SparseSeries([0], [0], [0], [1], (2**30, 4, 1)), ValueError, "than int32 can"),
        (
            lambda: SparseSeries([0], [0], [0], [1], (1, 1, 1), missing_rows=[0]),
            ValueError,
            "belong together",
        ),
    ],
)
def test_series_that_are_refused(make, kind, words):
    with pytest.raises(kind, match=words):
        make()
