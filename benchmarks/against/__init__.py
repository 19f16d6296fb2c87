"""What got slower since another version, both run in turn: ``python -m benchmarks against REF``.

The hot paths of `cases` run in one process for each version, kept alive, in the order A B B A, so
that a busy machine slows down both. What compiles is timed apart. Data, settings and seeds are the
same, and only public names are used; a case that a version cannot do is a line that says so.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks import harness, records
from benchmarks.against import cases, trees
from benchmarks.against.ratios import (
    FEWEST_PAIRS,
    TOO_SLOW,
    TOO_SLOW_ONCE,
    Ratio,
    in_pairs,
    ratio_of,
)

_SLOWER, _NOT_MEASURED = 1, 125  # exit codes; git bisect skips a commit at the second
_IMPORTS = {
    "import/jaxmf": "import jaxmf",
    "import/names": "import jaxmf; jaxmf.LDA, jaxmf.sample",
}


class Line(NamedTuple):
    """One line of the table.

    Args:
        name: of the case.
        metric: time, or compile.
        ratio: of the seconds now to those before; None where there are none.
        note: why there are none.
    """

    name: str
    metric: str
    ratio: Ratio | None
    note: str = ""

    @property
    def verdict(self) -> str:
        """Slower where the whole interval is, of pairs enough for one."""
        if self.ratio is None:
            return self.note
        is_slower = self.ratio.repeats >= FEWEST_PAIRS and self.ratio.low > TOO_SLOW
        return "slower" if is_slower else ""

    @property
    def interval(self) -> str:
        """Of the ratio, as text; of few pairs it is their range."""
        if self.ratio is None:
            return ""
        if self.ratio.repeats == 1:
            return "once"
        ends = f"{self.ratio.low:.2f} to {self.ratio.high:.2f}"
        few = self.ratio.repeats < FEWEST_PAIRS
        return f"{ends}, {self.ratio.repeats} pairs" if few else ends


def lines_of_case(name: str, sides: list[trees.Side], repeats: int) -> list[Line]:
    """Time and time of compiling of one case, in both versions."""
    answers = [side.ask(f"open {name}") for side in sides]
    names = ("before", "now")
    failed = [f"{n}: {a['error']}" for n, a in zip(names, answers, strict=True) if "error" in a]
    if failed:
        return [Line(name, "time", None, "; ".join(failed))]
    try:
        time = ratio_of(in_pairs(*(side.seconds for side in sides), repeats=repeats))
        compiling = ratio_of([_without([answer["seconds"] for answer in answers], time)])
        if compiling.low > TOO_SLOW_ONCE:  # one figure may be off by a quarter on a busy machine
            runs = [partial(side.compiled_again, name) for side in sides]
            again = in_pairs(*runs, repeats=FEWEST_PAIRS)  # without the one that was chosen as high
            compiling = ratio_of([_without(pair, time) for pair in again])
    except trees.EndedError as error:
        return [Line(name, "time", None, str(error))]
    return [Line(name, "time", time), Line(name, "compile", compiling)]


def _without(first: Sequence[float], time: Ratio) -> list[float]:
    """Seconds of first runs less those of later ones: before and now."""
    return [max(a - b, 0.0) for a, b in zip(first, (time.before, time.now), strict=True)]


def lines_of_imports(only: str, folders: list[Path], repeats: int) -> list[Line]:
    """Seconds of a new process that imports the library."""
    lines = []
    for name, program in _IMPORTS.items():
        if only in name:
            runs = [trees.started(program, folder) for folder in folders]
            try:
                in_pairs(*runs, repeats=1)  # writes the bytecode
                lines.append(Line(name, "time", ratio_of(in_pairs(*runs, repeats=repeats))))
            except trees.EndedError as error:
                lines.append(Line(name, "time", None, str(error)))
    return lines


def exit_code(lines: list[Line]) -> int:
    """What a comparison ends with, for ``git bisect run``."""
    if any(line.verdict == "slower" for line in lines):
        return _SLOWER
    return _NOT_MEASURED if any(line.ratio is None for line in lines) else 0


def rows_of(lines: list[Line], reference: str) -> list[harness.Row]:
    """The lines as rows of a file; there a ratio above 1 means that it got faster."""
    rows = []
    for line in lines:
        note = "; ".join(words for words in (line.verdict, line.interval) if words)
        beside: dict[str, Any] = {"peer": f"jaxmf at {reference}", "note": note}
        ours = float("nan")
        if line.ratio is not None:
            ours, beside["theirs"] = line.ratio.now, line.ratio.before
        case = f"against/{line.name}"
        rows.append(harness.row(case, line.metric, "s", ours, clock=harness.clock(), **beside))
    return rows


def compare(reference: str, *, now: str, only: str, repeats: int, json: Path | None) -> list[Line]:
    """Measure the cases of two versions, print them, and write them where asked to."""
    reference = reference or trees.newest_tag()
    console, began = Console(stderr=True), records.environment()
    lines: list[Line] = []
    chosen = [name for name in cases.CASES if only in name]
    if not chosen and not any(only in name for name in _IMPORTS):
        raise ValueError(
            f"no case holds {only!r}; there are {', '.join([*_IMPORTS, *cases.CASES])}"
        )
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.callback(trees.forget, Path(folder))
        folders = [trees.checkout(reference, Path(folder) / "before")]
        folders.append(trees.checkout(now, Path(folder) / "now") if now else trees.ROOT)
        sides = [trees.Side(each, Path(folder) / "bytecode") for each in folders]
        for side in sides:
            stack.callback(side.close)
        lines += lines_of_imports(only, folders, repeats)
        for name in chosen:
            lines += lines_of_case(name, sides, repeats)
            here = [line for line in lines if line.name == name]
            slower = [line.metric for line in here if line.verdict == "slower"]
            is_measured = all(line.ratio is not None for line in here)
            said = f"{', '.join(slower) or 'nothing'} slower" if is_measured else "not measured"
            console.print(f"{name}: {said}", highlight=False)
            if json is not None:  # after every case: a broken-off run leaves what it has
                rows = records.stamped(rows_of(lines, reference), "against", began)
                records.merge_json(json, records.document(rows, quick=False, began=began))
    print_lines(lines, reference, began)
    return lines


def print_lines(lines: list[Line], reference: str, began: Mapping[str, Any]) -> None:
    """The table as people read it."""
    title = f"against {reference} on {began['device']}, {harness.clock()} time, "
    table = Table(title=f"{title}load {began['load']}", title_justify="left")
    table.add_column("case", overflow="fold", min_width=24)
    for heading in ("before ms", "now ms", "now / before", "interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for line in lines:
        figures = ["", "", "", ""]
        if (ratio := line.ratio) is not None:
            figures = [f"{1e3 * ratio.before:.1f}", f"{1e3 * ratio.now:.1f}", f"{ratio.middle:.2f}"]
            figures.append(line.interval)
        name = line.name if line.metric == "time" else f"{line.name}, compiling"
        table.add_row(name, *figures, line.verdict)
    Console().print(table)
