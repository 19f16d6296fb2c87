"""Every picture of every model: it is drawn, or it is not there and says what it needs."""

import warnings

import numpy as np
import pytest

import jaxmf as mf
from jaxmf import registry
from jaxmf.plot import plots, style
from jaxmf.report import svg

FEW = {
    "sample": {"num_warmup": 2, "num_samples": 4, "num_chains": 1},
    "variational": {"num_epochs": 2},
}
NEEDS_MISSING = {"held_out", "completed"}


def arguments(name, data):
    """What a picture cannot be drawn without."""
    if name == "topics_over":
        return [np.arange(data.sizes["document"])]
    if name == "held_out":
        rows, columns = (cells[:5] for cells in data.missing_cells())
        return [mf.Entries(rows, columns, np.ones(rows.size), data.shape)]
    return []


@pytest.mark.tiers(
    exhaustive=[
        "bi-hdp",
        "bi-lda",
        "binary-mf",
        "dcm",
        "dp-mixture",
        "feature-model",
        "flexible-mixture",
        "hdp",
        "hfp",
        "mixture-of-gaussians",
        "multi-hdp",
        "multi-lda",
        "network",
        "noisy-or-ibp",
        "pam",
        "sparse-binary",
        "sparse-binary-series",
        "urp",
    ]
)
@pytest.mark.slow
@pytest.mark.parametrize("entry", registry.ENTRIES, ids=lambda entry: entry.name)
def test_a_picture_is_drawn_or_not_there(entry):
    model, data = entry.example()
    posterior = mf.fit(model, data, progress=False, seed=0, **FEW[entry.default])
    available = posterior.plot.available()
    assert "trace" in available
    assert getattr(posterior.data, "num_missing", 0) or not NEEDS_MISSING & set(available)
    for name in plots._SHOWS:
        draw = getattr(posterior.plot, name)
        if name in available:
            options = {"image_shape": (1, data.shape[1])} if name == "average_images" else {}
            draw(*arguments(name, posterior.data), **options).canvas.draw()
        else:
            needed = {"held_out": [data], "topics_over": [[]]}.get(name, [])
            options = {"image_shape": (1, 1)} if name == "average_images" else {}
            with pytest.raises(ValueError, match=rf"plot\.{name}: needs "):
                draw(*needed, **options)


def test_letters_that_the_font_lacks_are_said_in_one_warning_and_are_texts_in_a_report():
    figure, (axes, other) = style.figure_of(1, 2, width=4, height=2)
    axes.set_title("特徴")
    other.set_title("\N{SLIGHTLY SMILING FACE}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "特徴" in svg.inline(figure)
    figure, (axes,) = style.figure_of(1, 1, width=2, height=2)
    axes.set_title("特徴")
    with pytest.warns(UserWarning, match="lacks letters: 特徴 are drawn as boxes") as caught:
        style.png(figure)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        style.png(figure)


def test_what_was_warned_is_said_where_drawing_fails():
    figure, (axes,) = style.figure_of(1, 1, width=2, height=2)

    def draw(renderer):
        warnings.warn("said before", stacklevel=1)
        raise RuntimeError("no picture")

    axes.draw = draw
    with (
        pytest.warns(UserWarning, match="said before"),
        pytest.raises(RuntimeError, match="no picture"),
    ):
        style.png(figure)
