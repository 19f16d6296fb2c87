"""Where chains of binary matrix factorisation start, but for a draw from the prior."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxmf._kernels import tables
from jaxmf.data import Dense
from jaxmf.likelihoods.cells.bernoulli import Bernoulli
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.models.binary_mf import defaults, density
from jaxmf.models.binary_mf.binary_mf_spec import BinaryMFSpec
from jaxmf.models.binary_mf.hyperparameters import update_hyperparameters
from jaxmf.models.binary_mf.state import BinaryMFState
from jaxmf.models.binary_mf.updates import update_columns, update_rows, update_weights
from jaxmf.priors import hyper
from jaxmf.samplers.annealing import ANNEALED_START, annealed_factor, is_annealed
from jaxmf.samplers.bilinear.start import start_from_data
from jaxmf.types import Array, Key

_ROUNDS = 16  # after the first
_SWEEPS, _FIRST_SWEEPS = 50, 100
_REHEATED = 0.4  # where the factor of a round after the first starts: a sixth of the likelihood
_SCORED = 8  # the log joints of the last eighth of the sweeps of a round count


def from_data(model: BinaryMFSpec, key: Key, state: BinaryMFState, data: Dense) -> BinaryMFState:
    """The state with features that the data show on both sides; as it is where they show none.

    Logistic cells are taken about a half and by the slope there.
    """
    likelihood = model.likelihood_at(state)
    without = likelihood.mean(jnp.zeros((), data.values.dtype))
    slope = 4.0 if isinstance(likelihood, Bernoulli) else 1.0
    found = start_from_data(
        key,
        slope * (data.values - without),
        data.observed,
        fixed=(state.u[:, : model.num_fixed_rows()], state.v[:, : model.num_fixed_columns()]),
        slots=(state.u.shape[1], state.v.shape[1]),
    )
    shows_rows = jnp.any(found.u[:, model.num_fixed_rows() :])
    shows = shows_rows & jnp.any(found.v[:, model.num_fixed_columns() :])
    weights = found.weights
    new = state._replace(u=found.u, v=found.v)
    there = model.weight_exists(new)
    weights = jnp.where(there, weights, 0)
    new = new._replace(weights=weights)
    if isinstance(likelihood, Gaussian):
        # weights of features without rows or columns are 0 here, and say nothing about the others
        pairs = there & jnp.any(new.u, axis=0)[:, None] & jnp.any(new.v, axis=0)
        squares = jnp.where(pairs, (weights - jnp.asarray(model.weight_mean)) ** 2, 0)
        scales = {
            "noise_scale": found.noise_scale,
            "weight_scale": jnp.sqrt(jnp.sum(squares) / jnp.maximum(jnp.sum(pairs), 1)),
        }
        for name, guess in scales.items():
            prior: Any = defaults.hyperprior(model, name)
            if not hyper.is_fixed(prior):
                inside = (guess > 0) & prior.support(guess)
                new = new._replace(**{name: jnp.where(inside, guess, getattr(state, name))})
    started: BinaryMFState = tables.either(shows, new, state)
    return started


def search(
    model: BinaryMFSpec,
    key: Key,
    state: BinaryMFState,
    data: Dense,
    *,
    several: int,
    mend: Callable[[Key, BinaryMFState, Array], BinaryMFState],
) -> BinaryMFState:
    """The best state of an annealing of both sides and of rounds that anneal one, in alternation.

    Most chains of 0/1 cells get stuck with one side that encodes what a few features would say by
    features of a cluster of rows each, while the other side is about right. A round forgets most of
    one side and finds it anew, the other side held; its state is kept where the mean log joint of
    its last sweeps is above the best so far, and else the next round starts at the best again.
    No chain of the posterior: weights are drawn given the means of their Polya-Gamma variables, and
    a row that needs more slots than there are goes without, so that `capacity` bounds the features.

    Args:
      data: about the offset.
      mend: of the state after every sweep, given the progress of the round, () float.
    """

    def round_of(index: Array, carry: tuple[BinaryMFState, Array]) -> tuple[BinaryMFState, Array]:
        best, best_score = carry
        is_first = index == 0
        num_sweeps = jnp.where(is_first, _FIRST_SWEEPS, _SWEEPS)
        num_scored = num_sweeps // _SCORED
        start = jnp.where(is_first, ANNEALED_START, _REHEATED).astype(best_score.dtype)
        round_key = jax.random.fold_in(key, index)

        def sweep(step: Array, carry: tuple[BinaryMFState, Array]) -> tuple[BinaryMFState, Array]:
            state, score = carry
            progress = step.astype(best_score.dtype) / num_sweeps
            step_key = jax.random.fold_in(round_key, step)
            factor = annealed_factor(progress, start)
            held = (~is_first & (index % 2 == side) & is_annealed(progress) for side in range(2))
            state = _sweep(model, step_key, state, data, 1 / factor, tuple(held), several)
            state = mend(jax.random.fold_in(step_key, 4), state, progress)
            log_joint = density.log_joint(model, state, data)
            return state, score + jnp.where(
                step >= num_sweeps - num_scored, log_joint / num_scored, 0
            )

        nothing = jnp.zeros_like(best_score)
        found, score = jax.lax.fori_loop(0, num_sweeps, sweep, (best, nothing))
        is_better = score > best_score
        return tables.either(is_better, (found, score), carry)

    lowest = jnp.asarray(-jnp.inf, data.values.dtype)
    return jax.lax.fori_loop(0, 1 + _ROUNDS, round_of, (state, lowest))[0]


def _sweep(
    model: BinaryMFSpec,
    key: Key,
    state: BinaryMFState,
    data: Dense,
    noise_factor: Array,
    held: tuple[Array, ...],
    several: int,
) -> BinaryMFState:
    """W, U, V and hyperparameters once; `held` says of rows and of columns whether they stay."""
    keys = [jax.random.fold_in(key, index) for index in range(4)]
    state, _ = update_weights(model, keys[0], state, data, expected=True)
    for update, side_key, stays in zip((update_rows, update_columns), keys[1:3], held, strict=True):
        new, _ = update(model, side_key, state, data, several=several, noise_factor=noise_factor)
        state = tables.either(stays, state, new)
    return update_hyperparameters(model, keys[3], state, data, power=1.0)[0]
