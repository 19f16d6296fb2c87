r"""Split-merge moves for the columns of a binary matrix Z, with restricted Gibbs scans.

Single-bit updates cannot take a feature apart or put two together: the states between are
improbable. Here one proposal does, and a scan over the two columns alone finds a good way to share
out the rows. It is written once, for any model whose likelihood has a `PairLikelihood`.

**The move** (Meeds et al. 2007, section 3.3, which sketches it after Jain & Neal 2007):

1. Two ones of Z are picked, independently, each uniformly among all m of them: (i, k) and (j, l).
   They may be the same one. The ones of fixed features (the first `num_fixed` slots) do not count.
2. k = l: the column c = k is to be *split* into an ordered pair (a, b). Every row of c gets 10, 01
   or 11 in the new columns; row i keeps a and row j keeps b, so if i = j that row gets 11.
   k != l: the columns a = k, b = l are to be *merged* into c = a OR b.
3. A first pass shares the rows of c out one after another, in a random order, each by its
   conditional given those before it, starting from a = {i}, b = {j}. `num_scans` further passes,
   restricted Gibbs scans, draw every row anew given all others. For a split, the result of the
   last pass is proposed, and q is the product of its conditional probabilities. For a merge, q is
   the probability that the last pass would have ended in the present (a, b).
4. The split is accepted with probability min(1, A), the merge with min(1, 1/A).

**The acceptance ratio.** Features are exchangeable; a class of matrices (order of the columns
forgotten) with K features in which K_h have history h has probability

    P([Z]) = exp(-total) prod_k Lambda(h_k) / prod_h K_h!,
    Lambda(h) = alpha beta B(m_h, N - m_h + beta),

features being points of a Poisson process with intensity Lambda over histories, and total its
integral (for beta = 1, Lambda(h) = alpha (m-1)! (N-m)! / N!). Put the features of a class in a
uniformly random order. It has K! / prod_h K_h! distinct orders, so each list (h_1, ..., h_K) has
probability

    pi(h_1, ..., h_K) = P([Z]) prod_h K_h! / K! = exp(-total) prod_k Lambda(h_k) / K!:

on lists the factors K_h! are gone, also where two columns are equal. On lists the move is: a split
takes c from its position and puts a and b into two random positions of the K + 1, one of (K + 1) K
choices; a merge takes a and b out and puts c into one of the K positions that the shorter list has.
Let m count the ones before a split, m' = m + (rows with 11) those after it. Given the random order
and the passes before the last, whose distribution depends on c, i, j and the other columns only and
is the same in both directions, the two flows are, with L the likelihood,

    split:  Prod Lambda(h) L  / K!       * 1/m^2  * q * 1/((K + 1) K),
    merge:  Prod Lambda(h') L' / (K + 1)! * 1/m'^2 * 1 * 1/K,

the picked ones being (i, c), (j, c) in the first and (i, a), (j, b) in the second: each choice of
one direction belongs to exactly one of the other. The factors of K cancel, and

    A = [Lambda(a) Lambda(b) / Lambda(c)] * [L(a, b) / L(c)] * (m / m')^2 / q.             (1)

Positions do not matter to the distribution of the class, so the kernel leaves a in c's slot and
takes the lowest free slot for b. Integrating over the order of the rows and the earlier passes
keeps detailed balance.

*Why with replacement.* Rows can have both features. From a split state, the pair (i, a), (i, b) of
one row leads to a merge whose reverse picks the one (i, c) twice; were the ones drawn without
replacement, that merge would have no reverse.

*The finite beta-Bernoulli model* is over K labelled columns, p(Z) = prod_k p(h_k) with
p(h) = B(m_h + alpha beta / K, N - m_h + beta) / B(alpha beta / K, beta); no factorials enter. An
empty column is a feature too: a split needs one for b, a uniformly random one of the E that are
empty, and a merge leaves its second column empty. With E counted before the split, which is one
more than before the merge,

    A = [p(a) p(b) / (p(c) p(empty))] * [L(a, b) / L(c)] * (m / m')^2 * E / q;             (2)

without an empty column a split is refused, and no merge leads to where it would have come from.
Both cases are `log_split_ratio`: the labelled density of the pair before and after, and E or 1.

The order of the rows, the passes and the pair picked depend on nothing that the move changes; no
feature's slot decides an order (a slot would tell its age).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf._kernels.special import accepts
from jaxmf.samplers.restricted_scans import (
    ColumnPair,
    LabelledPrior,
    PairLikelihood,
    Passes,
    random_row_order,
    run_passes,
)
from jaxmf.types import Array, Key, PyTree


def split_merge(
    key: Key,
    z: Array,
    *,
    prior: LabelledPrior,
    likelihood: PairLikelihood,
    num_proposals: int,
    num_scans: int,
    num_fixed: int = 0,
) -> tuple[Array, Array, Array]:
    """Some split or merge proposals, one after another; leaves p(Z | data) invariant.

    Args: z (N, K) bool; num_scans: restricted Gibbs scans after the first pass over the rows;
    num_fixed: the first `num_fixed` slots hold fixed features, which are never touched.
    Returns z; () bool, whether an accepted split found no free slot; () int32, how many were
    accepted.
    """

    def once(index: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        z, overflow, num_accepted = carry
        proposal = propose(
            jax.random.fold_in(key, index),
            z,
            prior=prior,
            likelihood=likelihood,
            num_scans=num_scans,
            num_fixed=num_fixed,
        )
        return proposal.z, overflow | proposal.overflow, num_accepted + proposal.accepted

    start = (z, jnp.zeros((), bool), jnp.zeros((), jnp.int32))
    return jax.lax.fori_loop(0, num_proposals, once, start)


class Proposal(NamedTuple):
    """The result of one proposal."""

    z: Array  # (N, K) bool, as it was where it was refused
    slots: Array  # (2,) int32, those of the two columns; after a merge the second is empty
    overflow: Array  # () bool, whether an accepted split has no free slot
    accepted: Array  # () bool


def propose(
    key: Key,
    z: Array,
    *,
    prior: LabelledPrior,
    likelihood: PairLikelihood,
    num_scans: int,
    num_fixed: int,
) -> Proposal:
    """One proposal; arguments as `split_merge`."""
    dtype = jnp.result_type(float)
    streams = [jax.random.fold_in(key, index) for index in range(5)]
    movable = z & (jnp.arange(z.shape[1]) >= num_fixed)
    rows, columns, total = pick_ones(streams[0], movable)
    pair = pair_of(z, rows, columns)
    fixed = likelihood.start(pair.rest)
    order, num_visits = random_row_order(streams[1], pair.rows)
    passes = run_passes(
        streams[2], pair, fixed, order, num_visits,
        prior=prior, likelihood=likelihood, num_scans=num_scans,
    )  # fmt: skip
    empty = empty_slots(prior, z, num_fixed=num_fixed)
    log_ratio = log_split_ratio(
        pair, passes, fixed, total, empty.num_features, prior=prior, likelihood=likelihood
    )
    log_accept = jnp.where(pair.splits, log_ratio, -log_ratio)
    uniform = jax.random.uniform(streams[3], (), dtype)
    accepted = accepts(uniform, log_accept) & (total > 0)
    slot, none_left = empty.choose(streams[4])
    overflow = accepted & pair.splits & none_left
    second = jnp.where(pair.splits, slot, pair.slots[1])
    return Proposal(
        z=jnp.where(accepted, applied(z, pair, passes, slot), z),
        slots=jnp.stack([pair.slots[0], second]).astype(jnp.int32),
        overflow=overflow,
        accepted=accepted,
    )


def pick_ones(key: Key, movable: Array) -> tuple[Array, Array, Array]:
    """Two ones of a matrix (N, K) bool: their rows (2,), columns (2,), and how many there are.

    Ones are counted row by row, so that further empty columns change nothing.
    """
    by_row = jnp.cumsum(jnp.sum(movable, axis=1, dtype=jnp.int32))
    total = by_row[-1]
    ranks = jax.random.randint(key, (2,), 0, jnp.maximum(total, 1))

    def row_and_column(rank: Array) -> tuple[Array, Array]:
        row = jnp.searchsorted(by_row, rank, side="right")
        row = jnp.minimum(row, movable.shape[0] - 1)
        before = by_row[row] - jnp.sum(movable[row], dtype=jnp.int32)
        column = jnp.argmax(jnp.cumsum(movable[row], dtype=jnp.int32) == rank - before + 1)
        return row.astype(jnp.int32), column.astype(jnp.int32)

    rows, columns = jax.vmap(row_and_column)(ranks)
    return rows, columns, total


def pair_of(z: Array, rows: Array, columns: Array) -> ColumnPair:
    """The proposal that the ones (rows[0], columns[0]) and (rows[1], columns[1]) stand for."""
    splits = columns[0] == columns[1]
    first = jnp.take(z, columns[0], axis=1)
    second = jnp.take(z, columns[1], axis=1) & ~splits
    slots = jnp.arange(z.shape[1])
    return ColumnPair(
        splits=splits,
        slots=columns,
        now=jnp.stack([first, second], axis=1),
        held=jnp.arange(z.shape[0])[:, None] == rows,
        rest=z & (slots != columns[0]) & (slots != columns[1]),
    )


def log_split_ratio(
    pair: ColumnPair,
    passes: Passes,
    fixed: PyTree,
    total: Array,
    num_empty: Array,
    *,
    prior: LabelledPrior,
    likelihood: PairLikelihood,
) -> Array:
    """log A of equations (1) and (2), of the split that is proposed or that a merge would undo.

    Args:
      total: () int32, ones of Z as it is, those of fixed features left out.
      num_empty: () int32, empty features of the finite model as it is; negative for a process.
    """
    dtype = passes.pair.dtype
    num_rows = jnp.asarray(pair.now.shape[0], dtype)
    whole = jnp.stack([pair.rows, jnp.zeros_like(pair.rows)], axis=1).astype(dtype)
    log_prior = prior.log_prob_labelled(
        jnp.sum(passes.pair, axis=0), num_rows
    ) - prior.log_prob_labelled(jnp.sum(whole, axis=0), num_rows)
    log_likelihood = likelihood.log_likelihood(
        fixed, likelihood.at(fixed, passes.pair)
    ) - likelihood.log_likelihood(fixed, likelihood.at(fixed, whole))
    both = jnp.sum(jnp.all(passes.pair > 0, axis=1), dtype=jnp.int32)
    num_merged = total - jnp.where(pair.splits, 0, both)
    log_pick = log_pick_probability(num_merged + both) - log_pick_probability(num_merged)
    log_slots = log_slot_choices(num_empty + jnp.where(pair.splits, 0, 1), num_empty >= 0)
    return log_prior + log_likelihood + log_pick + log_slots - passes.log_proposal


def log_pick_probability(total: Array) -> Array:
    """log of the probability 1 / m^2 of picking two particular ones of m."""
    return -2 * jnp.log(jnp.maximum(total, 1).astype(jnp.result_type(float)))


def log_slot_choices(num_empty: Array, is_finite: Array) -> Array:
    """log E of equation (2), -inf without an empty feature; 0 for a process."""
    log_num_empty = jnp.log(num_empty.astype(jnp.result_type(float)))
    return jnp.where(is_finite, log_num_empty, 0)


class EmptySlots(NamedTuple):
    """Where the second column of a split can go."""

    open: Array  # (K,) bool
    # () int32, how many of them are features of a finite model; -1 for a process
    num_features: Array

    def choose(self, key: Key) -> tuple[Array, Array]:
        """One of them: the lowest, in a finite model a random one; and whether there is none."""
        num_slots = self.open.shape[0]
        position = jnp.arange(num_slots, dtype=jnp.result_type(float))
        position = jnp.where(
            self.num_features < 0, position, jax.random.uniform(key, (num_slots,), position.dtype)
        )
        return jnp.argmin(jnp.where(self.open, position, jnp.inf)), ~jnp.any(self.open)


def empty_slots(prior: LabelledPrior, z: Array, *, num_fixed: int) -> EmptySlots:
    """The empty columns of Z (N, K), those of fixed features left out."""
    empty = ~jnp.any(z, axis=0) & (jnp.arange(z.shape[1]) >= num_fixed)
    # a feature that exists without any row having it: a finite model
    features = prior.exists(jnp.zeros((z.shape[1] - num_fixed,), jnp.result_type(float)))
    features = jnp.concatenate([jnp.zeros((num_fixed,), bool), features])
    is_finite = jnp.any(features)
    num_empty = jnp.sum(empty & features, dtype=jnp.int32)
    return EmptySlots(
        open=empty & (features | ~is_finite), num_features=jnp.where(is_finite, num_empty, -1)
    )


def applied(z: Array, pair: ColumnPair, passes: Passes, slot: Array) -> Array:
    """Z (N, K) with the split or merge made; `slot` is where a split puts its second column."""
    split = passes.pair > 0
    first = jnp.where(pair.splits, split[:, 0], pair.rows)
    second = split[:, 1] & pair.splits
    slots = jnp.arange(z.shape[1])
    z = jnp.where(slots == pair.slots[0], first[:, None], z)
    return jnp.where(slots == jnp.where(pair.splits, slot, pair.slots[1]), second[:, None], z)
