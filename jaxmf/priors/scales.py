"""Priors of standard deviations, and of the variances that conjugate updates draw.

A user states what is believed of a standard deviation s. Gibbs updates draw the variance v = s^2,
whose density is p(v) = p_s(sqrt(v)) / (2 sqrt(v)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from jaxmf.priors.hyper import Hyperparameter, is_fixed, log_prior, validate
from jaxmf.readable import Readable
from jaxmf.types import Array, Key

if TYPE_CHECKING:
    import numpyro.distributions as dist


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RootInverseGamma(Readable):
    """A standard deviation whose square is InverseGamma(concentration, rate).

    It is the conjugate prior of Gaussian noise: `Gaussian(RootInverseGamma(a, b))` is updated by
    one Gamma draw, where any other distribution takes a slice update.

    Args:
        concentration: a, positive; the prior weighs as much as 2 a observations.
        rate: b, positive, in squared units of the data; the mean of s^2 is b / (a - 1) if a > 1.
    Raises:
        TypeError, ValueError: an argument is not a positive number.
    Example:
        >>> import jax
        >>> scale = RootInverseGamma(3.0, 2.0).sample(jax.random.key(0))
        >>> scale.shape
        ()
    """

    concentration: float
    rate: float

    # what `validate` asks of a distribution
    batch_shape = event_shape = ()
    is_discrete = False

    def __post_init__(self) -> None:
        for name in ("concentration", "rate"):
            value = getattr(self, name)
            if not is_fixed(value):
                raise TypeError(f"RootInverseGamma: {name} must be a number, got {value!r}")
            validate(f"RootInverseGamma: {name}", value)

    def squared(self) -> dist.Distribution:
        """The distribution of the variance, `numpyro.distributions.InverseGamma`."""
        import numpyro.distributions as dist

        return dist.InverseGamma(self.concentration, self.rate)

    def support(self, value: Array | float) -> Array | bool:
        """Whether values are positive, of their shape."""
        return value > 0

    def sample(self, key: Key, sample_shape: tuple[int, ...] = ()) -> Array:
        """Standard deviations, float of the shape asked for."""
        return jnp.sqrt(self.squared().sample(key, sample_shape))

    def log_prob(self, value: Array) -> Array:
        """Log density of standard deviations, of their shape."""
        return log_prior(self.squared(), value**2) + jnp.log(2 * value)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Squared:
    """The distribution of s^2 where s has a prior."""

    scale: Hyperparameter

    @property
    def mean(self) -> Array:
        raise NotImplementedError("no formula for the mean of the square of a scale")

    def support(self, value: Array) -> Array:
        return self.scale.support(jnp.sqrt(value))

    def sample(self, key: Key, sample_shape: tuple[int, ...] = ()) -> Array:
        return self.scale.sample(key, sample_shape) ** 2

    def log_prob(self, value: Array) -> Array:
        scale = jnp.sqrt(value)
        return log_prior(self.scale, scale) - jnp.log(2 * scale)


def squared(prior: Hyperparameter) -> Hyperparameter:
    """The prior of a variance, given that of the standard deviation.

    Args: prior: a number, a numpyro distribution or `RootInverseGamma`.
    Returns the square of a number; InverseGamma for `RootInverseGamma`, so that updates stay
    conjugate; else a distribution with `support`, `sample` and `log_prob`.
    """
    if is_fixed(prior):
        return prior**2
    return prior.squared() if isinstance(prior, RootInverseGamma) else _Squared(prior)
