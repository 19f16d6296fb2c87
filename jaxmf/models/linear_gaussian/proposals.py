"""What a particle of the linear-Gaussian filter may do with a row: children, and their weights.

"prior" (Algorithm 1) proposes features from their prior given the earlier rows; "exact" from their
conditional given the row as well, a sum over all settings. Open `propose` first.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxmf.data import Dense
from jaxmf.likelihoods import gaussian
from jaxmf.models.linear_gaussian.linear_gaussian_spec import LinearGaussianSpec
from jaxmf.models.linear_gaussian.particle import GaussianFilterPlan, GaussianParticle
from jaxmf.samplers import feature_particles, feature_rows, row_enumeration
from jaxmf.samplers.feature_layout import RowPrior, Scales
from jaxmf.samplers.feature_particles import ParticleSetting, one_child
from jaxmf.types import Array, Key, PyTree

_MAX_NEW = 100_000
# Numbers of new features that are children of their own; the last stands for all larger ones.
_NUM_COUNTS = 4


def propose(
    plan: GaussianFilterPlan,
    model: LinearGaussianSpec,
    key: Key,
    particle: GaussianParticle,
    data: Dense,
    row: Array,
) -> tuple[PyTree, Array, dict[str, Array]]:
    """The children of a particle with row `row`, and the log weight of each.

    No weight needs slots for its new features: their rows of Y are summed out.
    """
    x, observed = model.centred(data).row(row)
    conditional = conditional_of(model, particle, row)
    log_unit = model.log_unit_of_cells(x, observed)
    if plan.proposal == "prior":
        children = _propose_from_prior(key, model, particle, conditional, x, observed)
        return children[0], children[1] - log_unit, {}
    fit = feature_rows.row_fit(particle.posterior, always_on_of(model, particle), x, observed)
    if plan.has_children:
        children = _all_children(model, fit, conditional, particle.scales)
        return children[0], children[1] - log_unit, {}
    log_weight, block = row_enumeration.sum_settings(
        key, fit, conditional, particle.scales, first=model.first_slot()
    )
    return *one_child(block, log_weight - log_unit), {}


def _propose_from_prior(
    key: Key,
    model: LinearGaussianSpec,
    particle: GaussianParticle,
    conditional: RowPrior,
    x: Array,
    observed: Array | None,
) -> tuple[PyTree, Array]:
    """Algorithm 1; the weight is the density of the observed cells (eqs 5 and 7)."""
    dtype = x.dtype
    # One vector whose head does not depend on the capacity: the number, then a slot each.
    uniforms = jax.random.uniform(key, (conditional.movable.shape[0] + 1,), dtype)
    bits = conditional.movable & (uniforms[1:] < jax.nn.sigmoid(conditional.log_odds))
    num_new = _poisson_quantile(uniforms[0], conditional.rate)
    scales = particle.scales
    squared_error, inflation, num_observed = _fit_of(
        particle, bits | always_on_of(model, particle), x, observed
    )
    log_weight = gaussian.log_normal_row(
        squared_error, 1 + inflation + num_new / scales.ratio, num_observed, scales.noise_variance
    )
    return one_child(ParticleSetting(bits, num_new), log_weight)


def _all_children(
    model: LinearGaussianSpec, fit: feature_rows.RowFit, conditional: RowPrior, scales: Scales
) -> tuple[ParticleSetting, Array]:
    """All settings of the row: 2^K of the existing bits times 0, 1, ... new features."""
    patterns, log_weights = row_enumeration.all_settings(
        fit, conditional, scales, first=model.first_slot(), num_counts=_NUM_COUNTS
    )
    children = ParticleSetting(
        bits=jnp.repeat(patterns, _NUM_COUNTS, axis=0),
        num_new=jnp.tile(jnp.arange(_NUM_COUNTS, dtype=jnp.int32), len(patterns)),
    )
    return children, log_weights.reshape(-1)


def draw_child(
    key: Key,
    model: LinearGaussianSpec,
    particle: GaussianParticle,
    block: row_enumeration.RowBlock,
    conditional: RowPrior,
    cells: tuple[Array, Array | None],
) -> ParticleSetting:
    """A setting from the exact conditional: copies of one parent get children of their own."""
    x, observed = cells
    uniforms = jax.random.uniform(key, (2,), x.dtype)
    bits = row_enumeration.draw_bits(
        uniforms[0], block, conditional.movable, first=model.first_slot()
    )
    fit = _fit_of(particle, bits | always_on_of(model, particle), x, observed)
    num_new = row_enumeration.draw_num_new(
        uniforms[1], *fit, rate=conditional.rate, scales=particle.scales
    )
    return ParticleSetting(bits, num_new)


def draw_larger(
    key: Key,
    model: LinearGaussianSpec,
    particle: GaussianParticle,
    child: ParticleSetting,
    conditional: RowPrior,
    cells: tuple[Array, Array | None],
) -> ParticleSetting:
    """A child whose number of new features, where it stood for all larger ones, is drawn."""
    x, observed = cells
    fit = _fit_of(particle, child.bits | always_on_of(model, particle), x, observed)
    last = _NUM_COUNTS - 1
    drawn = row_enumeration.draw_num_new(
        jax.random.uniform(key, (), x.dtype),
        *fit,
        rate=conditional.rate,
        scales=particle.scales,
        at_least=last,
    )
    return child._replace(num_new=jnp.where(child.num_new == last, drawn, child.num_new))


def _fit_of(
    particle: GaussianParticle, features: Array, x: Array, observed: Array | None
) -> tuple[Array, Array, Array]:
    """Squared error of the observed cells about z mu, z M z', and their number: () float each."""
    on = features.astype(x.dtype)
    error = x - on @ particle.posterior.mean
    num_observed = jnp.asarray(x.shape[0], x.dtype)
    if observed is not None:
        error = jnp.where(observed, error, 0)
        num_observed = jnp.sum(observed, dtype=x.dtype)
    return error @ error, on @ particle.posterior.spread @ on, num_observed


def conditional_of(model: LinearGaussianSpec, particle: GaussianParticle, row: Array) -> RowPrior:
    """The prior of row `row` given the earlier ones; rows are counted from 1 in it."""
    return feature_particles.conditional_of(
        model.prior(particle), particle, row, num_fixed=model.first_slot()
    )


def always_on_of(model: LinearGaussianSpec, particle: GaussianParticle) -> Array:
    """(K,) bool, the bias feature."""
    return (jnp.arange(particle.counts.shape[0]) == 0) & model.has_bias_feature


def _poisson_quantile(uniform: Array, rate: Array) -> Array:
    """A Poisson number by inversion: a handful of turns at the rates of an Indian buffet."""
    log_rate = jnp.log(jnp.where(rate > 0, rate, 1))
    # Beyond this many nothing is left that a float could tell from zero.
    most = jnp.minimum(rate + 12 * jnp.sqrt(rate) + 30, _MAX_NEW)

    def must_go_on(carry: tuple[Array, Array, Array]) -> Array:
        count, _, below = carry
        return (below <= uniform) & (count < most) & (rate > 0)

    def go_on(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        count, log_term, below = carry
        log_term = log_term + log_rate - jnp.log(count + 1.0)
        return count + 1, log_term, below + jnp.exp(log_term)

    start = (jnp.zeros((), jnp.int32), -rate, jnp.exp(-rate))
    return jax.lax.while_loop(must_go_on, go_on, start)[0]
