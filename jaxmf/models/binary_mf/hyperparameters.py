"""The kernel of the hyperparameters of binary matrix factorisation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from jaxmf.data import Dense
from jaxmf.engine import Info
from jaxmf.likelihoods.cells.poisson import Poisson
from jaxmf.models.binary_mf.binary_mf_spec import BinaryMFSpec
from jaxmf.models.binary_mf.defaults import hyperprior
from jaxmf.models.binary_mf.density import scale_density
from jaxmf.models.binary_mf.state import BinaryMFState, entries
from jaxmf.priors import hyper
from jaxmf.samplers.hyper import (
    update_feature_prior,
    update_rate,
    update_scale,
    update_scales_in_turn,
)
from jaxmf.types import Array, Key


def update_hyperparameters(
    model: BinaryMFSpec, key: Key, state: BinaryMFState, data: Dense, *, power: Array | float = 1.0
) -> tuple[BinaryMFState, Info]:
    """Kernel: alpha and concentration of both sides, hyperparameters of cells and weights.

    `power` is that of the likelihood of a cell given W, below 1 on the way from the prior.
    """
    state = _update_row_prior(model, jax.random.fold_in(key, 0), state)
    turned = _update_row_prior(model.transpose(), jax.random.fold_in(key, 1), state.transpose())
    update = _update_rates if isinstance(model.likelihood, Poisson) else _update_scales
    state = update(model, jax.random.fold_in(key, 2), turned.transpose(), data, power)
    return state, Info(overflow={})


def _update_row_prior(model: BinaryMFSpec, key: Key, state: BinaryMFState) -> BinaryMFState:
    alpha, concentration = update_feature_prior(
        key,
        model.row_prior_at(state),
        alpha_prior=model.row_alpha,
        concentration_prior=model.row_concentration,
        counts=jnp.sum(state.u[:, model.num_fixed_rows() :], axis=0, dtype=jnp.int32),
        num_rows=state.u.shape[0],
    )
    dtype = state.row_alpha.dtype
    return state._replace(
        row_alpha=alpha.astype(dtype), row_concentration=concentration.astype(dtype)
    )


def _update_scales(
    model: BinaryMFSpec, key: Key, state: BinaryMFState, data: Dense, power: Array | float
) -> BinaryMFState:
    """The two scales by slices, one after the other."""
    priors = [hyperprior(model, name) for name in ("noise_scale", "weight_scale")]
    noise_prior, weight_prior = (1.0 if prior is None else prior for prior in priors)
    if hyper.is_fixed(noise_prior) and hyper.is_fixed(weight_prior):
        return state
    log_density = scale_density(model, state, data, power=power)
    noise, weight = update_scales_in_turn(
        key,
        (noise_prior, weight_prior),
        (state.noise_scale, state.weight_scale),
        lambda before, after: log_density(*after),
    )
    return state._replace(noise_scale=noise, weight_scale=weight)


def _update_rates(
    model: BinaryMFSpec, key: Key, state: BinaryMFState, data: Dense, power: Array | float
) -> BinaryMFState:
    """For Poisson cells: rate and shape of the Gamma prior of W given W, and the base rate.

    weight_rate | W ~ Gamma(a + n weight_shape, rate b + sum W) under a Gamma(a, b) prior, n weights
    being there; the other two by slices. The base rate sees the counts, not their split among base
    rate and features: given the split it would be conjugate, but it moves further without.
    """
    assert state.weights is not None
    there = model.weight_exists(state)
    dtype = state.weights.dtype
    num_weights = jnp.sum(there, dtype=dtype)
    sum_of_logs = jnp.sum(jnp.log(jnp.where(there, state.weights, 1)))
    rate = update_rate(
        jax.random.fold_in(key, 0),
        hyperprior(model, "weight_rate"),
        state.weight_rate,
        power=num_weights * state.weight_shape,
        total=jnp.sum(jnp.where(there, state.weights, 0)),
    )
    shape = update_scale(
        jax.random.fold_in(key, 1),
        model.weight_shape,
        state.weight_shape,
        lambda value: num_weights * (value * jnp.log(rate) - gammaln(value)) + value * sum_of_logs,
    )
    state = state._replace(weight_rate=rate, weight_shape=shape)
    base_rate_prior = hyperprior(model, "base_rate")
    if hyper.is_fixed(base_rate_prior):
        return state
    eta = entries(state)
    seen = jnp.ones(eta.shape, bool) if data.observed is None else data.observed

    def log_density(value: Array) -> Array:
        likelihood = model.likelihood_at(state._replace(base_rate=value))
        return power * jnp.sum(jnp.where(seen, likelihood.log_kernel(data.values, eta), 0))

    base_rate = update_scale(
        jax.random.fold_in(key, 2), base_rate_prior, state.base_rate, log_density
    )
    return state._replace(base_rate=base_rate)
