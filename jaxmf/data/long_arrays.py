"""Long arrays gone through a block at a time: checks and casts make nothing of their size."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import DTypeLike

BLOCK = 2**17
ALIGNMENT = 64


def blocks(length: int, size: int = BLOCK) -> Iterator[slice]:
    """Slices of at most this many, one after the other."""
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))


def any_block(array: np.ndarray, is_bad: Callable[[np.ndarray], np.ndarray]) -> bool:
    """Whether an elementwise test is true anywhere in an array."""
    return any(bool(np.any(is_bad(part))) for part in _parts(array))


def count_where(array: np.ndarray, test: Callable[[np.ndarray], np.ndarray]) -> int:
    """How many elements of an array a test is true for."""
    return sum(int(np.count_nonzero(test(part))) for part in _parts(array))


def _parts(array: np.ndarray) -> Iterator[np.ndarray]:
    """An array of any shape, some of its lines at a time."""
    if array.ndim == 0:
        yield array
        return
    width = max(1, int(np.prod(array.shape[1:], dtype=np.int64)))
    for some in blocks(len(array), max(1, BLOCK // width)):
        yield array[some]


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array that lies where JAX on a CPU can use it as it is."""
    num_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    room = np.empty(num_bytes + ALIGNMENT, np.uint8)
    first = -room.ctypes.data % ALIGNMENT
    return room[first : first + num_bytes].view(dtype).reshape(shape)


def aligned_copy(array: np.ndarray, dtype: DTypeLike) -> np.ndarray:
    """An aligned copy in another dtype, whatever the cast loses."""
    result = aligned_empty(array.shape, np.dtype(dtype))
    np.copyto(result, array, casting="unsafe")
    return result


def cell_keys(rows: np.ndarray, columns: np.ndarray, num_columns: int) -> np.ndarray:
    """(T,) int64: one number a cell, in the order of rows and then columns."""
    keys = rows.astype(np.int64)
    keys *= num_columns
    keys += columns
    return keys


def are_increasing(rows: np.ndarray, columns: np.ndarray, num_columns: int) -> bool:
    """Whether cells stand in the order of rows and then columns, each once."""
    for some in blocks(len(rows) - 1):
        both = slice(some.start, some.stop + 1)
        keys = cell_keys(rows[both], columns[both], num_columns)
        if not (keys[1:] > keys[:-1]).all():
            return False
    return True


def has_repeats(rows: np.ndarray, columns: np.ndarray, num_columns: int) -> bool:
    """Whether a cell stands twice."""
    if are_increasing(rows, columns, num_columns):
        return False
    keys = cell_keys(rows, columns, num_columns)
    keys.sort()
    return any(
        bool((keys[some.start + 1 : some.stop + 1] == keys[some]).any())
        for some in blocks(len(keys) - 1)
    )


def sort_cells(rows: np.ndarray, columns: np.ndarray, num_columns: int) -> None:
    """Put cells in the order of rows and then columns, in the arrays themselves."""
    if are_increasing(rows, columns, num_columns):
        return
    keys = cell_keys(rows, columns, num_columns)
    keys.sort()
    for some in blocks(len(keys)):
        rows[some], columns[some] = np.divmod(keys[some], num_columns)
