"""The linear-Gaussian Indian buffet process on its way from prior to posterior.

N(x; Z Y, s^2)^b is N(x; Z Y, s^2 / b) times (2 pi s^2)^(-b/2) (2 pi s^2 / b)^(1/2) a cell. So the
sweeps see the noise scale s / sqrt(b), with Y summed out; the factor depends on s and b alone, and
counts where s is drawn, and in the evidence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from jaxmf.data import Dense
from jaxmf.engine import Info
from jaxmf.likelihoods import gaussian
from jaxmf.models.linear_gaussian import updates
from jaxmf.models.linear_gaussian.chain import SamplerPlan
from jaxmf.models.linear_gaussian.state import State
from jaxmf.types import Array, Key

if TYPE_CHECKING:
    from jaxmf.models.linear_gaussian.model import LinearGaussianIBP


class Measured(NamedTuple):
    """What the likelihood at any power needs of a state."""

    spectrum: gaussian.Spectrum
    noise_scale: Array
    feature_scale: Array


def step(
    plan: SamplerPlan,
    model: LinearGaussianIBP,
    key: Key,
    state: State,
    data: Dense,
    power: Array,
) -> tuple[State, Info]:
    """A sweep, a change of basis and hyperparameters, with the likelihood to a power."""
    data = model.centred(data)
    noise = state.noise_scale
    widened = state._replace(noise_scale=noise / jnp.sqrt(power))
    widened, info = updates.update_features(
        model, jax.random.fold_in(key, 0), widened, data, sweep=plan.sweep
    )
    widened, _ = updates.update_by_change_of_basis(
        model, jax.random.fold_in(key, 1), widened, data, num_draws=plan.change_basis
    )
    state = widened._replace(noise_scale=noise)
    state, _ = updates.update_hyperparameters(
        model, jax.random.fold_in(key, 2), state, data, power=power
    )
    return state, info


def measure(model: LinearGaussianIBP, state: State, data: Dense) -> Measured:
    """The statistics of `log_ratio`."""
    spectrum = gaussian.spectrum(state.z, model.centred(data).values)
    return Measured(spectrum, state.noise_scale, state.feature_scale)


def log_ratio(measured: Measured, before: Array, after: Array) -> Array:
    """log of p(X | Z, Y)^after, Y summed out, over the same with the power `before`."""
    spectrum, noise, feature = measured
    return gaussian.log_power_change(spectrum, noise, feature, before, after)
