"""Values out of a finite set: words, ratings, answers."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf._kernels import tables
from jaxmf._kernels.special import loggammas
from jaxmf._kernels.tables import Lanes, count_pairs
from jaxmf.arguments import assign, check_count
from jaxmf.likelihoods.families.family import Family, Hyperparameters
from jaxmf.priors import hyper
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.priors.partitions import log_dirichlet_multinomial
from jaxmf.types import STATIC, Array, Key

_EXACT = 2**24


class Counts(NamedTuple):
    """How often a group has a value."""

    cells: Array  # (V, G) int32; a value's groups stand side by side, as a sweep reads them
    totals: Array  # (G,) int32


class _CategoryCache(NamedTuple):
    """Counts in a sweep: cells (V + 1, G) float, the last line 1 / (n_g + V b); totals (G,) int32.

    In one table, as the compiler would copy a short array that is both changed and read.
    """

    cells: Array
    totals: Array
    concentration: Array
    whole: Array


def check_counts(counts: np.ndarray, name: str) -> None:
    """Refuses values, by how often each stands, of which there are too many: ValueError."""
    if counts.max(initial=0) > _EXACT:
        raise ValueError(
            f"{name}: a value stands more than {_EXACT:,} times, more than a sweep can count "
            "exactly. Split the data, or leave out what stands everywhere."
        )


class _Categories(Family):
    """One of `size` values; `hyperparameters["concentration"]` is () or (V,)."""

    is_log = False
    size: Any

    def check(self, values: object, name: str) -> np.ndarray:
        array = np.asarray(values)
        if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
            raise ValueError(
                f"{name}: its family {type(self).__name__} takes one whole number a token, got "
                f"{array.dtype} of shape {array.shape}. Pass it as a column of indices."
            )
        if array.size and (array.min() < 0 or array.max() >= self.size):
            first = int(np.argmax((array < 0) | (array >= self.size)))
            raise ValueError(
                f"{name}: {array[first]} at token {first} is outside 0..{self.size - 1}, the "
                f"values that {type(self).__name__} of size {self.size} knows."
            )
        if array.size:
            check_counts(np.bincount(array), name)
        return array

    def statistics(self, groups: Array, values: Array, num_groups: int) -> Counts:
        cells = count_pairs(values, groups, (self.size, num_groups))
        return Counts(cells, jnp.sum(cells, axis=0))

    def _no_values(self) -> Array:
        return jnp.zeros((0,), jnp.int32)

    def begin(self, statistics: Counts, hyperparameters: Hyperparameters) -> _CategoryCache:
        concentration = hyperparameters["concentration"]
        whole = jnp.sum(jnp.broadcast_to(concentration, (self.size,)))
        inverse = 1 / (statistics.totals + whole)
        return _CategoryCache(
            cells=jnp.concatenate([statistics.cells.astype(whole.dtype), inverse[None]]),
            totals=statistics.totals,
            concentration=concentration,
            whole=whole,
        )

    def move(
        self, cache: _CategoryCache, group: Array, value: Array, amount: int
    ) -> _CategoryCache:
        # changed first, then read: else the old totals must be kept, which is a copy
        totals = tables.add(cache.totals, group, amount)
        total = tables.row(totals, group).astype(cache.whole.dtype)
        cells = tables.add_entry(cache.cells, value, group, amount)
        last = jnp.asarray(self.size, jnp.int32)
        cells = tables.put_entry(cells, last, group, 1 / (total + cache.whole))
        return cache._replace(cells=cells, totals=totals)

    def predictive(self, cache: _CategoryCache, lanes: Lanes, value: Array) -> Array:
        concentration = cache.concentration
        if concentration.ndim:
            concentration = tables.row(concentration, value)
        counts = tables.take_from_row(cache.cells, value, lanes)
        last = jnp.asarray(self.size, jnp.int32)
        return (counts + concentration) * tables.take_from_row(cache.cells, last, lanes)

    def predictive_after(
        self, cache: _CategoryCache, lanes: Lanes, value: Array, *, same: Array, before: Array
    ) -> Array:
        """As `predictive`, where further values have joined every group.

        Args:
            cache, lanes, value: as in `predictive`.
            same: () float, how many of these values are this one; below 0 of values that have
                left.
            before: () float, how many there are.
        Returns:
            (lanes.size,) float.
        """
        concentration = cache.concentration
        if concentration.ndim:
            concentration = tables.row(concentration, value)
        counts = tables.take_from_row(cache.cells, value, lanes) + same
        totals = tables.take(cache.totals, lanes) + before  # both exact, whatever has left
        return (counts + concentration) / (totals + cache.whole)

    def log_marginal(self, statistics: Counts, hyperparameters: Hyperparameters) -> Array:
        concentration = jnp.broadcast_to(hyperparameters["concentration"], (self.size,))
        return log_dirichlet_multinomial(statistics.cells.T, concentration)

    def probabilities(self, statistics: Counts, hyperparameters: Hyperparameters) -> Array:
        """E[phi | values]: (G, V) float."""
        concentration = jnp.broadcast_to(hyperparameters["concentration"], (self.size,))
        weights = statistics.cells.T + concentration
        return weights / jnp.sum(weights, axis=1, keepdims=True)

    def sample_parameters(
        self, key: Key, statistics: Counts, hyperparameters: Hyperparameters
    ) -> Array:
        """(G, V) float: log phi."""
        concentration = jnp.broadcast_to(hyperparameters["concentration"], (self.size,))
        logs = loggammas(key, statistics.cells.T + concentration)
        return jax.nn.log_softmax(logs, axis=1)

    def log_prob(self, parameters: Array, value: Array) -> Array:
        return parameters[:, value]

    def log_prob_at(self, parameters: Array, groups: Array, values: Array) -> Array:
        return parameters[groups, values[:, None]]

    def sample(self, key: Key, parameters: Array, groups: Array) -> Array:
        return jax.random.categorical(key, parameters[groups]).astype(jnp.int32)

    def moments(self, statistics: Counts, hyperparameters: Hyperparameters) -> tuple[Array, Array]:
        """Mean and variance of the value as an integer 0..V-1."""
        probabilities = self.probabilities(statistics, hyperparameters)
        values = jnp.arange(self.size, dtype=probabilities.dtype)
        mean = probabilities @ values
        return mean, jnp.sum(probabilities * (values - mean[:, None]) ** 2, axis=1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DirichletMultinomial(_Categories):
    """One of V values, with Dirichlet probabilities for every group.

    phi_g ~ Dirichlet(b_1, ..., b_V), p(v | phi_g) = phi_gv. With phi summed out the next value of a
    group is v with probability (n_gv + b_v) / (n_g + sum b).

    Args:
        size: V; by default as many as the column of the tokens has levels.
        concentration: b, that of each value; a number or V numbers, which stay fixed, or a numpyro
            distribution of one number for all or a batch of V, which are learned.
    Raises:
        TypeError, ValueError: size is not a positive integer, or a concentration is not positive.
    Example:
        >>> DirichletMultinomial(5).size
        5
    """

    size: Any = field(default=None, metadata=STATIC)  # int once it is known
    concentration: Hyperparameter = 1.0

    hyperparameters = ("concentration",)

    def __post_init__(self) -> None:
        if self.size is not None:
            check_count("size", self.size)
        concentration = hyper.validate_concentrations(self.concentration, self.size)
        assign(self, concentration=concentration)

    def with_size(self, size: int) -> DirichletMultinomial:
        return self if self.size is not None else dataclasses.replace(self, size=size)

    def start(self) -> Hyperparameters:
        return {"concentration": hyper.initial_value(self.concentration)}

    def simulate_hyperparameters(self, key: Key) -> Hyperparameters:
        return {"concentration": hyper.sample_prior(key, self.concentration)}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BetaBinary(_Categories):
    """0 or 1, with a Beta(a, b) probability of 1 for every group: the beta-Bernoulli family.

    The name BetaBernoulli is that of the prior of binary features.

    Args:
        a, b: positive numbers, the pseudo-counts of 1 and of 0.
    Raises:
        TypeError, ValueError: size is not a positive integer, or a concentration is not positive.
    Example:
        >>> BetaBinary(1.0, 2.0).size
        2
    """

    a: float = 1.0
    b: float = 1.0

    size = 2

    def __post_init__(self) -> None:
        for name in ("a", "b"):
            hyper.validate(name, getattr(self, name))
            if not hyper.is_fixed(getattr(self, name)):
                raise TypeError(f"{name} must be a number; BetaBinary takes no priors on it")

    def start(self) -> Hyperparameters:
        both = jnp.stack([jnp.asarray(self.b), jnp.asarray(self.a)])
        return {"concentration": both.astype(jnp.result_type(float))}

    def simulate_hyperparameters(self, key: Key) -> Hyperparameters:
        del key
        return self.start()
