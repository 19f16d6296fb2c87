"""The report in a real browser: on a phone and on a wide screen, light and dark."""

import html
import html.parser
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

import jaxmf as mf
from jaxmf.report.parts import templates

BROWSER = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SHORT = {"num_warmup": 4, "num_samples": 6, "num_chains": 2, "progress": False, "seed": 0}
LONG_ID = "a name without a space:" + "x" * 120

# Opens the page in a frame of a chosen width (the window of a browser has a least width), and
# writes what it measures into the title, where --dump-dom shows it.
FRAME = """<!doctype html><title>waiting</title><body><script>
const frame = document.createElement("iframe");
frame.style = "width: WIDTHpx; height: 800px; border: 0";
if (!SCRIPTS) frame.sandbox = "allow-same-origin";
frame.srcdoc = PAGE;
frame.onload = () => {
  const page = frame.contentDocument, view = frame.contentWindow;
  const numbers = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((x) => x / 255)
    .map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4))
    .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    for (; element; element = element.parentElement) {
      const colour = numbers(view.getComputedStyle(element).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  let least = 99;
  for (const element of page.querySelectorAll(TEXTS)) {
    const style = view.getComputedStyle(element);
    const ink = light(numbers(element.namespaceURI.endsWith("svg") ? style.fill : style.color));
    const paper = light(ground(element));
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    least = Math.min(least, ratio);
  }
  const pictures = [...page.querySelectorAll("svg.picture")];
  const isDrawn = (each) => {
    const box = each.getBBox(), [, , width, height] = numbers(each.getAttribute("viewBox"));
    return !each.clientWidth || (box.width > width / 3 && box.height > height / 3);
  };
  const found = {}, map = page.querySelector(".topics-frame");
  const texts = (selector) => [...map.querySelectorAll(selector)].map((each) => each.textContent);
  if (map) found.still = view.getComputedStyle(map.querySelector(".still")).display;
  if (map && SCRIPTS) {
    const words = () => texts(".bars li > span:first-child"), slider = map.querySelector("input");
    const label = map.querySelector(".map b"), circles = map.querySelectorAll(".map g");
    found.first = [label.textContent, words()];
    circles[1].dispatchEvent(new view.MouseEvent("click", { bubbles: true }));
    found.clicked = [label.textContent, words()];
    slider.value = 1;
    slider.dispatchEvent(new view.Event("input"));
    found.probable = words();
    const radius = () => circles[0].firstChild.getAttribute("r"), before = radius();
    map.querySelector(".bars li").dispatchEvent(new view.MouseEvent("mouseenter"));
    found.resized = radius() !== before;
  }
  const table = page.querySelector("table.sortable");
  if (table && SCRIPTS) {
    const heading = table.tHead.rows[0].cells[0];
    const ids = () => [...table.tBodies[0].rows].map((line) => line.cells[0].textContent);
    found.lines = [ids()];
    for (const _ of [1, 2]) { heading.click(); found.lines.push(ids()); }
  }
  const shown = (element) => element.getBoundingClientRect().width > 0 && !element.hidden;
  const summary = page.querySelector(".jaxmf-summary");
  if (summary) {
    const headings = [...summary.tHead.rows[0].cells].filter(shown);
    const frame = summary.closest(".scroll");
    const cut = summary.getBoundingClientRect().width > frame.clientWidth + 1;
    found.summary = [headings.map((each) => each.textContent), cut];
  }
  found.hints = [...page.querySelectorAll(".hint")].map(shown);
  const isWide = (each) => each.scrollWidth > each.clientWidth + 1;
  found.wide = [...page.querySelectorAll(".scroll")].map(isWide);
  document.title = "measured " + JSON.stringify({
    width: page.documentElement.scrollWidth, contrast: least,
    dark: view.matchMedia("(prefers-color-scheme: dark)").matches,
    found, drawn: pictures.every(isDrawn), pictures: pictures.length });
};
document.body.append(frame);
</script></body>"""

TEXTS = "h1, h2, h3, p, b, span, li, label, input[type=search], th, td, code, footer, .picture text"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no chromium to open the report in"),
]


class Parts(html.parser.HTMLParser):
    """What a page loads, and the texts of its pictures."""

    def __init__(self, page):
        super().__init__()
        self.loaded, self.alternatives = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.loaded += [
            named[name] for name in ("src", "href", "xlink:href", "srcset", "data") if name in named
        ]
        if tag == "svg" and named["class"] == "picture":
            self.alternatives.append(named.get("aria-label", ""))


def measured(page, folder, *, width, dark=False, scripts=True):
    """What a browser says of a page at a width: (measures, words on its error stream)."""
    text = json.dumps(page).replace("</", "<\\/").replace("<!--", "<\\u0021--")
    path = folder / "frame.html"
    frame = FRAME.replace("WIDTH", str(width)).replace("SCRIPTS", str(scripts).lower())
    path.write_text(frame.replace("TEXTS", json.dumps(TEXTS)).replace("PAGE", text), "utf-8")
    flags = [*FLAGS, "--enable-logging=stderr", f"--user-data-dir={folder / 'profile'}"]
    flags += ["--virtual-time-budget=5000", "--window-size=1600,1000"]
    flags += ["--blink-settings=preferredColorScheme=0"] if dark else []
    done = subprocess.run(
        [BROWSER, *flags, "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    title = re.search(r"<title>measured (.*?)</title>", done.stdout)
    assert title, done.stdout[:300] + done.stderr[-500:]
    return json.loads(html.unescape(title[1])), done.stderr


def matrix(num_rows=12, num_columns=6):
    rng = np.random.default_rng(0)
    return rng.normal(size=(num_rows, num_columns)) + 2 * rng.integers(0, 2, (num_rows, 1))


def binary_matrix_report():
    names = [f"patient {row}" for row in range(11)] + [LONG_ID]
    columns = [f"GENE{column}" for column in range(6)]
    data = mf.Dense(matrix(), row_names=names, column_names=columns)
    return mf.sample(mf.BinaryMF(), data, **SHORT), {}


def image_report():
    values = matrix()
    values[0, 0] = np.nan
    model = mf.LinearGaussianIBP()
    return mf.sample(model, mf.Dense(values), **SHORT), {"image_shape": (2, 3), "truth": matrix()}


def topic_report():
    counts = np.random.default_rng(0).poisson(1.0, (10, 8))
    words = [f"word{column}" for column in range(7)] + [LONG_ID]
    data = mf.Tokens.from_counts(counts, vocabulary=words)
    return mf.sample(mf.LDA(num_topics=3), data, **SHORT), {}


def rating_report():
    rng = np.random.default_rng(0)
    cells = np.unravel_index(rng.choice(120, 70, replace=False), (12, 10))
    films = [f"Film {column}" for column in range(9)] + [LONG_ID]
    data = mf.Entries(*cells, rng.integers(1, 6, 70).astype(float), (12, 10), None, films)
    return mf.sample(mf.BPMF(2), data, **SHORT), {"titles": {"Film 0": "<Alien>"}}


def basket_report():
    rng = np.random.default_rng(0)
    baskets = [rng.choice(9, 3, replace=False).tolist() for _ in range(14)]
    data = mf.SparseBinary.from_baskets([[f"item {each}" for each in basket] for basket in baskets])
    return mf.fit(mf.SparseBinaryMF(2), data, num_epochs=5, progress=False), {}


@pytest.fixture(
    scope="module",
    params=[binary_matrix_report, image_report, topic_report, rating_report, basket_report],
    ids=["binary matrix", "images", "topics", "ratings", "baskets"],
)
def page(request, tmp_path_factory):
    posterior, options = request.param()
    path = posterior.report(tmp_path_factory.mktemp("report") / "report.html", **options)
    return path.read_text(encoding="utf-8")


# The width decides how a page is laid out, the scheme its colours: each value of both is seen.
SCREENS = {"360-dark": (360, True), "1400-light": (1400, False)}
FURTHER_SCREENS = {"360-light": (360, False), "1400-dark": (1400, True)}


@pytest.mark.filterwarnings("ignore::jaxmf.RunWarning")
@pytest.mark.parametrize(
    ("width", "dark"),
    [
        *(pytest.param(*screen, id=name) for name, screen in SCREENS.items()),
        *(
            pytest.param(*screen, id=name, marks=pytest.mark.exhaustive)
            for name, screen in FURTHER_SCREENS.items()
        ),
    ],
)
def test_a_report_fits_its_screen_and_can_be_read(page, tmp_path, width, dark):
    measures, errors = measured(page, tmp_path, width=width, dark=dark)
    assert measures["dark"] == dark
    assert measures["width"] <= width
    assert measures["contrast"] >= 4.5
    assert measures["drawn"]
    assert measures["pictures"] == page.count('<svg class="picture"')
    assert "CONSOLE" not in errors


@pytest.mark.filterwarnings("ignore::jaxmf.RunWarning")
def test_a_telephone_shows_r_hat_and_says_what_is_wider_than_it(tmp_path):
    posterior, options = image_report()
    page = mf.report.render(posterior, **options)
    for width, bounds in ((360, []), (1400, ["5 %", "95 %"])):
        measures, errors = measured(page, tmp_path, width=width)
        found = measures["found"]
        assert found["summary"] == [["", "mean", "sd", *bounds, "R-hat", "ESS"], False]
        assert found["hints"] == found["wide"]
        assert any(found["wide"]) == (width == 360)
        assert "CONSOLE" not in errors


@pytest.mark.filterwarnings("ignore::jaxmf.RunWarning")
def test_a_report_loads_nothing_and_says_what_its_pictures_show(page):
    parts = Parts(page)
    assert all(source.startswith(("data:image/", "#")) for source in parts.loaded)
    assert page.count("url(") == page.count("url(#")
    assert "@import" not in page
    assert "<script src" not in page
    assert parts.alternatives
    assert all(len(text.split()) >= 5 for text in parts.alternatives)


@pytest.mark.filterwarnings("ignore::jaxmf.RunWarning")
def test_the_map_of_topics_reacts_and_is_a_still_picture_without_scripts(tmp_path):
    posterior, _ = topic_report()
    page = mf.report.render(posterior)
    measures, errors = measured(page, tmp_path, width=360)
    assert "CONSOLE" not in errors
    found = measures["found"]
    topics = posterior.topics(20)
    assert found["first"][0].startswith("Topic 0, ")
    assert found["clicked"][0].startswith("Topic 1, ")
    assert found["clicked"][1] != found["first"][1]
    assert found["probable"][:3] == topics.lists()[1][:3]
    assert found["resized"]
    assert found["still"] == "none"
    still, errors = measured(page, tmp_path, width=360, scripts=False)
    assert still["found"]["still"] == "block"


@pytest.mark.filterwarnings("ignore::jaxmf.RunWarning")
def test_tables_are_sorted_by_a_click_on_a_heading(tmp_path):
    table = "".join(f"<tr><th>{value}</th></tr>" for value in ("10 %", "9", "1,200"))
    script = templates().get_template("page.js").render()
    head = "<table class=sortable><thead><tr><th>size</th></tr></thead><tbody>"
    page = f"<p>text</p>{head}{table}</tbody></table><script>{script}</script>"
    measures, _ = measured(page, tmp_path, width=360)
    ascending = ["9", "10 %", "1,200"]
    assert measures["found"]["lines"][1:] == [ascending, ascending[::-1]]


def test_what_is_wrong_on_a_page_is_measured(tmp_path):
    wide = (
        '<p style="color: #999; background: white; width: 900px">text</p><script>missing()</script>'
    )
    measures, errors = measured(wide, tmp_path, width=360)
    assert measures["width"] > 360
    assert measures["contrast"] < 4.5
    assert "missing is not defined" in errors
    assert "CONSOLE" in errors
