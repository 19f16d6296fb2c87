"""Features: what is known of rows, of columns or of cells besides the data."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from jaxmf.arguments import check_flag
from jaxmf.data import checks, names
from jaxmf.data.container import assign, bare, digest, is_frame, is_sparse
from jaxmf.data.encoding import MISSING, Column, encode_columns, encode_one
from jaxmf.data.frames import as_pandas
from jaxmf.types import Array, Names

_Static = tuple[tuple[int, int], tuple[int, ...]]


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, init=False, eq=False, repr=False)
class Features:
    """Side information: N lines of F numbers, each line about a row, a column or a cell.

    Lines are matched to the rows or columns of a data set by their ids, of any type; without ids
    they stand in the order of the data. Lines about cells stand in the order of `Entries`' cells.
    Columns of numbers are standardised where that is asked for, and levels become indicators, one
    for each (none is left out: the priors of their coefficients settle what is shared). What is
    not there is refused, or made zero, as `missing` says.

    A pytree of ``values`` (N, F), or where sparse of the list ``rows, columns, values`` (L,) of
    what is not zero; the shape is static, and so are the widths of its ``parts``: a block of
    `from_blocks`, or the levels of one heading, each; single numbers beside each other are one.
    Ids and descriptions live on the host only.

    Args:
        matrix: (N, F) numbers, an array or a scipy.sparse matrix, taken as they are.
        ids: N ids of any type, or None.
        columns: what each column is, or their names; None numbers them.
        missing: of a value, a level or a line that is not there: "refuse", or "zero", which is
            the mean where numbers were standardised.

    Raises:
        TypeError: no numbers.
        ValueError: no lines or columns, values that are not finite, ids that do not fit.

    Example:
        >>> users = Features.from_columns({"age": [20, 40], "sex": ["F", "M"]}, ids=["ann", "bo"])
        >>> users.labels
        ('age', 'sex=F', 'sex=M')
        >>> users.match(["bo", "ann"]).to_array().tolist()
        [[1.0, 0.0, 1.0], [-1.0, 1.0, 0.0]]
    """

    values: Array
    rows: Array | None
    columns: Array | None
    shape: tuple[int, int]
    ids: Names | None
    described: tuple[Column, ...]
    missing: str
    parts: tuple[int, ...]

    def __init__(
        self,
        matrix: Any,
        ids: Any = None,
        *,
        columns: Sequence[Column | str] | None = None,
        missing: str = "refuse",
    ) -> None:
        if missing not in MISSING:
            raise ValueError(f'missing: must be "refuse" or "zero", is {missing!r}.')
        try:
            values, rows, places, shape = _arrays(matrix, missing)
        except TypeError as error:
            if not is_frame(matrix):
                raise
            raise TypeError(
                f"{error} Of a table with texts Features.from_pandas(df, id='column of the ids') "
                "makes indicators, and standardises its numbers."
            ) from None
        if columns is None:
            columns = [f"x{place}" for place in range(shape[1])]
        if len(columns) != shape[1]:
            raise ValueError(
                f"features: {len(columns)} names for {shape[1]} columns. Give one for each."
            )
        own = names.as_names("ids", ids)
        if own is not None and len(own) != shape[0]:
            raise ValueError(f"ids: {len(own)} ids for {shape[0]} lines of features.")
        known = [c if isinstance(c, Column) else Column(str(c), str(c)) for c in columns]
        assign(self, values=values, rows=rows, columns=places, shape=shape)
        assign(self, ids=own, described=tuple(known), missing=missing)
        assign(self, parts=part_widths(known))

    @classmethod
    def from_columns(
        cls,
        table: Mapping[str, Any],
        *,
        ids: Any = None,
        categorical: Sequence[str] = (),
        lists: Mapping[str, str] | None = None,
        standardise: bool = True,
        sparse: bool = False,
        missing: str = "refuse",
    ) -> Self:
        """Features from columns by their headings: numbers, levels, or lists of levels.

        Args:
            table: heading -> N cells. Numbers become one column, true and false are 1 and 0, and
                anything else becomes indicators.
            ids: N ids, or None.
            categorical: headings of numbers that are levels, such as codes of occupations.
            lists: heading -> what separates the levels of a cell: ``{"genres": "|"}``.
            standardise: whether numbers are brought to mean 0 and standard deviation 1 over the
                lines; indicators never are.
            sparse: whether only what is not zero is held; for many levels.
            missing: as of the class.

        Raises:
            TypeError, ValueError: as the class; a heading that is not there, columns that differ in
                length, a missing value.

        Example:
            >>> genres = {"genres": ["War|Drama", "War"]}
            >>> films = Features.from_columns(genres, lists={"genres": "|"})
            >>> films.labels, films.to_array().tolist()
            (('genres=Drama', 'genres=War'), [[1.0, 1.0], [0.0, 1.0]])
        """
        if missing not in MISSING:
            raise ValueError(f'missing: must be "refuse" or "zero", is {missing!r}.')
        check_flag("standardise", standardise)
        check_flag("sparse", sparse)
        if table is None:
            raise TypeError("table: is None; a mapping from headings to cells is needed.")
        table, lists = checks.as_mapping("table", table), checks.as_mapping("lists", lists)
        categorical = checks.as_lines("categorical", categorical, "a list of headings")
        matrix, columns = encode_columns(
            table, categorical=categorical, lists=lists, standardise=standardise, missing=missing
        )
        return cls(matrix if sparse else matrix.toarray(), ids, columns=columns, missing=missing)

    @classmethod
    def from_pandas(cls, frame: Any, *, id: str | None = None, **options: Any) -> Self:
        """Features from a DataFrame with one line a row, column or cell.

        Args:
            frame: a DataFrame of pandas, polars, pyarrow or any other that narwhals knows.
            id: its column with the ids; None takes its index.
            options: as of `from_columns`.

        Raises:
            TypeError, ValueError: as `from_columns`; a column that the table lacks.

        Example:
            >>> import pandas as pd
            >>> Features.from_pandas(pd.DataFrame({"who": ["ann"], "age": [20]}), id="who")
            Features(1 x 1, with ids: age)
        """
        frame = as_pandas(frame)
        if not is_frame(frame):
            raise TypeError(f"frame: must be a DataFrame, is {frame!r}. See from_columns.")
        headings = list(frame.columns)
        if id is not None and id not in headings:
            have = ", ".join(map(repr, headings)) or "no columns"
            raise ValueError(f"id: the table has no column {id!r}, it has {have}.")
        table = {str(name): _cells(frame[name]) for name in headings if name != id}
        return cls.from_columns(table, ids=frame.index if id is None else frame[id], **options)

    @classmethod
    def from_blocks(cls, blocks: Mapping[str, Self]) -> Self:
        """Several features side by side, each under a name of its own.

        Args:
            blocks: name -> features; their lines are matched by id to those of the first, where it
                has ids. Sparse if one of them is.

        Raises:
            ValueError: no block, different lengths, an id that a block lacks and may not.
        """
        if not blocks:
            raise ValueError("blocks: is empty. Give at least one: {name: features}.")
        first = next(iter(blocks.values()))
        columns: list[Column] = []
        parts: list[Any] = []
        for name, block in blocks.items():
            own = block.match(first.ids, size=first.num_rows, what=f"block {name!r}")
            parts.append(own.to_scipy())
            columns += [column._replace(block=name) for column in block.described]
        matrix = scipy.sparse.hstack(parts, format="csc")
        keep_sparse = any(block.is_sparse for block in blocks.values())
        missing = "zero" if any(b.missing == "zero" for b in blocks.values()) else "refuse"
        return cls(
            matrix if keep_sparse else matrix.toarray(),
            first.ids,
            columns=columns,
            missing=missing,
        )

    @classmethod
    def none(cls, num_rows: int) -> Self:
        """No features at all of so many rows: an array of width 0."""
        fields = {"rows": None, "columns": None, "ids": None, "described": ()}
        values = jnp.zeros((num_rows, 0))
        return bare(cls, values=values, shape=(num_rows, 0), missing="refuse", parts=(), **fields)

    @property
    def num_rows(self) -> int:
        """N, how many lines there are."""
        return self.shape[0]

    @property
    def width(self) -> int:
        """F, how many numbers a line has."""
        return self.shape[1]

    @property
    def is_sparse(self) -> bool:
        """Whether only what is not zero is held."""
        return self.rows is not None

    @property
    def labels(self) -> tuple[str, ...]:
        """F names: ``age``, ``sex=M``, and ``users.age`` in a block that was named."""
        return tuple(column.label for column in self.described)

    @property
    def blocks(self) -> dict[str, slice]:
        """The columns of every block by its name; those of one heading are a block."""
        found: dict[str, slice] = {}
        for place, column in enumerate(self.described):
            start = found[column.block].start if column.block in found else place
            found[column.block] = slice(start, place + 1)
        return found

    def apart(self, heading: str, *, what: str = "features") -> tuple[Self | None, Self]:
        """The features without the columns of one heading, and those alone.

        Args:
            heading: of a column with one level a line, such as occupation.
            what: how these features are called in errors.

        Returns:
            The others, None where there are none; the indicators of the levels.

        Raises:
            ValueError: no such heading, or its cells are no single levels.
        """
        here = [column.name == heading for column in self.described]
        own = [column for column in self.described if column.name == heading]
        if not own:
            have = ", ".join(map(repr, dict.fromkeys(column.name for column in self.described)))
            raise ValueError(f"{what}: has no column {heading!r}, it has {have or 'none'}.")
        if any(column.level is None or column.separator is not None for column in own):
            raise ValueError(
                f"{what}: the column {heading!r} does not hold one level a line; make the features "
                f"by from_columns(..., categorical=[{heading!r}])."
            )
        if len({column.block for column in own}) > 1:
            raise ValueError(f"{what}: {heading!r} is the heading of columns of several blocks.")
        rest = None if all(here) else self.select(np.flatnonzero(~np.array(here)))
        return rest, self.select(np.flatnonzero(here))

    def select(self, positions: np.ndarray) -> Self:
        """The features of some columns, by their positions (P,), in that order."""
        matrix = scipy.sparse.csc_array(self.to_scipy())[:, positions]
        return type(self)(
            matrix if self.is_sparse else matrix.toarray(),
            self.ids,
            columns=[self.described[position] for position in positions],
            missing=self.missing,
        )

    def match(self, wanted: Any, *, size: int | None = None, what: str = "features") -> Self:
        """The same features with one line for each of these ids, in their order.

        Args:
            wanted: ids of any type, such as ``data.row_names``; None where the data has none, whose
                ids then are 0..size-1.
            size: how many lines are wanted; of no use where ``wanted`` are ids.
            what: how these features are called in errors.

        Raises:
            ValueError: an id without a line, unless missing is "zero"; another number of lines
                where the features have no ids; ids that are no positions in data without ids.
        """
        number = len(wanted) if size is None else size
        if self.width == 0:
            return self.none(number)
        if self.ids is None:
            if self.num_rows != number:
                raise ValueError(
                    f"{what}: have {self.num_rows} lines for {number} in the data, and no "
                    "ids to match them by. Give ids=, or one line for each, in order."
                )
            return self if wanted is None else self._with(self.to_scipy(), wanted)
        known = {name: place for place, name in enumerate(self.ids.tolist())}
        asked = range(number) if wanted is None else names.object_array(wanted).tolist()
        places = np.array([known.get(name, -1) for name in asked], np.int64)
        gaps = places < 0
        if gaps.any() and (self.missing == "refuse" or gaps.all()):
            raise ValueError(self._no_line(what, list(asked), gaps))
        if wanted is None and gaps.any() and np.count_nonzero(~gaps) < len(known):
            raise ValueError(
                f"{what}: have ids beyond 0..{number - 1}, and the data has no ids: these are not "
                "the positions of its lines. Give the data the same ids."
            )
        matrix = scipy.sparse.csr_array(self.to_scipy())[np.where(gaps, 0, places)]
        if gaps.any():
            matrix = scipy.sparse.dia_array((1.0 * ~gaps[None], 0), shape=(number, number)) @ matrix
        return self._with(matrix, wanted)

    def _no_line(self, what: str, asked: list[Any], gaps: np.ndarray) -> str:
        first = asked[int(np.argmax(gaps))]
        assert self.ids is not None
        shown = ", ".join(map(repr, self.ids[:3].tolist()))
        words = (
            f"{what}: no line has the id {first!r} ({int(gaps.sum())} of {len(gaps)} in the "
            f"data have none); the ids are {shown}{', ...' if self.num_rows > 3 else ''} "
            f"({type(self.ids.tolist()[0]).__name__}, in the data {type(first).__name__})."
        )
        if gaps.all():
            return words + " None matches: check the types of the ids, and which column holds them."
        return words + ' Add their lines, or make the features with missing="zero".'

    def _with(self, matrix: Any, ids: Any) -> Self:
        return type(self)(
            matrix if self.is_sparse else matrix.toarray(),
            ids,
            columns=self.described,
            missing=self.missing,
        )

    def encode(self, table: Any, *, ids: Any = None) -> Self:
        """New lines in the same columns: the same levels, and numbers standardised as these were.

        Args:
            table: heading -> cells, or a DataFrame; headings that are not needed are left aside.
            ids: ids of the new lines, or None.

        Raises:
            ValueError: a heading that is not there, a missing value, a level that is new (unless
                missing is "zero": it has no indicator then).
        """
        table = as_pandas(table)
        parts: list[Any] = []
        groups: dict[tuple[str, str], list[Column]] = {}
        for column in self.described:
            groups.setdefault((column.block, column.name), []).append(column)
        for (_, heading), columns in groups.items():
            if heading not in table:
                raise ValueError(f"features: the new lines have no column {heading!r}.")
            cells = names.object_array(_cells(table[heading]))
            parts.append(encode_one(cells, columns, missing=self.missing))
        return self._with(scipy.sparse.hstack(parts, format="csc"), ids)

    def in_columns_of(self, known: Self, *, what: str = "features") -> Self:
        """The same features with the columns of others, in their order and units.

        Columns are matched by their labels, by position where one side has none but x0, x1, ....
        Numbers that were standardised otherwise are brought to the units of those others.

        Args:
            known: such as those in training.
            what: how errors call these features.

        Raises:
            ValueError: other columns; the message names the first difference.
        """
        order = self._order_of(known, what)
        pairs = [
            (self.described[position], column)
            for position, column in zip(order, known.described, strict=True)
        ]
        shift = np.array([(old.centre - new.centre) / new.scale for old, new in pairs])
        factor = np.array([old.scale / new.scale for old, new in pairs])
        if order == sorted(order) and not shift.any() and (factor == 1).all():
            return self
        matrix = scipy.sparse.csc_array(self.to_scipy())[:, order]
        if (factor != 1).any():
            matrix = matrix @ scipy.sparse.diags_array(factor, format="csc")
        if shift.any():
            matrix = matrix.toarray() + shift
        elif not self.is_sparse:
            matrix = matrix.toarray()
        return type(self)(matrix, self.ids, columns=known.described, missing=self.missing)

    def _order_of(self, known: Self, what: str) -> list[int]:
        """Where each column of others stands here."""
        labels, asked = self.labels, known.labels
        numbered = tuple(f"x{position}" for position in range(self.width))
        if labels == asked or (len(labels) == len(asked) and numbered in (labels, asked)):
            return list(range(self.width))
        here, there = ({label: k for k, label in enumerate(each)} for each in (labels, asked))
        missing = next((label for label in asked if label not in here), None)
        strange = next((label for label in labels if label not in there), None)
        if missing is None and strange is None and len(here) == self.width == known.width:
            return [here[label] for label in asked]
        difference = f"have {self.width} columns, some of one name, those in training {known.width}"
        if missing is not None:
            difference = f"have no column {missing!r}, which those in training have"
        elif strange is not None:
            difference = f"have a column {strange!r}, which those in training lack"
        raise ValueError(
            f"{what}: {difference}; make them with encode(table) of the features in training"
        )

    def to_scipy(self) -> Any:
        """(N, F) scipy.sparse coordinate array, on the host."""
        if self.rows is None or self.columns is None:
            return scipy.sparse.coo_array(np.asarray(self.values))
        cells = (np.asarray(self.rows), np.asarray(self.columns))
        return scipy.sparse.coo_array((np.asarray(self.values), cells), shape=self.shape)

    def to_array(self) -> np.ndarray:
        """(N, F) numbers, on the host."""
        return self.to_scipy().toarray() if self.is_sparse else np.asarray(self.values)

    def times(self, weights: Array) -> Array:
        """(N, K): the features times weights (F, K)."""
        if self.rows is None:
            return self.values @ weights
        terms = self.values[:, None] * weights[self.columns]
        return jax.ops.segment_sum(terms, self.rows, self.num_rows)

    def transpose_times(self, x: Array) -> Array:
        """(F, K): the transposed features times x (N, K)."""
        if self.rows is None:
            return self.values.T @ x
        assert self.columns is not None
        terms = self.values[:, None] * x[self.rows]
        return jax.ops.segment_sum(terms, self.columns, self.width)

    def take(self, positions: Array) -> Array:
        """(M, F): whole lines at positions (M,)."""
        return self._dense()[positions]

    def take_columns(self, positions: Sequence[int]) -> Array:
        """(N, M): whole columns at positions, as a dense array."""
        if self.rows is None:
            return self.values[:, np.asarray(positions, np.int32)]
        assert self.columns is not None
        # a column that is not asked for goes beyond the end, where nothing is written
        found = np.full(self.width, len(positions), np.int32)
        found[np.asarray(positions, np.int32)] = np.arange(len(positions))
        empty = jnp.zeros((self.num_rows, len(positions)), self.values.dtype)
        places = jnp.asarray(found)[self.columns]
        return empty.at[self.rows, places].set(self.values, mode="drop")

    def levels(self) -> Array:
        """(N,) int32: which column is not zero in each line; F where none is.

        Of indicators of the levels of one heading, see `apart`.
        """
        if self.rows is None:
            first = jnp.argmax(self.values != 0, axis=1).astype(jnp.int32)
            return jnp.where(jnp.any(self.values != 0, axis=1), first, self.width)
        none = jnp.full((self.num_rows,), self.width, jnp.int32)
        assert self.columns is not None
        return none.at[self.rows].min(self.columns.astype(jnp.int32))

    def gram(self, weights: Array | None = None) -> Array:
        """(F, F): the products of the columns with each other, of lines with weights (N,)."""
        if self.rows is None:
            left = self.values if weights is None else weights[:, None] * self.values
            return left.T @ self.values

        def products(unit: Array) -> Array:
            lines = self.times(unit[:, None])
            return self.transpose_times(lines if weights is None else weights[:, None] * lines)[
                :, 0
            ]

        # a few columns at a time: as a dense matrix the features may be too large
        units = jnp.eye(self.width, dtype=self.values.dtype)
        return jax.lax.map(products, units, batch_size=8)

    def _dense(self) -> Array:
        if self.rows is None:
            return self.values
        empty = jnp.zeros(self.shape, self.values.dtype)
        return empty.at[self.rows, self.columns].set(self.values)

    def fingerprint(self) -> str:
        """SHA-256 of shape and numbers, in hex; ids and names do not enter."""
        arrays = {"values": self.values, "rows": self.rows, "columns": self.columns}
        return digest("Features", self.shape, arrays)

    def __repr__(self) -> str:
        shown = ", ".join(self.blocks)
        shown = shown if len(shown) < 60 else shown[:57] + "..."
        with_ids = "" if self.ids is None else ", with ids"
        sparse = ", sparse" if self.is_sparse else ""
        return f"Features({self.num_rows} x {self.width}{sparse}{with_ids}: {shown})"

    def tree_flatten_with_keys(self) -> tuple[tuple[tuple[Any, Any], ...], _Static]:
        """The arrays; ids and descriptions stay behind."""
        key = jax.tree_util.GetAttrKey
        children = tuple((key(n), getattr(self, n)) for n in ("values", "rows", "columns"))
        return children, (self.shape, self.parts)

    @classmethod
    def tree_unflatten(cls, static: _Static, children: tuple[Any, ...]) -> Self:
        """Built without checks: the leaves may be anything jax puts there."""
        values, rows, columns = children
        arrays = {"values": values, "rows": rows, "columns": columns}
        hidden = {"ids": None, "described": (), "missing": "refuse"}
        return bare(cls, **arrays, shape=static[0], parts=static[1], **hidden)


def part_widths(columns: Sequence[Column]) -> tuple[int, ...]:
    """Columns of every part of features; see `Features`."""
    runs = [len(list(run)) for _, run in itertools.groupby(columns, lambda column: column.block)]
    together = itertools.groupby(runs, lambda width: width == 1)
    return tuple(
        width for is_single, run in together for width in ((sum(run),) if is_single else run)
    )


def _cells(column: Any) -> Any:
    """A column of a table as numpy has it; a pandas column of text or levels as objects."""
    if not hasattr(column, "to_numpy"):
        return column
    if getattr(column.dtype, "na_value", None) is not None and column.isna().any():
        return column.to_numpy(dtype=object, na_value=None)
    kind = getattr(column.dtype, "kind", "O")
    return column.to_numpy() if kind in "biuf" else column.to_numpy(dtype=object)


def _arrays(matrix: Any, missing: str) -> tuple[Array, Array | None, Array | None, tuple[int, int]]:
    """The leaves of features and their shape, checked."""
    if is_sparse(matrix):
        cells = scipy.sparse.coo_array(matrix)
        checks.check_not_empty("features", cells.shape)
        cells.sum_duplicates()
        values = checks.as_numeric("features", cells.data)
        checks.check_finite("features", values)
        order = np.lexsort((cells.col, cells.row))
        rows, columns = (jnp.asarray(one[order].astype(np.int32)) for one in (cells.row, cells.col))
        held = jnp.asarray(checks.as_float("features", values[order]))
        return held, rows, columns, (int(cells.shape[0]), int(cells.shape[1]))
    array = checks.as_numeric("features", matrix)
    checks.check_matrix_shape("features", array.shape)
    if missing == "zero":
        array = np.where(np.isnan(array), 0.0, array)
    checks.check_finite("features", array)
    held = jnp.asarray(checks.as_float("features", array))
    return held, None, None, (int(array.shape[0]), int(array.shape[1]))
