"""What binary matrix factorisation is compared with: completing rows, groups of patients."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("sklearn")
from benchmarks import completion, genes


@pytest.fixture(scope="module")
def halves():
    """Complete rows near one of three patterns, and rows that lack their right half."""
    generator = np.random.default_rng(0)
    patterns = generator.random((3, 20)) < 0.5
    rows = patterns[generator.integers(3, size=120)] ^ (generator.random((120, 20)) < 0.05)
    truth = rows[90:].astype(float)
    shown = truth.copy()
    shown[:, 10:] = np.nan
    return rows[:90].astype(float), shown, truth


def test_score_is_the_log_likelihood_of_missing_cells():
    shown = np.array([[1.0, np.nan, np.nan]])
    found = completion.score(np.array([[1.0, 1.0, 0.0]]), shown, np.array([[0.0, 0.25, 0.5]]))
    np.testing.assert_allclose(found, [(np.log(0.25) + np.log(0.5)) / 2])


def test_mixture_and_neighbours_find_the_patterns(halves):
    train, shown, truth = halves
    scores = {}
    for name, (method, choices) in completion.BASELINES.items():
        chosen, probability = completion.tuned(method, choices, train, shown)
        assert chosen in choices
        assert ((probability > 0) & (probability < 1)).all()
        scores[name] = completion.score(truth, shown, probability).mean()
    best = -0.05 * np.log(20) + 0.95 * np.log(0.95)  # of the distribution that made the rows
    assert scores["independent pixels"] < best - 0.15
    assert scores["mixture of 10"] > best - 0.12
    assert scores["nearest neighbours, tuned"] > best - 0.12
    assert scores["nearest neighbours, tuned"] >= scores["nearest neighbour"]


def test_settings_are_chosen_on_complete_rows_alone(halves):
    train, shown, _ = halves
    for rest, hidden, truth in completion.folds(train, shown):
        assert len(rest) + len(truth) == len(train)
        np.testing.assert_array_equal(np.isnan(hidden[0]), np.isnan(shown[0]))
        assert not np.isnan(truth).any()


def test_distances_of_patients_average_over_draws():
    generator = np.random.default_rng(0)
    z, v = (generator.random((2, rows, 3)) < 0.5 for rows in (7, 4))
    weights = generator.normal(size=(2, 3, 3))
    posterior = SimpleNamespace(flat_draws=lambda: ({"z": z, "v": v, "weights": weights}, None))
    found = genes.distances(posterior)
    expected = z.astype(float) @ weights @ v.swapaxes(1, 2)  # (2, 7, 4)
    for left in range(4):
        for right in range(4):
            differing = (v[:, left] != v[:, right]).sum(axis=1).mean()
            assert found["features"][left, right] == pytest.approx(differing)
            squares = ((expected[:, :, left] - expected[:, :, right]) ** 2).sum(axis=1).mean()
            assert found["profiles"][left, right] == pytest.approx(squares, abs=1e-9)
