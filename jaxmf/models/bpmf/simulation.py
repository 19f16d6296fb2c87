"""Draws of BPMF from its prior, and of data given them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from jaxmf.data import Entries
from jaxmf.data.container import bare
from jaxmf.models.bpmf import groups
from jaxmf.models.bpmf.state import SideLaw, State
from jaxmf.models.bpmf.updates import row_means
from jaxmf.priors import hyper
from jaxmf.samplers.factors.link import of_columns
from jaxmf.samplers.factors.vectors import cell_means
from jaxmf.types import Array, Key

if TYPE_CHECKING:
    from jaxmf.models.bpmf.model import BPMF


def simulate_state(
    model: BPMF, key: Key, num_rows: int, num_columns: int, capacity: int = 32
) -> State:
    """A state from the prior."""
    keys = jax.random.split(key, 3)
    u, row_law = _side(model, keys[0], num_rows, capacity)
    v, column_law = _side(model.transpose(), keys[1], num_columns, capacity)
    return State(u, v, row_law, column_law, model.law().sample_prior(keys[2]))


def _side(model: BPMF, key: Key, number: int, capacity: int) -> tuple[Array, SideLaw]:
    law_key, vector_key, link_key, precision_key = jax.random.split(key, 4)
    prior = model.row_law_prior()
    num_groups = groups.num_groups(model, capacity)
    law = prior.sample_parameters(law_key, prior.empty(num_groups), {})
    places, mixture = groups.simulate_groups(model, jax.random.fold_in(key, 1), number, capacity)
    size = law.mean.shape[1]
    features = model.row_link()
    num_features, num_parts = (0, 0) if features is None else (features.width, len(features.parts))
    precision = jax.vmap(lambda each: hyper.sample_prior(each, model.link_precision))(
        jax.random.split(precision_key, num_parts)
    )
    link = jax.random.normal(link_key, (num_features, size), law.mean.dtype)
    if mixture is None:  # else no covariance is that of all
        link = link @ law.factor[0].T
    if features is not None:
        link = link / jnp.sqrt(of_columns(features, precision))[:, None]
    side = SideLaw(
        law=law,
        groups=places,
        link=link,
        link_precision=precision,
        mixture=mixture,
    )
    normals = jax.random.normal(vector_key, (number, size), law.mean.dtype)
    apart = jnp.einsum("nde,ne->nd", law.factor[places], normals)
    return row_means(model, side) + apart, side


def simulate_data(model: BPMF, key: Key, state: State, rows: Array, columns: Array) -> Entries:
    """Values of the cells (rows, columns) given a state."""
    shape = state.u.shape[0], state.v.shape[0]
    features = jnp.zeros((rows.shape[0], 0), state.u.dtype)
    if model.cell_features is not None:
        features = model.cell_features.take(rows, columns)
    known = model.known(*shape, features)
    means = cell_means(state.u, state.v, known, rows, columns, num_factors=model.num_factors)
    values = model.law().sample(key, state.noise, means)
    if model.is_normal and model.level is not None:
        values = values + model.level
    fields = {"rows": rows, "columns": columns, "values": values, "shape": shape}
    return bare(Entries, **fields, row_names=None, column_names=None)
