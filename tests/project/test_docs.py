"""The documentation names what there is, and its figures are those of the files of results."""

import ast
import importlib.util
import json
import re
from pathlib import Path

import pytest

from jaxmf import registry

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    path
    for path in DOCS.rglob("*.md")
    if not {"_build", "benchmarks"} & set(path.relative_to(DOCS).parts)
)


def script(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def public_names():
    """Names of classes and functions in the stub of the package; those of modules have no case."""
    tree = ast.parse((ROOT / "jaxmf" / "__init__.pyi").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
    return [alias.asname for node in imports for alias in node.names]


@pytest.mark.parametrize("name", public_names())
def test_every_public_name_has_an_entry_in_the_reference(name):
    reference = "".join(path.read_text() for path in (DOCS / "api").glob("*.md"))
    assert re.search(rf":: jaxmf\.{name}$", reference, re.MULTILINE), f"docs/api lacks {name}"


@pytest.mark.parametrize("entry", registry.ENTRIES, ids=lambda entry: entry.name)
def test_every_model_has_a_row_with_its_methods(entry):
    text = (DOCS / "models" / "index.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    row = next((line for line in rows if f"`{entry.model.__name__}`" in line), None)
    assert row is not None, f"docs/models/index.md: no row for {entry.model.__name__}"
    said = [cell.strip() for cell in row.strip("|").split("|")][2:]
    offered = [name in entry.methods for name in ("sample", "particle_filter", "variational")]
    assert [cell == "yes" for cell in said] == offered


@pytest.mark.parametrize("entry", registry.ENTRIES, ids=lambda entry: entry.name)
def test_the_table_of_choices_leads_to_every_model(entry):
    assert entry.model.__name__ in (DOCS / "choose.md").read_text()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_pictures_of_a_page_say_what_is_seen(path):
    cells = re.findall(r"```\{code-cell\} ipython3\n(.*?)```", path.read_text(), re.DOTALL)
    drawn = [cell for cell in cells if re.search(r"\.plot(\.\w+)?\(.*\)$", cell.strip())]
    assert all(len(re.findall(r"^    alt: (.{30,})$", cell, re.M)) == 1 for cell in drawn)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_links_of_a_page_lead_to_files(path):
    text = path.read_text()
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        if "benchmarks/" not in target:  # written when the site is built
            assert (path.parent / target).is_file(), f"{path.name} leads to {target}"


def anchors(path):
    """Anchors of the headings of a page, made as myst makes them."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#{1,3} (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_links_of_a_page_lead_to_headings(path):
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)#([^)]*)\)", path.read_text()):
        page = path.parent / target if target else path
        if "benchmarks/" not in target and page.suffix == ".md":
            assert anchor in anchors(page), f"{path.name} leads to {target}#{anchor}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_code_of_a_page_is_executed_by_the_build(path):
    text = path.read_text()
    assert "{code-cell}" not in text or text.startswith("---\nfile_format: mystnb\n")
    assert not re.search(r"^```python$", text, re.MULTILINE), "a block that is never executed"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_measured_cases_of_a_page_are_in_the_results(path):
    unknown = []
    script("benchmark_pages").with_tables(
        path.read_text(), path.name, lambda text, *parts: unknown.append(text % parts)
    )
    assert not unknown


def test_an_unknown_case_is_noticed():
    unknown = []
    text = "```{measured}\nibp/gibbs/n100/k8\nno/such/case\n```"
    table = script("benchmark_pages").with_tables(
        text, "page", lambda text, *parts: unknown.append(text % parts)
    )
    assert "ms a sweep" in table
    assert len(unknown) == 1
    assert "no/such/case" in unknown[0]


def test_pages_of_benchmarks_have_every_row(tmp_path):
    results = ROOT / "benchmarks" / "results"
    script("benchmark_pages").write(results, tmp_path)
    for path in results.glob("*.json"):
        content = json.loads(path.read_text())
        page = (tmp_path / f"{path.stem}.md").read_text()
        rows = [line for line in page.splitlines() if line.startswith("|")]
        assert len(rows) > len(content.get("rows", []))


def test_the_table_of_defaults_has_before_and_now_in_one_line():
    condition = {"commit": "abc1234"}
    row = {"case": "defaults/hdp/KOS", "unit": "perplexity", "ours": 1527.0, "condition": condition}
    found = {"peer": "tomotopy HDPModel", "theirs": 1375.0, "note": "alarms: R-hat; 30 CPU s"}
    before = {"peer": "jaxmf at a96d6f3", "theirs": None}
    before["note"] = "alarms: R-hat; 30 CPU s; before: not done after 45 CPU seconds"
    content = {"device": "cpu", "rows": [row | found, row | before]}
    page = script("benchmark_pages").defaults_page(content)
    assert "## hdp, perplexity" in page
    assert page.splitlines()[-1] == (
        "| KOS | 1527 | alarms: R-hat; 30 CPU s | none | not done after 45 CPU seconds "
        "(jaxmf at a96d6f3) | tomotopy HDPModel 1375 | abc1234 |"
    )


def test_the_committed_table_of_defaults_has_a_line_for_every_case(tmp_path):
    results = ROOT / "benchmarks" / "results"
    script("benchmark_pages").write(results, tmp_path)
    page = (tmp_path / "defaults.md").read_text()
    content = json.loads((results / "quick" / "defaults.json").read_text())
    cases = {row["case"] for row in content["rows"]}
    sections = len({case.split("/")[1] for case in cases})
    lines = [line for line in page.splitlines() if line.startswith("|")]
    assert len(lines) == len(cases) + 2 * sections
    assert "[defaults](defaults.md)" in (tmp_path / "index.md").read_text()
