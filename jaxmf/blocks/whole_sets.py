"""Sets of tokens that choose a value together: the second sweep of `sets.py`.

All tokens of a set leave, and the set chooses a dish with the prior of dishes times the ratio of
log marginals f_v(tokens of the set | others with dish v), by the chain rule.

Source: Teh, Jordan, Beal & Blei (2006), section 5.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxmf import tables
from jaxmf.blocks.counts import set_parts, slot_sizes
from jaxmf.blocks.roles import Below
from jaxmf.blocks.seating import batch_of
from jaxmf.blocks.sets import ended, problem_of, token_at
from jaxmf.blocks.state import State
from jaxmf.data import Tokens
from jaxmf.engine import Info
from jaxmf.fusion import fused_on_cpu
from jaxmf.types import Array, Key

if TYPE_CHECKING:
    from jaxmf.blocks.network import Network


def sweep_sets(
    network: Network, dish: str, key: Key, state: State, data: Tokens
) -> tuple[State, Info]:
    """Kernel: the value of every set, one set after the other, all its tokens together.

    Args:
        network: the network.
        dish: the variable over sets.
        key: typed PRNG key.
        state: before.
        data: the tokens.

    Returns:
        The state after, and overflow.
    """
    problem = problem_of(network, dish, network.blocks[dish].law, state, data)
    num_tokens = data.num_tokens
    # the tokens of a set side by side
    slots = slot_sizes(state, network)
    num_sets = set_parts(network, dish, network.sizes(data, slots)).number
    order, sizes = tables.sorted_by(problem.sets, num_sets)
    columns = {name: column[order] for name, column in problem.columns.items()}
    is_set = sizes > 0
    place = jnp.where(is_set, jnp.cumsum(is_set) - 1, num_tokens)
    starts = jnp.full((num_tokens + 1,), num_tokens, jnp.int32)
    starts = starts.at[place].set(jnp.cumsum(sizes) - sizes, mode="drop")
    starts, ends = starts[:-1], starts[1:]
    uniforms = jax.random.uniform(key, (num_tokens, 2), jnp.result_type(float))
    compiled = _SetLoop(problem.law, problem.below)
    loop = fused_on_cpu(compiled.loop, in_turn=True) if problem.law.fuses else compiled.loop
    batches = None if problem.batches is None else problem.batches[order]
    own = (state.values[dish][order], batches, starts, ends)
    begin = (problem.seating, problem.working)
    number = jnp.sum(is_set, dtype=jnp.int32)
    drawn, seating, no_room = loop(columns, problem.look_up, own, begin, number, uniforms)
    values = drawn[place[problem.sets]]
    state = ended(dish, problem.law, state, seating, {dish: values})
    return state, Info(overflow={dish: no_room} if problem.law.grows else {})


class _SetLoop(NamedTuple):
    law: Any
    below: Below

    def loop(
        self,
        columns: Any,
        look_up: Any,
        own: Any,
        begin: Any,
        number: Array,
        uniforms: Array,
    ) -> Any:
        dishes, batches, starts, ends = own
        tokens = _SetTokens(self.below, columns, look_up)

        def one_set(index: Array, carry: Any) -> Any:
            drawn, seating, working, ahead, no_room = carry
            where = tables.row(starts, index), tables.row(ends, index)
            batch = batch_of(batches, where[0])
            dish = tables.row(dishes, where[0])
            chance = tables.row(uniforms, index)
            working = tokens.moved(working, dish, where, -1)
            seating = self.law.unassign(seating, batch, dish)
            weights, room = self.law.weights(seating, batch)
            logs, working, ahead = tokens.weighed(working, ahead, weights, where)
            logs = jnp.where(weights > 0, logs, -jnp.inf)
            dish = tables.choose(weights * jnp.exp(logs - jnp.max(logs)), chance[0])
            seating = self.law.assign(seating, batch, dish, chance[1])
            working = tokens.moved(working, dish, where, 1)
            return tables.put(drawn, index, dish), seating, working, ahead, no_room | ~room

        empty = (jnp.zeros_like(dishes), *begin, self.below.nothing_ahead(), jnp.zeros((), bool))
        drawn, seating, _, _, no_room = jax.lax.fori_loop(0, number, one_set, empty)
        return drawn, seating, no_room


class _SetTokens(NamedTuple):
    """The tokens of sets: those of one set stand side by side.

    Attributes:
        below: the blocks that dishes partition.
        columns: name -> (T,) or (T, D).
        look_up: see there.
    """

    below: Below
    columns: Any
    look_up: Any

    def moved(self, working: Any, dish: Array, where: Any, amount: int) -> Any:
        """All tokens of a set to a dish (amount 1) or from it (-1)."""

        def one(index: Array, working: Any) -> Any:
            token = token_at(self.columns, index)
            return self.below.moved(working, token, self.look_up, group=dish, amount=amount)

        return jax.lax.fori_loop(where[0], where[1], one, working)

    def weighed(
        self, working: Any, ahead: Any, weights: Array, where: Any
    ) -> tuple[Array, Any, Any]:
        """The log marginal of a set's tokens with every dish that may be chosen: (K,)."""
        if ahead is None:
            return (*self._dish_by_dish(working, weights, where), None)
        return self._all_dishes(working, ahead, weights, where)

    def _all_dishes(
        self, working: Any, ahead: Any, weights: Array, where: Any
    ) -> tuple[Array, Any, Any]:
        """Each token predicted from what dishes have, and from those of the set before it.

        What these change is the same for all dishes: counts of the set that are kept beside.
        """

        def one(index: Array, carry: Any) -> Any:
            logs, ahead = carry
            token = token_at(self.columns, index)
            # changed first, then read, or the table is copied
            ahead = self.below.gone_ahead(ahead, token, 1)
            return logs + self.below.log_predicted_after(working, token, ahead), ahead

        def forget(index: Array, ahead: Any) -> Any:
            return self.below.gone_ahead(ahead, token_at(self.columns, index), -1)

        start = (jnp.zeros_like(weights), ahead)
        logs, ahead = jax.lax.fori_loop(where[0], where[1], one, start)
        return logs, working, jax.lax.fori_loop(where[0], where[1], forget, ahead)

    def _dish_by_dish(self, working: Any, weights: Array, where: Any) -> tuple[Array, Any]:
        """They come to a dish, each predicted from those before it, and leave again.

        For families of which the above is not known; dish after dish, in one loop.
        """
        start, number = where[0], where[1] - where[0]
        places = jnp.arange(weights.shape[0])

        def one(index: Array, carry: Any) -> Any:
            logs, working, dish = carry
            step = index % (2 * number)
            following = tables.lowest((weights > 0) & (places > dish))
            dish = jnp.where(step == 0, following, dish).astype(jnp.int32)
            joins = step < number
            amount = jnp.where(joins, 1, -1)
            token = token_at(self.columns, start + step % number)
            predicted = self.below.log_predicted(working, token, self.look_up)
            logs = logs + jnp.where(joins & (places == dish), predicted, 0)
            working = self.below.moved(working, token, self.look_up, group=dish, amount=amount)
            return logs, working, dish

        begin = (jnp.zeros_like(weights), working, jnp.full((), -1, jnp.int32))
        num_steps = 2 * number * jnp.sum(weights > 0, dtype=jnp.int32)
        logs, working, _ = jax.lax.fori_loop(0, num_steps, one, begin)
        return logs, working
