"""Every model with no option set, on data that nothing was tuned on, beside the obvious peer.

The rule: at least the quality of the peer's default, or an alarm that says so. A row's note has the
alarms of the run. Sets marked "report" are never used for choosing a default. Models are made as
the README makes them: `LDA(20)`, `BPMF(16)`, `SparseBinaryMF(20)`, all others with what they need
alone. ``--quick`` takes shorter chains, 2 of 100 + 100 steps, and ends a run after 45 CPU seconds;
its table is `benchmarks/results/quick/defaults.json`.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.defaults import baskets, binary, groups, matrices, ratings, topics
from benchmarks.harness import Row

_PARTS = (matrices, binary, groups, topics, ratings, baskets)

CASES: dict[str, Callable[[bool], list[Row]]] = {
    f"defaults/{name}": measure for part in _PARTS for name, measure in part.CASES.items()
}
QUICK = tuple(CASES)
