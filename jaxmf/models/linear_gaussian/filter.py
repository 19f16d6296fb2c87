"""The particle filter of the linear-Gaussian Indian buffet process (Algorithms 1 and 2).

A particle is one Z, known through (M, mu) and the counts of its features, so that a row costs
O(K^2 + K D) whatever came before. Where hyperparameters have priors, or the cloud is tempered, it
also has Z'Z, Z'X and tr X'X; where earlier rows are rejuvenated, the whole Z and, with missing
cells, its own X. Weights are of the observed cells alone; the missing ones are drawn afterwards.

Open `filter_of_rows` first, then `propose` and `extend`.

Source: Wood & Griffiths (2006), section 4.1, with row-wise statistics in place of eq 7.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from jaxmf import slots
from jaxmf._kernels.linalg import after
from jaxmf.arguments import check_count, check_number, check_word
from jaxmf.data import Dense
from jaxmf.likelihoods import gaussian
from jaxmf.likelihoods.spectrum import marginal_change
from jaxmf.models.linear_gaussian.linear_gaussian_spec import LinearGaussianSpec
from jaxmf.models.linear_gaussian.particle import (
    GaussianFilterPlan,
    GaussianParticle,
    Statistics,
    add_row,
    check_num_slots,
    grow,
    init,
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
from jaxmf.samplers.collapsed_sweep import collapsed_sweep
from jaxmf.samplers.feature_particles import carrying_z
from jaxmf.samplers.hyper import update_feature_prior
from jaxmf.samplers.smc import ParticleModel
from jaxmf.types import Array, Key, PyTree

PROPOSALS = ("prior", "exact")


def filter_of_rows(model: LinearGaussianSpec, plan: GaussianFilterPlan) -> ParticleModel:
    """Functions by which a particle of the filter takes in a row.

    Raises ValueError: an unknown proposal, options that do not go together, too many slots for the
    exact proposal.
    """
    _check_plan(plan, model)
    particle = ParticleModel(
        init=Partial(init, plan, model),
        propose=Partial(propose, plan, model),
        extend=Partial(extend, plan, model),
        rejuvenate=Partial(rejuvenate, model),
        temper=Partial(temper, plan) if plan.anneal_steps else None,
        grow=Partial(grow, plan, model),
    )
    return carrying_z(particle, rejuvenates=plan.rejuvenates)


def _check_plan(plan: GaussianFilterPlan, model: LinearGaussianSpec) -> None:
    check_word("proposal", plan.proposal, PROPOSALS)
    if plan.has_children and plan.proposal != "exact":
        raise ValueError(
            "resample_fn=optimal chooses among enumerated children: it needs proposal='exact'"
        )
    check_number("anneal_from", plan.anneal_from, above=0, most=1)
    check_count("anneal_steps", plan.anneal_steps, 0)
    if plan.anneal_from < 1 and plan.anneal_steps == 0:
        raise ValueError(
            "anneal_from is below 1, so the cloud must be brought back: set anneal_steps"
        )
    check_num_slots(plan, model, plan.num_slots)


def extend(
    plan: GaussianFilterPlan,
    model: LinearGaussianSpec,
    key: Key,
    particle: GaussianParticle,
    choice: PyTree,
    data: Dense,
    row: Array,
) -> tuple[GaussianParticle, dict[str, Array]]:
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
    particle = refresh(model, jax.random.fold_in(key, 2), particle, row + 1)
    return particle, {"features": claim.overflow}


def _fill_in(
    key: Key, particle: GaussianParticle, features: Array, num_new: Array, x: Array, observed: Array
) -> Array:
    """The row with its missing cells drawn given its features, Y summed out."""
    on = features.astype(x.dtype)
    scales = particle.scales
    inflation = on @ particle.posterior.spread @ on + num_new / scales.ratio
    deviation = scales.noise * jnp.sqrt(1 + inflation)
    drawn = on @ particle.posterior.mean + deviation * jax.random.normal(key, x.shape, x.dtype)
    return jnp.where(observed, x, drawn)


def refresh(
    model: LinearGaussianSpec,
    key: Key,
    particle: GaussianParticle,
    num_rows: Array,
) -> GaussianParticle:
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
    model: LinearGaussianSpec,
    key: Key,
    particle: GaussianParticle,
    data: Dense,
    row: Array,
) -> tuple[GaussianParticle, dict[str, Array]]:
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


def _without_gaps(model: LinearGaussianSpec, z: Array) -> Array:
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
    plan: GaussianFilterPlan, key: Key, particle: GaussianParticle, data: Dense, step: Array
) -> tuple[GaussianParticle, Array]:
    """Importance step: the feature scale goes a step up towards its full value."""
    del key
    dtype = particle.counts.dtype
    assert particle.share is not None
    left = jnp.maximum(1 - (step + 1).astype(dtype) / plan.anneal_steps, 0)
    # A cloud that took more rows is at full scale already.
    share = jnp.maximum(jnp.asarray(plan.anneal_from, dtype) ** left, particle.share)
    raised = particle._replace(share=share)
    spectrum = spectrum_of(particle, data.num_rows)
    before, now = particle.scales, raised.scales
    log_weight = marginal_change(spectrum, (before.noise, before.feature), (now.noise, now.feature))
    # one decomposition at a time: the spectrum's, then that of the new statistics
    raised = raised._replace(share=after(share, log_weight))
    return recomputed(raised, before.ratio), log_weight
