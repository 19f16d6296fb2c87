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
    lines = [f"| [{name}]({name}.md) | {_about(results, name)} |" for name in pages]
    quick = results / "quick" / "defaults.json"
    if quick.is_file():
        pages["defaults"] = defaults_page(json.loads(quick.read_text()))
        lines.insert(
            0, "| [defaults](defaults.md) | every model with no option set, beside peers |"
        )
    pages["index"] = _INDEX.format(
        lines="\n".join(lines),
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


_DEFAULTS = """# Defaults

Every model with no option set, on data that nothing was tuned on. The rule: at least the quality of
the peer's default, or an alarm that says so. *Now* is the commit in the last column, *before* the
same call of an older version on the same data; "none" is a run without a figure, and the column of
alarms says why (the older version had no alarms). Rows without a commit are of earlier states of
this version. Sets marked "report" were never used for choosing a default.
`python -m benchmarks defaults --quick --json FILE` measures again (short chains, 45 CPU seconds a
run, on {device}); `--against CHECKOUT` puts another version beside this one.
"""
_BEFORE = "jaxmf at "


def defaults_page(content: dict[str, Any]) -> str:
    """The table of defaults: a line for a case, a section for a model."""
    by_case: dict[str, list[dict[str, Any]]] = {}
    for row in content["rows"]:
        by_case.setdefault(row["case"].partition("/")[2], []).append(row)
    lines = [_DEFAULTS.format(device=content["device"])]
    for model in dict.fromkeys(case.partition("/")[0] for case in by_case):
        chosen = {case: rows for case, rows in by_case.items() if case.startswith(model + "/")}
        unit = next(iter(chosen.values()))[0]["unit"]
        lines += [f"## {model}, {unit}", ""]
        lines += ["| data | now | its alarms | before | its alarms | peers | commit |"]
        lines += ["| --- | ---: | --- | ---: | --- | --- | --- |"]
        for case, rows in chosen.items():
            cells = map(_cell, (case.partition("/")[2], *_default_cells(rows)))
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def _default_cells(rows: list[dict[str, Any]]) -> tuple[Any, ...]:
    """Now, its note, before, its note, the peers, and the commit of the library."""
    olds = [row for row in rows if (row["peer"] or "").startswith(_BEFORE)]
    peers = [row for row in rows if row["peer"] and row not in olds]
    before, said = "", ""
    if olds:
        before = _figure(olds[0]["theirs"])
        said = f"{olds[0]['note'].partition('; before: ')[2]} ({olds[0]['peer']})"
    beside = "; ".join(f"{row['peer']} {_figure(row['theirs'])}" for row in peers)
    note = rows[0]["note"].partition("; before: ")[0]
    commit = rows[0]["condition"].get("commit", "")
    return _figure(rows[0]["ours"]), note, before, said, beside, commit


def _figure(value: float | None) -> str:
    return "none" if value is None else _short(value)


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
