"""Sets of tokens that choose a value together: the second sweep of `sets.py`.

All tokens of a set leave, and the set chooses a dish with the prior of dishes times the ratio of
log marginals f_v(tokens of the set | others with dish v), by the chain rule. Most sets choose the
dish that they had: their tokens move where it is another one.

Source: Teh, Jordan, Beal & Blei (2006), section 5.1.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxmf._kernels import special, tables
from jaxmf._kernels.fusion import fused_on_cpu
from jaxmf.blocks.counts import set_parts, slot_sizes
from jaxmf.blocks.roles import Below
from jaxmf.blocks.sequential_prior import batch_of
from jaxmf.blocks.sets import ended, problem_of, token_at
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.engine import Info
from jaxmf.priors.partition_prior import at
from jaxmf.types import Array, Key, PyTree


def sweep_sets(
    network: Wiring, dish: str, key: Key, state: NetworkState, data: Tokens
) -> tuple[NetworkState, Info]:
    """Kernel: the value of every set, one set after the other, all its tokens together.

    Returns the state after, and overflow.
    """
    problem = problem_of(network, dish, network.blocks[dish].distribution, state, data)
    num_tokens = data.num_tokens
    # the tokens of a set side by side
    slots = slot_sizes(state, network)
    num_sets = set_parts(network, dish, network.sizes(data, slots)).num_parts
    order, sizes = tables.sorted_by(problem.sets, num_sets)
    columns = {name: column[order] for name, column in problem.columns.items()}
    is_set = sizes > 0
    position = jnp.where(is_set, jnp.cumsum(is_set) - 1, num_tokens)
    starts = jnp.full((num_tokens + 1,), num_tokens, jnp.int32)
    starts = starts.at[position].set(jnp.cumsum(sizes) - sizes, mode="drop")
    starts, ends = starts[:-1], starts[1:]
    uniforms = special.uniforms(key, (num_tokens, 2))
    compiled = _SetLoop(problem.distribution, problem.below)
    loop = (
        fused_on_cpu(compiled.loop, sequential=True)
        if problem.distribution.fuses
        else compiled.loop
    )
    batches = None if problem.batches is None else problem.batches[order]
    values_of_sets = (state.values[dish][order], batches, starts, ends)
    start = (problem.cache, problem.caches)
    num_used = jnp.sum(is_set, dtype=jnp.int32)
    drawn, cache, no_room = loop(
        columns, problem.look_up, values_of_sets, start, num_used, uniforms
    )
    values = drawn[position[problem.sets]]
    state = ended(dish, problem.distribution, state, cache, {dish: values})
    return state, Info(overflow={dish: no_room} if problem.distribution.grows else {})


class _SetLoop(NamedTuple):
    distribution: Any
    below: Below

    def loop(
        self,
        columns: dict[str, Array],
        look_up: PyTree,
        values_of_sets: tuple[Array, Array | None, Array, Array],
        start: tuple[PyTree, PyTree],
        num_used: Array,
        uniforms: Array,
    ) -> tuple[Array, PyTree, Array]:
        dishes, batches, starts, ends = values_of_sets
        tokens = _SetTokens(self.below, columns, look_up)

        def one_set(index: Array, carry: PyTree) -> PyTree:
            drawn, cache, caches, joined, no_room = carry
            where = tables.row(starts, index), tables.row(ends, index)
            batch = batch_of(batches, where[0])
            dish = tables.row(dishes, where[0])
            chance = tables.row(uniforms, index)
            cache = self.distribution.unassign(cache, batch, dish)
            weights, room = self.distribution.weights(cache, batch)
            logs, caches, joined = tokens.weighed(caches, joined, weights, where, dish)
            logs = jnp.where(weights > 0, logs, -jnp.inf)
            new = tables.choose(weights * jnp.exp(logs - jnp.max(logs)), chance[0])
            cache = self.distribution.assign(cache, batch, new, chance[1])
            caches = tokens.changed(caches, dish, new, where)
            return tables.put(drawn, index, new), cache, caches, joined, no_room | ~room

        empty = (jnp.zeros_like(dishes), *start, self.below.no_tokens(), jnp.zeros((), bool))
        drawn, cache, _, _, no_room = jax.lax.fori_loop(0, num_used, one_set, empty)
        return drawn, cache, no_room


class _SetTokens(NamedTuple):
    """The tokens of sets: those of one set stand side by side."""

    below: Below  # the blocks that dishes partition
    columns: Any  # name -> (T,) or (T, D)
    look_up: Any  # see there

    def moved(self, caches: PyTree, dish: Array, where: PyTree, amount: int) -> PyTree:
        """All tokens of a set to a dish (amount 1) or from it (-1)."""

        def one(index: Array, caches: PyTree) -> PyTree:
            token = token_at(self.columns, index)
            return self.below.moved(caches, token, self.look_up, group=dish, amount=amount)

        return jax.lax.fori_loop(where[0], where[1], one, caches)

    def changed(
        self, caches: PyTree, dish: Array, new: Array, where: tuple[Array, Array]
    ) -> PyTree:
        """All tokens of a set from one dish to another, or where they are if it is the same."""
        where = jnp.where(dish == new, where[1], where[0]), where[1]
        return self.moved(self.moved(caches, dish, where, -1), new, where, 1)

    def weighed(
        self, caches: PyTree, joined: PyTree, weights: Array, where: object, dish: Array
    ) -> tuple[Array, PyTree, PyTree]:
        """The log marginal of a set's tokens with every dish that may be chosen: (K,).

        Args: dish: the one that they have now, whose other tokens count.
        """
        if joined is None:
            caches = self.moved(caches, dish, where, -1)
            logs, caches = self._dish_by_dish(caches, weights, where)
            return logs, self.moved(caches, dish, where, 1), None
        return self._all_dishes(caches, joined, weights, where, dish)

    def _all_dishes(
        self, caches: PyTree, joined: object, weights: Array, where: PyTree, dish: Array
    ) -> tuple[Array, PyTree, PyTree]:
        """Each token predicted from what dishes have, and from those of the set before it.

        What these change is the same for all dishes: separate counts of the set. The dish of the
        set counts its tokens already: they leave it sequentially, and the order does not matter.
        """
        has_them = at(dish, weights.shape[0])

        def one(index: Array, carry: PyTree) -> PyTree:
            fraction, exponent, joined = carry
            token = token_at(self.columns, index)
            # changed first, then read, or the table is copied
            joined = self.below.with_token(joined, token, 1)
            for factor in self.below.predicted_after(caches, token, joined, has_them):
                fraction, more = jnp.frexp(fraction * factor)
                exponent += more
            return fraction, exponent, joined

        def forget(index: Array, joined: PyTree) -> PyTree:
            return self.below.with_token(joined, token_at(self.columns, index), -1)

        # a product of fraction and exponent: one logarithm for each set, not for each token
        start = (jnp.ones_like(weights), jnp.zeros(weights.shape, jnp.int32), joined)
        fraction, exponent, joined = jax.lax.fori_loop(where[0], where[1], one, start)
        logs = jnp.log(fraction) + exponent * math.log(2)
        return logs, caches, jax.lax.fori_loop(where[0], where[1], forget, joined)

    def _dish_by_dish(self, caches: PyTree, weights: Array, where: PyTree) -> tuple[Array, PyTree]:
        """The tokens join a dish, each predicted from those before it, and leave again.

        For families of which the above is not known; dish after dish, in one loop.
        """
        start, num_members = where[0], where[1] - where[0]
        indices = jnp.arange(weights.shape[0])

        def one(index: Array, carry: PyTree) -> PyTree:
            logs, caches, dish = carry
            step = index % (2 * num_members)
            following = tables.lowest((weights > 0) & (indices > dish))
            dish = jnp.where(step == 0, following, dish).astype(jnp.int32)
            joins = step < num_members
            amount = jnp.where(joins, 1, -1)
            token = token_at(self.columns, start + step % num_members)
            predicted = self.below.log_predicted(caches, token, self.look_up)
            logs = logs + jnp.where(joins & (indices == dish), predicted, 0)
            caches = self.below.moved(caches, token, self.look_up, group=dish, amount=amount)
            return logs, caches, dish

        initial = (jnp.zeros_like(weights), caches, jnp.full((), -1, jnp.int32))
        num_steps = 2 * num_members * jnp.sum(weights > 0, dtype=jnp.int32)
        logs, caches, _ = jax.lax.fori_loop(0, num_steps, one, initial)
        return logs, caches
