"""The map of topics: distances, positions, the picture."""

import dataclasses

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon, pdist, squareform

import jaxmf as mf
from jaxmf.plot import topic_map
from jaxmf.plot.topic_map import Scaled, scale, squared_distances

GENERATOR = np.random.default_rng(3)
LISTS = [["tea", "cup", "$5", "milk"] * 4, ["king", "queen", "a$b", "move"] * 4] * 4


@pytest.fixture(scope="module")
def posterior():
    model = mf.LDA(2, topic_concentration=0.1, word_concentration=0.1)
    run = {"num_warmup": 10, "num_samples": 4, "num_chains": 2, "progress": False}
    return mf.sample(model, mf.Tokens.from_lists(LISTS), **run)


def test_distances_are_those_of_jensen_and_shannon():
    probabilities = GENERATOR.dirichlet(np.full(6, 0.3), 5)
    probabilities[0] = [0.5, 0.5, 0, 0, 0, 0]
    expected = np.array([[jensenshannon(p, q) ** 2 for q in probabilities] for p in probabilities])
    np.testing.assert_allclose(squared_distances(probabilities), expected, atol=1e-12)


def test_points_of_the_plane_are_put_back_up_to_a_rotation():
    points = GENERATOR.normal(size=(7, 2)) * [2.0, 1.0]
    found = scale(squareform(pdist(points)) ** 2)
    np.testing.assert_allclose(pdist(found.positions), pdist(points), rtol=1e-9)
    assert found.explained.sum() == pytest.approx(1)
    assert found.explained[0] > found.explained[1]


@pytest.mark.parametrize("size", [1, 2])
def test_one_and_two_topics_have_a_map(size):
    squared = np.ones((size, size)) - np.eye(size)
    found = scale(squared)
    assert found.positions.shape == (size, 2)
    assert np.isfinite(found.positions).all()
    np.testing.assert_allclose(pdist(found.positions), [1] * (size - 1))


def texts_of(figure):
    return {text.get_text() for axes in figure.axes for text in axes.texts}


def test_areas_are_shares_and_every_topic_has_its_words(posterior):
    figure = posterior.plot.topics()
    (circles,) = figure.axes[0].collections
    shares = posterior.topics().shares
    np.testing.assert_allclose(circles.get_sizes() / circles.get_sizes()[0], shares / shares[0])
    between = np.linalg.norm(np.diff(circles.get_offsets(), axis=0))
    expected = squared_distances(posterior.topics().word_probabilities)[0, 1]
    assert between == pytest.approx(np.sqrt(expected), rel=1e-6)
    texts = texts_of(figure)
    assert {"0", "1"} | set(posterior.topics().labels(2)) <= texts
    figure.canvas.draw()  # words with dollars are no formulas


def test_labels_cover_neither_each_other_nor_numbers(posterior):
    figure = posterior.plot.topics()
    renderer = figure.canvas.get_renderer()
    boxes = [text.get_window_extent(renderer) for text in figure.axes[0].texts]
    assert len(boxes) == 4
    assert not any(
        one.overlaps(two) for position, one in enumerate(boxes) for two in boxes[:position]
    )


def test_no_circle_is_cut_where_topics_lie_above_one_another(posterior, monkeypatch):
    positions = np.array([[-0.21, -0.19], [0.23, 0.345]])
    monkeypatch.setattr(topic_map, "scale", lambda squared: Scaled(positions, np.ones(2)))
    figure = posterior.plot.topics()
    figure.canvas.draw()
    axes = figure.axes[0]
    (circles,) = axes.collections
    radius = np.sqrt(circles.get_sizes() / np.pi)[:, None] * figure.dpi / 72
    centres, box = axes.transData.transform(positions), axes.get_window_extent()
    assert (centres - radius > box.min).all()
    assert (centres + radius < box.max).all()


def test_one_topic_is_shown_with_its_relevant_words(posterior):
    figure = posterior.plot.topics(1)
    words = posterior.topics(20).relevant.lists()[1]
    assert [label.get_text() for label in figure.axes[1].get_yticklabels()] == words
    bars = np.array([patch.get_width() for patch in figure.axes[1].patches])
    in_data, in_topic = bars[: len(words)], bars[len(words) :]
    flat = [word for line in LISTS for word in line]
    np.testing.assert_array_equal(in_data, [flat.count(word) for word in words])
    topics = posterior.topics()
    at = [topics.words.tolist().index(word) for word in words]
    expected = topics.shares[1] * len(flat) * topics.word_probabilities[1, at]
    np.testing.assert_allclose(in_topic, expected)
    figure.canvas.draw()


def test_fewer_topics_are_shown_on_demand_and_wrong_ones_refused(posterior):
    (circles,) = posterior.plot.topics(max_topics=1).axes[0].collections
    assert len(circles.get_offsets()) == 1
    with pytest.raises(ValueError, match="topic must be at most 1, got 2"):
        posterior.plot.topics(2)
    with pytest.raises(ValueError, match="max_topics must be"):
        posterior.plot.topics(max_topics=0)
    with pytest.raises(ValueError, match="topic: 1 is not among the 1 topics that max_topics=1"):
        posterior.plot.topics(1, max_topics=1)


def test_models_without_topics_have_no_map(posterior):
    other = dataclasses.replace(posterior, model=mf.DirichletCompoundMultinomial(0.1))
    assert "topics" in posterior.plot.available()
    assert "topics" not in other.plot.available()
    with pytest.raises(ValueError, match=r"plot\.topics: needs topics of documents"):
        other.plot.topics()


def test_the_report_has_the_map_and_the_words(posterior, tmp_path):
    page = posterior.report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert f'aria-label="Map of {len(posterior.topics())} topics; topic 0 has ' in page
    for words in posterior.topics().lists():
        assert ", ".join(words) in page
