"""The kernels of binary matrix factorisation.

Each is (model, key, state, data) -> (state, Info) and leaves the posterior invariant by itself.
The columns are drawn by the kernels of the rows of X'.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from jaxmf.data import Dense
from jaxmf.engine import Info
from jaxmf.models.binary_mf.density import scale_density
from jaxmf.models.binary_mf.state import State, complete, entries
from jaxmf.priors import hyper
from jaxmf.priors.features import IndianBuffet
from jaxmf.samplers import split_merge
from jaxmf.samplers.bilinear import weights as weight_moves
from jaxmf.samplers.bilinear.collapsed import collapsed_bilinear_sweep
from jaxmf.samplers.bilinear.explicit import Side, explicit_sweep
from jaxmf.samplers.bilinear.plaid import collapsed_plaid_sweep
from jaxmf.samplers.hyper import update_feature_prior, update_rate, update_scale
from jaxmf.samplers.split_merge_gaussian import bilinear_columns
from jaxmf.types import Array, Key

if TYPE_CHECKING:
    from jaxmf.models.binary_mf.model import BinaryMF

_NUM_SCANS = 2


def update_rows(
    model: BinaryMF,
    key: Key,
    state: State,
    data: Dense,
    *,
    several: bool = True,
    whole_rows: bool = False,
    scale_factor: Array | float = 1.0,
) -> tuple[State, Info]:
    """Kernel: U, with W summed out (and missing cells) or given W (and weights of own features).

    `whole_rows` draws each row from all its settings, with W summed out and not diagonal only.
    `scale_factor` multiplies the weight scale that a collapsed sweep sees; it leaves the posterior
    invariant only at 1.
    """
    if state.weights is None:
        return _collapsed_rows(model, key, state, data, several, whole_rows, scale_factor)
    u, weights, overflow = explicit_sweep(
        key,
        Side(state.u, state.v, state.weights, data.values, data.observed),
        prior=model.row_law(state),
        cells=model.cells(state),
        weight_prior=model.weight_prior(state),
        column_exists=model.column_exists(state),
        num_fixed=model.num_fixed_rows(),
        several=several,
        grows=isinstance(model.row_prior, IndianBuffet),
    )
    return state._replace(u=u, weights=weights), Info(overflow={"row_features": overflow})


def _collapsed_rows(
    model: BinaryMF,
    key: Key,
    state: State,
    data: Dense,
    several: bool,
    whole_rows: bool,
    scale_factor: Array | float,
) -> tuple[State, Info]:
    arrays = state.u, state.v, complete(state, data), data.observed
    options: dict[str, Any] = {
        "prior": model.row_law(state),
        "noise_scale": state.noise_scale,
        "weight_scale": state.weight_scale * scale_factor,
        "weight_mean": model.layer_means() if model.diagonal else model.weight_mean,
        "num_fixed": model.num_fixed_rows(),
        # a row drawn from all its settings needs no proposals
        "num_proposals": int(several and not whole_rows),
    }
    if model.diagonal:
        u, x = collapsed_plaid_sweep(key, *arrays, **options)
        overflow = jnp.zeros((), bool)
    else:
        u, x, overflow = collapsed_bilinear_sweep(key, *arrays, whole_rows=whole_rows, **options)
    state = state._replace(u=u, x=None if state.x is None else x)
    return state, Info(overflow={"row_features": overflow})


def update_columns(
    model: BinaryMF,
    key: Key,
    state: State,
    data: Dense,
    *,
    several: bool = True,
    whole_rows: bool = False,
    scale_factor: Array | float = 1.0,
) -> tuple[State, Info]:
    """Kernel: V, as `update_rows`."""
    turned, info = update_rows(
        model.transpose(),
        key,
        state.transpose(),
        transposed(data),
        several=several,
        whole_rows=whole_rows,
        scale_factor=scale_factor,
    )
    return turned.transpose(), of_columns(info)


def transposed(data: Dense) -> Dense:
    """The matrix X'."""
    return jax.tree.map(jnp.transpose, data)


def of_columns(info: Info) -> Info:
    """What a kernel of the rows of X' reports, said of the columns of X."""
    return Info(overflow={"column_features": info.overflow["row_features"]})


def split_or_merge(
    model: BinaryMF, key: Key, state: State, data: Dense, *, num_proposals: int
) -> tuple[State, Info]:
    """Kernel: some proposals to split or merge features of rows, then of columns, W summed out."""
    state, rows = _split_or_merge_rows(
        model, jax.random.fold_in(key, 0), state, data, num_proposals
    )
    turned, columns = _split_or_merge_rows(
        model.transpose(),
        jax.random.fold_in(key, 1),
        state.transpose(),
        transposed(data),
        num_proposals,
    )
    overflow = rows.overflow | of_columns(columns).overflow
    return turned.transpose(), Info(overflow=overflow)


def _split_or_merge_rows(
    model: BinaryMF, key: Key, state: State, data: Dense, num_proposals: int
) -> tuple[State, Info]:
    u, overflow, _ = split_merge.split_merge(
        key,
        state.u,
        prior=model.row_law(state),
        likelihood=bilinear_columns(
            state.v,
            complete(state, data),
            noise_scale=state.noise_scale,
            weight_scale=state.weight_scale,
            weight_mean=model.weight_mean,
            num_slots=state.u.shape[1],
        ),
        num_proposals=num_proposals,
        num_scans=_NUM_SCANS,
        num_fixed=model.num_fixed_rows(),
    )
    return state._replace(u=u), Info(overflow={"row_features": overflow})


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
        cells=model.cells(state),
        weight_prior=model.weight_prior(state),
        row_exists=model.row_exists(state),
        column_exists=model.column_exists(state),
        jointly=finite and state.weights.size <= weight_moves.MOST_PAIRS,
    )
    return state._replace(weights=weights), Info(overflow={})


def update_hyperparameters(
    model: BinaryMF, key: Key, state: State, data: Dense
) -> tuple[State, Info]:
    """Kernel: alpha and concentration of both sides, and the numbers of cells and weights."""
    state = _update_row_law(model, jax.random.fold_in(key, 0), state)
    turned = _update_row_law(model.transpose(), jax.random.fold_in(key, 1), state.transpose())
    update = _update_rates if model.likelihood == "poisson" else _update_scales
    state = update(model, jax.random.fold_in(key, 2), turned.transpose(), data)
    return state, Info(overflow={})


def _update_row_law(model: BinaryMF, key: Key, state: State) -> State:
    alpha, concentration = update_feature_prior(
        key,
        model.row_law(state),
        alpha_prior=model.row_alpha,
        concentration_prior=model.row_concentration,
        counts=jnp.sum(state.u[:, model.num_fixed_rows() :], axis=0, dtype=jnp.int32),
        num_rows=state.u.shape[0],
    )
    dtype = state.row_alpha.dtype
    return state._replace(
        row_alpha=alpha.astype(dtype), row_concentration=concentration.astype(dtype)
    )


def _update_scales(model: BinaryMF, key: Key, state: State, data: Dense) -> State:
    """The two scales by slices, one after the other."""
    noise_prior = 1.0 if model.noise_scale is None else model.noise_scale
    weight_prior = 1.0 if model.weight_scale is None else model.weight_scale
    if hyper.is_fixed(noise_prior) and hyper.is_fixed(weight_prior):
        return state
    log_density = scale_density(model, state, data)
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


def _update_rates(model: BinaryMF, key: Key, state: State, data: Dense) -> State:
    """Of the Poisson law: rate and shape of the Gamma prior of W given W, and the base rate.

    weight_rate | W ~ Gamma(a + n weight_shape, rate b + sum W) under a Gamma(a, b) prior, n weights
    being there; the other two by slices. The base rate sees the counts, not their split among base
    rate and features: given the split it would be conjugate, but it moves further without.
    """
    assert state.weights is not None
    prior = model.weight_prior(state)
    there = prior.there(model.row_exists(state), model.column_exists(state))
    dtype = state.weights.dtype
    number = jnp.sum(there, dtype=dtype)
    sum_of_logs = jnp.sum(jnp.log(jnp.where(there, state.weights, 1)))
    rate = update_rate(
        jax.random.fold_in(key, 0),
        model.weight_rate,
        state.weight_rate,
        power=number * state.weight_shape,
        total=jnp.sum(jnp.where(there, state.weights, 0)),
    )
    shape = update_scale(
        jax.random.fold_in(key, 1),
        model.weight_shape,
        state.weight_shape,
        lambda value: number * (value * jnp.log(rate) - gammaln(value)) + value * sum_of_logs,
    )
    state = state._replace(weight_rate=rate, weight_shape=shape)
    if hyper.is_fixed(model.base_rate):
        return state
    eta = entries(state)
    seen = jnp.ones(eta.shape, bool) if data.observed is None else data.observed

    def log_density(value: Array) -> Array:
        cells = model.cells(state._replace(base_rate=value))
        return jnp.sum(jnp.where(seen, cells.log_kernel(data.values, eta), 0))

    base_rate = update_scale(
        jax.random.fold_in(key, 2), model.base_rate, state.base_rate, log_density
    )
    return state._replace(base_rate=base_rate)
