"""Variables over sets of tokens: `Block(..., per=...)`, such as the dish of a table.

All tokens of a set, which is a combination of values of the variables in `per`, have one value v.
Two sweeps are for them:

- *tokens* (here; eq 5.5 with the dishes of new tables summed out): a token chooses a table u of its
  batch; at a table of others it has the dish v of that table; at a new one any dish, drawn from
  the prior of dishes times the predictive distribution of its values: p(u = new) ~ alpha sum_v p(v)
    f_v(x).
- *sets* (`whole_sets.py`): all tokens of a set leave together, and the set chooses a dish with the
  prior of dishes times the ratio of log marginals f_v(tokens of the set | others with dish v).

With a Dirichlet process a document for tables and one for dishes this is the Chinese restaurant
franchise, another form of the hierarchical Dirichlet process.

Source: Teh, Jordan, Beal & Blei (2006), section 5.1; Porteous (2010), sections 2.4 and 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxmf._kernels import special, tables
from jaxmf._kernels.fusion import fused_on_cpu
from jaxmf.blocks.counts import (
    all_values,
    first_of_sets,
    part_of,
    set_parts,
    slot_sizes,
    statistics_of,
    statistics_of_block,
)
from jaxmf.blocks.roles import Below, below, look_up_of, statistics_of_roles
from jaxmf.blocks.sequential_prior import assign_all, batch_of
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.wiring import BlockParts, Wiring
from jaxmf.data import Tokens
from jaxmf.engine import Info
from jaxmf.priors.partition_prior import PartitionPrior
from jaxmf.types import Array, Key, PyTree


class Problem(NamedTuple):
    """The arrays that both sweeps work on."""

    distribution: Any  # the prior of the dishes
    below: Below  # the blocks that they partition
    columns: dict[str, Array]  # name -> (T,) or (T, D), all that these need
    look_up: dict[str, Array]  # the parts of those that have a function of their parents
    # (T,) int32, the batch of dishes that a token's set is in; None where there is one only, see
    # `batch_of`
    batches: Array | None
    sets: Array  # (T,) int32
    cache: Any  # of dishes, a customer a set
    caches: dict[str, PyTree]  # block -> what a sweep works on


def problem_of(
    network: Wiring, dish: str, distribution: PartitionPrior, state: NetworkState, data: Tokens
) -> Problem:
    """The problem of the dishes of a network, with a prior for them."""
    values, slots = all_values(state, data), slot_sizes(state, network)
    sizes = network.sizes(data, slots)
    partitioned = below(network, dish, sizes)
    statistics = statistics_of_roles(partitioned.roles, values, slots)
    caches = {
        role.name: role.distribution.begin(statistics[role.name], state.hyperparameters[role.name])
        for role in partitioned.roles
    }
    parts, parts_of_sets = network.parts(dish, sizes), set_parts(network, dish, sizes)
    counts = statistics_of_block(network, dish, parts, state, data)
    return Problem(
        distribution=distribution,
        below=partitioned,
        columns={name: values[name] for name in partitioned.columns},
        look_up=look_up_of(partitioned.roles),
        batches=part_of(parts, values, data.num_tokens) if parts.num_parts > 1 else None,
        sets=part_of(parts_of_sets, values, data.num_tokens),
        cache=distribution.begin(counts, state.hyperparameters[dish], with_sizes=False),
        caches=caches,
    )


def ended(
    dish: str,
    distribution: PartitionPrior,
    state: NetworkState,
    cache: PyTree,
    values: dict[str, Array],
) -> NetworkState:
    """The state with what a sweep leaves of the dishes."""
    counts, hyperparameters = distribution.end(cache)
    slots = dict(state.slots)
    if distribution.grows:
        slots[dish] = jnp.any(counts > 0, axis=0)
    return NetworkState(
        state.values | values, state.hyperparameters | {dish: hyperparameters}, slots
    )


# --- tokens choose tables -------------------------------------------------------------------------


def sweep_tokens(
    network: Wiring, table: str, dish: str, key: Key, state: NetworkState, data: Tokens
) -> tuple[NetworkState, Info]:
    """Kernel: the table of every token, one after the other, with dishes of new tables summed out.

    Args: table: the indicator that the sets are made of.
    Returns the state after, and overflow of both.
    """
    problem = problem_of(
        network, dish, network.blocks[dish].distribution.prior_of_new_tables(), state, data
    )
    values, slots = all_values(state, data), slot_sizes(state, network)
    distribution, width = network.blocks[table].distribution, slots[table]
    parts = network.parts(table, network.sizes(data, slots))
    batches = part_of(parts, values, data.num_tokens)
    counts = statistics_of(table, distribution, parts, values, width)
    cache = distribution.begin(counts, state.hyperparameters[table], with_sizes=False)
    # which dish each table of a batch has
    eaten = (
        jnp.zeros((parts.num_parts, width), jnp.int32).at[batches, values[table]].set(values[dish])
    )
    uniforms = special.uniforms(key, (data.num_tokens, 4))
    compiled = _TokenLoop(problem.distribution, problem.below, distribution)
    fuses = distribution.fuses and problem.distribution.fuses
    loop = fused_on_cpu(compiled.loop, sequential=True) if fuses else compiled.loop
    drawn, cache, dish_cache, no_table, no_dish = loop(
        problem.columns,
        problem.look_up,
        (values[table], batches, problem.batches),
        (cache, problem.cache, eaten, problem.caches),
        uniforms,
    )
    state = ended(dish, problem.distribution, state, dish_cache, {table: drawn[0], dish: drawn[1]})
    state = ended(table, distribution, state, cache, {})
    overflow = {}
    for name, no_room in ((table, no_table), (dish, no_dish)):
        if network.blocks[name].distribution.grows:
            overflow[name] = no_room
    return state, Info(overflow=overflow)


class _Dishes(NamedTuple):
    """The dishes, and the probabilities of that of a new table, which seldom change."""

    cache: Any
    # () int32, the batch of dishes that the rest is of; -1 where dishes have changed since
    batch: Array
    shares: Array  # (K,) float, sum to one
    has_room: Array  # () bool, for a new dish


class _TokenLoop(NamedTuple):
    distribution: Any
    below: Below
    table_prior: Any

    def loop(
        self,
        columns: dict[str, Array],
        look_up: PyTree,
        now: PyTree,
        start: PyTree,
        uniforms: Array,
    ) -> PyTree:
        tables_now, batches, dish_batches = now
        cache, dish_cache, eaten, caches = start

        def one(index: Array, carry: PyTree) -> PyTree:
            drawn, cache, dishes, eaten, caches, kept, no_table, no_dish = carry
            token = token_at(columns, index)
            batch, dish_batch = tables.row(batches, index), batch_of(dish_batches, index)
            chance = tables.row(uniforms, index)
            table = tables.row(tables_now, index)
            dish = tables.entry(eaten, batch, table)
            caches = self.below.moved(caches, token, look_up, group=dish, amount=-1)
            cache = self.table_prior.unassign(cache, batch, table)
            is_gone = tables.entry(cache.counts, batch, table) == 0
            dishes = self._without(is_gone, dishes, dish_batch, dish)
            dishes = self._weighed_now(dishes, dish_batch)
            likely = self.below.likely(caches, token, look_up)
            new_dish_weights = dishes.shares * likely
            table_weights, room_table = self.table_prior.weights(cache, batch)
            taken = tables.row(cache.counts, batch) > 0
            # in a table, or the compiler computes it again for every table of the batch
            kept = tables.put(kept, jnp.zeros((), jnp.int32), tables.to_power_of_two(likely))
            there = tables.entries_at(kept[0], tables.row(eaten, batch))
            weights = table_weights * jnp.where(taken, there, tables.total(new_dish_weights))
            table = tables.choose(weights, chance[0])
            # changed first, then read, or the table is copied for every token
            cache = self.table_prior.assign(cache, batch, table, chance[3])
            is_new = tables.entry(cache.counts, batch, table) == 1
            no_table, no_dish = no_table | ~room_table, no_dish | ~dishes.has_room
            dish = tables.entry(eaten, batch, table)
            dish, dishes = self._drawn(is_new, dish, dishes, dish_batch, new_dish_weights, chance)
            eaten = tables.put_entry(eaten, batch, table, dish)
            caches = self.below.moved(caches, token, look_up, group=dish, amount=1)
            drawn = (tables.put(drawn[0], index, table), tables.put(drawn[1], index, dish))
            return drawn, cache, dishes, eaten, caches, kept, no_table, no_dish

        empty = (jnp.zeros_like(tables_now), jnp.zeros_like(tables_now))
        no, stale = jnp.zeros((), bool), jnp.full((), -1, jnp.int32)
        nothing = jnp.zeros((self.below.num_groups,), jnp.result_type(float))
        kept = jnp.zeros((2, tables.to_power_of_two(nothing).shape[0]), nothing.dtype)
        dishes = _Dishes(dish_cache, stale, nothing, no)
        begin = (empty, cache, dishes, eaten, caches, kept, no, no)
        drawn, cache, dishes, _, _, _, no_table, no_dish = jax.lax.fori_loop(
            0, uniforms.shape[0], one, begin
        )
        return drawn, cache, dishes.cache, no_table, no_dish

    # tables come and go seldom: loops that turn once or not at all, so that nothing is touched
    # where none does

    def _without(self, is_gone: Array, dishes: _Dishes, batch: Array, dish: Array) -> _Dishes:
        def leave(carry: PyTree) -> PyTree:
            _, cache, _ = carry
            stale = jnp.full((), -1, jnp.int32)
            return jnp.zeros((), bool), self.distribution.unassign(cache, batch, dish), stale

        start = (is_gone, dishes.cache, dishes.batch)
        _, cache, current = jax.lax.while_loop(lambda carry: carry[0], leave, start)
        return dishes._replace(cache=cache, batch=current)

    def _weighed_now(self, dishes: _Dishes, batch: Array) -> _Dishes:
        """With the probabilities of a batch, as they are now."""

        def weigh(carry: PyTree) -> PyTree:
            weights, has_room = self.distribution.weights(dishes.cache, batch)
            return jnp.zeros((), bool), weights / tables.total(weights), has_room

        start = (dishes.batch != batch, dishes.shares, dishes.has_room)
        _, shares, has_room = jax.lax.while_loop(lambda carry: carry[0], weigh, start)
        return dishes._replace(batch=batch, shares=shares, has_room=has_room)

    def _drawn(
        self,
        is_new: Array,
        dish: Array,
        dishes: _Dishes,
        batch: Array,
        weights: Array,
        chance: Array,
    ) -> tuple[Array, _Dishes]:
        """The dish of a table, drawn if it is new, and the dishes with it."""

        def come(carry: PyTree) -> PyTree:
            _, _, cache, _ = carry
            drawn = tables.choose(weights, chance[1])
            cache = self.distribution.assign(cache, batch, drawn, chance[2])
            return jnp.zeros((), bool), drawn, cache, jnp.full((), -1, jnp.int32)

        start = (is_new, dish, dishes.cache, dishes.batch)
        _, dish, cache, current = jax.lax.while_loop(lambda carry: carry[0], come, start)
        return dish, dishes._replace(cache=cache, batch=current)


def token_at(columns: Mapping[str, Array], index: Array) -> dict[str, Array]:
    """The values of one token."""
    return {name: tables.row(column, index) for name, column in columns.items()}


# --- where they start -----------------------------------------------------------------------------


def first_values_of_sets(
    network: Wiring, dish: str, key: Key, state: NetworkState, data: Tokens
) -> NetworkState:
    """The state with dishes from their prior, given the sets."""
    values, slots = all_values(state, data), slot_sizes(state, network)
    sizes, distribution = network.sizes(data, slots), network.blocks[dish].distribution
    parts, groups, first = items_of_sets(network, dish, values, sizes, data.num_tokens)
    shape = (parts.num_parts, slots[dish])
    drawn_and_counts = assign_all(
        key, distribution, state.hyperparameters[dish], groups, shape, first=first
    )
    hyperparameters = state.hyperparameters | {dish: drawn_and_counts[1]}
    occupied = dict(state.slots)
    if distribution.grows:
        occupied[dish] = jnp.any(drawn_and_counts[2] > 0, axis=0)
    return NetworkState(state.values | {dish: drawn_and_counts[0]}, hyperparameters, occupied)


def items_of_sets(
    network: Wiring,
    dish: str,
    values: Mapping[str, Array],
    sizes: Mapping[str, int],
    num_tokens: int,
) -> tuple[BlockParts, Array, Array]:
    """The parts of the dishes, and of every token its part (T,) and the first of its set (T,)."""
    parts, parts_of_sets = network.parts(dish, sizes), set_parts(network, dish, sizes)
    first = first_of_sets(part_of(parts_of_sets, values, num_tokens), parts_of_sets.num_parts)
    return parts, part_of(parts, values, num_tokens), first
