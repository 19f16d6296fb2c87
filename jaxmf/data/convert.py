"""Users' own objects made into the container that a model needs."""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.data import alignment
from jaxmf.data.checks import as_numeric
from jaxmf.data.container import (
    LabelledMatrix,
    bare,
    is_anndata,
    is_frame,
    is_sparse,
    odd_columns,
    peel,
)
from jaxmf.data.dense import Dense
from jaxmf.data.entries import Entries
from jaxmf.data.frames import as_pandas
from jaxmf.data.headings import roles
from jaxmf.data.long_arrays import count_where
from jaxmf.data.names import as_names
from jaxmf.data.sparse_binary import SparseBinary
from jaxmf.data.sparse_series import SparseSeries
from jaxmf.data.suspects import are_ids
from jaxmf.data.tokens import Tokens, new_tokens
from jaxmf.devices import device_of
from jaxmf.user_warnings import warn

Container = Dense | Entries | SparseBinary | SparseSeries | Tokens
"""Any of the containers."""

MatrixContainer = Dense | Entries | SparseBinary | SparseSeries
"""The containers with rows and columns."""

C = TypeVar("C", Dense, Entries, SparseBinary, SparseSeries, Tokens)

_INDEX_SIZE = 4  # bytes of an int32
_MAKE_ONE = {
    Dense: "Dense.from_array(x), NaN for missing cells",
    Entries: "Entries.from_pandas(df, row=, column=, value=) or Entries.from_scipy(matrix)",
    SparseBinary: "SparseBinary.from_baskets(lists), .from_pairs(pairs) or .from_scipy(matrix)",
    SparseSeries: "SparseSeries.from_matrices(matrices, times) or .from_triples(triples)",
    Tokens: "Tokens.from_texts(texts), .from_counts(counts) or .from_columns(columns)",
}


def as_container(
    data: object, container_type: type[C], name: str = "data", *, can_be_empty: bool = False
) -> C:
    """The data as a container of the type, where only one reading is possible.

    - ``Dense``: arrays, DataFrames, AnnData; a scipy.sparse matrix, whose unstored cells are zeros.
    - ``Entries``: arrays, AnnData (NaN is missing), DataFrames of more than four columns, all of
      numbers; a scipy.sparse matrix, whose stored cells are observed.
    - ``SparseBinary``: arrays, DataFrames, AnnData and scipy.sparse matrices of zeros and ones.
    - ``SparseSeries``: nothing else, as other objects do not say their times.
    - ``Tokens``: the same of counts, rows being documents and columns words.

    Args:
        data: a container, or what one is made of.
        container_type: ``Dense``, ``Entries``, ``SparseBinary``, ``SparseSeries`` or ``Tokens``.
        name: what the user calls the data, for the message.
        can_be_empty: whether all counts may be 0, as those of new documents, and columns may be
            without a cell, as those of new rows.
    Raises:
        TypeError: another container, or an object with more than one reading; says what to write.
        ValueError: what the container says.
    Example:
        >>> as_container([[0, 1], [1, 1]], Dense)
        Dense(2 x 2, 0 missing)
    """
    if isinstance(data, container_type):
        return data
    if isinstance(data, Container):
        raise TypeError(
            f"{name}: is {type(data).__name__}, this model needs {container_type.__name__}. "
            f"Make one with {_MAKE_ONE[container_type]}."
        )
    data = as_pandas(data)
    if container_type is SparseSeries:
        raise TypeError(
            f"{name}: a {type(data).__name__} does not say its times. Make a SparseSeries with "
            f"{_MAKE_ONE[container_type]}."
        )
    make_tokens = new_tokens if can_be_empty else Tokens.from_counts
    make: Any = getattr(container_type, "from_array", make_tokens)
    if can_be_empty:
        make = getattr(container_type, "from_new_rows", make)
    if container_type is Tokens and _has_line_a_token(data):
        raise TypeError(
            f"{name}: a {type(data).__name__} of ids is no matrix of counts. A table with a line "
            "for each token becomes data by mf.Tokens.from_columns(df), its columns of real "
            "numbers by values={name: column}; documents by mf.Tokens.from_lists or .from_texts"
        )
    if container_type is Entries:
        question = "is it a long table or a matrix"
        _check_one_reading(name, data, Entries, question, _may_be_long)
        make = Entries.from_scipy if is_sparse(data) else make
    if container_type is SparseBinary:
        question = "are these baskets or rows of zeros and ones"
        _check_one_reading(name, data, SparseBinary, question, _is_plain_list)
    try:
        result: C = make(data)
    except (TypeError, ValueError) as error:
        pairs = _as_pairs(data) if container_type is SparseBinary else ""
        if str(error).startswith(f"{name}:") and not pairs:
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        sentence = str(error).removeprefix("data: ").removeprefix(f"{name}: ")
        raise kind(f"{name}: {sentence}{pairs}") from None
    if isinstance(result, Tokens) and result.sizes.get("word") == 2:
        _warn_of_ids(name, data)
    return result


def num_bytes_of(data: Any, container_type: type) -> int:
    """Bytes that `as_container` has to make of a matrix; 0 where that is not known beforehand."""
    matrix = getattr(data, "X", data)
    shape = getattr(matrix, "shape", ())
    if isinstance(data, Container) or len(shape) != 2:
        return 0
    float_size = np.dtype(jnp.result_type(float)).itemsize
    if container_type is Dense:
        num_cells = math.prod(int(size) for size in shape)
        # unstored cells of a sparse matrix are written out in its dtype first
        first = num_cells * data.dtype.itemsize if is_sparse(data) else 0
        return num_cells * float_size + first
    values = matrix.data if is_sparse(matrix) else matrix
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "biuf":
        return 0
    if container_type is Entries:
        is_whole = is_sparse(matrix) or values.dtype.kind != "f"
        num_cells = values.size if is_whole else count_where(values, np.isfinite)
        return num_cells * (2 * _INDEX_SIZE + float_size)
    if container_type is SparseBinary:
        return 2 * _INDEX_SIZE * int(np.count_nonzero(values))
    if container_type is Tokens:
        total = float(np.sum(values, dtype=float))
        return 2 * _INDEX_SIZE * int(total) if 0 < total < np.inf else 0
    return 0


def complete_matrix(values: object, data: MatrixContainer, *, argument: str) -> np.ndarray:
    """A complete matrix in the order of the rows and columns of the data.

    Args:
        values: (N, D) numbers; those of a DataFrame, AnnData, `Dense` or `LabelledMatrix` are
            matched by the ids of rows and columns where both sides have ids, others stand in the
            order of the data. Of `Entries` the cells that are not there are NaN.
    Raises:
        ValueError: another shape, or other ids.
    """
    if isinstance(values, Entries):
        rows, columns, known = matched_cells(values, data, argument=argument)
        filled = np.full((data.num_rows, data.num_columns), np.nan)
        filled[rows, columns] = known
        return filled
    table = LabelledMatrix(values)
    if isinstance(values, Dense):
        table = LabelledMatrix(values.to_array(), values.row_names, values.column_names)
    elif isinstance(values, LabelledMatrix) or is_frame(values) or is_anndata(values):
        table = peel(argument, values)
    values = table.values.toarray() if is_sparse(table.values) else table.values
    matrix = as_numeric(argument, values).astype(float)
    shape = data.num_rows, data.num_columns
    if matrix.shape != shape:
        raise ValueError(f"{argument} has shape {matrix.shape}, the data {shape}")
    orders = []
    for side, word in enumerate(("row", "column")):
        names, known = getattr(table, f"{word}_names"), getattr(data, f"{word}_names")
        positions = alignment.matched_positions(
            as_names(f"{argument}: {word}s", names, size=shape[side]),
            known,
            sizes=(shape[side], shape[side]),
            argument=argument,
            word=word,
            can_drop=False,
        )
        orders.append(np.argsort(positions))
    return matrix[np.ix_(*orders)]


def matched_cells(
    entries: Entries, data: MatrixContainer, *, argument: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where observed cells stand in the data: rows, columns (M,) int64, and values (M,) float.

    Rows and columns are matched by id where both sides have ids, and may then be a part of them.

    Raises:
        ValueError: an id that the data lacks; another size where one side has no ids.
    """
    cells = []
    for word in ("row", "column"):
        names, known = getattr(entries, f"{word}_names"), getattr(data, f"{word}_names")
        sizes = getattr(entries, f"num_{word}s"), getattr(data, f"num_{word}s")
        there = np.asarray(getattr(entries, f"{word}s"), np.int64)
        found = alignment.matched_positions(
            names, known, sizes=sizes, argument=argument, word=word, can_drop=False
        )
        cells.append(found[there])
    return cells[0], cells[1], np.asarray(entries.values, float)


def _may_be_long(data: object) -> bool:
    """Whether a DataFrame may have a line for each cell: a row, a column, a value, maybe a time."""
    if not is_frame(data):
        return False
    headings = [str(heading) for heading in getattr(data, "columns", ())]
    dtypes = getattr(data, "dtypes", ())
    is_numeric = all(getattr(dtype, "kind", "O") in "biuf" for dtype in dtypes)
    return len(headings) <= 4 or not is_numeric or roles(headings) is not None


def _has_line_a_token(data: object) -> bool:
    """Whether it is a mapping, or a DataFrame half of whose columns or more are no numbers."""
    if not is_frame(data):
        return isinstance(data, Mapping)
    are_ids = [getattr(dtype, "kind", "O") not in "biuf" for dtype in getattr(data, "dtypes", ())]
    if sum(are_ids) < 2 or 2 * sum(are_ids) < len(are_ids):
        return False
    first = np.asarray(data)[:1].ravel()  # numbers may stand in columns of objects
    return not all(isinstance(value, (int, float, np.integer, np.floating)) for value in first)


def _warn_of_ids(name: str, data: object) -> None:
    """Says that a table of counts of two words looks like a list of ids, a line a token."""
    values = peel(name, data).values
    if is_sparse(values) or not are_ids(np.asarray(values)):
        return
    warn(
        f"{name}: a table of two columns is read as counts of two words, and its numbers look like "
        "ids, one line a token. If they are, pass mf.Tokens.from_columns({'document': documents, "
        "'word': words}), each one of its columns"
    )


def _as_pairs(data: object) -> str:
    """What to do with a DataFrame of two to four columns that may have a line for each one."""
    columns = list(getattr(data, "columns", ())) if is_frame(data) else []
    if not 2 <= len(columns) <= 4:
        return ""
    return (
        " A table with a line for each one becomes data by "
        f"mf.SparseBinary.from_pairs(df[{columns[:2]!r}]), of the columns of the ids; with times, "
        "mf.SparseSeries.from_triples."
    )


def _is_plain_list(data: object) -> bool:
    return isinstance(data, (list, tuple)) and not isinstance(data, LabelledMatrix)


def _check_one_reading(
    name: str, data: object, container_type: type, question: str, *refused: Callable[[object], bool]
) -> None:
    if any(test(data) for test in refused):
        frame: Any = data
        # up to four columns may be those of a list: row, column, value, time
        is_wide = is_frame(data) and len(frame.columns) > 4
        odd = odd_columns(frame) if is_wide else ""
        raise TypeError(
            f"{name}: a {type(data).__name__} has more than one reading here: {question}? "
            f"Say it with {_MAKE_ONE[container_type]}, or .from_array(x) for a matrix."
            f"{f' It cannot be read as a matrix yet: {odd}' if odd else ''}"
        )


def put_beside(container: C, data: object) -> C:
    """The container that was made of data, its arrays on the device that holds these.

    Its ids, which live on the host, stay; `jax.device_put` of a container would drop them.
    """
    device = device_of(data)
    if device is None or container is data:
        return container
    arrays = {
        name: jax.device_put(value, device)
        for name, value in vars(container).items()
        if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(value))
    }
    return bare(type(container), **(vars(container) | arrays))
