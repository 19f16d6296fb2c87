"""Answers as tables, as arrays with labelled axes and as HTML, with the ids of the data."""

import dataclasses
import html
import sys

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import jaxmf as mf
from jaxmf.diagnostics import HeldOutScore
from jaxmf.posterior.coherence import Coherence
from jaxmf.posterior.document_topics import DocumentTopics
from jaxmf.posterior.left_out_losses import LeftOutLosses
from jaxmf.posterior.prediction import Prediction
from jaxmf.posterior.ranking import ExpectedRatings, Recommendations, Scores
from jaxmf.posterior.records import NumFeatures
from jaxmf.posterior.row_groups import RowGroups
from jaxmf.posterior.side_groups import GroupWeights
from jaxmf.posterior.topics import TopEntries
from tests.posterior.test_biclusters import COLUMNS, ROWS, planted  # noqa: F401

ROW_IDS = [f"row {i}" for i in range(ROWS)]
COLUMN_IDS = [f"column {j}" for j in range(COLUMNS)]
HALVES = np.array([[0.5, 0.25], [0.5, 0.75]])
WORDS = np.array(["<tea>", "milk"])

ANSWERS = {
    "biclusters": lambda post: post.biclusters(),
    "features that draws share": lambda post: post.certain_features(),
    "features of one draw": lambda post: post.features(),
    "number of features": lambda _: NumFeatures(np.array([2, 3]), HALVES[0]),
    "rows together": lambda post: post.cooccurrence(),
    "columns together": lambda post: post.cooccurrence(side="column", measure="probability"),
    "prediction": lambda post: post.predict((["row 1"], ["column 2"])),
    "scores of cells": lambda _: Scores(*HALVES.repeat(2, axis=0)),
    "held-out score": lambda _: HeldOutScore(HALVES[0], 0.375, 0.125, 3),
    "losses of left-out cells": lambda _: LeftOutLosses(
        "log score", *HALVES, *np.eye(2, dtype=int)
    ),
    "coherence of topics": lambda _: Coherence(HALVES[0], 0.375, "npmi"),
    "summary": lambda _: mf.diagnostics.Summary(["<a>", "b"], ["mean", "sd"], HALVES),
    "topics of documents": lambda _: DocumentTopics(WORDS, HALVES, HALVES, np.zeros(2)),
    "best entries": lambda _: TopEntries(np.arange(2), HALVES[0], WORDS[[[0, 1]] * 2], HALVES),
    "groups of rows": lambda _: RowGroups(
        *(np.array([3, 1]), HALVES[0], HALVES[0], HALVES, HALVES, HALVES, WORDS, np.arange(2)),
        *(0, 0, np.array([0, 0, 1, 0])),
    ),
    "weights of groups": lambda _: GroupWeights(("poet", None), np.arange(2), HALVES),
    "recommendations": lambda _: Recommendations(
        np.arange(2),
        np.eye(2, dtype=int),
        ExpectedRatings(HALVES, HALVES),
        WORDS,
        WORDS[np.eye(2, dtype=int)],
    ),
}


@pytest.fixture(scope="module", params=ANSWERS)
def answer(request, planted):  # noqa: F811
    return ANSWERS[request.param](planted)


def test_every_answer_is_a_table_labelled_arrays_text_and_html(answer):
    frame, dataset = answer.to_pandas(), answer.to_xarray()
    assert len(frame)
    assert list(frame.columns)
    assert dataset.data_vars
    for axis, ids in (("row", ROW_IDS), ("column", COLUMN_IDS)):
        if dataset.sizes.get(axis) == len(ids):
            assert dataset[axis].values.tolist() == ids
    for name, (axes, values) in answer.variables().items():
        np.testing.assert_array_equal(dataset[name].values, values)
        assert dataset[name].dims == tuple(axes)
    page = answer._repr_html_()
    assert page.startswith("<table")
    assert "<tea>" not in page
    first = answer.lines()[-1][0] if not isinstance(answer, mf.diagnostics.Summary) else "b"
    assert html.escape(first) in page
    assert first in repr(answer)


def test_pairs_are_shares_of_draws_with_a_common_feature(planted):  # noqa: F811
    """In one draw of four the first row lacks the feature that it shares with the second alone."""
    together = planted.cooccurrence(["row 1", "row 0"], measure="probability")
    np.testing.assert_allclose(together.values, [[1, 0.75], [0.75, 1]])
    assert together.to_pandas().to_dict("list") == {
        "row": ["row 1"],
        "other row": ["row 0"],
        "probability": [0.75],
    }
    labelled = together.to_xarray()["probability"]
    assert labelled.sel(row="row 0", other_row="row 1") == 0.75
    columns = planted.cooccurrence(side="column")
    v = planted.draws["v"][0, 0].astype(int)
    np.testing.assert_allclose(columns, v @ v.T)
    np.testing.assert_allclose(columns - v @ v.T, 0)  # numpy's operators take it
    assert np.sum(columns) == (v @ v.T).sum()
    assert columns[0, :2].tolist() == [1, 1]


def test_operators_in_place_make_an_array_and_leave_the_answer(planted):  # noqa: F811
    found = answer = planted.cooccurrence(side="column")
    before = answer.values.copy()
    found *= 2
    found -= answer
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, before)
    np.testing.assert_array_equal(answer, before)
    array = before.copy()
    array += answer
    np.testing.assert_array_equal(array, 2 * before)
    with pytest.raises(TypeError, match="out: an answer is not written into"):
        np.add(before, before, out=answer)
    np.testing.assert_array_equal(jnp.argmax(jnp.asarray(answer), axis=1), before.argmax(axis=1))


def test_questions_about_pairs_that_a_model_cannot_answer_name_the_argument(planted):  # noqa: F811
    for arguments, name in (({"side": "columns"}, "side"), ({"measure": "mean"}, "measure")):
        with pytest.raises(ValueError, match=name):
            planted.cooccurrence(**arguments)
    with pytest.raises(ValueError, match="columns"):
        planted.cooccurrence(["row 1"], side="column")


def test_a_table_of_pairs_says_what_its_cells_are(planted):  # noqa: F811
    together = planted.cooccurrence(side="column", measure="probability")
    words = "probability that two columns share a feature, or are in one group"
    assert together.footer().split(";")[0] == words


def test_an_extra_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(ModuleNotFoundError, match=r"to_xarray needs xarray.*jaxmf\[arviz\]"):
        GroupWeights(("poet",), np.arange(2), HALVES[:1]).to_xarray()


def test_tables_without_pandas_name_the_extra(monkeypatch, planted):  # noqa: F811
    monkeypatch.setitem(sys.modules, "pandas", None)
    certain, documents = planted.certain_features(), ANSWERS["topics of documents"](planted)
    tables = (planted.biclusters().members, certain.members, certain.values, documents.to_pandas)
    for table in tables:
        with pytest.raises(ModuleNotFoundError, match=r" needs pandas.*jaxmf\[data\]"):
            table()


class AnnotatedData:
    """What is used of an AnnData."""

    def __init__(self, row_names, column_names):
        self.obs_names, self.var_names = pd.Index(row_names), pd.Index(column_names)
        self.obs, self.var = pd.DataFrame(index=row_names), pd.DataFrame(index=column_names)
        self.obsm, self.varm, self.uns, self.obsp, self.layers = {}, {}, {}, {}, {}


def test_a_large_log_joint_is_shown_in_units():
    table = mf.diagnostics.Summary(["log_joint"], ["5 %", "95 %"], np.array([[-1461730, -3e9]]))
    assert table.cells() == [["-1461730", "-3.00e+09"]]


@pytest.mark.filterwarnings("ignore")  # of anndata itself
@pytest.mark.parametrize("library", ["a stand-in", "anndata"])
def test_answers_are_written_into_anndata_by_id(planted, library):  # noqa: F811
    """Rows in another order, and with one that the run lacks; the columns as they were."""
    names = ["unknown", *ROW_IDS[::-1]], COLUMN_IDS
    if library == "anndata":
        anndata = pytest.importorskip("anndata", reason="anndata is not installed")
        frames = (pd.DataFrame(index=each) for each in names)
        adata = anndata.AnnData(np.zeros((ROWS + 1, COLUMNS)), *frames)
    else:
        adata = AnnotatedData(*names)
    answer = planted.biclusters()
    answer.to_anndata(adata, prefix="blocks")
    members = adata.obsm["blocks_row_probabilities"]
    np.testing.assert_array_equal(members[1:], answer.row_probabilities.T[::-1])
    assert np.isnan(members[0]).all()
    np.testing.assert_array_equal(adata.varm["blocks_columns"], answer.columns.T)
    assert adata.varm["blocks_columns"].dtype == bool
    np.testing.assert_array_equal(adata.uns["blocks_weights"], answer.weights)


def test_an_anndata_that_does_not_fit_is_refused_and_left_as_it_was(planted):  # noqa: F811
    answer = planted.biclusters()
    for names, fragment in (
        (ROW_IDS[1:], r"adata.obs_names lacks 'row 0'"),
        ([*ROW_IDS, "row 3"], r"adata.obs_names has a name twice"),
    ):
        adata = AnnotatedData(names, COLUMN_IDS)
        with pytest.raises(ValueError, match=fragment):
            answer.to_anndata(adata)
        assert not (adata.obsm)
        assert not (adata.varm)
        assert not (adata.uns)
    with pytest.raises(TypeError, match="adata: must be an AnnData, not ndarray"):
        answer.to_anndata(np.zeros((ROWS, COLUMNS)))
    weights = DocumentTopics(np.arange(2), HALVES, HALVES, np.zeros(2))
    with pytest.raises(ValueError, match="3 of them, but the answer has 2 without ids"):
        weights.to_anndata(AnnotatedData(["a", "b", "c"], ["x"]))
    adata = AnnotatedData(["a", "b"], ["x"])
    weights.to_anndata(adata)
    assert adata.obs["jaxmf_unmatched"].tolist() == [0, 0]


@pytest.mark.parametrize("has_ids", [True, False])
def test_predictions_of_cells_are_layers_of_an_anndata(has_ids):
    """A prediction without its cells says nothing, so it cannot go where unlabelled arrays do."""
    rows, columns = np.array([0, 2, 2]), np.array([1, 0, 1])
    moments = np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.2, 0.3]), np.array([[0.5, 1.5, 2.5]])
    cells = {"row_names": np.array(list("abc"))[rows], "column_names": np.array([7, 9])[columns]}
    answer = Prediction(
        rows, columns, *moments, (0.05,), np.ones((4, 3)), **(cells if has_ids else {})
    )
    names = (list("xcba"), ["9", "7"]) if has_ids else (list("abc"), ["7", "9"])
    adata = AnnotatedData(*names)
    answer.to_anndata(adata)
    assert sorted(adata.layers) == ["jaxmf_5%", "jaxmf_mean", "jaxmf_sd"]
    nan, frame = np.nan, pd.DataFrame(adata.layers["jaxmf_mean"], *names)
    expected = [[nan, 1.0], [nan, nan], [2.0, 3.0]]
    np.testing.assert_array_equal(frame.loc[list("abc"), ["7", "9"]], expected)
    assert not adata.uns


def test_a_prediction_of_a_cell_that_an_anndata_lacks_is_refused():
    cell, ones = np.array([2]), np.ones(1)
    answer = Prediction(cell, cell, ones, ones, ones[None], (0.5,), ones[None])
    adata = AnnotatedData(["a", "b"], ["x", "y", "z"])
    with pytest.raises(
        ValueError, match=r"adata.obs_names: 2 of them, but the cells .* 3 without ids"
    ):
        answer.to_anndata(adata)
    assert not adata.layers
    larger = AnnotatedData(list("abcd"), ["x", "y", "z"])
    with pytest.raises(ValueError, match=r"adata.obs_names: 4 of them, .* 3 without ids"):
        dataclasses.replace(answer, shape=(3, 3)).to_anndata(larger)


def test_pairs_of_rows_are_in_the_order_of_the_anndata_on_both_axes(planted):  # noqa: F811
    answer = planted.cooccurrence()
    adata = AnnotatedData(ROW_IDS[::-1], COLUMN_IDS)
    answer.to_anndata(adata)
    np.testing.assert_array_equal(adata.obsp["jaxmf_expected"], answer.values[::-1, ::-1])


def test_whole_numbers_stay_such_and_are_found_as_the_texts_of_an_anndata():
    groups = DocumentTopics(np.array([7, 3]), HALVES, HALVES, np.array([1, 2]))
    adata = AnnotatedData(["3", "7"], ["x"])
    groups.to_anndata(adata)
    assert adata.obs["jaxmf_unmatched"].tolist() == [2, 1]
    np.testing.assert_array_equal(adata.obsm["jaxmf_mean"], HALVES[::-1])


def test_a_table_of_pairs_can_be_made_of_what_rows_share(planted):  # noqa: F811
    answer = planted.cooccurrence()
    frame = pd.DataFrame(list(answer), index=answer.names, columns=answer.names)
    np.testing.assert_array_equal(frame, answer.values)
