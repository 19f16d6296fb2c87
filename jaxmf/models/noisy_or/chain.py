"""The Markov chain of the noisy-OR Indian buffet process: where it starts, its step, what it keeps.

The kernels that a step is made of are in `updates.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from jaxmf import slots
from jaxmf.data import Dense
from jaxmf.engine import Info, Limit, merge_overflow
from jaxmf.feature_models import draw_from_prior
from jaxmf.likelihoods import noisy_or
from jaxmf.models.noisy_or.noisy_or_spec import (
    HYPERPARAMETERS,
    NoisyOrSpec,
    NoisyOrState,
    parameters_of,
)
from jaxmf.models.noisy_or.updates import (
    move_features,
    propose,
    update_features,
    update_hyperparameters,
)
from jaxmf.priors import hyper
from jaxmf.samplers.feature_layout import capacity, num_features
from jaxmf.samplers.feature_rows import features_limit
from jaxmf.samplers.move_schedule import MoveSchedule, OptionalMove, make_moves, start_schedule
from jaxmf.samplers.noisy_or import informed
from jaxmf.types import Array, Draw, Key, PyTree

# CPU time of a proposal, in steps without any: .23 a split and .27 a birth on 250 x 20 cells
COST_OF_BIRTH = 0.25
COST_OF_SPLIT = 0.25
# Folded into the key of a step, each by one of its parts. A new part takes the next number: with
# another order every seed would give other draws.
_SWEEP, _MOVES, _HYPERPARAMETERS, _BIRTHS = range(4)

# The share of the warm-up in which a sweep of all rows at once begins few causes.
_SHARE_OF_START = 0.1


@jax.tree_util.register_static
@dataclass(frozen=True)
class NoisyOrPlan:
    """The structural options of the sampler, all of them static: equal ones compile nothing new."""

    num_slots: int
    sweep: str
    num_moves: int
    split_merge: int
    shared_births: int

    def start_schedule(self) -> MoveSchedule:
        """The schedule of the moves in `optional_moves`."""
        return start_schedule({"splits": self.split_merge, "births": self.shared_births})


def init(plan: NoisyOrPlan, model: NoisyOrSpec, key: Key, data: Dense) -> NoisyOrState:
    """No causes; hyperparameters at the means of their priors."""
    del key
    num_rows, num_columns = data.values.shape
    dtype = data.values.dtype
    return NoisyOrState(
        z=jnp.zeros((num_rows, plan.num_slots), bool),
        y=jnp.zeros((plan.num_slots, num_columns), bool),
        **{
            name: jnp.asarray(hyper.initial_value(getattr(model, name)), dtype)
            for name in HYPERPARAMETERS
        },
        schedule=plan.start_schedule(),
    )


def draw_start(
    plan: NoisyOrPlan, model: NoisyOrSpec, key: Key, data: Dense, sizes: dict[str, int] | None
) -> tuple[NoisyOrState, dict[str, Array]]:
    """A state from the prior: `AnnealedModel.init`."""
    state, overflow = draw_from_prior(plan, model, key, data, sizes)
    return state._replace(schedule=plan.start_schedule()), overflow


def step(
    plan: NoisyOrPlan,
    model: NoisyOrSpec,
    key: Key,
    state: NoisyOrState,
    data: Dense,
    progress: Array,
) -> tuple[NoisyOrState, Info]:
    """A sweep, moves of whole causes, hyperparameters."""
    starts = progress < _SHARE_OF_START if plan.sweep == "parallel" else None
    return powered_step(plan, model, key, state, data, None, progress=progress, starts=starts)


def powered_step(
    plan: NoisyOrPlan,
    model: NoisyOrSpec,
    key: Key,
    state: NoisyOrState,
    data: Dense,
    power: Array | None,
    *,
    progress: Array | float = 1.0,
    starts: Array | None = None,
) -> tuple[NoisyOrState, Info]:
    """The step with the likelihood of a cell given its active causes to a power, None for one.

    See `likelihoods.noisy_or.PoweredParameters` for what that makes of causes whose activity is
    summed out. Args: starts: () bool, as in `noisy_or_parallel_sweep`.
    """
    sweep_key, move_key = (jax.random.fold_in(key, part) for part in (_SWEEP, _MOVES))
    state, sweep = update_features(
        model, sweep_key, state, data, sweep=plan.sweep, power=power, starts=starts
    )
    state, moved = move_features(
        model, move_key, state, data, num_moves=plan.num_moves, power=power, starts=starts
    )
    state, optional = make_moves(state, optional_moves(plan, model, key, data, power), progress)
    hyper_key = jax.random.fold_in(key, _HYPERPARAMETERS)
    state, _ = update_hyperparameters(
        model, hyper_key, state, data, power=1.0 if power is None else power
    )
    overflow = merge_overflow(sweep.overflow, moved.overflow, optional.overflow)
    return state, Info(overflow, sweep.shortage)


def optional_moves(
    plan: NoisyOrPlan, model: NoisyOrSpec, key: Key, data: Dense, power: Array | None
) -> list[OptionalMove]:
    """The moves that a schedule may leave out; `key` is that of the step."""
    # the blind moves have folded in 0 to num_moves - 1
    split_key = jax.random.fold_in(jax.random.fold_in(key, _MOVES), plan.num_moves)
    birth_key = jax.random.fold_in(key, _BIRTHS)
    splits = partial(propose, model, informed.split_or_merge, split_key, data=data, power=power)
    births = partial(propose, model, informed.birth_or_death, birth_key, data=data, power=power)
    return [
        OptionalMove("splits", plan.split_merge, COST_OF_SPLIT, splits),
        OptionalMove("births", plan.shared_births, COST_OF_BIRTH, births),
    ]


def measure(state: NoisyOrState, data: Dense) -> Array:
    """log p(observed X | Z, Y), () float."""
    tally = noisy_or.tally(state.z, state.y, data.values, data.observed)
    return noisy_or.log_likelihood(tally, parameters_of(state))


def record(model: NoisyOrSpec, key: Key, state: NoisyOrState, data: Dense) -> Draw:
    """Arrays of a draw, by name."""
    del key
    return {
        "z": state.z,
        "y": state.y,
        **{name: getattr(state, name) for name in HYPERPARAMETERS},
        "num_features": num_features(state.z),
        "log_joint": model.log_joint(state, data),
    }


def grow(state: NoisyOrState, sizes: dict[str, int]) -> NoisyOrState:
    """The state with more slots for causes."""
    size = sizes["features"]
    return state._replace(z=slots.pad_axis(state.z, 1, size), y=slots.pad_axis(state.y, 0, size))


def shared(model: NoisyOrSpec) -> dict[str, Callable[..., PyTree]]:
    """Functions of a state that a chain and `jaxmf.smc` share."""
    return {"record": Partial(record, model), "grow": grow, "capacity": capacity, "limit": limit}


def row_arrays() -> tuple[str, ...]:
    """Arrays of data, state and draws whose rows the parallel sweep can spread over devices."""
    return ("values", "observed", "z")


def limit(data: Dense) -> dict[str, Limit]:
    """How many slots for causes there may be."""
    return {"features": features_limit(data.num_rows)}
