"""The densities of binary matrix factorisation, with its weights kept or summed out."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp

from jaxmf._kernels.compensated import log_ratio, normal_change
from jaxmf.data import Dense
from jaxmf.likelihoods import bilinear, plaid
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.likelihoods.spectrum import marginal_change
from jaxmf.models.binary_mf.binary_mf_spec import BinaryMFSpec
from jaxmf.models.binary_mf.defaults import hyperprior
from jaxmf.models.binary_mf.state import HYPERPARAMETERS, BinaryMFState, complete, entries
from jaxmf.priors import hyper
from jaxmf.types import Array

ScaleDensity = Callable[[Array, Array], Array]


def log_joint(model: BinaryMFSpec, state: BinaryMFState, data: Dense) -> Array:
    """log p(U, V, W, X, hyperparameters); without W where it is summed out.

    With the weights summed out, U and V enter by the probabilities of their left-ordered classes
    (in finite models of the labelled matrices), and missing cells are included as imputed. With the
    weights, features are points with weights, U and V enter by the densities of these, and the
    observed cells alone.

    Args: state: of data with I rows and J columns; data (I, J).
    Returns () float.
    """
    terms = [
        hyper.log_prior(prior, getattr(state, name))
        for name in HYPERPARAMETERS
        if (prior := hyperprior(model, name)) is not None
    ]
    for prior, bits, num_fixed in (
        (model.row_prior_at(state), state.u, model.num_fixed_rows()),
        (model.column_prior_at(state), state.v, model.num_fixed_columns()),
    ):
        free = bits[:, num_fixed:].astype(state.noise_scale.dtype)
        gram = free.T @ free
        counts = jnp.diagonal(gram)
        if state.weights is None:
            terms.append(prior.log_prob(counts, gram, bits.shape[0]))
        else:
            terms.append(prior.log_prob_labelled(counts, bits.shape[0]))
    log_prior = sum(terms[1:], terms[0])
    unit = model.log_unit(data, observed_only=state.weights is not None)
    return log_prior + _log_likelihood_in_units(model, state, model.centred(data)) - unit


def log_likelihood(model: BinaryMFSpec, state: BinaryMFState, data: Dense) -> Array:
    """log p(X | U, V) with W summed out, or log p(X | U, V, W) + log p(W): () float."""
    unit = model.log_unit(data, observed_only=state.weights is not None)
    return _log_likelihood_in_units(model, state, model.centred(data)) - unit


def _log_likelihood_in_units(model: BinaryMFSpec, state: BinaryMFState, data: Dense) -> Array:
    if state.weights is None:
        return bilinear.log_marginal(
            state.u,
            state.v,
            complete(state, data),
            noise_scale=state.noise_scale,
            weight_scale=state.weight_scale,
            weight_mean=model.summed_out_mean(),
            spectrum_fn=plaid.spectrum if model.diagonal else bilinear.spectrum,
        )
    prior, there = model.weight_prior(state), model.weight_exists(state)
    return log_likelihood_of_cells(model, state, data) + prior.log_density(state.weights, there)


def log_likelihood_of_cells(model: BinaryMFSpec, state: BinaryMFState, data: Dense) -> Array:
    """log p(observed X | U, V, W): () float."""
    each = model.likelihood_at(state).log_density(data.values, entries(state))
    return jnp.sum(each if data.observed is None else jnp.where(data.observed, each, 0))


def scale_density(
    model: BinaryMFSpec, state: BinaryMFState, data: Dense, *, power: Array | float = 1.0
) -> ScaleDensity:
    """Log density at other scales of noise and weights, less that at the state's.

    What it sums is summed once.

    With W summed out log p(X | U, V), missing cells as imputed; else that of the observed Gaussian
    cells and of the weights that are there, up to a constant. `power` is that of the likelihood of
    an observed cell given W: N(x; m, s^2)^b is N(x; m, s^2 / b) times a constant and s^(1 - b).
    Imputed cells are N(m, s^2 / b), without that factor.
    """
    if state.weights is not None:
        return _explicit(model, state, data, power)
    spectrum = plaid.spectrum if model.diagonal else bilinear.spectrum
    statistics = spectrum(
        state.u, state.v, complete(state, data), weight_mean=model.summed_out_mean()
    )
    start = state.noise_scale
    widening = 1 / jnp.sqrt(jnp.asarray(power, start.dtype))
    num_observed = statistics.num_cells
    if data.observed is not None:
        num_observed = jnp.sum(data.observed, dtype=start.dtype)

    def change(noise: Array, weight: Array) -> Array:
        before, after = (start * widening, state.weight_scale), (noise * widening, weight)
        cells_change = num_observed * (1 - power) * log_ratio(noise, start)
        return marginal_change(statistics, before, after) + cells_change

    return change


def _explicit(
    model: BinaryMFSpec, state: BinaryMFState, data: Dense, power: Array | float
) -> ScaleDensity:
    assert state.weights is not None
    prior, there = model.weight_prior(state), model.weight_exists(state)
    squares = jnp.sum(jnp.where(there, state.weights - prior.mean, 0) ** 2)
    num_weights = jnp.sum(there, dtype=squares.dtype)

    def weight_change(weight: Array) -> Array:
        return normal_change(num_weights, squares, state.weight_scale, weight)

    if not isinstance(model.likelihood, Gaussian):
        return lambda noise, weight: weight_change(weight)
    errors = (data.values - entries(state)) ** 2
    if data.observed is not None:
        errors = jnp.where(data.observed, errors, 0)
        num_cells = jnp.sum(data.observed, dtype=squares.dtype)
    else:
        num_cells = jnp.asarray(errors.size, squares.dtype)
    total = jnp.sum(errors)
    return lambda noise, weight: (
        power * normal_change(num_cells, total, state.noise_scale, noise) + weight_change(weight)
    )
