"""Two versions in turn: pairs, intervals, verdicts, and a line where one lacks a case."""

import json
import subprocess

import pytest
from typer.testing import CliRunner

from benchmarks import against
from benchmarks.__main__ import app
from benchmarks.against import cases, ratios, trees


def test_pairs_are_run_a_b_b_a():
    called = []
    sides = (lambda: called.append("a") or 1.0), (lambda: called.append("b") or 2.0)
    assert ratios.in_pairs(*sides, repeats=3) == [(1.0, 2.0)] * 3
    assert called == list("abbaab")


@pytest.mark.parametrize(
    ("seconds", "low", "high", "verdict"),
    [
        ([1.2] * 10, 1.2, 1.2, "slower"),
        ([0.9, 1.1, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 9.0], 1.1, 1.2, "slower"),
        ([1.0, 1.0, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2], 1.0, 1.2, ""),
        ([1.3] * 5, 1.3, 1.3, ""),  # too few for an interval
        ([1.3], 1.3, 1.3, ""),
    ],
)
def test_slower_is_where_the_whole_interval_is(seconds, low, high, verdict):
    ratio = ratios.ratio_of([(1.0, now) for now in seconds])
    assert (ratio.low, ratio.high) == (low, high)
    assert against.Line("x", "time", ratio).verdict == verdict


FAKE = """
CASES = {
    "fake/quick": lambda: lambda: print("a library talks"),
    "fake/missing": lambda: __import__("jaxmf").no_such_name,
}
"""


def test_two_versions_of_one_repository(tmp_path, monkeypatch, capsys):
    git = ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@example.org"]
    child = trees._CHILD.read_text()
    for name, text in {
        "jaxmf/__init__.py": "",
        "benchmarks/__init__.py": "",
        "benchmarks/harness.py": "def seconds(run):\n    run()\n    return 0.5\n",
        "benchmarks/against/cases.py": FAKE,
        "benchmarks/against/child.py": child,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "a", "--no-verify"]):
        subprocess.run([*git, *words], check=True)
    monkeypatch.setattr(trees, "ROOT", tmp_path)
    monkeypatch.setattr(trees, "_CHILD", tmp_path / "benchmarks" / "against" / "child.py")
    monkeypatch.setattr(cases, "CASES", dict.fromkeys(["fake/quick", "fake/missing"]))
    with pytest.raises(ValueError, match="name a revision"):
        trees.newest_tag()
    subprocess.run([*git, "tag", "v0.1.0"], check=True)
    with pytest.raises(ValueError, match="no case holds 'other'; there are import/jaxmf"):
        against.compare("", now="", only="other", repeats=2, json=None)
    lines = against.compare("", now="", only="fake", repeats=2, json=tmp_path / "rows.json")
    assert [(line.name, line.metric, line.verdict) for line in lines[:2]] == [
        ("fake/quick", "time", ""),
        ("fake/quick", "compile", ""),
    ]
    assert lines[0].ratio == ratios.Ratio(0.5, 0.5, 1.0, 1.0, 1.0, 2)
    error = "AttributeError: module 'jaxmf' has no attribute 'no_such_name'"
    assert lines[2].verdict == f"before: {error}; now: {error}"
    assert "against v0.1.0" in capsys.readouterr().out
    assert against.exit_code(lines) == 125
    (line,) = against.lines_of_imports("names", [tmp_path, tmp_path], repeats=2)
    assert line.verdict == "AttributeError: module 'jaxmf' has no attribute 'LDA'"
    notes = [row["note"] for row in json.loads((tmp_path / "rows.json").read_text())["rows"]]
    assert notes[:2] == ["1.00 to 1.00, 2 pairs", "once"]
    left = subprocess.run([*git, "worktree", "list"], capture_output=True, text=True, check=True)
    assert len(left.stdout.splitlines()) == 1


class Given:
    """A side whose seconds are given: first run, later runs, first runs in new processes."""

    def __init__(self, first, later, again):
        self.first, self.later, self.again = first, later, again

    def ask(self, words):
        return {"seconds": self.first}

    def seconds(self):
        return self.later

    def compiled_again(self, name):
        if self.again is None:
            raise trees.EndedError("no memory")
        return self.again


@pytest.mark.parametrize(("again", "verdict"), [(2.0, ""), (3.0, "slower")])
def test_what_seems_to_compile_longer_is_compiled_again(again, verdict):
    sides = [Given(2.0, 1.0, 2.0), Given(3.0, 1.0, again)]
    time, compiling = against.lines_of_case("x", sides, repeats=2)
    assert (time.verdict, compiling.verdict) == ("", verdict)
    assert compiling.ratio.repeats == ratios.FEWEST_PAIRS
    # the figure that was chosen for being high is none of them
    assert compiling.ratio.middle == again - 1


def test_a_case_that_does_not_compile_again_is_a_line():
    sides = [Given(2.0, 1.0, 2.0), Given(3.0, 1.0, None)]
    assert against.lines_of_case("x", sides, repeats=2) == [
        against.Line("x", "time", None, "no memory")
    ]


def lines(*seconds):
    """One line for each, by the seconds now where there were one before; None failed."""
    found = [each and ratios.ratio_of([(1.0, each)] * 6) for each in seconds]
    return [against.Line("x", "time", ratio, "" if ratio else "now: gone") for ratio in found]


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (lines(1.0, 0.5), 0),
        (lines(1.0, 2.0), 1),
        (lines(1.0, None), 125),  # is skipped by git bisect
        (lines(2.0, None), 1),
        (ValueError("no such case"), 128),  # ends git bisect
    ],
)
def test_only_a_slower_commit_is_a_bad_one_for_bisection(monkeypatch, found, code):
    def compare(reference, **options):
        if isinstance(found, ValueError):
            raise found
        return found

    monkeypatch.setattr(against, "compare", compare)
    monkeypatch.setenv("PJRT_NPROC", "1")
    assert CliRunner().invoke(app, ["against", "OLD"]).exit_code == code


def test_a_version_whose_process_ends_is_a_line(tmp_path, monkeypatch):
    broken = tmp_path / "child.py"
    broken.write_text("raise SystemExit(3)")
    monkeypatch.setattr(trees, "_CHILD", broken)
    side = trees.Side(tmp_path, tmp_path / "bytecode")
    assert side.ask("open x") == {"error": "the process ended with code 3"}


def test_cases_are_named_for_what_they_run():
    assert {"lda/k400", "hdp-lda", "bpmf", "sparse-binary"} <= set(cases.CASES)
