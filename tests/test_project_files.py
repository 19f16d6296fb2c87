"""Files about the project agree with one another."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_citation_names_the_version_that_is_built():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.*)$", citation, flags=re.MULTILINE) == [PROJECT["version"]]


@pytest.mark.parametrize("file", ["tests.yml", "release.yml"])
def test_the_workflows_try_every_python_that_is_named(file):
    workflow = (ROOT / ".github" / "workflows" / file).read_text(encoding="utf-8")
    prefix = "Programming Language :: Python :: 3."
    minors = {line.removeprefix(prefix) for line in PROJECT["classifiers"] if prefix in line}
    (tried,) = re.findall(r"python: \[(.*)\]", workflow)
    assert set(re.findall(r'"3\.(\d+)"', tried)) == minors


def test_the_workflows_call_targets_that_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    targets = set(re.findall(r"run: make (\w+)", workflow))
    targets |= set(re.findall(r"target: (\w+)", workflow))
    assert targets == {"test", "oldest", "newest"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
