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
)
from jaxmf.blocks.roles import Below, below, look_up_of, statistics_of_roles
from jaxmf.blocks.sequential_prior import assign_all, batch_of
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.wiring import BlockParts, Wiring
from jaxmf.data import Tokens
from jaxmf.engine import Info
from jaxmf.priors.partition_prior import PartitionPrior
from jaxmf.types import Array, Key, PyTree

_LANE_BITS = 3
_LANES = 1 << _LANE_BITS  # tables that are weighed at once


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


class Carried(NamedTuple):
    """Counts and caches that the sweep over tokens hands to the sweep over their sets."""

    counts: Array  # (G, K) int32, sets of each batch with every dish
    caches: dict[str, PyTree]  # see `Problem`


def _read(
    network: Wiring, state: NetworkState, data: Tokens
) -> tuple[dict[str, Array], dict[str, int], dict[str, int]]:
    """The values of all variables, the slots of indicators, and how many values each column has."""
    slots = slot_sizes(state, network)
    return all_values(state, data), slots, network.sizes(data, slots)


def caches_of(network: Wiring, dish: str, state: NetworkState, data: Tokens) -> dict[str, PyTree]:
    """What a sweep works on of the blocks that dishes partition; see `Problem`."""
    values, slots, sizes = _read(network, state, data)
    roles = below(network, dish, sizes).roles
    statistics = statistics_of_roles(roles, values, slots)
    return {
        role.name: role.distribution.begin(statistics[role.name], state.hyperparameters[role.name])
        for role in roles
    }


def problem_of(
    network: Wiring,
    dish: str,
    distribution: PartitionPrior,
    state: NetworkState,
    data: Tokens,
    carried: Carried,
) -> Problem:
    """The problem of the dishes of a network, with a prior for them."""
    values, _, sizes = _read(network, state, data)
    partitioned = below(network, dish, sizes)
    parts, parts_of_sets = network.parts(dish, sizes), set_parts(network, dish, sizes)
    return Problem(
        distribution=distribution,
        below=partitioned,
        columns={name: values[name] for name in partitioned.columns},
        look_up=look_up_of(partitioned.roles),
        batches=part_of(parts, values, data.num_tokens) if parts.num_parts > 1 else None,
        sets=part_of(parts_of_sets, values, data.num_tokens),
        cache=distribution.begin(carried.counts, state.hyperparameters[dish], with_sizes=False),
        caches=carried.caches,
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
) -> tuple[NetworkState, Info, Carried]:
    """Kernel: the table of every token, one after the other, with dishes of new tables summed out.

    Args: table: the indicator that the sets are made of.
    Returns the state after, overflow of both, and what a sweep over sets may begin with.
    """
    prior = network.distributions[dish].prior_of_new_tables()
    values, slots, sizes = _read(network, state, data)
    distribution, width = network.distributions[table], slots[table]
    parts, dish_parts = network.parts(table, sizes), network.parts(dish, sizes)
    batches = part_of(parts, values, data.num_tokens)
    num_in_use = jnp.full((parts.num_parts,), 0 if distribution.grows else width, jnp.int32)
    if "unobserved" in state.hyperparameters[table]:
        is_held = state.hyperparameters[table]["unobserved"] > 0
        positions = jnp.arange(1, width + 1, dtype=jnp.int32)
        num_in_use = jnp.max(jnp.where(is_held, positions, 0), axis=1)
    nothing = jnp.zeros((parts.num_parts, width), jnp.int32)
    known = _AtTables(
        nothing, nothing, num_in_use, jnp.zeros((dish_parts.num_parts, slots[dish]), jnp.int32)
    )
    now = values[table], values[dish], batches, part_of(dish_parts, values, data.num_tokens)
    known = fused_on_cpu(_at_tables, sequential=True)(*now, known)
    carried = Carried(known.dishes, caches_of(network, dish, state, data))
    problem = problem_of(network, dish, prior, state, data, carried)
    cache = distribution.begin(known.counts, state.hyperparameters[table], with_sizes=False)
    births = prior.new_group_is_random, distribution.new_group_is_random
    uniforms = special.uniforms(key, (data.num_tokens, 2 + sum(births)))
    compiled = _TokenLoop(prior, problem.below, distribution, births)
    fuses = distribution.fuses and prior.fuses
    loop = fused_on_cpu(compiled.loop, sequential=True) if fuses else compiled.loop
    drawn, cache, dish_cache, caches, no_table, no_dish = loop(
        problem.columns,
        problem.look_up,
        (values[table], batches, problem.batches),
        (cache, problem.cache, known.eaten, known.num_in_use, problem.caches),
        uniforms,
    )
    state = ended(dish, prior, state, dish_cache, {table: drawn[0], dish: drawn[1]})
    state = ended(table, distribution, state, cache, {})
    overflow = {}
    for name, no_room in ((table, no_table), (dish, no_dish)):
        if network.distributions[name].grows:
            overflow[name] = no_room
    return state, Info(overflow=overflow), Carried(prior.end(dish_cache)[0], caches)


class _AtTables(NamedTuple):
    """What is known of the tables of batches."""

    counts: Array  # (G, L) int32, the tokens at them
    eaten: Array  # (G, L) int32, their dishes
    num_in_use: Array  # (G,) int32: beyond the table at this position none has weight
    dishes: Array  # (P, K) int32, the tables of every part of dishes that have each


def _at_tables(
    tables_now: Array, dishes_now: Array, batches: Array, parts: Array, nothing: _AtTables
) -> _AtTables:
    """Args: the table, dish, batch and part of dishes of all tokens, (T,) int32 each."""

    def one(index: Array, known: _AtTables) -> _AtTables:
        table, dish, batch, part = (
            tables.row(column, index) for column in (tables_now, dishes_now, batches, parts)
        )
        counts = tables.add_entry(known.counts, batch, table, 1)
        is_first = (tables.entry(counts, batch, table) == 1).astype(jnp.int32)
        until = jnp.maximum(tables.row(known.num_in_use, batch), table + 1)
        return _AtTables(
            counts,
            tables.put_entry(known.eaten, batch, table, dish),
            tables.put(known.num_in_use, batch, until),
            tables.add_entry(known.dishes, part, dish, is_first),
        )

    return jax.lax.fori_loop(0, tables_now.shape[0], one, nothing)


class _Scratch(NamedTuple):
    """What is computed for one token: in tables, or the compiler does it again at each use."""

    likely: Array  # (P,) float, P a power of two: with every dish, then with that of a new table
    # (2, 8) float, of which the first row is used: a value that fills an array is not stored
    lanes: Array
    weights: Array  # (R, 8) float, of tables
    ends: Array  # (R,) float, sums of the weights of a row and those before it

    @classmethod
    def of(cls, num_dishes: int, width: int) -> _Scratch:
        nothing = jnp.zeros((num_dishes + 1,), jnp.result_type(float))
        rows = jnp.zeros((-(-width // _LANES), _LANES), nothing.dtype)
        lanes = jnp.zeros((2, _LANES), nothing.dtype)
        return cls(tables.to_power_of_two(nothing), lanes, rows, rows[:, 0])

    def with_likely(self, likely: Array, shares: Array) -> _Scratch:
        """Args: likely, shares (K,) float; shares are the probabilities of a new table's dish."""
        num_dishes, first = likely.shape[0], jnp.zeros((), jnp.int32)
        kept = tables.put_run(self.likely, first, likely)
        lanes = tables.put(self.lanes, first, tables.in_lanes(kept[:num_dishes] * shares))
        new_table = tables.sum_in_lanes(lanes[0])
        return self._replace(
            likely=tables.put_run(kept, jnp.asarray(num_dishes), new_table[None]), lanes=lanes
        )

    def choose(
        self, rows: _Rows, num_in_use: Array, uniform: Array
    ) -> tuple[Array, Array, _Scratch]:
        """A table of a batch, by its weight times how likely the token is there.

        With a prior that `weighs_rows` the time is that of the tables up to the last one in use,
        not of all there is room for.

        Args: num_in_use () int32: beyond the table at this position none has weight.
        Returns its position, whether there was room for a new one, and the scratch after.
        """
        num_rows = self.ends.shape[0]
        # positions are not negative, of which the compiler knows nothing: no division
        num_used = jnp.minimum((num_in_use >> _LANE_BITS) + 1, num_rows)

        def weigh(index: Array, carry: PyTree) -> PyTree:
            weights, ends, total, has_new = carry
            lanes = tables.Lanes(index * _LANES, 1, _LANES)
            table_weights, dishes, has_new = rows.at(lanes, has_new)
            there = tables.entries_at(self.likely, dishes)
            weights = tables.put(weights, index, table_weights * there)
            total = total + tables.sum_in_lanes(tables.row(weights, index))
            return weights, tables.put(ends, index, total), total, has_new

        start = (self.weights, self.ends, jnp.zeros((), self.ends.dtype), jnp.zeros((), bool))
        weights, ends, _, has_new = jax.lax.fori_loop(0, num_used, weigh, start)
        table = tables.choose_in_rows(weights, ends, num_used, uniform)
        return table, has_new, self._replace(weights=weights, ends=ends)


class _Rows(NamedTuple):
    """The tables of a batch, eight at a time."""

    prior: Any
    cache: Any
    batch: Array
    eaten: Array  # (G, L) int32
    num_dishes: int  # stands for the dish of a table without tokens
    # (R * 8,) each, weights and dishes of all tables, and whether there is room for a new one;
    # None where the prior weighs those that are asked for
    known: tuple[Array, Array, Array] | None

    @classmethod
    def of(cls, prior: Any, cache: PyTree, batch: Array, eaten: Array, num_dishes: int) -> _Rows:
        counts, known = cache.counts, None
        if counts.shape[1] % _LANES or not prior.weighs_rows:
            padding = (0, -counts.shape[1] % _LANES)
            weights, room = prior.weights(cache, batch)
            taken = tables.row(counts, batch) > 0
            dishes = jnp.where(taken, tables.row(eaten, batch), num_dishes)
            known = jnp.pad(weights, padding), jnp.pad(dishes, padding), room
        return cls(prior, cache, batch, eaten, num_dishes, known)

    def at(self, lanes: tables.Lanes, has_new: Array) -> tuple[Array, Array, Array]:
        """Their weights and dishes, (8,) each, and whether a new one is among or before them."""
        if self.known is not None:
            weights, dishes, room = self.known
            return tables.take(weights, lanes), tables.take(dishes, lanes), room
        weights, has_new = self.prior.weights_of_row(self.cache, self.batch, lanes, has_new)
        taken = tables.take_from_row(self.cache.counts, self.batch, lanes) > 0
        dishes = tables.take_from_row(self.eaten, self.batch, lanes)
        return weights, jnp.where(taken, dishes, self.num_dishes), has_new


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
    births: tuple[bool, bool]  # whether a new dish, and a new table, need a further uniform

    def loop(
        self,
        columns: dict[str, Array],
        look_up: PyTree,
        now: PyTree,
        start: PyTree,
        uniforms: Array,
    ) -> PyTree:
        tables_now, batches, dish_batches = now
        cache, dish_cache, eaten, num_in_use, caches = start
        num_tokens, num_dishes = uniforms.shape[0], self.below.num_groups
        width = cache.counts.shape[1]

        def one(index: Array, carry: PyTree) -> PyTree:
            drawn, cache, dishes, eaten, num_in_use, caches, scratch, no_table, no_dish = carry
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
            scratch = scratch.with_likely(likely, dishes.shares)
            until = tables.row(num_in_use, batch)
            rows = _Rows.of(self.table_prior, cache, batch, eaten, num_dishes)
            table, room_table, scratch = scratch.choose(rows, until, chance[0])
            # changed first, then read, or the table is copied for every token
            cache = self.table_prior.assign(cache, batch, table, self._chance(chance, 1))
            is_new = tables.entry(cache.counts, batch, table) == 1
            no_table, no_dish = no_table | ~room_table, no_dish | ~dishes.has_room
            dish = tables.entry(eaten, batch, table)
            dish, dishes, scratch = self._drawn(is_new, dish, dishes, dish_batch, scratch, chance)
            eaten = tables.put_entry(eaten, batch, table, dish)
            num_in_use = tables.put(num_in_use, batch, jnp.maximum(until, table + 1))
            caches = self.below.moved(caches, token, look_up, group=dish, amount=1)
            drawn = (tables.put(drawn[0], index, table), tables.put(drawn[1], index, dish))
            return drawn, cache, dishes, eaten, num_in_use, caches, scratch, no_table, no_dish

        empty = (jnp.zeros_like(tables_now), jnp.zeros_like(tables_now))
        no, stale = jnp.zeros((), bool), jnp.full((), -1, jnp.int32)
        nothing = jnp.zeros((num_dishes,), jnp.result_type(float))
        dishes = _Dishes(dish_cache, stale, nothing, no)
        scratch = _Scratch.of(num_dishes, width)
        begin = (empty, cache, dishes, eaten, num_in_use, caches, scratch, no, no)
        drawn, cache, dishes, _, _, caches, _, no_table, no_dish = jax.lax.fori_loop(
            0, num_tokens, one, begin
        )
        return drawn, cache, dishes.cache, caches, no_table, no_dish

    def _chance(self, chance: Array, which: int) -> Array:
        """The uniform of a new dish (0) or a new table (1), where it needs one."""
        return chance[2 + sum(self.births[:which])] if self.births[which] else chance[0]

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
        scratch: _Scratch,
        chance: Array,
    ) -> tuple[Array, _Dishes, _Scratch]:
        """The dish of a table, drawn if it is new, and the dishes with it."""

        def come(carry: PyTree) -> PyTree:
            _, _, cache, _, likely = carry
            drawn = tables.choose(dishes.shares * likely[: dishes.shares.shape[0]], chance[1])
            cache = self.distribution.assign(cache, batch, drawn, self._chance(chance, 0))
            return jnp.zeros((), bool), drawn, cache, jnp.full((), -1, jnp.int32), likely

        start = (is_new, dish, dishes.cache, dishes.batch, scratch.likely)
        _, dish, cache, current, likely = jax.lax.while_loop(lambda carry: carry[0], come, start)
        dishes = dishes._replace(cache=cache, batch=current)
        return dish, dishes, scratch._replace(likely=likely)


def token_at(columns: Mapping[str, Array], index: Array) -> dict[str, Array]:
    """The values of one token."""
    return {name: tables.row(column, index) for name, column in columns.items()}


# --- where they start -----------------------------------------------------------------------------


def first_values_of_sets(
    network: Wiring, dish: str, key: Key, state: NetworkState, data: Tokens
) -> NetworkState:
    """The state with dishes from their prior, given the sets."""
    values, slots, sizes = _read(network, state, data)
    distribution = network.distributions[dish]
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
