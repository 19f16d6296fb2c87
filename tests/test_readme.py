"""The README's quick start runs as it stands, and names what there is."""

import re
from pathlib import Path

import pytest

from jaxmf import registry

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def quick_start() -> str:
    block = re.search(r"## Quick start\n+```python\n(.*?)```", README, re.DOTALL)
    assert block is not None, "README.md has no python block under 'Quick start'"
    return block.group(1)


@pytest.mark.slow
def test_the_quick_start_runs(tmp_path, monkeypatch, capsys):
    import matplotlib as mpl

    mpl.use("Agg")
    monkeypatch.chdir(tmp_path)
    exec(compile(quick_start(), "README.md", "exec"), {})  # noqa: S102
    printed = capsys.readouterr().out
    assert "num_features" in printed
    assert (tmp_path / "run").is_dir()


def test_the_quick_start_is_short():
    assert quick_start().count("\n") <= 32


@pytest.mark.parametrize("entry", registry.ENTRIES, ids=lambda entry: entry.name)
def test_every_model_has_a_row_in_the_table(entry):
    rows = [line for line in README.splitlines() if line.startswith("|")]
    row = next((line for line in rows if f"`{entry.model.__name__}`" in line), None)
    assert row is not None, f"README.md: no row for {entry.model.__name__}"
    said = [cell.strip() for cell in row.strip("|").split("|")][2:]
    offered = [name in entry.methods for name in ("sample", "particle_filter", "variational")]
    assert [cell == "yes" for cell in said] == offered


def test_every_picture_is_there():
    for name in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README):
        assert (ROOT / name).stat().st_size > 1000, f"README.md shows {name}, which is empty"
