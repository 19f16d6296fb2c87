"""The noisy-OR Indian buffet process on its way from prior to posterior.

The likelihood of a cell given its active causes, P(x; eta), is raised to a power; see
`likelihoods.noisy_or.PoweredParameters` for what that makes of causes whose activity is summed out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import jax

from jaxmf.data import Dense
from jaxmf.engine import Info, merge_overflow
from jaxmf.likelihoods import noisy_or
from jaxmf.models.noisy_or import updates
from jaxmf.models.noisy_or.state import HYPERPARAMETERS, State, parameters_of
from jaxmf.types import Array, Key

if TYPE_CHECKING:
    from jaxmf.models.noisy_or.model import NoisyOrIBP


@partial(
    jax.tree_util.register_dataclass,
    data_fields=[],
    meta_fields=["num_slots", "sweep", "num_moves"],
)
@dataclass(frozen=True)
class AnnealingPlan:
    """The structural options, all of them static."""

    num_slots: int
    sweep: str
    num_moves: int


def init(
    plan: AnnealingPlan, model: NoisyOrIBP, key: Key, data: Dense, sizes: dict[str, int] | None
) -> tuple[State, dict[str, Array]]:
    """A state from the prior."""
    num_slots = plan.num_slots if sizes is None else sizes["features"]
    z_key, hyper_key = jax.random.split(key)
    num_rows, num_columns = data.values.shape
    state, overflow = model.simulate_state(z_key, hyper_key, num_rows, num_columns, num_slots)
    dtype = data.values.dtype
    hyperparameters = {name: getattr(state, name).astype(dtype) for name in HYPERPARAMETERS}
    return state._replace(**hyperparameters), {"features": overflow}


def step(
    plan: AnnealingPlan, model: NoisyOrIBP, key: Key, state: State, data: Dense, power: Array
) -> tuple[State, Info]:
    """A sweep, moves of whole causes and hyperparameters, with the likelihood to a power."""
    state, sweep = updates.update_features(
        model, jax.random.fold_in(key, 0), state, data, sweep=plan.sweep, power=power
    )
    state, moves = updates.move_features(
        model, jax.random.fold_in(key, 1), state, data, num_moves=plan.num_moves, power=power
    )
    state, _ = updates.update_hyperparameters(
        model, jax.random.fold_in(key, 2), state, data, power=power
    )
    return state, Info(overflow=merge_overflow(sweep.overflow, moves.overflow))


def measure(state: State, data: Dense) -> Array:
    """log p(observed X | Z, Y), () float."""
    tally = noisy_or.tally(state.z, state.y, data.values, data.observed)
    return noisy_or.log_likelihood(tally, parameters_of(state))
