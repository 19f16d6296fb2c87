"""What a likelihood of a cell is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf._kernels import special
from jaxmf.data.container import unchecked
from jaxmf.priors import hyper
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.readable import Readable
from jaxmf.types import Array, Key


class Likelihood(Readable, ABC):
    """The distribution of a cell x given its linear predictor eta; cells are independent.

    A likelihood is a frozen dataclass, registered as a pytree. Fields named in `hyperparameters`
    may be numbers or numpyro distributions; the methods need numbers, which `at_values` fills in.
    `x` and `eta` are float arrays of one shape, such as (I, J). A likelihood of one's own needs
    `log_density`, `sample`, `mean`, `variance` and `in_support`.

    The methods are called with any cells, such as (1,) of one column: they must not depend on where
    a cell stands. So hyperparameters are single numbers, or priors of single numbers. Of numbers
    one a column `FeatureModel` takes functions of whole rows: `log_likelihood`, `moments` and
    `sample_row`.

    Attributes:
      hyperparameters: names of the fields that may have priors.
      cell_distribution: the name by which predictions know the distribution of a cell.
      support: the values that a cell may have, for messages: ``"numbers above 0 and below 1"``.
      remedy: what to do with other values, for messages.
      needs_nonnegative: whether a predictor below 0 has no meaning.
    """

    hyperparameters: ClassVar[tuple[str, ...]] = ()
    cell_distribution: ClassVar[str] = "normal"
    support: ClassVar[str] = "values that its in_support allows"
    remedy: ClassVar[str] = "Remove them"
    needs_nonnegative: ClassVar[bool] = False

    @abstractmethod
    def log_density(self, x: Array, eta: Array) -> Array:
        """log p(x | eta) of each cell, float of their common shape."""

    @abstractmethod
    def sample(self, key: Key, eta: Array) -> Array:
        """Cells given their predictors, of the shape and dtype of `eta`."""

    @abstractmethod
    def mean(self, eta: Array) -> Array:
        """Mean of a cell, of the shape of `eta`."""

    @abstractmethod
    def variance(self, eta: Array) -> Array:
        """Variance of a cell, of the shape of `eta`."""

    @abstractmethod
    def in_support(self, values: np.ndarray) -> np.ndarray:
        """Which values a cell may have: bool of their shape."""

    def moments(self, eta: Array) -> tuple[Array, Array]:
        """Mean and variance of a cell, each of the shape of `eta`."""
        return self.mean(eta), self.variance(eta)

    def log_kernel(self, x: Array, eta: Array) -> Array:
        """`log_density` up to terms that do not depend on eta."""
        return self.log_density(x, eta)

    def log_kernel_of_rows(self, x: Array, eta: Array, observed: Array | None) -> Array:
        """Sum of `log_kernel` over the observed cells of each row: (I,) float."""
        each = self.log_kernel(x, eta)
        return jnp.sum(each if observed is None else jnp.where(observed, each, 0), axis=1)

    def annealed(self, noise_factor: Array | float) -> Likelihood:
        """The likelihood to the power 1 / noise_factor^2, up to a constant."""
        return Tempered(self, noise_factor**-2)

    def at_values(self, values: Mapping[str, object]) -> Self:
        """The likelihood with these numbers for its hyperparameters; other names are ignored."""
        names = [each.name for each in fields(self) if each.name in values]  # type: ignore[arg-type]
        return unchecked(self, **{name: values[name] for name in names})

    @property
    def is_discrete(self) -> bool:
        """Whether cells have probabilities, and not densities: 1/2 is then no value."""
        return not bool(self.in_support(np.array([0.5]))[0])

    def check(self, values: object, name: str, *, observed: object = None) -> None:
        """Refuses values that a cell cannot have.

        Args:
          values: array of cells, of any shape.
          name: what the user calls it.
          observed: bool of the same shape, which cells are looked at; None for all.
        Raises:
          ValueError: there is one; the message names the first. Or `in_support` returns no bool
            for each value.
        """
        array = np.asarray(values)
        allowed = np.asarray(self.in_support(array))
        if allowed.shape != array.shape or allowed.dtype != bool:
            raise ValueError(
                f"likelihood={self!r}: in_support returned {allowed.dtype} of shape "
                f"{allowed.shape} for values of shape {array.shape}; it must return bool, one for "
                "each value"
            )
        bad = ~allowed
        if observed is not None:
            bad = bad & np.asarray(observed)
        if not bad.any():
            return
        first = np.argwhere(bad)[0].tolist()
        where = f"row {first[0]}, column {first[1]}" if array.ndim == 2 else f"position {first[0]}"
        num_bad = int(bad.sum())
        others = f" ({num_bad} such values)" if num_bad > 1 else ""
        raise ValueError(
            f"{name}: {array[tuple(first)]:g} at {where}; likelihood={self!r} needs {self.support}"
            f"{others}. {self.remedy}, or use another likelihood"
        )

    def _validate(self, *optional: str) -> None:
        """Refuses hyperparameters that are neither positive numbers nor distributions of such.

        Args:
          optional: names of those that may be None, which leaves the choice to the model.
        """
        for name in self.hyperparameters:
            value = getattr(self, name)
            if not (name in optional and value is None):
                hyper.validate(name, value)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tempered(Likelihood):
    """A likelihood to a power, as in an annealed start; its moments and draws stay as they are."""

    likelihood: Likelihood  # any
    power: Array | float  # () float, positive

    def log_density(self, x: Array, eta: Array) -> Array:
        """The power times log p(x | eta), not normalised."""
        return self.power * self.likelihood.log_density(x, eta)

    def log_kernel(self, x: Array, eta: Array) -> Array:
        return self.power * self.likelihood.log_kernel(x, eta)

    def sample(self, key: Key, eta: Array) -> Array:
        return self.likelihood.sample(key, eta)

    def mean(self, eta: Array) -> Array:
        return self.likelihood.mean(eta)

    def variance(self, eta: Array) -> Array:
        return self.likelihood.variance(eta)

    def in_support(self, values: np.ndarray) -> np.ndarray:
        return self.likelihood.in_support(values)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Unnormalised(Tempered):
    """A likelihood without terms that do not depend on the predictor, for moves of this alone."""

    def log_density(self, x: Array, eta: Array) -> Array:
        """The power times log p(x | eta), up to terms of x and the hyperparameters."""
        return self.log_kernel(x, eta)


class BinaryCells(Likelihood):
    """Cells 0 and 1, whose mean is the probability of a one."""

    cell_distribution = "bernoulli"
    support = "0 or 1"
    remedy = "Threshold them, for instance x > 0"

    def variance(self, eta: Array) -> Array:
        mean = self.mean(eta)
        return mean * (1 - mean)

    def in_support(self, values: np.ndarray) -> np.ndarray:
        return np.isin(values, (0, 1))


class CountCells(Likelihood):
    """Counts with the mean base_rate + eta, eta >= 0."""

    needs_nonnegative = True
    support = "counts 0, 1, 2, ..."
    remedy = "Round fractions, make codes of missing cells NaN"
    base_rate: Hyperparameter

    def __post_init__(self) -> None:
        self._validate(*self.hyperparameters)

    def mean(self, eta: Array) -> Array:
        # sums and differences of weights may round to below nothing
        return self.base_rate + jnp.maximum(eta, 0)

    def in_support(self, values: np.ndarray) -> np.ndarray:
        return np.isfinite(values) & (values >= 0) & (values == np.floor(values))


def sample_counts(key: Key, rates: Array) -> Array:
    """Poisson draws of these means, of their shape and dtype."""
    keys = jax.random.split(key, rates.size)
    drawn = jax.vmap(special.poisson)(keys, rates.ravel())
    return drawn.reshape(rates.shape).astype(rates.dtype)
