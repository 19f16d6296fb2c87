"""Sets of tokens that choose a value together: the second sweep of `sets.py`.

All tokens of a set leave, and the set chooses a dish with the prior of dishes times the ratio of
log marginals f_v(tokens of the set | others with dish v), by the chain rule. Most sets choose the
dish that they had: their tokens move where it is another one.

Source: Teh, Jordan, Beal & Blei (2006), section 5.1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxmf._kernels import special, tables
from jaxmf._kernels.fusion import fused_on_cpu
from jaxmf._kernels.products import Product
from jaxmf.blocks.counts import set_parts, slot_sizes, statistics_of_block
from jaxmf.blocks.roles import Below
from jaxmf.blocks.sequential_prior import batch_of
from jaxmf.blocks.sets import Carried, caches_of, ended, problem_of, token_at
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.engine import Info
from jaxmf.priors.partition_prior import at
from jaxmf.types import Array, Key, PyTree


def sweep_sets(
    network: Wiring,
    dish: str,
    key: Key,
    state: NetworkState,
    data: Tokens,
    carried: Carried | None = None,
) -> tuple[NetworkState, Info]:
    """Kernel: the value of every set, one set after the other, all its tokens together.

    Args: carried: by a sweep over tokens just before; None to count again.
    Returns the state after, and overflow.
    """
    prior = network.distributions[dish]
    slots = slot_sizes(state, network)
    if carried is None:
        parts = network.parts(dish, network.sizes(data, slots))
        counts = statistics_of_block(network, dish, parts, state, data)
        carried = Carried(counts, caches_of(network, dish, state, data))
    problem = problem_of(network, dish, prior, state, data, carried)
    num_tokens = data.num_tokens
    # the tokens of a set side by side
    num_sets = set_parts(network, dish, network.sizes(data, slots)).num_parts
    order, sizes = tables.sorted_by(problem.sets, num_sets)
    uniforms = special.uniforms(key, (num_tokens, 1 + prior.new_group_is_random))
    compiled = _SetLoop(problem.distribution, problem.below)
    loop = (
        fused_on_cpu(compiled.loop, sequential=True)
        if problem.distribution.fuses
        else compiled.loop
    )
    columns = {
        name: column.at[order].get(mode="promise_in_bounds")
        for name, column in problem.columns.items()
    }
    values, cache, no_room = loop(
        columns,
        problem.look_up,
        (state.values[dish], problem.batches, order, sizes),
        (problem.cache, problem.caches),
        uniforms,
    )
    state = ended(dish, prior, state, cache, {dish: values})
    return state, Info(overflow={dish: no_room} if prior.grows else {})


class _SetLoop(NamedTuple):
    distribution: Any
    below: Below

    def loop(
        self,
        columns: dict[str, Array],
        look_up: PyTree,
        values_of_sets: tuple[Array, Array | None, Array, Array],
        start: tuple[PyTree, PyTree],
        uniforms: Array,
    ) -> tuple[Array, PyTree, Array]:
        dishes, batches, order, sizes = values_of_sets
        tokens = _SetTokens(self.below, columns, look_up, order)

        def find(index: Array, carry: PyTree) -> PyTree:
            starts, num_used, end = carry
            size = tables.row(sizes, index)
            starts = tables.put(starts, num_used, end)
            return starts, num_used + (size > 0), end + size

        def one_set(index: Array, carry: PyTree) -> PyTree:
            drawn, cache, caches, joined, no_room = carry
            where = tables.row(starts, index), tables.row(starts, index + 1)
            first = tables.row(order, where[0])
            batch, dish = batch_of(batches, first), tables.row(dishes, first)
            chance = tables.row(uniforms, index)
            cache = self.distribution.unassign(cache, batch, dish)
            weights, room = self.distribution.weights(cache, batch)
            likely, caches, joined = tokens.weighed(caches, joined, weights, where, dish)
            new = tables.choose(weights * likely, chance[0])
            # the last uniform is of a new dish; with one only it is not looked at
            cache = self.distribution.assign(cache, batch, new, chance[-1])
            moved = jnp.where(dish == new, where[1], where[0]), where[1]
            caches = tokens.changed(caches, dish, new, moved)
            drawn = tokens.put(drawn, new, moved)
            return drawn, cache, caches, joined, no_room | ~room

        zero, num_tokens = jnp.zeros((), jnp.int32), order.shape[0]
        starts = jnp.zeros((num_tokens + 1,), jnp.int32)
        starts, num_used, _ = jax.lax.fori_loop(0, sizes.shape[0], find, (starts, zero, zero))
        starts = tables.put(starts, num_used, jnp.asarray(num_tokens))
        begin = (jnp.copy(dishes), *start, self.below.no_tokens(), jnp.zeros((), bool))
        drawn, cache, _, _, no_room = jax.lax.fori_loop(0, num_used, one_set, begin)
        return drawn, cache, no_room


class _SetTokens(NamedTuple):
    """The tokens of sets: those of one set stand side by side."""

    below: Below  # the blocks that dishes partition
    columns: Any  # name -> (T,) or (T, D)
    look_up: Any  # see there
    order: Any  # (T,) int32, where a token stands in the data

    def put(self, drawn: Array, dish: Array, where: PyTree) -> Array:
        """A dish for all tokens of a set."""

        def one(index: Array, drawn: Array) -> Array:
            return tables.put(drawn, tables.row(self.order, index), dish)

        return jax.lax.fori_loop(where[0], where[1], one, drawn)

    def moved(self, caches: PyTree, dish: Array, where: PyTree, amount: int) -> PyTree:
        """All tokens of a set to a dish (amount 1) or from it (-1)."""

        def one(index: Array, caches: PyTree) -> PyTree:
            token = token_at(self.columns, index)
            return self.below.moved(caches, token, self.look_up, group=dish, amount=amount)

        return jax.lax.fori_loop(where[0], where[1], one, caches)

    def changed(self, caches: PyTree, dish: Array, new: Array, where: PyTree) -> PyTree:
        """All tokens of a set from one dish to another."""
        return self.moved(self.moved(caches, dish, where, -1), new, where, 1)

    def weighed(
        self, caches: PyTree, joined: PyTree, weights: Array, where: object, dish: Array
    ) -> tuple[Array, PyTree, PyTree]:
        """How likely a set's tokens are with every dish that may be chosen, up to one factor: (K,).

        Args: dish: the one that they have now, whose other tokens count.
        """
        if joined is None:
            caches = self.moved(caches, dish, where, -1)
            logs, caches = self._dish_by_dish(caches, weights, where)
            logs = jnp.where(weights > 0, logs, -jnp.inf)
            likely = jnp.exp(logs - jnp.max(logs))
            return likely, self.moved(caches, dish, where, 1), None
        return self._all_dishes(caches, joined, weights, where, dish)

    def _all_dishes(
        self, caches: PyTree, joined: PyTree, weights: Array, where: PyTree, dish: Array
    ) -> tuple[Array, PyTree, PyTree]:
        """Each token predicted from what dishes have, and from those of the set before it.

        What these change is the same for all dishes: separate counts of the set. The dish of the
        set counts its tokens already: they leave it sequentially, and the order does not matter.
        """

        def one(index: Array, carry: PyTree) -> PyTree:
            with_all, without_dish, joined = carry
            token = token_at(self.columns, index)
            # changed first, then read, or the table is copied
            joined = self.below.with_token(joined, token, 1)
            for factor in self.below.predicted_after(caches, token, joined):
                with_all = with_all.times(factor)
            for factor in self.below.predicted_after(caches, token, joined, leaves=dish):
                without_dish = without_dish.times(factor)
            return with_all, without_dish, joined

        def forget(index: Array, joined: PyTree) -> PyTree:
            return self.below.with_token(joined, token_at(self.columns, index), -1)

        start = (Product.empty_like(weights), Product.empty_like(weights[:1]), joined)
        with_all, without_dish, joined = jax.lax.fori_loop(where[0], where[1], one, start)
        has_them = at(dish, weights.shape[0])
        product = tables.either(has_them, without_dish, with_all)
        joined = jax.lax.fori_loop(where[0], where[1], forget, joined)
        return product.relative(weights > 0), caches, joined

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
