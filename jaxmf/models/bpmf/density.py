"""Log densities of a state of BPMF; states drawn from the prior, and data given them."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxmf._kernels.linalg import after
from jaxmf.data import Entries
from jaxmf.data.container import bare
from jaxmf.models.bpmf import groups
from jaxmf.models.bpmf.bpmf_spec import BPMFSpec
from jaxmf.models.bpmf.state import BPMFState, PreparedRatings, SidePrior
from jaxmf.models.bpmf.updates import linked, means_of_data, row_means
from jaxmf.priors import column_noise, hyper
from jaxmf.priors.hyper import log_prior
from jaxmf.programs import full_products
from jaxmf.row_shards import whole
from jaxmf.samplers.factors import coefficients
from jaxmf.samplers.factors.coefficients import log_density
from jaxmf.samplers.factors.link import per_column
from jaxmf.samplers.factors.moments import log_determinant, log_hyperprior, precisions
from jaxmf.samplers.factors.shares import Shares, sum_of_squares
from jaxmf.samplers.factors.vectors import cell_means, design
from jaxmf.types import Array, Key


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
        noise = noise + column_noise.log_density(
            state.column_noise, model.least_factor(data.unit, jnp.sqrt(state.noise))
        )
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


@full_products
def simulate_state(
    model: BPMFSpec, key: Key, num_rows: int, num_columns: int, capacity: int = 32
) -> BPMFState:
    """A state from the prior; `capacity` is the number of slots for groups."""
    keys = jax.random.split(key, 3)
    u, row_side = _side(model, keys[0], num_rows, capacity)
    v, column_side = _side(model.transpose(), keys[1], num_columns, capacity)
    noise = model.cell_noise(_unit(model)).sample_prior(keys[2])
    by_column = None
    if model.column_noise:
        least = model.least_factor(_unit(model), jnp.sqrt(noise))
        by_column = column_noise.sample(jax.random.fold_in(keys[2], 1), num_columns, least)
    return BPMFState(u, v, row_side, column_side, noise, by_column)


def _unit(model: BPMFSpec) -> Array | float:
    """Unit of the cells; one where it was not taken from data."""
    return 1.0 if model.scale is None or not model.is_normal else model.scale


def _side(model: BPMFSpec, key: Key, num_rows: int, capacity: int) -> tuple[Array, SidePrior]:
    moments_key, vector_key, link_key, precision_key = jax.random.split(key, 4)
    prior = model.row_hyperprior()
    num_groups = groups.num_groups(model, capacity)
    moments = prior.sample_parameters(moments_key, prior.empty(num_groups), {})
    row_groups, mixture = groups.simulate_groups(
        model, jax.random.fold_in(key, 1), num_rows, capacity
    )
    size = moments.mean.shape[1]
    features = model.row_link()
    num_features, num_parts = (0, 0) if features is None else (features.width, len(features.parts))
    precision = jax.vmap(lambda each: hyper.sample_prior(each, model.link_precision))(
        jax.random.split(precision_key, num_parts)
    )
    link = jax.random.normal(link_key, (num_features, size), moments.mean.dtype)
    if mixture is None:  # else no covariance is that of all
        link = link @ moments.factor[0].T
    if features is not None:
        link = link / jnp.sqrt(per_column(features, precision))[:, None]
    parts = model.row_coefficients()
    others = coefficients.start(parts, model.coefficient_precision)
    if parts.widths:
        coefficient_key = jax.random.fold_in(key, 2)
        others = coefficients.simulate(coefficient_key, parts, model.coefficient_precision)
    side = SidePrior(
        moments=moments,
        groups=row_groups,
        link=link,
        link_precision=precision,
        coefficients=others,
        mixture=mixture,
    )
    return _vectors(model, vector_key, side), side


def _vectors(model: BPMFSpec, key: Key, side: SidePrior) -> Array:
    """Vectors of the rows of a side from their prior: (N, D)."""
    moments, parts = side.moments, model.row_coefficients()
    size, shape = moments.mean.shape[1], (side.groups.shape[0], model.row_width())
    normals = jax.random.normal(key, shape, moments.mean.dtype)
    residuals = jnp.einsum("nde,ne->nd", moments.factor[side.groups], normals[:, :size])
    if parts.widths:
        rest = normals[:, size:] / jnp.sqrt(parts.per_column(side.coefficients.precision))
        residuals = jnp.concatenate([residuals, rest], axis=1)
    return row_means(model, side) + residuals


def simulate_more(
    model: BPMFSpec, key: Key, state: BPMFState, data: Entries
) -> tuple[BPMFState, Entries]:
    """As many further rows, whose cells are in the columns of those there are."""
    vector_key, values_key = jax.random.split(key)
    u = jnp.concatenate([state.u, _vectors(model, vector_key, state.row_side)])
    side = state.row_side
    side = side._replace(groups=jnp.concatenate([side.groups, side.groups]))
    state = state._replace(u=u, row_side=side)
    num_rows, num_columns = data.shape
    more = simulate_data(model, values_key, state, data.rows + num_rows, data.columns)
    fields = {name: jnp.concatenate([getattr(data, name), getattr(more, name)])
              for name in ("rows", "columns", "values")}  # fmt: skip
    shape = 2 * num_rows, num_columns
    return state, bare(Entries, **fields, shape=shape, row_names=None, column_names=None)


@full_products
def simulate_data(
    model: BPMFSpec, key: Key, state: BPMFState, rows: Array, columns: Array
) -> Entries:
    """Values of the cells (rows, columns) given a state."""
    shape = state.u.shape[0], state.v.shape[0]
    features = jnp.zeros((rows.shape[0], 0), state.u.dtype)
    if model.cell_features is not None:
        features = model.cell_features.take(rows, columns)
    known = model.known(*shape, features)
    means = cell_means(state.u, state.v, known, rows, columns, num_factors=model.num_factors)
    means, likelihood = _unit(model) * means, model.cell_noise().at_noise(state.noise)
    if state.column_noise is None:
        values = likelihood.sample(key, means)
    else:
        factors = state.column_noise.factors[columns]
        values = factors * likelihood.sample(key, means / factors)
    if model.has_column_units:
        values = model.to_data_units(values, columns)
    elif model.is_normal and model.offset is not None:
        values = values + model.offset
    fields = {"rows": rows, "columns": columns, "values": values, "shape": shape}
    return bare(Entries, **fields, row_names=None, column_names=None)
