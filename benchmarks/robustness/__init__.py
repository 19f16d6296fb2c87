"""What must not break: damaged and tampered files, killed runs, bad calls, odd data.

Each part counts faults: a row's `ours` is how many there are now, out of as many trials as its
note says, and `theirs` is the figure of version a96d6f3, where the search for them began. Every
part states its seed. ``--only flips`` runs one part.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial

from benchmarks.harness import Row

# A part is a module with `measure(quick) -> rows`; a new one takes one line here.
PARTS = {
    "flips": "benchmarks.robustness.flips",
    "tampered": "benchmarks.robustness.tampered",
    "bad_calls": "benchmarks.robustness.bad_calls",
    "bad_files": "benchmarks.robustness.bad_files",
    "fuzz": "benchmarks.robustness.fuzz",
    "crash_points": "benchmarks.robustness.crash_points",
    "kills": "benchmarks.robustness.kills",
    "same_bits": "benchmarks.robustness.same_bits",
    "false_alarms": "benchmarks.robustness.false_alarms",
}
FIRST_VERSION = "jaxmf at a96d6f3"


def fault_row(case: str, count: int, num_trials: int, *, before: int | None, note: str) -> Row:
    """A row of one kind of fault.

    Args:
        case: part and kind, such as ``flips/silent``.
        count: how many trials showed it.
        num_trials: trials in all.
        before: the count at a96d6f3; None where it was not looked for.
        note: what was tried, with the seed, and out of how many the earlier count is.
    """
    # no ratio: the two were counted in different numbers of trials
    return Row(
        f"robustness/{case}",
        "faults",
        f"of {num_trials:,}",
        float(count),
        peer=None if before is None else FIRST_VERSION,
        theirs=None if before is None else float(before),
        note=note,
    )


def _measure(module: str, quick: bool) -> list[Row]:
    return importlib.import_module(module).measure(quick)


CASES: dict[str, Callable[[bool], list[Row]]] = {
    f"robustness/{part}": partial(_measure, module) for part, module in PARTS.items()
}
QUICK = tuple(CASES)
