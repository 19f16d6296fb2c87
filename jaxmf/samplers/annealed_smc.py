"""Annealed sequential Monte Carlo from prior to posterior, for any model of one particle.

An `AnnealedModel` says how a state is drawn from the prior, how it moves with the likelihood raised
to a power, and what the likelihood at one power is over that at another. `annealed_smc` turns it
into an `Algorithm` whose step is one power: weigh the particles by the rise of the power, choose
one in `chain_length` of them, and keep *every* state of the chains that start there (waste-free).

With powers fixed before the run the estimate of the evidence is unbiased. `rising_powers` finds
them: it is the same algorithm with each power chosen by what the particles say, run once before.

Source: Dau and Chopin (2022), Waste-free sequential Monte Carlo, with their estimate of the
variance from a single run. Open `AnnealedModel` first, then `_step`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.tree_util import Partial

from jaxmf._kernels import compensated
from jaxmf.devices import default_platform
from jaxmf.engine.algorithm import Algorithm, Info, algorithm, merge_overflow, no_overflow
from jaxmf.samplers.cloud import in_any_particle, particle_keys, shape_of_one, when
from jaxmf.samplers.resampling import effective_sample_size, log_mean_weight, systematic
from jaxmf.types import STATIC, Array, PyTree

# The key of the choice of a generation; no chain has this index.
_CHOOSE = np.uint32(2**32 - 1)
MOST_POWERS = 1_000  # given ones are padded to this many, so that one program serves all
_LEAST_RISE = 1e-7  # of a power that is looked for
_NUM_HALVINGS = 40  # of the logarithm of a rise, which is then known to rounding


class AnnealedModel(NamedTuple):
    """Functions of one particle; every field is a `Partial`, made by `annealed_model`.

    ``init(key, data, sizes) -> (state, overflow)``: a state from the prior with axes of these
    sizes, axis name -> int, None for those to begin with; and the axes that were too small for it.
    More slots must leave the draws in the first ones as they are.
    ``step(key, state, data, power) -> (state, Info)``: leaves the prior times the likelihood to
    this power, () float above 0, invariant.
    ``measure(state, data) -> statistics``: all that `log_ratio` needs of a state.
    ``log_ratio(statistics, before, after) -> () float``: log of the likelihood to the power `after`
    over that to the power `before`, 0 <= before < after <= 1. Where the step has parameters summed
    out, so has this, and all normalising constants count.
    ``record(key, state, data) -> dict``, ``grow(state, sizes)``, ``capacity(state)``,
    ``limit(data)``: as in `Algorithm`.
    ``refresh(key, state, data, power) -> state``: where `log_ratio` has summed out what the state
    keeps (missing cells), a draw of that given the rest at this power; else None.
    """

    init: Partial
    step: Partial
    measure: Partial
    log_ratio: Partial
    record: Partial
    grow: Partial
    capacity: Partial
    limit: Partial
    refresh: Partial | None = None


class Generation(NamedTuple):
    """The particles at one power, weighted for the next."""

    particles: PyTree  # pytree with leading axis P, states of one chain side by side
    log_weights: Array  # (P,) float; zeros at the end
    log_evidence: compensated.Sum  # sum of the increments, () float
    power: Array  # () float, for which the particles are weighted
    num_done: Array  # () int32, generations so far
    # () float, estimate of the relative variance of the evidence from one run: sum over the powers
    # of that of the mean weight, which the spread of the chains tells
    variance: Array
    effective_share: Array  # () float, effective sample size over P at the last rise of the power
    # () float, chains of the last generation that ended where they did not start
    moved_share: Array
    is_done: Array  # () bool, whether the particles have been moved at power 1


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Options:
    """The options of `annealed_smc`; the numbers of particles are static."""

    num_particles: int = field(metadata=STATIC)
    chain_length: int = field(metadata=STATIC)
    effective_share: Array | float
    powers: Array

    @property
    def num_starts(self) -> int:
        """How many particles are chosen to start a chain."""
        return self.num_particles // self.chain_length


def annealed_model(**functions: Callable[..., PyTree]) -> AnnealedModel:
    """An `AnnealedModel` from plain functions or Partials, by its fields."""
    return AnnealedModel(
        **{
            name: function if isinstance(function, Partial) else Partial(function)
            for name, function in functions.items()
        }
    )


def annealed_smc(
    model: AnnealedModel,
    *,
    num_particles: int,
    chain_length: int,
    powers: np.ndarray | None = None,
    effective_share: float = 0.5,
) -> Algorithm:
    """Annealed, waste-free sequential Monte Carlo as an algorithm whose step is one power.

    Args:
        num_particles: P, a multiple of `chain_length`.
        chain_length: states kept of each chain, its start among them; at least 2.
        powers: (T,) float, rising, the last 1, T at most `MOST_POWERS`: then T + 1 steps end at the
            posterior. None to choose each so that the effective sample size is the share
            `effective_share` of P, at which the evidence has a bias of order 1 / P. Further steps
            do nothing. Either way the program is the same.
        effective_share: see `powers`.
    Returns:
        Algorithm with state `Generation`. Its draws are scalars: ``log_evidence``, ``power``,
        ``variance``, ``effective_share`` and ``moved_share``.
    """
    padded = np.full(MOST_POWERS, np.nan if powers is None else 1.0)
    if powers is not None:
        padded[: len(powers)] = powers
    share = jnp.asarray(effective_share, jnp.result_type(float))
    options = Options(num_particles, chain_length, share, jnp.asarray(padded, share.dtype))
    return algorithm(
        init=Partial(_init, options, model),
        step=Partial(_step, options, model),
        record=_record,
        grow=Partial(_grow, model),
        capacity=Partial(_capacity, model),
        limit=model.limit,
    )


def log_ratio_of_powers(log_likelihood: Array, before: Array, after: Array) -> Array:
    """`AnnealedModel.log_ratio` where nothing is summed out and the log likelihood is measured.

    Likelihoods of zero weigh nothing at every power above zero.
    """
    return (after - before) * log_likelihood


def rising_powers(powers: np.ndarray) -> np.ndarray:
    """The powers of an adaptive run, (T,) float up to the first that is 1.

    Args:
        powers: (S,) float, the power after each of its steps; the last must be 1.
    """
    return powers[: int(np.argmax(powers >= 1)) + 1]


def _init(options: Options, model: AnnealedModel, key: Array, data: PyTree) -> Generation:
    """Nothing drawn yet: the first step draws, as it can report that slots are too few."""
    one, _ = jax.eval_shape(lambda key: model.init(key, data, None), key)
    num_particles = options.num_particles
    zero = jnp.zeros((), jnp.result_type(float))
    return Generation(
        particles=jax.tree.map(lambda x: jnp.zeros((num_particles, *x.shape), x.dtype), one),
        log_weights=jnp.zeros(num_particles, zero.dtype),
        log_evidence=compensated.start(zero),
        power=zero,
        num_done=jnp.zeros((), jnp.int32),
        variance=zero,
        effective_share=zero + 1,
        moved_share=zero + 1,
        is_done=jnp.zeros((), bool),
    )


def _step(
    options: Options,
    model: AnnealedModel,
    key: Array,
    state: Generation,
    data: PyTree,
    progress: Array,
) -> tuple[Generation, Info]:
    """Particles at the present power, from the prior or by moves; then weights for the next."""
    del progress
    draw = partial(_draw_from_prior, options, model, key, data=data)
    move = partial(_choose_and_move, options, model, key, data=data)
    shapes = jax.eval_shape(move, state)[1]
    carry = state, no_overflow(shapes)
    is_first, is_last = state.num_done == 0, state.power >= 1

    def then(
        function: Callable[[Generation], tuple[Generation, dict[str, Array]]],
        carry: tuple[Generation, dict[str, Array]],
    ) -> tuple[Generation, dict[str, Array]]:
        new, overflow = function(carry[0])
        return new, merge_overflow(carry[1], overflow)

    carry = when(is_first, partial(then, draw), carry)
    carry = when(~is_first & ~state.is_done, partial(then, move), carry)
    state, overflow = carry
    state = when(~is_last, lambda state: _weigh(options, model, state, data), state)
    num_done = state.num_done + jnp.where(state.is_done, 0, 1)
    return state._replace(num_done=num_done, is_done=is_last), Info(overflow=overflow)


def _draw_from_prior(
    options: Options, model: AnnealedModel, key: Array, state: Generation, *, data: PyTree
) -> tuple[Generation, dict[str, Array]]:
    sizes = _capacity(model, state)
    keys = particle_keys(key, options.num_particles)
    particles, overflow = jax.vmap(lambda key: model.init(key, data, sizes))(keys)
    return state._replace(particles=particles), in_any_particle(overflow)


def _choose_and_move(
    options: Options, model: AnnealedModel, key: Array, state: Generation, *, data: PyTree
) -> tuple[Generation, dict[str, Array]]:
    """Chains of moves at the present power, from particles chosen by their weights."""
    chosen, _ = systematic(jax.random.fold_in(key, _CHOOSE), state.log_weights, options.num_starts)
    starts = jax.tree.map(lambda leaf: leaf[chosen], state.particles)
    keys = particle_keys(key, options.num_starts)

    def step(key: Array, particle: PyTree) -> tuple[PyTree, dict[str, Array]]:
        particle, info = model.step(key, particle, data, state.power)
        return particle, info.overflow

    def step_all(keys: Array, particles: PyTree) -> tuple[PyTree, dict[str, Array]]:
        # In `vmap` a loop over features or groups runs for every particle as long as for the one
        # that has most, which among draws from the prior is ten times the mean.
        if default_platform() == "cpu" and _capacity(model, state):
            return lax.map(lambda one: step(*one), (keys, particles))
        return jax.vmap(step)(keys, particles)

    def move(
        carry: tuple[PyTree, dict[str, Array]], index: Array
    ) -> tuple[tuple[PyTree, dict[str, Array]], PyTree]:
        particles, overflow = carry
        step_keys = jax.vmap(jax.random.fold_in, (0, None))(keys, index)
        particles, needed = step_all(step_keys, particles)
        return (particles, merge_overflow(overflow, in_any_particle(needed))), particles

    shapes = jax.eval_shape(step_all, keys, starts)[1]
    start = starts, no_overflow(shapes)
    (ends, overflow), later = lax.scan(move, start, jnp.arange(options.chain_length - 1))

    def beside(first: Array, others: Array) -> Array:
        whole = jnp.concatenate([first[None], others]).swapaxes(0, 1)
        return whole.reshape(options.num_particles, *first.shape[1:])

    return state._replace(
        particles=jax.tree.map(beside, starts, later),
        log_weights=jnp.zeros_like(state.log_weights),
        moved_share=jnp.mean(_differ(starts, ends), dtype=state.power.dtype),
    ), overflow


def _weigh(options: Options, model: AnnealedModel, state: Generation, data: PyTree) -> Generation:
    """Weights for the next power; what they add to the evidence."""
    statistics = jax.vmap(lambda particle: model.measure(particle, data))(state.particles)

    def log_weights_at(power: Array) -> Array:
        each = jax.vmap(lambda one: model.log_ratio(one, state.power, power))(statistics)
        return each.astype(state.log_weights.dtype)

    power = when(
        jnp.isnan(options.powers[state.num_done]),
        lambda _: _next_power(log_weights_at, state.power, options.effective_share),
        options.powers[state.num_done],
    )
    log_weights = log_weights_at(power)
    return state._replace(
        log_weights=log_weights,
        log_evidence=compensated.add(state.log_evidence, log_mean_weight(log_weights)),
        power=power,
        variance=state.variance + _variance(options, log_weights),
        effective_share=effective_sample_size(log_weights) / options.num_particles,
    )


def _next_power(
    log_weights_at: Callable[[Array], Array], power: Array, share: Array | float
) -> Array:
    """The power at which the effective sample size is the share, by halving on a log scale."""
    highest = 1 - power

    def is_enough(rise: Array) -> Array:
        log_weights = log_weights_at(power + rise)
        return effective_sample_size(log_weights) >= share * log_weights.shape[0]

    def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) / 2
        enough = is_enough(jnp.exp(middle))
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    bounds = jnp.log(jnp.full_like(power, _LEAST_RISE)), jnp.log(highest)
    low, _ = lax.fori_loop(0, _NUM_HALVINGS, halve, bounds)
    # a power that rounding leaves where it was would never arrive
    rise = jnp.maximum(jnp.exp(low), 4 * jnp.finfo(power.dtype).eps * power)
    return jnp.where(is_enough(highest), 1, jnp.minimum(power + rise, 1)).astype(power.dtype)


def _variance(options: Options, log_weights: Array) -> Array:
    """Relative variance of the mean weight, from how the means of the chains differ."""
    relative = jnp.exp(log_weights - log_mean_weight(log_weights))
    means = jnp.mean(relative.reshape(options.num_starts, options.chain_length), axis=1)
    return jnp.var(means, ddof=1) / options.num_starts


def _record(key: Array, state: Generation, data: PyTree) -> dict[str, Array]:
    del key, data
    names = ("power", "variance", "effective_share", "moved_share")
    return {"log_evidence": state.log_evidence.total} | {n: getattr(state, n) for n in names}


def _grow(model: AnnealedModel, state: Generation, sizes: dict[str, int]) -> Generation:
    return state._replace(particles=jax.vmap(lambda one: model.grow(one, sizes))(state.particles))


def _capacity(model: AnnealedModel, state: Generation) -> dict[str, int]:
    return model.capacity(shape_of_one(state.particles))


def _differ(first: PyTree, second: PyTree) -> Array:
    """(M,) bool, whether members of two batches differ, in what is discrete if anything is.

    Continuous hyperparameters move in every step, and say nothing of features that do not.
    """
    pairs = list(zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True))
    discrete = [pair for pair in pairs if not jnp.issubdtype(pair[0].dtype, jnp.inexact)]
    differences = [jnp.any((a != b).reshape(a.shape[0], -1), axis=1) for a, b in discrete or pairs]
    return jnp.any(jnp.stack(differences), axis=0)
