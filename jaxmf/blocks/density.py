"""The joint density of a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import jax.numpy as jnp

from jaxmf.blocks.counts import (
    all_parts,
    all_values,
    block_statistics,
    large_blocks,
    part_of,
    slot_sizes,
)
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.priors.hyper import log_prior
from jaxmf.types import Array, PyTree


def log_joint(network: Wiring, state: NetworkState, data: Tokens) -> Array:
    """See `Network.log_joint`."""
    large = large_blocks(network, data, slot_sizes(state, network))
    statistics = block_statistics(network, state, data, without=large)
    return log_joint_of(network, state, data, statistics)


def log_joint_of(
    network: Wiring,
    state: NetworkState,
    data: Tokens,
    statistics: Mapping[str, PyTree],
    log_prob_of_items: Callable[[str], Array] | None = None,
) -> Array:
    """The same, where statistics of blocks are known; of the others no table is made.

    Args: log_prob_of_items: of such a block by its name, where the tokens are spread.
    """
    log_prob = log_prob_of_items or partial(_log_prob_of_items, network, state, data)
    total = jnp.zeros((), jnp.result_type(float))
    for name in network.order:
        distribution = network.distributions[name]
        hyperparameters = state.hyperparameters[name]
        if name not in statistics:
            total += log_prob(name)
        elif name in network.indicators:
            total += distribution.log_prob(statistics[name], hyperparameters)
        else:
            total += jnp.sum(distribution.log_marginal(statistics[name], hyperparameters))
        for hyperparameter in distribution.hyperparameters:
            log_priors = log_prior(
                getattr(distribution, hyperparameter), hyperparameters[hyperparameter]
            )
            total += jnp.sum(log_priors)
    return total


def _log_prob_of_items(network: Wiring, state: NetworkState, data: Tokens, name: str) -> Array:
    values, parts = all_values(state, data), all_parts(network, state, data)[name]
    batches = part_of(parts, values, data.num_tokens)
    sizes = jnp.zeros((parts.num_parts,), jnp.int32).at[batches].add(1)
    return network.distributions[name].log_prob_of_items(
        batches, values[name], sizes, state.hyperparameters[name]
    )
