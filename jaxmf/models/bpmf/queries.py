"""What a draw of BPMF says: cells, and rows not seen in training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from jaxmf.data import Entries
from jaxmf.likelihoods.families.multivariate_normal import Parameters
from jaxmf.samplers.factors.law import precisions
from jaxmf.samplers.factors.layout import in_chunks
from jaxmf.samplers.factors.rows import RowPriors, draw_rows
from jaxmf.samplers.factors.vectors import Known, cell_means, design
from jaxmf.types import Array, Key

if TYPE_CHECKING:
    from jaxmf.models.bpmf.model import BPMF

Draw = dict[str, Array]


def _known(model: BPMF, draw: Draw, rows: Array, columns: Array) -> Known:
    dtype = jnp.asarray(draw["u"]).dtype
    features = jnp.zeros((rows.shape[0], 0), dtype)
    if model.cell_features is not None:
        features = model.cell_features.take(rows, columns)
    return model.known(draw["u"].shape[0], draw["v"].shape[0], features)


def cell_means_of(model: BPMF, draw: Draw, data: Any, rows: Array, columns: Array) -> Array:
    """Means of cells given a draw, with the level: (M,) float."""
    u, v = jnp.asarray(draw["u"]), jnp.asarray(draw["v"])
    known = _known(model, draw, rows, columns)
    means = cell_means(u, v, known, rows, columns, num_factors=model.num_factors)
    return means + model.centre(data).astype(means.dtype)


def cell_moments(
    model: BPMF, draw: Draw, data: Any, rows: Array, columns: Array
) -> tuple[Array, Array]:
    """Predictive mean and variance of cells given a draw, each (M,)."""
    means = cell_means_of(model, draw, data, rows, columns)
    return model.law().moments(model.noise_of(draw), means)


def fold_in(model: BPMF, normals: Array, draw: Draw, data: Any, new_data: Entries) -> Array:
    """Vectors (N', D) of new rows, drawn given their cells; posterior means where normals are 0."""
    v = jnp.asarray(draw["v"])
    law = Parameters(jnp.asarray(draw["row_mean"]), jnp.asarray(draw["row_factor"]))
    number = new_data.num_rows
    means = jnp.broadcast_to(law.mean[0], (number, law.mean.shape[1]))
    values = new_data.values - model.centre(data)
    drawn, _ = draw_rows(
        normals,
        means,
        design(v, _known_of_new(model, new_data), model.num_factors),
        jnp.concatenate([values, jnp.zeros_like(values[:1])]),
        chunks=in_chunks(new_data.rows, new_data.columns, number, new_data.num_columns),
        priors=RowPriors(means, jnp.zeros((number,), jnp.int32), precisions(law)),
        precision=1 / model.noise_of(draw),
    )
    return drawn


def _known_of_new(model: BPMF, new_data: Entries) -> Known:
    number = new_data.values.shape[0]
    width = 0 if model.cell_features is None else model.cell_features.width
    cells = jnp.zeros((number, width), new_data.values.dtype)
    known = model.known(new_data.num_rows, new_data.num_columns, cells)
    return known


def row_moments(
    model: BPMF, key: Key, draw: Draw, data: Any, new_data: Entries
) -> tuple[Array, Array]:
    """Predictive mean and variance of all cells of new rows, each (N', M)."""
    shape = new_data.num_rows, jnp.asarray(draw["row_mean"]).shape[-1]
    normals = jax.random.normal(key, shape, new_data.values.dtype)
    u = fold_in(model, normals, draw, data, new_data)
    means = all_means(model, u, draw, new_data) + model.centre(data)
    return model.law().moments(model.noise_of(draw), means)


def all_means(model: BPMF, u: Array, draw: Draw, new_data: Entries) -> Array:
    """Means (N', M) of all cells of rows with these vectors, without features of cells."""
    known = _known_of_new(model, new_data)
    parts = design(jnp.asarray(draw["v"]), known, model.num_factors)
    table = parts.table[:-1]
    left = jnp.concatenate([u[:, : parts.num_shared], parts.own], axis=1)
    return left @ table.T


def expected_rows(model: BPMF, draw: Draw, data: Any, new_data: Entries) -> Array:
    """Posterior means (N', K) of the latent factors of new rows given a draw."""
    shape = new_data.num_rows, jnp.asarray(draw["row_mean"]).shape[-1]
    u = fold_in(model, jnp.zeros(shape, new_data.values.dtype), draw, data, new_data)
    return u[:, : model.num_factors]
