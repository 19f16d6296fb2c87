"""How things are measured: ratios from interleaved runs, medians with their spread, one row format.

A row is ``{case, metric, unit, ours, peer, theirs, ratio}``; a ratio above 1 means ours is better.
Functions that are compared are run in turn, A, B, A, B, in one process, so that a machine that is
busy with something else slows down both. With ``PJRT_NPROC=1`` on a CPU, figures of time are the
process's own CPU seconds, which other programs hardly touch; wall time stands beside them.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache
from rich.console import Console
from rich.table import Table

from jaxmf import engine

METRICS = ("time", "quality", "memory", "compile", "faults", "count")
_SETTLED = 0.1


@dataclass(frozen=True)
class Row:
    """One measurement.

    Args:
        case: words and slashes, such as ``ibp/gibbs/n100/k16``.
        metric: what kind of figure: time, quality, memory, compile, faults (how many) or
            count (what a program holds: counted, not measured).
        unit: of `ours` and `theirs`.
        ours: the figure of this library; a median where it was measured several times.
        peer: what it is compared with; None where it stands alone.
        theirs: the peer's figure; None where the peer is missing.
        ratio: above 1 where ours is better.
        spread: half the range between the quartiles of ours over its median.
        repeats: how often ours was measured.
        note: what a reader must know.
        clock: of a figure of time: wall, or cpu for the process's own seconds.
        wall: the median by the wall clock where `ours` is CPU time.
        condition: cores, threads, load and versions under which it was measured.
    """

    case: str
    metric: str
    unit: str
    ours: float | None
    peer: str | None = None
    theirs: float | None = None
    ratio: float | None = None
    spread: float | None = None
    repeats: int = 1
    note: str = ""
    clock: str | None = None
    wall: float | None = None
    condition: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(f"metric must be one of {', '.join(METRICS)}, got {self.metric!r}")


def row(
    case: str,
    metric: str,
    unit: str,
    ours: float | Sequence[float],
    *,
    peer: str | None = None,
    theirs: float | Sequence[float] | None = None,
    more_is_better: bool = False,
    note: str = "",
    **more: Any,
) -> Row:
    """A row from one figure or several a side; figures of the two sides go in pairs if as many.

    With pairs, as `interleaved` gives them, the ratio is the median of the ratios of pairs.
    """
    mine = np.atleast_1d(np.asarray(ours, float))
    other = None if theirs is None else np.atleast_1d(np.asarray(theirs, float))
    ratio = None
    if other is not None:
        pairs = (mine, other) if mine.size == other.size else (np.median(mine), np.median(other))
        better, worse = pairs if more_is_better else pairs[::-1]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = _finite(np.median(np.asarray(better) / np.asarray(worse)))
    return Row(
        case=case,
        metric=metric,
        unit=unit,
        ours=_finite(np.median(mine)),
        peer=peer,
        theirs=None if other is None else _finite(np.median(other)),
        ratio=ratio,
        spread=spread(mine) if mine.size > 1 else None,
        repeats=int(mine.size),
        note=note,
        **more,
    )


def spread(values: Sequence[float]) -> float | None:
    """Half the distance between the quartiles, over the median."""
    low, middle, high = np.quantile(np.asarray(values, float), [0.25, 0.5, 0.75])
    return _finite((high - low) / 2 / middle) if middle else None


def clock() -> str:
    """What figures of time are read from: cpu where one thread does all the work, else wall."""
    one_thread = os.environ.get("PJRT_NPROC") == "1" and jax.default_backend() == "cpu"
    return "cpu" if one_thread else "wall"


class Stopwatch:
    """Seconds of a block by both clocks; CPU time counts child processes that have ended."""

    wall = cpu = 0.0

    def __init__(self) -> None:
        self._began = self._now()

    def __enter__(self) -> Stopwatch:
        self._began = self._now()
        return self

    def __exit__(self, *error: object) -> None:
        self.read()

    def read(self) -> Stopwatch:
        """Take the seconds since the start."""
        self.wall, self.cpu = (self._now() - self._began).tolist()
        return self

    @property
    def seconds(self) -> float:
        """By the clock in use."""
        return self.cpu if clock() == "cpu" else self.wall

    @staticmethod
    def _now() -> np.ndarray:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = time.process_time() + children.ru_utime + children.ru_stime
        return np.array([time.perf_counter(), cpu])


@dataclass(frozen=True)
class Timings:
    """Seconds of functions that were run in turn: each (functions, repeats) float.

    Args:
        figures: by the clock in use.
        wall: by the wall clock.
    """

    figures: np.ndarray
    wall: np.ndarray

    def over(self, counts: Sequence[float]) -> Timings:
        """The same for one of so many things that each function does."""
        each = np.asarray(counts, float)[:, None]
        return Timings(self.figures / each, self.wall / each)

    def row(self, case: str, unit: str, index: int, *, scale: float = 1.0, **more: Any) -> Row:
        """A row of one function's times, `scale` units a second."""
        beside: dict[str, Any] = {"clock": clock()}
        if beside["clock"] == "cpu":
            beside["wall"] = _finite(np.median(self.wall[index]) * scale)
        return row(case, "time", unit, self.figures[index] * scale, **beside, **more)


def interleaved(*functions: Callable[[], Any], repeats: int, warm_up: int = 1) -> Timings:
    """Seconds of every function, run in turn.

    Args:
        functions: called without arguments; their arrays are waited for.
        repeats: rounds that count.
        warm_up: rounds before, in which things compile.
    """
    for _ in range(warm_up):
        for function in functions:
            jax.block_until_ready(function())
    watches = [[_timed(function) for function in functions] for _ in range(repeats)]
    figures, wall = (
        np.array([[getattr(watch, name) for watch in turn] for turn in watches]).T
        for name in ("seconds", "wall")
    )
    return Timings(figures, wall)


def seconds(function: Callable[[], Any]) -> float:
    """Seconds of one call by the clock in use, until its arrays are ready."""
    return _timed(function).seconds


def _timed(function: Callable[[], Any]) -> Stopwatch:
    time.sleep(_SETTLED)  # or freeing what the one before worked in would be charged to this one
    with Stopwatch() as watch:
        jax.block_until_ready(function())
    return watch


def timed_run(algorithm: Any, data: Any, **options: Any) -> tuple[Any, float]:
    """A finished run of an algorithm, without a progress line, and its seconds."""
    with Stopwatch() as watch:
        run = engine.run(algorithm, data, progress=False, **options)
    return run, watch.seconds


def started_run(algorithm: Any, state: Any) -> engine.Run:
    """A run of one chain that stands at this state and has done no step."""
    return engine.Run(
        draws={},
        averages={},
        state=jax.tree.map(lambda leaf: np.asarray(leaf)[None], state),
        num_steps=0,
        num_warmup=0,
        complete=True,
        seconds=0.0,
        capacity=algorithm.capacity(state),
        num_draws=0,
        thin=1,
    )


def flat_rows(
    cases: Sequence[str],
    unit: str,
    times: Timings,
    *,
    scale: float,
    peer: str,
    reference: int = 0,
    notes: Sequence[str] | None = None,
) -> list[Row]:
    """Rows of the time of one thing at ever larger sizes; ratio to the time at one of them."""
    rows = []
    for index, case in enumerate(cases):
        note = [notes[index]] if notes else []
        beside: dict[str, Any] = {}
        if index != reference:
            beside = {"peer": peer, "theirs": times.figures[reference] * scale}
            note.append("flat is a ratio of 1")
        rows.append(times.row(case, unit, index, scale=scale, note="; ".join(note), **beside))
    return rows


def in_turn(*measures: Callable[[], float], repeats: int) -> np.ndarray:
    """Figures of functions that measure themselves, called in turn: (functions, repeats) float."""
    return np.asarray([[measure() for measure in measures] for _ in range(repeats)]).T


def planned_bytes(program: Any) -> int:
    """Bytes of a compiled program's arguments, results and work, as it plans them.

    Without donation the new state is a second copy of the old.
    """
    plan = program.memory_analysis()
    return (
        plan.argument_size_in_bytes
        + plan.output_size_in_bytes
        + plan.temp_size_in_bytes
        - plan.alias_size_in_bytes
    )


def reset_peak() -> int | None:
    """Sets the peak of resident memory to what it is now, in bytes; None where that cannot be."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return resident("VmRSS")
    except OSError:
        return None


def resident(name: str) -> int:
    """A line of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {name}")


@contextmanager
def nothing_cached() -> Iterator[None]:
    """JAX's cache on disk is neither read nor written."""
    cache = jax.config.jax_enable_compilation_cache
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()  # else JAX goes by what it found at the first compilation
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", cache)
        compilation_cache.reset_cache()


def compile_row(case: str, program: Any, *arguments: Any, note: str = "", **options: Any) -> Row:
    """Seconds to lower and compile a jitted function, nothing cached."""
    with nothing_cached(), Stopwatch() as watch:
        program.lower(*arguments, **options).compile()
    wall = watch.wall if clock() == "cpu" else None
    return row(case, "compile", "s", watch.seconds, note=note, clock=clock(), wall=wall)


def first_result(case: str, program: str, note: str) -> list[Row]:
    """From the start of Python to the end of `program`, without and with a warm cache."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"JAXMF_CACHE": folder}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)

        def start() -> None:
            subprocess.run([sys.executable, "-c", program], check=True, env=environment)

        cold, warm = (interleaved(start, repeats=number, warm_up=0) for number in (1, 3))
    beside = {"peer": "jaxmf with an empty cache", "theirs": cold.figures[0]}
    rows = [
        cold.row(f"{case}/cold", "s", 0, note=note),
        warm.row(f"{case}/warm", "s", 0, note="programs from the cache on disk", **beside),
    ]
    return [replace(one, metric="compile") for one in rows]


def print_table(rows: Sequence[Row], *, title: str, console: Console | None = None) -> None:
    """The rows as people read them."""
    table = Table(title=title, title_justify="left")
    table.add_column("case", overflow="fold", min_width=24)
    table.add_column("metric")
    for name in ("ours", "spread", "theirs", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("unit")
    table.add_column("beside", overflow="fold")
    for one in rows:
        table.add_row(
            one.case,
            one.metric,
            number(one.ours),
            "" if one.spread is None else f"{one.spread:.0%}",
            number(one.theirs),
            number(one.ratio),
            one.unit,
            "; ".join(words for words in (one.peer, one.note) if words),
        )
    (console or make_console()).print(table)


def make_console() -> Console:
    """A console wide enough for the tables, also into a file."""
    console = Console()
    return console if console.is_terminal else Console(width=150)


def number(value: float | None) -> str:
    """A figure with three digits."""
    return "" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _finite(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
