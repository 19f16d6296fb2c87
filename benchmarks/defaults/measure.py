"""A run by default and its row beside each peer."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jaxmf as mf
from benchmarks.harness import Row, row

QUICK_CHAINS = {"num_warmup": 100, "num_samples": 100, "num_chains": 2}
_LIMITS = {True: 45.0, False: 900.0}  # CPU seconds of a run, its compilation counted


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Ends a block with a TimeoutError once the process has spent so many CPU seconds on it."""

    def end(*unused: object) -> None:
        raise TimeoutError(f"not done after {seconds:.0f} CPU seconds")

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def fitted(model: Any, data: Any, quick: bool) -> tuple[Any, str]:
    """The posterior by default, and the kinds of its alarms as text."""
    options = QUICK_CHAINS if quick and mf.registry.entry_of(model).default == "sample" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        post = mf.fit(model, data, seed=0, progress=False, **options)
    # versions before 0.2 have no alarms
    kinds = [alarm.kind for alarm in post.alarms()] if hasattr(post, "alarms") else []
    return post, f"alarms: {', '.join(kinds)}" if kinds else "no alarm"


def measured(
    case: str,
    unit: str,
    measure: Callable[[bool], tuple[float, str]],
    peers: Mapping[str, Callable[[], float]],
    quick: bool,
    *,
    more_is_better: bool = False,
) -> list[Row]:
    """A row for each peer; a run that ends in an error is a row that says so."""
    try:
        with limited(_LIMITS[quick]):
            ours, note = measure(quick)
    except Exception as error:  # a stranger's first call: whatever comes is the result
        ours, note = float("nan"), f"{type(error).__name__}: {str(error)[:120]}"
    rows = []
    for name, peer in peers.items():
        theirs = peer()
        more = {"peer": name, "theirs": theirs, "more_is_better": more_is_better}
        rows.append(row(f"defaults/{case}", "quality", unit, ours, note=note, **more))
    return rows
