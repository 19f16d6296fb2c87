r"""Particle Gibbs for one row of binary features: all of its bits at once, at a cost linear in K.

Single bits cannot take a row from one set of features to another that fits as well when everything
between fits badly. Here the whole row is drawn by a conditional particle filter over its features,
visited in a random order k_1, ..., k_T. A particle after t of them has decided those t bits; the
others are as in a test path z'. The target after t features is

    gamma_t(z_{k_1}, ..., z_{k_t}) = prod_{s<=t} o_{k_s}^{z_{k_s}} max(L(z), L(z') e^-1000)^(t/T),

o_k the prior odds of a bit, L the likelihood of the row with the bits of the test path where none
is decided yet; the power rises from 1/T to one, and gamma_T is the conditional distribution of the
row (the bound keeps every target before it positive, and is left out of the last). Every particle
has two children, one for each value of the bit. P of the at most 2 P distinct ones are kept by
Fearnhead and Clifford's optimal resampling: child i with probability p_i = min(1, w_i / c), c such
that the p_i add up to P, and then with weight w_i / p_i. The present row is one of the particles
throughout, and the other choices are drawn given that it is kept (`_shift`). With P >= 2^(K - 1)
nothing is ever left out, and the row is an independent draw from its conditional distribution.

The order and the test path are drawn without regard to the present row: the test path is one Gibbs
pass over the bits of a row that starts without features. So the kernel leaves the conditional
distribution of the row invariant for every one of them.

Source: Bouchard-Cote & Roth (2020), Particle-Gibbs sampling for Bayesian feature allocation models
(annealed targets, test paths); Whiteley, Andrieu & Doucet (2010), Efficient Bayesian inference for
switching state-space models using discrete particle Markov chain Monte Carlo methods (conditional
resampling of distinct particles).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logit

from jaxmf import slots
from jaxmf._kernels import tables
from jaxmf.samplers.feature_layout import row_uniforms
from jaxmf.samplers.feature_rows import draw_index
from jaxmf.types import Array, Key, PyTree

NUM_PARTICLES = 8
# Added to the weights by which children are chosen, the largest being one: nothing underflows.
_LEAST_WEIGHT = 1e-12
# How far below the test path a target before the last may be; the level of a path without one.
_DEPTH, _NOTHING = 1e3, -1e6
_LARGEST_LOG_ODDS = 1e4


class RowTarget(NamedTuple):
    """The likelihood of one row at any bits, given everything else."""

    # z (K,) bool -> what the other two need of a row with these bits, a named tuple of arrays with
    # the bits as its field z
    at: Callable[[Array], PyTree]
    # (that, slot k () int32) -> the same with bit k the other way
    flip: Callable[[PyTree, Array], PyTree]
    log_likelihood: Callable[[PyTree], Array]  # that -> () float


class Bits(NamedTuple):
    """A row of which a likelihood asks the bits z (K,) bool alone."""

    z: Array


class RowUniforms(NamedTuple):
    """The random numbers of a row: uniforms over slots (K,), and one alone ()."""

    order: Array
    path: Array
    resample: Array
    choice: Array


class Children(NamedTuple):
    """The children of all particles, C = 2 P of them; those that do not exist have weight zero."""

    rows: PyTree  # of `RowTarget`, with a leading axis C
    log_prior: Array  # (C,) float, of the bits decided so far
    log_likelihood: Array  # (C,) float
    log_target: Array  # (C,) float, log gamma_t
    log_weight: Array  # (C,) float
    retained: Array  # () int32, which one leads to the present row


def draw_uniforms(key: Key, num_slots: int) -> RowUniforms:
    """The random numbers of a row; more slots leave those of the first ones as they are."""
    choice, (order, path, resample) = row_uniforms(key, 1, num_slots, 3, jnp.result_type(float))
    return RowUniforms(order, path, resample, choice[0])


def draw_row(
    uniforms: RowUniforms,
    z: Array,
    target: RowTarget,
    *,
    prior_log_odds: Array,
    movable: Array,
) -> PyTree:
    """A row drawn anew, as `RowTarget.at` has it, from its distribution given everything else.

    Args: z (K,) bool, the present row, whose bits that are not `movable` (K,) bool stay;
    prior_log_odds (K,) float, of each bit being on.
    """
    children = run_particles(
        uniforms,
        z,
        target,
        prior_log_odds=prior_log_odds,
        movable=movable,
        num_particles=NUM_PARTICLES,
    )
    is_possible = jnp.max(children.log_weight) > -jnp.inf
    drawn = draw_index(uniforms.choice, children.log_weight)
    index = jnp.where(is_possible, drawn, children.retained)
    return jax.tree.map(lambda leaf: leaf[index], children.rows)


def target_of_bits(log_likelihood: Callable[[Array], Array]) -> RowTarget:
    """The target of any likelihood of a row as a function of its bits (K,) bool alone."""
    return RowTarget(
        at=Bits,
        flip=lambda row, k: Bits(row.z ^ (jnp.arange(row.z.shape[0]) == k)),
        log_likelihood=lambda row: log_likelihood(row.z),
    )


def run_particles(
    uniforms: RowUniforms,
    z: Array,
    target: RowTarget,
    *,
    prior_log_odds: Array,
    movable: Array,
    num_particles: int,
) -> Children:
    """The last children of `draw_row`, of which it draws one by their weights."""
    log_odds = jnp.clip(prior_log_odds, -_LARGEST_LOG_ODDS, _LARGEST_LOG_ODDS)
    num_movable = jnp.sum(movable, dtype=log_odds.dtype)
    path, level = _test_path(uniforms, z & ~movable, target, log_odds, movable)
    lowest = jnp.where(jnp.isfinite(level), level, _NOTHING) - _DEPTH

    def visit(k: Array, _: Array, carry: tuple[Array, Children]) -> tuple[Array, Children]:
        num_decided, present = carry
        chosen, log_weight, retained = _resample(
            uniforms.resample[k], present.log_weight, present.retained, num_particles
        )
        # the index of the retained child is one for all
        parents = jax.tree.map(lambda leaf: leaf[chosen] if leaf.ndim else leaf, present)
        flipped = jax.vmap(target.flip, in_axes=(0, None))(parents.rows, k)
        rows = jax.tree.map(lambda *both: jnp.concatenate(both), parents.rows, flipped)
        log_likelihood = jnp.concatenate(
            [parents.log_likelihood, jax.vmap(target.log_likelihood)(flipped)]
        )
        log_prior = _twice(parents.log_prior) + jnp.where(rows.z[:, k], log_odds[k], 0)
        num_decided = num_decided + 1
        annealed = num_decided / num_movable * jnp.maximum(log_likelihood, lowest)
        is_last = num_decided == num_movable
        log_target = log_prior + jnp.where(is_last, log_likelihood, annealed)
        return num_decided, Children(
            rows=rows,
            log_prior=log_prior,
            log_likelihood=log_likelihood,
            log_target=log_target,
            log_weight=_twice(log_weight - parents.log_target) + log_target,
            retained=retained + jnp.where(z[k] == path.z[k], 0, num_particles),
        )

    size = 2 * num_particles
    nothing = jnp.zeros((size,), log_odds.dtype)
    start = Children(
        rows=jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (size, *leaf.shape)), path),
        log_prior=nothing,
        log_likelihood=nothing + level,
        log_target=nothing,
        log_weight=jnp.where(jnp.arange(size) == 0, nothing, -jnp.inf),
        retained=jnp.zeros((), jnp.int32),
    )
    carry = jnp.zeros((), log_odds.dtype), start
    return slots.visit(visit, carry, order=uniforms.order, allowed=movable)[1]


def _twice(array: Array) -> Array:
    return jnp.concatenate([array, array])


def _test_path(
    uniforms: RowUniforms, start: Array, target: RowTarget, log_odds: Array, movable: Array
) -> tuple[PyTree, Array]:
    """A Gibbs pass over the bits of a row that starts without movable ones; its log likelihood."""
    thresholds = logit(uniforms.path)

    def visit(k: Array, _: Array, carry: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
        row, left = carry
        other = target.flip(row, k)
        value = target.log_likelihood(other)
        takes = thresholds[k] < jnp.where(row.z[k], -1, 1) * log_odds[k] + value - left
        return tables.either(takes, (other, value), carry)

    row = target.at(start)
    carry = row, target.log_likelihood(row)
    drawn: tuple[PyTree, Array] = slots.visit(visit, carry, order=uniforms.order, allowed=movable)
    return drawn


def _resample(
    uniform: Array, log_weight: Array, retained: Array, num: int
) -> tuple[Array, Array, Array]:
    """At most `num` of the children, given that the retained one is among them.

    Args: log_weight (C,) float.
    Returns indices (P,) int32, ascending; log weights (P,), -inf where there are fewer; the index
    of the retained one among them.
    """
    exists = log_weight > -jnp.inf
    highest = jnp.max(log_weight)
    weights = jnp.where(exists, jnp.exp(log_weight - highest) + _LEAST_WEIGHT, 0)
    chance = _inclusion(weights, num)
    is_sure = exists & (chance >= 1)
    ends = jnp.cumsum(jnp.where(is_sure, 0, chance))
    # this many of the others are chosen, whatever rounding does to their sum
    num_others = jnp.round(ends[-1])
    ends = ends * num_others / jnp.maximum(ends[-1], _LEAST_WEIGHT)
    begins = jnp.concatenate([jnp.zeros_like(ends[:1]), ends[:-1]])
    shift = _shift(uniform, begins[retained], ends[retained])
    # the positions shift, shift + 1, ... below the end of a child and not below its beginning
    chosen = is_sure | (jnp.ceil(ends - shift) > jnp.ceil(begins - shift))
    indices = jnp.arange(log_weight.shape[0], dtype=jnp.int32)
    chosen = (chosen & exists) | (indices == retained)
    rank = jnp.cumsum(chosen, dtype=jnp.int32) - 1
    positions = jnp.arange(num, dtype=jnp.int32)
    picked = jnp.argmax(chosen & (rank == positions[:, None]), axis=1).astype(jnp.int32)
    new_retained = jnp.minimum(rank[retained], num - 1)
    picked = picked.at[new_retained].set(retained)
    log_new = (log_weight - highest - jnp.log(jnp.where(exists, chance, 1)))[picked]
    return picked, jnp.where(positions <= rank[-1], log_new, -jnp.inf), new_retained


def _inclusion(weights: Array, num: int) -> Array:
    """(C,) float: min(1, w_i / c), with c such that they add up to `num`; at most num: all one."""
    larger = weights > weights[:, None]
    num_larger = jnp.sum(larger, axis=1)
    tail = jnp.sum(jnp.where(larger, 0, weights), axis=1)
    # with child i the largest of those that are not sure of their choice
    is_candidate = (num_larger < num) & (weights * (num - num_larger) <= tail)
    first = jnp.argmin(jnp.where(is_candidate, num_larger, num))
    threshold = tail[first] / (num - num_larger[first])
    is_sure = larger[first] | (jnp.sum(weights > 0) <= num)
    return jnp.where(is_sure, 1, weights / jnp.maximum(threshold, _LEAST_WEIGHT**2))


def _shift(uniform: Array, begin: Array, end: Array) -> Array:
    """The shift () float in [0, 1) of the positions, uniform given that the retained child is hit.

    A child that is sure of its choice has begin = end, and says nothing of the shift.
    """
    position = begin + uniform * (end - begin)
    return jnp.where(end > begin, position - jnp.floor(position), uniform)
