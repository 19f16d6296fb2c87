"""A cloud of weighted particles: weights, which survive, and the estimate of the evidence.

Of a particle nothing is asked but that it is a pytree. The evidence estimate is unbiased (its log
is not) with every scheme and trigger here. Open `Cloud` and `weigh` first. `trace_paths` follows
paths back through their ancestors, on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp

from jaxmf._kernels import compensated
from jaxmf.samplers.resampling import (
    ResampleFn,
    effective_sample_size,
    log_mean_weight,
    optimal,
    systematic,
)
from jaxmf.types import Array, PyTree

TriggerFn = Callable[[Array], Array]


class Cloud(NamedTuple):
    """The state of a filter: P weighted particles."""

    particles: PyTree  # pytree with leading axis P
    log_weights: Array  # (P,) float, scaled to a mean weight of one
    log_evidence: Array  # () float, log of the estimate of p(rows so far)
    log_evidence_excess: Array  # () float, how far rounding has put it above the sum of increments
    ancestor: Array  # (P,) int32, each particle's parent in the step before
    eve: Array  # (P,) int32, each particle's ancestor at the start
    num_resampled: Array  # () int32, how often the cloud was resampled
    row: Array  # () int32, rows taken in
    num_tempered: Array  # () int32, tempering steps done
    effective_size: Array  # () float, before the last choice; what optimal resampling left


def shape_of_one(particles: PyTree) -> PyTree:
    """Shapes and dtypes of one of several particles, whose leading axis these are."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), particles)


def one_of_identical(particles: PyTree, log_weights: Array) -> Array:
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


def weigh(
    cloud: Cloud,
    key: Array,
    choices: PyTree,
    log_weights: Array,
    *,
    resample_fn: ResampleFn,
    trigger_fn: TriggerFn,
) -> tuple[Cloud, PyTree]:
    """Weight the children, add to the evidence, and choose which survive.

    Args:
        cloud: before the row.
        choices: pytree with leading axes (P, B), or None.
        log_weights: (P, B) float, log of target over proposal.
        resample_fn: scheme of `jaxmf.samplers.resampling`.
        trigger_fn: log weights (P,) -> () bool, whether to choose where each has one child.
    Returns:
        The cloud of the chosen ones' parents, with their new weights, and the chosen children
        with leading axis P.
    """
    num_particles, num_children = log_weights.shape
    candidates = (cloud.log_weights[:, None] + log_weights).reshape(-1)
    before = logsumexp(cloud.log_weights)
    # with no weight left before the row: minus infinity again, and not NaN
    increment = logsumexp(candidates) - jnp.where(jnp.isfinite(before), before, 0.0)
    evidence = compensated.Sum(cloud.log_evidence, cloud.log_evidence_excess)
    evidence = compensated.add(evidence, increment)
    cloud = cloud._replace(
        effective_size=effective_sample_size(
            logsumexp(candidates.reshape(log_weights.shape), axis=1)
        ),
        log_evidence=evidence.total,
        # minus infinity once all weights are zero, and not NaN one row later
        log_evidence_excess=jnp.where(jnp.isfinite(evidence.total), evidence.excess, 0.0),
        ancestor=jnp.arange(num_particles, dtype=jnp.int32),
    )
    if num_children > 1:
        chosen, new_weights = resample_fn(key, candidates, num_particles)
        cloud = _descend(cloud, chosen // num_children)
        if resample_fn is optimal:  # which does not make them even: averages use these
            cloud = cloud._replace(effective_size=effective_sample_size(new_weights))
        choices = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[chosen], choices)
        return cloud._replace(log_weights=_scaled(new_weights)), choices

    scheme = _scheme_of_single_children(resample_fn, is_row=choices is not None)

    def resample(carry: tuple[Cloud, PyTree, Array]) -> tuple[Cloud, PyTree, Array]:
        cloud, choices, log_weights = carry
        ancestor, log_weights = scheme(key, log_weights, num_particles)
        choices = jax.tree.map(lambda leaf: leaf[ancestor], choices)
        return _descend(cloud, ancestor), choices, log_weights

    choices = jax.tree.map(lambda leaf: leaf[:, 0], choices)
    # With all weights zero there is nothing to choose: the evidence says so.
    is_due = trigger_fn(candidates) & (jnp.max(candidates) > -jnp.inf)
    cloud, choices, new_weights = when(is_due, resample, (cloud, choices, candidates))
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


def when(predicate: Array, function: Callable[[PyTree], PyTree], operand: PyTree) -> PyTree:
    """Return ``function(operand)`` where the predicate holds, else ``operand``.

    A loop of at most one turn rather than a cond: under vmap a cond becomes a select, which does
    the work always, while a loop still does it only when some member of the batch needs it.
    """

    def body(carry: tuple[Array, PyTree]) -> tuple[Array, PyTree]:
        _, operand = carry
        return jnp.zeros((), bool), function(operand)

    return lax.while_loop(lambda carry: carry[0], body, (predicate, operand))[1]


def _scaled(log_weights: Array) -> Array:
    """Scale to a mean weight of one, so that nothing drifts in long passes."""
    log_mean = log_mean_weight(log_weights)
    return log_weights - jnp.where(jnp.isfinite(log_mean), log_mean, 0.0)


def log_evidence_variance(cloud: Cloud) -> Array:
    """Estimate the variance of one filter's log evidence from who descends from whom.

    The relative variance of the evidence (to first order the variance of its log) is estimated by
    ``1 - (P/(P-1))^(r+1) (1 - sum_e W_e^2)`` with W_e the share of weight that descends from
    particle e of the start and r the number of times the cloud was resampled. The estimate is
    unbiased up to the square of the evidence for multinomial resampling. For the others it is an
    approximation, which with few particles can be far too small: several runs show their spread
    beside it. When all descend from one particle nothing is known: infinity.

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
    different_probability = 1.0 - jnp.sum(families**2)
    num_levels = (cloud.num_resampled + 1).astype(weights.dtype)
    factor = jnp.exp(-num_levels * jnp.log1p(-1.0 / num_particles))
    one_family = jnp.sum(families > 0) == 1
    return jnp.where(one_family, jnp.inf, jnp.maximum(1.0 - factor * different_probability, 0.0))


def combine_log_evidence(log_evidences: np.ndarray) -> tuple[float, float]:
    """Combine the log evidences of independent filters.

    Args: log_evidences (C,) float, one of each run.
    Returns the log of the mean evidence, whose mean is unbiased, and the relative variance of that
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


def trace_paths(
    kept: Mapping[str, np.ndarray], ancestors: np.ndarray, *, is_row: np.ndarray | None = None
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """History of the particles that are alive in the end, oldest row first.

    Args:
        kept: arrays (T, P, ...), what each particle keeps of each step.
        ancestors: (T, P) int, each particle's parent in the step before.
        is_row: (T,) bool, False where a step took in no row (tempering); None for all rows.
    Returns:
        Arrays (P, rows, ...) by name, and (P,) int, where each particle stood before the first
        step.
    Example:
        >>> kept = {"z": np.array([[1, 2], [3, 4]])}
        >>> paths, first = trace_paths(kept, np.array([[0, 1], [1, 1]]))
        >>> paths["z"].tolist(), first.tolist()
        ([[2, 3], [2, 4]], [1, 1])
    """
    indices = np.empty(ancestors.shape, np.int64)
    here = np.arange(ancestors.shape[1])
    for step in range(len(ancestors) - 1, -1, -1):
        indices[step] = here
        here = ancestors[step][here]
    steps = np.arange(len(ancestors)) if is_row is None else np.flatnonzero(is_row)
    where = steps[:, None], indices[steps]
    return {name: np.swapaxes(values[where], 0, 1) for name, values in kept.items()}, here


def particle_keys(key: Array, num_particles: int) -> Array:
    """A key for each particle, which more particles leave as it is."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(num_particles, dtype=jnp.uint32))


def in_any_particle(overflow: dict[str, Array]) -> dict[str, Array]:
    """The overflow of the cloud, from those of its particles: axis name -> (P,) bool."""
    return {axis: jnp.any(flags) for axis, flags in overflow.items()}
