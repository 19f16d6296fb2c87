"""Where the chain of a network starts.

One indicator alone starts evenly at random over its groups; growing ones over many, more than are
expected to stay. From a handful of groups single tokens seldom leave for a new one, and the chain
stays near its start for hundreds of sweeps; of many the ones that are not needed empty soon. Where
several indicators meet in one block each token is drawn given those before it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from jaxmf._kernels import tables
from jaxmf.blocks import parallel, sequential
from jaxmf.blocks.sets import first_values_of_sets
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.subset import random_tokens, tokens_at
from jaxmf.blocks.tile_layout import opened
from jaxmf.blocks.unobserved import holders, start_unobserved
from jaxmf.data import Tokens
from jaxmf.likelihoods.families.multivariate_normal import NormalInverseWishart
from jaxmf.priors.hdp import HDP
from jaxmf.priors.partitions import DirichletProcess, PitmanYor
from jaxmf.types import Array, Key

if TYPE_CHECKING:
    from jaxmf.blocks.chain import NetworkPlan
    from jaxmf.blocks.network import Network
    from jaxmf.blocks.network_model import NetworkModel

_FIRST = 4096  # tokens that are drawn one after the other where a parallel chain starts
_LEAST_SLOTS = 32
_MOST_TOPICS = 400  # first groups of an HDP
_MOST_GROUPS = 100  # of a process whose groups are those of one batch
# Slots for each first group: the first sweeps open more than they empty. Where they are many a
# sweep takes as long as there are slots, and one that is short of them grows by half.
_ROOM = 2
_MANY_SLOTS = 256
_ROOM_OF_MANY = 1.25


def init(plan: NetworkPlan, model: NetworkModel, key: Key, data: object) -> NetworkState:
    """Hyperparameters at the means of their priors; tokens evenly at random, or sequentially.

    A single indicator of categories with a fixed number of groups starts evenly at random: topics
    of LDA then predict held-out words better for the first hundred sweeps (20 topics on KOS,
    60 sweeps: perplexity 1920 beside 2048), while several indicators would hold each other where
    they are. A single growing one starts evenly over `num_first_groups`.

    Elsewhere each token is drawn given those before it; before parallel sweeps only a few thousand
    of them, and all given these.
    """
    network, data = model.over(opened(data)[0])
    num_groups = num_first_groups(network, data, capacity=plan.num_slots)
    is_long = data.num_tokens > _FIRST
    if plan.sweep == "parallel" and is_long and num_groups is None:
        return _init_from_few(plan, network, key, data)
    if num_groups is None:
        return _init_sequentially(plan, network, key, data)
    return _init_evenly(plan, network, key, data, num_groups)


def num_first_groups(network: Network, data: Tokens, *, capacity: int | None = None) -> int | None:
    """How many groups the only indicator starts with evenly, or None where it starts otherwise.

    Half the square root of the number of tokens for an HDP, 400 at the most: after 100 sweeps of
    `HDPLDA` on 420,208 and on 33,289 tokens of KOS the perplexity of held-out words is within 2 %
    of that from twice as many groups, and below that from a third (1564 and 1659; 2000 where each
    token was drawn given those before it). The square root of the number of tokens of a batch for
    a Dirichlet or Pitman-Yor process, 100 at the most. Never more than values can tell apart: the
    levels of categories, or groups of two (D + 1) rows.

    Args:
        capacity: slots if the user has said so; half of them is left free.
    """
    if len(network.indicators) != 1:
        return None
    block = network.blocks[network.indicators[0]]
    families = [network.blocks[name].distribution for name in network.observed]
    if block.per:
        return None
    if not block.distribution.grows:
        is_real = any(family.is_log for family in families)
        return None if is_real else block.distribution.num_groups(1)
    if isinstance(block.distribution, HDP):
        num_groups = min(math.isqrt(data.num_tokens) // 2, _MOST_TOPICS)
    elif isinstance(block.distribution, DirichletProcess | PitmanYor):
        batches = network.parts(network.indicators[0], network.sizes(data, {})).num_parts
        num_groups = min(math.isqrt(data.num_tokens // batches), _MOST_GROUPS)
    else:
        return None
    num_groups = min([num_groups, *(_most_distinguishable(family, data) for family in families)])
    if capacity is not None:
        num_groups = min(num_groups, capacity // _ROOM)
    return max(num_groups, 1)


def _most_distinguishable(family: Any, data: Tokens) -> int:
    if not family.is_log:
        return family.size
    width = family.size if isinstance(family, NormalInverseWishart) else 1
    return data.num_tokens // (2 * (width + 1))


def _num_slots(plan: NetworkPlan, num_groups: int | None) -> int:
    """Slots of growing indicators: as asked for, or with room beside the first groups.

    Many are rounded up to whole vectors: a sweep of `HDPLDA` on KOS with 972 slots takes ten times
    as long as with 1,024.
    """
    if plan.num_slots is not None:
        return plan.num_slots if plan.num_slots <= _LEAST_SLOTS else tables.padded(plan.num_slots)
    num_groups = num_groups or 1
    num_slots = min(_ROOM * num_groups, max(_MANY_SLOTS, math.ceil(_ROOM_OF_MANY * num_groups)))
    return max(_LEAST_SLOTS, -(-num_slots // _LEAST_SLOTS) * _LEAST_SLOTS)


def _init_evenly(
    plan: NetworkPlan, network: Network, key: Key, data: Tokens, num_groups: int
) -> NetworkState:
    (name,) = network.indicators
    state = _nothing_known(network, data, _num_slots(plan, num_groups))
    even = jax.random.uniform(key, (data.num_tokens,), jnp.result_type(float)) * num_groups
    groups = jnp.minimum(even.astype(jnp.int32), num_groups - 1)
    state = state._replace(values={name: groups})
    if name not in state.slots:
        return state
    in_use = jnp.zeros_like(state.slots[name]).at[groups].set(True)
    hyperparameters = state.hyperparameters[name]
    if "weights" in hyperparameters:
        # their means where every group has one table
        base = hyperparameters["base_concentration"]
        weights = jnp.where(in_use, 1 / (base + num_groups), 0).astype(
            hyperparameters["weights"].dtype
        )
        hyperparameters = hyperparameters | {"weights": weights, "rest": 1 - jnp.sum(weights)}
    return state._replace(
        hyperparameters=state.hyperparameters | {name: hyperparameters}, slots={name: in_use}
    )


def _init_from_few(plan: NetworkPlan, network: Network, key: Key, data: Tokens) -> NetworkState:
    choice_key, few_key, all_key = jax.random.split(key, 3)
    chosen = tokens_at(data, random_tokens(choice_key, data.num_tokens, _FIRST))
    few = _init_sequentially(plan, network, few_key, chosen)
    values = {name: jnp.zeros((data.num_tokens,), jnp.int32) for name in network.indicators}
    state = few._replace(values=values)
    known: tuple[str, ...] = ()
    for index, names in enumerate(_starting_sets(plan, network)):
        index_key = jax.random.fold_in(all_key, index)
        few_and_tokens = (few, chosen)
        state = parallel.first_sweep(network, names, known, index_key, few_and_tokens, state, data)
        known = (*known, *names)
    hyperparameters, occupied = dict(state.hyperparameters), dict(state.slots)
    for name in occupied:
        in_use = jnp.zeros_like(occupied[name]).at[state.values[name]].set(True)
        occupied[name] = in_use
        if "weights" in hyperparameters[name]:
            weights = jnp.where(in_use, hyperparameters[name]["weights"], 0)
            left = jnp.sum(hyperparameters[name]["weights"]) - jnp.sum(weights)
            rest = hyperparameters[name]["rest"] + left
            hyperparameters[name] = hyperparameters[name] | {"weights": weights, "rest": rest}
    return NetworkState(state.values, hyperparameters, occupied)


def _nothing_known(network: Network, data: Tokens, num_slots: int) -> NetworkState:
    """Hyperparameters at the means of their priors, indicators at zero and no group in use."""
    hyperparameters: dict[str, dict[str, Array]] = {}
    occupied: dict[str, Array] = {}
    values: dict[str, Array] = {}
    for name in network.order:
        distribution = network.blocks[name].distribution
        if network.blocks[name].observed:
            hyperparameters[name] = distribution.start()
            continue
        size = distribution.num_groups(num_slots)
        hyperparameters[name] = distribution.start(size)
        values[name] = jnp.zeros((data.num_tokens,), jnp.int32)
        if distribution.grows:
            occupied[name] = jnp.zeros((size,), bool)
    return NetworkState(values, hyperparameters, occupied)


def _init_sequentially(plan: NetworkPlan, network: Network, key: Key, data: Tokens) -> NetworkState:
    state = _nothing_known(network, data, _num_slots(plan, None))
    known: tuple[str, ...] = ()
    for names in _starting_sets(plan, network):
        index_key = jax.random.fold_in(key, network.indicators.index(names[0]))
        if network.blocks[names[0]].per:
            state = first_values_of_sets(network, names[0], index_key, state, data)
        else:
            state = sequential.first_sweep(network, names, known, index_key, state, data)
        known = (*known, *names)
    if holders(network):
        index_key = jax.random.fold_in(key, len(network.indicators))
        state = start_unobserved(network, index_key, state, data)
    return state


def _starting_sets(plan: NetworkPlan, network: Network) -> list[tuple[str, ...]]:
    """The sets of indicators in an order in which each can be drawn given those before it."""
    known: tuple[str, ...] = ()
    sets: list[tuple[str, ...]] = []
    for name in network.indicators:
        if name in known:
            continue
        chosen = next(names for names in plan.sets if name in names)
        above = {parent for member in chosen for parent in network.blocks[member].by}
        # an indicator between those of a set must come before the last of them
        waiting = {*network.indicators} - {*known}
        is_open = waiting.issuperset(chosen) and above.isdisjoint(waiting - {*chosen})
        names = chosen if is_open else (name,)
        sets.append(names)
        known = (*known, *names)
    return sets
