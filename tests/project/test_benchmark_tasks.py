"""The tasks of the page "Seven tasks": each can be prepared and run."""

import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.tasks.sides import num_lines

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "seven-tasks.md").read_text(encoding="utf-8")
NAMES = re.findall(r"^- \*\*(\w+)\*\*:", PAGE, re.MULTILINE)


def task(name):
    return importlib.import_module(f"benchmarks.tasks.{name}")


def stated_lines(name):
    """Lines of code of the sides of a task in the table of the page, where they are numbers."""
    block = PAGE[PAGE.index(f"(`{name}`) |") :]
    rows = [line.split(" | ") for line in block.partition("\n\n")[0].splitlines()]
    end = next((n for n, row in enumerate(rows[1:], start=1) if "(`" in row[0]), len(rows))
    cells = [row[-3].strip("* ") for row in rows[:end]]
    return [int(cell) for cell in cells if cell.isdigit()]


@pytest.mark.parametrize("name", NAMES)
def test_the_page_states_the_lines_of_every_side(name):
    sides = {
        side: function
        for side, function in inspect.getmembers(task(name), inspect.isfunction)
        if function.__module__ == f"benchmarks.tasks.{name}"
    }
    del sides["prepare"]
    sides.pop("factor_analyzer", None)  # which cannot be run
    if name == "baskets":
        del sides["jaxmf"]  # three commands
    assert sorted(stated_lines(name)) == sorted(map(num_lines, sides.values()))


def test_a_side_runs_in_a_process_of_its_own(tmp_path):
    task("questionnaire").prepare(tmp_path)
    command = [sys.executable, "-m", "benchmarks.tasks.sides", "questionnaire", "means", tmp_path]
    row = json.loads(subprocess.check_output(command, cwd=ROOT, text=True))
    assert row["accuracy"] == pytest.approx(0.671, abs=5e-4)  # as on the page
    assert row["cpu_s"] > 0


def test_a_tool_that_is_not_installed_is_left_out(tmp_path, monkeypatch, capsys):
    from benchmarks.tasks import sides

    def absent(folder):
        raise ImportError("no module of this name")

    monkeypatch.setattr(task("topics"), "tomotopy", absent)
    sides._run_here("topics", "tomotopy", str(tmp_path))
    assert capsys.readouterr().out == "topics, tomotopy: left out, no module of this name\n"
