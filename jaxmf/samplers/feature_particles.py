"""What the particles of all models of binary features share: the rows of Z, and how they grow.

A particle is a named tuple with the fields

    counts  (K,) float, ones of each column of Z
    row     (K,) bool, the features of the last row; None with `z`
    z       (N, K) bool, empty after the last row; None without rejuvenation

and others of its model. Without rejuvenation Z lies in the history of the filter, row by row.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jax.typing import DTypeLike

from jaxmf import slots
from jaxmf.priors.features import RowByRowPrior
from jaxmf.samplers.feature_layout import RowPrior, row_prior
from jaxmf.samplers.resampling import ResampleFn, optimal
from jaxmf.samplers.smc import ParticleModel
from jaxmf.types import Array, PyTree

Particle = TypeVar("Particle")  # a named tuple with the fields above


class ParticleSetting(NamedTuple):
    """A child: bits of existing features (K,) bool, and the number of new ones, () int."""

    bits: Array
    num_new: Array


def carrying_z(model: ParticleModel, *, rejuvenates: bool) -> ParticleModel:
    """The model with all of Z in each particle, if it rejuvenates; else with rows in the history.

    Args: model: without `keep` and `capacity`, with the kernel that rejuvenates.
    """
    return model._replace(
        keep=None if rejuvenates else Partial(keep),
        rejuvenate=model.rejuvenate if rejuvenates else None,
        capacity=Partial(capacity),
    )


def refuse_optimal(resample_fn: ResampleFn, reason: str) -> None:
    """Refuses optimal resampling for a model whose children cannot be enumerated."""
    if resample_fn is optimal:
        raise ValueError(
            f"resample_fn=optimal chooses among enumerated children, and {reason}: use systematic, "
            "stratified, residual or multinomial"
        )


def no_rows(
    num_rows: int, num_slots: int, dtype: DTypeLike, *, carries_z: bool
) -> dict[str, PyTree]:
    """The shared fields of a particle before the first row."""
    return {
        "counts": jnp.zeros((num_slots,), dtype),
        "row": None if carries_z else jnp.zeros((num_slots,), bool),
        "z": jnp.zeros((num_rows, num_slots), bool) if carries_z else None,
    }


def conditional_of(
    prior: RowByRowPrior, particle: PyTree, row: Array, *, num_fixed: int = 0
) -> RowPrior:
    """The prior of row `row` given the earlier ones; rows are counted from 1 in it."""
    num_rows = (row + 1).astype(particle.counts.dtype)
    return row_prior(prior, particle.counts, num_rows, num_fixed=num_fixed)


def one_child(child: PyTree, log_weight: Array) -> tuple[PyTree, Array]:
    """A child and its log weight, each with a leading axis of one."""
    return jax.tree.map(lambda leaf: leaf[None], child), log_weight[None]


def with_row(particle: Particle, z_row: Array, row: Array) -> Particle:
    """The particle with the features z_row (K,) bool of row `row`."""
    before: PyTree = particle
    after: Particle = before._replace(
        counts=before.counts + z_row,
        row=None if before.row is None else z_row,
        z=None if before.z is None else before.z.at[row].set(z_row),
    )
    return after


def keep(particle: PyTree) -> dict[str, Array]:
    """The history of a row."""
    return {"z": particle.row}


def whole_z(particle: PyTree, path: dict[str, Array]) -> Array:
    """Z (N, K) of a particle, or of what the history kept of it."""
    z: Array = path["z"] if particle.z is None else particle.z
    return z


def grow(particle: Particle, sizes: dict[str, int]) -> Particle:
    """The shared fields with more slots for features, and room for more rows."""

    def pad(leaf: PyTree, axis: int, name: str) -> PyTree:
        if leaf is None or name not in sizes:
            return leaf
        return slots.pad_axis(leaf, axis, sizes[name])

    before: PyTree = particle
    after: Particle = before._replace(
        counts=pad(before.counts, 0, "features"),
        row=pad(before.row, 0, "features"),
        z=pad(pad(before.z, 1, "features"), 0, "rows"),
    )
    return after


def capacity(particle: PyTree) -> dict[str, int]:
    """Sizes of the growing axes, from shapes."""
    sizes = {"features": particle.counts.shape[-1]}
    if particle.z is not None:
        sizes["rows"] = particle.z.shape[-2]
    return sizes
