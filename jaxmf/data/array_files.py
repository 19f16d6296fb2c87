"""Matrices from files of numpy, scipy and pandas."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxmf.data.container import LabelledMatrix

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import sparray


@contextmanager
def open_numpy(path: Path) -> Iterator[Any]:
    """Arrays that numpy wrote; refuses pickled objects, and closes a file that cannot be read.

    `numpy.load` of a path leaves a damaged archive open.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("rb"))
            loaded = np.load(file, allow_pickle=False)
        except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{path}: numpy cannot read it as plain numbers ({error}). "
                "Save it with numpy.save(path, numpy.asarray(x, dtype=float))."
            ) from None
        yield loaded


def read_npy(path: Path) -> LabelledMatrix:
    """The array of a `.npy` file."""
    with open_numpy(path) as array:
        return LabelledMatrix(array)


def read_npz(path: Path, key: str | None) -> LabelledMatrix:
    """The array `key`, or the only one, or a sparse matrix of scipy."""
    with open_numpy(path) as arrays:
        if key is None and {"format", "shape", "data"} <= set(arrays.files):
            return LabelledMatrix(_load_sparse(path))
        if key is None and len(arrays.files) != 1:
            raise ValueError(
                f"{path}: holds {len(arrays.files)} arrays ({', '.join(arrays.files)}). "
                "Say which one is meant (key), or save the one alone."
            )
        if key is not None and key not in arrays.files:
            raise ValueError(f"{path}: has no array {key!r}, it has {', '.join(arrays.files)}.")
        return LabelledMatrix(arrays[key or arrays.files[0]])


def _load_sparse(path: Path) -> sparray:
    """A matrix that scipy wrote, its indices compared with its shape."""
    import scipy.sparse

    try:
        matrix = scipy.sparse.load_npz(path)
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
    except Exception as error:  # of whatever kind: what is in the file decides
        raise ValueError(
            f"{path}: scipy cannot read it as a sparse matrix ({error}). Save it anew with "
            "scipy.sparse.save_npz."
        ) from None
    return matrix


def read_matrix_market(path: Path) -> LabelledMatrix:
    """A matrix of a `.mtx` file."""
    import scipy.io

    try:
        return LabelledMatrix(scipy.io.mmread(path))
    except Exception as error:  # of whatever kind: what is in the file decides
        raise ValueError(f"{path}: scipy cannot read it as a matrix ({error}).") from None


def read_frame(path: Path) -> pd.DataFrame:
    """A table of pandas from a ``.parquet`` file."""
    try:
        import pandas as pd
    except ImportError:
        raise ValueError(
            f"{path}: reading .parquet needs pandas; pip install 'jaxmf[data]' pyarrow."
        ) from None
    try:
        frame = pd.read_parquet(path)
    except ImportError as error:
        raise ValueError(
            f"{path}: pandas lacks what .parquet needs; pip install pyarrow."
        ) from error
    except Exception as error:
        raise ValueError(f"{path}: pandas cannot read it ({error}).") from error
    return frame
