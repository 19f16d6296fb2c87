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
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import logsumexp
from jax.tree_util import Partial

from jaxmf.engine.algorithm import Algorithm, Info, algorithm, merge_overflow
from jaxmf.samplers.resampling import (
    ResampleFn,
    effective_sample_size,
    log_mean_weight,
    optimal,
    systematic,
)

PyTree = Any
TriggerFn = Callable[[Array], Array]


class ParticleModel(NamedTuple):
    """What one particle does; every field is a `Partial`, made by `particle_model`.

    ``init(key, data) -> particle``: before the first row.
    ``propose(key, particle, data, row) -> (choices, log_weights, overflow)``: the children a
    particle may have with this row, with a leading axis B (one, but for proposals that enumerate),
    for each the log of target over proposal, (B,), and the axes on which a child that was weighed
    needs more slots than there are, chosen or not.
    ``extend(key, particle, choice, data, row) -> (particle, overflow)``: the particle with one
    chosen child, and the axes on which it needs more slots than there are.
    ``keep(particle) -> dict``: what the history keeps of the row just taken in; None where the
    particle carries its whole past.
    ``rejuvenate(key, particle, data, row) -> (particle, overflow)``: leaves the law of the
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


class Cloud(NamedTuple):
    """The state of a filter: P weighted particles.

    Attributes:
        particles: pytree with leading axis P.
        log_weights: (P,) float, scaled to a mean weight of one.
        log_evidence: () float, log of the estimate of p(rows so far).
        log_evidence_rest: () float, what rounding has cut off the sum in log_evidence.
        ancestor: (P,) int32, each particle's parent in the step before.
        eve: (P,) int32, each particle's ancestor at the start.
        num_resampled: () int32, how often the cloud was resampled.
        row: () int32, rows taken in.
        num_tempered: () int32, tempering steps done.
    """

    particles: PyTree
    log_weights: Array
    log_evidence: Array
    log_evidence_rest: Array
    ancestor: Array
    eve: Array
    num_resampled: Array
    row: Array
    num_tempered: Array


@dataclass(frozen=True)
class FilterOptions:
    """The structural options of `particle_filter`; all of them are static."""

    num_particles: int = field(metadata={"static": True})
    resample_fn: ResampleFn = field(metadata={"static": True})
    trigger_fn: TriggerFn = field(metadata={"static": True})
    rejuvenate_every: int = field(metadata={"static": True})
    batch_size: int | None = field(metadata={"static": True})


@dataclass(frozen=True)
class EffectiveSampleSizeBelow:
    """Trigger: resample when the effective sample size is below a share of the particles."""

    share: float

    def __call__(self, log_weights: Array) -> Array:
        return effective_sample_size(log_weights) < self.share * log_weights.shape[0]


jax.tree_util.register_dataclass(
    FilterOptions,
    data_fields=[],
    meta_fields=[
        "num_particles",
        "resample_fn",
        "trigger_fn",
        "rejuvenate_every",
        "batch_size",
    ],
)


def particle_model(**functions: Callable[..., Any] | None) -> ParticleModel:
    """Build a `ParticleModel` from plain functions, each wrapped in a `Partial`.

    Args:
        **functions: the fields of `ParticleModel`.

    Returns:
        The model, a pytree: bound arguments are leaves, functions are static.
    """
    return ParticleModel(
        **{
            name: function
            if function is None or isinstance(function, Partial)
            else Partial(function)
            for name, function in functions.items()
        }
    )


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
        rejuvenate_every: rejuvenate after every so many rows; 0 for never.
        batch_size: how many particles are worked on at once; bounds the memory of the
            temporaries. None for all.

    Returns:
        Algorithm with state `Cloud`. Its draws hold what the model keeps of each row for every
        particle, with ``ancestor``, where the model keeps a history; and the scalars
        ``log_evidence`` and ``effective_sample_size``.

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


def _check_options(model, num_particles, ess_threshold, rejuvenate_every, batch_size) -> None:
    if num_particles < 1:
        raise ValueError(f"num_particles must be at least 1, got {num_particles}")
    if not callable(ess_threshold) and not 0.0 <= ess_threshold <= 1.0:
        raise ValueError(
            f"ess_threshold must be a share between 0 (never resample) and 1 (always), "
            f"got {ess_threshold}"
        )
    if rejuvenate_every < 0:
        raise ValueError(f"rejuvenate_every must not be negative, got {rejuvenate_every}")
    if rejuvenate_every and model.rejuvenate is None:
        raise ValueError("rejuvenate_every is set, but this particle model has no rejuvenate move")
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be at least 1 or None, got {batch_size}")


# Purposes of a particle's key within one step.
_PROPOSE, _EXTEND, _REJUVENATE = 0, 1, 2
# The step's own key; no particle has this index.
_RESAMPLE = np.uint32(2**32 - 1)


def _init(options: FilterOptions, model: ParticleModel, key: Array, data: PyTree) -> Cloud:
    indices = jnp.arange(options.num_particles, dtype=jnp.int32)
    keys = _particle_keys(key, options.num_particles)
    particles = _map(lambda particle_key: model.init(particle_key, data), options, keys)
    zero = jnp.zeros((), jnp.result_type(float))
    log_weights = jnp.zeros(options.num_particles, zero.dtype)
    if options.resample_fn is optimal:
        log_weights = _one_of_identical(particles, log_weights)
    count = jnp.zeros((), jnp.int32)
    return Cloud(
        particles=particles,
        log_weights=log_weights,
        log_evidence=zero,
        log_evidence_rest=zero,
        ancestor=indices,
        eve=indices,
        num_resampled=count,
        row=count,
        num_tempered=count,
    )


def _one_of_identical(particles: PyTree, log_weights: Array) -> Array:
    """Give all weight to the first particle when all are the same.

    Distinct children are what optimal resampling is about: those of identical parents would
    fill the cloud with copies.
    """
    same = jnp.ones((), bool)
    for leaf in jax.tree.leaves(particles):
        same &= jnp.all(leaf == leaf[:1])
    num_particles = log_weights.shape[0]
    alone = jnp.full_like(log_weights, -jnp.inf).at[0].set(np.log(num_particles))
    return jnp.where(same, alone, log_weights)


def _step(
    options: FilterOptions, model: ParticleModel, key: Array, cloud: Cloud, data, progress
) -> tuple[Cloud, Info]:
    """Take in the next row, or temper when there is none, and rejuvenate when that is due."""
    del progress
    keys = _particle_keys(key, options.num_particles)
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
    options, model, key, keys, cloud: Cloud, data
) -> tuple[Cloud, dict[str, Array]]:
    shapes = jax.eval_shape(lambda c: _take_row(options, model, key, keys, c, data)[1], cloud)
    none_needed = {axis: jnp.zeros((), bool) for axis in shapes}
    is_row = cloud.row < data.num_rows

    def take_row(carry):
        return _take_row(options, model, key, keys, carry[0], data)

    def temper(carry):
        return _temper(options, model, key, keys, carry[0], data), carry[1]

    carry = _when(is_row, take_row, (cloud, none_needed))
    return _when(~is_row, temper, carry)


def _take_row(options, model, key, keys, cloud: Cloud, data) -> tuple[Cloud, dict[str, Array]]:
    """Take in the next row: propose, weight, resample, extend."""
    row = cloud.row

    def propose(particle_key, particle):
        return model.propose(jax.random.fold_in(particle_key, _PROPOSE), particle, data, row)

    choices, log_weights, unweighable = _map(propose, options, keys, cloud.particles)
    cloud, choices = _weigh(options, key, cloud, choices, log_weights)

    def extend(particle_key, particle, choice):
        key = jax.random.fold_in(particle_key, _EXTEND)
        return model.extend(key, particle, choice, data, row)

    particles, overflow = _map(extend, options, keys, cloud.particles, choices)
    needed = merge_overflow(_of_any(unweighable), _of_any(overflow))
    return cloud._replace(particles=particles, row=row + 1), needed


def _temper(options, model, key, keys, cloud: Cloud, data) -> Cloud:
    """Go one importance step towards the target: move the temperature, weight, resample."""

    def temper(particle_key, particle):
        key = jax.random.fold_in(particle_key, _PROPOSE)
        return model.temper(key, particle, data, cloud.num_tempered)

    particles, log_weights = _map(temper, options, keys, cloud.particles)
    cloud = cloud._replace(particles=particles, num_tempered=cloud.num_tempered + 1)
    return _weigh(options, key, cloud, None, log_weights[:, None])[0]


def _weigh(options, key, cloud: Cloud, choices, log_weights: Array) -> tuple[Cloud, PyTree]:
    """Weight the children, add to the evidence, and choose who goes on.

    Args:
        choices: pytree with leading axes (P, B), or None.
        log_weights: (P, B) float, log of target over proposal.

    Returns:
        The cloud of the chosen ones' parents, with their new weights, and the chosen children
        with leading axis P.
    """
    num_particles, num_children = log_weights.shape
    candidates = (cloud.log_weights[:, None] + log_weights).reshape(-1)
    before = logsumexp(cloud.log_weights)
    increment = logsumexp(candidates) - jnp.where(jnp.isfinite(before), before, 0.0)
    total, rest = _compensated(cloud.log_evidence, cloud.log_evidence_rest, increment)
    cloud = cloud._replace(
        log_evidence=total,
        log_evidence_rest=rest,
        ancestor=jnp.arange(num_particles, dtype=jnp.int32),
    )
    resample_key = jax.random.fold_in(key, _RESAMPLE)
    if num_children > 1:
        chosen, new_weights = options.resample_fn(resample_key, candidates, num_particles)
        cloud = _descend(cloud, chosen // num_children)
        choices = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[chosen], choices)
        return cloud._replace(log_weights=_scaled(new_weights)), choices

    resample_fn = _scheme_of_single_children(options.resample_fn, is_row=choices is not None)

    def resample(carry):
        cloud, choices, log_weights = carry
        ancestor, log_weights = resample_fn(resample_key, log_weights, num_particles)
        choices = jax.tree.map(lambda leaf: leaf[ancestor], choices)
        return _descend(cloud, ancestor), choices, log_weights

    choices = jax.tree.map(lambda leaf: leaf[:, 0], choices)
    # With all weights zero there is nothing to choose: the evidence says so.
    is_due = options.trigger_fn(candidates) & (jnp.max(candidates) > -jnp.inf)
    cloud, choices, new_weights = _when(is_due, resample, (cloud, choices, candidates))
    return cloud._replace(log_weights=_scaled(new_weights)), choices


def _descend(cloud: Cloud, ancestor: Array) -> Cloud:
    """Replace each particle by the one it descends from."""
    return cloud._replace(
        particles=jax.tree.map(lambda leaf: leaf[ancestor], cloud.particles),
        ancestor=ancestor,
        eve=cloud.eve[ancestor],
        num_resampled=cloud.num_resampled + 1,
    )


def _scheme_of_single_children(resample_fn: ResampleFn, *, is_row: bool) -> ResampleFn:
    """The scheme for one child a particle: tempering steps have no children to enumerate."""
    if resample_fn is not optimal:
        return resample_fn
    if is_row:
        raise ValueError(
            "optimal resampling chooses among enumerated children, and this proposal makes one "
            "child a particle: take a proposal that enumerates, or another resampling scheme"
        )
    return systematic


def _rejuvenate(options, model, keys, cloud: Cloud, data, is_due, overflow):
    """Move every particle by a kernel that leaves its law invariant, when it is due."""
    row = cloud.row - 1

    def move(particle_key, particle):
        key = jax.random.fold_in(particle_key, _REJUVENATE)
        return model.rejuvenate(key, particle, data, row)

    def move_all(carry):
        particles, _ = carry
        particles, needed = _map(move, options, keys, particles)
        return particles, _of_any(needed)

    shapes = jax.eval_shape(lambda particles: move_all((particles, {}))[1], cloud.particles)
    none_needed = {axis: jnp.zeros((), bool) for axis in shapes}
    particles, needed = _when(is_due, move_all, (cloud.particles, none_needed))
    return cloud._replace(particles=particles), merge_overflow(overflow, needed)


def _record(model: ParticleModel, key: Array, cloud: Cloud, data: PyTree) -> dict[str, Array]:
    del key, data
    draw = {
        "log_evidence": cloud.log_evidence,
        "effective_sample_size": effective_sample_size(cloud.log_weights),
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
    if model.capacity is None:
        return {}
    one = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), cloud.particles
    )
    return model.capacity(one)


def _particle_keys(key: Array, num_particles: int) -> Array:
    return jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(num_particles, dtype=jnp.uint32))


def _map(function, options: FilterOptions, *arguments):
    """Apply a function of one particle to all, at most ``batch_size`` of them at once."""
    if options.batch_size is None or options.batch_size >= options.num_particles:
        return jax.vmap(function)(*arguments)
    return lax.map(lambda args: function(*args), arguments, batch_size=options.batch_size)


def _when(predicate: Array, function, operand):
    """Return ``function(operand)`` where the predicate holds, else ``operand``.

    A loop of at most one turn rather than a cond: under vmap a cond becomes a select, which does
    the work always, while a loop still does it only when some member of the batch needs it.
    """

    def body(carry):
        _, operand = carry
        return jnp.zeros((), bool), function(operand)

    return lax.while_loop(lambda carry: carry[0], body, (predicate, operand))[1]


def _scaled(log_weights: Array) -> Array:
    """Scale to a mean weight of one, so that nothing drifts in long passes."""
    log_mean = log_mean_weight(log_weights)
    return log_weights - jnp.where(jnp.isfinite(log_mean), log_mean, 0.0)


def _compensated(total: Array, rest: Array, increment: Array) -> tuple[Array, Array]:
    """Add to a running sum, carrying what rounding cuts off (Kahan): 1e5 rows in float32."""
    increment = increment + rest
    new_total = total + increment
    new_rest = increment - (new_total - total)
    return new_total, jnp.where(jnp.isfinite(new_total), new_rest, 0.0)


def _of_any(overflow: dict[str, Array]) -> dict[str, Array]:
    """The overflow of the cloud, from those of its particles: axis name -> (P,) bool."""
    return {axis: jnp.any(flags) for axis, flags in overflow.items()}


def log_evidence_variance(cloud: Cloud) -> Array:
    """Estimate the variance of one filter's log evidence from who descends from whom.

    The relative variance of the evidence (to first order the variance of its log) is estimated by
    ``1 - (P/(P-1))^(r+1) (1 - sum_e W_e^2)`` with W_e the share of weight that descends from
    particle e of the start and r the number of times the cloud was resampled. The estimate is
    unbiased up to the square of the evidence for multinomial resampling, and on the careful side
    for the others. When all descend from one particle nothing is known: infinity.

    Args:
        cloud: last state of a filter, without chain axis.

    Returns:
        () float.

    Reference: Lee and Whiteley (2018), Variance estimation in the particle filter.
    """
    num_particles = cloud.log_weights.shape[0]
    if num_particles == 1:
        return jnp.asarray(jnp.inf, cloud.log_weights.dtype)
    weights = jax.nn.softmax(cloud.log_weights)
    families = jnp.zeros_like(weights).at[cloud.eve].add(weights)
    apart = 1.0 - jnp.sum(families**2)
    num_levels = (cloud.num_resampled + 1).astype(weights.dtype)
    factor = jnp.exp(-num_levels * jnp.log1p(-1.0 / num_particles))
    one_family = jnp.sum(families > 0) == 1
    return jnp.where(one_family, jnp.inf, jnp.maximum(1.0 - factor * apart, 0.0))


def combine_log_evidence(log_evidences: np.ndarray) -> tuple[float, float]:
    """Combine the log evidences of independent filters.

    Args:
        log_evidences: (C,) float, one of each run.

    Returns:
        The log of the mean evidence, whose mean is unbiased, and the relative variance of that
        mean, from the variance between the runs; NaN for a single run.

    Example:
        >>> combine_log_evidence([0.0, 0.0])
        (0.0, 0.0)
    """
    values = np.asarray(log_evidences, np.float64)
    highest = values.max()
    if not np.isfinite(highest):
        return float(highest), float("nan")
    ratios = np.exp(values - highest)
    mean = ratios.mean()
    variance = ratios.var(ddof=1) / mean**2 / len(values) if len(values) > 1 else float("nan")
    return float(highest + np.log(mean)), float(variance)
