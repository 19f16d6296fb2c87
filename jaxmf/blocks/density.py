"""The joint density of a network."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp

from jaxmf.blocks.counts import block_statistics
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.priors.hyper import log_prior
from jaxmf.types import Array


def log_joint(network: Wiring, state: NetworkState, data: Tokens) -> Array:
    """See `Network.log_joint`."""
    return log_joint_of(network, state, block_statistics(network, state, data))


def log_joint_of(
    network: Wiring, state: NetworkState, statistics_by_block: Mapping[str, object]
) -> Array:
    """The same, of statistics that are known."""
    total = jnp.zeros((), jnp.result_type(float))
    for name, statistics in statistics_by_block.items():
        distribution, hyperparameters = (
            network.blocks[name].distribution,
            state.hyperparameters[name],
        )
        if name in network.indicators:
            total += distribution.log_prob(statistics, hyperparameters)
        else:
            total += jnp.sum(distribution.log_marginal(statistics, hyperparameters))
        for hyperparameter in distribution.hyperparameters:
            log_priors = log_prior(
                getattr(distribution, hyperparameter), hyperparameters[hyperparameter]
            )
            total += jnp.sum(log_priors)
    return total
