"""How things are measured: ratios from interleaved runs, medians with their spread, one row format.

A row is ``{case, metric, unit, ours, peer, theirs, ratio}``; a ratio above 1 means ours is better.
Functions that are compared are run in turn, A, B, A, B, in one process, so that a machine that is
busy with something else slows down both.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

METRICS = ("time", "quality", "memory", "compile")
PACKAGES = ("jaxmf", "jax", "jaxlib", "numpy", "scipy", "STA-663-IBP")


@dataclass(frozen=True)
class Row:
    """One measurement.

    Args:
        case: words and slashes, such as ``ibp/gibbs/n100/k16``.
        metric: what kind of figure: time, quality, memory or compile.
        unit: of `ours` and `theirs`.
        ours: the figure of this library; a median where it was measured several times.
        peer: what it is compared with; None where it stands alone.
        theirs: the peer's figure; None where the peer is missing.
        ratio: above 1 where ours is better.
        spread: half the range between the quartiles of ours over its median.
        repeats: how often ours was measured.
        note: what a reader must know.
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
    )


def spread(values: Sequence[float]) -> float | None:
    """Half the distance between the quartiles, over the median."""
    low, middle, high = np.quantile(np.asarray(values, float), [0.25, 0.5, 0.75])
    return _finite((high - low) / 2 / middle) if middle else None


def seconds(function: Callable[[], Any]) -> float:
    """Seconds of one call, until its arrays are ready."""
    began = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - began


def interleaved(*functions: Callable[[], Any], repeats: int, warm_up: int = 1) -> np.ndarray:
    """Seconds of every function, run in turn: (functions, repeats) float.

    Args:
        functions: called without arguments; their arrays are waited for.
        repeats: rounds that count.
        warm_up: rounds before, in which things compile.
    """
    for _ in range(warm_up):
        for function in functions:
            jax.block_until_ready(function())
    return in_turn(*(partial(seconds, function) for function in functions), repeats=repeats)


def in_turn(*measures: Callable[[], float], repeats: int) -> np.ndarray:
    """Figures of functions that measure themselves, called in turn: (functions, repeats) float."""
    return np.asarray([[measure() for measure in measures] for _ in range(repeats)]).T


def device_name() -> str:
    """The device in words fit for a file name: ``cpu-2-cores-x86-64``, ``nvidia-h200``."""
    device = jax.devices()[0]
    if device.platform == "cpu":
        words = f"cpu {num_cores()} cores {platform.machine()}"
    else:
        words = device.device_kind
    return "-".join("".join(c if c.isalnum() else " " for c in words.lower()).split())


def num_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    """The processor's own name, where the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def environment() -> dict[str, Any]:
    """Device, versions and load, as they are written beside the rows."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "from source" if name == "jaxmf" else None
    return {
        "device": device_name(),
        "processor": processor(),
        "num_cores": num_cores(),
        "float": str(jax.numpy.result_type(float)),
        "versions": versions,
        "blas_threads": os.environ.get("OPENBLAS_NUM_THREADS", "all"),
        "load": load(),
    }


def load() -> list[float] | None:
    """Running processes, means of 1, 5 and 15 minutes; more than cores is a busy machine."""
    return [round(value, 1) for value in os.getloadavg()] if hasattr(os, "getloadavg") else None


def document(
    name: str, rows: Iterable[Row], *, quick: bool, began: dict[str, Any]
) -> dict[str, Any]:
    """What is written to a file: the rows, and where and how they were measured."""
    return {
        "benchmark": name,
        "quick": quick,
        **began,
        "load_at_end": load(),
        "rows": [asdict(one) for one in rows],
    }


def write_json(path: str | Path, content: Mapping[str, Any]) -> None:
    """The document as JSON, numbers rounded to what they are worth."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_rounded(content), indent=1) + "\n")


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


def _rounded(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {name: _rounded(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_rounded(value) for value in content]
    if isinstance(content, float | np.floating):
        return float(f"{content:.4g}")
    return content
