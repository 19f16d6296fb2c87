"""Files about the project agree with one another."""

import pydoc
import re
import tomllib
from pathlib import Path

import pytest

from tests import SLOW_EXAMPLES

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_source_distribution_has_the_files_that_these_tests_read():
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    included = set(tool["hatch"]["build"]["targets"]["sdist"]["include"])
    read = set(re.findall(r'ROOT / "([.\w]+)"', Path(__file__).read_text(encoding="utf-8")))
    assert {f"/{name}" for name in read - {"pyproject.toml"}} <= included  # this one always is


def test_the_citation_names_the_version_that_is_built():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.*)$", citation, flags=re.MULTILINE) == [PROJECT["version"]]


def test_the_conda_recipe_has_the_version_and_the_dependencies_of_the_project():
    recipe = (ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
    assert re.findall(r'^  version: "(.*)"$', recipe, flags=re.MULTILINE) == [PROJECT["version"]]
    scripts = [f"{name} = {function}" for name, function in PROJECT["scripts"].items()]
    assert re.findall(r"^ {6}- (.* = .*:.*)$", recipe, flags=re.MULTILINE) == scripts
    ((host, run),) = re.findall(
        r"^  host:\n((?: {4}- .*\n)+)  run:\n((?: {4}- .*\n)+)", recipe, re.M
    )
    names = {"matplotlib": "matplotlib-base"}  # without a graphical toolkit
    split = (re.fullmatch(r"([\w-]+)(>=.*)", each).groups() for each in PROJECT["dependencies"])
    needed = {f"{names.get(name, name)} {bound}" for name, bound in split}
    python = f"python {PROJECT['requires-python']}"
    assert set(re.findall("- (.*)", run)) == needed | {python}
    assert python in re.findall("- (.*)", host)


def test_releases_are_checked_and_published_without_a_stored_token():
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert "id-token: write" in workflow
    assert "twine check --strict" in workflow
    assert "password" not in workflow


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
    assert targets == {"test", "exhaustive", "oldest", "newest"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


@pytest.mark.parametrize("name", sorted(SLOW_EXAMPLES))
def test_slow_examples_are_examples(name):
    assert ">>>" in (pydoc.locate(name).__doc__ or "")
