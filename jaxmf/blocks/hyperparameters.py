"""The kernel of the hyperparameters of a network's families and priors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf._kernels.special import loggammas
from jaxmf._kernels.tables import count_pairs
from jaxmf.blocks.counts import (
    all_parts,
    all_values,
    large_blocks,
    part_of,
    slot_sizes,
    statistics_of_block,
)
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.engine import Info
from jaxmf.likelihoods.families.categories import DirichletMultinomial
from jaxmf.likelihoods.families.family import Family
from jaxmf.priors.hdp import HDP
from jaxmf.priors.hyper import is_fixed
from jaxmf.priors.partition_prior import PartitionPrior, is_kind, missing_hook
from jaxmf.priors.partitions import (
    Dirichlet,
    DirichletProcess,
    PitmanYor,
    log_falling,
    log_of_settings,
)
from jaxmf.samplers.hyper import update_probability, update_rate, update_scale
from jaxmf.samplers.restaurants import (
    count_ranks,
    count_tables,
    count_tables_at_once,
    count_tables_of_sorted,
    log_rising_of_ranks,
)
from jaxmf.types import Array, Key, PyTree

Hyperparameters = dict[str, Array]
# Steps in the mean from one update of the concentration of observed values to the next: one for
# every thousand tokens, ten at the most
_TOKENS_A_STEP = 1_000
_MOST_STEPS = 10
Distribution = PartitionPrior | Family


def update_hyperparameters(
    network: Wiring,
    key: Key,
    state: NetworkState,
    data: Tokens,
    *,
    at_once: bool = False,
    counts: Mapping[str, Array] | None = None,
) -> tuple[NetworkState, Info]:
    """Kernel: concentrations, discounts and the shared weights of HDPs, given all indicators.

    Args:
        at_once: count tables without a loop over tokens, which is faster on accelerators; the
            distribution is the same.
        counts: tables of the values of all blocks by their parts, where the tokens are spread.
    Returns:
        The state after, and no overflow.
    """
    values, parts = all_values(state, data), all_parts(network, state, data)
    slots = slot_sizes(state, network)
    hyperparameters = dict(state.hyperparameters)
    for index, name in enumerate(network.order):
        distribution = network.distributions[name]
        if not is_updated(distribution):
            continue
        index_key, before = jax.random.fold_in(key, index), hyperparameters[name]
        if not is_kind(distribution, Dirichlet, DirichletMultinomial, HDP):
            is_exchangeable = is_kind(distribution, DirichletProcess, PitmanYor)
            update = _update_exchangeable if is_exchangeable else partial(_update_other, name)
            statistics = statistics_of_block(network, name, parts[name], state, data)
            hyperparameters[name] = update(index_key, distribution, before, statistics)
            continue
        size = slots.get(name) or distribution.size
        table = None if counts is None else counts[name]
        if network.blocks[name].per:
            table = statistics_of_block(network, name, parts[name], state, data)
        elif table is None and at_once and name not in large_blocks(network, data, slots):
            batches = part_of(parts[name], values, data.num_tokens)
            table = count_pairs(batches, values[name], (parts[name].num_parts, size))
        if table is not None:
            draw = partial(count_tables_at_once, counts=table, num_items=data.num_tokens)
            items = _Items(draw, partial(jnp.sum, table, axis=1))
        else:
            batches = part_of(parts[name], values, data.num_tokens)
            items = _without_counts(batches, values[name], parts[name].num_parts, size, at_once)
        if is_kind(distribution, HDP):
            hyperparameters[name] = _update_hdp(index_key, distribution, before, items)
            continue
        update = partial(_update_dirichlet, distribution=distribution, items=items, size=size)
        if items.ranks is not None and network.blocks[name].observed:
            update = partial(_seldom, update, data.num_tokens // _TOKENS_A_STEP)
        hyperparameters[name] = update(index_key, before)
    return state._replace(hyperparameters=hyperparameters), Info(overflow={})


def _update_other(
    name: str,
    key: Key,
    distribution: Distribution,
    hyperparameters: Hyperparameters,
    statistics: PyTree,
) -> Hyperparameters:
    """Calls `update_hyperparameters` of the prior or family, or slice samples its probability.

    Raises TypeError: it has neither that method nor hyperparameters that are single positive
    numbers.
    """
    base = PartitionPrior if isinstance(distribution, PartitionPrior) else Family
    if type(distribution).update_hyperparameters is not base.update_hyperparameters:
        return distribution.update_hyperparameters(key, hyperparameters, statistics)
    names = distribution.hyperparameters
    if hyperparameters.keys() != set(names) or any(
        value.ndim for value in hyperparameters.values()
    ):
        fixed = f"numbers for {', '.join(names)}" if names else "another prior"
        raise missing_hook(
            distribution, "update_hyperparameters", f"{name}: learning hyperparameters", fixed
        )
    for index, label in enumerate(names):

        def log_density(
            value: Array, label: str = label, hyperparameters: Hyperparameters = hyperparameters
        ) -> Array:
            now = hyperparameters | {label: value}
            if isinstance(distribution, PartitionPrior):
                return distribution.log_prob(statistics, now)
            return jnp.sum(distribution.log_marginal(statistics, now))

        index_key = jax.random.fold_in(key, index)
        value = update_scale(
            index_key, getattr(distribution, label), hyperparameters[label], log_density
        )
        hyperparameters = hyperparameters | {label: value}
    return hyperparameters


class _Items(NamedTuple):
    """Items of a prior: how to draw counts of tables, and to find sizes of batches (G,) int32."""

    tables: Callable[..., Array]  # (key, pseudo=) -> (K,)
    sizes: Callable[[], Array]
    # () -> `count_ranks` of them; None where that is no loop over items
    ranks: Callable[[], Array] | None = None


def _without_counts(
    batches: Array, groups: Array, num_batches: int, num_groups: int, at_once: bool
) -> _Items:
    """Items by their batches and groups (T,) int32, without a table of both."""

    def sizes() -> Array:
        return jnp.zeros((num_batches,), jnp.int32).at[batches].add(1)

    def tables(key: Key, pseudo: Array) -> Array:
        if at_once:
            return count_tables_of_sorted(key, batches, groups, pseudo)
        return count_tables(key, batches, groups, pseudo, num_batches=num_batches)

    ranks = partial(count_ranks, batches, groups, num_batches=num_batches, num_groups=num_groups)
    return _Items(tables, sizes, None if at_once else ranks)


def is_updated(distribution: Distribution) -> bool:
    """Whether there is anything to update: hyperparameters with priors, or shared weights."""
    if not all(is_fixed(getattr(distribution, name)) for name in distribution.hyperparameters):
        return True
    return isinstance(distribution, PartitionPrior) and not distribution.start(1).keys() <= set(
        distribution.hyperparameters
    )


def _update_exchangeable(
    key: Key,
    distribution: DirichletProcess | PitmanYor,
    hyperparameters: Hyperparameters,
    counts: Array,
) -> Hyperparameters:
    """Hyperparameters drawn by slice sampling of the exchangeable partition probability."""
    for index, name in enumerate(distribution.hyperparameters):
        update = update_probability if name == "discount" else update_scale

        def log_density(
            value: Array, name: str = name, hyperparameters: Hyperparameters = hyperparameters
        ) -> Array:
            now = hyperparameters | {name: value}
            return log_of_settings(counts, now["concentration"], now.get("discount", 0.0))

        index_key = jax.random.fold_in(key, index)
        hyperparameters = hyperparameters | {
            name: update(index_key, getattr(distribution, name), hyperparameters[name], log_density)
        }
    return hyperparameters


def _seldom(
    update: Callable[[Key, Hyperparameters], Hyperparameters],
    num_steps: int,
    key: Key,
    hyperparameters: Hyperparameters,
) -> Hyperparameters:
    """An update in one step of `num_steps`, drawn without regard to the state.

    Many values leave one concentration little room, and to count them takes a seventh of the time
    of a sweep over few groups.
    """
    num_steps = min(num_steps, _MOST_STEPS)
    if num_steps < 2 or jax.tree.leaves(hyperparameters)[0].ndim:
        return update(key, hyperparameters)
    choice_key, key = jax.random.split(key)
    is_due = jax.random.uniform(choice_key) * num_steps < 1
    return jax.lax.cond(is_due, update, lambda _, same: same, key, hyperparameters)


def _update_dirichlet(
    key: Key,
    hyperparameters: Hyperparameters,
    *,
    distribution: Dirichlet | DirichletMultinomial,
    items: _Items,
    size: int,
) -> Hyperparameters:
    """Concentrations a_k, of which A is the sum, by S_k tables of each group.

    Given these the likelihood is prod_k a_k^S_k prod_g G(A) / G(A + n_g), G the Gamma function. One
    for each group is updated given w_g ~ Beta(A, n_g), with which the ratio is w_g^A and they are
    independent of each other (Escobar & West 1995, section 6; Wallach 2008, section 2.4, for the
    model). One for all groups needs no tables where items can be numbered.
    """
    concentration, prior = hyperparameters["concentration"], distribution.concentration
    if not concentration.ndim and items.ranks is not None:
        ranks, sizes = items.ranks(), items.sizes()
        value = update_scale(
            key,
            prior,
            concentration,
            lambda a: log_rising_of_ranks(ranks, a) + log_falling(size * a, sizes),
        )
        return {"concentration": value}
    tables_key, key = jax.random.split(key)
    by_group = items.tables(tables_key, pseudo=jnp.broadcast_to(concentration, (size,)))
    if concentration.ndim:
        shares_key, key = jax.random.split(key)
        total = _minus_log_shares(shares_key, jnp.sum(concentration), items.sizes())
        value = update_rate(key, prior, concentration, power=by_group, total=total)
        return {"concentration": value}
    num_tables, sizes = jnp.sum(by_group), items.sizes()
    value = update_scale(
        key, prior, concentration, lambda a: num_tables * jnp.log(a) + log_falling(size * a, sizes)
    )
    return {"concentration": value}


def _minus_log_shares(key: Key, total: Array, sizes: Array) -> Array:
    """-sum_g log w_g of w_g ~ Beta(total, n_g), over batches with items: () float."""
    shapes = jnp.stack([jnp.broadcast_to(total, sizes.shape), jnp.maximum(sizes, 1)], axis=1)
    logs = loggammas(key, shapes.astype(total.dtype))
    return jnp.sum(jnp.where(sizes > 0, jax.nn.softplus(logs[:, 1] - logs[:, 0]), 0))


def _update_hdp(
    key: Key, distribution: HDP, hyperparameters: Hyperparameters, items: _Items
) -> Hyperparameters:
    """alpha given the tables, gamma given the tables and the number of groups, tau given both."""
    tables_key, batch_key, base_key, weights_key = jax.random.split(key, 4)
    pseudo = hyperparameters["concentration"] * hyperparameters["weights"]
    by_group = items.tables(tables_key, pseudo=pseudo)
    num_tables, num_groups = jnp.sum(by_group), jnp.sum(by_group > 0)
    sizes = items.sizes()

    def log_density_of_concentration(value: Array) -> Array:
        return num_tables * jnp.log(value) + log_falling(value, sizes)

    def log_density_of_base(value: Array) -> Array:
        return num_groups * jnp.log(value) + log_falling(value, num_tables)

    concentration = update_scale(
        batch_key,
        distribution.concentration,
        hyperparameters["concentration"],
        log_density_of_concentration,
    )
    # with tau summed out, so tau must be drawn next
    base = update_scale(
        base_key,
        distribution.base_concentration,
        hyperparameters["base_concentration"],
        log_density_of_base,
    )
    weights, rest = shared_weights(weights_key, by_group, base)
    return {
        "concentration": concentration,
        "base_concentration": base,
        "weights": weights,
        "rest": rest,
    }


def shared_weights(key: Key, num_tables: Array, base_concentration: Array) -> tuple[Array, Array]:
    """tau ~ Dirichlet(S_1, ..., S_K, gamma): (K,), zero where there is no table, and the rest.

    In logarithms, and never below the smallest float where there are tables: a group that items
    have must keep a weight.
    """
    # the rest first: more slots leave the draws of the first ones as they are
    first, group_counts = base_concentration[None], num_tables.astype(base_concentration.dtype)
    shapes = jnp.concatenate([first, group_counts])
    logs = loggammas(key, jnp.where(shapes > 0, shapes, 1))
    logs = jnp.where(shapes > 0, logs, -jnp.inf)
    weights = jax.nn.softmax(logs)
    tiny = jnp.finfo(weights.dtype).tiny
    weights = jnp.where(shapes > 0, jnp.maximum(weights, tiny), 0)
    return weights[1:], weights[0]
