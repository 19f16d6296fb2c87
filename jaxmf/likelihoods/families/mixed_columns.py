"""Rows whose columns are independent given the group, each with a family of its own.

Columns of one family are those of an `IndependentColumns`, and the density of a row is the product
of theirs.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf._kernels.tables import Lanes
from jaxmf.arguments import assign
from jaxmf.likelihoods.families.columns import (
    IndependentColumns,
    check_column,
    statistics_type,
)
from jaxmf.likelihoods.families.family import Family, Hyperparameters
from jaxmf.likelihoods.families.normal import NormalInverseGamma
from jaxmf.priors import hyper
from jaxmf.types import STATIC, Array, Key, PyTree


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MixedColumns(Family):
    """Rows of D numbers of several kinds, columns independent given the group; NaN is missing.

    Args:
        families: one for each of the D columns, any that `IndependentColumns` takes; None or
            `NormalInverseGamma()` for a normal column on the scale of the data.
        normal: leave it out; what None stands for once the data are there.
        kinds: leave it out; for each column the first that has the same family.
    Raises:
        TypeError, ValueError: no families, or one that `IndependentColumns` does not take.
    Example:
        >>> import jaxmf as mf
        >>> family = mf.MixedColumns([None, mf.BetaBinary()])
        >>> rows = [[140.0, 0.0], [141.0, float("nan")], [float("nan"), 1.0]]
        >>> model = mf.MixtureOfGaussians(2, family=family)
        >>> post = mf.sample(model, rows, num_samples=20, num_warmup=20, progress=False)
        >>> post.predict().mean.shape
        (2,)
    """

    families: Any
    normal: IndependentColumns | None = None
    kinds: tuple[int, ...] | None = field(default=None, metadata=STATIC)

    takes_missing = True

    def __post_init__(self) -> None:
        if hyper.is_placeholder(self.families):
            return
        if not isinstance(self.families, list | tuple) or not self.families:
            raise TypeError(
                "families: must be a list with a family, or None, for each column, got "
                f"{self.families!r}"
            )
        assign(self, families=tuple(None if _is_open(one) else one for one in self.families))
        if self.kinds is None:
            for column, family in enumerate(self.families):
                try:
                    IndependentColumns(family)
                except TypeError as error:
                    raise TypeError(f"families: of column {column}: {error}") from None
            first = tuple(self.families.index(family) for family in self.families)
            assign(self, kinds=first)

    @property
    def pads(self) -> bool:  # type: ignore[override]
        return all(part.pads for part, _ in self._parts())

    @property
    def is_of_data(self) -> bool:
        is_open = (self.normal is None if one is None else one.is_of_data for one in self.families)
        return any(is_open)

    @property
    def _normal_columns(self) -> np.ndarray:
        """Where the columns are that `normal` is of."""
        return np.flatnonzero([one is None for one in self.families])

    def settings_from(self, values: Array, *, num_groups: float) -> dict[str, object]:
        opened = dataclasses.replace(self, normal=None)
        return {"normal": opened.known_from(values, num_groups=num_groups).normal}

    def known_from(self, values: Array, *, num_groups: float = 10) -> MixedColumns:
        """The family with normal columns on the scale of the data (N, D), and all else known.

        Columns of one family that leaves settings open take them from their cells together, normal
        ones each from its own.
        """
        assert self.kinds is not None
        normal, columns = self.normal, self._normal_columns
        families, kinds = list(self.families), list(self.kinds)
        stated = [isinstance(one, NormalInverseGamma) and one.is_of_data for one in families]
        each = num_groups ** (1 / max(columns.size + sum(stated), 1))  # share of a normal column
        if normal is None and columns.size:
            normal = IndependentColumns.from_data(values[:, columns], num_groups=each**columns.size)
        for kind in dict.fromkeys(self.kinds):
            family, alike = families[kind], np.flatnonzero(np.array(self.kinds) == kind)
            if family is None or not family.is_of_data:
                continue
            if isinstance(family, NormalInverseGamma):
                for column in alike:
                    families[column] = family.known_from(values[:, column], num_groups=each)
                    kinds[column] = int(column)
                continue
            known = family.known_from(jnp.ravel(values[:, alike]), num_groups=num_groups)
            for column in alike:
                families[column] = known
        return MixedColumns(families, normal, tuple(kinds))

    def standard(self) -> MixedColumns:
        normal, columns = self.normal, self._normal_columns
        if normal is None and columns.size:
            normal = IndependentColumns(size=columns.size).standard()
        families = [one and one.standard() for one in self.families]
        return MixedColumns(families, normal, self.kinds)

    def with_size(self, size: int) -> MixedColumns:
        if size != len(self.families):
            raise ValueError(
                f"families: there are {len(self.families)}, and the rows have {size} columns; give "
                "one for each"
            )
        return self

    @property
    def single_families(self) -> tuple[Family, ...]:
        """The family of every column."""
        normal = NormalInverseGamma() if self.normal is None else self.normal.single_families[0]
        return tuple((normal if one is None else one).standard() for one in self.families)

    def _parts(self) -> list[tuple[IndependentColumns, np.ndarray]]:
        """Columns of one family together, and where they are."""
        assert self.kinds is not None
        parts = []
        for kind in dict.fromkeys(self.kinds):
            columns = np.flatnonzero(np.array(self.kinds) == kind)
            part = self.normal
            if self.families[kind] is not None:
                part = IndependentColumns(self.families[kind], columns.size)
            if part is None:
                part = IndependentColumns(size=columns.size).standard()
            parts.append((part, columns))
        return parts

    def _in_order(self, pieces: list[Array]) -> Array:
        """Values of the parts (..., D'), as (..., D) in the order of the columns."""
        order = np.argsort(np.concatenate([columns for _, columns in self._parts()]))
        return jnp.concatenate(pieces, axis=-1)[..., order]

    def check(self, values: object, name: str) -> np.ndarray:
        array = np.asarray(values)
        if array.ndim != 2 or array.shape[1] != len(self.families):
            raise ValueError(
                f"{name}: takes rows of {len(self.families)} numbers, got shape {array.shape}"
            )
        for column, family in enumerate(self.single_families):
            check_column(family, array[:, column], f"{name}, column {column}")
        return array

    def statistics(self, groups: Array, values: Array, num_groups: int) -> PyTree:
        leaves: dict[str, Array] = {}
        number = None
        for index, (part, columns) in enumerate(self._parts()):
            found = part.statistics(groups, values[:, columns], num_groups)._asdict()
            number = found.pop("number")
            leaves |= {f"{label}_{index}": leaf for label, leaf in found.items()}
        return statistics_type(tuple(leaves))(number=number, **leaves)

    def _no_values(self) -> Array:
        return jnp.zeros((0, len(self.families)), jnp.result_type(float))

    def _by_part(self, statistics: PyTree) -> list[tuple[IndependentColumns, PyTree]]:
        """The statistics of each part."""
        found = []
        for index, (part, _) in enumerate(self._parts()):
            template = part.empty(1)
            leaves = {
                label: getattr(statistics, f"{label}_{index}") for label in template._fields[1:]
            }
            found.append((part, type(template)(number=statistics.number, **leaves)))
        return found

    def num_values(self, statistics: PyTree) -> Array:
        """How many cells every group has of every column: (G, D) int32."""
        return self._in_order([part.num_values(of) for part, of in self._by_part(statistics)])

    def begin(self, statistics: PyTree, hyperparameters: Hyperparameters) -> list[PyTree]:
        return [part.begin(of, hyperparameters) for part, of in self._by_part(statistics)]

    def move(self, cache: list[PyTree], group: Array, value: Array, amount: int) -> list[PyTree]:
        return [
            part.move(of, group, value[columns], amount)
            for of, (part, columns) in zip(cache, self._parts(), strict=True)
        ]

    def predictive(self, cache: list[PyTree], lanes: Lanes, value: Array) -> Array:
        return sum(
            (
                part.predictive(of, lanes, value[columns])
                for of, (part, columns) in zip(cache, self._parts(), strict=True)
            ),
            jnp.zeros((), jnp.result_type(float)),
        )

    def log_marginal(self, statistics: PyTree, hyperparameters: Hyperparameters) -> Array:
        each = [part.log_marginal(of, hyperparameters) for part, of in self._by_part(statistics)]
        return jnp.sum(jnp.stack(each), axis=0)

    def sample_parameters(
        self, key: Key, statistics: PyTree, hyperparameters: Hyperparameters
    ) -> list[PyTree]:
        """Parameters of each part."""
        return [
            part.sample_parameters(jax.random.fold_in(key, index), of, hyperparameters)
            for index, (part, of) in enumerate(self._by_part(statistics))
        ]

    def log_prob(self, parameters: list[PyTree], value: Array) -> Array:
        each = [
            part.log_prob(of, value[columns])
            for of, (part, columns) in zip(parameters, self._parts(), strict=True)
        ]
        return jnp.sum(jnp.stack(each), axis=0)

    def sample(self, key: Key, parameters: list[PyTree], groups: Array) -> Array:
        keys = jax.random.split(key, len(parameters))
        return self._in_order(
            [
                part.sample(part_key, of, groups)
                for part_key, of, (part, _) in zip(keys, parameters, self._parts(), strict=True)
            ]
        )

    def sample_cells(
        self, key: Key, parameters: list[PyTree], groups: Array, columns: Array
    ) -> Array:
        keys = jax.random.split(key, len(parameters))
        drawn = [
            part.sample_cells(part_key, of, groups, position[columns])
            for part_key, of, (part, position, _) in zip(
                keys, parameters, self._positions(), strict=True
            )
        ]
        return self._by_column(drawn, columns)

    def log_predictive_of_cells(
        self, statistics: PyTree, hyperparameters: Hyperparameters, columns: Array, values: Array
    ) -> Array:
        logs = [
            part.log_predictive_of_cells(of, hyperparameters, position[columns], values)
            for (part, of), (_, position, _) in zip(
                self._by_part(statistics), self._positions(), strict=True
            )
        ]
        return self._by_column(logs, columns)

    def _positions(self) -> list[tuple[IndependentColumns, Array, Array]]:
        """The parts, where in each the columns (D,) are, and which of them it has."""
        found = []
        for part, columns in self._parts():
            position = np.zeros(len(self.families), np.int32)
            position[columns] = np.arange(columns.size)
            is_there = np.isin(np.arange(len(self.families)), columns)
            found.append((part, jnp.asarray(position), jnp.asarray(is_there)))
        return found

    def _by_column(self, pieces: list[Array], columns: Array) -> Array:
        """What each part says of M cells, (M, ...), of the part that has the cell's column."""
        result = jnp.zeros_like(pieces[0])
        for piece, (_, _, is_there) in zip(pieces, self._positions(), strict=True):
            here = is_there[columns].reshape(-1, *(1,) * (piece.ndim - 1))
            result = jnp.where(here, piece, result)
        return result

    def moments(self, statistics: PyTree, hyperparameters: Hyperparameters) -> tuple[Array, Array]:
        each = [part.moments(of, hyperparameters) for part, of in self._by_part(statistics)]
        return tuple(self._in_order(list(pieces)) for pieces in zip(*each, strict=True))  # type: ignore[return-value]


def _is_open(family: object) -> bool:
    """Whether it is a normal column of which nothing is stated."""
    settings = NormalInverseGamma.standard_settings
    is_normal = isinstance(family, NormalInverseGamma)
    return is_normal and all(getattr(family, name) is None for name in settings)
