"""A sequential sweep over a few of the tokens, all others as they are."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxmf.blocks import sequential
from jaxmf.blocks.counts import all_values, slot_sizes
from jaxmf.blocks.roles import roles_of, statistics_of_roles
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.data.container import bare
from jaxmf.engine import Info
from jaxmf.types import Array, Key


def sweep_subset(
    network: Wiring,
    names: tuple[str, ...],
    key: Key,
    state: NetworkState,
    data: Tokens,
    chosen: Array,
) -> tuple[NetworkState, Info]:
    """Kernel: the named indicators of the chosen tokens, one token after the other.

    Args: chosen (S,) int32, different tokens, whose choice does not depend on the state.
    Returns the state after, and overflow of the growing indicators among the named.
    """
    values, slots = all_values(state, data), slot_sizes(state, network)
    roles = roles_of(network, names, network.sizes(data, slots))
    among = statistics_of_roles(roles, values, slots)
    state_of_chosen = state._replace(values=pick_tokens(state.values, chosen))
    after, info = sequential.sweep(
        network, names, key, state_of_chosen, tokens_at(data, chosen), among=among
    )
    drawn = {name: state.values[name].at[chosen].set(after.values[name]) for name in names}
    return after._replace(values=state.values | drawn), info


def tokens_at(data: Tokens, chosen: Array) -> Tokens:
    """The chosen tokens alone."""
    columns = pick_tokens(data.columns, chosen)
    return bare(
        Tokens, columns=columns, sizes=data.sizes, values=pick_tokens(data.values, chosen), names={}
    )


def pick_tokens(columns: dict[str, Array], chosen: Array) -> dict[str, Array]:
    """The columns at some tokens."""
    return {name: column[chosen] for name, column in columns.items()}


def random_tokens(key: Key, num_tokens: int, num_chosen: int) -> Array:
    """Different tokens, each equally likely, equally spaced: (num_chosen,) int32."""
    start = jax.random.randint(key, (), 0, num_tokens)
    return (start + num_tokens // num_chosen * jnp.arange(num_chosen)) % num_tokens
