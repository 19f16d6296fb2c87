"""Checkpoints: a folder of npz files and one manifest that alone says which of them count.

A save writes the new draws, then the state, then the manifest, each under a temporary name, synced
and renamed. Killed at any moment, the folder holds the last complete save; files a manifest does
not name are left-overs and are removed at the next start. Nothing is ever pickled.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.types import PyTree

FORMAT = 1
MANIFEST = "checkpoint.json"
_OURS = re.compile(r"(state|draws)-\d+\.npz|.*\.partial")


class Saved(NamedTuple):
    """A checkpoint as it lies on disk.

    Attributes:
        manifest: the parsed manifest.
        arrays: the arrays of the state file; empty when there is no state yet.
        draws: one dict a file, name -> (chains, rows, ...).
    """

    manifest: dict[str, Any]
    arrays: dict[str, np.ndarray]
    draws: list[dict[str, np.ndarray]]


class Folder:
    """One checkpoint folder, being written.

    Args:
        path: the folder, made if there is none.
        header: what every manifest of this run holds: settings, identity, environment.
    """

    def __init__(self, path: str | os.PathLike, header: dict[str, Any]):
        self.path = Path(path)
        self._header = header
        self._draw_files: list[dict[str, Any]] = []
        self._state_file: str | None = None

    def begin(self) -> None:
        """Makes the folder and a manifest that says nothing is done yet."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._write_manifest({"step": 0, "num_draws": 0, "complete": False})

    def continue_from(self, saved: Saved) -> None:
        """Goes on after a checkpoint that was read, and removes left-overs."""
        self._draw_files = list(saved.manifest["draws"])
        self._state_file = saved.manifest["state"]
        counted = {entry["file"] for entry in self._draw_files} | {self._state_file}
        for file in self.path.iterdir():
            if _OURS.fullmatch(file.name) and file.name not in counted:
                file.unlink()

    def save(
        self,
        progress: dict[str, Any],
        arrays: dict[str, np.ndarray],
        draws: dict[str, np.ndarray],
        num_draws: int,
    ) -> None:
        """One save: new draws, state, manifest, in this order.

        Args:
            progress: what the manifest says of this moment: step, num_draws, complete, capacity.
            arrays: the state, by name.
            draws: the draws since the last save, name -> (chains, num_draws, ...).
            num_draws: how many they are.
        """
        if num_draws:
            name = f"draws-{len(self._draw_files)}.npz"
            _write_arrays(self.path / name, draws)
            self._draw_files.append({"file": name, "num_draws": num_draws})
        before, self._state_file = self._state_file, f"state-{progress['step']}.npz"
        _write_arrays(self.path / self._state_file, arrays)
        self._write_manifest(progress)
        if before is not None and before != self._state_file:
            (self.path / before).unlink(missing_ok=True)

    def _write_manifest(self, progress: dict[str, Any]) -> None:
        manifest = {
            "format": FORMAT,
            **progress,
            "state": self._state_file,
            "draws": self._draw_files,
            **self._header,
        }
        text = json.dumps(manifest, indent=1)
        _write(self.path / MANIFEST, lambda file: file.write(text.encode()))


def is_fresh(path: str | os.PathLike) -> bool:
    """Whether nothing was saved in the folder: it is not there, or holds no checkpoint or data.

    Raises:
        ValueError: if it holds files but no manifest, or is no folder.
    """
    path = Path(path)
    if not path.exists():
        return True
    if not path.is_dir():
        raise ValueError(f"checkpoint: {path} is a file; give a folder")
    names = [entry.name for entry in path.iterdir() if not entry.name.endswith(".partial")]
    if MANIFEST in names:
        return False
    if names:
        raise ValueError(
            f"checkpoint: the folder {path} has no {MANIFEST} but other files "
            f"({', '.join(sorted(names)[:3])}); it is not a checkpoint, or its manifest is lost. "
            "Give another folder, or remove it and start anew"
        )
    return True


def require_empty(path: str | os.PathLike) -> None:
    """Refuses a folder in which a new run would mix with an earlier one.

    Raises:
        ValueError: if there is anything in it.
    """
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise ValueError(f"checkpoint: {path} is a file; give a folder")
    if path.exists() and any(path.iterdir()):
        raise ValueError(
            f"checkpoint: the folder {path} is not empty; pass resume=True to go on with the run "
            "in it, or give another folder"
        )


def read(path: str | os.PathLike) -> Saved:
    """Reads a checkpoint.

    Raises:
        ValueError: if the manifest is missing or broken, or a file it names is.
    """
    path = Path(path)
    manifest = _read_manifest(path)
    state = manifest["state"]
    arrays = {} if state is None else _read_arrays(path / state)
    draws = []
    for entry in manifest["draws"]:
        piece = _read_arrays(path / entry["file"])
        wrong = [name for name, x in piece.items() if x.shape[1] != entry["num_draws"]]
        if wrong:
            raise ValueError(
                f"checkpoint: {path / entry['file']} should hold {entry['num_draws']} draws of "
                f"{wrong[0]!r} and holds {piece[wrong[0]].shape[1]}; the checkpoint is damaged"
            )
        draws.append(piece)
    return Saved(manifest=manifest, arrays=arrays, draws=draws)


def compare(path: str | os.PathLike, saved: dict[str, Any], header: dict[str, Any]) -> None:
    """Checks that a checkpoint belongs to the run that wants to go on with it.

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
            f"{'; '.join(changed)}. The run goes on, but not bit for bit as it would have there",
            stacklevel=3,
        )


def pack(prefix: str, tree: PyTree, names: list[str]) -> dict[str, np.ndarray]:
    """A tree as named numpy arrays; random keys as their words."""
    packed = {}
    for index, (name, leaf) in enumerate(zip(names, jax.tree.leaves(tree), strict=True)):
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        packed[f"{prefix}.{index:03d}.{name}"] = np.asarray(leaf)
    return packed


def unpack(
    path: str | os.PathLike,
    prefix: str,
    arrays: dict[str, np.ndarray],
    shapes: PyTree,
    names: list[str],
) -> PyTree:
    """The tree of these shapes from what `pack` made.

    Raises:
        ValueError: if names, shapes or dtypes are not those.
    """
    wanted = [f"{prefix}.{index:03d}.{name}" for index, name in enumerate(names)]
    there = [name for name in arrays if name.startswith(f"{prefix}.")]
    if sorted(there) != sorted(wanted):
        raise ValueError(
            f"checkpoint: the state in {Path(path)} has the parts {sorted(there)}, and this "
            f"algorithm's has {sorted(wanted)}; it was written by another algorithm or version"
        )
    leaves, structure = jax.tree.flatten(shapes)
    restored = [
        _restore(f"{Path(path)}: {name}", arrays[name], leaf)
        for name, leaf in zip(wanted, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, restored)


def _restore(label: str, values: np.ndarray, wanted: jax.ShapeDtypeStruct) -> Any:
    if jax.dtypes.issubdtype(wanted.dtype, jax.dtypes.prng_key):
        shape, dtype = values.shape[: len(wanted.shape)], wanted.dtype
        restored: Any = jax.random.wrap_key_data(jnp.asarray(values), impl=wanted.dtype._impl.name)
    else:
        if values.dtype.kind == "V" and values.dtype.itemsize == wanted.dtype.itemsize:
            values = values.view(wanted.dtype)  # npz knows no bfloat16
        restored, shape, dtype = values, values.shape, values.dtype
    if shape != wanted.shape or dtype != wanted.dtype:
        raise ValueError(
            f"checkpoint: {label} is {dtype}{list(shape)}, and this algorithm's is "
            f"{wanted.dtype}{list(wanted.shape)}; it was written by another algorithm, for other "
            "data, or with another setting of x64"
        )
    return restored


def _differences(saved: dict[str, Any], given: dict[str, Any]) -> list[str]:
    saved, given = json.loads(json.dumps(saved)), json.loads(json.dumps(given))
    found = []
    for name in sorted(set(saved) | set(given)):
        before, now = saved.get(name), given.get(name)
        if isinstance(before, dict) and isinstance(now, dict):
            found += [f"{name} {line}" for line in _differences(before, now)]
        elif before != now:
            found.append(f"{name.replace('_', ' ')} was {before!r} and is now {now!r}")
    return found


def _read_manifest(path: Path) -> dict[str, Any]:
    file = path / MANIFEST
    if not file.is_file():
        raise ValueError(f"checkpoint: there is no {MANIFEST} in {path}; it is not a checkpoint")
    try:
        manifest = json.loads(file.read_text())
        complete = isinstance(manifest, dict) and {
            "format",
            "step",
            "num_draws",
            "complete",
            "state",
            "draws",
            "settings",
        } <= set(manifest)
    except (ValueError, OSError):
        complete = False
    if not complete:
        raise ValueError(
            f"checkpoint: {file} cannot be read as a manifest; the checkpoint is damaged. "
            "Remove the folder and start anew"
        )
    if manifest["format"] != FORMAT:
        raise ValueError(
            f"checkpoint: {file} has format {manifest['format']}, and this version reads {FORMAT}"
        )
    return manifest


def _read_arrays(file: Path) -> dict[str, np.ndarray]:
    try:
        # opened here: numpy leaves a broken archive open
        with open(file, "rb") as content, np.load(content, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        reason = "is missing"
    except Exception as error:  # a damaged archive raises whatever zipfile or numpy meet first
        reason = f"cannot be read ({type(error).__name__}: {error})"
    raise ValueError(f"checkpoint: {file} {reason}; the checkpoint is damaged")


def _write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    _write(path, lambda file: np.savez(file, allow_pickle=False, **arrays))


def _write(path: Path, write: Any) -> None:
    partial = path.with_name(path.name + ".partial")
    with open(partial, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    # the new name must be on disk before anything that relies on it
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
