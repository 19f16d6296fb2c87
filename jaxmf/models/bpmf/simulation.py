"""Draws of BPMF from its prior, and of data given them."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxmf.data import Entries
from jaxmf.data.container import bare
from jaxmf.models.bpmf import groups
from jaxmf.models.bpmf.bpmf_spec import BPMFSpec
from jaxmf.models.bpmf.state import BPMFState, SidePrior
from jaxmf.models.bpmf.updates import row_means
from jaxmf.priors import column_noise, hyper
from jaxmf.programs import full_products
from jaxmf.samplers.factors import coefficients
from jaxmf.samplers.factors.link import per_column
from jaxmf.samplers.factors.vectors import cell_means
from jaxmf.types import Array, Key


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
        by_column = column_noise.sample(jax.random.fold_in(keys[2], 1), num_columns)
    return BPMFState(u, v, row_side, column_side, noise, by_column)


def _unit(model: BPMFSpec) -> Array | float:
    """What means of cells are multiplied by: without data to be like it is one."""
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
