"""Versions of the library: checkouts in folders, and a process of each that runs cases."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import harness

ROOT = Path(__file__).resolve().parents[2]
_CHILD = Path(__file__).with_name("child.py")


def _git(*words: str | Path) -> str:
    done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)
    if done.returncode:
        raise ValueError(done.stderr.strip())
    return done.stdout.strip()


def newest_tag() -> str:
    """The last release.

    Raises:
        ValueError: there is no tag vX.Y.Z.
    """
    tags = _git("tag", "--sort=-version:refname").split()
    for tag in tags:
        if re.fullmatch(r"v\d+\.\d+\.\d+", tag):
            return tag
    raise ValueError(
        "there is no tag vX.Y.Z here; name a revision: python -m benchmarks against REF"
    )


def checkout(reference: str, folder: Path) -> Path:
    """A worktree of a revision, to be given up by `forget`."""
    _git("worktree", "add", "--detach", folder, reference)
    return folder


def forget(folder: Path) -> None:
    """Remove the worktrees in a folder."""
    for tree in folder.iterdir():
        if (tree / ".git").exists():
            _git("worktree", "remove", "--force", tree)


def _environment(bytecode: Path | None) -> dict[str, str]:
    # what compiles is timed, and both start without bytecode, in a folder that goes
    without = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if name not in without}
    kept["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    return kept | ({} if bytecode is None else {"PYTHONPYCACHEPREFIX": str(bytecode)})


def started(program: str, folder: Path) -> Callable[[], float]:
    """A function: seconds of a new Python that runs a line in a checkout."""
    environment = _environment(folder.with_name(f"{folder.name}-imports"))

    def run() -> None:
        line = [sys.executable, "-c", program]
        done = subprocess.run(line, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise EndedError((done.stderr.strip().splitlines() or ["no message"])[-1])

    return partial(harness.seconds, run)


class EndedError(Exception):
    """A program that a version did not run to its end."""


class Side:
    """A process with the library of one checkout, which runs the cases that it is asked for."""

    def __init__(self, folder: Path, bytecode: Path) -> None:
        self._line = [sys.executable, str(_CHILD), str(folder)]
        self._environment = _environment(bytecode)
        self._process: subprocess.Popen[str] | None = None

    def ask(self, words: str) -> dict[str, Any]:
        """The answer of the process; an error of it is one, and a crash too."""
        if self._process is None:
            self._process = subprocess.Popen(
                self._line, env=self._environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(words + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if answer:
            return json.loads(answer)
        self.close()
        return {"error": f"the process ended with code {process.returncode}"}

    def seconds(self) -> float:
        """Of one more run of the case that is open."""
        return self._seconds("run")

    def compiled_again(self, name: str) -> float:
        """Seconds of the first run of a case in a new process."""
        self.close()
        return self._seconds(f"open {name}")

    def _seconds(self, words: str) -> float:
        answer = self.ask(words)
        if "error" in answer:
            raise EndedError(answer["error"])
        return answer["seconds"]

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.communicate()
            self._process = None
