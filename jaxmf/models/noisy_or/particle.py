"""One particle of the noisy-OR Indian buffet process: what it holds and how that changes.

Open `NoisyOrParticle` first. `filter.py` says what a filter does with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf import slots
from jaxmf.data import Dense
from jaxmf.likelihoods import noisy_or
from jaxmf.likelihoods.noisy_or import NoisyOrCells, Tally
from jaxmf.models.noisy_or.noisy_or_spec import NoisyOrSpec
from jaxmf.models.noisy_or.state import HYPERPARAMETERS, NoisyOrState
from jaxmf.models.noisy_or.updates import needs_tally
from jaxmf.priors import hyper
from jaxmf.samplers import feature_particles
from jaxmf.samplers.feature_layout import num_features
from jaxmf.types import Array, Draw, Key


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


def particle_draw(
    model: NoisyOrSpec, particle: NoisyOrParticle, path: dict[str, Array], data: Dense
) -> Draw:
    """What a draw keeps of one particle, all of Z included.

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
