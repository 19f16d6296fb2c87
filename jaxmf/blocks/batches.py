"""The draw of tokens given what batches share: batches are apart, the tokens of each in turn.

Where an indicator is partitioned by a column (topics by document), what its groups have in a batch
(proportions of topics) stays summed out, and only what all batches share (words of topics) is drawn
before:

    p(z_i = k | other tokens of the batch, phi) ~ (n_gk + a_k) phi_{k, x_i}.

n_gk counts the other tokens of batch g. Batches are independent given phi; the counts are of those
that are worked on, so there is no table of batches times groups. A chain mixes better than with all
parameters drawn, as a token follows the others of its batch at once.

On a CPU batch follows batch in one fused loop. Elsewhere every token in turn would be some kernels
that the host starts, so what is summed out here is drawn (`at_once.py`), unless the whole is one
kernel (`token_draw.py`). The axis "data" of a mesh spreads batches; uniforms are those of the
token, so the draws are the same on any number of devices.

Source: Magnusson, Jonsson, Villani & Broman (2018), Sparse partially collapsed MCMC for parallel
inference in topic models; Terenin, Magnusson & Jonsson (2020) for the HDP.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from jaxmf import row_shards
from jaxmf._kernels import special, tables, token_draw
from jaxmf._kernels.fusion import fused_on_cpu
from jaxmf.blocks.at_once import draw_at_once
from jaxmf.blocks.elimination import Factor, draw
from jaxmf.blocks.roles import Role, lanes_of
from jaxmf.blocks.set_turns import AllTokens, Read, SetTurns
from jaxmf.devices import default_platform
from jaxmf.row_shards import DATA_AXIS
from jaxmf.types import Array, Key, PyTree


def draw_in_batches(
    key: Key, turns: SetTurns, values: Mapping[str, Array], read: Read, marks: dict[str, Array]
) -> dict[str, Array]:
    """The indicators of all tokens: name -> (T,) int32.

    Args: turns: see `turns_of`; values: of all variables, (T,) each; read: probabilities and
    hyperparameters; marks: growing indicator -> uniforms of tokens.
    """
    needed = {parent for role in turns.others for parent in role.parts.by}
    needed |= {role.name for role in turns.roles}
    columns = {name: values[name] for name in sorted(needed)}
    num_tokens = values[turns.names[0]].shape[0]
    order, sizes = tables.sorted_by(values[turns.column], turns.num_batches)
    starts = jnp.concatenate([jnp.zeros((1,), jnp.int32), jnp.cumsum(sizes, dtype=jnp.int32)])
    bounds = np.asarray([0, turns.num_batches], np.int32)
    if default_platform() == "cpu":
        uniforms = special.uniforms(key, (num_tokens, len(turns.names)))
        # read side by side: a token that waits for its numbers holds up all after it
        sorted_tokens = jax.tree.map(lambda leaf: leaf[order], (columns, marks, uniforms))
        tokens = AllTokens(order, *sorted_tokens)
        run: Callable[..., dict[str, Array]] = fused_on_cpu(
            partial(_one_batch_after_another, turns), sequential=True
        )
    else:
        columns[turns.column] = values[turns.column]
        tokens_key, key = jax.random.split(key)
        tokens = AllTokens(order, columns, marks, special.uniforms(tokens_key, (num_tokens,)))
        # slots may have grown beyond what the kernel holds
        in_kernel = turns.in_kernel and math.prod(turns.sizes) <= token_draw.MOST_TOPICS
        run = partial(_in_kernel if in_kernel else draw_at_once, turns)
    mesh = jax.sharding.get_abstract_mesh()
    if DATA_AXIS not in mesh.axis_names:
        return run(key, tokens, read, starts, bounds)
    num_devices = int(mesh.shape[DATA_AXIS])
    ends = [num_tokens * device // num_devices for device in range(num_devices + 1)]

    def share(key: Key, tokens: AllTokens, read: Read, starts: Array) -> dict[str, Array]:
        # a batch is of the device in whose share of the tokens it starts
        bounds = jnp.searchsorted(starts[:-1], np.asarray(ends, np.int32))
        device = jax.lax.axis_index(DATA_AXIS)
        bounds = jax.lax.dynamic_slice_in_dim(bounds.astype(jnp.int32), device, 2)
        return jax.lax.psum(run(key, tokens, read, starts, bounds), DATA_AXIS)

    everywhere = PartitionSpec()
    return jax.shard_map(share, in_specs=everywhere, out_specs=everywhere, check_vma=False)(
        key, tokens, read, starts
    )


def _one_batch_after_another(
    turns: SetTurns, key: Key, tokens: AllTokens, read: Read, starts: Array, bounds: Array
) -> dict[str, Array]:
    """The tokens of the batches within the bounds; zeros for all others."""
    del key  # the uniforms of the tokens are all that is needed
    bounds = jnp.asarray(bounds)
    drawn = {name: jnp.zeros_like(tokens.order) for name in turns.names}
    lanes = [
        tables.NUM_LANES if role.distribution.grows else tables.lanes_for(size)
        for role, size in zip(turns.drawn, turns.sizes, strict=True)
    ]

    def one_batch(batch: Array, drawn: dict[str, Array]) -> dict[str, Array]:
        first, end = tables.row(starts, batch), tables.row(starts, batch + 1)

        def count(index: Array, counts: dict[str, Array]) -> dict[str, Array]:
            return _moved(turns, counts, _token(tokens, index), 1)

        def one_token(index: Array, carry: PyTree) -> PyTree:
            drawn, counts = carry
            position = tables.row(tokens.order, index)
            token = _token(tokens, index)
            marks = {name: tables.row(mark, index) for name, mark in tokens.marks.items()}
            uniforms = tables.row(tokens.uniforms, index)
            counts, factors = _left(turns, counts, token, marks, read, 1)
            chances = [uniforms[which] for which in range(len(turns.names))]
            new = draw(turns.names, _named(turns, factors), chances, lanes)
            after = dict(zip(turns.names, new, strict=True))
            drawn = {name: tables.put(drawn[name], position, after[name]) for name in drawn}
            return drawn, _moved(turns, counts, token | after, 1)

        counts = _no_counts(turns)
        if not turns.is_first:
            counts = jax.lax.fori_loop(first, end, count, counts)
        return jax.lax.fori_loop(first, end, one_token, (drawn, counts))[0]

    return jax.lax.fori_loop(
        tables.row(bounds, jnp.asarray(0)), tables.row(bounds, jnp.asarray(1)), one_batch, drawn
    )


def _in_kernel(
    turns: SetTurns, key: Key, tokens: AllTokens, read: Read, starts: Array, bounds: Array
) -> dict[str, Array]:
    """As `_one_batch_after_another`, for words of topics; other topics of the same uniforms."""
    del key
    (*above, topic), (word,) = turns.drawn, turns.others
    batch, first = jnp.arange(turns.num_batches), starts[:-1]
    is_inside = (batch >= bounds[0]) & (batch < bounds[1])
    pseudo = []
    for role, size in zip(turns.drawn, turns.sizes, strict=True):
        hyperparameters, none = read.hyperparameters[role.name], jnp.zeros((1, size))
        pseudo.append(role.distribution.weight_shapes(none, hyperparameters)[0][0])
    num_topics, path = turns.sizes[-1], tokens.columns[topic.name]
    for role in above:
        path += tokens.columns[role.name] * num_topics
    marks, limits = jnp.ones_like(tokens.uniforms), jnp.zeros_like(pseudo[-1])
    for name, mark in tokens.marks.items():
        limits = read.smallest[name]
        # one that holds its topic stays; of tokens with equal uniforms all hold theirs
        marks = jnp.where(limits[path] < mark, mark, -1)
    inputs = token_draw.TokenInput(
        tokens.order,
        first,
        jnp.where(is_inside, starts[1:], first),
        tokens.columns[word.name],
        path,
        tokens.uniforms,
        marks,
        limits,
        pseudo[0] if above else jnp.ones_like(pseudo[0][:1]),
        pseudo[-1],
        read.probabilities[word.name],
    )
    drawn = row_shards.on_its_device(token_draw.draw)(inputs)
    found = {topic.name: drawn % num_topics}
    return found | {role.name: drawn // num_topics for role in above}


# --- one token ------------------------------------------------------------------------------------


def _token(tokens: AllTokens, position: Array) -> dict[str, Array]:
    """The variables of the token at a position."""
    return {name: tables.row(column, position) for name, column in tokens.columns.items()}


def _no_counts(turns: SetTurns) -> dict[str, Array]:
    """Counts of zero for a batch, one for each combination of the other parents' values: (P, K)."""
    dtype, found = jnp.result_type(float), {}
    for role, size in zip(turns.drawn, turns.sizes, strict=True):
        if role.name in turns.collapsed:
            num_parts = role.parts.without(turns.column).num_parts
            found[role.name] = jnp.zeros((num_parts, size), dtype)
    return found


def _moved(
    turns: SetTurns, counts: Mapping[str, Array], token: Mapping[str, Array], amount: Array | int
) -> dict[str, Array]:
    """The counts of a batch with a token more, or less."""
    after = {}
    for role in turns.roles:
        if role.name in turns.collapsed:
            part = role.parts.without(turns.column).flat(token)
            after[role.name] = tables.add_entry(counts[role.name], part, token[role.name], amount)
    return after


def _left(
    turns: SetTurns,
    counts: Mapping[str, Array],
    token: Mapping[str, Array],
    marks: Mapping[str, Array],
    read: Read,
    amount: Array | int,
) -> tuple[dict[str, Array], list[Array]]:
    """The counts without a token, and the factors of its distribution, as `_named` names them."""
    after = dict(counts)
    if not turns.is_first:
        after = _moved(turns, counts, token, -amount)
    factors = []
    for role in turns.roles:
        if role.name in turns.collapsed:
            factors.append(_prior(turns, role, after[role.name], read.hyperparameters[role.name]))
            continue
        table, look_up = read.probabilities[role.name], read.look_up.get(role.name)
        if role.is_drawn and not role.over:
            factors.append(tables.row(table, role.parts.of(token, look_up)))
            continue
        lanes, shape = lanes_of(role, token, look_up)
        if role.is_drawn:
            factors.append(tables.take(table, lanes).reshape(*shape, -1))
        else:
            factors.append(tables.take_from_row(table, token[role.name], lanes).reshape(shape))
    for name in turns.names:  # not in the order of `marks`: jax sorts the keys of a dict
        if name in marks:
            allowed = allowed_groups(read.smallest[name], marks[name], token[name])
            factors.append(allowed.astype(jnp.result_type(float)))
    return after, factors


def _named(turns: SetTurns, factors: list[Array]) -> list[Factor]:
    scopes = [(*r.over, r.name) if r.is_drawn else r.over for r in turns.roles]
    if not turns.is_first:
        scopes += [(role.name,) for role in turns.drawn if role.distribution.grows]
    return [Factor(*pair) for pair in zip(scopes, factors, strict=True)]


def _prior(turns: SetTurns, role: Role, counts: Array, hyperparameters: dict[str, Array]) -> Array:
    """Probabilities of the groups of the next token of a batch, for all values of its parents.

    Of a first indicator up to a factor.
    """
    shapes, rest = role.distribution.weight_shapes(counts, hyperparameters)
    if not role.over:
        return shapes[0]
    totals = jnp.sum(shapes, axis=1) + (0 if rest is None else rest)
    parts = role.parts.without(turns.column)
    table = (shapes / totals[:, None]).reshape(*parts.sizes, -1)
    return jnp.transpose(table, [*map(parts.by.index, role.over), len(parts.by)])


def allowed_groups(smallest: Array, mark: Array, group: Array) -> Array:
    """Where a token may go: (K,) bool.

    Args: smallest (K,) float, the uniforms of the holders of the groups; mark () float, that of the
    token; group () int32, where it is.
    """
    stays = jnp.arange(smallest.shape[0]) == group
    # of tokens with equal uniforms all hold their groups
    return jnp.where(tables.row(smallest, group) < mark, smallest < mark, stays)
