"""A folder that one run at a time may write to.

The lock is the operating system's, on an open file: it ends with the process that holds it, however
that ends, so a run that was killed leaves nothing that blocks the next. Where a file system has no
such locks, the file says which process holds it, and a process that is gone holds nothing.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

LOCK = "checkpoint.lock"
_HELD = (errno.EACCES, errno.EAGAIN)
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class LockedError(RuntimeError):
    """Another process, or another run of this one, writes to the checkpoint folder."""


class FolderLock:
    """Holds a folder until it is released, or the process ends.

    Args:
        folder: it must exist.
    Raises:
        LockedError: naming the folder and the process that holds it.
    """

    def __init__(self, folder: Path):
        self._path = folder / LOCK
        while True:
            self._descriptor = os.open(self._path, _FLAGS, 0o666)
            try:
                is_locked = _lock(self._descriptor)
                holder = {} if is_locked else _read(self._descriptor)
                if is_locked is False or (is_locked is None and _is_alive(holder)):
                    raise LockedError(_explain(folder, holder))
            except BaseException:
                os.close(self._descriptor)
                raise
            # one that let go meanwhile may have removed the file that is locked now
            if is_locked is None or _is_at(self._path, self._descriptor):
                break
            os.close(self._descriptor)
        _write(self._descriptor)

    def release(self) -> None:
        """Lets the folder go; the file is removed."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def refuse_if_locked(folder: Path) -> None:
    """Refuses a folder that a run writes to, before it is removed or replaced.

    Raises LockedError: naming the folder and the process that holds it.
    """
    if (folder / LOCK).exists():
        FolderLock(folder).release()


def _lock(descriptor: int) -> bool | None:
    """Whether the lock was to be had; None where the file system has no locks."""
    try:
        if os.name == "nt":
            import msvcrt

            windows: Any = msvcrt
            # a byte far beyond what is written there, which others may then still read
            os.lseek(descriptor, 2**20, os.SEEK_SET)
            windows.locking(descriptor, windows.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        return None
    except OSError as error:
        return False if error.errno in _HELD else None
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(descriptor))


def _write(descriptor: int) -> None:
    holder = {
        "process": os.getpid(),
        "host": socket.gethostname(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    # on a full disk the lock holds without its name tag
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, json.dumps(holder).encode())


def _read(descriptor: int) -> dict[str, object]:
    with contextlib.suppress(OSError, ValueError):
        os.lseek(descriptor, 0, os.SEEK_SET)
        holder = json.loads(os.read(descriptor, 1000))
        if isinstance(holder, dict) and type(holder.get("process")) is int:
            return holder
    return {}


def _is_alive(holder: dict[str, Any]) -> bool:
    """Whether the process that a lock file names may still be there."""
    if not holder or holder["process"] <= 0:
        return False
    if holder.get("host") != socket.gethostname():
        return False
    try:
        os.kill(holder["process"], 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _explain(folder: Path, holder: dict[str, object]) -> str:
    who = "another process"
    if holder:
        is_this = holder["process"] == os.getpid() and holder.get("host") == socket.gethostname()
        who = "another run of this process" if is_this else f"process {holder['process']}"
        who += f" on {holder.get('host')}, since {holder.get('since')}"
    return (
        f"checkpoint: the folder {folder} is being written to by {who}. Wait until it has ended, "
        "or give another folder"
    )
