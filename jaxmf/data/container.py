"""What the containers share: bare construction, fingerprints, and taking apart what users have."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from jaxmf.arguments import assign
from jaxmf.data import checks
from jaxmf.data.frames import as_pandas
from jaxmf.data.names import as_names, counts_from_zero, encode, object_array, positions
from jaxmf.data.process_cells import SpreadColumn
from jaxmf.data.process_rows import blocks_on_host, spans_processes
from jaxmf.data.text_tables import (
    MISSING,
    TRUTHS,
    are_written_values,
    have_decimal_commas,
    is_numeric,
)
from jaxmf.types import Names

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")

_MOST_SHOWN = 12  # columns that an error names


class LabelledMatrix(NamedTuple):
    """A matrix and its ids, before any check.

    ``values`` is an array or a scipy.sparse matrix.
    """

    values: Any
    row_names: Any = None
    column_names: object = None

    def __repr__(self) -> str:
        sides = {"rows": self.row_names, "columns": self.column_names}
        ids = [f"{side} {_first_ids(names)}" for side, names in sides.items() if names is not None]
        sizes = " x ".join(map(str, getattr(self.values, "shape", ()))) or "..."
        return f"{type(self).__name__}({', '.join([sizes, *_gaps(self.values), *ids])})"


def _gaps(values: object) -> list[str]:
    if not isinstance(values, np.ndarray) or values.dtype.kind != "f":
        return []
    count = np.count_nonzero(np.isnan(values))
    return [f"{count:,} of {values.size:,} cells missing"] if count else []


def _first_ids(names: object) -> str:
    ids = object_array(names).tolist()
    return ", ".join(map(repr, ids[:3])) + ", ..." * (len(ids) > 3)


def bare(cls: type[T], **fields: object) -> T:
    """An instance of a frozen dataclass without its checks, as jax needs for unflattening."""
    instance = object.__new__(cls)
    assign(instance, **fields)
    return instance


def unchecked(instance: T, **changes: object) -> T:
    """A copy of a frozen dataclass with other values of some fields, without its checks."""
    present = {each.name: getattr(instance, each.name) for each in fields(instance)}  # type: ignore[arg-type]
    return bare(type(instance), **present | changes)


def digest(kind: str, shape: Sequence[object], arrays: Mapping[str, object]) -> str:
    """SHA-256, in hex, of a container's name, shape and arrays."""
    result = hashlib.sha256(f"{kind} {tuple(shape)}".encode())
    for name, array in arrays.items():
        if isinstance(array, SpreadColumn) or spans_processes(array):
            described = f"{np.dtype(array.dtype).str} {array.shape}"
            blocks = array.blocks() if isinstance(array, SpreadColumn) else blocks_on_host(array)
        else:
            host = None if array is None else np.ascontiguousarray(np.asarray(array))
            described = "none" if host is None else f"{host.dtype.str} {host.shape}"
            blocks = iter(() if host is None else (host,))
        result.update(f"|{name} {described}|".encode())
        for block in blocks:
            result.update(block.data if block.size else b"")
    return result.hexdigest()


def identity(data: Any) -> str:
    """The fingerprint of a container and of its ids: what a run is resumed with must share it.

    Without ids it is the fingerprint alone.
    """
    sides = {f"{word}s": getattr(data, f"{word}_names", None) for word in ("row", "column")}
    ids = {**sides, **(data.names if isinstance(getattr(data, "names", None), dict) else {})}
    named = {label: names for label, names in sorted(ids.items()) if names is not None}
    if not named:
        return str(data.fingerprint())
    result = hashlib.sha256(data.fingerprint().encode())
    for label, names in named.items():
        result.update(f"|{label} {len(names)}|".encode())
        for name in names.tolist():
            result.update(f"{type(name).__name__} {name!r}\n".encode(errors="surrogatepass"))
    return result.hexdigest()


def lookup(
    argument: str, ids: object, known: object, *, line: str | None = None
) -> tuple[np.ndarray, Names]:
    """Positions of ids, and all ids: those ``known``, or else those of ``ids``, as they appear.

    Args:
        ids: (T,) ids.
        known: all ids in order, or None.
        line: what one of them is called, such as "row"; the argument without its s by default.
    Raises:
        ValueError: a missing id, or one that ``known`` lacks.
    """
    if known is None:
        return encode(argument, ids)
    all_ids = as_names(argument, known)
    assert all_ids is not None
    return positions(argument, ids, names=all_ids, size=len(all_ids), line=line), all_ids


def read_tuples(
    argument: str,
    lines: object,
    parts: tuple[str, ...],
    *,
    nothing: str,
    known: tuple[object, object],
) -> tuple[list[Any], tuple[np.ndarray, Names], tuple[np.ndarray, Names]]:
    """Tuples of ids of a row and a column, and perhaps more, from a table, an array or a list.

    Args: parts: what is in each; nothing: what it means that there are none; known: ids of rows and
    of columns, or None.
    Returns the tuples, and positions and ids of rows and of columns as `lookup`.
    """
    table = as_pandas(lines)
    if is_frame(table):
        table = list(table.itertuples(index=False, name=None))
    elif isinstance(table, np.ndarray):
        table = table.tolist()
    form = f"({', '.join(parts)})"
    found = checks.as_lines(argument, table, f"a list of {argument} {form}")
    for position, line in enumerate(found):
        has_parts = not isinstance(line, (str, bytes)) and hasattr(line, "__len__")
        if not has_parts or len(line) != len(parts):
            raise ValueError(
                f"{argument}: the line at position {position} is {line!r}, a "
                f"{argument.removesuffix('s')} {form} is needed."
            )
    if not found:
        raise ValueError(f"{argument}: is empty, {nothing}. At least one is needed.")
    rows, columns = (
        lookup(
            argument, object_array([line[side] for line in found]), known[side], line=parts[side]
        )
        for side in (0, 1)
    )
    return found, rows, columns


def check_headings(frame: pd.DataFrame, labels: Iterable[tuple[str, object]]) -> None:
    """Refuses an argument that names a column which a DataFrame lacks."""
    for argument, label in labels:
        if not isinstance(label, Hashable) or label not in frame.columns:
            have = ", ".join(map(repr, frame.columns)) or "no columns"
            raise ValueError(f"{argument}: the table has no column {label!r}, it has {have}.")


def checked_cells(
    rows: object,
    columns: object,
    shape: tuple[int, int],
    *,
    names: tuple[object, object],
    remedy: str,
    can_be_empty: bool = False,
) -> tuple[np.ndarray, np.ndarray, tuple[Names | None, Names | None]]:
    """Indices of cells as int32, each cell once, and the ids of rows and columns.

    Raises ValueError: lengths that differ, indices out of range, no cells, a cell given twice, ids
    that do not fit.
    """
    row_indices = checks.as_index("rows", rows, size=shape[0])
    column_indices = checks.as_index("columns", columns, size=shape[1])
    checks.check_vector("columns", column_indices, length=len(row_indices), like="rows")
    if len(row_indices) == 0 and not can_be_empty:
        raise ValueError(
            "rows: is empty, there is no cell. At least one is needed; check the filter or the "
            "file they came from."
        )
    ids = (
        as_names("row_names", names[0], size=shape[0]),
        as_names("column_names", names[1], size=shape[1]),
    )
    checks.check_no_duplicates(
        "rows, columns", row_indices, column_indices, num_columns=shape[1], remedy=remedy, names=ids
    )
    return row_indices, column_indices, ids


def is_anndata(x: object) -> bool:
    """Whether it has what is used of an AnnData."""
    return all(hasattr(x, name) for name in ("X", "obs_names", "var_names"))


def is_frame(x: object) -> bool:
    """Whether it is a DataFrame, as far as is used here."""
    return hasattr(x, "columns") and hasattr(x, "index") and hasattr(x, "to_numpy")


def is_sparse(x: object) -> bool:
    """Whether it is a scipy.sparse matrix or array."""
    return hasattr(x, "tocoo") and hasattr(x, "nnz")


def peel(argument: str, x: Any) -> LabelledMatrix:
    """The matrix and the ids of an array, DataFrame, scipy.sparse matrix, AnnData or Table.

    Raises TypeError: no matrix, or a DataFrame with a column that holds no numbers.
    """
    x = as_pandas(x)
    if isinstance(x, LabelledMatrix):
        return x
    if is_anndata(x):
        if x.X is None:
            raise ValueError(
                f"{argument}: its X is None. Pass the layer that is meant, as an array."
            )
        return LabelledMatrix(x.X, x.obs_names, x.var_names)
    if is_frame(x):
        x = _with_ids(x)
        return LabelledMatrix(_frame_values(argument, x), x.index, x.columns)
    if isinstance(x, (str, bytes)):
        raise TypeError(
            f"{argument}: is the text {x!r}. Read the file first: jaxmf.data.read_matrix(path)."
        )
    if x is None or isinstance(x, Mapping):
        raise TypeError(
            f"{argument}: a {type(x).__name__} is no matrix. Pass an array, DataFrame, "
            "scipy.sparse matrix, AnnData or a container of jaxmf."
        )
    return LabelledMatrix(x)


def _with_ids(frame: pd.DataFrame) -> pd.DataFrame:
    """A DataFrame whose first column holds texts, each once, with these as its index.

    Only where the index says nothing (0, 1, 2, ...) and other columns follow; files are read so.
    """
    if len(frame.columns) < 2 or not counts_from_zero(frame.index, len(frame)) or not len(frame):
        return frame
    first = frame.iloc[:, 0]
    ids = first.tolist() if getattr(first.dtype, "kind", "O") not in "biufcmM" else []
    is_id = bool(ids) and all(isinstance(name, str) for name in ids) and len(set(ids)) == len(ids)
    is_id = is_id and not have_decimal_commas({name.strip() for name in ids})  # numbers, not ids
    return frame.iloc[:, 1:].set_axis(ids, axis=0) if is_id else frame


def _frame_values(argument: str, frame: pd.DataFrame) -> np.ndarray:
    """The numbers of a DataFrame, NaN where it has none."""
    if 0 in frame.shape:
        return np.zeros(frame.shape)
    columns = []
    for position in range(len(frame.columns)):
        column = frame.iloc[:, position]
        kind = getattr(column.dtype, "kind", "O")
        if kind not in "biufc":
            raise TypeError(f"{argument}: {odd_columns(frame)}")
        if getattr(column.dtype, "na_value", None) is not None and column.isna().any():
            columns.append(column.to_numpy(dtype=float, na_value=np.nan))
        else:
            columns.append(column.to_numpy(dtype=getattr(column.dtype, "numpy_dtype", None)))
    return np.stack(columns, axis=1)


def odd_columns(frame: pd.DataFrame) -> str:
    """Which columns of a DataFrame hold no numbers, and what to do with the first; "" of none."""
    frame = _with_ids(frame)
    odd = [k for k, dtype in enumerate(frame.dtypes) if getattr(dtype, "kind", "O") not in "biufc"]
    if not odd:
        return ""
    others = [repr(frame.columns[position]) for position in odd[1:]]
    shown = ", ".join(others[:_MOST_SHOWN]) + ", ..." * (len(others) > _MOST_SHOWN)
    also = f", nor do {shown}" if len(others) > 1 else f", nor does {shown}" if others else ""
    return _bad_column(frame, odd, also)


def _bad_column(frame: pd.DataFrame, odd: list[int], also: str) -> str:
    label, column = frame.columns[odd[0]], frame.iloc[:, odd[0]]
    first = next(
        (f", first {v!r} at row {i}" for i, v in enumerate(column) if isinstance(v, str)), ""
    )
    what = f"column {label!r} has dtype {column.dtype}, numbers are needed{first}"
    what += f" (it holds no numbers{also})." if also else "."
    if getattr(column.dtype, "kind", "O") == "M":
        return f"{what} Dates are no numbers of a matrix: drop the column (df.drop(columns=...))."
    texts = {v.strip() for v in column if isinstance(v, str) and v.strip().lower() not in MISSING}
    if have_decimal_commas(texts):
        return (
            f"{what} Its commas are decimal: df[{label!r}].str.replace('.', '')"
            ".str.replace(',', '.').astype(float), or read the file with "
            "pandas.read_csv(path, decimal=',') or jaxmf.data.read_matrix(path)."
        )
    if not all(map(is_numeric, texts)) and are_written_values(texts):
        return (
            f"{what} Its texts are numbers as people write them, which pandas.to_numeric does not "
            f"take: df[{label!r}].str.replace(',', '').astype(float) where commas separate "
            "thousands, or read the file by jaxmf.data.read_matrix(path)."
        )
    answers = _two_answers(column)
    if answers is not None:
        alike = [frame.columns[k] for k in odd if _two_answers(frame.iloc[:, k]) == answers]
        # a map of the whole table would make its numbers missing
        these = "df" if len(alike) == len(frame.columns) else f"df[{alike!r}]"
        changed = f"{these} = " * (these != "df")
        return (
            f"{what} Answers become numbers, and all else missing, by "
            f"{changed}{these}.map({answers}.get)."
        )
    if not first and _is_numeric_column(column):
        return (
            f"column {label!r} has dtype {column.dtype}, numbers are needed. Its values are "
            "numbers: df.astype(float) has them as such."
        )
    words = _positions_of_words(column)
    if words:
        alike = [frame.columns[k] for k in odd if _positions_of_words(frame.iloc[:, k])]
        return (
            f"column {label!r} has dtype {column.dtype}, numbers are needed, but {len(words):,} of "
            f"its {len(column):,} cells hold words, first {column.iloc[words[0]]!r} at row "
            f"{words[0]}. If such cells are missing, make them NaN: df[{alike!r}] = "
            f"df[{alike!r}].apply(pandas.to_numeric, errors='coerce'); if they stand for numbers, "
            "say which by df.replace({word: number}) first."
        )
    return (
        f"{what} Drop the column, make it the ids (df.set_index({label!r})), or convert it: texts "
        "of numbers by pandas.to_numeric, categories to their codes by "
        f"df[{label!r}].astype('category').cat.codes.replace(-1, np.nan), which mixtures take with "
        "family=mf.MixedColumns([...]). A first column of texts, each once, is taken as ids."
    )


def _is_numeric_column(column: pd.Series) -> bool:
    """Whether a column of objects has nothing but numbers, and missing cells."""
    try:
        column.astype(float)
    except (TypeError, ValueError):
        return False
    return True


def _positions_of_words(column: pd.Series) -> list[int]:
    """Positions of texts that are no numbers, in a column more than half of which is numbers."""
    cells = column.tolist()
    words = [
        position
        for position, cell in enumerate(cells)
        if isinstance(cell, str) and cell.strip().lower() not in MISSING and not is_numeric(cell)
    ]
    known = [cell for cell in cells if isinstance(cell, (str, int, float)) and cell == cell]
    return words if 2 * len(words) < len(known) else []


def _two_answers(column: pd.Series) -> dict[str, int] | None:
    """The texts of a column that are all yes or no, or missing, as 0 and 1; None of others."""
    texts = {v: v.strip().lower() for v in column if isinstance(v, str)}
    answers = {v: text for v, text in texts.items() if text not in MISSING}
    known = next((words for words in TRUTHS if set(answers.values()) == set(words)), None)
    if known is None:
        return None
    return dict(sorted(((v, int(known[text])) for v, text in answers.items()), key=lambda x: x[1]))
