"""The kernels of a `FeatureModel`: rows of Z, rows of Y, hyperparameters.

Each is `(model, key, state, data) -> (state, info)` and leaves the posterior invariant.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf.data import Dense
from jaxmf.engine import Info
from jaxmf.models.feature_model import hyperparameters
from jaxmf.models.feature_model.feature_model_spec import FeatureModelSpec, FeatureState
from jaxmf.priors import hyper
from jaxmf.priors.features import BetaBernoulli, IndianBuffet
from jaxmf.samplers import explicit_rows, feature_births, feature_values
from jaxmf.samplers.feature_values import Values
from jaxmf.samplers.hyper import update_feature_prior, update_parameter
from jaxmf.types import Array, Key


class Annealed(NamedTuple):
    """How a step of an annealed start weakens a model, see `FeatureModel.tempered`."""

    power: Array | float = 1.0  # () float, of the likelihood
    weight: Array | None = None  # () float, of Y, or None for Y as it is


WHOLE = Annealed()


def update_rows(
    model: FeatureModelSpec,
    key: Key,
    state: FeatureState,
    data: Dense,
    *,
    annealed: Annealed = WHOLE,
    sweep: str = "bits",
) -> tuple[FeatureState, Info]:
    """Kernel: bits of all rows, and features that one row alone has.

    Args: annealed: how an annealed start weakens the model.
    """
    fixed = model.at_values(state.hyperparameters)
    fixed = fixed.without_constants().tempered(*annealed)
    kernels = [explicit_rows.update_bits_and_new, feature_births.birth_or_death]
    if sweep == "particle_gibbs":
        kernels.append(explicit_rows.update_bits_together)
    z, y, overflow = explicit_rows.sweep_rows(
        key, fixed, state.z, state.y, data, update_row=kernels
    )
    y = filled(model, z, y)
    return state._replace(z=z, y=y), Info(overflow={"features": overflow})


def filled(model: FeatureModelSpec, z: Array, y: Array) -> Array:
    """Y with the fixed draw in the slots without a feature, whatever was there before."""
    exists = model.prior.exists(jnp.sum(z, axis=0, dtype=jnp.result_type(float)))
    return explicit_rows.where_slots(exists, y, model.filling(z.shape[1]))


def update_values(
    model: FeatureModelSpec,
    key: Key,
    state: FeatureState,
    data: Dense,
    *,
    annealed: Annealed = WHOLE,
) -> tuple[FeatureState, Info]:
    """Kernel: rows of Y, by moves of their entries and by whole rows from their prior."""
    fixed = model.at_values(state.hyperparameters)
    fixed = fixed.without_constants().tempered(*annealed)
    z = state.z
    exists = fixed.prior.exists(jnp.sum(z, axis=0, dtype=jnp.result_type(float)))

    def cells(y: Array) -> Array:
        over_rows = jax.vmap(fixed.cell_log_likelihood, in_axes=(0, 0, 0, None))
        return over_rows(data.values, data.observed, z, y)

    is_by_column = model.columns_are_separate and model.row_shape == (data.num_columns,)
    values = Values(
        by_column=(lambda y: jnp.sum(cells(y), axis=0)) if is_by_column else None,
        total=lambda y: jnp.sum(cells(y)),
    )
    y = feature_values.update_values(
        jax.random.fold_in(key, 0), state.y, exists, values, prior=fixed.feature_prior
    )
    y = explicit_rows.replace_features(
        jax.random.fold_in(key, 1), fixed, z, y, data, data.values.shape[0]
    )
    return state._replace(y=y), Info(overflow={})


def update_hyperparameters(
    model: FeatureModelSpec,
    key: Key,
    state: FeatureState,
    data: Dense,
    *,
    annealed: Annealed = WHOLE,
) -> tuple[FeatureState, Info]:
    """Kernel: alpha and concentration, then those of likelihood and functions, in order."""
    values = dict(state.hyperparameters)
    counts = jnp.sum(state.z, axis=0, dtype=jnp.result_type(float))
    if isinstance(model.prior, IndianBuffet | BetaBernoulli):
        values["alpha"], values["concentration"] = update_feature_prior(
            jax.random.fold_in(key, 0),
            hyperparameters.prior_at(model.prior, values),
            alpha_prior=model.prior.alpha,
            concentration_prior=model.prior.concentration,
            counts=counts,
            num_rows=state.z.shape[0],
        )
    learned = model.likelihood_hyperparameters | dict(model.parameters)
    for index, (name, prior) in enumerate(learned.items()):
        if hyper.is_fixed(prior):
            continue

        def log_density(value: Array, name: str = name) -> Array:
            changed = model.at_values(values | {name: value})
            return changed.tempered(*annealed).log_conditional(state.z, state.y, data)

        parameter_key = jax.random.fold_in(key, index + 1)
        values[name] = update_parameter(parameter_key, prior, values[name], log_density)
    return state._replace(hyperparameters=values), Info(overflow={})
