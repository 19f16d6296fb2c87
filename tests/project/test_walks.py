"""The walks of CONTRIBUTING.md are run as they stand there, and their lines are counted."""

import re
from pathlib import Path

import pytest

from jaxmf.testing import check_model
from tests import FAST_COMPILE

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
WALKS = dict(re.findall(r"\*\*\((\w)\) .*?```python\n(.*?)```", TEXT, flags=re.DOTALL))
ROWS = dict(re.findall(r"\| \((\w)\) .*? \| 0 \| 1 \| (\d+) \|", TEXT))


def run(letter):
    names = {"__name__": f"walk_{letter}"}
    exec(compile(WALKS[letter], f"CONTRIBUTING.md ({letter})", "exec"), names)  # noqa: S102
    return names["model"], names["data"]


def test_there_are_three_walks_and_their_lines_are_as_the_table_says():
    written = {
        letter: sum(bool(line.strip()) for line in code.splitlines())
        for letter, code in WALKS.items()
    }
    assert {letter: int(lines) for letter, lines in ROWS.items()} == written
    assert list(written) == ["a", "b", "c"]


@pytest.mark.parametrize("letter", ["a", "b", "c"])
def test_a_walk_leads_to_something_that_keeps_the_contracts(letter):
    model, data = run(letter)
    assert "reported" in check_model(model, data, joint_distribution=False).checks


@pytest.mark.slow
@pytest.mark.parametrize("letter", ["b", "c"])
def test_a_walk_leads_to_a_sampler_that_is_right(letter):
    model, data = run(letter)
    assert check_model(model, data, compiler_options=FAST_COMPILE).joint.passed
