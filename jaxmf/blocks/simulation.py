"""Draws from a network's prior."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxmf.blocks.counts import part_of, slot_sizes, statistics_of_block
from jaxmf.blocks.sequential_prior import assign_all
from jaxmf.blocks.sets import items_of_sets
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.unobserved import draw_all, holders, num_hidden
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.data.container import bare
from jaxmf.likelihoods.families.family import Family
from jaxmf.types import Array, Key, PyTree


def simulate(
    network: Wiring, key: Key, data: Tokens, *, capacity: int | None = None
) -> tuple[NetworkState, Tokens]:
    """See `Network.simulate`."""
    network = network.at(data)
    num_tokens = data.num_tokens
    num_items = num_tokens
    for name in holders(network):
        num_batches = network.parts(name, data.sizes).num_parts
        num_items += int(num_hidden(network, name, num_batches).sum())
    slots = {
        name: network.distributions[name].num_groups(capacity or num_items)
        for name in network.indicators
    }
    sizes = network.sizes(data, slots)
    for name in network.observed:
        sizes[name] = _size(network, name)
    values: dict[str, Array] = {**data.columns, **data.values}
    hyperparameters: dict[str, dict[str, Array]] = {}
    occupied: dict[str, Array] = {}
    for index, name in enumerate(network.order):
        distribution = network.distributions[name]
        parts = network.parts(name, sizes)
        hyperparameters_key, values_key = jax.random.split(jax.random.fold_in(key, index))
        groups = part_of(parts, values, num_tokens)
        if name in slots:
            hyperparameters[name] = distribution.simulate_hyperparameters(
                hyperparameters_key, slots[name]
            )
            first = None
            if network.blocks[name].per:
                _, _, first = items_of_sets(network, name, values, sizes, num_tokens)
            shape = (parts.num_parts, slots[name])
            if distribution.sequential:
                groups_and_counts = assign_all(
                    values_key, distribution, hyperparameters[name], groups, shape, first=first
                )
            else:
                groups_and_counts = draw_all(network, name, values_key, groups, first, data, shape)
            values[name], hyperparameters[name], counts = groups_and_counts
            if distribution.grows:
                occupied[name] = jnp.any(counts > 0, axis=0)
        else:
            hyperparameters[name] = distribution.simulate_hyperparameters(hyperparameters_key)
            nothing = distribution.empty(parts.num_parts)
            drawn = _observed(values_key, distribution, hyperparameters[name], groups, nothing)
            values[name] = _missing_as(data, name, distribution, drawn)
    state = NetworkState(
        {name: values[name] for name in network.indicators}, hyperparameters, occupied
    )
    return state, _tokens(network, data, values, sizes)


def simulate_more(
    network: Wiring, key: Key, state: NetworkState, data: Tokens
) -> tuple[NetworkState, Tokens, dict[str, Array]]:
    """See `SimulatesMore`: every token once more, in the same documents, given all of a state."""
    blocks, num_tokens = network.blocks, data.num_tokens
    other = [
        name
        for name in network.indicators
        if blocks[name].per or not blocks[name].distribution.sequential
    ]
    if other:
        raise ValueError(
            f"{other[0]}: indicators of sets, and those of flexible priors, are not drawn for more "
            "tokens"
        )
    slots = slot_sizes(state, network)
    sizes = network.sizes(data, slots)
    values: dict[str, Array] = {**data.columns, **data.values}
    hyperparameters, occupied = dict(state.hyperparameters), dict(state.slots)
    for index, name in enumerate(network.order):
        distribution, parts = blocks[name].distribution, network.parts(name, sizes)
        name_key = jax.random.fold_in(key, index)
        groups = part_of(parts, values, num_tokens)
        earlier = statistics_of_block(network, name, parts, state, data)
        if name in slots:
            shape = parts.num_parts, slots[name]
            values[name], hyperparameters[name], counts = assign_all(
                name_key, distribution, hyperparameters[name], groups, shape, counts=earlier
            )
            if name in occupied:
                occupied[name] = jnp.any(counts > 0, axis=0)
        else:
            drawn = _observed(name_key, distribution, hyperparameters[name], groups, earlier)
            values[name] = _missing_as(data, name, distribution, drawn)
    both = {**data.columns, **data.values, **state.values}
    both = {name: jnp.concatenate([both[name], values[name]]) for name in both}
    state = NetworkState({name: both[name] for name in state.values}, hyperparameters, occupied)
    # one that is full may have been full before all tokens were there
    overflow = {name: jnp.all(used) for name, used in occupied.items()}
    columns, real = ({name: both[name] for name in each} for each in (data.columns, data.values))
    return state, bare(Tokens, columns=columns, sizes=data.sizes, values=real, names={}), overflow


def _size(network: Wiring, name: str) -> int:
    distribution = network.distributions[name]
    size: int | None = 1 if distribution.is_log else getattr(distribution, "size", 1)
    if size is None:
        family = type(network.distributions[name]).__name__
        raise ValueError(
            f"{name}: how many values its {family} has is not known, since the tokens have no "
            f"such column; write {family}(size), or pass tokens with a column {name!r}"
        )
    return size


def _observed(
    key: Key,
    distribution: Family,
    hyperparameters: dict[str, Array],
    groups: Array,
    statistics: PyTree,
) -> Array:
    """Parameters of every part given statistics of earlier values, and values given them."""
    parameters_key, values_key = jax.random.split(key)
    parameters = distribution.sample_parameters(parameters_key, statistics, hyperparameters)
    return distribution.sample(values_key, parameters, groups)


def _missing_as(data: Tokens, name: str, distribution: Family, drawn: Array) -> Array:
    """Drawn values, missing where those of the tokens are."""
    if not distribution.takes_missing or name not in data.values:
        return drawn
    return jnp.where(jnp.isnan(data.values[name]), jnp.nan, drawn)


def _tokens(
    network: Wiring, data: Tokens, values: dict[str, Array], sizes: dict[str, int]
) -> Tokens:
    """The tokens with the simulated columns; values are of a trace and go in unchecked."""
    columns, real = dict(data.columns), dict(data.values)
    for name in network.observed:
        container, other = (
            (real, columns) if network.distributions[name].is_log else (columns, real)
        )
        container[name] = values[name]
        other.pop(name, None)
    kept = {name: sizes[name] for name in columns}
    return bare(Tokens, columns=columns, sizes=kept, values=real, names={})
