"""Runs the sides of a task and prints lines of code, CPU seconds and quality of each."""

from __future__ import annotations

import importlib
import inspect
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path


def run(name: str, prepare: Callable[[Path], None], sides: tuple[str, ...]) -> None:
    """Prepare the files of a task, and run each of its sides in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        for side in sides:
            command = [sys.executable, "-m", "benchmarks.tasks.sides", name, side, folder]
            subprocess.run(command, check=False)


def num_lines(function: Callable[..., object]) -> int:
    """Lines of a function's body that are neither empty nor imports."""
    body = inspect.getsource(function).splitlines()[1:]
    return sum(not line.strip().startswith(("import ", "from ")) for line in body if line.strip())


def _cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _run_here(name: str, side: str, folder: str) -> None:
    function = getattr(importlib.import_module(f"benchmarks.tasks.{name}"), side)
    try:
        quality = function(Path(folder))
    except ImportError as error:
        print(f"{name}, {side}: left out, {error}")
        return
    row = {"task": name, "side": side, "lines": num_lines(function), "cpu_s": _cpu_seconds()}
    print(json.dumps(row | quality))


if __name__ == "__main__":
    _run_here(*sys.argv[1:])
