"""The parallel draw of tokens for accelerators: proportions drawn, then all tokens at once.

Where an indicator is partitioned by a column (topics by document), the probabilities of its groups
in a batch (proportions of topics) are drawn from their conditional for a block of batches, and the
tokens of these are independent given them:

    theta_g | z ~ Dirichlet(n_g1 + a_1, ..., n_gK + a_K),    p(z_i = k | theta, phi) ~ theta_gk
    phi_{k, x_i}.

There is no table of batches times groups larger than a block, and none of tokens times groups: the
products are summed in pieces of the groups as they are read; a token finds its piece, and reads
that again. A batch of any length takes the same way. Random numbers are those of the batch and of
the token, so draws do not depend on the blocks, nor on the number of devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.blocks.set_turns import AllTokens, Read, SetTurns
from jaxmf.blocks.weights import sample_log_weights
from jaxmf.devices import block_size
from jaxmf.types import Array, Key

_LEAST_PIECE = 32  # neighbours that a warp reads together


def draw_at_once(
    turns: SetTurns,
    key: Key,
    tokens: AllTokens,
    read: Read,
    starts: Array,
    bounds: np.ndarray | Array,
) -> dict[str, Array]:
    """The indicators of the tokens of some batches, zeros for all others: name -> (T,) int32.

    Args: read: parameters that all batches share, and hyperparameters; starts (G + 1,) int32, where
    a batch starts in the order of the tokens; bounds (2,) int32, the batches that are drawn.
    """
    num_tokens, num_batches = tokens.order.shape[0], turns.num_batches
    shapes = {
        role.name: (role.parts.without(turns.column).num_parts, size)
        for role, size in zip(turns.drawn, turns.sizes, strict=True)
        if role.name in turns.collapsed
    }
    width = sum(math.prod(shape) for shape in shapes.values())
    num_rows = min(num_batches, max(1, block_size("token cells") // width))
    num_sums = -(-math.prod(turns.sizes) // _piece(turns))
    num_chosen = min(num_tokens, max(1, block_size("token sums") // num_sums))
    is_whole = num_rows == num_batches and isinstance(bounds, np.ndarray)

    def one_block(block: Array, drawn: dict[str, Array]) -> dict[str, Array]:
        rows = bounds[0] + block * num_rows + jnp.arange(num_rows)
        first, last = rows[0], jnp.minimum(rows[0] + num_rows, bounds[1])
        # their difference is then known before the program runs, and so how often a loop turns
        start, end = (0, num_tokens) if is_whole else (starts[first], starts[last])

        def chosen(window: Array) -> tuple[Array, Array, dict[str, Array], Array]:
            index = start + window * num_chosen + jnp.arange(num_chosen)
            position = tokens.order[jnp.minimum(index, num_tokens - 1)]
            token = {name: column[position] for name, column in tokens.columns.items()}
            row = jnp.clip(token[turns.column] - first, 0, num_rows - 1)
            return position, index < end, token, row

        def count(window: Array, counts: dict[str, Array]) -> dict[str, Array]:
            _, is_there, token, row = chosen(window)
            row, after = jnp.where(is_there, row, num_rows), {}
            for role in turns.drawn:
                if role.name in counts:
                    part = role.parts.without(turns.column).flat(token)
                    cells = counts[role.name].at[row, part, token[role.name]]
                    after[role.name] = cells.add(1, mode="drop")
            return after

        def draw(window: Array, drawn: dict[str, Array]) -> dict[str, Array]:
            position, is_there, token, row = chosen(window)
            marks = {name: mark[position] for name, mark in tokens.marks.items()}
            uniforms = tokens.uniforms[position]
            weigh = _weights_of(turns, read, proportions, token, row, marks)
            new = _named(turns, choose(weigh, math.prod(turns.sizes), _piece(turns), uniforms))
            position = jnp.where(is_there, position, num_tokens)
            return {
                name: drawn[name].at[position].set(new[name], mode="drop", unique_indices=True)
                for name in drawn
            }

        num_windows = -(-(end - start) // num_chosen)
        counts = {name: jnp.zeros((num_rows, *shape), jnp.int32) for name, shape in shapes.items()}
        if not turns.is_first:
            counts = jax.lax.fori_loop(0, num_windows, count, counts)
        proportions = _proportions(turns, key, rows, counts, read)
        return jax.lax.fori_loop(0, num_windows, draw, drawn)

    drawn = {name: jnp.zeros_like(tokens.order) for name in turns.names}
    return jax.lax.fori_loop(0, -(-(bounds[1] - bounds[0]) // num_rows), one_block, drawn)


def _proportions(
    turns: SetTurns, key: Key, rows: Array, counts: Mapping[str, Array], read: Read
) -> dict[str, Array]:
    """Probabilities of the groups in some batches, from their conditional: (R * P, K) each.

    Where tokens are the first of their batches, over the largest one of the batch: of a growing
    prior all groups together may have less than a float can hold, and what is left to new ones is
    no choice then.
    """
    found = {}
    for index, role in enumerate(turns.drawn):
        if role.name not in counts:
            continue
        role_key = jax.random.fold_in(key, index)
        row_keys = jax.vmap(jax.random.fold_in, (None, 0))(role_key, rows)
        hyperparameters = read.hyperparameters[role.name]
        logs = sample_log_weights(row_keys, role.distribution, counts[role.name], hyperparameters)
        if turns.is_first:
            logs -= jnp.max(logs, axis=-1, keepdims=True)
        found[role.name] = jnp.exp(logs).reshape(-1, logs.shape[-1])
    return found


def _piece(turns: SetTurns) -> int:
    """How many neighbours are summed: about as many as there are sums."""
    size = math.prod(turns.sizes)
    height = max(1, round(math.sqrt(size) / _LEAST_PIECE))
    return min(size, height * _LEAST_PIECE)


def _named(turns: SetTurns, combination: Array) -> dict[str, Array]:
    """The values of the indicators in combinations of them, of which the last one runs first."""
    values, (first, *others) = {}, turns.names
    for name, size in zip(others[::-1], turns.sizes[:0:-1], strict=True):
        combination, values[name] = jnp.divmod(combination, size)
    return values | {first: combination}


def _weights_of(
    turns: SetTurns,
    read: Read,
    proportions: Mapping[str, Array],
    token: Mapping[str, Array],
    row: Array,
    marks: Mapping[str, Array],
) -> Callable[[Array], Array]:
    """A function of combinations of the indicators' values (B, ...): what each weighs."""

    def weigh(combination: Array) -> Array:
        chosen = _named(turns, combination)

        def wide(leaf: Array) -> Array:
            return leaf.reshape(-1, *[1] * (combination.ndim - 1))

        values = {name: wide(column) for name, column in token.items()} | chosen
        weights = jnp.ones((), jnp.result_type(float))
        for role in turns.roles:
            part = role.parts.of(values, read.look_up.get(role.name))
            if role.name in turns.collapsed:
                others = role.parts.without(turns.column)
                part = wide(row) * others.num_parts + others.flat(values)
                cells = proportions[role.name].at[part, values[role.name]]
            elif role.is_drawn:
                cells = read.probabilities[role.name].at[part, values[role.name]]
            else:
                cells = read.probabilities[role.name].at[values[role.name], part]
            weights *= cells.get(mode="promise_in_bounds")
        for name, mark in marks.items():
            smallest, group = read.smallest[name], token[name]
            joins = smallest[chosen[name]] < wide(mark)
            # of tokens with equal uniforms all hold their groups
            is_free, stays = wide(smallest[group] < mark), chosen[name] == wide(group)
            weights *= jnp.where(is_free, joins, stays).astype(weights.dtype)
        return weights

    return weigh


def choose(weigh: Callable[[Array], Array], size: int, piece: int, uniforms: Array) -> Array:
    """Draws a combination for each token with probability proportional to its weight: (B,) int32.

    Each weight is computed once for the sum of its piece, and those of one piece again.

    Args: weigh: combinations (B, ...) int32 -> their weights, not negative, for each token at least
    one positive; piece: how many of them are summed together; uniforms (B,) float in [0, 1).
    """

    def inside(combination: Array) -> Array:
        is_one = combination < size
        return jnp.where(is_one, weigh(jnp.where(is_one, combination, size - 1)), 0)

    shape = (uniforms.shape[0], -(-size // piece), piece)
    every = jax.lax.broadcasted_iota(jnp.int32, shape[1:], 0) * piece
    every += jax.lax.broadcasted_iota(jnp.int32, shape[1:], 1)
    # Zeros that depend on the uniforms, so that in `vmap` each chain has indices of its own. Where
    # chains share the indices XLA makes the axis of chains the innermost one: neighbours in a warp
    # then read numbers that are far apart, which took ten times as long (H200).
    zeros = jnp.minimum(uniforms, 0).astype(jnp.int32)[:, None, None]
    sums = jnp.sum(inside(jnp.broadcast_to(every, shape) + zeros), axis=2)
    running = jnp.cumsum(sums, axis=1)
    first, left = _passed(sums, running, uniforms * running[:, -1])
    inner = inside(first[:, None] * piece + jnp.arange(piece, dtype=jnp.int32))
    return first * piece + _passed(inner, jnp.cumsum(inner, axis=1), left)[0]


def _passed(weights: Array, running: Array, goal: Array) -> tuple[Array, Array]:
    """The first index of positive weight whose running sum passes the goal, and what is left there.

    Rounding may let the sum end short of it; then it is the last index of positive weight.
    """
    group = jnp.arange(weights.shape[1], dtype=jnp.int32)
    is_some = weights > 0
    passed = jnp.where(is_some & (running > goal[:, None]), group, weights.shape[1])
    last = jnp.max(jnp.where(is_some, group, 0), axis=1)
    index = jnp.minimum(jnp.min(passed, axis=1), last)
    at = index[:, None]
    before = jnp.take_along_axis(running, at, axis=1) - jnp.take_along_axis(weights, at, axis=1)
    return index, goal - before[:, 0]
