"""What a draw of a network says of tokens not seen: indicators summed out, parameters averaged.

A draw is the dictionary that a chain records, with the statistics of every block. The distribution
of a further token given its columns is the sum over its indicators of their predictive
probabilities times the predictive distribution of the observed block (eq 6.8 to 6.11).
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf._kernels.tables import Lanes
from jaxmf.blocks.kept_counts import counts_at, counts_by_part, is_table, num_groups
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.priors import hyper
from jaxmf.types import Array, PyTree

Draw = Mapping[str, Array]

_LEFT_OUT_AT_ONCE = 64  # each with statistics of all groups


class CellMoments(NamedTuple):
    """Mean and variance of real values, (T,) or (T, D) each."""

    mean: Array
    variance: Array


def hyperparameters_of(network: Wiring, draw: Draw, name: str) -> dict[str, Array]:
    """The hyperparameters of a block in a draw; fixed ones are the model's."""
    distribution = network.distributions[name]
    hyperparameters = dict(distribution.start() if network.blocks[name].observed else {})
    for label in (*distribution.hyperparameters, "weights", "rest", "unobserved"):
        if f"{name}_{label}" in draw:
            hyperparameters[label] = draw[f"{name}_{label}"]
        elif label in distribution.hyperparameters:
            hyperparameters[label] = hyper.initial_value(getattr(distribution, label))
    return hyperparameters


def probabilities(network: Wiring, draw: Draw, name: str) -> Array:
    """E[pi] of an indicator in every part: (*parts, K) float.

    Of a growing prior the lowest free slot stands for all groups that no token has yet.
    """
    if network.blocks[name].per or name in network.tables:
        raise ValueError(
            f"{name}: has to do with sets of tokens (`per`), of which there are no predictions; "
            "the HDP by direct assignment has the same distribution and predicts"
        )
    if not is_table(draw, name):
        raise ValueError(
            f"{name}: the draws have the groups of tokens in place of a table of them for all "
            'parts; sample again with keep="statistics"'
        )
    distribution, counts = network.distributions[name], draw[f"{name}_counts"]
    flat = counts_by_part(draw, name)
    cache = distribution.begin(flat, hyperparameters_of(network, draw, name), with_sizes=False)
    weights = jax.vmap(lambda batch: distribution.weights(cache, batch)[0])(
        jnp.arange(flat.shape[0])
    )
    return (weights / jnp.sum(weights, axis=-1, keepdims=True)).reshape(counts.shape)


def pseudo_counts(network: Wiring, draw: Draw, name: str) -> Array:
    """Pseudo-counts of an indicator's prior for every part: (K,) float."""
    distribution, counts = network.distributions[name], counts_by_part(draw, name)
    cache = distribution.begin(counts, hyperparameters_of(network, draw, name), with_sizes=False)
    return jnp.broadcast_to(distribution.pseudo(cache)[0], counts.shape[-1:])


def _probabilities_at(
    network: Wiring, draw: Draw, name: str, data: Tokens, columns: Mapping[str, Array]
) -> Array:
    """`probabilities` of the parts with these columns: (T, *latent parents, K) float."""
    weights = counts_at(network, draw, name, data, columns) + pseudo_counts(network, draw, name)
    return weights / jnp.sum(weights, axis=-1, keepdims=True)


def family_statistics(network: Wiring, draw: Draw, name: str) -> tuple[PyTree, tuple[int, ...]]:
    """The statistics of an observed block in a draw, and the axes of its parts."""
    distribution = network.distributions[name]
    template = distribution.empty(1)
    leaves = {label: draw[f"{name}_{label}"] for label in template._fields}
    values_first = "cells" in leaves
    shape = leaves["totals"].shape if values_first else leaves["number"].shape
    flat = {
        label: leaf.reshape(leaf.shape[0], -1)
        if label == "cells"
        else leaf.reshape(-1, *leaf.shape[len(shape) :])
        for label, leaf in leaves.items()
    }
    if not values_first:
        # draws of a smaller capacity are padded with zeros, which is not what an empty group has
        empty = flat["number"] == 0
        nothing = distribution.empty(empty.shape[0])._asdict()
        flat = {
            label: jnp.where(empty.reshape(-1, *[1] * (leaf.ndim - 1)), nothing[label], leaf)
            for label, leaf in flat.items()
        }
    return type(template)(**flat), shape


def category_probabilities(network: Wiring, draw: Draw, name: str) -> Array:
    """E[phi] of an observed block of categories in every part: (*parts, V) float."""
    statistics, shape = family_statistics(network, draw, name)
    distribution = network.distributions[name].with_size(draw[f"{name}_cells"].shape[0])
    table = distribution.probabilities(statistics, hyperparameters_of(network, draw, name))
    return table.reshape(*shape, -1)


def predict_categories(
    network: Wiring,
    draw: Draw,
    name: str,
    data: Tokens,
    columns: Mapping[str, Array],
    fixed: Mapping[str, Array] | None = None,
) -> Array:
    """Probabilities of the values of an observed block for further tokens: (T, V) float.

    Args: columns: the columns of the tokens that are no blocks, (T,) int32 each; fixed:
    probabilities of indicators to use in place of the draw's, such as those of documents that were
    folded in.
    """
    table = category_probabilities(network, draw, name)
    return _sum_out(network, draw, name, data, columns, table, fixed or {})


def predict_moments(
    network: Wiring,
    draw: Draw,
    name: str,
    data: Tokens,
    columns: Mapping[str, Array],
) -> CellMoments:
    """Mean and variance of the values of an observed block of real values for further tokens."""
    distribution = network.distributions[name]
    statistics, shape = family_statistics(network, draw, name)
    mean, variance = distribution.moments(statistics, hyperparameters_of(network, draw, name))
    mean, variance = mean.reshape(*shape, -1), variance.reshape(*shape, -1)
    centre = jnp.mean(mean, axis=tuple(range(mean.ndim - 1)))
    # squares of what is left of the mean: nothing cancels
    both = jnp.concatenate([mean - centre, variance + (mean - centre) ** 2], axis=-1)
    summed = _sum_out(network, draw, name, data, columns, both, {})
    first, second = jnp.split(summed, 2, axis=-1)
    moments = CellMoments(centre + first, jnp.maximum(second - first**2, 0))
    return CellMoments(*(m[..., 0] if m.shape[-1] == 1 else m for m in moments))


def _sum_out(
    network: Wiring,
    draw: Draw,
    name: str,
    data: Tokens,
    columns: Mapping[str, Array],
    table: Array,
    fixed: Mapping[str, Array],
) -> Array:
    """A table over parts (*parts, M) averaged over the indicators of tokens: (T, M)."""
    operands, terms, letters = indicator_terms(network, draw, name, data, columns, fixed)
    table = one_axis_a_parent(network, name, table, sizes_of(network, draw, name, data))
    table_of_block, axes = by_parents(network, name, table, columns, letters)
    operands, terms = [*operands, table_of_block], [*terms, axes + "Z"]
    batch = any(term.startswith("T") for term in terms)
    result = jnp.einsum(f"{','.join(terms)}->{'T' if batch else ''}Z", *operands)
    length = next(iter(columns.values())).shape[0]
    return result if batch else jnp.broadcast_to(result, (length, *result.shape))


def indicator_terms(
    network: Wiring,
    draw: Draw,
    name: str,
    data: Tokens,
    columns: Mapping[str, Array],
    fixed: Mapping[str, Array],
) -> tuple[list[Array], list[str], dict[str, str]]:
    """The distributions of the indicators that a block depends on, for tokens with known columns.

    Returns operands of an einsum, their axes ("T" for tokens), and the letter of every indicator.
    """
    letters = dict(zip(ancestors(network, name), string.ascii_lowercase, strict=False))
    sizes = sizes_of(network, draw, name, data)
    operands, terms = [], []
    for block in letters:
        if block not in fixed and not is_table(draw, block):
            table_of_block = _probabilities_at(network, draw, block, data, columns)
            latent = (letters[each] for each in network.blocks[block].by if each in letters)
            operands.append(table_of_block)
            terms.append("".join(("T", *latent, letters[block])))
            continue
        table_of_block = fixed[block] if block in fixed else probabilities(network, draw, block)
        table_of_block = one_axis_a_parent(network, block, table_of_block, sizes)
        table_of_block, axes = by_parents(network, block, table_of_block, columns, letters)
        operands.append(table_of_block)
        terms.append(axes + letters[block])
    return operands, terms, letters


def sizes_of(network: Wiring, draw: Draw, name: str, data: Tokens) -> dict[str, int]:
    """How many values the columns have, and the indicators that a block hangs on in a draw."""
    latent = ancestors(network, name)
    return dict(data.sizes) | {block: num_groups(draw, block) for block in latent}


def ancestors(network: Wiring, name: str) -> tuple[str, ...]:
    """The indicators that an observed block hangs on, parents first."""
    ancestors_found: set[str] = set()
    waiting = list(network.blocks[name].by)
    while waiting:
        parent = waiting.pop()
        if parent in network.indicators and parent not in ancestors_found:
            ancestors_found.add(parent)
            waiting += network.blocks[parent].by
    return tuple(block for block in network.indicators if block in ancestors_found)


def one_axis_a_parent(network: Wiring, name: str, table: Array, sizes: Mapping[str, int]) -> Array:
    """A table over parts as one over the parents, where a function says which part is meant."""
    parts = network.parts(name, sizes)
    if parts.table is None:
        return table
    return table[jnp.asarray(parts.table).reshape(parts.sizes)]


def by_parents(
    network: Wiring,
    name: str,
    table: Array,
    columns: Mapping[str, Array],
    letters: Mapping[str, str],
) -> tuple[Array, str]:
    """A table (*parts, M) with known parents picked: (T, *latent parents, M), and its axes."""
    block = network.blocks[name]
    known = [parent for parent in block.by if parent not in letters]
    axes = "".join(letters[parent] for parent in block.by if parent in letters)
    if not known:
        return table, axes
    order = [block.by.index(parent) for parent in known]
    rest = [axis for axis in range(table.ndim) if axis not in order]
    table = jnp.transpose(table, (*order, *rest))
    return table[tuple(columns[parent] for parent in known)], "T" + axes


def left_out_density(
    network: Wiring, draw: Draw, names: tuple[str, str], groups: Array, values: Array
) -> Array:
    """Log predictive density of values of a mixture given all others, each taken out: (M,) float.

    Args: network: with an indicator that has no parents, and an observed block that hangs on it;
    groups (M,) int32, in which group each value is; values (M,) or (M, D) float, among those of the
    draw.
    """
    prior, family = (network.distributions[name] for name in names)
    counts = draw[f"{names[0]}_counts"].reshape(1, -1)
    statistics = family_statistics(network, draw, names[1])[0]
    if prior.grows:  # room for a new group
        counts = jnp.pad(counts, ((0, 0), (0, 1)))
        statistics = jax.tree.map(
            lambda leaf, new: jnp.concatenate([leaf, new]), statistics, family.empty(1)
        )
    counted = prior.begin(counts, hyperparameters_of(network, draw, names[0]), with_sizes=False)
    cache = family.begin(statistics, hyperparameters_of(network, draw, names[1]))
    batch = jnp.zeros((), jnp.int32)
    lanes = Lanes(batch, 1, counts.shape[1])

    def log_density(one: tuple[Array, Array]) -> Array:
        group, value = one
        weights, _ = prior.weights(prior.unassign(counted, batch, group), batch)
        density = family.predictive(family.move(cache, group, value, -1), lanes, value)
        logs = density if family.is_log else jnp.log(density)
        return jax.nn.logsumexp(jnp.log(weights / jnp.sum(weights)) + logs)

    return jax.lax.map(log_density, (groups, values), batch_size=_LEFT_OUT_AT_ONCE)


def predictive_groups(
    network: Wiring, draw: Draw, indicator: str, name: str, values: Array
) -> tuple[Array, Array]:
    """Log predictive density of further values of a mixture, and the probabilities of the groups.

    Args: network: with an indicator that has no parents, and an observed block that hangs on it;
    values (M,) or (M, D) float.
    Returns (M,) and (M, K) float.
    """
    distribution = network.distributions[name]
    hyperparameters = hyperparameters_of(network, draw, name)
    prior = jnp.log(probabilities(network, draw, indicator))
    cache = distribution.begin(family_statistics(network, draw, name)[0], hyperparameters)
    lanes = Lanes(jnp.zeros((), jnp.int32), 1, prior.shape[0])
    densities = jax.vmap(lambda value: distribution.predictive(cache, lanes, value))(values)
    together = prior + (densities if distribution.is_log else jnp.log(densities))
    total = jax.nn.logsumexp(together, axis=1)
    return total, jnp.exp(together - total[:, None])
