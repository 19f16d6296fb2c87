"""Likelihoods of a cell x = -1 or 1 given its score m ~ Q = N(mean, variance), as bounds.

The expected negative log likelihood of a cell is at most

    F(mean, variance) - x kappa mean,

with equality for the Gaussian. The updates of the factors need two numbers of a cell, dF / dmean
and the weight q = 2 dF / dvariance, so that one set of sums serves all likelihoods.

Sources: Jaakkola & Jordan (1997), A variational approach to Bayesian logistic regression models and
their extensions; for the tilted bound Saul & Jordan (1999), A mean field learning algorithm for
unsupervised neural networks, and Knowles & Minka (2011), Non-conjugate variational message passing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxmf.priors import hyper
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.readable import Readable
from jaxmf.types import Array

BOUNDS = ("tilted", "quadratic")
_MACKAY = math.pi / 8
# by the bytes of a float, Newton steps of a tilt and terms of the series of log1p
_TILT_STEPS = {4: 2, 8: 3}
_LOG_TERMS = {4: 7, 8: 17}


class Slopes(NamedTuple):
    """Derivatives of F at scores, arrays of one shape.

    Attributes:
      mean: dF / dmean.
      weight: q = 2 dF / dvariance, positive.
    """

    mean: Array
    weight: Array


@partial(jax.tree_util.register_dataclass, data_fields=["noise_scale"], meta_fields=[])
@dataclass(frozen=True)
class Gaussian(Readable):
    """Cells -1 and 1 with Gaussian noise: exact sums in the time of the ones.

    Args:
      noise_scale: standard deviation of a cell about its mean, sqrt(v_x): a number, or, in `BPMF`,
        a numpyro distribution; None learns it.

    Raises:
      TypeError, ValueError: neither a positive number nor a numpyro distribution.
    """

    noise_scale: Hyperparameter = None

    def __post_init__(self) -> None:
        value = self.noise_scale
        # inside jax it may be an array, of which nothing can be said
        if value is not None and not isinstance(value, jax.Array):
            hyper.validate("noise_scale", value)

    @property
    def is_quadratic(self) -> bool:
        """Whether the cost of a cell is a quadratic in its score: one Newton step minimises it."""
        return True

    def slopes(self, mean: Array, variance: Array, noise: Array) -> Slopes:
        """dF / dmean = mean / v_x and q = 1 / v_x."""
        del variance
        return Slopes(mean / noise, jnp.broadcast_to(1 / noise, mean.shape))

    def slope(self, noise: Array) -> Array:
        """kappa = 1 / v_x: () float."""
        return 1 / noise

    def cost(self, mean: Array, variance: Array, noise: Array) -> Array:
        """F: half of (1 + E[m^2]) / v_x + log(2 pi v_x)."""
        second_moment = mean**2 + variance
        return 0.5 * ((1 + second_moment) / noise + jnp.log(2 * jnp.pi * noise))


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["bound"])
@dataclass(frozen=True)
class Sigmoid(Readable):
    """Cells -1 and 1 with p(x | m) = sigma(x m), whose expected cost is bounded from above.

    Args:
      bound: "tilted": E[log(1 + e^m)] <= t^2 variance / 2 + log(1 + exp(mean + (1 - 2 t) variance
        / 2)) with the best t of each cell, near the exact value for any score. It is a bound of
        Gaussian scores; those here are sums of products of Gaussians, so that it may lie below the
        exact value by some thousandths a cell. "quadratic": the bound of Jaakkola and Jordan with
        the best zeta of each cell, for scores of any distribution, which every step descends. It
        charges a zero of a sparse matrix variance / (4 |mean|), a hundred times the exact value, so
        that rows of few ones lose all of their factors. None chooses by the data: tilted where rows
        have fewer than 20 ones on average, quadratic where they have more and in a series.

    Raises:
      ValueError: another bound.
    """

    bound: str | None = None

    def __post_init__(self) -> None:
        if self.bound not in (None, *BOUNDS):
            raise ValueError(
                f"Sigmoid: bound must be one of {', '.join(BOUNDS)}, or None, got {self.bound!r}"
            )

    @property
    def is_quadratic(self) -> bool:
        """Whether the cost of a cell at fixed zeta is a quadratic in its score."""
        return self.bound == "quadratic"

    def slopes(self, mean: Array, variance: Array, noise: Array) -> Slopes:
        """dF / dmean and q: Lambda mean and Lambda, or p - 1/2 and p (1 - p) at p = t."""
        del noise
        if not self.is_quadratic:
            tilt = _tilt(mean, variance)
            probability = jax.nn.sigmoid(mean + (0.5 - tilt) * variance)
            return Slopes(probability - 0.5, tilt**2 + (1 - 2 * tilt) * probability)
        zeta = _root(mean**2 + variance)
        weight = jnp.where(zeta > 1e-3, jnp.tanh(zeta / 2) / (2 * zeta), 0.25 - zeta**2 / 48)
        return Slopes(weight * mean, weight)

    def slope(self, noise: Array) -> Array:
        """kappa = 1/2: () float."""
        return jnp.full_like(noise, 0.5)

    def cost(self, mean: Array, variance: Array, noise: Array) -> Array:
        """F: the bound of E[log(1 + e^m)] less mean / 2; E[log(2 cosh(m / 2))]."""
        del noise
        if not self.is_quadratic:
            # the best tilt is a minimum, so its derivative adds nothing
            tilt = jax.lax.stop_gradient(_tilt(mean, variance))
            score = mean + (0.5 - tilt) * variance
            return 0.5 * (tilt**2 * variance - mean) + _softplus(score)
        zeta = _root(mean**2 + variance)
        # never below log 2, so that log1p, which takes twice the time, would add nothing
        return zeta / 2 + jnp.log(1 + jnp.exp(-zeta))


def _tilt(mean: Array, variance: Array) -> Array:
    """The t of the lowest tilted bound, the root of t = sigma(mean + (1 - 2 t) variance / 2).

    From MacKay's approximation of E[sigma(m)] by Newton steps, after which the bound is the lowest
    to 1e-8 for variances up to 8 and to 1e-4 up to 16, or with 64 bits to 1e-14 and 1e-8; any other
    t gives a bound too, only one that is not as tight.
    """
    tilt = jax.nn.sigmoid(mean / jnp.sqrt(1 + _MACKAY * variance))
    for _ in range(_TILT_STEPS.get(mean.dtype.itemsize, 2)):
        value = jax.nn.sigmoid(mean + (0.5 - tilt) * variance)
        # where the sigmoid is steep at one end of the step, it may be so on the way
        steepest = jnp.maximum(value * (1 - value), tilt * (1 - tilt))
        tilt = tilt - (tilt - value) / (1 + steepest * variance)
    return tilt


def _softplus(score: Array) -> Array:
    """log(1 + e^m) by log1p(x) = 2 artanh(x / (2 + x)), in half the time of the compiler's.

    The series is in powers of at most 1 / 9, so that as many terms are exact in a float as in all.
    """
    small = jnp.exp(-jnp.abs(score))
    ratio = small / (2 + small)
    square, total = ratio**2, jnp.zeros_like(ratio)
    for term in reversed(range(_LOG_TERMS.get(score.dtype.itemsize, 7))):
        total = total * square + 1 / (2 * term + 1)
    return jnp.maximum(score, 0) + 2 * ratio * total


Likelihood = Any
"""`Gaussian` or `Sigmoid`."""


def _root(second_moment: Array) -> Array:
    """The square root, with a derivative at zero."""
    return jnp.sqrt(jnp.maximum(second_moment, jnp.finfo(second_moment.dtype).tiny))
