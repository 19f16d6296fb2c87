"""Families written in ordinary jnp: what a group keeps is a sum over its values.

A family is a conjugate pair in an exponential family, and says four things of it:

    statistic(value)                    what one value adds to the statistics s of its group
    log_marginal(s, numbers)            log p(values of a group), parameters summed out
    sample_parameters(key, s, numbers)  a draw of the parameters given the values
    log_prob(parameters, value)         log p(value | parameters)

The collapsed sweep, which needs log p(value | values of a group) and to move a value from group to
group, follows: the first is a difference of two log marginals.
"""

from __future__ import annotations

from abc import abstractmethod

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf._kernels import tables
from jaxmf._kernels.tables import Lanes
from jaxmf.likelihoods.families.family import Family, Hyperparameters
from jaxmf.priors import hyper
from jaxmf.priors.partition_prior import missing_hook
from jaxmf.types import Array, Key, PyTree


class AdditiveFamily(Family):
    """Base of families whose statistics are sums over values, in ordinary jnp.

    Subclass it as a frozen dataclass of positive numbers or numpyro distributions over them, the
    latter listed in `hyperparameters`, and define the abstract methods. `hyperparameters` has the
    hyperparameters by name, as arrays ().

    The difference of log marginals loses digits where these are large: with 32-bit floats about
    1e-7 of their size, so that groups of more than some thousand values need 64-bit floats, or
    `log_predictive` written out.

    Attributes:
        value_shape: of one value: () for a number, (D,) for vectors.
    """

    value_shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in self.hyperparameters:
            hyper.validate(name, getattr(self, name))

    @abstractmethod
    def statistic(self, value: Array) -> PyTree:
        """Contribution of one value to the statistics of its group.

        Args:
            value: () float, or (D,).
        Returns:
            A NamedTuple of arrays of fixed shapes, of which one is ``number``, () int32: one.
        """

    def in_support(self, values: np.ndarray) -> np.ndarray:
        """Which values (T,) or (T, D) can be: (T,) bool, by numpy. Finite numbers by default."""
        return np.isfinite(values).reshape(values.shape[0], -1).all(axis=1)

    def log_predictive(
        self, statistics: PyTree, value: Array, hyperparameters: Hyperparameters
    ) -> Array:
        """log p(value | values of a group) of several groups: (n,) float."""
        one = self.statistic(value)
        after = jax.tree.map(lambda leaf, more: leaf + more.astype(leaf.dtype), statistics, one)
        return self.log_marginal(after, hyperparameters) - self.log_marginal(
            statistics, hyperparameters
        )

    # --- what networks ask ------------------------------------------------------------------------

    def check(self, values: object, name: str) -> np.ndarray:
        """The values; refuses the first that is not in the support."""
        array = np.asarray(values)
        if array.shape[1:] != self.value_shape:
            raise ValueError(
                f"{name}: {type(self).__name__} takes values of shape {self.value_shape} a token, "
                f"got {array.shape[1:]}"
            )
        bad = ~self.in_support(array)
        if bad.any():
            first = int(np.argmax(bad))
            raise ValueError(
                f"{name}: {array[first]} at token {first} is outside the support of "
                f"{type(self).__name__}"
            )
        return array

    def _no_values(self) -> Array:
        return jnp.zeros((0, *self.value_shape), jnp.result_type(float))

    def empty(self, num_groups: int) -> PyTree:
        value = jax.ShapeDtypeStruct(self.value_shape, jnp.result_type(float))
        one = jax.eval_shape(self.statistic, value)
        if "number" not in getattr(one, "_fields", ()):
            raise TypeError(
                f"{type(self).__name__}.statistic must return a NamedTuple with a field 'number', "
                f"how many values a group has, got {type(one).__name__}"
            )
        return jax.tree.map(lambda leaf: jnp.zeros((num_groups, *leaf.shape), leaf.dtype), one)

    def statistics(self, groups: Array, values: Array, num_groups: int) -> PyTree:
        each = jax.vmap(self.statistic)(values.astype(jnp.result_type(float)))
        return jax.tree.map(
            lambda total, one: total.at[groups].add(one.astype(total.dtype)),
            self.empty(num_groups),
            each,
        )

    def begin(self, statistics: PyTree, hyperparameters: Hyperparameters) -> PyTree:
        """Statistics and hyperparameters, side by side."""
        return statistics, hyperparameters

    def move(self, cache: PyTree, group: Array, value: Array, amount: int) -> PyTree:
        statistics, hyperparameters = cache
        one = self.statistic(value.astype(jnp.result_type(float)))
        moved = jax.tree.map(
            lambda leaf, more: tables.add(leaf, group, amount * more), statistics, one
        )
        return moved, hyperparameters

    def predictive(self, cache: PyTree, lanes: Lanes, value: Array) -> Array:
        statistics, hyperparameters = cache
        groups = jax.tree.map(lambda leaf: tables.take(leaf, lanes), statistics)
        return self.log_predictive(groups, value.astype(jnp.result_type(float)), hyperparameters)

    def moments(self, statistics: PyTree, hyperparameters: Hyperparameters) -> tuple[Array, Array]:
        """Mean and variance of the next value of every group: (G,) or (G, D) each.

        Raises:
            TypeError: a family that does not define it; only predictions need it.
        """
        raise missing_hook(self, "moments", "a prediction", "top_entries or draws instead")

    def sample(self, key: Key, parameters: PyTree, groups: Array) -> Array:
        """Values of groups (T,) given the parameters of all: (T,) or (T, D).

        Raises:
            TypeError: a family that does not define it; only simulations and draws need it.
        """
        raise missing_hook(self, "sample", "a simulation", "data of your own")
