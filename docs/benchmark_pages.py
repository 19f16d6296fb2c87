"""Writes the pages of benchmarks from `benchmarks/results/*.json`: no figure is typed by hand."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_DEVICE = (
    Path(__file__).resolve().parent.parent / "benchmarks" / "results" / "cpu-2-cores-x86-64.json"
)
_WIDEST = 14  # numbers of a list that are shown
_DEEPEST = 5


def write(results: Path, folder: Path) -> None:
    """One page a file of results, and the list of them; unchanged pages keep their time."""
    folder.mkdir(exist_ok=True)
    pages = {path.stem: _page(path) for path in sorted(results.glob("*.json"))}
    pages["index"] = _INDEX.format(
        lines="\n".join(f"| [{name}]({name}.md) | {_about(results, name)} |" for name in pages),
        names="\n".join(pages),
        devices=", ".join(_devices(results)),
    )
    for stale in {path.stem for path in folder.glob("*.md")} - set(pages):
        (folder / f"{stale}.md").unlink()
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)


def with_tables(text: str, page: str, warn: Callable[..., None]) -> str:
    """The text with its blocks of measured cases as tables; `warn` hears of unknown cases."""
    block = re.compile(r"```\{measured\}\n(.*?)```", re.DOTALL)
    return block.sub(lambda found: _table(found.group(1), page, warn), text)


def _table(names: str, page: str, warn: Callable[..., None]) -> str:
    """Rows of the device's file by their cases, one a line."""
    by_case = {row["case"]: row for row in json.loads(_DEVICE.read_text())["rows"]}
    lines = ["| what | measured | beside | clock | note |", "| --- | ---: | --- | --- | --- |"]
    for case in names.split("\n"):
        row = by_case.get(case)
        if case and row is None:
            warn("docs/%s: %s has no case %s", page, _DEVICE.name, case)
        if row is not None:
            beside = f"{row['peer']}: {_short(row['theirs'])}" if row.get("peer") else ""
            measured = f"{_short(row['ours'])} {row['unit']}"
            cells = (case, measured, beside, row.get("clock"), row.get("note"))
            lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    source = (
        f"From `benchmarks/results/{_DEVICE.name}`, {_DEVICE.stem.replace('-', ' ')}, float32; "
    )
    return "\n".join([*lines, "", source + "see [Benchmarks](../benchmarks/index.md).", ""])


_INDEX = """# Benchmarks

These pages are written from the files in `benchmarks/results/` when the documentation is built;
no figure is typed by hand. `python -m benchmarks NAME` measures again on your machine, with
`--quick` in a minute.

How to read them. *Ours* and *theirs* were measured in one process, in turns; the ratio is theirs
divided by ours where the unit is a time. Every row has the load of the machine while it was
measured: where other programs ran beside it, trust the ratio more than the times. Devices of these
files: {devices}. There is no result of a device that is not named here.

| file | what was measured |
| --- | --- |
{lines}

```{{toctree}}
:hidden:

{names}
```
"""


def _devices(results: Path) -> list[str]:
    return sorted({json.loads(path.read_text())["device"] for path in results.glob("*.json")})


def _about(results: Path, name: str) -> str:
    content = json.loads((results / f"{name}.json").read_text())
    if "rows" in content:
        benchmarks = sorted({row["case"].split("/")[0] for row in content["rows"]})
        return f"{len(content['rows'])} rows: " + ", ".join(benchmarks)
    return f"figures of the paper; sizes: {_sizes(content.get('sizes', {}))}"


def _sizes(sizes: dict[str, Any]) -> str:
    return ", ".join(f"{key.replace('_', ' ')} {_short(value)}" for key, value in sizes.items())


def _page(path: Path) -> str:
    content = json.loads(path.read_text())
    head = [f"# {path.stem}", "", f"From `benchmarks/results/{path.name}`.", ""]
    facts = {k: v for k, v in content.items() if k not in ("rows", "versions") and _is_short(v)}
    facts |= {"versions": ", ".join(f"{k} {v}" for k, v in content["versions"].items() if v)}
    head += ["| | |", "| --- | --- |"]
    head += [f"| {_cell(name)} | {_cell(value)} |" for name, value in facts.items()]
    body = _rows(content["rows"]) if "rows" in content else _figures(content)
    return "\n".join([*head, "", *body, ""])


def _rows(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A table for every benchmark, in the order of the file."""
    for benchmark in dict.fromkeys(row["case"].split("/")[0] for row in rows):
        yield from (f"## {benchmark}", "")
        heads = ["case", "metric", "ours", "unit", "other", "theirs", "ratio", "spread"]
        heads += ["clock", "load", "note"]
        yield "| " + " | ".join(heads) + " |"
        yield "| --- | --- | ---: | --- | --- | ---: | ---: | ---: | --- | --- | --- |"
        for row in rows:
            if row["case"].split("/")[0] == benchmark:
                yield "| " + " | ".join(map(_cell, _cells_of(row))) + " |"
        yield ""


def _cells_of(row: dict[str, Any]) -> list[Any]:
    condition = row.get("condition") or {}
    case = row["case"].partition("/")[2]
    keys = ("peer", "theirs", "ratio", "spread", "clock")
    return [
        case,
        row["metric"],
        row["ours"],
        row["unit"],
        *(row.get(key) for key in keys),
        condition.get("load"),
        row.get("note"),
    ]


def _figures(content: dict[str, Any]) -> Iterator[str]:
    """The short numbers of a paper's results; long lists, of pictures, stay in the file."""
    shown = ("paper", "quick", "device", "versions", "rows")
    lines = [
        (trail, value)
        for name, thing in content.items()
        if name not in shown and not _is_short(thing)
        for trail, value in _leaves(thing, (name,))
    ]
    for section in dict.fromkeys(trail[0] for trail, _ in lines):
        yield from (f"## {section.replace('_', ' ')}", "", "| figure | value |", "| --- | --- |")
        for trail, value in lines:
            if trail[0] == section:
                yield f"| {_cell(' / '.join(trail[1:]) or section)} | {_cell(value)} |"
        yield ""


def _leaves(thing: Any, trail: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """What can be shown in one cell, with the names that lead to it."""
    if isinstance(thing, dict) and len(trail) < _DEEPEST:
        for name, inner in thing.items():
            yield from _leaves(inner, (*trail, str(name)))
    elif _is_short(thing):
        yield trail, thing


def _is_short(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) <= _WIDEST and not any(isinstance(x, list | dict) for x in value)
    return not isinstance(value, dict) and value is not None and len(str(value)) < 300


def _short(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e5 else f"{value:,.0f}"
    if isinstance(value, list):
        return ", ".join(map(_short, value))
    if isinstance(value, dict):
        return "; ".join(f"{name} {_short(inner)}" for name, inner in value.items())
    return "" if value is None else str(value)


def _cell(value: Any) -> str:
    text = _short(value).replace("\n", " ")
    return re.sub(r"([|*_<>])", r"\\\1", text)
