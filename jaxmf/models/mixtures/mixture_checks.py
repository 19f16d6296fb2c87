"""Checks of the family of a mixture of rows, and of its table."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxmf.data import Dense
from jaxmf.data.checks import show_position
from jaxmf.data.far_cells import observed_cells
from jaxmf.data.suspects import MOST_LEVELS
from jaxmf.likelihoods.families.categories import BetaBinary, DirichletMultinomial
from jaxmf.likelihoods.families.columns import IndependentColumns
from jaxmf.likelihoods.families.family import Family, check_family
from jaxmf.likelihoods.families.mixed_columns import MixedColumns
from jaxmf.likelihoods.families.multivariate_normal import NormalInverseWishart
from jaxmf.likelihoods.families.normal import NormalInverseGamma
from jaxmf.likelihoods.families.poisson import GammaPoisson
from jaxmf.priors import hyper
from jaxmf.types import Array, PyTree

_MOST_COLUMNS = 1_000  # 40 rows of this many: 20 sweeps take minutes
_MOST_CATEGORIES = 10_000  # codes above are rather numbers
_MISSING_CODE = "; -1 is the code of a missing category in pandas: make it NaN"
_FROM_ONE = ": codes begin at 0, so of answers 1 to V pass answer - 1"


def is_of_data(family: Family | None) -> bool:
    """Whether the family follows from the data."""
    return family is None or family.is_of_data


def family_of_rows(family: Family | None) -> Family | None:
    """A family that was checked: one of categories is that of each column, independent in a group.

    Raises:
        TypeError: it is no family.
    """
    if family is not None:
        check_family(family)
    if isinstance(family, BetaBinary | DirichletMultinomial):
        return IndependentColumns(family)
    return family


def with_levels(family: Family | None, data: Dense) -> Family | None:
    """The family with the number of categories of each column, where that is left open.

    Raises:
        ValueError: cells that are no codes 0, 1, ...
    """
    if isinstance(family, MixedColumns):
        families = family.with_size(data.num_columns).families
    elif isinstance(family, IndependentColumns):
        families = data.num_columns * (family.family,)
    else:
        return family
    is_open = [isinstance(one, DirichletMultinomial) and one.size is None for one in families]
    if not any(is_open):
        return family
    values = data.to_array()
    _check_codes(values[:, is_open], data, np.flatnonzero(is_open))
    sizes = np.max(np.where(np.isfinite(values), values, 0), axis=0, initial=1) + 1
    sized = [
        one.with_size(int(size)) if opened else one
        for one, size, opened in zip(families, sizes, is_open, strict=True)
    ]
    if isinstance(family, IndependentColumns) and len(set(sizes)) == 1:
        return IndependentColumns(sized[0], family.size)
    return MixedColumns(sized)


def _check_codes(values: np.ndarray, data: Dense, columns: np.ndarray) -> None:
    """Refuses cells (N, D'), NaN where missing, of these columns that are no codes 0, 1, ..."""
    bad = np.isfinite(values) & ((values < 0) | (values != np.floor(values)))
    bad |= values > _MOST_CATEGORIES
    if bad.any():
        row, column = np.argwhere(bad)[0]
        where = show_position((row, columns[column]), (data.row_names, data.column_names))
        missing = _MISSING_CODE if values[row, column] == -1 else ""
        raise ValueError(
            f"data: {values[row, column]:g} at {where} is no code of a category, which are 0, 1, "
            f"... to {_MOST_CATEGORIES:,}{missing}"
        )
    if np.nanmin(values, initial=np.inf) == 1:
        raise ValueError(
            f"data: no cell of the columns of categories is 0{_FROM_ONE}. If 0 is a category that "
            "no row has, state their number, DirichletMultinomial(V)"
        )


def prior_count(family: Family, counts: Array, statistics: PyTree) -> Array:
    """How many values the mean of a group rests on, those that its prior counts as among them.

    NaN where these are not known. Args: counts (G,), rows of the groups. Returns (G, 1) or (G, D).
    """
    if isinstance(family, IndependentColumns | MixedColumns):
        priors = jnp.stack([jnp.asarray(_prior_count(one)) for one in family.single_families])
        return priors + family.num_values(statistics)
    return _prior_count(family) + counts[:, None]


def _prior_count(family: Family) -> Array | float:
    if isinstance(family, NormalInverseWishart | NormalInverseGamma):
        return family.weight
    if isinstance(family, BetaBinary | DirichletMultinomial):
        if family.size is None or not hyper.is_fixed(getattr(family, "concentration", 1.0)):
            return jnp.nan
        return jnp.sum(jnp.broadcast_to(family.start()["concentration"], (family.size,)))
    return family.rate if isinstance(family, GammaPoisson) else jnp.nan


def check_table(family: Family | None, data: Dense, name: str, *, takes_rows: bool) -> None:
    """Refuses missing cells, and more columns than the family takes.

    Args: takes_rows: whether the family is of rows of any length, and not of single numbers.

    Raises:
        ValueError: the message says what to pass instead.
    """
    is_by_column = isinstance(family, IndependentColumns | MixedColumns)
    if data.observed is not None and not is_by_column:
        raise ValueError(_advice_on_missing(family, data, name))
    if not takes_rows and data.num_columns != 1:
        kind = type(family).__name__
        also = ""
        if isinstance(family, NormalInverseGamma):
            also = "NormalInverseWishart() takes rows of any length, and "
        raise ValueError(
            f"{name}: has {data.num_columns} columns; {kind} takes one number a row. {also}"
            f"IndependentColumns({kind}(...)) takes rows whose columns are independent within a "
            "group"
        )
    if data.num_columns > _MOST_COLUMNS and not is_by_column:
        raise ValueError(
            f"{name}: has {data.num_columns} columns; each group of a mixture has a covariance "
            f"of all pairs of columns, which takes too long above {_MOST_COLUMNS:,}. Project "
            "the rows first, as on their first 20 principal components"
        )
    _check_size(data, name)
    if isinstance(family, MixedColumns):
        _check_columns(family.with_size(data.num_columns).families, data, name)
    elif isinstance(family, IndependentColumns):
        _check_columns(data.num_columns * (family.family,), data, name)


def _check_columns(families: tuple[Family | None, ...], data: Dense, name: str) -> None:
    """Refuses the first cell that is no value of the family of its column, by its ids."""
    values = np.asarray(data.values, float)
    seen = np.ones(values.shape, bool) if data.observed is None else np.asarray(data.observed)
    for column, one in enumerate(families):
        if one is None:
            continue
        outside = seen[:, column] & ~_in_support(one, values[:, column])
        if not outside.any():
            continue
        row = int(np.argmax(outside))
        where = show_position((row, column), (data.row_names, data.column_names))
        value, size = values[row, column], int(getattr(one, "size", 0))
        has = "" if one.is_log else f", which has 0 to {size - 1}"
        if not one.is_log and value == -1:
            has += _MISSING_CODE
        elif not one.is_log and value == size and values[seen[:, column], column].min() == 1:
            has += _FROM_ONE
        raise ValueError(f"{name}: {value:g} at {where} is no value of {type(one).__name__}{has}")


def _in_support(family: Any, values: np.ndarray) -> np.ndarray:
    """Whether numbers (N,) are values of a family of single numbers: (N,) bool."""
    if not family.is_log and family.size is not None:
        return (values == np.floor(values)) & (values >= 0) & (values < family.size)
    known = getattr(family, "in_support", None)
    return np.ones(values.shape, bool) if known is None else np.asarray(known(values))


def _advice_on_missing(family: Family | None, data: Dense, name: str) -> str:
    """Advice for cells that are missing under a family which leaves none out."""
    has_covariances = family is None or isinstance(family, NormalInverseWishart)
    who = "a group with covariances" if has_covariances else type(family).__name__
    inside = "" if has_covariances else f"{who}(...)"
    answers = ""
    if has_covariances and _has_answers(data):
        answers = (
            f"family=mf.DirichletMultinomial() if the whole numbers are answers{_FROM_ONE}; or, if "
            "they are measurements, "
        )
    return (
        f"{name}: {data.num_missing} cells are missing, and {who} takes complete rows. Pass "
        f"{answers}family=mf.IndependentColumns({inside}): missing cells are then left out "
        "exactly, and columns are independent within a group. LinearGaussianIBP and BPMF, which "
        "describe a table by hidden parts, take missing cells too"
    )


def _has_answers(data: Dense) -> bool:
    """Whether the observed cells hold few different whole numbers, as answers do."""
    levels = np.unique(observed_cells(data)[2])
    is_whole = bool(np.all((levels >= 0) & (levels == np.floor(levels))))
    return is_whole and levels.size <= MOST_LEVELS


def _check_size(data: Dense, name: str) -> None:
    """Refuses numbers whose squares a float cannot hold, or hardly."""
    values = np.abs(np.asarray(data.values, float))
    limits = jnp.finfo(jnp.result_type(float))
    most, least = float(limits.max) ** 0.4, float(limits.tiny) ** 0.4
    is_bad = (values > most) | ((values > 0) & (values.max(axis=0) < least))
    if is_bad.any():
        row, column = np.argwhere(is_bad)[0]
        raise ValueError(
            f"{name}: {data.values[row, column]:.3g} at row {row}, column {column}: squares of "
            f"numbers above {most:.0e}, or of columns below {least:.0e}, leave the range of "
            f"{limits.dtype}. Multiply the column by a power of ten"
        )
