"""Features: what is known of rows, of columns or of cells besides the data."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from jaxmf.arguments import assign, check_flag
from jaxmf.data import checks, feature_columns, names
from jaxmf.data.container import bare, check_headings, digest, is_frame, is_sparse
from jaxmf.data.encoding import MISSING, Column, LineError, encode_columns, encode_one
from jaxmf.data.feature_products import FeatureProducts
from jaxmf.data.frames import as_pandas
from jaxmf.types import Array, Names, PyTree

if TYPE_CHECKING:
    import pandas as pd

_Static = tuple[tuple[int, int], tuple[int, ...]]


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, init=False, eq=False, repr=False)
class Features(FeatureProducts):
    """Side information: N lines of F numbers, each line about a row, a column or a cell.

    Lines are matched to the rows or columns of a data set by their ids, of any type; without ids
    they stand in the order of the data. Lines about cells stand in the order of `Entries`' cells.
    Columns of numbers are standardised if asked for. Levels become indicators, one for each level:
    none is left out as a reference, since priors identify the coefficients. Missing values are
    refused, or set to zero, as `missing` says.

    A pytree of ``values`` (N, F), or if sparse of the lists ``rows, columns, values`` (L,) of
    entries that are not zero. The shape is static, and so are the widths of its ``parts``: each is
    a block of `from_blocks`, the levels of one heading, or single numbers side by side. Ids and
    descriptions are kept on the host only.

    Args:
        matrix: (N, F) numbers, an array or a scipy.sparse matrix, taken as they are.
        ids: N ids of any type, or None.
        columns: what each column is, or their names; None numbers them.
        missing: what to do if a value, a level or a line is missing: "refuse", or "zero", which is
            the mean of numbers that were standardised.
    Raises:
        TypeError: `matrix` does not hold numbers.
        ValueError: there are no lines or no columns, values are not finite, or the ids do not fit.
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
    gaps: tuple[np.ndarray, np.ndarray] | None = None  # lines and columns of what was made zero

    def __init__(
        self,
        matrix: object,
        ids: object = None,
        *,
        columns: Sequence[Column | str] | None = None,
        missing: str = "refuse",
    ) -> None:
        if missing not in MISSING:
            raise ValueError(f'missing: must be "refuse" or "zero", is {missing!r}.')
        try:
            values, rows, entry_columns, shape, gaps = _arrays(matrix, missing)
        except TypeError as error:
            if not is_frame(matrix):
                raise
            raise TypeError(
                f"{error} Of a table with texts Features.from_pandas(df, id='column of the ids') "
                "makes indicators, and standardises its numbers."
            ) from None
        if columns is None:
            columns = [f"x{index}" for index in range(shape[1])]
        if len(columns) != shape[1]:
            raise ValueError(
                f"features: {len(columns)} names for {shape[1]} columns. Give one for each."
            )
        names_of_lines = names.as_names("ids", ids)
        if names_of_lines is not None and len(names_of_lines) != shape[0]:
            raise ValueError(f"ids: {len(names_of_lines)} ids for {shape[0]} lines of features.")
        known = [c if isinstance(c, Column) else Column(str(c), str(c)) for c in columns]
        assign(self, values=values, rows=rows, columns=entry_columns, shape=shape)
        assign(self, ids=names_of_lines, described=tuple(known), missing=missing)
        assign(self, parts=part_widths(known), gaps=gaps)

    @classmethod
    def from_columns(
        cls,
        table: Mapping[str, object],
        *,
        ids: object = None,
        categorical: Sequence[str] = (),
        lists: Mapping[str, str] | None = None,
        standardise: bool = True,
        sparse: bool = False,
        missing: str = "refuse",
    ) -> Self:
        """Features from columns by their headings: numbers, levels, or lists of levels.

        Args:
            table: heading -> N cells. Numbers become one column, and so do dates (ISO texts too),
                as days; true and false are 1 and 0, and anything else becomes indicators.
            ids: N ids, or None.
            categorical: headings of numbers and dates that are levels, such as codes of
                occupations.
            lists: heading -> what separates the levels of a cell: ``{"genres": "|"}``.
            standardise: whether numbers are brought to mean 0 and standard deviation 1 over the
                lines; indicators never are.
            sparse: whether only what is not zero is held; for many levels.
            missing: as in the class.
        Raises:
            TypeError, ValueError: as the class; a heading that is not there, columns that differ in
                length, a missing value.
        Example:
            >>> genres = {"genres": ["War|Drama", "War"]}
            >>> films = Features.from_columns(genres, lists={"genres": "|"})
            >>> films.labels, films.to_array().tolist()
            (('genres=Drama', 'genres=War'), [[1.0, 1.0], [0.0, 1.0]])
        """
        check_flag("standardise", standardise)
        check_flag("sparse", sparse)
        if table is None:
            raise TypeError("table: is None; a mapping from headings to cells is needed.")
        table, lists = checks.as_mapping("table", table), checks.as_mapping("lists", lists)
        categorical = checks.as_lines("categorical", categorical, "a list of headings")
        options: Any = {"categorical": categorical, "lists": lists, "missing": missing}
        try:
            matrix, columns = encode_columns(table, standardise=standardise, **options)
        except LineError as error:
            raise error.with_id(ids) from None
        return cls(matrix if sparse else matrix.toarray(), ids, columns=columns, missing=missing)

    @classmethod
    def from_pandas(cls, frame: pd.DataFrame, *, id: str | None = None, **options: Any) -> Self:
        """Features from a DataFrame with one line a row, column or cell.

        Args:
            frame: a DataFrame of pandas, polars, pyarrow or any other that narwhals knows.
            id: its column with the ids; None takes its index.
            options: as in `from_columns`. Columns of pandas' dtype category are levels too.
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
        check_headings(frame, [("id", id)] * (id is not None))
        table = {str(name): _cells(frame[name]) for name in headings if name != id}
        options["categorical"] = _with_categories(frame, table, options)
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
            matched = block.match(first.ids, size=first.num_rows, what=f"block {name!r}")
            parts.append(matched.with_gaps())
            columns += [column._replace(block=name) for column in block.described]
        matrix = scipy.sparse.hstack(parts, format="csc")
        keep_sparse = any(block.is_sparse for block in blocks.values())
        missing = "zero" if any(b.missing == "zero" for b in blocks.values()) else "refuse"
        return cls(
            matrix if keep_sparse else matrix.toarray(), first.ids, columns=columns, missing=missing
        )

    @classmethod
    def none(cls, num_rows: int) -> Self:
        """No features at all of this many rows: an array of width 0."""
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
        for index, column in enumerate(self.described):
            start = found[column.block].start if column.block in found else index
            found[column.block] = slice(start, index + 1)
        return found

    def separate(self, heading: str, *, what: str = "features") -> tuple[Self | None, Self]:
        """The features without the columns of one heading, and those alone.

        Args: heading: of a column with one level a line, such as occupation; what: how these
        features are called in errors.
        Returns the others, None where there are none; the indicators of the levels.

        Raises:
            ValueError: an unknown heading, or its cells are no single levels.
        """
        here = [column.name == heading for column in self.described]
        selected = [column for column in self.described if column.name == heading]
        if not selected:
            have = ", ".join(map(repr, dict.fromkeys(column.name for column in self.described)))
            raise ValueError(f"{what}: has no column {heading!r}, it has {have or 'none'}.")
        if any(column.level is None or column.separator is not None for column in selected):
            raise ValueError(
                f"{what}: the column {heading!r} does not hold one level a line; make the features "
                f"by from_columns(..., categorical=[{heading!r}])."
            )
        if len({column.block for column in selected}) > 1:
            raise ValueError(f"{what}: {heading!r} is the heading of columns of several blocks.")
        rest = None if all(here) else self.select(np.flatnonzero(~np.array(here)))
        return rest, self.select(np.flatnonzero(here))

    def select(self, positions: np.ndarray) -> Self:
        """The features of some columns, by their positions (P,), in that order."""
        matrix = scipy.sparse.csc_array(self.with_gaps())[:, positions]
        return self._with(matrix, self.ids, [self.described[position] for position in positions])

    def match(self, ids: Any, *, size: int | None = None, what: str = "features") -> Self:
        """The same features with one line for each of these ids, in their order.

        Args:
            ids: of any type, such as ``data.row_names``; None where the data has none, whose
                ids then are 0..size-1.
            size: how many lines are asked for; of no use where ``ids`` are passed.
            what: how these features are called in errors.
        Raises:
            ValueError: an id without a line, unless missing is "zero"; another number of lines
                where the features have no ids; ids that are no positions in data without ids.
        """
        num_lines = len(ids) if size is None else size
        if self.width == 0:
            return self.none(num_lines)
        if self.ids is None:
            if self.num_rows != num_lines:
                raise ValueError(
                    f"{what}: have {self.num_rows} lines for {num_lines} in the data, and no "
                    "ids to match them by. Give ids=, or one line for each, in order."
                )
            return self if ids is None else self._with(self.with_gaps(), ids)
        known = {name: index for index, name in enumerate(self.ids.tolist())}
        asked = range(num_lines) if ids is None else names.object_array(ids).tolist()
        indices = np.array([known.get(name, -1) for name in asked], np.int64)
        gaps = indices < 0
        if gaps.any() and (self.missing == "refuse" or gaps.all()):
            raise ValueError(self._no_line(what, list(asked), gaps))
        if ids is None and gaps.any() and np.count_nonzero(~gaps) < len(known):
            raise ValueError(
                f"{what}: have ids beyond 0..{num_lines - 1}, and the data has no ids: these are "
                "not the positions of its lines. Give the data the same ids."
            )
        matrix = scipy.sparse.csr_array(self.with_gaps())
        if gaps.any():  # their index is that of the last line
            nothing = scipy.sparse.csr_array([list(map(self._nothing, self.described))])
            matrix = scipy.sparse.vstack([matrix, nothing], format="csr")
        return self._with(matrix[indices], ids)

    def _nothing(self, column: Column) -> float:
        """The value of a missing line: 0, or NaN if 0 may mean something else in other units."""
        has_units = column.centre != 0 or column.scale != 1 or not self.is_sparse
        return np.nan if column.level is None and has_units else 0.0

    def _no_line(self, what: str, asked: list[object], gaps: np.ndarray) -> str:
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

    def _with(self, matrix: Any, ids: object, columns: Sequence[Column] | None = None) -> Self:
        values = matrix if self.is_sparse else matrix.toarray()
        columns = self.described if columns is None else columns
        return type(self)(values, ids, columns=columns, missing=self.missing)

    def encode(self, table: Any, *, ids: object = None) -> Self:
        """New lines in the same columns: the same levels, and numbers standardised as these were.

        Args:
            table: heading -> cells, or a DataFrame; headings that are not needed are left aside.
            ids: ids of the new lines, or None.
        Raises:
            ValueError: a heading that is not there, a missing value, a level that is new (unless
                missing is "zero": it has no indicator then).
        """
        table = as_pandas(table)
        parts: list[object] = []
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
        Numbers that were standardised otherwise are brought to the units of those others. Levels of
        a heading that no line here has are zero, and so is what was missing; those that the others
        lack are left out where missing is "zero", as in `encode`.

        Args: known: such as those in training.

        Raises:
            ValueError: other columns; the message names the first difference.
        """
        matrix = feature_columns.in_columns_of(self, known, what)
        if matrix is None:
            return self
        return type(self)(matrix, self.ids, columns=known.described, missing=self.missing)

    def with_gaps(self) -> scipy.sparse.sparray:
        """(N, F) as `to_scipy`, but NaN where a number was not there and was made zero."""
        if self.gaps is None:
            return self.to_scipy()
        nothing = np.full(len(self.gaps[0]), np.nan)
        return self.to_scipy() + scipy.sparse.coo_array((nothing, self.gaps), shape=self.shape)

    def to_scipy(self) -> scipy.sparse.coo_array:
        """(N, F) scipy.sparse coordinate array, on the host."""
        if self.rows is None or self.columns is None:
            return scipy.sparse.coo_array(np.asarray(self.values))
        cells = (np.asarray(self.rows), np.asarray(self.columns))
        return scipy.sparse.coo_array((np.asarray(self.values), cells), shape=self.shape)

    def to_array(self) -> np.ndarray:
        """(N, F) numbers, on the host."""
        return self.to_scipy().toarray() if self.is_sparse else np.asarray(self.values)

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

    def tree_flatten_with_keys(
        self,
    ) -> tuple[tuple[tuple[jax.tree_util.GetAttrKey, PyTree], ...], _Static]:
        """The arrays; ids and descriptions stay behind."""
        key = jax.tree_util.GetAttrKey
        children = tuple((key(n), getattr(self, n)) for n in ("values", "rows", "columns"))
        return children, (self.shape, self.parts)

    @classmethod
    def tree_unflatten(cls, static: _Static, children: tuple[PyTree, ...]) -> Self:
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


def _with_categories(
    frame: pd.DataFrame, table: Mapping[str, object], options: Mapping[str, Any]
) -> list[str]:
    """The headings of levels: those that are named, and those whose dtype says so."""
    named = options.get("categorical", ())
    categorical = list(checks.as_lines("categorical", named, "a list of headings"))
    lists = options.get("lists") or ()
    dtypes = {str(name): str(dtype) for name, dtype in frame.dtypes.items()}
    return categorical + [
        name
        for name in table
        if dtypes[name] == "category" and name not in categorical and name not in lists
    ]


def _cells(column: Any) -> Any:
    """A column of a table as numpy has it; a pandas column of text or levels as objects."""
    if not hasattr(column, "to_numpy"):
        return column
    if getattr(column.dtype, "na_value", None) is not None and column.isna().any():
        return column.to_numpy(dtype=object, na_value=None)
    kind = getattr(column.dtype, "kind", "O")
    return column.to_numpy() if kind in "biuf" else column.to_numpy(dtype=object)


def _arrays(
    matrix: object, missing: str
) -> tuple[
    Array, Array | None, Array | None, tuple[int, int], tuple[np.ndarray, np.ndarray] | None
]:
    """The leaves of features and their shape, checked, and where NaN became zero."""
    if is_sparse(matrix):
        cells = scipy.sparse.coo_array(matrix)
        checks.check_not_empty("features", cells.shape)
        cells.sum_duplicates()
        values = checks.as_numeric("features", cells.data)
        is_gap = np.isnan(values) & (missing == "zero")
        checks.check_finite("features", values, where=~is_gap)
        order = np.lexsort((cells.col, cells.row))
        order, absent = order[~is_gap[order]], order[is_gap[order]]
        gaps = (cells.row[absent], cells.col[absent]) if absent.size else None
        rows, columns = (jnp.asarray(one[order].astype(np.int32)) for one in (cells.row, cells.col))
        held = jnp.asarray(checks.as_float("features", values[order]))
        return held, rows, columns, (int(cells.shape[0]), int(cells.shape[1])), gaps
    array = checks.as_numeric("features", matrix)
    checks.check_matrix_shape("features", array.shape)
    gaps = None
    if missing == "zero" and np.isnan(array).any():
        lines, absent = np.nonzero(np.isnan(array))
        gaps = (lines, absent)
        array = np.where(np.isnan(array), 0.0, array)
    checks.check_finite("features", array)
    held = jnp.asarray(checks.as_float("features", array))
    return held, None, None, (int(array.shape[0]), int(array.shape[1])), gaps
