"""Non-reversible parallel tempering: replicas of a chain at powers of the likelihood that swap.

R replicas have the powers 1 = b_1 > ... > b_R > 0. A step swaps neighbours, the pairs (1, 2),
(3, 4), ... and (2, 3), (4, 5), ... in alternation, and then moves the replica at power 1 by the
model's own sampler, the others by its step with the likelihood to their power. All of this leaves
the product of the powered posteriors invariant, so that the replica at power 1 is a chain of the
posterior. The alternation without coin tosses lets a state travel straight from one end to the
other.

In the warm-up each gap between powers is moved until its swaps are accepted half of the time; the
lowest power is then as low as this many replicas reach. Afterwards the powers are fixed.

Sources: Okabe, Kawata, Okamoto and Mikami (2001) for the alternation; Syed, Bouchard-Cote,
Deligiannidis and Doucet (2022), Non-reversible parallel tempering, for equal rejection, the half
and round trips; Miasojedow, Moulines and Vihola (2013) for the adaptation of gaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from jaxmf.engine.algorithm import Algorithm, Info, algorithm, merge_overflow
from jaxmf.samplers.annealed_smc import AnnealedModel
from jaxmf.samplers.cloud import in_any_particle, particle_keys, shape_of_one
from jaxmf.types import Array, Draw, Key, PyTree

# Below it a learned noise scale may become so small that a row takes hundreds of features.
LOWEST_POWER = 0.05
_FIRST_LOWEST_POWER = 0.1  # before anything is adapted
_ACCEPTANCE = 0.5  # of swaps, which gaps are moved towards
# the gain of step n is (n + 1)^-0.6, and no less than this share of what is left of the warm-up
_GAIN_EXPONENT = 0.6
_LEAST_GAIN = 0.2
# Folded into the key of a step for its swaps; the replicas fold in 0, 1, ..., R - 1.
_SWAP_FOLD = np.uint32(2**32 - 1)
_REFRESH_FOLD = np.uint32(2**32 - 2)


@jax.tree_util.register_static
@dataclass(frozen=True)
class _TemperingSettings:
    """The static settings of a tempered sampler; runs with equal settings share programs."""

    num_replicas: int
    side_by_side: bool


class SwapReport(NamedTuple):
    """How the replicas did after the warm-up, of every chain.

    Attributes:
        powers: (C, R) float, fixed after the warm-up.
        acceptance: (C, R - 1) float, mean probability that a proposed swap is accepted.
        round_trips: (C,) int, states that came back to power 1 from the lowest.
    """

    powers: np.ndarray
    acceptance: np.ndarray
    round_trips: np.ndarray


class Replicas(NamedTuple):
    """The replicas of one chain, in the order of their powers."""

    states: PyTree  # pytree with leading axis R, states of the model's sampler
    log_gaps: Array  # (R - 1,) float, log of the gaps between -log b of neighbours
    # (R,) int8, of the state that is at each power now: 0 it has been at neither end, 1 it was last
    # at power 1, 2 it was at the lowest power since
    last_end: Array
    num_steps: Array  # () int32
    num_kept_steps: Array  # () int32, steps after the warm-up, over which the next two are gathered
    acceptance: Array  # (R - 1,) float, mean probability that a proposed swap is accepted
    round_trips: Array  # () int32, states that came back to power 1 from the lowest


def tempered(
    sampler: Algorithm, model: AnnealedModel, *, num_replicas: int, side_by_side: bool
) -> Algorithm:
    """A sampler whose chains are the replicas at power 1 of a parallel tempering.

    Args:
        sampler: the model's own; its start, its draws and its growth are kept, and the replica at
            power 1 moves by its step.
        model: what the other replicas do at their powers, on states of the same kind.
        num_replicas: R, at least 2.
        side_by_side: whether all replicas are moved at once, as accelerators want it, or one after
            the other. The draws are the same to rounding.
    Returns:
        Algorithm with state `Replicas`.
    """
    settings = _TemperingSettings(num_replicas, side_by_side)
    return algorithm(
        init=Partial(_init, settings, sampler),
        step=Partial(_step, settings, sampler, model),
        record=Partial(_at_power_one, sampler.record),
        grow=None if sampler.grow is None else Partial(_grow, sampler),
        capacity=None if sampler.capacity is None else Partial(_capacity, sampler),
        average=None if sampler.average is None else Partial(_at_power_one, sampler.average),
        compiler_options=sampler.compiler_options,
        limit=sampler.limit,
    )


def report(replicas: Replicas) -> SwapReport:
    """The report on swaps, from the last state of all C chains (leading axis of the leaves)."""
    powers = jax.vmap(powers_of)(jnp.asarray(replicas.log_gaps))
    return SwapReport(*map(np.asarray, (powers, replicas.acceptance, replicas.round_trips)))


def powers_of(log_gaps: Array) -> Array:
    """(R,) float: the powers, falling from 1, of (R - 1,) log gaps between -log b."""
    return jnp.exp(-jnp.concatenate([jnp.zeros(1, log_gaps.dtype), jnp.cumsum(jnp.exp(log_gaps))]))


def swap_probabilities(model: AnnealedModel, states: PyTree, data: PyTree, powers: Array) -> Array:
    """(R - 1,) float: with which probability a swap of each pair of neighbours is accepted.

    Args: powers (R,) float, falling.
    """
    statistics = jax.vmap(model.measure, in_axes=(0, None))(states, data)
    log_ratio = jax.vmap(model.log_ratio)
    higher = jax.tree.map(lambda leaf: leaf[:-1], statistics)
    lower = jax.tree.map(lambda leaf: leaf[1:], statistics)
    log_odds = log_ratio(lower, powers[1:], powers[:-1]) - log_ratio(
        higher, powers[1:], powers[:-1]
    )
    # NaN where both likelihoods are zero: nothing speaks for the swap
    return jnp.exp(jnp.minimum(jnp.where(jnp.isnan(log_odds), -jnp.inf, log_odds), 0))


def swapped_order(is_swapped: Array) -> Array:
    """(R,) int: which replica is at each position after swaps of disjoint pairs, (R - 1,) bool."""
    no = jnp.zeros(1, bool)
    step_up = jnp.concatenate([is_swapped, no]).astype(jnp.int32)
    step_down = jnp.concatenate([no, is_swapped]).astype(jnp.int32)
    return jnp.arange(is_swapped.size + 1) + step_up - step_down


def swap(key: Key, probabilities: Array, parity: Array) -> Array:
    """(R,) int: the order after swaps of the pairs whose index has this parity."""
    uniforms = jax.random.uniform(key, probabilities.shape, probabilities.dtype)
    proposed = jnp.arange(probabilities.size) % 2 == parity
    return swapped_order(proposed & (uniforms < probabilities))


def _init(settings: _TemperingSettings, sampler: Algorithm, key: Key, data: PyTree) -> Replicas:
    num_replicas = settings.num_replicas
    keys = jax.random.split(key, num_replicas)
    dtype = jnp.result_type(float)
    gap = -np.log(_FIRST_LOWEST_POWER) / (num_replicas - 1)
    return Replicas(
        states=jax.vmap(sampler.init, in_axes=(0, None))(keys, data),
        log_gaps=jnp.full(num_replicas - 1, np.log(gap), dtype),
        last_end=jnp.zeros(num_replicas, jnp.int8),
        num_steps=jnp.zeros((), jnp.int32),
        num_kept_steps=jnp.zeros((), jnp.int32),
        acceptance=jnp.zeros(num_replicas - 1, dtype),
        round_trips=jnp.zeros((), jnp.int32),
    )


def _step(
    settings: _TemperingSettings,
    sampler: Algorithm,
    model: AnnealedModel,
    key: Key,
    replicas: Replicas,
    data: PyTree,
    progress: Array,
) -> tuple[Replicas, Info]:
    """Swaps first: what a state has drawn given its power is then drawn anew before it is read.

    The replica at power 1 moves by the model's own sampler, with all of its options.
    """
    powers = powers_of(replicas.log_gaps)
    probabilities = swap_probabilities(model, replicas.states, data, powers)
    order = swap(jax.random.fold_in(key, _SWAP_FOLD), probabilities, replicas.num_steps % 2)
    states = jax.tree.map(lambda leaf: leaf[order], replicas.states)
    keys = particle_keys(key, powers.size)
    first = jax.tree.map(lambda leaf: leaf[0], states)
    rest = jax.tree.map(lambda leaf: leaf[1:], states)
    if model.refresh is not None:
        first = model.refresh(jax.random.fold_in(key, _REFRESH_FOLD), first, data, powers[0])
    first, first_info = sampler.step(keys[0], first, data, progress)
    if settings.side_by_side:
        move = jax.vmap(model.step, in_axes=(0, 0, None, 0))
        rest, info = move(keys[1:], rest, data, powers[1:])
    else:
        rest, info = jax.lax.map(
            lambda each: model.step(each[0], each[1], data, each[2]), (keys[1:], rest, powers[1:])
        )
    states = jax.tree.map(lambda leaf, others: jnp.concatenate([leaf[None], others]), first, rest)
    is_warmup = progress < 1
    replicas = _counted(replicas, order, probabilities, is_warmup)._replace(
        states=states,
        log_gaps=jnp.where(
            is_warmup,
            adapted(replicas.log_gaps, probabilities, replicas.num_steps, progress),
            replicas.log_gaps,
        ),
    )
    return replicas, Info(merge_overflow(first_info.overflow, in_any_particle(info.overflow)))


def adapted(log_gaps: Array, probabilities: Array, num_steps: Array, progress: Array) -> Array:
    """The log gaps, (R - 1,), after a step with these probabilities of swaps; of the warm-up.

    Replicas start alike, and their swaps say little then: so the gain falls no faster than what is
    left of the warm-up. Where the lowest power would fall below `LOWEST_POWER`, all gaps shrink
    alike: the pairs then end with equal probabilities that are above a half.
    """
    dtype = log_gaps.dtype
    falling = (num_steps.astype(dtype) + 1) ** -_GAIN_EXPONENT
    gain = jnp.maximum(falling, _LEAST_GAIN * (1 - jnp.asarray(progress, dtype)))
    moved = log_gaps + gain * (probabilities.astype(dtype) - _ACCEPTANCE)
    most = -np.log(LOWEST_POWER)
    return moved - jnp.log(jnp.maximum(jnp.sum(jnp.exp(moved)) / most, 1))


def _counted(replicas: Replicas, order: Array, probabilities: Array, is_warmup: Array) -> Replicas:
    """Acceptance and round trips with those of one more step; from nothing in the warm-up."""
    last_end = replicas.last_end[order]
    has_returned = ~is_warmup & (last_end[0] == 2)
    last_end = last_end.at[0].set(1)
    last_end = last_end.at[-1].set(jnp.where(last_end[-1] == 1, 2, last_end[-1]))
    count = replicas.num_kept_steps + ~is_warmup
    change = (probabilities.astype(replicas.acceptance.dtype) - replicas.acceptance) / (
        jnp.maximum(count, 1)
    )
    return replicas._replace(
        last_end=last_end,
        num_steps=replicas.num_steps + 1,
        num_kept_steps=count,
        acceptance=replicas.acceptance + jnp.where(is_warmup, 0, change),
        round_trips=replicas.round_trips + has_returned,
    )


def _at_power_one(read: Partial, key: Key, replicas: Replicas, data: PyTree) -> Draw:
    """Arrays of a draw, of the replica at power 1."""
    return read(key, jax.tree.map(lambda leaf: leaf[0], replicas.states), data)


def _grow(sampler: Algorithm, replicas: Replicas, sizes: dict[str, int]) -> Replicas:
    assert sampler.grow is not None
    grow = sampler.grow
    return replicas._replace(states=jax.vmap(lambda state: grow(state, sizes))(replicas.states))


def _capacity(sampler: Algorithm, replicas: Replicas) -> dict[str, int]:
    assert sampler.capacity is not None
    return sampler.capacity(shape_of_one(replicas.states))
