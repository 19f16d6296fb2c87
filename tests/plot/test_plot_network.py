"""Networks of mixture blocks as pictures: what is declared is what is drawn."""

from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

import jaxmf as mf
from jaxmf.plot import Plots


def parts(figure):
    """Texts, boxes and arrows of a picture."""
    (axes,) = figure.axes
    boxes = [patch for patch in axes.patches if isinstance(patch, FancyBboxPatch)]
    arrows = [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]
    return {text.get_text(): text.get_position() for text in axes.texts}, boxes, arrows


def test_boxes_are_blocks_and_arrows_come_from_parents():
    texts, boxes, arrows = parts(mf.BiLDA(10, 20).plot())
    assert {"user", "item", "user_group", "item_group", "rating", "Dirichlet, 10"} <= set(texts)
    assert len(boxes) == 3
    assert len(arrows) == 4
    assert texts["user"][0] < texts["user_group"][0] < texts["rating"][0]


def test_observed_blocks_are_shaded():
    _, boxes, _ = parts(mf.LDA(5).plot())
    white = [box.get_facecolor()[:3] == (1, 1, 1) for box in boxes]
    assert sorted(white) == [False, True]


@pytest.mark.parametrize(
    "model", [mf.PAM((2, 3, 4)), mf.URP(5), mf.DPMixture()], ids=["levels", "skips", "no columns"]
)
def test_nothing_lies_outside_the_picture_or_on_another_block(model):
    figure = model.plot()
    figure.canvas.draw()
    (axes,) = figure.axes
    frame = axes.get_window_extent().padded(1)
    for patch in axes.patches:
        corners = patch.get_window_extent().get_points()
        assert np.all((corners >= frame.min) & (corners <= frame.max))
    _, boxes, _ = parts(figure)
    positions = {(round(box.get_x(), 6), round(box.get_y(), 6)) for box in boxes}
    assert len(positions) == len(boxes)


def test_a_posterior_draws_its_network():
    posterior = SimpleNamespace(model=mf.LDA(2), draws={})
    texts, boxes, _ = parts(Plots(posterior).network())
    assert "topic" in texts
    assert len(boxes) == 2
    posterior = SimpleNamespace(model=mf.LinearGaussianIBP(), draws={}, data=mf.Dense([[1.0]]))
    with pytest.raises(ValueError, match=r"plot.network: needs a network of blocks; a LinearGauss"):
        Plots(posterior).network()
