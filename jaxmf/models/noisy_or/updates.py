"""The kernels of the noisy-OR Indian buffet process: sweeps, moves of causes, hyperparameters.

Each is `(model, key, state, data) -> (state, info)` and leaves the posterior invariant.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxmf.data import Dense
from jaxmf.engine import Info
from jaxmf.likelihoods import noisy_or
from jaxmf.likelihoods.noisy_or import Parameters, Tally
from jaxmf.models.noisy_or.state import State, active_counts, parameters_of
from jaxmf.priors import hyper
from jaxmf.priors.features import IndianBuffet
from jaxmf.samplers.hyper import (
    update_bernoulli_probability,
    update_feature_prior,
    update_probability,
)
from jaxmf.samplers.noisy_or.moves import repeat_moves
from jaxmf.samplers.noisy_or.parallel import noisy_or_parallel_sweep
from jaxmf.samplers.noisy_or.sweep import noisy_or_sweep
from jaxmf.types import Array, Key


def update_features(
    model: Any, key: Key, state: State, data: Dense, *, sweep: str = "sequential"
) -> tuple[State, Info]:
    """Kernel: Z and Y by one sweep."""
    sweep_fn = noisy_or_parallel_sweep if sweep == "parallel" else noisy_or_sweep
    z, y, overflow = sweep_fn(
        key,
        state.z,
        state.y,
        data.values,
        data.observed,
        prior=model.prior(state),
        parameters=parameters_of(state),
    )
    return state._replace(z=z, y=y), Info(overflow={"features": overflow})


def move_features(
    model: Any, key: Key, state: State, data: Dense, *, num_moves: int
) -> tuple[State, Info]:
    """Kernel: splits, merges, births and deaths of causes; the finite model has none."""
    prior = model.prior(state)
    if num_moves == 0 or not isinstance(prior, IndianBuffet):
        return state, Info(overflow={"features": jnp.zeros((), bool)})
    z, y, overflow = repeat_moves(
        key,
        state.z,
        state.y,
        data.values,
        data.observed,
        prior=prior,
        parameters=parameters_of(state),
        num_moves=num_moves,
    )
    return state._replace(z=z, y=y), Info(overflow={"features": overflow})


def update_hyperparameters(model: Any, key: Key, state: State, data: Dense) -> tuple[State, Info]:
    """Kernel: alpha, concentration, cause probability, efficacy and leak given Z and Y."""
    if hyper.is_fixed(model.efficacy) and hyper.is_fixed(model.leak):
        return update_given_tally(model, key, state, None), Info(overflow={})
    counts = noisy_or.tally(state.z, state.y, data.values, data.observed)
    return update_given_tally(model, key, state, counts), Info(overflow={})


def update_given_tally(model: Any, key: Key, state: State, counts: Tally | None) -> State:
    """The hyperparameters given Z, Y and the tally, None where efficacy and leak are fixed."""
    alpha, concentration = update_feature_prior(
        jax.random.fold_in(key, 0),
        model.prior(state),
        alpha_prior=model.alpha,
        concentration_prior=model.concentration,
        counts=jnp.sum(state.z, axis=0, dtype=state.alpha.dtype),
        num_rows=state.z.shape[0],
    )
    probability = update_bernoulli_probability(
        jax.random.fold_in(key, 1),
        model.cause_probability,
        state.cause_probability,
        *active_counts(model.prior(state), state),
    )
    efficacy, leak = update_noise(
        model, jax.random.fold_in(key, 2), state.efficacy, state.leak, counts
    )
    return state._replace(
        alpha=alpha,
        concentration=concentration,
        cause_probability=probability,
        efficacy=efficacy,
        leak=leak,
    )


def update_noise(
    model: Any, key: Key, efficacy: Array, leak: Array, counts: Tally | None
) -> tuple[Array, Array]:
    """Efficacy and leak, one after the other, by slices of the likelihood given Z and Y."""
    if counts is None:
        return efficacy, leak

    def log_density(efficacy: Array, leak: Array) -> Array:
        # the cause probability has no part in the likelihood given Y
        return noisy_or.log_likelihood(counts, Parameters(leak, efficacy, leak))

    efficacy = update_probability(
        jax.random.fold_in(key, 0),
        model.efficacy,
        efficacy,
        lambda value: log_density(value, leak),
    )
    leak = update_probability(
        jax.random.fold_in(key, 1), model.leak, leak, lambda value: log_density(efficacy, value)
    )
    return efficacy, leak
