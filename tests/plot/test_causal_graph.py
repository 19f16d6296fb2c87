"""The causal graph: names of many rows can be read."""

import numpy as np

from jaxmf.plot.graph import causal_graph


def test_names_of_rows_stand_clear_of_each_other():
    z = np.random.default_rng(0).random((20, 4)) < 0.4
    figure = causal_graph(z, row_names=[f"question {row}" for row in range(20)])
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 20
    assert all(left.x1 < right.x0 for left, right in zip(boxes[:-1], boxes[1:], strict=True))
    assert min(box.y0 for box in boxes) >= 0


def test_short_names_stay_upright():
    figure = causal_graph(np.eye(6, dtype=bool), row_names=list("abcdef"))
    assert {text.get_rotation() for text in figure.axes[0].texts} == {0}
