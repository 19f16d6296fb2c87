"""The README's examples run as they stand, and what they print is what it shows."""

import re
import warnings
from pathlib import Path

import pytest

from jaxmf import RunWarning

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.slow
@pytest.mark.usefixtures("long_runs")
def test_the_examples_run_without_an_alarm_and_print_what_is_shown(capsys):
    names = {}
    for example in EXAMPLES:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RunWarning)
            exec(compile(example, "README.md", "exec"), names)  # noqa: S102
        printed = capsys.readouterr().out.rstrip().splitlines()
        shown = [line[2:] for line in example.splitlines() if line.startswith("# ")]
        assert len(printed) == len(shown)
        # numbers may differ in their last digits from one machine to the next, ids and words not
        assert [words(line) for line in printed[:1]] == [words(line) for line in shown[:1]]


def words(line):
    return re.findall("[a-z]+", line)


def test_there_are_three_short_examples():
    assert len(EXAMPLES) == 3
    assert all(example.count("\n") <= 25 for example in EXAMPLES)


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_the_two_commands_stand_on_lines_of_their_own(command):
    assert re.search(rf"^{command}\b", README, re.MULTILINE)


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^):#]+)\)", README))))
def test_every_picture_and_page_it_leads_to_is_there(target):
    assert (ROOT / target).stat().st_size > 100, f"README.md leads to {target}, which is empty"
