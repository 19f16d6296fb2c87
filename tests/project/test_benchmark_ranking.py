"""The benchmark of rankings: splits, precision, settings chosen alike, closed forms."""

import numpy as np
import pytest
from scipy import sparse

from benchmarks import ranking, recommenders, sparse_binary, variants
from benchmarks.ranking import Factors, Method, left_out, precision


@pytest.fixture(scope="module")
def ones():
    return ranking.sigmoid_ones(120, num_factors=2, share=0.1)


def test_ones_of_the_sigmoid_model(ones):
    assert ones.shape == (120, 120)
    assert 0.07 < ones.nnz / 120**2 < 0.13
    again = ranking.sigmoid_ones(120, num_factors=2, share=0.1)
    assert (ones != again).nnz == 0
    assert (ones != ranking.sigmoid_ones(120, num_factors=2, share=0.1, seed=1)).nnz > 0


def test_three_ones_are_left_out_of_every_row_that_has_more(ones):
    split = left_out(ones, 0)
    counts, kept = (np.diff(part.indptr) for part in (ones, split.train))
    np.testing.assert_array_equal(split.rows, np.flatnonzero(counts > 3))
    np.testing.assert_array_equal(counts - kept, np.where(counts > 3, 3, 0))
    dense, train = ones.toarray(), split.train.toarray()
    for row, out in zip(split.rows, split.out, strict=True):
        assert len(set(out)) == 3
        assert dense[row, out].all()
        assert not train[row, out].any()
    assert (left_out(ones, 0).out == split.out).all()
    assert (left_out(ones, 1).out != split.out).any()
    # each of a row's ones is left out now and then
    row = split.rows[np.argmax(counts[split.rows])]
    seen = {
        int(column)
        for seed in range(60)
        for column in left_out(ones, seed).out[np.searchsorted(split.rows, row)]
    }
    assert seen == set(np.flatnonzero(dense[row]))


def test_precision_of_the_best_scores_and_of_none(ones):
    split = left_out(ones, 0)
    truth = np.zeros(ones.shape)
    truth[split.rows[:, None], split.out] = 1
    truth += 5 * split.train.toarray()  # known ones are not counted, however high
    found = precision(lambda rows: truth[rows], split)
    assert found == {1: 1.0, 3: 1.0, 5: pytest.approx(0.6), 10: pytest.approx(0.3)}
    worst = precision(lambda rows: -truth[rows], split)
    assert max(worst.values()) < 0.1


def test_settings_are_chosen_on_other_ones_than_the_test(ones):
    seen = []

    def fit(train, settings, seed):
        seen.append((settings, seed, train.nnz))
        right = ones.toarray() if settings == 3 else np.zeros(ones.shape)
        return lambda rows: right[rows]

    result = ranking.compare(ones, Method(fit, range(6)), seeds=(0, 1))
    assert result.settings == 3
    assert [one[0] for one in seen] == [*range(6), 3, 3]
    splits = [left_out(ones, seed) for seed in (0, 1)]
    assert [one[2] for one in seen[6:]] == [split.train.nnz for split in splits]
    assert seen[0][2] < splits[0].train.nnz  # one more of each row was left out
    assert len(result.precision[1]) == len(result.cpu_seconds) == 2


def test_every_method_has_as_many_trials():
    methods = variants.OURS | recommenders.PEERS
    assert {len(method.choices) for method in methods.values()} == {ranking.NUM_TRIALS}
    assert {"GS", "GSe", "GD", "SS", "SSe", "SD", "GA", "SA"} <= set(variants.OURS)
    with pytest.raises(ValueError, match="5 settings"):
        Method(recommenders.svd, range(5))


def test_ease_is_the_ridge_regression_without_the_column_itself(ones):
    dense, penalty = ones.toarray().astype(float), 7.0
    scores = recommenders.ease(sparse.csr_array(ones, dtype=np.float32), penalty, 0)(np.arange(120))
    for column in (0, 17):
        others = np.delete(np.arange(120), column)
        x = dense[:, others]
        weights = np.linalg.solve(x.T @ x + penalty * np.eye(119), x.T @ dense[:, column])
        np.testing.assert_allclose(scores[:, column], x @ weights, atol=1e-4)


def test_factors_score_by_products_and_offsets():
    generator = np.random.default_rng(0)
    a, s, c = (generator.normal(size=size) for size in ((4, 2), (3, 2), (3,)))
    np.testing.assert_allclose(Factors(a, s, c)(np.array([2])), a[2:3] @ s.T + c)


def test_own_methods_beat_chance(ones):
    split = left_out(ones, 0)
    chance = precision(lambda rows: np.random.default_rng(0).random((len(rows), 120)), split)[3]
    for name, settings in {"GA": (2, -1.0), "SA": (2, 3), "GD": (2, 10, 1.0)}.items():
        scores = variants.OURS[name].fit(split.train, settings, 0)
        assert precision(scores, split)[3] > 3 * chance, name


def test_verdict_names_the_best_first():
    def part(value):
        return {"precision": {str(level): [value] for level in ranking.LEVELS}, "cpu_seconds": [1]}

    sets = {
        "a": {
            "shape": [5, 4], "ones": 9, "rows_scored": 3,
            "methods": {"low": part(0.1), "high": part(0.2)},
        }
    }  # fmt: skip
    words = sparse_binary.verdict(sets)
    assert words[0].startswith("a: 5 x 4, 9 ones")
    assert words[1].split()[0] == "high"
