"""Log densities of a state of BPMF."""

from __future__ import annotations

import jax.numpy as jnp

from jaxmf._kernels.linalg import after
from jaxmf.models.bpmf import groups
from jaxmf.models.bpmf.bpmf_spec import BPMFSpec
from jaxmf.models.bpmf.state import BPMFState, PreparedRatings, SidePrior
from jaxmf.models.bpmf.updates import linked, means_of_data
from jaxmf.priors import column_noise
from jaxmf.priors.hyper import log_prior
from jaxmf.row_shards import whole
from jaxmf.samplers.factors.coefficients import log_density
from jaxmf.samplers.factors.link import per_column
from jaxmf.samplers.factors.moments import log_determinant, log_hyperprior, precisions
from jaxmf.samplers.factors.shares import Shares, sum_of_squares
from jaxmf.samplers.factors.vectors import design
from jaxmf.types import Array


def log_likelihood(model: BPMFSpec, state: BPMFState, data: PreparedRatings) -> Array:
    """log p(observed cells | vectors, noise): () float."""
    return log_likelihood_in_units(model, state, data) - data.log_unit


def log_likelihood_in_units(model: BPMFSpec, state: BPMFState, data: PreparedRatings) -> Array:
    """The same of the cells in units of columns."""
    cells, unit, likelihood = data.cells, data.unit, model.cell_noise().at_noise(state.noise)
    if isinstance(cells, Shares):
        meets = design(whole(state.v), data.known, model.num_factors)
        squares = sum_of_squares(state.u, meets, side=cells.by_row, num_devices=cells.num_devices)
        nothing = jnp.zeros((), squares.dtype)
        level = likelihood.log_density(nothing, nothing)
        return cells.num_cells * level - squares * unit**2 / (2 * likelihood.noise_scale**2)
    means = means_of_data(model, state, data)
    if state.column_noise is not None:
        factors = state.column_noise.factors[cells.columns]
        log_densities = likelihood.log_density(
            cells.values * unit / factors, means * unit / factors
        )
        return jnp.sum(log_densities - jnp.log(factors))
    return jnp.sum(likelihood.log_density(cells.values * unit, means * unit))


def log_joint(model: BPMFSpec, state: BPMFState, data: PreparedRatings) -> Array:
    """log p(cells, vectors, priors, noise): () float."""
    rows = _log_side(model, state)
    # not at the same time as that of the rows, see `after`
    turned = state.transpose()
    factor = after(turned.row_side.moments.factor, rows)
    moments = turned.row_side.moments._replace(factor=factor)
    row_side = turned.row_side._replace(moments=moments)
    columns = _log_side(model.transpose(), turned._replace(row_side=row_side))
    noise = model.cell_noise(data.unit).log_prior(state.noise)
    if state.column_noise is not None:
        noise = noise + column_noise.log_density(state.column_noise)
    return rows + columns + noise + log_likelihood(model, state, data)


def _log_side(model: BPMFSpec, state: BPMFState) -> Array:
    """log p(vectors of the rows, their prior): () float; a mixture's parameters summed out."""
    side, width = state.row_side, model.core_width
    core = state.u[:, :width]
    others = log_density(
        side.coefficients,
        values=state.u[:, width:],
        parts=model.row_coefficients(),
        precision_prior=model.coefficient_precision,
    )
    if side.mixture is not None:
        total = others + groups.log_density(model, side, core - linked(model, side))
        return total + _log_link(model, side, jnp.sum(side.link**2, axis=1), jnp.zeros(()))
    inverse = precisions(side.moments)
    residuals = core - side.moments.mean[side.groups] - linked(model, side)
    # of one group: no matrix for every row
    distances = jnp.sum((residuals @ inverse[0]) * residuals)
    determinant = log_determinant(side.moments)[0]
    level = width * jnp.log(2 * jnp.pi) + determinant
    vectors = -0.5 * (state.u.shape[0] * level + distances)
    total = others + vectors + log_hyperprior(model.row_hyperprior(), side.moments, inverse)[0]
    link_squares = jnp.sum((side.link @ inverse[0]) * side.link, axis=1)
    return total + _log_link(model, side, link_squares, determinant)


def _log_link(model: BPMFSpec, side: SidePrior, squares: Array, determinant: Array) -> Array:
    """log p(link, its precisions), given squares (F,) of its lines in units of their covariance."""
    features = model.row_link()
    if features is None:
        return jnp.zeros(())
    width, size = side.link.shape
    column_precisions = per_column(features, side.link_precision)
    level = size * jnp.log(2 * jnp.pi) + determinant
    link = -0.5 * (
        width * level
        - size * jnp.sum(jnp.log(column_precisions))
        + jnp.sum(column_precisions * squares)
    )
    return link + jnp.sum(log_prior(model.link_precision, side.link_precision))
