"""The variance of Gaussian cells as a sampler of real factors learns it."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.priors import hyper
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.types import Array, Key

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
