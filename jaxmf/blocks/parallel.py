"""The exact parallel sweep of a network: all tokens at once, given parameters.

With the parameters of every part drawn from their conditional, the tokens are independent: their
indicators are drawn at the same time, by array programs without a loop over tokens. Afterwards the
parameters are forgotten: a state is that of the sequential sweep, and the two may alternate.

**Groups that come and go.** Parameters are drawn of the groups in use alone, and a token cannot
join a group that is not. Were it free to leave every group, groups would be emptied and never made:
that does not leave the posterior invariant. So every group in use stays in use, in this way. Every
token has a fresh uniform variable, drawn without looking at the state. The token of a group with
the smallest one holds the group: it stays where it is, and tokens with smaller ones than that of a
group's holder cannot join the group. Given the uniforms, and who holds which group, the states
that remain are those in which every token that holds nothing is in some group whose holder has a
smaller uniform, and within these the tokens are independent:

    p(z | parameters, hyperparameters, holders) ~ prod_i pi_{z_i} f(x_i | theta_{z_i}) 1[number of
    the holder of z_i < number of i].

All of it is a Gibbs step, with nothing to reject. Groups are made and removed by sequential,
collapsed updates of a few tokens (`subset.py`) before each parallel sweep.

Source: Porteous (2010), section 5.1; Ishwaran & James (2001), Gibbs sampling methods for
stick-breaking priors, for sampling given weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from jaxmf.blocks import batches
from jaxmf.blocks.counts import all_values, part_of, slot_sizes
from jaxmf.blocks.elimination import Factor, draw_all
from jaxmf.blocks.roles import Role, look_up_of, roles_of, statistics_of_roles
from jaxmf.blocks.set_turns import Read, SetTurns, padded, turns_of
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.weights import sample_log_weights
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.devices import block_size
from jaxmf.row_shards import DATA_AXIS
from jaxmf.types import Array, Key, PyTree

_LEAST_PRODUCT = 1e-20  # with a prior probability still a float


class _Holders(NamedTuple):
    """Who holds the groups of a growing indicator."""

    uniforms: Array  # (T,) float, the tokens' uniforms
    batches: Array  # (T,) int32, the batch of a token; zeros where all batches share their groups
    smallest: Array  # (G, K) float, the number of a group's holder; infinite where it is not in use


def sweep(
    network: Wiring,
    names: tuple[str, ...],
    key: Key,
    state: NetworkState,
    data: Tokens,
    *,
    in_kernel: bool = False,
) -> NetworkState:
    """Kernel: the named indicators of all tokens at once, jointly, given all else.

    Leaves the posterior invariant. The groups in use stay in use.

    Args:
        names: one indicator, or several that are drawn together; parents first.
        in_kernel: see `SetTurns`; for networks that `in_kernel.fits`.
    Returns:
        The state after.
    """
    parameters_key, tokens_key, holders_key = jax.random.split(key, 3)
    values, slots = all_values(state, data), slot_sizes(state, network)
    roles = roles_of(network, names, network.sizes(data, slots))
    turns = turns_of(network, names, roles, slots, in_kernel=in_kernel)
    with_parameters = roles if turns is None else turns.others
    parameters = _parameters(parameters_key, with_parameters, values, slots, state)
    holders = {
        role.name: _holders(jax.random.fold_in(holders_key, index), role, values, slots[role.name])
        for index, role in enumerate(roles)
        if role.is_drawn and role.distribution.grows
    }
    if turns is None:
        drawn = draw_tokens(tokens_key, names, roles, values, parameters, holders)
    else:
        drawn = _draw_in_batches(tokens_key, turns, values, parameters, state, holders)
    return state._replace(values=state.values | drawn)


def _draw_in_batches(
    key: Key,
    turns: SetTurns,
    values: Mapping[str, Array],
    parameters: Mapping[str, Array],
    state: NetworkState,
    holders: Mapping[str, _Holders],
) -> dict[str, Array]:
    """As `draw_tokens`, with the probabilities of groups in a batch summed out."""
    last, wider = turns.names[-1], padded(turns)
    probabilities = {}
    for role in turns.others:
        logs, parts = parameters[role.name], role.parts
        table = jnp.exp(_with_least(logs, role, len(turns.others)) if turns.is_first else logs)
        if wider is not turns:
            table = table.reshape(*parts.sizes, table.shape[1])
            axes = (*parts.by, role.name)
            missing = [wider.sizes[-1] - turns.sizes[-1] if name == last else 0 for name in axes]
            table = jnp.pad(table, [(0, size) for size in missing])
            table = table.reshape(-1, table.shape[-1])
        probabilities[role.name] = table if role.is_drawn else table.T
    hyperparameters = {name: state.hyperparameters[name] for name in turns.collapsed}
    if wider is not turns and last in turns.collapsed:
        concentration = hyperparameters[last]["concentration"]
        each = jnp.broadcast_to(concentration, (turns.sizes[-1],))
        each = jnp.pad(each, (0, wider.sizes[-1] - turns.sizes[-1]))
        hyperparameters[last] = hyperparameters[last] | {"concentration": each}
    read = Read(
        probabilities,
        hyperparameters,
        look_up_of(turns.others),
        {name: holder.smallest[0] for name, holder in holders.items()},
    )
    marks = {name: holder.uniforms for name, holder in holders.items()}
    return batches.draw_in_batches(key, wider, values, read, marks)


def _with_least(log_values: Array, role: Role, num_tables: int) -> Array:
    """Log probabilities that are large enough for a product of tables not to be zero.

    For a start alone, where no group may have a token's value yet, and its probability be too small
    for a float in all of them. In a sweep the group that has the token has its value.

    Args:
        log_values: (P, V), -inf where a group is not in use; of a block that is not drawn up to a
            constant for each value.
    """
    least = np.log(_LEAST_PRODUCT) / num_tables
    if role.is_drawn:
        return jnp.where(jnp.isfinite(log_values), jnp.maximum(log_values, least), -jnp.inf)
    sizes, axes = role.parts.sizes, tuple(role.parts.by.index(name) for name in role.over)
    if role.parts.table is not None:
        sizes, axes = (log_values.shape[0],), (0,)
    each = log_values.reshape(*sizes, -1)
    each -= jnp.max(each, axis=axes, keepdims=True)
    # a value that is not in use in any part says nothing
    return jnp.maximum(jnp.where(jnp.isnan(each), 0, each), least).reshape(log_values.shape)


def first_sweep(
    network: Wiring,
    names: tuple[str, ...],
    known: tuple[str, ...],
    key: Key,
    few: tuple[NetworkState, Tokens],
    state: NetworkState,
    data: Tokens,
) -> NetworkState:
    """The named indicators of all tokens given those of a few: where a chain starts.

    Args:
        known: those that all tokens have by now; blocks that hang on others are left out.
        few: a state of some of the tokens, and these.
        state: of all tokens, with the slots of the few.
    """
    parameters_key, tokens_key = jax.random.split(key)
    ready = {*data.columns, *data.values, *known, *names}
    values, slots = all_values(*few), slot_sizes(state, network)
    roles = roles_of(network, names, network.sizes(data, slots), ready=ready)
    turns = turns_of(network, names, roles, slots, is_first=True)
    with_parameters = roles if turns is None else turns.others
    parameters = _parameters(parameters_key, with_parameters, values, slots, few[0])
    for role in with_parameters:
        if role.is_indicator:
            log_weights = parameters[role.name]
            # of a batch without any of the few: the first group
            is_first = jnp.where(jnp.arange(log_weights.shape[1]) == 0, 0.0, -jnp.inf)
            is_known = jnp.any(jnp.isfinite(log_weights), axis=1, keepdims=True)
            parameters[role.name] = jnp.where(is_known, log_weights, is_first)
    values = all_values(state, data)
    if turns is None:
        drawn = draw_tokens(tokens_key, names, roles, values, parameters, {})
    else:
        drawn = _draw_in_batches(tokens_key, turns, values, parameters, state, {})
    return state._replace(values=state.values | drawn)


def _parameters(
    key: Key,
    roles: Sequence[Role],
    values: Mapping[str, Array],
    slots: Mapping[str, int],
    state: NetworkState,
) -> dict[str, PyTree]:
    """Parameters of families, and log probabilities of indicators, from their conditionals."""
    parameters = {}
    statistics = statistics_of_roles(roles, values, slots)
    for index, role in enumerate(roles):
        known = statistics[role.name], state.hyperparameters[role.name]
        index_key, distribution = jax.random.fold_in(key, index), role.distribution
        parameters[role.name] = (
            sample_log_weights(index_key, distribution, *known)
            if role.is_indicator
            else distribution.sample_parameters(index_key, *known)
        )
    return parameters


def _holders(key: Key, role: Role, values: Mapping[str, Array], num_slots: int) -> _Holders:
    """Draws the uniforms of tokens, and finds the smallest of every group."""
    groups = values[role.name]
    uniforms = jax.random.uniform(key, groups.shape, jnp.result_type(float))
    batch, num_batches = jnp.zeros_like(groups), 1
    if not role.distribution.labels_shared:
        batch, num_batches = part_of(role.parts, values, groups.shape[0]), role.parts.num_parts
    no_holder = jnp.full((num_batches, num_slots), jnp.inf, uniforms.dtype)
    return _Holders(uniforms, batch, no_holder.at[batch, groups].min(uniforms))


def _log_allowed(holders: _Holders, groups: Array) -> Array:
    """Where tokens may go: (B, K), 0 or -inf. `groups` (B,) is where they are."""
    smallest = holders.smallest[holders.batches]
    allowed = jax.vmap(batches.allowed_groups)(smallest, holders.uniforms, groups)
    return jnp.where(allowed, 0.0, -jnp.inf)


# --- tokens given parameters ----------------------------------------------------------------------


def draw_tokens(
    key: Key,
    names: tuple[str, ...],
    roles: tuple[Role, ...],
    values: Mapping[str, Array],
    parameters: Mapping[str, PyTree],
    holders: Mapping[str, _Holders],
) -> dict[str, Array]:
    """The named indicators of all tokens, block by block: name -> (T,) int32."""
    needed = {parent for role in roles for parent in role.parts.by}
    columns = {name: values[name] for name in sorted(needed | {role.name for role in roles})}
    num_tokens = values[names[0]].shape[0]
    uniforms = jax.random.uniform(key, (num_tokens, len(names)), jnp.result_type(float))
    marks = {name: (holder.uniforms, holder.batches) for name, holder in holders.items()}

    def draw_block(block: tuple[PyTree, PyTree, Array]) -> tuple[Array, ...]:
        columns, marks, uniforms = block
        factors = _log_factors(roles, columns, parameters)
        for name, (mark, batch) in marks.items():
            holder = _Holders(mark, batch, holders[name].smallest)
            factors.append(Factor((name,), _log_allowed(holder, columns[name])))
        return tuple(draw_all(names, factors, uniforms))

    num_cells = _num_cells(names, roles, parameters)
    drawn = _in_blocks(draw_block, (columns, marks, uniforms), num_tokens, num_cells)
    return dict(zip(names, drawn, strict=True))


def _in_blocks(function: object, tokens: PyTree, num_tokens: int, num_cells: int) -> PyTree:
    """A function of tokens over blocks of them, each spread over the devices of the mesh."""
    mesh = jax.sharding.get_abstract_mesh()
    devices = mesh.shape[DATA_AXIS] if DATA_AXIS in mesh.axis_names else 0
    num_blocks = -(-num_tokens * num_cells // (block_size("token cells") * max(devices, 1)))
    size = -(-num_tokens // num_blocks)
    size = -(-size // max(devices, 1)) * max(devices, 1)

    def cut(leaf: Array) -> Array:
        padding = [(0, num_blocks * size - num_tokens), *[(0, 0)] * (leaf.ndim - 1)]
        blocks = jnp.pad(leaf, padding).reshape(num_blocks, size, *leaf.shape[1:])
        return _spread(blocks) if devices else blocks

    def join(leaf: Array) -> Array:
        return leaf.reshape(num_blocks * size, *leaf.shape[2:])[:num_tokens]

    return jax.tree.map(join, jax.lax.map(function, jax.tree.map(cut, tokens)))


def _spread(blocks: Array) -> Array:
    return jax.lax.with_sharding_constraint(blocks, PartitionSpec(None, DATA_AXIS))


def _log_factors(
    roles: tuple[Role, ...], columns: Mapping[str, Array], parameters: Mapping[str, PyTree]
) -> list[Factor]:
    """The factors of the distribution of the drawn indicators: log values (B or 1, ...)."""
    factors = []
    for role in roles:
        indices, shape = _indices(role, columns)
        block_parameters, value = parameters[role.name], columns[role.name]
        if role.is_drawn:
            table = block_parameters[indices]
            factors.append(
                Factor(
                    (*role.over, role.name), table.reshape(-1, *shape, block_parameters.shape[1])
                )
            )
            continue
        if role.is_indicator:
            log_values = block_parameters[indices, value[:, None]]
        elif role.parts.table is None and role.parts.by == role.over:  # all parts, in their order
            log_values = jax.vmap(role.distribution.log_prob, (None, 0))(block_parameters, value)
        else:
            indices = jnp.broadcast_to(indices, (value.shape[0], indices.shape[1]))
            log_values = role.distribution.log_prob_at(block_parameters, indices, value)
        factors.append(Factor(role.over, log_values.reshape(-1, *shape)))
    return factors


def _indices(role: Role, columns: Mapping[str, Array]) -> tuple[Array, tuple[int, ...]]:
    """The parts of tokens for all values of the drawn parents: (B or 1, n); n is prod of shape."""
    shape = tuple(role.parts.sizes[role.parts.by.index(name)] for name in role.over)
    values = {name: columns[name][:, None] for name in role.parts.by}
    if role.over:
        grids = np.indices(shape, np.int32).reshape(len(shape), 1, -1)
        values |= {name: jnp.asarray(grid) for name, grid in zip(role.over, grids, strict=True)}
    table = None if role.parts.table is None else jnp.asarray(role.parts.table)
    indices = role.parts.of(values, table)
    return indices if indices.ndim else indices.reshape(1, 1), shape


def _num_cells(
    names: tuple[str, ...], roles: tuple[Role, ...], parameters: Mapping[str, PyTree]
) -> int:
    """Entries of the largest table of a token on the way."""
    sizes = {name: parameters[name].shape[1] for name in names}
    scopes = [{*role.over, *((role.name,) if role.is_drawn else ())} for role in roles]
    largest = 1
    for name in reversed(names):
        with_name = [scope for scope in scopes if name in scope]
        together = set().union(*with_name)
        largest = max(largest, int(np.prod([sizes[one] for one in together], dtype=object)))
        scopes = [scope for scope in scopes if name not in scope] + [together - {name}]
    return largest
