"""Answers: tables, arrays with labelled axes, and how both show themselves."""

from __future__ import annotations

import html
import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

_MOST_LINES = 10
_NUMBER = re.compile(r"[-+]?\d[\d.,]*(e[-+]?\d+)?%?( ± \S+)?( of \d+)?|> \d+|nan|-?inf|\.\.\.|–|")

Lines = list[tuple[str, ...]]

Index = int | slice | np.ndarray

_SIDES = {"row": "obs", "document": "obs", "column": "var", "word": "var"}


def import_extra(module: str, caller: str, extra: str) -> ModuleType:
    """An optional dependency.

    Args:
        module: its name.
        caller: what needs it, as users call that.
        extra: of jaxmf, which installs it.
    Raises:
        ModuleNotFoundError: it is not installed; the message names the extra.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{caller} needs {module}, an extra: pip install 'jaxmf[{extra}]'", name=module
        ) from None


def data_frame(caller: str, values: object, **options: object) -> pd.DataFrame:
    """A pandas DataFrame.

    Args:
        caller: what needs it, as users call that.
        values: of the frame.
        **options: of `pandas.DataFrame`.
    Raises:
        ModuleNotFoundError: pandas is not installed; the message names the extra.
    """
    frame: pd.DataFrame = import_extra("pandas", caller, "data").DataFrame(values, **options)
    return frame


class Answer(ABC):
    """Base of the answers of a posterior: a table, arrays with labelled axes, text and HTML.

    A subclass has `table`, and for arrays `_axes` and `_labels`, or `coordinates`.
    """

    _axes: ClassVar[Mapping[str, str]] = {}
    """Names of attributes -> names of their axes, both separated by blanks."""

    _labels: ClassVar[Mapping[str, str]] = {}
    """Axes -> the attributes that have their labels."""

    @abstractmethod
    def table(self) -> Mapping[str, object]:
        """Columns of a table by name, with ids where the data has any."""

    def to_pandas(self) -> pd.DataFrame:
        """The table as a pandas DataFrame.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        return data_frame("to_pandas", self.table())

    def coordinates(self) -> dict[str, object]:
        """Labels of the axes: name of the axis -> labels, or name -> (axis, labels)."""
        return {axis: getattr(self, name) for axis, name in self._labels.items()}

    def variables(self) -> dict[str, tuple[Sequence[str], np.ndarray]]:
        """The arrays: name -> (axes, values)."""
        return {
            name: (axes.split(), getattr(self, name))
            for names, axes in self._axes.items()
            for name in names.split()
            if getattr(self, name) is not None
        }

    def to_xarray(self) -> xr.Dataset:
        """The arrays as an `xarray.Dataset` whose axes have names, and ids where the data has any.

        Raises:
            ModuleNotFoundError: xarray is not installed (extra `arviz`).
        """
        xarray = import_extra("xarray", "to_xarray", "arviz")
        dataset: xr.Dataset = xarray.Dataset(self.variables(), self.coordinates())
        return dataset

    def to_anndata(self, adata: object, *, prefix: str = "jaxmf") -> None:
        """Write the arrays of numbers into an AnnData, matched by `obs_names` and `var_names`.

        Arrays with an axis of rows (documents) are in `obs` or `obsm`, with one of columns (words)
        in `var` or `varm`, as ``prefix_name`` such as ``jaxmf_mean``, those of pairs of rows or of
        columns in `obsp` or `varp`, predictions of cells in `layers` (NaN where there is none, and
        ``jaxmf_5%`` for a quantile); other arrays are in `uns`.
        What the data of the run lacks is NaN. Arrays of the same name are replaced.

        Args:
            adata: the AnnData, changed in place. Rows and columns without ids are matched by
                position.
            prefix: of the names.
        Raises:
            TypeError: not an AnnData.
            ValueError: it lacks a row or a column, or has one twice; nothing is written then.
        """
        parts = "obs", "obsm", "obs_names", "var", "varm", "var_names", "uns"
        if not all(hasattr(adata, part) for part in parts):
            raise TypeError(f"adata: must be an AnnData, not {type(adata).__name__}")
        for part, name, array in self._annotations(adata):
            getattr(adata, part)[f"{prefix}_{name}"] = array

    def _annotations(self, adata: object) -> list[tuple[str, str, np.ndarray]]:
        """Arrays to write into an AnnData: part of it, name and array."""
        written = []
        for name, (axes, values) in self.variables().items():
            array, part = np.asarray(values), "uns"
            if array.dtype.kind not in "biuf":
                continue
            for axis, side in _SIDES.items():
                if axis in axes:
                    positions, size = _positions(self.coordinates()[axis], adata, side)
                    array = np.moveaxis(array, list(axes).index(axis), 0)
                    array = _spread(array, positions, size)
                    part = side if array.ndim == 1 else f"{side}m"
                    if f"other_{axis}" in axes:
                        array, part = _spread(array.T, positions, size).T, f"{side}p"
                    break
            written.append((part, name, array))
        return written

    def lines(self) -> Lines:
        """The lines shown: a heading, and the first lines of the table."""
        table = {name: np.asarray(column) for name, column in self.table().items()}
        columns = [[_shown(value) for value in each[:_MOST_LINES]] for each in table.values()]
        return [tuple(table), *zip(*columns, strict=True)]

    def footer(self) -> str:
        """The line below the table; empty if there is none."""
        if type(self).lines is not Answer.lines:
            return ""  # which show what they mean to
        hidden = len(np.asarray(next(iter(self.table().values())))) - _MOST_LINES
        return f"and {hidden:,} more" if hidden > 0 else ""

    def __repr__(self) -> str:
        lines, footer = self.lines(), self.footer()
        shown = [as_text(lines)] if len(lines) > 1 or not footer else []
        return "\n".join(shown + [footer] * bool(footer))

    def _repr_html_(self) -> str:
        lines, footer = self.lines(), self.footer()
        shown = as_html(lines) if len(lines) > 1 or not footer else ""
        return shown + f"<p>{html.escape(footer)}</p>" * bool(footer)


class ArrayAnswer(Answer, NDArrayOperatorsMixin):
    """An answer that is one array with ids: it may be used as that array, its ``values``.

    It takes no assignments: ``found *= 2`` makes a plain array and leaves the answer, for
    ``found[0] = 1`` copy ``found.values``. To functions of jax pass ``found.values``.
    """

    values: np.ndarray

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype=dtype, copy=copy)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: object, **options: Any
    ) -> object:
        out = options.get("out")
        if out is not None and any(isinstance(each, ArrayAnswer) for each in out):
            if len(out) > 1 or out[0] is not inputs[0]:
                raise TypeError("out: an answer is not written into; pass an array, or none")
            del options["out"]  # of found *= 2, which makes an array
        plain = (np.asarray(each) if isinstance(each, ArrayAnswer) else each for each in inputs)
        return getattr(ufunc, method)(*plain, **options)

    def __getitem__(self, index: Index | tuple[Index, ...]) -> np.ndarray:
        return np.asarray(self.values[index])

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(self.values)

    def __getattr__(self, name: str) -> Any:
        # methods of arrays, such as .round(2); the names of protocols are the class's alone
        if name.startswith("_") or name == "values":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.values, name)


def long_table(
    rows: Mapping[str, np.ndarray],
    columns: Mapping[str, np.ndarray],
    values: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Matrices as columns of a table with one line an entry, by rows.

    Args:
        rows: (R,) labels or numbers of the rows, by name.
        columns: (C,) of the columns.
        values: (R, C) each.
    """
    num_rows, num_columns = next(iter(values.values())).shape
    return {
        **{name: np.repeat(labels, num_columns) for name, labels in rows.items()},
        **{name: np.tile(labels, num_rows) for name, labels in columns.items()},
        **{name: matrix.ravel() for name, matrix in values.items()},
    }


def _positions(labels: object, adata: object, side: str) -> tuple[np.ndarray, int]:
    """Where each row or column of an answer is in an AnnData, and how many that has."""
    size, labels = len(getattr(adata, f"{side}_names")), np.asarray(labels)
    if not np.array_equal(labels, np.arange(labels.size)):
        return positions_of_ids(labels, adata, side), size
    if labels.size != size:
        raise ValueError(
            f"adata.{side}_names: {size} of them, but the answer has {labels.size} without ids. "
            "Pass the AnnData that was fitted, or fit it with ids."
        )
    return labels, size


def positions_of_ids(labels: np.ndarray, adata: object, side: str) -> np.ndarray:
    """Where the rows or columns with some ids, each once, are in an AnnData.

    Args:
        labels: (N,) ids.
        adata: the AnnData.
        side: "obs" or "var".
    Raises:
        ValueError: it lacks one, or has one twice.
    """
    argument = f"adata.{side}_names"
    names = np.asarray(getattr(adata, f"{side}_names"))
    table = {name: index for index, name in enumerate(names.tolist())}
    if len(table) < names.size:
        raise ValueError(f"{argument} has a name twice; call adata.{side}_names_make_unique()")
    # names of an AnnData are texts, ids of a run may be whole numbers
    found = [table.get(label, table.get(str(label), -1)) for label in labels.tolist()]
    if -1 in found:
        lacking = labels.tolist()[found.index(-1)]
        raise ValueError(
            f"{argument} lacks {lacking!r}, which the data of the run has. Pass an AnnData with "
            "all that were fitted."
        )
    if len(set(found)) < len(found):
        raise ValueError(f"{argument}: two ids of the run are the same text there")
    return np.array(found)


def _spread(array: np.ndarray, positions: np.ndarray, size: int) -> np.ndarray:
    """The array with its first axis in the order of an AnnData; NaN for ids that it lacks."""
    if positions.size == size:
        result = np.empty_like(array)
    else:
        result = np.full((size, *array.shape[1:]), np.nan)
    result[positions] = array
    return result


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)


def listed_ids(ids: Iterable[object]) -> str:
    """Ids in one line; those that hold a comma stand in quotes, so that they read as one."""
    return ", ".join(f'"{each}"' if "," in str(each) else str(each) for each in ids)


def shortened(ids: Sequence[object], most: int) -> str:
    """The first of some ids, and dots for the others."""
    return listed_ids(ids[:most]) + ", ..." * (len(ids) > most)


def as_text(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells under each other, the first the headings; numbers are set to the right."""
    columns = list(zip(*lines, strict=True))
    widths = [max(map(len, column)) for column in columns]
    is_right = [all(map(_NUMBER.fullmatch, column[1:])) for column in columns]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_right, strict=True)
        ).rstrip()
        for line in lines
    )


def as_html(lines: Sequence[Sequence[str]]) -> str:
    """The same as a table of HTML, the first line its head."""
    heading, *body = ([html.escape(cell) for cell in line] for line in lines)
    head = "".join(f"<th>{cell}</th>" for cell in heading)
    rows = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in line) + "</tr>" for line in body)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
