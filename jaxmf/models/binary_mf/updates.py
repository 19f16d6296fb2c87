"""The kernels of the features and weights of binary matrix factorisation.

Each is (model, key, state, data) -> (state, Info) and leaves the posterior invariant by itself.
The columns are drawn by the kernels of the rows of X'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxmf.data import Dense
from jaxmf.engine import Info, merge_overflow, short_of
from jaxmf.likelihoods.cells.likelihood import Likelihood, Tempered
from jaxmf.models.binary_mf.binary_mf_spec import BinaryMFSpec
from jaxmf.models.binary_mf.state import BinaryMFState, complete, entries
from jaxmf.priors.features import IndianBuffet
from jaxmf.samplers import split_merge
from jaxmf.samplers.bilinear import weights as weight_moves
from jaxmf.samplers.bilinear.collapsed import collapsed_bilinear_sweep
from jaxmf.samplers.bilinear.explicit import explicit_sweep
from jaxmf.samplers.bilinear.plaid import collapsed_plaid_sweep
from jaxmf.samplers.bilinear.side import BilinearSide
from jaxmf.samplers.bilinear.weight_proposals import propose_weights
from jaxmf.samplers.change_of_basis import change_of_basis
from jaxmf.samplers.split_merge_gaussian import GaussianColumns, bilinear_columns
from jaxmf.types import Array, Key

_NUM_SCANS = 2
_NUM_ROUNDS = 4  # proposals to each row of W


def update_rows(
    model: BinaryMFSpec,
    key: Key,
    state: BinaryMFState,
    data: Dense,
    *,
    several: int = 1,
    whole_rows: bool = False,
    noise_factor: Array | float = 1.0,
) -> tuple[BinaryMFState, Info]:
    """Kernel: U, with W summed out (and missing cells) or given W (and weights of own features).

    `whole_rows` draws each row from all its settings, with W summed out and not diagonal only.
    `several` is the number of proposals to change several bits of a row at once. `noise_factor`
    multiplies the noise that the sweep sees, see `Likelihood.annealed`; at f it leaves
    the posterior with the likelihood to the power 1 / f^2 invariant.
    """
    if state.weights is None:
        return _collapsed_rows(model, key, state, data, several, whole_rows, noise_factor)
    u, weights, shortage = explicit_sweep(
        key,
        BilinearSide(state.u, state.v, state.weights, data.values, data.observed),
        prior=model.row_prior_at(state),
        likelihood=model.likelihood_at(state).annealed(noise_factor),
        weight_prior=model.weight_prior(state),
        column_exists=model.column_exists(state),
        num_fixed=model.num_fixed_rows(),
        num_proposals=several,
        grows=isinstance(model.row_prior, IndianBuffet),
    )
    return state._replace(u=u, weights=weights), short_of("row_features", shortage)


def _collapsed_rows(
    model: BinaryMFSpec,
    key: Key,
    state: BinaryMFState,
    data: Dense,
    several: int,
    whole_rows: bool,
    noise_factor: Array | float,
) -> tuple[BinaryMFState, Info]:
    arrays = state.u, state.v, complete(state, data), data.observed
    options: dict[str, Any] = {
        "prior": model.row_prior_at(state),
        "noise_scale": state.noise_scale * noise_factor,
        "weight_scale": state.weight_scale,
        "weight_mean": model.summed_out_mean(),
        "num_fixed": model.num_fixed_rows(),
        "num_proposals": several,
    }
    if model.diagonal:
        u, x = collapsed_plaid_sweep(key, *arrays, **options)
        overflow = jnp.zeros((), bool)
    else:
        u, x, overflow = collapsed_bilinear_sweep(key, *arrays, whole_rows=whole_rows, **options)
    state = state._replace(u=u, x=None if state.x is None else x)
    return state, short_of("row_features", overflow)


def update_columns(
    model: BinaryMFSpec, key: Key, state: BinaryMFState, data: Dense, **options: Any
) -> tuple[BinaryMFState, Info]:
    """Kernel: V, with the options of `update_rows`."""
    turned, info = update_rows(
        model.transpose(), key, state.transpose(), transposed(data), **options
    )
    return turned.transpose(), for_columns(info)


def transposed(data: Dense) -> Dense:
    """The matrix X'."""
    return jax.tree.map(jnp.transpose, data)


def for_columns(info: Info) -> Info:
    """Report of a kernel of the rows of X', in terms of the columns of X."""
    return Info(*({"column_features": report["row_features"]} for report in info))


def split_or_merge(
    model: BinaryMFSpec,
    key: Key,
    state: BinaryMFState,
    data: Dense,
    *,
    num_proposals: int,
    noise_factor: Array | float = 1.0,
) -> tuple[BinaryMFState, Info]:
    """Kernel: some proposals to split or merge features of rows, then of columns, W summed out.

    Where W is kept, missing cells X_m are drawn given U, V and W, the proposals are made in
    p(U, V | X), X complete, and then W is drawn from p(W | U, V, X), and X_m forgotten. The first
    draw brings a state from the posterior to p(U, V, W, X_m | observed cells); without W that is
    p(U, V, X_m | observed cells), which the proposals leave invariant; the last draw makes it
    p(U, V, W, X_m | observed cells) again. W as it was does not belong to the new U and V, so
    nothing that looks at W may come before that draw.
    """
    likelihood = model.likelihood_at(state).annealed(noise_factor)
    summed_out = state
    if state.weights is not None:
        x = _imputed(likelihood, jax.random.fold_in(key, 3), state, data)
        summed_out = state._replace(weights=None, x=x)

    def move_rows(
        model: BinaryMFSpec, key: Key, state: BinaryMFState, data: Dense
    ) -> tuple[BinaryMFState, Info]:
        u, overflow, _ = split_merge.split_merge(
            key,
            state.u,
            prior=model.row_prior_at(state),
            likelihood=_pair_likelihood(model, state, data, noise_factor),
            num_proposals=num_proposals,
            num_scans=_NUM_SCANS,
            num_fixed=model.num_fixed_rows(),
        )
        return state._replace(u=u), short_of("row_features", overflow)

    moved, info = _on_both_sides(move_rows, model, key, summed_out, data)
    if state.weights is None:
        return moved, info
    weights = weight_moves.draw_weights(
        jax.random.fold_in(key, 2),
        moved.u,
        moved.v,
        state.weights,
        complete(moved, data),
        None,
        likelihood=likelihood,
        weight_prior=model.weight_prior(state),
        row_exists=model.row_exists(moved),
        column_exists=model.column_exists(moved),
    )
    return moved._replace(weights=weights, x=None), info


def _imputed(likelihood: Likelihood, key: Key, state: BinaryMFState, data: Dense) -> Array | None:
    """X (I, J), its missing cells drawn given U, V and W; None when nothing is missing."""
    if data.observed is None:
        return None
    drawn = likelihood.sample(key, entries(state))
    return jnp.where(data.observed, data.values, drawn)


def _on_both_sides(
    kernel: Callable[[BinaryMFSpec, Key, BinaryMFState, Dense], tuple[BinaryMFState, Info]],
    model: BinaryMFSpec,
    key: Key,
    state: BinaryMFState,
    data: Dense,
) -> tuple[BinaryMFState, Info]:
    """A kernel of the rows, then the same of the rows of X'."""
    state, rows = kernel(model, jax.random.fold_in(key, 0), state, data)
    turned, columns = kernel(
        model.transpose(), jax.random.fold_in(key, 1), state.transpose(), transposed(data)
    )
    overflow = merge_overflow(rows.overflow, for_columns(columns).overflow)
    return turned.transpose(), Info(overflow=overflow)


def change_bases(
    model: BinaryMFSpec,
    key: Key,
    state: BinaryMFState,
    data: Dense,
    *,
    num_draws: int,
    noise_factor: Array | float = 1.0,
) -> BinaryMFState:
    """Kernel: two features of rows in another basis of their plane, then two of columns.

    `num_draws` times on either side, W summed out and not diagonal only.
    """

    def change_rows(
        model: BinaryMFSpec, key: Key, state: BinaryMFState, data: Dense
    ) -> tuple[BinaryMFState, Info]:
        u = change_of_basis(
            key,
            state.u,
            prior=model.row_prior_at(state),
            likelihood=_pair_likelihood(model, state, data, noise_factor),
            num_draws=num_draws,
            num_fixed=model.num_fixed_rows(),
        )
        return state._replace(u=u), short_of("row_features", jnp.zeros((), bool))

    return _on_both_sides(change_rows, model, key, state, data)[0]  # none needs more slots


def _pair_likelihood(
    model: BinaryMFSpec, state: BinaryMFState, data: Dense, noise_factor: Array | float
) -> GaussianColumns:
    """p(X | U, V) as a function of pairs of columns of U."""
    return bilinear_columns(
        state.v,
        complete(state, data),
        noise_scale=state.noise_scale * noise_factor,
        weight_scale=state.weight_scale,
        weight_mean=model.weight_mean,
        num_slots=state.u.shape[1],
    )


def update_weights(
    model: BinaryMFSpec,
    key: Key,
    state: BinaryMFState,
    data: Dense,
    *,
    power: Array | None = None,
    expected: bool = False,
) -> tuple[BinaryMFState, Info]:
    """Kernel: W given U and V, where it is kept. With `expected` no kernel, see `draw_weights`.

    `power` is that of the likelihood on the way from the prior, or None. Gaussian cells have it in
    their noise; others have no conditional distribution that can be drawn from, and W is proposed.
    """
    if state.weights is None:
        return state, Info(overflow={})
    likelihood: Likelihood = model.likelihood_at(state)
    if power is not None:
        likelihood = likelihood.annealed(1 / jnp.sqrt(power))
    options: dict[str, Any] = {
        "likelihood": likelihood,
        "weight_prior": model.weight_prior(state),
        "row_exists": model.row_exists(state),
        "column_exists": model.column_exists(state),
    }
    arrays = state.u, state.v, state.weights, data.values, data.observed
    if isinstance(likelihood, Tempered):
        weights = propose_weights(key, BilinearSide(*arrays), num_rounds=_NUM_ROUNDS, **options)
        return state._replace(weights=weights), Info(overflow={})
    finite = not any(isinstance(p, IndianBuffet) for p in (model.row_prior, model.column_prior))
    jointly = finite and state.weights.size <= weight_moves.MOST_PAIRS
    weights = weight_moves.draw_weights(key, *arrays, jointly=jointly, expected=expected, **options)
    return state._replace(weights=weights), Info(overflow={})
