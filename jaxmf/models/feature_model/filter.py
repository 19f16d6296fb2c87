"""The particle filter of a `FeatureModel` (Algorithms 1 and 2 with Y kept, section 3).

A particle is one Z and the rows of Y of its features. With row i: the bits of existing features and
the number of new ones are drawn from their prior given the earlier rows, the rows of Y of the new
ones from `feature_prior`; the weight is p(x_i | z_i, Y) over the observed cells. Nothing has to be
summed out, so any likelihood will do, at the price of weights that are less even than those of a
filter that sums Y out.

Slots without a feature hold one fixed draw of `feature_prior`: a value that the likelihood can
take in, the same at every capacity, and without influence.

Source: Wood & Griffiths (2006), section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from jaxmf import slots
from jaxmf._kernels.special import poisson
from jaxmf.data import Dense
from jaxmf.models.feature_model.feature_model_spec import FeatureModelSpec
from jaxmf.samplers import explicit_rows, feature_particles
from jaxmf.samplers.explicit_rows import ExplicitFeatures, where_slots
from jaxmf.samplers.feature_particles import conditional_of, no_rows, one_child, with_row
from jaxmf.samplers.smc import ParticleModel
from jaxmf.types import Array, Key, PyTree


class FeatureParticle(NamedTuple):
    """One Z of the rows so far, and its features."""

    y: Array  # (K, ...), rows of Y
    counts: Array  # (K,) float, ones of each column
    row: Array | None  # (K,) bool, the features of the last row; None with `z`
    z: Array | None  # (N, K) bool, empty after the last row; None without rejuvenation


class Choice(NamedTuple):
    """A child: the row's bits (K,) bool, and all rows of Y (K, ...)."""

    z: Array
    y: Array


@jax.tree_util.register_static
@dataclass(frozen=True)
class FeatureFilterPlan:
    """The structural options of the filter, all of them static."""

    num_slots: int
    rejuvenates: bool


def filter_of_rows(model: FeatureModelSpec, plan: FeatureFilterPlan) -> ParticleModel:
    """Functions by which a particle of the filter takes in a row."""
    particle = ParticleModel(
        init=Partial(init, plan, model),
        propose=Partial(propose, model),
        extend=Partial(extend),
        rejuvenate=Partial(rejuvenate, model),
        grow=Partial(grow, model),
    )
    return feature_particles.carrying_z(particle, rejuvenates=plan.rejuvenates)


def init(
    plan: FeatureFilterPlan, model: FeatureModelSpec, key: Key, data: Dense
) -> FeatureParticle:
    """A particle before the first row; a finite prior has its features from the start."""
    num_slots = plan.num_slots
    counts = jnp.zeros((num_slots,), jnp.result_type(float))
    drawn = model.draw_features(key, num_slots)
    there = model.exists(counts)
    rows = no_rows(data.num_rows, num_slots, counts.dtype, carries_z=plan.rejuvenates)
    return FeatureParticle(y=where_slots(there, drawn, model.filling(num_slots)), **rows)


def propose(
    model: FeatureModelSpec, key: Key, particle: FeatureParticle, data: Dense, row: Array
) -> tuple[PyTree, Array, dict[str, Array]]:
    """One child: Algorithm 1 for its bits, the prior for new rows of Y; the weight is eq 5."""
    num_slots = particle.counts.shape[0]
    dtype = particle.counts.dtype
    streams = [jax.random.fold_in(key, index) for index in range(3)]
    num_fixed = model.first_slot()
    conditional = conditional_of(model.prior, particle, row, num_fixed=num_fixed)
    uniforms = jax.random.uniform(streams[0], (num_slots,), dtype)
    bits = conditional.movable & (uniforms < jax.nn.sigmoid(conditional.log_odds))
    num_new = poisson(streams[1], conditional.rate)
    claim = slots.claim(~conditional.free, num_new)
    y = where_slots(claim.claimed, model.draw_features(streams[2], num_slots), particle.y)
    z = bits | claim.claimed | (jnp.arange(num_slots) < num_fixed)
    x, observed = data.row(row)
    log_weight = model.row_log_likelihood(x, observed, z, y)
    # a row with fewer new features than were drawn has the wrong weight, resampled or not
    return *one_child(Choice(z=z, y=y), log_weight), {"features": claim.overflow}


def extend(
    key: Key, particle: FeatureParticle, choice: Choice, data: Dense, row: Array
) -> tuple[FeatureParticle, dict[str, Array]]:
    """The particle with row `row` as chosen."""
    del key, data
    return with_row(particle._replace(y=choice.y), choice.z, row), {}


def rejuvenate(
    model: FeatureModelSpec, key: Key, particle: FeatureParticle, data: Dense, row: Array
) -> tuple[FeatureParticle, dict[str, Array]]:
    """Kernel: all rows so far and Y, one after another."""
    assert particle.z is not None
    z, y, overflow = update_particle(
        key, model.without_constants(), particle.z, particle.y, data, row + 1
    )
    counts = jnp.sum(z, axis=0, dtype=particle.counts.dtype)
    return particle._replace(z=z, y=model.filled(z, y), counts=counts), {"features": overflow}


def grow(
    model: FeatureModelSpec, particle: FeatureParticle, sizes: dict[str, int]
) -> FeatureParticle:
    """The particle with more slots for features, or room for more rows."""
    if "features" in sizes:
        more = model.filling(sizes["features"] - particle.counts.shape[0])
        particle = particle._replace(y=jnp.concatenate([particle.y, more]))
    return feature_particles.grow(particle, sizes)


def update_particle(
    key: Key, model: ExplicitFeatures, z: Array, y: Array, data: Dense, num_rows: Array
) -> tuple[Array, Array, Array]:
    """One pass over the first `num_rows` rows, then over the features.

    Args: z (N, K) bool, empty after the first `num_rows` rows; y (K, ...).
    Returns z, y, and () bool: whether more slots were needed.
    """
    row_key, feature_key = (jax.random.fold_in(key, index) for index in range(2))
    z, y, overflow = explicit_rows.sweep_rows(
        row_key, model, z, y, data, update_row=explicit_rows.update_bits_and_new, num_rows=num_rows
    )
    y = explicit_rows.replace_features(feature_key, model, z, y, data, num_rows)
    return z, y, overflow
