"""Pictures inside the page: small, in its colours, each with names of its own."""

import re

import numpy as np
import pytest

from jaxmf.plot.panels import matrix, trace_panels
from jaxmf.plot.style import INK, figure_of
from jaxmf.report.parts import Picture
from jaxmf.report.svg import inline


def test_texts_are_texts_in_the_colours_of_the_page():
    text = inline(matrix(np.eye(2), ["a <b>", "c"], "feature", np.array(["d$_$", "e"])))
    words = re.findall(r"<text[^>]*>([^<]*)</text>", text)
    assert {"a &lt;b&gt;", "c", "d$_$", "e", "feature", "column"} <= set(words)
    assert f"fill: var(--ink, {INK})" in text
    assert not re.search(rf"(?<!, ){INK}", text)
    assert "<style" not in text  # one that would hold for the whole page


def test_no_name_of_a_picture_is_one_of_another():
    used = []
    for scale in (1, 2):
        text = inline(matrix(scale * np.eye(3), list("abc"), "feature"))
        names = re.findall(r' id="([^"]+)"', text)
        assert set(re.findall(r'(?:href="|url\()#([^")]+)', text)) == set(names)
        used += names
    assert used
    assert len(set(used)) == len(used)


@pytest.mark.slow
def test_pictures_of_many_points_are_no_larger_than_their_pixels():
    rng = np.random.default_rng(0)
    for figure in (
        trace_panels({"log joint": rng.normal(size=(4, 20_000))}, along="draw"),
        matrix(rng.normal(size=(30, 5_000)), list(map(str, range(30))), "feature"),
    ):
        assert len(inline(figure)) < 500_000
    figure, (axes,) = figure_of(1, 1, width=3, height=2)
    axes.scatter(*rng.normal(size=(2, 20_000)))
    axes.vlines(*rng.normal(size=(3, 20_000)))
    assert len(inline(figure)) < 100_000


def test_a_picture_says_what_is_seen_whatever_is_in_the_ids():
    figure, _ = figure_of(1, 1, width=3, height=2)
    page = str(Picture(figure, 'Bars of "a" < b'))
    assert 'aria-label="Bars of &#34;a&#34; &lt; b"' in page
    assert 'width="288"' in page
    assert page.count("<svg") == page.count("</svg>") == 1
