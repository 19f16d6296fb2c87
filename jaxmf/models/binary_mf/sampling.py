"""The Markov chain of binary matrix factorisation: kernels, and the algorithm they make.

Every kernel is (model, key, state, data) -> (state, Info) and leaves the posterior invariant by
itself. The columns are drawn by the functions of the rows, everything transposed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from jaxmf import slots
from jaxmf.data import Dense
from jaxmf.engine import Info
from jaxmf.likelihoods import bilinear
from jaxmf.priors import hyper
from jaxmf.priors.features import IndianBuffet
from jaxmf.samplers import split_merge
from jaxmf.samplers.annealing import annealed_factor, hold_while_annealed
from jaxmf.samplers.bilinear import weights as weight_moves
from jaxmf.samplers.bilinear.collapsed import collapsed_bilinear_sweep
from jaxmf.samplers.bilinear.explicit import Side, explicit_sweep
from jaxmf.samplers.hyper import update_feature_prior, update_scale
from jaxmf.samplers.split_merge_gaussian import bilinear_columns
from jaxmf.types import Array, Key

if TYPE_CHECKING:
    from jaxmf.models.binary_mf.model import BinaryMF, State

_NUM_SCANS = 2


@partial(
    jax.tree_util.register_dataclass,
    data_fields=[],
    meta_fields=["row_slots", "column_slots", "collapsed", "anneal", "several", "split_merge"],
)
@dataclass(frozen=True)
class SamplerPlan:
    """The structural options of the sampler, all of them static: equal ones compile nothing new."""

    row_slots: int
    column_slots: int
    collapsed: bool
    anneal: bool
    several: bool
    split_merge: int = 0


def update_rows(
    model: BinaryMF,
    key: Key,
    state: State,
    data: Dense,
    *,
    several: bool = True,
    scale_factor: Array | float = 1.0,
) -> tuple[State, Info]:
    """Kernel: U, with W summed out (and missing cells) or given W (and weights of own features).

    `scale_factor` multiplies the weight scale that a collapsed sweep sees; it leaves the posterior
    invariant only at 1.
    """
    if state.weights is None:
        u, x, overflow = collapsed_bilinear_sweep(
            key,
            state.u,
            state.v,
            _complete(state, data),
            data.observed,
            prior=model.row_law(state),
            noise_scale=state.noise_scale,
            weight_scale=state.weight_scale * scale_factor,
            weight_mean=model.weight_mean,
            num_fixed=model.num_fixed_rows(),
            num_proposals=int(several),
        )
        state = state._replace(u=u, x=None if state.x is None else x)
    else:
        u, weights, overflow = explicit_sweep(
            key,
            Side(state.u, state.v, state.weights, data.values, data.observed),
            prior=model.row_law(state),
            cells=model.cells(state.noise_scale),
            weight_prior=model.weight_prior(state.weight_scale),
            column_exists=model.column_exists(state),
            num_fixed=model.num_fixed_rows(),
            several=several,
            grows=isinstance(model.row_prior, IndianBuffet),
        )
        state = state._replace(u=u, weights=weights)
    return state, Info(overflow={"row_features": overflow})


def update_columns(
    model: BinaryMF,
    key: Key,
    state: State,
    data: Dense,
    *,
    several: bool = True,
    scale_factor: Array | float = 1.0,
) -> tuple[State, Info]:
    """Kernel: V, as `update_rows`."""
    if state.weights is None:
        v, x, overflow = collapsed_bilinear_sweep(
            key,
            state.v,
            state.u,
            _complete(state, data).T,
            None if data.observed is None else data.observed.T,
            prior=model.column_law(state),
            noise_scale=state.noise_scale,
            weight_scale=state.weight_scale * scale_factor,
            weight_mean=model.weight_mean,
            num_fixed=model.num_fixed_columns(),
            num_proposals=int(several),
        )
        state = state._replace(v=v, x=None if state.x is None else x.T)
    else:
        v, weights, overflow = explicit_sweep(
            key,
            Side(state.u, state.v, state.weights, data.values, data.observed).transpose(),
            prior=model.column_law(state),
            cells=model.cells(state.noise_scale),
            weight_prior=model.weight_prior(state.weight_scale),
            column_exists=model.row_exists(state),
            num_fixed=model.num_fixed_columns(),
            several=several,
            grows=isinstance(model.column_prior, IndianBuffet),
        )
        state = state._replace(v=v, weights=weights.T)
    return state, Info(overflow={"column_features": overflow})


def split_or_merge(
    model: BinaryMF, key: Key, state: State, data: Dense, *, num_proposals: int
) -> tuple[State, Info]:
    """Kernel: some proposals to split or merge features of rows, then of columns, W summed out."""
    x = _complete(state, data)
    settings: dict[str, Any] = {
        "noise_scale": state.noise_scale,
        "weight_scale": state.weight_scale,
        "weight_mean": model.weight_mean,
    }
    u, rows_overflow, _ = split_merge.split_merge(
        jax.random.fold_in(key, 0),
        state.u,
        prior=model.row_law(state),
        likelihood=bilinear_columns(state.v, x, num_slots=state.u.shape[1], **settings),
        num_proposals=num_proposals,
        num_scans=_NUM_SCANS,
        num_fixed=model.num_fixed_rows(),
    )
    v, columns_overflow, _ = split_merge.split_merge(
        jax.random.fold_in(key, 1),
        state.v,
        prior=model.column_law(state),
        likelihood=bilinear_columns(u, x.T, num_slots=state.v.shape[1], **settings),
        num_proposals=num_proposals,
        num_scans=_NUM_SCANS,
        num_fixed=model.num_fixed_columns(),
    )
    overflow = {"row_features": rows_overflow, "column_features": columns_overflow}
    return state._replace(u=u, v=v), Info(overflow=overflow)


def update_weights(model: BinaryMF, key: Key, state: State, data: Dense) -> tuple[State, Info]:
    """Kernel: W given U and V, where it is kept."""
    if state.weights is None:
        return state, Info(overflow={})
    finite = not any(isinstance(p, IndianBuffet) for p in (model.row_prior, model.column_prior))
    weights = weight_moves.draw_weights(
        key,
        state.u,
        state.v,
        state.weights,
        data.values,
        data.observed,
        cells=model.cells(state.noise_scale),
        weight_prior=model.weight_prior(state.weight_scale),
        row_exists=model.row_exists(state),
        column_exists=model.column_exists(state),
        jointly=finite and state.weights.size <= weight_moves.MOST_PAIRS,
    )
    return state._replace(weights=weights), Info(overflow={})


def update_hyperparameters(
    model: BinaryMF, key: Key, state: State, data: Dense
) -> tuple[State, Info]:
    """Kernel: alpha and concentration of both sides, and both scales."""
    row_alpha, row_concentration = update_feature_prior(
        jax.random.fold_in(key, 0),
        model.row_law(state),
        alpha_prior=model.row_alpha,
        concentration_prior=model.row_concentration,
        counts=jnp.sum(state.u[:, model.num_fixed_rows() :], axis=0, dtype=jnp.int32),
        num_rows=state.u.shape[0],
    )
    column_alpha, column_concentration = update_feature_prior(
        jax.random.fold_in(key, 1),
        model.column_law(state),
        alpha_prior=model.column_alpha,
        concentration_prior=model.column_concentration,
        counts=jnp.sum(state.v[:, model.num_fixed_columns() :], axis=0, dtype=jnp.int32),
        num_rows=state.v.shape[0],
    )
    state = state._replace(
        row_alpha=row_alpha.astype(state.row_alpha.dtype),
        row_concentration=row_concentration.astype(state.row_alpha.dtype),
        column_alpha=column_alpha.astype(state.row_alpha.dtype),
        column_concentration=column_concentration.astype(state.row_alpha.dtype),
    )
    return _update_scales(model, jax.random.fold_in(key, 2), state, data), Info(overflow={})


def _update_scales(model: BinaryMF, key: Key, state: State, data: Dense) -> State:
    """The two scales by slices, one after the other."""
    noise_prior = 1.0 if model.noise_scale is None else model.noise_scale
    weight_prior = 1.0 if model.weight_scale is None else model.weight_scale
    if hyper.is_fixed(noise_prior) and hyper.is_fixed(weight_prior):
        return state
    log_density = (_collapsed_density if state.weights is None else _explicit_density)(
        model, state, data
    )
    noise = update_scale(
        jax.random.fold_in(key, 0),
        noise_prior,
        state.noise_scale,
        lambda value: log_density(value, state.weight_scale),
    )
    weight = update_scale(
        jax.random.fold_in(key, 1),
        weight_prior,
        state.weight_scale,
        lambda value: log_density(noise, value),
    )
    return state._replace(noise_scale=noise, weight_scale=weight)


def _collapsed_density(model, state, data):
    statistics = bilinear.spectrum(
        state.u, state.v, _complete(state, data), weight_mean=model.weight_mean
    )
    return lambda noise, weight: bilinear.log_marginal_of_spectrum(
        statistics, noise_scale=noise, weight_scale=weight
    )


def _explicit_density(model, state, data):
    """Log density of the observed Gaussian cells and of the weights that are there."""
    prior = model.weight_prior(state.weight_scale)
    there = prior.there(model.row_exists(state), model.column_exists(state))
    squares = jnp.sum(jnp.where(there, state.weights - prior.mean, 0) ** 2)
    number = jnp.sum(there, dtype=squares.dtype)
    if model.likelihood != "gaussian":
        return lambda noise, weight: -number * jnp.log(weight) - 0.5 * squares / weight**2
    dtype = squares.dtype
    eta = state.u.astype(dtype) @ (state.weights @ state.v.T.astype(dtype))
    errors = (data.values - eta) ** 2
    if data.observed is not None:
        errors = jnp.where(data.observed, errors, 0)
        num_cells = jnp.sum(data.observed, dtype=dtype)
    else:
        num_cells = jnp.asarray(errors.size, dtype)
    total = jnp.sum(errors)
    return lambda noise, weight: (
        -num_cells * jnp.log(noise)
        - 0.5 * total / noise**2
        - number * jnp.log(weight)
        - 0.5 * squares / weight**2
    )


def _complete(state: State, data: Dense) -> Array:
    return data.values if state.x is None else state.x


def init(plan: SamplerPlan, model: BinaryMF, key: Key, data: Dense) -> State:
    """U, V and W from the prior; scales that have priors start from the spread of the data."""
    from jaxmf.models.binary_mf.model import HYPERPARAMETERS, State

    values, observed = data.values, data.observed
    dtype = values.dtype
    seen = jnp.ones(values.shape, dtype) if observed is None else observed.astype(dtype)
    mean = jnp.sum(values * seen) / jnp.sum(seen)
    spread = jnp.sqrt(jnp.sum(seen * (values - mean) ** 2) / jnp.sum(seen))
    spread = jnp.where(spread > 0, spread, 1)
    guesses = {}
    if model.likelihood == "gaussian":
        # features that fit noise would fill the slots in the first steps
        guesses = {"noise_scale": spread, "weight_scale": spread / 2}
    numbers = {}
    for name in HYPERPARAMETERS:
        prior = getattr(model, name)
        prior = 1.0 if prior is None else prior
        is_guessed = name in guesses and not hyper.is_fixed(prior)
        numbers[name] = jnp.asarray(
            guesses[name] if is_guessed else hyper.initial_value(prior), dtype
        )
    empty = jnp.zeros((0, 0), bool)
    state = model.draw_from_prior(
        jax.random.fold_in(key, 0),
        State(u=empty, v=empty, weights=None, x=None, **numbers),
        (values.shape[0], values.shape[1]),
        (plan.row_slots, plan.column_slots),
    )
    if not plan.collapsed:
        return state
    x = None
    if observed is not None:
        noise = jax.random.normal(jax.random.fold_in(key, 1), values.shape, dtype)
        centre = jnp.sum(values * seen, axis=0) / jnp.maximum(jnp.sum(seen, axis=0), 1)
        x = jnp.where(observed, values, centre + spread * noise)
    return state._replace(weights=None, x=x)


def step(
    plan: SamplerPlan, model: BinaryMF, key: Key, state: State, data: Dense, progress: Array
) -> tuple[State, Info]:
    """W where it is kept, U, V, splits and merges, hyperparameters."""
    options: dict[str, Any] = {
        "several": plan.several,
        "scale_factor": annealed_factor(progress) if plan.anneal else 1.0,
    }
    state, _ = update_weights(model, jax.random.fold_in(key, 0), state, data)
    state, rows = update_rows(model, jax.random.fold_in(key, 1), state, data, **options)
    state, columns = update_columns(model, jax.random.fold_in(key, 2), state, data, **options)
    overflow = rows.overflow | columns.overflow
    if plan.split_merge:
        state, info = split_or_merge(
            model, jax.random.fold_in(key, 4), state, data, num_proposals=plan.split_merge
        )
        overflow = {axis: flag | info.overflow[axis] for axis, flag in overflow.items()}
    new, _ = update_hyperparameters(model, jax.random.fold_in(key, 3), state, data)
    if plan.anneal:
        scale = hold_while_annealed(progress, state.weight_scale, new.weight_scale)
        new = new._replace(weight_scale=scale)
    return new, Info(overflow=overflow)


def record(model: BinaryMF, key: Key, state: State, data: Dense) -> dict[str, Array]:
    """What a draw keeps; U under the name `z`, as posteriors know row features."""
    from jaxmf.models.binary_mf.model import HYPERPARAMETERS

    del key
    draw = {
        name: getattr(state, name) for name in HYPERPARAMETERS if getattr(model, name) is not None
    }
    draw |= {
        "z": state.u,
        "v": state.v,
        "num_features": _number(state.u, model.num_fixed_rows()),
        "num_column_features": _number(state.v, model.num_fixed_columns()),
        "log_joint": model.log_joint(state, data),
    }
    return draw if state.weights is None else draw | {"weights": state.weights}


def _number(bits: Array, num_fixed: int) -> Array:
    """() int32: features that some row has, given ones not counted."""
    return jnp.sum(jnp.any(bits[:, num_fixed:], axis=0), dtype=jnp.int32)


def grow(state: State, sizes: dict[str, int]) -> State:
    """The state with more slots on either side."""
    rows = sizes.get("row_features", state.u.shape[1])
    columns = sizes.get("column_features", state.v.shape[1])
    weights = state.weights
    if weights is not None:
        weights = slots.pad_axis(slots.pad_axis(weights, 0, rows), 1, columns)
    return state._replace(
        u=slots.pad_axis(state.u, 1, rows), v=slots.pad_axis(state.v, 1, columns), weights=weights
    )


def capacity(state: State) -> dict[str, int]:
    """Slots of both sides."""
    return {"row_features": state.u.shape[-1], "column_features": state.v.shape[-1]}
