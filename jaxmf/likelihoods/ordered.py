"""Likelihoods of cells that show the interval of a normal variable: binary and ordered probit.

Both are normal noise of variance one about the mean eta once the latent variable of each cell is
known, so that what samples factors under normal noise serves them as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtr, ndtri
from jax.scipy.stats import norm

from jaxmf.arguments import check_number, check_numbers
from jaxmf.likelihoods import thresholds as kernels
from jaxmf.likelihoods.intervals import log_mass
from jaxmf.priors import hyper
from jaxmf.readable import Readable
from jaxmf.special import as_normals, uniforms
from jaxmf.types import Array, Key

Targets = tuple[Array, Array]
"""Latent values (T,) and the precision () of the normal noise about their means."""


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=[])
@dataclass(frozen=True)
class Probit(Readable):
    """Cells 0 and 1: p(x = 1 | eta) = Phi(eta).

    x = 1 where a latent z ~ N(eta, 1) is positive. There is nothing to learn about the noise; its
    state is an array without elements.

    Example:
        >>> likelihood =  Probit()
        >>> likelihood.probabilities(likelihood.start(jnp.zeros(1)), jnp.array([0.0])).tolist()
        [[0.5, 0.5]]
    """

    cell_distribution = "bernoulli"

    @property
    def levels(self) -> tuple[float, ...]:
        """0 and 1."""
        return (0.0, 1.0)

    def check(self, values: object) -> None:
        """Refuses values other than 0 and 1.

        Raises:
            ValueError: there is one.
        """
        _check_levels(values, self.levels, "Probit()", "Threshold them, for instance x > 3.")

    def start(self, values: Array) -> Array:
        """No noise to start from: (0,) float."""
        return jnp.zeros(0, jnp.result_type(float, values))

    def sample_prior(self, key: Key) -> Array:
        """Nothing is drawn: (0,) float."""
        return jnp.zeros(0)

    def log_prior(self, noise: Array) -> Array:
        """Zero, () float."""
        return jnp.zeros((), noise.dtype)

    def augment(
        self, key: Key, noise: Array, values: Array, eta: Array, there: Array
    ) -> tuple[Targets, Array]:
        """Latent values (T,) given cells and means, with the precision of one; and the noise.

        Args:
            key: typed PRNG key.
            noise: (0,).
            values: (T,) of 0 and 1.
            eta: (T,) float, the means of the latent values.
            there: (T,) bool, whether there is a cell; elsewhere the latent value is the mean.
        """
        latent = self.latent(key, noise, values, eta)
        return (jnp.where(there, latent, eta), jnp.ones((), eta.dtype)), noise

    def latent(self, key: Key, noise: Array, values: Array, eta: Array) -> Array:
        """Latent values (T,) given cells and means."""
        zero = jnp.zeros(1, eta.dtype)
        return kernels.draw_latent(key, zero, eta, (values > 0.5).astype(jnp.int32))

    def log_density(self, noise: Array, values: Array, eta: Array) -> Array:
        """Log probability of cells given their means, of their shape."""
        return log_ndtr(jnp.where(values > 0.5, eta, -eta))

    def sample(self, key: Key, noise: Array, eta: Array) -> Array:
        """Cells given their means, of their shape."""
        return (as_normals(uniforms(key, eta.shape)) < eta).astype(eta.dtype)

    def probabilities(self, noise: Array, eta: Array, variance: Array | float = 0.0) -> Array:
        """(..., 2) probabilities of 0 and 1 where eta is normal about its mean."""
        scaled = eta / jnp.sqrt(1 + variance)
        return jnp.stack([ndtr(-scaled), ndtr(scaled)], axis=-1)

    def moments(
        self, noise: Array, eta: Array, variance: Array | float = 0.0
    ) -> tuple[Array, Array]:
        """Mean and variance of cells, each of the shape of eta."""
        ones = self.probabilities(noise, eta, variance)
        return ones[..., 1], ones[..., 0] * ones[..., 1]


@partial(jax.tree_util.register_dataclass, data_fields=["threshold_scale"], meta_fields=["levels"])
@dataclass(frozen=True)
class Ordinal(Readable):
    """Cells of ordered levels, such as ratings of one to five stars: the ordered probit model.

    p(level c | eta) = Phi(t_c - eta) - Phi(t_{c-1} - eta), with as many thresholds t as there are
    steps between levels; how far apart levels are is learned. No threshold is fixed: their prior,
    independent N(0, threshold_scale^2) in ascending order, is proper, and they carry the general
    level, which factors alone cannot express. The state of the noise is the thresholds (L-1,).

    Args:
        levels: L ascending numbers.
        threshold_scale: standard deviation of the prior, in units of the noise.

    Raises:
        ValueError: fewer than two levels, or not ascending; a scale that is not positive.

    Example:
        >>> likelihood =  Ordinal(levels=(1, 2, 3))
        >>> likelihood.probabilities(jnp.array([-1.0, 1.0]), jnp.array([0.0])).round(3).tolist()
        [[0.159..., 0.683..., 0.159...]]
    """

    levels: tuple[float, ...] = (1, 2, 3, 4, 5)
    threshold_scale: float = 10.0

    def __post_init__(self) -> None:
        if not isinstance(self.levels, tuple):
            object.__setattr__(self, "levels", tuple(check_numbers("levels", self.levels).tolist()))
        are_numeric = all(isinstance(level, (int, float)) for level in self.levels)
        ascend = are_numeric and np.isfinite(self.levels).all() and (np.diff(self.levels) > 0).all()
        if len(self.levels) < 2 or not ascend:
            raise ValueError(
                f"levels: must be two or more ascending numbers, are {self.levels!r}; for ratings "
                "of stars (1, 2, 3, 4, 5)."
            )
        # inside jax the scale may be an array, of which nothing can be said
        is_traced = hyper.is_placeholder(self.threshold_scale)
        if not is_traced and not isinstance(self.threshold_scale, jax.Array):
            check_number("threshold_scale", self.threshold_scale, above=0)

    def check(self, values: object) -> None:
        """Refuses values that are no level.

        Raises:
            ValueError: there is one.
        """
        name = f"Ordinal(levels={self.levels})"
        _check_levels(values, self.levels, name, "Give all levels that occur, or round them.")

    def codes(self, values: Array) -> Array:
        """Indices of values among the levels, int32 of their shape."""
        levels = np.asarray(self.levels, float)
        middles = jnp.asarray((levels[1:] + levels[:-1]) / 2, values.dtype)
        return (values[..., None] > middles).sum(axis=-1, dtype=jnp.int32)

    def start(self, values: Array) -> Array:
        """Thresholds by the shares of the levels, as if every mean were zero: (L-1,) float."""
        codes = self.codes(jnp.ravel(values))
        # in whole numbers: adding one to a float of 2^24 changes nothing in 32 bits
        counts = jnp.zeros(len(self.levels), jnp.int32).at[codes].add(1) + 0.5
        return ndtri(jnp.cumsum(counts)[:-1] / counts.sum())

    def sample_prior(self, key: Key) -> Array:
        """Thresholds from their prior, (L-1,) float."""
        drawn = as_normals(uniforms(key, (len(self.levels) - 1,)))
        return jnp.sort(self.threshold_scale * drawn)

    def log_prior(self, noise: Array) -> Array:
        """Log density of the thresholds, () float."""
        num_thresholds = len(self.levels) - 1
        ordered = jnp.all(jnp.diff(noise) > 0)
        density = norm.logpdf(noise, 0, self.threshold_scale).sum() + math.lgamma(
            num_thresholds + 1
        )
        return jnp.where(ordered, density, -jnp.inf)

    def augment(
        self, key: Key, noise: Array, values: Array, eta: Array, there: Array
    ) -> tuple[Targets, Array]:
        """Thresholds with the latent values summed out, then latent values; precision one.

        Args:
            key: typed PRNG key.
            noise: (L-1,) thresholds.
            values: (T,) levels.
            eta: (T,) float, the means of the latent values.
            there: (T,) bool, whether there is a cell; elsewhere the latent value is the mean.
        """
        threshold_key, latent_key = jax.random.split(key)
        codes = self.codes(values)
        cells = kernels.in_pieces(eta, codes, there)
        scale = self.threshold_scale
        noise, _ = kernels.draw_thresholds(threshold_key, noise, cells, scale=scale)
        latent = kernels.draw_latent(latent_key, noise, eta, codes)
        return (jnp.where(there, latent, eta), jnp.ones((), eta.dtype)), noise

    def latent(self, key: Key, noise: Array, values: Array, eta: Array) -> Array:
        """Latent values (T,) given cells, means and thresholds."""
        return kernels.draw_latent(key, noise, eta, self.codes(values))

    def log_density(self, noise: Array, values: Array, eta: Array) -> Array:
        """Log probability of cells given their means, of their shape."""
        lower, upper = kernels.bounds(noise, self.codes(values))
        return log_mass(lower - eta, upper - eta)

    def sample(self, key: Key, noise: Array, eta: Array) -> Array:
        """Cells given their means, of their shape."""
        latent = eta + as_normals(uniforms(key, eta.shape))
        indices = (latent[..., None] > noise).sum(axis=-1)
        return jnp.asarray(self.levels, eta.dtype)[indices]

    def probabilities(self, noise: Array, eta: Array, variance: Array | float = 0.0) -> Array:
        """(..., L) probabilities of the levels where eta is normal about its mean."""
        scale = jnp.sqrt(1 + jnp.asarray(variance, eta.dtype))
        codes = jnp.arange(len(self.levels))
        lower, upper = kernels.bounds(noise, codes)
        mean, scale = eta[..., None], jnp.broadcast_to(scale, eta.shape)[..., None]
        return jnp.exp(log_mass((lower - mean) / scale, (upper - mean) / scale))

    def moments(
        self, noise: Array, eta: Array, variance: Array | float = 0.0
    ) -> tuple[Array, Array]:
        """Mean and variance of cells, each of the shape of eta."""
        shares = self.probabilities(noise, eta, variance)
        levels = jnp.asarray(self.levels, eta.dtype)
        mean = shares @ levels
        return mean, jnp.sum(shares * (levels - mean[..., None]) ** 2, axis=-1)


def _check_levels(values: object, levels: tuple[float, ...], name: str, remedy: str) -> None:
    array = np.asarray(values)
    known = np.asarray(levels).astype(array.dtype if array.dtype.kind == "f" else float)
    strange = ~np.isin(array, known)
    if strange.any():
        first = int(np.argmax(strange))
        raise ValueError(
            f"values: {array.ravel()[first].item()!r} at position {first} is no level of {name} "
            f"({int(strange.sum())} such values). {remedy}"
        )
