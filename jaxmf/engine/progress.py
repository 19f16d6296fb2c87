"""Progress of a run, as it is shown."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

_LONG_SECONDS = 5.0
_LINE_SECONDS = 30.0


class ProgressReport(NamedTuple):
    """How far a run is.

    Attributes:
        step: steps done, warm-up included.
        num_steps: steps to do in all.
        num_warmup: how many of them are warm-up.
        seconds_left: estimate from the speed so far; None before there is one.
        scalars: name -> mean over the chains, of the last record.
        note: how steps are made, such as "sweep=parallel".
    """

    step: int
    num_steps: int
    num_warmup: int
    seconds_left: float | None
    scalars: dict[str, float]
    note: str = ""


class Display:
    """A progress bar, lines in a log, or a function of the user's, or nothing.

    Args:
        progress: True for a bar on a terminal or in a notebook, and lines elsewhere, from the start
            on; None for the same, lines after half a minute; False for nothing; or a function
            called with a `ProgressReport` after every chunk.
    """

    def __init__(self, progress: bool | Callable[[ProgressReport], None] | None):
        self._call = progress if callable(progress) else None
        self._bar: Any = None
        self._is_shown = self._call is None and (progress is None or bool(progress))
        self._is_asked_for = bool(progress)

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, phase: str) -> None:
        """Shows what is done before the first step."""
        if not self._is_shown:
            return
        if self._bar is None:
            self._bar = _make_bar() if _is_watched() else _Lines(self._is_asked_for)
            self._task = self._bar.add_task(phase, total=None, scalars="", left="", waited="")
            self._bar.start()
        self._bar.update(self._task, description=phase, refresh=True)

    def wait(self, seconds: float) -> None:
        """Shows how long the steps in hand have been running, where that is long."""
        if self._bar is not None and seconds >= _LONG_SECONDS:
            waited = f"{round(seconds)} s in this step"
            self._bar.update(self._task, waited=waited, refresh=True)

    def show(self, report: ProgressReport, phase: str = "") -> None:
        """Shows one report.

        Args: phase: what is done; empty for warm-up or sampling, by the step.
        """
        if self._call is not None:
            self._call(report)
        if self._bar is not None:
            phase = phase or ("warm-up" if report.step < report.num_warmup else "sampling")
            self._bar.update(
                self._task,
                waited="",
                description=", ".join(filter(None, (phase, report.note))),
                completed=report.step,
                total=report.num_steps,
                left=duration_in_words(report.seconds_left),
                scalars=scalars_in_words(report.scalars),
                refresh=True,
            )


def scalars_in_words(scalars: dict[str, float]) -> str:
    """Scalars in one line, log joint and number of features first.

    Example:
        >>> scalars_in_words({"alpha": 0.51234, "log_joint": -1234.5})
        'log joint -1234.5, alpha 0.5123'
    """
    first = [name for name in ("log_joint", "num_features") if name in scalars]
    names = first + [name for name in scalars if name not in first]
    return ", ".join(f"{name.replace('_', ' ')} {_as_text(scalars[name])}" for name in names[:5])


def duration_in_words(seconds: float | None) -> str:
    """A time left, rounded as people say it.

    Example:
        >>> duration_in_words(3700.0)
        '1 h 01 min left'
    """
    if seconds is None:
        return ""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s left"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s left"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min left"


def mean_scalars(scalars: dict[str, np.ndarray]) -> dict[str, float]:
    """Mean over the chains of each scalar."""
    return {name: float(np.mean(np.asarray(x, float))) for name, x in scalars.items()}


def _as_text(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.4g}"


class _Lines:
    """Progress as text, at most one line in 30 seconds, such as in the log of a batch job.

    Args: is_asked_for: whether lines come from the start on, and one at the end.
    """

    def __init__(self, is_asked_for: bool) -> None:
        self._is_asked_for = is_asked_for
        self._fields: dict[str, Any] = {}
        self._said = -np.inf if is_asked_for else time.monotonic()

    def add_task(self, description: str, **fields: object) -> int:
        self._fields = {"description": description, **fields}
        return 0

    def start(self) -> None:
        """The first line comes with the first update."""

    def update(self, task: int, **fields: object) -> None:
        del task
        self._fields |= fields
        if time.monotonic() - self._said >= _LINE_SECONDS:
            self._said = time.monotonic()
            self._say()

    def stop(self) -> None:
        if self._is_asked_for:
            self._say()

    def _say(self) -> None:
        shown = self._fields
        steps = f"{shown['completed']}/{shown['total']} steps" if shown["total"] else ""
        parts = (shown["description"], steps, shown["left"], shown["waited"], shown["scalars"])
        # a log that takes no more lines is no reason to end a run
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"jaxmf: {', '.join(filter(None, parts))}\n")
            sys.stderr.flush()


def _is_watched() -> bool:
    return sys.stderr.isatty() or _is_notebook()


def _is_notebook() -> bool:
    shell = sys.modules.get("IPython")
    if shell is None:
        return False
    running = shell.get_ipython()
    return running is not None and "IPKernelApp" in running.config


def _make_bar() -> object:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console() if _is_notebook() else Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.completed}/{task.total} steps"),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.fields[waited]}"),
        TextColumn("{task.fields[scalars]}"),
        console=console,
        # redrawn between chunks: a thread of its own would compete with the chains
        auto_refresh=False,
    )
