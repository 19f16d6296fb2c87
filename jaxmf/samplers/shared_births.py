r"""Births and deaths of features that several rows share, the loadings summed out.

A sweep gives a new feature to one row, and others join it one by one. Where one row alone says too
little, a feature that twenty rows have is never begun. Here it comes with all its rows at once, and
goes so. It is written once, for any model whose likelihood has a `PairLikelihood`, whose second
column is left empty.

**The move.** A birth or a death, each with probability 1/2. R is Z without the column c in
question, so for a birth Z itself.

1. Death: c is picked among the columns of two rows or more with weight w(m) = 1 / m, m being how
   many rows it has.
2. With p_i proportional to sqrt(L(R + e_i)), e_i the column of row i alone, a row i is picked: any
   row with probability p_i (birth), or one of c's rows with p_i / sum_{j in c} p_j (death). It has
   the feature throughout.
3. A launch: row i and the s rows that would join it first, those with the largest
   L(R + e_i + e_j); log(1 + s) is uniform between 0 and log N. Then `NUM_PASSES` times every other
   row gets its bit from its conditional given the column as the pass before left it, all rows at
   once. The last pass is c (birth), or is taken to have ended in c (death); q(c) is the product of
   its probabilities.
4. The birth is accepted with probability min(1, A), the death with min(1, 1 / A).

**The acceptance ratio.** Steps 2 and 3 depend on R and on random numbers, up to the last pass, and
are the same in both directions. On lists of features in a random order (`split_merge.py`) a birth
puts c into one of K + 1 positions, and the density of the longer list is Lambda(c) / (K + 1) times
that of the shorter: K + 1 cancels, and so does p_i,

    A = Lambda(c) * [L(R + c) / L(R)] * [w(c) / W] / [q(c) * sum_{j in c} p_j],               (1)

W being the sum of the weights of all columns of R + c. In the finite model c is put into one of the
E columns of R that are empty, and Lambda(c) is p(c) / p(empty), times E. A column of one row alone
is left to the sweep: it is refused, as its weight is 0.

Why rows at once, and not one after another: the pass is one product of matrices, where N steps of a
loop take as long as a whole sweep. Rows of c that depend on each other make q less apt, not wrong.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf._kernels.special import accepts
from jaxmf.samplers.feature_rows import draw_index
from jaxmf.samplers.restricted_scans import LabelledPrior, PairLikelihood
from jaxmf.samplers.split_merge import empty_slots, log_slot_choices
from jaxmf.types import Array, Key, PyTree

NUM_PASSES = 2


class BirthProposal(NamedTuple):
    """The result of one proposal."""

    z: Array  # (N, K) bool, as it was where it was refused
    slot: Array  # () int32, of the column
    overflow: Array  # () bool, whether an accepted birth has no free slot
    accepted: Array  # () bool


def propose(
    key: Key, z: Array, *, prior: LabelledPrior, likelihood: PairLikelihood, num_fixed: int
) -> BirthProposal:
    """One proposal, which leaves p(Z | data) invariant.

    Args: z (N, K) bool; num_fixed: the first `num_fixed` slots hold fixed features.
    """
    streams = [jax.random.fold_in(key, index) for index in range(3)]
    uniforms = jax.random.uniform(streams[0], (5,), jnp.result_type(float))
    is_birth, num_rows = uniforms[0] < 0.5, z.shape[0]
    weights = death_weights(z, num_fixed=num_fixed)
    dying = draw_index(uniforms[1], jnp.log(weights))
    every_slot = jnp.arange(z.shape[1])
    rest = z & (is_birth | (every_slot != dying))
    now = jnp.take(z, dying, axis=1) & ~is_birth

    fixed = likelihood.start(rest)
    log_picks = log_pick_probabilities(fixed, likelihood, num_rows)
    log_weights = jnp.where(is_birth | now, log_picks, -jnp.inf)
    held = jnp.arange(num_rows) == draw_index(uniforms[2], log_weights)
    num_joining = jnp.floor(jnp.exp(uniforms[3] * jnp.log(float(num_rows)))) - 1
    column = first_column(held, num_joining, fixed, likelihood)
    log_odds = joining_log_odds(column, fixed, prior=prior, likelihood=likelihood)
    for uniform in jax.random.uniform(streams[1], (NUM_PASSES - 1, num_rows)):
        column = held | (uniform < jax.nn.sigmoid(log_odds))
        log_odds = joining_log_odds(column, fixed, prior=prior, likelihood=likelihood)
    drawn = held | (jax.random.uniform(streams[2], (num_rows,)) < jax.nn.sigmoid(log_odds))
    column = jnp.where(is_birth, drawn, now)
    log_proposal = log_pass_probability(column, held, log_odds)
    log_proposal += jax.nn.logsumexp(jnp.where(column, log_picks, -jnp.inf))

    empty = empty_slots(prior, rest, num_fixed=num_fixed)
    others = jnp.sum(jnp.where(is_birth | (every_slot != dying), weights, 0))
    log_ratio = log_gain(column, fixed, prior=prior, likelihood=likelihood) - log_proposal
    log_ratio += log_death_choice(column, others)
    log_ratio += log_slot_choices(empty.num_features, empty.num_features >= 0)
    is_possible = is_birth | (weights[dying] > 0)
    accepted = is_possible & accepts(uniforms[4], jnp.where(is_birth, log_ratio, -log_ratio))
    slot, none_left = empty.choose(jax.random.fold_in(key, 3))
    slot = jnp.where(is_birth, slot, dying).astype(jnp.int32)
    after = jnp.where(every_slot == slot, (column & is_birth)[:, None], z)
    return BirthProposal(
        z=jnp.where(accepted, after, z),
        slot=slot,
        overflow=accepted & is_birth & none_left,
        accepted=accepted,
    )


def death_weights(z: Array, *, num_fixed: int) -> Array:
    """w(m) of every column (K,) float; 0 for one that is fixed, empty, or of one row alone."""
    counts = jnp.sum(z, axis=0, dtype=jnp.result_type(float))
    return jnp.where((counts > 1) & (jnp.arange(z.shape[1]) >= num_fixed), 1 / counts, 0)


def log_pick_probabilities(fixed: PyTree, likelihood: PairLikelihood, num_rows: int) -> Array:
    """log p_i of step 2, (N,) float."""
    nobody = jnp.zeros((num_rows,), bool)
    return jax.nn.log_softmax(0.5 * joining_gains(nobody, fixed, likelihood))


def first_column(
    held: Array, num_joining: Array, fixed: PyTree, likelihood: PairLikelihood
) -> Array:
    """The launch of step 3, (N,) bool: the row that is held, and `num_joining` () float others."""
    gains = jnp.where(held, jnp.inf, joining_gains(held, fixed, likelihood))
    rank = jnp.argsort(jnp.argsort(-gains, stable=True), stable=True)
    return rank <= num_joining


def joining_log_odds(
    column: Array, fixed: PyTree, *, prior: LabelledPrior, likelihood: PairLikelihood
) -> Array:
    """Log odds of the bit of each row given the column (N,) bool of the others: (N,) float."""
    num_rows = column.shape[0]
    counts = jnp.sum(column) - column
    log_odds = jax.vmap(lambda count: prior.log_odds(count[None], num_rows)[0])(counts)
    return log_odds + joining_gains(column, fixed, likelihood)


def joining_gains(column: Array, fixed: PyTree, likelihood: PairLikelihood) -> Array:
    """Increase of the log likelihood if a row has the feature, for each row alone: (N,)."""
    pair = _beside_nothing(column)
    statistics = likelihood.at(fixed, pair)
    settings = jnp.array([[0.0, 0.0], [1.0, 0.0]], pair.dtype)

    def gain(row: Array, setting: Array) -> Array:
        without, having = likelihood.log_likelihoods(fixed, statistics, row, setting, settings)
        return having - without

    return jax.vmap(gain)(jnp.arange(column.shape[0]), pair)


def log_pass_probability(column: Array, held: Array, log_odds: Array) -> Array:
    """log q(c), () float: every bit but that of the row that is held."""
    each = jax.nn.log_sigmoid(jnp.where(column, log_odds, -log_odds))
    return jnp.sum(jnp.where(held, 0, each))


def log_gain(
    column: Array, fixed: PyTree, *, prior: LabelledPrior, likelihood: PairLikelihood
) -> Array:
    """log of Lambda(c) L(R + c) / L(R), () float, for c (N,) bool."""
    pair = _beside_nothing(column)
    num_rows = jnp.asarray(column.shape[0], pair.dtype)
    log_density, log_density_without = (
        prior.log_prob_labelled(jnp.sum(pair[:, :1], axis=0), num_rows)
        + likelihood.log_likelihood(fixed, likelihood.at(fixed, pair))
        for pair in (pair, jnp.zeros_like(pair))
    )
    return log_density - log_density_without


def log_death_choice(column: Array, others: Array) -> Array:
    """log of w(c) / W, () float, for c (N,) bool; `others` is the sum of all other weights."""
    weight = death_weights(column[:, None], num_fixed=0)[0]
    return jnp.log(weight) - jnp.log(others + weight)


def _beside_nothing(column: Array) -> Array:
    """The pair (N, 2) float of a column and an empty one."""
    return jnp.stack([column, jnp.zeros_like(column)], axis=1).astype(jnp.result_type(float))
