"""Files of saved runs: written whole or not at all, and read with nothing taken on trust.

A file is a plain file directly in the folder of the run, with a name of a strict pattern. Links are
never followed, neither to read nor to write. Arrays lie in npz archives that are not compressed, so
that reading one takes no more memory than its size on disk (packed bools eight times that), and
never holds a pickle. What a manifest says of an archive (bytes, SHA-256, dtypes and shapes) is
compared with it before an array is made.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import secrets
import stat
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import numpy as np

PARTIAL = ".partial"
_NAME = re.compile(r"[a-z_]{1,40}-[0-9a-f]{1,40}(-[0-9]{1,20})?\.npz")
_DTYPE = re.compile(r"[<>|=][biufcSUV]\d{1,9}")
_ALIGNMENT = 64  # bytes
_MAX_AXES = 32
_ZIP_LENGTHS = 26  # where a member's header in an archive has two lengths of 2 bytes, its last
_HEADERS: dict[tuple[int, int], Callable[[Any], Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class DamagedFileError(ValueError):
    """A file of a saved run is damaged, or is not what its manifest says."""


class OtherFormatError(DamagedFileError):
    """A file of a saved run is of another version of the format."""


def is_name(name: object) -> bool:
    """Whether a manifest may name a file so: letters, a dash, hexadecimal digits, ``.npz``.

    There may be a second dash and decimal digits.
    """
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def open_plain(path: Path) -> BinaryIO:
    """Open a plain file for reading.

    Raises FileNotFoundError: there is none. DamagedFileError: it is a link, a folder, a pipe or a
    device.
    """
    if path.is_symlink():
        raise DamagedFileError(f"{path} is a link, and links are not followed")
    # no waiting for a pipe that nobody writes, and no link that was put there meanwhile
    flags = os.O_RDONLY | _flag("O_NOFOLLOW") | _flag("O_NONBLOCK") | _flag("O_BINARY")
    if path.is_dir():
        raise DamagedFileError(f"{path} is a folder and should be a file")
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is missing") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DamagedFileError(f"{path} is no plain file")
    return os.fdopen(descriptor, "rb")


def replace(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file under a temporary name, sync it and give it its name in one step.

    A write that fails leaves nothing behind, and what had the name before as it was.

    Args:
        path: the file; a link of this name is replaced, not followed.
        write: writes to an open file, which can be read as well.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{PARTIAL}")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _flag("O_NOFOLLOW") | _flag("O_BINARY")
    descriptor = os.open(temporary, flags, 0o666)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # of a full disk the system does not say which file
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """The new name must be on disk before anything that relies on it."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flag(name: str) -> int:
    """A flag of `os.open`, where the system has it."""
    return getattr(os, name, 0)


# --- archives of arrays ---------------------------------------------------------------------------


def write_arrays(folder: Path, name: str, arrays: Mapping[str, np.ndarray]) -> dict[str, object]:
    """Write an archive; bools are packed, eight to a byte.

    Returns what the manifest keeps of it, for `read_arrays`.
    """
    content: dict[str, Any] = {n: np.packbits(x) if _is_bool(x) else x for n, x in arrays.items()}
    record: dict[str, Any] = {"file": name}

    def write(file: BinaryIO) -> None:
        np.savez(file, allow_pickle=False, **content)
        record["bytes"] = file.tell()
        file.seek(0)
        record["sha256"] = _digest(file)

    replace(folder / name, write)
    record["arrays"] = {
        array: {"dtype": "bool" if _is_bool(x) else x.dtype.str, "shape": list(x.shape)}
        for array, x in arrays.items()
    }
    return record


def is_record(value: object) -> bool:
    """Whether what a manifest says of a file has the form that `write_arrays` returns."""
    return (
        isinstance(value, dict)
        and {"file", "bytes", "sha256", "arrays"} <= value.keys()
        and is_name(value["file"])
        and type(value["bytes"]) is int
        and isinstance(value["sha256"], str)
        and isinstance(value["arrays"], dict)
        and all(_is_described(described) for described in value["arrays"].values())
    )


def _is_described(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"dtype", "shape"}
        and isinstance(value["dtype"], str)
        and (value["dtype"] == "bool" or _DTYPE.fullmatch(value["dtype"]) is not None)
        and isinstance(value["shape"], list)
        and len(value["shape"]) <= _MAX_AXES
        and all(type(size) is int and size >= 0 for size in value["shape"])
    )


def read_arrays(
    folder: Path, record: Mapping[str, Any], *, least_mapped: int | None = None
) -> dict[str, np.ndarray]:
    """The arrays of an archive that `write_arrays` wrote.

    Args:
        record: what the manifest says of it; `is_record` holds.
        least_mapped: bytes from which on an array stays in the file, which must stay too: it is a
            map of it, changed in memory alone. Bools, which are packed, do not.
    Raises:
        FileNotFoundError: the file is missing.
        DamagedFileError: it is not what the record says.
    """
    path = folder / record["file"]
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size != record["bytes"]:
            raise DamagedFileError(
                f"{path} has {size} bytes and should have {record['bytes']}; it is damaged, or "
                "belongs to another run"
            )
        if _digest(file) != record["sha256"]:
            raise DamagedFileError(
                f"{path} does not agree with the check sum in the manifest; it is damaged, or "
                "belongs to another run"
            )
        try:
            with zipfile.ZipFile(file) as archive:
                _check_members(path, archive, record["arrays"], size)
                return {
                    name: _read_array(path, archive, name, described, least_mapped)
                    for name, described in record["arrays"].items()
                }
        except (DamagedFileError, MemoryError):
            raise
        except Exception as error:  # a damaged archive raises whatever zipfile or numpy meet first
            words = f"{type(error).__name__}: {error}"
            raise DamagedFileError(f"{path} cannot be read ({words}); it is damaged") from None


def _check_members(
    path: Path, archive: zipfile.ZipFile, arrays: Mapping[str, object], size: int
) -> None:
    members = archive.infolist()
    there, needed = sorted(m.filename for m in members), sorted(f"{name}.npy" for name in arrays)
    if there != needed:
        raise DamagedFileError(
            f"{path} holds the parts {', '.join(there)[:200]} and should hold "
            f"{', '.join(needed)[:200]}"
        )
    packed = [m.filename for m in members if m.compress_type != zipfile.ZIP_STORED]
    if packed:
        raise DamagedFileError(
            f"{path}: {packed[0]} is compressed, which no file of jaxmf is; it is not expanded"
        )
    if sum(member.file_size for member in members) > size:
        raise DamagedFileError(f"{path} says that it holds more than its {size} bytes")


def _read_array(
    path: Path,
    archive: zipfile.ZipFile,
    name: str,
    described: Mapping[str, Any],
    least_mapped: int | None,
) -> np.ndarray:
    member = f"{name}.npy"
    is_packed, shape = described["dtype"] == "bool", tuple(described["shape"])
    length = math.prod(shape)
    needed = ("|u1", (-(-length // 8),)) if is_packed else (described["dtype"], shape)
    with archive.open(member) as opened:
        read_header = _HEADERS[np.lib.format.read_magic(opened)]
        found, is_fortran, dtype = read_header(opened)
        start = opened.tell()
        num_bytes = archive.getinfo(member).file_size - start
    # of raw bytes, such as bfloat16, npz does not keep the order
    kinds = (dtype.str.replace("|V", "<V"), needed[0].replace("|V", "<V"))
    if kinds[0] != kinds[1] or found != needed[1]:
        raise DamagedFileError(
            f"{path}: {name} is {dtype.str}{list(found)} and the manifest says "
            f"{described['dtype']}{list(shape)}"
        )
    if dtype.hasobject or num_bytes != dtype.itemsize * math.prod(found):
        raise DamagedFileError(f"{path}: {name} is not as long as its shape {list(found)} says")
    if least_mapped is not None and num_bytes >= least_mapped and not is_packed:
        start += _start_of_member(archive, member)
        order: Literal["F", "C"] = "F" if is_fortran else "C"
        assert archive.fp is not None  # the file that was checked, whatever has its name by now
        return np.memmap(archive.fp, dtype, "c", start, found, order)
    with archive.open(member) as opened:
        values = np.lib.format.read_array(opened, allow_pickle=False)
    if not is_packed:
        return _aligned(values)
    return np.unpackbits(values, count=length).view(bool).reshape(shape)


def _start_of_member(archive: zipfile.ZipFile, member: str) -> int:
    """Where the content of a member begins in its archive."""
    assert archive.fp is not None
    first = archive.getinfo(member).header_offset
    archive.fp.seek(first + _ZIP_LENGTHS)
    # of its name, and of what else stands before the content
    lengths = np.frombuffer(archive.fp.read(4), "<u2")
    return first + _ZIP_LENGTHS + 4 + int(lengths.sum())


def _aligned(values: np.ndarray) -> np.ndarray:
    """A copy where XLA can read it in place; it copies others at every call of a program."""
    buffer = np.empty(values.nbytes + _ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % _ALIGNMENT
    found = buffer[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    found[...] = values
    return found


def _digest(file: BinaryIO) -> str:
    return hashlib.file_digest(cast(Any, file), "sha256").hexdigest()


def _is_bool(values: np.ndarray) -> bool:
    return values.dtype == bool
