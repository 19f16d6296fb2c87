"""The linear-Gaussian Indian buffet process on its way from prior to posterior.

N(x; Z Y, s^2)^b is N(x; Z Y, s^2 / b) times (2 pi s^2)^(-b/2) (2 pi s^2 / b)^(1/2) a cell. So the
sweeps see the noise scale s / sqrt(b), with Y summed out; the factor depends on s and b alone, and
counts where s is drawn, and in the evidence.

Missing cells are summed out: a state has weight by its observed cells, column by column. The sweeps
need a complete matrix, so each step first draws the missing cells at its power, exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf.data import Dense
from jaxmf.engine import Info
from jaxmf.feature_models import draw_from_prior
from jaxmf.likelihoods import gaussian
from jaxmf.likelihoods.spectrum import Spectrum, power_change
from jaxmf.models.linear_gaussian import chain, updates
from jaxmf.models.linear_gaussian.chain import LinearGaussianPlan
from jaxmf.models.linear_gaussian.linear_gaussian_spec import LinearGaussianSpec
from jaxmf.models.linear_gaussian.state import LinearGaussianState
from jaxmf.types import Array, Draw, Key


class LinearTerms(NamedTuple):
    """Statistics for the likelihood at any power; with missing cells one spectrum a column."""

    spectrum: Spectrum
    noise_scale: Array
    feature_scale: Array
    log_unit: Array | float


def init(
    plan: LinearGaussianPlan,
    model: LinearGaussianSpec,
    key: Key,
    data: Dense,
    sizes: dict[str, int] | None,
) -> tuple[LinearGaussianState, dict[str, Array]]:
    """A state from the prior; missing cells are drawn before they are read."""
    state, overflow = draw_from_prior(plan, model, key, data, sizes)
    is_complete = data.observed is None
    return state._replace(x=None if is_complete else model.centred(data).values), overflow


def step(
    plan: LinearGaussianPlan,
    model: LinearGaussianSpec,
    key: Key,
    state: LinearGaussianState,
    data: Dense,
    power: Array,
) -> tuple[LinearGaussianState, Info]:
    """A sweep, a change of basis and hyperparameters, with the likelihood to a power."""
    state = draw_missing(model, jax.random.fold_in(key, 3), state, data, power)
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


def measure(model: LinearGaussianSpec, state: LinearGaussianState, data: Dense) -> LinearTerms:
    """The statistics of `log_ratio`."""
    log_unit = model.log_unit(data)
    data = model.centred(data)
    observed = data.observed
    if observed is None:
        spectrum = gaussian.spectrum(state.z, data.values)
        return LinearTerms(spectrum, state.noise_scale, state.feature_scale, log_unit)

    def one_column(column: tuple[Array, Array]) -> Spectrum:
        x, seen = column
        spectrum = gaussian.spectrum(state.z & seen[:, None], jnp.where(seen, x, 0)[:, None])
        return spectrum._replace(num_cells=jnp.sum(seen, dtype=x.dtype))

    spectra = jax.lax.map(one_column, (data.values.T, observed.T))
    return LinearTerms(spectra, state.noise_scale, state.feature_scale, log_unit)


def log_ratio(measured: LinearTerms, before: Array, after: Array) -> Array:
    """log of p(X | Z, Y)^after, Y summed out, over the same with the power `before`."""
    spectrum, noise, feature, log_unit = measured

    def change(spectrum: Spectrum) -> Array:
        return power_change(spectrum, noise, feature, before, after)

    is_by_column = spectrum.num_cells.ndim > 0
    changes = jnp.sum(jax.vmap(change)(spectrum)) if is_by_column else change(spectrum)
    return changes - (after - before) * log_unit


def draw_missing(
    model: LinearGaussianSpec, key: Key, state: LinearGaussianState, data: Dense, power: Array
) -> LinearGaussianState:
    """Missing cells given Z and the observed cells, with the likelihood to a power."""
    if data.observed is None:
        return state
    data = model.centred(data)
    observed, dtype = data.observed, data.values.dtype
    assert observed is not None
    num_slots, num_columns = state.z.shape[1], data.num_columns
    features_key, noise_key = jax.random.split(key)
    # more slots leave the draws of the first ones as they are
    keys = jax.vmap(jax.random.fold_in, (None, 0))(features_key, jnp.arange(num_slots))
    normals = jax.vmap(lambda key: jax.random.normal(key, (num_columns,), dtype))(keys)
    noise = state.noise_scale / jnp.sqrt(power)
    z = state.z.astype(dtype)

    def fitted(column: tuple[Array, Array, Array]) -> Array:
        x, seen, normal = column
        seen_z = jnp.where(seen[:, None], z, 0)
        gram, cross = seen_z.T @ seen_z, (seen_z.T @ x)[:, None]
        return (
            z
            @ gaussian.draw_features(
                gram, cross, normal[:, None], noise, state.feature_scale
            ).ravel()
        )

    means = jax.lax.map(fitted, (data.values.T, observed.T, normals.T)).T
    cells = means + noise * jax.random.normal(noise_key, means.shape, dtype)
    return state._replace(x=jnp.where(observed, data.values, cells).astype(dtype))


def record(model: LinearGaussianSpec, key: Key, state: LinearGaussianState, data: Dense) -> Draw:
    """Arrays of a draw, of a state at power one; missing cells may be those of a lower power."""
    refresh_key, record_key = jax.random.split(key)
    state = draw_missing(model, refresh_key, state, data, jnp.ones(()))
    return chain.record(model, record_key, state, data)
