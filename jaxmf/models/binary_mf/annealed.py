"""Binary matrix factorisation on its way from prior to posterior: its likelihood to a power.

The power is that of the likelihood of a cell given U, V and W. Gaussian cells see it as wider
noise, and of complete data W may be summed out at every power: N(x; m, s^2)^b is N(x; m, s^2 / b)
times a factor of s and b alone, which counts where s is drawn, and in the evidence.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.tree_util import Partial

from jaxmf.data import Dense
from jaxmf.devices import default_platform
from jaxmf.engine import Info
from jaxmf.likelihoods import bilinear, plaid
from jaxmf.likelihoods.spectrum import Spectrum, power_change
from jaxmf.models.binary_mf import chain, choice, density, simulation
from jaxmf.models.binary_mf import state as states
from jaxmf.models.binary_mf.binary_mf_spec import BinaryMFSpec
from jaxmf.models.binary_mf.state import HYPERPARAMETERS, BinaryMFState
from jaxmf.priors.features import IndianBuffet, slots_of_prior
from jaxmf.samplers.annealed_smc import AnnealedModel, annealed_model, log_ratio_of_powers
from jaxmf.types import Array, Key


class BilinearTerms(NamedTuple):
    """Statistics of a state without W for the likelihood at any power."""

    spectrum: Spectrum
    noise_scale: Array
    weight_scale: Array
    log_unit: Array | float


def annealed(
    model: BinaryMFSpec,
    data: Dense,
    *,
    weights: str | None,
    sweep: str,
    several: int | None,
    capacity: int | None,
) -> AnnealedModel:
    """See `BinaryMF.annealed`."""
    if weights == "collapsed" and data.observed is not None:
        raise ValueError(
            'weights: "collapsed" is for complete data at powers of the likelihood, and cells are '
            'missing; set weights="explicit"'
        )
    if weights is None and data.observed is not None:
        weights = "explicit"
    options = {"weights": weights, "sweep": sweep}
    left = choice.device_options(model, options, platform=default_platform(), data=data)
    chosen: dict[str, Any] = {**options, **left}
    sweep = chosen["sweep"]
    sizes = capacity, capacity
    if capacity is None:
        sizes = _capacity(model, data, sweep, "rows"), _capacity(model, data, sweep, "columns")
    plan = chain.plan_features(
        model, weights=chosen["weights"], sweep=sweep, several=several, capacity=sizes,
        anneal=False,
    )  # fmt: skip
    return annealed_model(
        init=Partial(init, plan, model),
        step=Partial(step, plan, model),
        measure=Partial(measure if plan.collapsed else log_likelihood, model),
        log_ratio=log_ratio if plan.collapsed else log_ratio_of_powers,
        record=Partial(chain.record, model),
        grow=states.grow,
        capacity=states.capacity,
        limit=Partial(chain.limit, plan),
    )


def _capacity(model: BinaryMFSpec, data: Dense, sweep: str, side: str) -> int:
    """Slots of a side to begin with."""
    is_rows = side == "rows"
    prior = model.row_prior if is_rows else model.column_prior
    if sweep == "whole_rows" or not isinstance(prior, IndianBuffet):
        return 8
    length = data.num_rows if is_rows else data.num_columns
    return slots_of_prior(prior.alpha, prior.concentration, length)


def init(
    plan: chain.BinaryMFPlan,
    model: BinaryMFSpec,
    key: Key,
    data: Dense,
    sizes: dict[str, int] | None,
) -> tuple[BinaryMFState, dict[str, Array]]:
    """A state from the prior."""
    num_slots = plan.row_slots, plan.column_slots
    if sizes is not None:
        num_slots = sizes["row_features"], sizes["column_features"]
    num_rows, num_columns = data.values.shape
    state = simulation.simulate_in_slots(model, key, (num_rows, num_columns), num_slots)
    dtype = data.values.dtype
    values = {name: jnp.asarray(getattr(state, name), dtype) for name in HYPERPARAMETERS}
    assert state.weights is not None
    weights = None if plan.collapsed else state.weights.astype(dtype)
    return state._replace(weights=weights, **values), simulation.last_slots(model, state)


def step(
    plan: chain.BinaryMFPlan,
    model: BinaryMFSpec,
    key: Key,
    state: BinaryMFState,
    data: Dense,
    power: Array,
) -> tuple[BinaryMFState, Info]:
    """W where it is kept, U, V and hyperparameters, with the likelihood to a power."""
    return chain.tempered_step(
        plan, model, key, state, model.centred(data), noise_factor=1 / jnp.sqrt(power),
        is_of_scales=True,
    )  # fmt: skip


def measure(model: BinaryMFSpec, state: BinaryMFState, data: Dense) -> BilinearTerms:
    """The statistics of `log_ratio`."""
    spectrum = plaid.spectrum if model.diagonal else bilinear.spectrum
    x, weight_mean = model.centred(data).values, model.summed_out_mean()
    statistics = spectrum(state.u, state.v, x, weight_mean=weight_mean)
    unit = model.log_unit(data, observed_only=False)
    return BilinearTerms(statistics, state.noise_scale, state.weight_scale, unit)


def log_likelihood(model: BinaryMFSpec, state: BinaryMFState, data: Dense) -> Array:
    """log p(observed X | U, V, W), () float."""
    unit = model.log_unit(data, observed_only=True)
    return density.log_likelihood_of_cells(model, state, model.centred(data)) - unit


def log_ratio(measured: BilinearTerms, before: Array, after: Array) -> Array:
    """log of p(X | U, V)^after, W summed out, over the same with the power `before`."""
    spectrum, noise, weight, unit = measured
    return power_change(spectrum, noise, weight, before, after) - (after - before) * unit
