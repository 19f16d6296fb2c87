"""Progress of a run, as it is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

_LONG_SECONDS = 5.0


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
    """A progress bar, or a function of the user's, or nothing.

    Args:
        progress: True or False; None for a bar on a terminal or in a notebook only; or a function
            called with a `ProgressReport` after every chunk.
    """

    def __init__(self, progress: bool | Callable[[ProgressReport], None] | None):
        self._call = progress if callable(progress) else None
        self._bar: Any = None
        self._is_shown = self._call is None and (_is_watched() if progress is None else progress)

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
            self._bar = _make_bar()
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
