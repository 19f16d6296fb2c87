"""What a network asks of a family of values.

The values of a group are independent given its parameters, and these have a conjugate prior; with
the parameters summed out a group is known by its sufficient statistics. A family is used in two
forms: as statistics (pytrees of arrays with the groups on one axis, in a state), and as what a
sweep works on, where whatever a prediction needs of a group is kept ready and brought up to date
when a value joins or leaves.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf._kernels.tables import Lanes
from jaxmf.arguments import check_object
from jaxmf.priors import hyper
from jaxmf.priors.partition_prior import missing_hook
from jaxmf.readable import Readable
from jaxmf.types import Array, Key, PyTree

Hyperparameters = dict[str, Array]
"""The hyperparameters of a family in a state, by name."""


class SweptFamily(Readable, ABC):
    """Methods of a family that a sweep over indicators calls.

    Attributes:
        is_log: whether `predictive` gives logarithms.
        pads: whether a sweep may have more groups than there are, which stay empty.
        takes_missing: whether values may be NaN, which have no factor.
        standard_settings: the fields that may be left open, which are None then, and what stands
            for them where there are no data.
    """

    is_log = True
    pads = True
    takes_missing = False
    standard_settings: ClassVar[Mapping[str, float]] = {}

    @property
    def is_of_data(self) -> bool:
        """Whether a setting is left open, which follows from the data."""
        return any(getattr(self, name) is None for name in self.standard_settings)

    def settings_from(self, values: Array, *, num_groups: float) -> Mapping[str, object]:
        """Settings that may be left open, by name, on the scale of some values; see `known_from`.

        A family with `standard_settings` defines it. It is traced with the values.
        """
        del values, num_groups
        return self.standard_settings

    def known_from(self, values: Array, *, num_groups: float = 10) -> Self:
        """The family with what is left open chosen from values; what is stated stays.

        Args:
            values: (T,) or (T, D) float, NaN where one is missing.
            num_groups: how many groups share the volume of the values, which those of several
                columns share.
        """
        return self._filled(self.settings_from(values, num_groups=num_groups))

    def standard(self) -> Self:
        """The family with what is left open as it is without data."""
        return self._filled(self.standard_settings)

    def _filled(self, found: Mapping[str, object]) -> Self:
        if not self.is_of_data:
            return self
        family: Any = self
        names = [name for name in self.standard_settings if getattr(self, name) is None]
        filled: Self = dataclasses.replace(family, **{name: found[name] for name in names})
        return filled

    @abstractmethod
    def statistics(self, groups: Array, values: Array, num_groups: int) -> PyTree:
        """The statistics of G groups from all values; groups (T,) int32."""

    def empty(self, num_groups: int) -> PyTree:
        """The statistics of G groups without values."""
        return self.statistics(jnp.zeros((0,), jnp.int32), self._no_values(), num_groups)

    def _no_values(self) -> Array:
        return jnp.zeros((0,), jnp.result_type(float))

    @abstractmethod
    def begin(self, statistics: PyTree, hyperparameters: Hyperparameters) -> PyTree:
        """Statistics as a sweep works on them."""

    @abstractmethod
    def move(self, cache: PyTree, group: Array, value: Array, amount: int) -> PyTree:
        """A value joins a group (amount 1) or leaves it (-1)."""

    @abstractmethod
    def predictive(self, cache: PyTree, lanes: Lanes, value: Array) -> Array:
        """p(value | values of the group), or its logarithm, for several groups: (lanes.size,)."""


class Family(SweptFamily):
    """Base of the families: hyperparameters are fixed unless a family says otherwise.

    In the methods T is the number of values, (T,) or for vectors (T, D), and G that of groups;
    ``statistics`` and ``parameters`` are pytrees whose leaves have the groups on their first axis,
    ``hyperparameters`` is a dict of () float by name. `AdditiveFamily` needs less where statistics
    are sums over values (Porteous 2010, section 4.1).

    Attributes:
        hyperparameters: names of the fields that may have priors.
    """

    hyperparameters: tuple[str, ...] = ()

    @abstractmethod
    def check(self, values: object, name: str) -> np.ndarray:
        """The values as they are kept.

        Args:
            values: a column of whole numbers (T,), or real values (T,) or (T, D), of Tokens.
            name: of the block, for the message.
        Raises:
            ValueError: values outside the support.
        """

    def with_size(self, size: int) -> Family:
        """The family, for a column with this many levels, or vectors of this many entries."""
        del size
        return self

    def start(self) -> Hyperparameters:
        """Hyperparameters at the means of their priors."""
        return {name: hyper.initial_value(getattr(self, name)) for name in self.hyperparameters}

    def simulate_hyperparameters(self, key: Key) -> Hyperparameters:
        """Hyperparameters from their priors."""
        keys = jax.random.split(key, max(len(self.hyperparameters), 1))
        return {
            name: hyper.sample_prior(name_key, getattr(self, name))
            for name_key, name in zip(keys, self.hyperparameters, strict=False)
        }

    def update_hyperparameters(
        self, key: Array, hyperparameters: Hyperparameters, statistics: PyTree
    ) -> Hyperparameters:
        """A draw of the hyperparameters from a kernel that leaves their conditional invariant.

        Without it those that are single positive numbers are slice sampled by `log_marginal`.
        """
        raise missing_hook(
            self, "update_hyperparameters", "learning hyperparameters", "numbers for them"
        )

    @abstractmethod
    def log_marginal(self, statistics: PyTree, hyperparameters: Hyperparameters) -> Array:
        """log p(values of a group), parameters summed out: (G,) float."""

    @abstractmethod
    def sample_parameters(
        self, key: Key, statistics: PyTree, hyperparameters: Hyperparameters
    ) -> PyTree:
        """Parameters of every group from their posterior; leaves with the groups first."""

    @abstractmethod
    def log_prob(self, parameters: PyTree, value: Array) -> Array:
        """log p(value | parameters) of every group: (G,) for one value."""

    def log_prob_at(self, parameters: PyTree, groups: Array, values: Array) -> Array:
        """log p(value | parameters) of B values in n groups each, (B, n) int32: (B, n) float."""

        def log_prob_of_one(groups: Array, value: Array) -> Array:
            return self.log_prob(jax.tree.map(lambda leaf: leaf[groups], parameters), value)

        return jax.vmap(log_prob_of_one)(groups, values)

    @abstractmethod
    def sample(self, key: Key, parameters: PyTree, groups: Array) -> Array:
        """Values of groups (T,) given the parameters of all: (T,) or (T, D)."""

    def sample_cells(self, key: Key, parameters: PyTree, groups: Array, columns: Array) -> Array:
        """One entry each of values of groups (M,), of these columns (M,): (M,)."""
        return self.sample(key, parameters, groups)[jnp.arange(groups.size), columns]

    def log_predictive_of_cells(
        self, statistics: PyTree, hyperparameters: Hyperparameters, columns: Array, values: Array
    ) -> Array:
        """log p(entry | values of the group) of M entries, columns (M,), each alone: (M, G).

        Of families that take missing entries.
        """
        cache = self.begin(statistics, hyperparameters)
        num_groups, num_columns = self.moments(statistics, hyperparameters)[0].shape
        lanes = Lanes(jnp.zeros((), jnp.int32), 1, num_groups)
        alone = jnp.full((values.size, num_columns), jnp.nan, values.dtype)
        alone = alone.at[jnp.arange(values.size), columns].set(values)
        return jax.vmap(lambda row: self.predictive(cache, lanes, row))(alone)

    @abstractmethod
    def moments(self, statistics: PyTree, hyperparameters: Hyperparameters) -> tuple[Array, Array]:
        """Mean and variance of the next value of every group: (G,) or (G, D) each."""


def check_family(family: object) -> None:
    """Refuses what is no family; placeholders of jax pass unchecked."""
    if not hyper.is_placeholder(family):
        check_object(
            "family", family, SweptFamily, "NormalInverseWishart() or DirichletMultinomial()"
        )


def check_positive_fields(family: object, names: tuple[str, ...]) -> None:
    """Refuses fields that are not positive numbers; None is one that is left open."""
    for name in names:
        value = getattr(family, name)
        if value is None:
            continue
        hyper.validate(name, value)
        if not hyper.is_fixed(value):
            raise TypeError(f"{name} must be a number; {type(family).__name__} has no prior on it")
