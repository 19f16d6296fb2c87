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
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from jaxmf import slots
from jaxmf.data import Dense
from jaxmf.engine import Algorithm
from jaxmf.models.feature_model.rejuvenation import update_particle
from jaxmf.samplers.cloud import TriggerFn
from jaxmf.samplers.explicit_rows import where_slots
from jaxmf.samplers.feature_layout import row_prior
from jaxmf.samplers.resampling import ResampleFn, optimal, systematic
from jaxmf.samplers.smc import ParticleModel, particle_filter
from jaxmf.special import poisson
from jaxmf.types import Array, Key

if TYPE_CHECKING:
    from jaxmf.models.feature_model.model import FeatureModel


class Particle(NamedTuple):
    """One Z of the rows so far, and its features.

    Attributes:
        y: (K, ...), rows of Y.
        counts: (K,) float, ones of each column.
        row: (K,) bool, the features of the last row; None with `z`.
        z: (N, K) bool, empty after the last row; None without rejuvenation.
    """

    y: Array
    counts: Array
    row: Array | None
    z: Array | None


class Choice(NamedTuple):
    """A child: the row's bits (K,) bool, and all rows of Y (K, ...)."""

    z: Array
    y: Array


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["num_slots", "rejuvenates"])
@dataclass(frozen=True)
class Plan:
    """The structural options of the filter, all of them static."""

    num_slots: int
    rejuvenates: bool


def build_filter(
    model: FeatureModel,
    *,
    num_particles: int = 1_000,
    resample_fn: ResampleFn = systematic,
    ess_threshold: float | TriggerFn = 0.5,
    rejuvenate_every: int = 0,
    capacity: int | None = None,
    batch_size: int | None = None,
) -> Algorithm:
    """The particle filter of a `FeatureModel`; options as in `FeatureModel.filter`.

    Raises:
        ValueError: an option out of its range, or optimal resampling.
    """
    if resample_fn is optimal:
        raise ValueError(
            "resample_fn=optimal chooses among enumerated children, and features of any "
            "distribution cannot be enumerated: use systematic, stratified, residual or multinomial"
        )
    plan = Plan(num_slots=model.num_slots(capacity), rejuvenates=rejuvenate_every > 0)
    particle_model = ParticleModel(
        init=Partial(init, plan, model),
        propose=Partial(propose, model),
        extend=Partial(extend),
        keep=None if plan.rejuvenates else Partial(keep),
        rejuvenate=Partial(rejuvenate, model) if plan.rejuvenates else None,
        grow=Partial(grow, model),
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


def init(plan: Plan, model: FeatureModel, key: Key, data: Dense) -> Particle:
    """A particle before the first row; a finite prior has its features from the start."""
    num_slots = plan.num_slots
    counts = jnp.zeros((num_slots,), jnp.result_type(float))
    drawn = model.draw_features(key, num_slots)
    there = model.prior.exists(counts)
    return Particle(
        y=where_slots(there, drawn, model.filling(num_slots)),
        counts=counts,
        row=None if plan.rejuvenates else jnp.zeros((num_slots,), bool),
        z=jnp.zeros((data.values.shape[0], num_slots), bool) if plan.rejuvenates else None,
    )


def propose(
    model: FeatureModel, key: Key, particle: Particle, data: Dense, row: Array
) -> tuple[Choice, Array, dict[str, Array]]:
    """One child: Algorithm 1 for its bits, the prior for new rows of Y; the weight is eq 5."""
    num_slots = particle.counts.shape[0]
    dtype = particle.counts.dtype
    streams = [jax.random.fold_in(key, index) for index in range(3)]
    conditional = row_prior(model.prior, particle.counts, (row + 1).astype(dtype), num_fixed=0)
    uniforms = jax.random.uniform(streams[0], (num_slots,), dtype)
    bits = conditional.movable & (uniforms < jax.nn.sigmoid(conditional.log_odds))
    num_new = poisson(streams[1], conditional.rate)
    claim = slots.claim(~conditional.free, num_new)
    y = where_slots(claim.claimed, model.draw_features(streams[2], num_slots), particle.y)
    z = bits | claim.claimed
    x, observed = data.row(row)
    log_weight = model.row_log_likelihood(x, observed, z, y)
    choice = Choice(z=z, y=y)
    # a row with fewer new features than were drawn has the wrong weight, resampled or not
    overflow = {"features": claim.overflow}
    return jax.tree.map(lambda leaf: leaf[None], choice), log_weight[None], overflow


def extend(
    key: Key, particle: Particle, choice: Choice, data: Dense, row: Array
) -> tuple[Particle, dict[str, Array]]:
    """The particle with row `row` as chosen."""
    del key, data
    particle = Particle(
        y=choice.y,
        counts=particle.counts + choice.z,
        row=None if particle.row is None else choice.z,
        z=None if particle.z is None else particle.z.at[row].set(choice.z),
    )
    return particle, {}


def keep(particle: Particle) -> dict[str, Array]:
    """What the history keeps of a row."""
    assert particle.row is not None
    return {"z": particle.row}


def rejuvenate(
    model: FeatureModel, key: Key, particle: Particle, data: Dense, row: Array
) -> tuple[Particle, dict[str, Array]]:
    """Kernel: all rows so far and Y, one after another."""
    assert particle.z is not None
    z, y, overflow = update_particle(key, model, particle.z, particle.y, data, row + 1)
    # what a feature that is gone has left behind must not depend on the way there
    counts = jnp.sum(z, axis=0, dtype=particle.counts.dtype)
    y = where_slots(model.prior.exists(counts), y, model.filling(z.shape[1]))
    return particle._replace(z=z, y=y, counts=counts), {"features": overflow}


def grow(model: FeatureModel, particle: Particle, sizes: dict[str, int]) -> Particle:
    """The particle with more slots for features, or room for more rows."""
    y, counts, row, z = particle
    if "features" in sizes:
        size = sizes["features"]
        present = counts.shape[0]
        y = jnp.concatenate([y, model.filling(size - present)])
        counts = slots.pad_axis(counts, 0, size)
        row = None if row is None else slots.pad_axis(row, 0, size)
        z = None if z is None else slots.pad_axis(z, 1, size)
    if "rows" in sizes and z is not None:
        z = slots.pad_axis(z, 0, sizes["rows"])
    return Particle(y=y, counts=counts, row=row, z=z)


def capacity_of(particle: Particle) -> dict[str, int]:
    """Sizes of the growing axes, from shapes."""
    sizes = {"features": particle.counts.shape[-1]}
    if particle.z is not None:
        sizes["rows"] = particle.z.shape[-2]
    return sizes
