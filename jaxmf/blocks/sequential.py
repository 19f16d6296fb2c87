"""The exact sequential sweep of a network, compiled from its declaration.

One indicator (or a joint set) of one token after the other: the token leaves its parts, the weights
of all values follow from the counts (eq 5.5), one is drawn, the token joins again. A sweep over
all tokens is one loop in one kernel; what a prediction needs of a part is kept ready.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf._kernels import special, tables
from jaxmf._kernels.fusion import fused_on_cpu
from jaxmf.blocks.counts import all_values, slot_sizes
from jaxmf.blocks.elimination import Factor, draw
from jaxmf.blocks.roles import (
    Role,
    involved,
    lanes_of,
    look_up_of,
    roles_of,
    statistics_of_roles,
)
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.engine import Info
from jaxmf.types import Array, Key, PyTree

_MOST_FACTORS = 4  # a product of more probabilities may be too small for a float


def sweep(
    network: Wiring,
    names: tuple[str, ...],
    key: Key,
    state: NetworkState,
    data: Tokens,
    *,
    among: Mapping[str, PyTree] | None = None,
) -> tuple[NetworkState, Info]:
    """Kernel: the named indicators of every token, jointly, given all else.

    Args:
        names: one indicator, or several that are drawn together; parents first.
        key: typed PRNG key, or (T,) with one for each token.
        among: where these are some of more tokens, the statistics that all of them give the blocks
            concerned.
    Returns:
        The state after, and overflow of the growing ones among them.
    """
    widths = _widths(network, names, state, exact=among is not None)
    roles = roles_of(network, names, network.sizes(data, widths))
    start = among or statistics_of_roles(roles, all_values(state, data), widths)
    return _run(network, names, roles, widths, start, key, state, data, is_first=False)


def first_sweep(
    network: Wiring,
    names: tuple[str, ...],
    known: tuple[str, ...],
    key: Key,
    state: NetworkState,
    data: Tokens,
) -> NetworkState:
    """The named indicators of every token given those before it: where a chain starts.

    Blocks that hang on indicators which are not yet `known` are left out. Where there is no room
    for a new group, there is none.
    """
    ready = {*data.columns, *data.values, *known, *names}
    widths = _widths(network, names, state)
    roles = roles_of(network, names, network.sizes(data, widths), ready=ready)
    empty = {role.name: _nothing(role, widths) for role in roles}
    return _run(network, names, roles, widths, empty, key, state, data, is_first=True)[0]


def _nothing(role: Role, widths: Mapping[str, int]) -> PyTree:
    if role.is_indicator:
        return jnp.zeros((role.parts.num_parts, widths[role.name]), jnp.int32)
    return role.distribution.empty(role.parts.num_parts)


def _run(
    network: Wiring,
    names: tuple[str, ...],
    roles: tuple[Role, ...],
    widths: Mapping[str, int],
    statistics: Mapping[str, PyTree],
    key: Key,
    state: NetworkState,
    data: Tokens,
    *,
    is_first: bool,
) -> tuple[NetworkState, Info]:
    values = all_values(state, data)
    caches = {r.name: _begin(r, statistics[r.name], state.hyperparameters[r.name]) for r in roles}
    needed = {parent for role in roles for parent in role.parts.by}
    needed |= {role.name for role in roles}
    columns = {name: values[name] for name in sorted(needed)}
    look_up = look_up_of(roles)
    growing = [name for name in names if network.distributions[name].grows]
    # a new group of such a prior needs a further uniform, for its weight
    births = tuple(n for n in growing if network.distributions[n].new_group_is_random)
    uniforms = _uniforms(key, (data.num_tokens, len(names) + len(births)))
    # the same at every capacity, so that more slots do not change what is drawn
    lanes = tuple(
        tables.NUM_LANES if name in growing else tables.lanes_for(widths[name]) for name in names
    )
    compiled = _Compiled(names, births, lanes, roles, is_first)
    fuses = all(role.distribution.fuses for role in roles if role.is_indicator)
    loop = fused_on_cpu(compiled.loop, sequential=True) if fuses else compiled.loop
    drawn, caches, no_room = loop(columns, caches, look_up, uniforms)
    hyperparameters, occupied = dict(state.hyperparameters), dict(state.slots)
    for name in growing:
        counts, hyperparameters[name] = network.distributions[name].end(caches[name])
        occupied[name] = jnp.any(counts > 0, axis=0)
    overflow = dict.fromkeys(growing, no_room)
    after = NetworkState({**state.values, **drawn}, hyperparameters, occupied)
    return after, Info(overflow=overflow)


def _uniforms(key: Key, shape: tuple[int, int]) -> Array:
    if not key.ndim:
        return special.uniforms(key, shape)
    return jax.vmap(lambda token_key: special.uniforms(token_key, shape[1:]))(key)


def _widths(
    network: Wiring, names: tuple[str, ...], state: NetworkState, *, exact: bool = False
) -> dict[str, int]:
    """How many values of every indicator the sweep makes room for.

    Of the last one drawn as many as make whole vectors, if all families and priors concerned can
    leave values without weight. Not where logarithms are taken: the highest must be that of a value
    with weight; nor where `exact` ones are asked for.
    """
    widths = slot_sizes(state, network)
    last, concerned = names[-1], involved(network, names)
    blocks = [network.blocks[name] for name in concerned]
    not_drawn = [network.distributions[name] for name in concerned if name not in names]
    in_logs = len(not_drawn) > _MOST_FACTORS or any(
        getattr(distribution, "is_log", False) for distribution in not_drawn
    )
    if not exact and not in_logs and all(b.distribution.pads and b.rho is None for b in blocks):
        widths[last] = tables.padded(widths[last])
    return widths


def _begin(role: Role, statistics: PyTree, hyperparameters: Mapping[str, Array]) -> PyTree:
    if role.is_indicator:
        return role.distribution.begin(
            statistics, dict(hyperparameters), with_sizes=bool(role.over)
        )
    return role.distribution.begin(statistics, dict(hyperparameters))


class _Compiled(NamedTuple):
    """The loop over all tokens, as decided when it is traced."""

    names: tuple[str, ...]
    births: tuple[str, ...]
    lanes: tuple[int, ...]
    roles: tuple[Role, ...]
    is_first: bool

    def loop(
        self,
        columns: dict[str, Array],
        caches: dict[str, PyTree],
        look_up: dict[str, Array],
        uniforms: Array,
    ) -> tuple[dict[str, Array], dict[str, PyTree], Array]:
        """The indicators of all tokens, what the sweep works on, and whether room was short."""
        # read from one array and written to another, or the compiler copies it at every token
        empty = {name: jnp.zeros_like(columns[name]) for name in self.names}
        start = (empty, caches, jnp.zeros((), bool))

        def one_token(index: Array, carry: PyTree) -> PyTree:
            return self.one_token(index, carry, columns, look_up, uniforms)

        return jax.lax.fori_loop(0, uniforms.shape[0], one_token, start)

    def one_token(
        self,
        index: Array,
        carry: PyTree,
        columns: dict[str, Array],
        look_up: dict[str, Array],
        uniforms: Array,
    ) -> PyTree:
        """One token leaves, draws and joins."""
        names = self.names
        drawn, caches, no_room = carry
        values = {name: tables.row(column, index) for name, column in columns.items()}
        chance = tables.row(uniforms, index)
        if not self.is_first:
            caches = self.moved(caches, values, look_up, None)
        factors, room = _factors(self.roles, caches, values, look_up)
        chances = [chance[position] for position in range(len(names))]
        new = draw(names, factors, chances, self.lanes)
        values = values | dict(zip(names, new, strict=True))
        births = {name: chance[len(names) + i] for i, name in enumerate(self.births)}
        caches = self.moved(caches, values, look_up, births)
        drawn = {name: tables.put(drawn[name], index, values[name]) for name in names}
        return drawn, caches, no_room | ~room

    def moved(
        self,
        caches: Mapping[str, PyTree],
        values: Mapping[str, Array],
        look_up: Mapping[str, Array],
        births: Mapping[str, Array] | None,
    ) -> dict[str, PyTree]:
        """The token out of its parts (births None) or into them."""
        after = dict(caches)
        for name, distribution, parts, _, is_drawn in self.roles:
            part, value = parts.of(values, look_up.get(name)), values[name]
            if not is_drawn:
                after[name] = distribution.move(
                    after[name], part, value, -1 if births is None else 1
                )
            elif births is None:
                after[name] = distribution.unassign(after[name], part, value)
            else:
                chance = births.get(name, jnp.zeros((), jnp.result_type(float)))
                after[name] = distribution.assign(after[name], part, value, chance)
        return after


def _factors(
    roles: tuple[Role, ...],
    caches: Mapping[str, PyTree],
    values: Mapping[str, Array],
    look_up: Mapping[str, Array],
) -> tuple[list[Factor], Array]:
    """Factors of the distribution of a token's drawn indicators, and whether there was room."""
    factors: list[Factor] = []
    logs: dict[tuple[str, ...], Array] = {}
    num_plain = sum(
        not (role.is_drawn or getattr(role.distribution, "is_log", False)) for role in roles
    )
    room = jnp.ones((), bool)
    for role in roles:
        cache, table = caches[role.name], look_up.get(role.name)
        if role.is_drawn and not role.over:
            weights, has_room = role.distribution.weights(cache, role.parts.of(values, table))
            factors.append(Factor((role.name,), weights))
            room &= has_room
            continue
        lanes, shape = lanes_of(role, values, table)
        if role.is_drawn:
            probabilities, has_room = role.distribution.next_probabilities(cache, lanes)
            factors.append(Factor((*role.over, role.name), probabilities.reshape(*shape, -1)))
            room &= has_room
            continue
        result = role.distribution.predictive(cache, lanes, values[role.name]).reshape(shape)
        if getattr(role.distribution, "is_log", False):
            logs[role.over] = logs.get(role.over, 0) + result
        elif num_plain > _MOST_FACTORS:
            logs[role.over] = logs.get(role.over, 0) + jnp.log(result)
        else:
            factors.append(Factor(role.over, result))
    for over, log_values in _together(logs).items():
        factors.append(Factor(over, jnp.exp(log_values - jnp.max(log_values))))
    return factors, room


def _together(logs: Mapping[tuple[str, ...], Array]) -> dict[tuple[str, ...], Array]:
    """Logarithms over some of the variables of another table are added to it.

    Exponentials of each alone could all be zero where their maxima are at different indices.
    """
    sums: dict[tuple[str, ...], Array] = {}
    for over in sorted(logs, key=len, reverse=True):
        wider = next((names for names in sums if set(over) < set(names)), over)
        axes = [index for index, name in enumerate(wider) if name not in over]
        sums[wider] = sums.get(wider, 0) + jnp.expand_dims(logs[over], axes)
    return sums
