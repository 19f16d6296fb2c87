"""Items of a flexible prior that no data belong to: unobserved ones, and empty tables.

Of M unobserved items of a batch only how many are in each group is kept, as one is like another;
each is drawn from the prior given all the rest (structured marginalisation: the sum over what they
do is the chain's). In a franchise every customer has a representative, N in all; those of empty
tables are such items too, and have dishes like those at tables (Figure 7.4).

Source: Porteous (2010), sections 7 and 7.4.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf._kernels import tables
from jaxmf._kernels.fusion import fused_on_cpu
from jaxmf._kernels.tables import count_pairs
from jaxmf.blocks.counts import all_values, slot_sizes, statistics_of_block
from jaxmf.blocks.sequential_prior import batch_of
from jaxmf.blocks.sets import items_of_sets
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.engine import Info, merge_overflow
from jaxmf.priors.flexible import FlexiblePrior
from jaxmf.types import Array, Key, PyTree

_SHARE = 4  # a sweep draws one in this many of the representatives


def holders(network: Wiring) -> tuple[str, ...]:
    """The indicators with items that no data belong to."""
    return tuple(
        name
        for name in network.indicators
        if isinstance(network.distributions[name], FlexiblePrior)
        and (network.distributions[name].num_unobserved is not None or has_tables(network, name))
    )


def has_tables(network: Wiring, name: str) -> bool:
    """Whether an indicator is the dish of tables, whose representatives may have none."""
    return name in network.tables.values()


def num_hidden(network: Wiring, name: str, num_batches: int) -> np.ndarray:
    """(G,) int: unobserved items of every batch, as they were declared.

    Raises ValueError: not as many values as batches.
    """
    distribution = network.distributions[name]
    num_unobserved = getattr(distribution, "num_unobserved", None)
    if num_unobserved is None:
        return np.zeros(num_batches, np.int64)
    if np.ndim(num_unobserved) and len(num_unobserved) != num_batches:
        raise ValueError(
            f"{name}: num_unobserved has {len(num_unobserved)} values, and there are {num_batches} "
            "batches; give one for each, or one for all"
        )
    return np.broadcast_to(np.asarray(num_unobserved, np.int64), (num_batches,))


def check_coverage(network: Wiring, data: Tokens) -> None:
    """Refuses more items in a batch than the weights of a flexible prior cover.

    Raises ValueError: naming the indicator and the largest batch.
    """
    for name in network.indicators:
        distribution = network.distributions[name]
        if not isinstance(distribution, FlexiblePrior):
            continue
        parts = network.parts(name, data.sizes)
        values: Any = {
            parent: np.asarray(data.columns[parent]) for parent in network.blocks[name].by
        }
        batches = np.broadcast_to(np.asarray(parts.flat(values)), (data.num_tokens,))
        if parts.table is not None:
            batches = parts.table[batches]
        if network.blocks[name].per and not has_tables(network, name):
            sources = network.blocks[name].per
            sets = np.stack([np.asarray(data.columns[parent]) for parent in sources])
            batches = batches[np.unique(sets, axis=1, return_index=True)[1]]
        sizes = np.bincount(batches, minlength=parts.num_parts) + num_hidden(
            network, name, parts.num_parts
        )
        if has_tables(network, name):
            sizes = sizes + num_representatives(network, name, data) - data.num_tokens
        if sizes.max() > distribution.num_items:
            raise ValueError(
                f"{name}: log_weights covers groups of 1 to {distribution.num_items} items, "
                "and a batch has "
                f"{sizes.max()} (with those unobserved); give a weight for every size up to that"
            )


def num_representatives(network: Wiring, name: str, data: Tokens) -> int:
    """One for every customer of the tables that have these dishes, unobserved ones too."""
    (table,) = (source for source, dish in network.tables.items() if dish == name)
    parts = network.parts(table, data.sizes)
    return data.num_tokens + int(num_hidden(network, table, parts.num_parts).sum())


class _Hidden(NamedTuple):
    """The items of one indicator that no data belong to."""

    batches: Array  # (M,) int32, of as many as there may be
    waiting: Array  # (M,) bool, which of them are there before any was moved


def _hidden(network: Wiring, name: str, state: NetworkState, data: Tokens) -> _Hidden:
    values, slots = all_values(state, data), slot_sizes(state, network)
    sizes = network.sizes(data, slots)
    if has_tables(network, name):
        num_items = num_representatives(network, name, data)
        _, _, first = items_of_sets(network, name, values, sizes, data.num_tokens)
        is_first_of_set = first == jnp.arange(data.num_tokens)
        waiting = jnp.ones((num_items,), bool).at[: data.num_tokens].set(~is_first_of_set)
        return _Hidden(jnp.zeros((num_items,), jnp.int32), waiting)
    parts = network.parts(name, sizes)
    counts = num_hidden(network, name, parts.num_parts)
    batches = np.repeat(np.arange(parts.num_parts, dtype=np.int32), counts)
    return _Hidden(jnp.asarray(batches), jnp.ones(batches.shape, bool))


def start_unobserved(network: Wiring, key: Key, state: NetworkState, data: Tokens) -> NetworkState:
    """The state with all such items assigned, one after the other, given the others."""
    for index, name in enumerate(holders(network)):
        index_key = jax.random.fold_in(key, index)
        hidden = _hidden(network, name, state, data)
        shape = network.parts(name, data.sizes).num_parts, slot_sizes(state, network)[name]
        hyperparameters = state.hyperparameters | {
            name: {"unobserved": jnp.zeros(shape, jnp.int32)}
        }
        state = state._replace(hyperparameters=hyperparameters)
        state, _ = _moved(network, name, index_key, state, data, hidden, is_first=True)
    return state


def sweep_unobserved(
    network: Wiring, key: Key, state: NetworkState, data: Tokens
) -> tuple[NetworkState, Info]:
    """Kernel: items without data, each draw of one taken at random.

    As many draws as there are unobserved items, and a quarter as many as representatives.

    Returns the state after, and overflow.
    """
    overflow: dict[str, Array] = {}
    for index, name in enumerate(holders(network)):
        index_key = jax.random.fold_in(key, index)
        hidden = _hidden(network, name, state, data)
        if has_tables(network, name):
            # one is like another, and a part of many leaves the time to the tokens
            num_moved = -(-hidden.batches.shape[0] // _SHARE)
            hidden = _Hidden(hidden.batches[:num_moved], hidden.waiting[:num_moved])
        state, no_room = _moved(network, name, index_key, state, data, hidden, is_first=False)
        overflow = merge_overflow(overflow, {name: no_room})
    return state, Info(overflow=overflow)


def _moved(
    network: Wiring,
    name: str,
    key: Key,
    state: NetworkState,
    data: Tokens,
    hidden: _Hidden,
    *,
    is_first: bool,
) -> tuple[NetworkState, Array]:
    distribution = network.distributions[name]
    parts = network.parts(name, network.sizes(data, slot_sizes(state, network)))
    counts = statistics_of_block(network, name, parts, state, data)
    cache = distribution.begin(counts, state.hyperparameters[name], with_sizes=False)
    uniforms = jax.random.uniform(key, (hidden.batches.shape[0], 2), jnp.result_type(float))
    compiled = _Loop(distribution).loop
    loop = fused_on_cpu(compiled, sequential=True) if distribution.fuses else compiled
    # what is not read must not be there: see `fused_on_cpu`
    batches = hidden.batches if parts.num_parts > 1 else None
    cache, no_room = loop(cache, batches, hidden.waiting if is_first else None, uniforms)
    _, hyperparameters = distribution.end(cache)
    return state._replace(hyperparameters=state.hyperparameters | {name: hyperparameters}), no_room


class _Loop(NamedTuple):
    distribution: Any

    def loop(
        self, cache: PyTree, batches: Array | None, waiting: Array | None, uniforms: Array
    ) -> PyTree:
        distribution = self.distribution

        def one(index: Array, carry: PyTree) -> PyTree:
            cache, no_room = carry
            batch, chance = batch_of(batches, index), tables.row(uniforms, index)
            if waiting is not None:
                moves = tables.row(waiting, index)
            else:
                held = tables.row(cache.unobserved, batch)
                # where the last one has found data there is none to move
                moves = jnp.sum(held) > 0
                group = tables.choose(jnp.where(moves, held, jnp.ones_like(held)), chance[0])
                cache = distribution.move_unobserved(cache, batch, group, -moves.astype(jnp.int32))
            weights, room = distribution.weights(cache, batch)
            group = tables.choose(weights, chance[1])
            cache = distribution.move_unobserved(cache, batch, group, moves.astype(jnp.int32))
            return cache, no_room | ~room

        return jax.lax.fori_loop(0, uniforms.shape[0], one, (cache, jnp.zeros((), bool)))


def draw_all(
    network: Wiring,
    name: str,
    key: Key,
    batches: Array,
    first: Array | None,
    data: Tokens,
    shape: tuple[int, int],
) -> tuple[Array, dict[str, Array], Array]:
    """Indicators of all tokens, and what else the state holds, exactly from the prior.

    Args:
        batches: (T,) int32.
        first: (T,) int32, of each token the first that shares its indicator; None for itself.
    Returns:
        The indicators (T,), the hyperparameters of the state, counts (G, K) of tokens or sets.
    """
    distribution, num_tokens = network.distributions[name], batches.shape[0]
    itself = jnp.arange(num_tokens, dtype=jnp.int32)
    first = itself if first is None else first
    is_item, others = first == itself, jnp.ones((0,), bool)
    batch_of_tokens = batches
    if has_tables(network, name):
        num_items = num_representatives(network, name, data) - num_tokens
        extra = np.zeros(num_items, np.int32)
        others = ~is_item
    else:
        batch_of_tokens = jnp.where(is_item, batches, shape[0])
        num_extra = num_hidden(network, name, shape[0])
        extra = np.repeat(np.arange(shape[0], dtype=np.int32), num_extra)
    groups = distribution.draw_groups(key, jnp.concatenate([batch_of_tokens, extra]), shape)
    values = groups[:num_tokens][first]
    counts = jnp.zeros(shape, jnp.int32).at[batches, values].add(is_item)
    if name not in holders(network):
        return values, {}, counts
    hidden = count_pairs(jnp.asarray(extra), groups[num_tokens:], shape)
    if others.size:
        hidden = hidden.at[batches, groups[:num_tokens]].add(others)
    return values, {"unobserved": hidden}, counts
