"""Folders changed on purpose: nothing outside is touched and nothing is executed."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import Row
from benchmarks.robustness import fault_row
from benchmarks.robustness.saved import MODELS, QUICK_MODELS, Saved, outcome, read_files, saved_runs
from benchmarks.robustness.tampers import TAMPERS, Tamper, is_run

MEMORY = 300 * 2**20  # bytes more than before that count as a fault
FAULTS = ("executed", "touched", "memory", "silent", "foreign", "hang")
# what the interpreter reports when a program is started, a pickle opened or a connection made
_EXECUTION = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "pickle.find_class")
_EXECUTION += ("socket.connect", "ctypes.dlopen", "code.__new__")


class Watch:
    """Notes what the interpreter does while it is on: code of a file, and paths of a folder.

    Code that a file holds names the folder outside, which tells it from that of dataclasses,
    type hints and headers of arrays. An audit hook cannot be removed, so that there is one,
    switched on and off.
    """

    def __init__(self) -> None:
        self._outside: str | None = None
        self.events: list[str] = []
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._outside is None:
            return
        is_code = event in ("compile", "exec") and self._outside in _text_of(arguments[0])
        if event in _EXECUTION or is_code:
            self.events.append(f"executed: {event} {str(arguments)[:80]}")
        elif event.startswith(("open", "os.", "shutil.")) and any(
            isinstance(argument, str | bytes | Path) and self._outside in str(argument)
            for argument in arguments
        ):
            self.events.append(f"touched: {event} {str(arguments)[:120]}")

    @contextmanager
    def on(self, outside: Path) -> Iterator[None]:
        """Notes events until the end of the block; what is in `outside` must not be reached."""
        self.events, self._outside = [], str(outside)
        try:
            yield
        finally:
            self._outside = None


def _text_of(code: Any) -> str:
    """The source, or the constants of what is compiled already."""
    return str(getattr(code, "co_consts", code))


def tampered(saved: Saved, tamper: Tamper, watch: Watch) -> tuple[str, str] | None:
    """What one tampered folder does when it is read and then saved over: a fault or ``refused``.

    None if the tamper is not for this kind of folder.
    """
    saved.restore()
    outside = saved.folder.parent / "outside"
    shutil.rmtree(outside, ignore_errors=True)
    outside.mkdir()
    source = next(saved.folder.glob("draws-*.npz"))
    victims = [outside / "victim.npz", saved.folder.parent / "victim.npz"]
    for victim in victims:
        shutil.copy(source, victim)
    if tamper(saved.folder, outside) is False:
        return None
    before = read_files(outside) | {"beside": victims[1].read_bytes()}
    start = harness.reset_peak()
    with watch.on(outside):
        found, words = outcome(saved)
    if start is not None and harness.resident("VmHWM") - start > MEMORY:
        return "memory", words
    if is_run(saved.folder):
        saved.posterior.save(saved.folder)  # the files named before are removed
    after = {"beside": victims[1].read_bytes() if victims[1].exists() else b""}
    if watch.events or (outside / "executed").exists():
        kind, _, event = (watch.events or ["executed: a file was written"])[0].partition(": ")
        return kind, event
    if before != read_files(outside) | after:
        return "touched", "a file outside"
    return found, words


def count(names: tuple[str, ...]) -> tuple[Counter[str], int]:
    """Outcomes of all tampers of all folders; what is a fault is printed as it is met."""
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        runs, watch = saved_runs(Path(folder), names), Watch()
        for saved in runs:
            for name, tamper in TAMPERS.items():
                found = tampered(saved, tamper, watch)
                if found is None:
                    continue
                total[found[0]] += 1
                if found[0] in FAULTS:
                    print(f"{saved.name} {name}: {': '.join(found)[:300]}", file=sys.stderr)
            saved.restore()
    return total, total.total()


def measure(quick: bool) -> list[Row]:
    """Faults of each kind over all tampered folders."""
    total, number = count(QUICK_MODELS if quick else tuple(MODELS))
    note = (
        f"functions, file names, links, archives and numbers with right check sums; no randomness; "
        f"refused {total['refused']}, without effect {total['same']}; at a96d6f3 a function name "
        "ran code, and names of files outside were read and deleted"
    )
    return [
        fault_row(f"tampered/{kind}", total[kind], number, before=None, note=note)
        for kind in FAULTS
    ]
