"""A run's checkpoints: when to write them, and how to continue from one."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from functools import partial
from pathlib import Path

import numpy as np

from jaxmf.engine import checkpoint
from jaxmf.engine.bound import BoundAlgorithm, Group
from jaxmf.engine.chunk import leaf_names
from jaxmf.engine.draws import DrawStore
from jaxmf.engine.lock import FolderLock
from jaxmf.engine.memory import in_words
from jaxmf.engine.ongoing import OngoingRun
from jaxmf.engine.processes import Processes
from jaxmf.engine.result import Run, Schedule
from jaxmf.types import Key, PyTree
from jaxmf.user_warnings import warn


class CheckpointWarning(RuntimeWarning):
    """A checkpoint could not be written; the run continues without it."""


class Storage:
    """The checkpoint folder of a run.

    Args:
        path: the folder.
        header: settings, identity and environment, written in every manifest.
        processes: those of the run, of which the first alone reads and writes.
        seconds: least time between two saves.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        header: dict[str, object],
        processes: Processes,
        *,
        seconds: float,
    ):
        self.path = Path(path)
        self._header = header
        self._processes = processes
        self._folder = checkpoint.Folder(path, header)
        self._seconds = seconds
        self._last = time.perf_counter()
        self._lock: FolderLock | None = None
        self._is_failing = False

    def __enter__(self) -> Storage:
        return self

    def __exit__(self, *error: object) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def open(
        self,
        bound: BoundAlgorithm,
        keys: list[tuple[slice, Key]],
        schedule: Schedule,
        *,
        resume: bool,
    ) -> OngoingRun | None:
        """The run in the folder where it was last saved; None if it is to start anew.

        The folder is locked until this object is left as a context.

        Raises ValueError: if it is damaged or another run, or if there is one that is not to be
        continued. LockedError: if another run writes to it. OSError: if it cannot be written to.
        RuntimeError: in other processes of the run than the first, which read nothing.
        """
        manifest, arrays = self._processes.from_first(partial(self._read, schedule, resume=resume))
        if manifest is None:
            return None
        return self._restore(bound, keys, schedule, _saved(manifest, arrays))

    def _read(
        self, schedule: Schedule, *, resume: bool
    ) -> tuple[dict[str, PyTree] | None, dict[str, np.ndarray]]:
        """Manifest and named arrays of the run to continue; no manifest if it is to start anew."""
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"checkpoint: {self.path} is a file; give a folder")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = FolderLock(self.path)
            if not resume:
                checkpoint.require_empty(self.path)
            elif not checkpoint.is_fresh(self.path):
                return self._checked(schedule)
            self._folder.begin()
        except OSError as error:
            reason = error.strerror or str(error)
            raise type(error)(
                error.errno,
                f"checkpoint: the folder cannot be written to ({reason}), so the run was not "
                "started; give a folder with room where you may write",
                str(self.path),
            ) from error
        return None, {}

    def _checked(
        self, schedule: Schedule
    ) -> tuple[dict[str, PyTree] | None, dict[str, np.ndarray]]:
        saved = checkpoint.read(self.path)
        manifest = saved.manifest
        checkpoint.compare(self.path, manifest, self._header)
        self._folder.continue_from(saved)
        if manifest["state"] is None:
            return None, {}
        if manifest["num_draws"] > schedule.num_samples:
            raise ValueError(
                f"checkpoint: the run in {self.path} has {manifest['num_draws']} draws already, "
                f"more than the {schedule.num_samples} asked for"
            )
        parts = {"state": saved.arrays} | {f"{i}": draws for i, draws in enumerate(saved.draws)}
        return manifest, {
            f"{part}/{name}": array
            for part, arrays in parts.items()
            for name, array in arrays.items()
        }

    def _restore(
        self,
        bound: BoundAlgorithm,
        keys: list[tuple[slice, Key]],
        schedule: Schedule,
        saved: checkpoint.Saved,
    ) -> OngoingRun:
        manifest = saved.manifest
        groups = [
            self._restore_group(bound, index, chains, key, saved)
            for index, (chains, key) in enumerate(keys)
        ]
        num_dropped = manifest["num_dropped"]
        num_samples = schedule.num_samples - num_dropped
        is_first = self._processes.is_first
        store = DrawStore(keys[-1][0].stop, num_samples, schedule.folder, writes=is_first)
        num_saved = store.put_parts(
            [entry["num_draws"] for entry in manifest["draws"]], saved.draws
        )
        return OngoingRun(
            schedule,
            groups,
            store,
            num_dropped=num_dropped,
            seconds_before=manifest["seconds"],
            num_saved=num_saved,
        )

    def save(self, now: OngoingRun, *, at_once: bool) -> None:
        """Writes a checkpoint if one is due, or if it must be now.

        One that cannot be written (a full disk, a folder that is gone or read-only) is a
        `CheckpointWarning`, and the next one is tried when it is due.
        """
        is_due = at_once or time.perf_counter() - self._last >= self._seconds
        if not self._processes.first_value(is_due):
            return
        trees = [(group.state, group.averages) for group in now.groups]
        trees = self._processes.gather(trees)
        if not self._processes.is_first:
            return
        arrays: dict[str, np.ndarray] = {}
        for index, (state, averages) in enumerate(trees):
            arrays |= checkpoint.pack(f"state-{index}", state, leaf_names(state))
            arrays |= checkpoint.pack(f"average-{index}", averages, sorted(averages))
        progress = {
            "step": now.step,
            "num_draws": now.schedule.num_draws(now.step),
            "num_dropped": now.num_dropped,
            "complete": now.step >= now.schedule.num_steps,
            "seconds": now.seconds,
            "capacity": [dict(group.capacity) for group in now.groups],
        }
        stop = now.num_stored
        draws = now.store.get(now.num_saved, stop)
        self._last = time.perf_counter()
        try:
            self._folder.save(progress, arrays, draws, stop - now.num_saved)
        except checkpoint.SaveError as error:
            # once for each time that it begins to fail, and at the end
            if at_once or not self._is_failing:
                self._warn(error, now, is_last=at_once)
            self._is_failing = True
            return
        now.num_saved = stop
        self._last, self._is_failing = time.perf_counter(), False

    def _warn(self, error: checkpoint.SaveError, now: OngoingRun, *, is_last: bool) -> None:
        free = ""
        with contextlib.suppress(OSError):
            free = f" and the folder has {in_words(shutil.disk_usage(self.path).free)} free"
        following = (
            "The run ends here and its draws are returned: save them elsewhere. Once there is "
            "room, resume=True continues"
            if is_last
            else "The run continues and tries again at the next checkpoint; if it is stopped "
            "before, resume=True continues"
        )
        what = (
            f"It needs {in_words(error.num_bytes)}{free}. {following} from step "
            f"{self._folder.step}, which {self.path} holds"
            if self.path.is_dir()
            else f"The folder {self.path} is gone, and the checkpoints with it: save the draws "
            "that the run returns elsewhere"
        )
        warn(
            f"the checkpoint of step {now.step} could not be written: {error.file}: "
            f"{error.strerror}. {what}",
            CheckpointWarning,
        )

    def _restore_group(
        self, bound: BoundAlgorithm, index: int, chains: slice, key: Key, saved: checkpoint.Saved
    ) -> Group:
        capacity = saved.manifest["capacity"][index]
        state, averages = bound.shapes(key)
        axes = sorted(bound.capacity(state))
        if sorted(capacity) != axes:
            raise ValueError(
                f"checkpoint: the state in {self.path} has the growing axes {sorted(capacity)}, "
                f"and this algorithm's has {axes}; it was written by another algorithm"
            )
        state, averages = bound.shapes(key, capacity)
        tree = (
            checkpoint.unpack(self.path, f"state-{index}", saved.arrays, state, leaf_names(state)),
            checkpoint.unpack(
                self.path, f"average-{index}", saved.arrays, averages, sorted(averages)
            ),
        )
        state, averages = bound.placement.put_group(*tree)
        return Group(chains, key, state, averages, saved.manifest["step"], capacity)


def _saved(manifest: dict[str, PyTree], arrays: dict[str, np.ndarray]) -> checkpoint.Saved:
    """The object that was stored, from its arrays by the names that `Storage` gave them."""
    parts: dict[str, dict[str, np.ndarray]] = {}
    for label, array in arrays.items():
        part, _, name = label.partition("/")
        parts.setdefault(part, {})[name] = array
    draws = [parts.get(f"{index}", {}) for index in range(len(manifest["draws"]))]
    return checkpoint.Saved(manifest, parts.get("state", {}), draws)


def load_run(path: str | os.PathLike[str]) -> tuple[Run, dict[str, object]]:
    """A run read back from its checkpoint folder, without its algorithm.

    Args:
        path: the folder.
    Returns:
        The Run as far as it got, with draws and averages and no state, and the identity it was
        started with.
    Raises:
        ValueError: if the folder holds no checkpoint, or a damaged one.
    """
    saved = checkpoint.read(path)
    manifest, settings = saved.manifest, saved.manifest["settings"]
    num_stored = sum(entry["num_draws"] for entry in manifest["draws"])
    store = DrawStore(settings["num_chains"], num_stored)
    store.put_parts([entry["num_draws"] for entry in manifest["draws"]], saved.draws)
    capacities = manifest["capacity"] or [{}]
    run = Run(
        draws=store.get(0, num_stored),
        averages=_averages(saved.arrays, batched=settings["chain_method"] == "vectorized"),
        state=None,
        num_steps=manifest["step"],
        num_warmup=settings["num_warmup"],
        complete=manifest["complete"],
        seconds=manifest["seconds"],
        capacity={axis: max(c[axis] for c in capacities) for axis in capacities[0]},
        num_draws=manifest["num_draws"],
        thin=settings["thin"],
    )
    return run, manifest["identity"]


def _averages(arrays: dict[str, np.ndarray], *, batched: bool) -> dict[str, np.ndarray]:
    chains: dict[str, dict[int, np.ndarray]] = {}
    for label, values in arrays.items():
        kind, _, rest = label.partition("-")
        if kind == "average":
            group, _, name = rest.split(".", 2)
            chains.setdefault(name, {})[int(group)] = values
    found = {}
    for name, parts in chains.items():
        pieces = [parts[0]] if batched else [parts[group][None] for group in sorted(parts)]
        store = DrawStore(sum(len(piece) for piece in pieces), 1)
        start = 0
        for piece in pieces:
            store.put(slice(start, start + len(piece)), 0, {name: piece[:, None]})
            start += len(piece)
        found[name] = store.arrays[name][:, 0]
    return found
