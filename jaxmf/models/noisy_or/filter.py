"""The particle filter of the noisy-OR Indian buffet process (Algorithm 3).

A particle is one Z and Y, known through Y and the counts of its causes. A row is weighted with the
new rows of Y summed out (equation 11, which the text's line 5 must mean), then these are drawn
jointly given the row. Weights are of the observed cells alone. Where hyperparameters have priors
they live in the particle and are refreshed after each row; where earlier rows are rejuvenated, the
particle carries its whole Z.

Open `NoisyOrParticle` and `filter_of_rows` first, then `propose` and `extend`.

Source: Wood & Griffiths (2006), section 5.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jax.tree_util import Partial

from jaxmf import slots
from jaxmf._kernels.special import poisson
from jaxmf.arguments import check_word
from jaxmf.data import Dense
from jaxmf.likelihoods import noisy_or
from jaxmf.likelihoods.noisy_or import NoisyOrCells, NoisyOrParameters, Tally
from jaxmf.models.noisy_or.noisy_or_spec import (
    HYPERPARAMETERS,
    NoisyOrSpec,
    NoisyOrState,
    parameters_of,
)
from jaxmf.models.noisy_or.updates import needs_tally, update_at_counts
from jaxmf.priors import hyper
from jaxmf.samplers import feature_particles
from jaxmf.samplers.feature_layout import RowPrior, num_features
from jaxmf.samplers.feature_particles import ParticleSetting, one_child
from jaxmf.samplers.feature_rows import draw_index
from jaxmf.samplers.noisy_or.new_causes import count_table, draw_new_causes, new_cause_log_weights
from jaxmf.samplers.noisy_or.sweep import noisy_or_sweep
from jaxmf.samplers.noisy_or.target import NoisyOrTarget
from jaxmf.samplers.smc import ParticleModel
from jaxmf.types import Array, Draw, Key, PyTree


class NoisyOrParticle(NamedTuple):
    """One Z and Y of the rows so far."""

    y: Array  # (K, D) bool
    counts: Array  # (K,) float, ones of each column of Z
    row: Array | None  # (K,) bool, the causes of the last row; None with `z`
    # of the cells so far, (K + 1,) each; None where efficacy and leak are fixed. A row's number of
    # active causes does not change when causes are added later.
    tally: Tally | None
    z: Array | None  # (N, K) bool, empty after the last row; None without rejuvenation
    # alpha, concentration, cause_probability, efficacy, leak: () float
    alpha: Array
    concentration: Array
    cause_probability: Array
    efficacy: Array
    leak: Array


@jax.tree_util.register_static
@dataclass(frozen=True)
class NoisyOrFilterPlan:
    """The structural options of the filter, all of them static."""

    num_slots: int
    proposal: str
    rejuvenates: bool


def init(plan: NoisyOrFilterPlan, model: NoisyOrSpec, key: Key, data: Dense) -> NoisyOrParticle:
    """A particle before the first row, its hyperparameters from their priors."""
    num_rows, num_columns = data.values.shape
    num_slots, dtype = plan.num_slots, data.values.dtype
    values = {
        name: hyper.sample_prior(jax.random.fold_in(key, index), getattr(model, name)).astype(dtype)
        for index, name in enumerate(HYPERPARAMETERS)
    }
    nothing = jnp.zeros((num_slots + 1,), dtype)
    particle = NoisyOrParticle(
        y=jnp.zeros((num_slots, num_columns), bool),
        tally=Tally(nothing, nothing) if needs_tally(model) else None,
        **feature_particles.no_rows(num_rows, num_slots, dtype, carries_z=plan.rejuvenates),
        **values,
    )
    if model.num_features is None:
        return particle
    # causes of the finite model are there before a row has them
    y_key = jax.random.fold_in(key, len(HYPERPARAMETERS))
    return particle._replace(
        y=jax.random.uniform(y_key, particle.y.shape, dtype) < particle.cause_probability
    )


def add_row(
    particle: NoisyOrParticle, z_row: Array, y: Array, cells: NoisyOrCells, row: Array
) -> NoisyOrParticle:
    """The particle after a row."""
    dtype = particle.counts.dtype
    tally = particle.tally
    if tally is not None:
        eta = noisy_or.num_active(z_row, y, dtype)
        more = noisy_or.tally_of(eta, cells, z_row.shape[0] + 1)
        tally = jax.tree.map(jnp.add, tally, more)
    return feature_particles.with_row(particle._replace(y=y, tally=tally), z_row, row)


def draw_of_particle(
    model: NoisyOrSpec, particle: NoisyOrParticle, path: dict[str, Array], data: Dense
) -> Draw:
    """The draw recorded from one particle, with all of Z.

    Args:
        path: what the history kept, "z" (N, K) bool; empty where the particle carries Z.
    """
    z = feature_particles.whole_z(particle, path)
    z = slots.pad_axis(z, 1, max(z.shape[1], particle.y.shape[0]))
    values = {name: getattr(particle, name) for name in HYPERPARAMETERS}
    return {
        "z": z,
        "y": particle.y,
        **values,
        "num_features": num_features(z),
        "log_joint": model.log_joint(NoisyOrState(z=z, y=particle.y, **values), data),
    }


def grow(particle: NoisyOrParticle, sizes: dict[str, int]) -> NoisyOrParticle:
    """The particle with more slots for causes, or room for more rows."""
    particle = feature_particles.grow(particle, sizes)
    if "features" in sizes:
        size = sizes["features"]
        particle = particle._replace(
            y=slots.pad_axis(particle.y, 0, size),
            tally=jax.tree.map(lambda leaf: slots.pad_axis(leaf, 0, size + 1), particle.tally),
        )
    return particle


PROPOSALS = ("prior", "informed")
# Share of the prior in the informed proposal of a bit: it bounds what a wrong guess costs.
_SHARE_OF_PRIOR = 0.05


def filter_of_rows(model: NoisyOrSpec, plan: NoisyOrFilterPlan) -> ParticleModel:
    """Functions by which a particle of the filter takes in a row.

    Raises ValueError: an unknown proposal.
    """
    check_word("proposal", plan.proposal, PROPOSALS)
    particle = ParticleModel(
        init=Partial(init, plan, model),
        propose=Partial(propose, plan, model),
        extend=Partial(extend, model),
        rejuvenate=Partial(rejuvenate, model),
        grow=Partial(grow),
    )
    return feature_particles.carrying_z(particle, rejuvenates=plan.rejuvenates)


def propose(
    plan: NoisyOrFilterPlan,
    model: NoisyOrSpec,
    key: Key,
    particle: NoisyOrParticle,
    data: Dense,
    row: Array,
) -> tuple[PyTree, Array, dict[str, Array]]:
    """The child of a particle with row `row`, its log weight, and whether its sum was cut off."""
    cells = noisy_or.cells_of(*data.row(row))
    conditional = _conditional(model, particle, row)
    propose_fn = propose_from_prior if plan.proposal == "prior" else propose_informed
    child, log_weight, cut_off = propose_fn(
        key, particle.y, cells, conditional, parameters_of(particle), particle.counts.dtype
    )
    return *one_child(child, log_weight), {"features": cut_off}


def propose_from_prior(
    key: Key,
    y: Array,
    cells: NoisyOrCells,
    conditional: RowPrior,
    parameters: NoisyOrParameters,
    dtype: jnp.dtype,
) -> tuple[ParticleSetting, Array, Array]:
    """Algorithm 1; the weight is the probability of the observed cells (eq 11)."""
    bits_key, count_key = jax.random.split(key)
    uniforms = jax.random.uniform(bits_key, conditional.movable.shape, dtype)
    bits = conditional.movable & (uniforms < jax.nn.sigmoid(conditional.log_odds))
    num_new = poisson(count_key, conditional.rate)
    eta = noisy_or.num_active(bits, y, dtype)
    log_weight = _log_probability(eta, cells, parameters, num_new.astype(dtype))
    return ParticleSetting(bits, num_new), log_weight, jnp.zeros((), bool)


def propose_informed(
    key: Key,
    y: Array,
    cells: NoisyOrCells,
    conditional: RowPrior,
    parameters: NoisyOrParameters,
    dtype: jnp.dtype,
) -> tuple[ParticleSetting, Array, Array]:
    """Bits one by one in a fresh random order, then the exact sum over the number of new causes.

    The weight is p(bits) sum_j p(j) P(x | bits, j) over the probability of having proposed the
    bits, in this order.
    """
    order_key, bits_key, count_key = (jax.random.fold_in(key, index) for index in range(3))
    num_slots = y.shape[0]
    order = slots.random_order(order_key, conditional.movable)
    uniforms = jax.random.uniform(bits_key, (num_slots,), dtype)
    prior = jnp.where(conditional.movable, jax.nn.sigmoid(conditional.log_odds), 0)
    # what each undecided bit adds to log P(x = 0), averaged over it; new causes likewise
    undecided = jnp.log1p(-parameters.efficacy * prior)
    zeros, y_float = cells.zeros.astype(dtype), y.astype(dtype)
    in_zeros = y_float @ zeros
    background = parameters.log_absent + conditional.rate * parameters.log_fail_unseen

    def visit(index: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        bits, log_off, log_ratio = carry
        k = order[index]
        # rounding must not carry the sum beyond what is left when every bit is decided
        log_off = jnp.minimum(log_off - y_float[k] * undecided[k], background)
        log_on = log_off + y_float[k] * parameters.log_fail
        gain = jnp.log(-jnp.expm1(log_on)) - jnp.log(-jnp.expm1(log_off))
        log_odds = jnp.sum(jnp.where(cells.ones, gain, 0)) + in_zeros[k] * parameters.log_fail
        guess = jax.nn.sigmoid(conditional.log_odds[k] + log_odds)
        chance = (1 - _SHARE_OF_PRIOR) * guess + _SHARE_OF_PRIOR * prior[k]
        on = uniforms[k] < chance
        ratio = _weight_of_choice(on, prior[k], chance)
        return bits.at[k].set(on), jnp.where(on, log_on, log_off), log_ratio + jnp.log(ratio)

    start = (jnp.zeros((num_slots,), bool), background + undecided @ y_float, jnp.zeros((), dtype))
    num_movable = jnp.sum(conditional.movable, dtype=jnp.int32)
    bits, _, log_ratio = jax.lax.fori_loop(0, num_movable, visit, start)
    eta = noisy_or.num_active(bits, y, dtype)
    log_weights, cut_off = new_cause_log_weights(
        noisy_or.tally_of(eta, cells, num_slots + 1),
        conditional.rate,
        count_table(num_slots, parameters),
    )
    num_new = draw_index(jax.random.uniform(count_key, (), dtype), log_weights)
    # the terms lack the normalising constant of the Poisson distribution
    log_weight = log_ratio + logsumexp(log_weights) - conditional.rate
    return ParticleSetting(bits, num_new), log_weight, cut_off


def _weight_of_choice(on: Array, prior: Array, chance: Array) -> Array:
    """Probability of a bit under the prior over that under the proposal."""
    return jnp.where(on, prior / chance, (1 - prior) / (1 - chance))


def extend(
    model: NoisyOrSpec,
    key: Key,
    particle: NoisyOrParticle,
    child: ParticleSetting,
    data: Dense,
    row: Array,
) -> tuple[NoisyOrParticle, dict[str, Array]]:
    """The particle with row `row` at its child, new rows of Y and hyperparameters drawn."""
    cells = noisy_or.cells_of(*data.row(row))
    conditional = _conditional(model, particle, row)
    claim = slots.claim(~conditional.free, child.num_new)
    dtype = particle.counts.dtype
    y = draw_new_causes(
        jax.random.fold_in(key, 0),
        particle.y.astype(dtype),
        claim.claimed,
        child.num_new,
        noisy_or.num_active(child.bits, particle.y, dtype),
        cells,
        parameters_of(particle),
    )
    particle = add_row(particle, child.bits | claim.claimed, y > 0.5, cells, row)
    particle = update_at_counts(
        model,
        jax.random.fold_in(key, 1),
        particle,
        counts=particle.counts,
        tally=particle.tally,
        num_rows=row + 1,
    )
    return particle, {"features": claim.overflow}


def rejuvenate(
    model: NoisyOrSpec, key: Key, particle: NoisyOrParticle, data: Dense, row: Array
) -> tuple[NoisyOrParticle, dict[str, Array]]:
    """Kernel: one Gibbs sweep over all rows so far and Y."""
    assert particle.z is not None
    prior, parameters = model.prior(particle), parameters_of(particle)
    target = NoisyOrTarget(data.values, data.observed, prior, parameters)
    z, y, overflow = noisy_or_sweep(key, particle.z, particle.y, target, num_rows=row + 1)
    tally = particle.tally
    if tally is not None:
        # rows that are still to come have no causes, but they do have data
        present = (jnp.arange(z.shape[0]) <= row)[:, None]
        seen = present if data.observed is None else data.observed & present
        seen = jnp.broadcast_to(seen, data.values.shape)
        tally = noisy_or.tally(z, y, data.values, seen)
    counts = jnp.sum(z, axis=0, dtype=particle.counts.dtype)
    particle = particle._replace(y=y, counts=counts, tally=tally, z=z)
    return particle, {"features": overflow}


def _conditional(model: NoisyOrSpec, particle: NoisyOrParticle, row: Array) -> RowPrior:
    """The prior of row `row` given the earlier ones; rows are counted from 1 in it."""
    return feature_particles.conditional_of(model.prior(particle), particle, row)


def _log_probability(
    eta: Array, cells: NoisyOrCells, parameters: NoisyOrParameters, unseen: Array
) -> Array:
    """log of equation 11 over the observed columns of a row."""
    ones = jnp.where(cells.ones, noisy_or.log_one(eta, parameters, unseen), 0)
    return jnp.sum(ones + jnp.where(cells.zeros, noisy_or.log_zero(eta, parameters, unseen), 0))
