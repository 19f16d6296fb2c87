"""The report in a real browser: on a phone and on a wide screen, light and dark."""

import html.parser
import re
import shutil
import subprocess

import numpy as np
import pytest

import jaxmf as mf

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
  for (const element of page.querySelectorAll("h1, h2, p, b, span, th, td, code, footer")) {
    const ink = light(numbers(view.getComputedStyle(element).color));
    const paper = light(ground(element));
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    least = Math.min(least, ratio);
  }
  const pictures = [...page.images];
  document.title = "measured " + JSON.stringify({
    width: page.documentElement.scrollWidth, contrast: least,
    dark: view.matchMedia("(prefers-color-scheme: dark)").matches,
    drawn: pictures.every((each) => each.naturalWidth > 0), pictures: pictures.length });
};
document.body.append(frame);
</script></body>"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no chromium to open the report in"),
]


class Parts(html.parser.HTMLParser):
    """What a page loads, the texts of its pictures, and its title."""

    def __init__(self, page):
        super().__init__()
        self.loaded, self.alternatives = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.loaded += [named[name] for name in ("src", "href", "srcset", "data") if name in named]
        if tag == "img":
            self.alternatives.append(named.get("alt", ""))


def measured(page, folder, *, width, dark=False):
    """What a browser says of a page at a width: (measures, words on its error stream)."""
    import json

    text = json.dumps(page).replace("</", "<\\/")
    path = folder / "frame.html"
    path.write_text(FRAME.replace("WIDTH", str(width)).replace("PAGE", text), encoding="utf-8")
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
    return json.loads(title[1]), done.stderr


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


@pytest.fixture(
    scope="module",
    params=[binary_matrix_report, image_report, topic_report],
    ids=["binary matrix", "images", "topics"],
)
def page(request, tmp_path_factory):
    posterior, options = request.param()
    path = posterior.report(tmp_path_factory.mktemp("report") / "report.html", **options)
    return path.read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore::jaxmf.RunWarning")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_a_report_fits_its_screen_and_can_be_read(page, tmp_path, width, dark):
    measures, errors = measured(page, tmp_path, width=width, dark=dark)
    assert measures["dark"] == dark
    assert measures["width"] <= width
    assert measures["contrast"] >= 4.5
    assert measures["drawn"]
    assert measures["pictures"] == page.count("<img")
    assert "CONSOLE" not in errors


@pytest.mark.filterwarnings("ignore::jaxmf.RunWarning")
def test_a_report_loads_nothing_and_says_what_its_pictures_show(page):
    parts = Parts(page)
    assert all(source.startswith(("data:image/", "#")) for source in parts.loaded)
    assert "url(" not in page
    assert "@import" not in page
    assert "<script src" not in page
    assert all(len(text.split()) >= 5 for text in parts.alternatives)


def test_what_is_wrong_on_a_page_is_measured(tmp_path):
    wide = (
        '<p style="color: #999; background: white; width: 900px">text</p><script>missing()</script>'
    )
    measures, errors = measured(wide, tmp_path, width=360)
    assert measures["width"] > 360
    assert measures["contrast"] < 4.5
    assert "missing is not defined" in errors
    assert "CONSOLE" in errors
