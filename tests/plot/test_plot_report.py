"""Pictures and the report: drawn without pyplot, complete, and in one file."""

import dataclasses
import html.parser
import re
import sys

import numpy as np
import pytest

import jaxmf as mf
from jaxmf import diagnostics, plot, registry
from jaxmf.data import Dense
from jaxmf.plot import bilinear, panels
from jaxmf.plot.style import colour_scale
from jaxmf.results import Posterior

SHORT = {"num_warmup": 4, "num_samples": 6, "num_chains": 2, "progress": False}


@pytest.fixture(scope="module")
def truth():
    values = np.array(registry.ENTRIES[0].example()[1].values)
    return np.where(values == 0, 0.25, values)


@pytest.fixture(scope="module")
def sampled():
    return mf.sample(*registry.ENTRIES[0].example(), **SHORT)


@pytest.fixture(scope="module")
def filtered():
    model, data = registry.ENTRIES[0].example()
    return mf.particle_filter(model, data, num_particles=20, progress=False)


@pytest.fixture(params=["sampled", "filtered"])
def posterior(request):
    return request.getfixturevalue(request.param)


def pixels(figure):
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())


@pytest.mark.tiers(
    exhaustive=[
        "filtered-images",
        "filtered-trace",
        "filtered-zz",
        "sampled-row-images",
        "sampled-some-zz",
        "sampled-trace",
    ]
)
@pytest.mark.parametrize(
    "draw",
    [
        lambda p: p.plot.features(),
        lambda p: p.plot.features(image_shape=(1, 5)),
        lambda p: p.plot.trace(),
        lambda p: p.plot.cooccurrence(),
        lambda p: p.plot.cooccurrence(rows=[0, 3, 5], max_rows=2),
        lambda p: p.plot.reconstruction(),
        lambda p: p.plot.reconstruction([0, 1], image_shape=(5, 1)),
        lambda p: p.plot.num_features(),
    ],
    ids=["features", "images", "trace", "zz", "some-zz", "rows", "row-images", "number"],
)
def test_pictures_are_drawn(posterior, draw):
    drawn = pixels(draw(posterior))
    assert len(np.unique(drawn.reshape(-1, 4), axis=0)) > 20


def test_held_out_picture_says_the_coverage(sampled, truth):
    figure = sampled.plot.held_out(truth)
    assert "inside their 90 % interval" in figure.axes[0].get_title()


def test_pyplot_is_left_alone(sampled):
    sampled.plot.trace()
    if "matplotlib.pyplot" in sys.modules:
        assert not sys.modules["matplotlib.pyplot"].get_fignums()


def test_trace_shows_what_is_asked_for(sampled):
    figure = sampled.plot.trace(["log_joint"])
    lines = figure.axes[0].get_lines()
    assert len(lines) == 2
    np.testing.assert_array_equal(lines[1].get_ydata(), sampled.draws["log_joint"][1])


def test_heat_map_is_sorted_by_features(sampled):
    figure = sampled.plot.cooccurrence()
    shown = figure.axes[0].images[0].get_array()
    plain = sampled.cooccurrence()
    np.testing.assert_allclose(np.sort(np.diag(shown)), np.sort(np.diag(plain)), rtol=1e-5)
    np.testing.assert_allclose(shown.sum(), plain.values.sum(), rtol=1e-5)


def test_features_are_named_by_their_share(sampled):
    figure = sampled.plot.features(image_shape=(1, 5))
    features = sampled.features()
    titles = [axes.get_title() for axes in figure.axes if axes.images][: len(features.counts)]
    assert titles[0] == f"{100 * features.counts[0] / 12:.0f} % of rows"


def test_a_level_far_from_zero_leaves_the_features_their_colours(sampled):
    def drawn(level):
        draws = {name: value.copy() for name, value in sampled.draws.items()}
        draws["z"][..., 0] = True
        model = dataclasses.replace(sampled.model, bias=True, offset=0.0)
        data = Dense.from_array(np.asarray(sampled.data.to_array()) + level)
        figure = Posterior(model, data, draws, sampled.meta).plot.features()
        titles = [text.get_text() for text in figure.axes[0].get_yticklabels()]
        return figure.axes[0].images[0].get_clim()[1], titles.count("level of all rows")

    near, far = drawn(0.0), drawn(1e3)
    assert near[1] == far[1] == 1
    assert far[0] < 100


def test_rows_far_from_zero_are_drawn_less_their_column_means():
    near = {"observed": np.array([[1.0, -1.0, np.nan], [-1.0, 1.0, 0.5]])}
    assert bilinear.less_column_means(near) is near
    (far,) = bilinear.less_column_means({"observed": near["observed"] + 50}).items()
    assert far[0] == "observed, less column means"
    np.testing.assert_allclose(far[1], [[1.0, -1.0, np.nan], [-1.0, 1.0, 0.0]])


def test_of_many_columns_some_have_their_ids():
    figure = panels.matrix(np.eye(2, 200), ["a", "b"], "row", np.arange(200))
    (axes, _) = figure.axes
    at = axes.get_xticks()
    assert 2 < at.size <= 30
    assert [text.get_text() for text in axes.get_xticklabels()] == [str(each) for each in at]


def test_values_far_above_zero_have_all_colours():
    scale = colour_scale(50 + np.arange(10.0))
    assert scale["vmin"] > 49
    assert colour_scale(np.arange(10.0))["vmin"] == 0
    assert colour_scale(np.full(10, 3.0))["vmin"] == 0


def test_no_features_is_no_error(sampled):
    import dataclasses

    empty = sampled.draws | {
        "z": np.zeros_like(sampled.draws["z"]),
        "num_features": np.zeros_like(sampled.draws["num_features"]),
    }
    posterior = dataclasses.replace(sampled, draws=empty)
    assert pixels(posterior.plot.features()).size
    assert posterior.num_features().mode == 0


class Page(html.parser.HTMLParser):
    """Headings, pictures and unclosed tags of a page."""

    def __init__(self):
        super().__init__()
        self.headings, self.pictures, self.stack, self.text = [], [], [], ""

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        if tag == "svg" and named["class"] == "picture":
            self.pictures.append(named["aria-label"])
        if tag != "meta":
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        self.text += data
        if self.stack and self.stack[-1] in ("h1", "h2"):
            self.headings.append(data)


def read(path):
    page = Page()
    page.feed(path.read_text())
    assert page.stack == []
    return page


@pytest.mark.tiers(exhaustive=["filtered"])
def test_the_report_is_one_complete_page(posterior, truth, tmp_path):
    path = posterior.report(
        tmp_path / "new" / "report.html", image_shape=(1, 5), truth=truth, title="A < B & C"
    )
    page = read(path)
    assert page.headings == [
        "A < B & C",
        "Summary",
        "Given and completed",
        "Features",
        "Held-out cells",
        "Traces",
        "Number of features",
        "Shared features",
        "Run",
    ]
    assert len(page.pictures) == 7
    assert not re.search(r'(src|href)="http', path.read_text())
    assert "numpyro" in page.text
    assert ("log evidence" in page.text) == posterior.is_weighted


@pytest.mark.slow
def test_complete_data_has_a_report_without_scores(sampled, tmp_path):
    import dataclasses

    complete = dataclasses.replace(sampled, data=Dense(np.ones((12, 5)) + np.eye(12, 5)))
    page = read(complete.report(tmp_path / "report.html"))
    assert "Held-out cells" not in page.headings
    assert "Missing cells" not in page.text


def test_bad_reports_are_said(sampled, tmp_path):
    with pytest.raises(ValueError, match="is a folder; name the HTML file"):
        sampled.report(tmp_path)
    with pytest.raises(ValueError, match="2 x 2 has 4 cells, rows have 5"):
        sampled.report(tmp_path / "report.html", image_shape=(2, 2))
    with pytest.raises(ValueError, match=r"truth has shape \(2, 2\)"):
        sampled.report(tmp_path / "report.html", truth=np.eye(2))
    assert not list(tmp_path.iterdir())


def test_ids_are_drawn_as_they_are():
    strange = np.array(["a$_$", "b$^{$"], object)
    figure = panels.matrix(np.eye(2), ["c$_$", "d"], "row", strange)
    figure.canvas.draw()
    panels.images(np.eye(2), ["c$_$", "d"], (1, 2)).canvas.draw()


def test_long_ids_below_a_picture_leave_its_matrix_room():
    """Two features of twenty genes were two lines without height above their ids."""
    ids = np.array([f"ENSG{index:011d}" for index in range(20)])
    figure = panels.matrix(np.eye(2, 20), ["a", "b"], "feature", ids)
    figure.canvas.draw()
    assert figure.axes[0].get_window_extent().height / figure.dpi > 0.5
    shown = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert shown[-1] == "ENSG0…00000019"
    assert len(set(shown)) == 20
    assert panels.shortened(["a", "The Lord of the Rings"]) == ["a", "The Lord of t…"]


def test_observed_and_reconstructed_rows_have_the_ids_of_the_data(sampled):
    import dataclasses

    rows, columns = [f"patient {row}" for row in range(12)], ["g$_$", "h", "i", "j", "k" * 30]
    data = Dense(np.array(sampled.data.values), row_names=rows, column_names=columns)
    named = dataclasses.replace(sampled, data=data)
    axes = named.plot.reconstruction(["patient 3", "patient 1"]).axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["patient 3", "patient 1"]
    shown = [text.get_text() for text in axes.get_xticklabels()]
    assert shown == [*columns[:4], "k" * 13 + "\N{HORIZONTAL ELLIPSIS}"]
    assert not sampled.plot.reconstruction([3, 1]).axes[0].get_yticklabels()
    images = named.plot.reconstruction(["patient 3", "patient 1"], image_shape=(1, 5)).axes
    assert [each.get_title() for each in images[:2]] == ["patient 3", "patient 1"]


def test_columns_of_unequal_spread_are_shown_in_their_standard_deviations(sampled):
    """Else the column with the largest numbers would take all colours."""
    import dataclasses

    values = np.array(sampled.data.values)
    values[0, 1] = np.nan
    one_unit = dataclasses.replace(sampled, data=Dense(values))
    units = np.array([1.0, 1.0, 1000.0, 1.0, 1.0], values.dtype)
    several = dataclasses.replace(sampled, data=Dense(values * units))
    for picture in ("completed", "reconstruction"):
        plain, scaled = (getattr(each.plot, picture)([0, 1, 2]) for each in (one_unit, several))
        titles = [axes.get_title(loc="left") or axes.get_title() for axes in scaled.axes[:2]]
        assert all("in sd of columns" in title for title in titles)
        assert "in sd" not in plain.axes[0].get_title(loc="left") + plain.axes[0].get_title()
        shown = np.ma.filled(scaled.axes[0].images[0].get_array(), np.nan)
        expected = ((values - np.nanmean(values, 0)) / np.nanstd(values, 0))[:3]
        np.testing.assert_allclose(shown, expected, rtol=1e-4)


def test_equal_numbers_and_two_values_do_not_decide_the_unit_of_a_picture():
    generator = np.random.default_rng(0)
    values = np.column_stack(
        [generator.normal(size=(60, 2)), np.full(60, np.float32(0.1)), np.arange(60) < 1]
    )
    lines = {"observed": values}
    assert bilinear.in_one_unit(lines, values) is lines
    values[:, 0] *= 100
    scaled = bilinear.in_one_unit(lines, values)["observed, in sd of columns"]
    np.testing.assert_allclose(scaled[:, 2], 0, atol=1e-6)
    np.testing.assert_allclose(np.std(scaled[:, [0, 1, 3]], axis=0), 1)


def test_png_is_png(sampled):
    assert plot.png(sampled.plot.num_features()).startswith(b"\x89PNG")


def test_pictures_that_a_model_does_not_have_are_refused_by_what_they_need():
    model, data = registry.get("bpmf").example()
    run = {"num_warmup": 2, "num_samples": 4, "num_chains": 1, "progress": False}
    posterior = mf.sample(model, data, **run)
    assert posterior.plot.available() == ("calibration", "factors", "held_out", "trace")
    assert repr(posterior.plot) == "post.plot: calibration(), factors(), held_out(), trace()"
    for draw, says in (
        (posterior.plot.reconstruction, "reconstruction: needs a full matrix as data; a BPMF of"),
        (posterior.plot.blocks, "blocks: needs binary features of columns; a BPMF of Entries data"),
        (posterior.plot.column_features, "column_features: needs binary features of columns"),
        (posterior.plot.features, "features: needs binary features of rows"),
        (posterior.plot.num_features, "num_features: needs a number of features"),
    ):
        with pytest.raises(ValueError, match=says):
            draw()
    unseen = data.missing_cells()
    truth = mf.Entries(*unseen, np.linspace(1, 5, unseen[0].size), data.shape)
    assert pixels(posterior.plot.held_out(truth)).size
    matrix = np.full(data.shape, np.nan)
    matrix[unseen] = np.linspace(1, 5, unseen[0].size)
    scores = [diagnostics.held_out_error(posterior, each) for each in (truth, matrix)]
    assert scores[0] == pytest.approx(scores[1], nan_ok=True)
    with pytest.raises(ValueError, match="no cell that is missing in the data is known in truth"):
        diagnostics.held_out_error(posterior, data)
