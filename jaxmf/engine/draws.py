"""Kept draws on the host, zero-padded to the largest shape any of them has."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np

from jaxmf.arguments import check_path
from jaxmf.engine.processes import Processes


class DrawStore:
    """Draws of all chains, filled from the left, with room for `num_samples` of each.

    The room is reserved at once but the system hands out pages only as they are written.

    Args:
        folder: where the draws lie in files, `NAME.npy`, of which memory holds what is in use;
            None: in memory.
        writes: whether this process writes them there; if not it maps, at the end, what another
            one has written.
    """

    def __init__(
        self, num_chains: int, num_samples: int, folder: Path | None = None, *, writes: bool = True
    ):
        self.num_chains = num_chains
        self.num_samples = num_samples
        self._folder = folder
        self._writes = writes or folder is None
        self.arrays: dict[str, np.ndarray] = {}

    def put(self, chains: slice, start: int, draws: dict[str, np.ndarray]) -> None:
        """Writes (chains, rows, ...) draws at rows `start` and on."""
        for name, values in draws.items():
            target = self._room(name, values.shape[2:], values.dtype)
            if not self._writes:
                continue
            rows = slice(start, start + values.shape[1])
            cells = tuple(slice(0, size) for size in values.shape[2:])
            target[(chains, rows, *cells)] = values

    def put_parts(self, num_rows: Sequence[int], parts: Sequence[dict[str, np.ndarray]]) -> int:
        """Writes draws of all chains, part after part, and returns how many rows they are.

        Args: num_rows: of each part.
        """
        row = 0
        for count, draws in zip(num_rows, parts, strict=True):
            self.put(slice(None), row, draws)
            row += count
        return row

    def get(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """The draws from row `start` up to `stop`, (chains, rows, ...)."""
        if not self._writes:
            self.arrays = {name: self._written(name, room) for name, room in self.arrays.items()}
        return {name: values[:, start:stop] for name, values in self.arrays.items()}

    def flush(self) -> None:
        """Hands what was written to the system, for other processes to read."""
        for room in self.arrays.values():
            if isinstance(room, np.memmap):
                room.flush()

    def _written(self, name: str, room: np.ndarray) -> np.ndarray:
        """Draws that another process has written, changed in memory alone."""
        if room.size == 0:
            return np.zeros(room.shape, room.dtype)
        return np.load(self._path(name), mmap_mode="c")

    def reserve(self, shapes: dict[str, tuple[tuple[int, ...], np.dtype]]) -> None:
        """Makes room for draws of these shapes and dtypes."""
        for name, (shape, dtype) in shapes.items():
            self._room(name, shape, dtype)

    def _room(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        have = self.arrays.get(name)
        if have is not None:
            shape = tuple(np.maximum(have.shape[2:], shape).tolist())
            dtype = np.promote_types(have.dtype, dtype)
            if have.shape[2:] == shape and have.dtype == dtype:
                return have
        room = self._zeros(name, (self.num_chains, self.num_samples, *shape), dtype)
        if have is not None and self._writes:
            room[(slice(None), slice(None), *(slice(0, size) for size in have.shape[2:]))] = have
        self.arrays[name] = room
        return room

    def _zeros(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        if not self._writes:
            return np.broadcast_to(np.zeros((), dtype), shape)  # takes no memory
        if self._folder is None or 0 in shape:
            return np.zeros(shape, dtype)
        path = self._path(name)
        # beside the one of fewer slots, which is read until all of it is in this
        new = path.with_name(f".{path.name}.partial")
        room = np.lib.format.open_memmap(new, mode="w+", dtype=dtype, shape=shape)
        os.replace(new, path)
        return room

    def _path(self, name: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{quote(name, safe='')}.npy"


_MARK = ".shared"  # by which other processes see that the folder is the same


def draws_folder(
    path: str | os.PathLike[str] | None, processes: Processes, *, resume: bool
) -> Path | None:
    """The folder that draws are to lie in, made by the first process; None where there is none.

    Raises:
        ValueError: it is a file, or holds something, and no run is resumed; or not all processes
            see it.
        RuntimeError: in other processes than the first, where that has raised something.
    """
    if path is None:
        return None
    folder = Path(check_path("draws_folder", path))
    mark = folder / _MARK

    def make() -> tuple[None, dict[str, np.ndarray]]:
        _made(folder, resume=resume)
        if processes.are_several:
            mark.touch()
        return None, {}

    processes.from_first(make)
    is_hidden = processes.any_of(processes.are_several and not mark.exists())
    if processes.is_first:
        mark.unlink(missing_ok=True)
    if is_hidden:
        raise ValueError(
            f"draws_folder: some process of jax.distributed does not see {folder} as the first one "
            "made it; give a folder of a file system that all share, or leave it out"
        )
    return folder


def _made(folder: Path, *, resume: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"draws_folder: {folder} is a file; give a folder")
    folder.mkdir(parents=True, exist_ok=True)
    # a mark may be left of a run that was killed between making and removing it
    if not resume and any(path.name != _MARK for path in folder.iterdir()):
        raise ValueError(
            f"draws_folder: {folder} is not empty, and draws there may be in use; give another "
            "folder, or empty it"
        )
