"""A crash at every creation, write, sync, rename and removal of a checkpoint's files.

One run is recorded: what lies in its folder before and after each of these operations is what a
death of the process leaves at that moment, where no handler runs any more. A file that is not
synced yet may have reached the disk in part: it is cut at several lengths. Each such folder is
opened by the code that resumes a run, which must leave the last complete save there, byte for byte,
and no other file. From every save that was so reached the run is resumed to its end, and must end
with the bits of an undisturbed one.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from benchmarks.harness import Row
from benchmarks.robustness import fault_row
from benchmarks.robustness.tiny import CASES, QUICK_CASES, differing, fit
from jaxmf.engine.checkpoint import MANIFEST
from jaxmf.engine.storage import Storage

Files = dict[str, bytes]


class Moment(NamedTuple):
    """A moment of a run, and the files that a crash leaves there.

    Attributes:
        name: such as ``before replace 7``; the operations are numbered.
        files: their contents by name.
    """

    name: str
    files: Files


class Recorder:
    """Keeps what lies in a folder whenever something is done to a file of it.

    Args:
        folder: whose files count.

    Attributes:
        moments: in their order.
    """

    def __init__(self, folder: Path):
        self.moments: list[Moment] = []
        self._folder = folder
        self._num_operations = 0

    @contextlib.contextmanager
    def in_force(self) -> Iterator[Recorder]:
        """Replaces the functions of `os` that change files."""
        real = {name: getattr(os, name) for name in ("open", "fsync", "replace", "unlink")}
        for name, function in real.items():
            setattr(os, name, self._recorded(name, function))
        try:
            yield self
        finally:
            for name, function in real.items():
                setattr(os, name, function)

    def _recorded(self, operation: str, function: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            path = self._path(operation, args)
            if not path.startswith(str(self._folder)):
                return function(*args, **options)
            described = f"{operation} {self._num_operations}"
            self._num_operations += 1
            files = read_files(self._folder)
            name = Path(path).name
            self._add(f"before {described}", files)
            if operation == "fsync" and name in files:
                for length in cuts(len(files[name])):
                    cut = files | {name: files[name][:length]}
                    self._add(f"{length} bytes into write {described}", cut)
            result = function(*args, **options)
            self._add(f"after {described}", read_files(self._folder))
            return result

        return call

    def _path(self, operation: str, args: tuple[Any, ...]) -> str:
        if operation == "fsync":
            return os.readlink(f"/proc/self/fd/{args[0]}")
        is_read = operation == "open" and not args[1] & os.O_CREAT
        return "" if is_read else str(args[0])

    def _add(self, name: str, files: Files) -> None:
        self.moments.append(Moment(name, files))


def cuts(length: int) -> list[int]:
    """Where a file that is not synced may end: what was written in part, up to one byte less."""
    return sorted({length // 4, length // 2, max(length - 1, 0)})


def read_files(folder: Path) -> Files:
    """The files of a folder by name; none where there is no folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def write_files(folder: Path, files: Files) -> None:
    """A folder of these files alone."""
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def named(files: Files) -> Files | None:
    """The manifest and what it names: a complete save; None without a manifest."""
    if MANIFEST not in files:
        return None
    saved = json.loads(files[MANIFEST])
    entries = [*saved["draws"], *([] if saved["state"] is None else [saved["state"]])]
    names = [MANIFEST, *(entry["file"] for entry in entries)]
    return {name: files.get(name, b"missing") for name in names}


class Recording(NamedTuple):
    """A run that was recorded.

    Attributes:
        moments: of it.
        opening: what its `Storage` and `Storage.open` were called with, to open other folders.
    """

    moments: list[Moment]
    opening: tuple[dict[str, Any], tuple[Any, ...]]


def record(case: str, folder: Path) -> Recording:
    """A run of a case with a checkpoint a chunk, each of one step."""
    seen: list[tuple[dict[str, Any], tuple[Any, ...]]] = []
    real = Storage.open

    def open_storage(self: Storage, *args: Any, resume: bool) -> Any:
        seen.append((self._header, args))
        return real(self, *args, resume=resume)

    with mock.patch.object(Storage, "open", open_storage), Recorder(folder).in_force() as recorder:
        fit(case, checkpoint=folder, checkpoint_seconds=0)
    return Recording(recorder.moments, seen[0])


def opened(recording: Recording, folder: Path, files: Files) -> tuple[str, Files]:
    """What is wrong with opening a folder of these files to resume; and the files there then."""
    write_files(folder, files)
    header, args = recording.opening
    try:
        with Storage(folder, header, args[0].placement.processes, seconds=0) as storage:
            storage.open(*args, resume=True)
    except Exception as error:
        return f"not resumed: {type(error).__name__}: {error}", {}
    return "", read_files(folder)


def trials(case: str, root: Path) -> Iterator[tuple[str, str]]:
    """What is wrong after a crash at each moment, empty if nothing; and the moment.

    Args:
        case: of `tiny.CASES`.
        root: an empty folder.
    """
    whole = fit(case)
    recording = record(case, root / "run")
    _, begun = opened(recording, root / "again", {})
    ended: dict[str, str] = {}  # of a save: what was wrong at the end of the run resumed from it
    results: dict[str, str] = {}  # the same of the files of a moment: many have the same
    for moment in recording.moments:
        key = _key(moment.files)
        if key not in results:
            wrong, files = opened(recording, root / "again", moment.files)
            if not wrong and files != (expected := named(moment.files) or begun):
                names = sorted(files.keys() ^ expected.keys()) or "contents"
                wrong = f"is not the last complete save: {names}"
            if not wrong:
                save = _key(files)
                if save not in ended:
                    ended[save] = resumed(case, root / "again", whole)
                wrong = ended[save]
            results[key] = wrong
        yield results[key], f"{case}: {moment.name}"


def resumed(case: str, folder: Path, whole: dict[str, bytes]) -> str:
    """What is wrong with a run that is resumed from a folder to its end."""
    try:
        found = fit(case, checkpoint=folder, checkpoint_seconds=0, resume=True)
    except Exception as error:
        return f"not resumed: {type(error).__name__}: {error}"
    files = read_files(folder)
    if left := files.keys() - (named(files) or {}).keys():
        return f"left: {sorted(left)}"
    wrong = differing(whole, found)
    return f"differ: {wrong}" if wrong else ""


def _key(files: Files) -> str:
    return repr(sorted(files.items()))


def count(cases: tuple[str, ...]) -> Row:
    """The faults of these cases."""
    num_trials, num_wrong = 0, 0
    for case in cases:
        with tempfile.TemporaryDirectory() as root:
            found = list(trials(case, Path(root)))
        print(f"{case}: {len(found)} moments", file=sys.stderr)
        for wrong, described in found:
            num_trials += 1
            num_wrong += bool(wrong)
            if wrong:
                print(f"{described}: {wrong}", file=sys.stderr)
    note = (
        f"{len(cases)} models by their methods, seed 3, 3 steps of one chunk each; a crash before "
        "and after each creation, sync, rename and removal, and at three lengths of each write"
    )
    return fault_row("crash_points", num_wrong, num_trials, before=None, note=note)


def measure(quick: bool) -> list[Row]:
    """Crashes at every moment for every model, or for three models."""
    return [count(QUICK_CASES if quick else CASES)]
