"""Tokens: a long table, one line a token, each with an index (or a number) in every column."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxmf.arguments import assign
from jaxmf.data import alignment, checks, process_tokens
from jaxmf.data.cells_by_id import SpansProcesses
from jaxmf.data.container import LabelledMatrix, bare, digest, lookup, peel
from jaxmf.data.frames import as_pandas
from jaxmf.data.names import as_names, positions
from jaxmf.data.texts import count_lists, count_texts
from jaxmf.data.tokens_of_counts import BLOCK, open_up
from jaxmf.types import Array, Names, PyTree


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, init=False, eq=False, repr=False)
class Tokens(SpansProcesses):
    """A table of T tokens: columns of indices (document, word, user, ...) and of real values.

    Lines may repeat: a word that stands twice in a document is two tokens. Sweeps visit the tokens
    in their order here; where there are millions, neighbours that share levels save time
    (`from_counts` orders them so). A level without a token (an empty document, a word that does
    not occur) is taken as it is: its distribution is the prior's. No token at all is an error.

    A pytree of the arrays; the sizes are static, the ids live on the host only.

    Args:
        columns: for each name (T,) whole numbers in 0..size-1.
        sizes: for each name how many levels there are; the names are those of ``columns``.
        values: for each name (T,) finite numbers, or (T, D) vectors of them; NaN for missing ones,
            which blocks of `IndependentColumns` take.
        names: for each name the ids of the levels, or leave it out.
    Raises:
        TypeError: objects, text or complex numbers.
        ValueError: lengths that differ, indices out of range, infinite values, no tokens, ids that
            do not fit.
    Example:
        >>> Tokens({"document": [0, 0, 1], "word": [2, 2, 0]}, {"document": 2, "word": 3})
        Tokens(3 tokens, document: 2, word: 3)
    """

    columns: dict[str, Array]
    sizes: dict[str, int]
    values: dict[str, Array]
    names: dict[str, Names]

    def __init__(
        self,
        columns: Mapping[str, object],
        sizes: Mapping[str, int],
        values: Mapping[str, object] | None = None,
        names: Mapping[str, object] | None = None,
    ) -> None:
        values, names = checks.as_mapping("values", values), checks.as_mapping("names", names)
        _check_labels(columns=columns, sizes=sizes, values=values, names=names)
        if checks.is_traced(*columns.values(), *values.values()):
            assign(self, columns=dict(columns), sizes=dict(sizes), values=dict(values), names={})
            return
        checked_sizes = {
            label: checks.check_shape_pair(f"sizes[{label!r}]", (sizes[label], 1))[0]
            for label in columns
        }
        indices = {
            label: checks.as_index(f"column {label!r}", column, size=checked_sizes[label])
            for label, column in columns.items()
        }
        first, array = next(iter(indices.items()))
        if len(array) == 0:
            raise ValueError(
                f"column {first!r}: is empty, there is no token. At least one is needed; check the "
                "filter or the file they came from."
            )
        real_columns = {
            label: checks.as_numeric(f"values {label!r}", column)
            for label, column in values.items()
        }
        for label, column in (*indices.items(), *real_columns.items()):
            lines = column[:, 0] if label in real_columns and column.ndim == 2 else column
            checks.check_vector(f"column {label!r}", lines, length=len(array), like=repr(first))
        for label, column in real_columns.items():
            checks.check_finite(f"values {label!r}", np.where(np.isnan(column), 0, column))
        assign(
            self,
            columns={label: jax.device_put(column) for label, column in indices.items()},
            sizes=checked_sizes,
            values={
                label: jax.device_put(checks.as_float(f"values {label!r}", column))
                for label, column in real_columns.items()
            },
            names={
                label: as_names(f"names[{label!r}]", levels, size=checked_sizes[label])
                for label, levels in names.items()
                if levels is not None
            },
        )

    @classmethod
    def from_columns(
        cls,
        columns: Any,
        *,
        values: Mapping[str, object] | None = None,
        names: Mapping[str, object] | None = None,
    ) -> Self:
        """Data from columns of ids, one line a token.

        Args:
            columns: for each name T ids of any type; a mapping or a DataFrame.
            values: for each name (T,) numbers.
            names: for each name all ids, in order; ids are taken in order of appearance for names
                that are left out.
        Raises:
            TypeError, ValueError: as the class; a missing id, an id that ``names`` lacks.
        Example:
            >>> Tokens.from_columns({"user": ["ann", "bo", "ann"], "rating": [5, 3, 3]})
            Tokens(3 tokens, user: 2, rating: 2)
        """
        known_names = checks.as_mapping("names", names)
        indices, sizes, ids = {}, {}, {}
        columns = as_pandas(columns)
        if not hasattr(columns, "keys"):
            raise TypeError(
                f"columns: a {type(columns).__name__} has no names. Pass a mapping from names to "
                "columns, or a DataFrame."
            )
        for label in columns:
            index, levels = lookup(f"column {label!r}", columns[label], known_names.get(label))
            indices[label], ids[label], sizes[label] = index, levels, max(len(levels), 1)
        if not all(len(index) for index in indices.values()):
            ids = {}  # no tokens: let the class say so
        return cls(indices, sizes, checks.as_mapping("values", values), ids)

    @classmethod
    def from_counts(
        cls,
        counts: object,
        *,
        vocabulary: object = None,
        row_names: object = None,
        row: str = "document",
        column: str = "word",
    ) -> Self:
        """Data from a matrix of counts, each count expanded into this many equal tokens.

        The tokens of a column stand together, in the order of the rows; of many rows, block by
        block of 1,024.

        Args:
            counts: (N, D) whole numbers, an array, DataFrame, AnnData or scipy.sparse matrix.
            vocabulary: D ids of the columns, instead of those of ``counts``.
            row_names: N ids of the rows, instead of those of ``counts``.
            row: the name of the tokens' column for the rows.
            column: the name of the tokens' column for the columns.
        Raises:
            TypeError, ValueError: as the class; negative, fractional or missing counts, more tokens
                than int32 can index.
        Example:
            >>> Tokens.from_counts([[2, 0], [0, 1]], vocabulary=["yes", "no"])
            Tokens(3 tokens, document: 2, word: 2)
        """
        for argument, label in (("row", row), ("column", column)):
            if not isinstance(label, str):
                raise TypeError(f"{argument}: must be a text, the name of a column, is {label!r}.")
        table = peel("counts", counts)
        table = table._replace(
            column_names=table.column_names if vocabulary is None else vocabulary,
            row_names=table.row_names if row_names is None else row_names,
        )
        return cls._from_table(table, row=row, column=column)

    @classmethod
    def _from_table(
        cls,
        table: LabelledMatrix,
        *,
        row: str = "document",
        column: str = "word",
        can_be_empty: bool = False,
    ) -> Self:
        rows, columns, shape = open_up(table.values, can_be_empty=can_be_empty)
        ids = {
            label: as_names(argument, ids, size=size)
            for label, argument, ids, size in (
                (row, "row_names", table.row_names, shape[0]),
                (column, "vocabulary", table.column_names, shape[1]),
            )
        }
        found = {label: array for label, array in ids.items() if array is not None}
        indices, sizes = {row: rows, column: columns}, {row: shape[0], column: shape[1]}
        if rows.size:
            return cls(indices, sizes, {}, found)
        empty = {label: jnp.asarray(index) for label, index in indices.items()}
        return bare(cls, columns=empty, sizes=sizes, values={}, names=found)

    @classmethod
    def from_texts(
        cls, texts: object, *, vectorizer: object = None, documents: object = None
    ) -> Self:
        """Data from texts, counted by a vectoriser of scikit-learn (extra ``sklearn``).

        The words are ids: documents that come later, counted by any vectoriser, are matched to
        these by word.

        Args:
            texts: N str, one for each document; a list, a Series, or a mapping from ids to texts.
            vectorizer: splits and counts, by default ``CountVectorizer()``: lower case, words of
                two letters and more. One that is fitted already is not fitted again, words beyond
                its vocabulary are left out; else this call fits it.
            documents: N ids of the documents, instead of those of ``texts``.
        Raises:
            TypeError: one text in place of several, no text, no vectoriser.
            ValueError: a text is missing, no text has a word, weights in place of counts, ids that
                do not fit.
            ImportError: scikit-learn is not installed.
        Example:
            >>> Tokens.from_texts(["green tea", "tea with milk"])
            Tokens(5 tokens, document: 2, word: 4)
        """
        counts, words, ids = count_texts(texts, vectorizer=vectorizer, documents=documents)
        return cls.from_counts(counts, vocabulary=words, row_names=ids)

    @classmethod
    def from_lists(cls, lists_of_tokens: object, *, documents: object = None) -> Self:
        """Data from documents that are split into words already.

        Args:
            lists_of_tokens: N lists of words, of any length; a list, a Series, or a mapping from
                ids to lists. A document may be empty.
            documents: N ids of the documents, instead of those of ``lists_of_tokens``.
        Raises:
            TypeError: a text in place of a list, a word that cannot be hashed.
            ValueError: a word is missing, all lists are empty, ids that do not fit.
        Example:
            >>> Tokens.from_lists([["green", "tea"], ["tea", "milk", "tea"]])
            Tokens(5 tokens, document: 2, word: 3)
        """
        counts, words, ids = count_lists(lists_of_tokens, documents=documents)
        return cls.from_counts(counts, vocabulary=words, row_names=ids)

    @classmethod
    def from_process_rows(
        cls, x: object, *, mesh: Mesh, row: str = "document", column: str = "word"
    ) -> Self:
        """Data of which each process of `jax.distributed` has some documents and none has all.

        Every process makes this call with its documents, and keeps them. Ids come in the order of
        their appearance, process after process; documents without ids are those of process 0, then
        those of process 1, and so on; words without ids are the same in all. `jaxmf.sample` of
        `LDA`, `HDPLDA` and `PAM` with ``sweep="parallel"`` takes such data, with the same mesh;
        ids, fingerprint and draws are those of the tokens of all processes one after another. Of
        `LDA` on CPUs a device then has the tokens of its documents, else all.

        Args:
            x: `Tokens` of this process with these two columns, or counts as for `from_counts`.
            mesh: with an axis "data" that goes through the devices of the processes in their order.
            row: the name of the tokens' column for the documents.
            column: the name of the tokens' column for the words.
        Raises:
            TypeError, ValueError: as the class, in all processes together; ids in some processes
                alone, other numbers of words without ids, a document in two processes, more tokens
                than int32 can number.
        """

        def make() -> PyTree:
            return x if isinstance(x, cls) else cls.from_counts(x, row=row, column=column)

        return process_tokens.from_process_rows(cls, make, mesh, (row, column))

    @property
    def num_tokens(self) -> int:
        """T."""
        return next(iter(self.columns.values())).shape[0]

    def positions(self, column: str, ids: object) -> np.ndarray:
        """Positions of levels of a column by id (by position where it has no ids)."""
        if column not in self.sizes:
            raise ValueError(
                f"column: {column!r} is not one of {', '.join(map(repr, self.sizes))}."
            )
        return positions(column, ids, names=self.names.get(column), size=self.sizes[column])

    def align_columns(
        self,
        known: Self,
        *,
        argument: str = "data",
        unknown: str = "error",
        can_drop: bool = True,
    ) -> Self:
        """The same tokens with the levels of the data that a model was fitted to.

        In every column of the data but that of documents, whose levels are new, levels are matched
        by id if both have ids, so that new documents may use a part of the words; else by position.
        Tokens are in the order in which `from_counts` puts them, whatever the order of words was.

        Args:
            known: the data.
            argument: how errors call these tokens.
            unknown: of levels that the data lacks: "error", or "drop" to leave their tokens out.
            can_drop: whether errors may advise the latter.
        Returns:
            The tokens; with "drop" none may be left, a document then has the prior.

        Warns:
            UserWarning: more than half of the tokens are left out, or all those of a document.
        Raises:
            ValueError: a column that is not there, an unknown level; other sizes where one side
                has no ids.
        """
        sizes, names_of = dict(self.sizes), dict(self.names)
        indices = {label: np.asarray(column) for label, column in self.columns.items()}
        there = np.ones(self.num_tokens, bool)
        for label in known.columns:
            if label not in indices:
                raise ValueError(f"{argument}: has no column {label!r}, which the data has")
            if label == "document":
                continue
            order = alignment.matched_positions(
                self.names.get(label),
                known.names.get(label),
                sizes=(sizes[label], known.sizes[label]),
                argument=argument,
                word=label,
                unknown=unknown,
                can_drop=can_drop,
            )
            indices[label] = order[indices[label]].astype(np.int32)
            there &= indices[label] >= 0
            sizes[label] = known.sizes[label]
            if label in known.names:
                names_of[label] = known.names[label]
        alignment.warn_of_dropped(there, indices.get("document"), argument=argument)
        first, *others = (indices[label][there] for label in indices)
        kept = np.flatnonzero(there)[np.lexsort((first, *others, first // BLOCK))]
        columns = {label: jnp.asarray(index[kept]) for label, index in indices.items()}
        values = {
            label: jnp.asarray(np.asarray(column)[kept]) for label, column in self.values.items()
        }
        return bare(type(self), columns=columns, sizes=sizes, values=values, names=names_of)

    def describe(self) -> str:
        """How much of what there is, for messages."""
        levels = [f"{label}: {size:,}" for label, size in self.sizes.items()]
        return f"{self.num_tokens:,} tokens ({', '.join(levels)})"

    def size(self) -> str:
        """How large it is, in a few characters."""
        return f"{self.num_tokens:,} tokens"

    def fingerprint(self) -> str:
        """SHA-256 of sizes and columns, in hex; neither ids nor the order of columns enter."""
        if "_fingerprint" in self.__dict__:
            return str(self.__dict__["_fingerprint"])
        values = {f"values {label}": self.values[label] for label in sorted(self.values)}
        columns = {label: self.columns[label] for label in sorted(self.columns)}
        return digest("Tokens", tuple(sorted(self.sizes.items())), {**columns, **values})

    def __repr__(self) -> str:
        levels = "".join(f", {label}: {size}" for label, size in self.sizes.items())
        values = "".join(f", {label}: real" for label in self.values)
        return f"Tokens({self.num_tokens} tokens{levels}{values})"

    def tree_flatten_with_keys(
        self,
    ) -> tuple[tuple[tuple[jax.tree_util.GetAttrKey, PyTree], ...], PyTree]:
        """The arrays; ids stay behind. Of tokens in several processes it is all of it, static."""
        if self.spans_processes:
            return (), self
        key = jax.tree_util.GetAttrKey
        children = ((key("columns"), self.columns), (key("values"), self.values))
        return children, tuple(self.sizes.items())

    @classmethod
    def tree_unflatten(
        cls, sizes: tuple[tuple[str, int], ...] | Self, children: tuple[PyTree, ...]
    ) -> Self:
        """Built without checks: the leaves may be anything jax puts there."""
        if not isinstance(sizes, tuple):
            return sizes
        columns, values = children
        return bare(cls, columns=columns, sizes=dict(sizes), values=values, names={})


def _check_labels(**mappings: Any) -> None:
    """Names of columns that are texts, agree with the sizes, and stand once."""
    for argument, mapping in mappings.items():
        if not isinstance(mapping, Mapping):
            raise TypeError(
                f"{argument}: a {type(mapping).__name__} is no mapping from names of columns. "
                "Write for instance {'document': ..., 'word': ...}."
            )
    columns, sizes, values, names = (
        mappings[argument] for argument in ("columns", "sizes", "values", "names")
    )
    if not columns:
        raise ValueError("columns: is empty. At least one column of indices is needed.")
    for label in (*columns, *values):
        if not isinstance(label, str):
            raise TypeError(f"columns: the name {label!r} is no text. Columns are named by texts.")
    if set(sizes) != set(columns):
        raise ValueError(
            f"sizes: has the names {sorted(sizes)}, the columns are {sorted(columns)}. "
            "Give one size for each column."
        )
    for label in names:
        if label not in columns:
            raise ValueError(f"names: {label!r} is not one of the columns {list(columns)}.")
    for label in values:
        if label in columns:
            raise ValueError(f"values: {label!r} is a column of indices too. Rename one of them.")


def new_tokens(counts: object) -> Tokens:
    """As `Tokens.from_counts`, of new documents, of which none needs to have a word."""
    return Tokens._from_table(peel("counts", counts), can_be_empty=True)
