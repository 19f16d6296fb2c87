"""Draws from a network's prior."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from jaxmf.blocks.counts import part_of
from jaxmf.blocks.seating import seat_all
from jaxmf.blocks.sets import items_of_sets
from jaxmf.blocks.state import State
from jaxmf.blocks.unobserved import draw_all, holders, num_hidden
from jaxmf.data import Tokens
from jaxmf.data.container import bare
from jaxmf.types import Array, Key

if TYPE_CHECKING:
    from jaxmf.blocks.network import Network


def simulate(
    network: Network, key: Key, data: Tokens, *, capacity: int | None = None
) -> tuple[State, Tokens]:
    """See `Network.simulate`."""
    network = network.at(data)
    num_tokens = data.num_tokens
    num_items = num_tokens
    for name in holders(network):
        num_batches = network.parts(name, data.sizes).number
        num_items += int(num_hidden(network, name, num_batches).sum())
    slots = {
        name: network.blocks[name].law.num_groups(capacity or num_items)
        for name in network.indicators
    }
    sizes = network.sizes(data, slots)
    for name in network.observed:
        sizes[name] = _size(network, name)
    values: dict[str, Array] = {**data.columns, **data.values}
    numbers: dict[str, dict[str, Array]] = {}
    occupied: dict[str, Array] = {}
    for place, name in enumerate(network.order):
        law = network.blocks[name].law
        parts = network.parts(name, sizes)
        of_numbers, of_values = jax.random.split(jax.random.fold_in(key, place))
        groups = part_of(parts, values, num_tokens)
        if name in slots:
            numbers[name] = law.simulate_hyperparameters(of_numbers, slots[name])
            first = None
            if network.blocks[name].per:
                _, _, first = items_of_sets(network, name, values, sizes, num_tokens)
            shape = (parts.number, slots[name])
            if law.sequential:
                own = seat_all(of_values, law, numbers[name], groups, shape, first=first)
            else:
                own = draw_all(network, name, of_values, groups, first, data, shape)
            values[name], numbers[name], counts = own
            if law.grows:
                occupied[name] = jnp.any(counts > 0, axis=0)
        else:
            numbers[name] = law.simulate_hyperparameters(of_numbers)
            values[name] = _observed(of_values, law, numbers[name], groups, parts.number)
    state = State({name: values[name] for name in network.indicators}, numbers, occupied)
    return state, _tokens(network, data, values, sizes)


def _size(network: Network, name: str) -> int:
    size: int | None = getattr(network.blocks[name].law, "size", 1)
    if size is None:
        family = type(network.blocks[name].law).__name__
        raise ValueError(
            f"{name}: how many values its {family} has is not known, since the tokens have no "
            f"such column; write {family}(size), or pass tokens with a column {name!r}"
        )
    return size


def _observed(
    key: Key, law: Any, numbers: dict[str, Array], groups: Array, num_groups: int
) -> Array:
    """Parameters of every part from their prior, and values given them."""
    of_parameters, of_values = jax.random.split(key)
    empty = law.empty(num_groups)
    parameters = law.sample_parameters(of_parameters, empty, numbers)
    return law.sample(of_values, parameters, groups)


def _tokens(
    network: Network, data: Tokens, values: dict[str, Array], sizes: dict[str, int]
) -> Tokens:
    """The tokens with the simulated columns; values are of a trace and go in unchecked."""
    columns, real = dict(data.columns), dict(data.values)
    for name in network.observed:
        mine, other = (real, columns) if network.blocks[name].law.is_log else (columns, real)
        mine[name] = values[name]
        other.pop(name, None)
    kept = {name: sizes[name] for name in columns}
    return bare(Tokens, columns=columns, sizes=kept, values=real, names={})
