"""The Markov chain of binary matrix factorisation: the algorithm that its kernels make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from jaxmf import slots
from jaxmf.data import Dense
from jaxmf.engine import Info, Limit, merge_overflow
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.models.binary_mf import binary_mf_checks, defaults, density, normal_cells, starts
from jaxmf.models.binary_mf.binary_mf_spec import BinaryMFSpec
from jaxmf.models.binary_mf.hyperparameters import update_hyperparameters
from jaxmf.models.binary_mf.simulation import draw_state
from jaxmf.models.binary_mf.state import HYPERPARAMETERS, BinaryMFState, num_features, take_slots
from jaxmf.models.binary_mf.updates import (
    change_bases,
    split_or_merge,
    update_columns,
    update_rows,
    update_weights,
)
from jaxmf.priors import hyper
from jaxmf.priors.features import IndianBuffet
from jaxmf.samplers.annealing import (
    LeadingDirection,
    annealed_factor,
    hold_while_annealed,
    is_annealed,
    leading_direction,
    start_that_shows,
)
from jaxmf.samplers.feature_rows import features_limit, whole_rows_limit
from jaxmf.types import Array, Draw, Key

# Folded into the key of a step, each by one of its parts. A new part takes the next number: with
# another order every seed would give other draws.
_WEIGHTS, _ROWS, _COLUMNS, _HYPERPARAMETERS, _SPLITS, _KEPT_FEATURES, _BASES = range(7)


@jax.tree_util.register_static
@dataclass(frozen=True)
class BinaryMFPlan:
    """The structural options of the sampler, all of them static: equal ones compile nothing new."""

    row_slots: int
    column_slots: int
    collapsed: bool  # whether W is summed out
    whole_rows: bool  # whether rows are drawn from all their settings
    anneal: bool
    several: int  # proposals of several bits a row
    split_merge: int = 0  # proposals a side
    start: str = "prior"
    change_basis: int = 0  # pairs of features a side
    # `several` and `change_basis` of the warm-up of counts, whose sweeps sum W out: `normal_cells`
    several_normal: int = 0
    bases_normal: int = 0


def plan_features(
    model: BinaryMFSpec,
    *,
    weights: str | None,
    sweep: str,
    several: int | None,
    capacity: tuple[int | None, int | None],
    anneal: bool,
) -> BinaryMFPlan:
    """The plan of the sweeps over U and V, without further moves.

    Raises TypeError, ValueError: options that the model does not have.
    """
    chosen = binary_mf_checks.weights_option(model, weights)
    row_slots = model.num_slots(capacity[0], "rows")
    column_slots = model.num_slots(capacity[1], "columns")
    binary_mf_checks.sweep_option(model, sweep, chosen, max(row_slots, column_slots))
    return BinaryMFPlan(
        row_slots=row_slots,
        column_slots=column_slots,
        collapsed=chosen == "collapsed",
        whole_rows=sweep == "whole_rows",
        anneal=anneal,
        several=binary_mf_checks.several_option(several, chosen, sweep),
    )


def init(plan: BinaryMFPlan, model: BinaryMFSpec, key: Key, data: Dense) -> BinaryMFState:
    """U, V and W from the prior; scales that have priors start from the spread of the data."""
    data = model.centred(data)
    values, observed = data.values, data.observed
    dtype = values.dtype
    state = draw_state(
        model,
        jax.random.fold_in(key, 0),
        _starts(model, data),
        (values.shape[0], values.shape[1]),
        (plan.row_slots, plan.column_slots),
    )
    if plan.start == "data":
        state = starts.from_data(model, jax.random.fold_in(key, 2), state, data)
    if plan.start == "search":

        def mend(key: Key, state: BinaryMFState, progress: Array) -> BinaryMFState:
            state = _keep_features(model, key, state, progress, None)
            return _bounded(model, _move_to_front(model, state, progress), data, progress)

        search_key = jax.random.fold_in(key, 2)
        state = starts.search(model, search_key, state, data, several=plan.several, mend=mend)
    if not plan.collapsed:
        return state
    x = None
    if observed is not None:
        noise = jax.random.normal(jax.random.fold_in(key, 1), values.shape, dtype)
        seen, spread = _spread(data)
        centre = jnp.sum(values * seen, axis=0) / jnp.maximum(jnp.sum(seen, axis=0), 1)
        width = jnp.where(spread > 0, spread, state.noise_scale)
        x = jnp.where(observed, values, centre + width * noise)
    return state._replace(weights=None, x=x)


def _spread(data: Dense) -> tuple[Array, Array]:
    """Which cells are observed, (I, J) float, and their standard deviation, () float."""
    values, observed = data.values, data.observed
    dtype = values.dtype
    seen = jnp.ones(values.shape, dtype) if observed is None else observed.astype(dtype)
    mean = jnp.sum(values * seen) / jnp.sum(seen)
    return seen, jnp.sqrt(jnp.sum(seen * (values - mean) ** 2) / jnp.sum(seen))


def _starts(model: BinaryMFSpec, data: Dense) -> dict[str, Array]:
    """Where the hyperparameters start, () float each."""
    guesses = {}
    if isinstance(model.likelihood, Gaussian):
        # features that fit noise would fill the slots in the first steps
        _, spread = _spread(data)
        guesses = {"noise_scale": spread, "weight_scale": spread / 2}
    starts = {}
    for name in HYPERPARAMETERS:
        prior: Any = defaults.hyperprior(model, name)
        prior = 1.0 if prior is None else prior
        if name in guesses:
            # Equal cells have no spread: the prior knows their unit, and from far below its bulk a
            # slice would reach as far above it.
            value = hyper.initial_value_near(prior, guesses[name])
        else:
            value = hyper.initial_value(prior)
        starts[name] = jnp.asarray(value, data.values.dtype)
    return starts


def step(
    plan: BinaryMFPlan,
    model: BinaryMFSpec,
    key: Key,
    state: BinaryMFState,
    data: Dense,
    progress: Array,
) -> tuple[BinaryMFState, Info]:
    """W where it is kept, U, V, splits and merges, hyperparameters.

    While annealing lasts, scales see the power that U and V see only where cells are imputed: under
    the noise of the sweeps these would raise the noise scale. Of complete data scales are drawn at
    power one, which brought more chains to the mode (80 x 30: 8 of 8, and 4 of 8 at the power).
    """
    data = model.centred(data)
    if not plan.anneal:
        return tempered_step(plan, model, key, state, data, noise_factor=1.0)
    if normal_cells.is_used(model, data):
        return jax.lax.cond(
            is_annealed(progress),
            lambda state: _step_by_normal_cells(plan, model, key, state, data, progress),
            lambda state: tempered_step(plan, model, key, state, data, noise_factor=1.0),
            state,
        )
    direction = _direction(model, data, progress)

    def mend(state: BinaryMFState) -> BinaryMFState:
        state = _keep_features(
            model, jax.random.fold_in(key, _KEPT_FEATURES), state, progress, direction
        )
        return _move_to_front(model, state, progress)

    state, info = tempered_step(
        plan, model, key, state, data,
        noise_factor=_noise_factor(state, progress, direction),
        is_of_scales=state.x is not None,
        mend=mend,
    )  # fmt: skip
    return _bounded(model, state, data, progress), info


def _step_by_normal_cells(
    plan: BinaryMFPlan,
    model: BinaryMFSpec,
    key: Key,
    state: BinaryMFState,
    data: Dense,
    progress: Array,
) -> tuple[BinaryMFState, Info]:
    """The step of counts while annealing lasts; see `normal_cells`."""
    keys = [jax.random.fold_in(key, index) for index in range(5)]
    normal, moved = normal_cells.without_weights(model, state, data)
    direction = leading_direction(data.values - state.base_rate, data.observed)
    noise_factor = _noise_factor(moved, progress, direction)
    y = normal_cells.cells(keys[0], state, data, noise_factor=noise_factor)
    sweeps = replace(plan, several=plan.several_normal, change_basis=plan.bases_normal)
    moved, info = move_features(sweeps, normal, keys[1], moved, Dense(y), noise_factor=noise_factor)
    moved = _keep_features(model, keys[2], moved, progress, direction)
    state = normal_cells.with_weights(model, keys[3], state, moved, data, y)
    state = _move_to_front(model, state, progress)
    state, _ = update_hyperparameters(model, keys[4], state, data)
    return _bounded(model, state, data, progress), info


def tempered_step(
    plan: BinaryMFPlan,
    model: BinaryMFSpec,
    key: Key,
    state: BinaryMFState,
    data: Dense,
    *,
    noise_factor: Array | float,
    is_of_scales: bool = False,
    mend: Callable[[BinaryMFState], BinaryMFState] = lambda state: state,
) -> tuple[BinaryMFState, Info]:
    """Every kernel once, with the likelihood of observed cells to the power 1 / noise_factor^2.

    The posterior with that likelihood is left invariant where `is_of_scales` and nothing is mended.
    Imputed cells have the noise that the sweeps see, and no part in the noise scale.

    Args:
      data: about the offset.
      noise_factor: multiplies the noise scale in the sweeps over U and V.
      is_of_scales: whether W and the hyperparameters are drawn at that power too, and not at one as
        in an annealed start, see `step`.
      mend: what an annealed start changes of the state before its hyperparameters are drawn.
    """
    power = 1 / jnp.square(noise_factor) if is_of_scales else None
    state, _ = update_weights(model, jax.random.fold_in(key, _WEIGHTS), state, data, power=power)
    state, info = move_features(plan, model, key, state, data, noise_factor=noise_factor)
    hyper_key = jax.random.fold_in(key, _HYPERPARAMETERS)
    state, _ = update_hyperparameters(
        model, hyper_key, mend(state), data, power=1.0 if power is None else power
    )
    return state, info


def move_features(
    plan: BinaryMFPlan,
    model: BinaryMFSpec,
    key: Key,
    state: BinaryMFState,
    data: Dense,
    *,
    noise_factor: Array | float,
) -> tuple[BinaryMFState, Info]:
    """U, V, splits and merges, with the likelihood to the power 1 / noise_factor^2."""
    options: dict[str, Any] = {
        "several": plan.several,
        "whole_rows": plan.whole_rows,
        "noise_factor": noise_factor,
    }
    row_key, column_key = jax.random.fold_in(key, _ROWS), jax.random.fold_in(key, _COLUMNS)
    state, rows = update_rows(model, row_key, state, data, **options)
    state, columns = update_columns(model, column_key, state, data, **options)
    overflow = merge_overflow(rows.overflow, columns.overflow)
    shortage = rows.shortage | columns.shortage
    if plan.split_merge:
        state, info = split_or_merge(
            model,
            jax.random.fold_in(key, _SPLITS),
            state,
            data,
            num_proposals=plan.split_merge,
            noise_factor=noise_factor,
        )
        overflow = merge_overflow(overflow, info.overflow)
    if plan.change_basis:
        state = change_bases(
            model,
            jax.random.fold_in(key, _BASES),
            state,
            data,
            num_draws=plan.change_basis,
            noise_factor=noise_factor,
        )
    return state, Info(overflow, shortage)


def _direction(model: BinaryMFSpec, data: Dense, progress: Array) -> LeadingDirection | None:
    """The first singular vectors of Gaussian data, looked for while annealing lasts only."""
    if not isinstance(model.likelihood, Gaussian):
        return None

    def nothing(values: Array, observed: Array | None) -> LeadingDirection:
        shape = jax.eval_shape(leading_direction, values, observed)
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)

    return jax.lax.cond(
        is_annealed(progress), leading_direction, nothing, data.values, data.observed
    )


def _noise_factor(
    state: BinaryMFState, progress: Array, direction: LeadingDirection | None
) -> Array:
    """Number that multiplies the noise scale during the warm-up."""
    if direction is None:
        return 1 / annealed_factor(progress)
    return 1 / annealed_factor(progress, start_that_shows(direction, state.noise_scale))


def _keep_features(
    model: BinaryMFSpec,
    key: Key,
    state: BinaryMFState,
    progress: Array,
    direction: LeadingDirection | None,
) -> BinaryMFState:
    """While annealing lasts, a side without features gets one.

    That of the rows on one side of the first singular vector, or of half of the rows where cells
    are not Gaussian. Without features of columns those of rows say nothing about the data, and the
    other way round: under strong noise a chain loses both, and one side alone does not come back.
    Weights, where they are kept, are drawn anew at the beginning of the next step.
    """

    def kept(side: int, bits: Array, num_fixed: int, vector: Array | None) -> Array:
        side_key = jax.random.fold_in(key, side)
        if vector is None:
            first = jax.random.bernoulli(side_key, 0.5, bits.shape[:1])
        else:
            first = (vector > 0) ^ jax.random.bernoulli(side_key)
        is_empty = ~jnp.any(bits[:, num_fixed:]) & is_annealed(progress)
        slot = jnp.arange(bits.shape[1]) == num_fixed
        return bits | (is_empty & first[:, None] & slot)

    rows, columns = (None, None) if direction is None else direction[:2]
    return state._replace(
        u=kept(0, state.u, model.num_fixed_rows(), rows),
        v=kept(1, state.v, model.num_fixed_columns(), columns),
    )


def _bounded(
    model: BinaryMFSpec, state: BinaryMFState, data: Dense, progress: Array
) -> BinaryMFState:
    """While annealing lasts, weights no smaller and features no more frequent than at the start.

    A weak likelihood leaves numbers of features to their prior. A scale of weights and an alpha
    that followed them would let them run away: many features of small weights on one side where the
    other has a single one.
    """
    starts = _starts(model, data)
    bounds = {"weight_scale": jnp.maximum, "row_alpha": jnp.minimum, "column_alpha": jnp.minimum}
    values = {name: getattr(state, name) for name in bounds}
    return state._replace(
        **{
            name: hold_while_annealed(progress, bound(starts[name], values[name]), values[name])
            for name, bound in bounds.items()
        }
    )


def _move_to_front(model: BinaryMFSpec, state: BinaryMFState, progress: Array) -> BinaryMFState:
    """While annealing lasts, the features move to the first slots, in the order they have.

    An annealed chain may pass through more features than it keeps, and draws are cut off behind the
    last slot in use. Slots of a process carry no meaning: the matrices are the same up to labels.
    """
    for side, prior, exists in (
        ("row", model.row_prior, model.row_exists(state)),
        ("column", model.column_prior, model.column_exists(state)),
    ):
        if isinstance(prior, IndianBuffet):
            state = take_slots(state, side, slots.occupied_first(exists | ~is_annealed(progress)))
    return state


def record(model: BinaryMFSpec, key: Key, state: BinaryMFState, data: Dense) -> Draw:
    """Arrays of a draw; U under the name `z`, as posteriors know row features."""
    del key
    draw = {
        name: getattr(state, name)
        for name in HYPERPARAMETERS
        if defaults.hyperprior(model, name) is not None
    }
    draw |= {
        "z": state.u,
        "v": state.v,
        "num_features": num_features(state.u, model.num_fixed_rows()),
        "num_column_features": num_features(state.v, model.num_fixed_columns()),
        "log_joint": density.log_joint(model, state, data),
    }
    return draw if state.weights is None else draw | {"weights": state.weights}


def row_arrays() -> tuple[str, ...]:
    """Names of arrays (of data, state and draws) that are spread by rows; V by its own rows."""
    return ("values", "observed", "u", "v", "z")


def limit(plan: BinaryMFPlan, data: Dense) -> dict[str, Limit]:
    """How many slots either side may have."""
    if plan.whole_rows:
        whole = whole_rows_limit(remedy=binary_mf_checks.WHOLE_ROWS_REMEDY)
        return {"row_features": whole, "column_features": whole}
    return {
        "row_features": features_limit(data.num_rows),
        "column_features": features_limit(data.num_columns),
    }
