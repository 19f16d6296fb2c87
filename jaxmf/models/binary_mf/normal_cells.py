"""Counts as cells with normal noise, by which the annealed warm-up of `BinaryMF` moves U and V.

Of normal cells W is summed out, so that no weights hold features where they are, and two features
can be drawn in another basis. Counts less the base rate have the mean U W V' as they are; here they
get one variance for all, and weights a normal prior with the moments of theirs.

Where the number of features is open this is not done: noise of large counts, which is more than
that of normal cells, would begin features without end.

A start needs to be good, not exact: sweeps after the annealing see the counts themselves.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxmf.data import Dense
from jaxmf.data.container import unchecked
from jaxmf.devices import default_platform
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.likelihoods.cells.poisson import Poisson
from jaxmf.models.binary_mf.binary_mf_spec import BinaryMFSpec
from jaxmf.models.binary_mf.choice import MOST_WORK, step_work
from jaxmf.models.binary_mf.state import BinaryMFState, entries
from jaxmf.models.binary_mf.updates import update_weights
from jaxmf.priors.features import BetaBernoulli
from jaxmf.types import Array, Key

# Of the root of the mean count. With the whole of it features of small counts are lost among the
# noise of large ones, and chains end farther from the mode.
_SHARE_OF_NOISE = 0.6
_LEAST_WEIGHT = 1e-2  # in prior means, where the normal one is below


def is_used(model: BinaryMFSpec, data: Dense) -> bool:
    """Whether the warm-up of a model does this, on the device that its step is traced for.

    Row by row takes accelerators too long, and large data anywhere.
    """
    if default_platform() != "cpu" or step_work(model, data) > MOST_WORK:
        return False
    is_finite = all(isinstance(p, BetaBernoulli) for p in (model.row_prior, model.column_prior))
    is_of_counts = isinstance(model.likelihood, Poisson) and not model.diagonal
    return is_of_counts and is_finite


def noise_scale(data: Dense) -> Array:
    """() float, one standard deviation for all counts."""
    x = data.values
    seen = jnp.ones(x.shape, bool) if data.observed is None else data.observed
    mean = jnp.sum(jnp.where(seen, x, 0)) / jnp.maximum(jnp.sum(seen), 1)
    return jnp.where(mean > 0, _SHARE_OF_NOISE * jnp.sqrt(mean), 1)


def cells(key: Key, state: BinaryMFState, data: Dense, *, noise_factor: Array | float) -> Array:
    """Counts less the base rate (I, J); missing ones are drawn, with the noise times a factor."""
    y = data.values - state.base_rate
    if data.observed is None:
        return y
    eta = entries(state)
    noise = noise_scale(data) * noise_factor * jax.random.normal(key, eta.shape, eta.dtype)
    return jnp.where(data.observed, y, eta + noise)


def without_weights(
    model: BinaryMFSpec, state: BinaryMFState, data: Dense
) -> tuple[BinaryMFSpec, BinaryMFState]:
    """The model of normal cells, and the state as one of it, W summed out."""
    mean = state.weight_shape / state.weight_rate
    scale = jnp.sqrt(state.weight_shape) / state.weight_rate
    # settings are checked once; inside a transformation numbers cannot be looked at
    normal = unchecked(model, likelihood=Gaussian(1.0), weight_mean=mean)
    values = {"noise_scale": noise_scale(data), "weight_scale": scale}
    return normal, state._replace(weights=None, **values)


def with_weights(
    model: BinaryMFSpec, key: Key, state: BinaryMFState, moved: BinaryMFState, data: Dense, y: Array
) -> BinaryMFState:
    """The state with U and V of `moved`, and weights: drawn given normal cells, then given counts.

    Args: moved: a state without weights; y (I, J) float, the normal cells.
    """
    assert state.weights is not None
    normal, values = without_weights(model, state, data)
    values = values._replace(u=moved.u, v=moved.v, weights=jnp.zeros_like(state.weights))
    first_key, second_key = jax.random.split(key)
    drawn = update_weights(normal, first_key, values, Dense(y))[0].weights
    assert drawn is not None
    state = state._replace(u=moved.u, v=moved.v)
    positive = jnp.maximum(drawn, _LEAST_WEIGHT * normal.weight_mean)
    state = state._replace(weights=jnp.where(model.weight_exists(state), positive, 0))
    return update_weights(model, second_key, state, data)[0]
