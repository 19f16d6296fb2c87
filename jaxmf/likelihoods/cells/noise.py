"""What a sampler of real factors knows of the noise of Gaussian, `Probit` and `Ordinal` cells.

Given the latent variable of each cell the last two are normal noise of variance one about the mean
eta, so that what samples factors under normal noise serves them as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jax.scipy.stats import norm

from jaxmf._kernels.special import as_normals, uniforms
from jaxmf.likelihoods import thresholds as kernels
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.likelihoods.cells.ordinal import Ordinal
from jaxmf.likelihoods.cells.probit import Probit
from jaxmf.priors import hyper
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.types import Array, Key

Targets = tuple[Array, Array]
"""Latent values (T,) and the precision () of the normal noise about their means."""


class ProbitNoise(NamedTuple):
    """There is nothing to learn about the noise; its state is an array without elements."""

    likelihood: Probit

    def at_noise(self, noise: Array) -> Probit:
        """The likelihood itself."""
        del noise
        return self.likelihood

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


class ThresholdNoise(NamedTuple):
    """Thresholds are learned, (L-1,) float: they are the state of the noise."""

    likelihood: Ordinal

    def at_noise(self, noise: Array) -> Ordinal:
        """The likelihood at thresholds (L-1,)."""
        return self.likelihood.at_values({"thresholds": noise})

    def start(self, values: Array) -> Array:
        """Thresholds by the shares of the levels, as if every mean were zero: (L-1,) float."""
        codes = self.likelihood.codes(jnp.ravel(values))
        # in whole numbers: adding one to a float of 2^24 changes nothing in 32 bits
        counts = jnp.zeros(len(self.likelihood.levels), jnp.int32).at[codes].add(1) + 0.5
        return ndtri(jnp.cumsum(counts)[:-1] / counts.sum())

    def sample_prior(self, key: Key) -> Array:
        """Thresholds from their prior, (L-1,) float."""
        drawn = as_normals(uniforms(key, (len(self.likelihood.levels) - 1,)))
        return jnp.sort(self.likelihood.threshold_scale * drawn)

    def log_prior(self, noise: Array) -> Array:
        """Log density of the thresholds, () float."""
        num_thresholds = len(self.likelihood.levels) - 1
        ordered = jnp.all(jnp.diff(noise) > 0)
        density = norm.logpdf(noise, 0, self.likelihood.threshold_scale).sum() + math.lgamma(
            num_thresholds + 1
        )
        return jnp.where(ordered, density, -jnp.inf)

    def augment(
        self, key: Key, noise: Array, values: Array, eta: Array, there: Array
    ) -> tuple[Targets, Array]:
        """Thresholds with the latent values summed out, then latent values; precision one.

        Args: noise (L-1,) thresholds; values (T,) levels.
        """
        threshold_key, latent_key = jax.random.split(key)
        codes = self.likelihood.codes(values)
        cells = kernels.in_pieces(eta, codes, there)
        scale = self.likelihood.threshold_scale
        noise, _ = kernels.draw_thresholds(threshold_key, noise, cells, scale=scale)
        latent = kernels.draw_latent(latent_key, noise, eta, codes)
        return (jnp.where(there, latent, eta), jnp.ones((), eta.dtype)), noise

    def latent(self, key: Key, noise: Array, values: Array, eta: Array) -> Array:
        """Latent values (T,) given cells, means and thresholds."""
        return kernels.draw_latent(key, noise, eta, self.likelihood.codes(values))


_ALIKE = 1e-8  # a variance, in units


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NormalNoise:
    """The prior of the noise of Gaussian cells; the noise in a state is the variance, () float."""

    noise_variance: Hyperparameter  # a number or a numpyro distribution

    def start(
        self, values: Array, unit: Array | float = 1.0, *, where: Array | None = None
    ) -> Array:
        """The spread of the values where the variance has a prior.

        Args: values (T,) float in units; unit: what a 1 of the values is in the data; where: (T,)
        bool, which of the values are cells; None for all.
        Returns () float, in units of the data; the square of `unit` where the values are alike: a
        variance far below it would leave vectors of precisions that cannot be factorised. The start
        of the prior where it has bounds and that is beyond them.
        """
        import numpyro.distributions as dist

        spread = jnp.var(values, where=where)
        guess = jnp.where(spread > _ALIKE, spread, 1) * unit**2
        # every positive guess is inside: the start of the prior need not be compiled
        if isinstance(self.noise_variance, dist.InverseGamma):
            return guess.astype(values.dtype)
        return hyper.initial_value_near(self.noise_variance, guess).astype(values.dtype)

    def sample_prior(self, key: Key) -> Array:
        """The noise from its prior."""
        return hyper.sample_prior(key, self.noise_variance)

    def log_prior(self, noise: Array) -> Array:
        """Log density of the noise, () float."""
        return hyper.log_prior(self.noise_variance, noise)

    def at_noise(self, noise: Array) -> Gaussian:
        """The likelihood at a variance, () float."""
        return Gaussian(jnp.sqrt(noise))
