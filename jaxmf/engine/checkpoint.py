"""Checkpoints: a folder of npz files and one manifest that alone says which of them count.

A save writes the new draws, then the state, then the manifest, each under a temporary name, synced
and renamed. Killed at any moment, the folder holds the last complete save; files a manifest does
not name are left-overs and are removed at the next start. Nothing is ever pickled.

A long run would leave a file of draws for every save, so small ones at the end are merged: the file
of all their draws is written, then the manifest that names it instead of them, and then they are
removed. It is eight times as large as its largest part, so that no draw is written more than a few
times however long the run. Whoever reads the folder meanwhile starts again with the new manifest.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.engine import checkpoint_fields, files, manifest
from jaxmf.engine.draws import DrawStore
from jaxmf.engine.lock import LOCK
from jaxmf.types import PyTree, is_key

FORMAT = 2
MANIFEST = "checkpoint.json"
_OURS = re.compile(r"(state|draws)-\d+(-\d+)?\.npz|.*\.partial")
# Files of draws that are merged: no fewer, no more bytes together, the largest no larger a part.
_FEWEST_MERGED = 16
_MOST_MERGED = 64 * 2**20
_LARGEST_PART = 1 / 8
_MOST_SHOWN = 4  # numbers of an array that a difference prints


class Saved(NamedTuple):
    """A checkpoint as it lies on disk."""

    manifest: dict[str, Any]  # the parsed manifest
    arrays: dict[str, np.ndarray]  # the arrays of the state file; empty when there is no state yet
    draws: list[dict[str, np.ndarray]]  # one dict a file, name -> (chains, rows, ...)


class SaveError(OSError):
    """A checkpoint could not be written.

    Attributes:
        file: what could not be written.
        num_bytes: that the new files need together.
    """

    def __init__(self, folder: Path, name: str, num_bytes: int, error: OSError):
        self.file, self.num_bytes = folder / name, num_bytes
        super().__init__(error.errno, error.strerror or str(error), str(self.file))


class Folder:
    """One checkpoint folder, being written.

    Args:
        path: the folder; it must exist before anything is written.
        header: what every manifest of this run holds: settings, identity, environment.
    """

    def __init__(self, path: str | os.PathLike[str], header: dict[str, object]):
        self.path = Path(path)
        self._header = header
        self._draw_files: list[dict[str, Any]] = []
        self._state_file: dict[str, Any] | None = None
        self._progress: dict[str, Any] = {
            "step": 0,
            "num_draws": 0,
            "num_dropped": 0,
            "complete": False,
            "seconds": 0.0,
            "capacity": [],
        }

    @property
    def step(self) -> int:
        """The step of the last save."""
        return self._progress["step"]

    def begin(self) -> None:
        """Writes a manifest that says nothing is done yet, and removes left-overs."""
        self._remove_leftovers()
        self._write_manifest()

    def continue_from(self, saved: Saved) -> None:
        """Continues after a checkpoint that was read, and removes left-overs."""
        self._draw_files = list(saved.manifest["draws"])
        self._state_file = saved.manifest["state"]
        self._progress = {name: saved.manifest[name] for name in self._progress}
        self._remove_leftovers()

    def save(
        self,
        progress: dict[str, object],
        arrays: dict[str, np.ndarray],
        draws: dict[str, np.ndarray],
        num_draws: int,
    ) -> None:
        """One save: new draws, state, manifest, in this order.

        What was saved at this very step already is not written again, but for the manifest.

        Args: progress: what the manifest says of this moment: step, num_draws, complete, capacity;
        draws: the draws since the last save, name -> (chains, num_draws, ...).
        Raises SaveError: something could not be written; the folder holds the save before it, and
        nothing of this one.
        """
        before = self._draw_files, self._state_file, self._progress
        name = "the draws"
        try:
            if self._state_file is not None and progress["step"] == self.step:
                self._progress = {**progress, "capacity": self._progress["capacity"]}
            else:
                if num_draws:
                    name = _name_of_draws(self._num_stored, num_draws)
                    record = files.write_arrays(self.path, name, draws)
                    self._draw_files = [*self._draw_files, {**record, "num_draws": num_draws}]
                name = f"state-{progress['step']}.npz"
                self._state_file = files.write_arrays(self.path, name, arrays)
                self._progress = progress
            name = MANIFEST
            self._write_manifest()
        except OSError as error:
            self._undo(before)
            num_bytes = sum(x.nbytes for x in (*arrays.values(), *draws.values()))
            raise SaveError(self.path, name, num_bytes, error) from error
        with contextlib.suppress(OSError):
            if before[1] is not None and before[1] != self._state_file:
                (self.path / before[1]["file"]).unlink(missing_ok=True)
        self._merge()

    @property
    def _num_stored(self) -> int:
        return sum(entry["num_draws"] for entry in self._draw_files)

    def _num_small(self) -> int:
        """How many of the last files of draws are to be merged."""
        found = num_bytes = largest = 0
        for count, entry in enumerate(reversed(self._draw_files), 1):
            num_bytes += entry["bytes"]
            largest = max(largest, entry["bytes"])
            if num_bytes >= _MOST_MERGED:
                break
            if count >= _FEWEST_MERGED and largest <= _LARGEST_PART * num_bytes:
                found = count
        return found

    def _merge(self) -> None:
        """Small files of draws at the end into one; where that fails they stay as they are."""
        before = self._draw_files, self._state_file, self._progress
        first = len(self._draw_files) - self._num_small()
        rest, small = self._draw_files[:first], self._draw_files[first:]
        if not small:
            return
        try:
            parts = [files.read_arrays(self.path, entry) for entry in small]
            num_draws = sum(entry["num_draws"] for entry in small)
            store = DrawStore(len(next(iter(parts[0].values()), ())), num_draws)
            store.put_parts([entry["num_draws"] for entry in small], parts)
            name = _name_of_draws(self._num_stored - num_draws, num_draws)
            record = files.write_arrays(self.path, name, store.arrays)
            self._draw_files = [*rest, {**record, "num_draws": num_draws}]
            self._write_manifest()
        except (OSError, files.DamagedFileError):
            self._undo(before)
            return
        for entry in small:
            with contextlib.suppress(OSError):
                (self.path / entry["file"]).unlink(missing_ok=True)

    def _undo(self, before: tuple[Any, Any, Any]) -> None:
        """Takes back a save or a merge that failed, unless its manifest is there already."""
        with contextlib.suppress(ValueError, OSError):
            there = _read_manifest(self.path)
            now = self._draw_files, self._state_file, self._progress
            saved = there["draws"], there["state"], {name: there[name] for name in self._progress}
            if now == saved != before:
                return
        self._draw_files, self._state_file, self._progress = before
        with contextlib.suppress(OSError):
            self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        entries = [*self._draw_files, *([] if self._state_file is None else [self._state_file])]
        counted = {entry["file"] for entry in entries}
        for file in self.path.iterdir():
            is_folder = file.is_dir() and not file.is_symlink()
            if _OURS.fullmatch(file.name) and file.name not in counted and not is_folder:
                file.unlink()

    def _write_manifest(self) -> None:
        content = {
            "format": FORMAT,
            **self._progress,
            "state": self._state_file,
            "draws": self._draw_files,
            **self._header,
        }
        manifest.write(self.path / MANIFEST, content)


def is_fresh(path: Path) -> bool:
    """Whether nothing was saved in the folder: it holds no checkpoint or data.

    Raises ValueError: if it holds files but no manifest.
    """
    names = [entry.name for entry in _content(path) if not entry.name.endswith(".partial")]
    if MANIFEST in names:
        return False
    if names:
        raise ValueError(
            f"checkpoint: the folder {path} has no {MANIFEST} but other files "
            f"({', '.join(sorted(names)[:3])}); it is not a checkpoint, or its manifest is lost. "
            "Give another folder, or remove it and start anew"
        )
    return True


def require_empty(path: Path) -> None:
    """Refuses a folder in which a new run would mix with an earlier one."""
    if _content(path):
        raise ValueError(
            f"checkpoint: the folder {path} is not empty; pass resume=True to continue the run "
            "in it, or give another folder"
        )


def _content(path: Path) -> list[Path]:
    """Paths in the folder, without the lock of a run."""
    return [entry for entry in path.iterdir() if entry.name != LOCK]


def read(path: str | os.PathLike[str]) -> Saved:
    """Reads a checkpoint.

    Raises ValueError: if the manifest or a file that it names is missing, damaged, a link, or not
    what the manifest says; the message names file and key.
    """
    path = Path(path)
    found = _read_manifest(path)
    while True:
        state = found["state"]
        try:
            return Saved(
                manifest=found,
                arrays={} if state is None else files.read_arrays(path, state),
                draws=[files.read_arrays(path, entry) for entry in found["draws"]],
            )
        except FileNotFoundError as error:  # a run saved meanwhile, and removed what it replaced
            before, found = found, _read_manifest(path)
            if found == before:
                raise _damaged(error) from None
        except files.DamagedFileError as error:
            raise _damaged(error) from None


def compare(
    path: str | os.PathLike[str], saved: Mapping[str, Any], header: Mapping[str, Any]
) -> None:
    """Checks that a checkpoint belongs to the run that continues it.

    Settings and identity must agree; another environment (versions, flags, device) is a warning,
    because the draws may then differ in the last bits.

    Raises:
        ValueError: naming everything that differs.
    """
    differing = []
    for part in ("settings", "identity"):
        differing += _differences(saved.get(part) or {}, header.get(part) or {})
    if differing:
        raise ValueError(
            f"checkpoint: the run in {Path(path)} is another one: {'; '.join(differing)}. "
            "Use what it was started with, or another folder"
        )
    changed = _differences(saved.get("environment") or {}, header.get("environment") or {})
    if changed:
        warnings.warn(
            f"the checkpoint in {Path(path)} was written in another environment: "
            f"{'; '.join(changed)}. The run continues, but not bit for bit as it would have there",
            stacklevel=3,
        )


def pack(prefix: str, tree: PyTree, names: list[str]) -> dict[str, np.ndarray]:
    """A tree as named numpy arrays; random keys as their words."""
    packed = {}
    for index, (name, leaf) in enumerate(zip(names, jax.tree.leaves(tree), strict=True)):
        if is_key(leaf):
            leaf = jax.random.key_data(leaf)
        packed[f"{prefix}.{index:03d}.{name}"] = np.asarray(leaf)
    return packed


def unpack(
    path: str | os.PathLike[str],
    prefix: str,
    arrays: dict[str, np.ndarray],
    shapes: PyTree,
    names: list[str],
) -> PyTree:
    """The tree of these shapes from what `pack` made.

    Raises ValueError: if names, shapes or dtypes are not those.
    """
    expected = [f"{prefix}.{index:03d}.{name}" for index, name in enumerate(names)]
    there = [name for name in arrays if name.startswith(f"{prefix}.")]
    if sorted(there) != sorted(expected):
        raise ValueError(
            f"checkpoint: the state in {Path(path)} has the parts {sorted(there)}, and this "
            f"algorithm's has {sorted(expected)}; it was written by another algorithm or version"
        )
    leaves, structure = jax.tree.flatten(shapes)
    restored = [
        _restore(f"{Path(path)}: {name}", arrays[name], leaf)
        for name, leaf in zip(expected, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, restored)


def _restore(label: str, values: np.ndarray, expected: jax.ShapeDtypeStruct) -> PyTree:
    if is_key(expected):
        impl, dtype = expected.dtype._impl, values.dtype
        has_words = values.shape == (*expected.shape, *impl.key_shape) and dtype == np.uint32
        shape = expected.shape if has_words else values.shape
        restored: Any = values
        if has_words:
            restored = jax.random.wrap_key_data(jnp.asarray(values), impl=impl.name)
            dtype = restored.dtype
    else:
        if values.dtype.kind == "V" and values.dtype.itemsize == expected.dtype.itemsize:
            values = values.view(expected.dtype)  # npz knows no bfloat16
        restored, shape, dtype = values, values.shape, values.dtype
    if shape != expected.shape or dtype != expected.dtype:
        raise ValueError(
            f"checkpoint: {label} is {dtype}{list(shape)}, and this algorithm's is "
            f"{expected.dtype}{list(expected.shape)}; it was written by another algorithm, for "
            "other data, or with another setting of x64"
        )
    return restored


def _differences(saved: Mapping[str, object], current: Mapping[str, object]) -> list[str]:
    saved, current = json.loads(json.dumps(saved)), json.loads(json.dumps(current))
    found = []
    for name in sorted(set(saved) | set(current)):
        before, now = saved.get(name), current.get(name)
        if isinstance(before, dict) and isinstance(now, dict):
            found += [f"{name} {line}" for line in _differences(before, now)]
        elif _is_digest(before) and _is_digest(now) and before != now:
            found.append(f"{name.replace('_', ' ')} differ in a value or an id")
        elif before != now and _is_long(before) and _is_long(now):
            found.append(f"{name.replace('_', ' ')} has other numbers")
        elif before != now:
            was, is_now = (_shown(name, each) for each in (before, now))
            found.append(f"{name.replace('_', ' ')} was {was} and is now {is_now}")
    return found


def _is_long(value: object) -> bool:
    """Whether it is an array, such as the offset of every column, which nobody compares by eye."""
    return isinstance(value, list) and len(value) > _MOST_SHOWN


def _shown(name: str, value: object) -> str:
    """A value of a setting as a message shows it."""
    if _is_long(value):
        return "an array"
    return repr(_seed(value) if name == "seed" else value)


def _is_digest(value: object) -> bool:
    """Whether it is a check sum, which says nothing to a reader."""
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) is not None


def _seed(words: object) -> object:
    """A seed as it was given, from the words of its key where these are of the usual generator."""
    match words:
        case ["threefry2x32", int(high), int(low)]:
            return (high << 32) + low
    return words


def _damaged(error: Exception) -> ValueError:
    advice = "The checkpoint is damaged: remove the folder and start anew"
    if isinstance(error, files.OtherFormatError):
        advice = "Use the version of jaxmf that wrote it, or remove the folder and start anew"
    return ValueError(f"checkpoint: {error}. {advice}")


def _read_manifest(path: Path) -> dict[str, Any]:
    file = path / MANIFEST
    try:
        found = manifest.read(file, version=FORMAT)
        checkpoint_fields.check(file, found)
    except FileNotFoundError:
        raise ValueError(
            f"checkpoint: there is no {MANIFEST} in {path}; it is not a checkpoint"
        ) from None
    except files.DamagedFileError as error:
        raise _damaged(error) from None
    return found


def _name_of_draws(row: int, num_draws: int) -> str:
    """The file of `num_draws` draws, the first of them the stored draw `row`."""
    return f"draws-{row}-{row + num_draws}.npz"
