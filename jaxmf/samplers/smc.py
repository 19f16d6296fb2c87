"""Sequential Monte Carlo over the rows of the data, for any model of one particle.

A `ParticleModel` says what one particle does with one row; `particle_filter` turns it into an
`Algorithm` whose state is a `Cloud` of particles and whose step takes in the next row: propose,
weight, resample where the trigger says so, extend, rejuvenate. Steps after the last row temper
the cloud towards the target, where the model has such a step.

The evidence estimate is unbiased (its log is not) with every scheme and trigger here. Start with
`ParticleModel`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.tree_util import Partial

from jaxmf.arguments import check_count
from jaxmf.engine.algorithm import Algorithm, Info, algorithm, merge_overflow, no_overflow
from jaxmf.samplers.cloud import (
    Cloud,
    TriggerFn,
    in_any_particle,
    one_of_identical,
    particle_keys,
    shape_of_one,
    weigh,
    when,
)
from jaxmf.samplers.resampling import ResampleFn, effective_sample_size, optimal, systematic
from jaxmf.types import Array, Key, PyTree

_CloudAndNeeds = tuple[Cloud, dict[str, Array]]  # and on which axes particles need more slots


class ParticleModel(NamedTuple):
    """Functions of one particle; every field is a `Partial`.

    ``init(key, data) -> particle``: before the first row.
    ``propose(key, particle, data, row) -> (choices, log_weights, overflow)``: the children a
    particle may have with this row, with a leading axis B (one, but for proposals that enumerate),
    for each the log of target over proposal, (B,), and the axes on which a child that was weighed
    needs more slots than there are, chosen or not.
    ``extend(key, particle, choice, data, row) -> (particle, overflow)``: the particle with one
    chosen child, and the axes on which it needs more slots than there are.
    ``keep(particle) -> dict``: what the history keeps of the row just taken in; None where the
    particle carries its whole past.
    ``rejuvenate(key, particle, data, row) -> (particle, overflow)``: leaves the distribution of the
    particle given the rows up to and with this one invariant.
    ``temper(key, particle, data, step) -> (particle, log_weight)``: after the last row, an
    importance step towards the target; the particle carries its own temperature.
    ``grow(particle, sizes)``, ``capacity(particle)``: as in `Algorithm`.
    """

    init: Partial
    propose: Partial
    extend: Partial
    keep: Partial | None = None
    rejuvenate: Partial | None = None
    temper: Partial | None = None
    grow: Partial | None = None
    capacity: Partial | None = None


@jax.tree_util.register_static
@dataclass(frozen=True)
class FilterOptions:
    """The structural options of `particle_filter`; all of them are static."""

    num_particles: int
    resample_fn: ResampleFn
    trigger_fn: TriggerFn
    rejuvenate_every: int
    batch_size: int | None


@dataclass(frozen=True)
class EffectiveSampleSizeBelow:
    """Trigger: resample when the effective sample size is below a share of the particles."""

    share: float

    def __call__(self, log_weights: Array) -> Array:
        return effective_sample_size(log_weights) < self.share * log_weights.shape[0]


def particle_filter(
    model: ParticleModel,
    *,
    num_particles: int,
    resample_fn: ResampleFn = systematic,
    ess_threshold: float | TriggerFn = 0.5,
    rejuvenate_every: int = 0,
    batch_size: int | None = None,
) -> Algorithm:
    """Return the particle filter of a model as an algorithm whose step takes in one row.

    Args:
        model: what one particle does.
        num_particles: P.
        resample_fn: scheme of `jaxmf.samplers.resampling`.
        ess_threshold: resample when the effective sample size is below this share of P, or a
            function ``log_weights (P,) -> () bool``. A model that enumerates children is
            resampled at every row, whatever this says.
        rejuvenate_every: rejuvenate every `rejuvenate_every` rows; 0 for never.
        batch_size: how many particles are worked on at once; bounds the memory of the
            temporaries. None for all.
    Returns:
        Algorithm with state `Cloud`. Its draws hold what the model keeps of each row for every
        particle, with ``ancestor``, where the model keeps a history; and the scalars
        ``log_evidence`` and ``effective_sample_size``: of the weights with the row in them,
        enumerated children summed, before particles are chosen; of the weights that
        `optimal` leaves uneven, after it.
    Raises:
        ValueError: an option out of its range, or rejuvenation for a model that has none.
    """
    _check_options(model, num_particles, ess_threshold, rejuvenate_every, batch_size)
    trigger_fn = (
        ess_threshold if callable(ess_threshold) else EffectiveSampleSizeBelow(float(ess_threshold))
    )
    options = FilterOptions(num_particles, resample_fn, trigger_fn, rejuvenate_every, batch_size)
    return algorithm(
        init=Partial(_init, options, model),
        step=Partial(_step, options, model),
        record=Partial(_record, model),
        grow=Partial(_grow, model),
        capacity=Partial(_capacity, model),
    )


def _check_options(
    model: ParticleModel,
    num_particles: int,
    ess_threshold: float | TriggerFn,
    rejuvenate_every: int,
    batch_size: int | None,
) -> None:
    check_count("num_particles", num_particles)
    if not callable(ess_threshold) and not 0.0 <= ess_threshold <= 1.0:
        raise ValueError(
            f"ess_threshold must be a share between 0 (never resample) and 1 (always), "
            f"got {ess_threshold}"
        )
    if check_count("rejuvenate_every", rejuvenate_every, 0) and model.rejuvenate is None:
        raise ValueError("rejuvenate_every is set, but this particle model has no rejuvenate move")
    if batch_size is not None:
        check_count("batch_size", batch_size)


# Purposes of a particle's key within one step.
_PROPOSE, _EXTEND, _REJUVENATE = 0, 1, 2
# The key of the whole step; no particle has this index.
_RESAMPLE = np.uint32(2**32 - 1)


def _init(options: FilterOptions, model: ParticleModel, key: Array, data: PyTree) -> Cloud:
    indices = jnp.arange(options.num_particles, dtype=jnp.int32)
    keys = particle_keys(key, options.num_particles)
    particles = _map(lambda particle_key: model.init(particle_key, data), options, keys)
    zero = jnp.zeros((), jnp.result_type(float))
    log_weights = jnp.zeros(options.num_particles, zero.dtype)
    if options.resample_fn is optimal:
        log_weights = one_of_identical(particles, log_weights)
    count = jnp.zeros((), jnp.int32)
    return Cloud(
        particles=particles,
        log_weights=log_weights,
        log_evidence=zero,
        log_evidence_excess=zero,
        ancestor=indices,
        eve=indices,
        num_resampled=count,
        row=count,
        num_tempered=count,
        effective_size=jnp.full((), options.num_particles, zero.dtype),
    )


def _step(
    options: FilterOptions,
    model: ParticleModel,
    key: Array,
    cloud: Cloud,
    data: PyTree,
    progress: Array,
) -> tuple[Cloud, Info]:
    """Take in the next row, or temper when there is none, and rejuvenate when that is due."""
    del progress
    keys = particle_keys(key, options.num_particles)
    if model.temper is None:
        cloud, overflow = _take_row(options, model, key, keys, cloud, data)
        tempered = jnp.zeros((), bool)
    else:
        tempered = cloud.row >= data.num_rows
        cloud, overflow = _take_row_or_temper(options, model, key, keys, cloud, data)
    if options.rejuvenate_every:
        # Tempering steps are always followed by a move, rows only now and then.
        is_due = tempered | (cloud.row % options.rejuvenate_every == 0)
        cloud, overflow = _rejuvenate(options, model, keys, cloud, data, is_due, overflow)
    return cloud, Info(overflow=overflow)


def _take_row_or_temper(
    options: FilterOptions, model: ParticleModel, key: Key, keys: Array, cloud: Cloud, data: PyTree
) -> _CloudAndNeeds:
    shapes = jax.eval_shape(lambda c: _take_row(options, model, key, keys, c, data)[1], cloud)
    is_row = cloud.row < data.num_rows

    def take_row(carry: _CloudAndNeeds) -> _CloudAndNeeds:
        return _take_row(options, model, key, keys, carry[0], data)

    def temper(carry: _CloudAndNeeds) -> _CloudAndNeeds:
        return _temper(options, model, key, keys, carry[0], data), carry[1]

    carry = when(is_row, take_row, (cloud, no_overflow(shapes)))
    return when(~is_row, temper, carry)


def _take_row(
    options: FilterOptions, model: ParticleModel, key: Key, keys: Array, cloud: Cloud, data: PyTree
) -> _CloudAndNeeds:
    """Take in the next row: propose, weight, resample, extend."""
    row = cloud.row

    def propose(particle_key: Key, particle: PyTree) -> PyTree:
        return model.propose(jax.random.fold_in(particle_key, _PROPOSE), particle, data, row)

    choices, log_weights, unweighable = _map(propose, options, keys, cloud.particles)
    cloud, choices = _weigh(options, key, cloud, choices, log_weights)

    def extend(
        particle_key: Key, particle: PyTree, choice: PyTree
    ) -> tuple[PyTree, dict[str, Array]]:
        key = jax.random.fold_in(particle_key, _EXTEND)
        return model.extend(key, particle, choice, data, row)

    particles, overflow = _map(extend, options, keys, cloud.particles, choices)
    needed = merge_overflow(in_any_particle(unweighable), in_any_particle(overflow))
    return cloud._replace(particles=particles, row=row + 1), needed


def _temper(
    options: FilterOptions, model: ParticleModel, key: Key, keys: Array, cloud: Cloud, data: PyTree
) -> Cloud:
    """Go one importance step towards the target: move the temperature, weight, resample."""
    assert model.temper is not None
    change = model.temper

    def temper(particle_key: Key, particle: PyTree) -> tuple[PyTree, Array]:
        key = jax.random.fold_in(particle_key, _PROPOSE)
        return change(key, particle, data, cloud.num_tempered)

    particles, log_weights = _map(temper, options, keys, cloud.particles)
    cloud = cloud._replace(particles=particles, num_tempered=cloud.num_tempered + 1)
    return _weigh(options, key, cloud, None, log_weights[:, None])[0]


def _weigh(
    options: FilterOptions, key: Array, cloud: Cloud, choices: PyTree, log_weights: Array
) -> tuple[Cloud, PyTree]:
    return weigh(
        cloud,
        jax.random.fold_in(key, _RESAMPLE),
        choices,
        log_weights,
        resample_fn=options.resample_fn,
        trigger_fn=options.trigger_fn,
    )


def _rejuvenate(
    options: FilterOptions,
    model: ParticleModel,
    keys: Array,
    cloud: Cloud,
    data: PyTree,
    is_due: Array,
    overflow: dict[str, Array],
) -> _CloudAndNeeds:
    """Move every particle by a kernel that leaves its distribution invariant, when it is due."""
    row = cloud.row - 1
    assert model.rejuvenate is not None
    rejuvenate = model.rejuvenate

    def move(particle_key: Key, particle: PyTree) -> tuple[PyTree, dict[str, Array]]:
        key = jax.random.fold_in(particle_key, _REJUVENATE)
        return rejuvenate(key, particle, data, row)

    def move_all(carry: tuple[PyTree, object]) -> tuple[PyTree, dict[str, Array]]:
        particles, _ = carry
        particles, needed = _map(move, options, keys, particles)
        return particles, in_any_particle(needed)

    shapes = jax.eval_shape(lambda particles: move_all((particles, {}))[1], cloud.particles)
    particles, needed = when(is_due, move_all, (cloud.particles, no_overflow(shapes)))
    return cloud._replace(particles=particles), merge_overflow(overflow, needed)


def _record(model: ParticleModel, key: Array, cloud: Cloud, data: PyTree) -> dict[str, Array]:
    del key, data
    draw = {
        "log_evidence": cloud.log_evidence,
        "effective_sample_size": cloud.effective_size,
    }
    if model.keep is not None:
        draw["ancestor"] = cloud.ancestor
        draw.update(jax.vmap(model.keep)(cloud.particles))
    return draw


def _grow(model: ParticleModel, cloud: Cloud, sizes: dict[str, int]) -> Cloud:
    grow = model.grow
    if grow is None:
        return cloud
    particles = jax.vmap(lambda particle: grow(particle, sizes))(cloud.particles)
    return cloud._replace(particles=particles)


def _capacity(model: ParticleModel, cloud: Cloud) -> dict[str, int]:
    return {} if model.capacity is None else model.capacity(shape_of_one(cloud.particles))


def _map(function: Callable[..., PyTree], options: FilterOptions, *arguments: PyTree) -> PyTree:
    """Apply a function of one particle to all, at most ``batch_size`` of them at once."""
    if options.batch_size is None or options.batch_size >= options.num_particles:
        return jax.vmap(function)(*arguments)
    return lax.map(lambda args: function(*args), arguments, batch_size=options.batch_size)
