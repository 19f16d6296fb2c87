"""What is kept of a measurement: conditions, rows merged into the file of a device, papers."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.harness import Row, Stopwatch, clock, make_console

PACKAGES = (
    "jaxmf", "jax", "jaxlib", "numpy", "scipy", "scikit-learn", "STA-663-IBP",
    "implicit", "hpfrec", "poismf", "tomotopy",
)  # fmt: skip


def device_name() -> str:
    """The device in words fit for a file name: ``cpu-2-cores-x86-64``, ``nvidia-h200``."""
    device = jax.devices()[0]
    if device.platform == "cpu":
        words = f"cpu {os.cpu_count()} cores {platform.machine()}"
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
    """Device, versions, threads and load, as they are written beside the rows."""
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
        "threads": os.environ.get("PJRT_NPROC", "all"),
        "blas_threads": os.environ.get("OPENBLAS_NUM_THREADS", "all"),
        "clock": clock(),
        "load": load(),
        "commit": commit(),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


def commit(folder: str | Path | None = None) -> str:
    """The last commit of a checkout that changed the library, with "+" where files differ from it.

    Commits of results alone leave it as it is. Empty where git cannot tell.
    """
    folder = Path(__file__).resolve().parent.parent if folder is None else folder
    git = ["git", "-C", str(folder)]
    try:
        last, changed = (
            subprocess.run([*git, *line, "--", "jaxmf"], capture_output=True, text=True, check=True)
            for line in (["log", "-1", "--abbrev=7", "--format=%h"], ["status", "--porcelain"])
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return last.stdout.strip() + "+" * bool(changed.stdout.strip())


def load() -> list[float] | None:
    """Running processes, means of 1, 5 and 15 minutes; more than cores is a busy machine."""
    return [round(value, 1) for value in os.getloadavg()] if hasattr(os, "getloadavg") else None


_OF_A_ROW = ("processor", "num_cores", "threads", "blas_threads", "load", "commit", "xla_flags")


def stamped(rows: Iterable[Row], name: str, began: Mapping[str, Any]) -> list[Row]:
    """The rows of a benchmark with the conditions under which they were measured."""
    condition = {
        "benchmark": name,
        # machines of one name need not have one processor
        **{key: began[key] for key in _OF_A_ROW},
        "load_at_end": load(),
        "jax": began["versions"]["jax"],
    }
    return [replace(one, condition=condition) for one in rows]


def document(rows: Iterable[Row], *, quick: bool, began: Mapping[str, Any]) -> dict[str, Any]:
    """What is written to a file of a device: where it was measured, and the rows."""
    about = {key: began[key] for key in ("device", "float", "versions")}
    return {"quick": quick, **about, "rows": [asdict(one) for one in rows]}


def merge_json(path: str | Path, content: Mapping[str, Any]) -> None:
    """Put the rows of a document into a file of the same device; its other rows stay.

    Raises:
        ValueError: the file is of another device, or of other sizes (`--quick`).
    """
    path = Path(path)
    rows = {}
    if path.exists():
        old = json.loads(path.read_text())
        for key in ("device", "quick"):
            if old[key] != content[key]:
                raise ValueError(
                    f"{path} holds rows with {key} {old[key]!r}, these have {content[key]!r}: "
                    "name another file"
                )
        rows = {_name(one): one for one in old["rows"]}
    rows |= {_name(one): one for one in content["rows"]}
    names = [one["condition"]["benchmark"] for one in rows.values()]
    order = {name: position for position, name in reversed(list(enumerate(names)))}
    grouped = sorted(rows.values(), key=lambda one: order[one["condition"]["benchmark"]])
    write_json(path, {**content, "rows": grouped})


def _name(one: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a row is the only one of: a case may stand beside several peers."""
    return one["case"], one["metric"], one["peer"]


def write_json(path: str | Path, content: Mapping[str, Any]) -> None:
    """The document as JSON, numbers rounded to what they are worth, plain lists on one line."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_rounded(content), indent=1)
    # innermost lists of numbers
    text = re.sub(r"\[([^\[\]{}\"]+)\]", lambda found: f"[{' '.join(found[1].split())}]", text)
    path.write_text(text + "\n")


class Paper:
    """The results of one paper: shown as they come, written after every part.

    Args:
        name: of the command.
        sizes: what was run, written beside the results.
        quick: small sizes.
        json: where to write; None for nowhere.
    """

    def __init__(
        self, name: str, sizes: Mapping[str, Any], *, quick: bool, json: Path | None
    ) -> None:
        self.console = make_console()
        self.content: dict[str, Any] = {
            "paper": name, "quick": quick, **environment(), "sizes": dict(sizes),
        }  # fmt: skip
        self._path, self._watch = json, Stopwatch()

    def say(self, words: str) -> None:
        """Print words behind the seconds since the start."""
        self.console.print(f"{self._watch.read().wall:4.0f} s  {words}", highlight=False)

    def save(self, **parts: Any) -> None:
        """Add parts to what is written, and write it."""
        self._watch.read()
        self.content |= parts
        self.content |= {"seconds": self._watch.seconds, "wall_seconds": self._watch.wall}
        self.content["load_at_end"] = load()
        if self._path is not None:
            write_json(self._path, self.content)

    def end(self, verdict: Sequence[str]) -> dict[str, Any]:
        """Write and print what it comes to; returns all that was written."""
        self.save(verdict=list(verdict))
        for words in verdict:
            self.console.print(words, highlight=False)
        return self.content


def _rounded(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {name: _rounded(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_rounded(value) for value in content]
    if isinstance(content, float | np.floating):
        return float(f"{content:.4g}")
    return content


def bit_strings(bits: np.ndarray) -> list[str]:
    """Rows of zeros and ones as words of them."""
    return ["".join("1" if bit else "0" for bit in row) for row in np.asarray(bits)]


def whole_percent(values: np.ndarray) -> list[list[int]]:
    """Shares as whole hundredths."""
    return np.round(100 * np.asarray(values)).astype(int).tolist()
