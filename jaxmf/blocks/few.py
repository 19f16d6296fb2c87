"""A sequential sweep over a few of the tokens, all others as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from jaxmf.blocks import sequential
from jaxmf.blocks.counts import all_parts, all_values, slot_sizes, statistics_of
from jaxmf.blocks.state import State
from jaxmf.data import Tokens
from jaxmf.data.container import bare
from jaxmf.engine import Info
from jaxmf.types import Array, Key, PyTree

if TYPE_CHECKING:
    from jaxmf.blocks.network import Network


def sweep_few(
    network: Network,
    names: tuple[str, ...],
    key: Key,
    state: State,
    data: Tokens,
    chosen: Array,
) -> tuple[State, Info]:
    """Kernel: the named indicators of the chosen tokens, one token after the other.

    Args:
        network: the network.
        names: the indicators that are drawn together.
        key: typed PRNG key.
        state: before.
        data: the tokens.
        chosen: (S,) int32, different tokens, whose choice does not depend on the state.

    Returns:
        The state after, and overflow of the growing indicators among the named.
    """
    values, parts = all_values(state, data), all_parts(network, state, data)
    slots = slot_sizes(state, network)
    below = {child for name in names for child in network.children(name)}
    blocks = dict(network.blocks)
    for name in {*names, *below}:
        law = blocks[name].law
        full = statistics_of(name, law, parts[name], values, slots.get(name))
        blocks[name] = blocks[name].with_law(_among(law, full))
    few = type(network)(blocks, network.order)
    own = state._replace(values=pick_tokens(state.values, chosen))
    after, info = sequential.sweep(few, names, key, own, tokens_at(data, chosen))
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


def random_tokens(key: Key, num_tokens: int, number: int) -> Array:
    """So many different tokens, each as likely as any other, equally spaced: (number,) int32."""
    start = jax.random.randint(key, (), 0, num_tokens)
    return (start + num_tokens // number * jnp.arange(number)) % num_tokens


def _among(law: Any, full: PyTree) -> Any:
    """The law as a sweep takes it up, but with the statistics of all tokens."""

    class Among(type(law)):  # type: ignore[misc]
        pads = False

        def begin(self, statistics: PyTree, numbers: dict[str, Array], **options: Any) -> PyTree:
            del statistics
            return super().begin(full, numbers, **options)

    own = object.__new__(Among)
    own.__dict__.update(law.__dict__)
    return own
