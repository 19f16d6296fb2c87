"""Every model with no option set, on data that nothing was tuned on, beside the obvious peer.

The rule: at least the quality of the peer's default, or an alarm that says so. A row's note has the
alarms of the run and its CPU seconds. Sets marked "report" are never used for choosing a default.
Models are made as the README makes them: `LDA(20)`, `BPMF(16)`, `SparseBinaryMF(20)`, all others
with what they need alone. ``--quick`` takes shorter chains, 2 of 100 + 100 steps, and ends a run
after 45 CPU seconds; its table is `benchmarks/results/quick/defaults.json`.

Every run has a process of its own: one that hangs or crashes is a row that says so. Rows that FILE
has of this commit are not measured again, unless by --again. --against takes a checkout of another
version, which gets the same data and the same questions and stands in the table as one more peer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.defaults import baskets, binary, calls, groups, matrices, ratings, topics
from benchmarks.defaults.measure import Case

_PARTS = (calls, topics, baskets, matrices, binary, groups, ratings)

SIDES: dict[str, Case] = {name: case for part in _PARTS for name, case in part.CASES.items()}


def _measure(name: str, quick: bool, **options: Any) -> Any:
    # the process of a case has no use for it
    from benchmarks.defaults.table import measured

    return measured(name, SIDES[name], quick=quick, **options)


CASES: dict[str, Callable[..., Any]] = {
    f"defaults/{name}": partial(_measure, name) for name in SIDES
}
QUICK = tuple(CASES)
