"""A crash at every creation, sync, rename and removal of a checkpoint's files, then a resumed run.

At the crash the disk is frozen: nothing that the dying run still does reaches it, as where the
machine loses power. A file that was not synced yet is cut in half. The resumed run must end with
the bits of an undisturbed one, and leave nothing in the folder that its manifest does not name.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import Row
from benchmarks.robustness import fault_row
from benchmarks.robustness.tiny import CASES, QUICK_CASES, differing, fit
from jaxmf.engine.lock import LOCK


class Crash(BaseException):
    """Stands for the death of the process."""


class Disk:
    """Counts what is done to files below a folder, and freezes it at a chosen moment.

    Args:
        folder: whose files count.
        moment: (operation, whether before it is done); None for never.
    """

    def __init__(self, folder: Path, moment: tuple[int, bool] | None = None):
        self.num_operations = 0
        self.names: list[str] = []
        self._folder, self._moment = str(folder), moment
        self._is_frozen = False
        self._locks: list[int] = []

    @contextlib.contextmanager
    def in_force(self) -> Iterator[Disk]:
        """Replaces the functions of `os` that change files."""
        real = {name: getattr(os, name) for name in ("open", "fsync", "replace", "unlink")}
        for name, function in real.items():
            setattr(os, name, self._wrapped(name, function))
        try:
            yield self
        finally:
            for name, function in real.items():
                setattr(os, name, function)
            for descriptor in self._locks:  # the system would close what a dead process held
                with contextlib.suppress(OSError):
                    os.close(descriptor)

    def _wrapped(self, name: str, function: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            if not self._counts(name, args):
                return function(*args, **options)
            if self._is_frozen:
                raise Crash
            number, before = self._moment or (-1, False)
            is_now = self.num_operations == number
            self.num_operations += 1
            self.names.append(name)
            if is_now and before:
                self._freeze(name, args)
            result = function(*args, **options)
            if name == "open" and str(args[0]).endswith(LOCK):
                self._locks.append(result)
            if is_now:
                self._freeze("", args)
            return result

        return call

    def _counts(self, name: str, args: tuple[Any, ...]) -> bool:
        if name == "fsync":
            return self._path(args[0]).startswith(self._folder)
        if name == "open" and not args[1] & os.O_CREAT:
            return False
        return str(args[0]).startswith(self._folder)

    def _path(self, descriptor: int) -> str:
        try:
            return os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            return ""

    def _freeze(self, name: str, args: tuple[Any, ...]) -> None:
        if name == "fsync" and Path(self._path(args[0])).is_file():
            os.truncate(args[0], os.fstat(args[0]).st_size // 2)
        self._is_frozen = True
        raise Crash


def leftovers(folder: Path) -> set[str]:
    """Files that the manifest does not name."""
    saved = json.loads((folder / "checkpoint.json").read_text())
    named = {entry["file"] for entry in [*saved["draws"], saved["state"]]}
    return {path.name for path in folder.iterdir()} - named - {"checkpoint.json"}


def trials(case: str, root: Path, every: int) -> Iterator[tuple[str, str]]:
    """What is wrong after a crash at each moment, empty if nothing; and the moment."""
    whole = fit(case)
    with Disk(root / "count").in_force() as disk:
        fit(case, checkpoint=root / "count", checkpoint_seconds=0)
    for moment in range(0, 2 * disk.num_operations, every):
        number, before = moment // 2, moment % 2 == 0
        folder = root / str(moment)
        described = f"{case}: {'before' if before else 'after'} {disk.names[number]} {number}"
        with contextlib.suppress(Crash), Disk(folder, (number, before)).in_force():
            fit(case, checkpoint=folder, checkpoint_seconds=0)
            yield "did not crash", described
            continue
        try:
            resumed = fit(case, checkpoint=folder, checkpoint_seconds=0, resume=True)
        except Exception as error:
            yield f"not resumed: {type(error).__name__}: {error}", described
            continue
        wrong = differing(whole, resumed)
        left = leftovers(folder)
        yield (f"differ: {wrong}" if wrong else f"left: {left}" if left else ""), described


def count(cases: tuple[str, ...], every: int) -> Row:
    """The faults of these cases, at one moment in `every`."""
    num_trials, num_wrong = 0, 0
    for case in cases:
        with tempfile.TemporaryDirectory() as root:
            for wrong, described in trials(case, Path(root), every):
                num_trials += 1
                num_wrong += bool(wrong)
                if wrong:
                    print(f"{described}: {wrong}", file=sys.stderr)
    share = "" if every == 1 else f"; of these moments one in {every}"
    note = (
        f"{len(cases)} models by their methods, seed 3, 3 steps of one chunk each; a crash before "
        f"and after each creation, sync, rename and removal{share}"
    )
    return fault_row("crash_points", num_wrong, num_trials, before=None, note=note)


def measure(quick: bool) -> list[Row]:
    """Crashes at every moment for every model, or at a third of them for three models."""
    return [count(*((QUICK_CASES, 3) if quick else (CASES, 1)))]
