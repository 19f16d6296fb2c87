"""One particle of the linear-Gaussian Indian buffet process: what it holds and how that changes.

Open `GaussianParticle` first. `filter.py` says what a filter does with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf import slots
from jaxmf.data import Dense
from jaxmf.likelihoods import gaussian
from jaxmf.likelihoods.gaussian import RowPosterior
from jaxmf.likelihoods.spectrum import Spectrum
from jaxmf.models.linear_gaussian.linear_gaussian_spec import LinearGaussianSpec
from jaxmf.models.linear_gaussian.state import HYPERPARAMETERS, LinearGaussianState
from jaxmf.priors import hyper
from jaxmf.samplers import feature_particles
from jaxmf.samplers.feature_layout import Scales, num_features
from jaxmf.types import Array, Draw, Key

MAX_EXACT_SLOTS = 16
MAX_CHILDREN_SLOTS = 10


class Statistics(NamedTuple):
    """Sums over the rows so far."""

    gram: Array  # (K, K) float, Z'Z
    cross: Array  # (K, D) float, Z'X
    # (D,) float, the least |X - Z Y|^2 + r |Y|^2 of every column, r the ratio of the particle's
    # scales. The difference of tr X'X and what Z explains would cancel.
    penalised: Array


class GaussianParticle(NamedTuple):
    """One Z of the rows so far."""

    posterior: RowPosterior  # (M, mu) at the particle's scales
    counts: Array  # (K,) float, ones of each column
    row: Array | None  # (K,) bool, the features of the last row; None with `z`
    # None where the hyperparameters are fixed and nothing is tempered
    statistics: Statistics | None
    z: Array | None  # (N, K) bool, empty after the last row; None without rejuvenation
    # (N, D) float with missing cells imputed; None without rejuvenation or missing cells
    x: Array | None
    # alpha, concentration, noise_scale, feature_scale: () float
    alpha: Array
    concentration: Array
    noise_scale: Array
    feature_scale: Array
    share: Array | None  # () float, what the feature scale is multiplied by; None without tempering

    @property
    def scales(self) -> Scales:
        """The scales that the likelihood of this particle has now."""
        feature = self.feature_scale if self.share is None else self.share * self.feature_scale
        return Scales(noise=self.noise_scale, feature=feature)


@jax.tree_util.register_static
@dataclass(frozen=True)
class GaussianFilterPlan:
    """The structural options of the filter, all of them static."""

    num_slots: int
    proposal: str
    has_children: bool
    rejuvenates: bool
    anneal_from: float
    anneal_steps: int


def check_num_slots(plan: GaussianFilterPlan, model: LinearGaussianSpec, num_slots: int) -> None:
    """Refuses to enumerate the settings of too many slots."""
    if plan.proposal != "exact":
        return
    most = MAX_CHILDREN_SLOTS if plan.has_children else MAX_EXACT_SLOTS
    num_features = num_slots - model.first_slot()
    if num_features > most:
        what = "optimal resampling" if plan.has_children else "the exact proposal"
        raise ValueError(
            f"{what} goes through all 2^K settings of a row, for a capacity of at most {most} "
            f"features; this needs {num_features}. Use "
            + ("another resampling scheme" if plan.has_children else "proposal='prior'")
        )


def needs_statistics(plan: GaussianFilterPlan, model: LinearGaussianSpec) -> bool:
    """Whether particles need Z'Z, Z'X and sums of squares beside (M, mu)."""
    scales_fixed = hyper.is_fixed(model.noise_scale) and hyper.is_fixed(model.feature_scale)
    return not scales_fixed or plan.anneal_steps > 0


def init(
    plan: GaussianFilterPlan, model: LinearGaussianSpec, key: Key, data: Dense
) -> GaussianParticle:
    """A particle before the first row, its hyperparameters from their priors."""
    num_rows, num_columns = data.values.shape
    num_slots, dtype = plan.num_slots, data.values.dtype
    values = {
        name: hyper.sample_prior(jax.random.fold_in(key, index), getattr(model, name)).astype(dtype)
        for index, name in enumerate(HYPERPARAMETERS)
    }
    statistics = None
    if needs_statistics(plan, model):
        statistics = Statistics(
            gram=jnp.zeros((num_slots, num_slots), dtype),
            cross=jnp.zeros((num_slots, num_columns), dtype),
            penalised=jnp.zeros((num_columns,), dtype),
        )
    missing = data.observed is not None
    particle = GaussianParticle(
        posterior=RowPosterior(jnp.zeros((0, 0), dtype), jnp.zeros((0, num_columns), dtype)),
        statistics=statistics,
        x=jnp.zeros(data.values.shape, dtype) if plan.rejuvenates and missing else None,
        share=jnp.asarray(plan.anneal_from, dtype) if plan.anneal_steps else None,
        **feature_particles.no_rows(num_rows, num_slots, dtype, carries_z=plan.rejuvenates),
        **values,
    )
    return particle._replace(posterior=_pad_posterior(particle, num_slots))


def add_row(particle: GaussianParticle, z_row: Array, x: Array, row: Array) -> GaussianParticle:
    """The particle after a complete row."""
    features = z_row.astype(x.dtype)
    statistics = particle.statistics
    if statistics is not None:
        statistics = Statistics(
            gram=statistics.gram + features[:, None] * features,
            cross=statistics.cross + features[:, None] * x,
            penalised=statistics.penalised
            + gaussian.penalised_squares(particle.posterior, features, x),
        )
    particle = particle._replace(
        posterior=gaussian.add_row(particle.posterior, features, x),
        statistics=statistics,
        x=None if particle.x is None else particle.x.at[row].set(x),
    )
    return feature_particles.with_row(particle, z_row, row)


def draw_of_particle(
    model: LinearGaussianSpec, particle: GaussianParticle, path: dict[str, Array], data: Dense
) -> Draw:
    """The draw recorded from one particle, with all of Z.

    Args:
        path: what the history kept, "z" (N, K) bool; empty where the particle carries Z.
    """
    z = feature_particles.whole_z(particle, path)
    values = {name: getattr(particle, name) for name in HYPERPARAMETERS}
    draw = {"z": z, **values, "num_features": num_features(z[:, model.first_slot() :])}
    if data.observed is None or particle.x is not None:
        draw["log_joint"] = model.log_joint(LinearGaussianState(z=z, x=particle.x, **values), data)
    return draw


def grow(
    plan: GaussianFilterPlan,
    model: LinearGaussianSpec,
    particle: GaussianParticle,
    sizes: dict[str, int],
) -> GaussianParticle:
    """The particle with more slots for features, or room for more rows."""
    particle = feature_particles.grow(particle, sizes)
    if "features" in sizes:
        particle = _grow_features(plan, model, particle, sizes["features"])
    if "rows" in sizes and particle.x is not None:
        particle = particle._replace(x=slots.pad_axis(particle.x, 0, sizes["rows"]))
    return particle


def _grow_features(
    plan: GaussianFilterPlan, model: LinearGaussianSpec, particle: GaussianParticle, size: int
) -> GaussianParticle:
    check_num_slots(plan, model, size)
    statistics = particle.statistics
    if statistics is not None:
        statistics = statistics._replace(
            gram=slots.pad_axis(slots.pad_axis(statistics.gram, 0, size), 1, size),
            cross=slots.pad_axis(statistics.cross, 0, size),
        )
    return particle._replace(posterior=_pad_posterior(particle, size), statistics=statistics)


def _pad_posterior(particle: GaussianParticle, size: int) -> RowPosterior:
    """(M, mu) with new slots at the prior: M_kk = 1 / r, mu_k = 0."""
    spread, mean = particle.posterior
    present = spread.shape[0]
    spread = slots.pad_axis(slots.pad_axis(spread, 0, size), 1, size)
    new = jnp.arange(size) >= present
    spread = spread + jnp.diag(jnp.where(new, 1 / particle.scales.ratio, 0))
    return RowPosterior(spread=spread, mean=slots.pad_axis(mean, 0, size))


def spectrum_of(particle: GaussianParticle, num_rows: Array | int) -> Spectrum:
    """Spectrum for the collapsed likelihood of the rows so far."""
    assert particle.statistics is not None
    return gaussian.spectrum_of_statistics(
        *particle.statistics, particle.scales.ratio, jnp.asarray(num_rows)
    )


def recomputed(particle: GaussianParticle, before: Array) -> GaussianParticle:
    """(M, mu) and the sums of squares at the particle's scales.

    Args: particle: with new scales, all else still of the old ones; before () float, the ratio of
    the old scales.
    """
    assert particle.statistics is not None
    gram, cross, penalised = particle.statistics
    ratio = particle.scales.ratio
    posterior = gaussian.row_posterior(gram, cross, ratio)
    # at Y = mu the sum of squares is least, so it rises by (r' - r) mu'mu where r becomes r'
    rise = (ratio - before) * jnp.sum(particle.posterior.mean * posterior.mean, axis=0)
    statistics = Statistics(gram, cross, jnp.maximum(penalised + rise, 0))
    return particle._replace(posterior=posterior, statistics=statistics)
