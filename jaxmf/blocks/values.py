"""The distribution of real values of further tokens: a mixture of those of the groups.

Given a draw, p(x) = sum_g w_g p(x | values of group g), with the weights of eq 6.8 to 6.11 and
Student's t distributions (of normal families) in place of categories. Its density and draws from
it; its mean and variance are those of `prediction.predict_moments`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from jaxmf._kernels.tables import Lanes
from jaxmf.blocks.prediction import (
    Draw,
    ancestors,
    by_parents,
    family_statistics,
    hyperparameters_of,
    indicator_terms,
    one_axis_a_parent,
    probabilities,
    sizes_of,
)
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.likelihoods.families.family import Family, Hyperparameters
from jaxmf.types import Array, Key, PyTree

_BATCH = 256


def log_density(
    network: Wiring,
    draw: Draw,
    name: str,
    data: Tokens,
    columns: Mapping[str, Array],
    values: Array,
) -> Array:
    """Log density of values of an observed block of real values: (T,) float.

    Args: columns: the columns of the tokens that are no blocks, (T,) int32 each; values (T,), or
    (T, D) of a family of vectors.
    """
    distribution = network.distributions[name]
    hyperparameters = hyperparameters_of(network, draw, name)
    cache = distribution.begin(family_statistics(network, draw, name)[0], hyperparameters)
    fixed = {block: probabilities(network, draw, block) for block in ancestors(network, name)}
    latent = [parent for parent in network.blocks[name].by if parent in fixed]

    def log_density_of_token(token: tuple[dict[str, Array], Array]) -> Array:
        columns_of_token = {column: index[None] for column, index in token[0].items()}
        operands, terms, letters = indicator_terms(
            network, draw, name, data, columns_of_token, fixed
        )
        result = "".join(letters[parent] for parent in latent)
        batch = "T" if any(term.startswith("T") for term in terms) else ""
        weights = jnp.einsum(f"{','.join(terms)}->{batch}{result}", *operands)
        parts, _ = by_parents(
            network, name, _parts(network, draw, name, data), columns_of_token, letters
        )
        return log_mixture(distribution, cache, parts.ravel(), weights.ravel(), token[1])

    return jax.lax.map(log_density_of_token, (dict(columns), values), batch_size=_BATCH)


def log_mixture(
    distribution: Family, cache: PyTree, parts: Array, weights: Array, value: Array
) -> Array:
    """log sum of weights (L,) times the predictive densities of parts (L,) at a value: ()."""
    densities = distribution.predictive(
        cache, Lanes(jnp.zeros((), jnp.int32), 1, parts.size, parts), value
    )
    return jax.nn.logsumexp(jnp.log(weights) + densities)


def draw_values(
    network: Wiring,
    key: Key,
    draw: Draw,
    name: str,
    data: Tokens,
    columns: Mapping[str, Array],
) -> Array:
    """One draw of an observed block of real values for every token: (T,), or (T, D) of vectors.

    Indicators are drawn one after the other, then parameters of the group and the value.

    Args: network, draw, name, data, columns: as in `log_density`.
    """
    sizes = sizes_of(network, draw, name, data)
    length = next(iter(columns.values())).shape[0]
    values = dict(columns)
    value_key, *keys = jax.random.split(key, 1 + len(network.indicators))
    for index_key, block in zip(keys, ancestors(network, name), strict=False):
        table = one_axis_a_parent(network, block, probabilities(network, draw, block), sizes)
        shares = table[tuple(values[parent] for parent in network.blocks[block].by)]
        values[block] = draw_indices(
            index_key, jnp.broadcast_to(shares, (length, shares.shape[-1]))
        )
    parents = tuple(values[parent] for parent in network.blocks[name].by)
    parts = _parts(network, draw, name, data)[..., 0][parents]
    statistics = family_statistics(network, draw, name)[0]
    hyperparameters = hyperparameters_of(network, draw, name)
    return draw_in_parts(network.distributions[name], value_key, statistics, hyperparameters, parts)


def draw_indices(key: Key, shares: Array) -> Array:
    """An index drawn from each row of probabilities (T, K): (T,) int32."""
    ends = jnp.cumsum(shares, axis=-1)
    uniforms = jax.random.uniform(key, shares.shape[:1], shares.dtype) * ends[:, -1]
    return jnp.minimum(jnp.sum(ends <= uniforms[:, None], axis=1), shares.shape[1] - 1)


def draw_in_parts(
    distribution: Family,
    key: Key,
    statistics: PyTree,
    hyperparameters: Hyperparameters,
    parts: Array,
) -> Array:
    """A value from the predictive distribution of each part (T,), parameters drawn anew."""
    parameters_key, value_key = jax.random.split(key)
    statistics_of_parts = jax.tree.map(lambda leaf: leaf[parts], statistics)
    parameters = distribution.sample_parameters(
        parameters_key, statistics_of_parts, hyperparameters
    )
    return distribution.sample(value_key, parameters, jnp.arange(parts.shape[0]))


def _parts(network: Wiring, draw: Draw, name: str, data: Tokens) -> Array:
    """The part of every combination of parents: (*parents, 1) int32."""
    parts = network.parts(name, sizes_of(network, draw, name, data))
    num_combinations = math.prod(parts.sizes)
    table = (
        jnp.arange(num_combinations, dtype=jnp.int32)
        if parts.table is None
        else jnp.asarray(parts.table)
    )
    return table.reshape(*parts.sizes, 1)
