r"""Split-merge moves for groups that all batches share: those of a hierarchical Dirichlet process.

The state has the group of every token and the weight tau_k of every group. A proposal goes by way
of the tables of the Chinese restaurant franchise, which it draws and forgets again.

1. A random token i, and a second one j, chosen by the data alone: half of the time one with
   the same value, since groups that double each other share their values, and else any. If they are
   in one group c, it is to be *split* into a (with i) and b (with j); if in two, a and b are to be
   *merged* into c. With probability min(1, s / n), n being how many tokens a and b (or c) have
   together and s a fixed number, the proposal is made at all: n is the same before and after.
2. The tokens of these groups are assigned to tables given the state: in every batch and group as in
   a Chinese restaurant process with concentration alpha tau_k. A table, and all its tokens, moves
   as one; where i and j share a table nothing is proposed.
3. Starting with the tables of i and j, all others are shared out between a and b, each by its
   conditional given those before it; in `num_scans` restricted Gibbs scans after that each is drawn
   anew given all others. For a split the result of the last pass is proposed, and q is the product
   of its conditional probabilities. For a merge q is the probability that the last pass would have
   ended in the present a and b.
4. A split also needs the weights of a and b. Given the tables tau_a / tau_c ~ Beta(m_a, m_b), m_k
   being how many tables a group has: it is proposed from that, its density cancels, and what
   is left of the weights, their Jacobian tau_c included, is

       gamma tau_c int (v tau_c)^(m_a - 1) ((1 - v) tau_c)^(m_b - 1) dv / tau_c^(m_c - 1)
           = gamma Gamma(m_a) Gamma(m_b) / Gamma(m_c).

   The split is accepted with probability min(1, A), the merge, of weight tau_a + tau_b, with
   min(1, 1/A),

       A = gamma p(x_J) / p(x_J | x_I) prod_t [m p(x_t | its group) / (m_c p(x_t | c))] / q

   over the other tables t in order: I and J are the tables of i and j, x_t all values at a table, m
   and m_c how many tables are before it in its group and in c.

That all others keep tables and weights is a Gibbs step on the state with its tables; to forget them
leaves the posterior of the state invariant.

Source: Wang & Blei (2012), A split-merge MCMC algorithm for the hierarchical Dirichlet process;
Jain & Neal (2004) for the scans; Dahl (2005) for the first pass; Teh et al. (2006), section 5, for
tables given weights.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf._kernels import tables
from jaxmf._kernels.fusion import fused_on_cpu, sequential_on_cpu
from jaxmf._kernels.special import accepts
from jaxmf.blocks.counts import all_values, part_of, slot_sizes
from jaxmf.blocks.roles import Below, below, look_up_of
from jaxmf.blocks.split_merge import can_split, choose_side
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.engine import Info
from jaxmf.priors.hdp import HDP
from jaxmf.types import Array, Key, PyTree

_BOTH = 2  # the lane of c, beside 0 of a and 1 of b
_BLOCK = 4096  # uniforms that are drawn at once


class TableMembers(NamedTuple):
    """Tables of the tokens of the two groups, in the order of their first tokens."""

    members: Array  # (T,) int32, positions of the tokens, those of a table side by side
    starts: Array  # (T + 1,) int32, where the tokens of a table begin among the members
    sides: Array  # (T,) int32, 0 of a table in the group of i, 1 in that of j
    seeds: Array  # (2,) int32, the tables of i and j
    num_tables: Array  # () int32


class Scan(NamedTuple):
    """Result of a pass over the tables."""

    sides: Array  # (T,) int32, 0 in a and 1 in b
    counts: Array  # (3,) float, tables of a, b and c
    cache: dict[str, PyTree]  # child -> what a sweep works on, for the groups a, b and c
    log_ratio: Array  # () float, the sum over t in the log of A
    log_proposal: Array  # () float, log q


class _Problem(NamedTuple):
    """Data shared by all proposals of a step; tokens in the order of their batches."""

    batches: Array  # (T,) int32
    columns: dict[str, Array]  # what the partitioned blocks need of the tokens
    # (T,) int32, by which a second token is chosen; None where no block has such
    values: Array | None
    empty: dict[str, PyTree]  # child -> what a sweep works on, for three groups without tokens
    look_up: dict[str, Array]  # the parts of blocks that have a function of their parents
    # concentration, base: () float, alpha and gamma
    concentration: Array
    base: Array


def can_split_shared(network: Wiring, name: str) -> bool:
    """Whether the move is for this indicator: an HDP whose groups partition observed blocks."""
    return can_split(network, name, HDP)


def split_merge_shared(
    network: Wiring,
    name: str,
    key: Key,
    state: NetworkState,
    data: Tokens,
    *,
    num_proposals: int,
    num_scans: int,
    most_tokens: int,
) -> tuple[NetworkState, Info]:
    """Kernel: some split or merge proposals for one indicator, one after another.

    Args: name: of the indicator, see `can_split_shared`; num_scans: restricted Gibbs scans after
    the first pass; most_tokens: s, how many tokens a proposal works on in the mean at most.
    Returns the state after, and overflow of the indicator.
    """
    values, slots = all_values(state, data), slot_sizes(state, network)
    parts = network.parts(name, network.sizes(data, slots))
    batches = part_of(parts, values, data.num_tokens)
    order, _ = tables.sorted_by(batches, parts.num_parts)
    partitioned = below(network, name, network.sizes(data, slots | {name: _BOTH + 1}))
    empty = {
        role.name: role.distribution.begin(
            role.distribution.empty(role.parts.num_parts), state.hyperparameters[role.name]
        )
        for role in partitioned.roles
    }
    categories = [child for child in network.children(name) if child in data.columns]
    hyperparameters = state.hyperparameters[name]
    problem = _Problem(
        batches=batches[order],
        columns={one: values[one][order] for one in partitioned.columns},
        values=values[categories[0]][order] if categories else None,
        empty=empty,
        look_up=look_up_of(partitioned.roles),
        concentration=hyperparameters["concentration"],
        base=hyperparameters["base_concentration"],
    )
    run = sequential_on_cpu(
        partial(
            _run,
            _TablePasses(partitioned),
            num_proposals=num_proposals,
            num_scans=num_scans,
            most_tokens=most_tokens,
        )
    )
    labels, weights, no_room = run(key, values[name][order], hyperparameters["weights"], problem)
    occupied = jnp.zeros_like(state.slots[name]).at[labels].set(True)
    after = NetworkState(
        values=state.values | {name: jnp.zeros_like(labels).at[order].set(labels)},
        hyperparameters=state.hyperparameters | {name: hyperparameters | {"weights": weights}},
        slots=state.slots | {name: occupied},
    )
    return after, Info(overflow={name: no_room})


def _run(
    passes: _TablePasses,
    key: Key,
    labels: Array,
    weights: Array,
    problem: _Problem,
    *,
    num_proposals: int,
    num_scans: int,
    most_tokens: int,
) -> tuple[Array, Array, Array]:
    """All proposals: labels and weights after them, and whether a split had no room."""

    def once(index: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        labels, weights, no_room = carry
        pair_key, made_key, proposal_key = jax.random.split(jax.random.fold_in(key, index), 3)
        first, second = _pair(pair_key, labels.shape[0], problem.values)
        in_pair = (labels == labels[first]) | (labels == labels[second])
        num_items = jnp.sum(in_pair, dtype=jnp.int32)
        chance = jax.random.uniform(made_key, (), weights.dtype)
        is_made = (first != second) & (chance * num_items < most_tokens)
        labels, weights, needed = jax.lax.cond(
            is_made,
            partial(_propose, passes, num_scans=num_scans),
            lambda key, labels, weights, *_: (labels, weights, jnp.zeros((), bool)),
            proposal_key,
            labels,
            weights,
            problem,
            (first, second),
            num_items,
        )
        return labels, weights, no_room | needed

    start = (labels, weights, jnp.zeros((), bool))
    return jax.lax.fori_loop(0, num_proposals, once, start)


def _pair(key: Key, num_tokens: int, values: Array | None) -> tuple[Array, Array]:
    """Positions of two tokens, by the data alone; the same one twice where there is no second."""
    first_key, start_key, half_key = jax.random.split(key, 3)
    first = jax.random.randint(first_key, (), 0, num_tokens)
    start = jax.random.randint(start_key, (), 0, num_tokens)
    if values is None:
        return first, start
    position = jnp.arange(num_tokens, dtype=jnp.int32)
    after = jnp.where(position < start, position + num_tokens - start, position - start)
    alike = (values == values[first]) & (position != first)
    nearest = jnp.where(alike, after, num_tokens)
    with_value = jnp.where(jnp.any(alike), jnp.argmin(nearest), first)
    return first, jnp.where(jax.random.bernoulli(half_key), with_value, start)


def _propose(
    passes: _TablePasses,
    key: Key,
    labels: Array,
    weights: Array,
    problem: _Problem,
    pair: tuple[Array, Array],
    num_items: Array,
    *,
    num_scans: int,
) -> tuple[Array, Array, Array]:
    """Labels and weights after one proposal, and whether there was no room for a split."""
    tables_key, passes_key, accepted_key, share_key = jax.random.split(key, 4)
    num_slots = weights.shape[0]
    groups = jnp.stack([labels[pair[0]], labels[pair[1]]])
    splits = groups[0] == groups[1]
    assign = fused_on_cpu(_assign_tables, sequential=True)
    assigned = assign(
        labels,
        problem.batches,
        groups,
        problem.concentration * weights[groups],
        jnp.stack(pair),
        _uniforms(tables_key, labels.shape[0], num_items),
        num_items,
    )
    num_passes = num_scans + 1
    chances = [
        _uniforms(jax.random.fold_in(passes_key, index), labels.shape[0], assigned.num_tables + 2)
        for index in range(num_passes)
    ]
    share_out = fused_on_cpu(passes.share_out, sequential=True)
    scan = share_out(problem.look_up, problem.columns, problem.empty, assigned, ~splits, chances)
    log_split = jnp.log(problem.base) + scan.log_ratio - scan.log_proposal
    uniform = jax.random.uniform(accepted_key, (), weights.dtype)
    accepted = accepts(uniform, jnp.where(splits, log_split, -log_split))
    accepted &= assigned.seeds[0] != assigned.seeds[1]
    free = tables.lowest(~jnp.zeros((num_slots,), bool).at[labels].set(True))
    no_room = accepted & splits & (free == num_slots)
    new = jnp.where(splits, free, groups[1])
    share = jax.random.beta(share_key, scan.counts[0], scan.counts[1], dtype=weights.dtype)
    after = jax.lax.cond(
        accepted & ~no_room,
        fused_on_cpu(_moved, sequential=True),
        lambda labels, weights, *_: (labels, weights),
        labels,
        weights,
        assigned._replace(sides=scan.sides),
        groups[0],
        new,
        splits,
        share,
    )
    return *after, no_room


def _moved(
    labels: Array,
    weights: Array,
    assigned: TableMembers,
    group: Array,
    other: Array,
    splits: Array,
    share: Array,
) -> tuple[Array, Array]:
    """Labels and weights after a split of `group` into it and `other`, or a merge of the two."""

    def one_table(table: Array, labels: Array) -> Array:
        goes = splits & (tables.row(assigned.sides, table) == 1)
        label = jnp.where(goes, other, group)

        def one(index: Array, labels: Array) -> Array:
            return tables.put(labels, tables.row(assigned.members, index), label)

        return jax.lax.fori_loop(*_bag(assigned, table), one, labels)

    labels = jax.lax.fori_loop(0, assigned.num_tables, one_table, labels)
    together = tables.row(weights, group) + jnp.where(splits, 0, tables.row(weights, other))
    # a group that tokens have must keep a weight
    tiny = jnp.finfo(weights.dtype).tiny
    first = jnp.where(splits, jnp.maximum(share * together, tiny), together)
    second = jnp.where(splits, jnp.maximum((1 - share) * together, tiny), 0)
    return labels, tables.put(tables.put(weights, group, first), other, second)


def _uniforms(key: Key, size: int, num_needed: Array) -> Array:
    """Uniforms (size + 2, or a little more), of which the first `num_needed` are drawn."""
    num_blocks = -(-(size + 2) // _BLOCK)
    width = min(_BLOCK, size + 2)
    dtype = jnp.result_type(float)

    def one_block(index: Array, drawn: Array) -> Array:
        block = jax.random.uniform(jax.random.fold_in(key, index), (width,), dtype)
        return jax.lax.dynamic_update_slice(drawn, block, (index * width,))

    blocks_needed = (num_needed + width - 1) // width
    return jax.lax.fori_loop(0, blocks_needed, one_block, jnp.zeros((num_blocks * width,), dtype))


# --- tables ---------------------------------------------------------------------------------------


def _assign_tables(
    labels: Array,
    batches: Array,
    groups: Array,
    pseudo: Array,
    pair: Array,
    uniforms: Array,
    num_items: Array,
) -> TableMembers:
    """Tables of all tokens of two groups, given their concentrations alpha tau_k (2,)."""
    members = _members(labels, groups)
    nobody, zeros = jnp.zeros_like(labels), jnp.zeros((2,), jnp.int32)

    def one(index: Array, carry: PyTree) -> PyTree:
        table_of, joined, sizes, sides, seen, seeds, num_tables, batch_before = carry
        position = tables.row(members, index)
        batch = tables.row(batches, position)
        side = (tables.row(labels, position) != groups[0]).astype(jnp.int32)
        seen = jnp.where(batch == batch_before, seen, 0)
        before = tables.row(seen, side)
        weight = tables.row(pseudo, side)
        goal = tables.row(uniforms, index) * (weight + before) - weight
        # who opens no table joins one of those before, each as likely
        friend = jnp.clip(goal.astype(jnp.int32), 0, jnp.maximum(before - 1, 0))
        opens = (before == 0) | (goal < 0)
        table = jnp.where(opens, num_tables, tables.entry(joined, side, friend))
        _, table = _read_first(goal[None], table)
        return (
            tables.put(table_of, index, table),
            tables.put_entry(joined, side, before, table),
            tables.add(sizes, table, 1),
            tables.put(sides, table, side),
            tables.add(seen, side, 1),
            jnp.where(pair == position, table, seeds),
            num_tables + opens,
            batch,
        )

    start = (
        nobody,
        jnp.zeros((2, labels.shape[0]), jnp.int32),
        nobody,
        nobody,
        zeros,
        zeros,
        jnp.zeros((), jnp.int32),
        jnp.full((), -1, jnp.int32),
    )
    done = jax.lax.fori_loop(0, num_items, one, start)
    table_of, _, sizes, sides, _, seeds, num_tables, _ = done
    grouped, starts = _grouped(members, table_of, sizes, num_items, num_tables)
    return TableMembers(grouped, starts, sides, seeds, num_tables)


def _members(labels: Array, groups: Array) -> Array:
    """Positions (T,) of the tokens of two groups, in their order; what follows them is not used."""

    def one(position: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        members, num_members = carry
        label = tables.row(labels, position)
        members = tables.put(members, num_members, position)
        return members, num_members + ((label == groups[0]) | (label == groups[1]))

    start = (jnp.zeros_like(labels), jnp.zeros((), jnp.int32))
    return jax.lax.fori_loop(0, labels.shape[0], one, start)[0]


def _grouped(
    members: Array, table_of: Array, sizes: Array, num_items: Array, num_tables: Array
) -> tuple[Array, Array]:
    """The members by table (T,), and where those of each table begin (T + 1,)."""

    def begin(table: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        starts, total = carry
        starts = tables.put(starts, table, total)
        return starts, total + tables.row(sizes, table)

    nothing = jnp.zeros((members.shape[0] + 1,), jnp.int32), jnp.zeros((), jnp.int32)
    starts, total = jax.lax.fori_loop(0, num_tables, begin, nothing)
    starts = tables.put(starts, num_tables, total)

    def one(index: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        grouped, following = carry
        table = tables.row(table_of, index)
        following = tables.add(following, table, 1)
        position = tables.row(following, table) - 1
        return tables.put(grouped, position, tables.row(members, index)), following

    return jax.lax.fori_loop(0, num_items, one, (jnp.zeros_like(members), starts))[0], starts


def _bag(assigned: TableMembers, table: Array) -> tuple[Array, Array]:
    """Where the members of a table begin and end."""
    return tables.row(assigned.starts, table), tables.row(assigned.starts, table + 1)


# --- passes ---------------------------------------------------------------------------------------


class _TablePasses(NamedTuple):
    """Passes over the tables, for the blocks that their tokens have values of."""

    below: Below

    def share_out(
        self,
        look_up: dict[str, Array],
        columns: dict[str, Array],
        empty: dict[str, PyTree],
        assigned: TableMembers,
        forced: Array,
        uniforms: list[Array],
    ) -> Scan:
        """All passes; the last ends in the present sides where that is `forced`."""
        tokens = _TableTokens(self.below, look_up, columns, assigned)
        last = len(uniforms) - 1
        scan = self.first(tokens, empty, forced & (last == 0), uniforms[0])
        for index in range(1, last + 1):
            scan = scan._replace(log_proposal=jnp.zeros_like(scan.log_proposal))
            scan = self.again(tokens, scan, forced & (index == last), uniforms[index])
        return scan

    def first(
        self, tokens: _TableTokens, empty: dict[str, PyTree], forced: Array, uniforms: Array
    ) -> Scan:
        """Assigns the tables one after another, those of i and j before all."""
        assigned = tokens.assigned
        zero = jnp.zeros((), uniforms.dtype)
        start = Scan(jnp.zeros_like(assigned.sides), jnp.zeros((3,), zero.dtype), empty, zero, zero)

        def one(visit: Array, scan: Scan) -> Scan:
            is_early = visit < 2
            table = jnp.where(is_early, tables.row(assigned.seeds, visit % 2), visit - 2)
            is_first, is_seed = table == assigned.seeds[0], jnp.any(table == assigned.seeds)
            is_new = is_early | ~is_seed
            cache, logs = tokens.join(scan.cache, table, is_new, lanes=(0, 1, _BOTH))
            # 0 for the first two, which are where they are
            logs = logs + jnp.log(jnp.maximum(scan.counts, 1))
            side, log_chance = choose_side(logs, tables.row(uniforms, visit))
            side = jnp.where(forced, tables.row(assigned.sides, table), side)
            side = jnp.where(is_seed, jnp.where(is_first, 0, 1), side)
            change = logs[side] - logs[_BOTH]
            chosen = jnp.where(side == 0, *log_chance)
            lanes = jnp.arange(_BOTH + 1)
            return Scan(
                sides=tables.put(scan.sides, table, side),
                counts=scan.counts + (is_new & ((lanes == side) | (lanes == _BOTH))),
                cache=tokens.leave(cache, table, is_new, lane=1 - side),
                log_ratio=scan.log_ratio + jnp.where(is_new, change, 0),
                log_proposal=scan.log_proposal + jnp.where(is_seed, 0, chosen),
            )

        return jax.lax.fori_loop(0, assigned.num_tables + 2, one, start)

    def again(self, tokens: _TableTokens, scan: Scan, forced: Array, uniforms: Array) -> Scan:
        """A restricted Gibbs scan: every table anew given all others."""
        assigned, sides_before = tokens.assigned, scan.sides
        # read from one array and written to another, or it is copied for every table
        scan = scan._replace(sides=jnp.zeros_like(sides_before))

        def one(table: Array, scan: Scan) -> Scan:
            is_free = jnp.all(table != assigned.seeds)
            before = tables.row(sides_before, table)
            lanes = jnp.arange(_BOTH + 1)
            counts = scan.counts - (is_free & (lanes == before))
            cache = tokens.leave(scan.cache, table, is_free, lane=before)
            cache, logs = tokens.join(cache, table, is_free, lanes=(0, 1))
            logs = logs + jnp.log(jnp.maximum(counts, 1))
            side, log_chance = choose_side(logs, tables.row(uniforms, table))
            side = jnp.where(forced, tables.row(assigned.sides, table), side)
            side = jnp.where(is_free, side, before)
            chosen = jnp.where(side == 0, *log_chance)
            return scan._replace(
                sides=tables.put(scan.sides, table, side),
                counts=counts + (is_free & (lanes == side)),
                cache=tokens.leave(cache, table, is_free, lane=1 - side),
                log_ratio=scan.log_ratio + jnp.where(is_free, logs[side] - logs[before], 0),
                log_proposal=scan.log_proposal + jnp.where(is_free, chosen, 0),
            )

        return jax.lax.fori_loop(0, assigned.num_tables, one, scan)


class _TableTokens(NamedTuple):
    """The tokens of tables, which join groups and leave them together."""

    below: Below
    look_up: dict[str, Array]
    columns: dict[str, Array]
    assigned: TableMembers

    def _at(self, index: Array) -> dict[str, Array]:
        position = tables.row(self.assigned.members, index)
        return {name: tables.row(column, position) for name, column in self.columns.items()}

    def join(
        self, cache: dict[str, PyTree], table: Array, is_moved: Array, *, lanes: tuple[int, ...]
    ) -> tuple[dict[str, PyTree], Array]:
        """With a table in several groups, and log probabilities (3,) of its values there."""
        start, end = _bag(self.assigned, table)

        def one(index: Array, carry: PyTree) -> PyTree:
            cache, logs = carry
            token = self._at(index)
            more = self.below.log_predicted(cache, token, self.look_up)
            more, zero = _read_first(more, jnp.zeros((), jnp.int32))
            for lane in lanes:
                cache = self.below.moved(cache, token, self.look_up, group=zero + lane, amount=1)
            return cache, logs + more

        no_logs = jnp.zeros((_BOTH + 1,), jnp.result_type(float))
        return jax.lax.fori_loop(start, jnp.where(is_moved, end, start), one, (cache, no_logs))

    def leave(
        self, cache: dict[str, PyTree], table: Array, is_moved: Array, *, lane: Array
    ) -> dict[str, PyTree]:
        """Without a table in one group."""
        start, end = _bag(self.assigned, table)

        def one(index: Array, cache: dict[str, PyTree]) -> dict[str, PyTree]:
            return self.below.moved(cache, self._at(index), self.look_up, group=lane, amount=-1)

        return jax.lax.fori_loop(start, jnp.where(is_moved, end, start), one, cache)


def _read_first(read: Array, index: Array) -> tuple[Array, Array]:
    """Both as they are: what is written at the index is written after the other has been read.

    A loop that never turns keeps the compiler from reading again later, and from keeping a copy of
    the whole table for that.
    """

    def has_none(carry: tuple[Array, Array]) -> Array:
        return jnp.isnan(carry[0][0]) & (carry[1] < 0)

    def turn(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        return jnp.zeros_like(carry[0]), carry[1] + 1

    return jax.lax.while_loop(has_none, turn, (read, index))
