"""The kernels of the noisy-OR Indian buffet process: sweeps, moves of causes, hyperparameters.

Each is `(model, key, state, data) -> (state, info)` and leaves the posterior invariant.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from jaxmf.data import Dense
from jaxmf.engine import Info, short_of
from jaxmf.likelihoods import noisy_or
from jaxmf.likelihoods.noisy_or import AnyParameters, NoisyOrParameters, PoweredParameters, Tally
from jaxmf.models.noisy_or.noisy_or_spec import (
    NoisyOrSpec,
    NoisyOrState,
    active_counts,
    parameters_of,
)
from jaxmf.priors import hyper
from jaxmf.priors.features import IndianBuffet
from jaxmf.samplers.hyper import (
    update_bernoulli_probability,
    update_feature_prior,
    update_probability,
)
from jaxmf.samplers.noisy_or import moves
from jaxmf.samplers.noisy_or.new_causes import most_new_causes
from jaxmf.samplers.noisy_or.parallel import noisy_or_parallel_sweep
from jaxmf.samplers.noisy_or.sweep import noisy_or_sweep
from jaxmf.samplers.noisy_or.target import NoisyOrTarget
from jaxmf.types import Array, Key, PyTree


def update_features(
    model: NoisyOrSpec,
    key: Key,
    state: NoisyOrState,
    data: Dense,
    *,
    sweep: str = "sequential",
    power: Array | None = None,
    starts: Array | None = None,
) -> tuple[NoisyOrState, Info]:
    """Kernel: Z and Y by one sweep, with the likelihood to a power if there is one.

    Args: starts: of `noisy_or_parallel_sweep`, for that alone.
    """
    sweep_fn: Callable[..., tuple[Array, Array, Array]]
    sweep_fn = partial(noisy_or_parallel_sweep, starts=starts)
    if sweep != "parallel":
        sweep_fn = partial(noisy_or_sweep, bits_together=sweep == "particle_gibbs")
    z, y, shortage = sweep_fn(key, state.z, state.y, target_of(model, state, data, power))
    return state._replace(z=z, y=y), short_of("features", shortage)


def target_of(
    model: NoisyOrSpec, state: NoisyOrState, data: Dense, power: Array | None
) -> NoisyOrTarget:
    """Target of the kernels of Z and Y, with the likelihood to a power if there is one."""
    parameters = powered(state, power)
    return NoisyOrTarget(data.values, data.observed, model.prior(state), parameters)


def powered(state: NoisyOrState, power: Array | None) -> AnyParameters:
    """The parameters of the likelihood, or of it to a power."""
    parameters = parameters_of(state)
    if power is None:
        return parameters
    return PoweredParameters(parameters, power, most_unseen=most_new_causes(state.z.shape[1]))


def move_features(
    model: NoisyOrSpec,
    key: Key,
    state: NoisyOrState,
    data: Dense,
    *,
    num_moves: int,
    power: Array | None = None,
    starts: Array | None = None,
) -> tuple[NoisyOrState, Info]:
    """Kernel: blind splits, merges, births and deaths of causes, which the finite model has not.

    Args: starts: as in `update_features`; there are none then, as all slots may be taken.
    """
    target, z, y = target_of(model, state, data, power), state.z, state.y
    overflow = jnp.zeros((), bool)
    if num_moves and isinstance(target.prior, IndianBuffet):
        kernels = (moves.split_or_merge, moves.birth_or_death)
        repeats = num_moves if starts is None else jnp.where(starts, 0, num_moves)
        z, y, overflow = moves.repeat_moves(key, z, y, target, num_moves=repeats, kernels=kernels)
    return state._replace(z=z, y=y), Info(overflow={"features": overflow})


def propose(
    model: NoisyOrSpec,
    kernel: Callable[..., tuple[Array, Array, Array]],
    key: Key,
    state: NoisyOrState,
    num_proposals: Array | int,
    *,
    data: Dense,
    power: Array | None = None,
) -> tuple[NoisyOrState, Info, Array]:
    """Some proposals of a kernel of `informed.py`, and () int32, how many were accepted."""
    target = target_of(model, state, data, power)

    def once(index: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        z, y, overflow, num_accepted = carry
        proposal_key = jax.random.fold_in(jax.random.fold_in(key, index), 0)
        new, y, more = kernel(proposal_key, z, y, target)
        return new, y, overflow | more, num_accepted + jnp.any(new != z)

    start = (state.z, state.y, jnp.zeros((), bool), jnp.zeros((), jnp.int32))
    z, y, overflow, num_accepted = jax.lax.fori_loop(0, num_proposals, once, start)
    return state._replace(z=z, y=y), Info(overflow={"features": overflow}), num_accepted


def update_hyperparameters(
    model: NoisyOrSpec, key: Key, state: NoisyOrState, data: Dense, *, power: Array | float = 1.0
) -> tuple[NoisyOrState, Info]:
    """Kernel: alpha, concentration, cause probability, efficacy and leak given Z and Y."""
    tally = None
    if needs_tally(model):
        tally = noisy_or.tally(state.z, state.y, data.values, data.observed)
        # the log likelihood is linear in the numbers of cells
        tally = Tally(power * tally.ones, power * tally.zeros)
    counts = jnp.sum(state.z, axis=0, dtype=state.alpha.dtype)
    state = update_at_counts(
        model, key, state, counts=counts, tally=tally, num_rows=state.z.shape[0]
    )
    return state, Info(overflow={})


def needs_tally(model: NoisyOrSpec) -> bool:
    """Whether efficacy or leak have priors."""
    return not (hyper.is_fixed(model.efficacy) and hyper.is_fixed(model.leak))


def update_at_counts(
    model: NoisyOrSpec,
    key: Key,
    state: PyTree,
    *,
    counts: Array,
    tally: Tally | None,
    num_rows: Array | int,
) -> PyTree:
    """The hyperparameters given what Z, Y and X say of them, in a chain and in a filter alike.

    Args:
      state: of a chain, or a particle: y (K, D) bool, and the hyperparameters by their names.
      counts: (K,) float, ones of each column of Z.
      tally: of the observed cells; None where efficacy and leak are fixed.
    Returns:
      The state with other hyperparameters.
    """
    prior = model.prior(state)
    alpha, concentration = update_feature_prior(
        jax.random.fold_in(key, 0),
        prior,
        alpha_prior=model.alpha,
        concentration_prior=model.concentration,
        counts=counts,
        num_rows=num_rows,
    )
    probability = update_bernoulli_probability(
        jax.random.fold_in(key, 1),
        model.cause_probability,
        state.cause_probability,
        *active_counts(prior, counts, state.y),
    )
    efficacy, leak = _update_noise(model, jax.random.fold_in(key, 2), parameters_of(state), tally)
    return state._replace(
        alpha=alpha,
        concentration=concentration,
        cause_probability=probability,
        efficacy=efficacy,
        leak=leak,
    )


def _update_noise(
    model: NoisyOrSpec, key: Key, parameters: NoisyOrParameters, tally: Tally | None
) -> tuple[Array, Array]:
    """Efficacy and leak, one after the other, by slices of the likelihood given Z and Y."""
    if tally is None:
        return parameters.efficacy, parameters.leak

    def update(index: int, name: str, parameters: NoisyOrParameters) -> NoisyOrParameters:
        value = update_probability(
            jax.random.fold_in(key, index),
            getattr(model, name),
            getattr(parameters, name),
            lambda value: noisy_or.log_likelihood(tally, parameters._replace(**{name: value})),
        )
        return parameters._replace(**{name: value})

    parameters = update(1, "leak", update(0, "efficacy", parameters))
    return parameters.efficacy, parameters.leak
