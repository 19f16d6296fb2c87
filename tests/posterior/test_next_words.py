"""Items that a topic model recommends for baskets."""

import numpy as np
import pytest

import jaxmf as mf
from jaxmf.cli import results

TEA, CHESS = ["tea", "cup", "water", "milk"], ["move", "king", "queen", "board"]
TOPIC, WORD = 0.3, 0.2


@pytest.fixture(scope="module")
def posterior():
    """Baskets of three kinds of things from one of two lists."""
    generator = np.random.default_rng(2)
    lists = [list(generator.choice(TEA if i % 2 else CHESS, 3, replace=False)) for i in range(16)]
    tokens = mf.Tokens.from_lists(lists, documents=[f"b{i}" for i in range(16)])
    model = mf.LDA(2, topic_concentration=TOPIC, word_concentration=WORD)
    run = {"num_warmup": 30, "num_samples": 5, "num_chains": 2, "progress": False}
    return mf.sample(model, tokens, **run)


def by_hand(posterior):
    """Mean and sd over draws of p(word | basket), (N, V)."""
    counts = posterior.draws["topic_counts"].reshape(-1, 16, 2) + TOPIC
    cells = posterior.draws["word_cells"].reshape(-1, 8, 2) + WORD
    theta = counts / counts.sum(-1, keepdims=True)
    phi = cells / cells.sum(1, keepdims=True)
    probabilities = np.einsum("snk,svk->snv", theta, phi)
    return probabilities.mean(0), probabilities.std(0)


def words_of(posterior, row):
    tokens = posterior.data
    here = np.asarray(tokens.columns["document"]) == row
    return set(tokens.names["word"][np.asarray(tokens.columns["word"])[here]])


def test_probabilities_of_next_items_are_those_of_the_formula(posterior):
    mean, sd = by_hand(posterior)
    found = posterior.recommend(n=3)
    names = posterior.data.names["word"]
    for row in range(16):
        known = words_of(posterior, row)
        order = [w for w in np.argsort(-mean[row], kind="stable") if names[w] not in known][:3]
        assert found.column_names[row].tolist() == names[order].tolist()
        np.testing.assert_allclose(found.scores.probability[row], mean[row, order], rtol=1e-5)
        np.testing.assert_allclose(found.scores.sd[row], sd[row, order], rtol=1e-3, atol=1e-6)
    assert found.row_names.tolist() == [f"b{i}" for i in range(16)]


def test_the_missing_item_of_a_basket_comes_first(posterior):
    found = posterior.recommend(["b3", "b4"], n=1)
    assert found.column_names[:, 0].tolist() == [
        (set(TEA) - words_of(posterior, 3)).pop(),
        (set(CHESS) - words_of(posterior, 4)).pop(),
    ]
    assert posterior.recommend("b3", n=1).to_pandas()["row"].tolist() == ["b3"]
    everything = posterior.recommend("b3", n=99, include_known=True)
    assert sorted(everything.column_names[0]) == sorted(TEA + CHESS)
    assert everything.scores.probability.sum() == pytest.approx(1)
    assert np.isnan(posterior.recommend("b3", n=8).scores.probability).sum() == 3


def test_new_baskets_are_folded_in_and_matched_by_item(posterior):
    one = mf.Tokens.from_lists([["king", "queen"], ["milk", "tea", "scone"]], documents=["x", "y"])
    other = mf.Tokens.from_lists([["queen", "king"], ["scone", "tea", "milk"]])
    first = posterior.recommend(new_rows=one, n=2, unknown="drop")
    second = posterior.recommend(new_rows=other, n=2, unknown="drop")
    assert {*first.column_names[0]} == {"move", "board"}
    assert {*first.column_names[1]} == {"cup", "water"}
    np.testing.assert_array_equal(first.column_names, second.column_names)
    assert first.row_names.tolist() == ["x", "y"]
    np.testing.assert_array_equal(
        posterior.recommend("y", new_rows=one, n=2, unknown="drop").column_names[0],
        first.column_names[1],
    )
    with pytest.raises(ValueError, match="new_rows: the word 'scone' at position 4 is not one of"):
        posterior.recommend(new_rows=one)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"rows": "b99"}, "rows: no document has the id 'b99'"),
        ({"rows": ["b99"], "unknown": "drop"}, "rows: none of the 1 is the id of a document"),
        ({"by": "score"}, "by: words are ranked by their probability alone"),
        ({"n": 0}, "n must be"),
        ({"unknown": "prior"}, 'unknown: takes "error" or "drop" here'),
        ({"row_features": 3}, "row_features: LDA takes none"),
    ],
)
def test_wrong_questions_are_refused_by_name(posterior, options, match):
    with pytest.raises(ValueError, match=match):
        posterior.recommend(**options)


def test_unknown_baskets_are_left_out_on_demand(posterior):
    found = posterior.recommend(["b1", "nobody"], unknown="drop")
    assert found.row_names.tolist() == ["b1"]
    by_position = posterior.recommend(mf.Positions([1]))
    np.testing.assert_array_equal(found.columns, by_position.columns)


def test_the_command_line_recommends_for_baskets(posterior, tmp_path):
    folder = posterior.save(tmp_path / "run")
    file = tmp_path / "items.csv"
    results.recommend(folder, ["b3", "b4"], count=1, by=None, unknown="error", at=None, out=file)
    lines = file.read_text().split()
    found = posterior.recommend(["b3", "b4"], n=1).column_names[:, 0]
    assert [line.split(",")[:3] for line in lines] == [
        ["row", "rank", "column"],
        ["b3", "1", found[0]],
        ["b4", "1", found[1]],
    ]
