"""The Markov chain of a `FeatureModel`: where it starts, its step, what it keeps.

The kernels, of rows of Z, rows of Y and hyperparameters, stand last. Each is
`(model, key, state, data) -> (state, info)` and leaves the posterior invariant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from jaxmf import slots
from jaxmf.data import Dense
from jaxmf.engine import Info, Limit
from jaxmf.likelihoods.cells.likelihood import CountCells
from jaxmf.likelihoods.cells.negative_binomial import NegativeBinomial
from jaxmf.models.feature_model import feature_model_spec
from jaxmf.models.feature_model.feature_model_spec import FeatureModelSpec, FeatureState
from jaxmf.priors import hyper
from jaxmf.priors.features import BetaBernoulli, IndianBuffet, sample_by_rows
from jaxmf.samplers import explicit_rows, feature_values
from jaxmf.samplers.annealing import (
    annealed_factor,
    bounded_dispersion,
    features_begin,
    leading_direction,
    row_mean_squares,
    start_with_few_features,
)
from jaxmf.samplers.bilinear.start import directions_above_noise
from jaxmf.samplers.feature_layout import capacity, num_features
from jaxmf.samplers.feature_rows import features_limit
from jaxmf.samplers.feature_values import Values
from jaxmf.samplers.hyper import update_feature_prior, update_parameter
from jaxmf.types import Array, Draw, Key, PyTree

if TYPE_CHECKING:
    import numpyro.distributions as dist


_NUM_SCALE_DRAWS = 64
# Folded into the key of a step, each by one of its parts. A new part takes the next number: with
# another order every seed would give other draws.
_ROWS, _VALUES, _HYPERPARAMETERS = range(3)


@jax.tree_util.register_static
@dataclass(frozen=True)
class FeatureModelPlan:
    """The structural options of the sampler, all of them static: equal ones compile nothing new."""

    num_slots: int
    anneal: bool
    num_value_moves: int
    sweep: str


def init(plan: FeatureModelPlan, model: FeatureModelSpec, key: Key, data: Dense) -> FeatureState:
    """Features from their prior; hyperparameters at the means of their priors.

    With fewer slots than such features have, the last ones are left out: where a chain starts
    does not matter to what it converges to.
    """
    z_key, y_key = jax.random.split(key)
    values = model.initial_values()
    fixed = model.at_values(values)
    # of this many slots whatever the capacity, so that more of them change nothing
    num_drawn = min(plan.num_slots, model.num_slots()) - model.first_slot()
    z, _ = sample_by_rows(fixed.prior, z_key, data.values.shape[0], num_drawn)
    z = slots.pad_axis(model.with_bias(z), 1, plan.num_slots)
    y = model.filled(z, fixed.draw_features(y_key, plan.num_slots))
    return FeatureState(z=z, y=y, hyperparameters=values)


def step(
    plan: FeatureModelPlan,
    model: FeatureModelSpec,
    key: Key,
    state: FeatureState,
    data: Dense,
    progress: Array,
) -> tuple[FeatureState, Info]:
    """Rows of Z, moves of Y, hyperparameters."""
    annealed = WHOLE
    if plan.anneal:
        state = with_bounded_dispersion(model, state, data, progress)
        fixed = model.at_values(state.hyperparameters)
        if isinstance(fixed.likelihood, CountCells):
            annealed = Annealed(power_at(fixed.likelihood, data, progress))
        else:
            annealed = annealing_at(fixed.feature_prior, model.centred(data), progress)
    state, info = _update_features(plan, model, key, state, data, annealed)
    # hyperparameters see the whole likelihood: under one to a small power scales would follow
    # their priors
    annealed = annealed._replace(power=1.0)
    hyper_key = jax.random.fold_in(key, _HYPERPARAMETERS)
    state, _ = update_hyperparameters(model, hyper_key, state, data, annealed=annealed)
    return state, info


def annealing_at(prior: dist.Distribution, data: Dense, progress: Array) -> Annealed:
    """The power of the likelihood and the weight of Y of a step of the warm-up.

    Under a weak likelihood the data show nothing, and features die. Weak features come easily: one
    from the prior costs little where it does not fit. A weight that cannot start at a fifth leaves
    the rest of the factor to the likelihood.

    Args: progress () float, the share of the warm-up that is over.
    """
    full = annealed_factor(progress)
    if not feature_values.can_shrink(prior):
        return Annealed(full**2)
    drawn = feature_values.draw_rows(prior, jax.random.key(0), _NUM_SCALE_DRAWS)
    scale = jnp.sqrt(jnp.mean(drawn**2))
    weight = annealed_factor(progress, start_with_few_features(row_mean_squares(data), scale))
    return Annealed((full / weight) ** 2, weight)


def with_bounded_dispersion(
    model: FeatureModelSpec, state: FeatureState, data: Dense, progress: Array
) -> FeatureState:
    """The state with a dispersion of counts that leaves features something to explain."""
    if not isinstance(model.likelihood, NegativeBinomial):
        return state
    prior, values = model.likelihood.dispersion, state.hyperparameters
    if prior is None or hyper.is_fixed(prior):
        return state
    free = values["dispersion"]
    bounded = jax.lax.cond(
        features_begin(progress),
        lambda: bounded_dispersion(prior, free, shown=dispersion_beside_directions(data)),
        lambda: free,
    )
    return state._replace(hyperparameters=values | {"dispersion": bounded})


def dispersion_beside_directions(data: Dense) -> Array:
    """The dispersion () float of the residuals of counts after their singular vectors above noise.

    Of counts with one mean it is their dispersion. Features have singular vectors, which leave
    little.
    """
    cells, mean = _observed_cells(data)
    _, values, _, noise = directions_above_noise(jax.random.key(0), cells, data.observed)
    squares = jnp.maximum(jnp.sum(values**2) / cells.size, mean**2)
    return jnp.maximum(noise**2 - mean, 0) / jnp.where(squares > 0, squares, 1)


def _observed_cells(data: Dense) -> tuple[Array, Array]:
    """The cells (N, D), missing ones 0, and the mean of the others, () float."""
    cells = data.values if data.observed is None else jnp.where(data.observed, data.values, 0)
    share = 1.0 if data.observed is None else jnp.mean(data.observed, dtype=cells.dtype)
    return cells, jnp.mean(cells) / share


def power_at(likelihood: CountCells, data: Dense, progress: Array) -> Array:
    """The power () float of the likelihood of counts at a step of the warm-up.

    Large counts show far more than one feature at a time: weak features would come in dozens, and
    stay. So the power starts where the first singular vectors of the data begin to stand out from
    noise, as counts of about one do.
    """
    hidden = leading_direction(data.values, data.observed).noise_scale
    _, mean = _observed_cells(data)
    variance = likelihood.variance(mean - likelihood.base_rate)
    start = jnp.where(hidden > 0, variance / jnp.where(hidden > 0, hidden, 1) ** 2, 1)
    return annealed_factor(progress, jnp.clip(start, jnp.finfo(mean.dtype).eps, 1))


def powered_step(
    plan: FeatureModelPlan,
    model: FeatureModelSpec,
    key: Key,
    state: FeatureState,
    data: Dense,
    power: Array,
) -> tuple[FeatureState, Info]:
    """The step with the likelihood to a power, for the hyperparameters too."""
    annealed = Annealed(power)
    state, info = _update_features(plan, model, key, state, data, annealed)
    hyper_key = jax.random.fold_in(key, _HYPERPARAMETERS)
    state, _ = update_hyperparameters(model, hyper_key, state, data, annealed=annealed)
    return state, info


def _update_features(
    plan: FeatureModelPlan,
    model: FeatureModelSpec,
    key: Key,
    state: FeatureState,
    data: Dense,
    annealed: Annealed,
) -> tuple[FeatureState, Info]:
    row_key = jax.random.fold_in(key, _ROWS)
    state, info = update_rows(model, row_key, state, data, annealed=annealed, sweep=plan.sweep)
    values_key = jax.random.fold_in(key, _VALUES)

    def move(index: Array, y: Array) -> Array:
        move_key = jax.random.fold_in(values_key, index)
        moved = state._replace(y=y)
        return update_values(model, move_key, moved, data, annealed=annealed)[0].y

    # a loop, of which one turn is compiled, rather than all turns in a row
    return state._replace(y=jax.lax.fori_loop(0, plan.num_value_moves, move, state.y)), info


def draw_from_prior(
    plan: FeatureModelPlan,
    model: FeatureModelSpec,
    key: Key,
    data: Dense,
    sizes: dict[str, int] | None,
) -> tuple[FeatureState, dict[str, Array]]:
    """A state from the prior, for `jaxmf.smc`."""
    num_slots = plan.num_slots if sizes is None else sizes["features"]
    draw, overflow = model.simulate_features(key, data.num_rows, num_slots - model.first_slot())
    return state_of(model, draw), {"features": overflow}


def state_of(model: FeatureModelSpec, draw: Draw) -> FeatureState:
    """The state of a chain at a draw from the prior."""
    values = {name: draw[name] for name in model.hyperparameters}
    return FeatureState(draw["z"], model.filled(draw["z"], draw["y"]), values)


def measure(model: FeatureModelSpec, state: FeatureState, data: Dense) -> Array:
    """log p(observed X | Z, Y), () float."""
    fixed = model.at_values(state.hyperparameters)
    rows = jax.vmap(fixed.row_log_likelihood, in_axes=(0, 0, 0, None))
    return jnp.sum(rows(data.values, data.observed, state.z, state.y))


def record(model: FeatureModelSpec, key: Key, state: FeatureState, data: Dense) -> Draw:
    """Arrays of a draw; zeros in slots without a feature, as in slots that another chain added."""
    del key
    draw = {"z": state.z, "y": state.y, **state.hyperparameters}
    exists = model.exists_in(state.z)
    return draw | {
        "y": explicit_rows.where_slots(exists, state.y, jnp.zeros_like(state.y)),
        "num_features": num_features(state.z[:, model.first_slot() :]),
        "log_joint": model.log_joint(draw, data),
    }


def grow(model: FeatureModelSpec, state: FeatureState, sizes: dict[str, int]) -> FeatureState:
    """The state with more slots for features."""
    size, present = sizes["features"], state.z.shape[1]
    more = jnp.concatenate([state.y, model.filling(size - present)])
    return state._replace(z=slots.pad_axis(state.z, 1, size), y=more)


def shared(model: FeatureModelSpec) -> dict[str, Callable[..., PyTree]]:
    """Functions of a state that a chain and `jaxmf.smc` share."""
    return {
        "record": Partial(record, model),
        "grow": Partial(grow, model),
        "capacity": capacity,
        "limit": limit,
    }


def limit(data: Dense) -> dict[str, Limit]:
    """How many slots for features there may be."""
    return {"features": features_limit(data.num_rows)}


class Annealed(NamedTuple):
    """How a step of an annealed start weakens a model, see `FeatureModel.tempered`."""

    power: Array | float = 1.0  # () float, of the likelihood
    weight: Array | None = None  # () float, of Y, or None for Y as it is


WHOLE = Annealed()  # the model as it is


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
    kernels = [explicit_rows.update_bits_and_new, explicit_rows.birth_or_death]
    if sweep == "particle_gibbs":
        kernels.append(explicit_rows.update_bits_together)
    z, y, overflow = explicit_rows.sweep_rows(
        key, fixed, state.z, state.y, data, update_row=kernels
    )
    state = state._replace(z=z, y=model.filled(z, y))
    return state, Info(overflow={"features": overflow})


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

    def cells(y: Array) -> Array:
        over_rows = jax.vmap(fixed.cell_log_likelihood, in_axes=(0, 0, 0, None))
        return over_rows(data.values, data.observed, z, y)

    is_by_column = model.columns_are_separate and model.row_shape == (data.num_columns,)
    values = Values(
        by_column=(lambda y: jnp.sum(cells(y), axis=0)) if is_by_column else None,
        total=lambda y: jnp.sum(cells(y)),
    )
    y = feature_values.update_values(
        jax.random.fold_in(key, 0), state.y, fixed.exists_in(z), values, prior=fixed.feature_prior
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
    counts = jnp.sum(state.z[:, model.first_slot() :], axis=0, dtype=jnp.result_type(float))
    if isinstance(model.prior, IndianBuffet | BetaBernoulli):
        values["alpha"], values["concentration"] = update_feature_prior(
            jax.random.fold_in(key, 0),
            feature_model_spec.prior_at(model.prior, values),
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
