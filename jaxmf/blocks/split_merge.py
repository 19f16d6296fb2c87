r"""Split-merge moves for the groups of a Dirichlet or Pitman-Yor process.

One token at a time, two groups are put together, or one taken apart, by way of states that are
improbable: a chain stays in a wrong mode. Here one proposal does it.

1. A random token i, and a random other one j of its batch. If they are in one group c, it is to be
   *split* into a (with i) and b (with j); if in two, a and b are to be *merged* into c.
2. The other members of c are shared out between a and b in a random order, by P particles at once.
   Each particle assigns a member by its conditional given those before it, and its weight is
   multiplied by

       [(n_a - d) p(x_t | a) + (n_b - d) p(x_t | b)] / ((m - d) p(x_t | c)),

   n_a, n_b and m being how many are before it in a, b and c (i and j among them), and the values
   of a token predicted from theirs. Where the weights have become unequal the particles are
   resampled, and all weights are their mean. If i and j are in two groups, the first particle is
   the present a and b throughout, and survives: a conditional particle filter.
3. The split is accepted with probability min(1, A), the merge with min(1, 1/A),

       A = (alpha + d K) / (1 - d) p(x_j) / p(x_j | x_i) (mean of the weights at the end),

   K the number of groups of the batch with c whole. If the tokens are in two groups after that,
   those are of a particle chosen by its weight: a merge that is refused shares the members of a
   and b out anew.

A estimates the ratio of the probability of all ways of having i and j in two groups to that of c,
without bias. The particles are auxiliary variables, drawn with the density psi beside c, and beside
a and b given that one particle is those. Beside all ways together that is A psi over its normal
constant, so that A is the ratio of two states of one joint distribution; which particle is the
present state has its conditional distribution, the weights. One particle alone, for long vectors,
is the move of Dahl (2005). In the paper the particles also choose between c and two groups; the
probability of c is known here.

The pair and the order have the same distribution in both directions. Labels mean nothing, so a
keeps the slot of c, and b takes the lowest free one.

Source: Bouchard-Cote, Doucet & Roth (2017), Particle Gibbs split-merge sampling for Bayesian
inference in mixture models; Andrieu, Doucet & Holenstein (2010), Particle Markov chain Monte Carlo
methods; Dahl (2005), Sequentially-allocated merge-split sampler for conjugate and nonconjugate
Dirichlet process mixture models.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf._kernels import tables
from jaxmf._kernels.fusion import fused_on_cpu
from jaxmf._kernels.special import accepts
from jaxmf.blocks.counts import all_values, part_of, slot_sizes
from jaxmf.blocks.roles import Below, below, look_up_of
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.engine import Info
from jaxmf.priors.partition_prior import is_kind
from jaxmf.priors.partitions import DirichletProcess, PitmanYor
from jaxmf.types import Array, Key, PyTree

NUM_PARTICLES = 4
_WIDEST = 8  # numbers a token: of more the particles beside the first cost more than they gain
_LEAST_SHARE = 0.5  # of the particles, that are effective: with fewer they are resampled


class SplitParticles(NamedTuple):
    """P ways of sharing the members out between a and b, up to one of them."""

    cache: dict[str, PyTree]  # child -> what a sweep works on, leaves (P, ...)
    counts: Array  # (P, 2) float
    log_weights: Array  # (P,) float, relative to c and to `log_mean`
    log_mean: Array  # () float, of the weights at all resamplings


def can_split(network: Wiring, name: str, *kinds: type) -> bool:
    """Whether the groups of this indicator are of a process and partition observed blocks only."""
    block = network.blocks[name]
    is_process = is_kind(block.distribution, *(kinds or (DirichletProcess, PitmanYor)))
    is_process &= not block.per and name not in network.tables
    return is_process and all(child in network.observed for child in network.children(name))


def split_merge(
    network: Wiring,
    name: str,
    key: Key,
    state: NetworkState,
    data: Tokens,
    *,
    num_proposals: int,
) -> tuple[NetworkState, Info]:
    """Kernel: some split or merge proposals for one indicator, one after another.

    Args: name: of the indicator, see `can_split`.
    Returns the state after, and overflow of the indicator.
    """

    def once(index: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        labels, no_room = carry
        now = state._replace(values=state.values | {name: labels})
        index_key = jax.random.fold_in(key, index)
        labels, needed = _propose(network, name, index_key, now, data)
        return labels, no_room | needed

    start = (state.values[name], jnp.zeros((), bool))
    labels, no_room = jax.lax.fori_loop(0, num_proposals, once, start)
    occupied = jnp.zeros_like(state.slots[name]).at[labels].set(True)
    values, slots = state.values | {name: labels}, state.slots | {name: occupied}
    return state._replace(values=values, slots=slots), Info(overflow={name: no_room})


def _propose(
    network: Wiring, name: str, key: Key, state: NetworkState, data: Tokens
) -> tuple[Array, Array]:
    """The labels after one proposal, and whether there was no room for an accepted split."""
    values, slots = all_values(state, data), slot_sizes(state, network)
    labels, num_tokens = values[name], data.num_tokens
    parts = network.parts(name, network.sizes(data, slots))
    batches = part_of(parts, values, num_tokens)
    first_key, draws_key, particles_key, accepted_key = jax.random.split(key, 4)
    first = jax.random.randint(first_key, (), 0, num_tokens)
    draws = jax.random.uniform(draws_key, (num_tokens, 2), jnp.result_type(float))
    position = jnp.arange(num_tokens)
    same_batch = batches == batches[first]
    others = same_batch & (position != first)
    second = jnp.argmax(jnp.where(others, draws[:, 0], -1))
    splits = labels[first] == labels[second]
    in_pair = same_batch & ((labels == labels[first]) | (labels == labels[second]))
    members = in_pair & (position != first) & (position != second)
    order = jnp.argsort(jnp.where(members, draws[:, 1], 2))
    in_order = jnp.concatenate([jnp.stack([first, second]), order])
    path, log_ratio = _shared_out(
        network,
        name,
        particles_key,
        state,
        (data, slots),
        in_order=in_order,
        num_members=jnp.sum(members),
        now=jnp.where(labels[in_order] == labels[first], 0, 1),
        splits=splits,
        num_particles=_num_particles(network, name, data),
    )
    occupied = jnp.zeros((slots[name],), bool).at[labels].max(same_batch)
    hyperparameters = state.hyperparameters[name]
    discount = hyperparameters.get("discount", jnp.zeros_like(hyperparameters["concentration"]))
    num_groups = jnp.sum(occupied) - ~splits
    log_new = jnp.log(hyperparameters["concentration"] + discount * num_groups) - jnp.log1p(
        -discount
    )
    log_split = log_new + log_ratio
    uniform = jax.random.uniform(accepted_key, (), log_split.dtype)
    accepted = accepts(uniform, jnp.where(splits, log_split, -log_split)) & jnp.any(others)
    free = tables.lowest(~occupied)
    no_room = accepted & splits & (free == slots[name])
    sides = jnp.zeros((num_tokens,), jnp.int32).at[order].set(path[2:])
    in_b = (
        jnp.any(others) & (accepted == splits) & ((members & (sides == 1)) | (position == second))
    )
    kept = jnp.where(in_pair, labels[first], labels)
    after = jnp.where(in_b, jnp.where(splits, free, labels[second]), kept).astype(labels.dtype)
    return jnp.where(no_room, labels, after), no_room


def _num_particles(network: Wiring, name: str, data: Tokens) -> int:
    """P, by how many numbers of a token are predicted."""
    children = [child for child in network.children(name) if child in data.values]
    width = sum(data.values[child].size // data.num_tokens for child in children)
    return NUM_PARTICLES if width <= _WIDEST else 1


def _shared_out(
    network: Wiring,
    name: str,
    key: Key,
    state: NetworkState,
    where: tuple[Tokens, dict[str, int]],
    *,
    in_order: Array,
    num_members: Array,
    now: Array,
    splits: Array,
    num_particles: int,
) -> tuple[Array, Array]:
    """The sides of a particle, and the log of the mean weight with those of i and j.

    Args: in_order (T + 2,), the tokens i and j and then all, members first; now (T + 2,), the
    present side of each.
    """
    data, slots = where
    values = all_values(state, data)
    two, one = (below(network, name, network.sizes(data, slots | {name: size})) for size in (2, 1))
    columns = {column: values[column][in_order] for column in two.columns}
    empty = [
        {
            role.name: role.distribution.begin(
                role.distribution.empty(role.parts.num_parts), state.hyperparameters[role.name]
            )
            for role in partitioned.roles
        }
        for partitioned in (two, one)
    ]
    hyperparameters = state.hyperparameters[name]
    discount = hyperparameters.get("discount", jnp.zeros_like(hyperparameters["concentration"]))
    shape = (in_order.shape[0], 2 * num_particles)
    uniforms = jax.random.uniform(key, shape, jnp.result_type(float))
    share_out = _SharingOut(two, one, num_particles).loop
    compiled = partial(
        fused_on_cpu(share_out, sequential=True), (look_up_of(two.roles), look_up_of(one.roles))
    )
    return compiled(columns, empty, discount, now, num_members, ~splits, uniforms)


class _SharingOut(NamedTuple):
    """The loop over the members, for the blocks that they have values of."""

    two: Below  # of a and b
    one: Below  # of c
    num_particles: int

    def loop(
        self,
        look_up: tuple[dict[str, Array], dict[str, Array]],
        columns: dict[str, Array],
        empty: list[dict[str, PyTree]],
        discount: Array,
        sides_before: Array,
        num_members: Array,
        retains: Array,
        uniforms: Array,
    ) -> tuple[Array, Array]:
        """Assigns the members one after another; the first particle as before if it `retains`."""
        num, zero = self.num_particles, jnp.zeros((), uniforms.dtype)
        unassigned = jnp.zeros((sides_before.shape[0], num), jnp.int32)

        def one(index: Array, carry: PyTree) -> PyTree:
            particles, whole, parents, sides = carry
            token = {name: tables.row(column, index) for name, column in columns.items()}
            draws = tables.row(uniforms, index)
            particles, parents_now = _resampled(particles, draws[num:], retains)
            is_seed = index < 2  # i and j, the first of a and of b
            is_retained = retains & (jnp.arange(num) == 0)
            forced = jnp.where(is_retained, tables.row(sides_before, index), -1)
            log_sizes = jnp.log(particles.counts - discount)
            log_sizes = jnp.where(
                is_seed, jnp.where(jnp.arange(2) == index, 0, -jnp.inf), log_sizes
            )
            log_whole = self.one.log_predicted(whole, token, look_up[1])[0]
            log_whole += jnp.log(jnp.where(is_seed, 1, index - discount))
            particles, chosen = self._assigned(
                particles, token, look_up[0], log_sizes - log_whole, forced, draws[:num]
            )
            whole = self.one.moved(whole, token, look_up[1], group=jnp.asarray(0), amount=1)
            parents = tables.put(parents, index, parents_now)
            return particles, whole, parents, tables.put(sides, index, chosen)

        particles = SplitParticles(
            cache=jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num, *leaf.shape)), empty[0]),
            counts=jnp.zeros((num, 2), zero.dtype),
            log_weights=jnp.zeros((num,), zero.dtype),
            log_mean=zero,
        )
        start = particles, empty[1], unassigned, unassigned
        particles, _, parents, sides = jax.lax.fori_loop(0, num_members + 2, one, start)
        weights, log_mean = _relative(particles.log_weights)
        # before the first member nothing is resampled: that uniform is free
        last = tables.choose(weights, uniforms[0, num], num_lanes=8)

        def back(index: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            path, particle = carry
            index = num_members + 1 - index
            path = tables.put(path, index, tables.entry(sides, index, particle))
            return path, tables.entry(parents, index, particle)

        path, _ = jax.lax.fori_loop(0, num_members + 2, back, (jnp.zeros_like(sides_before), last))
        return path, particles.log_mean + log_mean

    def _assigned(
        self,
        particles: SplitParticles,
        token: dict[str, Array],
        look_up: dict[str, Array],
        log_sizes: Array,
        forced: Array,
        uniforms: Array,
    ) -> tuple[SplitParticles, Array]:
        """The particles with one token more, and its sides (P,): `forced` where that is not -1."""

        def predicted(cache: dict[str, PyTree]) -> Array:
            return self.two.log_predicted(cache, token, look_up)

        logs = log_sizes + jax.vmap(predicted)(particles.cache)
        drawn, _ = choose_side(logs.T, uniforms)
        chosen = jnp.where(forced < 0, drawn, forced).astype(jnp.int32)

        def move(index: Array, cache: dict[str, PyTree]) -> dict[str, PyTree]:
            before = jax.tree.map(lambda leaf: tables.row(leaf, index), cache)
            side = tables.row(chosen, index)
            after = self.two.moved(before, token, look_up, group=side, amount=1)
            return jax.tree.map(lambda leaf, new: tables.put(leaf, index, new), cache, after)

        particles = particles._replace(
            cache=jax.lax.fori_loop(0, self.num_particles, move, particles.cache),
            counts=particles.counts + (chosen[:, None] == jnp.arange(2)),
            log_weights=particles.log_weights + jnp.logaddexp(logs[:, 0], logs[:, 1]),
        )
        return particles, chosen


def _relative(log_weights: Array) -> tuple[Array, Array]:
    """Weights (P,) over the largest of them, and the log of the mean weight."""
    most = jnp.max(log_weights)
    weights = jnp.exp(log_weights - most)
    return weights, most + jnp.log(jnp.mean(weights))


def _resampled(
    particles: SplitParticles, uniforms: Array, retains: Array
) -> tuple[SplitParticles, Array]:
    """The particles that continue, and of which each is a copy (P,).

    Args: uniforms (P,); retains () bool, whether the first one is kept.
    """
    weights, log_mean = _relative(particles.log_weights)
    itself = jnp.arange(weights.shape[0], dtype=jnp.int32)
    if weights.shape[0] == 1:
        return particles, itself

    def resample(particles: SplitParticles) -> tuple[SplitParticles, Array]:
        choose = partial(tables.choose, weights, num_lanes=8)
        parents = jnp.where(retains & (itself == 0), 0, jax.lax.map(choose, uniforms))
        copies = particles._replace(
            cache=jax.tree.map(lambda leaf: leaf[parents], particles.cache),
            counts=particles.counts[parents],
            log_weights=jnp.zeros_like(weights),
            log_mean=particles.log_mean + log_mean,
        )
        return copies, parents

    effective = jnp.sum(weights) ** 2 / jnp.sum(weights**2)
    is_poor = effective < _LEAST_SHARE * weights.shape[0]
    return jax.lax.cond(is_poor, resample, lambda same: (same, itself), particles)


def choose_side(logs: Array, uniform: Array) -> tuple[Array, tuple[Array, Array]]:
    """A side, by its log weight, and the log probability of both."""
    log_chance = (-jax.nn.softplus(logs[1] - logs[0]), -jax.nn.softplus(logs[0] - logs[1]))
    side = jnp.where(accepts(uniform, log_chance[0]), 0, 1)
    return side, log_chance
