"""Checks at the edge: each names the argument, shows the first offence and says what to do.

They run on the host, with numpy, once for each container; kernels trust what passed them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.data.long_arrays import aligned_copy, any_block, cell_keys, has_repeats
from jaxmf.types import Names

INT32_MAX = 2**31 - 1
_ROUNDING = 1e-12  # of a value, what sums and quotients in 64 bits leave of equal ones
_NOT_FINITE = "Only Dense data marks missing cells with NaN; drop these values or repair them."


def is_traced(*arrays: object) -> bool:
    """Whether any of these is an abstract value, of which nothing can be checked."""
    return any(isinstance(a, (jax.core.Tracer, jax.ShapeDtypeStruct)) for a in arrays)


def shown_id(names: Names | None, position: int) -> str:
    """Name of a row or column for messages: its id where there are ids."""
    return str(position) if names is None else repr(names.tolist()[position])


def show_position(
    position: Sequence[int], ids: tuple[Names | None, Names | None] = (None, None)
) -> str:
    """An index for messages: ``row 3, column 2`` for matrices, ``position 3`` for vectors."""
    if len(position) == 2:
        row, column = map(shown_id, ids, position)
        return f"row {row}, column {column}"
    return f"position {', '.join(map(str, position))}"


def offence(
    name: str,
    array: np.ndarray,
    mask: np.ndarray,
    problem: str,
    remedy: str,
    *,
    offset: tuple[int, ...] | None = None,
    ids: tuple[Names | None, Names | None] = (None, None),
) -> ValueError:
    """The error for the elements where ``mask`` is true: the first one shown, all counted.

    ``offset`` is where the array begins in that of the user, whose first offence it then shows;
    ``ids`` are those of rows and columns of a matrix.
    """
    position = tuple(int(i) for i in np.unravel_index(int(np.argmax(mask)), mask.shape))
    num_bad = int(np.count_nonzero(mask))
    more = f" ({num_bad} such values)" if num_bad > 1 else ""
    value = np.asarray(array)[position].item()
    if offset is not None:
        position = tuple(first + index for first, index in zip(offset, position, strict=True))
    where = show_position(position, ids)
    return ValueError(f"{name}: {problem}: {value!r} at {where}{more}. {remedy}")


def refuse(
    name: str,
    array: np.ndarray,
    is_bad: Callable[[np.ndarray], np.ndarray],
    problem: str,
    remedy: str,
    *,
    offset: tuple[int, ...] | None = None,
) -> None:
    """Raises the `offence` of the elements that a test is true for, if there are any."""
    if any_block(array, is_bad):
        raise offence(name, array, is_bad(array), problem, remedy, offset=offset)


def as_mask(name: str, x: object, shape: tuple[int, ...]) -> np.ndarray:
    """A bool array of the shape of the data.

    Raises TypeError: another dtype. ValueError: ragged, or another shape.
    """
    mask = as_numeric(name, x)
    if mask.dtype != bool:
        raise TypeError(
            f"{name}: must be bool, has dtype {mask.dtype}. Use {name} != 0 or similar."
        )
    if mask.shape != shape:
        raise ValueError(f"{name}: has shape {mask.shape}, data has {shape}. They must be equal.")
    return mask


def as_lines(name: str, x: object, needed: str) -> list[Any]:
    """Items of which there is one for each line, as a list.

    Raises TypeError: a text, or nothing that has lines.
    """
    if isinstance(x, str | bytes | Mapping) or not isinstance(x, Iterable):
        raise TypeError(f"{name}: is {x!r}; {needed} is needed.")
    return list(x)


def as_mapping(name: str, x: Any) -> dict[str, Any]:
    """A mapping from headings, as a dict; nothing where it is None.

    Raises TypeError: no mapping.
    """
    if x is None:
        return {}
    if not isinstance(x, Mapping) and not hasattr(x, "columns"):
        raise TypeError(f"{name}: is {x!r}; a mapping from headings is needed, such as {{...}}.")
    return {label: x[label] for label in (x if isinstance(x, Mapping) else x.columns)}


def as_numeric(name: str, x: object) -> np.ndarray:
    """The array of real numbers behind ``x``; masked elements of a masked array become NaN.

    Raises TypeError: objects, text, dates or complex numbers.
    """
    if isinstance(x, np.ma.MaskedArray):
        if np.ma.is_masked(x):
            kind = x.dtype if np.issubdtype(x.dtype, np.floating) else np.float64
            return np.ma.filled(x.astype(kind), np.nan)
        x = x.data
    try:
        array = np.asarray(x)
    except ValueError as error:  # numpy: inhomogeneous shape
        raise ValueError(
            f"{name}: is ragged, its rows differ in length ({error}). Give every row the same "
            "number of values and mark missing ones with NaN."
        ) from None
    if array.dtype == object:
        raise _object_error(name, array)
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise TypeError(
            f"{name}: holds complex numbers ({array.dtype}), which have no real reading. "
            f"Pass the part that is meant, such as {name}.real."
        )
    if not (jnp.issubdtype(array.dtype, jnp.number) or array.dtype == bool):
        raise TypeError(
            f"{name}: has dtype {array.dtype}, numbers are needed. "
            "Convert it first, for instance with numpy.asarray(x, dtype=float)."
        )
    return array


def _object_error(name: str, array: np.ndarray) -> TypeError:
    where = ""
    if array.ndim == 0:
        raise TypeError(
            f"{name}: a {type(array.item()).__name__} is no array of numbers. Pass an array, a "
            "DataFrame or a list of rows, such as list(x) of a generator."
        )
    for position, value in np.ndenumerate(array):
        if value is None or not isinstance(value, (int, float, np.number, np.bool_)):
            location = f" at {show_position(position)}" if position else ""
            where = f"; the first value that is no number is {value!r}{location}"
            break
    return TypeError(
        f"{name}: has dtype object, numbers are needed{where}. Convert it first, for instance "
        "with numpy.asarray(x, dtype=float); missing cells are marked with NaN."
    )


def check_matrix_shape(name: str, shape: Sequence[int]) -> None:
    """A matrix with rows and columns, and no more cells than an int32 can count."""
    if len(shape) != 2:
        hint = "Use x.reshape(1, -1) for one row, x.reshape(-1, 1) for one column."
        if len(shape) > 2:
            hint = "Use x.reshape(x.shape[0], -1) to flatten each item."
        elif not shape:
            hint = "A single number is no table of rows."
        raise ValueError(
            f"{name}: must be a matrix of shape (rows, columns), has shape {tuple(shape)}. {hint}"
        )
    check_not_empty(name, shape)
    if int(shape[0]) * int(shape[1]) > INT32_MAX:
        raise ValueError(
            f"{name}: {shape[0]} x {shape[1]} = {int(shape[0]) * int(shape[1])} cells are more "
            f"than int32 can index ({INT32_MAX}). Split the rows, or use a sparse container."
        )


def check_not_empty(name: str, shape: Sequence[int]) -> None:
    """No axis of length 0."""
    if 0 in shape:
        raise ValueError(
            f"{name}: is empty, it has shape {tuple(shape)}. At least one row and one column are "
            "needed; check the filter or the file it came from."
        )


def as_float(name: str, array: np.ndarray, *, offset: tuple[int, ...] | None = None) -> np.ndarray:
    """The array in the default floating dtype; rounding of fractions is fine, losing more is not.

    Raises ValueError: whole numbers of an integer dtype that the floating dtype cannot hold
    exactly, or finite values too large for it.
    """
    dtype = np.dtype(jnp.result_type(float))
    if np.issubdtype(array.dtype, np.integer):
        limit = 2 ** (np.finfo(dtype).nmant + 1)
        if array.dtype.itemsize * 8 > np.finfo(dtype).nmant:
            refuse(
                name,
                array,
                lambda part: (part > limit) | (part < -limit),
                f"{array.dtype} cannot be cast to {dtype} without loss, whole numbers are exact up "
                f"to {limit} only",
                "Rescale them, or pass them as floats if rounding is meant.",
                offset=offset,
            )
        return aligned_copy(array, dtype)
    with np.errstate(over="ignore"):
        result = aligned_copy(array, dtype)
    lost = any_block(result, np.isinf) and np.isinf(result) & np.isfinite(array)
    if np.any(lost):
        problem = f"too large for {dtype}, whose largest number is {np.finfo(dtype).max:.3g}"
        raise offence(name, array, np.asarray(lost), problem, "Rescale the data.", offset=offset)
    return result


def column_of_lost_digits(
    array: np.ndarray, mask: np.ndarray | None, num_rows: int
) -> tuple[int, float, float] | None:
    """A column whose values differ by less than the default floating dtype can tell apart.

    Differences within rounding of the given dtype are none.

    Args: array (N, D) numbers, NaN where missing or not true in mask (N, D); num_rows: that are
    looked at in one go.
    Returns the column, its largest absolute value, and by how much its values differ; or None.
    """
    dtype = np.dtype(jnp.result_type(float))
    if array.dtype.kind != "f" or array.dtype.itemsize <= dtype.itemsize:
        return None
    low, high = (np.full(array.shape[1], np.nan, array.dtype) for _ in range(2))
    for first in range(0, array.shape[0], num_rows):
        block = array[first : first + num_rows]
        if mask is not None:
            block = np.where(mask[first : first + num_rows], block, np.nan)
        low, high = np.fmin(low, np.fmin.reduce(block)), np.fmax(high, np.fmax.reduce(block))
    size, spread = np.maximum(np.abs(low), np.abs(high)), high - low
    lost = (spread < 8 * np.finfo(dtype).eps * size) & (spread > _ROUNDING * size)
    if not lost.any():
        return None
    column = int(np.argmax(lost))
    return column, float(size[column]), float(spread[column])


def check_finite(
    name: str, array: np.ndarray, *, where: np.ndarray | None = None, remedy: str = _NOT_FINITE
) -> None:
    """No NaN and no infinity (among the elements of ``where``)."""
    if where is None and not any_block(array, _is_not_finite):
        return
    bad = _is_not_finite(array)
    if where is not None:
        bad &= where
    if bad.any():
        raise offence(name, array, bad, "must be finite", remedy)


def _is_not_finite(array: np.ndarray) -> np.ndarray:
    return ~np.isfinite(array)


def _is_fractional(array: np.ndarray) -> np.ndarray:
    return array != np.floor(array)


def check_counts(name: str, array: np.ndarray) -> None:
    """Whole numbers from 0 on that int32 can index."""
    check_finite(
        name,
        array,
        remedy="Counts have no missing cells: fill in 0 where an empty cell says that there is "
        "none (x.fillna(0)), and leave rows out whose counts are not known.",
    )
    advice = "Counts are whole numbers; pass raw counts rather than weights or frequencies."
    for is_bad, problem, remedy in (
        (lambda part: part < 0, "negative count", "Counts are 0, 1, 2, ..."),
        (_is_fractional, "fractional count", advice),
        (
            lambda part: part > INT32_MAX,
            "count beyond int32",
            "Split the rows, or use a model of counts.",
        ),
    ):
        refuse(name, array, is_bad, problem, remedy)


def check_binary(
    name: str,
    array: np.ndarray,
    *,
    gaps: str = "Name the cells that were observed: "
    "mf.SparseBinary.from_array(x, observed=~np.isnan(x)). (x > 0 would take the others for "
    "observed zeros.)",
) -> np.ndarray:
    """Zeros and ones, returned as bool; `gaps` is what to do about cells that are NaN."""
    problem = "must hold 0 and 1 only"
    refuse(name, array, lambda part: part != part, problem, gaps)
    refuse(
        name,
        array,
        lambda part: (part != 0) & (part != 1),
        problem,
        as_zeros_and_ones(array),
    )
    return array.astype(bool)


def as_zeros_and_ones(array: np.ndarray) -> str:
    """What makes numbers, NaN where one is missing, zeros and ones: of two numbers which is one."""
    values = np.unique(array[np.isfinite(array)])
    if values.size != 2:
        return "Threshold it first, for instance x > 0."
    low, high = values.tolist()
    return (
        f"All are {low:g} or {high:g}: make one of them 1 and the other 0, "
        f"np.where(np.isnan(x), np.nan, x == {high:g}) or x == {low:g}."
    )


def check_vector(
    name: str, array: np.ndarray, *, length: int | None = None, like: str = ""
) -> None:
    """One axis, as long as the argument ``like``."""
    if array.ndim != 1:
        raise ValueError(
            f"{name}: must have one axis, has shape {array.shape}. Pass one number a line."
        )
    if length is not None and len(array) != length:
        raise ValueError(
            f"{name}: has {len(array)} values but {like} has {length}. "
            "They describe the same lines and must be equally long."
        )


def as_index(name: str, x: object, *, size: int | None = None) -> np.ndarray:
    """Indices as int32, in ``0..size - 1``.

    Raises TypeError: not whole numbers. ValueError: more lines than int32 can index, or an index
    out of range.
    """
    array = as_numeric(name, x)
    check_vector(name, array)
    if len(array) > INT32_MAX:
        raise ValueError(
            f"{name}: {len(array)} lines are more than int32 can index ({INT32_MAX}). Split them."
        )
    if not np.issubdtype(array.dtype, np.integer):
        if array.dtype == bool:
            raise TypeError(f"{name}: is a mask (bool), indices are needed. Use numpy.nonzero.")
        check_finite(name, array)
        refuse(name, array, _is_fractional, "not a whole number", "Indices are 0, 1, 2, ...")
    upper = INT32_MAX if size is None else size - 1
    refuse(
        name,
        array,
        lambda part: (part < 0) | (part > upper),
        f"index out of range 0..{upper}",
        "Indices count from 0; subtract 1 if yours count from 1, or enlarge the shape.",
    )
    return aligned_copy(array, np.int32)


def check_no_duplicates(
    name: str,
    rows: np.ndarray,
    columns: np.ndarray,
    *,
    num_columns: int,
    remedy: str,
    names: tuple[Names | None, Names | None] = (None, None),
) -> None:
    """No cell twice; with ``names`` of rows and columns the cell is shown by its ids."""
    if not has_repeats(rows, columns, num_columns):
        return
    cells = cell_keys(rows, columns, num_columns)
    order = np.argsort(cells, kind="stable")
    again = order[1:][cells[order[1:]] == cells[order[:-1]]]
    second = int(again.min())
    first = int(np.argmax(cells == cells[second]))
    row, column = (
        int(index[second]) if ids is None else ids.tolist()[index[second]]
        for index, ids in zip((rows, columns), names, strict=True)
    )
    raise ValueError(
        f"{name}: duplicate cell (row {row!r}, column {column!r}) at positions "
        f"{first} and {second} ({len(again)} repeats in all). {remedy}"
    )


def check_shape_pair(name: str, shape: Any) -> tuple[int, int]:
    """A pair of positive sizes that int32 can index."""
    try:
        num_rows, num_columns = (int(size) for size in shape)
        whole = all(int(size) == size for size in shape)
    except (TypeError, ValueError):
        raise TypeError(
            f"{name}: must be a pair (number of rows, number of columns), is {shape!r}."
        ) from None
    if not whole or not 0 < num_rows <= INT32_MAX or not 0 < num_columns <= INT32_MAX:
        raise ValueError(
            f"{name}: sizes must be whole numbers between 1 and {INT32_MAX}, are {tuple(shape)}. "
            "Pass (number of rows, number of columns)."
        )
    return num_rows, num_columns
