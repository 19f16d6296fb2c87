"""The folder of data sets: what is there is read, what is not is fetched and prepared once.

Each set has a folder of its name under ``JAXMF_DATA`` with one ``.npz`` and perhaps texts, one
item a line. When they are not there they are built from the official files, which are taken from
the same folder (put there by hand) or downloaded to it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from scipy import sparse

VARIABLE = "JAXMF_DATA"


class Prepared(NamedTuple):
    """A data set as it lies in the folder: arrays by name, texts by name of the file."""

    arrays: dict[str, np.ndarray]
    texts: dict[str, list[str]]


class Source(NamedTuple):
    """An official file; without ``url``, ``instructions`` say how a person gets it."""

    file: str
    url: str | None = None
    md5: str | None = None
    instructions: str = ""


class Recipe(NamedTuple):
    """A data set: its folder and files, and how they are built from the official ones.

    Where the official files have no published check sum, ``sha256`` is `content_digest` of what is
    built from them, so that other files are refused, however they came.
    """

    name: str
    npz: str
    texts: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    build: Callable[[Mapping[str, Path]], Prepared] | None = None
    sha256: str | None = None


def content_digest(prepared: Prepared) -> str:
    """SHA-256 of arrays (integers as int64, others as float64) and texts, in order of names."""
    digest = hashlib.sha256()
    for name, array in sorted(prepared.arrays.items()):
        kind = np.dtype("<f8") if np.issubdtype(array.dtype, np.floating) else np.dtype("<i8")
        digest.update(f"{name} {array.shape} {kind.str}\n".encode())
        digest.update(np.ascontiguousarray(array, dtype=kind).tobytes())
    for name, lines in sorted(prepared.texts.items()):
        digest.update(f"{name} {len(lines)}\n".encode())
        digest.update("\n".join(lines).encode())
    return digest.hexdigest()


def folder() -> Path:
    """The folder that ``JAXMF_DATA`` names.

    Raises:
        FileNotFoundError: the variable is not set, or names no folder.
    """
    name = os.environ.get(VARIABLE)
    if not name:
        raise FileNotFoundError(
            f"{VARIABLE} is not set. It names the folder where data sets are kept: make an empty "
            f"folder, set {VARIABLE} to it and call this again; what has an official source on the "
            "network is fetched."
        )
    path = Path(name).expanduser()
    if not path.is_dir():
        raise FileNotFoundError(
            f"{VARIABLE}={name} is no folder. Make it, or set {VARIABLE} to one that exists."
        )
    return path


def read(recipe: Recipe) -> Prepared:
    """The data set, from the folder or made from its official source.

    Raises:
        FileNotFoundError: no folder, or a file that is not there and cannot be fetched.
        ValueError: an official file that is not what it should be.
    """
    directory = folder() / recipe.name
    files = [directory / recipe.npz, *(directory / text for text in recipe.texts)]
    if not all(file.exists() for file in files):
        if recipe.build is None:
            instructions = " ".join(source.instructions for source in recipe.sources)
            raise FileNotFoundError(
                f"{recipe.name}: {files[0]} is not there, and this set has no official source to "
                f"fetch it from. Put the prepared file there. {instructions}".rstrip()
            )
        directory.mkdir(exist_ok=True)
        prepared = recipe.build({s.file: _obtain(directory, s) for s in recipe.sources})
        _check_content(directory, recipe, prepared)
        _write(directory, recipe, prepared)
    with np.load(files[0], allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    texts = {
        file.name: file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        for file in files[1:]
    }
    return Prepared(arrays, texts)


def sparse_counts(arrays: Mapping[str, np.ndarray]) -> sparse.csr_array:
    """(N, D) scipy.sparse array of counts from its stored parts; absent counts are ones."""
    from scipy.sparse import csr_array

    indices = arrays["indices"].astype(np.int32)
    data = arrays.get("data", np.ones(len(indices), np.uint8)).astype(np.int32)
    shape = tuple(int(size) for size in arrays["shape"])
    return csr_array((data, indices, arrays["indptr"].astype(np.int32)), shape=shape)


def _check_content(directory: Path, recipe: Recipe, prepared: Prepared) -> None:
    if recipe.sha256 is None or (digest := content_digest(prepared)) == recipe.sha256:
        return
    files = ", ".join(str(directory / source.file) for source in recipe.sources)
    raise ValueError(
        f"{recipe.name}: {files} are not the official files, their content has the sha256 {digest} "
        f"and should have {recipe.sha256}. Remove them; they are fetched again."
    )


def _obtain(directory: Path, source: Source) -> Path:
    """The official file: put there by hand, or downloaded; its hash is right where it is known."""
    path = directory / source.file
    if not path.exists():
        if source.url is None:
            raise FileNotFoundError(
                f"{path} is not there and cannot be fetched by a program. {source.instructions}"
            )
        try:
            download(source.url, path)
        except Exception as error:
            raise FileNotFoundError(
                f"{path} is not there and could not be fetched from {source.url} "
                f"({type(error).__name__}: {error}). Download it by hand to that path."
            ) from error
    if source.md5 is not None:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "md5").hexdigest()
        if digest != source.md5:
            raise ValueError(
                f"{path}: is not the official file, its md5 is {digest} and should be "
                f"{source.md5}. Remove it; it is fetched again."
            )
    return path


def download(url: str, path: Path) -> None:
    """A file from the network, by pooch."""
    try:
        import pooch
    except ImportError:
        raise ImportError("fetching needs pooch; pip install 'jaxmf[data]'") from None
    pooch.retrieve(url, known_hash=None, fname=path.name, path=path.parent)


def _write(directory: Path, recipe: Recipe, prepared: Prepared) -> None:
    """The prepared files, each under its name only when it is whole."""
    for name in recipe.texts:
        partial = directory / f".{name}.partial"
        partial.write_text("".join(f"{line}\n" for line in prepared.texts[name]), encoding="utf-8")
        partial.replace(directory / name)
    partial = directory / f".{recipe.npz}.partial"
    with partial.open("wb") as file:
        np.savez_compressed(file, **prepared.arrays)  # type: ignore[arg-type]
    partial.replace(directory / recipe.npz)
