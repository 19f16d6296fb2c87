"""The particle filter of the linear-Gaussian Indian buffet process (Algorithms 1 and 2).

A particle is one Z, known through (M, mu) and the counts of its features, so that a row costs
O(K^2 + K D) whatever came before. Where hyperparameters have priors, or the cloud is tempered, it
also has Z'Z, Z'X and tr X'X; where earlier rows are rejuvenated, the whole Z and, with missing
cells, its own X. Weights are of the observed cells alone; the missing ones are drawn afterwards.

Open `build_filter` first, then `propose` and `extend`.

Source: Wood & Griffiths (2006), section 4.1, with row-wise statistics in place of eq 7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from jaxmf import slots
from jaxmf.data import Dense
from jaxmf.engine import Algorithm
from jaxmf.likelihoods import gaussian
from jaxmf.models.linear_gaussian.particle import (
    Particle,
    Plan,
    Statistics,
    add_row,
    capacity_of,
    check_num_slots,
    grow,
    init,
    keep,
    recomputed,
    spectrum_of,
)
from jaxmf.models.linear_gaussian.proposals import (
    always_on_of,
    conditional_of,
    draw_child,
    draw_larger,
    propose,
)
from jaxmf.models.linear_gaussian.updates import update_scales
from jaxmf.priors import hyper
from jaxmf.samplers.cloud import TriggerFn
from jaxmf.samplers.collapsed_sweep import collapsed_sweep
from jaxmf.samplers.hyper import update_feature_prior
from jaxmf.samplers.resampling import ResampleFn, optimal, systematic
from jaxmf.samplers.smc import ParticleModel, particle_filter
from jaxmf.types import Array, Key

if TYPE_CHECKING:
    from jaxmf.models.linear_gaussian.model import LinearGaussianIBP

PROPOSALS = ("prior", "exact")


def build_filter(
    model: LinearGaussianIBP,
    *,
    num_particles: int = 1_000,
    proposal: str = "prior",
    resample_fn: ResampleFn = systematic,
    ess_threshold: float | TriggerFn = 0.5,
    rejuvenate_every: int = 0,
    anneal_from: float = 1.0,
    anneal_steps: int = 0,
    capacity: int | None = None,
    batch_size: int | None = None,
) -> Algorithm:
    """The particle filter of a `LinearGaussianIBP`; one step takes in one row.

    Args:
        model: the description.
        num_particles: P.
        proposal: "prior": features of a row from their prior given the earlier rows, as in the
            paper. "exact": from their conditional given the row as well, a sum over all 2^K
            settings and any number of new features; better weights, for few features.
        resample_fn: scheme of `jaxmf.samplers.resampling`. `optimal` needs the exact proposal: it
            chooses among all children of all particles.
        ess_threshold: resample when the effective sample size is below this share of P; 1 for
            every row, as Algorithm 2 does.
        rejuvenate_every: a Gibbs sweep over all rows so far after every so many rows, and after
            every tempering step; 0 for none.
        anneal_from: pass the rows with the feature scale multiplied by this; below 1 the features
            of the first rows stick less.
        anneal_steps: importance steps after the last row that bring the factor to 1,
            geometrically. As many further steps must be run.
        capacity: slots for features to begin with; they double when a particle needs more.
        batch_size: how many particles are worked on at once; None for all.

    Returns:
        Algorithm with the growing axis "features", and "rows" where particles carry the whole Z.

    Raises:
        ValueError: an unknown proposal, options that do not go together, too many slots for the
            exact proposal.
    """
    plan = Plan(
        num_slots=model.num_slots(_start_capacity(capacity, resample_fn)),
        proposal=proposal,
        has_children=resample_fn is optimal,
        rejuvenates=rejuvenate_every > 0,
        anneal_from=float(anneal_from),
        anneal_steps=int(anneal_steps),
    )
    _check_plan(plan, model)
    particle_model = ParticleModel(
        init=Partial(init, plan, model),
        propose=Partial(propose, plan, model),
        extend=Partial(extend, plan, model),
        keep=None if plan.rejuvenates else Partial(keep),
        rejuvenate=Partial(rejuvenate, plan, model) if plan.rejuvenates else None,
        temper=Partial(temper, plan) if plan.anneal_steps else None,
        grow=Partial(grow, plan, model),
        capacity=Partial(capacity_of),
    )
    return particle_filter(
        particle_model,
        num_particles=num_particles,
        resample_fn=resample_fn,
        ess_threshold=ess_threshold,
        rejuvenate_every=rejuvenate_every,
        batch_size=batch_size,
    )


def _start_capacity(capacity: int | None, resample_fn: ResampleFn) -> int:
    """Start small: the cost of a particle follows the number of slots."""
    if capacity is not None:
        return capacity
    return 4 if resample_fn is optimal else 8


def _check_plan(plan: Plan, model: LinearGaussianIBP) -> None:
    if plan.proposal not in PROPOSALS:
        raise ValueError(f"proposal must be one of {', '.join(PROPOSALS)}, got {plan.proposal!r}")
    if plan.has_children and plan.proposal != "exact":
        raise ValueError(
            "resample_fn=optimal chooses among enumerated children: it needs proposal='exact'"
        )
    if not 0 < plan.anneal_from <= 1:
        raise ValueError(f"anneal_from must be above 0 and at most 1, got {plan.anneal_from}")
    if plan.anneal_steps < 0:
        raise ValueError(f"anneal_steps must not be negative, got {plan.anneal_steps}")
    if plan.anneal_from < 1 and plan.anneal_steps == 0:
        raise ValueError(
            "anneal_from is below 1, so the cloud must be brought back: set anneal_steps"
        )
    check_num_slots(plan, model, plan.num_slots)


def extend(
    plan: Plan,
    model: LinearGaussianIBP,
    key: Key,
    particle: Particle,
    choice: Any,
    data: Dense,
    row: Array,
) -> tuple[Particle, dict[str, Array]]:
    """The particle with row `row` at a chosen child, missing cells and hyperparameters drawn."""
    x, observed = model.centred(data).row(row)
    conditional = conditional_of(model, particle, row)
    always_on = always_on_of(model, particle)
    child = choice
    if plan.proposal == "exact":
        draw = draw_larger if plan.has_children else draw_child
        child = draw(
            jax.random.fold_in(key, 0), model, particle, choice, conditional, (x, observed)
        )
    claim = slots.claim(~conditional.free, child.num_new)
    features = child.bits | always_on
    if observed is not None:
        x = _fill_in(jax.random.fold_in(key, 1), particle, features, child.num_new, x, observed)
    particle = add_row(particle, features | claim.claimed, x, row)
    particle = refresh(plan, model, jax.random.fold_in(key, 2), particle, row + 1)
    return particle, {"features": claim.overflow}


def _fill_in(
    key: Key, particle: Particle, features: Array, num_new: Array, x: Array, observed: Array
) -> Array:
    """The row with its missing cells drawn given its features, Y summed out."""
    on = features.astype(x.dtype)
    scales = particle.scales
    inflation = on @ particle.posterior.spread @ on + num_new / scales.ratio
    deviation = scales.noise * jnp.sqrt(1 + inflation)
    drawn = on @ particle.posterior.mean + deviation * jax.random.normal(key, x.shape, x.dtype)
    return jnp.where(observed, x, drawn)


def refresh(
    plan: Plan, model: LinearGaussianIBP, key: Key, particle: Particle, num_rows: Array
) -> Particle:
    """Kernel: the hyperparameters that have priors, given Z and X of the rows so far."""
    start = model.first_slot()
    alpha, concentration = update_feature_prior(
        jax.random.fold_in(key, 0),
        model.prior(particle),
        alpha_prior=model.alpha,
        concentration_prior=model.concentration,
        counts=particle.counts[start:],
        num_rows=num_rows,
    )
    particle = particle._replace(alpha=alpha, concentration=concentration)
    if hyper.is_fixed(model.noise_scale) and hyper.is_fixed(model.feature_scale):
        return particle
    noise, feature = update_scales(
        model,
        jax.random.fold_in(key, 1),
        spectrum_of(particle, num_rows),
        particle.noise_scale,
        particle.feature_scale,
        share=1.0 if particle.share is None else particle.share,
    )
    return recomputed(
        particle._replace(noise_scale=noise, feature_scale=feature), particle.scales.ratio
    )


def rejuvenate(
    plan: Plan, model: LinearGaussianIBP, key: Key, particle: Particle, data: Dense, row: Array
) -> tuple[Particle, dict[str, Array]]:
    """Kernel: one collapsed Gibbs sweep over all rows so far, missing cells along with it."""
    assert particle.z is not None
    data = model.centred(data)
    x = data.values if particle.x is None else particle.x
    z, x, overflow = collapsed_sweep(
        key,
        particle.z,
        x,
        data.observed,
        prior=model.prior(particle),
        scales=particle.scales,
        num_fixed=model.first_slot(),
        num_rows=row + 1,
    )
    z = _without_gaps(model, z)
    # Rows that are still to come have no features, but they do have data.
    present = (jnp.arange(x.shape[0]) <= row)[:, None]
    gram, cross = gaussian.gram_statistics(z, x)
    posterior = gaussian.row_posterior(gram, cross, particle.scales.ratio)
    statistics = particle.statistics
    if statistics is not None:
        penalised = gaussian.penalised_sums(
            z, jnp.where(present, x, 0), posterior.mean, particle.scales.ratio
        )
        statistics = Statistics(gram, cross, penalised)
    particle = particle._replace(
        posterior=posterior,
        counts=jnp.diagonal(gram),
        statistics=statistics,
        z=z,
        x=None if particle.x is None else x,
    )
    return particle, {"features": overflow}


def _without_gaps(model: LinearGaussianIBP, z: Array) -> Array:
    """Features moved to the first slots, so that enumeration goes over them alone.

    Their order is kept. Which slot a feature has does not matter to what follows: sweeps visit
    slots in an order of their own, and proposals are weighted.
    """
    if model.num_features is not None:
        return z
    used = jnp.any(z, axis=0)
    if model.bias:
        used = used.at[0].set(True)
    return z[:, jnp.argsort(~used, stable=True)]


def temper(
    plan: Plan, key: Key, particle: Particle, data: Dense, step: Array
) -> tuple[Particle, Array]:
    """Importance step: the feature scale goes a step up towards its full value."""
    del key
    dtype = particle.counts.dtype
    assert particle.share is not None
    left = jnp.maximum(1 - (step + 1).astype(dtype) / plan.anneal_steps, 0)
    # A cloud that took more rows is at full scale already.
    share = jnp.maximum(jnp.asarray(plan.anneal_from, dtype) ** left, particle.share)
    raised = particle._replace(share=share)
    spectrum = spectrum_of(particle, data.num_rows)
    before, after = particle.scales, raised.scales
    log_weight = gaussian.log_marginal_change(
        spectrum, (before.noise, before.feature), (after.noise, after.feature)
    )
    return recomputed(raised, before.ratio), log_weight
