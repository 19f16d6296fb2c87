"""The kernels of the linear-Gaussian Indian buffet process: sweeps, moves of columns, scales.

Each is `(model, key, state, data) -> (state, info)` and leaves the posterior invariant; `data` is
the data minus the offset, in units of columns.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from jaxmf._kernels import compensated
from jaxmf.data import Dense
from jaxmf.engine import Info, short_of
from jaxmf.likelihoods import gaussian
from jaxmf.likelihoods.spectrum import Spectrum, marginal_change
from jaxmf.models.linear_gaussian.linear_gaussian_spec import LinearGaussianSpec
from jaxmf.models.linear_gaussian.state import LinearGaussianState, complete
from jaxmf.priors import hyper
from jaxmf.samplers import column_noise, shared_births
from jaxmf.samplers.change_of_basis import change_of_basis
from jaxmf.samplers.collapsed_sweep import collapsed_sweep
from jaxmf.samplers.feature_layout import Scales
from jaxmf.samplers.hyper import update_feature_prior, update_scales_in_turn
from jaxmf.samplers.parallel_sweep import parallel_sweep
from jaxmf.samplers.split_merge import split_merge as split_or_merge
from jaxmf.samplers.split_merge_gaussian import GaussianColumns, linear_gaussian_columns
from jaxmf.types import Array, Key

_NUM_SCANS = 2


def update_hyperparameters(
    model: LinearGaussianSpec,
    key: Key,
    state: LinearGaussianState,
    data: Dense,
    *,
    power: Array | float = 1.0,
    scale_factor: Array | float = 1.0,
) -> tuple[LinearGaussianState, Info]:
    """Kernel: alpha, concentration and both scales given Z, with Y summed out.

    `power` is that of the likelihood of a cell given Y, below 1 on the way from the prior.
    """
    x = complete(state, data)
    gram, cross = gaussian.gram_statistics(state.z, x)
    start = model.first_slot()
    alpha, concentration = update_feature_prior(
        jax.random.fold_in(key, 0),
        model.prior(state),
        alpha_prior=model.alpha,
        concentration_prior=model.concentration,
        counts=jnp.diagonal(gram)[start:],
        num_rows=x.shape[0],
    )
    state = state._replace(alpha=alpha, concentration=concentration)
    if hyper.is_fixed(model.noise_scale) and hyper.is_fixed(model.feature_scale):
        return state, Info(overflow={})
    statistics = gaussian.spectrum(state.z, x, (gram, cross))
    noise, feature = update_scales(
        model,
        jax.random.fold_in(key, 1),
        statistics,
        state.noise_scale,
        state.feature_scale,
        share=scale_factor,
        power=power,
        num_observed=None if data.observed is None else jnp.sum(data.observed, dtype=x.dtype),
    )
    return state._replace(noise_scale=noise, feature_scale=feature), Info(overflow={})


def update_scales(
    model: LinearGaussianSpec,
    key: Key,
    statistics: Spectrum,
    noise: Array,
    feature: Array,
    *,
    share: Array | float = 1.0,
    power: Array | float = 1.0,
    num_observed: Array | None = None,
) -> tuple[Array, Array]:
    """The two scales, one after the other, by slices of the collapsed likelihood.

    `share` multiplies the feature scale that the likelihood sees, as in a filter while it tempers.
    `power` is that of the likelihood of a cell given Y: N(x; m, s^2)^b is N(x; m, s^2 / b) times a
    factor that depends on s, for each of the `num_observed` cells; None for all.
    """
    widening = 1 / jnp.sqrt(jnp.asarray(power, noise.dtype))
    num_cells = statistics.num_cells if num_observed is None else num_observed

    def change(before: Array, after: Array) -> Array:
        seen = jnp.stack([widening, jnp.asarray(share, noise.dtype)])
        found = marginal_change(statistics, tuple(before * seen), tuple(after * seen))
        return found + num_cells * (1 - power) * compensated.log_ratio(after[0], before[0])

    priors = (model.noise_scale, model.feature_scale)
    noise, feature = update_scales_in_turn(key, priors, (noise, feature), change)
    return noise, feature


def update_features(
    model: LinearGaussianSpec,
    key: Key,
    state: LinearGaussianState,
    data: Dense,
    *,
    sweep: str,
    scale_factor: Array | float = 1.0,
) -> tuple[LinearGaussianState, Info]:
    """Kernel: Z and the missing cells by one sweep over the rows.

    `scale_factor` multiplies the feature scale that the sweep sees; it leaves the posterior
    invariant only at 1.
    """
    sweep_fn = (
        parallel_sweep
        if sweep == "parallel"
        else partial(collapsed_sweep, whole_rows=sweep == "whole_rows")
    )
    z, x, shortage = sweep_fn(
        key,
        state.z,
        complete(state, data),
        data.observed,
        prior=model.prior(state),
        scales=Scales(noise=state.noise_scale, feature=state.feature_scale * scale_factor),
        num_fixed=model.first_slot(),
    )
    state = state._replace(z=z, x=None if state.x is None else x)
    return state, short_of("features", shortage)


def _likelihood_of_columns(
    state: LinearGaussianState, data: Dense, scale_factor: Array | float = 1.0
) -> GaussianColumns:
    return linear_gaussian_columns(
        complete(state, data),
        noise_scale=state.noise_scale,
        feature_scale=state.feature_scale * scale_factor,
    )


def update_by_split_merge(
    model: LinearGaussianSpec,
    key: Key,
    state: LinearGaussianState,
    data: Dense,
    *,
    num_proposals: int,
    scale_factor: Array | float = 1.0,
) -> tuple[LinearGaussianState, Info]:
    """Kernel: Z by proposals to split a feature or merge two, missing cells as they are."""
    z, overflow, _ = split_or_merge(
        key,
        state.z,
        prior=model.prior(state),
        likelihood=_likelihood_of_columns(state, data, scale_factor),
        num_proposals=num_proposals,
        num_scans=_NUM_SCANS,
        num_fixed=model.first_slot(),
    )
    return state._replace(z=z), Info(overflow={"features": overflow})


def update_by_shared_births(
    model: LinearGaussianSpec,
    key: Key,
    state: LinearGaussianState,
    data: Dense,
    *,
    num_proposals: Array | int,
) -> tuple[LinearGaussianState, Info]:
    """Kernel: Z by births and deaths of features of several rows, missing cells as they are."""
    prior = model.prior(state)
    likelihood = _likelihood_of_columns(state, data)

    def once(index: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        z, overflow = carry
        proposal = shared_births.propose(
            jax.random.fold_in(key, index),
            z,
            prior=prior,
            likelihood=likelihood,
            num_fixed=model.first_slot(),
        )
        return proposal.z, overflow | proposal.overflow

    z, overflow = jax.lax.fori_loop(0, num_proposals, once, (state.z, jnp.zeros((), bool)))
    return state._replace(z=z), Info(overflow={"features": overflow})


def update_by_change_of_basis(
    model: LinearGaussianSpec,
    key: Key,
    state: LinearGaussianState,
    data: Dense,
    *,
    num_draws: int,
    scale_factor: Array | float = 1.0,
) -> tuple[LinearGaussianState, Info]:
    """Kernel: two columns of Z replaced by another basis of their plane, `num_draws` times."""
    z = change_of_basis(
        key,
        state.z,
        prior=model.prior(state),
        likelihood=_likelihood_of_columns(state, data, scale_factor),
        num_draws=num_draws,
        num_fixed=model.first_slot(),
    )
    return state._replace(z=z), Info(overflow={})


def update_column_noise(
    model: LinearGaussianSpec, key: Key, state: LinearGaussianState, data: Dense
) -> tuple[LinearGaussianState, Info]:
    """Kernel: the noise of columns beside each other, Y summed out, and the common scale.

    Missing cells are as they are: in the units of the model, `data` and `state` as it has them.
    """
    assert state.column_noise is not None
    scaled, rest = model.at_noise(state)
    x = complete(rest, scaled.centred(data))
    gram, cross = gaussian.gram_statistics(state.z, x)
    ratio = (state.noise_scale / state.feature_scale) ** 2
    mean = gaussian.row_posterior(gram, cross, ratio).mean
    squares = gaussian.penalised_sums(state.z, x, mean, ratio) / state.noise_scale**2
    columns_key, level_key = jax.random.split(key)
    least = model.least_factor(state)
    noise = column_noise.update(
        columns_key,
        state.column_noise,
        squares=squares * state.column_noise.factors**2,
        counts=jnp.asarray(x.shape[0], x.dtype),
        least=least,
    )
    state = state._replace(column_noise=noise)
    if hyper.is_fixed(model.feature_scale):
        return state, Info(overflow={})

    def feature_scale_at(change: Array) -> Array:
        # their ratio stays, so that the feature scale has a Jacobian of its own
        return hyper.log_prior(model.feature_scale, feature * change) + jnp.log(change)

    start, feature = state.noise_scale, state.feature_scale
    noise, scale = column_noise.update_level(
        level_key,
        noise,
        start,
        model.noise_scale,
        least=least,
        log_density_fn=feature_scale_at,
    )
    feature = feature * (scale / start)
    state = state._replace(column_noise=noise, noise_scale=scale, feature_scale=feature)
    return state, Info(overflow={})
