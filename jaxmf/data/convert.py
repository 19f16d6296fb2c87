"""Users' own objects made into the container that a model needs."""

from typing import Any, TypeVar

from jaxmf.data.container import Table, is_anndata, is_frame, is_sparse
from jaxmf.data.dense import Dense
from jaxmf.data.entries import Entries
from jaxmf.data.sparse_binary import SparseBinary
from jaxmf.data.sparse_series import SparseSeries
from jaxmf.data.tokens import Tokens

Container = Dense | Entries | SparseBinary | SparseSeries | Tokens
"""Any of the containers."""

C = TypeVar("C", Dense, Entries, SparseBinary, SparseSeries, Tokens)

_MAKE_ONE = {
    Dense: "Dense.from_array(x), NaN for missing cells",
    Entries: "Entries.from_pandas(df, row=, column=, value=) or Entries.from_scipy(matrix)",
    SparseBinary: "SparseBinary.from_baskets(lists), .from_pairs(pairs) or .from_scipy(matrix)",
    SparseSeries: "SparseSeries.from_matrices(matrices, times) or .from_triples(triples)",
    Tokens: "Tokens.from_counts(counts) or Tokens.from_columns(columns)",
}


def as_container(data: Any, container_type: type[C], name: str = "data") -> C:
    """The data as a container of the type, where only one reading is possible.

    - ``Dense``: arrays, DataFrames, AnnData; a scipy.sparse matrix, whose unstored cells are zeros.
    - ``Entries``: arrays (NaN is missing); a scipy.sparse matrix, whose stored cells are observed.
    - ``SparseBinary``: arrays, DataFrames, AnnData and scipy.sparse matrices of zeros and ones.
    - ``SparseSeries``: nothing else, as other objects do not say their times.
    - ``Tokens``: the same of counts, rows being documents and columns words.

    Args:
        data: a container, or what one is made of.
        container_type: ``Dense``, ``Entries``, ``SparseBinary``, ``SparseSeries`` or ``Tokens``.
        name: what the user calls the data, for the message.

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
    if container_type is SparseSeries:
        raise TypeError(
            f"{name}: a {type(data).__name__} does not say its times. Make a SparseSeries with "
            f"{_MAKE_ONE[container_type]}."
        )
    make: Any = getattr(container_type, "from_array", Tokens.from_counts)
    if container_type is Entries:
        question = "is it a long table or a matrix"
        _check_one_reading(name, data, Entries, question, is_frame, is_anndata)
        make = Entries.from_scipy if is_sparse(data) else make
    if container_type is SparseBinary:
        question = "are these baskets or rows of zeros and ones"
        _check_one_reading(name, data, SparseBinary, question, _is_plain_list)
    try:
        result: C = make(data)
    except (TypeError, ValueError) as error:
        if str(error).startswith(f"{name}:"):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{name}: {str(error).removeprefix('data: ')}") from None
    return result


def _is_plain_list(data: Any) -> bool:
    return isinstance(data, (list, tuple)) and not isinstance(data, Table)


def _check_one_reading(
    name: str, data: Any, container_type: Any, question: str, *refused: Any
) -> None:
    if any(test(data) for test in refused):
        raise TypeError(
            f"{name}: a {type(data).__name__} has more than one reading here: {question}? "
            f"Say it with {_MAKE_ONE[container_type]}, or .from_array(x) for a matrix."
        )
