"""Rows of several numbers whose columns are independent given the group; cells may be missing.

    x_id ~ f(theta_{z_i d}), theta_gd from the conjugate prior of f, for the observed cells alone

A cell that is missing (NaN) has no factor: with the parameters of every column of every group
summed out, leaving it out is exact, and nothing is imputed. The family of single numbers does the
rest: of categories in G D groups, those of one column side by side.
"""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf._kernels import tables
from jaxmf._kernels.tables import Lanes
from jaxmf.arguments import assign, check_count, check_number, check_numbers
from jaxmf.likelihoods.families import columns_at_once
from jaxmf.likelihoods.families.additive import AdditiveFamily
from jaxmf.likelihoods.families.family import Family, Hyperparameters, check_family
from jaxmf.likelihoods.families.normal import NormalInverseGamma, location_and_variance
from jaxmf.priors import hyper
from jaxmf.types import STATIC, Array, Key, PyTree

_UNITS = {"location": 0.0, "scale": 1.0}  # without data
_NORMAL = {"weight": 0.01, "shape": 1.5, "rate": 0.5}  # in units of the data
_CANDIDATES = (0.0, 1.0, 0.5, -1.0)  # one of them is in any usual support; see `_filler`


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class IndependentColumns(Family):
    """Rows of D numbers, columns independent given the group; NaN is a missing cell.

    Args:
        family: of the numbers of each column, with parameters of every group and column: any family
            of single numbers, such as `NormalInverseGamma`, `GammaPoisson`, `BetaBinary` or
            `DirichletMultinomial(size)`. By default `NormalInverseGamma()`, on the scale of each
            column of the data (`from_data`); so is one that states its weight or shape alone. What
            another family leaves open it takes from the cells of all columns together.
        size: D; by default the length of the rows, and one number a token.
        location, scale: with `NormalInverseGamma`, whose settings are those of
            (x - location) / scale: a number for all columns, or one each; 0 and 1 where a run does
            not take them from the data.
    Raises:
        TypeError, ValueError: a family of vectors, or whose settings are learned; a scale that is
            not positive; `location` or `scale` with another family.
    Example:
        >>> import jaxmf as mf
        >>> rows = [[1.0, float("nan")], [1.2, 7.0], [float("nan"), 7.1]]
        >>> model = mf.MixtureOfGaussians(2, family=mf.IndependentColumns())
        >>> post = mf.sample(model, rows, num_samples=20, num_warmup=20, progress=False)
        >>> post.predict().mean.shape
        (2,)
    """

    family: Family | None = None
    size: Any = field(default=None, metadata=STATIC)  # int once it is known
    location: Any = None
    scale: Any = None

    takes_missing = True

    def __post_init__(self) -> None:
        if self.family is not None:
            check_family(self.family)
            self._check_family()
        if self.size is not None:
            check_count("size", self.size)
        if not self._has_open_units and not hyper.is_placeholder(self.family):
            stated = {name: getattr(self, name) for name in _UNITS}
            assign(self, **{name: _UNITS[name] for name in _UNITS if stated[name] is None})
        leaves = jax.tree.leaves((self.location, self.scale))
        if not leaves or any(hyper.is_placeholder(leaf) for leaf in leaves):
            return
        location, scale = self._units("location"), self._units("scale")
        if np.any(scale <= 0):
            raise ValueError(f"scale must be positive, got {self.scale}")
        is_plain = not np.any(location) and np.all(scale == 1)
        if not is_plain and not isinstance(self.family, NormalInverseGamma):
            raise ValueError(
                "location, scale: are of NormalInverseGamma alone; leave them out with "
                f"{type(self.family).__name__}"
            )

    def _units(self, name: str) -> np.ndarray:
        """A number for all columns, or one each, which are kept as an array."""
        value = getattr(self, name)
        if value is None:
            return np.asarray(_UNITS[name])
        if np.ndim(value) == 0:
            check_number(name, value.item() if hasattr(value, "item") else value)
            return np.asarray(value, float)
        each = check_numbers(name, value)
        if each.shape != (self.size,):
            raise ValueError(
                f"{name} must be a number or one for each of size={self.size} columns, got "
                f"{each.size}"
            )
        if not np.isfinite(each).all():
            raise ValueError(f"{name} must be finite, got {value}")
        assign(self, **{name: jnp.asarray(value, jnp.result_type(float))})
        return each

    def _check_family(self) -> None:
        family: Any = self.family
        if hyper.is_placeholder(family):
            return
        name = type(family).__name__
        is_vectors = hasattr(family, "entry_marginals") or isinstance(family, IndependentColumns)
        if is_vectors or getattr(family, "value_shape", ()) != ():
            raise TypeError(f"family: must be of single numbers, and {name} is of vectors")
        fields = ((field, getattr(family, field)) for field in family.hyperparameters)
        learned = [field for field, value in fields if _is_learned(value)]
        if learned:
            raise TypeError(
                f"family: {learned[0]} of {name} has a prior, and settings are not learned under "
                "IndependentColumns; state a number"
            )

    @classmethod
    def from_data(cls, values: Array, *, num_groups: float = 10) -> IndependentColumns:
        """Normal columns on the scale of some data, for this many groups.

        As `NormalInverseWishart.from_data`, without covariances: the prior mean of a column's
        variance is that of the data over num_groups^(2 / D), with 3 degrees of freedom, and its
        prior mean the mean of the data, which counts as .01 values.

        Args:
            values: (N, D) float, NaN for missing cells.
            num_groups: how many groups share the data's volume.
        Example:
            >>> IndependentColumns.from_data(jnp.array([[9.0, 5.0], [11.0, jnp.nan]])).location
            Array([10.,  5.], dtype=float32)
        """
        return cls().known_from(values, num_groups=num_groups)

    def settings_from(self, values: Array, *, num_groups: float) -> dict[str, object]:
        values = jnp.reshape(values, (jnp.shape(values)[0], -1))
        if not isinstance(self.family, NormalInverseGamma | None):
            known = self.family.settings_from(jnp.ravel(values), num_groups=num_groups)
            family: Any = self.family
            return {"family": dataclasses.replace(family, **known)} if known else {}
        location, variance = location_and_variance(values, num_groups)
        return {"location": location, "scale": jnp.sqrt(variance)}

    @property
    def is_of_data(self) -> bool:
        if isinstance(self.family, NormalInverseGamma | None):
            return self._has_open_units
        return self.family.is_of_data

    @property
    def _has_open_units(self) -> bool:
        """Whether columns are normal, with neither units nor all settings stated."""
        if self.location is not None or self.scale is not None:
            return False
        family = self.family
        return family is None or (isinstance(family, NormalInverseGamma) and family.is_of_data)

    def known_from(self, values: Array, *, num_groups: float = 10) -> IndependentColumns:
        """The family with what is left open taken from the data: see `from_data`."""
        values = jnp.reshape(values, (jnp.shape(values)[0], -1))
        if self._has_open_units:
            units = self.settings_from(values, num_groups=num_groups)
            return self._in_units(_NORMAL, size=values.shape[1], **units)
        if isinstance(self.family, NormalInverseGamma | None):
            return self.standard()
        known = self.family.known_from(jnp.ravel(values), num_groups=num_groups)
        return dataclasses.replace(self, family=known)

    def standard(self) -> IndependentColumns:
        if self._has_open_units:
            return self._in_units(NormalInverseGamma.standard_settings, size=self.size, **_UNITS)
        known = self._known()
        return self if known is self.family else dataclasses.replace(self, family=known)

    def _in_units(
        self, settings: Mapping[str, float], *, size: int | None, location: object, scale: object
    ) -> IndependentColumns:
        """Normal columns in their units, with settings for what is left open."""
        stated: Any = self.family or NormalInverseGamma()
        weight, shape = (
            settings[name] if getattr(stated, name) is None else getattr(stated, name)
            for name in ("weight", "shape")
        )
        # another shape keeps the mean of 1 / variance
        rate = settings["rate"] * shape / settings["shape"]
        if stated.rate is not None:  # of the values as they are
            rate, scale = stated.rate, 1.0
        location = location if stated.location is None else stated.location
        family = NormalInverseGamma(0.0, weight, shape, rate)
        size = self.size if size is None else size
        return IndependentColumns(family, size, location=location, scale=scale)

    @property
    def single_families(self) -> tuple[Family, ...]:
        """The family of every column."""
        return (self._known(),) * self.num_columns

    @property
    def pads(self) -> bool:  # type: ignore[override]
        return self._known().pads

    def with_size(self, size: int) -> IndependentColumns:
        return self if self.size is not None else dataclasses.replace(self, size=size)

    @property
    def num_columns(self) -> int:
        """D, 1 where a token has one number."""
        return 1 if self.size is None else self.size

    def _known(self) -> Family:
        """The family of single numbers, with nothing left open."""
        return (NormalInverseGamma() if self.family is None else self.family).standard()

    def _unit(self, name: str) -> Array:
        """`location` or `scale`, 0 or 1 where it is left open."""
        value = getattr(self, name)
        return jnp.asarray(_UNITS[name] if value is None else value, jnp.result_type(float))

    def check(self, values: object, name: str) -> np.ndarray:
        family, array = self._known(), np.asarray(values)
        whole = (array.shape[0],) if self.size is None else (array.shape[0], self.size)
        if array.shape != whole:
            raise ValueError(f"{name}: takes values of shape {whole}, got {array.shape}")
        for column, cells in enumerate(array.reshape(array.shape[0], -1).T):
            check_column(family, cells, name if self.size is None else f"{name}, column {column}")
        return array

    # --- statistics: the groups first, then the columns -------------------------------------------

    def statistics(self, groups: Array, values: Array, num_groups: int) -> PyTree:
        family = self._known()
        cells, seen = self._cells(values.reshape(-1, self.num_columns))
        # missing cells go to a group of their own; where groups are not alike none can be added,
        # and statistics that are sums leave out what is beyond the last
        all_groups = num_groups + int(family.pads)

        def one_column(cells: Array, seen: Array) -> PyTree:
            where = jnp.where(seen, groups, num_groups)
            return family.statistics(where, cells, all_groups)

        each = jax.vmap(one_column, in_axes=1)(cells, seen)
        leaves = {}
        for label, leaf in each._asdict().items():
            axis = 2 if label == "cells" else 1
            groups_first = jnp.moveaxis(leaf, axis, 0)[:num_groups]
            leaves[f"{label}_by_column"] = groups_first
        number = jnp.zeros((num_groups,), jnp.int32).at[groups].add(1)
        return statistics_type(tuple(f"{label}_by_column" for label in each._fields))(
            number=number, **leaves
        )

    def _no_values(self) -> Array:
        return jnp.zeros((0, self.num_columns), jnp.result_type(float))

    def to_single(self, statistics: PyTree) -> PyTree:
        """Statistics of the family of single numbers: those of group g, column d at d G + g."""
        template, leaves = self._known().empty(1), {}
        for label in template._fields:
            leaf = getattr(statistics, f"{label}_by_column")
            if label == "cells":
                leaves[label] = jnp.moveaxis(leaf, 2, 0).swapaxes(1, 2).reshape(leaf.shape[2], -1)
            else:
                leaves[label] = leaf.swapaxes(0, 1).reshape(-1, *leaf.shape[2:])
        return type(template)(**leaves)

    def num_values(self, statistics: PyTree) -> Array:
        """How many cells every group has of every column: (G, D) int32."""
        single = self.to_single(statistics)
        count = single.totals if hasattr(single, "totals") else single.number
        return self._by_group(count)

    def _by_group(self, leaf: Array) -> Array:
        """Entries d G + g of a leaf, as (G, D, ...)."""
        return leaf.reshape(self.num_columns, -1, *leaf.shape[1:]).swapaxes(0, 1)

    def _cells(self, values: Array) -> tuple[Array, Array]:
        """Cells (..., D) as the family of single numbers takes them, and which are there."""
        family, seen = self._known(), ~jnp.isnan(values)
        cells = (values - self._unit("location")) / self._unit("scale")
        cells = jnp.where(seen, cells, _filler(family))
        return (cells if family.is_log else cells.astype(jnp.int32)), seen

    def _log_scale(self) -> Array:
        return jnp.log(jnp.broadcast_to(self._unit("scale"), (self.num_columns,)))

    # --- sweeps: of numbers all columns at once, of categories one after the other ----------------

    def begin(self, statistics: PyTree, hyperparameters: Hyperparameters) -> dict[str, PyTree]:
        del hyperparameters
        family = self._known()
        columns, num_groups = self.num_columns, statistics.number.shape[0]
        location, scale = (jnp.broadcast_to(self._unit(name), (columns,)) for name in _UNITS)
        if family.is_log:
            single = columns_at_once.begin(family, statistics[1:])
        else:
            single = family.begin(self.to_single(statistics), family.start())
        return {
            "single": single,
            "starts": jnp.arange(columns, dtype=jnp.int32) * num_groups,
            "location": location,
            "scale": scale,
            "log_scale": jnp.log(scale),
        }

    def move(
        self, cache: dict[str, PyTree], group: Array, value: Array, amount: int
    ) -> dict[str, PyTree]:
        family, (cells, seen) = self._known(), self._cells_of_token(cache, value)
        amounts: Any = jnp.where(seen, amount, 0)  # nothing of a missing cell
        if family.is_log:
            moved = columns_at_once.move(family, cache["single"], group, cells, amounts)
            return cache | {"single": moved}

        def one_column(column: Array, single: PyTree) -> PyTree:
            start, cell, amount = (
                tables.row(of, column) for of in (cache["starts"], cells, amounts)
            )
            return family.move(single, start + group, cell, amount)  # type: ignore[arg-type]

        single = jax.lax.fori_loop(0, self.num_columns, one_column, cache["single"])
        return cache | {"single": single}

    def predictive(self, cache: dict[str, PyTree], lanes: Lanes, value: Array) -> Array:
        family, (cells, seen) = self._known(), self._cells_of_token(cache, value)
        if family.is_log:
            logs = columns_at_once.predictive(family, cache["single"], lanes, cells)
            return jnp.sum(jnp.where(seen, logs - cache["log_scale"], 0), axis=1)
        positions = None if lanes.table is None else lanes.positions()

        def one_column(column: Array, total: Array) -> Array:
            start = tables.row(cache["starts"], column)
            at = lanes._replace(start=start + lanes.start)
            if positions is not None:
                at = Lanes(jnp.zeros_like(start), 1, lanes.size, positions + start)
            logs = jnp.log(family.predictive(cache["single"], at, tables.row(cells, column)))
            return total + jnp.where(tables.row(seen, column), logs, 0)

        nothing = jnp.zeros((lanes.size,), cache["scale"].dtype)
        return jax.lax.fori_loop(0, self.num_columns, one_column, nothing)

    def _cells_of_token(self, cache: dict[str, PyTree], value: Array) -> tuple[Array, Array]:
        """Cells (D,) of a token as the family takes them, and which are there."""
        cells, family = value.reshape(self.num_columns), self._known()
        seen = ~jnp.isnan(cells)
        cells = jnp.where(seen, (cells - cache["location"]) / cache["scale"], _filler(family))
        return (cells if family.is_log else cells.astype(jnp.int32)), seen

    # --- densities, draws, predictions ------------------------------------------------------------

    def log_marginal(self, statistics: PyTree, hyperparameters: Hyperparameters) -> Array:
        del hyperparameters
        family = self._known()
        each = self._by_group(family.log_marginal(self.to_single(statistics), family.start()))
        return jnp.sum(each - self.num_values(statistics) * self._log_scale(), axis=1)

    def sample_parameters(
        self, key: Key, statistics: PyTree, hyperparameters: Hyperparameters
    ) -> PyTree:
        """Parameters of the family of single numbers, (G, D, ...) each."""
        del hyperparameters
        family = self._known()
        drawn = family.sample_parameters(key, self.to_single(statistics), family.start())
        return jax.tree.map(self._by_group, drawn)

    def log_prob(self, parameters: PyTree, value: Array) -> Array:
        cells, seen = self._cells(value.reshape(self.num_columns))
        logs = jax.vmap(self._known().log_prob, in_axes=(1, 0))(parameters, cells)
        return jnp.sum(jnp.where(seen[:, None], logs - self._log_scale()[:, None], 0), axis=0)

    def sample(self, key: Key, parameters: PyTree, groups: Array) -> Array:
        family = self._known()
        keys = jax.random.split(key, self.num_columns)
        drawn = jax.vmap(lambda key, column: family.sample(key, column, groups), (0, 1))(
            keys, parameters
        )
        values = drawn.T.astype(jnp.result_type(float))
        values = values * self._unit("scale") + self._unit("location")
        return values[:, 0] if self.size is None else values

    def sample_cells(self, key: Key, parameters: PyTree, groups: Array, columns: Array) -> Array:
        each = jax.tree.map(lambda leaf: leaf[groups, columns], parameters)
        drawn = self._known().sample(key, each, jnp.arange(groups.size))
        location, scale = self._units_of(columns)
        return drawn.astype(scale.dtype) * scale + location

    def log_predictive_of_cells(
        self, statistics: PyTree, hyperparameters: Hyperparameters, columns: Array, values: Array
    ) -> Array:
        family, num_groups = self._known(), statistics.number.shape[0]
        cache = self.begin(statistics, hyperparameters)
        location, scale = self._units_of(columns)
        cells = (values - location) / scale

        def log_of_number(column: Array, cell: Array) -> Array:
            single = cache["single"]
            return columns_at_once.predictive_of_cell(family, single, num_groups, column, cell)

        def log_of_category(column: Array, cell: Array) -> Array:
            lanes = Lanes(cache["starts"][column], 1, num_groups)
            return jnp.log(family.predictive(cache["single"], lanes, cell))

        if family.is_log:
            return jax.vmap(log_of_number)(columns, cells) - jnp.log(scale)[:, None]
        return jax.vmap(log_of_category)(columns, cells.astype(jnp.int32))

    def _units_of(self, columns: Array) -> tuple[Array, Array]:
        """`location` and `scale` of cells in these columns (M,), (M,) each."""
        location, scale = (
            jnp.broadcast_to(self._unit(name), (self.num_columns,))[columns] for name in _UNITS
        )
        return location, scale

    def moments(self, statistics: PyTree, hyperparameters: Hyperparameters) -> tuple[Array, Array]:
        del hyperparameters
        family = self._known()
        mean, variance = map(
            self._by_group, family.moments(self.to_single(statistics), family.start())
        )
        scale = self._unit("scale")
        mean, variance = mean * scale + self._unit("location"), variance * jnp.square(scale)
        return (mean[:, 0], variance[:, 0]) if self.size is None else (mean, variance)


def check_column(family: Family, cells: np.ndarray, name: str) -> None:
    """Refuses a column (N,) whose cells, NaN where missing, are no values of a family.

    Raises:
        ValueError: naming the column and the row.
    """
    seen = ~np.isnan(cells)
    if not seen.any():
        return
    # so that positions in messages are those of rows
    filled: Any = np.where(seen, cells, cells[np.argmax(seen)])
    family.check(filled if family.is_log else _as_whole(filled, name, family), name)


@cache
def statistics_type(fields: tuple[str, ...]) -> Callable[..., PyTree]:
    """Tokens of every group, cells missing or not, and the statistics of single columns."""
    return namedtuple("ColumnStatistics", ("number", *fields))


def _is_learned(value: object) -> bool:
    leaves = jax.tree.leaves(value)
    return not any(map(hyper.is_placeholder, leaves)) and not hyper.is_fixed(value)


def _as_whole(cells: np.ndarray, name: str, family: Family) -> np.ndarray:
    """Numbers of a family of categories as integers."""
    bad = cells != np.floor(cells)
    if bad.any():
        first = int(np.argmax(bad))
        raise ValueError(
            f"{name}: {cells[first]} at token {first} is no whole number, as "
            f"{type(family).__name__} takes"
        )
    if getattr(family, "size", 0) is None:
        raise ValueError(
            f"{name}: how many values {type(family).__name__} has is not known; state it, "
            f"{type(family).__name__}(size)"
        )
    return cells.astype(np.int64)


def _filler(family: Family) -> float:
    """A value of the support instead of a missing cell, whose factor is computed and left out."""
    if not isinstance(family, AdditiveFamily):
        return 0.0
    values = np.array(_CANDIDATES)
    return float(values[np.argmax(family.in_support(values))])
